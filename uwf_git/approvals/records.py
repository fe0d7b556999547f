"""Approvals before their step: `refs/uwf/approvals/<ULID>`, a commit for each, made by its person.

    approvals/<hash>/README.md   the approval for people
    approvals/<hash>/nodes/      the Approval or Revocation node, and what it adds to the thread's nodes

A commit's last parent is the head that it is bound to; the first of two is the approval before, on this machine. Two
sides are united by a commit with both as its parents, so that both keep their signatures. The step that was approved
has the newest of them as its second parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from uwf_git.base.errors import HeadMoved
from uwf_git.base.markdown import code, inline, output, quoted, table
from uwf_git.base.text import iso, one_line
from uwf_git.format.approvals import Approval, Revocation, parse_record
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import HUMAN
from uwf_git.format.types import APPROVAL, PERSON, REVOCATION
from uwf_git.git.objects import clean
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Position
from uwf_git.store.index import CommitRow
from uwf_git.store.nodes import UnionSet
from uwf_git.store.ref_kinds import APPROVALS

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store

_TRIES = 10
_Result = TypeVar("_Result")


class ApprovalRecord(NamedTuple):
    """A recorded Approval or Revocation: its node, its commit, and the committer and Unix time of that. `head` is the
    head commit that it is bound to, `since` that one's Unix time; `depth` the number of commits on the longest way
    from it to the first."""

    hash: Hash
    commit: Oid
    committer: str
    time: int
    content: Approval | Revocation
    head: Oid
    since: int
    depth: int = 0

    @property
    def order(self) -> tuple[int, int, Hash]:
        """Sorts records: what stands on another is later, else what has the later time."""
        return self.depth, self.time, self.hash


class LinkedCommit(Protocol):
    """A commit, as far as it is read here."""

    @property
    def parents(self) -> Sequence[Oid]: ...

    @property
    def committer(self) -> str: ...


def records_up_to(
    tip: Oid,
    row_of: Callable[[bytes], CommitRow | None],
    commit_of: Callable[[Oid], LinkedCommit],
    content_of: Callable[[Hash], Approval | Revocation],
) -> list[ApprovalRecord]:
    """Return the approvals that a commit leads to, in their order. A commit with two approvals as its parents unites
    them, and is none itself."""
    records: list[ApprovalRecord] = []
    pending, seen = [tip], {tip}
    while pending:
        oid = pending.pop()
        row = row_of(oid.raw)
        if row is None or row.kind != "approval":
            continue
        commit = commit_of(oid)
        last = row_of(commit.parents[-1].raw)
        if last is None or last.kind != "approval":
            since = last.time if last is not None else 0
            records.append(
                ApprovalRecord(
                    row.node,
                    oid,
                    commit.committer,
                    row.time,
                    content_of(row.node),
                    commit.parents[-1],
                    since,
                    row.number,
                )
            )
        pending += [parent for parent in commit.parents if parent not in seen]
        seen.update(commit.parents)
    return sorted(records, key=lambda record: record.order)


class Approvals:
    """The approvals of a store's threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._repository = store.repository

    def tip(self, thread: ThreadId) -> Oid | None:
        """Return the commit of a thread's newest approval."""
        return self._repository.ref(APPROVALS.prefix + thread)

    def all(self, thread: ThreadId) -> list[ApprovalRecord]:
        """Return a thread's approvals and revocations in their order."""
        tip = self.tip(thread)
        return self.up_to(tip) if tip is not None else []

    def up_to(self, tip: Oid) -> list[ApprovalRecord]:
        """Return the approvals that a commit leads to. Raises StoreDamaged."""
        store = self._store
        return records_up_to(
            tip,
            lambda oid: store.index_commit(Oid(raw=oid)),
            self._repository.commit,
            lambda node: parse_record(store.get(node)),
        )

    def record(
        self,
        at: Position,
        content: Approval | Revocation,
        judge: Callable[[list[ApprovalRecord], Hash], _Result],
    ) -> _Result:
        """Commit an approval or a revocation of one, if `judge` doesn't raise, which gets all records and the new node,
        and return its result. Moves `refs/uwf/approvals/<ULID>`. Raises SigningFailed, HeadMoved if it keeps moving."""
        head, ref = at.head, APPROVALS.prefix + at.head.thread
        if isinstance(content, Approval):
            content = content._replace(digest=content.shown.digest)
        known = {step.hash for step in at.history.steps} | {at.history.start_hash}
        for _ in range(_TRIES):
            tip = self._repository.ref(ref)
            with self._store.together():
                kind = APPROVAL if isinstance(content, Approval) else REVOCATION
                node = self._store.put(kind, content.payload())
                commit = self._commit(head, node, content, tip, known)
            self._store.index_commit(commit)
            result = judge(self.up_to(commit), node)
            try:
                self._repository.put_ref(ref, tip, commit)
            except HeadMoved:
                continue
            self._store.moved(ref, commit, commit)
            return result
        raise HeadMoved(f"{ref} moves too often to add an approval", "repeat")

    def _commit(
        self, head: Head, node: Hash, content: Approval | Revocation, tip: Oid | None, known: set[Hash]
    ) -> Oid:
        from uwf_git.store.threads import Threads

        repository = self._repository
        shared = Threads(self._store).workflow_nodes(repository.commit(head.commit).tree)
        stop = UnionSet(shared, known)
        if isinstance(content, Revocation):
            stop = UnionSet(shared, known, {content.approval})
        files: dict[str, bytes | Oid] = dict(self._store.files(node, stop))
        files["README.md"], text = page_and_message(
            node, content, lambda output: self._store.get(output).payload
        )
        before = repository.commit(tip).tree if tip is not None else None
        if before is None:
            before = repository.write_folder({".gitattributes": layout.GITATTRIBUTES})
        tree = repository.graft(before, folder_of(node), repository.write_folder(files))
        parents = [head.commit] if tip is None else [tip, head.commit]
        return repository.write_commit(tree, parents, repository.user, text, content.at)


