"""A role that is done by another workflow, in a thread of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.types import is_kind
from uwf_git.store.instance import Instance

OUTER = """\
name: outer
description: Has a part of it done by another workflow.
roles:
  planner:
    description: Plans.
    systemPrompt: Plan.
    outputSchema: {type: object, properties: {part: {type: string}}, required: [part]}
  solver:
    description: Has it solved.
    systemPrompt: Solve.
    outputSchema:
      type: object
      properties: {status: {type: string, enum: [solved, stuck]}, summary: {type: string}}
      required: [status, summary]
      additionalProperties: false
graph:
  $START: [{role: planner}]
  planner: [{role: solver, condition: null, prompt: "Solve {{ part }}."}]
  solver: {solved: $END, stuck: planner}
"""

INNER = """\
name: inner
description: Solves something in two steps.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {done: {type: boolean}}, required: [done]}
  reporter:
    description: Reports.
    systemPrompt: Report.
    outputSchema:
      type: object
      properties: {status: {type: string}, summary: {type: string}, effort: {type: integer}}
      required: [status, summary, effort]
graph:
  $START: [{role: worker}]
  worker: [{role: reporter}]
  reporter: [{role: $END}]
"""

WORKED = "- {role: worker, output: {done: true}}\n"
REPORTED = "- {role: reporter, output: {status: solved, summary: It works., effort: 3}}\n"


class World:
    """Both workflows registered, and agents that play scripts: `inner` that of the child's roles."""

    def __init__(self, uwf: Uwf, home: Path, root: Path) -> None:
        self.uwf, self.home, self.root = uwf, home, root
        root.mkdir(exist_ok=True)
        for name, text in (("outer", OUTER), ("inner", INNER)):
            (home / f"{name}.yaml").write_text(text)
            uwf("workflow", "put", home / f"{name}.yaml")
        (home / "outer.script").write_text("- {role: planner, output: {part: the lock}}\n")
        self.configure("inner")

    def register(self, text: str) -> None:
        (self.home / "changed.yaml").write_text(text)
        self.uwf("workflow", "put", self.home / "changed.yaml")

    def configure(self, *solver: str) -> None:
        (self.root / "config.yaml").write_text(
            f"""\
agents:
  plan: {{command: uwf-rehearse, args: [--script, {self.home}/outer.script]}}
  solve: {{command: uwf-workflow, args: {json.dumps(solver)}}}
  inside: {{command: uwf-rehearse, args: [--script, {self.home}/inner.script]}}
defaultAgent: inside
agentOverrides:
  outer: {{planner: plan, solver: solve}}
"""
        )

    def play(self, script: str) -> None:
        (self.home / "inner.script").write_text(script)

    def start(self) -> str:
        thread: str = self.uwf("thread", "start", "outer", "-p", "Open the door.").json["thread"]
        self.uwf("thread", "step", thread)
        return thread

    def children(self, but: str) -> list[dict[str, Any]]:
        return [each for each in self.uwf("thread", "list", "--all").json if each["thread"] != but]


@pytest.fixture
def world(uwf: Uwf, hermetic: Path, root: Path) -> World:
    return World(uwf, hermetic, root)


def test_a_list_shows_a_child_below_its_parent_while_it_runs_afterwards_and_elsewhere(
    world: World, hermetic: Path
) -> None:
    world.play("- {role: worker, output: {status: needs_input, question: Which way?}}\n" + WORKED + REPORTED)
    thread = world.start()
    world.uwf("thread", "step", thread)
    [child] = world.children(but=thread)
    assert child["parent"] == thread
    assert world.uwf("thread", "show", "@").json["thread"] == thread
    world.uwf("thread", "answer", thread, "-m", "left")
    world.uwf("thread", "run", thread)
    fork = world.uwf("thread", "fork", thread).json["thread"]
    for there in (None, "bundle"):
        if there:
            world.uwf("bundle", thread, child["thread"], fork, "-o", hermetic / "threads.bundle")
            world.uwf("init", "--root", "there")
            world.uwf("unbundle", hermetic / "threads.bundle", "--root", "there")
        root = ("--root", "there") if there else ()
        found = {each["thread"]: each["parent"] for each in world.uwf("thread", "list", "--all", *root).json}
        assert found == {thread: None, child["thread"]: thread, fork: None}
        text = world.uwf("thread", "list", "--all", "--format", "text", *root).out.splitlines()
        assert [line.rstrip().split("  completed")[0].split("  idle")[0].rstrip() for line in text[1:]] == [
            fork,
            thread,
            f"  {child['thread']}",
        ]


