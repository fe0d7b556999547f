"""`uwf blame`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.invocation import Invocation
from uwf_cli.selection import short_ids
from uwf_git.base.text import one_line

_SHORT = 10  # characters of a commit's id
_LONGEST = 30  # characters of an author's name


@command("uwf blame src/shop.py", "uwf blame src/shop.py v1.2")
@click.argument("file", metavar="FILE")
@click.argument("revision", metavar="[REV]", default="HEAD")
def blame(invocation: Invocation, file: str, revision: str) -> None:
    """Show who wrote each line of a file: thread, step, role, model.

    FILE is read as it was committed at REV, by default HEAD, in the project of this folder. A line is a thread's if its
    commit is one of the thread's, or changes what its steps changed, or adds lines that they added; so it may have been
    squashed, rebased or picked. Other lines are their author's. A commit that claims a thread which changed something
    else is a warning.
    """
    from uwf_git.api import attribution

    instance = invocation.instance
    value = attribution.blame(instance, Path.cwd(), file, revision, invocation.warn)
    names = cache(lambda: short_ids(instance))
    invocation.emit(value, lambda shown: _view(shown["lines"], names))


def _view(lines: list[dict[str, Any]], names: Callable[[], Callable[[str], str]]) -> str:
    number = len(str(len(lines)))
    rows = [(line["commit"][:_SHORT], _writer(line, names)) for line in lines]
    size = max((terminal.columns(writer) for _, writer in rows), default=0)
    return "\n".join(
        f"{commit}  {writer}{' ' * (size - terminal.columns(writer))}  {line['line']:>{number}}"
        f"  {terminal.escape_code(line['text'])}".rstrip()
        for (commit, writer), line in zip(rows, lines, strict=True)
    )


def _writer(line: Mapping[str, Any], names: Callable[[], Callable[[str], str]]) -> str:
    if line["thread"] is None:
        return one_line(line["author"], _LONGEST)
    step = (
        [f"{line['step']} {line['role']}", line["model"] or line["agent"]] if line["step"] is not None else []
    )
    return one_line(" ".join((names()(line["thread"]), *step)), 2 * _LONGEST)
