"""Planner, developer and reviewer, each another real client, mend a small repository and see its test pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import agent_programs
import pytest
from conftest import Uwf
from model_script import Script
from model_server import Call, ModelServer, Say, by_prompt

WORKFLOW = """\
name: mend
description: Plans a change, makes it, and has it reviewed with the tests.
roles:
  planner:
    description: Says what has to be done.
    systemPrompt: Plan the smallest change that repairs it.
    outputSchema: {type: object, properties: {plan: {type: string}}, required: [plan]}
  developer:
    description: Changes the code.
    systemPrompt: Change what the plan says.
    outputSchema: {type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}
  reviewer:
    description: Runs the tests.
    systemPrompt: Run the tests and say whether they pass.
    outputSchema: {type: object, properties: {status: {enum: [passed, failed]}}, required: [status]}
graph:
  $START: [{role: planner}]
  planner: [{role: developer, condition: null, prompt: "{{ plan }}"}]
  developer: [{role: reviewer}]
  reviewer: {passed: $END, failed: developer}
"""
BROKEN, MENDED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TEST = """\
import unittest
from sums import add


class T(unittest.TestCase):
    def test(self):
        assert add(2, 2) == 4
"""
RUN = f"{sys.executable} -m unittest -q test_sums.py 2>&1; git status --short"

PLAN = "---\nplan: add has to add, in sums.py\n---\n\nOne sign is wrong.\n"
CHANGED = "---\nfiles: [sums.py]\n---\n\nChanged the sign.\n"
PASSED = "---\nstatus: passed\n---\n\nThe test passes.\n"
PATCH = """\
apply_patch <<'EOF'
*** Begin Patch
*** Update File: sums.py
@@
-    return a - b
+    return a + b
*** End Patch
EOF
"""


@pytest.fixture
def project(hermetic: Path) -> Path:
    """A repository whose only test fails."""
    folder = hermetic / "project"
    folder.mkdir()
    (folder / "sums.py").write_text(BROKEN)
    (folder / "test_sums.py").write_text(TEST)
    (folder / ".gitignore").write_text("__pycache__/\n")
    for args in (("init", "-q"), ("add", "."), ("commit", "-qm", "A sum that is none")):
        subprocess.run(["git", *args], cwd=folder, check=True)
    assert not passes(folder)
    return folder


def passes(project: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"], cwd=project, capture_output=True, check=False
    )
    return done.returncode == 0


def play(
    uwf: Uwf,
    root: Path,
    project: Path,
    server: ModelServer,
    roles: Callable[[Path], Mapping[str, Script]],
    config: str,
) -> list[dict[str, str]]:
    """Runs the workflow to its end, in a worktree, in which the roles are played; returns its steps."""
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text(config)
    (project.parent / "mend.yaml").write_text(WORKFLOW)
    thread = uwf(
        "thread", "start", project.parent / "mend.yaml", "-p", "Adding is broken.", "--cwd", project
    ).json
    folder = root / "workspaces" / thread["thread"]
    script = roles(folder)
    server.play(by_prompt({f"Your role: {role}": each for role, each in script.items()}))
    done = uwf("thread", "run", thread["thread"], timeout=110)
    assert done.lines[-1]["status"] == "completed", done.err
    branch = thread["workspace"]["branch"]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=project, capture_output=True, text=True, check=True).stdout

    assert git("status", "--short") == "" and not passes(project)
    assert git("diff", "--name-only", "HEAD", branch).split() == ["sums.py"]
    git("merge", "-q", branch)
    assert passes(project)
    assert "nothing is wrong" in uwf("verify", "--format", "text").out
    steps: list[dict[str, str]] = uwf("thread", "steps", thread["thread"]).json
    return steps


def ran_the_test(server: ModelServer) -> bool:
    """Whether the reviewer's tool gave back what the test runner printed."""
    return any("OK" in each.text for asked in server.asked for each in asked.results)


def use(programs: tuple[str, ...], server: ModelServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in programs:
        agent_programs.program(name)
        for key, value in agent_programs.environment(name, server, home).items():
            if key != "PATH" or value.split(os.pathsep)[0] not in os.environ["PATH"].split(os.pathsep):
                monkeypatch.setenv(key, value)


def test_three_agent_clis_mend_a_repository(
    uwf: Uwf, root: Path, project: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(("llm", "claude", "codex"), server, tmp_path / "agents", monkeypatch)
    steps = play(
        uwf,
        root,
        project,
        server,
        lambda folder: {
            "planner": [Say(PLAN)],
            "developer": [
                Call("Write", {"file_path": str(folder / "sums.py"), "content": MENDED}),
                Say(CHANGED),
            ],
            "reviewer": [Call("exec_command", {"cmd": RUN}), Say(PASSED)],
        },
        # codex refuses to put its own sandbox's parts below the folder of temporary files.
        "agents:\n  codex: {command: uwf-codex, args: [--sandbox, danger-full-access]}\n"
        "agentOverrides: {mend: {planner: llm-cli, developer: claude-code, reviewer: codex}}\n",
    )
    assert [step["agent"] for step in steps] == ["uwf-llm-cli", "uwf-claude-code", "uwf-codex"]
    assert ran_the_test(server)


def test_agents_of_the_agent_client_protocol_mend_a_repository(
    uwf: Uwf, root: Path, project: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(("claude-agent-acp", "codex-acp"), server, tmp_path / "agents", monkeypatch)
    steps = play(
        uwf,
        root,
        project,
        server,
        lambda _: {
            "planner": [Say(PLAN)],
            "developer": [Call("exec_command", {"cmd": PATCH}), Say(CHANGED)],
            "reviewer": [Call("Bash", {"command": RUN}), Say(PASSED)],
        },
        "tools: {permissions: [edit, execute, other]}\n"
        "agents:\n"
        "  claude: {command: uwf-acp, args: [claude-agent-acp]}\n"
        "  codex: {command: uwf-acp, args: [--mode, workspace-write, codex-acp]}\n"
        "agentOverrides: {mend: {planner: claude, developer: codex, reviewer: claude}}\n",
    )
    assert [step["role"] for step in steps] == ["planner", "developer", "reviewer"]
    assert ran_the_test(server)
