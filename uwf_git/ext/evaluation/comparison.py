"""Comparing two sides of a suite, by case and on average, with confidence. Pure and deterministic.

A side's score of a case is the mean of its repeats. Only common cases count. The interval of the difference
is bootstrapped: cases with replacement, and repeats within each, so that one lucky case or run doesn't look
like progress.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from uwf_git.ext.evaluation.significance import Scores, significantly_lower

WIN, LOSS, TIE = "win", "loss", "tie"

SAME = 1e-9
"""Scores that are nearer to one another are the same: sums of floats are not exact."""

SHARE = 0.95
"""Of the draws that an interval holds."""

_SEED = 20
_DRAWS = 4000
_FEWEST_DRAWS = 500
_WORK = 1_500_000  # scores that are drawn, about, at most


class ScoredRun(NamedTuple):
    """A judged run of a case: `score` from 0 to 1, `seconds` of agents' time, `cost` in US dollars or None,
    `unpriced` tokens."""

    case: str
    score: float
    seconds: float = 0.0
    cost: float | None = None
    unpriced: int = 0


class Average(NamedTuple):
    """The average of runs: mean, minimum and maximum `score`, and mean spending. `cost` covers runs with
    known cost; `unpriced` are all tokens without price."""

    runs: int
    score: float
    least: float
    most: float
    seconds: float
    cost: float | None
    unpriced: int


class Compared(NamedTuple):
    """A case on both sides. `outcome` is `b`'s: a win with the higher score."""

    case: str
    outcome: str
    a: Average
    b: Average

    @property
    def difference(self) -> float:
        """The score of `b` minus that of `a`."""
        return self.b.score - self.a.score


class Interval(NamedTuple):
    """A mean, and the interval of SHARE of all draws."""

    mean: float
    low: float
    high: float


class Comparison(NamedTuple):
    """`cases` are the common ones: losses, worst first, then wins, ties. `a` and `b` are averages over them,
    None without any. `chance` is the probability of at least such uneven wins and losses if neither side is
    better."""

    cases: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    a: Average | None
    b: Average | None
    difference: Interval | None
    chance: float

    def count(self, outcome: str) -> int:
        return sum(case.outcome == outcome for case in self.cases)


def compare(a: Iterable[ScoredRun], b: Iterable[ScoredRun]) -> Comparison:
    one, other = by_case(a), by_case(b)
    cases = compare_cases(one, other)
    both = [case.case for case in cases]
    wins, losses = (sum(case.outcome == outcome for case in cases) for outcome in (WIN, LOSS))
    cases.sort(key=lambda item: (_ORDER[item.outcome], -abs(item.difference), item.case))
    return Comparison(
        tuple(cases),
        tuple(sorted(one.keys() - other.keys())),
        tuple(sorted(other.keys() - one.keys())),
        overall(one[case] for case in both),
        overall(other[case] for case in both),
        interval([(_scores(one[case]), _scores(other[case])) for case in both]),
        chance(wins, losses),
    )


def compare_cases(
    a: Mapping[str, Sequence[ScoredRun]], b: Mapping[str, Sequence[ScoredRun]]
) -> list[Compared]:
    """Return the common cases by name."""
    return [_compared(case, a[case], b[case]) for case in sorted(a.keys() & b.keys())]


_ORDER = {LOSS: 0, WIN: 1, TIE: 2}


def by_case(runs: Iterable[ScoredRun]) -> dict[str, list[ScoredRun]]:
    scored_runses: dict[str, list[ScoredRun]] = {}
    for run in runs:
        scored_runses.setdefault(run.case, []).append(run)
    return scored_runses


def average(runs: Sequence[ScoredRun]) -> Average:
    """Return the average of a case's runs."""
    scores = _scores(runs)
    costs = [run.cost for run in runs if run.cost is not None]
    return Average(
        len(runs),
        fmean(scores),
        min(scores),
        max(scores),
        fmean(run.seconds for run in runs),
        fmean(costs) if costs else None,
        sum(run.unpriced for run in runs),
    )


def overall(cases: Iterable[Sequence[ScoredRun]]) -> Average | None:
    """Return the average of cases, each counting once; the extremes are of cases' means. None without any."""
    averages = [average(runs) for runs in cases]
    if not averages:
        return None
    costs = [one.cost for one in averages if one.cost is not None]
    return Average(
        sum(one.runs for one in averages),
        fmean(one.score for one in averages),
        min(one.score for one in averages),
        max(one.score for one in averages),
        fmean(one.seconds for one in averages),
        fmean(costs) if costs else None,
        sum(one.unpriced for one in averages),
    )


def _compared(case: str, a: Sequence[ScoredRun], b: Sequence[ScoredRun]) -> Compared:
    one, other = average(a), average(b)
    pair = Compared(case, TIE, one, other)
    if abs(pair.difference) <= SAME:
        return pair
    return pair._replace(outcome=WIN if pair.difference > 0 else LOSS)


