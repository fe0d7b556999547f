"""A waiting thread, as the pages of the inbox and of the thread show it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from uwf_git.plugin import BUDGET_OPTIONS

_OPTIONAL = (
    "branches",
    "branchOf",
    "waitingBelow",
    "paused",
    "question",
    "asks",
    "options",
    "reason",
    "error",
    "problem",
    "divergedFrom",
    "forkedFrom",
    "otherSides",
    "resumedFrom",
)


class Raise(NamedTuple):
    """More of a used-up budget: of `thread`, which may be one above, by `amount` of the limit `key`."""

    thread: str
    key: str
    amount: str
    command: str


def raise_of(command: str) -> Raise | None:
    """Return what a command raises; None for another command."""
    match shlex.split(command):
        case ["uwf", "thread", "budget", thread, option, amount]:
            key = next((key for key, name in BUDGET_OPTIONS.items() if name == option), "")
            return Raise(thread, key, amount, command) if key else None
    return None


def state_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a thread's state with None for optional keys that it lacks."""
    return {**dict.fromkeys(_OPTIONAL), **state}
