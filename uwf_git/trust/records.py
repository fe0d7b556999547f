"""The records that rules of a policy are about: versions, and of threads starts, steps, answers and approvals of
persons, ends, pauses, failed attempts and forks. The table of kinds of refs says what rules call those of a kind
(`RefKind.rule`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from uwf_git.base.errors import UwfError
from uwf_git.base.extensions import RefKind
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.format.kinds import parse_workflow
from uwf_git.git.objects import id_of, is_signed, parse_commit, parse_tag
from uwf_git.git.repository import COMMIT, TAG, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.index import CommitRow
from uwf_git.store.indexing import Store
from uwf_git.store.new_record import ENDS, FORKS, STARTS, step_of
from uwf_git.trust.policy import Policy

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
        if self.subject == "threads" and self.node is None:
            return f"the {self.of[0].removesuffix('s')} of {self.thread}"
        singular = (self.of[0] if self.of else self.subject).removesuffix("s")
        return f"{singular} {self.node or self.name}"


def records(
    store: Store, refs: Mapping[str, Oid], is_known: Callable[[Oid], bool] = lambda _: False
) -> list[Record]:
    """Return the records that refs of any name lead to, each once, newest first, without those that are known and
    all below them. Unreadable ones are left to `verify`; the refs should be verified."""
    return list(_Walk(store, is_known).all(refs))


def accepted_by(policy: Policy, repository: Repository) -> set[Oid]:
    """Return the tags and commits that a policy accepts, and those that they stand on. A tag may be in a fold only, and
    no object."""
    oids: set[Oid] = set()
    pending = [Oid(hex=item) for item in policy.accepted]
    while pending:
        oid = pending.pop()
        if oid in oids:
            continue
        oids.add(oid)
        with suppress(*UNREADABLE):  # it may not be here
            kind, data = repository.read(oid)
            if kind == TAG:
                pending.append(parse_tag(data).target)
            elif kind == COMMIT:
                pending += parse_commit(data).parents
    return oids


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
                records = self._at(oid, ref, thread)
            except UNREADABLE:
                continue
            for record in records:
                if record.subject:
                    yield record
                of = record.thread if record.subject == "threads" else None
                pending += [(below, ref, of or thread) for below in reversed(record.below)]

    def _at(self, oid: Oid, ref: str, thread: ThreadId | None) -> list[Record]:
        kind, data = self._repository.read(oid)
        if kind == TAG:
            pointing = ref_kinds.kind_of(ref)
            if pointing is None or not pointing.rule or thread is None:
                tag = parse_tag(data)
                return [Record(oid, "", "", (), ref, thread, None, tag.time, (tag.target,), False)]
            return [self._tag(oid, ref, thread, data, pointing.rule)]
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
        subject, of = self._called(row, shared, commit.parents)
        name = row.name or (
            "" if shared is None or not shared.of_thread else self._name_at(commit.parents[-1])
        )
        return [
            Record(
                oid,
                subject,
                name,
                of,
                ref,
                thread if subject == "threads" else None,
                row.node,
                commit.time,
                below,
                is_signed(data),
                commit.committer,
            )
        ]

    def _called(
        self, row: CommitRow, shared: RefKind | None, parents: tuple[Oid, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """Return the subject of rules about a record, and what they call it: "" and none if no rule is."""
        if row.kind in ("start", "step"):
            return "threads", (STARTS,) if row.kind == "start" else self._step(row)
        if shared is None or not shared.of_thread:
            return shared.rule if shared is not None else "", ()
        is_union = shared.settle == "grow" and self._store.index_commit(parents[-1]).kind == row.kind
        return ("", ()) if is_union else ("threads", (shared.rule,))  # nobody makes a union of two sides

    def _name_at(self, oid: Oid) -> str:
        """Return the name of the workflow of a record of a thread, through the attempts below it."""
        while True:
            row = self._store.index_commit(oid)
            if row.kind in ("start", "step"):
                return row.name or ""
            oid = self._repository.commit(oid).parents[-1]

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

    def _tag(self, oid: Oid, ref: str, thread: ThreadId, data: bytes, rule: str) -> Record:
        tag = parse_tag(data)
        name = self._store.index_commit(tag.target).name or ""
        # Every machine writes the same tag for a divergence, whose id follows from it: it is nobody's word.
        is_derived = rule == FORKS and data == layout.derived_fork(
            thread, tag.message, tag.target, self._repository.commit(tag.target).time
        )
        subject, of = ("", ()) if is_derived else ("threads", (rule,))
        signed = is_signed(data)
        return Record(oid, subject, name, of, ref, thread, None, tag.time, (tag.target,), signed, tag.tagger)

    def _folded(self, oid: Oid, ref: str) -> list[Record]:
        """Return the ends and forks in a fold, and lead to its failed attempts. Signed tags become objects again,
        which git can verify."""
        records = []
        for entry in archives.read(self._repository, oid).threads.values():
            tags = [(entry.tag, entry.raw, ENDS)]
            if entry.fork is not None:
                tags.append((id_of(TAG, entry.fork), entry.fork, FORKS))
            for tag, raw, rule in tags:
                if tag.raw in self._seen or self._is_known(tag):
                    continue
                self._seen.add(tag.raw)
                if is_signed(raw) and not self._repository.has(tag):
                    self._repository.write_raw_tag(raw)
                records.append(self._tag(tag, ref, entry.thread, raw, rule))
            if entry.attempts is not None:
                beside = Record(
                    entry.attempts, "", "", (), ref, entry.thread, None, 0, (entry.attempts,), False
                )
                records.append(beside)
        return records
