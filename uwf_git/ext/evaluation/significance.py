"""Which cases of a suite got worse by more than chance explains.

One case: the exact one-sided permutation test of the difference of means (Fisher, The Design of Experiments, 1935,
§21; Pitman 1937). If nothing changed, each way of dealing the case's scores to the two sides is equally likely; p is
the share of ways in which the second side's mean is as low or lower.

Many cases: the probability that any case of the suite reaches a p that low, if nothing changed in any of them, is
1 - prod(1 - F(p)) over all cases (Šidák 1967), where F(p) is the largest p of that case that is attainable and not
above p (Tarone, Biometrics 46, 1990, 515-522). So a case that always comes out the same costs the others nothing. A
case is significantly lower if that probability is at most LEVEL.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

LEVEL = 0.05
"""Share of checks of an unchanged workflow in which some case is called significantly lower, at most."""

_UNITS = 1000  # of a score: the test counts in thousandths
_EXACT = 40  # scores of one case; the sum is taken as normally distributed if there are more
_TOLERANCE = 1 + 1e-9  # the same share is not the same float in each case

Scores = tuple[float, ...]


class _Test(NamedTuple):
    """p of a case, and F: the largest attainable p up to a value."""

    p: float
    up_to: Callable[[float], float]


def significantly_lower(cases: Mapping[str, tuple[Scores, Scores]], allowed: float = 0.0) -> dict[str, float]:
    """The cases whose second scores are significantly lower than the first, less `allowed`; each with the probability
    that chance alone makes a case of this suite look so."""
    tests = {name: _test(before, after, allowed) for name, (before, after) in cases.items()}
    lower: dict[str, float] = {}
    for name, test in tests.items():
        if test.p <= LEVEL:
            none = math.prod(1 - other.up_to(test.p) for key, other in tests.items() if key != name)
            chance = test.p * none + (1 - none)  # of p alone exactly p, also if that is LEVEL
            if chance <= LEVEL * _TOLERANCE:
                lower[name] = chance
    return lower


def _test(before: Scores, after: Scores, allowed: float) -> _Test:
    shift = round(allowed * _UNITS)
    one = [round(score * _UNITS) for score in before]
    other = [round(score * _UNITS) + shift for score in after]
    pooled = tuple(sorted(one + other))
    if pooled[0] == pooled[-1]:
        return _Test(1.0, lambda p: 0.0)
    if len(pooled) > _EXACT:
        return _Test(_normal(pooled, other), lambda p: p)
    shares = _shares(tuple(score - pooled[0] for score in pooled), len(other))
    p = shares[sum(other) - len(other) * pooled[0]]

    def up_to(value: float) -> float:
        place = bisect_right(shares, value * _TOLERANCE)
        return shares[place - 1] if place else 0.0

    return _Test(p, up_to)


def _normal(pooled: Scores, other: list[int]) -> float:
    """p by the normal distribution with the mean and the variance of a sum drawn without replacement."""
    size, drawn = len(pooled), len(other)
    mean = math.fsum(pooled) / size
    variance = math.fsum((score - mean) ** 2 for score in pooled) / (size - 1)
    spread = math.sqrt(variance * drawn * (size - drawn) / size)
    return 0.5 * math.erfc((drawn * mean - sum(other)) / spread / math.sqrt(2))


@lru_cache(maxsize=512)
def _shares(pooled: tuple[int, ...], drawn: int) -> list[float]:
    """By each sum, the share of all choices of `drawn` scores whose sum is that or less; scores are from 0 up.

    ways[k] has the number of choices of k scores by their sum, as the digits of one large number in base 2**64, so that
    adding a score is a shift: at most comb(40, 20), which 64 bits hold."""
    ways = [1] + [0] * drawn
    for score in pooled:
        for count in range(drawn, 0, -1):
            ways[count] += ways[count - 1] << (64 * score)
    sums = pooled[-1] * drawn + 1
    counts = struct.unpack(f"<{sums}Q", ways[drawn].to_bytes(8 * sums, "little"))
    total = math.comb(len(pooled), drawn)
    return [count / total for count in accumulate(counts)]
