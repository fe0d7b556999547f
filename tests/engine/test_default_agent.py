"""Where nothing is configured `uwf-rehearse` stands in, but it never goes on with what others have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import scripted, write
from conftest import Uwf
from git_servers import git
from two_machines import Machine

from uwf_git.store.instance import Instance

WRITES = """uwf-exec echo '{"text": "real"}'"""
FAILS = "false"
STAND_IN = "uwf-rehearse"

OUTER = """\
name: outer
description: Its first role is a command's, its second another workflow's.
roles:
  first: {description: A, systemPrompt: A, outputSchema: {type: object, properties: {text: {type: string}}}}
  second: {description: B, systemPrompt: B, outputSchema: {type: object, properties: {approved: {type: boolean}}}}
  third: {description: C, systemPrompt: C, outputSchema: {type: object, properties: {text: {type: string}}}}
graph:
  $START: [{role: first}]
  first: [{role: second}]
  second: [{role: third}]
  third: [{role: $END}]
"""

Config = Callable[[str], Path]


@pytest.mark.parametrize("default", ["", "defaultAgent: uwf-rehearse"], ids=["nothing configured", "default"])
def test_what_others_began_is_not_gone_on_with_unless_somebody_says_so(
    uwf: Uwf, thread: str, instance: Instance, config: Config, default: str
) -> None:
    config(default)
    head = uwf("thread", "step", thread, "--agent", WRITES).json["head"]
    for verb in ("step", "run"):
        refused = uwf("thread", verb, thread, check=2).error
        assert refused["code"] == "usage"
        assert "critic" in refused["message"]
        assert refused["message"].endswith("where other agents have worked: uwf-exec")
        assert "uwf config set agentOverrides.pair.critic NAME" in refused["hint"]
        assert ("--agent NAME" if verb == "step" else "--agent critic=uwf-rehearse") in refused["hint"]
    shown = uwf("thread", "show", thread).json
    assert (shown["head"], shown["status"], shown["rehearsed"]) == (head, "failed", 0)
    assert shown["error"] == uwf("inbox").json[0]["line"] and "critic" in shown["error"]
    assert uwf("thread", "attempts", thread).json == []

    assert uwf("thread", "step", thread, "--agent", STAND_IN).json["agent"] == STAND_IN
    uwf("config", "set", "agentOverrides.pair.writer", STAND_IN)
    assert uwf("thread", "step", thread).json["role"] == "writer"
    uwf("thread", "step", thread, check=2)
    assert uwf("thread", "show", thread).json["rehearsed"] == 2
    assert (
        "made up   2 of 3 steps, by uwf-rehearse\n" in uwf("thread", "show", thread, "--format", "text").out
    )


def test_neither_a_failed_attempt_nor_an_answer_of_a_human_is_gone_on_with(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", FAILS, check=6)
    assert uwf("thread", "step", thread, check=2).error["message"].endswith(": false")

    asks = scripted("- { role: writer, output: { status: needs_input, question: Which? } }\n")
    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    uwf("thread", "step", other, "--agent", asks)
    uwf("thread", "answer", other, "-m", "This one")
    assert uwf("thread", "step", other, check=2).error["message"].endswith("have worked: a human")
    assert (
        uwf("thread", "step", other, "--agent", STAND_IN).json["role"] == "writer"
    )  # it was its own question


@pytest.mark.parametrize("verb", ["step", "run"])
def test_an_agent_that_nobody_knows_is_refused_before_an_attempt(uwf: Uwf, thread: str, verb: str) -> None:
    refused = uwf("thread", verb, thread, "--agent", "xyzzy-frob --fast", check=2).error
    assert "there is no agent 'xyzzy-frob'" in refused["message"] and refused["hint"] == "uwf agent list"
    assert uwf("thread", "attempts", thread).json == []
    assert uwf("thread", "step", thread).json["agent"] == STAND_IN


def test_the_hint_for_the_agent_of_a_role_says_what_a_step_takes(uwf: Uwf, thread: str) -> None:
    refused = uwf("thread", "step", thread, "--agent", f"writer={STAND_IN}", check=2).error
    assert refused["hint"].endswith(f": {STAND_IN}")
    word = refused["hint"].rpartition(" ")[2]
    assert uwf("thread", "step", thread, "--agent", word).json["agent"] == STAND_IN


def test_no_humans_word_is_made_up_even_when_rehearsal_is_asked_for(
    uwf: Uwf, thread: str, config: Config, script: Callable[[str, str], Path]
) -> None:
    config("agentOverrides: {pair: {critic: human}}")
    uwf("thread", "step", thread, "--agent", WRITES)
    refused = uwf("thread", "step", thread, "--agent", STAND_IN, check=2).error
    assert "role 'critic' of thread" in refused["message"]
    assert f"uwf thread step {thread} --agent uwf-human" in refused["hint"]

    config("")
    asking = script(
        "asking",
        "from uwf_git.kit import create_agent\n"
        "create_agent('asking', lambda ctx: '---\\nstatus: needs_input\\nquestion: May it go?\\n---\\n').main()\n",
    )
    uwf("thread", "step", thread, "--agent", asking)
    uwf("thread", "step", thread, "--agent", STAND_IN, check=5)
    uwf("thread", "answer", thread, "-m", "No")
    assert (
        "is played by a human" in uwf("thread", "step", thread, "--agent", STAND_IN, check=2).error["message"]
    )
    head = uwf("thread", "show", thread).json["head"]
    wrapped = uwf("thread", "step", thread, "--agent", f"env {STAND_IN}", check=6).error
    assert "is played by a human" in wrapped["message"]  # under another name as well
    assert uwf("thread", "show", thread).json["head"] == head
    replies = scripted("- {role: critic, output: {approved: false}}\n" * 4)
    assert uwf("thread", "step", thread, "--agent", replies).json["role"] == "critic"  # somebody wrote that


def test_what_was_made_up_is_a_warning_wherever_it_was_pulled_to_and_a_failure_when_strict(
    uwf: Uwf, thread: str, hermetic: Path, root: Path
) -> None:
    uwf("thread", "step", thread, "--agent", WRITES)
    assert uwf("verify", "--strict").json["warnings"] == []
    made_up = uwf("thread", "step", thread, "--agent", STAND_IN).json["head"]
    uwf("thread", "step", thread, "--agent", WRITES)
    git("init", "-q", "--bare", "--object-format=sha1", hermetic / "hub.git")
    uwf("remote", "add", "origin", hermetic / "hub.git")
    uwf("push")
    other = Machine(uwf, hermetic / "other")
    uwf("clone", hermetic / "hub.git", "--root", other.root)

    assert other("thread", "step", thread, check=2).error["message"].endswith("uwf-exec")
    found = other("verify").json
    assert found["findings"] == []
    assert [(each["code"], each["thread"], each["step"]) for each in found["warnings"]] == [
        ("rehearsed", thread, made_up)
    ]
    assert found["warnings"][0]["message"] == "1 of 3 steps was made up by uwf-rehearse, the last for critic"
    assert other("verify", thread, "--strict", check=1).json == found
    text = other("verify", "--format", "text").out
    assert f"rehearsed  thread {thread}: 1 of 3 steps was" in text
    assert text.endswith("nothing is wrong, 1 warning\n")


def test_a_sub_workflow_is_part_of_what_it_is_stepped_for(uwf: Uwf, thread: str, config: Config) -> None:
    uwf("workflow", "put", write("outer.yaml", OUTER))

    def begun(first: str) -> str:
        made = str(uwf("thread", "start", "outer", "-p", "Do it").json["thread"])
        uwf("thread", "step", made, "--agent", first)
        return made

    config("agents: {sub: {command: uwf-workflow, args: [pair]}}\nagentOverrides: {outer: {second: sub}}\n")
    real = begun(WRITES)
    refused = uwf("thread", "step", real, check=6).error
    assert "where other agents have worked: uwf-exec" in refused["message"]
    assert "agentOverrides.pair.writer" in refused["hint"]
    child = next(
        each["thread"] for each in uwf("thread", "list").json if each["thread"] in refused["message"]
    )
    assert "uwf-exec" in uwf("thread", "step", child, check=2).error["message"]  # by itself as well

    rehearsed = begun(STAND_IN)
    assert uwf("thread", "run", rehearsed).lines[-1]["status"] == "completed"
    assert uwf("thread", "show", rehearsed).json["rehearsed"] == 3

    uwf("config", "set", "agentOverrides.pair.writer", STAND_IN)
    uwf("config", "set", "agentOverrides.pair.critic", STAND_IN)
    assert uwf("thread", "step", real).json["agent"] == "uwf-workflow"
    assert uwf("thread", "show", real).json["rehearsed"] == 1
    uwf("cas", "reindex")
    assert uwf("thread", "show", real).json["rehearsed"] == 1
    assert {each["thread"]: each["message"].split(" steps")[0] for each in uwf("verify").json["warnings"]}[
        real
    ] == "1 of 2"


def test_what_another_machine_made_up_of_a_sub_workflow_is_not_taken_over_by_real_work(
    uwf: Uwf, thread: str, config: Config, tmp_path: Path
) -> None:
    uwf("workflow", "put", write("outer.yaml", OUTER))
    real = uwf("thread", "start", "outer", "-p", "Do it").json["thread"]
    uwf("thread", "step", real, "--agent", WRITES)
    sub = "uwf-workflow pair"
    uwf("thread", "step", real, "--agent", sub, check=6)
    (child,) = (each["thread"] for each in uwf("thread", "list").json if each["parent"] == real)
    shared = tmp_path / "shared.git"
    git("init", "-q", "--bare", "--object-format=sha1", shared)
    uwf("remote", "add", "origin", shared)
    uwf("push")

    other = Machine(uwf, tmp_path / "other")
    other("clone", shared)
    other("thread", "run", child)
    other("push")
    uwf("pull")
    refused = uwf("thread", "step", real, "--agent", sub, check=6).error
    assert child in refused["message"] and "generated by" in refused["message"]
    assert uwf("thread", "show", real).json["rehearsed"] == 0
