"""The folder that a thread of a fleet works in: a worktree of a project on a branch of its own, or a folder."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import opened, start_thread

from uwf_git.base.errors import NotFound, RemoteFailed, Usage, UwfError
from uwf_git.engine.step import step
from uwf_git.ext.fleet.workspace import Workspaces, parse_wanted
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two commits, of which the first is tagged v1."""
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", str(path))
    for name in ("one", "two"):
        (path / f"{name}.txt").write_text(name)
        git("-C", path, "add", ".")
        git("-C", path, "commit", "-q", "-m", name)
    git("-C", path, "tag", "v1", "HEAD~")
    return path


def at(project: Path, *args: object) -> str:
    return git("-C", project, *args)


def work(instance: Instance, spaces: Workspaces, thread: ThreadId, command: str) -> Path:
    """A step by a command in the thread's workspace, which is kept then."""
    folder = spaces.prepare(instance.threads.head(thread))
    agent = shlex.join(["uwf-exec", "sh", "-c", f'({command}) >&2; echo \'{{"text": "done"}}\''])
    done = step(instance, thread, agent, folder)
    spaces.keep(done.position.head)
    return folder


def branch(thread: str) -> str:
    return f"uwf/work/{thread}"


def test_a_thread_works_in_a_worktree_on_a_branch_of_its_own_which_keeps_each_step(
    instance: Instance, project: Path
) -> None:
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}@v1"))
    thread, other = start_thread(instance, RELAY), start_thread(instance, RELAY)
    folder = work(instance, spaces, thread, "cat one.txt; ls two.txt; echo new > three.txt; rm one.txt")
    assert work(instance, spaces, other, "true") != folder
    assert folder == instance.location.root / "workspaces" / thread
    assert at(project, "branch", "--show-current") == "main" and at(project, "status", "--short") == ""
    assert at(project, "diff", "--name-status", "v1", branch(thread)) == "D\tone.txt\nA\tthree.txt"
    first = instance.threads.head(thread).node
    told = f"writer: step 1 of thread {thread}\n\nUwf-Step: {first}"
    assert at(project, "log", "-1", "--format=%B", branch(thread)).strip() == told
    assert at(project, "rev-parse", branch(other)) == at(project, "rev-parse", "v1")
    # An agent that commits itself, and goes elsewhere, has its work on the thread's branch all the same.
    work(instance, spaces, thread, "git checkout -q -b mine; git add -A; git commit -q -m mine --allow-empty")
    assert at(project, "log", "-1", "--format=%s", branch(thread)) == "mine"
    assert spaces.tidy() == [thread]
    assert not folder.exists() and at(project, "rev-parse", "--verify", branch(thread))
    assert str(folder) not in at(project, "worktree", "list")
    assert spaces.tidy() == []


def test_a_git_that_was_killed_in_a_worktree_keeps_no_step_of_its_thread_from_being_kept(
    instance: Instance, project: Path
) -> None:
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    own = project / ".git/worktrees" / thread
    locks = f"{own}/index.lock {own}/HEAD.lock {project}/.git/refs/heads/{branch(thread)}.lock"
    work(instance, spaces, thread, f"echo new > made.txt; touch {locks}")
    assert at(project, "show", f"{branch(thread)}:made.txt") == "new"
    (own / "index.lock").touch()  # of an attempt that failed
    work(instance, spaces, thread, "git add -A && git commit -q -m mine --allow-empty")
    assert at(project, "log", "-1", "--format=%s", branch(thread)) == "mine"


def test_a_fork_goes_on_from_what_its_last_step_left(uwf: Uwf, instance: Instance, project: Path) -> None:
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    work(instance, spaces, thread, "echo first > made.txt")
    fork = ThreadId(uwf("thread", "fork", thread).json["thread"])
    work(instance, spaces, fork, "cat made.txt")
    work(instance, spaces, thread, "echo second > made.txt")
    later = ThreadId(uwf("thread", "fork", thread, "--at", "1").json["thread"])
    assert (spaces.prepare(instance.threads.head(later)) / "made.txt").read_text() == "first\n"


def test_a_step_that_failed_leaves_its_files_for_the_next_attempt(instance: Instance, project: Path) -> None:
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    folder = spaces.prepare(instance.threads.head(thread))
    (folder / "half.txt").write_text("half")
    assert spaces.prepare(instance.threads.head(thread)) == folder
    work(instance, spaces, thread, "cat half.txt")
    assert at(project, "show", f"{branch(thread)}:half.txt") == "half"


