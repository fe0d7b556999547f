"""States of a thread, as values for `match`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from uwf_git.base.errors import NotFound, UwfError
from uwf_git.base.thread_states import Group, Request, ThreadState, states_of
from uwf_git.engine.budget import budget_reached
from uwf_git.engine.call_answer import fields_wanted
from uwf_git.engine.kit.form import FormField, options_of
from uwf_git.engine.next_turn import outlook, wordless
from uwf_git.engine.pause import pause_of
from uwf_git.engine.thread_state import asking_below, thread_state
from uwf_git.engine.waits import Waits, waits_in
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.store.history import Head


class Idle(NamedTuple):
    """The thread can be stepped; `role` is next: `$JOIN` while its branches have not ended, which `run` runs."""

    role: str


class Running(NamedTuple):
    """A step is in progress."""


class Waiting(NamedTuple):
    """The `role` asks a question, or a person plays it and fills in `fields`. If there are `options`, the answer is
    one of them. A role with approvers needs `missing` more approvals, `of` these people."""

    question: str
    options: tuple[str, ...] = ()
    role: str = ""
    reason: str = ""
    fields: tuple[FormField, ...] = ()
    missing: int = 0
    of: tuple[str, ...] = ()


class Paused(NamedTuple):
    """The thread is paused; `by` is a name and an address."""

    by: str
    reason: str = ""


class OverBudget(NamedTuple):
    """The budget limit in `reason` is reached. A person may raise it."""

    reason: str


class Failed(NamedTuple):
    """The last step failed with this error, and the next one tries again; or, if `ended`, the thread reached
    `$FAIL` for this reason."""

    error: str
    ended: bool = False


class Stuck(NamedTuple):
    """No edge matches the last output."""

    problem: str


class Completed(NamedTuple):
    """The thread reached the end of its workflow; `failures` are those that it doesn't tolerate, "" for none."""

    failures: str = ""


class Killed(NamedTuple):
    """The thread was killed."""

    reason: str = ""


State = Idle | Running | Waiting | Paused | OverBudget | Failed | Stuck | Completed | Killed
"""Any of these."""


def state_of(instance: Instance, thread: ThreadId) -> State:
    """Return a thread's state. Raises NotFound, StoreDamaged."""
    head = instance.threads.head(thread)
    state = thread_state(instance, head)
    reason = head.archive.reason if head.archive else ""
    if state is ThreadState.KILLED:
        return Killed(reason)
    if state.is_ended:
        return Failed(reason, ended=True) if state.group is Group.FAILED else Completed(reason)
    if state is ThreadState.RUNNING:
        return Running()
    if state is ThreadState.PAUSED and (pause := pause_of(instance, thread)) is not None:
        return Paused(pause.by, pause.reason)
    match state.request:
        case Request.QUESTION | Request.ROLE:
            if (waits := waits_in(instance, head, state)) is not None:
                missing, of = _missing(waits)
                return Waiting(
                    waits.question, waits.options, waits.role, waits.reason, waits.fields, missing, of
                )
        case Request.BUDGET:
            return OverBudget(budget_reached(instance, head))
        case Request.CALL:
            return _asked_by_call(instance, asking_below(instance, head)[0])
        case None:
            pass
        case _:
            assert_never(state.request)
    following = outlook(instance, head)
    if following.problem is not None:
        return Stuck(following.problem)
    if state is ThreadState.FAILING and (attempt := instance.attempts.last(head)) is not None:
        return Failed(attempt.error)
    return Idle(following.next or "")


def _missing(waits: Waits) -> tuple[int, tuple[str, ...]]:
    gate = waits.standing
    return (0, ()) if gate is None else (gate.missing, tuple(gate.awaited))


def _asked_by_call(instance: Instance, call: Head) -> Waiting:
    next_turn, fields = outlook(instance, call), fields_wanted(instance, call)
    question = f"call {call.thread}: {next_turn.question or wordless(instance, call)}"
    return Waiting(question, next_turn.options or options_of(fields), next_turn.asks or "", fields=fields)


def standing(instance: Instance, head: Head) -> dict[str, Any]:
    """Return a thread's state as JSON, with the step in progress under `running`, `run` if a process here runs it,
    between two steps too, and under `shown` what a person sees before they answer."""
    from uwf_git.engine.state import state

    value = state(instance, head)
    if instance.locks.is_run(head.thread):
        value["run"] = True
    states = states_of(value["status"])
    if ThreadState.RUNNING in states:
        from uwf_git.api.progress import step_in_progress

        value |= step_in_progress(instance, head.thread)
    elif ThreadState.PERSONS_TURN in states or ThreadState.PAUSED in states:
        from uwf_git.engine.presented import presented_at

        if (shown := presented_at(instance, head)) is not None:
            value["shown"] = shown.as_json()
    return value


def has_ended(instance: Instance, thread: ThreadId, error: UwfError) -> bool:
    """Return whether a step's error only reports the thread's state: waiting, paused, over budget or ended."""
    from uwf_git.base import errors

    if isinstance(error, errors.Absent):
        return False
    if isinstance(error, errors.Waiting | errors.NotRunning | errors.Killed | errors.OutOfRounds):
        return True
    try:
        return isinstance(error, errors.Invalid) and instance.threads.has_ended(thread)
    except NotFound:
        return False
