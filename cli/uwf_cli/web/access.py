"""Who gets in: the user of this machine, from a page of this server.

A browser takes requests to 127.0.0.1 from any site that it shows, and any program on the machine can connect. So a
request has to name this server as its host, which a name that was pointed here doesn't; it must not come from another
site, as the browser says in `Sec-Fetch-Site` and `Origin` (https://www.w3.org/TR/fetch-metadata/); and it has to bring
a cookie, which the address that `uwf web` prints is exchanged for, once.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "token"
LARGEST = 1 << 20  # bytes of a request's body
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    # Without any referrer a form of this very site would be sent from the origin "null".
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
_SAFE = ("GET", "HEAD")


class Access:
    """Lets through to an application who may get in, and gives every answer the headers that bind a browser. `hosts`
    are the values of `Host` that mean this server, with their port; `port` is part of the cookie's name, as cookies of
    one host are shared by its ports."""

    def __init__(self, application: Application, hosts: Collection[str], port: int) -> None:
        self._application = application
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = f"uwf-{port}"
        self._secret = secrets.token_urlsafe(32)
        self.token: str | None = secrets.token_urlsafe(32)
        """What the printed address holds; None once somebody has used it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":  # no page opens a web socket
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        if (refused := self._refused(scope["method"], headers)) is not None:
            await _answer(send, *refused)
        elif self._knows(headers.get("cookie", "")):
            if (without := _without_token(scope)) is not None and scope["method"] in _SAFE:
                await _answer(send, 303, "", (("location", without),))
            else:
                await self._application(scope, _bounded(receive), _bound(send))
        elif (without := self._redeemed(scope)) is not None:
            cookie = f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, "", (("location", without), ("set-cookie", cookie)))
        else:
            await _answer(send, 401, "This page needs the address that uwf web printed; it works once.")

    def _refused(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """The status and words for a request that isn't for this server, or comes from elsewhere."""
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return 421, "This server is not known by that name."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Another site asked for this. Open the address itself."
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return 403, "Another site asked for this. Open the address itself."
        if method not in _SAFE and origin is None:
            return 403, "What changes something has to say where it comes from."
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > LARGEST:
            return 413, f"More than {LARGEST >> 20} MiB is not taken."
        return None

    def _knows(self, header: str) -> bool:
        try:
            found = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._secret.encode())

    def _redeemed(self, scope: Scope) -> str | None:
        """Where a request goes on that brings the token, which is used up by that; None for one without it."""
        brought = dict(_query(scope)).get(TOKEN, "")
        if self.token is None or scope["method"] != "GET":
            return None
        if not hmac.compare_digest(brought.encode("utf-8", "replace"), self.token.encode()):
            return None
        self.token = None
        return _without_token(scope)


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by name. One that stands there twice is joined, so that neither of two hosts is taken."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=None)


def _without_token(scope: Scope) -> str | None:
    """The address of a request without the token; None where it has none."""
    query = _query(scope)
    rest = [(name, value) for name, value in query if name != TOKEN]
    if len(rest) == len(query):
        return None
    path = scope["raw_path"].decode("latin-1") or "/"
    path = "/" + path.lstrip("/")  # two slashes would begin the name of a host
    return path + (f"?{urlencode(rest)}" if rest else "")


def _bounded(receive: Receive) -> Receive:
    """The body of a request, which ends where it becomes larger than it may be."""
    taken = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return message if taken <= LARGEST else {"type": "http.disconnect"}

    return bounded


def _bound(send: Send) -> Send:
    """Sends an answer with the headers that all have."""

    async def bound(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in _ALWAYS]
            if b"cache-control" not in own:
                added.append((b"cache-control", b"private, no-cache"))
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return bound


async def _answer(send: Send, status: int, text: str, headers: Collection[tuple[str, str]] = ()) -> None:
    """An answer of this module's own."""
    own = (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store"), *headers, *_ALWAYS)
    body = f"{text}\n".encode() if text else b""
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in own]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
