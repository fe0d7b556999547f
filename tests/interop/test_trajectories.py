"""Trajectories that uwf writes are valid by the package atif, which others read them with."""

from __future__ import annotations

import json
from pathlib import Path

from atif import Trajectory
from conftest import EXAMPLES, Uwf

SESSIONS = EXAMPLES / "sessions"


def exported(uwf: Uwf, thread: str) -> Trajectory:
    return Trajectory.model_validate_json(uwf("export", "--atif", "-", thread).out)


def test_threads_of_all_kinds_of_steps_are_valid_trajectories(uwf: Uwf) -> None:
    uwf("workflow", "put", EXAMPLES / "solve-issue.yaml")
    thread = uwf("thread", "start", "solve-issue", "-p", "Quote the commas.").json["thread"]
    uwf("thread", "step", thread)
    uwf("thread", "say", thread, "-m", "Mind the quotes.")
    uwf("thread", "step", thread, "--agent", "uwf-exec echo 'summary: done'", check=None)
    uwf("thread", "run", thread, "--agent", "uwf-rehearse")
    trajectory = exported(uwf, thread)
    assert "Mind the quotes." in [step.message for step in trajectory.steps]
    assert trajectory.final_metrics and trajectory.final_metrics.total_steps == len(trajectory.steps)


def test_a_sub_workflow_is_a_valid_trajectory_within(uwf: Uwf, tmp_path: Path) -> None:
    review = EXAMPLES / "review-loop.yaml"
    uwf("workflow", "put", review)
    name = uwf("workflow", "list").json[0]["name"]
    thread = uwf("thread", "start", name, "-p", "Write.").json["thread"]
    uwf("thread", "step", thread, "--agent", f"uwf-workflow {name}", check=None)
    exported(uwf, thread)


def test_a_session_and_a_trajectory_come_out_valid(uwf: Uwf) -> None:
    session = uwf("import", "session", SESSIONS / "claude-code.jsonl").json[0]["thread"]
    first = exported(uwf, session).steps[1]
    assert first.tool_calls and first.observation
    assert first.tool_calls[0].function_name == "Bash" and first.observation.results[0].content == "old"
    thread = uwf("import", "atif", SESSIONS / "trajectory.json").json[0]["thread"]
    example = json.loads((SESSIONS / "trajectory.json").read_text())
    assert exported(uwf, thread) == Trajectory.model_validate(example)
