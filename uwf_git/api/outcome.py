"""Warnings after a step, and the errors of a thread's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import (
    Absent,
    CompletedWithFailures,
    Killed,
    OutOfRounds,
    UwfError,
    Waiting,
    WorkflowFailed,
)
from uwf_git.base.text import one_line
from uwf_git.config.secrets import removal_note
from uwf_git.engine.budget import COST, UNTOLD_HINT, waiting
from uwf_git.engine.status import COMPLETED, FAILED, KILLED, NO_QUESTION, WAITING, WITH_FAILURES, ended_status
from uwf_git.format.types import END
from uwf_git.workflow.code_workflow import MAX_ROUNDS

if TYPE_CHECKING:
    from uwf_git.engine.step import Outcome
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


def warnings_of(outcome: Outcome) -> list[str]:
    """Return warnings of removed secrets, and of limits that don't count all of the step."""
    warnings = [removal_note(outcome.redactions)]
    if outcome.unpriced and outcome.role is not None and outcome.standing is None:
        warnings.append(
            f"maxCost doesn't cover {outcome.unpriced:,} tokens, whose price nobody knows — {UNTOLD_HINT}"
        )
    if outcome.uncounted and outcome.standing is None:
        warnings.append(
            f"{outcome.uncounted} doesn't count this step: its agent told neither tokens nor cost — "
            f"{UNTOLD_HINT if outcome.uncounted == COST else 'maxSteps and maxWallTime count it'}"
        )
    return [each for each in warnings if each]


def waiting_for(outcome: Outcome, is_shown: bool) -> Waiting | None:
    """Return what the thread waits for, with the command to continue, or None; Absent if for a person at the
    next role. A question that `is_shown` isn't repeated."""
    if outcome.status != WAITING:
        return None
    thread, question = outcome.thread, outcome.outlook.question
    if question is None and outcome.standing is not None:
        return waiting(thread, outcome.standing)
    if (turn := outcome.turn) is not None:
        if turn.standing is not None:
            from uwf_git.engine.approving import raise_if_unmet

            try:
                raise_if_unmet(turn.standing, thread)
            except Absent as absent:
                return absent
        asked = "" if is_shown else f": {one_line(turn.instruction, 200)}"
        return Absent(
            f"thread {thread} waits for a person to play role {turn.role!r}{asked}", turn.command(thread)
        )
    said = "waits for an answer" if is_shown else f"asks: {question or NO_QUESTION}"
    return Waiting(f"thread {thread} {said}", f"uwf thread answer {thread} -m TEXT")


def code_left(instance: Instance, outcome: Outcome) -> str:
    """Return a line on the code that an ended thread left, "" if it left none, or as a branch whose join has it. It
    advises a merge only if the work was certainly accepted."""
    from uwf_git.workspaces.notes import Notes

    if not outcome.done or not Notes(instance.store.repository.private).has(outcome.thread):
        return ""
    if outcome.status == COMPLETED and outcome.position.history.start.branch is not None:
        return ""
    from uwf_git.workspaces.sharing import branch_left

    if not (branch := branch_left(instance, outcome.thread)):
        return ""
    advice = (
        f": git merge {branch}" if outcome.status == COMPLETED and _is_accepted(instance, outcome) else ""
    )
    return f"its code is on branch {branch}{advice}"


def _is_accepted(instance: Instance, outcome: Outcome) -> bool:
    from uwf_git.base.timelimit import BudgetExceeded
    from uwf_git.workflow.last_decision import is_accepted
    from uwf_git.workspaces.changes import step_code

    history = outcome.position.history
    codes = [step_code(instance, step.detail) for step in history.steps]
    changing = [place for place, code in enumerate(codes) if code is not None and code.commit != code.base]
    try:
        with instance.judging.budget.spend():
            return is_accepted(
                history.workflow,
                history.start,
                history.steps,
                changing,
                lambda node: instance.store.schema(node).payload,
            )
    except (UwfError, BudgetExceeded):  # the conditions take too long, or a schema can't be read
        return False


def raise_as_ended(instance: Instance, head: Head) -> None:
    """Raise the error of an ended thread's state, by `base.thread_states`: WorkflowFailed, CompletedWithFailures,
    Killed, or OutOfRounds for a code workflow that its last round stopped. Return if it is active or completed."""
    archive = head.archive
    if archive is None:
        return
    thread, status = head.thread, ended_status(archive)
    why = f": {archive.reason}" if archive.reason else ""
    if status == FAILED:
        raise WorkflowFailed(f"thread {thread} has failed{why}", instance.threads.way_on(head))
    if status == WITH_FAILURES:
        is_script = head.row.role == END
        hint = (
            f"uwf thread fork {thread} --at 0 asks those again" if is_script else f"uwf thread read {thread}"
        )
        raise CompletedWithFailures(f"thread {thread} is completed {archive.reason}", hint)
    if status == KILLED and archive.reason.startswith(MAX_ROUNDS):
        raise OutOfRounds(
            f"thread {thread} has ended without a result, {archive.reason}",
            f"uwf thread start {head.row.name} --max-rounds N, for a new one with more",
        )
    if status == KILLED:
        raise Killed(f"thread {thread} was killed{why}", instance.threads.way_on(head))
