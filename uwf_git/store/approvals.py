"""Approvals before their step: `refs/uwf/approvals/<ULID>`, a commit for each, made by its person.

    approvals/<hash>/README.md   the approval for people
    approvals/<hash>/nodes/      the Approval or Revocation node, and what it adds to the thread's nodes

A commit's last parent is the head that it is bound to; the first of two is the approval before, on this machine. Two
sides are united by a commit with both as its parents, so that both keep their signatures. The step that was approved
has the newest of them as its second parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from uwf_git.base.errors import HeadMoved
from uwf_git.format.approvals import Approval, Revocation, parse_approval, parse_revocation
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.format.node import Node
from uwf_git.format.types import APPROVAL, PERSON, REVOCATION, is_kind
from uwf_git.git.objects import clean
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Position
from uwf_git.store.index import CommitRow
from uwf_git.store.nodes import UnionSet

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store

_TRIES = 10


class ApprovalRecord(NamedTuple):
    """A recorded Approval or Revocation: its node, its commit, and the committer and Unix time of that. `head` is the
    head commit that it is bound to, `since` that one's Unix time; `depth` the number of commits on the longest way
    from it to the first."""

    hash: Hash
    commit: Oid
    committer: str
    time: int
    said: Approval | Revocation
    head: Oid
    since: int
    depth: int = 0

    @property
    def order(self) -> tuple[int, int, Hash]:
        """Sorts records: what stands on another is later, else what has the later time."""
        return self.depth, self.time, self.hash


class ApprovalLink(NamedTuple):
    """A commit on `refs/uwf/approvals/`: its node, its parents, its committer and Unix time, and the Unix time of its
    last parent."""

    node: Hash
    parents: tuple[Oid, ...]
    committer: str
    time: int
    since: int


def parse_said(content: Node) -> Approval | Revocation:
    """Parse an Approval or Revocation node."""
    is_approval = is_kind(content.type, "approval")
    return parse_approval(content.payload) if is_approval else parse_revocation(content.payload)


def records_up_to(
    tip: Oid,
    link: Callable[[Oid], ApprovalLink | None],
    said_of: Callable[[Hash], Approval | Revocation],
) -> list[ApprovalRecord]:
    """Return the approvals that a commit leads to, in their order. `link` returns None for a commit of another kind.
    A commit with two approvals as its parents unites them, and is none itself."""
    links: dict[Oid, tuple[ApprovalLink, list[Oid]]] = {}
    depths: dict[Oid, int] = {}
    pending = [tip]
    while pending:
        oid = pending[-1]
        if oid in depths:
            pending.pop()
            continue
        if oid not in links:
            found = link(oid)
            if found is None:
                depths[oid] = -1
                continue
            links[oid] = found, []
            pending += found.parents
            continue
        before = [each for each in links[oid][0].parents if depths[each] >= 0]
        links[oid][1].extend(before)
        depths[oid] = 1 + max((depths[each] for each in before), default=-1)
    records = [
        ApprovalRecord(
            found.node,
            oid,
            found.committer,
            found.time,
            said_of(found.node),
            found.parents[-1],
            found.since,
            depths[oid],
        )
        for oid, (found, before) in links.items()
        if len(before) < 2
    ]
    return sorted(records, key=lambda each: each.order)


class LinkedCommit(Protocol):
    """A commit, as far as `authors_of` reads it."""

    @property
    def parents(self) -> Sequence[Oid]: ...

    @property
    def committer(self) -> str: ...


class Approvals:
    """The approvals of a store's threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._repository = store.repository

    def tip(self, thread: ThreadId) -> Oid | None:
        """Return the commit of a thread's newest approval."""
        return self._repository.ref(layout.APPROVALS + thread)

    def all(self, thread: ThreadId) -> list[ApprovalRecord]:
        """Return a thread's approvals and revocations in their order."""
        tip = self.tip(thread)
        return self.up_to(tip) if tip is not None else []

    def up_to(self, tip: Oid) -> list[ApprovalRecord]:
        """Return the approvals that a commit leads to. Raises StoreDamaged."""

        def link(oid: Oid) -> ApprovalLink | None:
            row = self._store.index_commit(oid)
            if row.kind != "approval":
                return None
            commit = self._repository.commit(oid)
            since = self._store.index_commit(commit.parents[-1]).time
            return ApprovalLink(row.node, commit.parents, commit.committer, commit.time, since)

        return records_up_to(tip, link, lambda node: parse_said(self._store.get(node)))

    def record(
        self, at: Position, said: Approval | Revocation, check: Callable[[ApprovalRecord], None]
    ) -> ApprovalRecord:
        """Commit an approval or a revocation of one, if `check` doesn't raise. Moves `refs/uwf/approvals/<ULID>`.
        Raises SigningFailed, HeadMoved if it keeps moving."""
        head, ref = at.head, layout.APPROVALS + at.head.thread
        if isinstance(said, Approval):
            said = said._replace(digest=said.shown.digest)
        known = {step.hash for step in at.history.steps} | {at.history.start_hash}
        for _ in range(_TRIES):
            tip = self._repository.ref(ref)
            with self._store.together():
                kind = APPROVAL if isinstance(said, Approval) else REVOCATION
                node = self._store.put(kind, said.payload())
                commit = self._commit(head, node, said, tip, known)
            self._store.index_commit(commit)
            made = self._repository.commit(commit)
            before = self.up_to(tip) if tip is not None else []
            depth = 1 + max((each.depth for each in before), default=-1)
            record = ApprovalRecord(
                node, commit, made.committer, made.time, said, head.commit, head.row.time, depth
            )
            check(record)
            try:
                self._repository.put_ref(ref, tip, commit)
            except HeadMoved:
                continue
            self._store.moved(ref, commit, commit)
            return record
        raise HeadMoved(f"{ref} moves too often to add an approval", "repeat")

    def _commit(
        self, head: Head, node: Hash, said: Approval | Revocation, tip: Oid | None, known: set[Hash]
    ) -> Oid:
        from uwf_git.store.threads import Threads

        repository = self._repository
        shared = Threads(self._store).workflow_nodes(repository.commit(head.commit).tree)
        stop = UnionSet(shared, known)
        if isinstance(said, Revocation):
            stop = UnionSet(shared, known, {said.approval})
        files: dict[str, bytes | Oid] = dict(self._store.files(node, stop))
        files["README.md"], text = self._told(node, said)
        before = repository.commit(tip).tree if tip is not None else None
        if before is None:
            before = repository.write_folder({".gitattributes": layout.GITATTRIBUTES})
        folder = repository.write_folder(files)
        tree = repository.graft(before, layout.approval_folder(node), folder)
        parents = [head.commit] if tip is None else [tip, head.commit]
        return repository.write_commit(tree, parents, repository.user, text, said.at)

    def _told(self, node: Hash, said: Approval | Revocation) -> tuple[bytes, str]:
        from uwf_git.store import pages

        if isinstance(said, Revocation):
            return pages.revocation_page(said), layout.revocation_message(node, said.approval)
        output = self._store.get(said.output).payload
        message = layout.approval_message(node, said.role, pages.verdict(output))
        return pages.approval_page(said, output), message