def test_a_remark_is_told_to_the_child_that_begins_and_to_one_that_goes_on(world: World) -> None:
    world.play(WORKED + "- {role: reporter, exit: 3}\n- {role: reporter, exit: 3}\n" + REPORTED)
    thread = world.start()
    world.uwf("thread", "say", thread, "-m", "Mind the paint.")
    world.uwf("thread", "step", thread, check=6)
    [child] = world.children(but=thread)
    prompt = world.uwf("thread", "read", child["thread"], "--format", "json").json["prompt"]
    assert prompt == "Solve the lock.\n\nMind the paint."
    world.uwf("thread", "say", thread, "-m", "And the noise.")
    world.uwf("thread", "step", thread, check=6)
    assert world.uwf("thread", "step", thread).json["status"] == "completed"
    [child] = world.children(but=thread)
    steps = world.uwf("thread", "steps", child["thread"]).json
    assert [each["role"] for each in steps] == ["worker", "$USER", "reporter"]
    assert steps[1]["output"] == {"remark": "And the noise."}, "which is told once"
    assert world.uwf("verify", "--all").json["findings"] == []


def test_a_role_is_done_by_a_thread_whose_last_commit_becomes_the_second_parent(
    world: World, root: Path
) -> None:
    world.play(WORKED + REPORTED)
    thread = world.start()
    done = world.uwf("thread", "step", thread).json
    assert (done["done"], done["status"]) == (True, "completed")
    [child] = world.children(but=thread)
    assert child["status"] == "completed"
    assert (
        world.uwf("thread", "read", child["thread"], "--format", "json").json["prompt"] == "Solve the lock."
    )

    instance = Instance.open()
    history = instance.threads.history(instance.threads.head(ThreadId(thread)))
    last = history.steps[-1]
    assert last.output == {
        "status": "solved",
        "summary": "It works.",
    }  # what the role has no field for is gone
    assert last.agent == "uwf-workflow"
    inner = instance.threads.history(instance.threads.head(ThreadId(child["thread"])))
    assert (last.detail, is_kind(instance.store.get(last.detail).type, "step")) == (inner.head, True)
    commit, other = instance.threads.commit_of(last.hash), instance.threads.commit_of(Hash(inner.head))
    git = ["git", "--git-dir", str(root / "store.git"), "show", "-s", "--format=%P", str(commit)]
    parents = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    assert parents[1:] == [str(other)]
    assert "nothing is wrong" in world.uwf("verify", "--format", "text").out

    # Where the step is read, the child is named; its id is in no commit, so a page links the child's last step.
    assert world.uwf("thread", "show", thread).json["child"] == child["thread"]
    assert (
        f"done by   thread {child['thread']}" in world.uwf("thread", "show", thread, "--format", "text").out
    )
    assert world.uwf("thread", "step-details", last.hash, "--format", "json").json["child"] == child["thread"]
    assert (
        world.uwf("thread", "read", thread, "--format", "json").json["steps"][-1]["child"] == child["thread"]
    )
    section = world.uwf("thread", "read", thread).out.partition("## 2 solver")[2]
    assert section.startswith(": solved\n\nby a run of the workflow `inner` · ")
    assert f" · thread `{child['thread']}`\n" in section
    git = ["git", "--git-dir", str(root / "store.git"), "show", f"{commit}:steps/0002-solver/README.md"]
    page = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    assert f"[`{inner.head}`](nodes/{inner.head}.json)" in page and child["thread"] not in page


