"""States of a thread, as values for `match`: rows of `base.thread_states`, with what is known of this thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from uwf_git.base import extensions
from uwf_git.base.errors import NotFound, UwfError
from uwf_git.base.thread_states import Actor, Request, ThreadState, states_of
from uwf_git.engine.budget import budget_reached
from uwf_git.engine.next_turn import outlook, wordless
from uwf_git.engine.pause import pause_of
from uwf_git.engine.thread_state import EndedState, asking_below, ended_state, failure_reason, thread_state
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.engine.kit.form import FormField
    from uwf_git.engine.waits import Waits
    from uwf_git.store.history import Head


class Idle(NamedTuple):
    """The thread can be stepped; `role` is next: `$JOIN` while its branches have not ended, which `run` runs."""

    role: str
    status: str = ThreadState.IDLE.word


class Running(NamedTuple):
    """A step is in progress, whose agent may ask leave for something."""

    status: str = ThreadState.RUNNING.word


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
    status: str = ThreadState.ASKING.word


class Paused(NamedTuple):
    """The thread is paused; `by` is a name and an address."""

    by: str
    reason: str = ""
    status: str = ThreadState.PAUSED.word


class OverBudget(NamedTuple):
    """The budget limit in `reason` is reached. A person may raise it."""

    reason: str
    status: str = ThreadState.OVER_BUDGET.word


class Failed(NamedTuple):
    """The last step failed with this error, and the next one tries again; or, if `ended`, the thread reached
    `$FAIL` for this reason."""

    error: str
    ended: bool = False
    status: str = ThreadState.FAILED.word


class Stuck(NamedTuple):
    """No edge matches the last output, or another `problem` that a person has to solve."""

    problem: str
    status: str = ThreadState.STUCK.word


class Completed(NamedTuple):
    """The thread reached the end of its workflow; `failures` are those that it doesn't tolerate, "" for none."""

    failures: str = ""
    status: str = ThreadState.COMPLETED.word


class Killed(NamedTuple):
    """The thread was killed."""

    reason: str = ""
    status: str = ThreadState.KILLED.word


State = Idle | Running | Waiting | Paused | OverBudget | Failed | Stuck | Completed | Killed
"""Any of these. The class says what can be done now; `status` is the state's word, as `--status` takes it."""


def state_of(instance: Instance, thread: ThreadId) -> State:
    """Return a thread's state. The columns of its row choose the class. Raises NotFound, StoreDamaged."""
    head = instance.threads.head(thread)
    if head.archive:
        return _ended(ended_state(head.archive), head.archive.reason)
    state = thread_state(instance, head)
    if state.is_at_work:
        return Running(state.word)
    match state.actor:
        case Actor.PERSON if (request := _request(instance, head, state)) is not None:
            return request
        case Actor.PERSON | Actor.AGENT | Actor.PROCESS | Actor.BRANCHES | Actor.NOBODY:
            pass
        case _:
            assert_never(state.actor)
    following = outlook(instance, head)
    if following.problem is not None:
        return Stuck(following.problem, state.word)
    if state.is_failing:
        return Failed(failure_reason(instance, head, state), status=state.word)
    return Idle(following.next or "", state.word)


def _ended(state: EndedState, reason: str) -> Failed | Completed | Killed:
    match state:
        case ThreadState.COMPLETED | ThreadState.WITH_FAILURES:
            return Completed(reason, state.word)
        case ThreadState.FAILED:
            return Failed(reason, True, state.word)
        case ThreadState.KILLED:
            return Killed(reason, state.word)
        case _:
            assert_never(state)


def _request(
    instance: Instance, head: Head, state: ThreadState
) -> Waiting | OverBudget | Paused | Stuck | None:
    """Return what has to be done by a person; None if somebody has done it meanwhile."""
    if state is ThreadState.PAUSED:
        pause = pause_of(instance, head.thread)
        return None if pause is None else Paused(pause.by, pause.reason, state.word)
    match state.request:
        case Request.QUESTION | Request.ROLE:
            from uwf_git.engine.waits import waits_in

            if (waits := waits_in(instance, head, state)) is None:
                return None
            missing, of = _missing(waits)
            return Waiting(
                waits.question, waits.options, waits.role, waits.reason, waits.fields, missing, of, state.word
            )
        case Request.BUDGET:
            return OverBudget(budget_reached(instance, head), state.word)
        case Request.CALL:
            return _asked_by_call(instance, asking_below(instance, head)[0], state.word)
        case Request.LEAVE | None:
            return Stuck(state.value.meaning, state.word)
        case _:
            assert_never(state.request)


def _missing(waits: Waits) -> tuple[int, tuple[str, ...]]:
    gate = waits.standing
    return (0, ()) if gate is None else (gate.missing, tuple(gate.awaited))


def _asked_by_call(instance: Instance, call: Head, status: str) -> Waiting:
    from uwf_git.engine.call_answer import fields_wanted
    from uwf_git.engine.kit.form import options_of

    next_turn, fields = outlook(instance, call), fields_wanted(instance, call)
    question = f"call {call.thread}: {next_turn.question or wordless(instance, call)}"
    options = next_turn.options or options_of(fields)
    return Waiting(question, options, next_turn.asks or "", fields=fields, status=status)


def standing(instance: Instance, head: Head) -> dict[str, Any]:
    """Return a thread's state as JSON, with the step in progress under `running`, `run` if a process here runs it,
    between two steps too, what `steering_value` has, under `shown` what a person sees before they answer, and under
    `work` what became of its work."""
    from uwf_git.engine.state import state

    value = state(instance, head)
    if (work := extensions.work_states(instance, [head]).get(head.thread)) is not None:
        value["work"] = work.as_json()
    if instance.locks.is_run(head.thread):
        value["run"] = True
    if instance.runs.has_remarks(head.thread) or instance.runs.has_requests(head.thread):
        from uwf_git.api.progress import steering_value

        value |= steering_value(instance, head)
        if "permissions" in value:
            value["reason"] = f"asks leave: {value['permissions'][0]['line']}"
    states = states_of(value["status"])
    if value["done"] is False and instance.locks.is_held(head.thread):
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
