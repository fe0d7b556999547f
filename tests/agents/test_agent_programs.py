"""The real client programs run against the scripted model server alone: with a dummy key, in a home of their own,
and without a word to any other machine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from agent_programs import KEY, PINS, PROGRAMS, environment, program
from model_server import Say, serving

SAID = "Hello from the script."
COMMANDS = {
    "claude": ["-p", "--output-format", "json"],
    "codex": ["exec", "--json", "--skip-git-repo-check", "-"],
    "llm": ["prompt"],
    "gemini": ["--output-format", "json"],
    "opencode": ["run", "--format", "json"],
    "hermes": ["chat", "-Q", "-q", "Say hello."],
}
# opencode asks its package registry for plugins, hermes looks for other models: both are refused.
CURIOUS = ("opencode", "hermes")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_says_what_the_script_says_and_reaches_nothing_else(name: str, tmp_path: Path) -> None:
    path = program(name)
    with serving([Say(SAID)], key=KEY) as server:
        done = subprocess.run(
            [path, *COMMANDS[name]],
            input="Say hello.",
            capture_output=True,
            text=True,
            env=environment(name, server, tmp_path / "agent"),
            timeout=100,
        )
        assert SAID in done.stdout and done.returncode == 0, done.stderr
        assert server.asked[0].prompt.endswith("Say hello.") and server.left == 0
        assert name in CURIOUS or server.strays == []


def test_every_program_is_pinned_to_one_version() -> None:
    for file in PINS.rglob("*"):
        if file.suffix == ".json":
            versions = json.loads(file.read_text())["dependencies"].values()
            assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
        elif file.is_file():
            assert re.fullmatch(r"[a-z-]+(\[[a-z]+\])?==[0-9.]+\n", file.read_text())


def test_a_group_is_of_pins_that_exist_and_its_programs_of_one_tier() -> None:
    for row in PROGRAMS.values():
        assert (PINS / f"{row.group}.txt").is_file() or (PINS / row.group / "package.json").is_file()
        assert {other.tier for other in PROGRAMS.values() if other.group == row.group} == {row.tier}
