"""Verification of the code that steps name, where a project on this machine has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import start_thread

from uwf_git.base.errors import AgentFailed, Invalid
from uwf_git.engine.step import step
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import CODE_DETAIL
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option

WRITES = """uwf-exec sh -c 'echo "$UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    git("-C", path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


@pytest.fixture
def thread(instance: Instance, project: Path) -> ThreadId:
    """A thread of two steps with code, and a failed attempt with some."""
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    step(instance, thread, WRITES)
    with pytest.raises(AgentFailed):
        step(instance, thread, "sh -c 'echo half > half.txt; exit 3'")
    step(instance, thread, WRITES)
    return thread


def forge(instance: Instance, thread: ThreadId, monkeypatch: pytest.MonkeyPatch, **code: str) -> None:
    """Let the last step name other code: as nodes and commits of another store would."""
    real = instance.store.detail

    def detail(node: Hash) -> object:
        found = real(node)
        return found._replace(code=found.code._replace(**code)) if found and found.code else found

    monkeypatch.setattr(type(instance.store), "detail", lambda self, node: detail(node))


def test_code_that_is_here_is_as_it_is_named(uwf: Uwf, thread: ThreadId) -> None:
    value = uwf("verify").json
    assert (value["findings"], value["notes"]) == ([], [])


def test_a_commit_with_another_tree_than_the_step_names_is_a_finding(
    instance: Instance, thread: ThreadId, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uwf_git.api.check import verify

    other = git("-C", project, "rev-parse", "main^{tree}")
    forge(instance, thread, monkeypatch, tree=other)
    found = verify(instance)
    assert {each.code for each in found} == {"wrong-code"} and len(found) == 2
    assert all(each.thread == thread and each.step and other in each.message for each in found)
    assert [each.code for each in verify(instance, [thread])] == ["wrong-code"] * 2


def test_code_that_is_not_here_is_no_fault_and_is_told(uwf: Uwf, thread: ThreadId, project: Path) -> None:
    away = project.with_name("away")
    project.rename(away)
    value = uwf("verify").json
    (note,) = value["notes"]
    assert value["findings"] == [] and (note["code"], note["thread"]) == ("code-elsewhere", thread)
    assert "the code of 3 steps is not here: not checked" in note["message"]
    shutil.rmtree(away / ".git/objects")
    away.rename(project)
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("commit", ["--output=x", "HEAD", "A" * 40, "a" * 41, "a" * 40 + "\n"])
def test_nothing_but_an_id_is_code(instance: Instance, thread: ThreadId, commit: str) -> None:
    last = instance.threads.history(instance.threads.head(thread)).steps[-1]
    payload = instance.store.get(last.detail).payload
    for name in ("commit", "tree", "base", "root"):
        with pytest.raises(Invalid, match=name):
            instance.store.put(CODE_DETAIL, {**payload, "code": {**payload["code"], name: commit}})
    for remote in ("a\nb", "", "x" * 1001, "a b"):
        with pytest.raises(Invalid, match="remote"):
            instance.store.put(CODE_DETAIL, {**payload, "code": {**payload["code"], "remote": remote}})
