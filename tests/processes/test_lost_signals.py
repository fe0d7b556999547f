"""A signal ends a command wherever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, time, weakref
from uwf_cli import main

class Thing: pass

main._heed_signals()
thing = Thing()
ref = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.{name}))
del thing
time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_whose_handler_raises_where_python_ignores_it_comes_again(number: signal.Signals) -> None:
    program = [sys.executable, "-c", _PROGRAM.format(name=number.name)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].endswith(("Terminated", "KeyboardInterrupt")), done.stderr
    assert "ignored" not in done.stderr
