"""The server of `uwf web`: socket, site, address."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from html import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from uwf_git.ext.web.access import TOKEN, Access, Application, Receive, Scope, Send
from uwf_git.ext.web.people import READ, RUN, WRITE, Invitations, Proxy
from uwf_git.ext.web.site import Site, application
from uwf_git.plugin import Usage, UwfError, extensions, system, terminal

LOOPBACK = "127.0.0.1"
PORT = 8470  # unless another is requested; if taken, any free port
_HERE = ("127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")
_SECURE = "https://"
SWITCH = "/switch"
"""The beginning of addresses that lead to other stores."""
_BACKLOG = 128
_CONNECTIONS = 200
_HEADERS = 64 << 10  # bytes; cookies of all ports come along
_TO_ASK = 5.0  # seconds in which a connection has to ask for something
_TO_READ = 30.0  # and to take a part of the answer


class Served(NamedTuple):
    """A site's `address`, and the one-time address for a browser."""

    address: str
    launch: str


def serve(
    sites: Sequence[Site],
    path: str,
    host: str,
    names: Sequence[str],
    port: int | None,
    tell: Callable[[Served], None],
    browse: bool,
    proxy: Proxy | None = None,
) -> None:
    """Serve sites until Ctrl-C, each at a port of its own, so that their pages are foreign to each other. `path` is the
    first page of the first site, which is at `port`; the others are at those that follow. `names` are further host
    names, or origins of a `proxy`. `tell` is called once listening. Raises Usage for a taken port or an invalid name.
    """
    if wrong := [name for name in names if not _is_name(name)]:
        raise Usage(
            f"--name {wrong[0]!r} is not a name of a host",
            "give it without a port: --name my-machine, or that of a proxy: --name https://my-machine",
        )
    with ExitStack() as stack:
        sockets = [stack.enter_context(_socket(host, port, number)) for number in range(len(sites))]
        ports = [listening.getsockname()[1] for listening in sockets]
        doors = _doors(sites, ports, host, names, proxy)
        access, origins = doors[ports[0]], known_origins(host, names, ports[0])
        served = Served(f"{origins[0]}{path}", f"{origins[0]}{path}?{TOKEN}={access.token}")
        with _redirect(served.launch) if browse and _has_browser() else nullcontext() as file:
            if file is not None:
                access.entered = lambda: file.unlink(missing_ok=True)
            tell(served)
            if file is not None:
                with suppress(webbrowser.Error, OSError):
                    webbrowser.open(file.as_uri())
            with suppress(KeyboardInterrupt):
                asyncio.run(_served(doors, sockets))


def _doors(
    sites: Sequence[Site], ports: Sequence[int], host: str, names: Sequence[str], proxy: Proxy | None
) -> dict[int, Access]:
    """Return the access to each site by its port. The user is led from one to another without a new sign-in."""
    doors: dict[int, Access] = {}
    token = extensions.take_monitor_token()

    def lead_to(port: int) -> Callable[[], str]:
        return lambda: f"{known_origins(host, names, port)[0]}/?{TOKEN}={doors[port].admit()}"

    paths = [f"{SWITCH}/{number}" for number in range(1, len(sites) + 1)]
    ways = {path: lead_to(port) for path, port in zip(paths, ports, strict=True)}
    stores = [(site.name, path) for site, path in zip(sites, paths, strict=True)]
    for number, (site, port) in enumerate(zip(sites, ports, strict=True)):
        others = [(name, "" if other == number else path) for other, (name, path) in enumerate(stores)]
        site = site._replace(stores=tuple(others) if len(others) > 1 else ())
        origins = known_origins(host, names, port)
        invitations = _invitations(site, _named_origin(names, port) or origins[0])
        doors[port] = Access(
            _applications(site), origins, port, invitations, proxy, ways if site.stores else {}, token
        )
    return doors


async def _served(doors: Mapping[int, Access], sockets: list[socket.socket]) -> None:
    async def access(scope: Scope, receive: Receive, send: Send) -> None:
        await doors[scope["server"][1]](scope, receive, send)

    asyncio.get_running_loop().set_exception_handler(_passed_over)
    config = uvicorn.Config(
        cast(Any, access),
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        http=Guarded,
        loop="asyncio",
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=_HEADERS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=sockets)


