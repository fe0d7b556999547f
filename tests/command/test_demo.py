"""`make demo`, the first command of the README: its runs come out as they should, or it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY

from uwf_git import __version__

pytestmark = pytest.mark.extended

Demo = Callable[[], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean checkout of what the demo uses."""
    folder = tmp_path / "checkout"
    for name in ("examples", "uwf_git", "cli", "tests/values", "CHANGELOG.md", ".gitignore"):
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def demo(checkout: Path) -> Demo:
    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "examples/demo/run.sh"],
            cwd=checkout,
            env={**os.environ, "UWF_BIN": str(Path(sys.executable).parent)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_demo_runs_to_its_end_and_each_command_that_it_names_there_works(
    demo: Demo, checkout: Path
) -> None:
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in done.stdout and ": failed" not in done.stdout
    _, _, end = done.stdout.partition("All four runs ended as they should")
    commands = "".join(line + "\n" for line in end.splitlines() if line.startswith("  "))
    assert commands.count("\n  uwf ") >= 4
    named = subprocess.run(
        ["sh", "-eu"], input=commands, cwd=checkout, capture_output=True, text=True, check=False
    )
    assert named.returncode == 0, named.stderr


def test_a_checkout_with_changes_cannot_be_tagged_which_fails_no_demo(demo: Demo, checkout: Path) -> None:
    (checkout / "examples" / "new").touch()
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    assert "tag (uwf-exec): failed" in done.stdout


def test_a_checkout_of_a_release_runs_the_demo_after_later_ones(demo: Demo, checkout: Path) -> None:
    for command in (
        ["tag", f"v{__version__}"],
        ["commit", "-q", "--allow-empty", "-m", "Later"],
        ["tag", "v999.0.0"],
        ["checkout", "-q", f"v{__version__}"],
    ):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    assert "version (uwf-exec): passed" in done.stdout and "tag (uwf-exec): failed" in done.stdout


def test_a_source_archive_runs_the_demo(demo: Demo, checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    assert "tag (uwf-exec): failed" in done.stdout


@pytest.mark.parametrize("broken", ["tests/values/vectors.json", "CHANGELOG.md"])
def test_a_run_that_comes_out_wrong_fails_the_demo(demo: Demo, checkout: Path, broken: str) -> None:
    (checkout / broken).write_text("{}")
    subprocess.run(["git", "commit", "-qam", "Broken"], cwd=checkout, check=True)
    done = demo()
    assert done.returncode == 1
    role = "tests" if "vectors" in broken else "changelog"
    assert done.stderr.startswith("demo: thread 01") and f"{role}=failed" in done.stderr
    assert len(done.stderr.splitlines()) == 1
