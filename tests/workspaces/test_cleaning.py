"""What ended threads have left is shown, and removed: what is merged, and if asked for what is nowhere else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import on_terminal
from commands import git
from conftest import Uwf
from faults import DRIVER_WITH_GIT
from landing_shop import Shop
from two_machines import RELAY

WRITES = """uwf-exec sh -c 'echo "$UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def project(uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    for name in ("one", "two"):
        commit(path, f"{name}.txt", "".join(f"{number}\n" for number in range(30)))
    monkeypatch.chdir(path)
    (tmp_path / "relay.yaml").write_text(RELAY)
    uwf("workflow", "put", tmp_path / "relay.yaml")
    return path


def commit(project: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    git("-C", project, "add", "-A")
    git("-C", project, "commit", "-q", "-m", name)


def started(uwf: Uwf, agent: str = WRITES) -> str:
    """A thread after one step in a worktree."""
    thread = str(uwf("thread", "start", "relay", "-p", "Do it", "--workspace", "worktree").json["thread"])
    uwf("thread", "step", thread, "--agent", agent)
    return thread


def completed(uwf: Uwf, agent: str = WRITES) -> str:
    thread = started(uwf, agent)
    uwf("thread", "step", thread, "--agent", agent)
    return thread


def killed(uwf: Uwf) -> str:
    thread = started(uwf)
    uwf("thread", "kill", thread)
    return thread


def shared(uwf: Uwf, folder: Path) -> Path:
    """Gives the project a remote for code, which is returned, and the store one for threads."""
    git("init", "-q", "--bare", there := folder / "there.git")
    git("remote", "add", "origin", there)
    uwf("config", "set", "workspace.remote", "origin")
    git("init", "-q", "--bare", folder / "threads.git")
    uwf("remote", "add", "hub", folder / "threads.git")
    return there


def ref(thread: str) -> str:
    return f"refs/uwf/work/{thread}"


def refs(project: Path) -> list[str]:
    return git("-C", project, "for-each-ref", "--format=%(refname)", "refs/uwf").split()


def cleaned(uwf: Uwf, *words: str) -> list[Any]:
    return list(uwf("clean", *words).json)


def swept(uwf: Uwf, project: Path) -> list[str]:
    """The findings after git has removed all objects that no ref leads to."""
    git("-C", project, "reflog", "expire", "--expire=now", "--all")
    git("-C", project, "gc", "-q", "--prune=now")
    return [finding["code"] for finding in uwf("verify").json["findings"]]


def test_code_that_a_branch_has_goes_without_a_loss_and_is_not_listed_again(uwf: Uwf, project: Path) -> None:
    thread = completed(uwf)
    assert cleaned(uwf) == []
    git("merge", "-q", "--no-ff", "-m", "merge", ref(thread))
    (listed,) = cleaned(uwf)
    assert listed["removes"] == [ref(thread)] and not listed["removed"] and refs(project) == [ref(thread)]
    assert listed["merged"] == {"into": "main", "commits": True} and listed["loses"] == listed["stays"] == []
    (done,) = cleaned(uwf, "--yes")
    assert done["removed"] and refs(project) == [] and cleaned(uwf) == cleaned(uwf, "--discard") == []
    report = uwf("verify").json
    assert (report["findings"], report["notes"]) == ([], [])


def squashed(project: Path, thread: str) -> None:
    git("merge", "-q", "--squash", ref(thread))
    git("commit", "-q", "-m", "squashed")


def rebased(project: Path, thread: str) -> None:
    git("switch", "-q", "--detach", ref(thread))
    git("rebase", "-q", "main")
    git("switch", "-q", "main")
    git("merge", "-q", "--ff-only", "HEAD@{1}")


def picked(project: Path, thread: str) -> None:
    for number in (1, 0):
        git("cherry-pick", f"{ref(thread)}~{number}")
        commit(project, f"between{number}", "x")


@pytest.mark.parametrize("merge", [squashed, rebased, picked])
@pytest.mark.parametrize("goes_on", [False, True])
def test_code_whose_changes_a_branch_has_is_merged_and_its_commits_stay_with_the_thread(
    uwf: Uwf, project: Path, tmp_path: Path, merge: Any, goes_on: bool
) -> None:
    there = shared(uwf, tmp_path)
    thread = completed(uwf)
    uwf("push", "hub")
    assert git("-C", there, "for-each-ref", "--format=%(refname)") == ref(thread)
    commit(project, "meanwhile.txt", "x")
    merge(project, thread)
    if goes_on:
        commit(project, "made.txt", "all of it is other text by now\n")
    assert cleaned(uwf, "--yes") == []
    (shown,) = cleaned(uwf, thread)
    assert shown["merged"] == {"into": "main", "commits": False} and shown["removes"] == []
    assert (
        shown["stays"][0]["place"] == ref(thread) and "of which a branch has" in shown["stays"][0]["reason"]
    )
    (done,) = cleaned(uwf, "--remote", "--yes")
    assert done["removes"] == [f"{ref(thread)} on origin"] and done["removed"]
    assert git("-C", there, "for-each-ref") == "" and refs(project) == [ref(thread)]
    assert cleaned(uwf, "--remote") == []
    assert "code" not in uwf("push", "hub").json and git("-C", there, "for-each-ref") == ""
    git("gc", "-q", "--prune=now")
    assert uwf("verify").json["findings"] == []
    assert "nowhere else" not in uwf("thread", "rm", thread, "--yes").err
    uwf("thread", "restore", thread)
    assert uwf("verify").json["findings"] == []
    uwf("thread", "rm", thread, "--yes")
    uwf("gc", "--prune")
    uwf("gc")
    assert refs(project) == []


def test_another_change_of_the_same_file_is_no_merge(uwf: Uwf, project: Path) -> None:
    thread = completed(uwf)
    commit(project, "made.txt", "writer\n")
    (shown,) = cleaned(uwf, thread, "--yes")
    assert shown["merged"] is None and shown["removes"] == [] and refs(project) == [ref(thread)]


def test_what_would_be_lost_is_named_and_goes_only_if_it_is_asked_for(uwf: Uwf, project: Path) -> None:
    thread = killed(uwf)
    tip = git("rev-parse", ref(thread))
    for words in ([], ["--yes"]):
        (shown,) = cleaned(uwf, *words)
        assert shown["removes"] == [] and shown["status"] == "killed"
        assert shown["loses"] == [{"place": ref(thread), "commit": tip, "commits": 1, "files": ["made.txt"]}]
        assert refs(project) == [ref(thread)]
    text = uwf("clean", "--discard", "--format", "text")
    assert f"{ref(thread)}: 1 commit up to {tip[:12]}, changing made.txt" in text.out
    assert "nothing was removed" in text.err and refs(project) == [ref(thread)]
    cleaned(uwf, "--discard", "--yes")
    assert refs(project) == [] and cleaned(uwf, "--discard") == []
    git("reflog", "expire", "--expire=now", "--all")
    git("gc", "-q", "--prune=now")
    report = uwf("verify").json
    assert report["findings"] == [] and [note["code"] for note in report["notes"]] == ["code-elsewhere"]


def test_completed_work_that_is_not_merged_goes_only_if_its_thread_is_named(uwf: Uwf, project: Path) -> None:
    thread = completed(uwf)
    assert cleaned(uwf, "--discard", "--yes") == [] and refs(project) == [ref(thread)]
    (shown,) = cleaned(uwf, thread)
    assert shown["removes"] == [] and shown["loses"][0]["commits"] == 2
    cleaned(uwf, thread, "--discard", "--yes")
    assert refs(project) == []


def test_a_thread_that_goes_on_is_left_alone(uwf: Uwf, project: Path, root: Path) -> None:
    thread = started(uwf)
    git("merge", "-q", ref(thread))
    assert cleaned(uwf, "--discard", "--yes") == [] and (root / "workspaces" / thread).is_dir()
    error = uwf("clean", thread, "--yes", check=1).error
    assert "has not ended" in error["message"] and f"uwf workspace remove {thread}" in error["hint"]


def test_commits_that_two_threads_have_go_with_the_last_of_them(uwf: Uwf, project: Path) -> None:
    thread = started(uwf)
    fork = uwf("thread", "fork", thread).json["thread"]
    uwf("thread", "step", fork, "--agent", WRITES)
    uwf("thread", "kill", thread)
    cleaned(uwf, "--yes")
    assert {*refs(project)} == {ref(thread), ref(fork)}
    cleaned(uwf, "--discard", "--yes")
    assert refs(project) == [ref(fork)] and swept(uwf, project) == []
    cleaned(uwf, fork, "--discard", "--yes")
    assert refs(project) == [] and swept(uwf, project) == []


@pytest.mark.parametrize("named", [False, True])
def test_accepted_work_outlives_the_failed_thread_that_went_on_with_it(
    uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    shop = Shop(uwf, tmp_path, config)
    shop.configured()
    monkeypatch.chdir(shop.project)
    accepted = shop.accepted()
    tip = git("rev-parse", ref(accepted))
    shop.adds("three")
    dropped = uwf("thread", "resume", accepted, "-m", "more").json["thread"]
    uwf("thread", "run", dropped, check=5)
    uwf("thread", "answer", dropped, "-m", "drop", check=10)
    assert git("merge-base", ref(dropped), tip) == tip
    cleaned(uwf, *([accepted] if named else []), "--yes")
    assert {ref(accepted), ref(dropped)} <= {*refs(shop.project)}
    cleaned(uwf, "--discard", "--yes")
    assert ref(dropped) not in refs(shop.project) and git("rev-parse", ref(accepted)) == tip
    assert swept(uwf, shop.project) == []
    git("cat-file", "-e", tip)
    cleaned(uwf, accepted, "--discard", "--yes")
    assert refs(shop.project) == [] and swept(uwf, shop.project) == []


def test_a_thread_that_goes_on_with_discarded_work_keeps_its_commits(uwf: Uwf, project: Path) -> None:
    thread = started(uwf)
    tip = git("rev-parse", ref(thread))
    fork = uwf("thread", "fork", thread).json["thread"]
    twice = uwf("thread", "fork", fork).json["thread"]
    over = uwf("thread", "fork", thread).json["thread"]
    for doomed in (thread, over):
        uwf("thread", "kill", doomed)
    cleaned(uwf, "--discard", "--yes")
    assert refs(project) == [ref(fork), ref(twice)] and swept(uwf, project) == []
    uwf("thread", "step", twice, "--agent", WRITES)
    assert git("merge-base", ref(twice), tip) == tip


def test_worktrees_and_kept_files_of_ended_threads_go_and_their_files_are_named(
    uwf: Uwf, project: Path, root: Path
) -> None:
    uwf("config", "set", "workspace.keepIgnored", "[report.txt]")
    commit(project, ".gitignore", "report.txt\n")
    thread = started(uwf, WRITES.replace("echo", "echo ok > report.txt; echo", 1))
    worktree = root / "workspaces" / thread
    git("-C", project, "worktree", "add", "-q", "--detach", worktree / "inner")
    uwf("thread", "kill", thread)
    failed = uwf("clean", "--yes", check=1)
    assert "inner/.git" in failed.err and worktree.is_dir()
    assert [item["removed"] for item in failed.json] == [False]
    git("-C", project, "worktree", "remove", "--force", worktree / "inner")
    (worktree / "hand.txt").write_text("by hand")
    (shown,) = cleaned(uwf)
    assert shown["removes"] == [str(worktree)]
    cleaned(uwf, "--yes")
    kept = root / "ignored" / thread
    assert not worktree.exists() and (kept / "report.txt").exists()
    (shown,) = cleaned(uwf, "--discard")
    lost = {loss["place"]: loss["files"] for loss in shown["loses"]}
    assert lost[str(kept)] == ["report.txt"] and ["hand.txt", "made.txt"] in lost.values()
    cleaned(uwf, "--discard", "--yes")
    assert not kept.exists() and refs(project) == []
    assert not any((project / ".git/uwf-worktrees").iterdir())


def test_code_of_a_removed_thread_that_is_nowhere_else_is_listed_until_it_is_discarded(
    uwf: Uwf, project: Path
) -> None:
    thread = completed(uwf)
    assert "nowhere else" in uwf("thread", "rm", thread, "--yes").err
    uwf("gc", "--prune")
    uwf("gc")
    (shown,) = cleaned(uwf)
    assert (shown["thread"], shown["status"], shown["removes"]) == (thread, None, [])
    cleaned(uwf, "--discard", "--yes")
    assert refs(project) == [] and cleaned(uwf) == []


def test_a_terminal_is_asked_once(uwf: Uwf, project: Path) -> None:
    thread = completed(uwf)
    git("merge", "-q", ref(thread))
    for answer, stays in (("n", True), ("y", False)):
        code, shown = on_terminal("clean", typed=[("[y/N]", answer)])
        assert code == 0 and shown.count("[y/N]") == 1 and f"removes    {ref(thread)}" in shown
        assert (ref(thread) in refs(project)) is stays
    code, shown = on_terminal("clean")
    assert code == 0 and "nothing to remove" in shown and "[y/N]" not in shown


def test_what_moved_on_the_remote_stays_there_and_what_is_gone_there_is_done(
    uwf: Uwf, project: Path, tmp_path: Path
) -> None:
    there = shared(uwf, tmp_path)
    moved, gone = completed(uwf), completed(uwf)
    uwf("push", "hub")
    for thread in (moved, gone):
        git("merge", "-q", "-s", "ours", "-m", "merge", ref(thread))
    other = git("-C", project, "commit-tree", f"{ref(moved)}^{{tree}}", "-p", ref(moved), "-m", "on")
    git("push", "-q", "origin", f"{other}:{ref(moved)}", f":{ref(gone)}")
    done = uwf("clean", "--remote", "--yes", check=8)
    assert {item["thread"]: item["removed"] for item in done.json} == {moved: False, gone: True}
    assert f"{ref(moved)} of thread {moved} stays on origin: " in done.err
    assert git("-C", there, "for-each-ref", "--format=%(refname)") == ref(moved)
    assert not [name for name in refs(project) if gone in name]


@pytest.mark.extended
@pytest.mark.timeout(1200)
def test_a_kill_at_any_write_loses_nothing_and_the_next_call_finishes(
    uwf: Uwf, project: Path, root: Path, tmp_path: Path
) -> None:
    there = shared(uwf, tmp_path)
    texts = (WRITES.replace("$UWF_ROLE", f"{name}") for name in ("merged", "waits"))
    merged, waits = (completed(uwf, text) for text in texts)
    doomed = started(uwf)
    uwf("push", "hub")
    uwf("thread", "kill", doomed)
    git("-C", project, "merge", "-q", "-s", "ours", "-m", "merge", ref(merged))
    folders = {
        path: tmp_path / "before" / path.name for path in (project, root, there, tmp_path / "threads.git")
    }
    for path, copy in folders.items():
        shutil.copytree(path, copy, symlinks=True)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER_WITH_GIT)
    words = ("--root", str(root), "clean", "--remote", "--discard", "--yes")
    number, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        number += 1
        for path, copy in folders.items():
            shutil.rmtree(path)
            shutil.copytree(copy, path, symlinks=True)
        os.chdir(project)
        call = [sys.executable, driver, str(number), "before", *words]
        status = subprocess.run(call, capture_output=True, check=False).returncode
        cleaned(uwf, "--remote", "--discard", "--yes")
        listed = git("-C", there, "for-each-ref", "--format=%(refname)").split()
        assert listed == [ref(waits)], number
        assert [name for name in refs(project) if "/local/" not in name] == [ref(waits)], number
        assert uwf("verify").json["findings"] == [], number
    uwf("push", "hub")
    assert git("-C", there, "for-each-ref", "--format=%(refname)") == ref(waits)
    assert status == 0 and number > 5
