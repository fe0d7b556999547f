"""Extensions of installed packages are found wherever Python looks for modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
