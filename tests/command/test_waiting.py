"""Waiting for threads: the exit status is that of their run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ASKS, PAIR, scripted, write
from commands import alive, wait_for
from conftest import Begin, Uwf

FAILS = """\
name: fails
roles:
  check:
    description: Checks.
    systemPrompt: Check.
    outputSchema: {type: object, properties: {status: {enum: [passed, failed]}}, required: [status]}
graph:
  $START: {_: check}
  check: {passed: $END, failed: {end: failed, reason: "it is broken"}}
"""

# Nothing leads on from a critic who approves of the first text.
STUCK = PAIR.replace("{ role: $END }]", "{ role: $END, condition: late }]").replace(
    "graph:", '  late: { description: Late., expression: "$count(steps) > 90" }\ngraph:'
)


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("- { role: writer, output: { text: a } }\n- { role: critic, output: { approved: true } }\n", 0, ""),
        (ASKS, 5, "waiting"),
        ("- { role: writer, exit: 3 }\n", 6, "agent_failed"),
    ],
)
def test_a_wait_ends_with_the_status_of_the_run(
    uwf: Uwf, thread: str, script: str, status: int, code: str
) -> None:
    assert uwf("thread", "run", thread, "--agent", scripted(script), check=None).code == status
    waited = uwf("thread", "wait", thread, check=status)
    assert waited.json["status"] == "completed" if status == 0 else waited.error["code"] == code


def test_a_failed_end_and_a_graph_without_a_way_on_have_the_status_of_their_run(uwf: Uwf) -> None:
    approves = scripted(
        "- { role: writer, output: { text: a } }\n- { role: critic, output: { approved: true } }\n"
    )
    for text, agent, status in ((FAILS, "uwf-exec false", 10), (STUCK, approves, 1)):
        begun = uwf("run", f"./{write('some.yaml', text)}", "-p", "x", "--agent", agent, check=status)
        thread = begun.lines[0]["thread"]
        assert uwf("thread", "wait", thread, check=status).error["code"] == begun.error["code"]


@pytest.mark.parametrize(
    ("command", "status", "code"),
    [("pause", 5, "paused"), ("kill", 1, "invalid"), ("show", 11, "not_running")],
)
def test_a_thread_that_nobody_runs_says_why_it_rests(
    uwf: Uwf, thread: str, command: str, status: int, code: str
) -> None:
    uwf("thread", command, thread)
    assert uwf("thread", "wait", thread, check=status).error["code"] == code


def test_a_budget_that_is_used_up_waits_for_a_person(uwf: Uwf) -> None:
    write("pair.yaml", PAIR)
    started = uwf("thread", "start", "./pair.yaml", "-p", "x", "--max-steps", "1").json["thread"]
    uwf("thread", "run", started, check=5)
    assert "uwf thread budget" in uwf("thread", "wait", started, check=5).error["hint"]


def test_of_several_threads_each_is_told_and_the_highest_status_counts(uwf: Uwf, thread: str) -> None:
    done = uwf("thread", "fork", thread).json["thread"]
    uwf("thread", "run", done)
    waited = uwf("thread", "wait", thread, done, "zzzz0000", check=11)
    assert [each["thread"] for each in waited.json] == [done]
    errors = [json.loads(line)["error"] for line in waited.err.splitlines()]
    assert [each["code"] for each in errors] == ["not_found", "not_running"] and thread in errors[1][
        "message"
    ]


def test_an_interrupted_wait_leaves_the_run(
    uwf: Uwf, thread: str, begin: Begin, script: Callable[[str, str], Path]
) -> None:
    work = "import os, time\nfrom pathlib import Path\nPath('work').write_text(str(os.getpid()))\n"
    agent = script("work", work + "while not Path('go').exists(): time.sleep(0.02)\nprint('text: x')\n")
    uwf("thread", "run", thread, "--detach", "--max-steps", "1", "--agent", f"uwf-exec {agent}")
    worker = wait_for(Path("work"))
    waiting: Any = begin("thread", "wait", thread, env={"UWF_LOG": "debug", "UWF_LOG_STDERR": "1"})
    while "waits until no process works" not in waiting.stderr.readline():
        assert waiting.poll() is None
    os.kill(waiting.pid, signal.SIGINT)
    assert "what runs goes on" in waiting.communicate(timeout=30)[1]
    assert waiting.returncode == 130 and alive(worker)
    Path("go").touch()
    assert uwf("thread", "wait", thread, check=None).code in (6, 11)
