"""examples/notify.sh: notifications whose buttons answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Uwf

NOTIFY = Path(__file__).parents[2] / "examples" / "notify.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a `notify-send` that notes its arguments and presses the second button."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/shown\necho 2\n')
    program.chmod(0o755)
    return folder


@pytest.mark.needs("jq")
def test_a_button_of_a_notification_answers(uwf: Uwf, gated: str, programs: Path, tmp_path: Path) -> None:
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen([NOTIFY], env={**os.environ, "PATH": path}, start_new_session=True) as shown:
        try:
            until = time.monotonic() + 60
            while len(uwf("thread", "steps", gated).json) < 2 and time.monotonic() < until:
                time.sleep(0.2)
        finally:
            os.killpg(shown.pid, 15)
    assert uwf("thread", "steps", gated).json[-1]["output"] == {"decision": "change"}
    told = (tmp_path / "shown").read_text()
    assert "--action=1=send\n--action=2=change\n--action=3=drop\n--\ngate\nSend first?\n" in told
