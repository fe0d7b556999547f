"""The turns of a step: of one that is made, and of one that is being made, as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.kit.record import noted_turns
from uwf_git.values.ids import Hash, ThreadId, is_thread_id
from uwf_git.values.kinds import TurnRecord, parse_attempt, parse_step
from uwf_git.values.types import is_kind

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance

POLL = 0.2  # seconds


def turns_of(instance: Instance, node: Hash) -> tuple[TurnRecord, ...]:
    """The turns of a StepNode or an Attempt, oldest first; of a step that a sub-workflow did, those of all its
    steps. None for a node of another type."""
    store = instance.store
    content = store.get(node)
    detail: Hash | None = None
    if is_kind(content.type, "attempt"):
        detail = parse_attempt(content.payload).detail
    elif is_kind(content.type, "step"):
        detail = parse_step(content.payload).detail
    if detail is None:
        return ()
    if is_kind(store.get(detail).type, "step"):
        steps = [past.hash for past in instance.threads.past(detail)]
        return tuple(turn for step in reversed(steps) for turn in turns_of(instance, step))
    told = store.detail(detail)
    return store.turns(told) if told else ()


def turns_so_far(instance: Instance, thread: ThreadId) -> tuple[TurnRecord, ...]:
    """The turns so far of the step that is being made; where a sub-workflow makes it, those of its own step."""
    notes = instance.runs.notes(thread)
    found = noted_turns(instance, notes)
    if not found and notes and is_thread_id(child := notes[-1].get("session", "")):
        return turns_so_far(instance, ThreadId(child))
    return found


def follow(instance: Instance, thread: ThreadId) -> Iterator[TurnRecord]:
    """Yields the turns of the step that is being made, each as it comes, then those of the steps after it, until
    nobody is at work on the thread."""
    shown = 0
    known = len(_past(instance, thread))
    resting = 0
    while resting < 2:  # between two steps of a run the lock is let go for a moment
        # Asked first: what was written before the lock was let go is seen then.
        held = instance.locks.is_held(thread)
        turns = turns_so_far(instance, thread)
        past = _past(instance, thread)
        for node in past[known:]:
            yield from turns_of(instance, node)[shown:]
            shown = 0
        if len(past) == known:
            yield from turns[shown:]
            shown = max(shown, len(turns))
        known = len(past)
        resting = 0 if held else resting + 1
        if resting < 2:
            time.sleep(POLL)


def _past(instance: Instance, thread: ThreadId) -> list[Hash]:
    """The StepNodes and Attempts of a thread, in the order in which they were made."""
    head = instance.threads.head(thread)
    steps = [past.hash for past in instance.threads.past(head.node)]
    tried: dict[Hash | None, list[Hash]] = {}
    for attempt in instance.attempts.all(thread):
        tried.setdefault(attempt.prev, []).append(attempt.hash)
    found = tried.get(None, [])
    for step in reversed(steps):
        found = [*found, step, *tried.get(step, ())]
    return found
