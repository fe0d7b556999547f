"""Answers made to take the engine's time, each on its whole way: from what an agent printed to a step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_samples import ONE, write
from conftest import Uwf

OPEN = ONE.replace("{n: {type: integer}}", "{n: {type: integer}, note: {type: string}}")
CLOSED = ONE.replace("required: [n]", "additionalProperties: false, required: [n]")
PATTERNS = ONE.replace("required: [n]", "patternProperties: {^k1: {type: integer}}, required: [n]")
CONDITION = """\
  r:
    - {role: r, condition: again}
    - {role: $END}
conditions:
  again: {description: Again, expression: "steps[-1].output.k7 = 2"}
"""
DECIDED = OPEN.replace("  r: [{role: $END}]\n", CONDITION)

YAML_KEYS = "---\nn: 1\n" + "".join(f"k{number}: 1\n" for number in range(19_000)) + "---\nhi"
JSON_KEYS = '{"n": 1' + "".join(f', "k{number}": 1' for number in range(60_000)) + "}"
ODD_KEYS = '{"n": 1' + "".join(f', "k-{number} .*": 1' for number in range(40_000)) + "}"
ALIASES = (
    "---\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n---"
)


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("workflow", "answer", "status"),
    [
        pytest.param(OPEN, YAML_KEYS, "completed", id="many YAML keys"),
        pytest.param(OPEN, f"Here it is:\n```json\n{JSON_KEYS}\n```\n", "completed", id="in a fence"),
        pytest.param(CLOSED, JSON_KEYS, "completed", id="a schema without others"),
        pytest.param(OPEN, JSON_KEYS, "completed", id="many JSON keys"),
        pytest.param(PATTERNS, JSON_KEYS, "completed", id="a schema with patterns"),
        pytest.param(DECIDED, JSON_KEYS, "completed", id="a condition over one of them"),
        pytest.param(DECIDED, ODD_KEYS, "completed", id="keys of no word characters"),
        pytest.param(OPEN, JSON_KEYS.replace('"n"', '"nn"'), "failed", id="a misspelt key before many"),
        pytest.param(OPEN, "---\na: x" + " " * 300_000 + "y: z\n---", "failed", id="blanks in a value"),
        pytest.param(OPEN, "```" + " " * 300_000 + "!", "failed", id="blanks after a fence"),
        pytest.param(OPEN, "---\nb: 1\n" * 50_000, "failed", id="many blocks"),
        pytest.param(OPEN, "---\na: " + "[" * 300_000 + "\n---", "failed", id="open brackets"),
        pytest.param(OPEN, ALIASES, "failed", id="aliases of aliases"),
    ],
)
@pytest.mark.timeout(60)
def test_hostile_answers_take_no_time(uwf: Uwf, workflow: str, answer: str, status: str) -> None:
    Path("answer").write_text(answer)
    uwf("workflow", "put", write("one.yaml", workflow))
    thread = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    uwf(
        "thread",
        "step",
        thread,
        "--agent",
        "uwf-exec cat answer",
        check=0 if status == "completed" else 6,
        timeout=30,
    )
    assert uwf("thread", "show", thread).json["status"] == status


@pytest.mark.parametrize("depth", [300, 700])
def test_a_deep_output_is_refused_with_its_depth_and_not_an_internal_error(
    uwf: Uwf, thread: str, depth: int
) -> None:
    write("deep.py", f"print('{{\"text\":' + '[' * {depth} + ']' * {depth} + '}}')")
    refused = uwf("thread", "step", thread, "--agent", f"uwf-exec {sys.executable} deep.py", check=6).error
    assert "internal" not in refused["message"], refused
    assert len(uwf("thread", "attempts", thread).json) == 1
