"""`uwf bundle`, `uwf unbundle`: threads as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from uwf_cli import arguments, exchange
from uwf_cli.command import Command
from uwf_cli.commands.sharing import raise_for
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Usage


@click.command(cls=Command, examples=("uwf bundle 01JK7M 01JK9Q -o review.bundle",))
@click.argument("threads", metavar="ID…", nargs=-1, required=True, shell_complete=complete_thread)
@click.option(
    "-o", "--output", "path", metavar="FILE", required=True, type=click.Path(path_type=Path), help="Where to."
)
@click.pass_obj
def bundle(invocation: Invocation, threads: tuple[str, ...], path: Path) -> None:
    """Write threads to one file, with all they stand on. It is a git bundle."""
    from uwf_git.sharing.bundle import bundle as do

    if str(path) == arguments.STDIN:
        raise Usage("a bundle needs a file", "name one: -o threads.bundle")
    instance = invocation.instance
    refs = do(instance, exchange.git_for(instance), [instance.threads.find(each) for each in threads], path)

    def text(value: Any) -> str:
        many = f"{len(threads)} thread{'s' * (len(threads) > 1)}"
        return f"{value['file']}: {many}, {value['bytes']:,} bytes"

    size = path.expanduser().stat().st_size
    invocation.emit({"file": str(path), "bytes": size, "refs": refs}, text)


@click.command(cls=Command, examples=("uwf unbundle review.bundle",))
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.pass_obj
def unbundle(invocation: Invocation, path: Path) -> None:
    """Take over the threads in a file, verified as those of a remote are.

    Where both sides went on, yours keeps the thread's id, and what the file brings becomes a thread of its
    own. Exit 7 where something was invalid and left out.
    """
    from uwf_git.sharing.bundle import unbundle as do

    instance = invocation.instance_for_writing()
    pulled = do(instance, exchange.git_for(instance), path)
    invocation.emit(exchange.pulled_value(pulled), exchange.pulled_text)
    raise_for(pulled)
