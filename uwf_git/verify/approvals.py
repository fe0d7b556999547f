"""Checking approvals: each record against its commit and head, and each person's step against its approvals.

Who may approve is asked of the store's trust policy, as for a step that is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from uwf_git.approvals.judgement import (
    COUNTS,
    FORGED,
    MISSING,
    STALE,
    UNJUDGED,
    Gate,
    judge,
    person_problem,
    same_person,
    step_problems,
)
from uwf_git.approvals.records import ApprovalRecord, authors_of, ident, page_and_message
from uwf_git.approvals.shown import output_before, request, shown
from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.format.approvals import Approval, Revocation, Shown, parse_approval, parse_record
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import REHEARSE, Revision, Role, Step, parse_detail, parse_workflow
from uwf_git.format.node import Node
from uwf_git.format.types import PERSON, QUESTION, USER, is_kind
from uwf_git.git.repository import Oid
from uwf_git.store.index import CommitRow
from uwf_git.store.pages import code_of
from uwf_git.store.ref_kinds import APPROVALS
from uwf_git.store.thread_records import ThreadRecord, records_up_to
from uwf_git.trust.people import People
from uwf_git.verify.findings import Bad, Finding, OpenQuestions, Report, ShownDiff
from uwf_git.verify.nodes import check_page
from uwf_git.verify.objects import CommitObject
from uwf_git.verify.verified import Known, Record, StepCommit
from uwf_git.workflow.moderator import AwaitingAnswer, Decision, Next

if TYPE_CHECKING:
    from uwf_git.verify.thread_records import PlacedRecord

MOST = 4000  # approvals that a step may stand on
SKEW = 300  # seconds that a clock may be set back between an answer and its commit


class ApprovalChecks:
    """Checks approvals and the steps made of them, parents first. An approval of which nobody here can tell who gave it
    is an open question."""

    def __init__(self, known: Known, open_questions: OpenQuestions) -> None:
        self._known = known
        self._commits: dict[Oid, CommitObject] = {}
        self._contents: dict[Hash, Approval | Revocation] = {}
        self._gates: dict[tuple[bytes, str], Gate] = {}
        self._codes: dict[bytes, Revision | None] = {}
        self._open = open_questions

    @cached_property
    def people(self) -> People:
        return People(self._known.repository)

    # Records

    def check(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        """Check a commit of `refs/uwf/approvals/`. None if a parent is unreadable. Raises Bad."""
        from uwf_git.verify.thread_records import PlacedRecord, place_of

        placed = place_of(self._known, commit, node, APPROVALS, report)
        return self._approval(placed, report) if isinstance(placed, PlacedRecord) else placed

    def _approval(self, placed: PlacedRecord, report: Report) -> Record:
        known, commit, node, head = self._known, placed.commit, placed.node, placed.head
        content = placed.content
        if not (is_kind(content.type, "approval") or is_kind(content.type, "revocation")):
            raise Bad("wrong-kind", f"node {node} is of type {content.type}, no approval")
        statement = parse_record(content)
        taken_back = {statement.approval} if isinstance(statement, Revocation) else ()
        here = placed.check_reached(known, report, frozenset(taken_back))
        if commit.author != ident(statement):
            report("wrong-author", f"the author is {one_line(commit.author, 120)!r}, who is not its person")
        record: ApprovalRecord = ThreadRecord(
            node, commit.oid, commit.committer, commit.time, statement, commit.parents[-1], head.row.time
        )
        approval_record = self._given(statement, commit.parents[0]) if placed.before is not None else None
        role = self._check_said(record, approval_record, head, here, report)
        page, message = page_and_message(node, statement, lambda output: known.content(here, output).payload)
        check_page(known.objects, placed.files, placed.path, report, lambda: page)
        known.message(commit, report, message)
        return placed.record(role)

    def _check_said(
        self,
        record: ApprovalRecord,
        approval_record: ApprovalRecord | None,
        head: Record,
        here: Mapping[Hash, Node],
        report: Report,
    ) -> str:
        content = record.content
        if isinstance(content, Revocation):
            if approval_record is None or not isinstance(approval_record.content, Approval):
                raise Bad("wrong-chain", f"revocation {record.hash} is of no approval before it")
            if problem := person_problem(record, self.people):
                report(FORGED, f"revocation {record.hash}: {problem}")
            elif not same_person(record, approval_record, self.people):
                report(FORGED, f"{content.by} takes back what {approval_record.content.by} approved")
            return approval_record.content.role
        if (content.start, content.prev) != (head.row.start or head.row.node, _prev(head)):
            report("wrong-chain", f"approval {record.hash} is not of the head {head.row.node}")
        decision = self._known.decision(head) if head.decided else None
        workflow = self._known.definition(head).workflow
        role = workflow.roles.get(content.role)
        if (
            role is None
            or not role.is_gate
            or (decision is not None and not _calls_for(decision, content.role))
        ):
            report("wrong-role", f"approval {record.hash} is of {content.role}, which has no approvers next")
            return content.role
        output = self._known.content(here, content.output)
        if output.type != role.schema:
            report(
                "wrong-output", f"output {content.output} is of type {output.type}, not of {content.role}'s"
            )
        if isinstance(decision, Next):
            gate = self._gate(role, decision, head)
            code, why = judge(gate, record, content, self.people)
            if code not in (COUNTS, UNJUDGED):
                report(FORGED if code == STALE else code, f"approval {record.hash}: {why}")
        return content.role

    def _given(self, statement: Approval | Revocation, tip: Oid) -> ApprovalRecord | None:
        """Return the approval that a revocation takes back, which `tip` leads to."""
        if isinstance(statement, Approval):
            return None
        return next(
            (record for record in self._records_up_to(tip) if record.hash == statement.approval), None
        )

    def _records_up_to(self, tip: Oid) -> list[ApprovalRecord]:
        count = 0

        def commit_of(oid: Oid) -> CommitObject:
            nonlocal count
            count += 1
            if count > MOST:
                raise Bad("tree-limit", f"a thread has over {MOST} approvals", tip)
            if oid not in self._commits:
                self._commits[oid] = self._known.objects.commit(oid)
            return self._commits[oid]

        return records_up_to(tip, "approval", self._row, commit_of, self._content)

    def _content(self, node: Hash) -> Approval | Revocation:
        if node not in self._contents:
            self._contents[node] = parse_record(self._known.nodes.get(node))
        return self._contents[node]

    # Steps

    def check_parents(self, new: StepCommit, report: Report) -> None:
        """Check the parents of a step that no sub-workflow did: at a gate the last of its approvals is the
        second."""
        commit, step = new.commit, new.step
        is_gate = self._gate_role(new) is not None and bool(_named(new.detail))
        if is_gate and not commit.committer:
            return
        if len(commit.parents) != (2 if is_gate else 1):
            which = (
                "has its approvals as its second"
                if is_gate
                else "has one parent, but for one of a sub-workflow"
            )
            report("wrong-parent", f"a step of {step.role} {which}")
        elif is_gate:
            last = self._known.parent(commit, 1, ("approval",))
            if last is not None and last.row.start != step.start:
                report("wrong-parent", "the approvals are of another thread")

    def check_step(self, new: StepCommit, report: Report) -> None:
        """Check who answered in a step, and what they were shown."""
        step, before = new.step, new.before
        named, decision = _named(new.detail), self._known.decision(before) if before.decided else None
        role = self._gate_role(new)
        self._check_rehearsal(step, before, report)
        if role is not None and isinstance(decision, Next) and decision.role == step.role:
            if step.agent != REHEARSE and new.output.type != QUESTION:
                self._check_gate(new, role, decision, named, report)
        elif named:
            self._check_own(new, decision, named, report)

    def _gate_role(self, new: StepCommit) -> Role | None:
        role = self._known.definition(new.before).workflow.roles.get(new.step.role)
        return role if role is not None and role.is_gate else None

    def _check_gate(
        self, new: StepCommit, role: Role, decision: Next, named: Sequence[Hash], report: Report
    ) -> None:
        commit, before = new.commit, new.before
        if named and not commit.committer:
            self._note(new, f"the commits of the approvals of {role.name} are not here")
            return
        records: list[ApprovalRecord] = []
        second = self._row(commit.parents[1].raw) if len(commit.parents) == 2 else None
        if second is not None and second.kind == "approval":
            records = self._records_up_to(commit.parents[1])

        def payload(target: Hash) -> Any:
            return self._known.nodes.get(target).payload

        gate = self._gate(role, decision, before)
        for code, message in step_problems(gate, records, named, new.output.payload, payload, self.people):
            if code == UNJUDGED:
                self._note(new, message)
            else:
                report(code, message)
        outputs = set()
        for record in records:
            if record.hash in named and isinstance(record.content, Approval):
                self._note_diff(new, record.hash, record.content)
                outputs.add(record.content.output)
        if new.step.output not in outputs:
            report(FORGED, f"output {new.step.output} is none that was approved")

    def _note(self, new: StepCommit, message: str) -> None:
        self._open.notes.append(Finding(UNJUDGED, None, new.node, str(new.commit.oid), message))

    def _note_diff(self, new: StepCommit, name: Hash, approval: Approval) -> None:
        part = next((part for part in approval.shown.parts if part.name == "diff"), None)
        code = self._code(new.before) if part is not None else None
        if part is not None and code is not None:
            message = f"approval {name} is of another diff than {code.base[:12]} to {code.commit[:12]}"
            finding = Finding(STALE, None, new.node, str(new.commit.oid), message)
            self._open.diffs.append(ShownDiff(code.base, code.commit, part.sha256, finding))

    def _check_own(
        self, new: StepCommit, decision: Decision | str | None, named: Sequence[Hash], report: Report
    ) -> None:
        """Check an answer whose record is the step itself."""
        commit, step = new.commit, new.step
        if len(named) != 1:
            report(FORGED, f"a step of {step.role} is the answer of one person, and names {len(named)}")
            return
        content = self._known.content(new.here, named[0])
        if not is_kind(content.type, "approval"):
            report("wrong-detail", f"the detail names node {named[0]} as an approval, which is none")
            return
        answer = parse_approval(content.payload)
        if (answer.start, answer.prev, answer.role, answer.output) != (
            step.start,
            step.prev,
            step.role,
            step.output,
        ):
            report(FORGED, f"approval {named[0]} is of another answer than the step")
        self._note_diff(new, named[0], answer)
        if commit.committer and commit.committer != ident(answer):
            by = one_line(commit.committer, 80)
            report(FORGED, f"approval {named[0]} says {answer.by}, and the step is committed by {by}")
        if commit.committer and answer.at > commit.time + SKEW:
            report(FORGED, f"approval {named[0]} is of a time after its commit")
        if answer.digest != answer.shown.digest:
            report(FORGED, f"the digest of approval {named[0]} is not that of its parts")
        if isinstance(decision, Next | AwaitingAnswer):
            expected = self._shown(new.before, step.role, decision)
            if answer.shown.without_diff != expected.without_diff:
                report(STALE, f"{answer.by} was shown something else than the thread has there")

    def _check_rehearsal(self, made: Step, head: Record, report: Report) -> None:
        """Report made-up approvals in a thread that isn't a rehearsal."""
        workflow = self._known.definition(head).workflow
        gates = {name for name, role in workflow.roles.items() if role.is_gate}
        if not gates or made.role == USER or made.agent == PERSON:
            return
        self._known.past.go_to(head, self._known.records)
        steps = self._known.past.steps
        if made.role in gates and made.agent == REHEARSE:
            if any(step.agent not in (REHEARSE, PERSON) for step in steps):
                report(MISSING, f"the approvals of {made.role} are made up in a thread that is no rehearsal")
        elif made.agent != REHEARSE and made.role not in gates:
            made_up = next((step for step in steps if step.role in gates and step.agent == REHEARSE), None)
            if made_up is not None:
                report(MISSING, f"{made.role} goes on from approvals of {made_up.role} that are made up")

    # What was shown

    def _gate(self, role: Role, decision: Next, head: Record) -> Gate:
        key = head.row.oid, role.name
        if key not in self._gates:
            if len(self._gates) >= 1024:
                self._gates.clear()
            self._gates[key] = Gate(
                role,
                self._known.nodes.get(role.schema).payload,
                self._known.name_of(head),
                Oid(raw=head.row.oid),
                head.row.start or head.row.node,
                _prev(head),
                self._shown(head, role.name, decision),
                self._authors(head) if role.not_author else (),
            )
        return self._gates[key]

    def _shown(self, head: Record, role: str, decision: Next | AwaitingAnswer) -> Shown:
        known, workflow = self._known, self._known.definition(head).workflow
        known.past.go_to(head, known.records)
        start = known.start_of(head.row.start or head.row.node)
        if isinstance(decision, Next):
            request_shown = request(workflow.roles.get(role), decision.instruction)
        else:
            request_shown = request(None, None, decision.question or "")
        return shown(start.prompt, request_shown, output_before(known.past.steps), self._code(head))

    def _code(self, head: Record) -> Revision | None:
        """Return the newest code up to a head, with the base of the first."""
        chain: list[Record] = []
        at: Record | None = head
        while at is not None and at.row.oid not in self._codes:
            chain.append(at)
            parent = at.row.parent if at.row.kind == "step" else None
            at = self._record(parent) if parent is not None else None
        newest = self._codes[at.row.oid] if at is not None else None
        for record in reversed(chain):
            if (code := self._own_code(record)) is not None:
                newest = code._replace(base=newest.base) if newest is not None else code
            self._codes[record.row.oid] = newest
        return newest

    def _own_code(self, record: Record) -> Revision | None:
        if record.row.kind != "step":
            return None
        if record.row.merged is not None and (child := self._record(record.row.merged)) is not None:
            return self._code(child) if child.row.kind == "step" else None
        if record.trusted and record.step is not None:
            return code_of(self._known.nodes.get(record.step.detail))
        return record.code

    def _authors(self, head: Record) -> tuple[tuple[Oid, str], ...]:
        @cache
        def gates(workflow: Hash) -> set[str]:
            roles = parse_workflow(self._known.nodes.get(workflow).payload).roles
            return {name for name, role in roles.items() if role.is_gate}

        def row_of(oid: bytes) -> CommitRow | None:
            try:
                return self._row(oid)
            except (Bad, UwfError):
                return None  # not in this clone, which is reported

        def commit_of(oid: Oid) -> CommitObject | None:
            try:
                return self._known.objects.commit(oid)
            except Bad:
                return None  # read from a tree

        return authors_of(head.row, row_of, commit_of, lambda workflow, role: role in gates(workflow))

    def _record(self, oid: bytes) -> Record | None:
        records = self._known.records
        if oid not in records:
            records[oid] = self._known.in_store(Oid(raw=oid))
        return records[oid]

    def _row(self, oid: bytes) -> CommitRow | None:
        record = self._record(oid)
        return record.row if record is not None else None


def _named(detail: Node) -> tuple[Hash, ...]:
    return parse_detail(detail.payload).approvals if is_kind(detail.type, "detail") else ()


def _prev(head: Record) -> Hash | None:
    return head.row.node if head.row.kind == "step" else None


def _calls_for(decision: Decision | str, role: str) -> bool:
    return isinstance(decision, Next) and decision.role == role