def _passed_over(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, OSError):
        message = f"internal error: {error!r}" if error else f"internal error: {context.get('message')}"
        sys.stderr.write(f"uwf: {terminal.escape(message)}\n")


class Guarded(H11Protocol):
    """A connection with time limits for sending and reading, and a limited number of them, to protect memory
    and file descriptors."""

    _alarm: asyncio.TimerHandle | None = None
    _left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS:
            transport.abort()
            return
        # So that all pending data counts, not only data above the limit.
        transport.set_write_buffer_limits(high=0)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_asking():
            if self._alarm is None:
                self._wait_for_request()
        elif not self.flow.write_paused:
            self._calm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._calm()

    def _is_asking(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_request(self) -> None:
        self._calm()
        self._alarm = self.loop.call_later(_TO_ASK, self.transport.abort)

    def _wait_for_reader(self) -> None:
        self._calm()
        self._left = self.transport.get_write_buffer_size()
        self._alarm = self.loop.call_later(_TO_READ, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._left:
            self._wait_for_reader()
        else:
            self.transport.abort()

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _applications(site: Site) -> dict[str, Application]:
    """Return the site for each of what people may do. Without the permission it has no routes that change something,
    as without the option."""
    sites = {READ: (False, False), WRITE: (site.write, False), RUN: (site.write, site.run)}
    built = {kind: application(site._replace(write=kind[0], run=kind[1])) for kind in set(sites.values())}
    return {may: built[kind] for may, kind in sites.items()}


def _invitations(site: Site, origin: str) -> Invitations | None:
    """Return the people who were invited, and note the origin at which they find this server; None for a user without
    a home."""
    try:
        invitations = Invitations(site.location)
    except Usage:
        return None
    with suppress(UwfError):  # `uwf web invite` says why
        invitations.note_address(origin)
    return invitations


def _is_name(name: str) -> bool:
    host, colon, port = name.removeprefix(_SECURE).partition(":")
    if name.startswith(_SECURE) and colon:
        return bool(_NAME.fullmatch(host)) and port.isascii() and port.isdigit() and len(port) < 6
    return bool(_NAME.fullmatch(name.removeprefix(_SECURE)))


def _named_origin(names: Sequence[str], port: int) -> str | None:
    """Return the origin by which others ask for a server: a proxy's, else that of the first name."""
    named = known_origins(_EVERYWHERE[0], names, port)
    return next((origin for origin in named if origin.startswith(_SECURE)), next(iter(named), None))


def known_origins(host: str, names: Sequence[str], port: int) -> list[str]:
    """Return the origins of a server, the printed one first. Their hosts are the valid `Host` values. Of `names`, those
    that begin with `https://` are a proxy's, and have its port."""
    own = [] if host in _EVERYWHERE else [_plain(host)]
    plain = [name for name in names if not name.startswith(_SECURE)]
    hosts = [*own, *plain, *(["localhost"] if _plain(host) in _HERE else [])]
    bare = [f"http://[{item}]" if ":" in item else f"http://{item}" for item in hosts]
    origins = [f"{item}:{port}" for item in bare] + (bare if port == 80 else [])
    return [*origins, *(name.lower() for name in names if name.startswith(_SECURE))]


def _plain(host: str) -> str:
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return host


def _has_browser() -> bool:
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in names)


@contextmanager
def _redirect(address: str) -> Iterator[Path]:
    place = escape(address)
    with NamedTemporaryFile("w", prefix="uwf-web-", suffix=".html", delete=False) as file:
        file.write(
            '<!doctype html><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={place}"><title>uwf</title><a href="{place}">Go on</a>\n'
        )
    try:
        yield Path(file.name)
    finally:
        Path(file.name).unlink(missing_ok=True)


def _socket(host: str, port: int | None, number: int) -> socket.socket:
    """Return the listening socket of a site by its number: at `port` and those after it, or by default a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT + number, 0) if port is None else (port + number,):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if system.bind(listening, (host, wanted)):
                listening.listen(_BACKLOG)
                return listening
        except OSError as error:
            listening.close()
            raise UwfError(f"cannot listen on {host}: {error.strerror or error}", "see --host") from None
        listening.close()
    raise Usage(f"port {wanted} is taken", "give another, or leave out --port for one that is free")
