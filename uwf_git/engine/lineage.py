"""Which thread was started by which: a sub-workflow's thread belongs to the one that a role of it does a step for."""

from __future__ import annotations

from collections.abc import Sequence

from uwf_git.store.history import Head
from uwf_git.store.opened import Instance
from uwf_git.values.ids import ThreadId
from uwf_git.values.kinds import SUBWORKFLOW


def parents(instance: Instance, heads: Sequence[Head]) -> dict[ThreadId, ThreadId]:
    """Of those of the heads' threads that another thread has started, that thread. What this machine has started it
    knows by the session; elsewhere a child is known once its last step is part of the parent. Of forks that share
    that step, the oldest is the parent. Reads no node."""
    merged = _merged(instance)
    owners = instance.sessions.owners(SUBWORKFLOW, (head.thread for head in heads))
    found: dict[ThreadId, ThreadId] = {}
    for head in heads:
        owner = owners.get(head.thread) or merged.get(head.commit.raw, head.thread)
        if owner != head.thread:
            found[head.thread] = ThreadId(owner)
    return {child: parent for child, parent in found.items() if not _within(found, child)}


def _merged(instance: Instance) -> dict[bytes, ThreadId]:
    """The last commits of sub-workflows, and the first of the threads that has them in its history."""
    index = instance.store.index
    found: dict[bytes, ThreadId] = {}
    seen: set[bytes] = set()
    for thread, nested in sorted(index.nested_tips().items()):
        at: bytes | None = nested
        while at is not None and at not in seen:
            seen.add(at)
            row = index.commit(at)
            if row is None or row.merged is None:
                break
            found.setdefault(row.merged, thread)
            before = index.commit(row.parent) if row.parent else None
            at = before.nested if before else None
    return found


def _within(parents: dict[ThreadId, ThreadId], child: ThreadId) -> bool:
    """Whether a thread would be its own ancestor, as only a forged history has it."""
    at, passed = parents.get(child), {child}
    while at is not None and at not in passed:
        passed.add(at)
        at = parents.get(at)
    return at is not None
