"""Records: a commit against its node, its tree against the commit before, a step against what the workflow
called for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git import layout, views
from uwf_git.errors import UwfError
from uwf_git.ids import Hash
from uwf_git.index import CommitRow
from uwf_git.moderator import Asking, Decision, Ended, Next
from uwf_git.node import Node
from uwf_git.protocol import (
    ANSWER,
    QUESTION,
    USER,
    Start,
    Step,
    StepContext,
    asks_human,
    is_kind,
    parse_start,
    parse_step,
    parse_workflow,
)
from uwf_git.repository import Oid
from uwf_git.store import Store
from uwf_git.thread import Threads
from uwf_git.verify.definition import Definition, check_definition, read_all
from uwf_git.verify.finding import Bad
from uwf_git.verify.nodes import Nodes, Report
from uwf_git.verify.objects import FILE, FOLDER, CommitObject, Objects
from uwf_git.verify.past import Past, Record, is_instruction
from uwf_git.verify.trees import files_below, grown, node_files, row_of


class Records:
    """The records that were read, and the checks of those to come. A commit comes after its parents."""

    def __init__(self, objects: Objects, store: Store, fresh: bool = False) -> None:
        self._objects = objects
        self._store = store
        self.nodes = Nodes(objects, store, fresh)
        self.known: dict[bytes, Record | None] = {}
        self._definitions: dict[bytes, Definition] = {}
        self._workflows: dict[tuple[Hash, bytes], Definition] = {}
        self._starts: dict[Hash, Start] = {}
        self._past = Past(store)
        self._decisions: dict[bytes, Decision | str] = {}

    def trust(self, oid: Oid) -> Record:
        """The record of a commit that the store vouches for. Raises UwfError, Bad."""
        row = self._store.take_in(oid)
        tree = self._objects.commit(oid).tree
        before = row.parent
        step = None
        if row.kind == "step":
            made = parse_step(self._store.get(row.node).payload)
            output = self._store.get(made.output).payload
            step = StepContext(row.node, made.role, output, made.detail, made.agent)
        number = row.number
        head = None
        if row.kind == "attempt":
            number, head = self._attempts_in(tree), self._head_of_attempt(oid)
        return Record(
            oid.raw, row.kind, row.node, tree, before, head, number, row.start, row.workflow, step, True
        )

    def _attempts_in(self, tree: bytes) -> int:
        row = row_of(self._objects, tree, "attempts")
        return len(self._objects.tree(row[2])) if row else 0

    def _head_of_attempt(self, oid: Oid) -> bytes | None:
        """The head that a trusted attempt was made on: its last parent that is no attempt, or that of the
        attempt before."""
        at: Oid | None = oid
        while at is not None:
            parents = self._objects.commit(at).parents
            if not parents:
                return None
            if self._store.take_in(parents[-1]).kind != "attempt":
                return parents[-1].raw
            at = parents[0]
        return None

    def check(self, commit: CommitObject, report: Report) -> Record | None:
        """Checks a commit and returns what it records; None where a parent's record is missing, which was
        reported with that. Raises Bad where the commit can't be read further."""
        trailers = layout.parse_message(commit.message)
        if trailers is None:
            raise Bad("no-record", commit.oid, f"commit {commit.oid} records nothing of uwf's")
        kind, node = trailers
        if kind == "workflow":
            return self._workflow(commit, node, report)
        if kind == "start":
            return self._start(commit, node, report)
        if kind == "step":
            return self._step(commit, node, report)
        if kind == "attempt":
            return self._attempt(commit, node, report)
        return self._pin(commit, node, report)

    # Workflow versions

    def _workflow(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if len(commit.parents) > 2:
            report("wrong-parent", commit.oid, "a workflow version has at most two parents")
        definition = self._definitions.get(commit.tree)
        if definition is not None and definition.hash == node:
            self.nodes.rows.extend(definition.rows)
        else:
            sound = True

            def note(code: str, oid: object, message: str) -> None:
                nonlocal sound
                sound = False
                report(code, oid, message)

            definition = check_definition(self._objects, self.nodes, commit.oid, commit.tree, node, note)
            if sound:
                self._definitions[commit.tree] = definition
        self._workflows[node, self._workflow_folder(commit.tree)] = definition
        name = definition.workflow.name
        subject = commit.message.split("\n", 1)[0]
        if subject != layout.workflow_message(name, node).split("\n", 1)[0]:
            report("wrong-message", commit.oid, f"the subject is not that of workflow {name} {node}")
        if commit.parents:
            before = self._parent(commit, 0, ("workflow",))
            if before is None:
                return None
            if self._definition(before).workflow.name != name:
                report("wrong-parent", commit.oid, "the version before is another workflow's")
        row = _row(commit, "workflow", node)._replace(workflow=node, name=name)
        return Record(commit.oid.raw, "workflow", node, commit.tree, workflow=node, row=row)

    def _definition(self, record: Record) -> Definition:
        """The workflow of a record. Raises Bad."""
        assert record.workflow is not None
        key = record.workflow, self._workflow_folder(record.tree)
        known = self._workflows.get(key)
        if known is None:
            try:
                workflow = parse_workflow(self._store.get(record.workflow).payload)
            except UwfError as error:
                raise Bad("missing-node", Oid(raw=record.oid), error.message) from None
            here = Threads(self._store).workflow_nodes(Oid(raw=record.tree))
            known = self._workflows[key] = Definition(record.workflow, workflow, here)
        return known

    def _workflow_folder(self, tree: bytes) -> bytes:
        row = row_of(self._objects, tree, "workflow")
        return row[2] if row is not None else b""

    def name_of(self, record: Record) -> str:
        """The name of a record's workflow. Raises Bad."""
        return self._definition(record).workflow.name

    # Starts

    def _start(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if len(commit.parents) != 1:
            raise Bad("wrong-parent", commit.oid, "a start has one parent, its workflow version")
        version = self._parent(commit, 0, ("workflow",))
        if version is None:
            return None
        also = {b"README.md": FILE}
        tree = grown(self._objects, commit.tree, version.tree, ("start",), report, also)
        files, here = self._folder(tree, "start/", node, commit, report)
        start = self._node(here, node, "start", commit)
        payload = parse_start(start.payload)
        for extra in here.keys() - {node}:
            report("extra-file", commit.oid, f"start/nodes/{extra}.json is not the StartNode")
        if payload.workflow != version.node:
            report(
                "wrong-chain",
                commit.oid,
                f"the StartNode uses workflow {payload.workflow}, its parent is {version.node}",
            )
        name = self.name_of(version)
        page = row_of(self._objects, commit.tree, "README.md")
        top = {"README.md": page[2]} if page and page[0] == FILE else {}
        self._page(top, "", views.thread_readme(payload.prompt, name), commit, report)
        self._page(files, "start/", views.start_readme(payload.prompt), commit, report)
        self._message(commit, layout.start_message(name, payload.prompt, node), report)
        self._starts[node] = payload
        return Record(
            commit.oid.raw,
            "start",
            node,
            commit.tree,
            start=node,
            workflow=version.node,
            before=version.oid,
            row=_row(commit, "start", node)._replace(start=node, workflow=version.node, name=name),
        )

    def _start_of(self, start: Hash) -> Start:
        known = self._starts.get(start)
        if known is None:
            known = self._starts[start] = parse_start(self.nodes.get(start).payload)
        return known

    # Steps

    def _step(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        before = self._parent(commit, 0, ("start", "step"))
        if before is None:
            return None
        number = before.number + 1
        name = self._new_folder(commit.tree, ("steps",), number, commit)
        files, here = self._folder(name.tree, name.path, node, commit, report)
        made = parse_step(self._node(here, node, "step", commit).payload)
        folders = layout.step_folder(number, made.role)
        grown(self._objects, commit.tree, before.tree, folders, report)
        self._check_chain(commit, made, before, report)

        definition = self._definition(before)
        past = self._past
        past.go_to(before, self.known)
        if node in past.hashes:
            raise Bad("wrong-chain", commit.oid, f"step {node} is in the thread already")
        base = definition.nodes | {made.start}
        here = {name: each for name, each in here.items() if name not in base and name not in past.hashes}

        def elsewhere(target: Hash) -> bool:
            return target in base or target in past.hashes or self._in_earlier(before, target)

        reached = self.nodes.closure(node, here, elsewhere, report, commit.oid)
        for extra in node_files(files, "").keys() - reached:
            report("extra-file", commit.oid, f"{name.path}nodes/{extra}.json is not what the step adds")

        output, detail = self._content(here, made.output), self._content(here, made.detail)
        decided = before.decided
        if decided:
            decided = self._check_turn(commit, made, before, output, detail, report)
        page = views.answer_of(output.payload, detail.type, detail.payload).encode("utf-8")
        self._page(files, name.path, page, commit, report)
        extraction = detail.payload["extraction"] if is_kind(detail.type, "detail") else ""
        texts = (
            layout.step_message(number, node, made.role, made.agent, verdict, extraction)
            for verdict in layout.summaries(output.payload)
        )
        plain = layout.step_message(number, node, made.role, made.agent, "", extraction)
        self._message(commit, next(texts, plain), report, *texts)
        self._check_merge(commit, made, detail, report)
        context = StepContext(node, made.role, output.payload, made.detail, made.agent)
        row = _row(commit, "step", node)._replace(
            start=made.start,
            workflow=before.workflow,
            name=definition.workflow.name,
            role=made.role,
            number=number,
            asks=asks_human(output.payload),
        )
        return Record(
            commit.oid.raw,
            "step",
            node,
            commit.tree,
            before=before.oid,
            number=number,
            start=before.start,
            workflow=before.workflow,
            step=context,
            decided=decided,
            row=row,
        )

    def _check_chain(self, commit: CommitObject, made: Step, before: Record, report: Report) -> None:
        if made.start != before.start:
            report("wrong-chain", commit.oid, f"start is {made.start}, that of the thread is {before.start}")
        prev = before.node if before.kind == "step" else None
        if made.prev != prev:
            report("wrong-chain", commit.oid, f"prev is {made.prev}, the commit before records {before.node}")

    def _check_turn(
        self, commit: CommitObject, made: Step, before: Record, output: Node, detail: Node, report: Report
    ) -> bool:
        """The moderator's word on a step. Returns False where it has none."""
        decision = self.decision(before)
        if isinstance(decision, str):
            report("no-decision", commit.oid, f"nobody can be next: {decision}")
            return False
        if isinstance(decision, Ended):
            report("after-end", commit.oid, f"{made.role} made a step after the workflow had ended")
            return True
        role = USER if isinstance(decision, Asking) else decision.role
        if made.role != role:
            report("wrong-role", commit.oid, f"{made.role} made the step that the workflow called {role} for")
            return True
        if isinstance(decision, Asking):
            allowed: tuple[Hash, ...] = (ANSWER,)
        else:
            allowed = (self._definition(before).workflow.roles[role].schema, QUESTION)
        if output.type not in allowed:
            report(
                "wrong-output", commit.oid, f"output {made.output} is of type {output.type}, not of {role}'s"
            )
        self._check_detail(commit, detail, decision, before, report)
        return True

    def _check_detail(
        self, commit: CommitObject, detail: Node, decision: Decision, before: Record, report: Report
    ) -> None:
        """What a detail says of the prompt must be so; that it says nothing is allowed."""
        if not is_kind(detail.type, "detail"):
            return
        said, context = detail.payload["instruction"], detail.payload["context"]
        expected = decision.instruction if isinstance(decision, Next) else None
        if said is not None and not is_instruction(said, expected, detail.payload.get("redactions", 0)):
            report("wrong-detail", commit.oid, "the detail's instruction is not the one of the workflow")
        if context is not None and context != before.node:
            report(
                "wrong-detail", commit.oid, f"the detail's context is {context}, the head was {before.node}"
            )

    def _check_merge(self, commit: CommitObject, made: Step, detail: Node, report: Report) -> None:
        if not is_kind(detail.type, "step"):
            if len(commit.parents) != 1:
                report("wrong-parent", commit.oid, "a step has one parent, but for one of a sub-workflow")
            return
        if len(commit.parents) != 2:
            report(
                "wrong-parent", commit.oid, "a step of a sub-workflow has that thread as its second parent"
            )
            return
        other = self._parent(commit, 1, ("step",))
        if other is not None and other.node != made.detail:
            report("wrong-parent", commit.oid, f"the second parent records {other.node}, not {made.detail}")

    def decision(self, head: Record) -> Decision | str:
        """Who is next at a start or step, or why nobody can be. Raises Bad."""
        known = self._decisions.get(head.oid)
        if known is None:
            assert head.start is not None
            self._past.go_to(head, self.known)
            try:
                known = self._past.decide(self._definition(head).workflow, self._start_of(head.start))
            except UwfError as error:
                known = error.message
            if len(self._decisions) >= 1024:
                self._decisions.clear()
            self._decisions[head.oid] = known
        return known

    # Attempts

    def _attempt(self, commit: CommitObject, node: Hash, report: Report) -> Record | None:
        if not 1 <= len(commit.parents) <= 2:
            raise Bad("wrong-parent", commit.oid, "an attempt has one parent or two")
        first = self._parent(commit, 0, ("attempt", "start", "step"))
        if first is None:
            return None
        before = first if first.kind == "attempt" else None
        if before is None and len(commit.parents) == 2:
            raise Bad("wrong-parent", commit.oid, "the first of an attempt's two parents is an attempt")
        head = self._parent(commit, 1, ("start", "step")) if len(commit.parents) == 2 else first
        if head is before:
            head = self._head_of(before)
        if head is None:
            return None
        number = before.number + 1 if before is not None else 1
        name = self._new_folder(commit.tree, ("attempts",), number, commit)
        files, here = self._folder(name.tree, name.path, node, commit, report)
        payload = self._node(here, node, "attempt", commit).payload
        self._attempt_tree(commit, head, before, layout.attempt_folder(number, payload["role"]), report)
        prev = head.node if head.kind == "step" else None
        if (payload["start"], payload["prev"]) != (head.start, prev):
            report("wrong-chain", commit.oid, f"attempt {node} was not made on the head {head.node}")

        definition = self._definition(head)
        past = self._past
        past.go_to(head, self.known)
        here = {each: content for each, content in here.items() if each not in past.hashes}
        here.pop(payload["start"], None)

        def elsewhere(target: Hash) -> bool:
            known = target in definition.nodes or target == payload["start"] or target in past.hashes
            return known or self._in_earlier(head, target)

        reached = self.nodes.closure(node, here, elsewhere, report, commit.oid)
        for extra in node_files(files, "").keys() - reached:
            report("extra-file", commit.oid, f"{name.path}nodes/{extra}.json is not what the attempt adds")
        detail = self._content(here, payload["detail"]) if payload["detail"] else None
        if head.decided:
            decision = self.decision(head)
            role = decision.role if isinstance(decision, Next) else None
            if role != payload["role"]:
                report(
                    "wrong-role", commit.oid, f"{payload['role']} tried, the workflow called {role} for it"
                )
            elif detail is not None:
                assert not isinstance(decision, str)
                self._check_detail(commit, detail, decision, head, report)
        answer = views.answer_of(None, detail.type, detail.payload) if detail is not None else None
        self._page(files, name.path, views.attempt_readme(payload, answer), commit, report)
        self._message(commit, layout.attempt_message(number, node, payload), report)
        return Record(
            commit.oid.raw,
            "attempt",
            node,
            commit.tree,
            before=before.oid if before is not None else None,
            head=head.oid,
            number=number,
            start=head.start,
            workflow=head.workflow,
            row=_row(commit, "attempt", node)._replace(start=payload["start"], role=payload["role"]),
        )

    def _head_of(self, attempt: Record | None) -> Record | None:
        """The head that an attempt was made on."""
        if attempt is None or attempt.head is None:
            return None
        if attempt.head not in self.known:
            self.known[attempt.head] = self.trust(Oid(raw=attempt.head))
        return self.known[attempt.head]

    def _attempt_tree(
        self,
        commit: CommitObject,
        head: Record,
        before: Record | None,
        folders: tuple[str, ...],
        report: Report,
    ) -> None:
        """An attempt's tree is the head's, with all attempts so far beside it."""
        attempts = grown(self._objects, commit.tree, head.tree, folders[:1], report)
        earlier = row_of(self._objects, before.tree, folders[0]) if before is not None else None
        grown(self._objects, attempts, earlier[2] if earlier else None, folders[1:], report)

    # Nodes put by hand

    def _pin(self, commit: CommitObject, node: Hash, report: Report) -> Record:
        if commit.parents:
            report("wrong-parent", commit.oid, "a commit that keeps a node has no parents")
        files = files_below(self._objects, commit.tree, "", report)
        blobs = node_files(files, "")
        here = read_all(self.nodes, blobs, report)
        if node not in here:
            raise Bad("missing-file", commit.oid, f"there is no sound nodes/{layout.node_file(node)}")
        reached = self.nodes.closure(node, here, lambda _: False, report, commit.oid)
        expected = {".gitattributes", *(f"nodes/{layout.node_file(each)}" for each in reached)}
        for path in files.keys() - expected:
            if path != ".gitattributes":
                report("extra-file", commit.oid, f"{path} is not reached by node {node}")
        attributes = files.get(".gitattributes")
        if attributes is None:
            report("missing-file", commit.oid, "there is no .gitattributes")
        elif self._objects.blob(attributes) != layout.GITATTRIBUTES:
            report("wrong-page", Oid(raw=attributes), ".gitattributes is not the one of the format")
        self._message(commit, layout.pin_message(node), report)
        return Record(commit.oid.raw, "pin", node, commit.tree, row=_row(commit, "pin", node))

    # What they have in common

    def _parent(self, commit: CommitObject, place: int, kinds: tuple[str, ...]) -> Record | None:
        if len(commit.parents) <= place:
            raise Bad("wrong-parent", commit.oid, f"commit {commit.oid} has no parent to go on from")
        oid = commit.parents[place]
        record = self.known.get(oid.raw)
        if record is not None and record.kind not in kinds:
            raise Bad(
                "wrong-parent",
                commit.oid,
                f"parent {oid} records a {record.kind}, not a {' or '.join(kinds)}",
            )
        return record

    def _new_folder(
        self, tree: bytes, folders: tuple[str, ...], number: int, commit: CommitObject
    ) -> _Folder:
        """The folder that begins with a step's or attempt's number."""
        if folders == ("steps",) and number >= 100:
            folders = layout.step_folder(number, "role")[:-1]
        for folder in folders:
            row = row_of(self._objects, tree, folder)
            if row is None or row[0] != FOLDER:
                raise Bad("missing-file", commit.oid, f"there is no {folder}, which the record adds to")
            tree = row[2]
        prefix = f"{number:04d}-".encode()
        rows = [row for row in self._objects.tree(tree) if row[1].startswith(prefix)]
        if len(rows) != 1 or rows[0][0] != FOLDER:
            raise Bad(
                "missing-file", commit.oid, f"there is not one folder {'/'.join(folders)}/{number:04d}-…"
            )
        try:
            name = rows[0][1].decode("utf-8")
        except UnicodeDecodeError:
            raise Bad(
                "unsafe-name", commit.oid, f"folder {number:04d} has a name that is not UTF-8"
            ) from None
        return _Folder("/".join((*folders, name)) + "/", rows[0][2])

    def _folder(
        self, tree: bytes, path: str, node: Hash, commit: CommitObject, report: Report
    ) -> tuple[dict[str, bytes], dict[Hash, Node]]:
        """The files of a record's folder, and its nodes. Reports what else is in it."""
        files = files_below(self._objects, tree, path, report)
        blobs = node_files(files, "")
        names = {"README.md", *(f"nodes/{layout.node_file(each)}" for each in blobs)}
        for extra in files.keys() - names:
            report("extra-file", commit.oid, f"{path}{extra} does not belong to the record")
        if node not in blobs:
            raise Bad("missing-file", commit.oid, f"there is no {path}nodes/{layout.node_file(node)}")
        return files, read_all(self.nodes, blobs, report)

    def _node(self, here: Mapping[Hash, Node], node: Hash, kind: str, commit: CommitObject) -> Node:
        content = here.get(node)
        if content is None:
            raise Bad("missing-node", commit.oid, f"node {node} can't be read")
        if not is_kind(content.type, kind):
            raise Bad("wrong-kind", commit.oid, f"node {node} is of type {content.type}, no {kind}")
        return content

    def _content(self, here: Mapping[Hash, Node], node: Hash) -> Node:
        return here[node] if node in here else self.nodes.get(node)

    def _page(
        self, files: Mapping[str, bytes], path: str, expected: bytes, commit: CommitObject, report: Report
    ) -> None:
        blob = files.get("README.md")
        if blob is None:
            report("missing-file", commit.oid, f"there is no {path}README.md")
        elif self._objects.blob(blob) != expected:
            report("wrong-page", Oid(raw=blob), f"{path}README.md is not what the nodes say")

    def _message(self, commit: CommitObject, expected: str, report: Report, *others: str) -> None:
        if commit.message not in (expected, *others):
            subject = layout.one_line(commit.message.split("\n", 1)[0], 80)
            report("wrong-message", commit.oid, f"the message is not what the nodes say: {subject!r}")

    def _in_earlier(self, head: Record, node: Hash) -> bool:
        """Whether a step's folder in the tree of a head has a node."""
        return node in self._past.earlier(head, self._objects)


def _row(commit: CommitObject, kind: str, node: Hash) -> CommitRow:
    parent = commit.parents[0].raw if commit.parents else None
    return CommitRow(commit.oid.raw, kind, node, parent, None, None, None, None, 0, False, commit.time)


class _Folder(NamedTuple):
    path: str
    tree: bytes
