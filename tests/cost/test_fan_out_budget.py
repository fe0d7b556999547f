"""What branches spend is their thread's, its limits bind them in parallel, and a throttled provider all of them."""

from __future__ import annotations

import fcntl
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spent_threads import usage
from workflows import opened, register, start_thread

from uwf_git.api.control import raise_budget
from uwf_git.api.fan_out import branches_at
from uwf_git.api.fork import fork
from uwf_git.api.spending import budget_value, sums
from uwf_git.base.errors import AgentFailed, Throttled, UwfError, Waiting
from uwf_git.base.errors import Usage as WrongUsage
from uwf_git.engine.budget import Budgets
from uwf_git.engine.fan_out_budget import InFlight, allowance, may_begin, share_of
from uwf_git.engine.kit.extract import failed_with
from uwf_git.engine.reservations import reserved
from uwf_git.engine.spending import Totals
from uwf_git.engine.step import step
from uwf_git.engine.thread_spending import account, nested, runs, spent_by_all, spent_on
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Step
from uwf_git.format.types import DETAIL, STEPNODE
from uwf_git.kit import Agent, Context, Reply, Usage, create_agent
from uwf_git.store.instance import Instance

SOURCE = """\
name: NAME
description: Each item by itself.
roles:
  planner: &role
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {items: {type: array}}, required: [items]}
  fixer: *role
  reviewer: *role
graph:
  $START: [{role: planner}]
  planner:
    - {each: $last().items, as: item, BRANCH, prompt: "Do {{ item }}", join: reviewer}
  reviewer: [{role: $END}]
"""
FLAT = SOURCE.replace("NAME", "flat").replace("BRANCH", "role: fixer")
OUTER = SOURCE.replace("NAME", "outer").replace("BRANCH", "workflow: flat").replace("  fixer: *role\n", "")


def scripted(items: int = 3, tokens: Callable[[str], int] = lambda _prompt: 100) -> Agent:
    """An agent that uses some tokens for a prompt, 10 for a plan; a negative number is a failed run that used them."""

    def run(context: Context) -> Reply:
        role = context.role.name
        output = {"items": list(range(items))}
        used = tokens(context.history.start.prompt) if role == "fixer" else 10
        reply = Reply(json.dumps(output), output=output, usage=Usage(abs(used), 0), model="m")
        if used < 0:
            raise failed_with(reply, "it broke")
        return reply

    return create_agent("uwf-test", run, lambda context, _session, _message: run(context))


def forked(instance: Instance, agent: Agent, source: str = FLAT, **budget: float) -> ThreadId:
    """A thread whose last step is its fork."""
    thread = start_thread(instance, source, budget=budget)
    step(instance, thread, agent)
    step(instance, thread, agent)
    return thread


def branches(instance: Instance, thread: ThreadId) -> list[ThreadId]:
    return [each.thread for each in branches_at(instance, instance.threads.head(thread)).each]


def spent(instance: Instance, thread: ThreadId) -> Totals:
    """What a thread has spent, which all ways to ask for it agree on."""
    head = instance.threads.head(thread)
    found = account(instance, head).spent
    assert account(opened(), head).spent == found == spent_by_all(instance, [head])[thread]
    total = sums(instance, "role", (None, None), [thread])["total"]
    assert (total["steps"], total["attempts"], total["unmetered"]) == (found.steps, found.attempts, 0)
    assert total["input"] == tokens(found)
    return found


def tokens(found: Totals) -> int:
    return total.input if (total := found.tokens) else 0


def run(instance: Instance, thread: ThreadId, agent: Agent) -> None:
    """Runs a thread with its branches to its end."""
    while (head := instance.threads.head(thread)).archive is None:
        if head.row.role == "$FORK":
            for branch in branches(instance, thread):
                run(instance, branch, agent)
        if instance.threads.head(thread).node == head.node:
            step(instance, thread, agent)


