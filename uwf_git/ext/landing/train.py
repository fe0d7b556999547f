"""The threads whose work is ready to land, in the order in which a train lands it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uwf_git.ext.landing.kin import goes_on_as, kin_of
from uwf_git.ext.landing.work_states import work_states
from uwf_git.plugin import DamagedThread, Invalid, ThreadState, code_at_end, ended_state, thread_code

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, ThreadId, WorkState


def ready(instance: Instance) -> list[ThreadId]:
    """Return the project's threads whose work is ready to land, oldest first."""
    heads = [
        head
        for head in instance.threads.all(archived=True)
        if not isinstance(head, DamagedThread) and instance.threads.is_meant(head)
    ]
    return sorted(ready_among(instance, heads))


def ready_among(instance: Instance, heads: Sequence[Head]) -> set[ThreadId]:
    """Return those threads whose work is ready to land."""
    if not heads:
        return set()
    states, among = work_states(instance, heads), instance.threads.all(archived=True)
    return {head.thread for head in heads if not _obstacle(instance, head, states.get(head.thread), among)}


def raise_unless_ready(instance: Instance, head: Head, state: WorkState | None) -> None:
    """Raise Invalid with the reason unless a thread's work, of a `state`, is ready to land."""
    if obstacle := _obstacle(instance, head, state):
        raise Invalid(f"thread {head.thread} {obstacle}", f"see: uwf thread show {head.thread}")


def _obstacle(
    instance: Instance, head: Head, state: WorkState | None, among: Sequence[Head | DamagedThread] = ()
) -> str:
    """Return why a thread's work is not to land, "" if it was accepted, and has not landed and was not turned down, by
    its `state`. What goes on in another thread is left to that; `among` is as in `kin_of`."""
    if head.archive is None:
        return "has not ended"
    if (ended := ended_state(head.archive)) is not ThreadState.COMPLETED:
        return f"is {ended.label}"
    if state is not None and state.is_final:
        return f"has nothing to land: {state.text}"
    code = thread_code(instance, head.node)
    if code is None or code.commit == code.base:
        return "has changed no code"
    if (onward := goes_on_as(instance, head, kin_of(instance, head, among))) is not head:
        return f"goes on as {onward.thread}"
    left = code_at_end(instance, instance.threads.position(head), tries_merge=False)
    if left is None:
        return "left no code on this machine"
    if left.is_merged:
        return "has nothing to land: its code is merged"
    return "" if left.merge else "has ended, and nothing in it accepted its work"
