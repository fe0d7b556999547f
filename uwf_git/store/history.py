"""A thread's past: its head, its history, and how two histories relate.

A Head costs no node to read; a History is everything up to it; a Position is both, for a step. A step may
have been committed twice, on two machines, so histories are compared by nodes, not commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import HeadMoved, Invalid, StoreDamaged
from uwf_git.format.casting import cast_of
from uwf_git.format.credit import Credit
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.format.kinds import (
    Start,
    Step,
    StepContext,
    Workflow,
    answer_in,
    parse_step,
    parse_workflow,
    split_remarks,
)
from uwf_git.format.types import CODE, HAS_CAST, OF_BRANCH, WITH_PEOPLE, is_kind
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import TAG, Oid
from uwf_git.store import layout
from uwf_git.workflow.turn import begins_threads

if TYPE_CHECKING:
    from uwf_git.format.casting import Cast, CastRole
    from uwf_git.format.kinds import Attempt
    from uwf_git.format.origins import ThreadOrigin
    from uwf_git.store.index import ArchiveRow, CommitRow
    from uwf_git.store.indexing import Store


_HISTORIES = 16  # threads whose histories are kept in memory


class Head(NamedTuple):
    """A thread's head. `row` is the record of its last commit; `archive` is None while the thread is active.
    `forked` is the Unix time at which an active thread without later steps was forked, else 0."""

    thread: ThreadId
    commit: Oid
    row: CommitRow
    archive: ArchiveRow | None
    forked: int = 0

    @property
    def node(self) -> Hash:
        """The StepNode's hash, or the StartNode's before the first step."""
        return self.row.node

    @property
    def waits_for_join(self) -> bool:
        """Whether the thread stands between a fork and its join."""
        return self.archive is None and begins_threads(self.row.role)

    @property
    def updated(self) -> int:
        """The Unix time of the last step, fork or end."""
        return self.archive.time if self.archive else max(self.row.time, self.forked)


class History(NamedTuple):
    """A thread up to a head, the input of moderator and agents. `head` is the last StepNode's hash, or the
    StartNode's; steps are oldest first."""

    thread: ThreadId
    head: Hash
    start_hash: Hash
    start: Start
    workflow_hash: Hash
    workflow: Workflow
    steps: tuple[StepContext, ...]

    @property
    def prev(self) -> Hash | None:
        """The `prev` of the next StepNode."""
        return self.steps[-1].hash if self.steps else None

    @property
    def places(self) -> frozenset[Hash | None]:
        """The `prev` of all attempts at the next step, which remarks don't change."""
        heard, remarks = split_remarks(self.steps)
        base = heard[-1].hash if heard else None
        return frozenset((base, *(step.hash for step in self.steps[len(self.steps) - len(remarks) :])))

    def up_to(self, prev: Hash | None) -> History:
        """Return the history up to the step `prev`, None for the start."""
        hashes = [None, *(step.hash for step in self.steps)]
        number = hashes.index(prev)
        return self._replace(head=prev or self.start_hash, steps=self.steps[:number])

    @property
    def cast(self) -> Cast:
        return cast_of(self.workflow, self.start)

    def after(self, step: StepContext) -> History:
        """Return the history with one more step."""
        return self._replace(head=step.hash, steps=(*self.steps, step))


class Position(NamedTuple):
    """A head and its history, read once for a step."""

    head: Head
    history: History

    def after(self, head: Head, step: StepContext) -> Position:
        """Return the position one step later."""
        return Position(head, self.history.after(step))


class PastStep(NamedTuple):
    """A StepNode in a head's past. `time` is in Unix milliseconds."""

    hash: Hash
    step: Step
    time: int


class ConcurrentCommit(HeadMoved):
    """Another step was committed first. `commit` is ours, without a ref."""

    def __init__(self, thread: ThreadId, commit: Oid) -> None:
        super().__init__(f"thread {thread} moved on while its step was made", "look at it, then step again")
        self.commit = commit


