"""A branch is verified in any checkout, by the nodes in it: no store is needed, and nothing is written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from forged import WORKFLOW, Forger, stepped
from workflows import start_thread

from uwf_git.api.check import check_tree
from uwf_git.base.errors import NothingToVerify
from uwf_git.store.instance import Instance


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def branch(instance: Instance, tmp_path: Path) -> Path:
    """A clone with a published thread of two steps checked out."""
    head = instance.threads.head(start_thread(instance, WORKFLOW))
    head = stepped(instance, head, "writer", {"title": "T"})
    head = stepped(instance, head, "critic", {"approved": False})
    Forger(instance.location.git_dir).point(f"refs/heads/uwf/threads/{head.thread}", str(head.commit))
    folder = tmp_path / "clone"
    subprocess.run(
        [
            "git",
            "clone",
            "-q",
            "-b",
            f"uwf/threads/{head.thread}",
            str(instance.location.git_dir),
            str(folder),
        ],
        check=True,
    )
    return folder


def test_a_published_thread_is_verified_in_a_clone_without_a_store(branch: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in branch.rglob("*")}
    report = check_tree(branch)
    assert report.findings == [] and report.verified.steps == 2 and report.verified.nodes > 4
    assert {path: path.stat().st_mtime_ns for path in branch.rglob("*")} == before


def test_an_edited_page_is_named_with_its_path_and_line(branch: Path) -> None:
    page = branch / "steps/0002-critic/README.md"
    page.write_text(page.read_text().replace("not approved", "approved"))
    git(branch, "commit", "-qa", "--amend", "-C", "HEAD")
    [step] = [each for each in check_tree(branch).findings if each.path == "steps/0002-critic/README.md"]
    assert (step.code, step.line) == ("wrong-page", 1)
    assert step.as_json()["line"] == 1


def test_a_repository_with_nothing_of_uwfs_is_no_success(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    git(tmp_path / "empty", "commit", "-q", "--allow-empty", "-m", "mine")
    with pytest.raises(NothingToVerify):
        check_tree(tmp_path / "empty")
