"""A SQLite cache in the private folder, which heals by being rebuilt.

Nothing is synced. The first process after a boot checks for torn writes; an unreadable file, or one with
other tables, is rebuilt; if the folder cannot be written, the cache lives in memory.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

from uwf_git.base import log, system
from uwf_git.git.fsync import share

_FILLING = 65536  # KiB of page cache during indexing, whose rows come in random order
BUSY_SECONDS = 30

_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)
_DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_IOERR)  # the first one if a table is missing


class SqliteCache:
    """A cache file. `tables` are its statements, `gaps` queries that find inconsistencies."""

    version: ClassVar[int]
    tables: ClassVar[str]
    gaps: ClassVar[Sequence[str]] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0
        self._has_lost = False
        self._db = self._open()
        self._file = self._there()
        self._made = self._schema()
        _opened.add(self)

    @property
    def has_lost(self) -> bool:
        """Whether writes since opening may have been lost, by any process."""
        return self._has_lost or self._schema() != self._made

    def _schema(self) -> int:
        return int(self._one("PRAGMA schema_version")[0])

    def _there(self) -> int | None:
        try:
            return os.stat(self._path).st_ino  # noqa: PTH116
        except OSError:
            return None

    def follow(self) -> None:
        """Reopen the file if another process replaced it."""
        if not self._depth and (there := self._there()) != self._file:
            self._db.close()
            self._db, self._file = self._open(), there
            self._has_lost = True

    @property
    def is_kept(self) -> bool:
        return bool(self._run("PRAGMA database_list")[0][2])

    def try_again(self) -> None:
        """Reopen a file that could not be opened or written; knowledge of this process alone is lost."""
        if self._depth or self.is_kept:
            return
        self._db.close()
        self._db, self._file, self._has_lost = self._open(), self._there(), True

    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def _carried(self, db: sqlite3.Connection) -> Mapping[str, bytes]:
        raise NotImplementedError

    def _carry(self, db: sqlite3.Connection, carried: Mapping[str, bytes]) -> None:
        raise NotImplementedError

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(exist_ok=True)
            share(self._path.parent)
            if not _is_file(self._path):
                return self._in_memory()
            share(self._path, make=True)  # SQLite's other files get its mode
            return self._connect(str(self._path))
        except (sqlite3.OperationalError, OSError):
            return self._in_memory()
        except sqlite3.DatabaseError:
            self._discard()
            return self._connect(str(self._path))

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA wal_autocheckpoint = 100")  # pages; the default lets the log grow to 4 MB
            if not self._is_current(db):
                db.execute("PRAGMA journal_mode = WAL")
                self._create(db)
            if (now := boot()) != db.execute("PRAGMA application_id").fetchone()[0]:
                self._look_through(db, now)
        except BaseException:
            db.close()
            raise
        return db

    def _in_memory(self) -> sqlite3.Connection:
        return self._connect(":memory:")

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # of several processes that find no tables, one makes them
        log.info(
            "GM61JYD6",
            "makes the index {path} anew, of version {version}",
            path=self._path,
            version=self.version,
        )
        if not self._is_current(db):
            self._make(db)
        db.execute("COMMIT")

    def _make(self, db: sqlite3.Connection) -> None:
        carried = self._carried(db)
        query = "SELECT type, name FROM sqlite_master WHERE type != 'index' AND name NOT LIKE 'sqlite%'"
        for kind, name in db.execute(query).fetchall():
            quoted = name.replace('"', '""')
            db.execute(f'DROP {kind} IF EXISTS "{quoted}"')
        for statement in _statements(self.tables):
            db.execute(statement)
        self._carry(db, carried)
        db.execute(f"PRAGMA user_version = {self.version}")
        db.execute(f"PRAGMA application_id = {boot()}")

    def _is_current(self, db: sqlite3.Connection) -> bool:
        if db.execute("PRAGMA user_version").fetchone()[0] != self.version:
            return False
        cursor = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'")
        return {sql for (sql,) in cursor} == _statements(self.tables).keys()

    def _gaps_in(self, db: sqlite3.Connection) -> bool:
        return any(db.execute(f"{gap} LIMIT 1").fetchone() for gap in self.gaps)

    def _look_through(self, db: sqlite3.Connection, boot: int) -> None:
        answer = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if answer != "ok" or self._gaps_in(db):
            raise sqlite3.DatabaseError(answer)
        with contextlib.suppress(
            sqlite3.OperationalError
        ):  # it cannot be written, or another process does it
            db.execute(f"PRAGMA application_id = {boot}")

    def _discard(self) -> None:
        log.warning("CTSCVJBJ", "throws the index {path} away", path=self._path)
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def clear(self) -> None:
        """Clear all but carried data, in the caller's transaction. A sound file stays in place, since other
        processes have it open."""
        try:
            in_memory = not self._run("PRAGMA database_list")[0][2]
            if not in_memory and self._one("PRAGMA integrity_check(1)")[0] == "ok":
                log.info("5R8M3WQC", "makes the tables of {path} anew", path=self._path)
                self._make(self._db)
                self._has_lost = True
                self._db.execute(f"PRAGMA cache_size = -{_FILLING}")
                return
        except sqlite3.DatabaseError as error:
            log.warning(
                "C7T0JX4N", "the index {path} cannot be emptied: {why}", path=self._path, why=str(error)
            )
        self.reset()

    def reset(self) -> None:
        """Replace the file, keeping carried data."""
        carried = self._carried(self._db)
        self._db.close()
        with contextlib.suppress(OSError):
            self._discard()
        self._depth = 0
        self._has_lost = True
        self._db = self._open()
        self._file = self._there()
        with contextlib.suppress(sqlite3.Error):
            self._db.execute(f"PRAGMA cache_size = -{_FILLING}")
            self._carry(self._db, carried)

    def has_gaps(self) -> bool:
        """Return whether something is known to be missing. A full scan."""
        return self._gaps_in(self._db)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """One write for the block. May be nested."""
        self._depth += 1
        try:
            if self._depth == 1:
                self._run("BEGIN IMMEDIATE")
            yield
            if self._depth == 1:
                self._run("COMMIT")
        except BaseException:
            if self._depth == 1 and self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        finally:
            self._depth = max(0, self._depth - 1)

    def _run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # without the extended part
            if code in _UNWRITABLE:
                self._to_memory()
                return self._db.execute(sql, values).fetchall()
            if code not in _DAMAGED:
                raise
            self.reset()
        except sqlite3.ProgrammingError:  # it was closed: a fault of ours, and none of the file
            raise
        except sqlite3.DatabaseError:
            self.reset()
        if sql == "COMMIT":  # the transaction was lost with the damaged file
            return []
        return self._db.execute(sql, values).fetchall()

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        rows = self._run(sql, values)
        return rows[0] if rows else None

    def _to_memory(self) -> None:
        log.warning("XEW2EVCS", "the index {path} cannot be written, and goes on in memory", path=self._path)
        memory = self._in_memory()
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._has_lost = True
                self._db.execute("ROLLBACK")
            self._db.backup(memory)
        self._db.close()
        self._db = memory
        if self._depth:
            self._db.execute("BEGIN")


_opened: WeakSet[SqliteCache] = WeakSet()


@atexit.register
def _close_all() -> None:
    for each in list(_opened):
        with contextlib.suppress(sqlite3.Error):
            each.close()


@cache
def _statements(tables: str) -> dict[str, None]:
    return {statement.strip(): None for statement in tables.split(";") if statement.strip()}


def _is_file(path: Path) -> bool:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(f"{path}{suffix}").st_mode):  # noqa: PTH116
                return False
    return True


@cache
def boot() -> int:
    """Return a number for the present start of the machine, 0 if unknown."""
    return zlib.crc32(system.boot_id()) >> 1
