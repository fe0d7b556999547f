"""The turns of a step: those of one that is being made, as they come, and those of one that is made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from uwf_git.ids import Hash, ThreadId, is_thread_id
from uwf_git.kit.context import TurnRecord
from uwf_git.kit.record import read_turn
from uwf_git.protocol import is_kind, parse_step
from uwf_git.repository import Oid

if TYPE_CHECKING:
    from uwf_git.instance import Instance

POLL = 0.2  # seconds


def turns_of(instance: Instance, node: Hash) -> tuple[TurnRecord, ...]:
    """The turns of a StepNode or an Attempt, oldest first. None for a step whose detail is no Detail."""
    content = instance.store.get(node)
    if is_kind(content.type, "attempt"):
        detail: Hash | None = content.payload["detail"]
    elif is_kind(content.type, "step"):
        detail = parse_step(content.payload).detail
    else:
        detail = None
    if detail is None or not is_kind((found := instance.store.get(detail)).type, "detail"):
        return ()
    return tuple(read_turn(instance.store.get(turn).payload) for turn in found.payload["turns"])


def turns_so_far(instance: Instance, thread: ThreadId) -> tuple[TurnRecord, ...]:
    """The turns of the step that is being made; where a sub-workflow makes it, of that one's step."""
    notes = instance.runs.notes(thread)
    found = [note for note in notes if "turn" in note]
    if not found and notes and is_thread_id(child := notes[-1].get("session", "")):
        return turns_so_far(instance, ThreadId(child))
    store = instance.store
    for note in found:
        if store.index.node(note["turn"]) is None and store.repository.has(blob := Oid(hex=note["blob"])):
            store.adopt(note["turn"], blob)
    return tuple(read_turn(store.get(note["turn"]).payload) for note in found)


def follow(instance: Instance, thread: ThreadId) -> Iterator[TurnRecord]:
    """The turns of the step that is being made, each as it comes, until the step is over."""
    shown = 0
    before = instance.threads.head(thread).node
    running = True
    while running:
        # Asked first: what was written before the lock was let go is seen then.
        running = instance.locks.is_held(thread)
        turns = turns_so_far(instance, thread)
        yield from turns[shown:]
        shown = max(shown, len(turns))
        if running:
            time.sleep(POLL)
    yield from _ended(instance, thread, before)[shown:]


def _ended(instance: Instance, thread: ThreadId, before: Hash) -> tuple[TurnRecord, ...]:
    """The turns of the step or attempt that came of it."""
    head = instance.threads.head(thread)
    if head.node != before:
        return turns_of(instance, head.node)
    attempts = instance.attempts.all(thread)
    prev = head.node if head.row.kind == "step" else None
    return turns_of(instance, attempts[-1].hash) if attempts and attempts[-1].prev == prev else ()