def authors_of(
    head: CommitRow,
    row_of: Callable[[bytes], CommitRow | None],
    commit_of: Callable[[Oid], LinkedCommit | None],
    is_gate: Callable[[Hash, str], bool],
) -> tuple[tuple[Oid, str], ...]:
    """Return the commits of those who made any part of what is judged at a head, with their committers: of starts, of
    the steps of agents, and of the steps of persons whose role, of a workflow, is no gate. Parts are all that the head
    stands on: its thread and that one's origin, sub-workflows, branches of a fan-out, calls of code. Without its
    commit, a record has no known author. This is the one place that says who made a thread."""
    authors: dict[Oid, str] = {}
    seen = {head.oid}
    pending: list[CommitRow] = [head]
    while pending:
        row = pending.pop()
        if row.kind not in ("start", "step", "part"):
            continue
        oid = Oid(raw=row.oid)
        commit = commit_of(oid)
        if commit is not None and (row.kind == "start" or (row.kind == "step" and _makes(row, is_gate))):
            authors[oid] = commit.committer
        parents = [parent.raw for parent in commit.parents] if commit is not None else [row.parent]
        for parent in parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                if (below := row_of(parent)) is not None:
                    pending.append(below)
    return tuple(authors.items())


def _makes(row: CommitRow, is_gate: Callable[[Hash, str], bool]) -> bool:
    if row.agent == PERSON or row.workflow is None:
        return False
    return row.agent != HUMAN or not is_gate(row.workflow, row.role or "")


def now() -> int:
    """Return the time of an approval that is made now."""
    return int(time.time())


def ident(said: Approval | Revocation) -> str:
    """Return the committer that an approval's commit must have."""
    return f"{clean(said.by.name)} <{clean(said.by.email)}>"
