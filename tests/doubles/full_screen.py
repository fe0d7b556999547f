"""A program that draws the whole of a terminal: its screen, its keys, its process."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyte

_PATIENCE = 60.0  # seconds until something is taken to fail


class FullScreen:
    """`uwf` with these arguments on a terminal of so many columns and rows."""

    def __init__(self, *args: object, columns: int, rows: int, env: Mapping[str, str] = {}) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self.on_output: Callable[[bytes], None] = lambda data: None
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            _set_size(0, columns, rows)
            environ = {**os.environ, "TERM": "xterm-256color", **env}
            words = [sys.executable, "-m", "uwf_cli.main", *map(str, args)]
            os.execve(sys.executable, words, environ)
        self._status: int | None = None

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line_with(self, text: str) -> str:
        """The first line that has a text."""
        return next(line for line in self.lines if text in line)

    @property
    def colours(self) -> set[str]:
        """The colours of all characters and grounds."""
        cells = [cell for row in self._screen.buffer.values() for cell in row.values()]
        return {colour for cell in cells for colour in (cell.fg, cell.bg)}

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self._terminal, key.encode())

    def wait(self, condition: str | Callable[[str], bool]) -> None:
        """Return once the screen has a text, or meets a condition."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + _PATIENCE
        self._read(0.05)
        while not holds(self.text):
            assert time.monotonic() < deadline, f"never shown: {condition}\n{self.text}"
            if not self._read(0.05):
                assert holds(self.text), f"it ended before this was shown: {condition}\n{self.text}"

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        _set_size(self._terminal, columns, rows)
        os.kill(self.pid, signal.SIGWINCH)

    def rest(self, seconds: float) -> None:
        """Draw what comes within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)

    def end(self) -> int:
        """Return the exit status, once the process has ended."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(0.05):
            assert time.monotonic() < deadline, f"it goes on\n{self.text}"
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def _read(self, seconds: float) -> bool:
        """Draw what comes within this time; return False once the other side is closed."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # how Linux reports that the other side is closed
            return False
        self.written += data
        self.on_output(data)
        self._stream.feed(data)
        return bool(data)


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def full_screen(
    *args: object, columns: int = 160, rows: int = 50, env: Mapping[str, str] = {}
) -> Iterator[FullScreen]:
    screen = FullScreen(*args, columns=columns, rows=rows, env=env)
    try:
        yield screen
    finally:
        screen.kill()
