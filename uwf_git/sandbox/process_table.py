"""Processes of this machine in relation to each other, and their end."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from uwf_git.base import system
from uwf_git.base.system import Process

_POLL = 0.01


def parents_of(pid: int) -> list[int]:
    """Return a process's parent, that one's parent, and so on."""
    chain: list[int] = []
    while True:
        pid = next((process.parent for process in system.processes((pid,))), 0)
        if pid <= 0 or pid in chain:
            return chain
        chain.append(pid)


def started_at(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970 and a little early; None if that is not known."""
    return next(map(system.seconds_of, system.processes((pid,))), None)


def started_by(pid: int) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in system.processes(system.numbers()):
        children.setdefault(process.parent, []).append(process)
    descendants = list(children.get(pid, ()))
    for process in descendants:  # which grows meanwhile
        descendants.extend(children.get(process.pid, ()))
    return descendants


def end_each(processes: Sequence[Process], grace: float) -> None:
    """End processes, not necessarily children: SIGTERM, after `grace` seconds SIGKILL."""
    for process in processes:
        system.notify(process, signal.SIGTERM, *system.WAKING)
    deadline = time.monotonic() + grace
    while (processes := list(filter(system.is_there, processes))) and time.monotonic() < deadline:
        time.sleep(_POLL)
    for process in processes:
        system.notify(process, system.KILL)