def test_another_machine_goes_on_and_who_lost_the_race_keeps_what_it_left(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    bare, elsewhere = tmp_path / "shared.git", tmp_path / "elsewhere"
    git("clone", "-q", "--bare", project, bare)
    at(project, "remote", "add", "shared", bare)
    git("clone", "-q", "-o", "shared", bare, elsewhere)
    here = Workspaces(instance, parse_wanted(f"worktree:{project}", "shared"))
    there = Workspaces(opened(), parse_wanted(f"worktree:{elsewhere}", "shared"))
    there._home = tmp_path / "there"
    thread = start_thread(instance, RELAY)
    head = instance.threads.head(thread)

    def left(spaces: Workspaces, text: str) -> None:
        (spaces.prepare(head) / "made.txt").write_text(text)
        spaces.keep(head)

    left(here, "first")
    assert (there.prepare(head) / "made.txt").read_text() == "first"
    mine = here.prepare(head) / "made.txt"
    left(there, "second")
    mine.write_text("lost")
    with pytest.raises(RemoteFailed):
        here.keep(head)
    assert (here.prepare(head) / "made.txt").read_text() == "second"
    (kept,) = at(project, "for-each-ref", "--format=%(refname)", "refs/heads/uwf/work/*-*").split()
    assert at(project, "show", f"{kept}:made.txt") == "lost"
    left(here, "third")
    assert at(bare, "show", f"{branch(thread)}:made.txt") == "third"


def test_no_git_enters_a_repository_that_an_agent_left_and_nothing_of_it_is_lost(
    uwf: Uwf, instance: Instance, project: Path, tmp_path: Path
) -> None:
    """The filter is what a confined agent could write: plain files in its folder, which git would run as the user."""
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    ran = tmp_path / "ran"
    folder = work(instance, spaces, thread, "echo mine > made.txt")
    head = instance.threads.head(thread)

    git("init", "-q", folder / "sub")
    (folder / "sub/a").write_text("one")
    git("-C", folder / "sub", "add", "a")
    git("-C", folder / "sub", "commit", "-q", "-m", "one")
    git("-C", folder / "sub", "config", "filter.x.clean", f"touch {ran}; cat")
    (folder / "sub/.gitattributes").write_text("* filter=x\n")
    (folder / "sub/a").write_text("another")
    for _ in range(2):
        with pytest.raises(RemoteFailed, match=r"a git repository of its own, sub/\.git") as refused:
            spaces.keep(head)
    assert "move sub/.git out of it" in refused.value.hint
    with pytest.raises(RemoteFailed, match="is not kept"):
        spaces.leave(thread)
    assert (folder / "sub/a").read_text() == "another" and not ran.exists()

    # The worktree of a thread that has ended stays as well, until somebody has seen to it; then nothing is lost.
    uwf("thread", "kill", thread)
    warned: list[str] = []
    instance.warn = warned.append
    assert spaces.tidy() == [] and "sub/.git" in warned[0] and (folder / "sub/a").exists()
    shutil.move(folder / "sub/.git", tmp_path / "away")
    assert spaces.tidy() == [thread] and not folder.exists() and not ran.exists()
    assert at(project, "show", f"{branch(thread)}:sub/a") == "another"


def hostile(folder: Path, ran: Path) -> None:
    """A repository with a changed file, whose configuration runs something wherever git looks for changes."""
    git("init", "-q", folder)
    (folder / "a").write_text("one")
    git("-C", folder, "add", "a")
    git("-C", folder, "commit", "-q", "-m", "one")
    program = ran.with_name("program")
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    hooks = ran.with_name("hooks")
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "post-checkout", "pre-commit", "reference-transaction"):
        shutil.copy(program, hooks / name)
    for name in ("filter.x.clean", "filter.x.smudge", "core.fsmonitor", "core.sshCommand", "diff.external"):
        git("-C", folder, "config", name, program)
    git("-C", folder, "config", "core.hooksPath", hooks)
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / "a").write_text("two")


