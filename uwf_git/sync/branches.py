"""Branches in an exchange: those that go along with their parent, and those of a fork that two machines made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from uwf_git.base.errors import Busy, HeadMoved, Invalid, NotFound, StoreDamaged
from uwf_git.engine.forks import begun_at, parents_of, waiting_at
from uwf_git.format.endings import COMPLETED, FAILED, JOINED_WITHOUT, KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import FANS_OUT, OF_BRANCH
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, ancestry, branch_of, relate, start_of
from uwf_git.store.instance import Instance
from uwf_git.sync.recommit import put_on
from uwf_git.workflow.turn import begins_threads, gathers_threads


def with_branches(instance: Instance, threads: Iterable[ThreadId]) -> set[ThreadId]:
    """Return threads and the branches of their forks, and the branches of these."""
    collected: set[ThreadId] = set()
    pending = list(threads)
    while pending:
        thread = pending.pop()
        if thread in collected:
            continue
        collected.add(thread)
        with contextlib.suppress(NotFound, StoreDamaged):
            head = instance.threads.head(thread)
            if _fans_out(instance, head):
                rows = ancestry(instance.store, head.commit)
                pending += (item for row in rows for item in begun_at(instance, row))
    return collected


def along(instance: Instance, thread: ThreadId) -> set[ThreadId]:
    """Return the threads that a step of this one may have moved, besides itself: the branches that it began or ended,
    and threads that join it as a branch."""
    with contextlib.suppress(NotFound, StoreDamaged):
        head = instance.threads.head(thread)
        threads = {item for item in _at_fork(instance, head) if instance.threads.exists(item)}
        for parent in _above(instance, head):
            threads |= {parent, *_at_fork(instance, instance.threads.head(parent))}
        return {item for item in threads - {thread} if instance.threads.exists(item)}
    return set()


def _fans_out(instance: Instance, head: Head) -> bool:
    return instance.store.index.has_trait(head.row.workflow, FANS_OUT)


def _at_fork(instance: Instance, head: Head) -> Sequence[ThreadId]:
    """Return the branches of the fork that is a thread's last step, or that its last step has joined."""
    row = head.row
    if gathers_threads(row.role) and row.parent is not None:
        row = instance.store.index_commit(Oid(raw=row.parent))
    return begun_at(instance, row)


def _above(instance: Instance, head: Head) -> set[ThreadId]:
    """Return the threads that end with the fork of a branch, or with a join of it."""
    start = head.row.start or head.row.node
    if branch_of(instance.store, start) is None:
        return set()
    threads = set(parents_of(instance, head))
    row = start_of(instance.store, head.commit)
    if row.merged is not None:
        for commit_row in instance.store.index.joins_of(row.merged):
            threads |= {layout.thread_of(name) for name in instance.store.index.heads_at(commit_row.oid)}
    return threads


def move_branches(instance: Instance, old: Oid, new: Oid) -> None:
    """Move the branches of a fork that is kept in another commit, which another machine made or a pull: those of `new`
    get the steps of those of `old`, unless more was done there, and these end. Makes and moves
    `refs/uwf/threads/<branch>`, makes `refs/uwf/archive/<branch>`. A branch that is at work is left as it is."""
    rows = (instance.store.index_commit(oid) for oid in (old, new))
    for ours, theirs in zip(*(begun_at(instance, row) for row in rows), strict=True):
        with contextlib.suppress(NotFound, HeadMoved, Busy), instance.locks.hold(ours):
            head = instance.threads.head(ours)
            with instance.locks.hold(theirs):
                if not instance.threads.exists(theirs):
                    _begin(instance, head, theirs, new)
                _carry(instance, head, instance.threads.head(theirs))
            if head.archive is None:
                instance.threads.archive(head, KILLED, JOINED_WITHOUT)


class LostFork(NamedTuple):
    """A fork that nothing waits for any more, and its branches that have not ended. `now` is the other commit of the
    same step that has replaced it, or the thread that was killed at it."""

    fork: Oid
    branches: list[ThreadId]
    now: Oid | Head


def lost_forks(instance: Instance, thread: ThreadId | None = None) -> list[LostFork]:
    """Return the lost forks, or those of a thread or of its parent, as they follow from the refs alone: a killed
    process may have begun to end their branches. Forks whose threads are not here are not lost."""
    if not instance.store.index.has_any_with(OF_BRANCH):
        return []
    waiting: dict[Oid, list[ThreadId]] = {}
    for head in instance.threads.all() if thread is None else _at_forks_of(instance, thread):
        if isinstance(head, Head) and (fork := instance.threads.fork_of(head)) is not None:
            waiting.setdefault(fork[0], []).append(head.thread)
    forks = []
    for oid, branches in waiting.items():
        if not waiting_at(instance, oid) and not instance.store.index.joins_of(oid.raw):
            now = _killed_at(instance, oid) or _replacing(instance, oid)
            if now is not None:
                forks.append(LostFork(oid, branches, now))
    return forks


