"""Threads of bundles: what a step hands to the code and takes from it, what a run keeps, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundle_files import TURNS
from cli_samples import write
from conftest import Uwf


@pytest.fixture
def turns(uwf: Uwf) -> str:
    """A fresh thread of the bundle `turns`."""
    uwf("workflow", "put", write("turns.esm.js", TURNS))
    return start(uwf)


def start(uwf: Uwf, task: str = "Do it", *more: str) -> str:
    return str(uwf("thread", "start", "turns", "-p", task, *more).json["thread"])


def told(uwf: Uwf, thread: str) -> list[dict[str, Any]]:
    """What the steps of roles say that they were given, oldest first."""
    steps = uwf("thread", "steps", thread).json
    made = [uwf("cas", "get", each["detail"]).json for each in steps if each["role"] in ("maker", "judge")]
    return [json.loads(each["payload"]["answer"]) for each in made]


def test_a_step_is_one_yield_and_hands_the_code_the_whole_history(uwf: Uwf, turns: str) -> None:
    first = uwf("thread", "step", turns).json
    assert (first["role"], first["agent"], first["done"], first["status"]) == (
        "maker",
        "uwf-bundle",
        False,
        "idle",
    )
    assert uwf("thread", "show", turns).json["next"] == "$BUNDLE"
    assert uwf("thread", "step", turns).json["role"] == "judge"

    one, two = told(uwf, turns)
    assert (one["threadId"], one["heard"], one["maxRounds"]) == (turns, [], "Infinity")
    (heard,) = two["heard"]
    steps = uwf("thread", "steps", turns).json
    assert (heard["role"], heard["meta"], json.loads(heard["content"])) == ("maker", {"n": 0}, one)
    assert steps[0]["time"].startswith(_iso(heard["timestamp"]))
    assert two["process_"] != one["process_"]
    uwf("verify", "--strict")


def test_a_run_keeps_the_process_and_the_result_is_the_last_output(uwf: Uwf, turns: str) -> None:
    uwf("thread", "step", turns)
    lines = uwf("thread", "run", turns).lines
    assert [(each["role"], each["status"]) for each in lines] == [
        ("judge", "idle"),
        ("maker", "idle"),
        ("judge", "idle"),
        ("$END", "completed"),
    ]
    processes = [each["process_"] for each in told(uwf, turns)]
    assert len(set(processes)) == 2 and len(set(processes[1:])) == 1
    assert uwf("thread", "steps", turns).json[-1]["output"] == {"summary": "4 steps", "answers": []}
    shown = uwf("--format", "text", "thread", "show", turns).out
    assert "result (uwf-bundle)" in shown and "$END" not in shown
    uwf("verify", "--strict")


def test_a_fork_goes_on_from_a_shorter_history(uwf: Uwf, turns: str) -> None:
    uwf("thread", "run", turns)
    fork = uwf("thread", "fork", turns, "--at", "2").json["thread"]
    uwf("thread", "run", fork)
    shared, own = told(uwf, fork)[:2], told(uwf, fork)[2:]
    assert shared == told(uwf, turns)[:2]
    assert [len(each["heard"]) for each in own] == [2, 2] and {each["threadId"] for each in own} == {fork}


def test_a_question_waits_for_an_answer_that_the_code_is_then_given(uwf: Uwf, turns: str) -> None:
    thread = start(uwf, "ask")
    assert uwf("thread", "run", thread, check=5).error["code"] == "waiting"
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["asks"], shown["question"]) == ("waiting", "judge", "Go on?")
    uwf("thread", "answer", thread, "-m", "Yes, do")
    uwf("thread", "run", thread)
    assert uwf("thread", "steps", thread).json[-1]["output"]["answers"] == ["Yes, do"]
    uwf("verify", "--strict")


def test_a_thread_that_would_go_on_after_its_last_round_ends_without_a_result(uwf: Uwf, turns: str) -> None:
    thread = start(uwf, "Do it", "--max-rounds", "2")
    error = uwf("thread", "run", thread, check=1).error
    assert error["code"] == "out_of_rounds" and "maxRounds: 2 rounds are done" in error["message"]
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["reason"]) == ("killed", "maxRounds: 2 rounds are done")
    assert [each["maxRounds"] for each in told(uwf, thread)] == ["2", "2"]
    assert uwf("thread", "attempts", thread).json == []

    enough = start(uwf, "Do it", "--max-rounds", "4")
    assert uwf("thread", "run", enough).lines[-1]["status"] == "completed"
    uwf("verify", "--strict")


def _iso(milliseconds: int) -> str:
    from uwf_git.text import iso

    return iso(milliseconds // 1000).removesuffix("Z")
