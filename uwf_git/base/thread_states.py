"""The states of a thread, a row each: its word, and the error that `run`, `continue` and `wait` end with, which has
their exit status.

A word is the status of JSON and of `--status`. States that share a word differ in why the thread rests: `failed` is a
step that will be tried again, or an end at `$FAIL`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from uwf_git.base import errors


class ThreadState(NamedTuple):
    """A state. `error` is None only for the end that was asked for; `label` is the word for people."""

    word: str
    error: type[errors.UwfError] | None
    is_ended: bool = False
    label: str = ""

    @property
    def exit_status(self) -> int:
        return self.error.exit_status if self.error is not None else 0


IDLE = ThreadState("idle", errors.NotRunning)
STUCK = ThreadState("idle", errors.NoTransition)
RUNNING = ThreadState("running", errors.NotRunning)
PAUSED = ThreadState("paused", errors.Paused)
WAITING = ThreadState("waiting", errors.Waiting)
JOINING = ThreadState("joining", errors.NotRunning)
FAILING = ThreadState("failed", errors.AgentFailed)
COMPLETED = ThreadState("completed", None, is_ended=True)
WITH_FAILURES = ThreadState(
    "completed-with-failures", errors.CompletedWithFailures, is_ended=True, label="completed with failures"
)
FAILED = ThreadState("failed", errors.WorkflowFailed, is_ended=True)
KILLED = ThreadState("killed", errors.Killed, is_ended=True)
CORRUPT = ThreadState("corrupt", errors.StoreDamaged)

STATES = (
    *(IDLE, STUCK, RUNNING, PAUSED, WAITING, JOINING, FAILING),
    *(COMPLETED, WITH_FAILURES, FAILED, KILLED, CORRUPT),
)


def words(states: Iterable[ThreadState]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.word for each in states))


def label_of(word: str) -> str:
    return next((each.label for each in STATES if each.word == word and each.label), word)


def worst(statuses: Iterable[int]) -> int:
    """Return the exit status for several threads: the highest; that of waiting ones counts if no other is bad."""
    found = set(statuses)
    return max(found - {WAITING.exit_status}, default=0) or max(found, default=0)
