"""The git directory that a thread's worktree has of its own: nothing of the user's or of another thread is in it, and
nothing of what a step named is lost."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import LONG, start_thread

from uwf_git.base.errors import UwfError, WorkspaceFailed
from uwf_git.engine.step import kill, step
from uwf_git.format.ids import ThreadId
from uwf_git.git import program
from uwf_git.kit import create_agent
from uwf_git.sandbox.child import spawn
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign
from uwf_git.workspaces.options import parse_option
from uwf_git.workspaces.step_workspace import code_left


def at(project: Path, *args: object) -> str:
    return git("-C", project, *args)


def commit(project: Path, name: str, text: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)
    at(project, "add", "-A")
    at(project, "commit", "-q", "-m", name)


@pytest.mark.parametrize(
    "command", ["git stash pop", "git stash clear; git gc -q --prune=now", "git stash drop 1"]
)
@pytest.mark.parametrize("status", [0, 3])
def test_the_stash_is_as_it_was_after_a_step_in_the_checkout_itself(
    uwf: Uwf, project: Path, monkeypatch: pytest.MonkeyPatch, command: str, status: int
) -> None:
    for name in ("first", "second"):
        (project / "one.txt").write_text(name)
        at(project, "stash", "push", "-q", "-m", name)
    before = at(project, "stash", "list", "--format=%H %gs")
    (project / "long.yaml").write_text(LONG)
    monkeypatch.chdir(project)
    thread = uwf("thread", "start", "long.yaml", "-p", "x", "--workspace", "shared").json["thread"]
    agent = f"{'' if status else 'uwf-exec '}sh -c '{command}; exit {status}'"
    done = uwf("thread", "step", thread, "--agent", agent, check=6 if status else 0)
    assert f"thread {thread} took " in done.err and "put back" in done.err
    after = at(project, "stash", "list", "--format=%H %gs")
    assert sorted(after.splitlines()) == sorted(before.splitlines())
    assert at(project, "for-each-ref", "refs/uwf") == ""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    commit(path, "one.txt", "one\n")
    return path


def shallow_clone(project: Path, folder: Path) -> Path:
    """A clone with the last of three commits."""
    for number in (2, 3):
        commit(project, f"{number}.txt", "x\n")
    git("clone", "-q", "--depth", "1", f"file://{project}", folder / "clone")
    return folder / "clone"


def begun(instance: Instance, project: Path) -> ThreadId:
    thread = start_thread(instance, LONG)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    return thread


def work(instance: Instance, thread: ThreadId, *commands: str, answer: str = '{"text": "done"}') -> None:
    script = "; ".join(commands)
    step(instance, thread, shlex.join(["uwf-exec", "sh", "-ec", f"({script}) >&2; echo '{answer}'"]))


def folder(instance: Instance, thread: ThreadId) -> Path:
    return instance.location.root / "workspaces" / thread


def branch(thread: ThreadId) -> str:
    return f"uwf/work/{thread}"


def files(project: Path, thread: ThreadId) -> list[str]:
    return at(project, "ls-tree", "-r", "--name-only", branch(thread)).split()


def codes(instance: Instance, thread: ThreadId) -> list[str]:
    steps = instance.threads.history(instance.threads.head(thread)).steps
    return [code.commit for each in steps if (code := code_left(instance, each.detail))]


def collect_garbage(project: Path) -> None:
    at(project, "reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    at(project, "gc", "-q", "--prune=now")


# What is the user's


SHARED = {
    "stash": "git stash pop || true; echo more >>one.txt; git stash; git stash; git stash clear",
    "configuration": "git config user.name Mallory; git config --global --unset none || true; git config core.x y",
    "hooks": "h=$(git rev-parse --git-path hooks)/pre-commit; echo 'exit 1' >$h; chmod +x $h",
    "branches": "git checkout -q -B main; git commit -q --allow-empty -m x; git branch -f side; git branch -D gone",
    "tags": "git tag -f v1; git tag -d v2",
    "notes": "git notes add -m note",
    "exclude": "echo secret >>$(git rev-parse --git-path info/exclude)",
    "attributes": "echo '* text' >$(git rev-parse --git-path info/attributes)",
    "rerere": "git config rerere.enabled true; mkdir -p $(git rev-parse --git-common-dir)/rr-cache/x",
    "bisect": "git bisect start; git bisect bad; git bisect reset",
    "remotes": "git remote add evil /nowhere; git remote remove origin",
    "worktrees": "git worktree prune; git gc -q --prune=now; git reflog expire --expire=now --all; git pack-refs --all",
    "replace": "git replace HEAD $(git commit-tree -m x HEAD^{tree})",
    "HEAD": "git update-ref refs/heads/side HEAD; git symbolic-ref HEAD refs/heads/side",
}


@pytest.mark.parametrize("what", SHARED)
@pytest.mark.sample(5)
def test_no_command_of_an_agent_changes_what_the_user_has_in_the_repository(
    instance: Instance, project: Path, what: str
) -> None:
    at(project, "remote", "add", "origin", project)
    for name in ("side", "gone"):
        at(project, "branch", name)
    for name in ("v1", "v2"):
        at(project, "tag", name)
    (project / "one.txt").write_text("mine\n")
    at(project, "stash")
    (project / ".git/info").mkdir(exist_ok=True)
    thread = begun(instance, project)
    work(instance, thread, "true")
    aside = project.with_name("before")

    def of_the_user() -> dict[str, bytes]:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(project / ".git", aside)
        for name in (
            "uwf-worktrees",
            "objects",
            "refs/uwf",
            "refs/heads/uwf",
            "logs/refs/heads/uwf",
            "logs/refs/uwf",
        ):
            shutil.rmtree(aside / name, ignore_errors=True)
        return {
            str(path.relative_to(aside)): path.read_bytes() for path in aside.rglob("*") if path.is_file()
        }

    before = of_the_user()
    work(instance, thread, SHARED[what], "echo a >a.txt", "git checkout -q . 2>/dev/null || true")
    work(instance, thread, "echo b >b.txt")
    assert of_the_user() == before
    assert {"a.txt", "b.txt", "one.txt"} <= set(files(project, thread))
    assert at(project, "stash", "list").count("\n") == 0 and at(project, "stash", "show", "-p").endswith(
        "+mine"
    )
    assert at(project, "fsck", "--no-dangling") == ""


def test_two_agents_that_stash_side_by_side_have_each_their_own(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    one, other = begun(instance, project), begun(instance, project)
    waits = "n=0; until test -e {}; do n=$((n+1)); test $n -lt 300 || exit 1; sleep 0.1; done"

    def first() -> None:
        own = Instance(instance.location, {})
        pause = waits.format(tmp_path / "b1")
        work(
            own,
            one,
            "echo A >>one.txt; git stash -q",
            f"touch {tmp_path}/a1; {pause}",
            f"git stash pop -q; touch {tmp_path}/a2",
        )

    beside = threading.Thread(target=first)
    beside.start()
    pause, end = (waits.format(tmp_path / name) for name in ("a1", "a2"))
    work(
        instance,
        other,
        pause,
        "echo B >>one.txt; git stash -q",
        f"touch {tmp_path}/b1; {end}",
        "git stash pop -q",
    )
    beside.join()
    assert [at(project, "show", f"{branch(each)}:one.txt") for each in (one, other)] == ["one\nA", "one\nB"]


def test_a_stash_stays_with_its_thread_when_the_worktree_makes_room(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo A >>one.txt; git stash -q; git branch mine")
    message = uwf("workspace", "remove", thread).err
    assert "what agents" in message and "(mine, stash)" in message
    git(*message.split(": git ")[1].split())
    assert at(project, "rev-parse", "FETCH_HEAD") == at(project, "rev-parse", "main")
    assert not folder(instance, thread).exists()
    collect_garbage(project)
    work(instance, thread, "git stash pop -q; git rev-parse -q --verify mine")
    assert at(project, "show", f"{branch(thread)}:one.txt") == "one\nA"


def test_an_agent_sees_the_branches_and_settings_of_now(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(instance, thread, "git rev-parse main", "git branch own")
    commit(project, "later.txt", "later\n")
    at(project, "config", "user.name", "Later")
    at(project, "remote", "add", "near", "../near.git")
    work(
        instance,
        thread,
        "git merge -q --no-edit main",
        "git rev-parse -q --verify own",
        'test "$(git config user.name)" = Later',
        f'test "$(git remote get-url near)" = {project.parent}/near.git',
    )
    assert "later.txt" in files(project, thread)


def test_an_agent_has_the_hooks_and_excludes_of_now_unless_it_has_changed_them(
    instance: Instance, project: Path
) -> None:
    hook, exclude = project / ".git/hooks/pre-commit", project / ".git/info/exclude"
    for path in (hook, exclude):
        path.parent.mkdir(exist_ok=True)
    exclude.write_text("built\n")
    thread = begun(instance, project)
    work(instance, thread, "touch built; git commit -q --allow-empty -m free")
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    exclude.write_text("other\n")
    work(instance, thread, "touch other; ! git commit -q --allow-empty -m hooked")
    assert "built" in files(project, thread) and "other" not in files(project, thread)
    own = "h=$(git rev-parse --git-path hooks)/pre-commit; echo 'exit 0' >$h"
    work(instance, thread, own, "echo more >>$(git rev-parse --git-path info/exclude); touch more")
    hook.write_text("#!/bin/sh\nexit 2\n")
    work(instance, thread, "git commit -q --allow-empty -m own")
    assert "more" not in files(project, thread)


def test_a_shallow_project_that_becomes_whole_or_shallower_stays_readable_in_its_worktrees(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    place = shallow_clone(project, tmp_path)
    thread = begun(instance, place)
    work(instance, thread, "test $(git rev-list --count HEAD) = 1; echo 1 >n1.txt")
    for number in (4, 5):
        commit(project, f"{number}.txt", "x\n")
    at(place, "fetch", "-q", "--depth", "1")
    work(instance, thread, "git log --all --oneline; git fsck")
    at(place, "fetch", "-q", "--unshallow")
    work(instance, thread, "test $(git rev-list --count origin/main) = 5; git merge -q --no-edit origin/main")
    assert {"5.txt", "n1.txt"} <= set(files(place, thread))


def test_an_agents_own_commits_of_any_number_come_to_the_project(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(
        instance,
        thread,
        "for i in 1 2 3; do echo $i >$i.txt; git add .; git commit -q -m $i; done; git repack -adq",
    )
    work(
        instance,
        thread,
        "for i in $(seq 200); do echo $i >f$i; done; git add .; git commit -q -m many; git gc -q",
    )
    shutil.rmtree(project / ".git/uwf-worktrees")
    assert at(project, "log", "--format=%s", f"main..{branch(thread)}").split() == ["many", "3", "2", "1"]
    assert at(project, "fsck", "--no-dangling") == ""


# What steps named


@pytest.mark.parametrize("how", ["reset --soft main", "commit --amend -q -m x", "checkout -q --orphan new"])
@pytest.mark.sample(2)
def test_code_that_an_agent_takes_out_of_its_history_stays_while_the_thread_does(
    uwf: Uwf, instance: Instance, project: Path, how: str
) -> None:
    thread = begun(instance, project)
    for number in (1, 2):
        work(instance, thread, f"echo {number} >n{number}.txt")
    work(instance, thread, f"git {how}; git commit -q --allow-empty -m squashed")
    work(instance, thread, "echo 4 >n4.txt")
    collect_garbage(project)
    for number, each in enumerate(codes(instance, thread), 1):
        assert f"n{min(number, 2)}.txt" in at(project, "ls-tree", "--name-only", each)
    fork = ThreadId(uwf("thread", "fork", thread, "--at", "1").json["thread"])
    uwf("thread", "rm", thread, "--yes")
    collect_garbage(project)
    work(instance, fork, "test -e n1.txt; test ! -e n2.txt")


DAMAGED = {
    "detached": "git checkout -q --detach; git commit -q --allow-empty -m detached",
    "on another branch": "git checkout -q other; echo o >o.txt; git add -A; git commit -q -m other",
    "renamed": "git branch -m renamed",
    "without branches": "git checkout -q --detach; git branch | sed 1d | xargs git branch -D",
    "without a head": "git update-ref -d HEAD",
    "an orphan": "git checkout -q --orphan other-root; git rm -rfq .; echo o >o.txt; git add -A; git commit -q -m o",
    "all rewritten": "git filter-branch -f --msg-filter 'cat; echo again' HEAD",
    "bare": "git config core.bare true",
    "elsewhere": "git config core.worktree /",
    "without refs": "rm -rf $(git rev-parse --git-dir)/refs",
    "without objects": "rm -rf $(git rev-parse --git-dir)/objects",
    "a broken HEAD": "echo broken >$(git rev-parse --git-dir)/HEAD",
    "on main": "git symbolic-ref HEAD refs/heads/main",
    "led away": "echo 'gitdir: /nowhere' >.git",
}


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.sample(6)
def test_nothing_that_an_agent_does_to_its_repository_loses_a_step_or_changes_the_users(
    uwf: Uwf, instance: Instance, project: Path, what: str
) -> None:
    at(project, "branch", "other")
    (project / "one.txt").write_text("mine\n")
    at(project, "stash")
    thread = begun(instance, project)
    for number in (1, 2):
        work(instance, thread, f"echo {number} >n{number}.txt")

    def of_the_user() -> list[str]:
        refs = at(project, "for-each-ref", "refs/heads/main", "refs/heads/other", "refs/stash")
        return [refs, at(project, "status", "--porcelain", "-b"), (project / ".git/config").read_text()]

    before = of_the_user()
    work(instance, thread, DAMAGED[what])
    work(instance, thread, "echo 4 >n4.txt; git status >/dev/null")
    assert of_the_user() == before and "n4.txt" in files(project, thread)
    collect_garbage(project)
    assert [each for each in codes(instance, thread) if at(project, "cat-file", "-t", each) != "commit"] == []
    assert uwf("verify").json["findings"] == []


def test_what_an_agent_keeps_for_itself_outlives_what_it_shared_with_the_project(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    at(project, "checkout", "-q", "-b", "feature")
    commit(project, "feature.txt", "feature\n")
    at(project, "checkout", "-q", "main")
    (project / "shared").write_text("shared\n")
    at(project, "hash-object", "-w", "shared")
    (project / "shared").unlink()
    thread = begun(instance, project)
    work(
        instance,
        thread,
        "git branch mine feature",
        "echo shared >new; git stash -q -u; echo b >b; git stash -q -u",
    )
    at(project, "branch", "-q", "-D", "feature")
    collect_garbage(project)
    work(instance, thread, "git gc -q --prune=now; git fsck; git show mine:feature.txt", "git stash drop -q")
    collect_garbage(project)
    work(instance, thread, "git stash pop -q; git branch -q -D mine")
    assert at(project, "show", f"{branch(thread)}:new") == "shared"
    assert at(project, "for-each-ref", f"refs/uwf/local/work/{thread}") == ""


def test_code_stays_when_its_branch_is_merged_by_squashing_and_deleted(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    work(instance, thread, "echo 2 >n2.txt", answer='{"end": true}')
    at(project, "branch", "fix", branch(thread))
    at(project, "merge", "-q", "--squash", "fix")
    at(project, "commit", "-q", "-m", "squashed")
    at(project, "branch", "-q", "-D", "fix")
    collect_garbage(project)
    assert uwf("verify").json["findings"] == []
    fork = ThreadId(uwf("thread", "fork", thread, "--at", "1").json["thread"])
    work(instance, fork, "test -e n1.txt; test ! -e n2.txt")


def test_verify_fails_if_code_that_was_made_here_is_gone(uwf: Uwf, instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    shutil.rmtree(project / ".git/uwf-worktrees")
    for name in at(project, "for-each-ref", "--format=%(refname)", "refs/uwf").split():
        at(project, "update-ref", "-d", name)
    collect_garbage(project)
    report = uwf("verify", check=None)
    assert report.code != 0 and [each["code"] for each in report.json["findings"]] == ["lost-code"]


def test_the_code_of_an_attempt_that_was_made_here_is_missed_as_that_of_a_step(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    at(project, "remote", "add", "origin", "../origin.git")
    thread = begun(instance, project)
    uwf("thread", "step", thread, "--agent", "sh -c 'echo half >half.txt; exit 3'", check=None)
    (kept,) = at(project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    at(project, "update-ref", "-d", kept)
    shutil.rmtree(project / ".git/uwf-worktrees")
    collect_garbage(project)
    report = uwf("verify", thread, check=7).json
    (found,) = report["findings"]
    assert found["code"] == "lost-code" and found["message"].startswith("attempt ") and report["notes"] == []


def test_lost_code_is_said_to_be_lost_wherever_it_is_named(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    at(project, "remote", "add", "origin", "../origin.git")
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    assert "gone" not in uwf("doctor", check=None).out
    shutil.rmtree(project / ".git/uwf-worktrees")
    for name in at(project, "for-each-ref", "--format=%(refname)", "refs/uwf").split():
        at(project, "update-ref", "-d", name)
    collect_garbage(project)
    commit = codes(instance, thread)[-1][:12]
    shown = uwf("thread", "show", thread, "--format", "text").out
    assert f"commit {commit} was made here, and is gone" in " ".join(shown.split()) and "../" not in shown
    checks = uwf("doctor", check=None).json
    (lost,) = [each for each in checks if commit in each["message"]]
    assert lost["status"] == "error" and f"uwf verify {thread}" in lost["hint"]


def test_a_step_leaves_a_checkout_of_the_threads_code_as_it_is(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    at(project, "checkout", "-q", branch(thread))
    uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'echo 2 >n2.txt; echo {}'")
    assert at(project, "status", "--porcelain") == "" and not (project / "n2.txt").exists()
    assert at(project, "rev-parse", branch(thread)) == codes(instance, thread)[-1]
    at(project, "merge", "-q", branch(thread))
    at(project, "checkout", "-q", "main")
    work(instance, thread, "test -e n2.txt; echo 3 >n3.txt")
    assert "n3.txt" in files(project, thread)


def test_commits_that_the_user_pushes_onto_the_code_are_where_the_next_step_begins(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    at(project, "checkout", "-q", branch(thread))
    commit(project, "mine.txt", "mine\n")
    at(project, "push", "-q", ".", f"HEAD:{branch(thread)}")
    at(project, "checkout", "-q", "main")
    work(instance, thread, "test -e mine.txt; echo 2 >n2.txt")
    assert {"mine.txt", "n1.txt", "n2.txt"} <= set(files(project, thread))


# What goes with a thread


def test_a_removed_thread_leaves_nothing_in_the_project_if_its_code_is_elsewhere(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    merged, untouched = begun(instance, project), begun(instance, project)
    work(instance, merged, "echo 1 >n1.txt")
    work(instance, untouched, "true")
    at(project, "merge", "-q", branch(merged))
    for thread in (merged, untouched):
        assert "nowhere else" not in uwf("thread", "rm", thread, "--yes").err
    assert at(project, "for-each-ref", "refs/uwf") == ""
    assert not any((project / ".git/uwf-worktrees").iterdir())


def test_code_of_a_removed_thread_that_is_nowhere_else_stays_and_a_command_removes_it(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    work(instance, thread, "git reset -q --soft main; git commit -q -m new; echo x >x.txt")
    (folder(instance, thread) / "hand.txt").write_text("by hand")
    done = uwf("thread", "rm", thread, "--yes")
    assert "hand.txt" not in files(project, thread) and "2 commits nowhere else" in done.err
    command = done.err.partition("remove it: ")[2].strip().splitlines()[0]
    subprocess.run(command, shell=True, check=True)
    assert at(project, "for-each-ref", "refs/uwf") == ""


def test_no_worktree_of_the_agent_or_user_inside_of_one_is_deleted(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    at(project, "config", "core.excludesFile", str(project.parent / "ignored"))
    (project.parent / "ignored").write_text("inner*\n")
    thread = begun(instance, project)
    work(instance, thread, "git worktree add -q inner; echo mine >inner/mine.txt; echo a >a.txt")
    killed = uwf("thread", "kill", thread)
    inner = folder(instance, thread) / "inner"
    assert (inner / "mine.txt").read_text() == "mine\n" and str(inner) in killed.err
    git("-C", inner, "status")


# A project that moves


def test_a_fork_of_a_thread_whose_project_is_gone_goes_on_in_another_clone(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    git("clone", "-q", project, other := project.with_name("other"))
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    shutil.rmtree(project)
    agent = ("--agent", "uwf-exec sh -c 'echo 1 >n1.txt; git add .; echo {}'")
    error = uwf("thread", "step", fork, *agent, cwd=project.parent, check=3).error
    assert "was moved or removed" in error["message"] and fork in error["hint"]
    uwf("thread", "step", fork, *agent, cwd=other)
    assert "n1.txt" in files(other, fork)


def test_another_project_that_began_alike_is_not_taken_for_one_that_is_away(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    named = uwf("thread", "show", begun(instance, project)).json["workflow"]
    words = ("thread", "start", named, "-p", "Work", "--workspace", "worktree")
    thread = ThreadId(uwf(*words, cwd=project).json["thread"])
    git("clone", "-q", project, other := project.with_name("other"))
    git("-C", other, "remote", "remove", "origin")
    project.rename(project.with_name("away"))
    error = uwf("thread", "step", thread, "--agent", "uwf-exec echo {}", cwd=other, check=3).error
    assert "was moved or removed" in error["message"]
    project.with_name("away").rename(project)
    uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'echo 1 >n1.txt; echo {}'", cwd=other)
    assert "n1.txt" in files(project, thread)


def test_a_thread_goes_on_in_a_project_that_was_moved(uwf: Uwf, instance: Instance, project: Path) -> None:
    threads = [begun(instance, project) for _ in range(2)]
    for thread in threads:
        work(instance, thread, "echo 1 >n1.txt; git stash list")
    project.rename(moved := project.with_name("moved"))
    agent = ("--agent", "uwf-exec sh -c 'test -e n1.txt; echo 2 >n2.txt; git add .; echo {}'")
    error = uwf("thread", "step", threads[0], *agent, cwd=project.parent, check=3).error
    assert error["code"] == "not_found" and "was moved or removed" in error["message"]
    command = error["hint"].partition(": ")[2].partition(";")[0].replace("FOLDER", str(moved))
    uwf(*shlex.split(command)[1:], *agent, cwd=project.parent)
    assert "n2.txt" in files(moved, threads[0])
    uwf("thread", "step", threads[1], *agent, cwd=project.parent)  # it is known by now
    assert "n2.txt" in files(moved, threads[1])
    for words in (
        ["thread", "show", threads[0]],
        ["workspace", "list"],
        ["verify"],
        ["thread", "rm", threads[1], "--yes"],
    ):
        uwf(*words)


def test_no_command_about_a_thread_breaks_while_its_project_is_gone(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo 1 >n1.txt")
    project.rename(project.with_name("moved"))
    for words in (
        ["thread", "show", thread],
        ["thread", "steps", thread],
        ["thread", "list"],
        ["workspace", "list"],
        ["verify"],
        ["gc"],
        ["thread", "kill", thread],
        ["thread", "rm", thread, "--yes"],
    ):
        assert "internal" not in uwf(*words, check=0, cwd=project.parent).err


# Forms of a checkout


@pytest.mark.parametrize("name", ["uwf", "uwf/work"])
def test_no_branch_of_the_user_is_in_the_way_of_a_threads_code(
    instance: Instance, project: Path, name: str
) -> None:
    at(project, "branch", name)
    thread = begun(instance, project)
    work(instance, thread, "git pack-refs --all; echo 1 >n1.txt; git add .; git commit -q -m mine")
    work(instance, thread, "git gc -q; git commit -q --allow-empty -m more; echo 2 >n2.txt")
    assert {"n1.txt", "n2.txt"} <= set(files(project, thread))
    assert at(project, "rev-parse", name) == at(project, "rev-parse", "main")


@pytest.mark.parametrize("setting", ["true", "warn"])
def test_line_ends_are_recorded_as_git_would_whatever_is_safe(
    instance: Instance, project: Path, setting: str
) -> None:
    git("config", "--global", "core.autocrlf", "true")
    git("config", "--global", "core.safecrlf", setting)
    thread = begun(instance, project)
    work(instance, thread, "printf 'two\\n' >>one.txt; printf 'a\\r\\nb\\n' >mixed.txt")
    assert at(project, "show", f"{branch(thread)}:mixed.txt") == "a\nb"


@pytest.mark.parametrize("where", [[], ["--global"]])
def test_an_absent_program_of_a_filter_is_told_before_an_agent_runs(
    uwf: Uwf, project: Path, tmp_path: Path, where: list[str]
) -> None:
    commit(project, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    for key, value in {"clean": "clean -- %f", "smudge": "smudge -- %f", "process": "filter-process"}.items():
        at(project, "config", *where, f"filter.lfs.{key}", f"git-lfs {value}")
    at(project, "config", *where, "filter.lfs.required", "true")
    (tmp_path / "relay.yaml").write_text(RELAY)
    words = ("thread", "start", tmp_path / "relay.yaml", "-p", "x", "--workspace", "worktree")
    path = tmp_path / "without"
    path.mkdir()
    for name in ("git", "sh"):
        (path / name).symlink_to(shutil.which(name) or name)
    refused = uwf(*words, cwd=project, env={"PATH": str(path)}, check=1).error
    assert "whose program git-lfs is not on PATH" in refused["message"]
    assert refused["hint"].startswith("install git-lfs; or ")
    (path / "git-lfs").write_text("#!/bin/sh\ncat\n")
    (path / "git-lfs").chmod(0o755)
    uwf(*words, cwd=project, env={"PATH": str(path)})


def test_a_shallow_fetch_of_an_agent_is_refused_with_a_way_out(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    place = shallow_clone(project, tmp_path)
    thread = begun(instance, place)
    work(instance, thread, "echo 1 >n1.txt")
    for number in (4, 5):
        commit(project, f"{number}.txt", "x\n")
    merge = "git merge -q --allow-unrelated-histories -m merged FETCH_HEAD"
    with pytest.raises(WorkspaceFailed, match="fetched without their past") as refused:
        work(instance, thread, f"git fetch -q --depth 1 origin main; {merge}")
    subprocess.run(shlex.split(refused.value.hint.partition(";")[0]), check=True, capture_output=True)
    work(instance, thread, "exit 1")
    assert {"5.txt", "n1.txt"} <= set(files(place, thread)) and at(place, "fsck", "--no-dangling") == ""


def test_a_file_outside_of_a_sparse_checkout_is_recorded(instance: Instance, project: Path) -> None:
    commit(project, "a/a", "a\n")
    commit(project, "b/b", "b\n")
    at(project, "sparse-checkout", "set", "a")
    thread = begun(instance, project)
    work(instance, thread, "test ! -e b; mkdir b; echo x >b/new; echo y >>a/a")
    assert {"a/a", "b/b", "b/new"} <= set(files(project, thread))
    work(instance, thread, "git sparse-checkout set b; test ! -e a; rm b/new")
    work(instance, thread, "git sparse-checkout disable; test -e a/a; echo z >>b/b")
    assert {"a/a", "b/b"} <= set(files(project, thread)) and "b/new" not in files(project, thread)
    assert at(project, "show", f"{branch(thread)}:a/a") == "a\ny"


@pytest.fixture
def outer(tmp_path: Path, project: Path) -> Path:
    """A project with `project` as its submodule `lib`."""
    git("config", "--global", "protocol.file.allow", "always")
    path = tmp_path / "outer"
    git("init", "-q", "-b", "main", path)
    at(path, "submodule", "--quiet", "add", project, "lib")
    at(path, "commit", "-q", "-m", "has a submodule")
    return path


def test_a_submodule_that_is_checked_out_is_no_part_of_the_step(instance: Instance, outer: Path) -> None:
    thread = begun(instance, outer)
    work(
        instance, thread, "git submodule --quiet update --init; cat lib/one.txt >built.txt; touch lib/made.o"
    )
    assert at(outer, "diff", "--name-status", "main", branch(thread)) == "A\tbuilt.txt"
    with pytest.raises(WorkspaceFailed, match="files of submodule lib have changed") as refused:
        work(instance, thread, "echo more >>lib/one.txt; echo a >a.txt")
    command = refused.value.hint.partition("or ")[2].partition(";")[0]
    subprocess.run(shlex.split(command), check=True)
    work(instance, thread, "exit 1")
    assert "a.txt" in files(outer, thread)


def test_a_submodule_moves_to_a_commit_that_its_remote_has(
    instance: Instance, outer: Path, project: Path
) -> None:
    thread = begun(instance, outer)
    work(instance, thread, "git submodule --quiet update --init")
    commit(project, "two.txt", "two\n")
    work(instance, thread, "git -C lib pull -q origin main")
    assert at(outer, "rev-parse", f"{branch(thread)}:lib") == at(project, "rev-parse", "main")
    with pytest.raises(WorkspaceFailed, match="a commit that its remote lacks"):
        work(instance, thread, "git -C lib commit -q --allow-empty -m own")


@pytest.mark.parametrize("filled", ["", "workspace:\n  setup: [git, submodule, --quiet, update, --init]\n"])
def test_empty_folders_of_submodules_are_told_at_the_start(
    uwf: Uwf, root: Path, outer: Path, tmp_path: Path, filled: str
) -> None:
    root.mkdir()
    (root / "config.yaml").write_text(filled)
    (tmp_path / "relay.yaml").write_text(RELAY)
    start = uwf(
        *("thread", "start", tmp_path / "relay.yaml", "-p", "x", "--workspace", "worktree"),
        cwd=outer,
        check=0,
    )
    assert ("folders of submodules are empty in worktrees: lib" in start.err) is not bool(filled)
    assert (start.json.get("warnings", []) == []) is bool(filled)


@pytest.mark.parametrize("per_worktree", [False, True])
def test_a_project_that_is_a_submodule_is_read_in_the_worktree(
    instance: Instance, outer: Path, per_worktree: bool
) -> None:
    if per_worktree:
        at(outer / "lib", "config", "extensions.worktreeConfig", "true")
    thread = begun(instance, outer / "lib")
    work(instance, thread, "echo a >a.txt; git status --short | grep -q a.txt")
    assert files(outer / "lib", thread) == ["a.txt", "one.txt"]


REDIRECTED = {
    "core.worktree": ["core.worktree", "/"],
    "core.bare": ["core.bare", "true"],
    "an include": ["include.path", "../more"],
    "a conditional include": ["includeIf.gitdir:/**.path", "../more"],
}


@pytest.mark.parametrize("what", REDIRECTED)
def test_no_configuration_leads_git_out_of_the_worktree(
    instance: Instance, project: Path, tmp_path: Path, what: str
) -> None:
    thread = begun(instance, project)
    (project / "more").write_text(f"[core]\n\tworktree = {tmp_path}\n\tbare = false\n")
    at(project, "config", *REDIRECTED[what])
    work(instance, thread, "echo a >a.txt; git status --short | grep -q a.txt")
    git("-C", folder(instance, thread), "status")
    assert git(
        "--git-dir", project / ".git", "ls-tree", "--full-tree", "--name-only", branch(thread)
    ).split() == [
        "a.txt",
        "one.txt",
    ]


def test_variables_of_git_around_uwf_lead_no_agent_elsewhere(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    uwf(
        *(
            "thread",
            "step",
            thread,
            "--agent",
            "uwf-exec sh -c 'echo a >a.txt; git add -A; git commit -qm own; echo {}'",
        ),
        env={
            "GIT_DIR": str(project / ".git"),
            "GIT_WORK_TREE": str(project),
            "GIT_INDEX_FILE": str(project / "x"),
        },
    )
    assert at(project, "rev-parse", "main") != at(project, "rev-parse", branch(thread))
    assert at(project, "status", "--porcelain") == "" and files(project, thread) == ["a.txt", "one.txt"]


def test_a_removed_git_file_leads_no_command_to_a_repository_above(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    git("init", "-q", instance.location.root)
    thread = begun(instance, project)
    work(instance, thread, "rm -rf ./* ./.??*; git add -A || true; echo a >a.txt")
    assert files(project, thread) == ["a.txt"] and git("-C", instance.location.root, "ls-files") == ""


def test_a_killed_threads_uncommitted_files_are_kept(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo a >a.txt")
    (folder(instance, thread) / "hand.txt").write_text("by hand\n")
    kill(instance, thread)
    (kept,) = at(project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    assert at(project, "show", f"{kept}:hand.txt") == "by hand"


def test_a_step_ends_in_one_line_if_the_project_goes_meanwhile(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    with pytest.raises(UwfError) as refused:
        work(instance, thread, f"mv {project} {project}.away; echo a >a.txt")
    assert "\n" not in refused.value.message and refused.value.hint


# What is not committed, or should not be


def test_what_git_ignores_is_named_before_it_goes_and_kept_if_settings_say_so(
    uwf: Uwf, root: Path, instance: Instance, project: Path
) -> None:
    commit(project, ".gitignore", "build/\n*.log\n__pycache__/\ncache/\nnode_modules/\n")
    setup = "setup: [sh, -c, mkdir node_modules; touch node_modules/x]"
    makes = (
        "mkdir -p build cache __pycache__; echo report >build/report.html; echo a >a.log; touch __pycache__/x;"
        ' touch cache/CACHEDIR.TAG; echo "{\\"end\\": true}"'
    )
    for keep, goes, kept in (
        ("", ["a.log", "build/"], []),
        ("keepIgnored: [build]", ["a.log"], ["build/report.html"]),
        ("keepIgnored: ['*.log', build/report.html]", [], ["a.log", "build/report.html"]),
    ):
        (root / "config.yaml").write_text("workspace: {" + ", ".join(filter(None, (setup, keep))) + "}\n")
        thread = begun(Instance(instance.location, {}), project)
        done = uwf("thread", "step", thread, "--agent", shlex.join(["uwf-exec", "sh", "-c", makes]))
        named = done.err.partition(f"goes with the worktree of thread {thread}: ")[2].partition(";")[0]
        assert [each for each in named.split(", ") if each] == goes
        place = root / "ignored" / thread
        found = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        assert found == kept and not folder(instance, thread).exists()


def test_a_large_file_is_named_when_it_is_committed_and_only_then(
    uwf: Uwf, root: Path, instance: Instance, project: Path
) -> None:
    (root / "config.yaml").write_text("workspace: {maxFile: 2MB}\n")
    thread = begun(Instance(instance.location, {}), project)
    agent = "uwf-exec sh -c '{}; echo \"{{}}\"'"
    makes = "mkdir -p big; head -c 2000001 /dev/zero >big/zeros.bin; head -c 2000000 /dev/zero >small"
    done = uwf("thread", "step", thread, "--agent", agent.format(makes))
    assert "big/zeros.bin (2 MB), over 2 MB (workspace.maxFile)" in done.err and "small" not in done.err
    done = uwf("thread", "step", thread, "--agent", agent.format("echo b >b.txt"))
    assert "zeros" not in done.err and {"b.txt", "big/zeros.bin"} <= set(files(project, thread))


def test_the_code_of_killed_and_removed_threads_is_not_pushed(
    uwf: Uwf, root: Path, instance: Instance, project: Path, tmp_path: Path
) -> None:
    git("init", "-q", "--bare", tmp_path / "code.git")
    git("init", "-q", "--bare", tmp_path / "threads.git")
    at(project, "remote", "add", "origin", tmp_path / "code.git")
    (root / "config.yaml").write_text("workspace: {remote: origin}\n")
    instance = Instance(instance.location, {})
    killed, removed, idle = (begun(instance, project) for _ in range(3))
    for thread in (killed, removed, idle):
        work(instance, thread, "echo a >a.txt")
    uwf("thread", "kill", killed)
    uwf("thread", "rm", removed, "--yes")
    uwf("remote", "add", "hub", tmp_path / "threads.git")
    uwf("push", "hub", "--all-projects")
    pushed = git("-C", tmp_path / "code.git", "for-each-ref", "--format=%(refname)").split()
    assert pushed == [f"refs/{branch(idle)}"]
    done = uwf("thread", "rm", idle, "--yes")
    command = done.err.partition("delete it there: ")[2].strip().splitlines()[0]
    subprocess.run(command, shell=True, check=True)
    assert git("-C", tmp_path / "code.git", "for-each-ref") == ""
    assert at(project, "for-each-ref", "refs/uwf/local/remotes", "refs/remotes") == ""


# What it costs


def test_a_step_that_changes_nothing_calls_no_git_and_a_new_worktree_no_more_than_git_does(
    instance: Instance, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git worktree add` runs three processes of git."""
    calls: list[str] = []

    def spy(words: list[str], **options: Any) -> Any:
        calls.append(program.command_of(words[2:]))
        return spawn(words, **options)

    monkeypatch.setattr(program, "spawn", spy)
    idle = create_agent("idle", lambda ctx: '{"text": "done"}')
    thread = begun(instance, project)
    calls.clear()
    step(instance, thread, idle)
    assert calls[: calls.index("add")] == ["config", "update-ref", "for-each-ref", "read-tree"]
    time.sleep(0.05)  # git reads a file again that is as new as the index
    for _ in range(3):
        calls.clear()
        step(instance, thread, idle)
    assert calls == []
