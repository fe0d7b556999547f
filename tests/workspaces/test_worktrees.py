"""The worktree that a thread's agents work in, on a branch of its own in the user's project."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import git, wait_until
from conftest import Begin, Uwf
from two_machines import RELAY
from workflows import start_thread

from uwf_git.base.errors import AgentFailed, NotFound, Usage, UwfError, WorkspaceFailed
from uwf_git.engine.step import kill, step
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.store.instance import Instance
from uwf_git.workspaces.choice import assign, chosen
from uwf_git.workspaces.options import parse_option
from uwf_git.workspaces.sharing import push_code
from uwf_git.workspaces.step_workspace import code_left


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


def begun(instance: Instance, project: Path, revision: str = "") -> ThreadId:
    """A new thread with a worktree of the project."""
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}{revision}"), project)
    return thread


def agent(command: str) -> str:
    return shlex.join(["uwf-exec", "sh", "-c", f'({command}) >&2 || exit 1; echo \'{{"text": "done"}}\''])


def failing(command: str) -> str:
    return shlex.join(["sh", "-c", f"({command}) >&2; exit 3"])


def work(instance: Instance, thread: ThreadId, command: str) -> Path:
    """A step by a command in the thread's worktree; the folder."""
    step(instance, thread, agent(command))
    return instance.location.root / "workspaces" / thread


def left(instance: Instance, thread: ThreadId) -> Revision:
    """The code that the last step left, as its detail says."""
    (*_, last) = instance.threads.history(instance.threads.head(thread)).steps
    found = code_left(instance, last.detail)
    assert found is not None
    return found


def branch(thread: str) -> str:
    return f"uwf/work/{thread}"


def test_a_thread_works_in_a_worktree_on_a_branch_of_its_own_which_keeps_each_step(
    instance: Instance, project: Path
) -> None:
    thread, other = begun(instance, project, "@v1"), begun(instance, project, "@v1")
    folder = work(instance, thread, "cat one.txt; ls two.txt; echo new > three.txt; rm one.txt")
    assert work(instance, other, "true") != folder
    assert at(project, "branch", "--show-current") == "main" and at(project, "status", "--short") == ""
    assert at(project, "diff", "--name-status", "v1", branch(thread)) == "D\tone.txt\nA\tthree.txt"
    told = f"writer: done\n\nUwf-Thread: {thread}\nUwf-Number: 1"
    assert at(project, "log", "-1", "--format=%B", branch(thread)).strip() == told
    assert at(project, "log", "-1", "--format=%an", branch(thread)) == "uwf-exec"
    assert at(project, "rev-parse", branch(other)) == at(project, "rev-parse", "v1")
    # An agent that commits itself, and goes elsewhere, has its work on the thread's branch all the same.
    work(instance, thread, "git checkout -q -b mine; git add -A; git commit -q -m mine --allow-empty")
    assert at(project, "log", "-1", "--format=%s", branch(thread)) == "mine"
    assert not folder.exists() and at(project, "rev-parse", "--verify", branch(thread))
    assert str(folder) not in at(project, "worktree", "list")


def test_a_step_names_the_code_that_it_left_and_what_it_began_with(
    uwf: Uwf, instance: Instance, project: Path
) -> None:
    at(project, "remote", "add", "origin", "https://me:secret@example.invalid/project.git")
    thread = begun(instance, project)
    main = at(project, "rev-parse", "main")
    work(instance, thread, "echo new > three.txt")
    code = left(instance, thread)
    assert code == Revision(
        at(project, "rev-parse", branch(thread)),
        at(project, "rev-parse", f"{branch(thread)}^{{tree}}"),
        main,
        at(project, "rev-parse", "main~"),
        "https://example.invalid/project.git",
    )
    text = instance.store.repository.commit(instance.threads.head(thread).commit).message
    assert f"\nUwf-Code: {code.commit}\n" in text
    assert (
        f"Code: commit `{code.commit}` on `{main}`" in uwf("thread", "read", thread, "--format", "text").out
    )
    work(instance, thread, "true")
    assert left(instance, thread) == code._replace(base=code.commit)
    assert uwf("verify").json["findings"] == []


