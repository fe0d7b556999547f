"""What a command has started ends with it, also by a signal that comes while it is being started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import alive, wait_until_gone

from uwf_git.base.lifetime import deferred
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.descendants import MARK

# It starts a process in a session of its own, which notes its environment and its number, and then leaves it alone.
LEAVING = """
import os, pathlib, subprocess, sys, time
program = "import os, signal, time, pathlib; {signals}; " \\
    "pathlib.Path('mark').write_text(os.environ['{mark}']); pathlib.Path('pid').write_text(str(os.getpid())); " \\
    "time.sleep(600)"
subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
while not pathlib.Path("pid").exists() or not pathlib.Path("pid").read_text():
    time.sleep(0.01)
{then}
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("then", ["", "time.sleep(600)"], ids=["exits", "runs out of time"])
def test_what_has_left_the_group_of_a_command_is_ended_with_it_also_by_an_outer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    signals = "signal.signal(15, signal.SIG_IGN)" if then else "pass"
    program = LEAVING.format(signals=signals, mark=MARK, then=then)
    monkeypatch.setenv(MARK, "0uter")
    done = run_command(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        timeout=3 if then else None,
    )
    assert done.timed_out == bool(then)
    assert not alive((tmp_path / "pid").read_text())
    # A step that runs within another's belongs to that too, even with an environment made anew.
    outer, _, own = (tmp_path / "mark").read_text().partition(":")
    assert outer == "0uter" and len(own) == 16


# An engine, whose command starts another by a way, in an environment of its own, and kills the engine then.
KILLING = """
import sys
from uwf_git.sandbox.child import run_command
run_command(["sh", "-c", sys.argv[1]], guarded=True)
"""
STARTED = "sh -c 'echo $$ >pid.part; mv pid.part pid; exec sleep 600'"
KILLS = "while [ ! -e pid ]; do sleep 0.01; done; kill -9 $PPID; sleep 600"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("way", ["env -i {} &", "(env -i {} &);", "env -i setsid {} &"])
def test_what_a_command_has_started_ends_though_the_command_kills_its_engine(
    tmp_path: Path, way: str
) -> None:
    command = f"{way.format(STARTED)} {KILLS}"
    engine = subprocess.Popen([sys.executable, "-c", KILLING, command], cwd=tmp_path)
    assert engine.wait(30) == -signal.SIGKILL
    wait_until_gone((tmp_path / "pid").read_text().strip())


def test_silence_does_not_count_while_a_command_waits_for_a_person_and_counts_afterwards() -> None:
    done = run_command(["sleep", "1"], env={"PATH": "/usr/bin:/bin"}, silence=0.2, waits=lambda: True)
    assert (done.returncode, done.fell_silent) == (0, False)
    looks = [True] * 3
    done = run_command(
        ["sleep", "600"],
        env={"PATH": "/usr/bin:/bin"},
        silence=0.2,
        waits=lambda: bool(looks and looks.pop()),
    )
    assert done.fell_silent and not looks and done.took >= 0.6


def test_a_signal_waits_until_the_block_has_ended_and_then_does_what_it_does() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("the whole block")
    assert done == ["the whole block"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
