"""An index in which what isn't trusted yet is taken in: it reads through to the real one and writes to
memory, so whatever a remote sent leaves no trace until it has been verified."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from uwf_git.store.index import ArchiveRow, CommitRow, Index
from uwf_git.values.ids import Hash


class Overlay(Index):
    """What `base` knows, and besides what is taken in here. `base` may be None: then nothing is known
    at first, and everything is read and verified anew."""

    def __init__(self, base: Index | None = None) -> None:
        self._base = base
        super().__init__(Path())

    def _open(self) -> sqlite3.Connection:
        return self._connect(":memory:")

    def node(self, node: str) -> tuple[Hash, bytes] | None:
        return super().node(node) or (self._base.node(node) if self._base else None)

    def add_nodes(self, rows: Iterable[tuple[Hash, Hash, bytes]]) -> None:
        super().add_nodes(row for row in rows if not (self._base and self._base.node(row[0])))

    def commit(self, oid: bytes) -> CommitRow | None:
        return super().commit(oid) or (self._base.commit(oid) if self._base else None)

    def commits_of(self, node: str) -> list[CommitRow]:
        known = {row.oid: row for row in super().commits_of(node)}
        known.update({row.oid: row for row in (self._base.commits_of(node) if self._base else ())})
        return sorted(known.values(), key=lambda row: (row.time, row.oid))

    def archive(self, oid: bytes) -> ArchiveRow | None:
        return super().archive(oid) or (self._base.archive(oid) if self._base else None)

    def settle(self) -> None:
        """Hands over what was taken in here to the index underneath: it has been verified."""
        assert self._base is not None
        with self._base.transaction():
            self._base.add_nodes(self._run("SELECT * FROM nodes").fetchall())
            for row in self._run("SELECT * FROM commits").fetchall():
                self._base.add_commit(CommitRow(*row))
            for row in self._run("SELECT * FROM archives").fetchall():
                self._base.add_archive(ArchiveRow(*row))
        for table in ("nodes", "commits", "archives"):
            self._run(f"DELETE FROM {table}")
