"""The rooms of the kinds of turns: each is `ROOM` of the module that has the kind's name.

What follows from a head for other threads is done here too, as its room says: branches begin or end, calls end. That
holds for threads that were killed or fetched as well.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module

from uwf_git.base.errors import Killed, UwfError
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.turn.hooks import Room, Turn
from uwf_git.format.endings import JOINED_WITHOUT, KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Workflow
from uwf_git.format.types import USER
from uwf_git.store.history import Head, ancestry, branch_of
from uwf_git.store.instance import Instance
from uwf_git.store.new_record import ENDS, THREADS, NewRecord
from uwf_git.store.private import KILL
from uwf_git.workflow.turn import BY_ROLE, TurnKind, turn_of

_PATIENCE = 5.0  # seconds for another process to let go of a thread


@cache
def room_for(kind: TurnKind) -> Room:
    room = import_module(f"{__package__}.{kind.value.name}").ROOM
    assert isinstance(room, Room)
    return room


def room_of(workflow: Workflow, role: str) -> Room:
    """Return the room of a role's turn, whatever goes along with it."""
    return room_for(turn_of(workflow, role))


def room_before(instance: Instance, head: Head) -> Room:
    """Return the room of the turn that made a head, by the index alone; remarks after it don't count. A workflow's own
    roles are agents' here, since nothing follows from their steps for other threads."""
    row = head.row
    if instance.threads.is_code(row.workflow):
        return room_for(TurnKind.CALL)
    if row.role == USER:
        row = next((row for row in ancestry(instance.store, head.commit) if row.role != USER), row)
    return room_for(BY_ROLE.get(row.role or "", TurnKind.AGENT))


def room_of_turn(turn: Turn) -> Room:
    """Return the room of a turn. A rehearsal plays a gate as an agent does."""
    if turn.kind is TurnKind.GATE and turn.vote is None:
        from uwf_git.engine.turn.gate import is_rehearsed

        if is_rehearsed(turn):
            return room_for(TurnKind.AGENT)
    return room_for(turn.kind)


def settle(instance: Instance, head: Head) -> None:
    """Do what follows from a thread's head, active or ended, as far as it isn't done. Moves refs as the rooms' hooks
    and `stop` do. A thread that can't be ended now ends with its own next step."""
    for thread, reason in room_before(instance, head).settle(instance, head):
        with suppress(UwfError):
            stop(instance, thread, reason)


def stop(instance: Instance, thread: ThreadId, reason: str) -> Head:
    """End a thread, its running agent, and what follows from that, its parents excepted. Interrupted work becomes a
    failed attempt. Makes `refs/uwf/archive/<ULID>` and deletes the active ref; may move `refs/uwf/attempts/<ULID>`.
    Raises Invalid for a thread that has ended, RolledBack for one whose head was set back, Busy if its agent does not
    end."""
    from uwf_git.engine.hooks import announce
    from uwf_git.engine.pause import end_step
    from uwf_git.engine.turn.end import end
    from uwf_git.engine.unfinished import record_leftovers

    name = instance.threads.active_head(thread).row.name or ""
    instance.store.before_record(NewRecord(THREADS, name, (ENDS,)))
    try:
        end_step(instance, thread, KILL)
        with instance.locks.hold(thread, wait=_PATIENCE):
            head = instance.threads.active_head(thread)
            instance.raise_if_rolled_back(thread)
            record_leftovers(instance, head)
            head = end(instance, head, KILLED, reason)
    finally:
        instance.runs.clear_interrupt(thread)
    settle(instance, head)
    announce(instance, thread, ThreadState.KILLED)
    return head


def raise_if_joined(instance: Instance, head: Head) -> None:
    """End a branch that its parent was joined without, and raise Killed. The caller holds the lock."""
    if branch_of(instance.store, head.row.start) is None:
        return
    from uwf_git.engine.forks import is_joined

    if is_joined(instance, head):
        from uwf_git.engine.turn.end import end

        head = end(instance, head, KILLED, JOINED_WITHOUT)
        settle(instance, head)
        raise Killed(
            f"branch {head.thread} ended, its fork is {JOINED_WITHOUT} it", instance.threads.way_on(head)
        )


def settle_thread(instance: Instance, thread: ThreadId) -> None:
    """Settle a thread's head under its lock. Raises Busy if another process doesn't let go of it."""
    with instance.locks.hold(thread, wait=_PATIENCE):
        settle(instance, instance.threads.active_head(thread))
