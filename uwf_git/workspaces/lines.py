"""Which lines the commits of a step added, as `git blame` later finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import RemoteFailed, WorkspaceFailed
from uwf_git.workspaces.changes import projects_with
from uwf_git.workspaces.patches import read_patches

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.format.kinds import Revision
    from uwf_git.store.instance import Instance
    from uwf_git.workspaces.project import Project

MOST_COMMITS = 1000
"""Commits of one step that are read, newest first."""


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
    rows = [line.partition(" ")[::2] for line in reversed(log.splitlines())]
    patches = read_patches(project, [(commit,) for commit, _ in rows])
    for (commit, time), patch in zip(rows, patches, strict=True):
        files = patch.added.items() if patch is not None else ()
        yield CommitLines(
            commit, int(time), tuple(Lines(_shown(path), tuple(_ranges(lines))) for path, lines in files)
        )


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = 0
    for number in numbers:
        if number != last + 1 and last:
            yield first, last
        if number != last + 1:
            first = number
        last = number
    if last:
        yield first, last


def _shown(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
