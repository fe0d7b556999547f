"""Access control: only this machine's user and people who have signed in, from this server's pages.

Browsers send requests to 127.0.0.1 from any site, and any local program can connect. So a request must name
this server as its host (against DNS rebinding), must not come from another site by `Sec-Fetch-Site` and
`Origin` (https://www.w3.org/TR/fetch-metadata/), and must have a cookie, for which the address printed by
`uwf web` is exchanged once, or a link of `uwf web invite`. A proxy may name a person instead, see `people`. Programs
that watch the server may ask for the endpoints of extensions with the token of UWF_MONITOR_TOKEN, and anybody for those
that tell nothing.

Pages are `private, no-cache`: the store is on the same disk as the browser's cache, and form input survives
going back.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import suppress
from html import escape
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from uwf_git.ext.web.people import (
    LINK,
    READ,
    RUN,
    SESSION,
    SESSION_SECONDS,
    Invitations,
    Proxy,
    SignedIn,
    sign_in,
)
from uwf_git.plugin import UwfError, extensions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN = "token"
LARGEST = 1 << 20  # bytes of a request's body
PATIENCE = 20.0  # seconds until all of it has to be there
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
    # A browser would look up the hosts of links before anybody follows one, and so tell them what was read.
    ("x-dns-prefetch-control", "off"),
)
_SAFE = ("GET", "HEAD")
_ADMISSIONS = 20  # at once
_ADMITTED = 60.0  # seconds
_DRAINED = 16 << 20  # bytes of a refused body that are read, since unread ones reset the connection
_DRAIN_SECONDS = 2.0


class Refusal(NamedTuple):
    """An HTTP status and message."""

    status: int
    why: str


_UNKNOWN = Refusal(
    401,
    "This page needs the address that uwf web printed, which lets one browser in, once."
    " For another browser end uwf web, start it again, and open the address that it prints then."
    " Other people sign in by links that uwf web invite makes.",
)
_FOREIGN = Refusal(403, "Another site asked for this. Open the address itself.")
_NO_LINK = Refusal(
    401,
    "This link was used already, is older than a day, or was revoked. Ask for another one: uwf web invite.",
)
_NO_PERSON = Refusal(401, "The proxy names nobody, or not one person by an address.")

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_LONGEST_FORM = 1000  # bytes of a form that signs in
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px/1.5 system-ui;max-width:24em;margin:18vh auto;padding:0 1em}"
    "h1{font-size:1.4em}b{display:block;overflow-wrap:anywhere}button{font:inherit;font-weight:600;padding:.5em 1.2em;"
    "border:0;border-radius:6px;background:#0b57d0;color:#fff}"
)
_STYLE_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


class Access:
    """Passes permitted requests to the application for what somebody may do, one of `people.MAY`, and adds protective
    headers to every answer. `origins` are those of the pages, whose hosts are valid `Host` values; `port` is in the
    cookies' names, since a host's ports share cookies. `others` return, by path, the address of another store's pages
    that lets the user in."""

    def __init__(
        self,
        applications: Mapping[str, Application],
        origins: Collection[str],
        port: int,
        invitations: Invitations | None = None,
        proxy: Proxy | None = None,
        others: Mapping[str, Callable[[], str]] = {},
        monitor_token: str = "",
    ) -> None:
        self._applications = applications
        self._origins = {origin.partition("://")[2].lower(): origin.lower() for origin in origins}
        self._invitations = invitations
        self._proxy = proxy
        self._others = others
        self._endpoints = extensions.endpoints()
        self._monitor_token = monitor_token
        self._admissions: dict[str, float] = {}
        self._cookie = f"uwf-{port}"
        store = invitations.path.stem[:8] if invitations is not None else ""
        self._session = f"uwf-{port}-{store}-person"  # beside those of the user and other stores
        self._secret = secrets.token_urlsafe(32)
        self.token: str | None = secrets.token_urlsafe(32)
        """What the printed address holds; None once somebody has used it."""
        self.entered: Callable[[], None] = lambda: None
        """Called once somebody has."""

    def admit(self) -> str:
        """Return the secret of an address that lets the user in, once, for a minute."""
        secret, now = secrets.token_urlsafe(32), time.monotonic()
        current = [(key, until) for key, until in self._admissions.items() if until > now]
        self._admissions = dict([*current[-_ADMISSIONS:], (secret, now + _ADMITTED)])
        return secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no page opens a web socket
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        endpoint = self._endpoints.get(scope["path"]) if scope["method"] in _SAFE else None
        if endpoint is not None and (endpoint.is_open or self._watches(headers)):
            await self._pass(SignedIn(None, READ), scope, receive, send)
        elif (refused := self._not_for_us(headers)) is not None:
            await _refuse(receive, send, refused)
        elif (without := self._redeemed(scope)) is not None:
            await self._let_in(send, without, headers)
        elif scope["path"] == SIGN_IN and scope["method"] in _SAFE:
            await self._show_link(scope, receive, send)
        elif (refused := self._from_elsewhere(scope["method"], headers)) is not None:
            await _refuse(receive, send, refused)
        elif scope["path"] == SIGN_IN:
            await self._sign_in(receive, send, headers)
        elif isinstance(who := self._who(scope, headers), Refusal):
            await _refuse(receive, send, who)
        elif scope["path"] == SIGN_OUT and scope["method"] == "POST" and who.session:
            await self._sign_out(send, headers, who.session)
        else:
            await self._pass(who, scope, receive, send)

    async def _pass(self, who: SignedIn, scope: Scope, receive: Receive, send: Send) -> None:
        sign_in(who)
        application = self._applications[who.may]
        if scope["method"] in _SAFE:
            if (without := _without_token(scope)) is not None:
                await _answer(send, 303, "", (("location", without),))
            elif who.person is None and (address := self._others.get(scope["path"])) is not None:
                await _answer(send, 303, "", (("location", address()),))
            else:
                await application(scope, receive, _bound(_ending(send, who)))
            return
        body = await _body(receive)
        if isinstance(body, Refusal):
            await _refuse(receive, send, body)
        else:
            await application(scope, _replayed(body, receive), _bound(send))

    def _not_for_us(self, headers: dict[str, str]) -> Refusal | None:
        if headers.get("host", "").lower() not in self._origins:
            return Refusal(421, "This server does not answer to that name and port.")
        if "transfer-encoding" in headers and "content-length" in headers:
            return Refusal(400, "A request must have one Content-Length.")
        return None

    async def _let_in(self, send: Send, address: str, headers: dict[str, str]) -> None:
        cookie = ("set-cookie", f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict")
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            await _answer(send, 303, "", (("location", address), cookie))
            return
        # After a redirect, a link of another program would still count as its origin, without the cookie. A page of
        # this server that continues by itself doesn't.
        place = escape(address)
        await _answer(
            send,
            200,
            f'<!doctype html><meta http-equiv="refresh" content="0;url={place}"><title>uwf</title>'
            '<link rel="icon" href="data:,">'
            f'<a href="{place}">Go on</a>',
            (cookie, ("referrer-policy", "no-referrer")),
            "text/html; charset=utf-8",
        )

    def _who(self, scope: Scope, headers: dict[str, str]) -> SignedIn | Refusal:
        """Return who asks. A proxy's word goes before a cookie, which somebody else's browser may have brought."""
        if self._proxy is not None and self._proxy.names(headers, (scope["client"] or ("",))[0]):
            by = self._proxy.person(headers)
            return SignedIn(by, RUN) if by is not None else _NO_PERSON
        for value in _cookies(headers, self._session):
            if (who := self._in_session(value)) is not None:
                return who
        if any(_is_same(value, self._secret) for value in _cookies(headers, self._cookie)):
            return SignedIn(None, RUN)
        return _UNKNOWN

    def _watches(self, headers: Mapping[str, str]) -> bool:
        """Return whether a program brings the token that lets it watch. No page can, since a browser sends none."""
        token, login = self._monitor_token, headers.get("authorization", "")
        return bool(token) and _is_same(login, f"Bearer {token}")

    def _in_session(self, secret: str) -> SignedIn | None:
        invitations = self._invitations
        session = invitations.find(SESSION, secret) if invitations is not None else None
        if invitations is None or session is None:
            return None
        return SignedIn(
            session.by, session.may, secret, lambda: invitations.find(SESSION, secret) is not None
        )

    async def _show_link(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask whether to sign in: programs that look at links in messages would use them up, and a browser that is
        somebody else's is not signed in by opening a page."""
        token = dict(_query(scope)).get(TOKEN, "")
        link = self._invitations.find(LINK, token) if self._invitations is not None else None
        if link is None:
            await _refuse(receive, send, _NO_LINK)
            return
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in · uwf</title><style>{_STYLE}</style>'
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
            "<h1>Sign in to uwf</h1><p>What you do there is recorded in the name of"
            f" <b><bdi>{escape(link.by.ident)}</bdi></b></p>"
            f'<form method="post" action="{SIGN_IN}"><input type="hidden" name="{TOKEN}" value="{escape(token)}">'
            "<button>Sign in</button></form>"
        )
        policy = _POLICY.replace("style-src 'self'", f"style-src 'sha256-{_STYLE_HASH}'")
        await _answer(send, 200, page, (("content-security-policy", policy),), "text/html; charset=utf-8")

    async def _sign_in(self, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        body = await _body(receive)
        if isinstance(body, Refusal):
            await _refuse(receive, send, body)
            return
        token = dict(parse_qsl(body[:_LONGEST_FORM].decode("latin-1"))).get(TOKEN, "")
        try:
            session = self._invitations.redeem(token) if self._invitations is not None else None
        except UwfError as error:
            await _answer(send, 500, error.message)
            return
        if session is None:
            await _answer(send, _NO_LINK.status, _NO_LINK.why)
            return
        await self._begin_anew(send, headers, session, SESSION_SECONDS)

    async def _sign_out(self, send: Send, headers: dict[str, str], session: str) -> None:
        with suppress(UwfError):  # the browser forgets it all the same
            if self._invitations is not None:
                self._invitations.end(session)
        await self._begin_anew(send, headers, "", 0)

    async def _begin_anew(self, send: Send, headers: dict[str, str], session: str, seconds: int) -> None:
        secure = "; Secure" if headers.get("origin", "").startswith("https:") else ""
        cookie = f"{self._session}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
        await _answer(send, 303, "", (("location", "/"), ("set-cookie", cookie)))

    def _redeemed(self, scope: Scope) -> str | None:
        """Return the address of a request with the token, which is then used up; None without. It may come
        from anywhere, since no other site knows it."""
        if scope["method"] != "GET" or not (brought := dict(_query(scope)).get(TOKEN, "")):
            return None
        if self.token is not None and _is_same(brought, self.token):
            self.token = None
            self.entered()
        elif admission := next((item for item in self._admissions if _is_same(brought, item)), None):
            if self._admissions.pop(admission) < time.monotonic():
                return None
        else:
            return None
        return _without_token(scope)

    def _from_elsewhere(self, method: str, headers: dict[str, str]) -> Refusal | None:
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _FOREIGN
        origin = headers.get("origin")
        if origin is not None and origin.lower() != self._origins[headers["host"].lower()]:
            return _FOREIGN
        if method not in _SAFE and origin is None:
            return Refusal(403, "A request that changes something needs an Origin.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > LARGEST:
            return _TOO_LONG
        return None


_TOO_LONG = Refusal(413, f"More than {LARGEST >> 20} MiB is too much.")


def _cookies(headers: Mapping[str, str], cookie: str) -> Iterator[str]:
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie:
            yield value


def _is_same(brought: str, secret: str) -> bool:
    return hmac.compare_digest(brought.encode("utf-8", "replace"), secret.encode())


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        text = value.decode("latin-1")
        key = name.decode("latin-1")
        # No value has a NUL, so that two are never read as one.
        headers[key] = f"{headers[key]}\0{text}" if key in headers else text
    return headers


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=None)


def _without_token(scope: Scope) -> str | None:
    query = _query(scope)
    rest = [(name, value) for name, value in query if name != TOKEN]
    if len(rest) == len(query):
        return None
    # Two slashes, of either kind, would begin the name of a host.
    path: str = "/" + scope["raw_path"].decode("latin-1").replace("\\", "/").lstrip("/")
    return path + (f"?{urlencode(rest)}" if rest else "")


async def _body(receive: Receive) -> bytes | Refusal:
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return Refusal(400, "It broke off.")
                content += message.get("body", b"")
                if len(content) > LARGEST:
                    return _TOO_LONG
                if not message.get("more_body", False):
                    return bytes(content)
    except TimeoutError:
        return Refusal(408, "It took too long.")


def _replayed(body: bytes, receive: Receive) -> Receive:
    pending = [body]

    async def replayed() -> MutableMapping[str, Any]:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return replayed


def _ending(send: Send, who: SignedIn) -> Send:
    """Return what sends an answer as long as somebody may read it: a stream ends with their session."""
    sent, is_ended = 0, False

    async def ending(message: MutableMapping[str, Any]) -> None:
        nonlocal sent, is_ended
        if is_ended:
            return
        sent += 1
        is_ended = sent > 2 and bool(message.get("body")) and not who.is_valid()
        await send({"type": "http.response.body", "body": b""} if is_ended else message)

    return ending


def _bound(send: Send) -> Send:
    async def bound(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in _ALWAYS]
            if b"cache-control" not in own:
                added.append((b"cache-control", b"private, no-cache"))
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return bound


async def _refuse(receive: Receive, send: Send, refusal: Refusal) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            drained = 0
            while drained < _DRAINED:
                message = await receive()
                drained += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    await _answer(send, refusal.status, refusal.why, (("connection", "close"),))


async def _answer(
    send: Send,
    status: int,
    text: str,
    headers: Collection[tuple[str, str]] = (),
    kind: str = "text/plain; charset=utf-8",
) -> None:
    names = {name for name, _ in headers}
    always = [item for item in _ALWAYS if item[0] not in names]
    own = (("content-type", kind), ("cache-control", "no-store"), *headers, *always)
    body = f"{text}\n".encode() if text else b""
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in own]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
