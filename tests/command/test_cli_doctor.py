"""`uwf doctor` tells what is not shared yet, what forges won't take, and what was left over."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from workflows import opened

from uwf_git.format.types import TEXT
from uwf_git.store import layout
from uwf_git.store.indexing import pin

DAY = 24 * 60 * 60


@pytest.fixture
def found(uwf: Uwf) -> Callable[..., list[dict[str, Any]]]:
    """What `uwf doctor` says of one thing that it checks."""

    def look(check: str, *options: str, code: int = 0) -> list[dict[str, Any]]:
        return [each for each in uwf("doctor", *options, check=code).json if each["check"] == check]

    return look


Found = Callable[..., list[dict[str, Any]]]


def test_without_a_remote_nothing_is_said_of_pushing(found: Found, thread: str) -> None:
    assert found("remotes") == []


def test_a_wrong_configuration_is_told_once(
    uwf: Uwf, thread: str, root: Path, config: Callable[[str], Path]
) -> None:
    config("nokey: 1\nnoother: 2\n")
    failed = [each for each in uwf("doctor", check=1).json if each["status"] == "error"]
    assert [each["message"] for each in failed] == [
        f'{root / "config.yaml"}:1:1: unknown key "nokey"',
        f'{root / "config.yaml"}:2:1: unknown key "noother"',
    ]
    config("a: [\n")
    assert [each["check"] for each in uwf("doctor", check=1).json if each["status"] == "error"] == ["config"]


def test_commands_that_are_allowed_and_can_not_be_confined_are_told(
    found: Found, config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found("sandbox") == []  # nothing is allowed, so nothing has to be confined
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    program.chmod(0o755)
    config("tools: {runCommand: true}\n")
    (said,) = found("sandbox")
    assert said["status"] == "warning" and "none will run: bwrap does not work here" in said["message"]
    config("agents: {a: {command: uwf-builtin, tools: {runCommand: true, allowUnconfined: true}}}\n")
    (said,) = found("sandbox")
    assert said["status"] == "warning" and "without a sandbox and reach whatever you can" in said["message"]


def test_threads_that_are_not_on_a_remote_are_counted(
    uwf: Uwf, found: Found, thread: str, hermetic: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", str(hermetic / "shared.git")], check=True)
    uwf("remote", "add", "origin", hermetic / "shared.git")
    said = found("remotes")[0]
    assert (said["status"], said["hint"]) == ("warning", "uwf push origin")
    assert said["message"] == "1 thread and 1 other ref are not on origin, or not as here"
    uwf("push", "origin", "--all")
    assert found("remotes")[0]["status"] == "ok"
    uwf("thread", "step", thread)
    assert found("remotes")[0]["message"] == "1 thread is not on origin, or not as here"


@pytest.mark.extended
def test_a_node_that_forges_do_not_like_or_do_not_take_is_named(
    found: Found, thread: str, root: Path
) -> None:
    assert [each["status"] for each in found("sizes")] == ["ok"]
    config = ["git", "--git-dir", root / "store.git", "config"]
    subprocess.run([*config, "uwf.maxBlob", "100m"], check=True)
    store = opened().store
    large = store.put(TEXT, "x" * 2_000_000)
    pin(store, large)
    said = found("sizes")
    assert [each["status"] for each in said] == ["warning"]
    assert large in said[0]["message"] and "2.0 MB" in said[0]["message"]
    huge = store.put(TEXT, "x" * 96_000_000)
    pin(store, huge)
    subprocess.run([*config, "--unset", "uwf.maxBlob"], check=True)
    errors = [each for each in found("sizes", code=1) if each["status"] == "error"]
    assert [huge in each["message"] for each in errors] == [True]
    assert "more than forges take" in errors[0]["message"] and errors[0]["hint"]


def test_an_index_that_lacks_something_is_stale_until_that_is_read(
    uwf: Uwf, found: Found, thread: str, root: Path
) -> None:
    uwf("thread", "step", thread)
    assert {each["status"] for each in found("index")} == {"ok"}
    db = sqlite3.connect(root / "store.git" / "uwf" / "index.db")
    with db:
        db.execute("DELETE FROM nodes WHERE hash IN (SELECT node FROM commits WHERE kind = 'step')")
    db.close()
    said = found("index")[0]
    assert (said["status"], said["hint"]) == ("warning", "uwf cas reindex")
    assert "1 node missing" in said["message"]
    assert {each["status"] for each in found("index")} == {"ok"}  # reading that step has made it anew


def test_an_index_that_knows_what_is_gone_is_stale(found: Found, thread: str, root: Path) -> None:
    store = opened().store
    blob = str(store.blob_of(store.put(TEXT, "nobody refers to me")))
    (root / "store.git" / "objects" / blob[:2] / blob[2:]).unlink()
    assert "1 node whose object is gone" in found("index")[0]["message"]
    assert "built anew" in found("index", "--fix")[0]["message"]
    assert {each["status"] for each in found("index")} == {"ok"}


def test_packs_that_a_killed_git_left_are_named_and_removed_when_they_are_old(
    found: Found, thread: str, root: Path
) -> None:
    folder = root / "store.git" / "objects" / "pack"
    folder.mkdir(exist_ok=True)
    old, young = folder / "tmp_pack_old", folder / "tmp_pack_young"
    for path in (old, young):
        path.write_bytes(b"x" * 1000)
    os.utime(old, (time.time() - 2 * DAY,) * 2)
    said = found("leftovers")[0]
    assert (said["status"], said["hint"]) == ("warning", "uwf doctor --fix")
    assert "1 temporary file" in said["message"]
    assert found("leftovers", "--fix")[0]["status"] == "ok"
    assert (old.exists(), young.exists()) == (False, True)
    assert found("leftovers") == []


def test_a_fold_that_is_none_is_damage(uwf: Uwf, found: Found, thread: str) -> None:
    repository = opened().store.repository
    head = repository.ref(layout.THREADS + thread)
    assert head is not None
    repository.create_ref(layout.FOLDED + "2025-01", head)
    said = [each for each in found("refs", code=7) if each["status"] == "error"]
    assert "2025-01" in said[0]["message"] and "not a fold" in said[0]["message"]
    assert uwf("thread", "list").json[0]["thread"] == thread


def test_a_ref_that_is_no_threads_is_named_without_reading_objects(found: Found, thread: str) -> None:
    repository = opened().store.repository
    head = repository.ref(layout.THREADS + thread)
    assert head is not None
    assert [each["status"] for each in found("refs", "--quick")] == ["ok"]
    repository.create_ref(f"{layout.THREADS}foo", head)
    said, _ = found("refs", "--quick")
    assert said["status"] == "warning" and said["message"].startswith("refs/uwf/threads/foo has no name")


def test_an_active_ref_of_a_folded_thread_is_left_over_and_its_own_steps_are_not_removed(
    uwf: Uwf, found: Found, thread: str
) -> None:
    repository = opened().store.repository
    start = repository.ref(layout.THREADS + thread)
    uwf("thread", "step", thread)
    ahead = repository.ref(layout.THREADS + thread)
    assert start is not None and ahead is not None
    uwf("thread", "kill", thread)
    uwf("gc", "--fold-before", "9999-01-01")
    repository.create_ref(layout.THREADS + thread, start)
    assert "left over" in found("refs")[0]["message"]
    assert "removed" in found("refs", "--fix")[0]["message"]
    assert repository.ref(layout.THREADS + thread) is None
    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    uwf("thread", "kill", other)
    repository.create_ref(layout.THREADS + other, ahead)
    said = found("refs", "--fix")[0]
    assert said["status"] == "warning" and "after its thread's end" in said["message"]
    assert repository.ref(layout.THREADS + other) == ahead