def test_git_passes_by_a_repository_in_a_folder_that_it_ignores(
    uwf: Uwf, instance: Instance, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".gitignore").write_text("vendor/\nmade*/\n")
    at(project, "add", ".gitignore")
    at(project, "commit", "-q", "-m", "ignores")
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    folder = work(instance, spaces, thread, "true")
    head = instance.threads.head(thread)
    ran, trace = tmp_path / "ran", tmp_path / "trace"
    for name in ("vendor/src/x", "vendor", "made:up", "vendor/elsewhere"):
        hostile(folder / name, ran)
    shutil.move(folder / "vendor/elsewhere/.git", tmp_path / "elsewhere")
    (folder / "vendor/elsewhere/.git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
    (folder / "new.txt").write_text("new")

    monkeypatch.setenv("GIT_TRACE", str(trace))
    ran.unlink(missing_ok=True)
    spaces.keep(head)
    assert at(project, "show", f"{branch(thread)}:new.txt") == "new"
    # As a submodule git would enter it, ignored or not.
    commit = git("-C", folder / "vendor/src/x", "rev-parse", "HEAD")
    index = ("--git-dir", project / ".git/worktrees" / thread, "update-index")
    git(*index, "--add", "--cacheinfo", f"160000,{commit},vendor/src/x")
    ran.unlink(missing_ok=True)
    with pytest.raises(RemoteFailed, match=r"a git repository of its own, vendor/\.git"):
        spaces.keep(head)
    git(*index, "--force-remove", "vendor/src/x")
    uwf("thread", "kill", thread)
    assert spaces.tidy() == [thread] and not folder.exists()
    entered = [line for line in trace.read_text().splitlines() if "run_command: cd " in line]
    assert not entered and not ran.exists()


def test_files_in_the_empty_folder_of_a_submodule_are_not_lost(instance: Instance, project: Path) -> None:
    commit = at(project, "rev-parse", "HEAD")
    at(project, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    at(project, "commit", "-q", "-m", "has a submodule")
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    folder = work(instance, spaces, thread, "mkdir sub/empty; echo it > made.txt")
    head = instance.threads.head(thread)
    assert at(project, "diff", "--name-status", "main", branch(thread)) == "A\tmade.txt"
    (folder / "sub/empty/mine.txt").write_text("mine")
    for refuses in (lambda: spaces.keep(head), lambda: spaces.leave(thread)):
        with pytest.raises(RemoteFailed, match="there are files in the folder of submodule sub"):
            refuses()
    (folder / "sub/empty/mine.txt").rename(folder / "mine.txt")
    spaces.keep(head)
    assert at(project, "show", f"{branch(thread)}:mine.txt") == "mine"


def test_a_worktree_whose_own_git_file_was_replaced_is_not_touched(instance: Instance, project: Path) -> None:
    spaces = Workspaces(instance, parse_wanted(f"worktree:{project}"))
    thread = start_thread(instance, RELAY)
    folder = work(instance, spaces, thread, "true")
    (folder / "new.txt").write_text("new")
    (folder / ".git").unlink()
    git("init", "-q", folder)
    with pytest.raises(RemoteFailed, match=r"its \.git has changed") as refused:
        spaces.keep(instance.threads.head(thread))
    repair = refused.value.hint.partition(", and git ")[2].partition(";")[0]
    shutil.rmtree(folder / ".git")
    git(*shlex.split(repair))
    spaces.keep(instance.threads.head(thread))
    spaces.leave(thread)
    assert at(project, "show", f"{branch(thread)}:new.txt") == "new" and not folder.exists()


def test_a_folder_a_thread(instance: Instance, tmp_path: Path) -> None:
    spaces = Workspaces(instance, parse_wanted(f"folder:{tmp_path}/out"))
    thread = start_thread(instance, RELAY)
    folder = work(instance, spaces, thread, "echo it > made.txt")
    assert folder == tmp_path / "out" / thread
    spaces.leave(thread)
    assert (folder / "made.txt").read_text() == "it\n"


@pytest.mark.parametrize(
    ("text", "remote", "error", "says"),
    [
        ("worktree", "", Usage, "is not a workspace"),
        ("tree:/x", "", Usage, "is not a workspace"),
        ("folder:", "", Usage, "is not a workspace"),
        ("folder:x", "origin", Usage, "has no branch"),
        ("worktree:{}/one.txt", "", NotFound, "is not a git repository"),
        ("worktree:/", "", NotFound, "is not a git repository"),
        ("worktree:{}@v9", "", NotFound, "has no commit v9"),
        ("worktree:{}", "nowhere", NotFound, "has no remote nowhere"),
    ],
)
def test_what_is_no_workspace_is_refused(
    text: str, remote: str, error: type[UwfError], says: str, project: Path
) -> None:
    with pytest.raises(error) as caught:
        parse_wanted(text.format(project), remote)
    assert says in caught.value.message and caught.value.hint
