"""`uwf top`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from uwf_git.plugin import (
    CommandClass,
    Invocation,
    Usage,
    UwfError,
    adopt_news,
    command,
    install_hint,
    terminal,
)

_NEEDED = "textual"


class _Filtered(CommandClass):
    """A command that leaves the options of a filter to its parser, as the line of `/` does."""

    ignore_unknown_options = True


@command(
    "uwf top                             the project's threads",
    "uwf top --view last-night           what failed last night",
    "uwf top --workflow solve-issue csv  of a workflow, about csv",
    cls=_Filtered,
)
@click.argument("words", metavar="[FILTER]...", nargs=-1, type=click.UNPROCESSED)
def top(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show threads, their steps, changes and live output on a terminal, and act on them with single keys.

    FILTER takes the options of uwf thread list, --view too, and a text to search for. ? shows the keys, q quits. Agents
    that were started go on after q.
    """
    if find_spec(_NEEDED) is None:
        raise UwfError(f"uwf top needs the package {_NEEDED}", install_hint("top"))
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stdout)):
        raise Usage("uwf top needs a terminal", "elsewhere: uwf watch, or uwf thread list")
    from uwf_git.ext.top.app import run
    from uwf_git.ext.top.filters import parse

    wanted = parse(invocation.instance, words)  # that there is no store is said here
    adopt_news(invocation)
    run(invocation.location, invocation.place, wanted)
