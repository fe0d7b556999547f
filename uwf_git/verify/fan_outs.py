"""Checking fan-outs: forks against the history, branches against their fork, and joins against their branches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import counted
from uwf_git.engine.fan_out_budget import SHARED
from uwf_git.format import cbor
from uwf_git.format.edges import FanOut
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.format.fan_out import Fork, ForkedBranch, JoinedBranch, join_payload, parse_fork, parse_join
from uwf_git.format.ids import Hash, ThreadId, branch_id
from uwf_git.format.kinds import Detail, Start, Step, parse_detail
from uwf_git.format.node import Node
from uwf_git.format.origins import ThreadOrigin
from uwf_git.format.types import END, FORK, FORK_OUTPUT, JOIN, JOIN_OUTPUT, UWF, is_kind
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import History
from uwf_git.store.index import CommitRow, commit_row
from uwf_git.store.threads import MOST_PARENTS
from uwf_git.verify.findings import Bad, Report
from uwf_git.verify.objects import CommitObject
from uwf_git.verify.verified import Known, Record
from uwf_git.workflow.fan_out import Joinable, join_question, judge_join, planned
from uwf_git.workflow.moderator import AwaitingBranches, FansOut, WorkflowEnded

_FORK, _BRANCH, _JOIN = "wrong-fork", "wrong-branch", "wrong-join"
_NO_THREAD = ThreadId("0" * 26)


class BranchOrigin(NamedTuple):
    """A branch by its start: what its StartNode says, and the commit that it stands on, None if that is not here."""

    branch: ThreadOrigin
    fork: Oid | None
    id: ThreadId | None


class FanOutChecks:
    """Checks the records of fan-outs."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.own_times: dict[Oid, Oid] = {}
        """By fork, the start of a branch with a time of its own."""

    # Steps

    def check_step(
        self,
        step: Step,
        before: Record,
        decision: FansOut | AwaitingBranches,
        output: Node,
        detail: Node,
        report: Report,
    ) -> None:
        """Check a step of $FORK or $JOIN, but for the commits that it joins."""
        role, kind, code = FORK, FORK_OUTPUT, _FORK
        if isinstance(decision, AwaitingBranches):
            role, kind, code = JOIN, JOIN_OUTPUT, _JOIN
        if step.role != role:
            report("wrong-role", f"{step.role} made the step that the workflow called {role} for")
            return
        if output.type != kind:
            report("wrong-output", f"output {step.output} is of type {output.type}, not of {step.role}'s")
            return
        if step.agent != UWF:
            report(code, f"{step.agent} made the step of {role}, which is {UWF}'s own")
        self.check_engines_detail(role, detail, before, report)
        if isinstance(decision, FansOut):
            self._check_fork(before, decision, output.payload, report)
        else:
            self._check_joined(before, output.payload, report)

    def check_engines_detail(self, role: str, detail: Node, before: Record, report: Report) -> None:
        """Check that the detail of a step that the engine made says nothing but on what, and with which code."""
        recorded = parse_detail(detail.payload) if is_kind(detail.type, "detail") else None
        if recorded is None or recorded._replace(code=None) != Detail("", context=before.row.node):
            message = f"the detail of a step of {role} has something else than its context and code"
            report("wrong-detail", message)

    def _check_fork(self, before: Record, decision: FansOut, payload: Any, report: Report) -> None:
        chosen, items = decision
        fan_out = chosen.edge.fan_out
        assert fan_out is not None
        fork = parse_fork(payload)
        workflow = self._known.definition(before).hash
        if not _are_branches(fan_out, workflow, fork.branches):
            report(_FORK, "the fork's branches are not those of the workflow")
        if not _is_share(fork.budget):
            report(_FORK, "the fork's budget is no share of tokens or of cost")
        expected = planned(
            chosen.source, chosen.position, fan_out, items, fork.branches, fork.budget
        ).payload()
        for key in sorted(expected.keys() | payload.keys()):
            if not _same(expected.get(key), payload.get(key)):
                report(_FORK, f"the fork's {key} does not follow from the history")

    def _check_joined(self, before: Record, payload: Any, report: Report) -> None:
        fork, joined = self.fork_of(before), parse_join(payload)
        if not _same(payload, join_payload(joined, join_question(fork, joined))):
            report(_JOIN, "the join's summary or question is not that of its branches")
        if len(joined) != fork.size:
            report(_JOIN, f"the fork has {fork.summary}, and the join tells of {len(joined)}")
        elif not isinstance(judge_join(fork, joined), Joinable):
            report(_JOIN, "the branches were joined before enough of them had ended")

    def fork_of(self, record: Record) -> Fork:
        """Return the fork of a step of $FORK. Raises Bad."""
        step = record.step
        if step is None or step.role != FORK:
            raise Bad(_JOIN, f"{record.row.node} is not a step of {FORK}", Oid(raw=record.row.oid))
        try:
            return parse_fork(step.output, step.hash)
        except (UwfError, LookupError, TypeError, ValueError) as error:
            raise Bad(_FORK, f"step {step.hash} is not a valid fork: {error}") from None

    # The commits of a join

    def check_parents(
        self, commit: CommitObject, before: Record, payload: Any, report: Report
    ) -> tuple[Oid, ...]:
        """Check the commits that a join joins, and what it says of each. Return them by index, without those of
        branches that it left."""
        if not self._known.has_parents(commit):
            return ()
        fork, joined = self.fork_of(before), parse_join(payload)
        if len(joined) != fork.size:
            return ()
        ended = [(position, item) for position, item in enumerate(joined) if not item.is_left]
        tips = self._tips(commit, before.row.node, len(ended), report)
        if tips is None:
            return ()
        ids = {_id_at(before.row)}
        for (position, branch), tip in zip(ended, tips, strict=True):
            record = self._known.records.get(tip.raw)
            if record is not None:
                ids |= self._check_tip(fork, before, position, branch, record, report)
        for position, branch in enumerate(joined):
            if not branch.is_left:
                continue
            if branch.thread not in {branch_id(str(oid), when, position) for oid, when in ids}:
                report(_JOIN, f"branch {position} of the join has another id than follows from its fork")
            if (branch.step, branch.output, branch.reason, branch.conflict) != (None, None, "", None):
                report(_JOIN, f"branch {position} was left, and has a step, an output or a reason")
        return tips

    def _tips(self, commit: CommitObject, fork: Hash, count: int, report: Report) -> tuple[Oid, ...] | None:
        """Return the last commits of the branches, through parts; None if the parents are not as they should be."""
        sizes: list[list[int]] = []
        number = count
        while number > MOST_PARENTS:
            places = range(0, number, MOST_PARENTS)
            sizes.append([min(MOST_PARENTS, number - at) for at in places])
            number = len(places)
        level = commit.parents[1:]
        if len(level) != number:
            message = f"the join has {counted(len(level), 'parent')} besides its fork, and its branches are {number}"
            report("wrong-parent", message)
            return None
        for siz in reversed(sizes):
            parts: list[Oid] = []
            for oid, size in zip(level, siz, strict=True):
                record = self._known.records.get(oid.raw)
                if record is None:
                    return None  # already reported
                parents = self._known.objects.commit(oid).parents if record.row.kind == "part" else ()
                if len(parents) != size or record.row.node != fork:
                    report("wrong-parent", f"commit {oid} is not the part of the join that has its place")
                    return None
                parts += parents
            level = tuple(parts)
        return level

    def _check_tip(
        self,
        fork: Fork,
        before: Record,
        position: int,
        joined_branch: JoinedBranch,
        tip: Record,
        report: Report,
    ) -> set[tuple[Oid, int]]:
        """Check the last commit of a branch. Return the fork that it stands on, which may be another commit of the same
        step."""
        at = Oid(raw=tip.row.oid)
        if tip.row.kind not in ("start", "step"):
            report("wrong-parent", f"commit {at} records a {tip.row.kind}, not the last of a branch")
            return set()
        begin = self._known.begin_of(tip)
        branch = self._known.start_of(begin.node).branch
        if branch is None or branch.fork != before.row.node or branch.position != position:
            report("wrong-parent", f"commit {at} is not of branch {position} of the fork")
            return set()
        origin = self.origin(tip)
        if origin is not None and origin.id is not None and joined_branch.thread != origin.id:
            report(_JOIN, f"branch {position} of the join has another id than follows from its fork")
        if joined_branch.step != (tip.row.node if tip.row.kind == "step" else None):
            report(
                _JOIN,
                f"branch {position} of the join ends with {joined_branch.step}, its commit with {tip.row.node}",
            )
        if not _same(joined_branch.output, self._known.last_output(tip)):
            report(_JOIN, f"branch {position} of the join has another output than its thread")
        if tip.decided:
            self._check_end(fork, position, joined_branch, tip, report)
        if begin.merged is None:
            return set()
        return {_id_at(self._known.row_at(begin.merged))}

    def _check_end(
        self, fork: Fork, position: int, branch: JoinedBranch, tip: Record, report: Report
    ) -> None:
        if branch.status == KILLED:
            return
        problem = self.end_problem(tip, branch.status, branch.reason, fork)
        if problem:
            report(_JOIN, f"branch {position} of the join is {branch.status}: {problem}")

    def end_problem(self, tip: Record, status: str, reason: str, fork: Fork | None = None) -> str:
        """Return what is wrong with an end as completed or failed, "" if nothing. A branch of `fork` may have failed
        without its workflow's word, if that drops such branches."""
        decision = self._known.decision(tip, aside=True)
        if not isinstance(decision, WorkflowEnded):
            if status == FAILED and reason.strip() and fork is not None and fork.failure_policy.ends_branch:
                return ""
            return f"the workflow goes on after {tip.row.node}"
        if decision.failed != (status == FAILED):
            return f"the workflow ends as {FAILED if decision.failed else COMPLETED} there"
        message = layout.end_message(status, decision.reason)
        if reason != (message.strip().partition(": ")[2] if decision.failed else ""):
            return "the reason of the failure is not the workflow's" if decision.failed else "it has a reason"
        return ""

    # Branches

    def origin(self, record: Record) -> BranchOrigin | None:
        """Return the branch that a thread is by its start, None if it is none. Raises Bad."""
        branch = self._known.start_of(record.row.start or record.row.node).branch
        if branch is None:
            return None
        begin = self._known.begin_of(record)
        if begin.merged is None:
            return BranchOrigin(branch, None, None)
        oid, when = _id_at(self._known.row_at(begin.merged))
        return BranchOrigin(branch, oid, branch_id(str(oid), when, branch.position))

    def fork_behind(self, record: Record) -> Fork | None:
        """Return the fork of a branch, None if it is none or that is not here."""
        origin = self.origin(record)
        if origin is None or origin.fork is None:
            return None
        return self.fork_of(self._known.record_at(origin.fork))

    def check_start(
        self, commit: CommitObject, version: Record, node: Hash, payload: Start, content: Node, report: Report
    ) -> None:
        """Check the start of a branch against its fork and the edge of that."""
        branch = payload.branch
        assert branch is not None
        if not self._known.has_parents(commit):
            return
        other = self._known.parent(commit, 1, ("step",)) if len(commit.parents) == 2 else None
        if len(commit.parents) != 2:
            report(_BRANCH, "a branch stands on its fork, the second parent of its start")
        if other is None:
            return
        if other.row.node != branch.fork or other.row.role != FORK:
            report(
                _BRANCH, f"the second parent records {other.row.node}, the branch is of fork {branch.fork}"
            )
            return
        if commit.time != other.row.time:
            self.own_times.setdefault(Oid(raw=other.row.oid), commit.oid)
        fork = self.fork_of(other)
        if branch.position >= fork.size:
            report(_BRANCH, f"branch {branch.position} is none of the fork's {fork.size}")
            return
        expected = self._start_of(fork, other, branch.position)
        if expected is None:
            return  # the fork is reported
        type_hash, value, name = expected
        if content.type != type_hash:
            report(_BRANCH, f"StartNode {node} is of type {content.type}, not of a branch's")
        for key in sorted(value.keys() | content.payload.keys()):
            if not _same(value.get(key), content.payload.get(key)):
                report(_BRANCH, f"the {key} of branch {branch.position} is not what its fork says")
        if name and self._known.name_of(version) != name:
            report(_BRANCH, f"branch {branch.position} is of {self._known.name_of(version)}, not of {name}")

    def _start_of(self, fork: Fork, record: Record, position: int) -> tuple[Hash, Any, str] | None:
        """Return the type and payload of a branch's StartNode, and the name of its workflow, "" for that of its fork;
        None if the workflow calls for no such fork."""
        from uwf_git.engine.fan_out import start_of_branch

        assert record.row.parent is not None
        before = self._known.record_at(Oid(raw=record.row.parent))
        decision = self._known.decision(before, aside=True)
        if not isinstance(decision, FansOut) or position >= len(decision.items):
            return None
        chosen = decision.chosen
        fan_out = chosen.edge.fan_out
        assert fan_out is not None
        history = self._history(before)
        try:
            start = start_of_branch(history, fork, chosen, position, record.row.node)
        except UwfError:
            return None
        fixed = fan_out.fixed
        return *start, fixed[position].workflow if fixed else fan_out.workflow

    def _history(self, record: Record) -> History:
        start = record.row.start or record.row.node
        payload, definition = self._known.start_of(start), self._known.definition(record)
        steps = tuple(self._known.steps_aside(record))
        return History(
            _NO_THREAD, record.row.node, start, payload, payload.workflow, definition.workflow, steps
        )

    # Parts

    def part(self, commit: CommitObject, node: Hash, report: Report) -> Record:
        """Check a commit that gathers branches of a fork, and return its record."""
        if self._known.objects.tree(commit.tree):
            report("extra-file", "a commit that gathers branches has no files")
        if not 1 <= len(commit.parents) <= MOST_PARENTS:
            report("wrong-parent", f"a commit gathers from 1 to {MOST_PARENTS} branches")
        self._known.message(commit, report, layout.part_message(node, len(commit.parents)))
        if commit.author != commit.committer:
            report("wrong-author", "a commit that gathers branches has an author besides who made it")
        rows = [record.row for record in self._gathered(commit, node, report)]
        row = commit_row(commit.oid, "part", node, commit.parents, commit.time)
        return Record(row._replace(rehearsed=sum(item.rehearsed for item in rows)), commit.tree)

    def _gathered(self, commit: CommitObject, node: Hash, report: Report) -> Iterator[Record]:
        for oid in commit.parents:
            record = self._known.records.get(oid.raw)
            if record is None:
                continue
            yield record
            if record.row.kind == "part":
                fork: Hash | None = record.row.node
            else:
                is_of_thread = record.row.kind in ("start", "step")
                if is_of_thread and self._is_answered_call(record):
                    continue
                origin = self.origin(record) if is_of_thread else None
                fork = origin.branch.fork if origin is not None else None
            if fork != node:
                report("wrong-parent", f"commit {oid} is of no branch of fork {node}")

    def _is_answered_call(self, record: Record) -> bool:
        call = self._known.start_of(record.row.start or record.row.node).call
        return call is not None and call.is_call and record.row.role == END


def _are_branches(fan_out: FanOut, workflow: Hash, branches: Sequence[ForkedBranch]) -> bool:
    """Return whether a fork's branches are those of an edge. A workflow's name is checked when a branch starts."""
    wanted = [branch.role for branch in fan_out.fixed] or [fan_out.role]
    return len(wanted) == len(branches) and all(
        branch.role == role and (not role or branch.workflow == workflow)
        for role, branch in zip(wanted, branches, strict=True)
    )


def _is_share(budget: Any) -> bool:
    return all(key in SHARED and math.isfinite(value) and value > 0 for key, value in budget.items())


def _id_at(row: CommitRow) -> tuple[Oid, int]:
    return Oid(raw=row.oid), row.time


def _same(one: Any, other: Any) -> bool:
    return cbor.encode(one) == cbor.encode(other)