class Histories:
    """Reads the histories of a store's threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[ThreadId, History] = {}  # those that were read last

    def position(self, head: Head) -> Position:
        """Return a head with its history. Raises as `past` does."""
        return Position(head, self.history(head))

    def history(self, head: Head) -> History:
        """Return the history of a head. Raises as `past` does."""
        return self.history_at(head.thread, head.node)

    def history_at(self, thread: ThreadId, node: Hash) -> History:
        """Return the history of a StepNode or StartNode, as that of `thread`. Raises as `past` does."""
        known = self._histories.pop(thread, None)
        if known is None or known.head != node:
            known = self._continued(known, node) or self._read(thread, node)
        while len(self._histories) >= _HISTORIES:
            self._histories.pop(next(iter(self._histories)), None)
        self._histories[thread] = known
        return known

    def _continued(self, known: History | None, node: Hash) -> History | None:
        """Return the history of a StepNode that is the next one after a history, else None."""
        if known is None or not is_kind(self._store.get(node).type, "step"):
            return None
        step = self._store.step(node)
        if (step.start, step.prev) != (known.start_hash, known.prev):
            return None
        return known.after(self.context(node, known.workflow))

    def _read(self, thread: ThreadId, node: Hash) -> History:
        past = list(self.past(node))
        start_hash = past[-1].step.start if past else node
        start = self._store.start(start_hash)
        workflow = parse_workflow(self._store.get(start.workflow).payload)
        steps = tuple(self._context(step, workflow, start) for step in reversed(past))
        return History(thread, node, start_hash, start, start.workflow, workflow, steps)

    def context(self, node: Hash, workflow: Workflow) -> StepContext:
        """Return a StepNode as a workflow's moderator sees it, whether or not a thread has it."""
        content = self._store.get(node)
        past = PastStep(node, parse_step(content.payload), content.timestamp)
        return self._context(past, workflow, self._store.start(past.step.start))

    def _context(self, past: PastStep, workflow: Workflow, start: Start) -> StepContext:
        node, step, time = past
        answer = None
        if workflow.needs_answers:
            detail = self._store.get(step.detail)
            answer = answer_in(detail.type, detail.payload)
        output = self._store.get(step.output).payload
        credit = cast_of(workflow, start).role(step.role).credit(step.agent)
        return step.context(node, output, credit, answer, time)

    def cast_role(self, start: Hash, role: str) -> CastRole | None:
        """Return a role as a thread with this StartNode casts it, None in a workflow without personas, which isn't
        read."""
        began = self._store.start(start)
        if not self.has_cast(began.workflow):
            return None
        return cast_of(parse_workflow(self._store.get(began.workflow).payload), began).role(role)

    def has_cast(self, workflow: Hash) -> bool:
        """Return whether a workflow has personas, without reading it."""
        return self._store.index.has_trait(workflow, HAS_CAST)

    def has_people(self, workflow: Hash | None) -> bool:
        """Return whether a workflow has roles that people play, without reading it."""
        return workflow is not None and self._store.index.has_trait(workflow, WITH_PEOPLE)

    def is_code(self, workflow: Hash | None) -> bool:
        """Return whether a workflow is code, without reading it."""
        return self._store.index.is_of_type(workflow, CODE)

    def credit(self, record: Step | Attempt) -> Credit:
        """Return who made a step or an attempt."""
        cast = self.cast_role(record.start, record.role)
        return cast.credit(record.agent) if cast is not None else Credit(record.agent)

    def past(self, node: Hash) -> Iterator[PastStep]:
        """Yield the StepNodes from one back to the first, newest first. Raises StoreDamaged if a `prev` is a
        StartNode, Invalid for a node that is not a step."""
        later: Hash | None = None
        at: Hash | None = node
        while at is not None:
            content = self._store.get(at)
            if is_kind(content.type, "start"):
                if later is None:
                    return
                raise StoreDamaged(f"step {later} names a StartNode as its prev", "see: uwf doctor")
            if not is_kind(content.type, "step"):
                self._store.require_known_type(at, content, "start", "step")
                raise Invalid(f"node {at} is not a step", "see the hashes with: uwf thread steps ID")
            step = parse_step(content.payload)
            yield PastStep(at, step, content.timestamp)
            later, at = at, step.prev

    def answer(self, step: StepContext) -> str:
        """Return the agent's verbatim answer; the output as JSON if the step's detail doesn't have it."""
        from uwf_git.store.pages import answer_of

        detail = self._store.get(step.detail)
        return answer_of(step.output, detail.type, detail.payload)


