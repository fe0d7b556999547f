"""Giving the terminal to another program."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from textual.app import App


def hand_over(
    app: App[Any], argv: Sequence[str], environment: Mapping[str, str], folder: Path | None, waits: bool
) -> None:
    """Run a program on the application's terminal to its end; with `waits` then wait for Enter, so that what it printed
    can be read."""
    # Ctrl-C is for the program; a handler isn't inherited, as ignoring it would be.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with app.suspend():
            try:
                subprocess.run(argv, cwd=folder, env=environment, check=False)
            except OSError as error:
                print(f"uwf: {error}")
            if waits:
                with suppress(EOFError):
                    input("\n[Enter] ")
    finally:
        signal.signal(signal.SIGINT, before)
