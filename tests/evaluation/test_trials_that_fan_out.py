"""Cases of a workflow that fans out: how a trial ends, whose its branches are, and what becomes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf
from workflows import opened

from uwf_git.base.errors import WorkflowFailed
from uwf_git.engine.lineage import kin
from uwf_git.ext.evaluation.records import UNKNOWN, Case, identified
from uwf_git.ext.evaluation.suite import Additions, Suites
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


@pytest.mark.parametrize(("step", "named"), [(2, 1), (3, 4)])
def test_a_fork_or_a_join_is_no_case_and_the_next_step_of_a_role_is_named(
    counting: Counting, step: int, named: int
) -> None:
    thread = counting.thread()
    refused = counting.uwf("eval", "add", f"{thread}@{step}", "--to", "s", check=1).error
    assert "which the engine makes: there is no role to try" in refused["message"]
    assert refused["hint"] == f"name a step of a role, such as {thread}@{named}"
    counting.uwf("eval", "add", f"{thread}@{named}", "--to", "s")
    assert counting.result()["state"] == "passed"


def test_a_fork_that_is_a_case_from_before_is_not_tried(counting: Counting) -> None:
    thread = counting.thread()
    instance = opened()
    rows = ancestry(instance.store, instance.threads.head(ThreadId(thread)).commit)
    row = next(each for each in rows if each.role == "$FORK")
    assert row.role is not None and row.start is not None
    case = identified(Case(UNKNOWN, "fork", start=row.start, step=row.node, role=row.role))
    Suites(instance.store).add("s", Additions([case], commits=[Oid(raw=row.oid)]))
    before = counting.threads().keys()
    result = counting.result()
    assert (result["status"], result["error"]) == (
        "inapplicable",
        "the engine makes $FORK: there is no role to try",
    )
    assert counting.threads().keys() == before
    counting.uwf("verify", "--all")


def test_a_trial_that_a_limit_stopped_at_its_fork_goes_on_with_its_branches(counting: Counting) -> None:
    counting.uwf("eval", "add", counting.thread(), "--to", "s")
    limited = counting.result("--max-steps", "2")
    assert (limited["status"], counting.branches_of(limited["thread"])) == ("limited", ["idle", "idle"])
    result = counting.result()
    assert (result["state"], result["thread"]) == ("passed", limited["thread"])
    assert counting.branches_of(result["thread"]) == ["completed", "completed"]


def test_the_branches_of_a_trial_that_is_given_up_end_with_it(counting: Counting, root: Path) -> None:
    case = {"name": "one", "prompt": "Count", "files": {"a.txt": "a"}}
    Path("cases.jsonl").write_text(json.dumps(case))
    counting.uwf("eval", "import", "cases.jsonl", "--to", "s", "--workflow", "count")
    limited = counting.result("--max-steps", "1")
    counting.uwf("thread", "step", limited["thread"])  # so no run has recorded what its folder is now
    assert counting.branches_of(limited["thread"]) == ["idle", "idle"]
    shutil.rmtree(root / "evaluation" / limited["thread"])
    result = counting.result()
    assert result["state"] == "passed" and result["thread"] != limited["thread"]
    assert counting.threads()[limited["thread"]]["status"] == "killed"
    assert counting.branches_of(limited["thread"]) == ["killed", "killed"]


def test_a_limit_reached_in_a_branch_is_what_ended_the_trial(counting: Counting) -> None:
    case = {"name": "one", "prompt": "Count", "limits": {"maxSteps": 3}}
    Path("cases.jsonl").write_text(json.dumps(case))
    counting.uwf("eval", "import", "cases.jsonl", "--to", "s", "--workflow", "count")
    result = counting.result()
    assert (result["status"], result["error"]) == ("limited", "maxSteps is used up, 3 of 3 steps")


def test_after_a_fan_out_another_version_is_not_applicable_and_the_reason_says_so(counting: Counting) -> None:
    counting.uwf("eval", "add", f"{counting.thread()}@4", "--to", "s")
    Path("other.yaml").write_text(COUNT.replace("POLICY", "").replace("Add them up.", "Sum them up."))
    result = counting.result("--workflow", "other.yaml")
    assert result["status"] == "inapplicable"
    assert result["error"] == (
        "step 2 is $FORK: after a fan-out, only the thread's own version of the workflow can be tried"
    )