def test_a_question_of_the_child_is_asked_by_the_parent_and_its_answer_handed_on(world: World) -> None:
    asks = '- {role: worker, output: {$status: $SUSPEND, question: "Which key?", options: [left, right]}}\n'
    world.play(asks + WORKED + REPORTED)
    thread = world.start()
    waiting = world.uwf("thread", "step", thread).json
    assert waiting["status"] == "waiting"
    shown = world.uwf("thread", "show", thread).json
    assert (shown["question"], shown["options"]) == ("Which key?", ["left", "right"])
    [child] = world.children(but=thread)
    assert child["status"] == "waiting"

    world.uwf("thread", "answer", thread, "--other", "-m", "The left one.")
    assert world.uwf("thread", "run", thread).lines[-1]["status"] == "completed"
    [same] = world.children(but=thread)
    assert (same["thread"], same["status"]) == (child["thread"], "completed")
    answers = world.uwf("thread", "read", child["thread"], "--format", "json").json["steps"]
    assert [step["output"] for step in answers if step["role"] == "$USER"] == [{"answer": "The left one."}]
    assert "nothing is wrong" in world.uwf("verify", "--format", "text").out


def test_a_child_that_fails_fails_the_step_and_the_next_one_goes_on_with_it(world: World) -> None:
    world.play(WORKED + "- {role: reporter, exit: 3}\n" + REPORTED)
    thread = world.start()
    failed = world.uwf("thread", "step", thread, check=6)
    [child] = world.children(but=thread)
    assert child["thread"] in failed.err and "inner" in failed.err
    assert world.uwf("thread", "show", thread).json["status"] == "failed"
    assert world.uwf("thread", "step", thread).json["done"] is True
    assert [each["thread"] for each in world.children(but=thread)] == [child["thread"]]
    assert (
        len(world.uwf("thread", "steps", child["thread"]).json) == 2
    )  # the worker's step was not done again


def test_an_output_that_is_none_of_the_role_is_named_and_mended_without_another_run(world: World) -> None:
    world.configure("--output", "{'status': 'finished'}", "inner")
    world.play(WORKED + REPORTED)
    thread = world.start()
    assert "solver" in world.uwf("thread", "step", thread, check=6).err
    world.configure(
        "--output", "{'status': 'solved', 'summary': 'effort ' & steps[-1].output.effort}", "inner"
    )
    assert world.uwf("thread", "step", thread).json["done"] is True
    assert len(world.children(but=thread)) == 1
    steps = world.uwf("thread", "read", thread, "--format", "json").json["steps"]
    assert steps[-1]["output"] == {"status": "solved", "summary": "effort 3"}


def test_a_field_that_only_the_parent_asks_for_is_found_in_the_childs_answer(world: World) -> None:
    answer = r'"---\nstatus: solved\nsummary: Done.\neffort: 2\ngain: 5\n---\n"'
    world.play(WORKED + f"- {{role: reporter, garbage: {answer}}}\n")
    world.configure("--output", "{'status': 'solved', 'summary': 'gains ' & steps[-1].output.gain}", "inner")
    thread = world.start()
    assert world.uwf("thread", "step", thread).json["done"] is True
    assert world.uwf("thread", "steps", thread).json[-1]["output"]["summary"] == "gains 5"
    [child] = world.children(but=thread)
    last = world.uwf("thread", "steps", child["thread"]).json[-1]
    assert last["output"] == {"status": "solved", "summary": "Done.", "effort": 2}
    detail = world.uwf("cas", "get", last["detail"]).json["payload"]
    assert detail["notes"] == ["left out of the output, as the schema has no such field: gain"]


