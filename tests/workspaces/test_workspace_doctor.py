"""What `uwf doctor` says of worktrees that are not as they were made. Each hint is a command that works."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import start_thread

from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option

WRITES = """uwf-exec sh -c 'echo made >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    git("-C", path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


@pytest.fixture
def thread(instance: Instance, project: Path) -> ThreadId:
    return begun(instance, project)


def begun(instance: Instance, project: Path) -> ThreadId:
    """A thread after its first of two steps."""
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    step(instance, thread, WRITES)
    return thread


def checks(uwf: Uwf, *words: str) -> list[dict[str, Any]]:
    found = uwf("doctor", "--quick", *words, check=None).json
    return [each for each in found if each["check"] == "worktrees"]


def test_a_worktree_that_is_whole_is_counted(uwf: Uwf, thread: ThreadId) -> None:
    assert [(each["status"], each["message"]) for each in checks(uwf)] == [("ok", "1 of at most 50")]


def test_a_worktree_whose_folder_is_gone_is_made_again_by_a_step(
    uwf: Uwf, root: Path, thread: ThreadId
) -> None:
    folder = root / "workspaces" / thread
    shutil.rmtree(folder)
    (check,) = checks(uwf)
    assert (check["status"], str(folder) in check["message"]) == ("warning", True)
    assert check["hint"].endswith(f"uwf thread step {thread}")
    uwf("thread", "step", thread, "--agent", WRITES)
    assert checks(uwf) == []


def test_what_is_left_of_an_ended_threads_worktree_is_removed(
    uwf: Uwf, root: Path, project: Path, thread: ThreadId
) -> None:
    admin = project / ".git/uwf-worktrees" / thread
    shutil.copytree(admin, kept := project.with_name("kept"))
    uwf("thread", "kill", thread)
    kept.rename(admin)
    (check,) = checks(uwf)
    assert "of an ended thread is gone, and something of it is left" in check["message"]
    uwf(*check["hint"].split()[1:])
    assert not admin.exists() and checks(uwf) == []


def test_a_folder_that_git_knows_no_longer_is_told_before_a_step_empties_it(
    uwf: Uwf, root: Path, project: Path, thread: ThreadId
) -> None:
    folder = root / "workspaces" / thread
    (folder / "mine.txt").write_text("by hand")
    shutil.rmtree(project / ".git/uwf-worktrees" / thread)
    (check,) = checks(uwf)
    assert (check["status"], f"no longer a worktree of {project}" in check["message"]) == ("warning", True)
    subprocess.run(shlex.split(check["hint"].partition(": ")[2]), check=True)
    assert checks(uwf) == []
    uwf("thread", "step", thread, "--agent", WRITES)
    assert (root / "workspaces" / f"{thread}.old/mine.txt").read_text() == "by hand"


def test_a_thread_whose_project_is_gone_goes_on_in_the_folder_itself(
    uwf: Uwf, project: Path, thread: ThreadId, tmp_path: Path
) -> None:
    project.rename(tmp_path / "away")
    (check,) = checks(uwf)
    assert check["message"] == f"thread {thread} works on project {project}, which is gone"
    uwf(*shlex.split(check["hint"].rpartition(": ")[2])[1:], "--agent", WRITES)


def test_a_note_that_cannot_be_read_is_told_and_written_again(
    uwf: Uwf, instance: Instance, project: Path, thread: ThreadId
) -> None:
    note = instance.store.repository.private / "workspaces" / thread
    for broken in (b"", b'{"kind": 1}', b"\xff", b'{"more": ""}'):
        note.write_bytes(broken)
        (check,) = checks(uwf)
        assert (check["status"], check["message"].endswith(str(note))) == ("warning", True), broken
    hint = check["hint"].replace("PROJECT", str(project))
    uwf(*shlex.split(hint)[1:], "--agent", WRITES)
    assert checks(uwf) == []


def test_more_worktrees_than_are_kept_are_told_with_the_one_to_remove(
    uwf: Uwf, root: Path, instance: Instance, project: Path, thread: ThreadId
) -> None:
    newer = begun(instance, project)
    (root / "config.yaml").write_text("workspace: {keep: 1}\n")
    (check,) = checks(uwf)
    assert (check["status"], check["hint"]) == ("warning", f"uwf workspace remove {thread}")
    uwf(*check["hint"].split()[1:])
    assert [(each["status"], each["message"]) for each in checks(uwf)] == [("ok", "1 of at most 1")]
    assert (root / "workspaces" / newer).is_dir()


def test_a_broken_configuration_is_reported_once(uwf: Uwf, root: Path, thread: ThreadId) -> None:
    (root / "config.yaml").write_text("workspace: {keep: none}\n")
    assert checks(uwf) == []
    found = uwf("doctor", "--quick", check=1).json
    assert len([each for each in found if "keep" in each["message"]]) == 1
