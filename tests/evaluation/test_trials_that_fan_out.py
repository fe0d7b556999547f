"""Cases of a workflow that fans out: how a trial ends, whose its branches are, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from workflows import opened

from uwf_git.base.errors import WorkflowFailed
from uwf_git.engine.lineage import kin
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store.history import ancestry

COUNT = """\
name: count
description: Counts the words of each file, and adds them up.
roles:
  lister:
    description: Names files.
    systemPrompt: Name the files.
    outputSchema: {type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}
  counter:
    description: Counts words.
    systemPrompt: Count the words.
    outputSchema: {type: object, properties: {words: {type: integer}}, required: [words]}
  adder:
    description: Adds up.
    systemPrompt: Add them up.
    outputSchema: {type: object, properties: {total: {type: integer}}, required: [total]}
graph:
  $START: [{role: lister}]
  lister: [{each: $last().files, as: file, role: counter, prompt: "{{ file }}", POLICY join: adder}]
  adder: [{role: $END}]
"""
PLAY = """
import json, sys
context = json.load(sys.stdin)
if "bad" in context["start"]["prompt"]:
    sys.exit("cannot count")
print(json.dumps({"files": FILES, "words": 1, "total": 2}))
"""


class Counting:
    """A store with the workflow, and an agent that plays all its roles."""

    def __init__(self, uwf: Uwf) -> None:
        self.uwf = uwf

    def put(self, policy: str = "", files: tuple[str, ...] = ("a", "b")) -> None:
        Path("count.yaml").write_text(COUNT.replace("POLICY", policy))
        Path("play.py").write_text(PLAY.replace("FILES", json.dumps(files)))
        self.uwf("workflow", "put", "count.yaml")
        self.uwf("config", "set", "agents.plays.command", f"uwf-exec python3 {Path('play.py').absolute()}")
        self.uwf("config", "set", "defaultAgent", "plays")

    def thread(self, check: int = 0) -> str:
        """A thread that has run to its end."""
        thread = str(self.uwf("thread", "start", "count", "-p", "Count").json["thread"])
        self.uwf("thread", "run", thread, check=check)
        return thread

    def result(self, *args: str, check: int = 0) -> Any:
        (result,) = self.uwf("eval", "run", "s", *args, check=check).json["results"]
        return result

    def threads(self) -> dict[str, Any]:
        return {each["thread"]: each for each in self.uwf("thread", "list", "--all", "--branches").json}

    def branches_of(self, thread: str) -> list[str]:
        """The statuses of a thread's branches."""
        return [each["status"] for each in self.threads().values() if each["parent"] == thread]


@pytest.fixture
def counting(uwf: Uwf, hermetic: Path) -> Counting:
    made = Counting(uwf)
    made.put()
    return made


def test_without_judges_a_trial_whose_branch_failed_its_thread_does_not_pass(counting: Counting) -> None:
    counting.put("onFailure: fail,", ("a", "bad"))
    thread = counting.thread(check=WorkflowFailed.exit_status)
    counting.uwf("eval", "add", thread, "--to", "s")
    result = counting.result()
    assert (result["state"], result["score"]) == ("failed", 0.0)
    assert result["error"].startswith("the thread ended as failed: ")
    known = counting.uwf("eval", "run", "s", "--format", "text").out
    assert known.startswith("failed") and "the thread ended as failed: " in known
    assert "0 trials passed (no judge: each completed), 1 failed; score 0.00" in known
    counting.uwf("verify", "--all")


def test_branches_stay_those_of_the_thread_that_forked_them(counting: Counting) -> None:
    thread = counting.thread()
    counting.uwf("eval", "add", f"{thread}@4", "--to", "s")
    result = counting.result()
    assert result["state"] == "passed" and result["thread"] < thread
    assert counting.branches_of(thread) == ["completed", "completed"]
    assert counting.branches_of(result["thread"]) == []
    instance = opened()
    trial = instance.threads.head(ThreadId(result["thread"]))
    rows = [row for row in ancestry(instance.store, trial.commit) if row.kind in ("step", "start")]
    _, tree, _ = kin(instance, trial, rows[::-1])
    assert (tree.head.thread, [each.how for each in tree.below if each.head == trial]) == (thread, ["fork"])
    assert {instance.threads.oldest_with(Oid(raw=row.oid)) for row in rows[1:]} == {thread}