def test_a_child_that_failed_fails_the_step_and_is_replaced(world: World) -> None:
    failing = INNER.replace("reporter: [{role: $END}]", "reporter: [{end: failed, reason: '{{ summary }}'}]")
    world.register(failing)
    world.play(WORKED + REPORTED)
    thread = world.start()
    refused = world.uwf("thread", "step", thread, check=6).error
    assert "has failed: It works." in refused["message"]
    assert [each["role"] for each in world.uwf("thread", "steps", thread).json] == ["planner"]
    world.uwf("thread", "step", thread, check=6)
    assert [each["status"] for each in world.children(but=thread)] == ["failed", "failed"]


def test_a_child_that_failed_passes_on_an_output_that_says_so(world: World) -> None:
    outer = OUTER.replace("[solved, stuck]", "[solved, failed]").replace(
        "stuck: planner", "failed: {end: failed}"
    )
    failing = INNER.replace("reporter: [{role: $END}]", "reporter: [{end: failed}]")
    world.register(outer)
    world.register(failing)
    world.play(WORKED + REPORTED.replace("solved", "failed"))
    thread = world.start()
    world.uwf("thread", "step", thread, check=10)
    assert world.uwf("thread", "show", thread).json["status"] == "failed"


def test_an_answer_to_a_child_that_went_on_since_is_asked_for_again(world: World) -> None:
    asks = "- {role: worker, output: {status: needs_input, question: Which way?}}\n"
    world.play(asks + asks + WORKED + REPORTED)
    thread = world.start()
    world.uwf("thread", "step", thread)
    [child] = world.children(but=thread)
    world.uwf("thread", "answer", child["thread"], "-m", "left")
    world.uwf("thread", "step", child["thread"])
    world.uwf("thread", "answer", thread, "-m", "meant for the first question")
    assert world.uwf("thread", "step", thread).json["status"] == "waiting"
    answers = [each for each in world.uwf("thread", "steps", child["thread"]).json if each["role"] == "$USER"]
    assert [each["output"] for each in answers] == [{"answer": "left"}]
    world.uwf("thread", "answer", thread, "-m", "right")
    world.uwf("thread", "run", thread)
    assert world.uwf("thread", "show", thread).json["status"] == "completed"


def test_a_killed_child_is_replaced_and_a_workflow_within_itself_is_refused(world: World) -> None:
    world.play("- {role: worker, exit: 1}\n")
    thread = world.start()
    world.uwf("thread", "step", thread, check=6)
    [child] = world.children(but=thread)
    world.uwf("thread", "kill", child["thread"])
    world.play(WORKED + REPORTED)
    assert world.uwf("thread", "step", thread).json["done"] is True
    assert len(world.children(but=thread)) == 2

    config = (world.root / "config.yaml").read_text()
    (world.root / "config.yaml").write_text(config + "  inner: {worker: again}\n".replace("again", "loop"))
    text = (
        (world.root / "config.yaml")
        .read_text()
        .replace("agents:\n", "agents:\n  loop: {command: uwf-workflow, args: [outer]}\n")
    )
    (world.root / "config.yaml").write_text(text)
    other = world.start()
    refused = world.uwf("thread", "step", other, check=6)
    assert "outer → inner → outer" in refused.err
    assert refused.err.count("\n") == 1


def test_a_child_whose_budget_is_used_up_makes_the_parent_wait_for_a_human(world: World) -> None:
    world.play(WORKED + REPORTED)
    thread = world.start()
    with (world.root / "config.yaml").open("a") as file:
        file.write("budgets: {workflows: {inner: {maxSteps: 1}}}\n")
    assert world.uwf("thread", "step", thread).json["status"] == "waiting"
    [child] = world.children(but=thread)
    shown = world.uwf("thread", "show", thread).json
    assert "maxSteps" in shown["question"] and f"uwf thread budget {child['thread']}" in shown["question"]
    world.uwf("thread", "budget", child["thread"], "--max-steps", "5")
    world.uwf("thread", "answer", thread, "-m", "Yes.")
    assert world.uwf("thread", "step", thread).json["done"] is True
    assert len(world.children(but=thread)) == 1


