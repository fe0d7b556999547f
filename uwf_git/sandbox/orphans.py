"""Orphans of a command: processes that left its session and their parents, and may have cleared their environment.

While a command runs, this process adopts them instead of init (Linux only): as long as they live, their ancestry leads
here, and they end with the command. Only in a process of our own, since a library doesn't know the children of others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from uwf_git.base import lifetime, log
from uwf_git.sandbox.process_table import Process, content, end_each, has_table, processes, started_by

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 5  # what is being ended may start another

started: set[int] = set()
"""The processes that this one started as leaders of a session of their own."""
_depth = 0


@contextlib.contextmanager
def adopted(grace: float) -> Iterator[None]:
    """Adopt the orphans of commands that are run within, and end them: SIGTERM, after `grace` seconds SIGKILL."""
    global _depth
    if not lifetime.is_own() or not _adopts(True):
        yield
        return
    before = set(_children())
    if not _depth:
        started.intersection_update(before)  # numbers are used again
    _depth += 1
    try:
        yield
    finally:
        for _ in range(_ROUNDS):
            if not _end([pid for pid in _children() if pid not in before | started], grace):
                break
        _depth -= 1
        if not _depth:
            _adopts(False)


def _end(children: list[int], grace: float) -> bool:
    """End those that are of another session, so none that this process started, and reap them; return whether any was
    alive."""
    orphans = [pid for pid in children if _session(pid) != os.getsid(0)]
    left: list[Process] = []
    for each in processes(orphans):
        left += (each, *started_by(each.pid))
    if left:
        log.debug("5QK2ZC7M", "ends {count} orphans of a command", count=len(left))
        end_each(left, grace)
    for pid in orphans:
        with contextlib.suppress(OSError):
            os.waitpid(pid, os.WNOHANG)
    return bool(left)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _children() -> list[int]:
    """Return this process's children, zombies included."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, content(f"{task}/children").split())
    return found


def _adopts(yes: bool) -> bool:
    """Have orphans among this process's descendants become its children, or init's again; return whether that works."""
    if not has_table():
        return False
    import ctypes

    return not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)
