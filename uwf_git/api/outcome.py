"""Warnings after a step, and the errors of a thread's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from uwf_git.base import extensions
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
from uwf_git.base.thread_states import ThreadState
from uwf_git.config.secrets import removal_note
from uwf_git.engine.budget import COST, UNTOLD_HINT
from uwf_git.engine.next_turn import NO_QUESTION
from uwf_git.engine.thread_state import ended_state
from uwf_git.format.endings import MAX_ROUNDS
from uwf_git.format.kinds import may_have_code
from uwf_git.format.types import END

if TYPE_CHECKING:
    from uwf_git.engine.outcome import Outcome
    from uwf_git.store.history import Head, History, Position
    from uwf_git.store.instance import Instance

_LOOKED_AT = 20  # steps in which the code of a thread is looked for


def warnings_of(instance: Instance, outcome: Outcome) -> list[str]:
    """Return warnings of removed secrets, of limits that don't count all of the step, and of the code that a person
    judges next."""
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
    if outcome.turn is not None:
        from uwf_git.engine.presented import warnings_at

        warnings += warnings_at(instance, outcome.position.head)
    return [warning for warning in warnings if warning]


def waiting_for(instance: Instance, outcome: Outcome, is_shown: bool) -> Waiting | None:
    """Return what the thread waits for, with the command to continue, or None; Absent if for a person at the
    next role. A question that `is_shown` isn't repeated."""
    if outcome.state.request is None:
        return None
    thread, question = outcome.thread, outcome.outlook.question
    if question is None and outcome.standing is not None:
        return outcome.standing.waiting(thread)
    if (turn := outcome.turn) is not None:
        if turn.standing is not None:
            try:
                turn.standing.raise_if_unmet(thread)
            except Absent as absent:
                return absent
        from uwf_git.engine.presented import command_at

        request = "" if is_shown else f": {one_line(turn.instruction, 200)}"
        return Absent(
            f"thread {thread} waits for a person to play role {turn.role!r}{request}",
            command_at(instance, outcome.position.head, turn),
        )
    state = "waits for an answer" if is_shown else f"asks: {question or NO_QUESTION}"
    return Waiting(f"thread {thread} {state}", f"uwf thread answer {thread} -m TEXT")


class CodeLeft(NamedTuple):
    """The code that an ended thread left on this machine. `merge` is the command that merges it, "" unless the work was
    certainly accepted; `warnings` are on a branch that is elsewhere, and on a merge that will conflict. `is_merged`:
    the branch that its project has checked out has it, and isn't a thread's own."""

    commit: str
    branch: str
    merge: str
    warnings: tuple[str, ...]
    is_merged: bool = False

    @property
    def where(self) -> str:
        return f"at {self.branch}" if self.branch else f"commit {self.commit[:12]}"

    def as_json(self) -> dict[str, Any]:
        merge = self.merge or None
        return {
            "branch": self.branch or None,
            "merge": merge,
            "merged": self.is_merged,
            "warnings": list(self.warnings),
        }


def code_left(instance: Instance, at: Position, tries_merge: bool = True) -> CodeLeft | None:
    """Return the code that an ended thread left, None if it left none here, or as a branch whose join has it. Without
    `tries_merge` no warning foresees a conflict, which costs most of the time."""
    archive, history = at.head.archive, at.history
    if archive is None or not _may_have_code(instance, history):
        return None
    is_completed = ended_state(archive) is ThreadState.COMPLETED
    if is_completed and history.start.branch is not None:
        return None
    from uwf_git.engine.presented import JudgedCode
    from uwf_git.workspaces.changes import thread_code

    revision = thread_code(instance, at.head.node)
    if revision is None or revision.commit == revision.base:
        return None
    code = JudgedCode(instance, at.head.thread, revision)
    if (where := code.where) is None:
        return None
    if where.project.has_merged(revision.commit):
        return CodeLeft(revision.commit, where.branch, "", (), is_merged=True)
    is_accepted = is_completed and _is_accepted(instance, history)
    lines = (where.warning, code.conflict if is_accepted and tries_merge else "")
    merge = f"git merge {where.revision}" if is_accepted else ""
    return CodeLeft(revision.commit, where.branch, merge, tuple(filter(None, lines)))


class CodeNext(NamedTuple):
    """What is next for the code that an ended thread left: the `command` that a user types, "" for none, or the `work`
    state that it has come to, "" for none."""

    command: str
    work: str


def code_next(instance: Instance, head: Head, code: CodeLeft) -> CodeNext:
    """Return what is next for the code that a thread left."""
    state = extensions.work_states(instance, [head]).get(head.thread)
    if code.is_merged:
        return CodeNext("", "merged")
    if state is not None and (state.is_final or state.is_current):
        return CodeNext("", state.text)
    return CodeNext((extensions.merge_hint(head.thread) or code.merge) if code.merge else "", "")


def code_line(instance: Instance, head: Head, code: CodeLeft) -> str:
    """Return the line on the code that a thread left, with the command for it."""
    command, work = code_next(instance, head, code)
    onward = f": {command}" if command else f", {work}" if work else ""
    return "; ".join((f"its code is {code.where}{onward}", *code.warnings))


def _may_have_code(instance: Instance, history: History) -> bool:
    """Return whether one of the last steps has code, without a call of git."""
    details = (instance.store.get(step.detail) for step in history.steps[-_LOOKED_AT:])
    return any(map(may_have_code, details))


def _is_accepted(instance: Instance, history: History) -> bool:
    from uwf_git.base.timelimit import BudgetExceeded
    from uwf_git.workflow.last_decision import is_accepted
    from uwf_git.workspaces.changes import step_code

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
    thread, state = head.thread, ended_state(archive)
    why = f": {archive.reason}" if archive.reason else ""
    match state:
        case ThreadState.FAILED:
            raise WorkflowFailed(f"thread {thread} has failed{why}", instance.threads.way_on(head))
        case ThreadState.WITH_FAILURES:
            is_script = head.row.role == END
            asks_again = f"uwf thread fork {thread} --at 0 asks those again"
            hint = asks_again if is_script else f"uwf thread read {thread}"
            raise CompletedWithFailures(f"thread {thread} is completed {archive.reason}", hint)
        case ThreadState.KILLED if archive.reason.startswith(MAX_ROUNDS):
            raise OutOfRounds(
                f"thread {thread} has ended without a result, {archive.reason}",
                f"uwf thread start {head.row.name} --max-rounds N, for a new one with more",
            )
        case ThreadState.KILLED:
            raise Killed(f"thread {thread} was killed{why}", instance.threads.way_on(head))
        case ThreadState.COMPLETED:
            return
        case _:
            assert_never(state)
