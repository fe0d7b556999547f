"""The code of fan-outs: each branch has a worktree from its fork's code, and the join merges what they left."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import git
from conftest import Uwf
from two_machines import Machine
from workflows import start_thread

from uwf_git.api.control import answer
from uwf_git.api.run import Options, run
from uwf_git.base.errors import Invalid, UwfError, Waiting, WorkspaceFailed
from uwf_git.base.thread_states import Group
from uwf_git.engine import fan_out_code
from uwf_git.engine.forks import branches_at
from uwf_git.engine.kit.agent import Agent
from uwf_git.engine.kit.context import Context, Reply
from uwf_git.engine.step import kill, step
from uwf_git.engine.thread_state import thread_state
from uwf_git.format.fan_out import JoinedBranch, parse_join
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.format.types import FORK, JOIN
from uwf_git.kit import create_agent
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.verify.code import check_code
from uwf_git.verify.whole import local_refs, verify_refs
from uwf_git.workspaces import merging as merging_module
from uwf_git.workspaces.choice import assign, reassign
from uwf_git.workspaces.merging import merging
from uwf_git.workspaces.notes import Notes
from uwf_git.workspaces.options import parse_option
from uwf_git.workspaces.project import Project
from uwf_git.workspaces.step_workspace import code_left

_TEXT = "{type: object, properties: {text: {type: string}}, required: [text]}"
_FILES = "{type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}"
FIXES = f"""
name: fixes
description: Fixes files side by side.
roles:
  planner: {{description: plans, systemPrompt: Plan., outputSchema: {_FILES}}}
  fixer: {{description: fixes, systemPrompt: Fix it., outputSchema: {_TEXT}}}
  reviewer: {{description: reviews, systemPrompt: Review., outputSchema: {_TEXT}}}
graph:
  $START: [{{role: planner}}]
  planner:
    - each: $last().files
      as: file
      role: fixer
      onFailure: drop
      onConflict: ask
      join: {{role: reviewer, prompt: "{{{{ branches.size }}}} branches"}}
  reviewer: [{{role: $END}}]
"""
_MERGER = f"  merger: {{description: merges, systemPrompt: Merge., outputSchema: {_TEXT}}}\n"
MERGES = FIXES.replace("onConflict: ask", "onConflict: merger").replace("graph:\n", f"{_MERGER}graph:\n")
FAILS = FIXES.replace("onConflict: ask", "onConflict: fail")

Fix = Callable[[Path, int], None]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of three files of ten lines each."""
    return project_in(tmp_path / "project")


def project_in(path: Path) -> Path:
    git("init", "-q", "-b", "main", str(path))
    for name in ("a", "b", "c"):
        (path / f"{name}.txt").write_text("".join(f"{number}\n" for number in range(10)))
    git("-C", path, "add", ".")
    git("-C", path, "commit", "-q", "-m", "first")
    return path


def begun(instance: Instance, project: Path, workflow: str = FIXES) -> ThreadId:
    thread = start_thread(instance, workflow)
    assign(instance, thread, parse_option(f"worktree:{project}"), project)
    return thread


def playing(fix: Fix, count: int = 3, others: Mapping[str, Callable[[Context], Any]] = {}) -> Agent:
    """An agent whose planner names `count` files, and whose fixers do `fix` in their folder, by their index. `others`
    may return an output."""

    def play(ctx: Context) -> Reply:
        output: dict[str, Any] = {"text": "done"}
        if ctx.role.name == "planner":
            output = {"files": [f"{number}" for number in range(count)]}
        elif ctx.role.name == "fixer":
            assert ctx.history.start.branch is not None
            fix(ctx.cwd, ctx.history.start.branch.position)
        if ctx.role.name in others:
            output = others[ctx.role.name](ctx) or output
        return Reply(json.dumps(output), output=output)

    return create_agent("plays", play, lambda ctx, _session, _message: play(ctx))


def ran(instance: Instance, thread: ThreadId, agent: Agent) -> str:
    """Run a thread until it ends or waits; return its status."""
    for outcome in run(instance, thread, lambda: Options(agent)):
        if outcome.state.group is Group.WAITING:
            break
    return thread_state(instance, instance.threads.head(thread)).word


