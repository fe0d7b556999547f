"""How far something is, on one line of a terminal: drawn once it has taken a second, and gone when it is over. What
git says of its progress is read from its standard error; what a server says through it is shown above the line.
"""

from __future__ import annotations

import re
import sys
import time

from uwf_cli import terminal
from uwf_git.attention import is_drawn_on, undisturbed

AFTER = 1.0
BETWEEN = 0.1
MOST_SAID = 20
_BAR = 20
_STEP = re.compile(r"(?:remote: )?([A-Z][A-Za-z ]{2,40}): +[0-9]{1,3}% \(([0-9]+)/([0-9]+)\)")
# What git says of itself on the server's side, beside the progress.
_OF_GIT = re.compile(
    r"remote: (?:$|(?:Enumerating|Counting|Compressing|Resolving|Unpacking|Checking|Total) )"
)


class Meter:
    """The line on standard error, where that is a terminal; elsewhere nothing is said."""

    def __init__(self) -> None:
        self.shown = terminal.is_terminal(sys.stderr)
        self._began = time.monotonic()
        self._drawn = 0.0
        self._rest = ""
        self._said = 0

    def step(self, what: str, done: int, of: int) -> None:
        """So many of so many are done."""
        now = time.monotonic()
        if not self.shown or is_drawn_on() or now - self._began < AFTER or now - self._drawn < BETWEEN:
            return
        from shutil import get_terminal_size

        self._drawn = now
        part = min(done / of, 1.0) if of else 1.0
        bar = ("#" * round(part * _BAR)).ljust(_BAR, "·")
        text = f"{what.lower():<20} {bar} {part:4.0%}  {done:,} of {of:,}"
        self._write("\r" + terminal.cut(terminal.escape(text), get_terminal_size().columns - 1) + "\x1b[K")

    def heard(self, text: str) -> None:
        """What git says, piece by piece; "" at its end."""
        *lines, self._rest = re.split(r"[\r\n]", self._rest + text)
        self._rest = self._rest[-4096:]
        for line in lines:
            if found := _STEP.match(line):
                self.step(found[1], int(found[2]), int(found[3]))
            elif line.startswith("remote: ") and not _OF_GIT.match(line) and self._said < MOST_SAID:
                self._said += 1
                self.clear()
                self._write(terminal.escape(line.rstrip()) + "\n")
        if not text:
            self._rest = ""
            self.clear()

    def clear(self) -> None:
        """Leaves nothing of the line."""
        if self._drawn:
            self._drawn = 0.0
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self.shown:
            with undisturbed():
                sys.stderr.write(text)
                sys.stderr.flush()
