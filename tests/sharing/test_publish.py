"""Threads and workflows on branches of a remote."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import commands
import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from conftest import Uwf
from git_servers import bare

SECOND = PAIR.replace("One writes, one reviews.", "A second version.")


def git(folder: Path, *args: str, **more: Any) -> str:
    """The git program on a bare repository."""
    return commands.git(f"--git-dir={folder}", *args, **more).strip()


class Forge:
    """A registered workflow, a store of it, and a remote by path."""

    def __init__(self, uwf: Uwf, root: Path, folder: Path) -> None:
        self.uwf, self.store, self.remote = uwf, root / "store.git", bare(folder)
        self.agent = scripted(REJECTS_ONCE)
        self.first = uwf("workflow", "put", write("pair.yaml", PAIR)).json
        uwf("remote", "add", "origin", folder)

    def start(self) -> str:
        return str(self.uwf("thread", "start", "pair", "-p", "Write it").json["thread"])

    def step(self, thread: str, count: int = 1) -> str:
        """Does steps; returns the commit of the last."""
        for _ in range(count):
            self.uwf("thread", "step", thread, "--agent", self.agent)
        return self.head(thread)

    def head(self, thread: str) -> str:
        names = (f"refs/uwf/threads/{thread}", f"refs/uwf/archive/{thread}^{{commit}}")
        there = git(self.store, "for-each-ref", "--format=%(refname)")
        return git(self.store, "rev-parse", names[0] if names[0] in there else names[1])

    def publish(self, *args: str, check: int = 0) -> Any:
        done = self.uwf("publish", *args, check=check)
        return done.json if check == 0 else done.error

    def branches(self) -> dict[str, str]:
        rows = git(self.remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return {name.removeprefix("refs/heads/"): oid for name, oid in map(str.split, rows)}

    def foreign(self, branch: str) -> str:
        """A commit that somebody put on top of a branch."""
        head = git(self.remote, "rev-parse", f"refs/heads/{branch}")
        oid = git(self.remote, "commit-tree", f"{head}^{{tree}}", "-p", head, "-F", "-", data="Mine\n")
        git(self.remote, "update-ref", f"refs/heads/{branch}", oid)
        return oid


@pytest.fixture
def forge(uwf: Uwf, root: Path, tmp_path: Path) -> Forge:
    return Forge(uwf, root, tmp_path / "forge.git")


def test_a_thread_is_published_with_the_version_it_began_on_as_its_base(forge: Forge) -> None:
    thread = forge.start()
    head = forge.step(thread)
    assert forge.publish("thread", thread[:14]) == {
        "branch": f"uwf/threads/{thread}",
        "commit": head,
        "base": forge.first["commit"],
        "baseBranch": f"uwf/base/{thread}",
        "pages": None,
    }
    assert forge.branches() == {f"uwf/threads/{thread}": head, f"uwf/base/{thread}": forge.first["commit"]}


def test_the_commits_are_those_of_the_store(forge: Forge) -> None:
    thread = forge.start()
    head = forge.step(thread, 4)
    forge.publish("thread", thread)
    here = git(forge.store, "log", "--format=%H %s", head)
    assert git(forge.remote, "log", "--format=%H %s", f"uwf/threads/{thread}") == here
    subjects = [line.partition(" ")[2] for line in here.splitlines()]
    assert subjects == [
        "0004 critic: approved",
        "0003 writer: second",
        "0002 critic: not approved",
        "0001 writer: first",
        "start pair: Write it",
        f"workflow pair {forge.first['hash']}",
    ]


def test_publishing_again_takes_the_branch_forward(forge: Forge) -> None:
    thread = forge.start()
    forge.step(thread)
    forge.publish("thread", thread)
    again = forge.publish("thread", thread)
    assert again["commit"] == forge.branches()[f"uwf/threads/{thread}"]
    head = forge.step(thread, 3)  # its end: the active ref is gone
    assert forge.publish("thread", thread)["commit"] == head
    assert forge.branches() == {f"uwf/threads/{thread}": head, f"uwf/base/{thread}": forge.first["commit"]}


def test_a_fork_is_compared_with_the_step_it_was_made_at(forge: Forge) -> None:
    thread = forge.start()
    forge.step(thread, 2)
    shared = forge.head(thread)
    fork = forge.uwf("thread", "fork", thread).json["thread"]
    # Nothing of its own yet: there is only the whole to look at.
    assert forge.publish("thread", fork)["base"] == forge.first["commit"]
    forge.uwf("unpublish", fork)
    forge.step(fork)
    time.sleep(1.1)  # equal steps of one second are one commit
    forge.step(thread)
    assert forge.publish("thread", fork)["base"] == shared
    assert forge.publish("thread", thread)["base"] == forge.first["commit"]


def test_threads_with_nothing_but_their_start_in_common_are_not_forks(forge: Forge) -> None:
    thread = forge.start()
    fork = forge.uwf("thread", "fork", thread).json["thread"]
    forge.step(fork)
    assert forge.publish("thread", fork)["base"] == forge.first["commit"]


def test_what_was_merged_into_the_base_on_the_forge_stays_there(forge: Forge) -> None:
    thread = forge.start()
    forge.step(thread)
    forge.publish("thread", thread)
    merged = forge.foreign(f"uwf/base/{thread}")
    forge.step(thread)
    again = forge.publish("thread", thread)
    assert (again["base"], again["commit"]) == (merged, forge.head(thread))


def test_a_branch_of_the_users_own_choice(forge: Forge) -> None:
    thread = forge.start()
    head = forge.step(thread)
    made = forge.publish("thread", thread, "--as", "review/pair")
    assert (made["branch"], made["baseBranch"]) == ("review/pair", "uwf/base/branches/review/pair")
    assert forge.branches()["review/pair"] == head
    assert forge.publish("workflow", "pair", "--as", "pairs")["branch"] == "pairs"
    done = forge.uwf("unpublish", "review/pair").json
    assert [each["branch"] for each in done["unpublished"]] == [
        "review/pair",
        "uwf/base/branches/review/pair",
    ]
    assert set(forge.branches()) == {"pairs"}


@pytest.mark.parametrize(
    ("name", "status"),
    [("-x", 1), ("a..b", 1), ("a b", 1), ("x.lock", 1), ("a\nb", 1), ("HEAD", 1), ("uwf/base/x", 2)],
)
def test_a_name_that_will_not_do_is_refused_before_anything_is_pushed(
    forge: Forge, name: str, status: int
) -> None:
    thread = forge.start()
    assert forge.publish("thread", thread, f"--as={name}", check=status)["hint"]
    assert forge.branches() == {}


def test_a_branch_with_other_commits_is_never_forced(forge: Forge) -> None:
    thread = forge.start()
    forge.step(thread)
    forge.publish("thread", thread, "--as", "review/pair")
    there = forge.foreign("review/pair")
    forge.step(thread)
    refused = forge.publish("thread", thread, "--as", "review/pair", check=4)
    assert refused["code"] == "head_moved"
    assert f"uwf publish thread {thread} --as BRANCH --remote origin" in refused["hint"]
    assert forge.branches()["review/pair"] == there
    kept = forge.uwf("unpublish", "review/pair", check=4)
    assert there in kept.error["message"]
    assert "uwf unpublish review/pair --remote origin --force" in kept.error["hint"]
    assert forge.branches()["review/pair"] == there
    forge.uwf("unpublish", "review/pair", "--force")
    assert "review/pair" not in forge.branches()


def test_a_workflow_is_compared_with_the_version_before(forge: Forge) -> None:
    made = forge.publish("workflow", "pair")
    assert made == {
        "branch": "uwf/workflows/pair",
        "commit": forge.first["commit"],
        "base": None,
        "baseBranch": None,
        "pages": None,
    }
    second = forge.uwf("workflow", "put", write("second.yaml", SECOND)).json
    made = forge.publish("workflow", "pair")
    assert (made["commit"], made["base"]) == (second["commit"], forge.first["commit"])
    third = forge.uwf("workflow", "rollback", "pair").json
    assert forge.publish("workflow", "pair")["base"] == second["commit"]
    assert forge.branches() == {
        "uwf/workflows/pair": third["commit"],
        "uwf/base/workflows/pair": second["commit"],
    }
    assert git(forge.store, "rev-parse", "refs/uwf/remotes/origin/branches/workflows/pair") == third["commit"]
    forge.uwf("unpublish", "pair")
    assert forge.branches() == {}
    assert forge.uwf("workflow", "show", "pair").json["commit"] == third["commit"]


def test_unpublishing_says_what_is_published_when_it_finds_nothing(forge: Forge) -> None:
    forge.publish("workflow", "pair")
    missing = forge.uwf("unpublish", "uwf/workflows/piar", check=3)
    assert "uwf/workflows/pair" in missing.error["hint"]
    git(forge.remote, "update-ref", "refs/heads/pair", forge.foreign("uwf/workflows/pair"))
    # A branch that happens to be called like the workflow isn't meant.
    forge.uwf("pull")
    forge.uwf("unpublish", "pair")
    assert set(forge.branches()) == {"pair"}


def test_the_pages_of_a_known_forge_are_told(forge: Forge, config: Any) -> None:
    # git leads the address to the folder; what the remote is called decides about the pages.
    thread = forge.start()
    git(forge.store, "config", "remote.origin.url", "https://ada:secret@git.example.invalid/team/work.git")
    git(forge.store, "config", "remote.origin.pushurl", str(forge.remote))
    git(
        forge.store,
        "config",
        f"url.{forge.remote}.insteadOf",
        "https://ada:secret@git.example.invalid/team/work.git",
    )
    config("forges:\n  git.example.invalid: gitea\n")
    made = forge.publish("thread", thread)
    root = "https://git.example.invalid/team/work"
    assert made["pages"] == {
        "branch": f"{root}/src/branch/uwf/threads/{thread}",
        "commits": f"{root}/commits/branch/uwf/threads/{thread}",
        "compare": f"{root}/compare/uwf/base/{thread}...uwf/threads/{thread}",
    }
    shown = forge.uwf("publish", "thread", thread, "--format", "text").out
    assert f"{root}/compare/uwf/base/{thread}...uwf/threads/{thread}" in shown
    assert "secret" not in shown


def test_a_large_blob_is_warned_of_and_one_too_large_named_before_anything_is_pushed(forge: Forge) -> None:
    prompt = "x" * (1200 << 10)
    thread = forge.uwf("thread", "start", "pair", "-p", "-", input=prompt).json["thread"]
    git(forge.store, "config", "uwf.maxBlob", "1m")
    refused = forge.publish("thread", thread, check=1)
    assert "more than forges take" in refused["message"]
    assert forge.branches() == {}
    git(forge.store, "config", "--unset", "uwf.maxBlob")
    warned = forge.uwf("publish", "thread", thread)
    assert "1.2 MB" in warned.err
    assert f"uwf/threads/{thread}" in forge.branches()


def test_without_a_remote_the_hint_says_how_to_add_one(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    assert "uwf remote add" in uwf("publish", "workflow", "pair", check=3).error["hint"]
    assert "uwf remote add" in uwf("unpublish", "pair", check=3).error["hint"]


def test_a_remote_that_refuses_the_branch_is_quoted(forge: Forge) -> None:
    hook = forge.remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'no branches today' >&2\nexit 1\n")
    hook.chmod(0o755)
    refused = forge.publish("workflow", "pair", check=8)
    assert "no branches today" in refused["message"]
    assert forge.branches() == {}


def test_a_lock_that_was_left_on_the_remote_is_named(forge: Forge) -> None:
    lock = forge.remote / "refs/heads/uwf/workflows/pair.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    refused = forge.publish("workflow", "pair", check=8)
    assert "refs/heads/uwf/workflows/pair.lock" in refused["hint"] and "ask who runs" not in refused["hint"]


def test_in_a_repository_shared_with_code_only_branches_of_uwf_are_pushed(
    uwf: Uwf, hermetic: Path, tmp_path: Path
) -> None:
    remote = bare(tmp_path / "project.git")
    project = hermetic / "project"
    files = ("-c", "init.defaultRefFormat=files")
    subprocess.run(["git", *files, "init", "-q", "--object-format=sha1", str(project)], check=True)
    write(str(project / "code.py"), "print()\n")
    for args in (
        ("add", "."),
        ("commit", "-q", "-m", "Code"),
        ("branch", "-M", "main"),
        ("remote", "add", "origin", str(remote)),
        ("push", "-q", "origin", "main"),
    ):
        subprocess.run(["git", *args], cwd=project, check=True)
    code = git(remote, "rev-parse", "main")
    env = {"UWF_STORAGE_ROOT": "", "HOME": str(hermetic)}

    def inside(*args: str | Path) -> Any:
        return uwf(*args, cwd=project, env=env).json

    inside("init", "--here")
    inside("workflow", "put", write(str(project / "pair.yaml"), PAIR))
    inside("remote", "add", "origin")
    thread = inside("thread", "start", "pair", "-p", "Write it")["thread"]
    inside("publish", "thread", thread)
    inside("publish", "workflow", "pair")
    assert set(git(remote, "for-each-ref", "--format=%(refname)").splitlines()) == {
        "refs/heads/main",
        f"refs/heads/uwf/threads/{thread}",
        f"refs/heads/uwf/base/{thread}",
        "refs/heads/uwf/workflows/pair",
    }
    assert git(remote, "rev-parse", "main") == code
    head = git(remote, "rev-parse", "uwf/workflows/pair")
    edited = git(remote, "commit-tree", f"{head}^{{tree}}", "-p", head, "-F", "-", data="Edited\n")
    git(remote, "update-ref", "refs/heads/uwf/workflows/pair", edited)
    accepted = inside("workflow", "accept", "uwf/workflows/pair", "--remote", "origin")
    assert (accepted["case"], accepted["before"], accepted["source"]) == ("merged", head, edited)
    inside("publish", "workflow", "pair")
    refused = uwf("unpublish", "main", cwd=project, env=env, check=4)
    assert refused.error["code"] == "head_moved"
    inside("unpublish", thread)
    inside("unpublish", "pair")
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
