"""Every command works on a thread that waits for its branches, and on a branch."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest
from conftest import Uwf
from fan_outs import World, audit, failing, refused
from uwf_cli.output import branches_text

from uwf_git.api import control
from uwf_git.api.cockpit.inbox import inbox
from uwf_git.api.cockpit.retry import plan_retry, to_retry
from uwf_git.api.events import Events
from uwf_git.api.fork import fork, fork_step
from uwf_git.api.listing import Filters, listed, thread_items, without_quiet_branches
from uwf_git.api.progress import progress
from uwf_git.api.states import Idle, standing, state_of
from uwf_git.api.waiting import wait
from uwf_git.base.errors import AgentFailed, Invalid, NotRunning, Paused, Waiting
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.lineage import kin
from uwf_git.engine.thread_state import thread_state
from uwf_git.engine.waits import waiting_for_people
from uwf_git.ext.traces.trace import export
from uwf_git.format.endings import COMPLETED, FAILED, KILLED, PARENT_KILLED
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import ancestry
from uwf_git.store.instance import Instance
from uwf_git.sync.removal import remove, remove_one

FILES = ["a", "b", "c"]
TEXT = {"UWF_FORMAT": "text"}


@pytest.fixture
def world(instance: Instance, tmp_path: Path) -> World:
    made = World(instance, tmp_path, {"planner": {"files": FILES}}, [])
    made.put(audit())
    return made


def shown(world: World, thread: ThreadId) -> dict[str, object]:
    return standing(world.instance, world.head(thread))


def test_the_state_of_a_thread_that_waits_for_branches_counts_and_lists_them_by_index(world: World) -> None:
    thread = world.start()
    first, second, third = world.forked(thread)
    world.step(second)
    value = shown(world, thread)
    assert (value["status"], value["next"]) == (ThreadState.JOINING.word, "$JOIN")
    assert value["branches"] == {
        "counts": {COMPLETED: 1, ThreadState.IDLE.word: 2},
        "ended": 1,
        "each": [
            {"index": 0, "thread": first, "status": ThreadState.IDLE.word, "item": "a"},
            {"index": 1, "thread": second, "status": COMPLETED, "item": "b"},
            {"index": 2, "thread": third, "status": ThreadState.IDLE.word, "item": "c"},
        ],
    }
    assert state_of(world.instance, thread) == Idle("$JOIN", ThreadState.JOINING.word)
    step = world.head(thread).node
    assert shown(world, third)["branchOf"] == {"thread": thread, "step": step, "index": 2}


def test_a_branch_knows_its_parent_after_the_join_too(world: World) -> None:
    thread = world.start()
    branch = world.forked(thread)[0]
    world.run(thread)
    assert shown(world, branch)["branchOf"]["thread"] == thread  # type: ignore[index]
    branches = shown(world, thread)["branches"]
    assert branches["each"][0]["thread"] == branch  # type: ignore[index, call-overload]


def test_a_list_has_idle_and_ended_branches_only_as_numbers_of_their_parent(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    world.step(branches[0])
    world.roles["fixer"] = failing()
    assert isinstance(refused(lambda: world.step(branches[1])), AgentFailed)
    every = listed(world.instance, Filters(ended=True))
    assert {each.thread for each in every} == {thread, *branches}
    found = thread_items(world.instance, without_quiet_branches(world.instance, every))
    assert {each["thread"]: each["status"] for each in found} == {
        thread: ThreadState.JOINING.word,
        branches[1]: FAILED,
    }
    item = next(each for each in found if each["thread"] == thread)
    assert item["branches"] == {COMPLETED: 1, FAILED: 1, ThreadState.IDLE.word: 1}
    assert item["branchesEnded"] == 1  # the failed one may be tried again
    whole = {each["thread"]: each["parent"] for each in thread_items(world.instance, every)}
    assert whole == {thread: None, **dict.fromkeys(branches, thread)}


def test_a_list_leaves_out_killed_branches_of_a_fork_that_no_thread_has(world: World) -> None:
    thread = world.start()
    first, *others = world.forked(thread)
    world.step(first)
    control.kill(world.instance, thread)
    remove_one(world.instance, thread)  # as an earlier version did
    every = listed(world.instance, Filters(ended=True))
    assert {each.thread: each.state for each in every} == {
        first: ThreadState.COMPLETED,
        **dict.fromkeys(others, ThreadState.KILLED),
    }
    assert [each.thread for each in without_quiet_branches(world.instance, every)] == [first]


def test_the_newest_thread_is_no_branch(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    assert list(world.instance.threads.newest()) == [thread]
    copy = fork(world.instance, branches[0])
    assert set(world.instance.threads.newest()) == {thread, copy}


def test_branches_are_relatives_of_their_parent(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    head = world.head(thread)
    rows = list(reversed(list(ancestry(world.instance.store, head.commit))))[1:]
    _, tree, _ = kin(world.instance, head, rows)
    assert [(each.head.thread, each.how, each.at) for each in tree.below] == [
        (branch, "branch", 2) for branch in branches
    ]
    assert kin(world.instance, world.head(branches[0]), [])[0] == thread


def test_nothing_can_be_said_between_a_fork_and_its_join(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    node = world.head(thread).node
    for call in (
        lambda: control.say(world.instance, thread, "Hurry"),
        lambda: control.answer(world.instance, thread, "Yes"),
        lambda: control.resume(world.instance, thread, "Yes"),
    ):
        error = refused(call)
        assert error.hint and "\n" not in error.message
    assert world.head(thread).node == node
    control.say(world.instance, branches[0], "Hurry")


def test_a_thread_that_was_killed_before_its_join_goes_on_before_the_fork(world: World) -> None:
    world.put(
        audit().replace(
            "$START: [{role: planner}]", "$START: {new: {role: planner}, resume: {role: reviewer}}"
        )
    )
    thread = world.start()
    world.forked(thread)
    control.kill(world.instance, thread)
    error = refused(lambda: control.resume(world.instance, thread, "Go on"))
    assert isinstance(error, Invalid) and error.hint.endswith(f"uwf thread fork {thread} --at 1")


def test_a_retry_of_a_fan_out_that_failed_begins_its_branches_anew_and_a_branch_leaves_that_to_it(
    world: World,
) -> None:
    world.put(audit(policy="need: 2"))
    thread = world.start()
    branches = world.forked(thread)
    for branch in branches[:2]:
        control.kill(world.instance, branch, "no use")
    assert world.head(thread).archive is not None
    plan = plan_retry(world.instance, world.head(thread))
    anew = fork(world.instance, thread, plan.at)
    assert world.head(anew).row.role == "planner" and not world.head(anew).waits_for_join

    world.put(audit(policy="onFailure: fail"))
    thread = world.start()
    branches = world.forked(thread)
    world.roles["fixer"] = failing("no luck")
    refused(lambda: world.step(branches[1]))
    assert plan_retry(world.instance, world.head(thread)).at == 1
    error = refused(lambda: plan_retry(world.instance, world.head(branches[1])))
    assert error.hint.endswith(f"uwf thread retry {thread}")
    assert to_retry(world.instance, [thread, *branches]) == [thread]
    assert [item["thread"] for item in inbox(world.instance, only=["failed"])] == [thread]


def test_a_pause_of_a_parent_is_one_of_its_open_branches_and_so_is_its_end(world: World) -> None:
    thread = world.start()
    first, second, third = world.forked(thread)
    world.step(first)
    control.pause(world.instance, second, "by itself")
    control.pause(world.instance, thread, "lunch")
    assert thread_state(world.instance, world.head(thread)) is ThreadState.PAUSED
    assert isinstance(refused(lambda: world.step(third)), Paused)
    assert shown(world, thread)["branches"]["counts"] == {COMPLETED: 1, ThreadState.PAUSED.word: 2}  # type: ignore[index]
    assert isinstance(refused(lambda: world.run(thread)), Paused)
    control.resume(world.instance, thread)
    assert world.instance.threads.is_paused(second)
    assert not world.instance.threads.is_paused(third)
    error = refused(lambda: world.run(thread))
    assert isinstance(error, Waiting) and second in error.message and second in error.hint


def test_branches_end_with_their_parent_unless_a_fork_of_it_waits_for_them_too(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    copy = fork(world.instance, thread)
    control.kill(world.instance, thread)
    assert [thread_state(world.instance, world.head(each)) for each in branches] == [ThreadState.IDLE] * 3
    control.kill(world.instance, copy)
    for branch in branches:
        archive = world.head(branch).archive
        assert archive is not None and (archive.status, archive.reason) == (KILLED, PARENT_KILLED)


def test_a_fork_of_a_waiting_thread_joins_the_same_branches(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    copy = fork_step(world.instance, world.head(thread).node).thread
    world.run(thread)
    assert world.run(copy) == ["reviewer", COMPLETED]
    assert [each["thread"] for each in world.joined(copy)] == branches


def test_a_fork_of_a_branch_is_a_thread_by_itself(world: World) -> None:
    thread = world.start()
    branch = world.forked(thread)[0]
    copy = fork(world.instance, branch)
    world.run(thread)
    assert "branchOf" not in shown(world, copy)
    assert world.step(copy).state is ThreadState.COMPLETED
    assert world.instance.threads.head(copy).row.role == "fixer"


def test_a_removed_branch_is_named_with_the_command_that_restores_it(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    for branch in branches[:2]:
        world.step(branch)
    remove(world.instance, branches[2])
    assert shown(world, thread)["branches"]["counts"] == {COMPLETED: 2, "absent": 1}  # type: ignore[index]
    error = refused(lambda: world.run(thread))
    assert isinstance(error, Waiting) and f"uwf thread restore {branches[2]}" in error.hint


def test_a_question_of_a_branch_is_in_the_inbox_with_its_parent_and_keeps_no_other_from_working(
    world: World,
) -> None:
    world.put(audit().replace("fixer: {", "fixer: {human: true, "))
    thread = world.start()
    branches = world.forked(thread)
    waits = waiting_for_people(world.instance)
    assert [(each.thread, each.parent, each.role) for each in waits] == [
        (branch, thread, "fixer") for branch in branches
    ]
    assert isinstance(refused(lambda: world.run(thread)), Waiting)
    for branch in branches:
        control.answer(world.instance, branch, "done")
    assert world.head(thread).row.role == "$JOIN"


def test_a_wait_for_a_thread_tells_what_its_branches_wait_for(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    assert isinstance(refused(lambda: wait(world.instance, thread)), NotRunning)
    world.roles["fixer"] = failing()
    refused(lambda: world.step(branches[1]))
    error = refused(lambda: wait(world.instance, thread))
    assert isinstance(error, AgentFailed) and branches[1] in error.message


def test_a_wait_for_a_thread_lasts_while_a_branch_is_at_work(world: World) -> None:
    thread = world.start()
    branch = world.forked(thread)[0]
    with world.instance.locks.run(branch):
        error = refused(lambda: wait(world.instance, thread, time.monotonic()))
    assert "still at work" in error.message


def test_what_runs_is_listed_with_the_parent_of_a_branch(world: World) -> None:
    thread = world.start()
    branch = world.forked(thread)[1]
    with world.instance.locks.run(thread), world.instance.locks.run(branch):
        found = progress(world.instance)()
    assert [(each["thread"], each["parent"]) for each in found] == [(thread, None), (branch, thread)]
    assert found[0]["branches"] == {ThreadState.IDLE.word: 3}


def test_texts_for_people_are_short_however_many_branches_there_are(world: World, uwf: Uwf) -> None:
    world.roles["planner"] = {"files": [f"file{number}.py" for number in range(30)]}
    thread = world.start()
    branches = world.forked(thread)
    listed_text = uwf("thread", "list", env=TEXT)
    assert "(0 of 30 branches)" in listed_text.out and len(listed_text.out.splitlines()) == 2
    assert "30 more are branches" in listed_text.err
    assert len(uwf("thread", "list", "--branches", env=TEXT).out.splitlines()) == 32
    assert len(uwf("thread", "list").json) == 31
    text = uwf("thread", "show", thread, env=TEXT).out
    assert "0 of 30 have ended; 30 idle" in text and "and 20 more" in text
    assert f"branch    3 of thread {thread}" in uwf("thread", "show", branches[3], env=TEXT).out
    error = uwf("thread", "step", thread, check=5, env=TEXT).err
    assert "0 of 30 have ended" in error and len(error.splitlines()) == 1


def test_the_page_of_a_thread_lists_its_branches_and_theirs_leads_back(
    world: World, client: httpx.Client
) -> None:
    thread = world.start()
    branches = world.forked(thread)
    world.step(branches[0])
    page = client.get(f"/thread/{thread}").text
    assert "1 of 3 have ended; 2 idle" in page
    assert all(f'href="/thread/{branch}"' in page for branch in branches)
    assert f'It is branch 1 of <a href="/thread/{thread}">' in client.get(f"/thread/{branches[1]}").text
    listed_page = client.get("/threads?tab=all").text
    assert "1 of 3 have ended" in listed_page and branches[1] not in listed_page
    world.run(thread)
    page = client.get(f"/thread/{thread}").text
    assert page.count("a branch of step 2") == 3


def test_the_trace_of_a_thread_has_its_branches_within_the_span_of_their_fork(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    world.run(thread)
    exported = export(world.instance, world.head(thread))
    spans = exported["resourceSpans"][0]["scopeSpans"][0]["spans"]
    fork = next(each for each in spans if each["name"] == "invoke_agent $FORK")
    within = [each for each in spans if each.get("parentSpanId") == fork["spanId"]]
    found = [
        attribute["value"]["stringValue"]
        for span in within
        for attribute in span["attributes"]
        if attribute["key"] == "uwf.thread"
    ]
    assert found == branches
    assert len({each["spanId"] for each in spans}) == len(spans)


def test_a_removal_says_in_a_line_what_it_leaves(world: World, uwf: Uwf) -> None:
    thread = world.start()
    branches = world.forked(thread)
    said = uwf("thread", "rm", branches[0], "--yes", env=TEXT).err
    assert f"thread {thread} cannot join its branches without {branches[0]}" in said
    uwf("thread", "restore", branches[0])
    said = uwf("thread", "rm", thread, "--yes", env=TEXT).err
    assert f"{len(branches)} branches of {thread} went along" in said and len(said.splitlines()) == 1
    assert uwf("thread", "list", "--all").json == []
    uwf("thread", "restore", thread)
    assert {each["thread"] for each in uwf("thread", "list", "--all", "--branches").json} == {
        thread,
        *branches,
    }


def test_branches_that_another_thread_has_too_stay_and_a_running_one_prevents_the_removal(
    uwf: Uwf, world: World
) -> None:
    # `uwf` comes first: to its processes, a store that is older than they are is not that of a step which this process,
    # with the lock below, would be the engine of.
    thread = world.start()
    branches = world.forked(thread)
    with world.instance.locks.hold(branches[1]):
        error = uwf("thread", "rm", thread, "--yes", check=4).error
    assert branches[1] in error["message"] and all(map(world.instance.threads.exists, [thread, *branches]))
    fork = world.instance.threads.fork(world.head(thread).commit, thread)
    uwf("thread", "rm", thread, "--yes")
    assert all(map(world.instance.threads.exists, branches))
    uwf("thread", "rm", branches[2], "--yes")
    uwf("thread", "rm", fork, "--yes")
    assert not any(map(world.instance.threads.exists, branches))
    uwf("thread", "restore", fork)
    assert [world.instance.threads.exists(each) for each in branches] == [True, True, False]


def test_events_of_a_thread_are_those_of_its_branches_too(world: World) -> None:
    thread = world.start()
    happening = Events(world.instance, thread)
    branches = world.forked(thread)
    began = [each for each in happening.news() if each["event"] == "started"]
    assert [(each["thread"], each["parent"], each["branch"]) for each in began] == [
        (branch, thread, index) for index, branch in enumerate(branches)
    ]
    world.start()
    world.step(branches[1])
    assert {each["thread"] for each in happening.news()} == {branches[1]}


def test_branches_of_a_workflow_that_is_not_registered_are_a_warning_with_its_line(
    world: World, uwf: Uwf
) -> None:
    text = audit().replace(
        "each: $last().files", "each: [{role: fixer}, {workflow: audits}, {workflow: audit}]"
    )
    path = world.folder / "calls.yaml"
    path.write_text(text.replace("role: fixer, prompt", "prompt").replace("name: audit", "name: calls", 1))
    (warning,) = uwf("workflow", "validate", path).json["findings"]
    assert (warning["line"], warning["severity"]) == (15, "warning")
    assert 'workflow "audits", which is not registered here' in warning["message"]
    assert warning["hint"] == 'did you mean "audit"?'
    assert uwf("workflow", "put", path).json["warnings"] == [warning]
    world.put(path.read_text().replace("name: calls", "name: audits"))
    assert uwf("workflow", "validate", path).json["findings"] == []


@pytest.mark.parametrize(
    ("counts", "ended", "text"),
    [
        ({COMPLETED: 3, FAILED: 1}, 3, "3 of 4 have ended; 1 failed"),
        ({COMPLETED: 3, FAILED: 1}, 4, "4 of 4 have ended, 1 failed"),
        (
            {COMPLETED: 1, FAILED: 2, KILLED: 1, "idle": 1},
            3,
            "3 of 5 have ended, 1 failed, 1 killed; 1 failed, 1 idle",
        ),
        ({COMPLETED: 1, "left": 2}, 1, "1 of 3 have ended; 2 left"),
    ],
)
def test_a_branch_that_failed_and_may_be_tried_again_has_not_ended(
    counts: dict[str, int], ended: int, text: str
) -> None:
    assert branches_text(counts, ended) == text


def test_list_pages_and_matrix_count_the_same_branches_as_ended(
    world: World, uwf: Uwf, client: httpx.Client
) -> None:
    thread = world.start()
    first, second, third = world.forked(thread)
    world.step(first)
    world.roles["fixer"] = failing()
    for branch in (second, third):
        assert isinstance(refused(lambda branch=branch: world.step(branch)), AgentFailed)
    assert "(1 of 3 branches)" in uwf("thread", "list", "--format", "text").out
    for command in ("show", "branches"):
        assert "1 of 3 have ended; 2 failed" in uwf("thread", command, thread, "--format", "text").out
    for path in ("/threads?tab=all", f"/thread/{thread}", f"/thread/{thread}/matrix"):
        assert "1 of 3 have ended; 2 failed" in client.get(path).text
    (row, _) = re.findall(r'<li id="q-(.*?)</li>', client.get("/").text, re.DOTALL)
    assert f"branch 1 of {thread[-6:]}" in row or f"branch 2 of {thread[-6:]}" in row
