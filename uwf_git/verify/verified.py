"""Records verified so far, and the steps before the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.text import one_line
from uwf_git.engine.census import calls_in
from uwf_git.engine.new_step import detail_problems
from uwf_git.format.casting import cast_of
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import (
    Attempt,
    CallCounts,
    Revision,
    Start,
    Step,
    StepContext,
    Workflow,
    parse_detail,
    parse_start,
    parse_workflow,
)
from uwf_git.format.node import Node
from uwf_git.format.types import Kind, is_kind, require_known_type
from uwf_git.git.objects import clean
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.attempts import Attempts
from uwf_git.store.index import CommitRow
from uwf_git.store.indexing import Store
from uwf_git.store.threads import Threads
from uwf_git.verify.definition import Definition, read_all
from uwf_git.verify.findings import Bad, Report
from uwf_git.verify.nodes import Nodes, check_page, files_below, node_files, row_of
from uwf_git.verify.objects import FOLDER, CommitObject, Objects
from uwf_git.workflow.moderator import Decision, Replay, decide
from uwf_git.workflow.turn import has_result

_NO_THREAD = ThreadId("0" * 26)


class Record(NamedTuple):
    """A commit's record, as far as readable. `row` is the index's. Of an attempt, `head` is the head it was
    made on and `attempts` counts those up to it. `decided` is False once the workflow could not decide.
    `code` is what a step or attempt left in a worktree, `joined` the last commits of the branches of a join, `calls`
    the counts of a step of code."""

    row: CommitRow
    tree: bytes
    step: StepContext | None = None
    head: bytes | None = None
    attempts: int = 0
    trusted: bool = False
    decided: bool = True
    code: Revision | None = None
    joined: tuple[Oid, ...] = ()
    calls: CallCounts | None = None


class StepCommit(NamedTuple):
    """A step as its commit has it: the StepNode and its payload, the record before, the nodes of output and detail,
    and those of its folder."""

    commit: CommitObject
    node: Hash
    step: Step
    before: Record
    output: Node
    detail: Node
    here: Mapping[Hash, Node]


class KnownHistory:
    """The steps up to a head, oldest first, extended for the next commit."""

    def __init__(self, store: Store) -> None:
        self._threads = Threads(store)
        self._at: bytes | None = None
        self._earlier: tuple[bytes | None, set[Hash]] | None = None
        self._replay: Replay | None = None
        self.steps: list[StepContext] = []
        self.hashes: set[Hash] = set()

    def decide(self, workflow: Workflow, start: Start) -> Decision:
        """Return the decision after these steps. Raises as the moderator does."""
        if self._replay is None:
            self._replay = Replay(workflow, start, self.steps)
        return decide(workflow, start, self.steps, self._replay)

    def go_to(self, head: Record, known: Mapping[bytes, Record | None]) -> None:
        """Set `steps` to those up to a head, inclusive."""
        if self._at == head.row.oid:
            return
        if head.row.parent is not None and head.row.parent == self._at and head.step is not None:
            self.steps.append(head.step)
            self.hashes.add(head.step.hash)
        else:
            self._rebuild(head, known)
        self._at = head.row.oid

    def _rebuild(self, head: Record, known: Mapping[bytes, Record | None]) -> None:
        newest: list[StepContext] = []
        oldest: list[StepContext] = []
        at: Record | None = head
        while at is not None and at.step is not None:
            if at.trusted:
                # The id is for messages only, and these commits may belong to several threads.
                history = self._threads.history_at(_NO_THREAD, at.row.node)
                oldest = list(history.steps)
                break
            newest.append(at.step)
            at = known.get(at.row.parent) if at.row.parent else None
        self.steps = [*oldest, *reversed(newest)]
        self.hashes = {step.hash for step in self.steps}
        self._replay = None

    def earlier(self, head: Record, objects: Objects) -> set[Hash]:
        """Return the nodes in all step folders of a head's tree."""
        row = row_of(objects, head.tree, "steps")
        steps = row[2] if row is not None else None
        if self._earlier is None or self._earlier[0] != steps:
            nodes = self._earlier[1] if self._earlier is not None else set()
            before = self._earlier[0] if self._earlier is not None else None
            if steps is None or not _take_in_new(objects, steps, before, nodes):
                nodes = set()
                if steps is not None:
                    _take_in_new(objects, steps, None, nodes)
            self._earlier = steps, nodes
        return self._earlier[1]


