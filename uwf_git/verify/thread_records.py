"""Checking records beside a thread that only grow, see `store.thread_records`: the parents of each, and that two
sides are united with nothing added or lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from uwf_git.base.extensions import RefKind
from uwf_git.format.ids import Hash
from uwf_git.format.node import Node
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.index import bound_row, commit_row
from uwf_git.store.thread_records import folder_of
from uwf_git.verify.definition import check_attributes
from uwf_git.verify.findings import Bad, Report
from uwf_git.verify.nodes import grown, row_of
from uwf_git.verify.objects import FOLDER, CommitObject
from uwf_git.verify.thread_pages import files_of
from uwf_git.verify.verified import Known, Record

_NOBODY = "uwf <uwf@localhost>"


class PlacedRecord(NamedTuple):
    """A record's commit: the record before it, None for the first, and the head that it is bound to; `path`, `files`
    and `nodes` are of its folder."""

    commit: CommitObject
    node: Hash
    before: Record | None
    head: Record
    path: str
    files: Mapping[str, bytes]
    nodes: Mapping[Hash, Node]

    @property
    def content(self) -> Node:
        """Its node. Raises Bad."""
        if (content := self.nodes.get(self.node)) is None:
            raise Bad("missing-node", f"node {self.node} cannot be read")
        return content

    @property
    def start(self) -> Hash:
        return self.head.row.start or self.head.row.node

    @property
    def prev(self) -> Hash | None:
        """The `prev` of a record that is bound to its head."""
        return self.head.row.node if self.head.row.kind == "step" else None

    def check_reached(
        self, known: Known, report: Report, others: frozenset[Hash] = frozenset()
    ) -> dict[Hash, Node]:
        """Check that its folder has what its node reaches, but for `others`, and return the nodes that it adds."""
        here, left_out = dict(self.nodes), known.definition(self.head).nodes
        return known.check_reached(
            self.path, self.files, here, self.node, self.start, self.head, left_out, report, others
        )

    def record(self, role: str | None = None) -> Record:
        """Return it as verified."""
        return _record_of(self.commit, self.node, self.start, role, self.before)


def place_of(
    known: Known, commit: CommitObject, node: Hash, kind: RefKind, report: Report
) -> PlacedRecord | Record | None:
    """Check the parents and the folder of a record's commit. One that unites two sides is checked whole, and returned
    as verified. None if a parent is unreadable. Raises Bad."""
    record, thread = kind.records[0], ("start", "step")
    word = f"{'an' if record[0] in 'aeiou' else 'a'} {record}"
    if not 1 <= len(commit.parents) <= 2:
        raise Bad("wrong-parent", f"{word} has one parent or two")
    first = known.parent(commit, 0, (record, *thread))
    last = known.parent(commit, len(commit.parents) - 1, (record, *thread))
    if first is None or last is None:
        return None
    if len(commit.parents) == 2 and first.row.kind != record:
        raise Bad("wrong-parent", f"the first of the two parents of {word} is {word}")
    if len(commit.parents) == 1 and first.row.kind == record:
        raise Bad("wrong-parent", f"the last parent of {word} is the head that it is of")
    if first.row.start != (last.row.start or last.row.node):
        report("wrong-chain", f"the {record} and the one before are of different threads")
    if last.row.kind == record:
        return _united(known, commit, node, kind, first, last, report)
    before = first if len(commit.parents) == 2 else None
    folders = folder_of(kind, node)
    also = () if before is not None else ((".gitattributes",),)
    tree = grown(known.objects, commit.tree, before.tree if before else None, folders, report, also)
    check_attributes(known.objects, files_of(known.objects, commit.tree), report)
    path = "/".join(folders) + "/"
    files, here = known.folder(tree, path, node, report)
    return PlacedRecord(commit, node, before, last, path, files, here)


def has_record(known: Known, record: Record | None, kind: RefKind, node: Hash) -> bool:
    """Return whether the records up to a verified one have a node of theirs."""
    if record is None:
        return False
    row = row_of(known.objects, record.tree, kind.word)
    return row is not None and row[0] == FOLDER and row_of(known.objects, row[2], node) is not None


def _united(
    known: Known, commit: CommitObject, node: Hash, kind: RefKind, first: Record, last: Record, report: Report
) -> Record:
    word = kind.word
    sides = [_folders(known, record.tree, word) for record in (first, last)]
    contents = _folders(known, commit.tree, word)
    check_attributes(known.objects, files_of(known.objects, commit.tree), report)
    if contents.keys() != sides[0].keys() | sides[1].keys():
        report("changed-file", f"the commit does not have the {word} of both its sides, and no others")
    elif any(oid not in (side.get(name) for side in sides) for name, oid in contents.items()):
        report("changed-file", f"the commit changes one of the {word} of its sides")
    names = {name for _, name, _ in known.objects.tree(commit.tree)}
    if names - {b".gitattributes", word.encode()}:
        report("extra-file", f"the commit has more than the {word} of its sides")
    if node not in (first.row.node, last.row.node):
        report("wrong-message", f"node {node} is not that of one of the two sides")
    if commit.author != commit.committer or commit.committer != _NOBODY:
        report("wrong-author", f"two sides are united by {_NOBODY}")
    known.message(commit, report, layout.united_message(kind.records[0], node))
    return _record_of(commit, node, first.row.start, first.row.role, first, last)


def _folders(known: Known, tree: bytes, word: str) -> dict[bytes, bytes]:
    row = row_of(known.objects, tree, word)
    if row is None or row[0] != FOLDER:
        raise Bad("missing-file", f"there is no folder of {word}", Oid(raw=tree))
    return {name: oid for _, name, oid in known.objects.tree(row[2])}


def _record_of(
    commit: CommitObject, node: Hash, start: Hash | None, role: str | None, *before: Record | None
) -> Record:
    assert commit.trailers is not None
    row = commit_row(commit.oid, commit.trailers.kind, node, commit.parents, commit.time)
    rows = (record.row for record in before if record is not None)
    return Record(bound_row(row, start, role, rows), commit.tree)