def code_of(instance: Instance, thread: ThreadId, role: str) -> Revision | None:
    """The code that the last step of a role left."""
    steps = instance.threads.history(instance.threads.head(thread)).steps
    return code_left(instance, next(step for step in reversed(steps) if step.role == role).detail)


def joined(instance: Instance, thread: ThreadId) -> tuple[JoinedBranch, ...]:
    steps = instance.threads.history(instance.threads.head(thread)).steps
    return parse_join(next(step for step in steps if step.role == JOIN).output)


def check_all(instance: Instance, project: Path) -> None:
    """The store and its code verify."""
    verified = verify_refs(instance.store.repository, local_refs(instance.store.repository))
    code = check_code(verified.code, [project / ".git"])
    assert (verified.findings, code.findings, code.notes) == ((), [], [])


def replaced(folder: Path, name: str, line: int, text: str) -> None:
    lines = (folder / name).read_text().splitlines()
    lines[line] = text
    (folder / name).write_text("\n".join(lines) + "\n")


def apart(folder: Path, index: int) -> None:
    """Change files that all merge: line by line, a new one, and one that is renamed."""
    replaced(folder, "a.txt", 4 * index, f"by {index}")
    (folder / f"new-{index}.txt").write_text(f"{index}\n")
    if index == 1:
        (folder / "b.txt").rename(folder / "moved.txt")
    if index == 2:
        replaced(folder, "b.txt", 5, "changed where it was")


def colliding(folder: Path, index: int) -> None:
    """The second and the third branch change the same line."""
    replaced(folder, f"{'abb'[index]}.txt", 5, f"by {index}")
    (folder / f"new-{index}.txt").write_text(f"{index}\n")


class Conflicted(NamedTuple):
    """A thread that failed since the code of its last branch conflicts."""

    instance: Instance
    project: Path
    thread: ThreadId


_conflicted: dict[Path, Conflicted] = {}


@pytest.fixture
def conflicted(lasting: Path) -> Conflicted:
    """It is made once, for tests that only read it."""
    if lasting not in _conflicted:
        location = Location(lasting / "conflicted", lasting / "conflicted/store.git")
        init(location)
        instance, project = Instance(location, {}), project_in(lasting / "conflicted-project")
        thread = begun(instance, project, FAILS)
        assert ran(instance, thread, playing(colliding)) == "failed"
        _conflicted[lasting] = Conflicted(instance, project, thread)
    return _conflicted[lasting]


def test_branches_begin_at_the_forks_code_in_worktrees_of_their_own_and_the_join_merges_them(
    instance: Instance, project: Path
) -> None:
    seen: list[tuple[Path, list[str]]] = []

    def fix(folder: Path, index: int) -> None:
        seen.append((folder, sorted(path.name for path in folder.glob("*.txt"))))
        apart(folder, index)

    def plan(ctx: Context) -> None:
        (ctx.cwd / "plan.txt").write_text("a plan\n")

    def review(ctx: Context) -> None:
        text = (ctx.cwd / "a.txt").read_text().splitlines()
        assert [text[4 * index] for index in range(3)] == ["by 0", "by 1", "by 2"]
        assert (ctx.cwd / "moved.txt").read_text().splitlines()[5] == "changed where it was"
        assert not (ctx.cwd / "b.txt").exists()

    thread = begun(instance, project)
    assert ran(instance, thread, playing(fix, others={"planner": plan, "reviewer": review})) == "completed"
    files = ["a.txt", "b.txt", "c.txt", "plan.txt"]
    assert [names for _, names in seen] == [files] * 3 and len({folder for folder, _ in seen}) == 3
    assert git("-C", project, "status", "--short") == ""

    fork, join = code_of(instance, thread, FORK), code_of(instance, thread, JOIN)
    assert fork is not None and join is not None and fork.commit == fork.base == join.base
    assert join.tree == git("-C", project, "rev-parse", f"{join.commit}^{{tree}}")
    tips = [git("-C", project, "rev-parse", f"uwf/work/{each.thread}") for each in joined(instance, thread)]
    assert git("-C", project, "log", "-1", "--format=%P", join.commit).split() == [fork.commit, *tips]
    assert git("-C", project, "log", "-1", "--format=%an %cn", join.commit) == "uwf uwf"
    assert git("-C", project, "rev-parse", f"uwf/work/{thread}") == join.commit
    git("-C", project, "fsck", "--strict")
    check_all(instance, project)


