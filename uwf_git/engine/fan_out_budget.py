"""What the branches of a fork may spend.

The thread's limits bind its own steps and those of all branches together. Of the tokens and the cost that are left at
the fork each branch gets an equal share; steps and time have no shares. A branch may spend up to its share while
anything of the limit is left, and more only of what is free: what is left without the unused shares of the other
branches that have not ended. So an ended branch gives back what it did not use, and none takes what another was given.

A call in flight counts by what it may cost, so that branches in parallel exceed a limit by no more than one call. That
is known on its own machine only: among machines that have not exchanged what they did, what was given back may be spent
on each, and steps and time are not counted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

SHARED = ("maxTokens", "maxCost")
"""The limits of which branches get shares."""


def share_of(left: Mapping[str, float], branches: int) -> dict[str, float]:
    """Return each branch's share of what the limits of a thread leave; of tokens at least 1, since no limit is 0."""
    if not branches:
        return {}
    parts = {key: max(0.0, left[key]) / branches for key in SHARED if key in left}
    return {key: max(1, int(part)) if key == "maxTokens" else max(part, 1e-6) for key, part in parts.items()}


def allowance(left: float, share: float, spent: float, unused: float) -> float:
    """Return the amount up to which a branch may spend that has `spent` some. `left` is what the limit of its thread
    leaves to all, `unused` the sum of the unused shares of the other branches that have not ended."""
    return spent + max(0.0, min(left, max(share - spent, left - unused)))


class InFlight(NamedTuple):
    """Another branch with a call in flight: the unused part of its share, and what the call may cost."""

    unused: float
    reserved: float


def may_begin(
    left: float, share: float, spent: float, unused: float, need: float, others: Iterable[InFlight]
) -> bool:
    """Return whether a branch that may spend more can begin a call which may cost `need`; else it is to wait for the
    calls of `others`. The rest as for `allowance`."""
    others = list(others)
    if not others:
        return True
    if spent < share:
        return need <= left - sum(other.reserved for other in others)
    return need <= left - unused - sum(max(0.0, other.reserved - other.unused) for other in others)
