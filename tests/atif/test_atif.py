"""Threads leave as trajectories of the Agent Trajectory Interchange Format, and trajectories become threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, Uwf

ONE_ROLE = """\
name: {name}
description: One role.
roles:
  worker:
    description: Writes.
    systemPrompt: Write.
    outputSchema: {{ type: object, properties: {{ text: {{ type: string }} }}, required: [text] }}
graph:
  $START: [{{ role: worker }}]
  worker: [{{ role: $END }}]
"""
TRAJECTORY = EXAMPLES / "sessions" / "trajectory.json"


def write(file: Path, value: Any) -> Path:
    file.write_text(json.dumps(value))
    return file


@pytest.fixture
def trajectory() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(TRAJECTORY.read_text())
    return value


def imported(uwf: Uwf, file: Path) -> dict[str, Any]:
    value: dict[str, Any] = uwf("import", "atif", file).json[0]
    return value


def exported(uwf: Uwf, thread: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(uwf("export", "--atif", "-", thread).out)
    return value


def test_a_trajectory_becomes_a_thread_and_comes_out_as_it_was(uwf: Uwf, trajectory: dict[str, Any]) -> None:
    session = imported(uwf, TRAJECTORY)
    assert (session["agent"], session["state"], session["steps"]) == ("terminus-2", "new", 2)
    steps = uwf("thread", "steps", session["thread"]).json
    assert [step["role"] for step in steps] == ["agent", "$USER", "agent"]
    detail = uwf("cas", "get", steps[0]["detail"]).json["payload"]
    assert (detail["model"], detail["usage"]["input"], detail["cost"]) == ("claude-sonnet-4-6", 640, 0.0031)
    turns = [uwf("cas", "get", turn).json["payload"] for turn in detail["turns"]]
    assert [(turn["role"], turn.get("tool"), turn.get("result")) for turn in turns] == [
        ("assistant", None, None),
        ("tool", "bash", "FAILED test_commas\n1 failed"),
        ("assistant", None, None),
    ]
    assert exported(uwf, session["thread"]) == trajectory
    assert uwf("verify").json["findings"] == []
    assert imported(uwf, TRAJECTORY)["state"] == "here"


def test_a_longer_trajectory_adds_its_new_messages(
    uwf: Uwf, tmp_path: Path, trajectory: dict[str, Any]
) -> None:
    first = imported(uwf, write(tmp_path / "short.json", {**trajectory, "steps": trajectory["steps"][:4]}))
    assert first["steps"] == 1
    assert imported(uwf, TRAJECTORY) == {**first, "state": "grown", "steps": 2, "added": 1}
    assert exported(uwf, first["thread"])["steps"] == trajectory["steps"]


def test_what_was_done_here_follows_what_was_imported(uwf: Uwf, trajectory: dict[str, Any]) -> None:
    thread = imported(uwf, TRAJECTORY)["thread"]
    uwf("thread", "answer", thread, "-m", "Good.")
    uwf("thread", "step", thread, "--agent", 'uwf-exec echo \'{"summary": "all"}\'')
    value = exported(uwf, thread)
    count = len(trajectory["steps"])
    assert value["steps"][:count] == trajectory["steps"]
    assert [(step["source"], step["message"]) for step in value["steps"][count:-1]] == [
        ("user", "Good."),
        ("agent", ""),  # the command
    ]
    assert value["steps"][-1]["extra"]["uwf"]["output"] == {"summary": "all"}
    assert value["agent"] == trajectory["agent"] and value["final_metrics"]["total_steps"] == count + 3


def test_secrets_go_neither_in_nor_out(
    uwf: Uwf, root: Path, tmp_path: Path, trajectory: dict[str, Any]
) -> None:
    secret = 'b7Qm2zX9"wL4tR8vK1nY6'
    root.mkdir()
    (root / ".env").write_text(f"MODEL_KEY='{secret}'\n")
    trajectory["steps"][0]["extra"] = {"header": secret}
    session = imported(uwf, write(tmp_path / "leaky.json", trajectory))
    assert session["secrets"] == 1
    assert json.dumps(secret)[1:-1] not in json.dumps(exported(uwf, session["thread"]))


def test_steps_of_several_roles_and_a_sub_workflow_are_one_trajectory(uwf: Uwf, tmp_path: Path) -> None:
    uwf("workflow", "put", EXAMPLES / "solve-issue.yaml")
    thread = uwf("thread", "start", "solve-issue", "-p", "Quote the commas.").json["thread"]
    uwf("thread", "run", thread)
    value = exported(uwf, thread)
    assert value["steps"][0]["message"] == "Quote the commas." and value["agent"]["name"] == "uwf-rehearse"
    assert [step["extra"]["uwf"]["role"] for step in value["steps"][1:]] == [
        step["role"] for step in uwf("thread", "steps", thread).json
    ]
    assert [step["step_id"] for step in value["steps"]] == list(range(1, len(value["steps"]) + 1))


def test_a_sub_workflow_is_a_trajectory_within(uwf: Uwf, tmp_path: Path) -> None:
    inner = tmp_path / "inner.yaml"
    inner.write_text(ONE_ROLE.format(name="inner"))
    outer = tmp_path / "outer.yaml"
    outer.write_text(ONE_ROLE.format(name="outer"))
    uwf("workflow", "put", inner)
    uwf("workflow", "put", outer)
    thread = uwf("thread", "start", "outer", "-p", "Write.").json["thread"]
    uwf("thread", "step", thread, "--agent", "uwf-workflow inner")
    value = exported(uwf, thread)
    (within,) = value["subagent_trajectories"]
    reference = value["steps"][1]["observation"]["results"][0]["subagent_trajectory_ref"][0]
    assert reference == {"trajectory_id": within["trajectory_id"]}
    assert within["agent"]["name"] == "uwf-rehearse" and len(within["steps"]) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema_version": "ATIF-v2.0"}, "reads ATIF-v1.x"),
        ({"agent": {}}, "agent.name is not a text"),
        ({"steps": "none"}, "steps is not a list"),
        ({"steps": [{"step_id": 1, "source": "user", "message": "x"}]}, "no step is its agent's"),
        ({"steps": [{"source": "robot", "message": ""}]}, "steps[0].source is none of user, agent, system"),
        ({"steps": [{"source": "agent"}]}, "steps[0].message is neither a text nor a list of parts"),
    ],
)
def test_other_json_is_refused_with_the_place(
    uwf: Uwf, tmp_path: Path, trajectory: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    error = uwf("import", "atif", write(tmp_path / "other.json", {**trajectory, **change}), check=1).error
    assert why in error["message"]


def test_a_trajectory_without_times_and_ids_is_the_same_thread_again(
    uwf: Uwf, tmp_path: Path, trajectory: dict[str, Any]
) -> None:
    for key in ("session_id", "trajectory_id"):
        trajectory.pop(key, None)
    for step in trajectory["steps"]:
        step.pop("timestamp", None)
    threads = {imported(uwf, write(tmp_path / name, trajectory))["thread"] for name in ("a.json", "b.json")}
    assert len(threads) == 1
    assert exported(uwf, threads.pop()) == trajectory
