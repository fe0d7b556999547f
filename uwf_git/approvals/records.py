"""Approvals before their step: `refs/uwf/approvals/<ULID>`, records beside a thread, each made by its person.

A record is an Approval or a Revocation. The step that was approved has the newest of them as its second parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from uwf_git.base.markdown import code, inline, output, quoted, table
from uwf_git.base.text import iso, one_line
from uwf_git.format.approvals import Approval, Revocation, parse_approval, parse_record
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import HUMAN, parse_detail
from uwf_git.format.node import Node
from uwf_git.format.types import APPROVAL, PERSON, REVOCATION, is_kind
from uwf_git.git.objects import clean, is_signed
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Position
from uwf_git.store.index import CommitRow
from uwf_git.store.ref_kinds import APPROVALS
from uwf_git.store.thread_records import LinkedCommit, ThreadRecord, ThreadRecords

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store

_Result = TypeVar("_Result")

ApprovalRecord = ThreadRecord[Approval | Revocation]
"""A recorded Approval or Revocation."""


class Approvals(ThreadRecords[Approval | Revocation]):
    """The approvals of a store's threads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, APPROVALS, parse_record)

    def record(
        self,
        at: Position,
        content: Approval | Revocation,
        judge: Callable[[list[ApprovalRecord], Hash], _Result],
    ) -> _Result:
        """Commit an approval or a revocation of one, if `judge` doesn't raise, which gets all records and the new node,
        and return its result. Moves `refs/uwf/approvals/<ULID>`. Raises as `add`."""
        known = {step.hash for step in at.history.steps} | {at.history.start_hash}
        if isinstance(content, Approval):
            kind, content = APPROVAL, content._replace(digest=content.shown.digest)
        else:
            kind, known = REVOCATION, known | {content.approval}

        def page(node: Hash) -> tuple[bytes, str]:
            return page_and_message(node, content, lambda target: self._store.get(target).payload)

        return self.add(
            at.head, kind, content, known, page, lambda commit, node: judge(self.up_to(commit), node)
        )


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


def unsigned(store: Store, step: Hash, detail: Node) -> tuple[Approval, ...]:
    """Return the approvals of a step that nobody signed. Those at a gate have commits of their own, else the step's
    is theirs. Says nothing of whose a signature is, or whether it is good."""
    nodes = parse_detail(detail.payload).approvals if is_kind(detail.type, "detail") else ()

    def has_signature(node: Hash) -> bool:
        commits = store.index.commits_of(node) or store.index.commits_of(step)
        return any(is_signed(store.repository.read(Oid(raw=row.oid))[1]) for row in commits)

    return tuple(parse_approval(store.get(node).payload) for node in nodes if not has_signature(node))


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
