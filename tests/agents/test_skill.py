"""The skill that `uwf guide skill` writes is one, and claude and codex find it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from conftest import Uwf
from model_script import Say
from model_server import ModelServer, serving

from uwf_git.format import yaml12

PLACES = {"claude": ".claude/skills/uwf/SKILL.md", "codex": ".agents/skills/uwf/SKILL.md"}
CALLS = {"claude": ["-p", "What can you do?"], "codex": ["exec", "--skip-git-repo-check", "What can you do?"]}


def test_it_has_the_form_of_agent_skills(uwf: Uwf) -> None:
    text = uwf("guide", "skill").out
    _, front, body = text.split("---\n", 2)
    data: Any = yaml12.load(front, "SKILL.md").data
    assert data["name"] == "uwf" and data.keys() <= {"name", "description", "license", "compatibility"}
    assert len(data["description"]) <= 1024 and len(data["compatibility"]) <= 500
    assert len(body.splitlines()) <= 60
    for guide in re.findall(r"`uwf guide (\w+)`", body):
        uwf("guide", guide)
    for words in re.findall(r"`uwf ((?:[a-z]+ )*[a-z]+)(?=[ `])", body):
        assert "No such command" not in uwf(*words.split(), "--help", check=None).err, words


@pytest.mark.parametrize("name", PLACES)
def test_it_is_written_where_the_program_looks_and_over_no_other_file(name: str, uwf: Uwf) -> None:
    path = Path(uwf("guide", "skill", "--install", name).json["file"])
    assert path == Path.cwd() / PLACES[name]
    path.write_text(path.read_text().replace("A workflow is", "In an earlier version a workflow was"))
    uwf("guide", "skill", "--install", name)
    assert path.read_text() == uwf("guide", "skill").out
    path.write_text("---\nname: mine\n---\n")
    assert "is not overwritten" in uwf("guide", "skill", "--install", name, check=1).err
    assert "name: mine" in path.read_text()
    uwf("guide", "uwf", "--install", name, check=2)


@pytest.mark.extended
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PLACES)
def test_a_program_tells_its_model_of_the_skill(name: str, uwf: Uwf, tmp_path: Path) -> None:
    program = agent_programs.program(name)
    uwf("guide", "skill", "--install", name)
    subprocess.run(["git", "init", "--quiet"], check=True)
    with serving([Say("I can use uwf.")], key=agent_programs.KEY) as server:
        _call(program, name, server, tmp_path / "agent-home")
        told = json.dumps([asked.body for asked in (*server.asked, *server.asides)])
    assert "Runs multi-step work of LLM agents with the command uwf" in told


def _call(program: object, name: str, server: ModelServer, home: Path) -> None:
    environment = agent_programs.environment(name, server, home)
    subprocess.run(
        [str(program), *CALLS[name]],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=90,
    )
