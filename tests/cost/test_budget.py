"""A thread whose budget is used up waits for a human, who alone can raise it, and whose word travels with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR, on_terminal, write
from conftest import Uwf
from spent_threads import assistant, attempt, detail, start, step, usage

from uwf_git.base.errors import AgentFailed, Usage, Waiting
from uwf_git.base.thread_states import ThreadState
from uwf_git.config.settings import Price
from uwf_git.engine.budget import (
    Budgets,
    Limit,
    amount,
    budget_reached,
    limits,
    more,
    parse_option,
    pending,
    raise_limits,
    reached_limit,
)
from uwf_git.engine.inbox import answer
from uwf_git.engine.spending import spent, together
from uwf_git.engine.step import step as do_step
from uwf_git.engine.thread_state import thread_state
from uwf_git.format.kinds import Detail, Step
from uwf_git.format.kinds import Usage as Tokens
from uwf_git.format.types import STEPNODE
from uwf_git.store.instance import Instance

Config = Callable[[str], Path]


def test_the_tightest_limit_counts_and_a_raised_one_before_all() -> None:
    sources = [
        ("config.yaml", {"maxSteps": 50, "maxCost": 2.0}),
        ("workflow", {"maxSteps": 10, "maxTokens": 9}),
        ("thread", {"maxSteps": 20}),
    ]
    assert limits(sources, {}) == {
        "maxSteps": Limit("maxSteps", 10, "workflow"),
        "maxTokens": Limit("maxTokens", 9, "workflow"),
        "maxCost": Limit("maxCost", 2.0, "config.yaml"),
    }
    held = limits(sources, {"maxSteps": 30, "maxWallTime": 60})
    assert (held["maxSteps"].value, "maxWallTime" in held) == (30, False)


def test_a_limit_is_reached_when_all_of_it_is_used() -> None:
    run = Detail("", usage=Tokens(70, 30), model="m", duration_ms=60_000)
    used = together([spent(run, [], False), spent(run, [], True)]).amounts({"m": Price(0, 10_000)})
    assert used == {"maxSteps": 1, "maxTokens": 200, "maxCost": pytest.approx(0.6), "maxWallTime": 120}
    for key, value in used.items():
        assert reached_limit({key: Limit(key, value, "")}, used) == Limit(key, value, "")
        assert reached_limit({key: Limit(key, value * 1.01, "")}, used) is None


def test_limits_are_read_as_people_write_them() -> None:
    held = {"maxWallTime": Limit("maxWallTime", 3600, ""), "maxTokens": Limit("maxTokens", 1000, "")}
    assert parse_option("maxWallTime", "2h") == parse_option("maxWallTime", "7200") == 7200
    assert parse_option("maxWallTime", "+30m", held) == 5400
    assert parse_option("maxTokens", "+500", held) == 1500
    assert parse_option("maxCost", "2.50") == 2.5
    wrong = {"maxSteps": ("0", "nan"), "maxTokens": ("1.5",), "maxCost": ("-1",), "maxWallTime": ("soon",)}
    for key, text in ((key, text) for key, texts in wrong.items() for text in texts):
        with pytest.raises(Usage):
            parse_option(key, text)
    with pytest.raises(Usage, match="no maxSteps to add to"):
        parse_option("maxSteps", "+5", held)
    assert [amount("maxTokens", 2_000_000), amount("maxSteps", 1)] == ["2,000,000 tokens", "1 step"]
    assert [amount("maxCost", 2.5), amount("maxWallTime", 5400)] == ["$2.50", "1h 30m"]
    assert more(Limit("maxTokens", 2_000_000, ""), 0) == "--max-tokens +2000000"


def test_money_that_nobody_can_count_is_unknown_and_warned_of_and_waits_where_that_is_wanted(
    uwf: Uwf, script: Callable[[str, str], Path], config: Config
) -> None:
    teller = script(
        "teller",
        "import json, sys\nsys.stdin.read()\nmodel = sys.argv[2] if len(sys.argv) > 1 else 'm-1'\n"
        "print(json.dumps({'model': model, 'in': 100, 'out': 10, 'text': '{\"text\": \"A\", \"approved\": false}'}))",
    )
    config(
        f"agentClis:\n  teller: {{program: {teller}, first: [], output: json, model: .model, text: .text,\n"
        "    usage: {input: .in, output: .out}}\n"
        "defaultAgent: teller\n"
        "providers: {p: {baseUrl: 'http://127.0.0.1:9'}}\n"
        "models: {m: {provider: p, name: m-1}, n: {provider: p, name: n-1, price: {input: 5000, output: 50000}}}\n"
    )
    file = write("pair.yaml", PAIR)
    begun = uwf("thread", "start", file, "-p", "x", "--max-cost", "5")
    assert f"cannot enforce maxCost: {teller} says neither what it costs nor, beforehand," in begun.err
    assert begun.err.count("\n") == 1
    thread = begun.json["thread"]
    assert "maxCost" not in uwf("thread", "start", file, "-p", "x", "--max-steps", "5").err
    stepped = uwf("thread", "step", thread)
    assert stepped.json["status"] == "idle"
    assert "maxCost doesn't cover 110 tokens, whose price nobody knows" in stepped.err

    (row,) = uwf("thread", "budget", thread).json["budget"]
    assert (row["used"], row["unpriced"], row["most"]) == (None, 110, 5)
    assert "unknown of $5.00" in on_terminal("thread", "budget", thread)[1]
    listed = next(each for each in uwf("thread", "list").json if each["thread"] == thread)
    assert (listed["cost"], listed["unpriced"]) == (None, 110)
    assert "unknown" in on_terminal("stats", thread)[1]

    # With `stop` it waits, and what it asks next has to have a price too.
    uwf("config", "set", "budget.unpriced", "stop")
    refused = uwf("thread", "step", thread, check=5)
    assert "waits: cannot enforce maxCost: 110 tokens have no known price" in refused.err
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["reason"]) == (
        "waiting",
        "cannot enforce maxCost: 110 tokens have no known price",
    )
    uwf("config", "set", "models.m.price", '{"input": 1000, "output": 10000}')
    assert f"{teller} says neither" in uwf("thread", "step", thread, check=5).err
    unknown = uwf("thread", "step", thread, "--agent", "uwf-cli teller --model x-1", check=5)
    assert "model x-1 has no price" in unknown.err
    assert uwf("thread", "step", thread, "--agent", "uwf-cli teller --model n-1").json["status"] == "waiting"
    assert uwf("thread", "budget", thread).json["budget"][0]["used"] == pytest.approx(0.2 + 1.0)
    assert uwf("config", "set", "budget.unpriced", "never", check=1).error["code"] == "invalid"
    uwf("config", "set", "budget.unpriced", "warn")
    assert "maxCost" in uwf("thread", "step", thread, "--agent", "uwf-cli teller --model x-1").err


def test_steps_that_told_no_tokens_are_unknown_and_warned_of_each(
    uwf: Uwf, script: Callable[[str, str], Path], config: Config
) -> None:
    mute = script("mute", "import sys\nsys.stdin.read()\nprint('---\\ntext: A\\napproved: false\\n---')")
    config(f"agentClis: {{mute: {{program: {mute}, first: [], output: text}}}}\ndefaultAgent: mute\n")
    file = write("pair.yaml", PAIR)
    thread = uwf("thread", "start", file, "-p", "x", "--max-cost", "5", "--max-tokens", "900").json["thread"]
    for _ in range(2):
        warned = uwf("thread", "step", thread).err
        assert "maxTokens doesn't count this step: its agent told neither tokens nor cost" in warned
    rows = {row["limit"]: row for row in uwf("thread", "budget", thread).json["budget"]}
    assert [(row["used"], row["unmetered"]) for row in rows.values()] == [(None, 2)] * 2
    assert "unknown of $5.00" in on_terminal("thread", "budget", thread)[1]
    # What asks no model has nothing to tell.
    assert "count this step" not in uwf("thread", "step", thread, "--agent", "uwf-rehearse").err


def test_whatever_else_a_workflow_holds_its_budget_counts(uwf: Uwf) -> None:
    told = PAIR.replace(
        "    systemPrompt: Write.\n", "    systemPrompt: Write.\n    extractPrompt: The text.\n"
    )
    thread = uwf("thread", "start", write("pair.yaml", told + "budget: { maxSteps: 1 }\n"), "-p", "x").json
    ran = uwf("thread", "run", thread["thread"], check=5)
    assert "maxSteps is used up, 1 of 1 step (set by its workflow)" in ran.error["message"]


def test_a_thread_that_used_up_its_budget_waits_until_somebody_raises_it(
    uwf: Uwf, instance: Instance
) -> None:
    thread = start(instance, {"maxSteps": 1, "maxTokens": 1000}, more="budget: {maxCost: 5}")
    assert thread_state(instance, instance.threads.head(thread)) is ThreadState.IDLE
    ran = uwf("thread", "run", thread, check=5)
    assert [line["status"] for line in ran.lines] == ["waiting"]
    assert ran.error == {
        "code": "waiting",
        "message": f"thread {thread} waits: maxSteps is used up, 1 of 1 step (set by its thread)",
        "hint": f"uwf thread budget {thread} --max-steps +1",
    }
    with pytest.raises(Waiting):
        do_step(instance, thread)
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["next"]) == ("waiting", "critic")
    assert "maxSteps is used up" in shown["reason"]
    assert [each["status"] for each in uwf("thread", "list").json] == ["waiting"]

    assert uwf("thread", "budget", thread, "--max-steps", "+1").json["budget"] == [
        {"limit": "maxSteps", "most": 2, "used": 1, "source": "raised"},
        {"limit": "maxTokens", "most": 1000, "used": 0, "source": "thread"},
        {"limit": "maxCost", "most": 5, "used": 0, "source": "workflow"},
    ]
    assert thread_state(instance, instance.threads.head(thread)) is ThreadState.IDLE
    done = do_step(instance, thread)
    assert (done.role, done.state) == ("critic", ThreadState.OVER_BUDGET)
    assert pending(instance, thread) == {}
    told = uwf("thread", "budget", thread).json["budget"][0]
    assert told == {
        "limit": "maxSteps",
        "most": 2,
        "used": 2,
        "source": "raised",
        "step": done.head,
        "by": "Ada Example",
    }
    uwf("verify", thread)


def test_limits_come_from_the_thread_its_workflow_and_the_configuration(
    instance: Instance, config: Config
) -> None:
    config(
        "models: {m: {provider: p, name: m, price: {input: 1000000, output: 0}}}\n"
        "budgets: {default: {maxCost: 5, maxSteps: 9}, workflows: {pair: {maxCost: 3}, other: {maxCost: 1}}}\n"
    )
    thread = start(instance, {"maxWallTime": 60}, more="budget: {maxSteps: 3, maxWallTime: 2m}")
    standing = Budgets(instance).standing(instance.threads.head(thread))
    assert standing is not None
    assert {key: (limit.value, limit.source) for key, limit in standing.limits.items()} == {
        "maxSteps": (3, "workflow"),
        "maxCost": (3, "config.yaml for pair"),
        "maxWallTime": (60, "thread"),
    }
    attempt(instance, thread, [], usage=usage(2, 0), model="m")
    step(instance, thread, usage=usage(1, 0), model="m", durationMs=59_999)
    assert "maxCost is used up, $3.00 of $3.00" in budget_reached(instance, instance.threads.head(thread))
    with pytest.raises(Waiting, match=r"config\.yaml for pair"):
        do_step(instance, thread)


def test_a_thread_without_a_budget_is_not_looked_through(instance: Instance, config: Config) -> None:
    thread = start(instance)
    step(instance, thread, usage=usage(10**9, 0), durationMs=10**9)
    config("this: [is broken")
    head = instance.threads.head(thread)
    assert Budgets(instance).standing(head) is None
    assert thread_state(instance, head) is ThreadState.IDLE
    assert instance.store.index.spent(head.node) is None


def test_a_raise_overrides_what_it_is_lower_than_and_the_latest_counts(instance: Instance) -> None:
    thread = start(instance, {"maxTokens": 100})
    step(instance, thread, [assistant(60, 0)], usage=usage(60, 0), budget={"maxTokens": 500})
    step(instance, thread, [assistant(60, 0)], usage=usage(60, 0), budget={"maxTokens": 110})
    head = instance.threads.head(thread)
    assert "120 of 110 tokens (raised before)" in budget_reached(instance, head)
    raise_limits(instance, thread, {"maxTokens": 121})
    assert budget_reached(instance, head) == ""


def test_an_agent_cannot_raise_its_own_budget(instance: Instance, script: Callable[[str, str], Path]) -> None:
    thread = start(instance, {"maxTokens": 100})
    history = instance.threads.history(instance.threads.head(thread))
    output = instance.store.put(history.workflow.roles["writer"].schema, {"text": "more"})
    greedy = detail(instance, budget={"maxTokens": 10**9})
    made = Step(history.start_hash, None, "writer", output, greedy, "greedy")
    node = instance.store.put(STEPNODE, made.payload())
    with pytest.raises(AgentFailed, match="raises its own budget"):
        do_step(instance, thread, agent=str(script("greedy", f"print('{node}')")))
    raise_limits(instance, thread, {"maxTokens": 200})
    with pytest.raises(AgentFailed, match="raises its own budget"):
        do_step(instance, thread, agent=str(script("greedy", f"print('{node}')")))
    assert pending(instance, thread) == {"maxTokens": 200}


def test_a_humans_answer_records_a_raise_and_is_no_step_of_an_agent(instance: Instance) -> None:
    thread = start(instance, {"maxSteps": 1})
    Path("ask.yaml").write_text("- {role: writer, output: {status: needs_input, question: Which?}}\n")
    do_step(instance, thread, agent=f"uwf-rehearse --script {Path('ask.yaml').absolute()}")
    raise_limits(instance, thread, {"maxSteps": 2})
    answer(instance, thread, "this one")
    assert pending(instance, thread) == {}
    standing = Budgets(instance).standing(instance.threads.head(thread))
    assert standing is not None
    assert (standing.limits["maxSteps"].value, standing.used["maxSteps"]) == (2, 1)


def test_bad_budgets_are_refused_before_anything_starts(uwf: Uwf, instance: Instance) -> None:
    thread = start(instance)
    assert "has no maxCost" in uwf("thread", "budget", thread, "--max-cost", "3", check=2).error["message"]
    limited = start(instance, {"maxSteps": 2})
    for steps in ("2", "1"):
        refused = uwf("thread", "budget", limited, "--max-steps", steps, check=2).error
        assert "is 2 steps" in refused["message"] and refused["hint"].endswith(f"--max-steps +{steps}")
    assert pending(instance, limited) == {}
    Path("w.yaml").write_text("name: w\n")
    assert (
        "is not a limit"
        in uwf("thread", "start", "w.yaml", "-p", "x", "--max-steps", "many", check=2).error["message"]
    )


def test_a_raise_from_elsewhere_does_not_lift_the_limits_of_this_machine(
    instance: Instance, config: Config
) -> None:
    config("budgets: {default: {maxSteps: 1}}")
    thread = start(instance, {"maxTokens": 100})
    step(instance, thread, usage=usage(60, 0), budget={"maxSteps": 1000, "maxTokens": 500})  # as pulled

    def held() -> dict[str, tuple[float, str]]:
        standing = Budgets(instance).standing(instance.threads.head(thread))
        assert standing is not None
        return {key: (limit.value, limit.source) for key, limit in standing.limits.items()}

    assert held() == {"maxSteps": (1, "config.yaml"), "maxTokens": (500, "raised")}
    raise_limits(instance, thread, {"maxSteps": 2})
    do_step(instance, thread, "uwf-rehearse")
    assert pending(instance, thread) == {}
    assert held() == {"maxSteps": (2, "raised"), "maxTokens": (500, "raised")}
    with pytest.raises(Waiting, match="raised before"):
        do_step(instance, thread)
