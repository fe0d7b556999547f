"""What a thread is doing and what comes next: all derived, nothing stored but a cache.

A decision is a pure function of a head, so the index may keep it: showing a thread then needs neither
its history nor a JSONata evaluator.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from uwf_git.engine.budget import Budgets
from uwf_git.errors import LimitExceeded, NoTransition, UwfError
from uwf_git.store.index import CommitRow
from uwf_git.store.opened import Instance
from uwf_git.store.threads import Damaged, Head, History
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.types import END, USER

IDLE, RUNNING, WAITING, FAILED = "idle", "running", "waiting", "failed"
COMPLETED, KILLED, CORRUPT = "completed", "killed", "corrupt"
STATUSES = (IDLE, RUNNING, WAITING, FAILED, COMPLETED, KILLED, CORRUPT)


class Outlook(NamedTuple):
    """What comes next at a head: a role, `$END`, `$USER` where a human is asked, or None with the
    problem where the graph knows no way on. `instruction` and `location` belong to a role; `question`,
    `options` and `reason` to `$USER`, and `asks` is then the role that asked."""

    next: str | None
    instruction: str | None = None
    location: str | None = None
    asks: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()
    reason: str | None = None
    problem: str | None = None
    hint: str = ""


def outlook(instance: Instance, head: Head, history: History | None = None) -> Outlook:
    """What comes next at a head: remembered, or decided now. Raises what reading the history raises."""
    known = instance.store.index.decision(head.node)
    if known is not None:
        value = json.loads(known)
        return Outlook(**{**value, "options": tuple(value["options"])})
    history = history or instance.threads.history(head)
    try:
        found = _decided(history)
    except LimitExceeded as error:  # here and now; the next time it may be quicker
        return _stuck(error)
    except UwfError as error:
        found = _stuck(error)
    instance.store.index.set_decision(head.node, json.dumps(found._asdict()))
    return found


def decide_at(history: History) -> Outlook:
    """What the moderator says of a history."""
    try:
        return _decided(history)
    except UwfError as error:
        return _stuck(error)


def _stuck(error: UwfError) -> Outlook:
    return Outlook(None, problem=error.message, hint=error.hint)


def _decided(history: History) -> Outlook:
    from uwf_git.workflow.moderator import Asking, Next, decide

    decision = decide(history.workflow, history.start, history.steps)
    if isinstance(decision, Next):
        return Outlook(decision.role, decision.instruction, decision.location)
    if isinstance(decision, Asking):
        return Outlook(
            USER,
            asks=decision.role,
            question=decision.question,
            options=tuple(decision.options),
            reason=decision.reason or None,
        )
    return Outlook(END)


def raise_if_stuck(found: Outlook, thread: ThreadId) -> None:
    """Raises NoTransition where the graph knows no way on."""
    if found.problem is not None:
        raise NoTransition(
            f"thread {thread} can't go on: {found.problem}",
            found.hint or f"fork it before that step: uwf thread fork {thread} --at N",
        )


def status_of(
    instance: Instance,
    head: Head | Damaged,
    running: set[ThreadId] | None = None,
    budgets: Budgets | None = None,
) -> str:
    """One of STATUSES. `running` are the threads whose lock is held, and `budgets` what limits them, where
    the caller knows that already."""
    if isinstance(head, Damaged):
        return CORRUPT
    if head.archive:
        return COMPLETED if head.archive.status == COMPLETED else KILLED
    held = head.thread in running if running is not None else instance.locks.is_held(head.thread)
    if held:
        return RUNNING
    if head.row.asks or budget_reached(instance, head, budgets):
        return WAITING
    if instance.attempts.failed(head):
        return FAILED
    return IDLE


def budget_reached(instance: Instance, head: Head, budgets: Budgets | None = None) -> str:
    """What a thread that would go on has used up, in words; "" where its budget allows another step."""
    try:
        reached = (budgets or Budgets(instance)).reached(head)
        return reached if reached and outlook(instance, head).next not in (END, None) else ""
    except UwfError:  # of a thread that can't be read nothing is known here; reading it says why
        return ""


def workflow_of(row: CommitRow) -> Hash:
    """The workflow that a start or step belongs to."""
    assert row.workflow is not None
    return row.workflow
