"""Who gets in: only whoever has the printed address, asking for this server by its name, from its own pages."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, Serving, entered

from uwf_git.ext.web import assets

letting_in = contextmanager(entered)

FLOOD = int(os.environ.get("UWF_TEST_FLOOD", "1500"))

pytestmark = pytest.mark.usefixtures("thread")


def test_the_printed_address_lets_in_once(serve: Serve) -> None:
    serving = serve()
    with (
        httpx.Client(trust_env=False, verify=False) as first,
        httpx.Client(trust_env=False, verify=False) as second,
    ):
        assert first.get(serving.address + "/").status_code == 401
        entered = first.get(serving.launch)
        assert entered.status_code == 303 and "token" not in entered.headers["location"]
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith(f"uwf-{serving.address.rpartition(':')[2]}=")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert first.get(serving.address + "/").status_code == 200
        refused = second.get(serving.launch)
        assert refused.status_code == 401 and "end uwf web, start it again" in refused.text


@pytest.mark.parametrize(
    "host",
    ["evil.example:{port}", "evil.example", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:{port}, evil.example"],
)
def test_a_request_for_another_host_is_misdirected(serve: Serve, host: str) -> None:
    serving = serve()
    with httpx.Client(trust_env=False, verify=False) as client:
        client.get(serving.launch)
        port = serving.address.rpartition(":")[2]
        answer = client.get(serving.address + "/", headers={"Host": host.format(port=port)})
    assert answer.status_code in (400, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
    ],
)
def test_what_another_site_asks_for_is_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 403


def test_without_flags_nothing_can_be_changed(client: httpx.Client) -> None:
    own = {"Origin": str(client.base_url).rstrip("/")}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/", headers=own).status_code == 405
        assert client.request(method, "/").status_code == 403


def test_the_help_says_which_flag_lets_pages_run_agents_and_land_work(uwf: Uwf) -> None:
    said = " ".join(uwf("web", "--help").out.split())
    assert "--write Allow answers, starts, forks, pauses and kills from the pages. Runs no agents." in said
    assert "--run Allow the pages to run agents and land work. Includes --write." in said


def test_every_answer_binds_the_browser(client: httpx.Client) -> None:
    for path in ("/", assets.address("/static/web.css"), "/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        for part in ("script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "default-src 'none'"):
            assert part in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert "max-age" not in client.get("/").headers["cache-control"]
    assert client.get("/").headers["x-dns-prefetch-control"] == "off"
    assert client.get("/static/").status_code == 404


def test_a_browser_keeps_styles_and_scripts_until_one_of_them_changes(client: httpx.Client) -> None:
    loaded = re.findall(r'(?:href|src)="(/static/[^"]+)"', client.get("/threads").text)
    assert len(loaded) > 5
    for address in loaded:
        assert "immutable" in client.get(address).headers["cache-control"], address
    style = assets.address("/static/web.css")
    assert style in loaded and client.get(style).headers["content-type"].startswith("text/css")
    earlier = client.get(style.replace(assets.version(), "0" * 12))
    assert earlier.text == client.get(style).text and "max-age" not in earlier.headers["cache-control"]


def test_only_its_own_pages_get_out_whatever_the_path(client: httpx.Client, hermetic: Path) -> None:
    (hermetic / "secret").write_text("do not tell")
    static = f"/static/{assets.version()}"
    for path in (
        "/static/../render.py",
        f"{static}/../render.py",
        f"{static}/%2e%2e/render.py",
        f"{static}/..%2frender.py",
        f"{static}/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        f"{static}//etc/passwd",
        f"{static}/..\\render.py",
        f"{static}/web.css%00",
        f"{static}/%ff",
        f"{static}/{hermetic}/secret",
    ):
        answer = client.get(path)
        assert answer.status_code in (400, 404), path
        assert (
            "root:" not in answer.text
            and "Environment" not in answer.text
            and "do not tell" not in answer.text
        )


def _raw(serving: Serving, request: str | bytes, wait: float = 10) -> bytes:
    """What a server says to these very bytes."""
    data = request.encode("latin-1") if isinstance(request, str) else request
    port = int(serving.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as there:
        with suppress(OSError):
            there.sendall(data)
        said = b""
        with suppress(TimeoutError, ConnectionResetError):
            while piece := there.recv(1 << 16):
                said += piece
    return said


def test_odd_requests_are_refused_and_lead_nowhere_else(serve: Serve) -> None:
    serving = serve("--write")
    host = serving.address.removeprefix("http://")
    with letting_in(serving) as client:
        cookie = f"Cookie: {'; '.join(f'{name}={value}' for name, value in client.cookies.items())}"
    own = f"Host: {host}\r\nConnection: close\r\n{cookie}"

    def status(request: str) -> int:
        return int(_raw(serving, request).split()[1])

    assert status(f"GET / HTTP/1.1\r\n{own}\r\n\r\n") == 200
    others = 'a={"x": [1]}; =; b\x80;'
    mixed = own.replace("Cookie: ", f"Cookie: {others}")
    assert status(f"GET / HTTP/1.1\r\n{mixed}\r\n\r\n") == 200
    assert status(f"GET / HTTP/1.1\r\n{own}\r\nHost: evil.example\r\n\r\n") in (400, 421)
    assert status(f"GET / HTTP/1.0\r\n{cookie}\r\n\r\n") == 421
    assert status(f"GET http://evil.example/ HTTP/1.1\r\n{own}\r\n\r\n") == 404
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13"
    assert status(f"GET / HTTP/1.1\r\n{own}\r\n{upgrade}\r\n\r\n") == 200
    post = f"POST /start HTTP/1.1\r\n{own}\r\nOrigin: http://{host}\r\nContent-Type: application/x-www-form-urlencoded"
    assert status(f"{post}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 400
    assert status(f"{post}\r\nContent-Length: 99999999\r\n\r\nworkflow=x") == 413
    assert status(f"{post}\r\nContent-Length: -1\r\n\r\n") == 400
    assert (
        status(f"{post}\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n{'x' * 0x200000}\r\n0\r\n\r\n") == 413
    )
    assert status(f"{post}\r\nContent-Length: 8\r\n\r\n{'&' * 8}") == 404
    assert status(f"{post}\r\nContent-Length: 8400\r\n\r\n{'a=b&' * 2100}") == 400
    for method in ("TRACE", "OPTIONS", "PUT", "DELETE", "CONNECT"):
        assert status(f"{method} / HTTP/1.1\r\n{own}\r\nOrigin: http://{host}\r\n\r\n") == 405
        assert status(f"{method} / HTTP/1.1\r\n{own}\r\n\r\n") == 403
    assert status(f"GET / HTTP/1.1\r\n{own}\r\nX: {'x' * 1_000_000}\r\n\r\n") == 400
    for target in (
        "//evil.example/x?token=1",
        "/\\evil.example/x?token=1",
        "///evil.example?token=%0d%0aSet-Cookie:x",
    ):
        said = _raw(serving, f"GET {target} HTTP/1.1\r\n{own}\r\n\r\n").decode().lower()
        assert (
            said.startswith("http/1.1 303") and "location: /evil.example" in said and "set-cookie" not in said
        )


def test_no_other_page_of_this_machine_can_send_a_form(serve: Serve, thread: str) -> None:
    """As another port of 127.0.0.1 would, to which a browser sends the same cookies."""
    with letting_in(serve("--write")) as client:
        url, own = f"/thread/{thread}/kill", str(client.base_url).rstrip("/")
        form = {"sure": "yes"}
        refused = [
            {},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "null"},
            {"Origin": own, "Sec-Fetch-Site": "same-site"},
            {"Origin": own, "Sec-Fetch-Site": "cross-site"},
            {"Origin": own.replace("http", "https")},
        ]
        for headers in refused:
            assert client.post(url, data=form, headers=headers).status_code == 403, headers
        with httpx.Client(trust_env=False, verify=False, base_url=own) as stranger:
            assert stranger.post(url, data=form, headers={"Origin": own}).status_code == 401
        assert (
            client.post(url, data=form, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status_code
            == 303
        )


def test_a_refusal_reaches_a_client_that_still_sends(serve: Serve, thread: str) -> None:
    serving = serve("--write")
    host, port = serving.address.removeprefix("http://").split(":")
    head = f"POST /thread/{thread}/kill HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 3000\r\n"
    with socket.create_connection((host, int(port)), 30) as there:
        there.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert there.recv(1 << 16).startswith(b"HTTP/1.1 100 ")  # the body is read before the answer
        there.sendall(b"x" * 3000)
        said = b""
        while piece := there.recv(1 << 16):
            said += piece
    assert said.startswith(b"HTTP/1.1 403 ") and b"connection: close" in said.lower()


@pytest.mark.parametrize("length", ["Content-Length: 12000000", "Transfer-Encoding: chunked"])
def test_a_client_may_send_too_much_and_then_reads_why(serve: Serve, thread: str, length: str) -> None:
    serving = serve("--write")
    with letting_in(serving) as client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    host, port = serving.address.removeprefix("http://").split(":")
    head = f"POST /thread/{thread}/kill HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {serving.address}\r\n{length}\r\n"
    body = b"x" * 12_000_000
    if "chunked" in length:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with socket.create_connection((host, int(port)), 30) as there:
        there.sendall(
            f"{head}Cookie: {cookie}\r\n\r\n".encode() + body
        )  # whose rest would be refused by a reset
        said = b""
        while piece := there.recv(1 << 16):
            said += piece
    assert said.startswith(b"HTTP/1.1 413 ") and b"1 MiB is too much" in said


def test_the_browser_is_opened_by_a_file_that_others_cannot_read(
    hermetic: Path, browser_page: Page, script: Callable[[str, str], Path], thread: str
) -> None:
    seen = hermetic / "seen"
    program = script("browser", f"import sys; open({str(seen)!r}, 'w').write(chr(10).join(sys.argv[1:]))")
    with subprocess.Popen(
        [sys.executable, "-m", "uwf_cli.main", "web"],
        stdout=subprocess.PIPE,
        env={**os.environ, "BROWSER": f"{program} %s"},
        text=True,
    ) as process:
        assert process.stdout is not None and "token" in process.stdout.readline()
        deadline = time.monotonic() + 30
        while not (seen.exists() and seen.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        opened = seen.read_text()
        file = Path(opened.removeprefix("file://"))
        assert "token" not in opened and file.stat().st_mode & 0o777 == 0o600
        referrers: list[str] = []
        browser_page.on("request", lambda request: referrers.append(request.headers.get("referer", "")))
        browser_page.goto(opened)
        expect(browser_page.get_by_role("heading", name="Inbox")).to_be_visible()
        assert "token" not in browser_page.url and not file.exists()
        assert referrers and not [each for each in referrers if "token" in each]
        process.terminate()


def test_a_server_of_another_name_is_asked_by_that_one(serve: Serve, thread: str) -> None:
    serving = serve("--host", "0.0.0.0", "--name", "My-Machine.example")
    port = serving.address.rpartition(":")[2]
    assert serving.address == f"http://My-Machine.example:{port}"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False) as client:
        known = {"Host": f"my-machine.example:{port}"}
        assert client.get("/", headers=known).status_code == 401
        for host in (f"0.0.0.0:{port}", f"127.0.0.1:{port}", "my-machine.example", f"localhost:{port}"):
            assert client.get("/", headers={"Host": host}).status_code == 421
        token = serving.launch.partition("?")[2]
        assert client.get(f"/?{token}", headers=known).status_code == 303
        assert client.get("/", headers=known).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_a_loopback_address_needs_no_name(serve: Serve, host: str) -> None:
    serving = serve("--host", host)
    assert serving.address.rpartition(":")[0] == f"http://{host}"
    with httpx.Client(trust_env=False, verify=False) as client:
        assert client.get(serving.launch).status_code == 303


def test_other_addresses_need_a_name(uwf: Uwf) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "my-machine", "::"):
        assert uwf("web", "--host", host, check=2).error["message"] == "--host without a name"


def _memory(process: subprocess.Popen[str]) -> int:
    """The largest that a process has been, in KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.extended
