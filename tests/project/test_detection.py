"""What `uwf init` finds out about a project."""

from __future__ import annotations

from pathlib import Path

import git_servers
import pytest

from uwf_git.ext.project.detection import commands_for_tests, main_branch, setup_command
from uwf_git.workspaces.project import Project

git = git_servers.git


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"Makefile": "all: x\n\ncheck test: all\n\ttrue\n", "Cargo.toml": ""}, "make test"),
        ({"Makefile": "TESTS = test: x\nbuild:\n\ttrue\n", "go.mod": ""}, "go test ./..."),
        ({"Makefile": "test := 3\n"}, ""),
        ({"Makefile": ".PHONY: test\ncheck:\n\ttrue\n"}, "make check"),
        ({"justfile": "@test *args='':\n  true\n"}, "just test"),
        ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": '{"scripts": {"test": "echo no test specified && exit 1"}}'}, ""),
        ({"package.json": "[1"}, ""),
        ({"package.json": '{"scripts": ["test"]}'}, ""),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": ""}, "uv run pytest"),
        ({"pyproject.toml": "[project]\n", "tests/test_a.py": ""}, "python3 -m pytest"),
        ({"setup.py": "", "tests/other.py": ""}, "python3 -m unittest discover"),
        ({"tox.ini": "[tox]\n"}, "tox"),
        ({"tests/data.json": ""}, ""),
        ({"Gemfile": "", "spec/a_spec.rb": ""}, "bundle exec rspec"),
        ({"mvnw": "", "pom.xml": ""}, "./mvnw -q test"),
        ({"README.md": "make test"}, ""),
    ],
)
def test_the_command_of_a_projects_tests(tmp_path: Path, files: dict[str, str], command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert next(commands_for_tests(tmp_path), "") == command


def test_lock_files_give_what_a_new_worktree_runs(tmp_path: Path) -> None:
    assert setup_command(tmp_path) == ""
    (tmp_path / "uv.lock").touch()
    (tmp_path / "package-lock.json").touch()
    assert setup_command(tmp_path) == "npm ci && uv sync --frozen"


def test_the_branch_that_work_is_for_is_the_remotes_or_main(tmp_path: Path) -> None:
    git("init", "-q", "-b", "topic", tmp_path / "a")
    project = Project(tmp_path / "a" / ".git")
    assert main_branch(project) == ""
    git("-C", tmp_path / "a", "commit", "-q", "--allow-empty", "-m", "Begin")
    git("-C", tmp_path / "a", "branch", "master")
    assert main_branch(project) == "master"
    git("clone", "-q", tmp_path / "a", tmp_path / "b")
    assert main_branch(Project(tmp_path / "b" / ".git")) == "topic"
