"""`uwf web`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import (
    Invocation,
    ProgressMeter,
    Usage,
    UwfError,
    adopt_news,
    command,
    completers,
    counted,
    find_thread,
    install_hint,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.ext.web.server import Served

_NEEDED = ("starlette", "uvicorn", "jinja2")


@command(
    "uwf web                       the project's threads, in the browser",
    "uwf web 01JK7M                one of them",
    "uwf web --write --run         with buttons to answer, fork, step",
    "uwf web --export pages        as files, to keep or to mail",
)
@click.argument("thread", metavar="[ID]", required=False, shell_complete=completers.complete_thread)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port to listen on. Default: 8470, or a free one.",
)
@click.option("--no-open", is_flag=True, help="Don't open a browser.")
@click.option(
    "--write",
    is_flag=True,
    help="Allow answers, starts, forks, pauses and kills from the pages. Runs no agents.",
)
@click.option("--run", is_flag=True, help="Allow the pages to run agents and land work. Includes --write.")
@click.option(
    "--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1. Others need --name."
)
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="Host name that requests may use. Repeatable."
)
@click.option(
    "--export",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the pages to this folder instead of serving them.",
)
def web(
    invocation: Invocation,
    thread: str | None,
    port: int | None,
    no_open: bool,
    write: bool,
    run: bool,
    host: str | None,
    names: tuple[str, ...],
    folder: Path | None,
) -> None:
    """Serve web pages of threads, graphs, steps and costs on this machine, until Ctrl-C.

    The printed address grants access once; nothing is loaded from elsewhere. Read-only unless --write is
    given.

    --export writes static pages without scripts, of all threads or of one with its sub-workflows, to a folder
    that is new, empty or from an earlier export.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UwfError(f"uwf web needs the package {missing[0]}", install_hint("web"))
    if host is not None and not names:
        raise Usage("--host without a name", "say by which host it may be asked for: --name my-machine")
    if folder is not None:
        if port or no_open or write or run or host or names:
            raise Usage("--export serves nothing", "give it alone, or with an ID")
        _export(invocation, folder, thread)
        return
    from uwf_git.ext.web.server import LOOPBACK, serve
    from uwf_git.ext.web.site import Site
    from uwf_git.plugin import page_addresses

    _ = invocation.instance  # that there is a store is said here, and not on each page
    adopt_news(invocation)
    path = page_addresses.thread(find_thread(invocation, thread)) if thread else "/"
    site = Site(invocation.location, write or run, run, invocation.place)

    def tell(served: Served) -> None:
        value = {"address": served.address, "launch": served.launch}
        invocation.emit(
            value,
            lambda shown: terminal.fields([("open", shown["launch"]), ("end", "Ctrl-C")]),
            compact=True,
        )

    serve(site, path, host or LOOPBACK, names, port, tell, not no_open)


def _export(invocation: Invocation, folder: Path, thread: str | None) -> None:
    from uwf_git.ext.web.export import export
    from uwf_git.ext.web.site import Site

    adopt_news(invocation)
    thread_id, meter = find_thread(invocation, thread) if thread else None, ProgressMeter()
    try:
        site = Site(invocation.location, place=invocation.place)
        done = export(site, folder, thread_id, lambda written, of: meter.step("Writing pages", written, of))
    finally:
        meter.clear()
    threads = {"unjudged": list(done.unjudged)} if done.unjudged else {}
    invocation.emit(
        {"folder": str(folder), "files": done.files, "bytes": done.bytes, **threads},
        _exported,
    )


def _exported(value: Any) -> str:
    sentence = f"{value['folder']}: {counted(value['files'], 'file')}, {value['bytes']:,} bytes"
    unjudged = ", ".join(value.get("unjudged", ()))
    return f"{sentence}; not determined: {unjudged}" if unjudged else sentence
