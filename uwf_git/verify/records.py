"""Checking records: each commit against its node, its tree against the previous one, and steps and attempts
against the workflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

from uwf_git.base.errors import UnknownWord
from uwf_git.engine.census import calls_in
from uwf_git.engine.step_parts import parts_of
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import (
    Start,
    StartIssue,
    answer_in,
    parse_attempt,
    parse_detail,
    parse_start,
    parse_step,
    title_of,
)
from uwf_git.format.types import (
    USER,
    is_kind,
)
from uwf_git.store import layout, pages
from uwf_git.store.index import CommitRow, bound_row, commit_row, start_row, step_row
from uwf_git.verify.calls import CallChecks
from uwf_git.verify.definition import Definition, check_attributes, check_definition, read_all
from uwf_git.verify.fan_outs import FanOutChecks
from uwf_git.verify.findings import Bad, Listener, OpenQuestions, Report
from uwf_git.verify.nodes import files_below, grown, node_files, row_of
from uwf_git.verify.objects import FOLDER, CommitObject, Objects
from uwf_git.verify.thread_pages import ThreadPages, files_of
from uwf_git.verify.turns import TurnChecks
from uwf_git.verify.verified import Known, Record, StepCommit
from uwf_git.verify.versions import check_record
from uwf_git.workflow.moderator import (
    DecidedByCode,
    Next,
    WorkflowEnded,
    next_role,
)


class Records:
    """Checks commits, parents first."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._pages = ThreadPages(known)
        self._definitions: dict[bytes, Definition] = {}
        self.open_questions = OpenQuestions([], [])
        self.fan_outs = FanOutChecks(known)
        self.calls = CallChecks(known)
        self._turns = TurnChecks(known, self.fan_outs, self.calls, self.open_questions)

    def check(self, commit: CommitObject, report: Report) -> Record | None:
        """Check a commit and return its record; None if a parent's record is missing, already reported.
        Raises Bad if unreadable."""
        trailers = commit.trailers
        if trailers is None:
            if record := layout.newer_record(commit.message):
                raise UnknownWord(
                    f"commit {commit.oid} has {record}, which this uwf does not know", UnknownWord.WAY_OUT
                )
            raise Bad("no-record", f"commit {commit.oid} records nothing of uwf's")
        kind, node = trailers
        if kind == "workflow":
            return self._workflow(commit, node, report)
        if kind == "start":
            return self._start(commit, node, report)
        if kind == "step":
            return self._step(commit, node, report)
        if kind == "attempt":
            return self._attempt(commit, node, report)
        if kind == "pin":
            return self._pin(commit, node, report)
        if kind == "part":
            return self.fan_outs.part(commit, node, report)
        if (check := self._turns.check_record(kind)) is not None:
            return check(commit, node, report)
        return check_record(self._known, commit, kind, node, report)

    def thread_pages(self, record: Record) -> Iterator[Callable[[], bytes]]:
        """Return the valid pages of a thread after a step that changed its page."""
        return self._pages.of_thread(record)

    # Versions of workflows

    def _workflow(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if len(commit.parents) > 2:
            report("wrong-parent", "a workflow version has at most two parents")
        definition = self._definitions.get(commit.tree)
        if definition is not None and definition.hash == node:
            self._known.nodes.rows.extend(definition.rows)
        else:
            listener = Listener(report)
            definition = check_definition(self._known.objects, self._known.nodes, commit.tree, node, listener)
            if listener.is_silent:
                self._definitions[commit.tree] = definition
        self._known.workflows[node, self._known.workflow_folder(commit.tree)] = definition
        name = definition.workflow.name
        message = layout.workflow_message(name, node)
        if not layout.is_in_words(commit.message, message):
            self._known.message(commit, report, message)
        if commit.parents:
            before = self._known.parent(commit, 0, ("workflow",))
            if before is None:
                return None
            if self._known.definition(before).workflow.name != name:
                report("wrong-parent", "the version before is another workflow's")
        row = _row(commit, "workflow", node)._replace(workflow=node, name=name)
        return Record(row, commit.tree)

    # Starts

    def _start(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if not 1 <= len(commit.parents) <= 2:
            raise Bad("wrong-parent", "a start has one parent, its workflow version, and maybe an origin")
        version = self._known.parent(commit, 0, ("workflow",))
        if version is None:
            return None
        also = (("README.md",),)
        tree = grown(self._known.objects, commit.tree, version.tree, ("start",), report, also)
        files, here = self._known.folder(tree, "start/", node, report)
        start = self._known.node(here, node, "start")
        payload = parse_start(start.payload)
        for extra in here.keys() - {node}:
            path = f"start/{layout.node_file(extra)}"
            report("extra-file", f"{path} is not the StartNode", path=path)
        workflow = version.row.node
        if payload.workflow != workflow:
            report("wrong-chain", f"the StartNode uses workflow {payload.workflow}, its parent is {workflow}")
        _check_start_parts(self._known, version, payload, report)
        if payload.issue is not None:
            _check_issue(payload.prompt, payload.issue, report)
        if payload.call is not None:
            self.calls.check_start(commit, payload, payload.call, report)
        elif payload.branch is None:
            self._check_origin(commit, version, report)
        else:
            self.fan_outs.check_start(commit, version, node, payload, start, report)
        name = self._known.name_of(version)
        top, title = files_of(self._known.objects, commit.tree), title_of(payload.heading)
        self._known.page(top, "", report, lambda: pages.first_thread_page(title, name))
        self._known.page(files, "start/", report, lambda: pages.start_readme(payload.prompt))
        thread, project = layout.thread_named(commit.message), layout.project_named(commit.message)
        text = layout.start_message(name, payload.heading, node, thread, project)
        self._known.message(commit, report, text)
        self._known.starts[node] = payload
        row = start_row(_row(commit, "start", node), payload, name, commit.author, project)
        return Record(row, commit.tree)

    def _check_origin(self, commit: CommitObject, version: Record, report: Report) -> None:
        other = self._known.parent(commit, 1, ("start", "step")) if len(commit.parents) == 2 else None
        if other is None:
            return
        from uwf_git.engine.conversation import is_conversation

        talks = is_conversation(self._known.definition(version).workflow)
        if talks == is_conversation(self._known.definition(other).workflow):
            report("wrong-parent", "a run is started from a conversation, and a conversation from a run")
        elif (
            talks and other.decided and not isinstance(self._known.decision(other, aside=True), WorkflowEnded)
        ):
            report("wrong-parent", f"the run that it comes after had not ended at {other.row.node}")

    # Steps

    def _step(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        before = self._known.parent(commit, 0, ("start", "step"))
        if before is None:
            return None
        number = before.row.number + 1
        name = self._known.new_folder(commit.tree, ("steps",), number)
        files, here = self._known.folder(name.tree, name.path, node, report)
        content = self._known.node(here, node, "step")
        recorded = parse_step(content.payload)
        folders = layout.step_folder(number, recorded.role)
        grown(self._known.objects, commit.tree, before.tree, folders, report, self._pages.added(before))
        if recorded.start != before.row.start:
            report("wrong-chain", f"start is {recorded.start}, that of the thread is {before.row.start}")
        if recorded.prev != _prev(before.row):
            report("wrong-chain", f"prev is {recorded.prev}, the commit before records {before.row.node}")

        definition = self._known.definition(before)
        past = self._known.past
        past.go_to(before, self._known.records)
        if node in past.hashes:
            raise Bad("wrong-chain", f"step {node} is in the thread already")
        here = self._known.check_reached(
            name.path, files, here, node, recorded.start, before, definition.nodes, report
        )
        output = self._known.content(here, recorded.output)
        detail = self._known.detail(here, recorded.detail)
        step = StepCommit(commit, node, recorded, before, output, detail, here)
        decided = before.decided and self._turns.check(step, report)
        extraction = parse_detail(detail.payload).extraction if is_kind(detail.type, "detail") else ""
        code = pages.code_of(detail)
        self._known.message(
            commit,
            report,
            layout.step_message(
                number,
                node,
                recorded.role,
                recorded.agent,
                pages.verdict(output.payload),
                extraction,
                code.commit if code else "",
            ),
        )
        credit = self._known.credit(before, recorded)
        if recorded.role != USER:
            self._known.author(commit, credit, report)
        joined = self._turns.check_parents(step, report)
        answer = answer_in(detail.type, detail.payload) if definition.workflow.needs_answers else None
        context = recorded.context(node, output.payload, credit, answer, content.timestamp)
        others = [self._known.records.get(parent.raw) for parent in commit.parents[1:]]
        rows = [other.row if other is not None else None for other in others]
        row = step_row(_row(commit, "step", node), before.row, recorded, output.payload, rows)
        record = Record(
            row, commit.tree, step=context, decided=decided, code=code, joined=joined, calls=calls_in(detail)
        )
        page = pages.PageStep.of(number, context, detail, lambda target: self._known.content(here, target))
        self._known.page(files, name.path, report, lambda: pages.step_page(page))
        self._pages.check(record, before, report)
        return record

    # Attempts

    def _attempt(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if not 1 <= len(commit.parents) <= 2:
            raise Bad("wrong-parent", "an attempt has one parent or two")
        first = self._known.parent(commit, 0, ("attempt", "start", "step"))
        if first is None:
            return None
        before = first if first.row.kind == "attempt" else None
        if before is None and len(commit.parents) == 2:
            raise Bad("wrong-parent", "the first of an attempt's two parents is an attempt")
        head = self._known.parent(commit, 1, ("start", "step")) if len(commit.parents) == 2 else first
        if head is None:
            return None
        if head is before:
            head = self._known.head_of(head)
            if head is None:
                return None
        number = before.attempts + 1 if before is not None else 1
        name = self._known.new_folder(commit.tree, ("attempts",), number)
        files, here = self._known.folder(name.tree, name.path, node, report)
        recorded = parse_attempt(self._known.node(here, node, "attempt").payload)
        # Its tree is the head's plus all attempts so far.
        folders = layout.attempt_folder(number, recorded.role)
        attempts = grown(self._known.objects, commit.tree, head.tree, folders[:1], report)
        earlier = row_of(self._known.objects, before.tree, folders[0]) if before is not None else None
        grown(self._known.objects, attempts, earlier[2] if earlier else None, folders[1:], report)
        if (recorded.start, recorded.prev) != (head.row.start, _prev(head.row)):
            report("wrong-chain", f"attempt {node} was not made on the head {head.row.node}")

        here = self._known.check_reached(
            name.path, files, here, node, recorded.start, head, frozenset(), report
        )
        detail = self._known.detail(here, recorded.detail) if recorded.detail else None
        if head.decided:
            decision = self._known.decision(head)
            role = next_role(decision) if isinstance(decision, Next | DecidedByCode) else None
            if role != recorded.role:
                report("wrong-role", f"{recorded.role} tried, the workflow called {role} for it")
            elif detail is not None:
                expected = decision.instruction if isinstance(decision, Next) else None
                self._known.check_detail(detail, here, expected, head, report)
        credit = self._known.credit(head, recorded)
        self._known.page(files, name.path, report, lambda: pages.attempt_page(recorded, detail, credit))
        self._known.message(commit, report, layout.attempt_message(number, node, recorded))
        self._known.author(commit, credit, report)
        earlier_rows = (before.row,) if before is not None else ()
        row = bound_row(_row(commit, "attempt", node), head.row.start, recorded.role, earlier_rows)
        return Record(row, commit.tree, head=head.row.oid, attempts=number, code=recorded.code)

    # Nodes put by hand

    def _pin(self, commit: CommitObject, node: Hash, report: Report) -> Record:
        if commit.parents:
            report("wrong-parent", "a commit that keeps a node has no parents")
        files = files_below(self._known.objects, commit.tree, "", report)
        blobs = node_files(files, "")
        here = read_all(self._known.nodes, blobs, report)
        if node not in here:
            path = layout.node_file(node)
            raise Bad("missing-file", f"there is no sound {path}", path=path)
        reached = self._known.nodes.closure(node, here, lambda _: False, report)
        expected = {".gitattributes", *map(layout.node_file, reached)}
        for file in files.keys() - expected:
            report("extra-file", f"{file} is not reached by node {node}", path=file)
        check_attributes(self._known.objects, files, report)
        self._known.message(commit, report, layout.pin_message(node))
        return Record(_row(commit, "pin", node), commit.tree)


def _row(commit: CommitObject, kind: str, node: Hash) -> CommitRow:
    return commit_row(commit.oid, kind, node, commit.parents, commit.time)


def _prev(head: CommitRow) -> Hash | None:
    return head.node if head.kind == "step" else None


def _check_start_parts(known: Known, version: Record, start: Start, report: Report) -> None:
    """Report the fields of a StartNode that only some kinds of workflow have, if they are missing, wrong or another
    kind's. Raises Bad."""
    workflow = known.definition(version).workflow
    parts = parts_of(workflow)
    if parts is not None:
        included = partial(_included, known.objects, version.tree)
        for code, problem in parts.start_problems(workflow, start, included):
            report(code, problem)
    elif start.has_parts:
        report("wrong-persona", f"the StartNode is a crew's, and {workflow.name} is of no crew")


def _check_issue(prompt: str, issue: StartIssue, report: Report) -> None:
    """Report an issue's text that isn't the one that the start names by its digest."""
    task, text = prompt[: -issue.length], prompt[-issue.length :]
    if (
        len(text) != issue.length
        or sha256(text.encode("utf-8")).hexdigest() != issue.sha256
        or not (task.endswith("\n\n") or not task)
    ):
        report("wrong-issue", f"the prompt doesn't end with the text of issue {issue.number} that was read")


def _included(objects: Objects, tree: bytes, path: str) -> bytes | None:
    *folders, name = f"{layout.INCLUDED}{path}".split("/")
    for folder in folders:
        row = row_of(objects, tree, folder)
        if row is None or row[0] != FOLDER:
            return None
        tree = row[2]
    row = row_of(objects, tree, name)
    return objects.blob(row[2]) if row is not None and row[0] != FOLDER else None
