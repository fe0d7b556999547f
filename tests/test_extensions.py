"""Extensions of installed packages: found by their entry point, asked only when they may be meant."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from uwf_git.base import extensions

MANIFEST = """\
from uwf_git.plugin import Command, ConfigSection, Extension

EXTENSION = Extension(
    "greetings",
    commands=(
        Command("greet", "greetings.commands:greet", "Greet somebody.", "Run"),
        Command("thread greet", "greetings.commands:greet", "Greet a thread."),
    ),
    config=(ConfigSection("greetings", "greetings.settings:read", texts=("text",)),),
)
"""
COMMANDS = """\
import click

from uwf_git.plugin import command


@command("uwf greet Ada")
@click.argument("name")
def greet(invocation, name):
    \"\"\"Greet somebody.\"\"\"
    word = invocation.instance.config.sections.get("greetings", {}).get(name, "Hello")
    invocation.emit({"greeting": f"{word} {name}"}, lambda value: value["greeting"])
"""
SETTINGS = """\
def read(reader, value):
    def text(path, entry):
        return reader.text(path, reader.mapping(path, entry, "a greeting", ("text",)), "text")

    return reader.entries("greetings", value, text)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an extension, installed."""
    site = tmp_path / "site"
    info = site / "uwf_greetings-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-greetings\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[uwf.extensions]\ngreetings = greetings:EXTENSION\n")
    (site / "greetings").mkdir()
    (site / "greetings" / "__init__.py").write_text(MANIFEST)
    (site / "greetings" / "commands.py").write_text(COMMANDS)
    (site / "greetings" / "settings.py").write_text(SETTINGS)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site / "greetings"


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "uwf_cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_a_package_adds_commands_to_uwf_and_to_a_group_of_the_core(package: Path) -> None:
    assert called("init").returncode == 0
    for words in (["greet", "Ada"], ["thread", "greet", "Ada"]):
        done = called("--json", *words)
        assert (done.returncode, done.stdout) == (0, '{\n  "greeting": "Hello Ada"\n}\n'), done.stderr
    assert "Greet somebody." in called("--help").stdout
    assert "Greet a thread." in called("thread", "--help").stdout
    assert 'did you mean \\"uwf greet\\"' in called("greeet").stderr


def test_a_package_reads_a_section_of_the_configuration(package: Path) -> None:
    assert called("init").returncode == 0
    assert called("config", "set", "greetings.Ada.text", "1").returncode == 0
    assert '"greeting": "1 Ada"' in called("--json", "greet", "Ada").stdout
    wrong = called("config", "set", "greetings.Ada.word", "Hi")
    assert wrong.returncode != 0 and 'unknown key \\"word\\" in a greeting' in wrong.stderr
    misspelt = called("config", "set", "greeting.Ada.text", "1").stderr
    assert 'did you mean \\"greetings\\"' in misspelt


def test_a_reader_of_a_section_that_fails_is_one_clear_line(package: Path) -> None:
    assert called("init").returncode == 0
    assert called("config", "set", "greetings.Ada.text", "1").returncode == 0
    (package / "settings.py").write_text("def read(reader, value):\n    raise KeyError('Ada')\n")
    done = called("greet", "Ada")
    assert "greetings cannot be read: KeyError: 'Ada'" in done.stderr and "Traceback" not in done.stderr


def test_what_the_manifests_that_ship_name_can_be_loaded() -> None:
    rows = [row for extension in extensions.ours() for row in extension]
    texts = re.findall(r"'(uwf_git\.[\w.]+:\w+)'", repr(rows))
    assert len(texts) > 60
    for where in texts:
        assert extensions.load(where) is not None, where


def test_an_extension_costs_nothing_where_it_is_not_asked(package: Path) -> None:
    (package / "__init__.py").write_text("raise RuntimeError('it was asked')\n")
    assert called("init").returncode == 0
    assert called("thread", "list").returncode == 0
    assert called("crew", "list").returncode == 0


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("EXTENSION = 3", "greetings:EXTENSION is not an Extension"),
    ],
)
def test_an_extension_that_cannot_be_loaded_is_named_with_its_package(
    package: Path, manifest: str, why: str
) -> None:
    (package / "__init__.py").write_text(manifest)
    done = called("greet", "Ada")
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "extension greetings cannot be loaded" in done.stderr and why in done.stderr
    assert "uninstall uwf-greetings" in done.stderr
