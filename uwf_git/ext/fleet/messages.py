"""Messages between the workflow, the activity and step processes, as JSON. They never contain commands to
run: those are each machine's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.ext.fleet.queue_states import QueueState
from uwf_git.plugin import Invalid, ThreadId, ThreadState, is_hash, is_thread_id, thread_states

QUEUE = "uwf"
"""The task queue of the workflows, and of steps that ask no provider; with the name of one behind it, of those that ask
that."""
WORKFLOW, STEP = "uwf-thread", "uwf-step"
LOOK, HOLD, LET, ALLOW, TAKE = "look", "hold", "let", "allow", "take"
"""The signals of a workflow: look at the thread again; make no more steps, for one of the reasons below; make steps
again, however many; make so many in all, as a budget allows them; belong to the budget that a `ThreadEntry` says."""
PAUSED, USED_UP = ThreadState.PAUSED.word, "the budget of its fleet is used up"
"""Why a thread is to have no more steps: somebody has said so, which counts more, or a budget. Also in the memo `HELD`
of its workflow, from the moment that it hears of it."""
HELD = QueueState.HELD.value
STEPS = "maxSteps"
"""Among what a thread has used: how many steps it has made."""
MADE_ALL = "it has made the steps that it may"
"""Why a thread is held that waits to be allowed more."""

ATTRIBUTES = "UwfWorkflow", "UwfRole", "UwfProject", "UwfStatus", "UwfCost"
BY_WORKFLOW, BY_ROLE, BY_PROJECT, BY_STATUS, BY_COST = ATTRIBUTES
"""The search attributes with which Temporal's pages and `temporal workflow list` find threads: names and US dollars."""

HEARTBEAT = 30.0
TRIES = 3
_LAST_PRIORITY = 5  # of those that a Temporal server has unless it is configured
_MAX_BACKOFF = 1e9  # seconds that a time may be said to last


class ThreadEntry(NamedTuple):
    """A thread entering the fleet: its last seen head and the next step's queue. `heartbeat` is in seconds,
    `tries` the attempts per step; `held` is PAUSED or USED_UP if it begins held. `used` is earlier spending
    if counted; `most` limits its steps from now, `made` counts them. `parent` is the thread that waits for it if it is
    a branch. `depth` is how many steps it has, with those of `parent`. `about` has its values of ATTRIBUTES, with
    which the server shows it if `is_shown`."""

    thread: str
    head: str
    queue: str = QUEUE
    heartbeat: float = HEARTBEAT
    tries: int = TRIES
    held: str = ""
    used: Mapping[str, float] | None = None
    most: int | None = None
    made: int = 0
    parent: str = ""
    depth: int = 0
    about: Mapping[str, str] = {}
    is_shown: bool = False

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


class ThreadReport(NamedTuple):
    """A step process's report on a thread: head, state, next role and its queue. `problem`: no edge applies; `why` it
    waits, without question texts, which stay in git. `used` is its spending if counted; `depth` is how many steps it
    has, `cost` what it has cost in US dollars, None if that is unknown."""

    thread: str
    head: str
    state: ThreadState
    done: bool
    next: str | None = None
    queue: str = QUEUE
    problem: str | None = None
    why: str = ""
    used: Mapping[str, float] | None = None
    depth: int = 0
    cost: float | None = None

    def as_json(self) -> dict[str, Any]:
        value = {"status": self.state.word, **self._asdict()}
        del value["state"]
        return value


def parse_begin(value: object) -> ThreadEntry:
    """Parse a ThreadEntry, also of later versions. Raises Invalid for untrusted input."""
    begin = ThreadEntry(**_fields(value, ThreadEntry))
    heartbeat, tries = begin.heartbeat, begin.tries
    if not isinstance(begin.queue, str) or not isinstance(begin.held, str) or not _is_used(begin.used):
        raise _invalid()
    if begin.parent != "" and not is_thread_id(begin.parent):
        raise _invalid()
    if not isinstance(begin.about, Mapping) or not all(type(text) is str for text in begin.about.values()):
        raise _invalid()
    if {type(begin.depth), type(begin.made)} != {int} or type(begin.most) not in (int, type(None)):
        raise _invalid()
    if type(heartbeat) not in (int, float) or not 0 < heartbeat <= _MAX_BACKOFF or type(tries) is not int:
        raise _invalid()
    return begin


def parse_report(value: object) -> ThreadReport:
    """Parse a ThreadReport, also of later versions. Raises Invalid."""
    if not isinstance(value, Mapping):
        raise _invalid()
    state = thread_states.parse(value.get("status"), value.get("done"))
    report = ThreadReport(**_fields({**value, "state": state}, ThreadReport))
    texts = (report.queue, report.why, report.next or "", report.problem or "")
    is_counted = _is_used(report.used) and type(report.depth) is int
    is_counted = is_counted and type(report.cost) in (int, float, type(None))
    if state is None or not all(isinstance(text, str) for text in texts) or not is_counted:
        raise _invalid()
    return report


def parse_step(thread: object, head: object) -> tuple[ThreadId, str]:
    """Parse a step's thread and previous head, which become parts of refs. Raises Invalid."""
    if not isinstance(thread, str) or not is_thread_id(thread) or not is_hash(head):
        raise _invalid()
    return ThreadId(thread), str(head)


def _fields(value: object, kind: type[ThreadEntry] | type[ThreadReport]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or set(kind._fields) - kind._field_defaults.keys() - value.keys():
        raise _invalid()
    parse_step(value["thread"], value["head"])
    return {name: value[name] for name in kind._fields if name in value}


def _is_used(value: object) -> bool:
    return value is None or (
        isinstance(value, Mapping) and all(type(item) in (int, float) for item in value.values())
    )


def _invalid() -> Invalid:
    return Invalid("the queue names no step of a thread", "put threads into it with: uwf fleet start ID")


def priority_of(depth: int) -> int:
    """Return the priority of the next step, from 1, the first to be made, to 5: threads that are further along go
    first, so that a budget that is used up leaves finished ones."""
    return max(1, _LAST_PRIORITY - depth.bit_length())


def activity_id(thread: str, head: str) -> str:
    """Return the name of the step after a head: of two workers, one lands it."""
    return f"{thread}@{head}"


def hold_reason(held: str, signal: str, why: object = PAUSED) -> str:
    """Return why a thread is held after a HOLD or LET signal, "" if it isn't. Other signals change nothing."""
    if signal == LET:
        return ""
    if signal == HOLD and held != PAUSED:
        return USED_UP if why == USED_UP else PAUSED
    return held
