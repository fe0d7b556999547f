"""Secrets in code that is about to leave: in what commits add, their files' names and messages. What they take away or
leave as it was is no exposure by them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.base.text import one_line

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

_AT_ONCE = 64 << 20  # bytes of changes
_LOG = ("log", "-p", "-m", "-U0", "--text", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
_NAMES = ("log", "--name-only", "-m", "-z", "--no-renames", "--format=")


def secrets_in(instance: Instance, project: Project, span: str) -> list[str]:
    """Return a clause on each file and message in which commits of a range, such as `main..topic`, add a secret, by its
    variable or kind; those that the settings files of the project's checkout have are known then. A file with more
    changes than can be searched is among them."""
    instance.know_secrets_of(project.common.parent)
    clauses: dict[str, None] = {}
    for file, text in _added(project, span):
        if text is None:
            clauses[f"over {_AT_ONCE >> 20} MB of changes, too many to search, in {one_line(file, 100)}"] = (
                None
            )
        elif spot := instance.redactor.first(text):
            clauses[f"{spot} in {one_line(file, 100) if file else 'the message of a commit'}"] = None
    return list(clauses)


def _added(project: Project, span: str) -> Iterator[tuple[str, str | None]]:
    """Yield what commits add: texts by file, and messages by ""; None of a file with too many changes."""
    content = _patches(project, span)
    if content is not None:
        yield from content
        return
    yield "", project.git().run("log", "--format=%B", span).out.decode("utf-8", "replace")
    names = project.git().run(*_NAMES, span).out.decode("utf-8", "surrogateescape").split("\0")
    for name in dict.fromkeys(filter(None, names)):
        content = _patches(project, span, "--", f":(top,literal){name}")
        yield from content if content is not None else [(name, None)]


def _patches(project: Project, *words: str) -> list[tuple[str, str]] | None:
    """Return what a log adds, as `_added`; None if it is too long."""
    mark = secrets.token_hex(8)
    out = project.git().run(*_LOG, f"--format={mark}%n%B%n{mark}", *words, at_most=_AT_ONCE).out
    if len(out) == _AT_ONCE:
        return None
    _, *parts = out.decode("utf-8", "replace").split(f"{mark}\n")
    texts: list[tuple[str, str]] = []
    for message, patch in zip(parts[::2], parts[1::2], strict=True):
        texts.append(("", message))
        texts += _by_file(patch)
    return texts


def _by_file(patch: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of a patch without context, with its header and its added lines."""
    for change in patch.split("\ndiff --git ")[1:]:
        header, _, hunks = change.partition("\n@@ ")
        lines = [line[1:] for line in hunks.split("\n") if line.startswith("+")]
        first, *more = header.split("\n")
        name = next((line[4:] for line in more if line.startswith("+++ ")), "")
        yield name.strip('"\t').removeprefix("b/") or first, "\n".join([first, *lines])
