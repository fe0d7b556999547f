"""`uwf export`, in the forms of extensions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation, find_thread
from uwf_git.base import extensions
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import listed

_NAMED = 3


def _forms(function: Callable[..., None]) -> Callable[..., None]:
    function = click.option("--force", is_flag=True, help="Overwrite an existing file.")(function)
    for form in reversed(extensions.exports()):
        path: Any = click.Path(path_type=Path, allow_dash=True)
        function = click.option(form.option, metavar="FILE", type=path, help=form.line)(function)
    return function


@command(
    "uwf export 01JK7M --html login.html",
    "uwf export 01JK7M --html login.html --force    write over what is there",
    "uwf export 01JK7M --html - | less              to standard output",
    "uwf export 01JK7M --audit-json login.json      for auditors, checked with git",
)
@click.argument("thread", metavar="ID", required=False, shell_complete=complete_thread)
@_forms
def export(invocation: Invocation, thread: str | None, force: bool, **paths: Path | None) -> None:
    """Export a thread as one HTML file, audit report or trajectory.

    The HTML file contains the prompt, the graph, each step with its output, cost and turns, failed attempts
    and sub-workflows. It has no script and loads nothing.

    --audit and --audit-json write who decided what, signed by which key, and what verification found. --atif
    writes a trajectory of the Agent Trajectory Interchange Format.
    """
    forms = {form: path for form in extensions.exports() if (path := paths[form.parameter]) is not None}
    if thread is None or len(forms) != 1:
        ways = [f"uwf export ID {form.option} FILE" for form in extensions.exports()]
        raise Usage("one thread goes into one file", ", or ".join(ways))
    for form, path in forms.items():
        extensions.load(form.where)(invocation, thread, path, force)
    with suppress(NotFound):  # a form may be of something else than threads
        _note_branches(invocation, thread)


def _note_branches(invocation: Invocation, text: str) -> None:
    """Name the branches of the exported thread, which are threads of their own and not in the export."""
    from uwf_git.sync.branches import with_branches

    threads = invocation.instance.threads
    exported = {find_thread(invocation, text)}
    others = with_branches(invocation.instance, exported) - exported
    if branches := sorted(branch for branch in others if threads.exists(branch)):
        count = (
            "1 branch is a thread of its"
            if len(branches) == 1
            else f"{len(branches)} branches are threads of their"
        )
        invocation.note(f"{count} own, left out here: {listed(branches, _NAMED)}")
