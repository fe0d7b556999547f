"""What agents used is counted once, all of it, and a number that nobody knows is not taken for 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import Uwf
from hypothesis import given
from hypothesis import strategies as st
from spent_threads import assistant, attempt, extracted, start, step, tool, usage
from uwf_cli.plot import Bar, bar_chart

from uwf_git.config.settings import Price
from uwf_git.engine.spending import (
    BY,
    Money,
    Run,
    Tokens,
    Totals,
    grouped,
    price_of,
    spent,
    together,
)
from uwf_git.engine.thread_spending import account, nested, runs, runs_of_all
from uwf_git.format.kinds import Detail, Usage, parse_turn
from uwf_git.format.types import USER
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


def run_of(
    total: Any,
    turns: Sequence[dict[str, Any]] = (),
    model: str | None = "m",
    ms: int = 0,
    cost: float | None = None,
    attempt: bool = False,
) -> Totals:
    """What a run with such a detail and such turns spent."""
    detail = Detail("", usage=Usage(**total) if total else None, model=model, duration_ms=ms, cost=cost)
    return spent(detail, map(parse_turn, turns), attempt)


def told(total: Any, turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a run comes to, by model: (input, output, reported cost)."""
    return {
        line.model: (line.tokens.input, line.tokens.output, line.reported)
        for line in run_of(total, turns).lines
    }


def test_turns_that_count_up_are_not_added_up() -> None:
    counted_up = [assistant(100, 10), assistant(300, 20), assistant(600, 30)]
    assert told(usage(600, 30), counted_up) == {"m": (600, 30, None)}


def test_turns_each_with_its_own_count_make_the_sum_not_the_last_of_them() -> None:
    turns = [assistant(100, 10), assistant(200, 20, "other"), assistant(300, 30)]
    assert told(usage(600, 60), turns) == {"m": (400, 40, None), "other": (200, 20, None)}
    assert told(None, turns) == {"m": (400, 40, None), "other": (200, 20, None)}


def test_what_no_turn_accounts_for_is_the_main_models() -> None:
    assert told(usage(600, 60), [assistant(100, 10, "small")]) == {
        "small": (100, 10, None),
        "m": (500, 50, None),
    }


def test_what_extraction_took_is_its_own_models() -> None:
    turns = [assistant(100, 10), extracted("tiny", 50, 5)]
    assert told(usage(150, 15), turns) == {"m": (100, 10, None), "tiny": (50, 5, None)}
    assert told(usage(150, 15), turns[1:]) == {"m": (100, 10, None), "tiny": (50, 5, None)}


def test_zeros_are_no_count_and_neither_is_nothing() -> None:
    assert told(usage(0, 0), [assistant(0, 0)]) == {}
    assert told(None, []) == {}
    run = run_of(None, ms=1500)
    assert (run.unmetered, run.seconds, run.tokens) == (1, 1.5, None)
    assert run.money({"m": Price(1, 1)}) == Money(None, 0)
    assert spent(None, [], attempt=True) == Totals(attempts=1, unmetered=1)


def test_what_the_agent_reported_goes_before_a_price_and_either_before_unknown() -> None:
    run = run_of(usage(1_000_000, 100_000, 400_000))
    assert run.money({"m": Price(2.5, 10, 1.25)}) == Money(0.6 * 2.5 + 0.4 * 1.25 + 1.0, 0)
    assert run.money({"m": Price(2.5, 10)}) == Money(3.5, 0)
    assert run.money({}) == Money(None, 1_100_000)
    reporting = run_of(usage(100, 10), cost=0.25)
    assert reporting.money({}) == Money(0.25, 0)
    assert reporting.money({"m": Price(1, 1)}) == Money(0.25, 0)
    unsure = run_of(usage(100, 10), cost=0.0)  # as programs say of a model that they have no price for
    assert unsure.money({}) == Money(None, 110)
    assert unsure.money({"m": Price(0, 0)}) == Money(0, 0)
    assert run_of(None, cost=0.25).money({"m": Price(1, 1)}) == Money(0.25, 0)


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o", "openai/gpt-4o-20240806", "gpt-4o-latest"]
)
def test_a_model_is_priced_under_the_names_it_goes_by(model: str) -> None:
    prices = {"gpt-4o": Price(1, 2), "gpt-4o-mini": Price(3, 4)}
    assert price_of(model, prices) == Price(1, 2)
    assert price_of("gpt-4o-mini-2024-07-18", prices) == Price(3, 4)
    assert price_of("gpt-4o-audio", prices) is None


runs_of_any_kind = st.lists(
    st.builds(
        lambda thread, number, role, model, cost, total, time, failed: Run(
            f"{thread}{number}{time}", thread, "w", number, role, "a", time,
            run_of(total, [assistant(3, 2, "b")] if number % 2 else [], model, number, cost, failed),
        ),
        st.sampled_from("TU"), st.integers(1, 3), st.sampled_from("rs"), st.sampled_from(["a", "b", None]),
        st.sampled_from([None, 0.5]), st.sampled_from([None, usage(9, 4, 2)]), st.integers(0, 200_000), st.booleans(),
    ),
    max_size=8,
)  # fmt: skip