def _at_forks_of(instance: Instance, thread: ThreadId) -> Iterator[Head]:
    """Yield the active branches of the forks of a thread, in each commit of these that is here; and the thread itself,
    which may be such a branch."""
    head = instance.threads.head(thread)
    if head.archive is None:
        yield head
    if not _fans_out(instance, head):
        return
    nodes = dict.fromkeys(
        row.node for row in ancestry(instance.store, head.commit) if begins_threads(row.role)
    )
    for row in (row for node in nodes for row in instance.store.index.commits_of(node)):
        for item in begun_at(instance, row):
            with contextlib.suppress(NotFound, StoreDamaged):
                if (branch := instance.threads.head(item)).archive is None:
                    yield branch


def settle_lost_forks(instance: Instance, thread: ThreadId | None = None) -> list[ThreadId]:
    """End the branches of lost forks, as `lost_forks` names them; the steps of those that another commit replaced go
    over to its branches. Moves refs as `move_branches` and `engine.turn.table.settle`. Return the ended branches."""
    lost = lost_forks(instance, thread)
    for fork, _, now in lost:
        with contextlib.suppress(NotFound, StoreDamaged, HeadMoved, Busy, Invalid):
            if isinstance(now, Head):
                from uwf_git.engine.turn.table import settle

                settle(instance, now)
            else:
                move_branches(instance, fork, now)
    return [branch for fork in lost for branch in fork.branches if instance.threads.has_ended(branch)]


def _killed_at(instance: Instance, fork: Oid) -> Head | None:
    """Return a thread that was killed at the commit of a fork."""
    for name in instance.store.index.heads_at(fork.raw):
        with contextlib.suppress(NotFound, StoreDamaged):
            head = instance.threads.head(layout.thread_of(name))
            if head.commit == fork and head.archive is not None and head.archive.status == KILLED:
                return head
    return None


def _replacing(instance: Instance, fork: Oid) -> Oid | None:
    """Return another commit of a fork's step, at which a thread here waits, or waited until it joined."""
    store = instance.store
    for row in store.index.commits_of(store.index_commit(fork).node):
        other = Oid(raw=row.oid)
        if other != fork and (waiting_at(instance, other) or store.index.joins_of(row.oid)):
            return other
    return None


def own_branches(instance: Instance, thread: ThreadId) -> list[ThreadId]:
    """Return the branches here, theirs included, of the forks that a thread has and no other thread shares."""
    head = instance.threads.head(thread)
    if not _fans_out(instance, head):
        return []
    forks = {row.oid: row for row in ancestry(instance.store, head.commit) if begins_threads(row.role)}
    start = head.row.start or head.row.node
    for other in instance.threads.all(archived=True) if forks else ():
        if (
            isinstance(other, Head)
            and other.thread != thread
            and (other.row.start or other.row.node) == start
        ):
            for row in ancestry(instance.store, other.commit):
                forks.pop(row.oid, None)
    threads: list[ThreadId] = []
    for row in forks.values():
        for branch in begun_at(instance, row):
            if instance.threads.exists(branch):
                threads += [branch, *own_branches(instance, branch)]
    return threads


def _begin(instance: Instance, old: Head, thread: ThreadId, fork: Oid) -> None:
    repository = instance.store.repository
    row = start_of(instance.store, old.commit)
    start = repository.commit(Oid(raw=row.oid))
    oid = repository.rewrite_commit(
        Oid(raw=row.oid), repository.root(Oid(raw=row.oid)), (start.parents[0], fork), resigns=True
    )
    instance.store.index_commit(oid)
    repository.create_ref(layout.THREADS + thread, oid)


def _carry(instance: Instance, old: Head, new: Head) -> None:
    relation = relate(instance.store, old.commit, new.commit)
    if relation is None or relation.theirs or new.archive is not None:
        return  # more was done there
    if relation.ours:
        commit = put_on(instance.store, relation.base, relation.ours)
        instance.store.repository.move_ref(layout.THREADS + new.thread, new.commit, commit)
        new = instance.threads.head(new.thread)
        move_branches(instance, old.commit, commit)
    if old.archive is not None and old.archive.status in (COMPLETED, FAILED):
        instance.threads.archive(new, old.archive.status, old.archive.reason)
