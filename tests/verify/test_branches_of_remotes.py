"""`uwf verify` of branches: those of a remote against their threads, those of a store, and checkouts. Nothing to verify
is an error, never a green nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from branches import Clone, Forge
from commands import git
from conftest import EXAMPLES, Uwf

SOLVE = EXAMPLES / "solve-issue.yaml"


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path / "forge.git")


@pytest.fixture
def ended(uwf: Uwf, forge: Forge, root: Path, lasting: Path) -> str:
    """A thread that ended, pushed and published; a copy of what the first test makes."""
    kept = lasting / "ended"
    folders = ((root, kept / "root"), (forge.folder, kept / "forge.git"))
    if not kept.exists():
        thread = published(uwf, forge)
        for folder, copy in folders:
            shutil.copytree(folder, copy)
        (kept / "thread").write_text(thread)
        return thread
    for folder, copy in folders:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
    git("--git-dir", root / "store.git", "config", "remote.origin.url", forge.folder)
    return (kept / "thread").read_text()


def published(uwf: Uwf, forge: Forge) -> str:
    uwf("workflow", "put", SOLVE)
    thread = str(
        uwf("thread", "start", "solve-issue", "-p", "The CSV export does not quote commas.").json["thread"]
    )
    uwf("thread", "run", thread)
    uwf("remote", "add", "origin", forge.folder)
    uwf("push")
    uwf("publish", "thread", thread)
    return thread


def codes(found: Any) -> set[str]:
    return {each["code"] for each in found["findings"]}


def edited(forge: Forge, branch: str, name: str = "bob") -> str:
    """What a reviewer reads was edited on the forge: the commit."""
    clone = forge.cloned(name, branch=branch)
    clone.edits("steps/0003-reviewer/README.md", "not approved", "approved")
    commit = clone.commits("0006 reviewer: fix")
    clone("push", "-q", "origin", "HEAD")
    return commit


def test_an_edited_page_on_a_published_branch_is_told_by_everyone_who_asks(
    uwf: Uwf, forge: Forge, ended: str, tmp_path: Path
) -> None:
    branch = f"uwf/threads/{ended}"
    found = uwf("verify", "--remote", "origin").json
    assert found["findings"] == [] and found["verified"]["branches"] == 2
    commit = edited(forge, branch)
    refs = forge("for-each-ref"), Clone(tmp_path / "bob")("for-each-ref")
    found = uwf("verify", "--remote", "origin", check=7).json
    assert codes(found) == {"foreign-commit", "wrong-page"}
    foreign, page = sorted(found["findings"], key=lambda each: each["code"])
    assert (foreign["object"], foreign["thread"], foreign["ref"]) == (commit, ended, f"refs/heads/{branch}")
    assert (page["path"], page["line"]) == ("steps/0003-reviewer/README.md", 1)
    assert "0006 reviewer: fix" in foreign["message"] and page["path"] in foreign["message"]
    assert uwf("verify", "--remote", "origin", "--no-fetch").json["findings"] == []
    assert (forge("for-each-ref"), Clone(tmp_path / "bob")("for-each-ref")) == refs

    # The same in a checkout, as of a CI: without any store.
    environment = {"UWF_STORAGE_ROOT": str(tmp_path / "no" / "store")}
    here = uwf("verify", ".", cwd=tmp_path / "bob", env=environment, check=7).json
    assert codes(here) == {"foreign-commit", "wrong-page"}
    for name in ("HEAD", branch, f"origin/{branch}"):
        assert codes(uwf("verify", name, cwd=tmp_path / "bob", env=environment, check=7).json) == codes(here)
    assert not (tmp_path / "no").exists()
    text = uwf("verify", tmp_path / "bob", "--format", "text", check=7).out
    assert "steps/0003-reviewer/README.md:1" in text and commit in text


def test_a_branch_that_a_remote_has_under_a_threads_name_and_no_commit_of_uwfs_is_told(
    uwf: Uwf, forge: Forge, ended: str
) -> None:
    clone = forge.cloned("bob", branch=f"uwf/threads/{ended}")
    clone("checkout", "-q", "--orphan", "mine")
    clone("rm", "-rfq", ".")
    clone.commits("mine")
    clone("push", "-q", "origin", f"HEAD:refs/heads/uwf/threads/{ended}", "--force")
    assert codes(uwf("verify", "--remote", "origin", check=7).json) == {"foreign-commit"}


def test_a_branch_of_steps_that_the_thread_does_not_have_is_another_thread(
    uwf: Uwf, forge: Forge, ended: str
) -> None:
    fork = uwf("thread", "fork", ended, "--at", "2").json["thread"]
    uwf("push")
    uwf("publish", "thread", fork)
    forge("update-ref", f"refs/heads/uwf/threads/{ended}", f"refs/heads/uwf/threads/{fork}")
    warnings = uwf("verify", "--remote", "origin").json["warnings"]
    [behind] = [each for each in warnings if each["code"] == "behind"]
    assert behind["thread"] == ended and "3 steps more" in behind["message"]
    approval = json.dumps({"approved": True, "comments": "lgtm"})
    assert uwf("thread", "step", fork, "--agent", f"uwf-exec echo '{approval}'").json["head"]
    uwf("push")
    uwf("publish", "thread", fork)
    forge("update-ref", f"refs/heads/uwf/threads/{ended}", f"refs/heads/uwf/threads/{fork}")
    found = uwf("verify", "--remote", "origin", check=7).json
    assert codes(found) == {"other-thread"} and {each["thread"] for each in found["findings"]} == {ended}


def test_a_thread_that_moved_on_the_remote_since_it_was_fetched_is_undecided(
    uwf: Uwf, forge: Forge, tmp_path: Path
) -> None:
    other = {"UWF_STORAGE_ROOT": str(tmp_path / "other")}
    uwf("workflow", "put", SOLVE)
    thread = uwf("thread", "start", "solve-issue", "-p", "One").json["thread"]
    uwf("thread", "step", thread)
    uwf("remote", "add", "origin", forge.folder)
    uwf("push")
    uwf("clone", forge.folder, env=other)
    uwf("thread", "step", thread, env=other)
    uwf("push", env=other)
    uwf("publish", "thread", thread, env=other)
    assert codes(uwf("verify", "--remote", "origin", check=125).json) == {"unchecked"}
    uwf("pull")
    assert uwf("verify", "--remote", "origin").json["findings"] == []


def test_a_remote_that_cannot_be_reached_leaves_its_branches_undecided(
    uwf: Uwf, forge: Forge, ended: str
) -> None:
    forge.folder.rename(forge.folder.with_name("gone"))
    found = uwf("verify", "--remote", "origin", check=125).json
    assert codes(found) == {"unchecked"} and found["verified"]["threads"] == 1
    assert uwf("verify", "--remote", "origin", "--no-fetch").json["findings"] == []


def test_merges_squashes_and_proposals_on_the_remote_are_green(uwf: Uwf, forge: Forge, ended: str) -> None:
    changed = Path("changed.yaml")
    changed.write_text(SOLVE.read_text().replace("description: ", "description: Now ", 1))
    uwf("publish", "workflow", "solve-issue")
    uwf("workflow", "propose", changed, "--branch", "change", "--remote", "origin")
    forge.merges("uwf/workflows/solve-issue", "uwf/proposals/change", "merge")
    forge.merges(f"uwf/base/{ended}", f"uwf/threads/{ended}", "squash")
    found = uwf("verify", "--remote", "origin").json
    assert found["findings"] == [] and found["verified"]["branches"] == 4
    assert {each["code"] for each in found["warnings"]} == {"rehearsed", "squashed"}
    uwf("verify", "--remote", "origin", "--strict", check=1)


# Branches of a store


def test_the_refs_and_branches_of_a_store_are_verified_by_name(uwf: Uwf, ended: str) -> None:
    for name in (f"uwf/archive/{ended}", "uwf/workflows/solve-issue", "refs/uwf/workflows/solve-issue"):
        found = uwf("verify", name).json
        assert found["findings"] == [] and found["subjects"]
    assert uwf("verify", f"uwf/archive/{ended}").json["subjects"][0]["kind"] == "thread"
    assert uwf("verify", "uwf/threads/nowhere", check=3).error["code"] == "not_found"
    assert uwf("verify", ended).json["verified"]["threads"] == 1


def test_a_branch_in_a_project_with_a_store_is_told_from_the_threads_own_ref(
    uwf: Uwf, forge: Forge, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(forge, f"uwf/threads/{ended}", "project")
    for name in ("UWF_STORAGE_ROOT", "UNCAGED_WORKFLOW_STORAGE_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    uwf("init", "--here")
    uwf("remote", "add", "origin", check=None)
    uwf("pull")
    assert uwf("verify").json["findings"] == []
    found = uwf("verify", f"uwf/threads/{ended}", check=7).json
    assert codes(found) == {"foreign-commit", "wrong-page"} and found["notes"] == []


def test_a_branch_of_a_store_is_held_to_signatures_as_its_thread_is(uwf: Uwf, ended: str) -> None:
    name = f"uwf/archive/{ended}"
    assert {each["kind"] for each in uwf("verify", name, "--signatures").json["signatures"]} == {
        "workflow",
        "start",
        "step",
    }
    found = uwf("verify", name, "--require", "signed", check=14).json
    assert found["findings"] and {each["thread"] for each in found["findings"]} >= {ended}
    commit = found["subjects"][0]["commit"]
    assert uwf("verify", commit, "--signatures").json["signatures"]
    assert uwf("verify", commit, "--require", "signed", check=2).error["code"] == "usage"


# Nothing to verify


def test_an_empty_store_is_never_a_green_nothing(uwf: Uwf, forge: Forge, tmp_path: Path) -> None:
    uwf("init")
    for words in ((), ("--all",), ("--strict",)):
        error = uwf("verify", *words, check=13).error
        assert error["code"] == "nothing_to_verify" and "uwf verify ." in error["hint"]
    uwf("remote", "add", "origin", forge.folder)
    for words in ((), ("--no-fetch",)):
        assert uwf("verify", "--remote", "origin", *words, check=13).error["code"] == "nothing_to_verify"
    project = Clone(tmp_path / "project")
    project.folder.mkdir()
    project("init", "-q")
    project.commits("mine")
    assert uwf("verify", project.folder, check=13).error["code"] == "nothing_to_verify"
    uwf("verify", tmp_path, check=3)
    uwf("workflow", "put", SOLVE)
    assert uwf("verify").json["findings"] == []


def test_options_that_mean_nothing_are_refused(uwf: Uwf, ended: str) -> None:
    for words in (
        (".", ended),
        (".", "--all"),
        (".", "--signatures"),
        (ended, "--branch", "x"),
        ("--no-fetch",),
        (ended, "--remote", "origin"),
    ):
        assert uwf("verify", *words, check=2).error["code"] == "usage"


def test_the_branch_of_a_detached_head_can_be_named(
    uwf: Uwf, forge: Forge, ended: str, tmp_path: Path
) -> None:
    branch = f"uwf/threads/{ended}"
    forge.merges(f"uwf/base/{ended}", branch, "test")
    ci = Clone(tmp_path / "ci")
    ci.folder.mkdir()
    ci("init", "-q")
    ci("fetch", "-q", "--depth=1", f"file://{forge.folder}", "refs/pull/1/merge")
    ci("checkout", "-q", "FETCH_HEAD")
    found = uwf("verify", ".", "--branch", branch, cwd=ci.folder).json
    assert found["findings"] == [] and found["verified"]["merges"] == 1
    assert {each["thread"] for each in found["warnings"]} == {ended}
    said = uwf("verify", ".", "--format", "text", cwd=ci.folder).out
    assert "shallow" in said and "None" not in said


def test_a_branch_is_verified_by_the_command_of_a_process_of_its_own(
    forge: Forge, ended: str, tmp_path: Path
) -> None:
    clone = forge.cloned("process", branch=f"uwf/threads/{ended}")
    done = subprocess.run(
        ["uwf", "--json", "verify", "."], cwd=clone.folder, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"]["steps"] == 5


def test_an_active_ref_beside_the_end_of_a_thread_vouches_for_no_branch(
    uwf: Uwf, forge: Forge, ended: str, tmp_path: Path
) -> None:
    fork = uwf("thread", "fork", ended, "--at", "2").json["thread"]
    approval = json.dumps({"approved": True, "comments": "lgtm"})
    uwf("thread", "step", fork, "--agent", f"uwf-exec echo '{approval}'")
    uwf("push")
    uwf("publish", "thread", fork)
    branch = f"uwf/threads/{ended}"
    forged = forge("rev-parse", f"refs/heads/uwf/threads/{fork}")
    for ref in (f"refs/uwf/threads/{ended}", f"refs/heads/{branch}"):
        forge("update-ref", ref, forged)
    assert "other-thread" in codes(uwf("verify", "--remote", "origin", check=7).json)
    other = {"UWF_STORAGE_ROOT": str(tmp_path / "other")}
    uwf("clone", forge.folder, env=other, check=None)
    assert "other-thread" in codes(uwf("verify", "--remote", "origin", env=other, check=7).json)
    uwf("pull", env=other, check=None)
    assert "other-thread" in codes(uwf("verify", "--remote", "origin", env=other, check=7).json)
    clone = forge.cloned("ci", branch=branch)
    clone("fetch", "-q", "origin", "+refs/uwf/*:refs/uwf/*")
    assert codes(uwf("verify", ".", cwd=clone.folder, check=7).json) == {"other-thread"}
