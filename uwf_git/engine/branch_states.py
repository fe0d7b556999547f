"""The statuses of the branches of a fork, counted and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from uwf_git.base.text import one_line
from uwf_git.base.thread_states import ABSENT, ThreadState, words
from uwf_git.engine.forks import Branches, branches_at, fork_at, join_at
from uwf_git.engine.lineage import parent_of_branch
from uwf_git.engine.thread_state import ThreadStates
from uwf_git.format.types import FORK, JOIN, JOIN_OUTPUT
from uwf_git.store.history import Head, ancestry
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance

_ORDER = (
    *words(state for state in ThreadState if state.is_ended),
    *words(
        (ThreadState.RUNNING, ThreadState.JOINING, ThreadState.ASKING, ThreadState.PAUSED, ThreadState.IDLE)
    ),
    ABSENT,
)
_LONGEST_ITEM = 80


def branch_states(instance: Instance, branches: Branches) -> list[ThreadState | None]:
    """Return the state of each branch, by index; None for one that is not here."""
    states = ThreadStates(instance)
    return [None if branch.head is None else states.of(branch.head) for branch in branches.each]


def branch_words(instance: Instance, branches: Branches) -> list[str]:
    """Return the word of each branch's state, by index; of an ended one, as a join has it."""
    return [
        branch.state or (ABSENT if state is None else state.word)
        for branch, state in zip(branches.each, branch_states(instance, branches), strict=True)
    ]


def counts(statuses: Iterable[str]) -> dict[str, int]:
    """Return how many branches have each status, those that ended first."""
    found = Counter(statuses)
    return {
        status: found[status] for status in (*_ORDER, *sorted(found.keys() - set(_ORDER))) if found[status]
    }


def awaited_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that waits for them: how many have each status; empty for others."""
    if not head.waits_for_join:
        return {}
    return {"branches": counts(branch_words(instance, branches_at(instance, head)))}


def joining_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that waits for them: how many have each status, and each by index."""
    branches = branches_at(instance, head)
    statuses = branch_words(instance, branches)
    listed = [
        {"index": each.position, "thread": each.thread, "status": status, "item": item_text(item)}
        for each, status, item in zip(branches.each, statuses, branches.fork.items, strict=True)
    ]
    return {"branches": {"counts": counts(statuses), "each": listed}}


def joined_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that has joined some, those of its newest fork, as `joining_value` and with the
    number of the `fork`'s step; empty for others."""
    if not instance.store.index.hashes_of_type(JOIN_OUTPUT):
        return {}
    join: CommitRow | None = None
    for row in ancestry(instance.store, head.commit):
        if row.role == JOIN and join is None:
            join = row
        elif row.role == FORK and join is not None:
            joined, items = join_at(instance, join.node), fork_at(instance, row.node).items
            listed = [
                {"index": index, "thread": each.thread, "status": each.status, "item": item_text(item)}
                for index, (each, item) in enumerate(zip(joined, items, strict=False))
            ]
            statuses = [each.status for each in joined]
            return {"branches": {"counts": counts(statuses), "each": listed, "fork": row.number}}
        elif row.kind not in ("step", "start"):
            break
    return {}


def branch_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branchOf` of a branch: the fork's thread, None if that is not here, its step, and the branch's index."""
    found = instance.threads.fork_of(head)
    if found is None:
        return {}
    fork, index = found
    step = instance.store.index_commit(fork).node
    return {"branchOf": {"thread": parent_of_branch(instance, head), "step": step, "index": index}}


def item_text(item: Any) -> str:
    """Return an item on one line; of an object with one field, that."""
    if isinstance(item, dict) and len(item) == 1:
        (item,) = item.values()
    return one_line(item if isinstance(item, str) else json.dumps(item, ensure_ascii=False), _LONGEST_ITEM)
