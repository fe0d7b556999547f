"""The real agent programs recall what they were told: on a second machine, and in a session of their own that was
imported."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import agent_programs
import pytest
from commands import git
from conftest import Uwf
from loop_thread import WORKFLOW
from model_script import Asked, Say
from model_server import ModelServer, serving
from two_machines import Machine

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]

AGENTS = {
    "claude": "uwf-claude-code",
    "codex": "uwf-codex --sandbox danger-full-access",
    "gemini": "uwf-gemini",
    "qwen": "uwf-qwen",
    "opencode": "uwf-opencode",
}
TASK = "Remember this word for later, xylophone."
ANSWERED = "I shall remember the word."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving(key=agent_programs.KEY) as running:
        yield running


class RealMachine(Machine):
    """A machine with a home, a clone of the project, and the program."""

    def __init__(self, uwf: Uwf, folder: Path, program: str, server: ModelServer, project: Path) -> None:
        super().__init__(uwf, folder / "store")
        self.home, self.clone = folder / "home", folder / "clone"
        self._env = agent_programs.environment(program, server, self.home)
        git("clone", "-q", project, self.clone)
        self("init")
        self("config", "set", "sessions", "keep")
        self("config", "set", "workspace.remote", "origin")

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self._env}


def messages(asked: Asked) -> list[str]:
    return [message.text for message in asked.messages if message.text]


@pytest.mark.parametrize("program", AGENTS)
def test_a_program_recalls_the_first_turn_on_a_second_machine_and_back_on_the_first(
    program: str, uwf: Uwf, tmp_path: Path, server: ModelServer
) -> None:
    agent_programs.program(program)
    git("init", "-q", "-b", "main", tmp_path / "begin")
    git("-C", tmp_path / "begin", "commit", "-q", "--allow-empty", "-m", "first")
    git("clone", "-q", "--bare", tmp_path / "begin", tmp_path / "project.git")
    git("init", "-q", "--bare", tmp_path / "threads.git")
    here, there = (
        RealMachine(uwf, tmp_path / name, program, server, tmp_path / "project.git")
        for name in ("here", "there")
    )
    for machine in (here, there):
        machine("remote", "add", "origin", tmp_path / "threads.git")
    here.registers(WORKFLOW.replace("TOOLS\n", ""))
    place = ("--workspace", "worktree", "--cwd", here.clone)
    thread = str(here("thread", "start", "loop", "-p", TASK, *place).json["thread"])
    notes: list[str] = []

    def answers(machine: Machine, *call: str | Path, status: str = "again", cwd: Path | None = None) -> str:
        """A step, whose model answers this; what its model had been told."""
        server.play(lambda _: Say(f"---\nstatus: {status}\n---\n\n{ANSWERED} {len(notes)}\n"))
        ends = 11 if "--max-steps" in call else 0
        machine(*call, "--agent", AGENTS[program], cwd=cwd, timeout=200, check=ends)
        last = machine("thread", "steps", thread, "--json").json[-1]["step"]
        detail = machine("thread", "step-details", last, "--json").json["detail"]["value"]
        notes.append("; ".join(detail.get("notes", [])) + f" in {detail['session']}")
        assert detail["kept"], notes
        return "\n".join(messages(server.asked[-1]))

    assert TASK in answers(here, "thread", "step", thread)
    here("push")
    told = answers(there, "continue", thread, "--max-steps", "1", cwd=there.clone)
    assert f"{ANSWERED} 0" in told and TASK in told
    assert len(set(notes)) == 1 and "session" not in notes[0].split(" in ")[0], notes
    there("push")
    here("pull")
    told = answers(here, "thread", "step", thread, status="done")
    assert f"{ANSWERED} 0" in told and f"{ANSWERED} 1" in told
    assert len(set(notes)) == 1, notes
    here.verifies()


@pytest.mark.parametrize("program", AGENTS)
def test_a_program_goes_on_with_a_session_of_its_own_that_was_imported(
    program: str, uwf: Uwf, tmp_path: Path, server: ModelServer
) -> None:
    executable = agent_programs.program(program)
    git("init", "-q", "-b", "main", tmp_path / "project")
    git("-C", tmp_path / "project", "commit", "-q", "--allow-empty", "-m", "first")
    git("clone", "-q", "--bare", tmp_path / "project", tmp_path / "project.git")
    machine = RealMachine(uwf, tmp_path / "here", program, server, tmp_path / "project.git")
    server.play([Say(ANSWERED)])
    words = {
        "claude": ["-p", "--output-format", "json"],
        "codex": ["exec", "--json", "-"],
        "gemini": ["-o", "stream-json", "--approval-mode", "yolo"],
        "qwen": ["-o", "stream-json"],
        "opencode": ["run", "--format", "json"],
    }[program]
    done = subprocess.run(
        [executable, *words],
        cwd=machine.clone,
        env={**os.environ, **machine.environment},
        input=TASK,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    name = re.search(r'"(?:session_id|thread_id|sessionID)": ?"([^"]+)"', done.stdout)
    assert name is not None, done.stdout
    session = machine("import", "session", name[1], cwd=machine.clone).json[0]
    assert (session["session"], session["state"], session["steps"]) == (name[1], "new", 1)
    thread = session["thread"]
    machine("thread", "answer", thread, "-m", "Now say it.")
    server.play(lambda _: Say("---\nsummary: xylophone\n---\n"))
    machine("thread", "step", thread, "--agent", AGENTS[program], timeout=200)
    told = messages(server.asked[-1])
    assert any(TASK in text for text in told) and any(ANSWERED in text for text in told)
    step = machine("thread", "steps", thread, "--json").json[-1]
    assert machine("cas", "get", step["detail"]).json["payload"]["session"] == name[1]
    assert machine("thread", "show", thread).json["status"] == "completed"
    assert machine("import", "session", name[1], cwd=machine.clone).json[0]["state"] == "went on"
    machine.verifies()
