"""The statuses of the branches of a fork, counted and as JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from uwf_git.base.errors import AgentFailed, Paused, UwfError, Waiting
from uwf_git.base.text import one_line
from uwf_git.base.thread_states import ABSENT, ThreadState, words
from uwf_git.engine.forks import Branches, branches_at, fork_at, join_at, pending
from uwf_git.engine.lineage import parent_of_branch
from uwf_git.engine.next_turn import outlook, raise_if_stuck
from uwf_git.engine.thread_state import ThreadStates, failure_reason, thread_state
from uwf_git.format.fan_out import Fork
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import JOIN_OUTPUT
from uwf_git.store.history import Head, ancestry
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance
from uwf_git.workflow.turn import begins_threads, gathers_threads

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
    numbers = Counter(statuses)
    return {
        status: numbers[status]
        for status in (*_ORDER, *sorted(numbers.keys() - set(_ORDER)))
        if numbers[status]
    }


def awaited_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that waits for them: how many have each status; and how many have ended, since one
    that failed may be tried again. Empty for others."""
    if not head.waits_for_join:
        return {}
    branches = branches_at(instance, head)
    return {"branches": counts(branch_words(instance, branches)), "branchesEnded": branches.ended}


def joining_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that waits for them: how many have each status, how many have ended, and each by
    index."""
    branches = branches_at(instance, head)
    threads, statuses = [state.thread for state in branches.each], branch_words(instance, branches)
    return {"branches": _value(threads, statuses, branches.ended, branches.fork)}


def _value(threads: Sequence[ThreadId], statuses: Sequence[str], ended: int, fork: Fork) -> dict[str, Any]:
    branches = [
        {"index": index, "thread": thread, "status": status, "item": item_text(item)}
        for index, (thread, status, item) in enumerate(zip(threads, statuses, fork.items, strict=False))
    ]
    return {"counts": counts(statuses), "ended": ended, "each": branches}


def joined_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branches` of a thread that has joined some, those of its newest fork, as `joining_value` and with the
    number of the `fork`'s step; empty for others."""
    if not instance.store.index.hashes_of_type(JOIN_OUTPUT):
        return {}
    join: CommitRow | None = None
    for row in ancestry(instance.store, head.commit):
        if gathers_threads(row.role) and join is None:
            join = row
        elif begins_threads(row.role) and join is not None:
            joined = join_at(instance, join.node)
            threads, statuses = [branch.thread for branch in joined], [branch.status for branch in joined]
            ended = sum(not branch.is_left for branch in joined)
            value = _value(threads, statuses, ended, fork_at(instance, row.node))
            return {"branches": {**value, "fork": row.number}}
        elif row.kind not in ("step", "start"):
            break
    return {}


def raise_if_at_rest(instance: Instance, head: Head) -> None:
    """If a thread waits for branches, raise AgentFailed for those whose last step failed, Waiting for those that wait
    for a person or are paused, NoTransition for one that cannot go on. Waiting also if none that is open is here."""
    if not head.waits_for_join:
        return
    thread, branches = head.thread, branches_at(instance, head)
    states = branch_states(instance, branches)
    resting: dict[type[UwfError] | None, list[ThreadId]] = defaultdict(list)
    for branch, state in zip(branches.each, states, strict=True):
        if state is not None and not state.is_ended:
            resting[state.error].append(branch.thread)
    if failed := resting[AgentFailed]:
        why = _error_of(instance, failed[0])
        which = (
            f"branch {failed[0]}" if len(failed) == 1 else f"{len(failed)} branches, the first {failed[0]},"
        )
        raise AgentFailed(f"{which} of thread {thread} failed{why}", f"try again: uwf thread run {thread}")
    for error, does, hint in (
        (Waiting, ("waits for a person", "wait for a person"), "uwf inbox"),
        (Paused, ("is paused", "are paused"), "uwf thread resume {}"),
    ):
        if at_rest := resting[error]:
            which = f"branch {at_rest[0]} of thread {thread} {does[0]}"
            if len(at_rest) > 1:
                which = f"{len(at_rest)} branches of thread {thread}, the first {at_rest[0]}, {does[1]}"
            raise Waiting(which, hint.format(at_rest[0]))
    for branch, state in zip(branches.each, states, strict=True):
        if state is not None and state.is_ready and branch.head is not None:
            raise_if_stuck(instance, outlook(instance, branch.head), branch.head)
    if branches.open and all(item.head is None for item in branches.open):
        raise pending(thread, branches)


def _error_of(instance: Instance, thread: ThreadId) -> str:
    head = instance.threads.head(thread)
    reason = failure_reason(instance, head, thread_state(instance, head))
    return f": {reason}" if reason else ""


def branch_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return `branchOf` of a branch: the fork's thread, None if that is not here, its step, and the branch's index."""
    place = instance.threads.fork_of(head)
    if place is None:
        return {}
    fork, index = place
    step = instance.store.index_commit(fork).node
    return {"branchOf": {"thread": parent_of_branch(instance, head), "step": step, "index": index}}


def item_text(item: Any) -> str:
    """Return an item on one line; of an object with one field, that."""
    if isinstance(item, dict) and len(item) == 1:
        (item,) = item.values()
    return one_line(item if isinstance(item, str) else json.dumps(item, ensure_ascii=False), _LONGEST_ITEM)
