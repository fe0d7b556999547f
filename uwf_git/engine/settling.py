"""What follows from a head for other threads: branches that begin or end, calls that end. The rooms of turns say it;
here it is done, also for threads that were killed or fetched."""

from __future__ import annotations

from contextlib import suppress

from uwf_git.base.errors import Killed, UwfError
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.hooks import announce
from uwf_git.engine.pause import end_step
from uwf_git.engine.turn.end import end
from uwf_git.engine.turn.table import rooms
from uwf_git.engine.unfinished import record_leftovers
from uwf_git.format.endings import JOINED_WITHOUT, KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.store.new_record import ENDS, THREADS, NewRecord
from uwf_git.store.private import KILL
from uwf_git.store.starts import branch_of

_PATIENCE = 5.0  # seconds for another process to let go of a thread


def settle(instance: Instance, head: Head) -> None:
    """Do what follows from a thread's head, active or ended, as far as it isn't done. Moves refs as the rooms' hooks
    and `stop` do. A thread that can't be ended now ends with its own next step."""
    for room in rooms():
        for thread, reason in room.settle(instance, head):
            with suppress(UwfError):
                stop(instance, thread, reason)


def stop(instance: Instance, thread: ThreadId, reason: str) -> Head:
    """End a thread, its running agent, and what follows from that, its parents excepted. Interrupted work becomes a
    failed attempt. Makes `refs/uwf/archive/<ULID>` and deletes the active ref; may move `refs/uwf/attempts/<ULID>`.
    Raises Invalid for a thread that has ended, Busy if its agent does not end."""
    name = instance.threads.active_head(thread).row.name or ""
    instance.store.before_record(NewRecord(THREADS, name, (ENDS,)))
    try:
        end_step(instance, thread, KILL)
        with instance.locks.hold(thread, wait=_PATIENCE):
            head = instance.threads.active_head(thread)
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
        head = end(instance, head, KILLED, JOINED_WITHOUT)
        settle(instance, head)
        raise Killed(
            f"branch {head.thread} ended, its fork is {JOINED_WITHOUT} it", instance.threads.way_on(head)
        )


def settle_thread(instance: Instance, thread: ThreadId) -> None:
    """Settle a thread's head under its lock. Raises Busy if another process doesn't let go of it."""
    with instance.locks.hold(thread, wait=_PATIENCE):
        settle(instance, instance.threads.active_head(thread))
