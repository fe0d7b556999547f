"""A run's scores by judge and tag, and its flaky cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from uwf_git.ext.evaluation.comparison import LOSS, WIN, ScoredRun, by_case, compare_cases, overall
from uwf_git.ext.evaluation.records import COMPLETED, MISSED, PASSED, Result

Parts = Mapping[str, Sequence[ScoredRun]]
"""Scores by the name of a judge or a tag."""


class Passes(NamedTuple):
    """How many of a case's judged repeats passed."""

    passed: int
    runs: int


class Share(NamedTuple):
    """A part's averages over the `cases` that both sides have, None for a missing side. `wins` and `losses`
    are the second side's."""

    name: str
    cases: int
    a: float | None
    b: float | None
    wins: int
    losses: int


def by_judge(results: Iterable[Result]) -> dict[str, list[ScoredRun]]:
    """Return each judge's scores, without unfinished trials."""
    parts: dict[str, list[ScoredRun]] = {}
    for result in results:
        if result.trial.status == COMPLETED and not result.errors:
            for score in result.scores:
                parts.setdefault(score.judge.name, []).append(ScoredRun(result.name, score.score))
    return parts


def by_tag(scored: Iterable[ScoredRun], tags: Mapping[str, Sequence[str]]) -> dict[str, list[ScoredRun]]:
    """Return the scores by tag; a case counts for each of its `tags`."""
    parts: dict[str, list[ScoredRun]] = {}
    for each in scored:
        for tag in tags.get(each.case, ()):
            parts.setdefault(tag, []).append(each)
    return parts


def shares(a: Parts, b: Parts) -> list[Share]:
    """Return the parts of two sides by name, possibly of only one."""
    return [_share(name, a.get(name, ()), b.get(name, ())) for name in sorted({*a, *b})]


def _share(name: str, a: Sequence[ScoredRun], b: Sequence[ScoredRun]) -> Share:
    one, other = by_case(a), by_case(b)
    if not one or not other:
        means = [(found.score if found else None) for found in map(overall, (one.values(), other.values()))]
        return Share(name, len(one) + len(other), means[0], means[1], 0, 0)
    both = compare_cases(one, other)
    if not both:
        return Share(name, 0, None, None, 0, 0)
    outcomes = [each.outcome for each in both]
    return Share(
        name,
        len(both),
        sum(each.a.score for each in both) / len(both),
        sum(each.b.score for each in both) / len(both),
        outcomes.count(WIN),
        outcomes.count(LOSS),
    )


def flaky(results: Iterable[Result]) -> dict[str, Passes]:
    """Return the cases with both passed and failed repeats."""
    states: dict[str, list[str]] = {}
    for result in results:
        if result.state in (PASSED, MISSED):
            states.setdefault(result.name, []).append(result.state)
    return {
        name: Passes(found.count(PASSED), len(found))
        for name, found in sorted(states.items())
        if len(set(found)) > 1
    }
