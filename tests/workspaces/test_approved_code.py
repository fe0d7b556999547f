"""What a person approves of code: its commit, and its diff where the project is."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from approvers import Colleague, release
from commands import git
from conftest import Uwf
from signers import Signer, SigningMachine

from uwf_git.workspaces import changes

WRITES = """uwf-exec sh -c 'echo more >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    git("-C", path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


@pytest.fixture
def thread(uwf: Uwf, project: Path) -> str:
    """A thread at its gate, whose builder left a commit."""
    Path("release.yaml").write_text(release(quorum=1))
    uwf("workflow", "put", "release.yaml")
    thread = str(uwf("thread", "start", "release", "-p", "v1").json["thread"])
    uwf("thread", "step", thread, "--agent", WRITES, "--workspace", f"worktree:{project}", cwd=project)
    return thread


def shown(uwf: Uwf, thread: str) -> dict[str, dict[str, Any]]:
    (approval,) = uwf("cas", "get", uwf("thread", "steps", thread).json[-1]["detail"]).json["payload"][
        "approvals"
    ]
    return {part["name"]: part for part in uwf("cas", "get", approval).json["payload"]["shown"]["of"]}


def test_code_and_diff_are_those_that_git_prints(uwf: Uwf, thread: str, project: Path) -> None:
    code = uwf("thread", "show", thread).json["code"]
    Colleague(uwf, "ann").approves(thread)
    parts = shown(uwf, thread)
    assert parts["code"]["commit"] == code["commit"]
    words = [
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-renames",
        "--no-abbrev",
        "--no-ext-diff",
        "--no-textconv",
    ]
    command = ["git", "-C", str(project), *words, code["base"], code["commit"], "--"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"made.txt" in printed
    assert parts["diff"]["sha256"] == hashlib.sha256(printed).hexdigest()
    assert uwf("verify").json["findings"] == []


def test_an_approval_of_another_diff_is_found_where_the_project_is(
    uwf: Uwf, thread: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from uwf_git.engine.inbox import answer_role
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance
    from uwf_git.store.location import locate

    with monkeypatch.context() as patched:
        for name, value in Colleague(uwf, "ann").environment.items():
            patched.setenv(name, value)
        patched.setattr(changes, "raw_diff", lambda *_: b"another")
        answer_role(Instance(locate(None, os.environ, Path.cwd())), ThreadId(thread), {"decision": ["ship"]})
    (found,) = uwf("verify", check=7).json["findings"]
    assert found["code"] == "approval-stale" and "another diff" in found["message"]


def test_elsewhere_the_code_is_approved_by_its_commit_alone(uwf: Uwf, thread: str, tmp_path: Path) -> None:
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    bob = SigningMachine(uwf, tmp_path / "bob", Signer(tmp_path, "bob"))
    bob("init")
    bob("remote", "add", "hub", tmp_path / "hub.git")
    bob("pull", "hub")
    answer = ("thread", "answer", thread, "-f", "decision=ship")
    error = bob(*answer, check=14).error
    assert "gate of thread" in error["message"] and "is not on this machine" in error["message"]
    assert "--unseen" in error["hint"]
    assert bob(*answer, "--unseen").json["status"] == "completed"
    assert "diff" not in shown(bob, thread) and "code" in shown(bob, thread)
    said = "without having seen the code"
    assert said in bob("thread", "read", thread, "--format", "text").out
    step = bob("thread", "read", thread, "--format", "json").json["steps"][-1]
    assert [each["unseen"] for each in step["approvals"]] == [True]
    details = bob("thread", "step-details", step["step"], "--format", "json").json
    assert details["approvals"] == step["approvals"]
    bob("push", "hub")
    uwf("pull", "hub")
    assert uwf("verify").json["findings"] == []


def test_a_gate_says_which_approvals_are_of_unseen_code(
    uwf: Uwf, client: httpx.Client, project: Path, tmp_path: Path
) -> None:
    Path("release.yaml").write_text(release(quorum=3))
    uwf("workflow", "put", "release.yaml")
    thread = str(uwf("thread", "start", "release", "-p", "v1").json["thread"])
    uwf("thread", "step", thread, "--agent", WRITES, "--workspace", f"worktree:{project}", cwd=project)
    Colleague(uwf, "ann").approves(thread)
    project.rename(tmp_path / "away")
    Colleague(uwf, "bob")("thread", "answer", thread, "-f", "decision=ship", "--unseen")
    (tmp_path / "away").rename(project)
    given = uwf("thread", "show", thread).json["approvals"]["given"]
    assert [each.get("unseen", False) for each in given] == [False, True]
    text = uwf("thread", "show", thread, "--format", "text").out
    assert text.count("without having seen the code") == 1
    assert client.get(f"/thread/{thread}").text.count("without having seen the code") == 1
