"""Harbor runs uwf as an agent, and reads what it leaves. Its environment is a double without containers, in which the
task's own verifier gives the reward."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import EXAMPLES, Uwf
from programs import program

pytest.importorskip("harbor", reason="harbor is for Python 3.12 and newer")

from harbor.models.trajectories import Trajectory

TASK = EXAMPLES / "evaluation" / "harbor" / "csv-commas"
DOUBLES = Path(__file__).parents[1] / "doubles"
SOLVES = 'uwf-exec sh -c \'sh /opt/solve.sh; echo "{\\"summary\\": \\"quoted\\"}"\''


def run(tmp_path: Path, *options: str) -> Path:
    """Run the task by harbor's command; return the folder of its trial."""
    program("bwrap")
    solution = (TASK / "solution" / "solve.sh").read_text()
    prepare = f"prepare=cat > /opt/solve.sh <<'SOLVE'\n{solution}SOLVE"
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(DOUBLES),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    command = [
        str(Path(sys.executable).with_name("harbor")),
        "run",
        "-p",
        str(TASK),
        "-o",
        str(tmp_path / "jobs"),
    ]
    command += ["--agent", "uwf_git.ext.harbor.agent:UwfAgent", "--env", "boxed_environment:BoxedEnvironment"]
    command += ["--job-name", "one", "-y", "-q", "--ak", prepare, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = (tmp_path / "jobs" / "one").glob("csv-commas__*")
    return trial


def result(trial: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((trial / "result.json").read_text())
    return value


def test_a_workflow_solves_a_task_and_leaves_a_trajectory_and_its_threads(tmp_path: Path, uwf: Uwf) -> None:
    trial = run(tmp_path, "--ak", f"agent={SOLVES}")
    assert result(trial)["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result(trial)["exception_info"] is None
    trajectory = Trajectory.model_validate_json((trial / "agent" / "trajectory.json").read_text())
    assert trajectory.steps[0].message == (TASK / "instruction.md").read_text()
    assert trajectory.steps[-1].extra and trajectory.steps[-1].extra["uwf"]["output"] == {"summary": "quoted"}
    thread = result(trial)["agent_result"]["metadata"]["uwf_thread"]
    root = trial / "agent" / "uwf"
    assert uwf("--root", root, "thread", "show", thread).json["status"] == "completed"
    assert uwf("--root", root, "verify").json["findings"] == []


def test_a_run_that_fails_is_an_exception_of_the_trial(tmp_path: Path) -> None:
    trial = run(tmp_path, "--ak", "agent=claude-code")  # which is not there
    exception = result(trial)["exception_info"]
    assert exception["exception_type"] == "NonZeroAgentExitCodeError"
    assert (
        "uwf run ended with" in exception["exception_message"] and "claude" in exception["exception_message"]
    )
    assert result(trial)["verifier_result"]["rewards"] == {"reward": 0.0}


def test_an_agent_is_needed(tmp_path: Path) -> None:
    from uwf_git.ext.harbor.agent import UwfAgent

    with pytest.raises(ValueError, match="--ak agent=claude-code"):
        UwfAgent(tmp_path)