def _take_in_new(objects: Objects, tree: bytes, before: bytes | None, nodes: set[Hash]) -> bool:
    pending = [(tree, before)]
    while pending:
        now, then = pending.pop()
        old = {name: (mode, oid) for mode, name, oid in objects.tree(then)} if then is not None else {}
        for mode, name, oid in objects.tree(now):
            was = old.pop(name, None)
            if was == (mode, oid):
                continue
            if was is not None and FOLDER in (was[0], mode) and was[0] != mode:
                return False
            if mode == FOLDER:
                pending.append((oid, was[1] if was is not None else None))
            elif node := layout.node_in_path(f"nodes/{name.decode('utf-8', 'replace')}"):
                nodes.add(node)
        if old:
            return False
    return True


class RecordFolder(NamedTuple):
    """A record's folder: its path with a trailing slash, and its tree."""

    path: str
    tree: bytes


class Known:
    """The records read so far, parents first."""

    def __init__(self, objects: Objects, store: Store, fresh: bool = False) -> None:
        self.objects = objects
        self._store = store
        self.repository = store.repository
        self.nodes = Nodes(objects, store, fresh)
        self.records: dict[bytes, Record | None] = {}
        self.workflows: dict[tuple[Hash, bytes], Definition] = {}
        self.versions: dict[tuple[str, bytes, Hash], Any] = {}
        self.starts: dict[Hash, Start] = {}
        self.past = KnownHistory(store)
        self._aside = KnownHistory(store)
        self._attempts = Attempts(store)
        self._decisions: dict[bytes, Decision | str] = {}

    def in_store(self, oid: Oid) -> Record:
        """Return the record of a commit known to the store. Raises UwfError, Bad."""
        row = self._store.index_commit(oid)
        tree = self.objects.commit(oid).tree
        step, head, attempts, calls = None, None, 0, None
        if row.kind == "step":
            assert row.workflow is not None
            workflow = parse_workflow(self._store.get(row.workflow).payload)
            step = Threads(self._store).context(row.node, workflow)
            calls = calls_in(self._store.get(step.detail)) if workflow.code is not None else None
        if row.kind == "attempt":
            head, attempts = self._attempts.head_of(oid).raw, self._attempts.count(oid)
        return Record(row, tree, step, head, attempts, trusted=True, calls=calls)

    def definition(self, record: Record) -> Definition:
        """Return a record's workflow. Raises Bad."""
        node = record.row.workflow
        assert node is not None
        key = node, self.workflow_folder(record.tree)
        known = self.workflows.get(key)
        if known is None:
            try:
                workflow = parse_workflow(self._store.get(node).payload)
            except UwfError as error:
                raise Bad("missing-node", error.message, Oid(raw=record.row.oid)) from None
            here = Threads(self._store).workflow_nodes(Oid(raw=record.tree))
            known = self.workflows[key] = Definition(node, workflow, here)
        return known

    def workflow_folder(self, tree: bytes) -> bytes:
        """Return the id of a tree's workflow/ folder, empty if missing."""
        row = row_of(self.objects, tree, "workflow")
        return row[2] if row is not None else b""

    def name_of(self, record: Record) -> str:
        """Return the name of a record's workflow. Raises Bad."""
        return self.definition(record).workflow.name

    def start_of(self, start: Hash) -> Start:
        """Return a verified StartNode. Raises Bad."""
        known = self.starts.get(start)
        if known is None:
            known = self.starts[start] = parse_start(self.nodes.get(start).payload)
        return known

    def credit(self, head: Record, record: Step | Attempt) -> Credit:
        """Return who made a step or an attempt, in the thread of a start or step. Raises Bad."""
        assert head.row.start is not None
        cast = cast_of(self.definition(head).workflow, self.start_of(head.row.start))
        return cast.role(record.role).credit(record.agent)

    def decision(self, head: Record, aside: bool = False) -> Decision | str:
        """Return the decision at a start or step, or why there is none. `aside` leaves `past` unchanged, for
        another thread's head. Raises Bad."""
        known = self._decisions.get(head.row.oid)
        if known is None:
            assert head.row.start is not None
            past = self._aside if aside else self.past
            past.go_to(head, self.records)
            try:
                known = past.decide(self.definition(head).workflow, self.start_of(head.row.start))
            except UwfError as error:
                known = error.message
            if len(self._decisions) >= 1024:
                self._decisions.clear()
            self._decisions[head.row.oid] = known
        return known

    def detail(self, here: Mapping[Hash, Node], node: Hash) -> Node:
        """Return what a step or attempt has as its detail. Raises Bad, UnknownWord."""
        content = self.content(here, node)
        if not is_kind(content.type, "detail"):
            require_known_type(node, self.content(here, content.type).payload, "detail")
        return content

    def check_detail(
        self,
        detail: Node,
        here: Mapping[Hash, Node],
        expected: str | None,
        before: Record,
        report: Report,
    ) -> None:
        """Check a detail's prompt reference, instruction (`expected`, may be absent) and turns."""
        if not is_kind(detail.type, "detail"):
            return
        parsed = parse_detail(detail.payload)
        for problem in detail_problems(
            parsed, before.row.node, expected, lambda node: self.content(here, node).type
        ):
            report("wrong-detail", problem)

    def steps_aside(self, head: Record) -> Sequence[StepContext]:
        """Return the steps up to a head, which leaves `past` unchanged."""
        self._aside.go_to(head, self.records)
        return self._aside.steps

    def last_output(self, head: Record) -> Any:
        """Return the output of the last step up to a head by a role or of a join, None without one."""
        return next((step.output for step in reversed(self.steps_aside(head)) if has_result(step.role)), None)

    def begin_of(self, record: Record) -> CommitRow:
        """Return the row of the start of a step's thread. Raises Bad."""
        row = record.row
        while row.kind != "start":
            if row.parent is None:
                raise Bad("wrong-parent", f"commit {Oid(raw=row.oid)} leads to no start")
            row = self.row_at(row.parent)
        return row

    def row_at(self, oid: bytes) -> CommitRow:
        """Return the row of a commit that was read, or that the store knows. Raises Bad."""
        return self.record_at(Oid(raw=oid)).row

    def record_at(self, oid: Oid) -> Record:
        """Return the record of a commit that was read, or that the store knows. Raises Bad."""
        if oid.raw not in self.records:
            self.records[oid.raw] = self.in_store(oid)
        record = self.records[oid.raw]
        if record is None:
            raise Bad("wrong-parent", f"commit {oid} is no valid record")
        return record

    def has_parents(self, commit: CommitObject) -> bool:
        """Return whether the parents of a commit besides the first can be looked at."""
        return True

    def head_of(self, attempt: Record) -> Record | None:
        """Return the head that an attempt was made on."""
        assert attempt.head is not None
        if attempt.head not in self.records:
            self.records[attempt.head] = self.in_store(Oid(raw=attempt.head))
        return self.records[attempt.head]

    def forget_unfinished(self) -> None:
        """Forget the results of an interrupted check."""
        self.past, self._aside = KnownHistory(self._store), KnownHistory(self._store)
        self._decisions.clear()
        self.nodes.rows.clear()

    # A commit and its parts

    def parent(self, commit: CommitObject, place: int, kinds: tuple[str, ...]) -> Record | None:
        """Return a parent's record, None if it is invalid. Raises Bad for another kind, or a missing parent."""
        if len(commit.parents) <= place:
            raise Bad("wrong-parent", f"commit {commit.oid} has no parent to go on from")
        oid = commit.parents[place]
        record = self.records.get(oid.raw)
        if record is not None and (kind := record.row.kind) not in kinds:
            raise Bad("wrong-parent", f"parent {oid} records a {kind}, not a {' or '.join(kinds)}")
        return record

    def new_folder(self, tree: bytes, folders: tuple[str, ...], number: int) -> RecordFolder:
        """Return the folder of a new step or attempt, by its number. Raises Bad."""
        if folders == ("steps",) and number >= 100:
            folders = layout.step_folder(number, "role")[:-1]
        for folder in folders:
            row = row_of(self.objects, tree, folder)
            if row is None or row[0] != FOLDER:
                raise Bad("missing-file", f"there is no {folder}, which the record adds to", path=folder)
            tree = row[2]
        prefix = f"{number:04d}-".encode()
        rows = [row for row in self.objects.tree(tree) if row[1].startswith(prefix)]
        if len(rows) != 1 or rows[0][0] != FOLDER:
            raise Bad("missing-file", f"there is not one folder {'/'.join(folders)}/{number:04d}-…")
        try:
            name = rows[0][1].decode("utf-8")
        except UnicodeDecodeError:
            raise Bad("unsafe-name", f"folder {number:04d} has a name that is not UTF-8") from None
        return RecordFolder("/".join((*folders, name)) + "/", rows[0][2])

    def folder(
        self, tree: bytes, path: str, node: Hash, report: Report
    ) -> tuple[dict[str, bytes], dict[Hash, Node]]:
        """Return the files and nodes of a record's folder, reporting others."""
        files = files_below(self.objects, tree, path, report)
        blobs = node_files(files, "")
        names = {"README.md", *map(layout.node_file, blobs)}
        for extra in files.keys() - names:
            report("extra-file", f"{path}{extra} does not belong to the record", path=f"{path}{extra}")
        if node not in blobs:
            name = f"{path}{layout.node_file(node)}"
            raise Bad("missing-file", f"there is no {name}", path=name)
        return files, read_all(self.nodes, blobs, report, path)

    def node(self, here: Mapping[Hash, Node], node: Hash, kind: Kind) -> Node:
        """Return a node of a kind in a record's folder. Raises Bad, UnknownWord."""
        content = here.get(node)
        if content is None:
            raise Bad("missing-node", f"node {node} cannot be read")
        if not is_kind(content.type, kind):
            require_known_type(node, self.content(here, content.type).payload, kind)
            raise Bad("wrong-kind", f"node {node} is of type {content.type}, no {kind}")
        return content

    def content(self, here: Mapping[Hash, Node], node: Hash) -> Node:
        """Return a node of a record's folder, or verified before. Raises Bad."""
        return here[node] if node in here else self.nodes.get(node)

    def check_reached(
        self,
        path: str,
        files: Mapping[str, bytes],
        here: Mapping[Hash, Node],
        node: Hash,
        start: Hash,
        head: Record,
        known: frozenset[Hash],
        report: Report,
        others: frozenset[Hash] = frozenset(),
    ) -> dict[Hash, Node]:
        """Check that a record's folder has exactly what its node reaches. Nodes in the head's tree and `others` may be
        omitted; those in `known` must be. Returns the added nodes."""
        past, definition = self.past, self.definition(head)
        past.go_to(head, self.records)
        left_out = known | {start}
        added = {
            name: content
            for name, content in here.items()
            if name not in left_out and name not in past.hashes
        }

        def elsewhere(target: Hash) -> bool:
            there = target in definition.nodes or target == start or target in past.hashes or target in others
            return there or target in past.earlier(head, self.objects)

        reached = self.nodes.closure(node, added, elsewhere, report)
        for extra in node_files(files, "").keys() - reached:
            kind = path.partition("/")[0].removesuffix("s")
            name = f"{path}{layout.node_file(extra)}"
            report("extra-file", f"{name} is not what the {kind} adds", path=name)
        return added

    def page(
        self,
        files: Mapping[str, bytes],
        path: str,
        report: Report,
        *expected: Callable[[], bytes],
        name: str = "README.md",
    ) -> None:
        """Report a page that matches none of those expected, generated lazily."""
        check_page(self.objects, files, path, report, *expected, name=name)

    def message(self, commit: CommitObject, report: Report, expected: str) -> None:
        """Report another message than expected."""
        if commit.message != expected:
            subject = one_line(commit.message.split("\n", 1)[0], 80)
            report("wrong-message", f"the message is not what the nodes say: {subject!r}")

    def author(self, commit: CommitObject, credit: Credit, report: Report) -> None:
        """Report a commit whose author is not who made its record."""
        author = layout.agent_author(credit)
        if commit.author != author.ident:
            by = clean(author.name)
            report("wrong-author", f"the author is {one_line(commit.author, 120)!r}, the agent {by!r}")
