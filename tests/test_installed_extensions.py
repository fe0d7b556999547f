"""Extensions of installed packages are found wherever Python looks for modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Uwf

from uwf_git.base import extensions


@pytest.fixture
def asked_anew() -> Iterator[None]:
    extensions.others.cache_clear()
    yield
    extensions.others.cache_clear()


@pytest.mark.parametrize("before", ["", "an archive"])
def test_an_extension_of_an_installed_package_is_found(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_anew: None
) -> None:
    info = tmp_path / "uwf_clock-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-clock\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[uwf.extensions]\nclock = uwf_clock:EXTENSION\n")
    (tmp_path / "uwf_clock.py").write_text(
        "from uwf_git.plugin import Extension\nEXTENSION = Extension('clock')\n"
    )
    (tmp_path / "modules.zip").write_bytes(b"PK\5\6" + bytes(18))
    monkeypatch.syspath_prepend(tmp_path)
    if before:
        monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    assert [each.name for each in extensions.others()] == ["clock"]


ENDING = """\
import sys
from uwf_git.plugin import Command, Extension
EXTENSION = Extension("clock", commands=(Command("clock", "uwf_clock.commands:clock", "Tell the time."),))
"""
COMMANDS = """\
import sys
from uwf_git.plugin import Invocation, command

@command("uwf clock")
def clock(invocation: Invocation) -> None:
    "Tell the time."
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (f"{ENDING}sys.exit(0)\n", "extension clock cannot be loaded: SystemExit: 0"),
        (ENDING, "code of an extension ended the process: exit 0"),
    ],
)
def test_an_extension_that_ends_the_process_is_no_success(
    uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    site = tmp_path / "site"
    info, package = site / "uwf_clock-1.dist-info", site / "uwf_clock"
    info.mkdir(parents=True)
    package.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uwf-clock\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[uwf.extensions]\nclock = uwf_clock:EXTENSION\n")
    (package / "__init__.py").write_text(source)
    (package / "commands.py").write_text(COMMANDS)
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert uwf("clock", check=1).error["message"] == reason