@given(runs_of_any_kind)
def test_groups_by_whatever_add_up_to_the_whole(some: list[Run]) -> None:
    prices = {"a": Price(1, 2, 0.5)}
    whole = together(run.spent for run in some)
    for by in BY:
        parts = together(group.spent for group in grouped(some, by))
        assert parts._replace(seconds=0, lines=()) == whole._replace(seconds=0, lines=())
        assert parts.seconds == pytest.approx(whole.seconds)
        assert parts.tokens == whole.tokens
        assert parts.money(prices).unpriced == whole.money(prices).unpriced
        assert parts.money(prices).cost == pytest.approx(whole.money(prices).cost)


# Threads


def test_failed_attempts_count_at_the_step_they_were_made_for(instance: Instance) -> None:
    thread = start(instance)
    step(instance, thread, usage=usage(10, 1), model="m")
    attempt(instance, thread, [assistant(5, 5)], usage=usage(5, 5), model="m", durationMs=2000)
    attempt(instance, thread)
    attempt(instance, thread)
    step(instance, thread, usage=usage(20, 2), model="m", durationMs=500)
    found = runs(instance, instance.threads.head(thread))
    assert sorted((run.number, run.role, run.spent.attempts) for run in found) == [
        (1, "writer", 0),
        (2, "critic", 0),
        *[(2, "critic", 1)] * 3,
    ]
    whole = together(run.spent for run in found)
    assert (whole.steps, whole.attempts, whole.seconds, whole.unmetered) == (2, 3, 2.5, 2)
    assert whole.tokens == Tokens(35, 8, 0)


def test_a_remembered_sum_is_the_sum_and_grows_by_the_step(instance: Instance) -> None:
    thread = start(instance)
    for number in range(1, 4):
        step(instance, thread, [assistant(number, 1)], usage=usage(number, 1), model="m", cost=0.5)
        head = instance.threads.head(thread)
        assert account(instance, head) == account(instance, head)
        assert account(instance, head).spent == together(run.spent for run in runs(instance, head))
        assert instance.store.index.spent(head.node) is not None
    attempt(instance, thread, [], usage=usage(7, 7), model="m")
    assert account(instance, head).spent.tokens == Tokens(13, 10, 0)


def test_remembered_runs_are_the_runs_of_forks_and_attempts_too(instance: Instance) -> None:
    """Of each thread those up to its head are remembered, and no older ones."""
    thread = start(instance)
    index = instance.store.index

    def told() -> dict[str, list[Run]]:
        heads = [each for each in instance.threads.all(archived=True) if isinstance(each, Head)]
        found = {head.thread: each for head, each in runs_of_all(instance, heads) if isinstance(each, list)}
        again = {head.thread: each for head, each in runs_of_all(instance, heads)}
        index.drop_spent([f"={head.node}" for head in heads])
        index.drop_spent([f"={tip.hex()}" for tip in index.attempt_tips().values()])
        assert found == again == {head.thread: runs(instance, head) for head in heads}
        return found

    step(instance, thread, [assistant(1, 1)], usage=usage(9, 4, 2), model="m", cost=0.5, durationMs=1500)
    attempt(instance, thread, [], usage=usage(7, 7), model="m")
    assert [(run.number, run.spent.attempts) for run in told()[thread]] == [(1, 0), (2, 1)]
    at = instance.threads.head(thread).node
    fork = instance.threads.fork(instance.threads.head(thread).commit)
    step(instance, thread, usage=usage(20, 2), model="m")
    step(instance, thread, role=USER)
    assert [run.number for run in told()[thread]] == [1, 2, 2]
    assert index.spent(f"={at}") is not None
    step(instance, fork, usage=usage(30, 3), model="m")
    assert [run.spent.lines[0].tokens.input for run in told()[fork]] == [9, 30]
    assert index.spent(f"={at}") is None


def test_what_a_sub_workflow_spent_is_part_of_its_parents_step(uwf: Uwf, instance: Instance) -> None:
    child = start(instance, name="child")
    step(instance, child, usage=usage(10, 1), model="m")
    last = step(instance, child, usage=usage(20, 2), model="m", durationMs=3000)
    parent = start(instance)
    step(instance, parent, usage=usage(1, 1), model="m")
    step(instance, parent, made=last, agent="uwf-workflow")
    head = instance.threads.head(parent)
    known = account(instance, head).spent
    assert (known.steps, known.seconds, known.tokens) == (2, 3.0, Tokens(31, 4, 0))
    assert [(run.number, run.role, run.workflow) for run in nested(instance, head)] == [
        (2, "critic", "child")
    ] * 2
    alone = uwf("stats", parent, "--by", "step").json
    assert [(each["step"], each["steps"], each["input"]) for each in alone["groups"]] == [
        (1, 1, 1),
        (2, 1, 30),
    ]
    everywhere = uwf("stats", "--by", "workflow").json
    assert {each["workflow"]: each["input"] for each in everywhere["groups"]} == {"child": 30, "pair": 1}


