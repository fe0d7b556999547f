"""Which lines the commits of a step added, as `git blame` later finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import RemoteFailed, WorkspaceFailed
from uwf_git.workspaces.changes import diff_of, projects_with

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Revision
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

MOST_COMMITS = 1000
"""Commits of one step that are read, newest first."""
PATCH_BYTES = 64 << 20
"""Bytes of one commit's patch that are read. The rest has no lines."""

_HUNK = re.compile(rb"@@ -[0-9]+(?:,([0-9]+))? \+([0-9]+)(?:,([0-9]+))? @@")


class Lines(NamedTuple):
    """Lines that were added to a file: the first and the last of each range, from 1."""

    path: str
    ranges: tuple[tuple[int, int], ...]


class CommitLines(NamedTuple):
    """The lines that a commit added. `time` is its committer's, in Unix seconds."""

    commit: str
    time: int
    files: tuple[Lines, ...]


def added_lines(instance: Instance, thread: ThreadId | None, code: Revision) -> list[CommitLines] | None:
    """Return the commits from `code.base` to `code.commit` by first parents, oldest first and without merges; None if
    the code is not on this machine."""
    for project in projects_with(instance, thread, code):
        try:
            return list(_commits(project, code))
        except (WorkspaceFailed, RemoteFailed):  # a shallow or partial clone, or a repository that is gone
            continue
    return None


def _commits(project: Project, code: Revision) -> Iterator[CommitLines]:
    words = ("--first-parent", "--no-merges", f"--max-count={MOST_COMMITS}", "--format=%H %ct")
    log = project.run("log", *words, f"{code.base}..{code.commit}", "--").out.decode("ascii", "replace")
    for line in reversed(log.splitlines()):
        commit, _, time = line.partition(" ")
        yield CommitLines(commit, int(time), tuple(_files(diff_of(project, commit, PATCH_BYTES))))


def _files(patch: bytes) -> Iterator[Lines]:
    path, ranges, remaining = "", list[tuple[int, int]](), 0
    for line in patch.split(b"\n"):
        if remaining:  # a line of a file, whatever it looks like
            remaining -= not line.startswith(b"\\")
        elif match := _HUNK.match(line):
            removed, first, added = (1 if part is None else int(part) for part in match.groups())
            remaining = removed + added
            if added:
                ranges.append((first, first + added - 1))
        elif line.startswith(b"+++ "):
            if path and ranges:
                yield Lines(path, tuple(ranges))
            path, ranges = _path(line[4:]), []
    if path and ranges:
        yield Lines(path, tuple(ranges))


def _path(name: bytes) -> str:
    """Return a path as git names it in a patch, "" for a file that was removed."""
    name = name.removesuffix(b"\t")  # that of a name with blanks
    if name.startswith(b'"'):
        name = name[1:-1].decode("unicode_escape").encode("latin-1", "replace")
    return name[2:].decode("utf-8", "replace") if name.startswith(b"b/") else ""
