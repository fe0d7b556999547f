"""Adding a source's steps to a thread: each becomes a StepNode with an output of the role's schema and a
detail that names its origin, and the moderator is asked as usual. Nodes already of our types stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.ext.importers.intake import Intake, stamp
from uwf_git.ext.importers.steps import DetailContents, OldStep, read_detail
from uwf_git.ext.importers.workflows import Version
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import Detail, Step, StepContext, asks_human
from uwf_git.format.statuses import SUSPEND
from uwf_git.format.types import (
    ANSWER,
    DETAIL,
    END,
    FAIL,
    IMPORTED_DETAIL,
    PERSON,
    QUESTION,
    RESULT,
    STEPNODE,
    TURN,
    USER,
    is_kind,
)
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.workflow.moderator import (
    AwaitingAnswer,
    DecidedByCode,
    Decision,
    Next,
    Replay,
    WorkflowEnded,
    decide,
)

EXTRACTION = "imported"
_UNANSWERED = "(it went on without an answer)"


class Run:
    """A thread at a head. `done` counts the source's steps in it; `decision` is the moderator's, or None;
    `strayed` is the first unexpected step; `filed` are nodes in its folders. `child` returns the last commit
    of a sub-workflow's thread."""

    def __init__(
        self, intake: Intake, version: Version, head: Head, done: int, child: Callable[[Hash], Oid]
    ) -> None:
        history = intake.threads.history(head)
        self.head = head
        self.version = version
        self.done = done
        self.decision: Decision | None = None
        self.strayed = ""
        self._intake = intake
        self._child = child
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
        found = {*self._intake.threads.workflow_nodes(tree), self._start_hash}
        steps = repository.file(tree, "steps")
        found.update(_nodes_below(repository.tree, steps) if steps is not None else ())
        return found

    def _decide(self) -> None:
        self.decision = None
        if self._lost:
            return
        try:
            workflow = self.version.compiled.workflow
            self.decision = decide(workflow, self._start, self._steps, self._replay)
        except UwfError as error:
            self._lost = True
            self.strayed = self.strayed or f"after step {len(self._steps)}: {error.message}"

    def _look_at_rounds(self, source: str, role: str) -> None:
        if isinstance(self.decision, DecidedByCode) and self.decision.rounds == 0 and role not in (USER, END):
            self._stray(f"step {source} comes after all rounds of maxRounds")

    @property
    def _then(self) -> str | None:
        if isinstance(self.decision, Next):
            return self.decision.role
        if isinstance(self.decision, WorkflowEnded):
            return FAIL if self.decision.failed else END
        return None

    def add(self, node: Hash, old: OldStep, when: int) -> None:
        """Add a source's step of a time in Unix milliseconds. Raises Invalid."""
        role = old.step.role
        if isinstance(self.decision, AwaitingAnswer) and role != USER:
            self._answer(old.prompt, when)
        if isinstance(self.decision, Next) and self.decision.role != role:
            self._stray(f"step {node} is {role}'s, where its workflow calls for {self.decision.role}")
        elif isinstance(self.decision, WorkflowEnded):
            self._stray(f"step {node} comes after its workflow's end")
        self._look_at_rounds(node, role)
        output = self._output(node, role, old.step.output)
        detail, extraction, merge = self._detail(node, old, when)
        self._append(Step(*self._place, role, output, detail, old.step.agent), when, extraction, merge)

    def add_said(self, role: str, output: Any, answer: str, agent: str, source: str, when: int) -> None:
        """Add a step known only by output and text. Raises Invalid."""
        store, redact = self._intake.store, self._intake.instance.redactor
        self._look_at_rounds(source, role)
        known = self.version.compiled.workflow.roles.get(role)
        if known is None and role != END:
            raise Invalid(f"its workflow has no role {role}")
        type_ = RESULT if known is None else known.schema
        value, in_output = redact.value(output)
        if problems := store.problems(type_, value):
            raise Invalid(f"the output of {role} breaks its schema: {problems[0]}")
        text, in_answer = redact.text(answer)
        found = {"output": in_output, "answer": in_answer}
        told = Detail(
            text,
            context=self.head.node,
            extraction=EXTRACTION,
            source=source,
            redactions=tuple((where, count) for where, count in found.items() if count),
        )
        made = store.put(type_, value, when)
        detail = store.put(IMPORTED_DETAIL, told.payload(), when)
        self._append(Step(*self._place, role, made, detail, agent), when, EXTRACTION, None)

    def _stray(self, what: str) -> None:
        self.strayed = self.strayed or what

    @property
    def _place(self) -> tuple[Hash, Hash | None]:
        return self._start_hash, self._steps[-1].hash if self._steps else None

    def _answer(self, text: str, when: int) -> None:
        """Add an answer between a question and the asker's next turn; older programs stored it as an
        instruction."""
        text = self._intake.instance.redactor.text(text)[0] if text.strip() else _UNANSWERED
        store, told = self._intake.store, Detail(text)
        output = store.put(ANSWER, {"answer": text}, when)
        detail = store.put(DETAIL, told.payload(), when)
        self._append(Step(*self._place, USER, output, detail, PERSON), when, told.extraction, None)

    def _append(self, step: Step, when: int, extraction: str, merge: Oid | None) -> None:
        store = self._intake.store
        node = store.put(STEPNODE, step.payload(), when)
        if node in self._hashes:
            raise Invalid(f"step {node} is in it twice")
        self._hashes.add(node)
        output = store.get(step.output).payload
        self._steps.append(StepContext(node, step.role, output, step.detail, step.agent))
        self._decide()
        files, at = self._files(node), stamp(when)
        self.head = self._intake.threads.extend(self.head, node, files, at, merge, extraction, self._then)

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

    def _output(self, node: Hash, role: str, hash_: Hash) -> Hash:
        """Return a step's output, converted to the role's type; an invalid question becomes the reserved one."""
        store, known = self._intake.store, self.version.compiled.workflow.roles.get(role)
        old = self._intake.old(hash_, f"step {node} has the output")
        payload = old.payload
        if self._intake.originals.take(hash_) is not None:
            payload, _ = self._intake.instance.redactor.value(payload)
        elif (
            old.type in (QUESTION, ANSWER)
            or (role == END and old.type == RESULT)
            or (known is not None and old.type == known.schema)
        ):
            return hash_
        problems = store.problems(known.schema, payload) if known is not None else []
        if known is not None and not problems:
            return store.put(known.schema, payload, old.timestamp)
        if asks_human(payload):
            return store.put(QUESTION, _question(payload), old.timestamp)
        if known is None:
            raise Invalid(f"step {node}: its workflow has no role {role}")
        raise Invalid(f"step {node}: its output breaks the schema of {role}: {problems[0]}")

    def _detail(self, node: Hash, old: OldStep, when: int) -> tuple[Hash, str, Oid | None]:
        kept, originals = old.step.detail, self._intake.originals
        try:
            detail = self._intake.nodes.get(kept)
        except UwfError:
            detail = None
        if is_kind(self._intake.nodes.get(node).type, "step"):
            if detail is not None and originals.take(kept) is None:
                if is_kind(detail.type, "step"):
                    return kept, "", self._child(kept)
                known = self._intake.store.detail(kept)
                return kept, known.extraction if known else "", None
        else:
            self._intake.extras.update(f"StepNode.{name}" for name in old.extras)
        said = DetailContents() if detail is None else read_detail(detail, self._intake.nodes.get)
        problem = originals.take(node)
        if problem is None:
            return self._imported(node, old, said, (node,), (), when), EXTRACTION, None
        parts = dict.fromkeys((old.step.output, kept))
        nodes = tuple(each for each in parts if originals.take(each) is None)
        notes = (f"its own StepNode {node} did not come along: {problem}",)
        return self._imported(node, old, said, nodes, notes, when), EXTRACTION, None

    def _imported(
        self,
        node: Hash,
        old: OldStep,
        said: DetailContents,
        nodes: tuple[Hash, ...],
        notes: tuple[str, ...],
        when: int,
    ) -> Hash:
        # Kept nodes have no secrets.
        redact = self._intake.instance.redactor.value if notes else _as_it_is
        answer, in_answer = redact(said.answer)
        redactions = {"answer": in_answer}
        turns = []
        for number, turn in enumerate(said.turns, 1):
            payload, redactions[f"turn {number}"] = redact(turn.payload())
            turns.append(self._intake.store.put(TURN, payload, when))
        instruction = self.decision.instruction if isinstance(self.decision, Next) else None
        made = Detail(
            answer=answer,
            turns=tuple(turns),
            session=said.session,
            model=said.model,
            usage=old.usage or said.usage,
            duration_ms=old.duration or said.duration,
            instruction=instruction if instruction == old.prompt else None,
            context=self.head.node,
            extraction=EXTRACTION,
            cost=said.cost,
            notes=notes,
            redactions=tuple((where, count) for where, count in redactions.items() if count),
            source=node,
            nodes=nodes,
        )
        return self._intake.store.put(IMPORTED_DETAIL, made.payload(), when)


def _as_it_is(value: Any) -> tuple[Any, int]:
    return value, 0


def _question(payload: dict[str, Any]) -> dict[str, Any]:
    question, reason = payload.get("question"), payload.get("reason")
    if not isinstance(question, str) or not question:
        question = reason if isinstance(reason, str) and reason else "It waits for you."
        reason = None
    made: dict[str, Any] = {"question": question}
    if payload.get("$status") == SUSPEND:
        made["$status"] = SUSPEND
    else:
        made["status"] = "needs_input"
    if isinstance(reason, str):
        made["reason"] = reason
    options = payload.get("options")
    if isinstance(options, list):
        made["options"] = [str(each) for each in options]
    return made


def _nodes_below(tree: Callable[[Oid], Any], root: Oid) -> Iterator[Hash]:
    pending = [root]
    while pending:
        for entry in tree(pending.pop()):
            if entry.is_tree:
                pending.append(entry.oid)
            elif node := layout.node_in_path(f"nodes/{entry.name}"):
                yield node
