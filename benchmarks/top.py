"""`uwf top` on a terminal, as a process of a real install: how soon it shows many threads and a change of one, how much
memory it has, and what it costs while nothing happens."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rows import Row, Size, cost
from stores import UWF, Lab

_ROWS, _COLUMNS = 50, 160
_REST = 10.0  # seconds
_PATIENCE = 60.0  # seconds in which nothing is drawn
_MEGABYTE = 1e6


def on_many_threads(folder: Path, size: Size) -> Iterator[Row]:
    """The first screen, a new thread, memory, and rest."""
    lab = Lab(folder)
    lab.threads(size.threads, 3)
    began = time.monotonic()
    with _opened(lab) as screen:
        screen.wait(f" {size.threads} idle")
        yield cost(f"uwf top shows {size.threads:,} threads", time.monotonic() - began, 1.5)
        late = []
        for number in range(1, size.few_turns + 1):
            screen.rest(1.0)
            lab.start()
            began = time.monotonic()
            screen.wait(f" {size.threads + number} idle")
            late.append(time.monotonic() - began)
        yield cost("a thread is started, uwf top shows it", sorted(late)[len(late) // 2], 0.3)
        screen.rest(2.5)  # what has just changed is looked at more closely
        yield Row("its memory, without mapped files", _memory(screen.pid) / _MEGABYTE, "MB", None, 60)
        before, began = _used(screen.pid), time.monotonic()
        screen.rest(_REST if size.turns > 2 else 1.0)
        share = 100 * (_used(screen.pid) - before) / (time.monotonic() - began)
        yield Row("while nothing happens, of one CPU", share, "%", None, 1)


class _Screen:
    """What a process draws on its terminal."""

    def __init__(self, pid: int, terminal: int) -> None:
        self.pid = pid
        self._terminal = terminal
        self._drawn = b""

    def wait(self, text: str) -> None:
        """Return once a text was drawn since the last call. Raises TimeoutError."""
        while text.encode() not in self._drawn:
            if not self._read(_PATIENCE):
                raise TimeoutError(f"{text!r} never appeared after {self._drawn[-2000:]!r}")
        self._drawn = b""

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        self._drawn += os.read(self._terminal, 1 << 16)
        return True


@contextmanager
def _opened(lab: Lab) -> Iterator[_Screen]:
    pid, terminal = pty.fork()
    if not pid:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        os.execve(UWF, [UWF, "top"], {**lab.environ, "TERM": "xterm-256color"})
    try:
        yield _Screen(pid, terminal)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _memory(pid: int) -> int:
    """The bytes of a process in memory, without those of files, which the system drops when it needs them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def _used(pid: int) -> float:
    """The seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
