"""`uwf export`, in the forms of extensions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from uwf_cli.command import command
from uwf_cli.completers import complete_thread
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_git.base import extensions
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import listed

_NAMED = 3


def _forms(function: Callable[..., None]) -> Callable[..., None]:
    options: list[Any] = []
    for form in extensions.exports():
        path: Any = click.Path(path_type=Path, allow_dash=form.is_file)
        options.append(click.option(form.option, metavar=_metavar(form), type=path, help=form.line))
        if form.is_file and form == next(each for each in extensions.exports() if each.is_file):
            options.append(click.option("--force", is_flag=True, help="Overwrite an existing file."))
    for option in reversed(options):
        function = option(function)
    return function


def _metavar(form: extensions.Export) -> str:
    return "FILE" if form.is_file else "FOLDER"


@command(
    "uwf export 01JK7M --html login.html",
    "uwf export 01JK7M --html login.html --force    write over what is there",
    "uwf export 01JK7M --html - | less              to standard output",
    "uwf export 01JK7M --audit-json login.json      for auditors, checked with git",
    "uwf export --json-cas old                      all nodes, as json-cas keeps them",
    "uwf export 01JK7M --json-cas old               those of a thread",
)
@click.argument("threads", metavar="[ID]...", nargs=-1, shell_complete=complete_thread)
@_forms
def export(
    invocation: Invocation, threads: tuple[str, ...], force: bool = False, **paths: Path | None
) -> None:
    """Export a thread as one HTML file or audit report, or nodes in json-cas format.

    The HTML file contains the prompt, the graph, each step with its output, cost and turns, failed attempts
    and sub-workflows. It has no script and loads nothing.

    --audit and --audit-json write who decided what, signed by which key, and what verification found.

    --json-cas writes the given threads, or all workflows, threads and nodes, to a storage root that "uwf
    import" reads. Existing nodes are kept.
    """
    forms = {form: path for form in extensions.exports() if (path := paths[form.parameter]) is not None}
    for form, path in forms.items():
        if len(forms) == 1 and (len(threads) == 1 if form.is_file else not force):
            extensions.load(form.where)(invocation, threads, path, force)
            with suppress(NotFound):  # a form may be of something else than threads
                _note_branches(invocation, threads)
            return
    ways = [
        f"uwf export {'ID' if each.is_file else '[ID]...'} {each.option} {_metavar(each)}"
        for each in extensions.exports()
    ]
    raise Usage("one thread goes into a file, and nodes into a folder", ", or ".join(ways))


def _note_branches(invocation: Invocation, texts: tuple[str, ...]) -> None:
    """Say which branches of the exported threads are not in the export: each is a thread of its own."""
    from uwf_git.sync.branches import with_branches

    threads = invocation.instance.threads
    found = {find_thread(invocation, text) for text in texts}
    if left := sorted(
        each for each in with_branches(invocation.instance, found) - found if threads.exists(each)
    ):
        verb = "branch is a thread" if len(left) == 1 else "branches are threads"
        invocation.note(
            f"{len(left)} {verb} of {'its' if len(left) == 1 else 'their'} own, left out here: {listed(left, _NAMED)}"
        )
