"""What the workflow of a thread, the activity that makes a step of it, and the process that does the work say to each
other, as JSON. Whatever says what is run, such as an agent's command, is not among it: that is each machine's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

QUEUE = "uwf"
"""The task queue of the workflows, and of steps that ask no provider; with the name of one behind it, of those that ask
that."""
WORKFLOW, STEP = "uwf-thread", "uwf-step"
LOOK, HOLD, LET = "look", "hold", "let"
"""The signals of a workflow: look at the thread again; make no more steps; make steps again."""

HEARTBEAT = 30.0
TRIES = 3


class Begin(NamedTuple):
    """How a thread is taken into the fleet: the head that was seen last, and the queue of the step that comes next.
    `heartbeat` are the seconds without a sign of life after which a step is given to another worker; `tries` is how
    often one that fails is tried; `held`, it begins without a step. `used` is what the thread has used before, where
    what it uses counts, see `uwf_git.fleet.admission`."""

    thread: str
    head: str
    queue: str = QUEUE
    heartbeat: float = HEARTBEAT
    tries: int = TRIES
    held: bool = False
    used: Mapping[str, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """As it travels."""
        return self._asdict()


class Stand(NamedTuple):
    """Where a thread stands: its head, its status, and if it goes on who is next and in which queue. `problem` says why
    the graph knows no way on, `why` what it waits for, but for the words of a question: what threads say stays in
    git. `used` is what it has used altogether, where that counts."""

    thread: str
    head: str
    status: str
    done: bool
    next: str | None = None
    queue: str = QUEUE
    problem: str | None = None
    why: str = ""
    used: Mapping[str, float] | None = None

    def as_json(self) -> dict[str, Any]:
        """As it travels."""
        return self._asdict()


def parse_begin(value: Mapping[str, Any]) -> Begin:
    """What `as_json` gave, also a later version's."""
    return Begin(**{name: value[name] for name in Begin._fields if name in value})


def parse_stand(value: Mapping[str, Any]) -> Stand:
    """What `as_json` gave, also a later version's."""
    return Stand(**{name: value[name] for name in Stand._fields if name in value})


def activity_id(thread: str, head: str) -> str:
    """The name of the step that comes after a head: of two workers that make it, one lands."""
    return f"{thread}@{head}"
