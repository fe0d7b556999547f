"""The index is derived: whatever becomes of its files, nothing of a thread is missed, and nobody has to know."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ONE
from commands import UWF
from conftest import EXAMPLES, Uwf
from workflows import opened

from uwf_git.format.builtin import META

pytestmark = pytest.mark.extended

traced = pytest.mark.needs("strace")


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def reads_whole(uwf: Uwf, thread: str) -> None:
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert len(uwf("thread", "steps", thread).json) == 1 and "Do it" in uwf("thread", "read", thread).out


@traced
@pytest.mark.parametrize("number", [1, 4, 9, 14, 19, 24])
def test_a_step_whose_index_met_an_error_of_the_disk_is_read_by_the_next_command(
    uwf: Uwf, root: Path, thread: str, number: int
) -> None:
    tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(root / "store.git/uwf/index.db-wal")]
    faults = ["-e", "trace=pwrite64", "-e", f"inject=pwrite64:error=EIO:when={number}"]
    done = subprocess.run(
        [*tracer, *faults, *UWF, "thread", "step", thread], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done
    reads_whole(uwf, thread)
    assert {each["status"] for each in uwf("doctor").json if each["check"] in ("index", "objects")} == {"ok"}


def torn(db: sqlite3.Connection) -> None:
    """As a power cut leaves it: commits without their nodes, and another start of the machine."""
    db.execute("DELETE FROM nodes WHERE hash IN (SELECT node FROM commits WHERE kind = 'step')")
    db.execute("PRAGMA application_id = 7")


HURT: dict[str, Callable[[sqlite3.Connection], object]] = {
    "nodes that are missing": lambda db: db.execute("DELETE FROM nodes"),
    "torn": torn,
    "a column of somebody else": lambda db: db.execute("ALTER TABLE commits ADD COLUMN more TEXT"),
    "a table of somebody else": lambda db: db.execute("CREATE TABLE more (one TEXT)"),
    "a column that is missing": lambda db: db.execute("ALTER TABLE commits DROP COLUMN title"),
    "another version": lambda db: db.execute("PRAGMA user_version = 4000"),
    "a view": lambda db: db.executescript("DROP TABLE tips; CREATE VIEW tips AS SELECT 1 AS name"),
}
FILES: dict[str, tuple[str, bytes | None]] = {
    "garbage": ("index.db", b"\x17" * 9000),
    "a header with garbage behind": ("index.db", None),
    "no bytes": ("index.db", b""),
    "a garbled log": ("index.db-wal", b"\x17" * 5000),
    "a garbled map of the log": ("index.db-shm", b"\x17" * 32768),
}


@pytest.mark.parametrize("how", [*HURT, *FILES])
def test_an_index_that_is_damaged_or_another_ones_heals(uwf: Uwf, root: Path, thread: str, how: str) -> None:
    uwf("thread", "step", thread)
    private = root / "store.git/uwf"
    if how in HURT:
        db = sqlite3.connect(private / "index.db", isolation_level=None)
        HURT[how](db)
        db.close()
    else:
        name, content = FILES[how]
        path = private / name
        path.write_bytes(path.read_bytes()[:200] + os.urandom(20_000) if content is None else content)
    reads_whole(uwf, thread)
    other = str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])
    uwf("thread", "step", other)
    reads_whole(uwf, other)
    assert {each["status"] for each in uwf("doctor").json if each["check"] in ("index", "refs")} == {"ok"}


def test_what_a_user_misspells_makes_no_index_anew(uwf: Uwf, root: Path, thread: str) -> None:
    before = (root / "store.git/uwf/index.db").stat().st_ino
    assert uwf("cas", "get", "0000000000000", check=3).error["code"] == "not_found"
    assert (root / "store.git/uwf/index.db").stat().st_ino == before


READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
db.execute("BEGIN")
print(db.execute("SELECT count(*) FROM tips").fetchone(), flush=True)
sys.stdin.read()
"""


