"""The threads of a source: followed from their heads to their starts, made anew or gone on with, and ended where they
had ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.errors import Invalid, NotFound, UwfError
from uwf_git.git.objects import tag_text
from uwf_git.git.repository import Oid
from uwf_git.migration.intake import IMPORTER, Intake, stamp
from uwf_git.migration.result import GROWN, HERE, NEW, TakenThread
from uwf_git.migration.run import Run
from uwf_git.migration.steps import OldStart, OldStep, read_start, read_step
from uwf_git.migration.storage import COMPLETED, KILLED, OldThread
from uwf_git.migration.workflows import Workflows
from uwf_git.store import layout
from uwf_git.store.threads import Head
from uwf_git.values.ids import Hash, ThreadId
from uwf_git.values.kinds import parse_start, parse_step
from uwf_git.values.types import is_kind, start_node
from uwf_git.workflow.moderator import Ended


class _Chain(NamedTuple):
    """A thread of the source: its StartNode, and its steps, oldest first, each with its time in Unix milliseconds."""

    start: Hash
    said: OldStart
    steps: list[tuple[Hash, OldStep, int]]


class Threads:
    """Takes threads in. `taken` are those that came along."""

    def __init__(self, intake: Intake, workflows: Workflows, every: Mapping[ThreadId, OldThread]) -> None:
        self._intake = intake
        self._workflows = workflows
        self._every = every
        self._done: dict[ThreadId, TakenThread | None] = {}

    @property
    def taken(self) -> tuple[TakenThread, ...]:
        """Those that came along, or were here already."""
        return tuple(each for _, each in sorted(self._done.items()) if each is not None)

    def take(self, old: OldThread) -> None:
        """Takes a thread, or notes why it can't be taken. Taking it again changes nothing."""
        if old.id in self._done:
            return
        self._done[old.id] = None
        try:
            self._done[old.id] = self._take(old)
        except UwfError as error:
            self._intake.refuse("thread", old.id, error.message)
        self._intake.rest()

    def _take(self, old: OldThread) -> TakenThread:
        here = self._here(old.id)
        chain = self._chain(old.head)
        run = self._begun(old.id, chain) if here is None else self._gone_on(here, chain)
        # Where a thread here went on after what the source has, that counts.
        has_all = run.done == len(chain.steps) and here is not None
        went_on = has_all and self._source_of(run.head.node) not in (old.head, None)
        done = run.done
        for node, step, when in chain.steps[done:]:
            run.add(node, step, when)
        if run.strayed and run.done > done:
            self._warn(old.id, f"{run.strayed}; uwf verify will say so")
        self._intake.originals.hold(run.filed)
        added = run.done - done
        archived = here.archive if here is not None else None
        if added and archived is not None:
            raise Invalid("it has ended here, and went on there")
        if here is None:
            self._intake.refs[layout.THREADS + old.id] = run.head.commit
        elif added:
            self._intake.moves.append((layout.THREADS + old.id, here.commit, run.head.commit))
        status = archived.status if archived is not None else None
        state = NEW if here is None else GROWN if added else HERE
        if archived is None and not went_on and (status := self._status(old, run)) is not None:
            self._end(old, run.head, status)
            state = GROWN if state == HERE else state
        name = run.version.compiled.workflow.name
        return TakenThread(old.id, name, len(chain.steps), added, status or "active", state)

    def _warn(self, thread: ThreadId, text: str) -> None:
        self._intake.warnings.append((thread, text))

    # In the source

    def _chain(self, head: Hash) -> _Chain:
        """A thread of the source by its head. Raises Invalid for one that can't be followed to its start."""
        steps: list[tuple[Hash, OldStep, int]] = []
        seen: set[Hash] = set()
        at: Hash | None = head
        while at is not None:
            content = self._intake.old(at, f"step {steps[-1][0]} comes after" if steps else "its head is")
            if not steps and (said := read_start(content.payload)) is not None:
                return _Chain(at, said, [])
            if at in seen:
                raise Invalid(f"its steps go round in a circle at {at}")
            seen.add(at)
            try:
                step = read_step(content.payload)
            except Invalid as error:
                raise Invalid(f"node {at} {error.message}") from None
            steps.append((at, step, content.timestamp))
            at = step.step.prev
        start = steps[-1][1].step.start
        if other := next((node for node, step, _ in steps if step.step.start != start), None):
            raise Invalid(f"step {other} has another start than the first one")
        said = read_start(self._intake.old(start, "its start is").payload)
        if said is None:
            raise Invalid(f"node {start}, its start, is no StartNode")
        return _Chain(start, said, steps[::-1])

    def _status(self, old: OldThread, run: Run) -> str | None:
        """How a thread ended; None while it is active. The oldest program didn't say, so the workflow decides."""
        if old.ended is None:
            return None
        if isinstance(run.decision, Ended):
            return old.ended or COMPLETED
        if old.ended == COMPLETED:
            self._warn(old.id, "it had ended where its workflow goes on, and counts as killed")
        return KILLED

    # Here

    def _here(self, thread: ThreadId) -> Head | None:
        if self._intake.repository.ref(layout.REMOVED + thread) is not None:
            raise Invalid(f"it was removed here; bring it back with: uwf thread restore {thread}")
        try:
            return self._intake.instance.threads.head(thread)
        except NotFound:
            return None

    def _begun(self, thread: ThreadId, chain: _Chain) -> Run:
        """A thread without steps, for those of the source."""
        intake = self._intake
        content = intake.old(chain.start, "its start is")
        version = self._workflows.version(chain.said.workflow)
        if not is_kind(content.type, "start"):
            intake.extras.update(f"StartNode.{name}" for name in chain.said.extras)
        prompt, _ = intake.instance.redactor.text(chain.said.prompt)
        type_, payload = start_node(version.compiled.hash, prompt, chain.said.budget)
        node = intake.store.put(type_, payload, content.timestamp)
        commit = intake.threads.begin(version.commit, node, stamp(content.timestamp))
        head = Head(thread, commit, intake.store.take_in(commit), None)
        return Run(intake, version, head, 0, self._child)

    def _gone_on(self, here: Head, chain: _Chain) -> Run:
        """A thread that is here, and how much of the source's it has. Raises Invalid for another thread."""
        history = self._intake.instance.threads.history(here)
        prompt, _ = self._intake.instance.redactor.text(chain.said.prompt)
        sources = [self._source_of(step.hash) for step in history.steps]
        known = [node for node in sources if node is not None]
        there = [node for node, _, _ in chain.steps]
        both = min(len(known), len(there))
        if parse_start(self._intake.instance.store.get(history.start_hash).payload).prompt != prompt:
            raise Invalid("another thread with its id is here already")
        if known[:both] != there[:both]:
            raise Invalid("it went on here and there")
        if len(there) > both and sources and sources[-1] is None:
            raise Invalid("it went on here and there")
        return Run(self._intake, self._workflows.version(chain.said.workflow), here, both, self._child)

    def _source_of(self, node: Hash) -> Hash | None:
        """The step of the source that a step here was made from: itself, if the source has it; None for one of ours."""
        if node in self._intake.nodes:
            return node
        content = self._intake.instance.store.get(node)
        if not is_kind(content.type, "step"):
            return None
        detail = self._intake.instance.store.detail(parse_step(content.payload).detail)
        return Hash(detail.source) if detail is not None and detail.source else None

    def _child(self, step: Hash) -> Oid:
        """The last commit of the thread that did a step elsewhere, which is taken first. Raises NotFound."""
        for old in self._every.values():
            if old.head == step:
                self.take(old)
        return self._intake.threads.commit_of(step)

    def _end(self, old: OldThread, head: Head, status: str) -> None:
        """Archives a thread as it was archived there."""
        when = old.when // 1000 or head.row.time
        name, text = layout.tag_name(old.id), f"{status}\n"
        tag = tag_text(name, head.commit, IMPORTER, when, text, utc=True)
        self._intake.refs[layout.ARCHIVE + old.id] = self._intake.repository.write_raw_tag(tag)
        self._intake.refs.pop(layout.THREADS + old.id, None)
