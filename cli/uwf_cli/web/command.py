"""`uwf web`: the pages of a store, served or written."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.exchange import adopt_news, find_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Usage, UwfError

if TYPE_CHECKING:
    from uwf_cli.web.server import Served

_NEEDED = ("starlette", "uvicorn", "jinja2")


@command(
    "uwf web                       the threads of this store, in the browser",
    "uwf web 01JK7M                one of them",
    "uwf web --write --run         with buttons to answer, fork, step",
)
@click.argument("thread", metavar="[ID]", required=False, shell_complete=complete_thread)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="8470, or where that is taken any.")
@click.option("--no-open", is_flag=True, help="Open no browser.")
@click.option("--write", is_flag=True, help="Let the pages change threads.")
@click.option("--run", is_flag=True, help="Let them run agents too; also what --write does.")
@click.option("--host", metavar="ADDRESS", help="Listen there instead of 127.0.0.1; needs --name.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A host that it may be asked for by.")
def web(
    invocation: Invocation,
    thread: str | None,
    port: int | None,
    no_open: bool,
    write: bool,
    run: bool,
    host: str | None,
    names: tuple[str, ...],
) -> None:
    """Show threads, graphs, steps and what they cost on pages of this machine, until Ctrl-C.

    Only whoever opens the printed address gets in, once; nothing is loaded from elsewhere. Without --write the
    server can change nothing.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UwfError(f"uwf web needs the package {missing[0]}", "pip install 'uwf-git[web]'")
    if host is not None and not names:
        raise Usage("--host without a name", "say by which host it may be asked for: --name my-machine")
    from uwf_cli.web import addresses
    from uwf_cli.web.server import LOOPBACK, serve
    from uwf_cli.web.site import Site

    adopt_news(invocation)
    path = addresses.thread(find_thread(invocation, thread)) if thread else "/"
    site = Site(invocation.location, write or run, run)

    def tell(served: Served) -> None:
        value = {"address": served.address, "launch": served.launch}
        invocation.emit(
            value,
            lambda shown: terminal.fields([("open", shown["launch"]), ("end", "Ctrl-C")]),
            compact=True,
        )

    serve(site, path, host or LOOPBACK, names, port, tell, not no_open)
