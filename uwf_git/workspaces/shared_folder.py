"""Threads whose agents work in a folder that isn't theirs alone: the user's checkout, or that of several threads, where
each may overwrite what another wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base.text import counted, listed
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import SUBWORKFLOW

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_NAMED = 3  # threads
_told: set[Path] = set()
_announced: set[Path] = set()


def sharing(instance: Instance, thread: ThreadId, folder: Path) -> str:
    """Return a warning if other threads' agents work in a folder of a git checkout now, else "". Each process
    warns once of a folder."""
    held = instance.locks.held() - {thread}
    if not held or folder in _told:
        return ""
    from uwf_git.store.location import checkout_around

    mine, place = _parents(instance, thread), str(folder.absolute())
    beside = []
    for other in sorted(held):
        order = instance.runs.read_order(other)
        is_relative = other in mine or thread in _parents(instance, other)
        if order is not None and order.folder == place and not is_relative:
            beside.append(other)
    if not beside or checkout_around(folder) is None:
        return ""
    _told.add(folder)
    return (
        f"thread {thread} works in {folder}, and so does {listed(beside, _NAMED)}: they may overwrite"
        " each other's files; --workspace worktree gives each thread its own"
    )


def announcement(thread: ThreadId, folder: Path) -> str:
    """Return a line that says that agents work in a checkout itself, once for each folder and process, else ""."""
    from uwf_git.store.location import checkout_around

    if folder in _announced or checkout_around(folder) is None:
        return ""
    _announced.add(folder)
    return f"thread {thread} works in the checkout itself, {folder}; --workspace worktree gives it one of its own"


@contextmanager
def sparing_stash(instance: Instance, thread: ThreadId, folder: Path) -> Iterator[None]:
    """Put back what is gone from the user's stash after the block, and warn of it: the stash belongs to all work in a
    checkout. Refs hold it meanwhile, so that no `git gc` takes it."""
    from uwf_git.store.location import checkout_around

    checkout = checkout_around(folder)
    if checkout is None or not _may_have_stash(checkout.common):
        yield
        return
    from uwf_git.workspaces.project import Project

    project = Project(checkout.common)
    before = project.stashed()
    if not before:
        yield
        return
    project.keep_own(thread, before, ())
    try:
        yield
    finally:
        if project.common.is_dir():
            gone = before.keys() - project.stashed().keys()
            for commit in reversed(before):
                if commit in gone:
                    project.stash_again(commit, before[commit])
            project.keep_own(thread, (), before)
            if gone:
                instance.warn(
                    f"thread {thread} took {counted(len(gone), 'change')} out of the stash of {folder}: put back"
                )


def _may_have_stash(common: Path) -> bool:
    """Return whether git may have a stash, without asking it: that is a log of a ref, in a file or among tables."""
    return any((common / name).exists() for name in ("logs/refs/stash", "reftable"))


def _parents(instance: Instance, thread: str) -> set[str]:
    parents: set[str] = set()
    while (owner := instance.sessions.owner(SUBWORKFLOW, thread)) and owner not in parents:
        parents.add(owner)
        thread = owner
    return parents
