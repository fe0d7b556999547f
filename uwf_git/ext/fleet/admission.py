"""Admission of threads: how many are open at a time, and the fleet's budget.

The feeder begins threads as others rest, and holds all of them once a budget is used up; steps in progress
finish. If steps are limited, each is permitted individually. Waiting threads don't count as open. Pure: the
queue's state in, actions out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from uwf_git.ext.fleet.messages import STEPS, USED_UP, ThreadEntry
from uwf_git.plugin import (
    AMOUNT_LIMITS,
    BUDGET_OPTIONS,
    BudgetState,
    Instance,
    ThreadId,
    spending_account,
)

UNPRICED = "unpriced"
"""Beside the keys of LIMITS in what was used: the tokens that the money doesn't cover."""


class FleetLimits(NamedTuple):
    """A fleet's limits: threads `open` at a time (None for all), and shared budget limits. `stops_unpriced`:
    unknown cost ends it if cost is limited."""

    open: int | None = None
    limits: Mapping[str, float] = {}
    stops_unpriced: bool = False

    def at_most(self, steps: int) -> FleetLimits:
        """Return the limits of a fleet whose workers make so many steps at the same time, 0 for unknown. If a budget
        may end it, no more threads are open by default, since each may be left half done."""
        return self._replace(open=steps) if self.open is None and self.limits and steps else self


def used_by(instance: Instance, thread: ThreadId) -> dict[str, float]:
    """Return a thread's whole spending by LIMITS and UNPRICED."""
    prices = instance.config.prices
    spent = spending_account(instance, instance.threads.head(thread)).spent
    return {**spent.amounts(prices), UNPRICED: spent.money(prices).unpriced}


def cost_of(instance: Instance, thread: ThreadId) -> float | None:
    """Return what a thread has cost in US dollars, None if that is unknown."""
    spent = spending_account(instance, instance.threads.head(thread)).spent
    return spent.money(instance.config.prices).cost


class FleetSpending(NamedTuple):
    """A fleet's spending and its limits."""

    standing: BudgetState

    def told(self) -> str:
        """The use of each limit as text, "" without limits."""
        return ", ".join(map(self.standing.share, self.standing.limits))

    def reason(self) -> str:
        """Why nothing starts any more, or ""."""
        if self.standing.missing_price:
            return f"cannot enforce its budget: {self.standing.missing_price}"
        share = self.standing.reached_share
        return f"its budget is used up, {share}" if share else ""

    def hint(self) -> str:
        limit = self.standing.reached
        assert limit is not None
        return f"repeat it with what else they may use: {BUDGET_OPTIONS[limit.key]} {limit.value:.6g}"


class Admission:
    """The threads still to begin, in order, and the spending of the others."""

    def __init__(self, begins: Iterable[ThreadEntry], allowance: FleetLimits) -> None:
        self.allowance = allowance
        self._left = deque(begins)
        self._used: dict[str, Mapping[str, float]] = {}
        self._may: dict[str, int] = {}  # steps in all, by the threads that are open

    @property
    def is_bound(self) -> bool:
        return bool(self.allowance.limits) or bool(self._left)

    @property
    def left(self) -> int:
        """The number of threads still to begin."""
        return len(self._left)

    def kept(self) -> list[ThreadEntry]:
        """Return waiting threads in the queue that a budget blocks."""
        return [entry._replace(held=USED_UP) for entry in self._left] if self.allowance.limits else []

    def prefer(self, threads: Collection[str]) -> None:
        """Begin some threads first, whose steps are in progress."""
        self._left = deque(sorted(self._left, key=lambda entry: entry.thread not in threads))

    def next(self, busy: int) -> list[ThreadEntry]:
        """Return the threads to begin now, given the number of busy ones; none once a budget is used up."""
        if self.used().standing.reached is not None:
            return []
        most = self.allowance.open
        count = len(self._left) if most is None else max(0, min(most - busy, len(self._left)))
        free = self._free()
        if free is None:
            return [self._left.popleft() for _ in range(count)]
        begun = [self._left.popleft() for _ in range(min(count, free))]
        self._may.update((entry.thread, self._made(entry.thread) + 1) for entry in begun)
        return [self.again(entry) for entry in begun]

    def allow(self, wanting: Iterable[str], resting: Iterable[str], closed: Iterable[str]) -> dict[str, int]:
        """Return changed step allowances: one more for each thread that wants to continue, those with the most steps
        first, as far as available. Resting or closed threads return unused ones."""
        if (free := self._free()) is None:
            return {}
        for thread in closed:
            self._may.pop(thread, None)
        changed = {
            thread: self._made(thread) for thread in resting if self._may.get(thread, 0) > self._made(thread)
        }
        self._may |= changed
        free = self._free() or 0
        for thread in sorted(wanting, key=lambda thread: -self._made(thread)):
            if free > 0 and self._may.get(thread, 0) <= self._made(thread):
                changed[thread] = self._may[thread] = self._made(thread) + 1
                free -= 1
        return changed

    def again(self, begin: ThreadEntry) -> ThreadEntry:
        """Return how to begin a thread again that the queue lost."""
        may = self._may.get(begin.thread)
        return begin if may is None else begin._replace(most=may, made=self._made(begin.thread))

    def is_about(self, thread: str) -> bool:
        return self._may.get(thread, 0) > self._made(thread)

    def _made(self, thread: str) -> int:
        return int(self._used.get(thread, {}).get(STEPS, 0))

    def _free(self) -> int | None:
        most = self.allowance.limits.get(STEPS)
        if most is None:
            return None
        used = sum(map(self._made, self._used))
        allowed = sum(max(0, may - self._made(thread)) for thread, may in self._may.items())
        return max(0, int(most) - used - allowed)

    def note(self, thread: str, used: Mapping[str, float]) -> None:
        """Record a thread's spending since it began."""
        self._used[thread] = used

    def used(self) -> FleetSpending:
        keys = (*AMOUNT_LIMITS, UNPRICED)
        total = {key: sum(used.get(key, 0) for used in self._used.values()) for key in keys}
        standing = BudgetState.of("fleet", self.allowance.limits, total)
        standing = standing._replace(unpriced=int(total[UNPRICED]))
        return FleetSpending(standing.strict() if self.allowance.stops_unpriced else standing)
