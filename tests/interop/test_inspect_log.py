"""Logs of suites' runs, as Inspect reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from conftest import Uwf
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ModelUsage
from suite_bench import SOLVE

AGENT = """
import json
from uwf_git.kit import Reply, TurnRecord, Usage, create_agent

def answer(context):
    if context.role.name == "checker":
        return Reply(json.dumps({"approved": True}))
    text = context.history.start.prompt.upper()
    turns = (
        TurnRecord("assistant", "I look.", model="maker/small"),
        TurnRecord("tool", "", "read_file", {"path": "notes.txt"}, "no such file", call="c1", failed=True),
        TurnRecord("assistant", json.dumps({"answer": text}), model="maker/small"),
    )
    return Reply("", model="maker/small", usage=Usage(100, 20, 60), turns=turns, output={"answer": text}, cost=0.5)

agent = create_agent("uwf-solves", answer)
agent.main()
"""


def test_inspect_reads_a_run_with_its_messages_scores_and_usage(
    uwf: Uwf, script: Callable[[str, str], Path]
) -> None:
    Path("solve.yaml").write_text(SOLVE)
    uwf("workflow", "put", "solve.yaml")
    judge = {"name": "same", "exact": ["approved"]}
    cases = [
        {"name": name, "prompt": prompt, "expected": {"approved": approved}, "judges": [judge]}
        for name, prompt, approved in (("one", "abc", True), ("two", "de", False))
    ]
    Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    uwf("eval", "import", "cases.jsonl", "--to", "bugs", "--workflow", "solve")
    uwf("eval", "run", "bugs", "--agent", str(script("solves", AGENT)), "--repeat", "2", check=None)
    Path("logs").mkdir()
    uwf("eval", "report", "bugs", "--inspect", "logs")

    [listed] = list_eval_logs("logs")
    log = read_eval_log(listed)
    assert (log.status, log.eval.task, log.eval.model, log.eval.config.epochs) == (
        "success",
        "bugs",
        "maker/small",
        2,
    )
    assert log.results is not None and log.results.completed_samples == 4
    assert log.results.scores[0].name == "same" and log.results.scores[0].metrics["mean"].value == 0.5
    assert log.stats.model_usage["maker/small"] == ModelUsage(
        input_tokens=160,
        output_tokens=80,
        total_tokens=480,
        input_tokens_cache_read=240,
        input_tokens_cache_write=0,
        total_cost=2.0,
    )
    assert log.samples is not None
    assert [(sample.id, sample.epoch) for sample in log.samples] == [
        ("one", 1),
        ("one", 2),
        ("two", 1),
        ("two", 2),
    ]
    sample = log.samples[0]
    assert sample.input == "abc" and sample.scores is not None and sample.scores["same"].value == 1
    roles = [message.role for message in sample.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "assistant"]
    looked, tool = sample.messages[1], sample.messages[2]
    assert (
        looked.tool_calls[0].function == "read_file" and looked.tool_calls[0].id == tool.tool_call_id == "c1"
    )
    assert tool.error.message == "no such file" and tool.text == "no such file"
    assert json.loads(sample.messages[3].text) == {"answer": "ABC"}
    assert json.loads(sample.output.completion) == {"approved": True}