def test_branches_that_change_nothing_leave_a_join_without_code(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    assert ran(instance, thread, playing(lambda _folder, _index: None)) == "completed"
    assert code_of(instance, thread, FORK) is not None and code_of(instance, thread, JOIN) is None


def test_a_conflict_fails_the_thread_if_the_edge_says_so_and_names_branch_and_paths(
    conflicted: Conflicted,
) -> None:
    instance, project, thread = conflicted
    archive = instance.threads.head(thread).archive
    assert archive is not None and archive.reason.startswith("branch 2 (")
    assert "conflicts with the branches before it in b.txt" in archive.reason
    join = code_of(instance, thread, JOIN)
    assert join is not None and git("-C", project, "rev-parse", f"uwf/work/{thread}") == join.commit
    names = git("-C", project, "ls-tree", "--name-only", join.commit).split()
    assert "new-1.txt" in names and "new-2.txt" not in names


def test_a_role_gets_the_conflict_and_what_it_leaves_goes_to_the_joins_edges(
    instance: Instance, project: Path
) -> None:
    told: dict[str, str] = {}

    def merge(ctx: Context) -> dict[str, str] | None:
        if "merger" not in told:
            told["merger"] = ctx.instruction or ""
            return {"$status": "$SUSPEND", "question": "Which one?"}
        assert (ctx.cwd / "b.txt").read_text().splitlines()[5] == "by 1"
        replaced(ctx.cwd, "b.txt", 5, "by both")
        return None

    def review(ctx: Context) -> None:
        told["reviewer"] = ctx.instruction or ""
        assert (ctx.cwd / "b.txt").read_text().splitlines()[5] == "by both"

    thread = begun(instance, project, MERGES)
    agent = playing(colliding, others={"merger": merge, "reviewer": review})
    assert ran(instance, thread, agent) == "waiting"
    answer(instance, thread, "both")
    assert ran(instance, thread, agent) == "completed"
    steps = instance.threads.history(instance.threads.head(thread)).steps
    roles = ["planner", FORK, JOIN, "merger", "$USER", "merger", "reviewer"]
    assert [step.role for step in steps] == roles
    conflict = joined(instance, thread)[2].conflict
    assert conflict is not None and conflict.paths == ("b.txt",)
    assert f"git merge {conflict.commit}" in told["merger"]
    assert "<<<<<<< merged\nby 1\n=======\nby 2\n>>>>>>> branch-2\n" in told["merger"]
    assert told["reviewer"] == "3 branches"
    check_all(instance, project)


def test_a_person_is_asked_about_a_conflict_and_merges_by_hand(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    agent = playing(colliding)
    assert ran(instance, thread, agent) == "waiting"
    conflict = joined(instance, thread)[2].conflict
    assert conflict is not None
    folder = instance.location.root / "workspaces" / thread
    git("-C", folder, "merge", "-q", "-s", "ours", "-m", "by hand", conflict.commit)
    (folder / "by-hand.txt").write_text("mine\n")
    with pytest.raises(WorkspaceFailed, match=f"worktree {folder} has uncommitted changes"):
        answer(instance, thread, "merged")
    git("-C", folder, "add", "by-hand.txt")
    git("-C", folder, "commit", "-q", "-m", "mine")

    def review(ctx: Context) -> None:
        assert (ctx.cwd / "by-hand.txt").exists() and ctx.instruction == "3 branches"

    answer(instance, thread, "merged")
    assert ran(instance, thread, playing(colliding, others={"reviewer": review})) == "completed"
    parents = git("-C", project, "log", "--format=%P", f"uwf/work/{thread}")
    assert conflict.commit in parents
    check_all(instance, project)


def all_colliding(folder: Path, _index: int) -> None:
    replaced(folder, "b.txt", 5, f"by {folder.name}")


def refusal(instance: Instance, thread: ThreadId, text: str) -> tuple[str, str]:
    with pytest.raises(UwfError) as refused:
        answer(instance, thread, text)
    return refused.value.message, refused.value.hint


def test_an_answer_to_a_conflict_is_refused_until_all_is_merged_and_may_leave_branches_out_by_name(
    instance: Instance, project: Path
) -> None:
    thread = begun(instance, project)
    agent = playing(all_colliding)
    assert ran(instance, thread, agent) == "waiting"
    _, one, other = joined(instance, thread)
    assert one.conflict is not None and other.conflict is not None
    folder = instance.location.root / "workspaces" / thread
    names = [
        f"branch {index} ({each.thread}, commit {each.conflict.commit[:12]})"
        for index, each in ((1, one), (2, other))
        if each.conflict
    ]
    assert "none of the options" in refusal(instance, thread, "done")[0]
    shutil.rmtree(folder)
    message, hint = refusal(instance, thread, "merged")
    assert message == f"not merged in {folder}: {', '.join(names)}"
    assert hint.startswith(f"git -C {folder} merge {one.conflict.commit}, and commit that; ")
    assert hint.endswith(f"uwf thread answer {thread} -m 'leave out'")
    assert subprocess.run(["git", "-C", folder, "merge", "-q", one.conflict.commit]).returncode == 1
    for text in ("merged", "leave out"):
        assert refusal(instance, thread, text)[0] == f"worktree {folder} is in the middle of a merge"
    git("-C", folder, "checkout", "-q", "--ours", "b.txt")
    git("-C", folder, "commit", "-q", "-a", "-m", "by hand")
    with pytest.raises(Invalid, match=r"not merged in \S+: branch 2 \(\S+ commit \w+\)$"):
        answer(instance, thread, "it is all merged", other=True)
    answer(instance, thread, "Leave out")
    steps = instance.threads.history(instance.threads.head(thread)).steps
    assert steps[-1].output == {"answer": f"leave out: {names[1]}"}
    assert ran(instance, thread, agent) == "completed"
    code = code_of(instance, thread, "reviewer")
    assert code is not None
    merged = git("-C", project, "rev-list", code.commit).split()
    assert one.conflict.commit in merged and other.conflict.commit not in merged


def test_where_the_code_is_not_a_conflict_can_only_be_left_out(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    assert ran(instance, thread, playing(colliding)) == "waiting"
    project.rename(project.with_name("away"))
    for _ in range(2):
        message, hint = refusal(instance, thread, "merged")
        assert "works on code that is not here: " in message or "was moved or removed" in message
        assert hint.startswith("answer where that is, or go on without that: ")
        Notes(instance.store.repository.private).path(thread).unlink(missing_ok=True)
    answer(instance, thread, "leave out")
    steps = instance.threads.history(instance.threads.head(thread)).steps
    assert steps[-1].output["answer"].startswith("leave out: branch 2 (")


def test_what_a_role_does_not_merge_is_a_warning_and_a_note_of_its_step(
    instance: Instance, project: Path
) -> None:
    warnings: list[str] = []
    instance.warn = warnings.append
    thread = begun(instance, project, MERGES)
    assert ran(instance, thread, playing(colliding)) == "completed"
    left = joined(instance, thread)[2]
    assert left.conflict is not None
    note = f"left out, since not merged: branch 2 ({left.thread}, commit {left.conflict.commit[:12]})"
    assert f"thread {thread}: role merger {note}" in warnings
    steps = instance.threads.history(instance.threads.head(thread)).steps
    notes = {step.role: detail.notes for step in steps if (detail := instance.store.detail(step.detail))}
    assert note in notes["merger"] and notes["reviewer"] == ()


@pytest.mark.extended
def test_a_conflict_that_fails_the_thread_names_all_branches(instance: Instance, project: Path) -> None:
    thread = begun(instance, project, FAILS)
    assert ran(instance, thread, playing(all_colliding)) == "failed"
    archive = instance.threads.head(thread).archive
    assert archive is not None and archive.reason.startswith("branch 1 (")
    assert archive.reason.endswith(f"; so does branch 2 ({joined(instance, thread)[2].thread})")


def test_the_code_of_a_branch_that_failed_is_not_merged(instance: Instance, project: Path) -> None:
    failing = FIXES.replace(
        "graph:\n", 'conditions: {second: {description: x, expression: "start.index = 1"}}\ngraph:\n'
    )
    failing += "  fixer: [{role: $FAIL, condition: second, prompt: no}, {role: reviewer}]\n"
    thread = begun(instance, project, failing)
    assert ran(instance, thread, playing(apart)) == "completed"
    assert [each.status for each in joined(instance, thread)] == ["completed", "failed", "completed"]
    join = code_of(instance, thread, JOIN)
    assert join is not None
    names = git("-C", project, "ls-tree", "--name-only", join.commit).split()
    assert [name for name in names if name.startswith("new-")] == ["new-0.txt", "new-2.txt"]


def test_another_store_and_clone_comes_to_the_same_merge_whatever_is_configured_there(
    conflicted: Conflicted, tmp_path: Path
) -> None:
    instance, project, thread = conflicted
    join, fork = code_of(instance, thread, JOIN), code_of(instance, thread, FORK)
    assert join is not None and fork is not None
    steps = instance.threads.history(instance.threads.head(thread)).steps
    node = next(step.hash for step in steps if step.role == FORK)
    tips = [git("-C", project, "rev-parse", f"uwf/work/{each.thread}") for each in joined(instance, thread)]
    clone = tmp_path / "clone"
    git("clone", "-q", "--bare", project, clone)
    mark = tmp_path / "ran"
    git("-C", clone, "config", "merge.mine.driver", f"touch {mark}; true")
    git("-C", clone, "config", "merge.default", "mine")
    git("-C", clone, "config", "merge.renames", "false")
    (clone / "info").mkdir(exist_ok=True)
    (clone / "info/attributes").write_text("* merge=mine\n")
    before = sorted(path.name for path in (clone / "objects").rglob("*"))
    with merging(Project(clone), fork.commit) as merges:
        merged = merges.merge(node, fork.commit, dict(enumerate(tips)))
    assert (merged.commit, merged.tree) == (join.commit, join.tree)
    assert list(merged.conflicts) == [2] and not mark.exists()
    assert sorted(path.name for path in (clone / "objects").rglob("*")) == before


def test_a_join_that_names_other_code_than_merging_gives_is_a_finding(conflicted: Conflicted) -> None:
    instance, project, _ = conflicted
    verified = verify_refs(instance.store.repository, local_refs(instance.store.repository))
    assert verified.findings == ()
    (record,) = (each for each in verified.code if each.merge is not None)
    assert (
        record.merge is not None and record.merge.branches is not None and list(record.merge.conflicts) == [2]
    )

    def found(**changed: Any) -> list[str]:
        return [
            each.message for each in check_code([record._replace(**changed)], [project / ".git"]).findings
        ]

    assert found() == []
    tip, code = record.merge.branches[0], record.code
    other = code._replace(commit=tip, tree=git("-C", project, "rev-parse", f"{tip}^{{tree}}"))
    assert found(code=other)[0].endswith(
        f"names commit {tip} as the merge of its branches, which is {code.commit}"
    )
    assert "names other conflicts" in found(merge=record.merge._replace(conflicts={}))[0]
    assert "and names none" in found(merge=record.merge._replace(has_code=False))[0]
    assert "which is not that of its fork" in found(code=code._replace(base=tip))[0]
    (note,) = check_code(
        [record._replace(merge=record.merge._replace(branches=None))], [project / ".git"]
    ).notes
    assert "the merge of code in step" in note.message


def test_a_machine_without_the_code_leaves_the_join_to_another(instance: Instance, project: Path) -> None:
    thread = begun(instance, project)
    agent, away = playing(apart), project.with_name("away")
    for _ in ("planner", FORK):
        step(instance, thread, agent)
    *first, last = (each.thread for each in branches_at(instance, instance.threads.head(thread)).each)
    for branch in first:
        step(instance, branch, agent)
    project.rename(away)
    kill(instance, last)
    with pytest.raises(Waiting, match=f"thread {thread} waits to be joined where its code is"):
        step(instance, thread, agent)
    away.rename(project)
    assert step(instance, thread, agent).role == JOIN and code_of(instance, thread, JOIN) is not None


@pytest.mark.parametrize("kind", ["shared", "folder"])
def test_branches_of_a_thread_without_a_worktree_work_in_its_folder(
    instance: Instance, project: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(project)
    thread, folders = begun(instance, project), set[Path]()
    agent = playing(lambda folder, _index: folders.add(folder))
    step(instance, thread, agent)
    reassign(instance, thread, parse_option(kind), project)
    assert ran(instance, thread, agent) == "completed"
    assert folders == {project if kind == "shared" else instance.location.root / "folders" / thread}
    assert code_of(instance, thread, FORK) is None


WORKS = """uwf-exec sh -c 'echo "$UWF_ROLE" > "$UWF_THREAD.txt"; case $UWF_ROLE in
planner) echo "{\\"files\\": [\\"0\\", \\"1\\"]}";; *) echo "{\\"text\\": \\"done\\"}";; esac'"""


@pytest.mark.extended
def test_branches_on_two_machines_find_their_base_and_each_other_by_the_projects_remote(
    uwf: Uwf, project: Path, tmp_path: Path
) -> None:
    shared, threads = tmp_path / "project.git", tmp_path / "threads.git"
    git("clone", "-q", "--bare", project, shared)
    git("init", "-q", "--bare", threads)
    here, there = Machine(uwf, tmp_path / "here"), Machine(uwf, tmp_path / "there")
    clones = {machine: tmp_path / f"clone of {machine.root.name}" for machine in (here, there)}
    for machine, clone in clones.items():
        machine("init")
        machine("remote", "add", "origin", threads)
        machine("config", "set", "workspace.remote", "origin")
        git("clone", "-q", shared, clone)

    here.registers(FIXES)
    place = ("--workspace", "worktree", "--cwd", clones[here])
    thread = str(here("thread", "start", "fixes", "-p", "Do it", *place).json["thread"])
    for _ in ("planner", FORK):
        here("thread", "step", thread, "--agent", WORKS)
    here("push")
    there("pull")
    listed = [each["thread"] for each in there("thread", "list").json]
    one, other = (each for each in sorted(listed) if each != thread)
    there("thread", "step", one, "--agent", WORKS, cwd=clones[there])
    there("push")
    here("pull")
    here("thread", "step", other, "--agent", WORKS)
    names = git("-C", clones[here], "ls-tree", "--name-only", f"uwf/work/{thread}").split()
    assert {f"{each}.txt" for each in (thread, one, other)} <= set(names)
    here("push")
    assert git("-C", shared, "rev-parse", f"uwf/work/{thread}^3") == git(
        "-C", clones[here], "rev-parse", f"uwf/work/{other}"
    )
    found = here("verify").json
    assert (found["findings"], found["notes"]) == ([], [])
    there("pull")
    (note,) = [each for each in there("verify").json["notes"] if each["thread"] == thread]
    assert note["code"] == "code-elsewhere"


def bomb(project: Path, base: str, leaf: bool) -> str:
    """Write a commit on another whose tree has ten levels of ten entries each, which are one object; without `leaf`
    it has no file."""
    entries = f"100644 blob {git('-C', project, 'rev-parse', f'{base}:a.txt')}\tfile\n" if leaf else ""
    for _ in range(11):
        made = subprocess.run(
            ["git", "-C", project, "mktree"], input=entries, capture_output=True, text=True, check=True
        )
        tree = made.stdout.strip()
        entries = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
    return git("-C", project, "commit-tree", "-p", base, "-m", "large", tree)


@pytest.mark.parametrize(
    "leaf", [pytest.param(True, marks=pytest.mark.extended), False], ids=["files", "folders"]
)
def test_a_branch_that_takes_too_long_to_merge_is_named_and_the_thread_waits(
    instance: Instance, project: Path, monkeypatch: pytest.MonkeyPatch, leaf: bool
) -> None:
    thread = begun(instance, project)
    agent = playing(apart)
    for _ in ("planner", FORK):
        step(instance, thread, agent)
    branches = [each.thread for each in branches_at(instance, instance.threads.head(thread)).each]
    large, read = bomb(project, git("-C", project, "rev-parse", "HEAD"), leaf), fan_out_code._code_of

    def hostile(instance: Instance, node: Hash) -> Revision | None:
        code = read(instance, node)
        is_it = code is not None and node == instance.threads.head(branches[1]).node
        return code._replace(commit=large) if is_it and code is not None else code

    monkeypatch.setattr(fan_out_code, "_code_of", hostile)
    monkeypatch.setattr(merging_module, "_SECONDS", 1)
    for branch in branches:
        step(instance, branch, agent)
    with pytest.raises(Waiting) as refused:
        step(instance, thread, agent)
    assert (
        f"the code of branch 1 ({branches[1]}), commit {large[:12]}, cannot be merged"
        in refused.value.message
    )
    assert "git diff-tree failed: it took more than 1 s" in refused.value.message
    assert refused.value.hint.endswith(f"or ask all anew: uwf thread fork {thread} --at 1")