def test_a_ref_that_was_deleted_is_not_missed_by_who_opens_the_index_while_it_is_made_anew(
    uwf: Uwf, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened().store
    other.sync()
    # The file has the thread's ref from here on, its log alone that it was deleted.
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, other.repository.private / "index.db"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdout and reader.stdout.readline()
    ref = f"refs/uwf/threads/{thread}"
    head = other.repository.ref(ref)
    assert head is not None
    other.repository.delete_ref(ref, head)
    connect = sqlite3.connect

    def and_waits(path: str, **options: Any) -> sqlite3.Connection:
        found = connect(path, **options)
        if not path.startswith(":"):
            monkeypatch.setattr(sqlite3, "connect", connect)
            other.reindex()
            other.index.close()
        return found

    monkeypatch.setattr(sqlite3, "connect", and_waits)
    opening = opened().store
    assert opening.missed() == {}
    reader.communicate()
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("how", ["made anew", "thrown away"])
def test_a_ref_that_is_deleted_after_another_process_made_the_index_anew_is_not_missed(
    uwf: Uwf, thread: str, how: str
) -> None:
    deleting, other = opened().store, opened().store
    ref = f"refs/uwf/threads/{thread}"
    assert deleting.sync() or deleting.index.tips()
    if how == "thrown away":
        other.index.reset()
    other.reindex()
    head = deleting.repository.ref(ref)
    assert head is not None
    deleting.repository.delete_ref(ref, head)
    assert other.missed() == {}
    assert uwf("verify").json["findings"] == []


def test_a_node_that_no_ref_leads_to_yet_survives_an_index_that_is_made_anew(
    uwf: Uwf, root: Path, thread: str
) -> None:
    """So is what an agent has stored whose step is being made, or was broken off and is taken over by the next."""
    begun = opened().store
    node = begun.put(META, {"type": "object", "title": "of a step in progress"})
    uwf("cas", "reindex")
    assert uwf("cas", "get", node).json["payload"]["title"] == "of a step in progress"
    blob = begun.blob_of(node)
    (root / "store.git/objects" / str(blob)[:2] / str(blob)[2:]).unlink()
    uwf("cas", "reindex")
    uwf("cas", "get", node, check=3)


def test_an_index_that_is_used_after_it_was_closed_is_not_thrown_away(
    uwf: Uwf, root: Path, thread: str
) -> None:
    path = root / "store.git/uwf/index.db"
    instance, before = opened(), path.stat().st_ino
    instance.store.index.close()
    with pytest.raises(sqlite3.ProgrammingError):
        instance.store.index.tips()
    assert path.stat().st_ino == before


DELETING: dict[str, Callable[[Uwf, str], list[str]]] = {
    "thread resume": lambda uwf, thread: _after(
        uwf, ["thread", "pause", thread], ["thread", "resume", thread]
    ),
    "thread kill": lambda uwf, thread: ["thread", "kill", thread],
    "thread rm": lambda uwf, thread: ["thread", "rm", thread, "--yes"],
    "workflow rm": lambda uwf, thread: _after(
        uwf, ["thread", "kill", thread], ["workflow", "rm", "one", "--yes"]
    ),
    "crew rm": lambda uwf, thread: _after(
        uwf, ["crew", "import", str(EXAMPLES / "crew/press")], ["crew", "rm", "press", "--yes"]
    ),
    "accept": lambda uwf, thread: _proposed(uwf),
    "eval remove": lambda uwf, thread: _after(
        uwf, ["eval", "add", thread, "--to", "few"], ["eval", "remove", "few", "--yes"]
    ),
}
"""Commands that delete refs: each prepares, and returns its arguments."""


def _after(uwf: Uwf, first: list[str], then: list[str]) -> list[str]:
    uwf(*first)
    return then


def _proposed(uwf: Uwf) -> list[str]:
    Path("other.yaml").write_text(ONE.replace("One step", "One step more"))
    uwf("workflow", "propose", "other.yaml", "--branch", "more")
    return ["workflow", "accept", "more"]


@traced
@pytest.mark.parametrize("file", ["index.db", "index.db-wal", "index.db-shm"])
@pytest.mark.parametrize("command", DELETING)
def test_a_deletion_is_recorded_or_fails_where_the_index_cannot_be_opened(
    uwf: Uwf, root: Path, thread: str, command: str, file: str
) -> None:
    arguments = DELETING[command](uwf, thread)
    repository = opened().store.repository
    before = repository.refs()
    tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(root / "store.git/uwf" / file)]
    faults = ["-e", "trace=openat,open", "-e", "inject=openat,open:error=EIO:when=1"]
    done = subprocess.run([*tracer, *faults, *UWF, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert opened().store.repository.refs() == before
        uwf(*arguments)
    assert opened().store.repository.refs() != before
    assert uwf("verify").json["findings"] == []
    after = opened().store.repository.refs()
    uwf("doctor", "--fix", check=None)
    assert opened().store.repository.refs() == after, "what was deleted stays deleted"
