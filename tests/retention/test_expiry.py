"""Threads that ended long ago are removed by the rules of `keep`, for good, and a record of each stays."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE, write
from conftest import EXAMPLES, Uwf

SECRET = "The patient is called Jane Q. Example-Person."
Config = Callable[[str], Path]


def removed_after_a_push(uwf: Uwf, config: Config, server: Path) -> str:
    """A thread that a rule has removed here, and that the remote origin has, a new repository."""
    thread = ended(uwf)
    subprocess.run(["git", "init", "--quiet", "--bare", server], check=True)
    uwf("remote", "add", "origin", server)
    uwf("push")
    config("keep: 1ms\n")
    uwf("expire", "--yes")
    return thread


def ended(uwf: Uwf, workflow: str = "one", text: str = SECRET) -> str:
    """A thread that has ended, with a failed attempt, whose task and answers have the text."""
    thread = str(uwf("thread", "start", workflow, "-p", text).json["thread"])
    uwf("thread", "step", thread, "--agent", f"uwf-exec sh -c 'echo {text[:20]}; exit 3'", check=None)
    answer = json.dumps({"n": 1})
    uwf("thread", "step", thread, "--agent", f"uwf-exec printf '%s\\n%s\\n' '{text}' '{answer}'")
    assert uwf("thread", "show", thread).json["status"] == "completed"
    return thread


@pytest.fixture
def registered(uwf: Uwf) -> None:
    uwf("workflow", "put", write("one.yaml", ONE))
    uwf("workflow", "put", write("two.yaml", ONE.replace("name: one", "name: two")))


def git(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "--git-dir", store, *words], capture_output=True, text=True, check=False)


def objects(store: Path, *refs: str) -> set[str]:
    listed = git(store, "rev-list", "--objects", *refs).stdout
    return {line[:40] for line in listed.splitlines()}


def holding(root: Path, text: str) -> list[Path]:
    """The files below a folder that have a text as it stands, and the objects of git that have it."""
    files = [path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    store = root / "store.git"
    names = git(store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").stdout.split()
    return files + [Path(name) for name in names if text in git(store, "cat-file", "-p", name).stdout]


@pytest.mark.usefixtures("registered")
def test_what_a_rule_removes_is_gone_from_the_disk_and_its_record_stays(
    uwf: Uwf, config: Config, root: Path
) -> None:
    thread, other = ended(uwf), ended(uwf, "two", "Another task, which nobody minds.")
    head = git(root / "store.git", "rev-parse", f"refs/uwf/archive/{thread}^{{commit}}").stdout.strip()
    assert holding(root, "Jane Q. Example")
    assert uwf("expire").json == []
    config("keep: {workflows: {one: 1ms}, default: forever}\n")
    (listed,) = uwf("expire").json
    assert (listed["thread"], listed["rule"], listed["removed"]) == (thread, "keep.workflows.one 1ms", False)
    assert uwf("thread", "show", thread).json["status"] == "completed"

    before = int(time.time())
    (done,) = uwf("expire", "--yes").json
    assert done == {**listed, "removed": True}
    assert holding(root, "Jane Q. Example") == []
    assert git(root / "store.git", "cat-file", "-t", head).returncode != 0
    gone = uwf("thread", "show", thread, check=3)
    assert "was removed by the rule keep.workflows.one 1ms" in gone.err and "uwf expire --removed" in gone.err
    assert uwf("thread", "show", other).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []

    (record,) = uwf("expire", "--removed").json
    assert (record["thread"], record["workflow"], record["head"], record["steps"]) == (thread, "one", head, 1)
    assert (record["status"], record["rule"]) == ("completed", "keep.workflows.one 1ms")
    assert record["by"] and record["at"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before))
    assert uwf("expire", "--yes").json == [] and len(uwf("expire", "--removed").json) == 1


@pytest.mark.usefixtures("registered")
def test_active_threads_and_those_that_are_held_stay(uwf: Uwf, config: Config) -> None:
    held, gone = ended(uwf), ended(uwf)
    active = uwf("thread", "start", "one", "-p", "Still at it").json["thread"]
    config("keep: 1ms\n")
    uwf("config", "set", "keep", "{default: 1ms}")
    uwf("config", "set", f"keep.threads.{held}", "lawsuit 17")
    done = uwf("expire", "--yes")
    assert [item["thread"] for item in done.json if item["removed"]] == [gone]
    assert [item["thread"] for item in done.json if item["kept"] == "lawsuit 17"] == [held]
    assert {item["thread"] for item in uwf("thread", "list", "--all").json} == {held, active}
    uwf("config", "unset", f"keep.threads.{held}")
    assert [item["thread"] for item in uwf("expire", "--yes").json] == [held]


@pytest.mark.usefixtures("registered")
def test_it_lists_what_a_day_will_remove(uwf: Uwf, config: Config) -> None:
    thread = ended(uwf)
    config("keep: 90d\n")
    assert uwf("expire").json == []
    (item,) = uwf("expire", "--on", "2100-01-01", "--yes").json
    assert (item["thread"], item["removed"]) == (thread, False)
    assert uwf("thread", "show", thread).json["status"] == "completed"


@pytest.mark.usefixtures("registered")
def test_a_fork_keeps_what_it_shares(uwf: Uwf, config: Config, root: Path) -> None:
    thread = ended(uwf)
    fork = uwf("thread", "fork", thread, "--from-role", "r").json["thread"]
    config("keep: 1ms\n")
    uwf("expire", "--yes")
    assert uwf("thread", "show", fork).json["status"] == "idle"
    assert uwf("verify").json["findings"] == []
    assert holding(root, "Jane Q. Example")  # of the task


@pytest.mark.usefixtures("registered")
def test_what_was_removed_here_stays_so_whatever_a_remote_has(
    uwf: Uwf, config: Config, root: Path, tmp_path: Path
) -> None:
    server = tmp_path / "server.git"
    thread = removed_after_a_push(uwf, config, server)
    assert holding(root, "Jane Q. Example") == []
    uwf("pull")
    assert holding(root, "Jane Q. Example") == []
    uwf("push")
    assert objects(server, f"refs/uwf/archive/{thread}")

    # Another machine has its own rules, and none until it has some.
    there = {"UWF_STORAGE_ROOT": str(tmp_path / "there")}
    uwf("clone", server, env=there)
    assert uwf("thread", "show", thread, env=there).json["status"] == "completed"
    (tmp_path / "there" / "config.yaml").write_text("keep: 1ms\n")
    uwf("expire", "--remote", "origin", "--yes", env=there)
    assert holding(tmp_path / "there", "Jane Q. Example") == []
    assert thread not in git(server, "for-each-ref").stdout
    uwf("push", env=there)
    uwf("pull")
    uwf("push")
    assert thread not in git(server, "for-each-ref").stdout
    assert uwf("verify").json["findings"] == []


@pytest.mark.usefixtures("registered")
def test_what_stays_on_a_remote_can_be_removed_later(uwf: Uwf, config: Config, tmp_path: Path) -> None:
    server = tmp_path / "server.git"
    thread = removed_after_a_push(uwf, config, server)
    assert thread in git(server, "for-each-ref").stdout
    uwf("expire", "--remote", "origin", "--yes")
    assert thread not in git(server, "for-each-ref").stdout


@pytest.mark.usefixtures("registered")
def test_a_folded_thread_goes_from_its_fold_here_and_there(
    uwf: Uwf, config: Config, root: Path, tmp_path: Path
) -> None:
    thread, other = ended(uwf), ended(uwf, "two", "Another task.")
    server = tmp_path / "server.git"
    subprocess.run(["git", "init", "--quiet", "--bare", server], check=True)
    uwf("remote", "add", "origin", server)
    uwf("gc", "--fold-before", "2100-01-01")
    uwf("push")
    config("keep: {workflows: {one: 1ms}}\n")
    (item,) = uwf("expire", "--yes").json
    assert (item["thread"], item["removed"], item["stays"]) == (thread, True, True)
    uwf("expire", "--remote", "origin", "--yes")
    assert holding(root, "Jane Q. Example") == []
    assert uwf("thread", "show", other).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []
    assert thread in uwf("expire", "--removed").out


@pytest.mark.usefixtures("registered")
def test_a_record_that_is_missing_from_the_chain_is_told(uwf: Uwf, config: Config, root: Path) -> None:
    config("keep: 1ms\n")
    ended(uwf)
    uwf("expire", "--yes")
    first = git(root / "store.git", "rev-parse", "refs/uwf/local/retention/log").stdout.strip()
    ended(uwf)
    uwf("expire", "--yes")
    assert {item["record"] is not None for item in uwf("expire", "--removed").json} == {True}
    (check,) = [item for item in uwf("doctor", check=None).json if item["check"] == "retention"]
    assert (check["status"], check["message"]) == ("ok", "2 removed threads in the record")
    git(root / "store.git", "update-ref", "refs/uwf/local/retention/log", first)
    (check,) = [item for item in uwf("doctor", check=None).json if item["check"] == "retention"]
    assert check["status"] == "warning" and "1 thread that a rule removed" in check["message"]
    assert [item["record"] is None for item in uwf("expire", "--removed").json] == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keep: 90\n", "keep is not a duration"),
        ("keep: {threads: {01JK: x}}\n", "01JK is no id of a thread"),
        ("keep: {workflow: {one: 3d}}\n", "unknown key"),
    ],
)
def test_a_wrong_rule_removes_nothing(uwf: Uwf, config: Config, text: str, message: str) -> None:
    uwf("init")
    config(text)
    assert message in uwf("expire", "--yes", check=1).err.replace('\\"', '"')


def test_branches_go_with_the_thread_that_they_are_of(uwf: Uwf, config: Config) -> None:
    uwf("workflow", "put", EXAMPLES / "fan-out.yaml")
    thread = uwf("run", "fan-out", "-p", "Audit it.", "--agent", "uwf-rehearse", check=None)
    everything = {item["thread"] for item in uwf("thread", "list", "--all", "--branches").json}
    assert len(everything) > 1, thread.err
    config("keep: 1ms\n")
    listed = [item["thread"] for item in uwf("expire").json]
    assert len(listed) == 1
    uwf("expire", "--yes")
    assert uwf("thread", "list", "--all", "--branches").json == []
    assert {item["thread"] for item in uwf("expire", "--removed").json} == everything


@pytest.mark.usefixtures("registered")
def test_a_pull_by_its_id_brings_nothing_back_that_a_rule_has_removed(
    uwf: Uwf, config: Config, root: Path, tmp_path: Path
) -> None:
    thread = removed_after_a_push(uwf, config, tmp_path / "server.git")
    said = uwf("pull", "origin", thread, check=None)
    assert holding(root, "Jane Q. Example") == [], said.out + said.err
