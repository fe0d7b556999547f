"""The states of a thread in a fleet's queue: its own, and those that only a queue has."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from uwf_git.plugin import ThreadState


class QueueState(Enum):
    """A state that only a queue has, by its word."""

    QUEUED = "queued"
    DELAYED = "delayed"  # its step is made later
    BLOCKED = (
        "blocked"  # nothing in git tells when it can go on: its code is untrusted, or a person plays the role
    )
    HELD = "held"  # by `uwf fleet pause`, or a budget
    GAVE_UP = "gave up"
    CANCELLED = "cancelled"


RowState = ThreadState | QueueState
_FIRST: tuple[RowState, ...] = (
    ThreadState.RUNNING,
    QueueState.QUEUED,
    QueueState.DELAYED,
    ThreadState.FAILING,
    ThreadState.ASKING,
    QueueState.BLOCKED,
    ThreadState.PAUSED,
    ThreadState.JOINING,
    QueueState.HELD,
    QueueState.GAVE_UP,
    QueueState.CANCELLED,
)


def word_of(state: RowState) -> str:
    """Return the word of a state in the queue, where FAILED and FAILING, which is tried again, have words of their
    own."""
    return state.value if isinstance(state, QueueState) else state.in_queue


WORDS = tuple(dict.fromkeys(word_of(state) for state in (*_FIRST, *ThreadState)))
"""The words in the order in which they are counted."""
_BY_WORD: dict[str, RowState] = {word_of(state): state for state in (*QueueState, *reversed(ThreadState))}


def parse(word: str) -> RowState:
    """Return the state that a workflow's memo names; BLOCKED for one of a later version."""
    return _BY_WORD.get(word, QueueState.BLOCKED)


def is_over(state: RowState) -> bool:
    """Return whether a thread has left the queue."""
    if isinstance(state, QueueState):
        return state in (QueueState.GAVE_UP, QueueState.CANCELLED)
    return state.is_ended


def rests(state: RowState) -> bool:
    """Return whether a thread needs an outside event to continue."""
    match state:
        case QueueState.QUEUED | QueueState.DELAYED:
            return False
        case QueueState.BLOCKED | QueueState.HELD | QueueState.GAVE_UP | QueueState.CANCELLED:
            return True
        case ThreadState():
            return state.rests
        case _:
            assert_never(state)
