"""What a project is, by its files: the command of its tests, that of a new worktree, and its main branch. Nothing is
run for it but git."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.plugin import WORKTREE_REQUIREMENTS, UwfError, read_bytes

if TYPE_CHECKING:
    from uwf_git.plugin import Project

_PYTHON = {
    "uv.lock": "uv run",
    "poetry.lock": "poetry run",
    "pdm.lock": "pdm run",
    "Pipfile.lock": "pipenv run",
}
_NODE = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun run", "bun.lockb": "bun run"}
_PLAIN = {
    "Cargo.toml": "cargo test",
    "go.mod": "go test ./...",
    "mvnw": "./mvnw -q test",
    "pom.xml": "mvn -q test",
    "gradlew": "./gradlew test",
    "build.gradle": "gradle test",
    "build.gradle.kts": "gradle test",
    "mix.exs": "mix test",
    "Package.swift": "swift test",
    "build.sbt": "sbt test",
    "rebar.config": "rebar3 eunit",
    "pubspec.yaml": "dart test",
    "build.zig": "zig build test",
}
"""Files whose programs have one command for tests."""


class Detected(NamedTuple):
    """The command of a project's tests, "" if none is known; that of a new worktree; the branch that work is for."""

    tests: str
    setup: str
    branch: str


def detect(top: Path, project: Project) -> Detected:
    """Look at a checkout."""
    return Detected(next(commands_for_tests(top), ""), setup_command(top), main_branch(project))


def commands_for_tests(top: Path) -> Iterator[str]:
    """Yield commands for the tests of the project in a folder, those that its people named first."""
    for name, program in (("justfile", "just"), ("Justfile", "just"), (".justfile", "just")):
        yield from _of_rule(top / name, program)
    for name in ("GNUmakefile", "makefile", "Makefile"):
        yield from _of_rule(top / name, "make")
    yield from _of_scripts(top / "package.json", _runner(top, _NODE, "npm"))
    yield from _of_scripts(top / "composer.json", "composer")
    yield from _of_python(top)
    for name, command in _PLAIN.items():
        if (top / name).is_file():
            yield command
    if (top / "Gemfile").is_file():
        yield "bundle exec rspec" if (top / "spec").is_dir() else "bundle exec rake test"
    if (top / "deno.json").is_file() or (top / "deno.jsonc").is_file():
        yield "deno test"


def _of_rule(file: Path, program: str) -> Iterator[str]:
    """Yield the rule for tests of a makefile, or the recipe of a justfile."""
    text = _text(file)
    for rule in ("test", "tests", "check"):
        if re.search(rf"(?m)^@?(?:[\w.-]+ )*{rule}(?: [\w.-]+)*(?: \*?\w+=\S*)*\s*:(?!=)", text):
            yield f"{program} {rule}"


def _of_scripts(file: Path, program: str) -> Iterator[str]:
    with suppress(ValueError):
        script = _table(_table(json.loads(_text(file) or "{}")).get("scripts")).get("test")
        if script is not None and "no test specified" not in str(script):
            yield f"{program} test"


def _of_python(top: Path) -> Iterator[str]:
    settings: dict[str, Any] = {}
    with suppress(ValueError):
        settings = tomllib.loads(_text(top / "pyproject.toml"))
    tools = _table(settings.get("tool"))
    if (top / "tox.ini").is_file() or "tox" in tools:
        yield "tox"
    if (top / "noxfile.py").is_file():
        yield "nox"
    is_project = bool(settings) or any(
        (top / name).is_file() for name in ("setup.py", "setup.cfg", "requirements.txt")
    )
    has_pytest = (
        "pytest" in tools or (top / "pytest.ini").is_file() or "pytest" in _text(top / "pyproject.toml")
    )
    folders = [top / name for name in ("tests", "test") if (top / name).is_dir()]
    runner = _runner(top, _PYTHON, "")
    if has_pytest or (
        is_project and any(path.match("test_*.py") for item in folders for path in item.rglob("*.py"))
    ):
        yield f"{runner} pytest" if runner else "python3 -m pytest"
    elif folders and (is_project or any(folders[0].glob("test_*.py"))):
        yield f"{runner} python -m unittest".lstrip() if runner else "python3 -m unittest discover"


def _runner(top: Path, locks: dict[str, str], otherwise: str) -> str:
    return next((program for lock, program in locks.items() if (top / lock).is_file()), otherwise)


def setup_command(top: Path) -> str:
    """Return the command that makes what a project's lock files name, as in a new worktree; "" if there is none."""
    commands: dict[str, str] = {}
    for row in WORKTREE_REQUIREMENTS:
        if row.is_sure and row.is_of(top):
            commands.setdefault(row.folder, row.command)
    return " && ".join(commands.values())


def main_branch(project: Project) -> str:
    """Return the branch that the first remote calls its own, else main or master if it is there."""
    with suppress(UwfError):
        head = project.line("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD")
        if head:
            return head.removeprefix("origin/")
        for name in ("main", "master", "trunk"):
            if (
                project.commit(f"refs/heads/{name}")
                or project.line("symbolic-ref", "-q", "--short", "HEAD") == name
            ):
                return name
    return ""


def _text(file: Path) -> str:
    """Return a file's text, "" if it isn't there or isn't one."""
    with suppress(UwfError):
        return read_bytes(file).decode("utf-8", "replace")
    return ""


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