def branch_of(store: Store, start: Hash | None) -> ThreadOrigin | None:
    """Return the branch that a StartNode begins, None for a thread that is none."""
    return store.start(start).branch if start and is_branch(store, start) else None


def call_of(store: Store, start: Hash | None) -> ThreadOrigin | None:
    """Return the call of code, or run of edited code, that a StartNode begins, None for another thread."""
    return store.start(start).call if start and is_branch(store, start) else None


def is_call(store: Store, start: Hash | None) -> bool:
    """Return whether the thread of a StartNode is that of a call."""
    call = call_of(store, start)
    return call is not None and call.is_call


def is_branch(store: Store, start: Hash) -> bool:
    """Return whether a StartNode is that of a branch or a call."""
    return store.index.has_trait(start, OF_BRANCH)


def ancestry(store: Store, commit: Oid) -> Iterator[CommitRow]:
    """Yield the records of a commit and its first parents, newest first: steps, start, then workflow
    versions. Raises StoreDamaged."""
    row = store.index_commit(commit)
    while True:
        yield row
        if row.parent is None:
            return
        row = store.index_commit(Oid(raw=row.parent))


def start_of(store: Store, commit: Oid) -> CommitRow:
    """Return the record of the start of the thread that has a commit. Raises StoreDamaged."""
    return next(row for row in ancestry(store, commit) if row.kind == "start")


class LogEntry(NamedTuple):
    """A commit for people. `kind` and `node` are its record's, `author` a name, `time` Unix seconds."""

    commit: str
    kind: str
    node: Hash
    subject: str
    author: str
    time: int


def log(store: Store, head: Head) -> Iterator[LogEntry]:
    """Yield a thread's commits, newest first; the last is the workflow version it started with."""
    for row in ancestry(store, head.commit):
        commit = store.repository.commit(Oid(raw=row.oid))
        subject, author = commit.message.split("\n", 1)[0], commit.author.rsplit(" <", 1)[0]
        yield LogEntry(row.oid.hex(), row.kind, row.node, subject, author, commit.time)
        if row.kind not in ("step", "start"):
            return


def shared_steps(one: History, other: History) -> int:
    """Return how many first steps two threads share."""
    number = 0
    for mine, theirs in zip(one.steps, other.steps, strict=False):
        if mine.hash != theirs.hash:
            break
        number += 1
    return number


class Relation(NamedTuple):
    """Two histories of one thread. `ours` and `theirs` are the commits of only one side, oldest first. `base`
    and `our_base` are the last common step's commits on their and our side, which differ if it was committed
    twice."""

    base: Oid
    our_base: Oid
    ours: tuple[CommitRow, ...]
    theirs: tuple[CommitRow, ...]

    @property
    def same_commits(self) -> bool:
        """Whether the shared part has the same commits."""
        return self.base == self.our_base


def relate(store: Store, ours: Oid, theirs: Oid) -> Relation | None:
    """Return the relation of two heads, None if they share no beginning. Raises StoreDamaged."""
    mine, other = _Walk(store, ours), _Walk(store, theirs)
    while mine.row.number > other.row.number:
        mine.back()
    while other.row.number > mine.row.number:
        other.back()
    while mine.row.node != other.row.node:
        if mine.row.kind != "step" or other.row.kind != "step":
            return None
        mine.back()
        other.back()
    return Relation(
        Oid(raw=other.row.oid), Oid(raw=mine.row.oid), tuple(mine.passed[::-1]), tuple(other.passed[::-1])
    )


class _Walk:
    """A position in a thread's ancestry, with the rows passed."""

    def __init__(self, store: Store, head: Oid) -> None:
        self._rows = ancestry(store, head)
        self.row = next(self._rows)
        self.passed: list[CommitRow] = []

    def back(self) -> None:
        self.passed.append(self.row)
        self.row = next(self._rows)


