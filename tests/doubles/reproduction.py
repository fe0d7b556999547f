"""Commits made again: of a store, each from the one before, its node and its stamp.

A commit is determined by these, so the code that wrote it must come to the same id on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.objects import Person, is_signed
from uwf_git.git.repository import Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.index import CommitRow
from uwf_git.store.indexing import Store
from uwf_git.sync.object_sources import CheckedObject, ImaginedRepository, RegeneratedObjects

_RECORDS = ("start", "step", "attempt")


class Reproduction(NamedTuple):
    """How many commits were made again, and the others, each with its ref's kind, subject and id."""

    same: int
    others: tuple[str, ...]


class _Again(RegeneratedObjects):
    """Every commit, by its own committer and at its own time."""

    def __init__(self, store: Store, tips: Sequence[bytes]) -> None:
        super().__init__(store, tips)
        self.rows: list[CommitRow] = []

    def _make(
        self, repository: ImaginedRepository, store: Store, row: CommitRow, threads: Sequence[ThreadId]
    ) -> None:
        _, data = self._store.repository.read(Oid(raw=row.oid))
        if row.kind not in (*_RECORDS, *ref_kinds.versioned()) or is_signed(data):
            return  # its signer alone can make it again
        self.rows.append(row)
        commit = self._store.repository.commit(Oid(raw=row.oid))
        repository.by = _person(commit.committer)
        store._blobs.update(self._nodes(commit.tree))
        named = layout.thread_named(commit.message) if row.kind == "start" else None  # it may be removed
        super()._make(repository, store, row, [named] if named else threads)

    def _nodes(self, tree: Oid) -> Iterator[tuple[Hash, Oid]]:
        """Yield the nodes of a tree with their blobs: if two machines wrote a node, each commit has its own."""
        for entry in self._store.repository.tree(tree):
            if entry.is_tree:
                yield from self._nodes(entry.oid)
            elif (node := layout.node_in_path(f"nodes/{entry.name}")) is not None:
                yield node, entry.oid

    @property
    def made(self) -> Mapping[Oid, CheckedObject]:
        self.prepare([])
        return self._made or {}


def reproduction(git_dir: Path) -> Reproduction:
    """Make all commits of threads and definitions again."""
    store = Store.open(git_dir)
    store.sync()
    tips = list(_tips(store, "refs/uwf/"))
    again = _Again(store, tips)
    made = again.made
    others = [row for row in again.rows if Oid(raw=row.oid) not in made]
    return Reproduction(len(again.rows) - len(others), tuple(_named(store, row) for row in others))


def _tips(store: Store, prefix: str) -> Iterator[bytes]:
    for name, ref in store.index.tips(prefix).items():
        if not name.startswith(layout.REMOTES) and ref.tip is not None:
            yield ref.tip


def _named(store: Store, row: CommitRow) -> str:
    oid = Oid(raw=row.oid)
    return f"{row.kind} {store.repository.commit(oid).message.splitlines()[0]} ({oid})"


def _person(ident: str) -> Person:
    name, _, email = ident.removesuffix(">").rpartition(" <")
    return Person(name, email)
