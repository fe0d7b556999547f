"""fetch_url gets pages as text, and nothing of this machine's or its network's unless the policy names it."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import need

from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.ext.builtin.tools import fetch
from uwf_git.ext.builtin.tools.fetch import is_public, page_text

PAGE = """<!doctype html><html><head><title> A &amp;
 page</title><style>p { color: red }</style></head><body><script>alert(1)</script>
<h1>Head</h1><p>Some <b>bold</b> text,   and a <a href="/next?a=1&amp;b=2">link</a>.<p>More
<ul><li>one<li>two</ul><pre>
  kept   as
 it is</pre><table><tr><td>a</td><td>b</td></tr></table><a href="javascript:x()">no</a><noscript>n</noscript>"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by path; what it was asked with stands in `asked`."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, str]] = []  # noqa: RUF012 -- a class is made for each server

    def do_GET(self) -> None:
        self.asked.append(
            {"path": self.path, **{name.lower(): value for name, value in self.headers.items()}}
        )
        name, _, rest = self.path[1:].partition("?")
        if name == "redirect":
            self.answer(302, b"", location=rest)
        elif name == "loop":
            self.answer(302, b"", location=f"/loop?{len(self.asked)}")
        elif name == "bomb":
            packed = zlib.compressobj(9, zlib.DEFLATED, 31)
            zeros = bytes(1 << 20)
            body = b"".join(packed.compress(zeros.replace(b"\0", b"x")) for _ in range(20)) + packed.flush()
            self.answer(200, body, content_encoding="gzip")
        elif name == "drip":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.05)
        elif name == "garbage":
            self.wfile.write(b"\0\1\2 nothing like HTTP\n\n")
            self.close_connection = True
        else:
            body, content_type = self.pages[name]
            self.answer(404 if name == "missing" else 200, body, content_type=content_type)

    pages: dict[str, tuple[bytes, str]] = {  # noqa: RUF012
        "": (PAGE.encode(), "text/html; charset=utf-8"),
        "json": (b'{"a": 1}', "application/json"),
        "latin": ("<meta charset='iso-8859-1'><p>café".encode("latin-1"), "text/html"),
        "nonsense": (b"plain", "text/plain; charset=nonsense"),
        "image": (b"\x89PNG", "image/png"),
        "binary": (b"a\0b", "text/plain"),
        "long": (b"".join(b"%d\n" % number for number in range(20_000)), "text/plain"),
        "endless": (b"x" * 6_000_000, "text/plain"),
        "missing": (b"not here", "text/plain"),
    }

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content_type": "text/plain", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """A server on loopback: its port, and what it was asked."""
    asked: list[dict[str, str]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"asked": asked}))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(url: str, *hosts: str) -> dict[str, Any]:
    """What the tool answers, with these hosts allowed; without any, public ones are."""
    policy = ToolPolicy(allow_hosts=(hosts,) if hosts else ())
    with standard_tools(Path.cwd(), policy) as box:
        value = box.call("fetch_url", {"url": url}).value
        if "truncated" in value:
            value["whole"] = box.call(
                "read_file", {"path": "@output/1.txt", "offset": 10_000, "limit": 1}
            ).value
        return value


def code(url: str, *hosts: str) -> str:
    return str(get(url, *hosts)["error"]["code"])


def test_a_page_comes_as_text_with_its_links() -> None:
    with serving() as (port, asked):
        base = f"http://127.0.0.1:{port}"
        page = get(f"{base}/#part", "127.0.0.1")
        assert (page["ok"], page["status"], page["title"]) == (True, 200, "A & page")
        assert page["text"] == (
            f"# Head\n\nSome bold text, and a [link]({base}/next?a=1&b=2).\n\nMore\n\n- one\n- two\n\n"
            "```\n\n  kept   as\n it is\n```\n\n | a | b\n\nno"
        )
        assert "cookie" not in asked[0] and "authorization" not in asked[0]
        assert get(f"{base}/json", "127.0.0.1")["text"] == '{"a": 1}'
        assert get(f"{base}/latin", "127.0.0.1")["text"] == "café"
        assert get(f"{base}/nonsense", "127.0.0.1")["text"] == "plain"
        assert get(f"{base}/missing", "127.0.0.1")["status"] == 404
        long = get(f"{base}/long", "127.0.0.1")
        assert "@output/1.txt" in long["rest"] and long["whole"]["content"] == "9999\n"
        endless = get(f"{base}/endless", "127.0.0.1")
        assert "only the first 5000000 bytes" in endless["cut"] and endless["truncated"]
        assert get(f"{base}/bomb", "127.0.0.1")["cut"]


def test_what_is_not_public_is_asked_only_where_the_policy_names_it() -> None:
    with serving() as (port, asked):
        for host in (
            "127.0.0.1",
            "localhost",
            "127.1",
            "2130706433",
            "0x7f.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
        ):
            assert code(f"http://{host}:{port}/") == "denied", host
            assert code(f"http://{host}:{port}/", "*") == "denied", host
        for url in (f"http://127.0.0.1:{port}/", "http://169.254.169.254/latest/meta-data/"):
            assert code(url, "docs.example.org") == "denied"
        assert code("http://169.254.169.254/latest/meta-data/") == "denied"
        assert code(f"http://user:pass@127.0.0.1:{port}/", "127.0.0.1") == "denied"
        assert code(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port + 1}") == "denied"
        assert asked == []
        assert get(f"http://127.0.0.1:{port}/json", f"127.0.0.1:{port}")["ok"]
        assert get(f"http://LOCALHOST:{port}/json", "localhost")["ok"]


def test_each_redirect_is_looked_at_again() -> None:
    with serving() as (port, asked), serving() as (other, untouched):
        base = f"http://127.0.0.1:{port}"
        here = f"127.0.0.1:{port}"
        moved = get(f"{base}/redirect?/json", here)
        assert (moved["url"], moved["text"]) == (f"{base}/json", '{"a": 1}')
        assert code(f"{base}/redirect?http://127.0.0.1:{other}/json", here) == "denied"
        assert code(f"{base}/redirect?file:///etc/passwd", here) == "invalid_arguments"
        assert code(f"{base}/loop", here) == "network"
        assert len([each for each in asked if each["path"].startswith("/loop")]) == fetch.REDIRECTS + 1
        assert untouched == []


def test_a_name_is_resolved_once_and_that_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile name server gives another address each time it is asked."""
    real = socket.getaddrinfo
    answers = ["127.0.0.1"]
    asked: list[str] = []

    def resolve(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *more, **named)
        asked.append(host)
        return real(answers[min(len(asked), len(answers)) - 1], port, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with serving() as (port, requests):
        answers[:] = ["127.0.0.1", "127.0.0.2"]
        assert get(f"http://rebind.example:{port}/json", "rebind.example")["ok"]
        assert requests[0]["host"] == f"rebind.example:{port}"
        assert asked == ["rebind.example"]
        assert code(f"http://rebind.example:{port}/json") == "denied"
        assert len(requests) == 1


def test_a_certificate_has_to_be_of_the_name_that_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("openssl")
    for name, expected in (("localhost", True), ("other.example", False)):
        certificate = tmp_path / f"{name}.pem"
        words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
        files = ["-keyout", str(certificate), "-out", str(tmp_path / "out.pem")]
        names = ["-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run(["openssl", *words.split(), *names, *files], check=True, capture_output=True)
        certificate.write_bytes(certificate.read_bytes() + (tmp_path / "out.pem").read_bytes())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "out.pem"))
        with serving(certificate) as (port, _):
            answer = get(f"https://localhost:{port}/json", "localhost")
            assert answer["ok"] is expected, answer
            assert expected or "CERTIFICATE_VERIFY_FAILED" in answer["error"]["message"]


