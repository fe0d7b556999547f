"""Adding a source's steps to a thread: each becomes a StepNode with an output of the role's schema and a
detail that names its origin, and the moderator is asked as usual."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from uwf_git.ext.importers.intake import Intake, stamp
from uwf_git.ext.importers.steps import DetailContents, OldStep, read_detail
from uwf_git.ext.importers.workflows import Version
from uwf_git.plugin import (
    END,
    STEPNODE,
    Decision,
    Detail,
    Hash,
    Head,
    Invalid,
    Next,
    Oid,
    Replay,
    Step,
    StepContext,
    UwfError,
    WorkflowEnded,
    decide_turn,
    layout,
)

EXTRACTION = "imported"


class Run:
    """A thread at a head. `done` counts the source's steps in it; `decision` is the moderator's, or None;
    `strayed` is the first unexpected step; `filed` are nodes in its folders."""

    def __init__(self, intake: Intake, version: Version, head: Head, done: int) -> None:
        history = intake.threads.history(head)
        self.head = head
        self.version = version
        self.done = done
        self.decision: Decision | None = None
        self.strayed = ""
        self._intake = intake
        self._start_hash = history.start_hash
        self._start = history.start
        self._steps = list(history.steps)
        self._hashes = {step.hash for step in history.steps}
        self.filed = self._in_folders()
        self._replay = Replay(version.compiled.workflow, history.start, self._steps)
        self._lost = False
        self._decide()

    def _in_folders(self) -> set[Hash]:
        repository = self._intake.repository
        tree = repository.root(self.head.commit)
        nodes = {*self._intake.threads.workflow_nodes(tree), self._start_hash}
        steps = repository.file(tree, "steps")
        nodes.update(_nodes_below(repository.tree, steps) if steps is not None else ())
        return nodes

    def _decide(self) -> None:
        self.decision = None
        if self._lost:
            return
        try:
            workflow = self.version.compiled.workflow
            self.decision = decide_turn(workflow, self._start, self._steps, self._replay)
        except UwfError as error:
            self._lost = True
            self.strayed = self.strayed or f"after step {len(self._steps)}: {error.message}"

    @property
    def _then(self) -> str | None:
        if isinstance(self.decision, Next):
            return self.decision.role
        return END if isinstance(self.decision, WorkflowEnded) else None

    def add(self, node: Hash, old: OldStep, when: int) -> None:
        """Add a source's step of a time in Unix milliseconds. Raises Invalid."""
        role = old.step.role
        if isinstance(self.decision, Next) and self.decision.role != role:
            self._stray(f"step {node} is {role}'s, where its workflow calls for {self.decision.role}")
        elif isinstance(self.decision, WorkflowEnded):
            self._stray(f"step {node} comes after its workflow's end")
        output = self._output(node, role, old.step.output)
        detail = self._detail(node, old, when)
        previous = self._steps[-1].hash if self._steps else None
        self._append(Step(self._start_hash, previous, role, output, detail, old.step.agent), when)

    def _stray(self, what: str) -> None:
        self.strayed = self.strayed or what

    def _append(self, step: Step, when: int) -> None:
        store = self._intake.store
        node = store.put(STEPNODE, step.payload(), when)
        if node in self._hashes:
            raise Invalid(f"step {node} is in it twice")
        self._hashes.add(node)
        output = store.get(step.output).payload
        self._steps.append(StepContext(node, step.role, output, step.detail, step.agent))
        self._decide()
        files, at = self._files(node), stamp(when)
        self.head = self._intake.threads.extend(self.head, node, files, at, None, EXTRACTION, self._then)

    def _files(self, root: Hash) -> dict[str, bytes | Oid]:
        store = self._intake.store
        files: dict[str, bytes | Oid] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if node in self.filed:
                continue
            self.filed.add(node)
            files[layout.node_file(node)] = store.blob_of(node)
            reached = self._intake.originals.reached(node)
            if reached is None:
                content = store.get(node)
                reached = (content.type, *store.references(content))
            pending += reached
        return files

    # Its parts

    def _output(self, node: Hash, role: str, output: Hash) -> Hash:
        """Return a step's output, converted to the role's type."""
        definition = self.version.compiled.workflow.roles.get(role)
        if definition is None:
            raise Invalid(f"step {node}: its workflow has no role {role}")
        store = self._intake.store
        old = self._intake.old(output, f"step {node} has the output")
        payload = old.payload
        if self._intake.originals.take(output) is not None:
            payload, _ = self._intake.instance.redactor.value(payload)
        if problems := store.problems(definition.schema, payload):
            raise Invalid(f"step {node}: its output breaks the schema of {role}: {problems[0]}")
        return store.put(definition.schema, payload, old.timestamp)

    def _detail(self, node: Hash, old: OldStep, when: int) -> Hash:
        kept, originals = old.step.detail, self._intake.originals
        self._intake.extras.update(f"StepNode.{name}" for name in old.extras)
        try:
            contents = read_detail(self._intake.nodes.get(kept), self._intake.nodes.get)
        except UwfError:
            contents = DetailContents()
        problem = originals.take(node)
        if problem is None:
            return self._imported(node, contents, (node,), (), when)
        nodes = tuple(part for part in dict.fromkeys((old.step.output, kept)) if originals.take(part) is None)
        notes = (f"its own StepNode {node} did not come along: {problem}",)
        return self._imported(node, contents, nodes, notes, when)

    def _imported(
        self,
        node: Hash,
        contents: DetailContents,
        nodes: tuple[Hash, ...],
        notes: tuple[str, ...],
        when: int,
    ) -> Hash:
        # Kept nodes have no secrets.
        redact = self._intake.instance.redactor.value if notes else _as_it_is
        answer, in_answer = redact(contents.answer)
        redactions = {"answer": in_answer}
        turns = []
        for number, turn in enumerate(contents.turns, 1):
            payload, redactions[f"turn {number}"] = redact(turn.payload())
            turns.append(self._intake.store.put(turn.type, payload, when))
        detail = Detail(
            answer=answer,
            turns=tuple(turns),
            session=contents.session,
            model=contents.model,
            usage=contents.usage,
            duration_ms=contents.duration,
            context=self.head.node,
            extraction=EXTRACTION,
            cost=contents.cost,
            notes=notes,
            redactions=tuple((where, count) for where, count in redactions.items() if count),
            source=node,
            nodes=nodes,
        )
        return self._intake.store.put(detail.type, detail.payload(), when)


def _as_it_is(value: Any) -> tuple[Any, int]:
    return value, 0


def _nodes_below(tree: Callable[[Oid], Any], root: Oid) -> Iterator[Hash]:
    pending = [root]
    while pending:
        for entry in tree(pending.pop()):
            if entry.is_tree:
                pending.append(entry.oid)
            elif node := layout.node_in_path(f"nodes/{entry.name}"):
                yield node