def test_what_branches_spend_is_their_threads_and_counts_once(instance: Instance) -> None:
    fails = [True]
    agent = scripted(tokens=lambda prompt: -7 if prompt == "Do 1" and fails and fails.pop() else 100)
    thread = forked(instance, agent)
    first, second, third = branches(instance, thread)
    step(instance, first, agent)
    with pytest.raises(AgentFailed):
        step(instance, second, agent)
    found = spent(instance, thread)
    assert (found.steps, found.attempts, tokens(found)) == (3, 1, 10 + 100 + 7)
    step(instance, second, agent)
    step(instance, third, agent)
    found = spent(instance, thread)
    assert instance.threads.head(thread).row.role == "$JOIN"
    assert (found.steps, found.attempts, found.unmetered, tokens(found)) == (6, 1, 0, 317)
    copy = instance.threads.fork(instance.threads.head(thread).commit, thread)
    assert tokens(spent(instance, copy)) == 317
    history = instance.threads.history(instance.threads.head(thread))
    assert [tokens(each) for each in spent_on(instance, history.steps).values()] == [10, 0, 307]
    everywhere = sums(instance, "role", (None, None))
    assert {each["role"]: each["input"] for each in everywhere["groups"]} == {
        "fixer": 307, "planner": 10, "$FORK": None, "$JOIN": None,
    }  # fmt: skip
    step(instance, thread, agent)
    assert tokens(spent(instance, thread)) == 327


def test_a_branch_that_forks_brings_what_its_branches_spend(instance: Instance) -> None:
    agent = scripted(items=2)
    register(instance, FLAT)
    thread = forked(instance, agent, OUTER)
    outer = branches(instance, thread)
    for branch in outer:
        step(instance, branch, agent)
        step(instance, branch, agent)
    step(instance, branches(instance, outer[0])[0], agent)
    assert tokens(spent(instance, thread)) == 3 * 10 + 100
    run(instance, thread, agent)
    found = spent(instance, thread)
    assert (found.steps, tokens(found)) == (4 + 2 * (4 + 2), 2 * 10 + 2 * (2 * 10 + 2 * 100))
    head = instance.threads.head(thread)
    own = [each.id for each in runs(instance, head)]
    within = [each.id for each in nested(instance, head)]
    assert len(own) == 4 and len({*own, *within}) == len(own) + len(within) == found.steps


def test_a_branch_may_spend_its_share_and_what_ended_ones_gave_back(instance: Instance) -> None:
    agent = scripted(tokens=lambda prompt: {"Do 0": 5, "Do 1": -60}.get(prompt, 100))
    thread = forked(instance, agent, maxTokens=310)
    first, second, third = branches(instance, thread)
    rows = budget_value(instance, second)
    assert rows == [{"limit": "maxTokens", "most": 100, "used": 0, "source": "fork"}]
    for _ in range(2):
        with pytest.raises(AgentFailed):
            step(instance, second, agent)
    with pytest.raises(
        Waiting, match=f"its share of the maxTokens of thread {thread} is used up, 120 of 120"
    ) as told:
        step(instance, second, agent)
    assert told.value.hint == f"uwf thread budget {thread} --max-tokens +310"
    with pytest.raises(WrongUsage, match="follows from its fork"):
        raise_budget(instance, second, {"maxTokens": "500"})
    step(instance, first, agent)  # it gives 95 back
    [row] = budget_value(instance, second)
    assert (row["used"], row["most"]) == (120, 195)
    with pytest.raises(AgentFailed):
        step(instance, second, agent)
    step(instance, third, agent)
    assert tokens(spent(instance, thread)) == 10 + 5 + 3 * 60 + 100
    with pytest.raises(AgentFailed):  # 15 are left, which one call may exceed
        step(instance, second, agent)
    with pytest.raises(Waiting, match=f"maxTokens of thread {thread} is used up, 355 of 310"):
        step(instance, second, agent)
    raise_budget(instance, thread, {"maxTokens": "+1000"})
    with pytest.raises(AgentFailed):
        step(instance, second, agent)