def folder_of(node: Hash) -> tuple[str, ...]:
    """Return the folder of a record in its commit's tree."""
    return ("approvals", node)


def page_and_message(
    node: Hash, content: Approval | Revocation, payload_of: Callable[[Hash], Any]
) -> tuple[bytes, str]:
    """Return the page of a record, and its commit's message. `payload_of` reads an output."""
    from uwf_git.store import pages

    by, reason = f"By {inline(str(content.by))}, {iso(content.at)}.", content.reason
    quote = quoted(reason) if reason.strip() else ""
    trailers: dict[str, str] = {"Uwf-Approval": node}
    if isinstance(content, Revocation):
        parts = [f"# Revocation of {content.approval}", by, quote]
        subject = f"revocation of {content.approval}"
    else:
        value, shown = payload_of(content.output), content.shown
        verdict = pages.verdict(value)
        rows = [
            (part.name, code(part.sha256), code(part.commit) if part.commit else "") for part in shown.parts
        ]
        parts = [
            f"# Approval of {inline(content.role)}: {inline(verdict)}",
            by,
            output(value) if isinstance(value, Mapping) else "",
            quote,
            f"Of what was shown, with the digest {code(content.digest or shown.digest)}:",
            table(("part", "SHA-256", "commit"), rows),
        ]
        subject = f"approval {one_line(content.role, 40)}{f': {verdict}' if verdict else ''}"
        trailers["Uwf-Role"] = content.role
    return pages.page_of("\n\n".join(filter(None, parts))), layout.message(subject, trailers)


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


def ident(content: Approval | Revocation) -> str:
    """Return the committer that an approval's commit must have."""
    return f"{clean(content.by.name)} <{clean(content.by.email)}>"
