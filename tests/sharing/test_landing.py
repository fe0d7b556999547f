"""What somebody gets who clones a repository of threads with plain git: a page that says where the threads are."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import git_servers
import pytest
from conftest import Uwf
from two_machines import Machine

git = git_servers.git


@pytest.fixture
def machine(uwf: Uwf, hermetic: Path) -> Callable[[str, Path | str], Machine]:
    """A machine with a thread, and a remote that it has not pushed to."""

    def made(name: str, url: Path | str) -> Machine:
        found = Machine(uwf, hermetic / name)
        found.registers()
        found.starts()
        found("remote", "add", "origin", url)
        return found

    return made


def branches(remote: Path) -> dict[str, str]:
    listed = git("--git-dir", remote, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
    return dict(line.split(" ") for line in listed.splitlines())


@pytest.mark.parametrize("transport", git_servers.TRANSPORTS)
@pytest.mark.sample(2)
def test_a_plain_clone_gets_a_page_on_the_branch_that_head_names_and_its_commands_work(
    machine: Callable[[str, Path | str], Machine], hermetic: Path, transport: str
) -> None:
    with git_servers.serve(transport) as server:
        with open(hermetic / ".gitconfig", "a") as config:
            config.write(server.config)
        remote = git_servers.bare(server.folder / "threads.git")
        # This sshd doesn't let the protocol's version through, so nothing says what HEAD is to be.
        branch = "master" if transport == "ssh" else "trunk"
        git("--git-dir", remote, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
        ada = machine("ada", server.url(remote))
        landing = ada("push", "--default-branch").json["landing"]
        assert branches(remote) == {f"refs/heads/{branch}": landing["commit"]} and landing["branch"] == branch
        clone = subprocess.run(
            ["git", "clone", server.url(remote), "plain"], capture_output=True, text=True, check=True
        )
        assert "warning" not in clone.stderr
        page = Path("plain/README.md").read_text()
        (thread,) = ada.heads()
        commands = re.findall(r"^git .*", page, flags=re.MULTILINE)
        assert len(commands) >= 3
        for command in commands:
            words = shlex.split(command.replace("ID", thread), comments=True)
            assert git("-C", "plain", "--no-pager", *words[1:]) or words[1] == "fetch"
        # Whoever pulls, or clones with uwf, sees nothing of it; and it is made if it is asked for.
        assert ada("pull").json == {"remote": "origin", "adopted": [], "refused": []}
        assert ada("clone", server.url(remote), "--root", hermetic / "bob").json["refused"] == []
        git("--git-dir", remote, "update-ref", "-d", f"refs/heads/{branch}")
        ada.starts()
        assert "landing" not in ada("push").json and branches(remote) == {}
        ada.is_sound()


def test_two_that_push_first_make_the_same_commit_wherever_they_are(
    machine: Callable[[str, Path | str], Machine], hermetic: Path
) -> None:
    remotes = [git_servers.bare(hermetic / f"{name}.git") for name in ("one", "two")]
    for remote, zone in zip(remotes, ("Asia/Tokyo", "America/Lima"), strict=True):
        each = machine(remote.stem, remote)
        each(
            "push", "--default-branch", env={"TZ": zone, "GIT_COMMITTER_NAME": zone, "GIT_AUTHOR_NAME": zone}
        )
    assert branches(remotes[0]) == branches(remotes[1]) != {}


@pytest.mark.parametrize("why", ["code", "published"])
def test_none_is_made_where_there_is_a_branch(
    machine: Callable[[str, Path | str], Machine], hermetic: Path, why: str
) -> None:
    remote = git_servers.bare(hermetic / "remote.git")
    ada = machine("ada", remote)
    (thread,) = ada.heads()
    if why == "code":
        tree = git("--git-dir", remote, "mktree")
        commit = git("--git-dir", remote, "commit-tree", tree, "-m", "Code")
        git("--git-dir", remote, "update-ref", "refs/heads/other", commit)
    else:
        ada("publish", "thread", thread)
    before = branches(remote)
    pushed = ada("push", "--default-branch")
    assert branches(remote) == before and "landing" not in pushed.json and pushed.json["refused"] == []


def test_a_server_that_refuses_the_branch_is_named_after_the_threads_arrived(
    machine: Callable[[str, Path | str], Machine], hermetic: Path
) -> None:
    remote = git_servers.bare(hermetic / "remote.git")
    hook = remote / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/*) echo no branches here; exit 1;; esac\n')
    hook.chmod(0o755)
    ada = machine("ada", remote)
    failed = ada("push", "--default-branch", check=8)
    assert "origin refuses main: hook declined" in failed.err
    assert git("--git-dir", remote, "for-each-ref", "refs/uwf/threads") and branches(remote) == {}


@pytest.mark.parametrize("store", ["per user", "here"])
def test_a_push_takes_no_branch_of_a_project_whose_remote_is_empty(
    uwf: Uwf,
    machine: Callable[[str, Path | str], Machine],
    hermetic: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
) -> None:
    remote = git_servers.bare(hermetic / "remote.git")
    git(*git_servers.INIT, hermetic / "project")
    monkeypatch.chdir(hermetic / "project")
    git("remote", "add", "origin", remote)
    git("commit", "-q", "--allow-empty", "-m", "Code")
    if store == "here":
        monkeypatch.delenv("UWF_STORAGE_ROOT")
        uwf("init", "--here")
        uwf("remote", "add", "origin")
        uwf("workflow", "put", machine("ada", remote).root.with_name("ada.yaml"))
        assert "holds the project" in uwf("push", "--default-branch", check=2).err
        uwf("push")
    else:
        machine("ada", remote)("push")
    assert git("--git-dir", remote, "for-each-ref", "refs/uwf") and branches(remote) == {}
    git("push", "-q", "origin", "HEAD:main")
    assert list(branches(remote)) == ["refs/heads/main"]
