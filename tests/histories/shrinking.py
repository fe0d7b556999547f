"""The smallest history that breaks a claim as a long one does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from claims import Violation
from operations import Operation
from runs import History, Plan, again

Part = TypeVar("Part")

TRIES = 4  # where operations are done at once again, they may meet in another way


class Smallest(NamedTuple):
    """The history that is left, and whether its operations have to be done at once."""

    history: History
    violation: Violation
    at_once: bool


def smallest(parts: Sequence[Part], fails: Callable[[list[Part]], bool]) -> list[Part]:
    """Of parts that fail together, some that still do, none of which can be left out by itself: delta debugging, by
    leaving out ever smaller runs of them."""
    left, size = list(parts), max(len(parts) // 2, 1)
    while left:
        at, fewer = 0, False
        while at < len(left):
            without = left[:at] + left[at + size :]
            if fails(without):
                left, fewer = without, True
            else:
                at += size
        if size == 1 and not fewer:
            break
        if not fewer:
            size = max(size // 2, 1)
    return left


def shrunk(
    history: History,
    violation: Violation,
    seconds: float,
    replay: Callable[[Plan, Sequence[Operation], bool], History] = again,
) -> Smallest | None:
    """The smallest history that breaks the same claim, found in about so many seconds; None where it can't be done
    again: not in turn, and not at once in a few tries."""
    operations = [event.operation for event in history.events if event.operation.worker >= 0]
    until = time.monotonic() + seconds
    for at_once in (False, True):
        found: list[tuple[History, Violation]] = []

        def fails(some: Sequence[Operation], at_once: bool = at_once, found: list = found) -> bool:
            for _ in range(TRIES if at_once else 1):
                if time.monotonic() > until:
                    return False
                tried = replay(history.plan, some, at_once)
                same = [each for each in tried.violations() if each.claim == violation.claim]
                if same:
                    found.append((tried, same[0]))
                    return True
            return False

        if fails(operations):
            smallest(operations, fails)
            return Smallest(*found[-1], at_once)
    return None
