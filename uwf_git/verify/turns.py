"""Checking whose turn a step was: that the workflow called for it, and that it is such as this kind of turn makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import HUMAN, REHEARSE, Step, Workflow, answer_in, remark_in
from uwf_git.format.node import Node
from uwf_git.format.types import ANSWER, END, FORK, JOIN_OUTPUT, PERSON, REMARK, USER, UWF, is_kind
from uwf_git.git.repository import Oid
from uwf_git.verify.approvals import ApprovalChecks
from uwf_git.verify.calls import CallChecks
from uwf_git.verify.fan_outs import FanOutChecks
from uwf_git.verify.findings import OpenQuestions, Report
from uwf_git.verify.verified import Known, Record, StepCommit
from uwf_git.workflow.moderator import (
    AwaitingAnswer,
    AwaitingBranches,
    DecidedByCode,
    Decision,
    FansOut,
    Next,
    WorkflowEnded,
)
from uwf_git.workflow.turn import gathers_threads, is_engines, outputs_of


class TurnChecks:
    """Checks steps by whose turn they are."""

    def __init__(
        self,
        known: Known,
        fan_outs: FanOutChecks,
        calls: CallChecks,
        open_questions: OpenQuestions,
    ) -> None:
        self._known = known
        self._approvals = ApprovalChecks(known, open_questions)
        self._fan_outs = fan_outs
        self._calls = calls

    def check(self, new: StepCommit, report: Report) -> bool:
        """Check a step against the history before it. Return whether that has a decision."""
        decided = self._check_turn(new, report)
        self._approvals.check_step(new, report)
        return decided

    def check_record(self, kind: str) -> Callable[..., Record | None] | None:
        """Return the check of a kind of record that turns make besides steps, as `ApprovalChecks.check`."""
        return self._approvals.check if kind == "approval" else None

    def check_parents(self, new: StepCommit, report: Report) -> tuple[Oid, ...]:
        """Check the further parents of a step's commit, and return those of the branches that it joins."""
        commit, _, step, before, output, detail, _ = new
        workflow = self._known.definition(before).workflow
        if gathers_threads(step.role) and isinstance(self._known.decision(before), AwaitingBranches):
            if output.type == JOIN_OUTPUT:
                return self._fan_outs.check_parents(commit, before, output.payload, report)
        elif is_kind(detail.type, "step"):
            self._check_child(new, report)
        elif workflow.code is not None:
            self._calls.check_joined(commit, step, detail, before, report)
        else:
            self._approvals.check_parents(new, report)
        return ()

    def _check_turn(self, new: StepCommit, report: Report) -> bool:
        step, before, output, detail = new.step, new.before, new.output, new.detail
        decision, workflow = self._known.decision(before), self._known.definition(before).workflow
        if isinstance(decision, str):
            if step.role == USER and workflow.resume is not None:
                self._check_output(new, (ANSWER,), None, report)
                return True
            report("no-decision", f"no role can be next: {decision}")
            return False
        if step.role == USER and output.type == REMARK and isinstance(decision, Next | DecidedByCode):
            _check_remark(step, output, detail, report)
            self._check_output(new, (REMARK,), None, report)
        elif step.role == USER and _may_answer(workflow, decision):
            self._check_output(new, (ANSWER,), None, report)
        else:
            self._check_decided(new, decision, report)
        return True

    def _check_decided(self, new: StepCommit, decision: Decision, report: Report) -> None:
        step, before = new.step, new.before
        match decision:
            case Next():
                self._check_role(new, decision, report)
            case AwaitingAnswer():
                _report_wrong_role(step, USER, report)
            case FansOut() if step.role == USER:
                _report_wrong_role(step, FORK, report)
            case FansOut() | AwaitingBranches():
                self._fan_outs.check_step(step, before, decision, new.output, new.detail, report)
                self._known.check_detail(new.detail, new.here, None, before, report)
            case DecidedByCode():
                self._check_coded(new, decision, report)
                self._known.check_detail(new.detail, new.here, None, before, report)
            case WorkflowEnded():
                report("after-end", f"{step.role} made a step after the workflow had ended")
            case _:
                assert_never(decision)

    def _check_role(self, new: StepCommit, decision: Next, report: Report) -> None:
        step, role, workflow = new.step, decision.role, self._known.definition(new.before).workflow
        if step.role != role:
            _report_wrong_role(step, role, report)
            return
        if workflow.is_persons(role) and step.agent not in (HUMAN, REHEARSE):
            report("not-a-person", f"{step.agent} played {role}, which is a person's role")
        if is_engines(role):
            self._check_engines(new, decision, report)
        self._check_output(new, outputs_of(workflow, role), decision.instruction, report)

    def _check_engines(self, new: StepCommit, decision: Next, report: Report) -> None:
        """Check a step that the engine makes of a decision alone, by its room. A room that says nothing fails it."""
        from uwf_git.engine.turn.engines import EngineRoom
        from uwf_git.engine.turn.table import room_of

        step, role = new.step, decision.role
        room = room_of(self._known.definition(new.before).workflow, role)
        if (
            step.agent != UWF
            or not isinstance(room, EngineRoom)
            or new.output.payload != room.output(decision.instruction or "")
        ):
            report("wrong-output", f"step {new.node} is not the one that {UWF} makes of {role}")
        self._fan_outs.check_engines_detail(role, new.detail, new.before, report)

    def _check_output(
        self, new: StepCommit, allowed: tuple[Hash, ...], instruction: str | None, report: Report
    ) -> None:
        if new.output.type not in allowed:
            _report_wrong_output(new, report)
        self._known.check_detail(new.detail, new.here, instruction, new.before, report)

    def _check_coded(self, new: StepCommit, decision: DecidedByCode, report: Report) -> None:
        """Check that a code workflow's step is of one of its roles, or its result. Whether its code called
        for it is unknown, since no code is run."""
        workflow, role = self._known.definition(new.before).workflow, new.step.role
        if role != END and role not in workflow.roles:
            report("wrong-role", f"{role} made the step, which is not a role of the code")
            return
        if role != END and decision.rounds == 0:
            report("after-end", f"{role} made a step after all rounds were done")
        if new.output.type not in outputs_of(workflow, role):
            _report_wrong_output(new, report)

    def _check_child(self, new: StepCommit, report: Report) -> None:
        """Check the thread of a sub-workflow that made a step."""
        if len(new.commit.parents) != 2:
            report("wrong-parent", "a step of a sub-workflow has that thread as its second parent")
            return
        other = self._known.parent(new.commit, 1, ("step",))
        if other is None:
            return
        if other.row.node != new.step.detail:
            report("wrong-parent", f"the second parent records {other.row.node}, not {new.step.detail}")
        elif other.decided and not isinstance(self._known.decision(other, aside=True), WorkflowEnded):
            report("wrong-parent", f"the sub-workflow had not ended at {other.row.node}")


def _may_answer(workflow: Workflow, decision: Decision) -> bool:
    if isinstance(decision, AwaitingBranches):
        return False
    return isinstance(decision, AwaitingAnswer) or workflow.resume is not None


def _report_wrong_role(step: Step, role: str, report: Report) -> None:
    report("wrong-role", f"{step.role} made the step that the workflow called {role} for")


def _report_wrong_output(new: StepCommit, report: Report) -> None:
    step, type_hash = new.step, new.output.type
    report("wrong-output", f"output {step.output} is of type {type_hash}, not of {step.role}'s")


def _check_remark(step: Step, output: Node, detail: Node, report: Report) -> None:
    remark = remark_in(step.role, output.payload)
    if step.agent != PERSON:
        report("wrong-author", f"the remark is by {one_line(step.agent, 60)}, not by {PERSON}")
    if remark is None or not remark.strip():
        report("wrong-output", f"remark {step.output} is empty")
    if answer_in(detail.type, detail.payload) != remark:
        report("wrong-detail", "the detail's answer is not the remark")
