"""`uwf gc` packs the store, keeps what is young, and folds old archives when it is asked to."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from cli_samples import ONE
from commands import begin, git_that_fails
from conftest import Uwf
from workflows import opened

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import TEXT
from uwf_git.store import layout
from uwf_git.store.indexing import pin

DAY = 24 * 60 * 60


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    """A thread that has ended."""
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    made = str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])
    assert uwf("thread", "step", made).json["done"]
    return made


def age(root: Path, days: int) -> None:
    """Makes every object look that many days old, also in a cruft pack, whose .mtimes has a time for each object."""
    then = int(time.time() - days * DAY)
    for path in (root / "store.git" / "objects").rglob("*"):
        if not path.is_file():
            continue
        if path.suffix == ".mtimes":
            data = path.read_bytes()
            header, times, pack = data[:12], data[12:-40], data[-40:-20]
            body = header + then.to_bytes(4, "big") * (len(times) // 4) + pack
            path.chmod(0o600)
            path.write_bytes(body + hashlib.sha1(body).digest())
        os.utime(path, (then, then))


def test_a_prune_waits_for_who_writes_and_takes_nothing_of_what_they_wrote(uwf: Uwf, thread: str) -> None:
    store = opened().store
    node = store.put(TEXT, "no ref leads to me yet")
    pruning = begin("gc", "--prune")
    time.sleep(0.5)
    assert pruning.poll() is None
    pin(store, node)
    said, complaint = pruning.communicate(timeout=60)
    assert pruning.returncode == 0, said + complaint
    assert uwf("cas", "get", node).json["payload"] == "no ref leads to me yet"


def test_a_prune_lets_nobody_write_and_refuses_where_a_thread_runs(uwf: Uwf, thread: str) -> None:
    locks = opened().locks
    with locks.deleting():
        start = begin("thread", "start", "one", "-p", "Wait for it")
        time.sleep(0.5)
        assert uwf("thread", "list").json == []
        assert start.poll() is None
    assert start.communicate(timeout=60)[1] == ""
    assert len(uwf("thread", "list").json) == 1
    with locks.hold(ThreadId(uwf("thread", "list").json[0]["thread"])):
        assert uwf("gc", "--prune", check=4).error["code"] == "busy"


def test_who_waits_for_a_prune_does_not_hold_the_index_that_it_needs(
    uwf: Uwf, thread: str, hermetic: Path
) -> None:
    begins = "$START: {_: {role: r}, resume: {role: r}}"
    (hermetic / "two.yaml").write_text(
        ONE.replace("name: one", "name: two").replace("$START: [{role: r}]", begins)
    )
    uwf("workflow", "put", hermetic / "two.yaml")
    ended = str(uwf("thread", "start", "two", "-p", "Do it").json["thread"])
    assert uwf("thread", "step", ended).json["done"]
    instance = opened()
    with instance.locks.deleting():
        resumed = begin("thread", "resume", ended, "-m", "once more")
        waited_for = str(instance.store.repository.private / "locks" / "writers")
        deadline = time.monotonic() + 60
        while waited_for not in map(os.path.realpath, Path(f"/proc/{resumed.pid}/fd").iterdir()):
            assert resumed.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        with closing(sqlite3.connect(instance.store.repository.private / "index.db", timeout=5)) as index:
            index.execute("BEGIN IMMEDIATE")
            index.execute("ROLLBACK")
    assert resumed.communicate(timeout=60)[1] == "" and resumed.returncode == 0


def test_the_store_is_packed_and_says_what_it_was_and_is(uwf: Uwf, thread: str) -> None:
    before = uwf("thread", "read", thread).out
    value = uwf("gc").json
    assert value["folded"] == {}
    assert value["before"]["packs"] > 1
    assert value["after"]["loose"] <= 1  # a tree that was only on the way
    assert 1 <= value["after"]["packs"] <= 2
    assert value["after"]["refs"] == value["before"]["refs"] == 2
    assert 0 < value["after"]["bytes"] < value["before"]["bytes"]
    repository = opened().store.repository
    assert not [path for path in (repository.path / "refs" / "uwf").rglob("*") if path.is_file()]
    assert uwf("thread", "read", thread).out == before
    text = uwf("gc", "--format", "text").out
    assert "before" in text and "loose" in text


def test_what_nothing_refers_to_is_kept_two_weeks_and_then_forgotten(
    uwf: Uwf, root: Path, thread: str
) -> None:
    store = opened().store
    node = store.put(TEXT, "nobody refers to me")
    uwf("gc")
    age(root, 13)
    uwf("gc")
    assert uwf("cas", "has", node).json["exists"]
    age(root, 15)
    uwf("gc")
    assert not opened().store.repository.has(store.blob_of(node))
    uwf("cas", "get", node, check=3)
    again = opened().store
    assert again.put(TEXT, "nobody refers to me") == node
    assert again.get(Hash(node)).payload == "nobody refers to me"


def test_in_a_repository_shared_with_code_the_settings_of_its_user_count(
    uwf: Uwf, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    project = hermetic / "project"
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    uwf("init", "--here", cwd=project)
    blob = subprocess.run(
        ["git", "-C", str(project), "hash-object", "-w", "--stdin"],
        input=b"code", capture_output=True, check=True,
    ).stdout.decode().strip()  # fmt: skip
    loose = project / ".git" / "objects" / blob[:2] / blob[2:]
    os.utime(loose, (time.time() - 30 * DAY,) * 2)
    subprocess.run(["git", "-C", str(project), "config", "gc.pruneExpire", "never"], check=True)
    uwf("gc", cwd=project)
    assert subprocess.run(["git", "-C", str(project), "cat-file", "-e", blob], check=False).returncode == 0


def test_only_who_asks_folds_and_only_what_is_old_enough(uwf: Uwf, thread: str) -> None:
    assert uwf("gc", "--fold-before", "1d").json["folded"] == {}
    assert uwf("gc", "--fold-before", "2020-01-01").json["folded"] == {}
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * DAY))
    folded = uwf("gc", "--fold-before", tomorrow).json["folded"]
    assert list(folded.values()) == [1]
    names = opened().store.repository.ref_names(layout.FOLDED)
    assert names == [layout.FOLDED + month for month in folded]
    assert uwf("thread", "show", thread).json["status"] == "completed"


@pytest.mark.parametrize("text", ["yesterday", "30", "2025-13-01", "-1d", "d", ""])
def test_a_day_that_is_none_is_refused(text: str, uwf: Uwf, thread: str) -> None:
    assert "--fold-before" in uwf("gc", "--fold-before", text, check=2).error["message"]


def test_a_second_gc_at_the_same_time_is_busy(uwf: Uwf, root: Path, thread: str) -> None:
    host = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    (root / "store.git" / "gc.pid").write_text(f"{os.getpid()} {host}")
    assert uwf("gc", check=4).error["code"] == "busy"


@pytest.mark.parametrize("times", [1, 9])
def test_a_packing_that_others_disturb_is_done_once_more_and_damage_is_told(
    uwf: Uwf, thread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    said = f"fatal: loose object {'a' * 40} (stored in objects/aa/{'a' * 38}) is corrupt"
    calls = git_that_fails(tmp_path / "bin", "gc", said, times)
    monkeypatch.setenv("PATH", f"{calls.parent}{os.pathsep}{os.environ['PATH']}")
    told = uwf("gc", check=0 if times == 1 else 1)
    assert calls.read_text().count("x") == (2 if times == 1 else 4)
    assert times == 1 or "is corrupt" in told.error["message"]


def test_without_git_it_says_so(uwf: Uwf, thread: str, tmp_path: Path) -> None:
    assert "git" in uwf("gc", env={"PATH": str(tmp_path)}, check=8).error["message"]


def test_there_must_be_a_store(uwf: Uwf) -> None:
    uwf("gc", check=3)
