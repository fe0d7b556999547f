"""`maxAgents`: the limit on agents running on this machine.

An agent holds `<storage root>/slots/<n>` by `flock`, so the kernel frees the slot of a killed process. All
stores with the same config.yaml share the slots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base import log, system
from uwf_git.base.text import counted
from uwf_git.config.resolve import is_delegate
from uwf_git.format.kinds import HUMAN, REHEARSE

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_POLL = 0.1  # seconds between two looks for a free slot
_FREE = (HUMAN, REHEARSE)
"""Agents that do no work of their own: a person, made-up answers, and those that other agents work for."""


@contextmanager
def agent_slot(instance: Instance, command: str) -> Iterator[None]:
    """Hold a slot during the block; wait if all are taken. An agent started by another agent shares its slot."""
    most = instance.config.max_agents
    if most is None or command in _FREE or is_delegate(command) or "UWF_THREAD" in os.environ:
        yield
        return
    folder = instance.location.root / "slots"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _take(folder, most)
    if descriptor is None:
        instance.warn(f"waiting: {counted(most, 'agent')} at work on this machine, as maxAgents allows")
        log.info("6ZGTEK5R", "waits for one of {most} slots", most=most)
        while (descriptor := _take(folder, most)) is None:
            time.sleep(_POLL)
    try:
        yield
    finally:
        os.close(descriptor)


def _take(folder: Path, most: int) -> int | None:
    for number in range(most):
        descriptor = system.open_file(folder / str(number), os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600)
        try:
            system.lock(descriptor)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
    return None
