"""What comes next is remembered where it follows from the history, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Uwf

from uwf_git.engine.next_turn import outlook
from uwf_git.store.instance import Instance

WORKFLOW = """\
name: slow
description: Goes on by a condition, with a prompt that is made
roles:
  ender: {description: Ends, systemPrompt: End., outputSchema: {type: object}}
conditions:
  always: {description: yes, expression: "$count([1..3]) = 3"}
graph:
  $START: [{role: ender, condition: always, prompt: "{% for i in (1..9000) %}{{ i | times: i }} {% endfor %}"}]
  ender: [{role: $END}]
"""


@pytest.mark.parametrize(
    ("limit", "seconds", "problem"),
    [
        ("uwf_git.workflow.expression.SECONDS", 0.0, "takes longer than"),
        ("uwf_git.workflow.template.SECONDS", 0.001, "takes longer than"),
    ],
    ids=["a condition's time", "a template's time"],
)
def test_a_limit_that_is_exceeded_once_does_not_leave_the_thread_stuck(
    limit: str, seconds: float, problem: str, uwf: Uwf, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hermetic / "slow.yaml").write_text(WORKFLOW)
    thread = uwf("thread", "start", hermetic / "slow.yaml", "-p", "Go").json["thread"]
    instance = Instance.open()
    head = instance.threads.head(thread)
    with monkeypatch.context() as patch:
        patch.setattr(limit, seconds)
        assert problem in (outlook(instance, head).problem or "")
    assert outlook(Instance.open(), head).next == "ender"
    assert uwf("thread", "step", thread).json["done"]


def test_a_history_that_leads_nowhere_is_found_out_once(
    uwf: Uwf, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WORKFLOW.replace("= 3", "= 4")
    (hermetic / "stuck.yaml").write_text(text)
    thread = uwf("thread", "start", hermetic / "stuck.yaml", "-p", "Go", check=None).json["thread"]
    instance = Instance.open()
    head = instance.threads.head(thread)
    assert "no edge leads on" in (outlook(instance, head).problem or "")
    monkeypatch.setattr("uwf_git.workflow.moderator.decide", None)
    assert "no edge leads on" in (outlook(instance, head).problem or "")
