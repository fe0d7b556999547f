"""Whatever an agent leaves in its worktree: no program of it is run, nothing of the user's is touched, nothing is
lost, and what is wrong is told in a line."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from two_machines import RELAY
from workflows import start_thread

from uwf_git.base.errors import Invalid, UwfError, WorkspaceFailed
from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign, chosen
from uwf_git.workspaces.options import parse_option
from uwf_git.workspaces.step_workspace import code_left


def commit(project: Path, message: str) -> None:
    git("-C", project, "add", "-A")
    git("-C", project, "commit", "-q", "-m", message)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    git("init", "-q", "-b", "main", path)
    (path / "one.txt").write_text("one\n")
    (path / "sub").mkdir()
    (path / "sub/two.txt").write_text("two\n")
    commit(path, "first")
    git("-C", path, "branch", "side")
    (path / "one.txt").write_text("user's\n")
    git("-C", path, "stash", "-q")
    (path / "staged.txt").write_text("staged\n")
    git("-C", path, "add", "staged.txt")
    (path / "loose.txt").write_text("loose\n")
    return path


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that a program of the worktree would make, and the program."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    return tmp_path / "ran"


def begun(instance: Instance, project: Path) -> ThreadId:
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    return thread


def agent(*commands: str) -> str:
    script = "; ".join(commands)
    return shlex.join(["uwf-exec", "sh", "-c", f'({script}) >&2; echo \'{{"text": "done"}}\''])


def of_the_user(project: Path) -> tuple[object, ...]:
    """What nobody but the user may change."""
    refs = git("-C", project, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/stash")
    own = [line for line in refs.splitlines() if "/uwf/" not in line]
    files = {
        str(path.relative_to(project)): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }
    index = hashlib.sha256((project / ".git/index").read_bytes()).hexdigest()
    head, config = ((project / ".git" / name).read_text() for name in ("HEAD", "config"))
    return own, files, index, head, config


def listed(project: Path, thread: ThreadId) -> list[str]:
    return git("-C", project, "ls-tree", "-r", "--name-only", f"uwf/work/{thread}").splitlines()


KEPT = {
    "a detached head": ["git checkout -q --detach HEAD~0", "echo a > a.txt"],
    "another branch": ["git checkout -q -b theirs", "echo a > a.txt"],
    "an amended commit": ["echo a > a.txt", "git add a.txt", "git commit -q --amend -m amended"],
    "odd names": [
        "echo a > a.txt",
        "touch -- -dash :colon '*star' \"$(printf 'new\\nline')\" \"$(printf 'latin\\351')\" ' blank '",
    ],
    "a read-only folder": ["echo a > a.txt", "mkdir ro", "echo x > ro/x.txt", "chmod 500 ro"],
    "links": ["echo a > a.txt", "ln -s . loop", "ln -s /etc/passwd out", "ln -s gone dangling"],
    "a pipe and a socket": ["echo a > a.txt", "mkfifo pipe"],
    "a lock of its own": ["echo a > a.txt", "touch $(git rev-parse --git-dir)/index.lock"],
    "a broken index": ["echo a > a.txt", "echo broken > $(git rev-parse --git-dir)/index"],
    "its .git gone": ["echo a > a.txt", "rm .git"],
    "a stash": ["echo a > a.txt", "echo b > b.txt", "git add b.txt"],
}


@pytest.mark.parametrize("what", KEPT)
@pytest.mark.sample(5)
def test_what_an_agent_does_in_its_worktree_is_recorded(instance: Instance, project: Path, what: str) -> None:
    before = of_the_user(project)
    thread = begun(instance, project)
    assert step(instance, thread, agent(*KEPT[what])).role == "writer"
    assert "a.txt" in listed(project, thread)
    own, *rest = of_the_user(project)
    assert [line for line in own if "/theirs " not in line] == before[0]  # type: ignore[attr-defined]
    assert tuple(rest) == before[1:]
    step(instance, thread, agent("test -e a.txt"))
    assert not (instance.location.root / "workspaces" / thread).exists()


REFUSED = {
    "a nested repository": (
        ["git init -q in", "echo x > in/x", "git -C in add x", "git -C in commit -qm x"],
        "own",
    ),
    "one without commits": (["git init -q in", "echo x > in/x"], "own"),
    "its .git a folder": (["rm .git", "mkdir .git"], "has changed"),
    "its .git a link": (["mv .git ../was", "ln -s ../was .git"], "has changed"),
    "its .git elsewhere": (
        ["git init -q ../else", "rm .git", "echo gitdir: $(cd ..; pwd)/else/.git > .git"],
        "changed",
    ),
    "a merge": (
        [
            "git checkout -q -b x",
            "echo x > one.txt",
            "git commit -qam x",
            "git checkout -q -b y main",
            "echo y > one.txt",
            "git commit -qam y",
            "git merge -q x",
        ],
        "in the middle of a merge",
    ),
    "a rebase": (
        [
            "git checkout -q -b x",
            "echo x > one.txt",
            "git commit -qam x",
            "git checkout -q -b y main",
            "echo y > one.txt",
            "git commit -qam y",
            "git rebase -q x",
        ],
        "in the middle of a rebase",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.sample(4)
def test_what_cannot_be_recorded_is_told_and_the_answer_kept(
    instance: Instance, project: Path, what: str
) -> None:
    commands, says = REFUSED[what]
    before = of_the_user(project)
    thread = begun(instance, project)
    with pytest.raises(UwfError, match=says) as refused:
        step(instance, thread, agent(*commands))
    assert "\n" not in refused.value.message and refused.value.hint
    assert of_the_user(project)[1:] == before[1:]
    assert instance.threads.head(thread).row.number == 0
    if isinstance(refused.value, WorkspaceFailed):
        with pytest.raises(WorkspaceFailed):  # nobody is asked again, and nothing is recorded
            step(instance, thread, "uwf-exec false")


HOSTILE = {
    "hooks": "mkdir hooks; for h in pre-commit commit-msg post-commit post-checkout post-index-change"
    " reference-transaction prepare-commit-msg; do cp {program} hooks/$h; done; git config core.hooksPath $PWD/hooks",
    "fsmonitor": "git config core.fsmonitor {program}",
    "a filter": "git config filter.x.clean {program}; git config filter.x.smudge {program};"
    " echo '* filter=x' > .gitattributes",
    "a filter by process": "git config filter.x.process {program}; git config filter.x.required true;"
    " echo '* filter=x' > .gitattributes",
    "a nested filter": "git init -q in; cd in; git config filter.x.clean {program};"
    " git config core.fsmonitor {program}; echo '* filter=x' > .gitattributes; echo 1 > a; git add a;"
    " git commit -qm a; echo 2 > a",
    "a submodule": "git init -q in; cd in; git config core.fsmonitor {program}; echo 1 > a; git add a;"
    " git commit -qm a; cd ..; git add in; printf '[submodule \"in\"]\\n\\tpath = in\\n\\turl = ./in\\n' > .gitmodules;"
    " echo '\tignore = none' >> .gitmodules; echo 2 > in/a",
    "a diff program": "git config diff.external {program}; git config diff.x.textconv {program};"
    " echo '* diff=x' > .gitattributes",
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.sample(4)
def test_no_program_of_a_worktree_is_run(
    uwf: Uwf, instance: Instance, project: Path, canary: Path, what: str
) -> None:
    """Of an agent that may write the repository's configuration, which a confined one can't."""
    thread = begun(instance, project)
    step(instance, thread, agent("true"))
    script = HOSTILE[what].format(program=canary.with_name("program"))
    # The canary is for what uwf's git does, not for the agent's own.
    clear = f"echo new > new.txt; cd $OLDPWD 2>/dev/null; rm -f {canary}"
    try:
        step(instance, thread, agent(f"({script})", clear))
    except UwfError as error:
        assert "\n" not in error.message
        with pytest.raises(UwfError):
            step(instance, thread, "uwf-exec false")
    uwf("workspace", "list")
    uwf("thread", "show", thread)
    uwf("verify")
    last = uwf("thread", "steps", thread, "--json").json[-1]["step"]
    uwf("thread", "step-details", last, "--patch")
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    with pytest.raises(UwfError) if "filter" in what and "nested" not in what else _nothing():
        step(instance, ThreadId(fork), agent("true"))
        raise Invalid("none")
    assert not canary.exists()


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> bool:
        return True


def test_a_filter_of_the_repository_that_its_files_need_is_refused(
    instance: Instance, project: Path, canary: Path
) -> None:
    git("-C", project, "stash", "drop", "-q")
    git("-C", project, "config", "filter.x.clean", "cat")
    (project / ".gitattributes").write_text("*.txt filter=x\n")
    commit(project, "filters")
    with pytest.raises(Invalid, match="has the filter x in its own configuration"):
        chosen(instance, project, parse_option("worktree"))
    git("-C", project, "config", "--unset", "filter.x.clean")
    git("config", "--global", "filter.x.clean", "tr a-z A-Z")
    thread = begun(instance, project)
    step(instance, thread, agent("echo loud > made.txt"))
    assert git("-C", project, "show", f"uwf/work/{thread}:made.txt") == "LOUD"


@pytest.mark.parametrize("how", ["sha256", "shallow", "linked", "bare"])
@pytest.mark.sample(2)
def test_a_repository_of_another_kind_has_worktrees_as_well(
    instance: Instance, project: Path, tmp_path: Path, how: str
) -> None:
    place = tmp_path / "other"
    if how == "sha256":
        git("init", "-q", "-b", "main", "--object-format=sha256", place)
        (place / "one.txt").write_text("one\n")
        commit(place, "first")
    elif how == "shallow":
        git("clone", "-q", "--depth", "1", f"file://{project}", place)
    elif how == "linked":
        git("-C", project, "worktree", "add", "-q", "-b", "linked", place)
        (place / "linked.txt").write_text("linked\n")
        commit(place, "linked")
    else:
        git("clone", "-q", "--bare", project, place)
    thread = begun(instance, place)
    for number in range(2):
        step(instance, thread, agent(f"test -e one.txt && echo {number} > made.txt"))
    code = code_left(instance, instance.threads.history(instance.threads.head(thread)).steps[-1].detail)
    assert code is not None and (how == "shallow") == (code.root == "")
    assert git("-C", place, "show", f"{code.commit}:made.txt") == "1"
    if how == "linked":
        assert git("-C", place, "show", f"{code.commit}:linked.txt") == "linked"


def test_two_stores_do_not_share_a_worktree(uwf: Uwf, project: Path, tmp_path: Path) -> None:
    """The same thread in two stores of one storage root, as projects with a store of their own have it."""
    (tmp_path / "relay.yaml").write_text(RELAY)
    one, two = tmp_path / "one", tmp_path / "two"
    for place in (one, two):
        git("init", "-q", place)
        uwf("init", "--here", cwd=place, env={"UWF_STORAGE_ROOT": ""})
    here = {"UWF_STORAGE_ROOT": ""}
    begun = uwf(
        *("thread", "start", tmp_path / "relay.yaml", "-p", "x", "--workspace", f"worktree:{project}"),
        cwd=one,
        env=here,
    ).json
    thread = begun["thread"]
    uwf("thread", "step", thread, "--agent", agent("echo 1 > made.txt"), cwd=one, env=here)
    uwf("remote", "add", "one", one / ".git", cwd=two, env=here)
    uwf("pull", "one", cwd=two, env=here)
    error = uwf(
        *("thread", "step", thread, "--agent", agent("true"), "--cwd", project), cwd=two, env=here, check=1
    ).error
    assert error["code"] == "workspace" and f"of store {one}/.git" in error["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of a size needs root")
def test_a_full_disk_in_the_middle_of_a_commit_loses_nothing(instance: Instance, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        project = disk / "project"
        git("init", "-q", "-b", "main", project)
        (project / "one.txt").write_text("one\n")
        commit(project, "first")
        thread = begun(instance, project)
        made = "head -c 1500000 /dev/urandom > big.bin"
        fill = f"head -c 2900000 /dev/zero > {disk}/filler || true"
        with pytest.raises(WorkspaceFailed, match=r"No space left|cannot be") as refused:
            step(instance, thread, agent(made, fill))
        assert "\n" not in refused.value.message
        (disk / "filler").unlink()
        step(instance, thread, "uwf-exec false")
        assert "big.bin" in listed(project, thread)
        assert git("-C", project, "fsck", "--no-dangling") == ""
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def test_files_that_a_sparse_checkout_hides_are_not_deleted(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    step(
        instance,
        thread,
        agent("git sparse-checkout set sub", "rm sub/two.txt", "echo a > sub/a.txt"),
    )
    assert listed(project, thread) == ["one.txt", "sub/a.txt"]
    step(instance, thread, agent("git sparse-checkout disable", "rm one.txt"))
    assert listed(project, thread) == ["sub/a.txt"]


def test_a_worktree_whose_notes_are_gone_is_moved_aside(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    with pytest.raises(UwfError, match="removed or moved"):
        step(instance, thread, agent("echo a > a.txt", "rm $(git rev-parse --git-dir)/uwf-state"))
    step(instance, thread, agent("test ! -e a.txt"))
    folders = {path.name for path in (instance.location.root / "workspaces").iterdir()}
    (aside,) = folders - {thread}
    assert (instance.location.root / "workspaces" / aside / "a.txt").exists()


def test_a_repository_that_an_agent_puts_into_the_index_of_uwf_is_not_entered(
    instance: Instance, project: Path, canary: Path
) -> None:
    thread = begun(instance, project)
    makes = HOSTILE["a nested filter"].format(program=canary.with_name("program"))
    forges = "GIT_INDEX_FILE=$(git rev-parse --git-dir)/uwf-index git update-index --add --cacheinfo"
    with pytest.raises(WorkspaceFailed, match="a git repository of its own"):
        step(
            instance,
            thread,
            agent(f"({makes})", f"{forges} 160000,$(git -C in rev-parse HEAD),in", f"rm -f {canary}"),
        )
    assert not canary.exists()


def test_a_filter_of_the_worktrees_own_configuration_is_off(
    instance: Instance, project: Path, canary: Path
) -> None:
    thread = begun(instance, project)
    program = canary.with_name("program")
    step(
        instance,
        thread,
        agent(
            "git config extensions.worktreeConfig true",
            f"git config --worktree filter.x.clean {program}",
            "echo '* filter=x' > .gitattributes; echo a > a.txt",
            f"rm -f {canary}",
        ),
    )
    assert "a.txt" in listed(project, thread) and not canary.exists()
