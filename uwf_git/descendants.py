"""Whatever a started process has started in its turn, as far as it can be told.

A process leads a group of its own. What leaves the group, as daemons do and wrappers with the program that they
wrap, still has a mark in its environment, which it inherits; what drops that too is not found. Where the system has no
/proc, the group alone is known.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MARK = "UWF_AGENT_MARK"
_PROC = Path("/proc")
_ROUNDS = 20  # of looking for what was started while the others were being killed
_PAUSE = 0.005
_POLL = 0.01


class Descendants:
    """Those of a process to be started with the environment `env`, in a group of its own."""

    def __init__(self, env: Mapping[str, str]) -> None:
        token = secrets.token_hex(8)
        self._token = token.encode()
        # A step may run this program again: the inner one's processes belong to the outer one's too, even where the
        # environment in between was made anew.
        outer = env.get(MARK) or os.environ.get(MARK)
        self.env = {**env, MARK: ":".join(filter(None, (outer, token)))}

    def end(self, process: subprocess.Popen[bytes], grace: float) -> None:
        """Ends the process and whoever is left of what it has started: with SIGTERM, and `grace` seconds later with
        SIGKILL. Where that is nobody, /proc is looked through once."""
        group = process.pid
        process.poll()
        if self._signal(group, signal.SIGTERM):
            deadline = time.monotonic() + grace
            while time.monotonic() < deadline:
                time.sleep(_POLL)
                process.poll()
                if not self._alive(group):
                    break
            self._kill(group)
        process.wait()

    def _alive(self, group: int) -> bool:
        """Whether anybody is left, of that group or with the mark. Zombies don't count."""
        if not _has_proc():
            return signal_group(group, 0)
        return any(self._belongs(pid, group) for pid in _processes())

    def _signal(self, group: int, number: int) -> bool:
        """Signals whoever is left; returns whether there was anybody."""
        if not _has_proc():
            return signal_group(group, number)
        found = [pid for pid in _processes() if self._belongs(pid, group)]
        for pid in found:
            # By a descriptor of the process: its number may be another one's by now.
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                try:
                    if self._belongs(pid, group):
                        signal.pidfd_send_signal(descriptor, number)
                finally:
                    os.close(descriptor)
        return bool(found)

    def _kill(self, group: int) -> None:
        """Kills whoever is left, and what those start meanwhile."""
        for _ in range(_ROUNDS):
            if not self._signal(group, signal.SIGKILL):
                break
            time.sleep(_PAUSE)

    def _belongs(self, pid: int, group: int) -> bool:
        if pid == os.getpid():
            return False
        try:
            # The name, in parentheses, may itself hold spaces: what counts comes after the last one.
            state, _parent, its_group = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:3]
            if state in "ZX":
                return False
            return int(its_group) == group or self._token in (_PROC / str(pid) / "environ").read_bytes()
        except (OSError, ValueError):
            return False


def signal_group(group: int, number: int) -> bool:
    """Signals the processes of a group; returns whether there was anybody."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _processes() -> Iterator[int]:
    with os.scandir(_PROC) as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())
