"""A persona can be given an agent of its own, in one workflow of its crew or in all; and a node has fifty turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Uwf
from crew_histories import begin
from model_server import Call, serving

from uwf_git.config.read import load_config
from uwf_git.config.resolve import resolve_agent
from uwf_git.format.casting import CastRole
from uwf_git.store.instance import Instance

SETTINGS = """\
agents:
  usual: {command: uwf-exec, args: [--stdin, none, printf, '{"summary": "usual"}']}
  strong: {command: uwf-exec, args: [--stdin, none, printf, '{"summary": "strong"}']}
  other: {command: uwf-exec, args: [--stdin, none, printf, '{"summary": "other"}']}
defaultAgent: usual
agentOverrides:
  trip: {ada: strong, tom: strong}
  trip/plan: {tom: other, write: usual}
"""


def test_a_role_goes_before_its_persona_and_the_workflow_before_the_crew(
    root: Path, config: Callable[[str], Path]
) -> None:
    config(SETTINGS)
    settings = load_config(root)

    def agent(workflow: str, role: str, persona: str) -> str:
        return resolve_agent(settings, CastRole(workflow, role, persona)).alias

    assert agent("trip/plan", "sketch", "ada") == "strong"
    assert agent("trip/plan", "write", "ada") == "usual"
    assert agent("trip/plan", "check", "tom") == "other"
    assert agent("trip/book", "check", "tom") == "strong"
    assert agent("other/plan", "sketch", "ada") == "usual"
    assert agent("trip", "sketch", "") == "usual", "a workflow of no crew has no personas"
    assert resolve_agent(settings, CastRole("trip/plan", "sketch", "ada"), "usual").alias == "usual"


def test_the_agent_of_a_persona_does_its_steps(
    instance: Instance, uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config(SETTINGS)
    thread = begin(instance)
    lines = uwf("thread", "run", thread, "--max-steps", "2", "--format", "text", check=11).out
    assert "sketch by Ada (uwf-exec): strong" in lines
    assert "check by Tom (uwf-exec): other" in lines


def test_a_persona_in_the_configuration_that_no_crew_has_is_told(instance: Instance, uwf: Uwf) -> None:
    begin(instance)

    def told(key: str) -> str:
        return uwf("config", "set", key, "uwf-human").err

    assert told("agentOverrides.trip.ada") == told("agentOverrides.trip/plan.ada") == ""
    assert told("agentOverrides.trip/plan.sketch") == ""
    assert 'crew "trip" has no persona "adam"' in told("agentOverrides.trip.adam")
    assert 'workflow "trip/plan" has no role "sketsh"' in told("agentOverrides.trip/plan.sketsh")
    assert uwf("config", "get", "agentOverrides.trip.ada").json == "uwf-human"


def test_fifty_turns_without_an_end_are_a_failed_step(
    instance: Instance, uwf: Uwf, config: Callable[[str], Path]
) -> None:
    Path("note.txt").write_text("so it is\n")
    with serving(Call("read_file", {"path": "note.txt"})) as server:
        config(
            f"providers:\n  local: {{baseUrl: '{server.openai_url}'}}\n"
            "models:\n  small: {provider: local, name: tiny}\ndefaultModel: small\ndefaultAgent: uwf-builtin\n"
        )
        thread = begin(instance)
        failed = uwf("thread", "step", thread, check=6).error
        assert failed["message"] == "the model came to no end in 50 turns"
        assert len(server.asked) == 50
        assert all(each.tools for each in server.asked)
