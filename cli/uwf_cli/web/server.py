"""`uwf web` at work: a socket of this machine, the site behind it, and the address to open."""

from __future__ import annotations

import asyncio
import errno
import socket
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import uvicorn

from uwf_cli.web.access import TOKEN, Access
from uwf_cli.web.site import Site, application
from uwf_git.errors import Usage, UwfError

LOOPBACK = "127.0.0.1"
PORT = 8470  # unless another is asked for; where it is taken, any that is free
_BACKLOG = 128
_CONNECTIONS = 200


class Served(NamedTuple):
    """Where a site is: the `address` without the token, and the one that lets a browser in, once."""

    address: str
    launch: str


def serve(
    site: Site,
    path: str,
    host: str,
    names: Sequence[str],
    port: int | None,
    tell: Callable[[Served], None],
    browse: bool,
) -> None:
    """Serves until Ctrl-C. `path` is the page to begin with, `names` are further hosts by which the server may be
    asked for. `tell` is called once the socket is open. Raises Usage for a port that is taken."""
    with _socket(host, port) as listening:
        own = listening.getsockname()[1]
        known = [host, *names, *(["localhost"] if host == LOOPBACK else [])]
        hosts = [f"{_bracketed(name)}:{own}" for name in known]
        access = Access(application(site), hosts, own)
        served = Served(f"http://{hosts[0]}{path}", f"http://{hosts[0]}{path}?{TOKEN}={access.token}")
        tell(served)
        if browse:
            with suppress(webbrowser.Error, OSError):
                webbrowser.open(served.launch)
        config = uvicorn.Config(
            access,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            http="h11",
            loop="asyncio",
            backlog=_BACKLOG,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
        )
        with suppress(KeyboardInterrupt):
            asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def _socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens. Raises Usage, UwfError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (PORT, 0) if port is None else (port,):
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, wanted))
            made.listen(_BACKLOG)
            return made
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE:
                raise UwfError(f"can't listen on {host}: {error.strerror or error}", "see --host") from None
    raise Usage(f"port {port} is taken", "give another, or leave out --port for one that is free")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
