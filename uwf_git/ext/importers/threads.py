"""Importing threads: followed from heads to starts, made or continued, and ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.ext.importers.intake import GROWN, HERE, IMPORTER, NEW, ImportedThread, Intake, stamp
from uwf_git.ext.importers.run import Run
from uwf_git.ext.importers.steps import OldStep, read_start, read_step
from uwf_git.ext.importers.storage import OldThread
from uwf_git.ext.importers.workflows import Version, Workflows
from uwf_git.plugin import (
    Hash,
    Head,
    Invalid,
    NotFound,
    StartNode,
    ThreadId,
    UwfError,
    WorkflowEnded,
    endings,
    is_kind,
    layout,
    parse_step,
    tag_text,
)

_BOTH = "to have both, import into a root of its own (uwf --root DIR import …), and pull from its store"


class Turn(NamedTuple):
    """A source's step and its StepNode, written at a time in Unix milliseconds."""

    source: Hash
    step: OldStep
    when: int


class SourceThread(NamedTuple):
    """A source's thread: version, prompt, start in Unix milliseconds, and steps, oldest first."""

    version: Version
    prompt: str
    began: int
    turns: Sequence[Turn]


class Threads:
    """Imports threads."""

    def __init__(self, intake: Intake, workflows: Workflows) -> None:
        self._intake = intake
        self._workflows = workflows
        self.taken: list[ImportedThread] = []

    def take(self, old: OldThread) -> None:
        """Import a thread, or note why not."""
        try:
            self.taken.append(self._take(old, self._past(old.head)))
        except UwfError as error:
            self._intake.refuse("thread", old.id, error.message)
        self._intake.rest()

    def _take(self, old: OldThread, past: SourceThread) -> ImportedThread:
        here = self._here(old.id)
        run = self._begun(old.id, past) if here is None else self._gone_on(here, past)
        done = run.done
        # If the thread continued here beyond the source, that counts.
        last = past.turns[-1].source if past.turns else None
        went_on = here is not None and done == len(past.turns) and self._source_of(here.node) != last
        for turn in past.turns[done:]:
            run.add(turn.source, turn.step, turn.when)
            run.done += 1
        self._intake.originals.hold(run.filed)
        added = run.done - done
        if run.strayed and added:
            self._warn(old.id, f"{run.strayed}; uwf verify will say so")
        archived = here.archive if here is not None else None
        if added and archived is not None:
            raise Invalid(f"it ended here and continued there; {_BOTH}")
        if here is None:
            self._intake.refs[layout.THREADS + old.id] = run.head.commit
        elif added:
            self._intake.moves.append((layout.THREADS + old.id, here.commit, run.head.commit))
        status = archived.status if archived is not None else None
        state = NEW if here is None else GROWN if added else HERE
        if archived is None and not went_on and old.has_ended:
            status = endings.COMPLETED if isinstance(run.decision, WorkflowEnded) else endings.KILLED
            self._end(old, run, status)
            state = GROWN if state == HERE else state
        name = run.version.compiled.workflow.name
        return ImportedThread(old.id, name, len(past.turns), added, status or "active", state)

    def _warn(self, thread: ThreadId, text: str) -> None:
        self._intake.warnings.append((thread, text))

    # In the source

    def _past(self, head: Hash) -> SourceThread:
        intake = self._intake
        turns: list[Turn] = []
        seen: set[Hash] = set()
        start: Hash | None = None
        at: Hash | None = head
        while at is not None:
            content = intake.old(at, f"step {turns[-1].source} comes after" if turns else "its head is")
            if not turns and read_start(content.payload) is not None:
                start = at
                break
            if at in seen:
                raise Invalid(f"its steps form a cycle at {at}")
            seen.add(at)
            try:
                step = read_step(content.payload)
            except Invalid as error:
                raise Invalid(f"node {at} {error.message}") from None
            if start is not None and step.step.start != start:
                raise Invalid(f"step {at} has another start than step {turns[-1].source}")
            turns.append(Turn(at, step, content.timestamp))
            start, at = step.step.start, step.step.prev
        assert start is not None
        content = intake.old(start, "its start is")
        beginning = read_start(content.payload)
        if beginning is None:
            raise Invalid(f"node {start}, its start, is not a StartNode")
        intake.extras.update(f"StartNode.{name}" for name in beginning.extras)
        version = self._workflows.version(beginning.workflow)
        return SourceThread(version, beginning.prompt, content.timestamp, turns[::-1])

    # Here

    def _here(self, thread: ThreadId) -> Head | None:
        if self._intake.repository.ref(layout.REMOVED + thread) is not None:
            raise Invalid(f"it was removed here; restore it with: uwf thread restore {thread}")
        try:
            return self._intake.instance.threads.head(thread)
        except NotFound:
            return None

    def _begun(self, thread: ThreadId, past: SourceThread) -> Run:
        intake = self._intake
        prompt, _ = intake.instance.redactor.text(past.prompt)
        type_, payload = StartNode(past.version.compiled.hash, prompt).typed_payload()
        node = intake.store.put(type_, payload, past.began)
        # It names no thread, so that threads with a past in common share its commits.
        commit = intake.threads.begin(past.version.commit, node, None, stamp(past.began))
        head = Head(thread, commit, intake.store.index_commit(commit), None)
        return Run(intake, past.version, head, 0)

    def _gone_on(self, here: Head, past: SourceThread) -> Run:
        history = self._intake.instance.threads.history(here)
        prompt, _ = self._intake.instance.redactor.text(past.prompt)
        sources = [self._source_of(step.hash) for step in history.steps]
        imported = [source for source in sources if source is not None]
        there = [turn.source for turn in past.turns]
        both = min(len(imported), len(there))
        if history.start.prompt != prompt:
            raise Invalid("another thread with its id is here already")
        ours_last = bool(sources) and sources[-1] is None
        if imported[:both] != there[:both] or (len(there) > both and ours_last):
            raise Invalid(f"it continued here and there; {_BOTH}")
        return Run(self._intake, past.version, here, both)

    def _source_of(self, node: Hash) -> str | None:
        content = self._intake.instance.store.get(node)
        if not is_kind(content.type, "step"):
            return None
        detail = self._intake.instance.store.detail(parse_step(content.payload).detail)
        return detail.source if detail is not None else None

    def _end(self, old: OldThread, run: Run, status: str) -> None:
        head, ended = run.head, run.decision
        when = old.when // 1000 or head.row.time
        reason = ended.reason if isinstance(ended, WorkflowEnded) else ""
        name, text = layout.tag_name(old.id), layout.end_message(status, reason)
        tag = tag_text(name, head.commit, IMPORTER, when, text, utc=True)
        self._intake.refs[layout.ARCHIVE + old.id] = self._intake.repository.write_raw_tag(tag)
        self._intake.refs.pop(layout.THREADS + old.id, None)
