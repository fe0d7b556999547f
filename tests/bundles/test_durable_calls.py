"""Each call of a code workflow is durable by itself: a thread that has its answer, found again by what was asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from cli_samples import write
from conftest import Uwf
from noting_agent import Asked, noting

FAN = """\
import asyncio
SAID = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
ALL = {"type": "object", "properties": {"all": {"type": "array"}}}
descriptor = {"name": "fan", "description": "Three.", "roles": {"all": {"description": "look", "schema": ALL}}}

async def run(input, options):
    async def look(what):
        return await options.extract(SAID, "What it said.", await options.agents.scripted(prompt=what, schema=SAID))
    found = await asyncio.gather(*map(look, ["one", "two", "three", "one"]))
    yield {"role": "all", "content": "", "meta": {"all": [each["said"] for each in found]}}
    options.finish({"done": True})
"""


@pytest.fixture
def asked(config: Callable[[str], Path]) -> Asked:
    return noting(config)


def begun(uwf: Uwf) -> str:
    uwf("workflow", "put", write("fan.py", FAN))
    return str(uwf("thread", "start", "fan", "-p", "Do it").json["thread"])


def calls_of(uwf: Uwf, thread: str) -> dict[str, list[dict[str, Any]]]:
    """The threads of calls by their status."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in uwf("thread", "list", "--all").json:
        if each["thread"] != thread:
            found.setdefault(each["status"], []).append(each)
    return found


def test_only_the_call_that_failed_is_asked_again(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("broken").write_text("two")
    error = uwf("thread", "step", thread, check=6).error
    assert "exited with 1" in error["message"]
    assert asked() == ["one", "one", "three", "two"]
    assert {status: len(each) for status, each in calls_of(uwf, thread).items()} == {
        "completed": 3,
        "failed": 1,
    }

    Path("broken").unlink()
    Path("asked").unlink()
    uwf("thread", "step", thread)
    assert asked() == ["two"]
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"]["all"] == ["ONE", "TWO", "THREE", "ONE"]
    (call,) = (each for each in calls_of(uwf, thread)["completed"] if each["title"] == "two")
    (attempt,) = uwf("thread", "attempts", call["thread"]).json
    assert "exited with 1" in attempt["error"]
    store = Path(os.environ["UWF_STORAGE_ROOT"]) / "store.git"
    parents = commands.git(
        "--git-dir", store, "log", "-1", "--format=%P", f"refs/uwf/threads/{thread}"
    ).split()
    ends = "for-each-ref", "--format=%(*objectname)", "refs/uwf/archive/"
    tips = commands.git("--git-dir", store, *ends).split()
    assert len(parents) == 5 and set(parents[1:]) == set(tips)
    uwf("verify", "--strict")


def test_answers_outlive_a_kill_of_everything_at_once(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("slow").write_text("three")
    step = commands.begin("thread", "step", thread, start_new_session=True)
    while len(calls_of(uwf, thread).get("completed", [])) < 3 or not Path("waits").exists():
        assert step.poll() is None, step.communicate()
    os.kill(step.pid, signal.SIGKILL)
    step.wait()
    Path("slow").unlink()
    Path("asked").unlink()
    os.kill(int(Path("waits").read_text()), signal.SIGKILL)
    while uwf("thread", "step", thread, check=None).code == 4:
        pass  # until the conversation with the killed agent has ended too
    assert asked() == ["three"]
    assert uwf("thread", "steps", thread).json[0]["output"]["all"] == ["ONE", "TWO", "THREE", "ONE"]


def test_forks_share_what_was_answered_before_they_parted_and_it_is_paid_once(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    uwf("thread", "step", thread)
    Path("asked").unlink()
    fork = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    uwf("thread", "step", fork)
    assert asked() == []
    assert uwf("thread", "steps", fork).json[0]["output"] == uwf("thread", "steps", thread).json[0]["output"]


def test_a_call_is_stepped_by_its_caller_alone_and_ends_with_it(uwf: Uwf, asked: Asked) -> None:
    thread = begun(uwf)
    Path("broken").write_text("two")
    uwf("thread", "step", thread, check=6)
    (call,) = calls_of(uwf, thread)["failed"]
    error = uwf("thread", "step", call["thread"], check=None).error
    assert f"uwf thread step {thread}" in error["hint"]
    assert uwf("thread", "show", "@").json["thread"] == thread
    uwf("thread", "kill", thread)
    shown = uwf("thread", "show", call["thread"]).json
    assert shown["status"] == "killed" and "exited with 1" in shown["reason"]
