"""What an extension of another package adds through the registry, and that the rows of ours are what ships."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from conftest import REPOSITORY, Uwf

from uwf_git.base import extensions

EXTENSION = """\
from uwf_git.base.extensions import AgentProgram, Extension

EXTENSION = Extension("tides", agents=(AgentProgram("tides", "command", "uwf_tides.agent:agent"),))
"""
AGENT = """\
from uwf_git.kit import create_agent

agent = create_agent("tides", lambda ctx: "---\\nnumber: seven\\n---\\n")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Installs a package with the extension `tides`, of modules by their names."""

    def install(modules: dict[str, str]) -> None:
        site = tmp_path / "site"
        info = site / "uwf_tides-1.2.dist-info"
        info.mkdir(parents=True)
        (site / "uwf_tides").mkdir()
        for name, source in modules.items():
            (site / "uwf_tides" / f"{name}.py").write_text(source)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-tides\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text("[uwf.extensions]\ntides = uwf_tides:EXTENSION\n")
        monkeypatch.setenv("PYTHONPATH", str(site))

    return install


def test_each_agent_of_the_registry_is_a_script_that_is_installed() -> None:
    installed = {each.name: each.value for each in distribution("uwf-git").entry_points}
    agents = {each.name: f"{each.module}:main" for each in extensions.agent_programs()}
    assert installed == {"uwf": "uwf_cli.main:main", **agents}


def test_the_documents_tell_of_each_agent_of_the_registry() -> None:
    text = (REPOSITORY / "docs" / "reference" / "agents.md").read_text()
    told = re.findall(r"^`(uwf-[\w-]+)", text, re.MULTILINE)
    table = re.findall(r"^\| `(uwf-[\w-]+)` \|", text, re.MULTILINE)
    clis = [
        each.name for each in extensions.agent_programs() if each.kind == "cli" and each.name != "uwf-cli"
    ]
    assert table == clis
    others = {each.name for each in extensions.agent_programs() if each.kind != "cli"}
    assert others <= set(told) and f"`{'`, `'.join(clis[1:])}`" in " ".join(text.split())


@pytest.mark.parametrize("program", tuple(extensions.agent_programs()), ids=lambda each: each.name)
def test_each_agent_of_the_registry_is_one_by_its_name(program: extensions.AgentProgram) -> None:
    agent = program.load()
    assert agent.name == program.name and callable(extensions.load(f"{program.module}:main"))


def test_an_extension_adds_an_agent(uwf: Uwf, package: Callable[[dict[str, str]], None]) -> None:
    package({"__init__": EXTENSION, "agent": AGENT})
    found = {each["name"]: each for each in uwf("agent", "list").json}["tides"]
    assert (found["by"], found["ready"]) == ("tides", True)
    assert uwf("agent", "check", "tides").json["agent"] == "tides"