def test_more_open_requests_than_there_is_room_for_are_outlived(serve: Serve) -> None:
    serving = serve(is_cold=True)
    port = int(serving.address.rpartition(":")[2])
    with letting_in(serving) as client:
        resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE, (512, 512))
        resource.prlimit(serving.process.pid, resource.RLIMIT_AS, (2 << 30, 2 << 30))
        before = _memory(serving.process)
        held: deque[socket.socket] = deque()
        for number in range(FLOOD):
            there = socket.socket()
            there.settimeout(10)
            with suppress(OSError):
                there.connect(("127.0.0.1", port))
                there.sendall(f"GET /{number} HTTP/1.1\r\nX: ".encode() + b"x" * 1000)
            held.append(there)
            if len(held) > 300:
                held.popleft().close()
        # Those that are open still say nothing more, and are closed for that.
        deadline = time.monotonic() + 60
        answer = None
        while answer is None or answer.status_code != 200:
            assert time.monotonic() < deadline
            with suppress(httpx.TransportError):
                answer = client.get("/")
        assert serving.process.poll() is None
        assert _memory(serving.process) - before < 100_000
        for there in held:
            there.close()


def test_a_nul_in_an_address_is_refused(client: httpx.Client) -> None:
    for path in ("/?search=%00", "/search?q=%00", "/search?q=a&role=%00", "/thread/%00", "/workflow/a%00"):
        answer = client.get(path)
        assert answer.status_code == 400 and "NUL" in answer.text, path


def test_without_a_store_nothing_is_served(uwf: Uwf, hermetic: Path) -> None:
    refused = uwf("web", "--no-open", "--root", hermetic / "elsewhere", check=3)
    assert f"uwf --root {hermetic / 'elsewhere'} init" in refused.error["hint"]
