"""`uwf thread timeline`: the bars of a thread follow one another on one clock, and are bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import spent_threads as spent
from cli_samples import ASKS, scripted, write
from commands import begin, loose, wait_for
from conftest import Uwf
from fan_outs import ANSWER, FAN
from lived_in import LivedIn
from workflows import opened

from uwf_git.api.cockpit.run import SHOWN, run
from uwf_git.base.text import duration
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance


def view(instance: Instance, thread: ThreadId, before: int = 0) -> dict[str, Any]:
    return run(instance, instance.threads.head(thread), before)


def test_bars_follow_one_another_and_are_drawn_from_edge_to_edge(lived_in: LivedIn, uwf: Uwf) -> None:
    for thread in (lived_in.completed, lived_in.waiting, lived_in.failed, lived_in.over):
        bars = uwf("thread", "timeline", thread).json["bars"]
        assert bars
        end, place = 0.0, 0.0
        for bar in bars:
            assert abs(bar["begin"] - bar["waited"] - end) < 0.01 and bar["begin"] <= bar["end"]
            assert bar["drawn"] == sorted(bar["drawn"]) and bar["drawn"][0] == place
            end, place = bar["end"], bar["drawn"][2]
        assert place == pytest.approx(1)


def test_a_bar_is_as_long_as_its_agent_worked_and_has_its_cost(lived_in: LivedIn, uwf: Uwf) -> None:
    value = uwf("thread", "timeline", lived_in.completed).json
    first, second = value["bars"][:2]
    assert (first["number"], first["role"], first["kind"]) == (1, "planner", "step")
    assert (first["seconds"], second["seconds"]) == (41, 163) and second["end"] - second["begin"] == 163
    assert sum(bar["cost"] for bar in value["bars"]) == pytest.approx(value["cost"])
    assert (value["first"], value["last"], value["steps"]) == (1, 5, 5)


def test_failed_attempts_and_what_is_waited_for_have_bars(lived_in: LivedIn, uwf: Uwf) -> None:
    kinds = [bar["kind"] for bar in uwf("thread", "timeline", lived_in.failed).json["bars"]]
    assert kinds == ["step", "attempt"]
    over = uwf("thread", "timeline", lived_in.over).json
    assert over["bars"][-1]["kind"] == "waiting" and "maxCost is used up" in over["bars"][-1]["verdict"]
    assert over["share"] > 1 and over["budget"][0]["limit"] == "maxCost"


def test_an_answer_is_a_wait_and_no_work(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS), check=None)
    asked = uwf("thread", "timeline", thread).json["bars"][-1]
    assert (asked["kind"], asked["role"]) == ("waiting", "writer") and asked["begin"] == asked["end"]
    uwf("thread", "answer", thread, "-m", "1")
    answer = uwf("thread", "timeline", thread).json["bars"][1]
    assert (answer["kind"], answer["by"]) == ("answer", "Ada Example") and answer["begin"] == answer["end"]


def test_branches_stand_below_their_join_with_their_share_of_the_clock(uwf: Uwf) -> None:
    uwf("run", write("fan.yaml", FAN), "-p", "Fan out", "--agent", ANSWER)
    thread = next(each["thread"] for each in uwf("thread", "list", "--all").json if not each["parent"])
    bars = uwf("thread", "timeline", thread).json["bars"]
    assert [bar["kind"] for bar in bars] == ["step", "fork", "join", "step"]
    join = bars[2]
    assert [branch["role"] for branch in join["below"]] == ["one", "two", "three"]
    for branch in join["below"]:
        assert branch["thread"] and branch["verdict"] == "completed" and not branch["failed"]
        assert join["drawn"][1] <= branch["drawn"][1] <= branch["drawn"][2] <= join["drawn"][2]


def test_the_terminal_has_the_agents_time_of_each_branch_and_their_sum_for_the_join(uwf: Uwf) -> None:
    agent = ANSWER.replace("echo", "sh -c 'sleep 0.3; echo \"$0\"'")
    uwf("run", write("fan.yaml", FAN), "-p", "Fan out", "--agent", agent)
    thread = next(each["thread"] for each in uwf("thread", "list", "--all").json if not each["parent"])
    join = uwf("thread", "timeline", thread).json["bars"][2]
    lines = uwf("thread", "timeline", thread, "--format", "text").out.splitlines()
    for bar, role in ((join, "$JOIN"), *((branch, branch["role"]) for branch in join["below"])):
        (line,) = (line for line in lines if role in line.split())
        assert f" {duration(bar['seconds'])} " in line
    assert join["seconds"] == pytest.approx(sum(branch["seconds"] for branch in join["below"]), abs=0.01)


def test_a_step_in_progress_has_a_bar_that_grows(uwf: Uwf, thread: str, tmp_path: Path) -> None:
    mark = tmp_path / "began"
    running = begin("thread", "step", thread, "--agent", f"uwf-exec sh -c 'echo yes >{mark}; sleep 60'")
    try:
        wait_for(mark)
        value = uwf("thread", "timeline", thread).json
        (bar,) = value["bars"]
        assert (bar["kind"], bar["role"], bar["number"]) == ("running", "writer", 1)
        assert value["graph"]["nodes"][1]["turn"] == "now"
    finally:
        running.terminate()
        running.communicate(timeout=20)


def test_a_long_thread_has_bars_for_its_newest_steps(instance: Instance) -> None:
    thread = spent.start(instance)
    for _ in range(SHOWN + 3):
        spent.step(instance, thread, durationMs=2000)
    value = view(instance, thread)
    assert (value["first"], value["last"]) == (4, SHOWN + 3) and len(value["bars"]) == SHOWN
    assert value["bars"][0]["drawn"][0] == 0
    before = view(instance, thread, 4)
    assert (before["first"], before["last"], len(before["bars"])) == (1, 3, 3)


def test_what_cannot_be_read_is_named_and_the_rest_is_there(uwf: Uwf, instance: Instance, root: Path) -> None:
    thread = spent.start(instance)
    for _ in range(3):
        spent.step(instance, thread)
    step = instance.threads.history(instance.threads.head(thread)).steps[1]
    lost = instance.store.get(step.hash).payload["output"]
    loose(root / "store.git", str(instance.store.blob_of(lost))).unlink()
    value = uwf("thread", "timeline", thread).json
    assert [bar["number"] for bar in value["bars"]] == [1, 2, 3]
    assert value["bars"][1]["verdict"] == "cannot be read" and value["problems"]


def test_a_failed_attempt_that_cannot_be_read_hides_neither_steps_nor_others(
    uwf: Uwf, thread: str, root: Path
) -> None:
    from uwf_git.api.cockpit.step import step as step_view

    entries = [{"role": "writer", "exit": 1}, {"role": "writer", "exit": 2}]
    for script in (entries[:1], entries, [*entries, {"role": "writer", "output": {"text": "a"}}]):
        uwf("thread", "step", thread, "--agent", scripted(json.dumps(script)), check=None)
    store = opened()
    head = store.threads.head(ThreadId(thread))
    tip = store.attempts.tip(head.thread)
    assert tip is not None
    first, second = (row.node for row in store.attempts.rows(tip))
    assert [item["node"] for item in step_view(store, head, 1)["tried"]] == [first, second]
    loose(root / "store.git", str(store.store.blob_of(first))).unlink()
    value = uwf("thread", "timeline", thread).json
    assert [(bar["kind"], bar["node"]) for bar in value["bars"]] == [("attempt", second), ("step", head.node)]
    assert len(value["problems"]) == 1
    view = step_view(opened(), head, 1)
    assert [item["node"] for item in view["tried"]] == [second]
    assert view["result"]["output"]["value"] == {"text": "a"}
    assert view["prompt"]["text"]["left"].startswith("it cannot be made again: ")


def test_the_terminal_draws_the_same_without_what_steers_it(uwf: Uwf, thread: str) -> None:
    evil = "\x1b[31mred\u202e" + "x" * 10_000
    uwf(
        "thread",
        "step",
        thread,
        "--agent",
        scripted(json.dumps([{"role": "writer", "output": {"text": evil}}])),
    )
    shown = uwf("thread", "timeline", thread, "--format", "text").out
    assert "writer" in shown and "█" in shown and "idle" in shown
    assert "\x1b" not in shown and "\u202e" not in shown and max(map(len, shown.splitlines())) < 200
