"""Waiting until no process here works on a thread; stopping the process that runs one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from uwf_git.api.outcome import raise_as_ended
from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, Busy, NotRunning, TimedOut, Waiting
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.branch_states import raise_if_at_rest
from uwf_git.engine.call_answer import command_of
from uwf_git.engine.conversation import at_rest
from uwf_git.engine.forks import awaited
from uwf_git.engine.human_turn import human_turn
from uwf_git.engine.next_turn import outlook, raise_if_stuck
from uwf_git.engine.performer import override_at
from uwf_git.engine.thread_state import asking_below, failure_reason, thread_state
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.sync.branches import settle_lost_forks

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.engine.kit.agent import Agent
    from uwf_git.store.history import Head

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5  # seconds between two looks
_ASKING = 2.0  # seconds that a run is at a person's role only if it asks there


def wait(instance: Instance, thread: ThreadId, deadline: float | None = None) -> Head:
    """Wait until no process here runs or steps a thread or a branch that it waits for, or the one that does asks a
    person; return the head of a completed one. `deadline` is in seconds of `time.monotonic`. Raises what its run
    ended with, as `raise_unless_completed`; TimedOut, and NotFound if it was removed."""
    settle_lost_forks(instance, thread)
    log.debug("N4TZ8YQH", "waits until no process works on {thread}", thread=thread)
    pause, asking = _FIRST_PAUSE, 0.0
    while _is_at_work(instance, thread) and asking < _ASKING:
        remaining = pause if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            raise TimedOut(f"thread {thread} is still at work", f"uwf thread wait {thread} goes on waiting")
        time.sleep(min(pause, remaining))
        asking = asking + pause if _is_asking(instance, thread) else 0.0
        pause = min(pause * 1.2, _LONGEST_PAUSE)
    head = instance.threads.head(thread)
    printed = instance.runs.detached_output(thread)
    output_note = f"; output of its last detached run: {printed}" if printed.exists() else ""
    raise_unless_completed(
        instance, head, ", and no process here runs it", f"uwf thread run {thread} goes on{output_note}"
    )
    return head


def _is_at_work(instance: Instance, thread: ThreadId) -> bool:
    if instance.locks.is_at_work(thread):
        return True
    busy = instance.locks.held() | instance.locks.runs()
    if not busy:
        return False
    return any(
        head.archive is None
        and (head.thread in busy or (head.waits_for_join and _is_at_work(instance, head.thread)))
        for head in awaited(instance, instance.threads.head(thread))
    )


def _is_asking(instance: Instance, thread: ThreadId) -> bool:
    """Return whether the process that runs a thread asks a person at its terminal."""
    if instance.locks.is_held(thread):
        return False
    head = instance.threads.head(thread)
    return head.archive is None and human_turn(instance, head) is not None


def raise_unless_completed(instance: Instance, head: Head, stopped: str, hint: str) -> None:
    """Raise the error of a thread's state, by `base.thread_states`, unless it is completed. `stopped` says why one that
    could go on doesn't, `hint` which command goes on."""
    raise_as_ended(instance, head)
    if head.archive is not None:
        return
    raise_if_waiting(instance, head)
    raise_if_at_rest(instance, head)
    state = thread_state(instance, head)
    if state in (ThreadState.FAILING, ThreadState.STOPPED) and (why := failure_reason(instance, head, state)):
        raise AgentFailed(f"the last step of thread {head.thread} has failed: {why}", hint)
    if calls := asking_below(instance, head):
        problem = f"thread {head.thread} waits for a person: call {calls[0].thread} asks"
        raise Waiting(problem, command_of(instance, calls[0]))
    if state.error not in (None, NotRunning):
        raise state.error(f"thread {head.thread} is {state.word}: {state.sentence}", hint)
    raise NotRunning(f"thread {head.thread} is not at its end{stopped}", hint)


def raise_if_waiting(instance: Instance, head: Head, agent: str | Agent | AgentOptions | None = None) -> None:
    """Raise what the next step of an active thread would raise without an agent: Paused, Waiting, NoTransition.
    `agent` overrides the configuration, which may name a person."""
    from uwf_git.engine.pause import raise_if_paused
    from uwf_git.engine.waits import ROLE, waits_of

    if head.archive is not None:
        return
    raise_if_paused(instance, head.thread)
    if at_rest(instance, head):
        raise Waiting(f"in conversation {head.thread} it is your turn", f"uwf chat --resume {head.thread}")
    waits = waits_of(instance, head)
    if waits is not None and agent is not None and waits.kind == ROLE:
        at = instance.threads.position(head)
        is_persons = at.history.workflow.is_persons(waits.role)  # else only the configuration makes it so
        if not is_persons and override_at(instance, at, waits.role, agent) is not None:
            waits = None
    if waits is not None:
        why = waits.reason or waits.question
        raise Waiting(f"thread {head.thread} waits for a person: {why}", waits.command)
    raise_if_stuck(instance, outlook(instance, head), head)


def stop(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Have the process that runs a thread here, if one does, end as by Ctrl-C; return `stopped` and the thread's
    status as JSON. An interrupted step becomes an attempt. Raises NotFound, and Busy if the process does not end,
    or if another program makes a single step."""
    instance.threads.head(thread)
    instance.require_person(f"stops thread {thread}")
    stopped = instance.locks.stop(thread)
    if not stopped and instance.locks.is_held(thread):
        raise Busy(
            f"thread {thread} is not run, but a single step of it is in progress",
            f"end it: uwf thread pause {thread} --now",
        )
    head = instance.threads.head(thread)
    status = thread_state(instance, head).word
    return {"thread": thread, "stopped": stopped, "done": head.archive is not None, "status": status}
