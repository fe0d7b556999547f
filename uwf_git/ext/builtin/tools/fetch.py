"""fetch_url: a public page or file as text.

The host is resolved and its addresses checked here, and one of them is used, against DNS rebinding. Redirects
are checked likewise. No proxy, cookies or credentials. Non-public addresses must be named by the policy. A
page's text has headings, paragraphs, lists, links and code.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
import zlib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin

from uwf_git.ext.builtin.tools.files import is_binary
from uwf_git.ext.builtin.tools.tool import Tool, ToolContext, object_schema
from uwf_git.plugin import TimeExceeded, ToolFailure, time_limit, tool_results

if TYPE_CHECKING:
    import httpx

SECONDS = 30.0
BYTES = 5_000_000
REDIRECTS = 5
_CONNECT = 10.0  # seconds
_TEXT = re.compile(
    r"text/|application/(.*\+)?(json|xml|javascript|yaml|x-yaml|toml|x-sh|ecmascript|graphql)|image/svg"
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "head", "iframe", "object"))
_BLOCKS = re.compile(
    "address|article|aside|blockquote|dd|div|dl|dt|fieldset|figcaption|figure|footer|form|header|hr|li|main|"
    "nav|ol|p|pre|section|table|tr|ul|h[1-6]"
)
_DEEPEST = 1000  # skipped elements within each other


class _Answer(NamedTuple):
    """`cut`: `data` is only the beginning of the body."""

    url: str
    status: int
    content_type: str
    charset: str
    data: bytes
    cut: bool


def fetch_url(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    seconds = context.seconds(SECONDS)
    try:
        with time_limit(seconds):
            answer = _follow(arguments["url"], context, time.monotonic() + seconds)
            title, text = _read(answer)
    except TimeExceeded:
        raise _late(seconds) from None
    short, more = context.outputs.shorten(text)
    result: dict[str, Any] = {"url": answer.url, "status": answer.status, "contentType": answer.content_type}
    if title:
        result["title"] = title
    if answer.cut:
        result["cut"] = f"only the first {BYTES} bytes were read"
    return {**result, "text": short, **more}


def _follow(url: str, context: ToolContext, deadline: float) -> _Answer:
    for _ in range(REDIRECTS + 1):
        answer = _ask(url, context, deadline)
        if isinstance(answer, _Answer):
            return answer
        url = answer
    raise ToolFailure("network", f"more than {REDIRECTS} redirects")


def _ask(url: str, context: ToolContext, deadline: float) -> _Answer | str:
    import httpx

    parsed = _parsed(url)
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    host = parsed.raw_host.decode("ascii")
    address = _address(host, port, context)
    pinned = parsed.copy_with(host=address)
    headers = {
        "Host": parsed.netloc.decode("ascii"),
        "User-Agent": "uwf",
        "Accept": "text/html,text/*,application/json;q=0.9,*/*;q=0.5",
        "Accept-Encoding": "identity",
    }
    # Loading the certificates takes a while.
    trusted = httpx.create_ssl_context() if parsed.scheme == "https" else False
    timeout = httpx.Timeout(max(deadline - time.monotonic(), 0.01), connect=_CONNECT)
    try:
        with (
            # Without the environment's proxies: behind a proxy, the address that was checked isn't the one asked.
            httpx.Client(trust_env=False, verify=trusted, timeout=timeout) as client,
            client.stream("GET", pinned, headers=headers, extensions={"sni_hostname": host}) as response,
        ):
            target = response.headers.get("location")
            if 300 <= response.status_code < 400 and target:
                return str(urljoin(url, target))
            return _taken(response, url, deadline)
    except httpx.TimeoutException:
        raise ToolFailure("timeout", f"{tool_results.shown(host)} did not answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
        reason = tool_results.shown(str(error)) or type(error).__name__
        raise ToolFailure("network", f"{tool_results.shown(host)}: {reason}") from None


def _parsed(url: str) -> httpx.URL:
    import httpx

    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, TypeError):
        raise ToolFailure("invalid_arguments", f"{tool_results.shown(url)} is not an address") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ToolFailure("invalid_arguments", f"{tool_results.shown(url)} is not an http or https address")
    if parsed.userinfo:
        raise ToolFailure("denied", "an address with a name or a password in it is not asked")
    return parsed.copy_with(fragment=None)


def _address(host: str, port: int, context: ToolContext) -> str:
    host_shown = f"[{host}]" if ":" in host else host.rstrip(".")
    if not context.policy.reaches(host_shown, port, True):
        raise ToolFailure("denied", f"{tool_results.shown(host)} is not among the hosts that may be asked")
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolFailure("network", f"there is no host {tool_results.shown(host)}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    if not addresses:
        raise ToolFailure("network", f"{tool_results.shown(host)} has no address")
    for address in addresses:
        if not is_public(address) and not context.policy.reaches(host_shown, port, False):
            raise ToolFailure(
                "denied",
                f"{tool_results.shown(host)} is at {address}, which is not a public address; allowHosts can name it",
            )
    return next((address for address in addresses if ":" not in address), addresses[0])


# Not the public internet: IANA's special-purpose blocks (RFC 6890 and updates) that aren't globally reachable,
# multicast, and metadata addresses of clouds. Python's own table is as old as its release.
_SPECIAL = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",  # shared by providers; 100.100.100.200 tells machines of Alibaba about themselves
    "127.0.0.0/8",
    "168.63.129.16/32",  # the host of Azure's machines
    "169.254.0.0/16",  # link-local; 169.254.169.254 tells machines of most clouds about themselves
    "172.16.0.0/12",
    "192.0.0.0/24",  # 192.0.0.192 tells machines of Oracle about themselves
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",  # multicast, reserved, broadcast
    "2001::/23",
    "2001:db8::/32",
    "2620:4f:8000::/48",
    "3fff::/20",
)
_UNICAST = "2000::/3"  # of IPv6, all that is given out; local and multicast addresses are elsewhere


@cache
def _special() -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(map(ipaddress.ip_network, _SPECIAL))


def is_public(address: str) -> bool:
    """Return whether an IP address is public, and not local, the cloud's, or an IPv6 mapping of such."""
    try:
        ip = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip not in ipaddress.ip_network(_UNICAST):
            return False
    return not any(ip in block for block in _special() if block.version == ip.version)


