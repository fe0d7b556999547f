"""Secrets in code that is about to leave: in what commits add, their files' names, their messages and people. What they
take away, move or leave as it was is no exposure by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.base.text import one_line

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

_AT_ONCE = 64 << 20  # bytes of changes
# Plumbing, and options in place of the user's configuration. Of a merge, what none of its parents has.
_DIFF = (
    "-c",
    "core.quotePath=false",
    "diff-tree",
    "--stdin",
    "-r",
    "-M",
    "-l1000",
    "-c",
    "--root",
    "--no-commit-id",
)
_PATCH = (
    "-p",
    "-U0",
    "--text",
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_MESSAGES = (
    "log",
    "-s",
    "--encoding=UTF-8",
    "--no-show-signature",
    "--no-color",
    "--format=%an %ae%n%cn %ce%n%B",
)
_FILE = re.compile(rb"^diff --(?:git|combined|cc) ", re.MULTILINE)
_MERGED = re.compile(
    rb"^index ([0-9a-f]+(?:,[0-9a-f]+)+)\.\.([0-9a-f]+)\n(?:.*\n)*?Binary files differ$", re.MULTILINE
)
_HUNK = re.compile(rb"^(@@+) .*$", re.MULTILINE)


def secrets_in(instance: Instance, project: Project, *span: str) -> list[str]:
    """Return a clause on each file and message in which commits, such as `main..topic`, add a secret, by its variable
    or kind; those that the settings files of the project's checkout have are known then. A file with more
    changes than can be searched is among them."""
    instance.know_secrets_of(project.common.parent)
    redactor, git = instance.redactor, project.git()
    clauses: dict[str, None] = {}
    if spot := redactor.first(git.run(*_MESSAGES, *span).out):
        clauses[f"{spot} in the message of a commit"] = None
    for file, added, gone in _changes(project, git.run("rev-list", *span).out):
        name = redactor.text(one_line(file.decode("utf-8", "replace"), 100))[0]
        if added is None:
            clauses[f"over {_AT_ONCE >> 20} MB of changes, too many to search, in {name}"] = None
        elif (spot := redactor.first(added)) and redactor.first(_without_words(added, gone)):
            clauses[f"{spot} in {name}"] = None
    return list(clauses)


def _without_words(text: bytes, others: bytes) -> bytes:
    """Return a text without the words that another has too."""
    known = frozenset(others.split())
    return re.sub(rb"\S+", lambda word: b"" if word[0] in known else word[0], text)


def _changes(project: Project, commits: bytes) -> Iterator[tuple[bytes, bytes | None, bytes]]:
    """Yield what commits add to each file, with its name, and what they take from it; None of a file that is too
    large."""
    out = project.git().run(*_DIFF, *_PATCH, stdin=commits, at_most=_AT_ONCE).out
    if len(out) < _AT_ONCE:
        yield from _by_file(project, out)
        return
    names = project.git().run(*_DIFF, "--name-only", "-z", stdin=commits).out.split(b"\0")
    for name in dict.fromkeys(filter(None, names)):
        path = f":(top,literal){name.decode('utf-8', 'surrogateescape')}"
        out = project.git().run(*_DIFF, *_PATCH, "--", path, stdin=commits, at_most=_AT_ONCE).out
        if len(out) == _AT_ONCE:
            yield name, None, b""
        else:
            yield from _by_file(project, out)


def _by_file(project: Project, patches: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the name of each file, with header and added lines, and the lines that are gone."""
    for patch in _FILE.split(patches)[1:]:
        header, *hunks = _HUNK.split(patch)
        first, *more = header.split(b"\n")
        added, gone = _lines(hunks)
        if (merged := _MERGED.search(header)) is not None:  # and not shown as text
            *parents, own = (project.git().run("cat-file", "blob", oid).out for oid in _ids(merged))
            added, gone = [own], parents
        name = next((line[4:] for line in more if line.startswith(b"+++ ")), b"/dev/null")
        name = first if name == b"/dev/null" else name.strip(b'"\t').removeprefix(b"b/")
        yield name, b"\n".join([first, *added]), b"\n".join(gone)


def _ids(merged: re.Match[bytes]) -> list[str]:
    """Return the blobs of a merged file: of the parents that have it, and its own."""
    return [oid for oid in f"{merged[1].decode()},{merged[2].decode()}".split(",") if oid.strip("0")]


def _lines(hunks: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the lines that hunks add, of a merge those that no parent has, and those that are gone."""
    added: list[bytes] = []
    gone: list[bytes] = []
    for ats, lines in zip(hunks[::2], hunks[1::2], strict=True):
        parents = len(ats) - 1
        for line in lines.split(b"\n"):
            signs, text = line[:parents], line[parents:]
            if signs == b"+" * parents:
                added.append(text)
            elif b"-" in signs:
                gone.append(text)
    return added, gone
