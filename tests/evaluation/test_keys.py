"""What a result stands for: who played each role, within what limits, and in which thread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Uwf
from suite_bench import Bench

INNER = """\
name: inner
description: One says it.
roles:
  worker:
    description: Says it.
    systemPrompt: Say it.
    outputSchema: {type: object, properties: {n: {type: number}}, required: [n]}
graph: {$START: [{role: worker}], worker: [{role: $END}]}
"""
OUTER = INNER.replace("name: inner", "name: outer").replace("worker", "asker")


@pytest.fixture
def nested(uwf: Uwf) -> Uwf:
    """A workflow whose role is done by another one, whose role `says.json` plays."""
    for name, text in (("inner", INNER), ("outer", OUTER)):
        Path(f"{name}.yaml").write_text(text)
        uwf("workflow", "put", f"{name}.yaml")
    uwf("config", "set", "agents.sub.command", "uwf-workflow inner")
    uwf("config", "set", "agentOverrides.outer.asker", "sub")
    says(uwf, 1)
    return uwf


def says(uwf: Uwf, number: int) -> None:
    """Has another agent play the inner role."""
    Path(f"says-{number}.json").write_text(json.dumps({"n": number}))
    agent = f"uwf-exec cat {Path(f'says-{number}.json').absolute()}"
    uwf("config", "set", "agentOverrides.inner.worker", agent)


def score_of(uwf: Uwf, *args: str) -> tuple[float | None, int]:
    value = uwf("eval", "run", "s", *args).json
    return value["results"][0]["score"], value["fresh"]


@pytest.mark.parametrize("who", ["agent", "juror"])
def test_another_agent_within_a_sub_workflow_is_another_one(nested: Uwf, bench: Bench, who: str) -> None:
    uwf = nested
    case = {"name": "one", "prompt": "say a", "judges": ["jsonata:output.n"]}
    named = ["--workflow", "outer"]
    if who == "juror":
        case["judges"] = [{"workflow": "outer", "output": "steps[-1].output.n", "name": "j"}]
        named, args = ["--workflow", "solve"], ["--agent", bench.agent]
    Path("cases.jsonl").write_text(f"{json.dumps(case)}\n")
    uwf("eval", "import", "cases.jsonl", "--to", "s", *named)
    args = ["--agent", bench.agent] if who == "juror" else []
    assert score_of(uwf, *args) == (1, 1)
    assert score_of(uwf, *args) == (1, 0)
    says(uwf, 0)
    assert score_of(uwf, *args) == (0, 1)
    says(uwf, 1)
    assert score_of(uwf, *args) == (1, 0)


def test_what_is_known_counts_within_the_limits_of_now(bench: Bench) -> None:
    case = {"name": "one", "prompt": "say a"}
    bench.imports([case])
    assert bench.results() == [("one", "passed", 1.0)]
    found = bench.run("--max-steps", "1").json
    assert [(each["status"], each["score"]) for each in found["results"]] == [("limited", 0.0)]
    bench.imports([{**case, "limits": {"maxSteps": 1}}])
    (result,) = bench.run().json["results"]
    assert (result["status"], result["error"]) == ("limited", "maxSteps is used up, 1 of 1 step")
    assert bench.run().json["fresh"] == 0
    bench.imports([{**case, "limits": {"maxSteps": 2, "maxWallTime": 600}}])
    assert bench.results() == [("one", "passed", 1.0)]
    assert bench.calls == 2  # of the first run alone


def test_repeats_that_are_begun_at_once_are_found_again(bench: Bench) -> None:
    bench.imports([{"name": str(number), "prompt": f"say {number}"} for number in range(4)])
    results = bench.run("--repeat", "2", "-j", "4").json["results"]
    threads = {each["thread"] for each in results}
    assert len(threads) == 8 and None not in threads
    # What broke off looks for the threads that were begun, by what they are for alone.
    bench.uwf("eval", "remove", "bugs", "--yes")
    bench.imports([{"name": str(number), "prompt": f"say {number}"} for number in range(4)])
    again = bench.run("--repeat", "2").json["results"]
    assert {each["thread"] for each in again} == threads and bench.calls == 16