def test_limits_without_shares_bind_all_branches(instance: Instance) -> None:
    agent = scripted()
    thread = forked(instance, agent, maxSteps=4)  # of which the plan and the fork are two
    first, second, third = branches(instance, thread)
    assert Budgets(instance).standing(instance.threads.head(third)) is not None
    step(instance, first, agent)
    step(instance, second, agent)
    with pytest.raises(Waiting, match=r"maxSteps of thread .* is used up, 4 of 4"):
        step(instance, third, agent)


def test_a_thread_without_anything_left_does_not_fork(instance: Instance) -> None:
    agent = scripted()
    thread = start_thread(instance, FLAT, budget={"maxTokens": 10})
    step(instance, thread, agent)
    with pytest.raises(Waiting, match="maxTokens is used up"):
        step(instance, thread, agent)


def test_branches_without_their_thread_have_their_share(instance: Instance) -> None:
    agent = scripted()
    thread = forked(instance, agent, maxTokens=310)
    first, *_ = branches(instance, thread)
    copy = instance.threads.fork(instance.threads.head(first).commit)
    for each in (copy, first):
        if each == first:
            instance.threads.drop(f"refs/uwf/threads/{thread}")
        assert budget_value(instance, each) == [
            {"limit": "maxTokens", "most": 100, "used": 0, "source": "thread"}
        ]


