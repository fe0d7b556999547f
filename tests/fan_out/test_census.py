"""A thread whose branches failed says how many, and is not plainly completed unless its policy allows that."""

from __future__ import annotations

from pathlib import Path

from cli_samples import PAIR, write
from conftest import Uwf

FAN_OUT = """
name: fan
description: Fans out.
roles:
  worker: {{ description: w, systemPrompt: W., outputSchema: {schema} }}
  adder: {{ description: a, systemPrompt: A., outputSchema: {schema} }}
graph:
  $START: [{{ each: [one, two, three], role: worker, prompt: "{{{{ item }}}}", {policy} join: adder }}]
  adder: [{{ role: $END }}]
"""
SCHEMA = (
    "{ type: object, properties: { text: { type: string } }, required: [text], additionalProperties: false }"
)
AGENT = """
case $(cat) in *'"prompt": "two'*) exit 3;; esac
echo '{"text": "done"}'
"""
SAYS = """
echo '{"text": "done", "approved": true}'
"""
CENSUS = {"of": "branches", "asked": 3, "answered": 2, "failed": 1, "dropped": 0}


def started(uwf: Uwf, policy: str) -> tuple[str, str]:
    agent = write("agent.sh", AGENT)
    file = write("fan.yaml", FAN_OUT.format(policy=policy, schema=SCHEMA))
    thread = uwf("thread", "start", file, "-p", "Go").json["thread"]
    return thread, f"uwf-exec sh {agent.absolute()}"


def test_failures_that_the_policy_allows_are_counted_and_the_end_is_green(uwf: Uwf) -> None:
    thread, agent = started(uwf, "onFailure: drop,")
    ran = uwf("--format", "text", "thread", "run", thread, "--agent", agent, check=None)
    assert ran.code == 0, ran.err
    assert "3 branches, 2 answered, 1 failed" in ran.out.splitlines()[-1]
    assert "uwf thread fork" in ran.err and "again: uwf thread run" not in ran.err  # the branch has ended
    assert uwf("thread", "show", thread).json["census"] == CENSUS
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert uwf("thread", "read", thread, "--format", "json").json["census"] == CENSUS


def test_a_join_that_does_not_look_at_a_killed_branch_ends_with_failures(uwf: Uwf) -> None:
    thread, agent = started(uwf, "")
    uwf("thread", "run", thread, "--agent", agent, check=6)
    branches = uwf("thread", "show", thread).json["branches"]["each"]
    assert uwf("thread", "wait", thread, check=6)
    (failed,) = [each["thread"] for each in branches if each["status"] == "failed"]
    uwf("thread", "kill", failed)
    uwf("thread", "run", thread, "--agent", agent, check=15)
    assert uwf("thread", "wait", thread, check=15).error["code"] == "completed_with_failures"
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["census"]) == ("completed-with-failures", CENSUS)
    uwf("verify")


def test_a_limit_of_steps_is_the_same_status_for_run_and_wait_in_branches_too(uwf: Uwf) -> None:
    thread, agent = started(uwf, "onFailure: drop,")
    stopped = uwf("thread", "run", thread, "--max-steps", "1", "--agent", agent, check=11).error
    assert stopped["code"] == "not_running" and "stopped after 1 step" in stopped["message"]
    assert uwf("thread", "wait", thread, check=11).error["code"] == "not_running"


def test_a_run_of_failed_threads_names_those_that_it_leaves_alone(uwf: Uwf) -> None:
    thread, agent = started(uwf, "onFailure: fail,")
    uwf("thread", "run", thread, "--agent", agent, check=10)
    ran = uwf("--format", "text", "thread", "run", "--status", "failed", "--agent", agent)
    assert "left alone, it has ended at $FAIL, and uwf thread fork" in ran.err and thread in ran.err


TWO = FAN_OUT.replace(
    "  adder: [", "  worker: [{{ role: second }}]\n  second: [{{ role: $END }}]\n  adder: ["
).replace(
    "  adder: {{ desc",
    "  second: {{ description: s, systemPrompt: S., outputSchema: {schema} }}\n  adder: {{ desc",
)


def test_a_limit_counts_a_threads_own_steps_and_each_branch_may_make_as_many(uwf: Uwf) -> None:
    file = write("fan.yaml", TWO.format(policy="", schema=SCHEMA))
    thread = uwf("thread", "start", file, "-p", "Go").json["thread"]
    agent = ("--agent", f"uwf-exec sh {write('says.sh', SAYS).absolute()}")

    def made() -> list[int]:
        rows = uwf("thread", "list", "--all", "--branches").json
        return sorted(each["steps"] for each in rows if each["parent"])

    uwf("thread", "run", thread, "--max-steps", "1", *agent, check=11)
    assert uwf("thread", "show", thread).json["status"] == "joining" and made() == [0, 0, 0]
    uwf("thread", "run", thread, "--max-steps", "1", *agent, check=11)
    assert made() == [1, 1, 1]
    uwf("thread", "run", thread, "--max-steps", "2", *agent)
    assert uwf("thread", "show", thread).json["status"] == "completed" and made() == [2, 2, 2]


def test_a_sub_workflow_is_one_step_of_a_limit(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("workflow", "put", write("outer.yaml", PAIR.replace("name: pair", "name: outer")))
    says = f"uwf-exec sh {write('says.sh', SAYS).absolute()}"
    uwf("config", "set", "defaultAgent", says)
    uwf("config", "set", "agentOverrides.outer.writer", "uwf-workflow --output steps[0].output pair")
    uwf("run", "outer", "-p", "x", "--max-steps", "1", check=11)
    (inner,) = [each for each in uwf("thread", "list", "--all").json if each["name"] == "pair"]
    assert (inner["status"], inner["steps"]) == ("completed", 2)


def test_an_export_names_the_branches_that_it_leaves_out(uwf: Uwf) -> None:
    thread, agent = started(uwf, "onFailure: drop,")
    uwf("thread", "run", thread, "--agent", agent)
    branches = [each["thread"] for each in uwf("thread", "show", thread).json["branches"]["each"]]
    for form in (("--html", "o.html"), ("--audit-json", "o.json")):
        said = uwf("--format", "text", "export", thread, *form).err
        assert "3 branches are threads of their own, left out here" in said
        assert all(branch in said for branch in branches)
    assert "3 branches, 2 answered, 1 failed" in Path("o.html").read_text()
    assert "left out" not in uwf("--format", "text", "export", branches[0], "--html", "one.html").err