@pytest.fixture
def spending(instance: Instance, config: Any) -> dict[str, str]:
    """Two threads, one forked off the other and one that has ended, and prices for one model."""
    config("models: {large: {provider: p, name: big-1, price: {input: 2, output: 10}}}\n")
    first = start(instance)
    step(
        instance,
        first,
        [assistant(900, 50), tool("grep")],
        usage=usage(900, 50),
        model="big-1",
        durationMs=61_000,
    )
    fork = instance.threads.fork(instance.threads.head(first).commit)
    step(instance, first, usage=usage(100, 10), model="other", cost=0.125)
    step(instance, fork, role="critic")
    instance.threads.archive(instance.threads.head(first), "completed")
    return {"first": first, "fork": fork}


def test_stats_count_a_shared_step_once_and_ended_threads_too(uwf: Uwf, spending: dict[str, str]) -> None:
    found = uwf("stats").json
    assert found["by"] == "workflow"
    assert found["groups"] == [{"workflow": "pair", **found["total"]}]
    assert found["total"] == {
        "steps": 3,
        "attempts": 0,
        "seconds": 61.0,
        "input": 1000,
        "output": 60,
        "cached": 0,
        "written": 0,
        "cost": round(0.0018 + 0.0005 + 0.125, 6),
        "unpriced": 0,
        "unmetered": 1,
    }
    of_fork = uwf("stats", spending["fork"]).json
    assert [(each["step"], each["role"], each["input"], each["cost"]) for each in of_fork["groups"]] == [
        (1, "writer", 900, 0.0023),
        (2, "critic", None, None),
    ]
    by_thread = uwf("stats", "--by", "thread").json["groups"]
    assert {each["thread"]: each["steps"] for each in by_thread} == {
        spending["first"]: 2,
        spending["fork"]: 1,
    }
    assert uwf("stats", "--since", "2001-01-01", "--until", "2002-01-01").json["groups"] == []
    assert uwf("stats", "--since", "yesterday", check=2).error["hint"]


def test_daily_stats_add_up_to_the_groups_and_the_total(uwf: Uwf, spending: dict[str, str]) -> None:
    value = uwf("stats", "--by", "agent", "--daily").json
    assert value["days"] and "days" not in uwf("stats", "--by", "agent").json
    for day in value["days"]:
        assert sum(part["steps"] for part in day["parts"]) == day["steps"]
        assert sum(part["input"] or 0 for part in day["parts"]) == (day["input"] or 0)
    assert sum(day["steps"] for day in value["days"]) == value["total"]["steps"]
    names = {part["agent"] for day in value["days"] for part in day["parts"]}
    assert names == {group["agent"] for group in value["groups"]}
    shown = uwf("stats", "--by", "agent", "--daily", "--format", "text").out
    head = next(line for line in shown.splitlines() if line.startswith("day"))
    assert head.split()[-1] == "all" and value["days"][0]["day"] in shown


def test_stats_are_a_table_for_people_and_a_chart_on_request(uwf: Uwf, spending: dict[str, str]) -> None:
    shown = uwf("stats", "--by", "model", "--plot", "cost.svg", "--format", "text").out
    assert re.search(r"^other +1 +100 +0 +10 +\$0\.1250 +0s$", shown, re.MULTILINE), shown
    assert re.search(r"^unknown +1 +– +– +– +– +0s$", shown, re.MULTILINE), shown
    assert "1 agent run reported neither tokens nor cost" in shown
    chart = ElementTree.fromstring(Path("cost.svg").read_text(encoding="utf-8"))
    texts = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "US dollars by model"
    assert {"other", "$0.1250", "big-1", "$0.0023", "unknown", "–"} <= set(texts)
    assert "cannot be written" in uwf("stats", "--plot", "nowhere/x.svg", check=1).error["message"]


@given(st.lists(st.tuples(st.text(), st.none() | st.floats(0, 1e9), st.text()), max_size=5), st.text())
def test_a_chart_is_sound_xml_whatever_names_there_are(bars: list[Any], title: str) -> None:
    chart = bar_chart(title, "note", [Bar(*bar) for bar in bars])
    assert chart == bar_chart(title, "note", [Bar(*bar) for bar in bars])
    root = ElementTree.fromstring(chart)
    drawn = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("class") == "bar"]
    assert all(0 < float(rect.attrib["width"]) <= float(root.attrib["width"]) for rect in drawn)
