"""The endpoints of extensions, such as `/metrics` and `/healthz`, served by a process of a fleet.

On loopback without a token every user of the machine may ask, so it is served only if that is asked for. Elsewhere all
but open endpoints want the token. Browsers are refused, since a page of a foreign host may lead to loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.plugin import MONITOR_TOKEN, EndpointAnswer, UwfError, extensions

if TYPE_CHECKING:
    from uwf_git.plugin import Location

LOOPBACK = "127.0.0.1"
_PATIENCE = 5.0  # seconds for a request to come
_LONGEST = 16 << 10  # bytes of its head
_OF_BROWSERS = "origin", "sec-fetch-site"


class Address(NamedTuple):
    """Where to serve."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return self.host in (LOOPBACK, "::1", "localhost")


@contextlib.asynccontextmanager
async def monitored(location: Location, at: Address | None, token: str) -> AsyncIterator[None]:
    """Serve during the block, if there is an address. Raises UwfError."""
    if at is None:
        yield
        return
    service = _Service(location, token, at.is_loopback and not token)
    try:
        server = await asyncio.start_server(service.serve, at.host, at.port, limit=_LONGEST)
    except OSError as error:
        raise UwfError(
            f"cannot serve at {at.host}:{at.port}: {error.strerror or error}", "see --monitor"
        ) from None
    async with server:
        yield


class _Service:
    def __init__(self, location: Location, token: str, is_free: bool) -> None:
        self._location = location
        self._token = token
        self._is_free = is_free
        self._endpoints = extensions.endpoints()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            fields = (line.partition(":") for line in lines)
            answer = await self._answer(
                first.split(" "), {name.lower(): text.strip() for name, _, text in fields}
            )
            writer.write(_response(answer, with_body=not first.startswith("HEAD ")))
            await writer.drain()
        writer.close()

    async def _answer(self, words: list[str], headers: Mapping[str, str]) -> EndpointAnswer:
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            return EndpointAnswer("", 400)
        endpoint = self._endpoints.get(words[1].partition("?")[0])
        if endpoint is None:
            return EndpointAnswer(f"There are {', '.join(self._endpoints)}.\n", 404)
        if not (endpoint.is_open or self._admits(headers)):
            return EndpointAnswer(f"It needs the token of {MONITOR_TOKEN}.\n", 401)
        return await asyncio.to_thread(endpoint.answer, self._location)

    def _admits(self, headers: Mapping[str, str]) -> bool:
        if self._is_free:
            return not any(name in headers for name in _OF_BROWSERS)
        login = headers.get("authorization", "").encode("latin-1")
        return bool(self._token) and hmac.compare_digest(login, f"Bearer {self._token}".encode())


def _response(answer: EndpointAnswer, with_body: bool) -> bytes:
    body = answer.text.encode()
    headers = {
        "Content-Type": answer.media_type,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (body if with_body else b"")
