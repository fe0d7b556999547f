"""A remark to a running ACP agent: its turn is cancelled when its calls have ended, and it goes on with the remark."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from acp_steps import Scripted
from commands import begin, wait_until
from conftest import Uwf

from uwf_git.ext.agents.acp.conversation import Conversation
from uwf_git.store.instance import Instance

TEXT = "Keep the old flag working."


@pytest.fixture
def storage(instance: Instance) -> Path:
    return instance.location.root


def at_work(uwf: Uwf, steps: Scripted) -> subprocess.Popen[str]:
    """A step whose agent has made a call, and takes remarks."""
    process = begin("thread", "step", steps.thread)
    wait_until(lambda: steps.noted("steer") != [], "the agent works")
    return process


def say(uwf: Uwf, steps: Scripted, text: str = TEXT) -> dict[str, Any]:
    remark: dict[str, Any] = uwf("thread", "say", steps.thread, "-m", text).json["remark"]
    return remark


def ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def roles(uwf: Uwf, steps: Scripted) -> list[str]:
    return [step["role"] for step in uwf("thread", "steps", steps.thread).json]


def is_sound(uwf: Uwf) -> None:
    assert uwf("verify", "--all").json["findings"] == []


@pytest.mark.parametrize("how", ["", "fail"])
def test_its_turn_is_cancelled_and_it_goes_on_with_the_remark_in_the_same_session(
    uwf: Uwf, storage: Path, how: str
) -> None:
    steps = Scripted(storage, f"steer:{how}", "answer")
    process = at_work(uwf, steps)
    said = say(uwf, steps)
    assert said["state"] in ("pending", "taken") and said["agent"].startswith("uwf-acp/")
    ended(process)
    assert len(steps.noted("cancel")) == len(steps.noted("new")) == 1
    _, second = steps.noted("prompt")
    assert second.startswith(f"{TEXT}\n\nA person said this while you worked")
    turns = uwf("thread", "turns", steps.thread).json
    told = [turn.get("tool") or (turn["role"], turn["text"]) for turn in turns]
    assert told[:3] == ["execute", ("assistant", "Interrupted."), ("user", TEXT)]
    assert told[3][0] == "assistant" and told[3][1].startswith("---\nsummary: It is done.")
    assert turns[2]["remark"]["by"] == "Ada Example <ada@example.invalid>"
    assert roles(uwf, steps) == ["worker"]
    assert "remarks" not in uwf("thread", "show", steps.thread).json
    opened = Instance.open()
    (step,) = opened.threads.history(opened.threads.head(steps.thread)).steps
    detail = opened.store.detail(step.detail)
    assert detail is not None and detail.usage is not None
    if how:
        assert any("counted no tokens" in note for note in detail.notes)
    else:
        assert detail.usage.input == 290 and not detail.notes
    is_sound(uwf)


def test_a_turn_is_cancelled_only_between_a_call_that_has_ended_and_what_follows() -> None:
    conversation = Conversation(lambda turn: None)

    def between(what: str, **update: Any) -> bool:
        conversation.update({"sessionUpdate": what, **update})
        return conversation.is_between

    assert not conversation.is_between
    assert not between("agent_message_chunk", content={"type": "text", "text": "I look."})
    assert not between("tool_call", toolCallId="1", status="in_progress")
    assert not between("tool_call", toolCallId="2", status="pending")
    assert not between("tool_call_update", toolCallId="1", status="completed")
    assert between("tool_call_update", toolCallId="2", status="failed")
    assert between("usage_update", used=1, size=2)
    assert not between("agent_thought_chunk", content={"type": "text", "text": "Hm."})
    assert not between("tool_call", toolCallId="3", kind="execute")
    assert between("tool_call_update", toolCallId="3", status="completed")


def test_no_call_is_broken_off_for_a_remark(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "steer:open", "answer")
    process = at_work(uwf, steps)
    say(uwf, steps)
    Path("go").touch()
    ended(process)
    assert steps.noted("cancel") == [] and len(steps.noted("prompt")) == 1
    assert roles(uwf, steps) == ["worker", "$USER"]
    is_sound(uwf)


def test_an_agent_that_ignores_the_cancellation_ends_its_turn_and_the_next_prompt_has_the_remark(
    uwf: Uwf, storage: Path
) -> None:
    steps = Scripted(storage, "steer:deaf", "answer")
    process = at_work(uwf, steps)
    say(uwf, steps)
    wait_until(lambda: steps.noted("cancel") != [], "it is cancelled")
    Path("go").touch()
    ended(process)
    assert len(steps.noted("prompt")) == 1
    assert roles(uwf, steps) == ["worker", "$USER"]
    uwf("thread", "step", steps.thread)
    assert f"The user remarks:\n\n{TEXT}" in steps.noted("prompt")[-1]
    is_sound(uwf)


def test_several_remarks_are_told_in_their_order(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "steer:", "steer:", "answer")
    process = at_work(uwf, steps)
    say(uwf, steps, "One.")
    wait_until(lambda: len(steps.noted("steer")) == 2, "it goes on")
    say(uwf, steps, "Two.")
    ended(process)
    texts = [turn["text"] for turn in uwf("thread", "turns", steps.thread).json if turn["role"] == "user"]
    assert texts == ["One.", "Two."]
    assert [prompt.partition("\n")[0] for prompt in steps.noted("prompt")[1:]] == texts
    assert roles(uwf, steps) == ["worker"]
    is_sound(uwf)