def _scores(runs: Iterable[ScoredRun]) -> tuple[float, ...]:
    """Sorted, so that draws don't depend on the order of runs."""
    return tuple(sorted(float(run.score) for run in runs))


# How much of it may be chance

_Draw = Callable[[], float]


def interval(cases: Sequence[tuple[Scores, Scores]]) -> Interval | None:
    """Return the interval of the mean difference; None without cases. Deterministic for equal scores."""
    if not cases:
        return None
    mean = fmean(fmean(b) - fmean(a) for a, b in cases)
    repeats = sum(len(a) + len(b) for a, b in cases)
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _WORK // repeats))
    # Only its method `random` gives the same numbers in every version of Python.
    draw = random.Random(_SEED).random
    size = len(cases)
    means = sorted(
        math.fsum(_difference(cases[int(draw() * size)], draw) for _ in range(size)) / size
        for _ in range(draws)
    )
    outside = int(draws * (1 - SHARE) / 2)
    return Interval(mean, min(mean, means[outside]), max(mean, means[-1 - outside]))


def _difference(case: tuple[Scores, Scores], draw: _Draw) -> float:
    a, b = case
    return _drawn(b, draw) - _drawn(a, draw)


def _drawn(scores: Scores, draw: _Draw) -> float:
    size = len(scores)
    if size == 1:
        return scores[0]
    return math.fsum(scores[int(draw() * size)] for _ in range(size)) / size


def chance(wins: int, losses: int) -> float:
    """The two-sided sign test. 1.0 without differences."""
    differing = wins + losses
    rarer = sum(math.comb(differing, count) for count in range(min(wins, losses) + 1))
    return min(1.0, 2 * rarer / (1 << differing))


class Drop(NamedTuple):
    """The drop of the average since a baseline, from `least` to `most`, which differ by the `missing` cases;
    negative for a rise. `allowed` is the limit, `lost` the worse cases, `known` the number with both scores.

    `chance` is the part possibly due to chance: the interval's upper side, 0 if no case has varying repeats.

    `lower` are cases that fell too much: significantly, with the probability, or by more than `allowed_each`
    with constant repeats, with None. `unsure` fell by more, perhaps by chance.
    """

    least: float
    most: float
    allowed: float
    lost: tuple[Compared, ...]
    missing: tuple[str, ...]
    known: int
    chance: float = 0.0
    allowed_each: float | None = None
    lower: Mapping[str, float | None] = {}
    unsure: tuple[str, ...] = ()

    @property
    def is_too_much(self) -> bool:
        """Whether the average certainly fell by more than allowed."""
        return self.least - self.chance > self.allowed + SAME

    @property
    def is_perhaps_chance(self) -> bool:
        """Whether the average fell by more than allowed, perhaps by chance."""
        return self.least > self.allowed + SAME and not self.is_too_much

    @property
    def is_worse(self) -> bool:
        return self.is_too_much or bool(self.lower)

    @property
    def is_decided(self) -> bool:
        """Whether something was compared, and neither missing cases nor chance affect the verdict."""
        return self.is_worse or (self.known > 0 and self.most <= self.allowed + SAME and not self.unsure)


def drop(
    a: Iterable[ScoredRun],
    b: Iterable[ScoredRun],
    allowed: float,
    allowed_each: float | None = None,
    between: Interval | None = None,
) -> Drop:
    """Return the drop of runs `b` since `a`, with limits for the average and each case. `between` is the
    interval if known."""
    before, after = by_case(a), by_case(b)
    known = compare_cases(before, after)
    scores = {item.case: (_scores(before[item.case]), _scores(after[item.case])) for item in known}
    missing = sorted(before.keys() - after.keys())
    fallen = math.fsum(-item.difference for item in known)
    # At the best they have all, at the worst nothing.
    least = fallen + math.fsum(average(before[case]).score - 1 for case in missing)
    most = fallen + math.fsum(average(before[case]).score for case in missing)
    size = max(len(before), 1)
    chance = 0.0
    if any(map(_differ, known)):
        between = between or interval([*scores.values()])
        assert between is not None
        chance = (between.high - between.mean) * len(known) / size
    lower: dict[str, float | None] = {**significantly_lower(scores, allowed_each or 0.0)}
    beyond = (
        [] if allowed_each is None else [item for item in known if -item.difference > allowed_each + SAME]
    )
    lower |= {item.case: None for item in beyond if item.case not in lower and not _differ(item)}
    return Drop(
        least / size,
        most / size,
        allowed,
        tuple(item for item in known if item.outcome == LOSS),
        tuple(missing),
        len(known),
        chance,
        allowed_each,
        dict(sorted(lower.items())),
        tuple(item.case for item in beyond if item.case not in lower),
    )


def _differ(case: Compared) -> bool:
    return any(side.most - side.least > SAME for side in (case.a, case.b))