def test_an_agent_cannot_say_itself_what_code_it_left(instance: Instance, project: Path) -> None:
    from uwf_git.format.types import DETAIL, STEPNODE

    thread = begun(instance, project)
    before = instance.threads.history(instance.threads.head(thread))
    work(instance, thread, "true")
    made = instance.store.get(instance.threads.head(thread).node).payload
    other = start_thread(instance, RELAY)
    start = instance.threads.head(other).node
    detail = instance.store.get(made["detail"]).payload
    named = instance.store.put(DETAIL, {**detail, "context": start})
    forged = instance.store.put(STEPNODE, {**made, "start": start, "detail": named})
    assert before.steps == ()
    with pytest.raises(AgentFailed, match="names code in its detail"):
        step(instance, other, f"sh -c 'echo {forged}'")


def test_a_git_that_was_killed_in_a_worktree_keeps_no_step_of_its_thread_from_being_kept(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    own = project / ".git/uwf-worktrees" / thread
    locks = f"{own}/index.lock {own}/HEAD.lock {project}/.git/refs/heads/{branch(thread)}.lock"
    work(instance, thread, f"echo new > made.txt; touch {locks}")
    assert at(project, "show", f"{branch(thread)}:made.txt") == "new"
    (own / "index.lock").touch()  # of an attempt that failed
    work(instance, thread, "git add -A && git commit -q -m mine --allow-empty")
    assert at(project, "log", "-1", "--format=%s", branch(thread)) == "mine"


def test_a_fork_begins_at_the_code_of_its_step(uwf: Uwf, instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo first > made.txt")
    fork = ThreadId(uwf("thread", "fork", thread).json["thread"])
    anew = ThreadId(uwf("thread", "fork", thread, "--at", "0").json["thread"])
    work(instance, thread, "echo second > made.txt")
    later = ThreadId(uwf("thread", "fork", thread, "--at", "1").json["thread"])
    for each in (fork, later):
        work(instance, each, 'test "$(cat made.txt)" = first')
    work(instance, anew, "test ! -e made.txt; echo third > made.txt")
    assert left(instance, anew).base == at(project, "rev-parse", "main")
    assert at(project, "show", f"{branch(thread)}:made.txt") == "second"


def test_what_a_failed_attempt_left_is_kept_and_the_next_begins_at_the_last_step(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    with pytest.raises(AgentFailed):
        step(instance, thread, failing("echo half > half.txt; echo x > one.txt; echo skip > .gitignore"))
    folder = instance.location.root / "workspaces" / thread
    assert (folder / "half.txt").exists()  # to be looked at
    (attempt,) = instance.attempts.all(thread)
    assert attempt.code is not None
    assert at(project, "show", f"{attempt.code.commit}:half.txt") == "half"
    assert attempt.code.commit in at(project, "for-each-ref", "--format=%(objectname)", "refs/uwf/local/work")
    work(instance, thread, "test ! -e half.txt && test $(cat one.txt) = one")
    assert left(instance, thread).base == at(project, "rev-parse", "main")


def test_a_step_begins_with_what_a_failed_attempt_left_if_it_is_told_so(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    with pytest.raises(AgentFailed):
        step(instance, thread, failing("echo half > half.txt"))
    step(instance, thread, agent("cat half.txt && echo whole > whole.txt"), files="attempt")
    code = left(instance, thread)
    assert code.base == at(project, "rev-parse", "main")
    assert at(project, "diff", "--name-only", code.base, code.commit).split() == ["half.txt", "whole.txt"]


def test_changes_by_hand_are_a_commit_of_their_own_with_which_the_step_begins(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    folder = work(instance, thread, "echo made > made.txt")
    (folder / "hand.txt").write_text("hand")
    git("-C", folder, "add", "hand.txt")  # an index of the worktree's own doesn't matter
    before = left(instance, thread)
    work(instance, thread, "cat hand.txt && echo more > more.txt")
    code = left(instance, thread)
    assert at(project, "rev-parse", f"{code.base}^") == before.commit
    assert at(project, "diff", "--name-only", before.commit, code.base) == "hand.txt"
    assert at(project, "diff", "--name-only", code.base, code.commit) == "more.txt"


def test_a_worktree_that_was_removed_is_made_again_with_all_that_was_committed(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    folder = work(instance, thread, "echo made > made.txt")
    (folder / "hand.txt").write_text("hand")
    git("-C", folder, "add", ".")
    git("-C", folder, "commit", "-q", "-m", "by hand")
    shutil.rmtree(folder)
    work(instance, thread, "cat made.txt hand.txt")


def test_a_worktree_that_is_gone_after_its_agent_worked_makes_the_step_a_failed_attempt(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    with pytest.raises(AgentFailed, match="was removed or moved"):
        step(instance, thread, agent("rm -rf $(pwd)"))
    work(instance, thread, "cat one.txt")


def test_an_unfinished_merge_keeps_the_step_waiting_and_the_answer(instance: Instance, project: Path) -> None:
    at(project, "checkout", "-q", "-b", "side", "v1")
    (project / "two.txt").write_text("other")
    at(project, "add", ".")
    at(project, "commit", "-q", "-m", "side")
    at(project, "checkout", "-q", "main")
    thread = begun(instance, project)
    with pytest.raises(WorkspaceFailed, match="in the middle of a merge") as refused:
        step(instance, thread, agent("echo mine > mine.txt; git merge -q side; true"))
    assert "the agent answered is kept" in refused.value.hint
    folder = instance.location.root / "workspaces" / thread
    git("-C", folder, "merge", "--abort")
    step(instance, thread, "uwf-exec false")  # nobody is asked again
    assert at(project, "show", f"{branch(thread)}:mine.txt") == "mine"


def test_what_an_agent_left_whose_engine_was_killed_is_kept_and_undone(
    uwf: Uwf, instance: Instance, project: Path, begin: Begin
) -> None:
    thread = begun(instance, project)
    folder = instance.location.root / "workspaces" / thread
    running = begin("thread", "step", thread, "--agent", agent("echo half > half.txt; touch began; sleep 60"))
    wait_until((folder / "began").exists, "its command has begun")
    running.kill()
    running.wait()
    instance.locks.end(thread)  # the agent has outlived it
    work(instance, thread, "test ! -e half.txt && echo whole > whole.txt")
    kept = at(project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    assert [at(project, "show", f"{each}:half.txt") for each in kept] == ["half"]
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["code"]["commit"].startswith(kept[0].rpartition("/")[2])
    code = left(instance, thread)
    assert at(project, "diff", "--name-only", code.base, code.commit) == "whole.txt"
    assert uwf("verify").json["findings"] == []


def test_a_step_whose_engine_was_killed_after_it_committed_the_code_is_made_once(
    uwf: Uwf, instance: Instance, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit of the code and that of the step."""
    thread = begun(instance, project)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("uwf_git.engine.step.record", dies)
        with pytest.raises(KeyboardInterrupt):
            step(instance, thread, agent("echo made > made.txt"))
    work(instance, thread, "exit 1")  # nobody is asked again
    code = left(instance, thread)
    assert at(project, "show", f"{code.commit}:made.txt") == "made"
    assert at(project, "rev-list", "--count", f"main..{branch(thread)}") == "1"


def test_a_killed_thread_keeps_what_its_worktree_had(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    folder = work(instance, thread, "echo made > made.txt")
    (folder / "hand.txt").write_text("hand")
    warned: list[str] = []
    instance.warn = warned.append
    kill(instance, thread)
    assert not folder.exists()
    (kept,) = at(project, "for-each-ref", "--format=%(refname)", "refs/uwf/local/work").split()
    assert at(project, "show", f"{kept}:hand.txt") == "hand" and kept in warned[0]


def test_another_machine_goes_on_and_who_lost_the_race_keeps_what_it_left(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "shared.git"
    git("clone", "-q", "--bare", project, bare)
    at(project, "remote", "add", "shared", bare)
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"worktree:{project}", "shared"), project)
    work(instance, thread, "echo first > made.txt")
    assert [code.thread for code in push_code(instance, [thread])] == [thread] and push_code(
        instance, [thread]
    ) == []
    base = at(project, "rev-parse", branch(thread))
    assert at(bare, "rev-parse", branch(thread)) == base
    # A step that lost its race: its code is at the branch, and the thread's history hasn't it.
    fork = instance.threads.fork(instance.threads.head(thread).commit)
    folder = work(instance, thread, "echo lost > made.txt")
    instance.threads._repository.move_ref(
        f"refs/uwf/threads/{fork}", instance.threads.head(fork).commit, instance.threads.head(fork).commit
    )
    assert not folder.exists()  # it has ended
    work(instance, fork, "test $(cat made.txt) = first && echo other > made.txt")
    assert at(project, "show", f"{branch(fork)}:made.txt") == "other"


def test_no_git_enters_a_repository_that_an_agent_left_and_nothing_of_it_is_lost(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    """The filter is what a confined agent could write: plain files in its folder, which git would run as the user."""
    thread = begun(instance, project)
    ran = tmp_path / "ran"
    folder = work(instance, thread, "echo mine > made.txt")
    makes = [
        "git init -q sub; echo one > sub/a; git -C sub add a; git -C sub commit -q -m one",
        f"git -C sub config filter.x.clean 'touch {ran}; cat'; echo '* filter=x' > sub/.gitattributes",
        "echo another > sub/a",
    ]
    with pytest.raises(WorkspaceFailed, match=r"a git repository of its own, sub/\.git") as refused:
        step(instance, thread, agent("; ".join(makes)))
    assert "move sub/.git out of it" in refused.value.hint
    for _ in range(2):
        with pytest.raises(WorkspaceFailed, match="is not kept"):
            step(instance, thread, "uwf-exec false")
    assert (folder / "sub/a").read_text() == "another\n" and not ran.exists()
    warned: list[str] = []
    instance.warn = warned.append
    copy = instance.threads.fork(instance.threads.head(thread).commit)
    kill(instance, thread)
    # The worktree of a thread that has ended stays as well, until somebody has seen to it.
    assert any("sub/.git" in each for each in warned) and (folder / "sub/a").exists()
    shutil.move(folder / "sub/.git", tmp_path / "away")
    from uwf_git.workspaces.removal import tidy

    assert tidy(instance) == [thread] and not folder.exists() and not ran.exists()
    kept = at(project, "for-each-ref", "--format=%(refname)", f"refs/uwf/local/work/{thread}").split()
    assert any(at(project, "show", f"{each}:sub/a") == "another" for each in kept)
    work(instance, copy, "test ! -e sub")


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
    instance: Instance, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".gitignore").write_text("vendor/\nmade*/\n")
    at(project, "add", ".gitignore")
    at(project, "commit", "-q", "-m", "ignores")
    thread = begun(instance, project)
    folder = instance.location.root / "workspaces" / thread
    ran, trace = tmp_path / "ran", tmp_path / "trace"
    for name in ("vendor/src/x", "vendor", "made:up", "vendor/elsewhere"):
        hostile(tmp_path / "bad" / name, ran)
    shutil.move(tmp_path / "bad/vendor/elsewhere/.git", tmp_path / "elsewhere")
    (tmp_path / "bad/vendor/elsewhere/.git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
    ran.unlink(missing_ok=True)
    index = f"git --git-dir {project}/.git/uwf-worktrees/{thread} update-index"
    commit = git("-C", tmp_path / "bad/vendor/src/x", "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_TRACE", str(trace))
    # As a submodule in the index of the worktree, git would enter it, ignored or not.
    entry = f"{index} --add --cacheinfo 160000,{commit},vendor/src/x"
    work(instance, thread, f"cp -r {tmp_path}/bad/. .; echo new > new.txt; {entry}")
    assert at(project, "show", f"{branch(thread)}:new.txt") == "new"
    assert at(project, "ls-tree", "--name-only", branch(thread)).split() == [
        ".gitignore",
        "new.txt",
        "one.txt",
        "two.txt",
    ]
    kill(instance, thread)
    assert not folder.exists()
    entered = [line for line in trace.read_text().splitlines() if "run_command: cd " in line]
    assert not entered and not ran.exists()


def test_files_in_the_empty_folder_of_a_submodule_are_not_lost(instance: Instance, project: Path) -> None:
    commit = at(project, "rev-parse", "HEAD")
    (project / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
    at(project, "add", ".gitmodules")
    at(project, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    at(project, "commit", "-q", "-m", "has a submodule")
    thread = begun(instance, project)
    with pytest.raises(WorkspaceFailed, match="there are files in the folder of submodule sub"):
        step(instance, thread, agent("echo mine > sub/mine.txt"))
    folder = instance.location.root / "workspaces" / thread
    (folder / "sub/mine.txt").rename(folder / "mine.txt")
    step(instance, thread, "uwf-exec false")
    assert at(project, "diff", "--name-status", "main", branch(thread)) == "A\tmine.txt"


def test_a_worktree_whose_own_git_file_was_replaced_is_not_touched(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    with pytest.raises(WorkspaceFailed, match=r"its \.git has changed") as refused:
        step(instance, thread, agent("echo new > new.txt; rm .git; git init -q ."))
    subprocess.run(shlex.split(refused.value.hint.partition(";")[0]), check=True)
    step(instance, thread, "uwf-exec false")
    assert at(project, "show", f"{branch(thread)}:new.txt") == "new"


def test_a_folder_a_thread(instance: Instance, tmp_path: Path) -> None:
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option(f"folder:{tmp_path}/out"), tmp_path)
    work(instance, thread, "echo it > made.txt")
    kill(instance, thread)
    assert (tmp_path / "out" / thread / "made.txt").read_text() == "it\n"


@pytest.mark.parametrize(
    ("text", "remote", "error", "says"),
    [
        ("tree:/x", "", Usage, "is not a workspace"),
        ("folder:", "", Usage, "is not a workspace"),
        ("shared:x", "", Usage, "is not a workspace"),
        ("folder:x", "origin", Usage, "has no use for a remote"),
        ("worktree:{}/one.txt", "", NotFound, "is not a git repository"),
        ("worktree:/", "", NotFound, "is not a git repository"),
        ("worktree:{}@v9", "", NotFound, "has no commit v9"),
        ("worktree:{}", "nowhere", NotFound, "has no remote nowhere"),
    ],
)
def test_what_is_no_workspace_is_refused(
    text: str, remote: str, error: type[UwfError], says: str, instance: Instance, project: Path
) -> None:
    with pytest.raises(error) as caught:
        chosen(instance, project, parse_option(text.format(project), remote))
    assert says in caught.value.message and caught.value.hint


def test_an_answer_that_is_taken_over_keeps_the_files_that_belong_to_it(
    uwf: Uwf, instance: Instance, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is killed after the agent answered, and before the answer was judged."""
    thread = begun(instance, project)

    class Dead(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Dead

    with monkeypatch.context() as patched:
        patched.setattr("uwf_git.engine.kit.agent.read_output", dies)
        with pytest.raises(Dead):
            step(instance, thread, agent("echo made > made.txt"))
    step(instance, thread, agent("echo made > made.txt"))
    code = left(instance, thread)
    assert at(project, "show", f"{code.commit}:made.txt") == "made"


@pytest.mark.parametrize("ignored", ["node_modules", "node_modules/", "nothing"])
@pytest.mark.sample(2)
def test_what_is_copied_is_never_committed_however_it_is_ignored(
    uwf: Uwf, root: Path, instance: Instance, project: Path, ignored: str
) -> None:
    (project / ".gitignore").write_text(f"{ignored}\n")
    at(project, "add", ".gitignore")
    at(project, "commit", "-q", "-m", "ignores")
    (project / "node_modules").mkdir()
    (project / "node_modules/a.js").write_text("a")
    (project / ".env").write_text("SECRET=1")
    (root / "config.yaml").write_text("workspace: {copy: [.env, node_modules]}\n")
    instance.__dict__.pop("config", None)
    thread = begun(instance, project)
    work(instance, thread, "cat node_modules/a.js .env")
    assert left(instance, thread).commit == at(project, "rev-parse", "main")
    work(instance, thread, "touch one.txt; echo made > made.txt")
    assert at(project, "diff", "--name-only", "main", branch(thread)) == "made.txt"


def test_an_ignored_file_that_an_agent_commits_stays(root: Path, instance: Instance, project: Path) -> None:
    (project / ".gitignore").write_text("*.out\n.env\n")
    at(project, "add", ".gitignore")
    at(project, "commit", "-q", "-m", "ignores")
    (project / ".env").write_text("SECRET=1")
    (root / "config.yaml").write_text("workspace: {copy: [.env]}\n")
    instance.__dict__.pop("config", None)
    thread = begun(instance, project)
    work(instance, thread, "echo 1 > a.out; echo 1 > b.out; git add -f a.out .env; git commit -qm own")
    assert at(project, "diff", "--name-only", "main", branch(thread)) == "a.out"
    work(
        instance,
        thread,
        "echo 2 > a.out; mkdir d; echo 1 > d/d.out; git add -f d; git commit -qm d; echo more > c.txt",
    )
    assert at(project, "diff", "--name-only", "main", branch(thread)).split() == ["a.out", "c.txt", "d/d.out"]
    assert at(project, "show", f"{branch(thread)}:a.out") == "2"


def test_a_gitlink_without_a_declaration_is_entered_by_no_git(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git("init", "-q", project / "lib")
    git("-C", project / "lib", "commit", "-q", "--allow-empty", "-m", "lib")
    at(project, "add", "lib")
    at(project, "commit", "-q", "-m", "embeds a repository")
    shutil.rmtree(project / "lib")
    thread = begun(instance, project)
    makes = [
        "git init -q lib; cd lib; echo 1 > f; git add f; git commit -qm f; echo '* filter=x' > .gitattributes",
        f"git config filter.x.clean 'touch {ran}; cat'; echo 2 > f; cd ..",
        "git rev-parse :lib > lib/.git/HEAD",
    ]
    with pytest.raises(WorkspaceFailed, match="files in the folder of submodule lib"):
        step(instance, thread, agent("; ".join(makes)))
    assert not ran.exists()


def test_a_ref_that_was_deleted_is_made_again(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    work(instance, thread, "echo made > made.txt")
    at(project, "update-ref", "-d", f"refs/{branch(thread)}")
    work(instance, thread, "cat made.txt && echo more > more.txt")
    assert at(project, "show", f"{branch(thread)}:more.txt") == "more"


def test_a_setup_that_was_killed_is_made_again(root: Path, instance: Instance, project: Path) -> None:
    (root / "config.yaml").write_text("workspace: {setup: touch built.txt}\n")
    instance.__dict__.pop("config", None)
    thread = begun(instance, project)

    class Dead(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Dead

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("uwf_git.workspaces.step_workspace.set_up", dies)
        patched.setattr("uwf_git.workspaces.worktree.Worktree.remove", lambda _: None)
        with pytest.raises(Dead):
            work(instance, thread, "true")
    work(instance, thread, "cat built.txt")


def test_the_agents_folder_does_not_lead_out_of_the_worktree(
    instance: Instance, project: Path, tmp_path: Path
) -> None:
    (project / "sub").mkdir()
    (project / "sub/three.txt").write_text("three")
    at(project, "add", "-A")
    at(project, "commit", "-q", "-m", "sub")
    thread = start_thread(instance, RELAY)
    assign(instance, thread, parse_option("worktree"), project / "sub")
    step(instance, thread, agent(f"cd ..; rm -r sub; ln -s {tmp_path} sub"))
    with pytest.raises(WorkspaceFailed, match="leads out of worktree"):
        step(instance, thread, agent("true"))