class Link(NamedTuple):
    """A thread's origin: the thread that it diverged or was forked from, and the last commit they share. A
    `forked` one says `by` whom (name and address) and when (Unix seconds)."""

    thread: ThreadId
    origin: ThreadId
    base: Oid
    forked: bool
    by: str
    time: int


def link_of(store: Store, thread: ThreadId) -> Link | None:
    """Return a thread's link to its origin, None if not recorded."""
    tag = store.repository.ref(layout.FORKS + thread)
    if tag is not None:
        return _link(store, thread, tag)
    row = store.folded(thread)
    return parse_link(thread, row.fork) if row is not None and row.fork else None


def forked_at(store: Store, thread: ThreadId) -> int:
    """Return the Unix time at which an active thread was forked, 0 if it was not, or the record is damaged."""
    with contextlib.suppress(StoreDamaged):
        tag = store.repository.ref(layout.FORKS + thread)
        link = _link(store, thread, tag) if tag is not None else None
        return link.time if link is not None and link.forked else 0
    return 0


def parted_from(store: Store, thread: ThreadId) -> Link | None:
    """Return a thread's link to the thread it diverged from, else None."""
    link = link_of(store, thread)
    return link if link is not None and not link.forked else None


def may_have_parted(thread: ThreadId, origin: ThreadId) -> bool:
    """Return whether a thread is another, or can be what a divergence from it became, by its id (`fork_id`)."""
    return thread[:10] == origin[:10]


def links(store: Store) -> dict[ThreadId, Link]:
    """Return all links. Damaged ones are omitted."""
    links: dict[ThreadId, Link] = {}
    for thread, raw in store.folded_forks().items():
        if link := parse_link(thread, raw):
            links[thread] = link
    for name, oid in sorted(store.repository.refs(layout.FORKS).items()):
        with contextlib.suppress(StoreDamaged):
            if link := _link(store, ThreadId(name.removeprefix(layout.FORKS)), oid):
                links[link.thread] = link
    return links


def parted(store: Store, thread: ThreadId) -> list[Link]:
    """Return the links of the threads that diverged from a thread, by id."""
    links = (
        _link(store, ThreadId(name.removeprefix(layout.FORKS)), oid)
        for name, oid in sorted(store.repository.refs(layout.FORKS).items())
    )
    return [link for link in links if link is not None and link.origin == thread and not link.forked]


def own_forks(origins: Mapping[ThreadId, Set[ThreadId]]) -> set[ThreadId]:
    """Return the threads that are forks of their own forks. `origins` are the claimed origins of each; with
    several, threads between two cycles count too."""
    threads: dict[ThreadId, set[ThreadId]] = {}
    for thread, among in origins.items():
        for origin in among:
            threads.setdefault(origin, set()).add(thread)
    return _after_circles(origins) & _after_circles(threads)


def _after_circles(graph: Mapping[ThreadId, Set[ThreadId]]) -> set[ThreadId]:
    from graphlib import CycleError, TopologicalSorter

    sorter = TopologicalSorter(graph)
    with contextlib.suppress(CycleError):
        sorter.prepare()
    threads = {*graph, *(thread for among in graph.values() for thread in among)}
    while ready := sorter.get_ready():
        threads.difference_update(ready)
        sorter.done(*ready)
    return threads


def tagged_commit(store: Store, tag: Oid) -> Oid | None:
    """Return the commit of an archive or fork tag, None if the tag is unreadable."""
    try:
        kind, data = store.repository.read(tag)
        return parse_tag(data).target if kind == TAG else None
    except (StoreDamaged, ValueError, LookupError, OverflowError):
        return None


def _link(store: Store, thread: ThreadId, tag: Oid) -> Link | None:
    kind, data = store.repository.read(tag)
    return parse_link(thread, data) if kind == TAG and is_thread_id(thread) else None


def parse_link(thread: ThreadId, raw: bytes) -> Link | None:
    """Parse the content of a fork tag, None if it isn't one."""
    try:
        tag = parse_tag(raw)
        origin = layout.fork_origin(tag.message)
        if origin is None:
            return None
        return Link(thread, origin, tag.target, layout.is_forked(tag.message), tag.tagger, tag.time)
    except (ValueError, LookupError, OverflowError):
        return None