def _taken(response: httpx.Response, url: str, deadline: float) -> _Answer:
    content_type = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type and not _TEXT.match(content_type):
        raise ToolFailure("binary", f"it is {tool_results.shown(content_type)}, no text")
    data = bytearray()
    for chunk in _decoded(response):
        data += chunk
        if time.monotonic() > deadline:
            raise _late(SECONDS)
        if len(data) > BYTES:
            break
    cut = len(data) > BYTES
    charset = response.charset_encoding or ""
    return _Answer(url, response.status_code, content_type, charset, bytes(data[:BYTES]), cut)


def _decoded(response: httpx.Response) -> Iterator[bytes]:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        yield from response.iter_raw(1 << 16)
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailure(
            "network", f"it answers in {tool_results.shown(encoding, 40)}, which was not asked for"
        )
    unpack = zlib.decompressobj(47 if encoding != "deflate" else 15)
    for chunk in response.iter_raw(1 << 16):
        while chunk:
            try:
                yield unpack.decompress(chunk, 1 << 20)
            except zlib.error:
                raise ToolFailure("network", "its compressed answer is broken") from None
            chunk = unpack.unconsumed_tail


def _read(answer: _Answer) -> tuple[str, str]:
    data = answer.data
    if is_binary(data) and not answer.charset.lower().startswith("utf-16"):
        raise ToolFailure("binary", "it is not text")
    named = _CHARSET.search(data[:4096])
    charset = answer.charset or (named[1].decode("ascii") if named else "") or "utf-8"
    try:
        text = data.decode(charset, "replace")
    except (LookupError, UnicodeError):
        text = data.decode("utf-8", "replace")
    if answer.content_type in ("text/html", "application/xhtml+xml") or (
        not answer.content_type and text.lstrip()[:9].lower() == "<!doctype"
    ):
        return page_text(text, answer.url)
    return "", text


def _late(seconds: float) -> ToolFailure:
    return ToolFailure("timeout", f"it took over {seconds:.3g} s")


def page_text(html: str, address: str) -> tuple[str, str]:
    """Return a page's title and text, with links relative to its address."""
    reader = _Page(address)
    reader.feed(html)
    reader.close()
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", "".join(reader.parts)))
    return " ".join("".join(reader.title).split())[:500], text.strip()


class _Page(HTMLParser):
    """Collects the text of a page and its title, in pieces."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self._address = address
        self.parts: list[str] = []
        self.title: list[str] = []
        self._in_title = False
        self._skipped: list[str] = []
        self._in_pre = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._skipped.clear()  # a head that was never closed
            self._in_title = False
        elif tag in _SKIPPED:
            if len(self._skipped) < _DEEPEST:
                self._skipped.append(tag)
        elif not self._skipped:
            self._begin(tag, dict(attrs))

    def _begin(self, tag: str, attributes: dict[str, str | None]) -> None:
        if _BLOCKS.fullmatch(tag):
            self.parts.append("\n\n" if tag[0] in "ph" or tag == "table" else "\n")
        if tag == "br":
            self.parts.append("\n")
        elif tag == "li":
            self.parts.append("- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif tag == "pre":
            self._in_pre += 1
            self.parts.append("```\n")
        elif re.fullmatch("h[1-6]", tag):
            self.parts.append("#" * int(tag[1]) + " ")
        elif tag == "a":
            self._links.append(self._link(attributes.get("href") or ""))
            if self._links[-1]:
                self.parts.append("[")
        elif tag == "img" and attributes.get("alt"):
            self.parts.append(f"[image: {attributes['alt']}]")

    def _link(self, target: str) -> str:
        if not target or target.startswith("#"):
            return ""
        try:
            whole = urljoin(self._address, target)
        except ValueError:
            return ""
        return whole if whole.startswith(("http://", "https://")) and len(whole) < 500 else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in _SKIPPED:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
        elif not self._skipped:
            self._end(tag)

    def _end(self, tag: str) -> None:
        if tag == "a" and self._links:
            link = self._links.pop()
            if link:
                self.parts.append(f"]({link})")
        elif tag == "pre" and self._in_pre:
            self._in_pre -= 1
            self.parts.append("\n```\n")
        elif _BLOCKS.fullmatch(tag):
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif self._skipped:
            return
        elif self._in_pre:
            self.parts.append(data)
        else:
            flowing = re.sub(r"\s+", " ", data)
            at_begin = not self.parts or self.parts[-1].endswith("\n")
            self.parts.append(flowing.lstrip() if at_begin else flowing)


FETCH = (
    Tool(
        "fetch_url",
        "Gets a page or a text file over http or https, as text: of a web page, what can be read on it.",
        object_schema(("url",), url={"type": "string", "minLength": 1, "maxLength": 8000}),
        fetch_url,
    ),
)
