"""The examples of documents that need other programs' packages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY
from interop import GUIDES
from shell_session import Session


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", GUIDES)
def test_a_guide_runs_as_it_says(document: str, hermetic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("UWF_STORAGE_ROOT", raising=False)
    session = Session(hermetic / "work", os.environ, terminal=True)
    try:
        assert session.play((REPOSITORY / document).read_text(encoding="utf-8"))
    finally:
        session.close()