SPENDER = """\
from uwf_git.kit import Reply, Usage, create_agent

def run(ctx):
    fields = {"worker": "done: true", "reporter": "status: solved\\nsummary: s\\neffort: 1"}[ctx.role.name]
    text = "nothing" if ctx.role.name == "reporter" and not ctx.attempt else f"---\\n{fields}\\n---\\n"
    return Reply(text, usage=Usage(1000, 0), model="m")

create_agent("spender", run).main()
"""


def test_a_childs_tokens_are_its_parents_those_of_what_failed_too_and_its_budget_binds_the_child(
    world: World, script: Callable[[str, str], Path]
) -> None:
    spender = script("spender", SPENDER)
    config = (world.root / "config.yaml").read_text()
    config = config.replace("defaultAgent: inside", "defaultAgent: spender")
    config = config.replace("agents:\n", f"agents:\n  spender: {{command: {spender}}}\n")
    limited = config + "budgets: {workflows: {outer: {maxTokens: 500}}}\n"
    (world.root / "config.yaml").write_text(limited)
    thread = world.start()
    assert world.uwf("thread", "step", thread).json["status"] == "waiting"
    [child] = world.children(but=thread)
    assert len(world.uwf("thread", "steps", child["thread"]).json) == 1
    question = world.uwf("thread", "show", thread).json["question"]
    assert "1,000 of 500 tokens" in question and f"uwf thread budget {thread}" in question

    (world.root / "config.yaml").write_text(config)
    world.uwf("thread", "answer", thread, "-m", "Go on.")
    world.uwf("thread", "step", thread, check=6)
    assert world.uwf("thread", "step", thread).json["done"] is True
    total = world.uwf("stats", thread).json["total"]
    assert total["input"] == 3000


def test_the_turns_of_a_step_that_a_child_did_are_the_childs(world: World) -> None:
    world.play(WORKED + REPORTED)
    thread = world.start()
    world.uwf("thread", "step", thread)
    said = [turn["text"].splitlines()[1] for turn in world.uwf("thread", "turns", thread).json]
    assert said == ["done: true", 'status: "solved"']


def test_a_thread_that_is_not_known_as_a_child_is_left_alone_and_the_task_begun_anew_with_the_answer(
    world: World,
) -> None:
    asks = '- {role: worker, output: {$status: $SUSPEND, question: "Which key?"}}\n'
    world.play(asks)
    thread = world.start()
    world.uwf("thread", "step", thread)
    [first] = world.children(but=thread)
    # As on another machine, or with a history that somebody made up.
    for file in (world.root / "store.git" / "uwf" / "sessions").iterdir():
        file.unlink()
    world.play(WORKED + REPORTED)
    world.uwf("thread", "answer", thread, "--other", "-m", "The left one.")
    assert world.uwf("thread", "step", thread).json["done"] is True
    threads = {each["thread"]: each["status"] for each in world.children(but=thread)}
    assert threads.pop(first["thread"]) == "waiting"
    [second] = threads
    prompt = world.uwf("thread", "read", second, "--format", "json").json["prompt"]
    assert prompt == "Solve the lock.\n\nIt was asked: Which key?\n\nThe answer: The left one."


def test_a_child_that_was_killed_after_its_question_is_replaced(world: World) -> None:
    world.play('- {role: worker, output: {$status: $SUSPEND, question: "Which key?"}}\n')
    thread = world.start()
    world.uwf("thread", "step", thread)
    [child] = world.children(but=thread)
    world.uwf("thread", "answer", thread, "--other", "-m", "The left one.")
    world.uwf("thread", "kill", child["thread"])
    world.play(WORKED + REPORTED)
    assert world.uwf("thread", "step", thread).json["done"] is True


def test_a_child_that_is_not_registered_is_named(world: World) -> None:
    world.configure("iner")
    thread = world.start()
    assert "inner" in world.uwf("thread", "step", thread, check=6).error["hint"]
