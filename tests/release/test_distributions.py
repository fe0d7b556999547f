"""A wheel has all of the sources and what shells and man find; a build depends on the sources alone."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from distributions import SOURCES, build, copy_sources
from programs import program

from uwf_git.base.version import VERSION

SHARE = f"uwf_git-{VERSION}.data/data/share/"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", SOURCES, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_has_the_sources_and_nothing_else(wheel: Path) -> None:
    sources = {
        str(path.relative_to(root))
        for root, package in ((SOURCES, "uwf_git"), (SOURCES / "cli", "uwf_cli"))
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if not name.startswith(f"uwf_git-{VERSION}.")} == sources
    assert wheel.stat().st_size < 2.8 * MEGABYTE


def test_a_wheel_has_man_pages_of_all_commands_and_completions(wheel: Path) -> None:
    from uwf_cli.tree import uwf

    names = zipfile.ZipFile(wheel).namelist()
    shared = {name.removeprefix(SHARE) for name in names if name.startswith(SHARE)}
    pages = {"uwf", *(f"uwf-{name.replace(' ', '-')}" for name in uwf.members)}
    assert shared == {
        *(f"man/man1/{page}.1" for page in pages),
        "bash-completion/completions/uwf",
        "zsh/site-functions/_uwf",
        "fish/vendor_completions.d/uwf.fish",
    }


def test_man_pages_name_every_option_and_pass_lint(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / SHARE / "man/man1"
    assert r"\fB\-\-max\-steps" in (folder / "uwf-run.1").read_text()
    assert r".SS uwf thread fork" in (folder / "uwf-thread.1").read_text()
    lint = subprocess.run(
        [program("mandoc"), "-T", "lint", "-W", "warning", *folder.iterdir()], capture_output=True, text=True
    )
    assert (lint.returncode, lint.stdout) == (0, "")


def test_the_version_is_single_sourced(wheel: Path) -> None:
    assert wheel.name == f"uwf_git-{VERSION}-py3-none-any.whl"
    newest = re.search(r"^## \[(.*?)\]", (SOURCES / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == VERSION


@pytest.mark.extended
def test_builds_elsewhere_at_other_times_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """The second and third have no git, other times, modes, language, time zone and hashes, and the third begins with
    the sdist."""
    sources = copy_sources(tmp_path / "elsewhere")
    for path in sources.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (978_307_200, 978_307_200))
    environ = {
        "PATH": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "7",
        "LC_ALL": "C",
        "COLUMNS": "40",
    }
    other_wheel = build("wheel", sources, tmp_path / "other", environ, umask=0o077)
    assert other_wheel.read_bytes() == wheel.read_bytes()

    sdist = build("sdist", SOURCES, tmp_path / "sdist")
    other_sdist = build("sdist", sources, tmp_path / "other", environ, umask=0o077)
    assert other_sdist.read_bytes() == sdist.read_bytes()
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert build("wheel", unpacked, tmp_path / "third", environ).read_bytes() == wheel.read_bytes()
    assert {"tests", "docs", "examples", "Makefile"} <= {path.name for path in unpacked.iterdir()}


@pytest.mark.extended
def test_two_builds_of_one_commit_have_its_time(tmp_path: Path) -> None:
    environ = {"SOURCE_DATE_EPOCH": "1764547200"}
    with zipfile.ZipFile(build("wheel", SOURCES, tmp_path, environ)) as archive:
        assert {info.date_time[:3] for info in archive.infolist()} == {(2025, 12, 1)}
        assert b"2025-12-01" in archive.read(f"{SHARE}man/man1/uwf.1")
