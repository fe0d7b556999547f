"""Lookups between forks and branches: the fork of a branch, the threads that wait for it, the branches of a fork."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uwf_git.format.fan_out import Fork, JoinedBranch, parse_fork, parse_join
from uwf_git.format.ids import MOST_BRANCHES, Hash, ThreadId, branch_id, branch_index, milliseconds_of
from uwf_git.format.types import FORK
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.starts import branch_of

if TYPE_CHECKING:
    from uwf_git.store.history import Head
    from uwf_git.store.index import CommitRow
    from uwf_git.store.indexing import Store
    from uwf_git.store.instance import Instance


def fork_at(instance: Instance, node: Hash) -> Fork:
    """Return the Fork of a fork's StepNode."""
    step = instance.store.get(node).payload
    return parse_fork(instance.store.get(step["output"]).payload)


def join_at(instance: Instance, node: Hash) -> tuple[JoinedBranch, ...]:
    """Return the branches of a join's StepNode."""
    step = instance.store.get(node).payload
    return parse_join(instance.store.get(step["output"]).payload)


def branches_of(instance: Instance, head: Head) -> Sequence[ThreadId]:
    """Return the branches that a thread waits for, by index, whether or not they are here."""
    return branches_of_step(instance, head.row)


def branches_of_step(instance: Instance, row: CommitRow) -> Sequence[ThreadId]:
    """Return the branches of a step by index, none if it is no fork, whether or not they are here."""
    if row.role != FORK:
        return ()
    size = fork_at(instance, row.node).size
    return [branch_id(str(Oid(raw=row.oid)), row.time, position) for position in range(size)]


def parents_of(instance: Instance, branch: Head) -> list[ThreadId]:
    """Return the active threads that wait for a branch: those that end with its fork."""
    fork = instance.threads.fork_of(branch)
    return [] if fork is None else waiting_at(instance, fork[0])


def waiting_at(instance: Instance, fork: Oid) -> list[ThreadId]:
    """Return the active threads that end with the commit of a fork."""
    found = _known_at(instance, fork)
    if not found and instance.store.sync():  # another program may have moved a ref
        found = _known_at(instance, fork)
    return found


def _known_at(instance: Instance, fork: Oid) -> list[ThreadId]:
    names = instance.store.index.heads_at(fork.raw)
    folded = {layout.thread_of(name) for name in names if name.startswith(layout.FOLDED)}
    found = {layout.thread_of(name) for name in names if name.startswith(layout.THREADS)} - folded
    refs = (prefix + thread for thread in found for prefix in (layout.THREADS, layout.ARCHIVE))
    at = instance.store.repository.refs_named(list(refs))
    return sorted(
        each for each in found if at.get(layout.THREADS + each) == fork and layout.ARCHIVE + each not in at
    )


def squatted(store: Store, thread: ThreadId, commit: Oid) -> tuple[Oid, int] | None:
    """Return the fork here, and the index there, of the branch that has a thread's id, if the thread with this last
    commit is not that branch."""
    when = milliseconds_of(thread)
    for fork in store.index.forks_within((when - MOST_BRANCHES) // 1000, when // 1000):
        oid = Oid(raw=fork.oid)
        position = branch_index(str(oid), fork.time, thread)
        if position is None:
            continue
        if not is_branch_at(store, store.index_commit(commit), fork.node, position):
            return oid, position
    return None


def is_branch_at(store: Store, row: CommitRow, fork: Hash, position: int) -> bool:
    """Return whether a thread with this commit is, by its StartNode, the branch at an index of a fork's StepNode."""
    own = branch_of(store, row.start or row.node)
    return own is not None and (own.fork, own.position) == (fork, position)
