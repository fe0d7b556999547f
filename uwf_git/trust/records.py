"""The records that rules of a policy are about: versions, starts, steps, answers of persons and ends of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.format.kinds import HUMAN, parse_workflow
from uwf_git.format.types import USER
from uwf_git.git.objects import is_signed, parse_commit, parse_tag
from uwf_git.git.repository import COMMIT, TAG, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.index import CommitRow
from uwf_git.store.indexing import Store
from uwf_git.trust.policy import ANSWERS, ENDS, STARTS, STEPS, Policy

SUBJECT_OF = {"workflow": "workflows", "crew": "crews", "suite": "suites", "baseline": "baselines"}
"""The subject of a rule, by the kind of record of a version."""

_MOST_FOREIGN = (
    10_000  # commits that are no records, through which records are looked for, as in a project's history
)

# What readers raise on objects that nobody has verified; `verify` names these.
UNREADABLE = (UwfError, ValueError, LookupError, TypeError, OverflowError)


class Record(NamedTuple):
    """A record. `subject`, `name` and `of` are those that `Rule.applies` takes. `ref` is one that leads to it,
    `thread` whose it is; `node` a commit's node; `time` what its maker says, in Unix seconds; `below` the commits that
    it stands on; `signed` whether it has a signature, valid or not; `maker` is its committer or tagger, `NAME <EMAIL>`.
    """

    object: Oid
    subject: str
    name: str
    of: tuple[str, ...]
    ref: str
    thread: ThreadId | None
    node: Hash | None
    time: int
    below: tuple[Oid, ...]
    signed: bool
    maker: str = ""

    @property
    def word(self) -> str:
        """The record in messages: `step 4KNM2PXR3B1QW`."""
        if self.of == (ENDS,):
            return f"the end of {self.thread}"
        singular = (self.of[0] if self.of else self.subject).removesuffix("s")
        return f"{singular} {self.node or self.name}"


def records(
    store: Store, refs: Mapping[str, Oid], is_known: Callable[[Oid], bool] = lambda _: False
) -> list[Record]:
    """Return the records that refs of any name lead to, each once, newest first, without those that are known and
    all below them. Unreadable ones are left to `verify`; the refs should be verified."""
    return list(_Walk(store, is_known).all(refs))


def step_of(role: str, agent: str, is_persons: bool) -> tuple[str, ...]:
    """Return the records of OF_THREADS that a step is. An answer at the role of an agent is a step too, since only its
    maker says that a person answered."""
    if role == USER or is_persons:
        return (ANSWERS,)
    return (STEPS, ANSWERS) if agent == HUMAN else (STEPS,)


def accepted_by(policy: Policy, repository: Repository) -> set[Oid]:
    """Return the tags and commits that a policy accepts, and those that they stand on. A tag may be in a fold only, and
    no object."""
    found: set[Oid] = set()
    pending = [Oid(hex=each) for each in policy.accepted]
    while pending:
        oid = pending.pop()
        if oid in found:
            continue
        found.add(oid)
        with suppress(*UNREADABLE):  # it may not be here
            kind, data = repository.read(oid)
            if kind == TAG:
                pending.append(parse_tag(data).target)
            elif kind == COMMIT:
                pending += parse_commit(data).parents
    return found


class _Walk:
    def __init__(self, store: Store, is_known: Callable[[Oid], bool]) -> None:
        self._store = store
        self._repository = store.repository
        self._is_known = is_known
        self._seen: set[bytes] = set()
        self._foreign = 0
        self._persons: dict[Hash, frozenset[str]] = {}

    def all(self, refs: Mapping[str, Oid]) -> Iterator[Record]:
        pending: list[tuple[Oid, str, ThreadId | None]] = []
        for ref, oid in sorted(refs.items(), reverse=True):
            kind = ref_kinds.kind_of(ref)
            if kind is not ref_kinds.TRUST:
                is_of_thread = kind is not None and kind.of_thread
                last = ref.rpartition("/")[2]
                is_published = ref == f"{layout.BRANCHES}threads/{last}" and is_thread_id(last)
                pending.append((oid, ref, ThreadId(last) if is_of_thread or is_published else None))
        while pending:
            oid, ref, thread = pending.pop()
            if oid.raw in self._seen or self._is_known(oid):
                continue
            self._seen.add(oid.raw)
            try:
                found = self._at(oid, ref, thread)
            except UNREADABLE:
                continue
            for record in found:
                if record.subject:
                    yield record
                of = record.thread if record.subject == "threads" else None
                pending += [(below, ref, of or thread) for below in reversed(record.below)]

    def _at(self, oid: Oid, ref: str, thread: ThreadId | None) -> list[Record]:
        kind, data = self._repository.read(oid)
        if kind == TAG:
            pointing = ref_kinds.kind_of(ref)
            tag = parse_tag(data)
            if pointing is None or pointing.target != "end" or thread is None:
                return [Record(oid, "", "", (), ref, thread, None, tag.time, (tag.target,), False)]
            return [self._end(oid, ref, thread, data)]
        if kind != COMMIT:
            return []
        commit = self._repository.commit(oid)
        if layout.folded_month(commit.message) is not None:
            return self._folded(oid, ref)
        if layout.parse_message(commit.message) is None:  # such as a merge of a forge
            self._foreign += 1
            parents = commit.parents if self._foreign < _MOST_FOREIGN else ()
            return [Record(oid, "", "", (), ref, thread, None, commit.time, parents, False)]
        row = self._store.index_commit(oid)
        shared = ref_kinds.kind_of_record(row.kind)
        most = shared.record_parents if shared is not None else None
        below = commit.parents[:most]
        is_of_thread = row.kind in ("start", "step")
        subject = "threads" if is_of_thread else SUBJECT_OF.get(row.kind, "")
        of: tuple[str, ...] = (STARTS,) if row.kind == "start" else self._step(row) if is_of_thread else ()
        owner = thread if is_of_thread else None
        return [
            Record(
                oid,
                subject,
                row.name or "",
                of,
                ref,
                owner,
                row.node,
                commit.time,
                below,
                is_signed(data),
                commit.committer,
            )
        ]

    def _step(self, row: CommitRow) -> tuple[str, ...]:
        return step_of(row.role or "", row.agent or "", (row.role or "") in self._played(row))

    def _played(self, row: CommitRow) -> frozenset[str]:
        """Return the roles that persons play in a step's workflow."""
        node = row.workflow
        if node is None:
            return frozenset()
        if node not in self._persons:
            workflow = parse_workflow(self._store.get(node).payload)
            self._persons[node] = frozenset(filter(workflow.is_persons, workflow.roles))
        return self._persons[node]

    def _end(self, oid: Oid, ref: str, thread: ThreadId, data: bytes) -> Record:
        tag = parse_tag(data)
        name = self._store.index_commit(tag.target).name or ""
        return Record(
            oid,
            "threads",
            name,
            (ENDS,),
            ref,
            thread,
            None,
            tag.time,
            (tag.target,),
            is_signed(data),
            tag.tagger,
        )

    def _folded(self, oid: Oid, ref: str) -> list[Record]:
        """Return the ends in a fold. Signed ones become objects again, which git can verify."""
        found = []
        for entry in archives.read(self._repository, oid).threads.values():
            if entry.tag.raw in self._seen or self._is_known(entry.tag):
                continue
            self._seen.add(entry.tag.raw)
            if is_signed(entry.raw) and not self._repository.has(entry.tag):
                self._repository.write_raw_tag(entry.raw)
            found.append(self._end(entry.tag, ref, entry.thread, entry.raw))
        return found
