"""Forking a thread: a second one that shares the first's past."""

from __future__ import annotations

from uwf_git.base.errors import NotFound
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, ancestry
from uwf_git.store.index import CommitRow
from uwf_git.store.opened import Instance


def fork(instance: Instance, thread: ThreadId, at: int | None = None) -> ThreadId:
    """Make a thread that shares the first `at` steps of another, all of them by default. It works in the same folder.
    Makes `refs/uwf/threads/<new ULID>` and `refs/uwf/forks/<new ULID>`. Raises NotFound."""
    return fork_commit(
        instance, Oid(raw=row_at(instance, instance.threads.head(thread), at).oid), thread, thread
    )


def fork_commit(
    instance: Instance, commit: Oid, source: ThreadId | None, folder_of: ThreadId | None = None
) -> ThreadId:
    """Make a thread on a commit of the thread `source`. It works in the folder of the thread `folder_of`."""
    made = instance.threads.fork(commit, source)
    folder = instance.folders.recall(folder_of) if folder_of is not None else None
    if folder is not None:
        instance.folders.remember(made, folder)
    return made


def row_at(instance: Instance, head: Head, at: int | None) -> CommitRow:
    """Return what is recorded at step number `at` of a thread, at its head for None. Raises NotFound."""
    number = head.row.number if at is None else at
    if not 0 <= number <= head.row.number:
        raise NotFound(
            f"thread {head.thread} has {head.row.number} steps, not {number}",
            f"see: uwf thread steps {head.thread}",
        )
    return next(row for row in ancestry(instance.store, head.commit) if row.number == number)
