"""States of a thread, as values for `match`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound, UwfError
from uwf_git.engine import status
from uwf_git.engine.call_answer import fields_wanted
from uwf_git.engine.calls import asking_calls
from uwf_git.engine.human_turn import human_turn
from uwf_git.engine.kit.form import FormField, options_of
from uwf_git.engine.status import outlook, status_of, used_up, wordless
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
    from uwf_git.engine.pause import pause_of

    head = instance.threads.head(thread)
    name = status_of(instance, head)
    if name in (status.COMPLETED, status.WITH_FAILURES):
        return Completed(head.archive.reason if head.archive else "")
    if name == status.FAILED and head.archive:
        return Failed(head.archive.reason, ended=True)
    if name == status.KILLED:
        return Killed(head.archive.reason if head.archive else "")
    if name == status.RUNNING:
        return Running()
    if name == status.PAUSED and (pause := pause_of(instance, thread)) is not None:
        return Paused(pause.by, pause.reason)
    following = outlook(instance, head)
    if name == status.WAITING and (turn := human_turn(instance, head, found=following)) is not None:
        waiting = Waiting(turn.instruction, turn.options, turn.role, fields=turn.fields)
        if (gate := turn.standing) is None:
            return waiting
        return waiting._replace(missing=gate.tally.missing, of=tuple(gate.awaited))
    if name == status.WAITING and (calls := asking_calls(instance, head)) and not used_up(instance, head):
        asked = outlook(instance, calls[0])
        question = f"call {calls[0].thread}: {asked.question or wordless(instance, calls[0])}"
        fields = fields_wanted(instance, calls[0])
        return Waiting(question, asked.options or options_of(fields), asked.asks or "", fields=fields)
    if name == status.WAITING and not head.row.asks:
        standing = used_up(instance, head)
        return OverBudget(standing.reason if standing else "")
    if name == status.WAITING:
        question = following.question or wordless(instance, head)
        fields = fields_wanted(instance, head)
        options = following.options or options_of(fields)
        return Waiting(question, options, following.asks or "", following.reason or "", fields)
    if following.problem is not None:
        return Stuck(following.problem)
    if name == status.FAILED and (attempt := instance.attempts.last(head)) is not None:
        return Failed(attempt.error)
    return Idle(following.next or "")


def standing(instance: Instance, head: Head) -> dict[str, Any]:
    """Return a thread's state as JSON, with the step in progress under `running`, `run` if a process here runs it,
    between two steps too, and under `shown` what a person sees before they answer."""
    from uwf_git.engine.state import state

    value = state(instance, head)
    if instance.locks.is_run(head.thread):
        value["run"] = True
    if value["status"] == status.RUNNING:
        from uwf_git.api.progress import step_in_progress

        value |= step_in_progress(instance, head.thread)
    elif value["status"] in (status.WAITING, status.PAUSED):
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
