"""The world of a test: nothing above its folder is seen, by git, by its library or by uwf."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cli_samples import PAIR, write
from conftest import Uwf


@pytest.fixture
def above(hermetic: Path) -> Path:
    """A repository with a store and a workflow, in the folder above what a test has: as any program may leave one
    in the folder for temporary files."""
    folder = hermetic.parent
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    private = folder / ".git" / "uwf"
    private.mkdir()
    (private / "format").write_text("1\n")
    write(str(folder / ".uwf/workflows/above.yaml"), PAIR)
    return folder


def test_nothing_above_the_folder_of_a_test_is_seen(
    uwf: Uwf, above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert subprocess.run(["git", "rev-parse"], capture_output=True, check=False).returncode == 128
    uwf("workflow", "show", "above", check=3)
    monkeypatch.delenv("UWF_STORAGE_ROOT")
    assert "uwf init" in uwf("thread", "list", check=3).error["hint"]
    monkeypatch.delenv("GIT_CEILING_DIRECTORIES")  # without the ceiling all of it is
    assert uwf("thread", "list").json == []
    uwf("workflow", "show", "above")


def test_nothing_is_seen_from_the_folder_itself(uwf: Uwf, tmp_path: Path) -> None:
    outside = tmp_path.parent
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    write(str(outside / ".uwf/workflows/above.yaml"), PAIR)
    try:
        done = subprocess.run(["git", "rev-parse"], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 128
        uwf("workflow", "show", "above", cwd=tmp_path, check=3)
    finally:
        shutil.rmtree(outside / ".git")
        shutil.rmtree(outside / ".uwf/workflows")


def test_a_ceiling_may_be_named_by_a_link(
    uwf: Uwf, above: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(above)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path / "link"))
    assert subprocess.run(["git", "rev-parse"], capture_output=True, check=False).returncode == 128
    uwf("workflow", "show", "above", check=3)