def test_sixteen_branches_at_once_exceed_a_limit_by_one_call_at_most(instance: Instance) -> None:
    agent = scripted(items=16)
    thread = forked(instance, agent, maxTokens=1000)
    over: list[UwfError] = []
    most, now = [0], [0]

    def work(branch: ThreadId) -> None:
        own, chance = opened(), random.Random(branch)
        own.warn = lambda _text: None
        try:
            while True:
                with reserved(own, own.threads.head(branch), "by-hand"):
                    now[0] += 1
                    most[0] = max(most[0], now[0])
                    threading.Event().wait(chance.random() / 20)
                    spend(own, branch, 100)
                    now[0] -= 1
        except UwfError as error:
            over.append(error)

    workers = [threading.Thread(target=work, args=(each,)) for each in branches(instance, thread)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(120)
    assert {type(each) for each in over} == {Waiting} and len(over) == 16
    assert 1000 <= tokens(account(opened(), instance.threads.head(thread)).spent) < 1100
    assert most[0] > 1


def spend(instance: Instance, thread: ThreadId, used: int) -> None:
    """Appends a step that used tokens, as an agent's would."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    store = instance.store
    said = {"answer": "x", "turns": [], "session": None, "model": "m", "usage": usage(used, 0)}
    said |= {"durationMs": 0, "instruction": None, "context": None, "extraction": "native"}
    output = store.put(history.workflow.roles["fixer"].schema, {"items": []})
    made = Step(history.start_hash, history.prev, "fixer", output, store.put(DETAIL, said), "by-hand")
    node = store.put(STEPNODE, made.payload())
    instance.threads.append(head, node, {each.hash for each in history.steps})


def test_the_reservation_of_a_killed_process_holds_up_nobody(instance: Instance) -> None:
    thread = forked(instance, scripted(), maxTokens=310)
    first, second, _ = branches(instance, thread)
    left = instance.store.repository.private / "reservations" / first
    with reserved(instance, instance.threads.head(first), "by-hand"):
        content = left.read_bytes()
    assert not left.exists()
    left.write_bytes(content.replace(b'"maxTokens": 10', b'"maxTokens": 5000'))
    with reserved(instance, instance.threads.head(second), "by-hand"):
        assert not left.exists()


@pytest.mark.parametrize(
    "text", ["7", "[1, 2]", '[["B"], []]', '[["B"], {"maxTokens": "9"}]', '[["B"], {"x": NaN}]']
)
def test_a_file_that_is_no_reservation_holds_up_nobody(instance: Instance, text: str) -> None:
    thread = forked(instance, scripted(), maxTokens=1000)
    first, second = branches(instance, thread)[:2]
    folder = instance.store.repository.private / "reservations"
    folder.mkdir(exist_ok=True)
    with (folder / second).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(text.replace("B", second))
        held.flush()
        step(instance, first, scripted())
    assert instance.threads.has_ended(first)


@given(st.integers(1, 400), st.integers(1, 8), st.integers(0, 10**6))
def test_branches_one_by_one_may_spend_all_and_no_more_than_a_call_over(
    limit: int, count: int, seed: int
) -> None:
    chance = random.Random(seed)
    share = share_of({"maxTokens": limit}, count)["maxTokens"]
    used, ended = [0] * count, [False] * count
    while open_ := [each for each in range(count) if not ended[each]]:
        left = limit - sum(used)
        free = [
            each
            for each in open_
            if allowance(left, share, used[each], unused(share, used, ended, each)) > used[each]
        ]
        if left > 0:
            assert all(each in free for each in open_ if used[each] < share)  # its share is its own
            assert free or count > limit or len(open_) > 1  # the last one may use all that is left
        if not free:
            break
        each = chance.choice(free)
        used[each] += (call := chance.randrange(50))
        ended[each] = chance.random() < 0.2
        assert sum(used) < limit + max(call, 1)


def unused(share: int, used: list[int], ended: list[bool], but: int) -> int:
    return sum(max(0, share - used[each]) for each in range(len(used)) if not ended[each] and each != but)


@given(st.integers(1, 400), st.integers(1, 16), st.integers(1, 60), st.integers(0, 10**6))
def test_calls_in_flight_that_cost_what_they_may_exceed_a_limit_by_one(
    limit: int, count: int, cost: int, seed: int
) -> None:
    chance = random.Random(seed)
    share = share_of({"maxTokens": limit}, count)["maxTokens"]
    used, in_flight = [0] * count, [False] * count
    for _ in range(200):
        each = chance.randrange(count)
        left = limit - sum(used)
        if in_flight[each]:
            used[each] += cost
            in_flight[each] = False
            continue
        rest = unused(share, used, [False] * count, each)
        if allowance(left, share, used[each], rest) <= used[each]:
            continue
        others = [InFlight(max(0, share - used[other]), cost) for other in range(count) if in_flight[other]]
        if may_begin(left, share, used[each], rest, cost, others):
            in_flight[each] = True
    assert sum(used) + cost * sum(in_flight) < limit + cost


def throttled(after: float, asked: list[str]) -> Agent:
    def run(context: Context) -> Reply:
        if context.role.name == "planner":
            return Reply("{}", output={"items": [0, 1]})
        asked.append(context.history.thread)
        error = AgentFailed("rate limit")
        error.throttled = Throttled("p", after)
        raise error

    return create_agent("uwf-test", run, lambda context, _session, _message: run(context))


@pytest.mark.parametrize("after", [30, 5000])
def test_branches_spare_an_agent_that_another_one_found_throttled(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("uwf_git.engine.retrying.pause", slept.append)
    asked: list[str] = []
    agent = throttled(after, asked)
    first, second = branches(instance, forked(instance, agent))
    with pytest.raises(AgentFailed):
        step(instance, first, agent)
    with pytest.raises(AgentFailed):
        step(opened(), second, agent)
    attempt = instance.attempts.all(second)[-1]
    assert attempt.cause == "throttled" and attempt.resets_at is not None
    if after < 300:  # it waits, and asks then
        assert (asked, len(slept)) == ([first, second], 1) and 0 < slept[0] <= after + 1
    else:
        assert (asked, slept) == ([first], [])
    (Path(instance.location.root) / "throttled").rename("gone")
    with pytest.raises(AgentFailed):
        step(instance, second, agent)
    assert asked[-1] == second


def test_the_limits_of_a_branch_are_the_same_after_those_of_a_fork_of_it_were_looked_at(
    instance: Instance,
) -> None:
    branch = branches(instance, forked(instance, scripted(), maxTokens=1000))[0]
    copy = fork(instance, branch)
    alone = Budgets(instance).sources(instance.threads.head(branch))
    budgets = Budgets(instance)
    assert budgets.sources(instance.threads.head(copy)) != alone
    assert budgets.sources(instance.threads.head(branch)) == alone
