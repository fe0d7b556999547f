"""The valid signatures that this store has seen, and since when. A signature stays valid, so it is verified once;
the time shows that it is older than the end of its key."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from uwf_git.git.repository import Oid
from uwf_git.git.sqlite_cache import SqliteCache


class SeenSignature(NamedTuple):
    """A valid signature: the fingerprints of its key and primary key, and the Unix time since when it is known
    here. Without a fingerprint it is to be verified again: another version of the table carried its time only."""

    fingerprint: str
    primary: str
    since: int


class SeenSignatures(SqliteCache):
    """The signatures seen, in `<git dir>/uwf/signatures.db`. If it is lost, they are verified again."""

    version: ClassVar[int] = 2
    tables: ClassVar[str] = """
        CREATE TABLE seen (
            oid BLOB PRIMARY KEY, fingerprint TEXT NOT NULL, main TEXT NOT NULL, since INTEGER NOT NULL
        ) WITHOUT ROWID
    """

    def __init__(self, private: Path) -> None:
        super().__init__(private / "signatures.db")

    def get(self, objects: Sequence[Oid]) -> dict[Oid, SeenSignature]:
        found = {}
        for oid in objects:
            if row := self._run("SELECT fingerprint, main, since FROM seen WHERE oid = ?", (oid.raw,)):
                found[oid] = SeenSignature(*row[0])
        return found

    def add(self, signatures: Mapping[Oid, SeenSignature]) -> None:
        rows = [(oid.raw, *each) for oid, each in signatures.items()]
        if rows:
            with self.transaction():
                for row in rows:
                    self._run(
                        "INSERT INTO seen VALUES (?, ?, ?, ?) ON CONFLICT (oid) DO UPDATE"
                        " SET fingerprint = excluded.fingerprint, main = excluded.main",
                        row,
                    )

    def _carried(self, db: sqlite3.Connection) -> Mapping[str, bytes]:
        try:
            rows = db.execute("SELECT oid, since FROM seen").fetchall()
        except sqlite3.Error:
            return {}
        return {bytes(oid).hex(): str(since).encode() for oid, since in rows}

    def _carry(self, db: sqlite3.Connection, carried: Mapping[str, bytes]) -> None:
        rows = [(bytes.fromhex(oid), int(since)) for oid, since in carried.items()]
        db.executemany("INSERT OR IGNORE INTO seen VALUES (?, '', '', ?)", rows)
