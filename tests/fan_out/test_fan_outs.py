"""A fork begins branches, each an ordinary thread, and a join has what they came to, by index."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, REPOSITORY, Uwf
from fan_outs import TEXT, World, audit, audit_in_parts, failing, refused

from uwf_git.api import run as api_run
from uwf_git.base.errors import AgentFailed, Invalid, Killed, Waiting
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine import fan_out, inbox
from uwf_git.engine import step as engine
from uwf_git.engine.thread_state import thread_state
from uwf_git.engine.turn import table
from uwf_git.format.endings import COMPLETED, FAILED, JOINED_WITHOUT, KILLED
from uwf_git.format.ids import ThreadId, branch_id
from uwf_git.git.repository import Oid
from uwf_git.kit import Context
from uwf_git.store import layout
from uwf_git.store.instance import Instance

FILES = ["a", "b", "c"]


@pytest.fixture
def world(instance: Instance, tmp_path: Path) -> World:
    made = World(instance, tmp_path, {"planner": {"files": FILES}}, [])
    made.put(audit())
    return made


def test_each_item_is_worked_on_in_a_branch_and_the_join_has_them_by_index(world: World) -> None:
    thread = world.start()
    assert world.run(thread) == ["planner", "$FORK", "$JOIN", "reviewer", COMPLETED]
    joined = world.joined(thread)
    assert [each["output"]["text"] for each in joined] == [
        f"fixer: Fix {file} ({number})" for number, file in enumerate(FILES)
    ]
    assert [each["status"] for each in joined] == [COMPLETED] * 3
    assert [world.head(ThreadId(each["thread"])).node for each in joined] == [each["step"] for each in joined]


def test_the_commit_of_a_join_has_the_branches_last_commits_as_parents_by_index_and_not_by_arrival(
    world: World,
) -> None:
    thread = world.start()
    branches = world.forked(thread)
    fork = world.head(thread).commit
    for branch in reversed(branches):
        world.step(branch)
    join = world.instance.store.repository.commit(world.head(thread).commit)
    assert join.parents == (fork, *(world.head(branch).commit for branch in branches))


def test_a_branch_is_a_thread_whose_id_follows_from_the_fork_on_whose_commit_it_stands(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    fork = world.instance.store.repository.commit(world.head(thread).commit)
    assert branches == [branch_id(str(world.head(thread).commit), fork.time, index) for index in range(3)]
    assert branches == sorted(branches)
    for branch in branches:
        parents = world.instance.store.repository.commit(world.head(branch).commit).parents
        assert parents[1] == world.head(thread).commit


def test_the_process_that_ends_the_last_branch_writes_the_join(world: World) -> None:
    thread = world.start()
    *others, last = world.forked(thread)
    for branch in others:
        world.step(branch)
        assert thread_state(world.instance, world.head(thread)) is ThreadState.JOINING
    error = refused(lambda: world.step(thread))
    assert isinstance(error, Waiting) and last in error.message and "2 of 3" in error.message
    world.step(last)
    assert world.head(thread).row.role == "$JOIN"


def test_nothing_is_asked_twice_when_a_run_goes_on(world: World) -> None:
    world.roles["fixer"] = failing()
    thread = world.start()
    assert isinstance(refused(lambda: world.run(thread)), AgentFailed)
    del world.roles["fixer"]
    branches = world.forked(thread)
    world.step(branches[1])
    world.asked.clear()
    assert world.run(thread)[-1] == COMPLETED
    assert world.asked == [
        ("fixer", "Fix a (0)"), ("fixer", "Fix c (2)"), ("reviewer", "Audit it"),
    ]  # fmt: skip


def test_without_items_the_join_comes_at_once(world: World) -> None:
    world.roles["planner"] = {"files": []}
    thread = world.start()
    assert world.run(thread) == ["planner", "$FORK", "$JOIN", "reviewer", COMPLETED]
    assert world.joined(thread) == []


def test_the_same_item_twice_is_two_branches(world: World) -> None:
    world.roles["planner"] = {"files": ["a", "a"]}
    thread = world.start()
    world.run(thread)
    assert len({each["thread"] for each in world.joined(thread)}) == 2


def test_more_items_than_max_are_an_error_that_says_how_many(world: World) -> None:
    world.put(audit(policy="max: 2"))
    thread = world.start()
    world.step(thread)
    error = refused(lambda: world.step(thread))
    assert "3 items, more than max, 2" in error.message
    assert world.head(thread).row.role == "planner"


def test_of_more_items_than_max_the_planner_is_asked_again_on_the_fork_that_the_hint_names(
    world: World, uwf: Uwf
) -> None:
    world.put(audit(policy="max: 2"))
    thread = world.start()
    world.step(thread)
    hint = refused(lambda: world.step(thread)).hint
    assert hint == (
        "raise max for new threads, at most to 10,000; "
        f"or let planner answer again: uwf thread fork {thread} --from-role planner"
    )
    copy = ThreadId(uwf(*hint.partition(": uwf ")[2].split()).json["thread"])
    uwf("thread", "say", copy, "-m", "At most two files")
    world.roles["planner"] = lambda ctx: {"files": FILES[: 2 if "At most two" in str(ctx.history) else 3]}
    assert world.run(copy) == ["planner", "$FORK", "$JOIN", "reviewer", COMPLETED]


def test_a_branch_of_more_items_than_max_is_ended_as_its_hint_says(world: World, uwf: Uwf) -> None:
    world.put(audit_in_parts("\"$split($last().text, ' ')\", max: 2"))
    world.roles["fixer"] = lambda ctx: {"text": "1 2 3" if "Fix a" in ctx.history.start.prompt else "1 2"}
    thread = world.start()
    hint = refused(lambda: world.run(thread)).hint
    branch = world.forked(thread)[0]
    assert hint.endswith(f"or end it: uwf thread kill {branch}")
    uwf(*hint.partition(": uwf ")[2].split())
    assert world.run(thread)[-1] == ThreadState.WITH_FAILURES.word
    assert [each["status"] for each in world.joined(thread)] == [KILLED, COMPLETED, COMPLETED]


def test_a_process_killed_after_the_fork_leaves_branches_that_the_next_step_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = world.start()
    world.step(thread)
    with monkeypatch.context() as patch:
        patch.setattr(fan_out, "begin_branches", lambda *_: [])
        world.step(thread)
    assert not any(each.head for each in fan_out.branches_at(world.instance, world.head(thread)).each)
    assert world.run(thread) == ["$JOIN", "reviewer", COMPLETED]


def test_whoever_loses_the_race_for_an_equal_join_takes_the_other_as_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = world.start()
    branches = world.forked(thread)
    monkeypatch.setattr(engine, "tell_parents", lambda *_: None)
    for branch in branches:
        world.step(branch)
    append, raced = world.instance.threads.append, []

    def slow(head, *rest, **named):  # type: ignore[no-untyped-def]
        if not raced:
            raced.append(append(head, *rest, **named).commit)
        return append(head, *rest, **named)

    monkeypatch.setattr(world.instance.threads, "append", slow)
    assert world.step(thread).role == "$JOIN"
    assert [world.head(thread).commit] == raced
    assert {*world.instance.threads.ids()} == {thread, *branches}


def test_the_example_is_rehearsed_to_its_end(world: World) -> None:
    world.put((EXAMPLES / "fan-out.yaml").read_text())
    thread = world.start("fan-out")
    options = api_run.Options(agent="uwf-rehearse", cwd=world.folder, hooks=False)
    roles = [outcome.role for outcome in api_run.run(world.instance, thread, lambda: options)]
    assert roles == ["lister", "$FORK", "$JOIN", "reviewer"]
    branch = ThreadId(world.joined(thread)[0]["thread"])
    assert [role for role, _ in world.outputs(branch)] == ["auditor", "$FORK", "$JOIN", "fixer"]


# Policies


def test_with_need_first_the_others_are_ended_as_joined_without(world: World) -> None:
    world.put(audit(policy="need: first"))
    thread = world.start()
    branches = world.forked(thread)
    world.step(branches[1])
    assert [each["status"] for each in world.joined(thread)] == ["left", COMPLETED, "left"]
    assert world.instance.store.repository.commit(world.head(thread).commit).parents[1:] == (
        world.head(branches[1]).commit,
    )
    archive = world.head(branches[0]).archive
    assert archive is not None and (archive.status, archive.reason) == (KILLED, JOINED_WITHOUT)


def test_a_late_branch_makes_no_step_and_ends_as_joined_without(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(audit(policy="need: first"))
    thread = world.start()
    branches = world.forked(thread)
    with monkeypatch.context() as patch:
        patch.setattr(table, "stop", lambda *_: None)  # as if they ran on another machine
        world.step(branches[0])
    world.asked.clear()
    assert isinstance(refused(lambda: world.step(branches[2])), Killed)
    archive = world.head(branches[2]).archive
    assert archive is not None and archive.reason == JOINED_WITHOUT and not world.asked


@pytest.mark.parametrize(
    ("join", "roles"), [("reviewer", ["reviewer", COMPLETED]), ("$END", ["None", COMPLETED])]
)
def test_branches_that_a_killed_process_left_out_and_did_not_end_are_ended_by_the_next_step(
    world: World, monkeypatch: pytest.MonkeyPatch, join: str, roles: list[str]
) -> None:
    lines = audit(policy="need: first", join=join).splitlines()
    world.put("\n".join(each for each in lines if join == "reviewer" or "reviewer:" not in each))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    thread = world.start()
    branches = world.forked(thread)
    with monkeypatch.context() as patch:
        patch.setattr(table, "stop", killed)
        with pytest.raises(KeyboardInterrupt):
            world.step(branches[1])
    assert world.head(thread).row.role == "$JOIN"
    assert [world.instance.threads.has_ended(each) for each in branches] == [False, True, False]
    assert world.run(thread) == roles
    for each in (branches[0], branches[2]):
        archive = world.head(each).archive
        assert archive is not None and (archive.status, archive.reason) == (KILLED, JOINED_WITHOUT)


def test_a_person_who_plays_a_role_of_a_late_branch_is_told_that_it_was_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(audit(policy="need: first").replace("fixer: {", "fixer: {human: true, "))
    thread = world.start()
    branches = world.forked(thread)
    with monkeypatch.context() as patch:
        patch.setattr(table, "stop", lambda *_: None)
        inbox.answer(world.instance, branches[0], "done")
    assert isinstance(refused(lambda: inbox.answer(world.instance, branches[1], "done")), Killed)
    archive = world.head(branches[1]).archive
    assert archive is not None and archive.reason == JOINED_WITHOUT


@pytest.mark.parametrize(
    ("need", "after"), [("2", 2), ('"50%"', 2), ('"34%"', 2), ('"100%"', 3), ("all", 3), ("9", 3)]
)
def test_a_join_comes_as_soon_as_enough_branches_have_completed(world: World, need: str, after: int) -> None:
    world.put(audit(policy=f"need: {need}"))
    thread = world.start()
    for number, branch in enumerate(world.forked(thread), 1):
        if world.head(thread).row.role == "$FORK":
            world.step(branch)
            assert (world.head(thread).row.role == "$JOIN") == (number == after)


def test_a_thread_fails_that_cannot_have_as_many_as_it_needs(world: World) -> None:
    world.put(audit(policy="need: 2"))
    thread = world.start()
    for branch in world.forked(thread)[:2]:
        engine.kill(world.instance, branch, "no use")
    head = world.head(thread)
    assert head.archive is not None and head.archive.status == FAILED
    assert head.archive.reason == "2 of 3 branches must complete, and 2 did not"


def test_a_failed_branch_is_waited_for_and_counts_once_when_it_was_tried_again(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    world.roles["fixer"] = failing()
    for _ in range(2):
        assert isinstance(refused(lambda: world.step(branches[0])), AgentFailed)
    assert thread_state(world.instance, world.head(branches[0])) is ThreadState.FAILING
    del world.roles["fixer"]
    for branch in (*branches[1:], branches[0]):
        assert world.head(thread).row.role == "$FORK"
        world.step(branch)
    assert [each["status"] for each in world.joined(thread)] == [COMPLETED] * 3


def test_a_dropped_branch_ends_as_failed_and_the_others_are_joined(world: World) -> None:
    world.put(audit(policy="onFailure: drop"))
    thread = world.start()
    branches = world.forked(thread)
    world.roles["fixer"] = failing("no luck")
    assert isinstance(refused(lambda: world.step(branches[1])), AgentFailed)
    del world.roles["fixer"]
    assert world.run(thread)[-1] == COMPLETED
    joined = world.joined(thread)
    assert [each["status"] for each in joined] == [COMPLETED, FAILED, COMPLETED]
    assert "no luck" in joined[1]["reason"]


def test_a_run_without_hooks_as_of_an_evaluation_drops_a_failed_branch_too(world: World) -> None:
    world.put(audit(policy="onFailure: drop"))
    thread = world.start()

    def play(ctx: Context) -> Any:
        if "Fix b" in ctx.history.start.prompt:
            raise AgentFailed("no luck")
        return {"text": "done"}

    world.roles["fixer"] = play
    assert world.run(thread)[-1] == COMPLETED
    assert [each["status"] for each in world.joined(thread)] == [COMPLETED, FAILED, COMPLETED]


def test_a_failed_branch_fails_the_thread_where_the_edge_says_so(world: World) -> None:
    world.put(audit(policy="onFailure: fail"))
    thread = world.start()
    branches = world.forked(thread)
    world.roles["fixer"] = failing("no luck")
    assert isinstance(refused(lambda: world.step(branches[1])), AgentFailed)
    head = world.head(thread)
    assert head.archive is not None and head.archive.status == FAILED
    assert head.archive.reason.startswith("branch 1 has failed") and "no luck" in head.archive.reason
    assert all(world.head(branch).archive for branch in branches)


def test_the_edge_of_the_guide_asks_again_for_the_branches_that_failed_and_for_no_other(world: World) -> None:
    blocks = re.findall(
        r"```yaml[^\n]*\n(.*?)```", (REPOSITORY / "docs/guides/fan-out.md").read_text(), re.DOTALL
    )
    edges, conditions = next(each for each in blocks if "some failed" in each).split("conditions:\n")
    before, rest = blocks[0].split("  lister:\n    - each")
    world.put(
        f"{before}{edges.removeprefix('graph:')}  adder:{rest.split('  adder:')[1]}conditions:\n{conditions}"
    )
    told: dict[str, str] = {}

    def lists(ctx: Context) -> dict[str, list[str]]:
        told[ctx.role.name] = ctx.instruction or ""
        places = re.findall(r"\d+", told["lister"].partition("from 0:")[2])
        return {"files": [FILES[int(each)] for each in places] if places else FILES}

    def adds(ctx: Context) -> dict[str, str]:
        found = [step.output for step in ctx.history.steps if step.role == "$JOIN"]
        counts = [each["output"]["words"] for join in found for each in join["branches"] if each["output"]]
        return {"total": f"{sum(counts)} words"}

    world.roles.update(lister=lists, counter={"words": 5}, adder=adds)
    thread = world.start("count")
    branches = world.forked(thread)
    world.roles["counter"] = failing()
    assert isinstance(refused(lambda: world.step(branches[1])), AgentFailed)
    world.roles["counter"] = {"words": 5}
    roles = ["$JOIN", "lister", "$FORK", "$JOIN", "adder", COMPLETED]
    assert world.run(thread) == roles
    assert [task for role, task in world.asked if role == "counter"] == ["b", "a", "c", "b"]
    assert world.outputs(thread)[-1] == ("adder", {"total": "15 words"})


def test_a_fork_with_branches_that_failed_says_how_all_are_asked_anew(world: World, uwf: Uwf) -> None:
    thread = world.start()
    for branch in world.forked(thread)[:2]:
        world.step(branch)
    assert not uwf("thread", "fork", thread).err
    engine.kill(world.instance, world.forked(thread)[2])
    time.sleep(1)  # branches of forks made in the same second are the same
    said = uwf("thread", "fork", thread, "--at", "2", env={"UWF_FORMAT": "text"}).err
    assert "those that failed or were killed, 1 of 3, are not tried again" in said
    words = said.partition("uwf thread fork ")[2].split()
    copy = ThreadId(uwf("thread", "fork", *words).json["thread"])
    assert world.run(copy) == ["$FORK", "$JOIN", "reviewer", COMPLETED]
    assert [each["status"] for each in world.joined(copy)] == [COMPLETED] * 3


def test_a_killed_branch_has_ended(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    for branch in branches[1:]:
        world.step(branch)
    engine.kill(world.instance, branches[0], "not needed")
    joined = world.joined(thread)
    assert (joined[0]["status"], joined[0]["reason"], joined[0]["output"]) == (KILLED, "not needed", None)


# Bodies


def test_a_branch_goes_on_by_the_graph_until_it_comes_to_the_join(world: World) -> None:
    more = f"  tester: {{description: Tests., systemPrompt: Test., outputSchema: {TEXT}}}"
    edges = (
        '  fixer: [{role: tester, prompt: "Test {{ file }} after {{ text }}"}]\n  tester: [{role: reviewer}]'
    )
    world.put(audit(more=more, edges=edges))
    thread = world.start()
    world.run(thread)
    for each in world.joined(thread):
        assert [role for role, _ in world.outputs(ThreadId(each["thread"]))] == ["fixer", "tester"]
    assert ("reviewer", "Audit it") in world.asked and len(world.asked) == 1 + 6 + 1


def test_the_joins_edges_see_the_branches_in_conditions_and_prompts(world: World) -> None:
    told = []
    world.roles["reviewer"] = lambda ctx: told.append(ctx.instruction) or {"text": "fine"}
    more = f"  mourner: {{description: Mourns., systemPrompt: Mourn., outputSchema: {TEXT}}}"
    join = (
        "[{role: mourner, condition: none}, {role: reviewer, prompt: "
        '"{% for each in branches %}{{ each.status }}: {{ each.output.text }};{% endfor %}"}]'
    )
    conditions = (
        "conditions:\n  none: {description: None completed., expression: "
        "'$count(steps[-1].output.branches[status = \"completed\"]) = 0'}\n"
    )
    world.put(audit(join=join, more=more, edges="  mourner: [{role: $END}]\n" + conditions))
    thread = world.start()
    assert world.run(thread)[-2:] == ["reviewer", COMPLETED]
    assert told == ["".join(f"completed: fixer: Fix {file} ({at});" for at, file in enumerate(FILES))]
    other = world.start(prompt="Another")  # an equal one may share the fork
    for branch in world.forked(other):
        engine.kill(world.instance, branch)
    assert world.run(other) == ["mourner", COMPLETED]


def test_fan_outs_within_branches_join_before_these_end(world: World) -> None:
    world.put(audit_in_parts("[1, 2]"))
    thread = world.start()
    assert world.run(thread)[-1] == COMPLETED
    inner = ThreadId(world.joined(thread)[1]["thread"])
    assert [role for role, _ in world.outputs(inner)] == ["fixer", "$FORK", "$JOIN", "summer"]
    assert [each["output"]["text"] for each in world.joined(inner)] == [
        f"part: Fix b (1) part {part}" for part in (1, 2)
    ]


def test_branches_deeper_than_eight_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(
        "name: deep\ndescription: Goes deeper.\nroles:\n"
        f"  digger: {{description: Digs., systemPrompt: Dig., outputSchema: {TEXT}}}\n"
        "graph:\n  $START: [{role: digger}]\n"
        '  digger: [{each: ["x"], workflow: deep, join: $END}]\n'
    )
    thread = world.start("deep")
    for _ in range(fan_out.DEEPEST):
        (thread,) = world.forked(thread)
    world.step(thread)
    error = refused(lambda: world.step(thread))
    assert isinstance(error, Invalid) and "8 levels deep" in error.message
    assert error.hint.endswith(f"; end it: uwf thread kill {thread}")


def test_fixed_branches_have_roles_workflows_and_prompts_of_their_own(world: World) -> None:
    world.put(
        "name: other\ndescription: Another.\nroles:\n"
        f"  worker: {{description: Works., systemPrompt: Work., outputSchema: {TEXT}}}\n"
        "graph:\n  $START: [{role: worker}]\n  worker: [{role: $END}]\n"
    )
    text = audit().replace(
        "each: $last().files", 'each: [{role: fixer}, {workflow: other, prompt: "Do {{ file }}"}]'
    )
    world.put(text.replace("role: fixer, prompt", "prompt"))
    thread = world.start()
    world.run(thread)
    assert [each["output"]["text"] for each in world.joined(thread)] == [
        "fixer: Fix fixer (0)",
        "worker: Do other",
    ]


def test_branches_of_a_workflow_that_is_not_registered_are_refused_in_one_line(world: World) -> None:
    fixer = next(line for line in audit().splitlines() if line.startswith("  fixer:"))
    world.put(audit(branch="workflow: nowhere").replace(fixer, ""))
    thread = world.start()
    world.step(thread)
    error = refused(lambda: world.step(thread))
    assert "nowhere" in error.message and error.hint and world.head(thread).row.role == "planner"


def test_a_removed_branch_is_named_with_the_way_to_bring_it_back(world: World) -> None:
    from uwf_git.sync.removal import remove

    thread = world.start()
    branches = world.forked(thread)
    for branch in branches[1:]:
        world.step(branch)
    remove(world.instance, branches[0])
    error = refused(lambda: world.step(thread))
    assert branches[0] in error.message and f"uwf thread restore {branches[0]}" in error.hint


def test_more_branches_than_a_commit_may_have_as_parents_are_gathered_before_they_are_joined(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uwf_git.store import threads

    monkeypatch.setattr(threads, "MOST_PARENTS", 2)
    world.roles["planner"] = {"files": list("abcde")}
    thread = world.start()
    assert world.run(thread)[-1] == COMPLETED
    repository = world.instance.store.repository
    join = next(
        row for row in world.instance.store.index.commits_of(_join(world, thread)) if row.kind == "step"
    )
    tips = [world.head(ThreadId(each["thread"])).commit for each in world.joined(thread)]

    def leaves(commit: Oid) -> list[Oid]:
        found = repository.commit(commit)
        if layout.parse_message(found.message).kind != "part":  # type: ignore[union-attr]
            return [commit]
        assert len(found.parents) <= 2
        return [leaf for parent in found.parents for leaf in leaves(parent)]

    parents = repository.commit(Oid(raw=join.oid)).parents
    assert len(parents) <= 1 + 2 and [leaf for parent in parents[1:] for leaf in leaves(parent)] == tips


def test_a_commit_has_up_to_499_branches_as_parents_and_over_499_are_gathered_by_499(world: World) -> None:
    thread = world.start()
    (tip, *_) = world.forked(thread)
    fork, commit = world.head(thread).node, world.head(tip).commit
    gathered = world.instance.threads.gathered
    assert gathered(fork, [commit] * 499) == (commit,) * 499
    parts = gathered(fork, [commit] * 500)
    assert [len(world.instance.store.repository.commit(part).parents) for part in parts] == [499, 1]


def _join(world: World, thread: ThreadId) -> str:
    history = world.instance.threads.history(world.head(thread))
    return next(step.hash for step in history.steps if step.role == "$JOIN")


def test_prompts_that_are_too_long_together_are_refused_before_the_fork(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "MOST_PROMPTS", 20)  # each has 9
    thread = world.start()
    world.step(thread)
    error = refused(lambda: world.step(thread))
    assert "3 branches" in error.message
    assert error.hint.endswith(f"; let planner answer again: uwf thread fork {thread} --from-role planner")
    assert world.head(thread).row.role == "planner" and world.instance.threads.ids() == {thread}


def test_outputs_that_are_too_large_for_a_join_are_named_with_the_way_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = world.start()
    branches = world.forked(thread)
    monkeypatch.setattr(fan_out, "MOST_JOINED", 10)
    for branch in branches:
        world.step(branch)
        world.roles["fixer"] = {"text": "x" * 100}
    error = refused(lambda: world.step(thread))
    assert error.message.index(branches[1]) < error.message.index(branches[0])
    assert f"uwf thread fork {thread} --at 1" in error.hint and world.head(thread).row.role == "$FORK"