def test_what_can_not_be_had_has_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as (port, _):
        base = f"http://127.0.0.1:{port}"
        assert code(f"{base}/image", "127.0.0.1") == "binary"
        assert code(f"{base}/binary", "127.0.0.1") == "binary"
        assert code(f"{base}/garbage", "127.0.0.1") == "network"
        with monkeypatch.context() as short:
            short.setattr(fetch, "SECONDS", 0.3)
            assert code(f"{base}/drip", "127.0.0.1") == "timeout"
    assert code(base, "127.0.0.1") == "network"
    for url in (
        "file:///etc/passwd",
        "ftp://example.org/",
        "example.org",
        "http://",
        "x\0",
    ):
        assert code(url) == "invalid_arguments", url
    assert code("http://nowhere.invalid/") == "network"


def test_addresses_that_lead_back_here_are_not_public() -> None:
    for address in (
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "2001:db8::1", "no address"),
        *(
            "192.0.0.8",
            "192.0.0.192",
            "168.63.129.16",
            "192.88.99.1",
            "100.100.100.200",
            "198.18.0.1",
            "240.0.0.1",
        ),
        *(
            "fec0::1",
            "3fff::1",
            "fd00:ec2::254",
            "5f00::1",
            "100::1",
            "64:ff9b:1::1",
            "2001:10::1",
            "4000::1",
        ),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "2620:4f:8000::1", "::10.0.0.1", "64:ff9b::a9fe:a9fe"),
    ):
        assert not is_public(address), address
    public = (
        "93.184.216.34",
        "2606:4700::1111",
        "64:ff9b::808:808",
        "100.128.0.1",
        "172.32.0.1",
        "2a00:1450::1",
    )
    for address in (*public, "192.0.1.1", "223.255.255.254", "2001:4860:4860::8888"):
        assert is_public(address), address


def test_odd_pages_are_read_all_the_same() -> None:
    nested = page_text("<div>" * 20_000 + "x" + "</p></svg></b>", "http://a.example/")[1]
    assert nested == "x"
    assert page_text("<head><style>x</style><body>shown", "http://a.example/") == ("", "shown")
    assert page_text("<title>t</title><svg><p>hidden</svg>shown", "http://a.example/") == ("t", "shown")
    assert page_text("<a href='http://['>bad</a> &#x110000; &nope;", "http://a.example/")[1].startswith("bad")
