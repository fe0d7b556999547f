"""Cases that are significantly worse.

One case: the exact one-sided permutation test of the difference of means (Fisher, The Design of Experiments,
1935, §21; Pitman 1937): p is the share of ways to deal its scores to the two sides in which the second mean
is as low or lower.

Many cases: the probability that any case reaches such a p by chance is 1 - prod(1 - F(p)) over all cases
(Šidák 1967), where F(p) is the largest attainable p of that case not above p (Tarone, Biometrics 46, 1990,
515-522). So a constant case costs the others nothing. A case is significantly lower if that probability is at
most LEVEL.
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
    """Return the significantly lower cases, allowing a drop of `allowed`, each with its probability by chance
    in this suite."""
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
    size, drawn = len(pooled), len(other)
    mean = math.fsum(pooled) / size
    variance = math.fsum((score - mean) ** 2 for score in pooled) / (size - 1)
    spread = math.sqrt(variance * drawn * (size - drawn) / size)
    return 0.5 * math.erfc((drawn * mean - sum(other)) / spread / math.sqrt(2))


@lru_cache(maxsize=512)
def _shares(pooled: tuple[int, ...], drawn: int) -> list[float]:
    """For each sum, the share of choices of `drawn` scores with at most that sum; scores are at least 0.

    ways[k] counts the choices of k scores by sum, as digits in base 2**64 of one large number, so that adding
    a score is a shift: at most comb(40, 20), which fits 64 bits.
    """
    ways = [1] + [0] * drawn
    for score in pooled:
        for count in range(drawn, 0, -1):
            ways[count] += ways[count - 1] << (64 * score)
    sums = pooled[-1] * drawn + 1
    counts = struct.unpack(f"<{sums}Q", ways[drawn].to_bytes(8 * sums, "little"))
    total = math.comb(len(pooled), drawn)
    return [count / total for count in accumulate(counts)]
