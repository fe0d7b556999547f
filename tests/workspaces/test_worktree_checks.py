"""What `uwf doctor` and `uwf gc` do about worktrees."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import start_thread

from uwf_git.engine.step import step
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option

WRITES = """uwf-exec sh -c 'echo made > made.txt; echo "{\\"text\\": \\"done\\"}"'"""


def test_worktrees_of_ended_and_removed_threads_are_told_and_removed(
    uwf: Uwf, root: Path, instance: Instance, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")

    def checks() -> list[tuple[str, str]]:
        found = uwf("doctor", "--quick", check=None).json
        return [(each["status"], each["message"]) for each in found if each["check"] == "worktrees"]

    threads = [start_thread(instance, RELAY) for _ in range(3)]
    for thread in threads:
        assign(instance, thread, parse_option(f"worktree:{project}"), project)
        step(instance, thread, WRITES)
    assert checks() == [("ok", "3 of at most 50")]
    ended, removed, stays = threads
    # As if their worktrees could not be removed when they ended.
    for thread in (ended, removed):
        shutil.copytree(root / "workspaces" / thread, tmp_path / thread, symlinks=True)
        shutil.copytree(project / ".git/uwf-worktrees" / thread, tmp_path / f"{thread}.git", symlinks=True)
    uwf("thread", "kill", ended)
    uwf("thread", "rm", removed, "--yes")
    assert [path.name for path in (root / "workspaces").iterdir()] == [stays]
    for thread in (ended, removed):
        (tmp_path / thread).rename(root / "workspaces" / thread)
        (project / ".git/uwf-worktrees").mkdir(exist_ok=True)
        (tmp_path / f"{thread}.git").rename(project / ".git/uwf-worktrees" / thread)
        (root / "workspaces" / thread / "more.txt").write_text("more")
    assert checks()[0][0] == "warning" and "2 worktrees of ended threads" in checks()[0][1]
    uwf("gc")
    assert [path.name for path in (root / "workspaces").iterdir()] == [stays]
    kept = git("-C", project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    assert [git("-C", project, "show", f"{each}:more.txt") for each in kept] == ["more", "more"]
    project.rename(tmp_path / "away")
    assert ("warning", f"thread {stays} works on project {project}, which is gone") in checks()
    assert uwf("verify").json["findings"] == []


def test_a_worktree_that_git_has_forgotten_is_moved_aside_with_what_is_in_it(
    uwf: Uwf, root: Path, instance: Instance, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    step(instance, thread, WRITES)
    folder = root / "workspaces" / thread
    (folder / "hand.txt").write_text("hand")
    folder.rename(tmp_path / "away")
    shutil.rmtree(project / ".git/uwf-worktrees")
    (tmp_path / "away").rename(folder)
    done = uwf("thread", "step", thread, "--agent", WRITES)
    (aside,) = (path for path in (root / "workspaces").iterdir() if path.name != thread)
    assert f"its files are in {aside}" in done.err
    assert (aside / "hand.txt").read_text() == "hand"


def test_a_restored_thread_works_in_its_worktree_again(
    uwf: Uwf, root: Path, instance: Instance, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    uwf("thread", "rm", thread, "--yes")
    uwf("gc")
    uwf("thread", "restore", thread)
    uwf("thread", "step", thread, "--agent", WRITES, cwd=project)
    assert git("-C", project, "status", "--short") == ""
    assert git("-C", project, "show", f"uwf/work/{thread}:made.txt") == "made"
    (instance.store.repository.private / "workspaces" / thread).write_text("[]")
    error = uwf("thread", "step", thread, "--agent", WRITES, cwd=project, check=1).error
    assert error["code"] == "workspace" and "cannot be read" in error["message"]
