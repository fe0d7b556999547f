"""Sides of a comparison: a run or a baseline, with scores by current case names, by judge and tag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.evaluation.baselines import Baseline
from uwf_git.ext.evaluation.comparison import LOSS, WIN, ScoredRun, by_case, compare_cases, overall
from uwf_git.ext.evaluation.node_types import SCORE
from uwf_git.ext.evaluation.records import COMPLETED, ERROR, MISSED, PASSED, Result, SuiteRun
from uwf_git.ext.evaluation.suite import Suite
from uwf_git.plugin import Hash, NotFound, Usage, cbor, counted, hash_of

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
    for run in scored:
        for tag in tags.get(run.case, ()):
            parts.setdefault(tag, []).append(run)
    return parts


def shares(a: Parts, b: Parts) -> list[Share]:
    """Return the parts of two sides by name, possibly of only one."""
    return [_share(name, a.get(name, ()), b.get(name, ())) for name in sorted({*a, *b})]


def _share(name: str, a: Sequence[ScoredRun], b: Sequence[ScoredRun]) -> Share:
    one, other = by_case(a), by_case(b)
    if not one or not other:
        means = [
            (average.score if average else None) for average in map(overall, (one.values(), other.values()))
        ]
        return Share(name, len(one) + len(other), means[0], means[1], 0, 0)
    both = compare_cases(one, other)
    if not both:
        return Share(name, 0, None, None, 0, 0)
    outcomes = [item.outcome for item in both]
    return Share(
        name,
        len(both),
        sum(item.a.score for item in both) / len(both),
        sum(item.b.score for item in both) / len(both),
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
        name: Passes(outcomes.count(PASSED), len(outcomes))
        for name, outcomes in sorted(states.items())
        if len(set(outcomes)) > 1
    }


SHORTEST = 4
"""Characters of a hash that may stand for it."""


_ALIKE = 3


class Side(NamedTuple):
    """The results of a run or baseline. `judges` are names of those with scores. `unknown` cases have no
    score, for a reason, even if some repeats do. `gone` are results of removed cases. `judged` has each
    case's judges by hash, `by_judge` scores, `flaky` cases; these are None for a baseline whose run isn't
    here."""

    said: str
    run: Hash
    workflow: Hash | None
    agent: str | None
    scored: tuple[ScoredRun, ...]
    unknown: Mapping[str, str] = {}
    judges: frozenset[str] = frozenset()
    gone: tuple[ScoredRun, ...] = ()
    judged: Mapping[str, Mapping[Hash, str]] | None = None
    by_judge: Parts | None = None
    flaky: Mapping[str, Passes] | None = None

    def is_judged_as(self, other: Side) -> bool:
        """Whether the common cases had the same judges."""
        return not any(self.judges_apart(other))

    def meets(self, other: Side) -> bool:
        """Whether there is a common case with scores."""
        return not {run.case for run in self.scored}.isdisjoint(run.case for run in other.scored)

    def judges_apart(self, other: Side) -> tuple[set[str], set[str]]:
        """Return the judges of only this, and only the other side, in common cases; by name if their
        definitions are unknown."""
        if self.judged is None or other.judged is None:
            mine, theirs = self._judges_of(other), other._judges_of(self)
            return mine - theirs, theirs - mine
        both = [(self.judged[case], other.judged[case]) for case in self.judged.keys() & other.judged.keys()]
        return (
            {a[judge] for a, b in both for judge in a.keys() - b.keys()},
            {b[judge] for a, b in both for judge in b.keys() - a.keys()},
        )

    def _judges_of(self, other: Side) -> set[str]:
        if self.judged is None:
            return set(self.judges)
        cases = self.judged.keys() & {run.case for run in other.scored}
        return {name for case in cases for name in self.judged[case].values()}


def side_of(
    suite: Suite,
    run: SuiteRun,
    names: Mapping[Hash, str] = {},
    results: Sequence[Result] | None = None,
    untried: Mapping[str, str] = {},
) -> Side:
    """Return a run's side. `results` and `untried` are given if known."""
    counting = {case.hash for case in suite.cases}
    every = results if results is not None else suite.results(run)
    results = [result for result in every if result.case.hash in counting]
    failed = {result.name: why_unknown(result) for result in reversed(results) if result.state == ERROR}
    unknown = {**_untried(run, results), **untried, **failed}
    return Side(
        run_name(run, suite, names),
        run.hash,
        workflow_of(suite, run),
        run.agent,
        tuple(_scored(result for result in results if result.name not in unknown)),
        unknown,
        judges_of(results),
        tuple(_scored(result for result in every if result.case.hash not in counting)),
        _judged(results),
        by_judge(result for result in results if result.name not in unknown),
        flaky(results),
    )


def _untried(run: SuiteRun, results: Iterable[Result]) -> dict[str, str]:
    counts = Counter(result.name for result in results)
    why = run.stopped or "the run was interrupted"
    return {
        name: untried_text(run.repeat - count, run.repeat, why)
        for name, count in counts.items()
        if count < run.repeat
    }


def untried_text(missing: int, repeats: int, why: str) -> str:
    if repeats == 1:
        return f"it was not tried: {why}"
    return f"{missing} of {counted(repeats, 'repeat')} {'is' if missing == 1 else 'are'} missing: {why}"


def _judged(results: Iterable[Result]) -> dict[str, dict[Hash, str]]:
    versions: dict[str, dict[Hash, str]] = {}
    for result in results:
        if result.trial.status == COMPLETED and not result.errors:
            judges = [score.judge for score in result.scores]
            versions.setdefault(result.name, {}).update(
                (hash_of(SCORE, cbor.normalise(judge.nameless())), judge.name) for judge in judges
            )
    return versions


def judges_of(results: Iterable[Result]) -> frozenset[str]:
    return frozenset(score.judge.name for result in results for score in result.scores)


def why_unknown(result: Result) -> str:
    return result.errors[0] if result.errors else result.trial.error or "it failed"


def side_of_baseline(suite: Suite, baseline: Baseline) -> Side:
    """Return a baseline's side. Its judges' definitions are known if its run is here."""
    counting, payload = {case.hash for case in suite.cases}, baseline.payload
    scored: list[ScoredRun] = []
    gone: list[ScoredRun] = []
    for case in payload["cases"]:
        name = suite.named.get(case["case"], case["name"])
        (scored if case["case"] in counting else gone).extend(
            ScoredRun(name, run["score"], run["durationMs"] / 1000, run.get("cost"), run["unpriced"])
            for run in case["runs"]
        )
    workflow = payload.get("workflow")
    judges = frozenset(payload.get("judges", ()))
    run = next((item for item in suite.runs if item.hash == payload["run"]), None)
    known = {scored_run.case for scored_run in scored}
    results: list[Result] | None = None
    if run is not None:
        results = [
            result for result in suite.results(run) if result.name in known and result.case.hash in counting
        ]
    return Side(
        payload["said"],
        payload["run"],
        workflow,
        payload.get("agent"),
        tuple(scored),
        judges=judges,
        gone=tuple(gone),
        judged=None if results is None else _judged(results),
        by_judge=None if results is None else by_judge(results),
        flaky=None if results is None else flaky(results),
    )


def baseline_of(suite: Suite, side: Side, is_partial: bool = False) -> Baseline:
    """Return the baseline of a run. Raises Usage if a case has no score, unless `is_partial` and some have."""
    known = by_case(side.scored)
    lacking = sorted({suite.named[case.hash] for case in suite.cases} - known.keys())
    if not suite.cases:
        raise Usage(f"suite {suite.name} has no cases", f"uwf eval add ID --to {suite.name}")
    if lacking and not (is_partial and known):
        name = lacking[0]
        many = f"{len(lacking)} of {counted(len(suite.cases), 'case')}"
        why = side.unknown.get(name, "it was not run")
        raise Usage(
            f"run {side.run} cannot be a baseline: it has no score of {many}, such as {name}: {why}",
            f"uwf eval run {suite.name}" + ("; if a part will do: --partial" if known else ""),
        )
    hashes = {suite.named[case.hash]: case.hash for case in suite.cases}
    cases = [
        {"case": hashes[name], "name": name, "runs": [_payload(run) for run in runs]}
        for name, runs in sorted(known.items())
    ]
    chosen = {"workflow": side.workflow, "agent": side.agent, "judges": sorted(side.judges)}
    payload = {
        "suite": suite.name,
        "said": side.said,
        "run": side.run,
        "cases": cases,
        **{key: value for key, value in chosen.items() if value},
    }
    return Baseline(cbor.normalise(payload))


def _payload(run: ScoredRun) -> dict[str, Any]:
    paid = {} if run.cost is None else {"cost": run.cost}
    return {"score": run.score, "durationMs": round(run.seconds * 1000), "unpriced": run.unpriced, **paid}


def workflow_of(suite: Suite, run: SuiteRun) -> Hash | None:
    """Return the workflow version of all trials, None if several."""
    nodes = {
        suite.trials[result.trial].key.workflow for result in run.results if result.trial in suite.trials
    }
    return run.workflow or (nodes.pop() if len(nodes) == 1 else None)


def run_name(run: SuiteRun, suite: Suite, names: Mapping[Hash, str] = {}) -> str:
    """Return a run's name: its chosen version, agent and label."""
    version = workflow_of(suite, run)
    name = names.get(version, "") if version else "several workflows"
    parts = [" ".join(filter(None, (name, version)))]
    return ", ".join((*parts, *filter(None, (run.agent, run.label))))


def matching(suite: Suite, workflow: Hash | None = None, agent: str | None = None) -> list[SuiteRun]:
    """Return matching runs, newest first, completed ones before others. `agent` may be a label."""
    runs = [
        run
        for run in suite.runs
        if run.results
        and (workflow is None or workflow_of(suite, run) == workflow)
        and (agent is None or agent in (run.agent, run.label))
    ]
    return sorted(runs, key=lambda run: (not run.stopped, run.time, run.hash), reverse=True)


def likest(sides: Iterable[Side], like: Side) -> Side:
    """Return the first side with the same judges, else with a common case, else with a score. Lazy."""
    chosen, most = None, -1
    for side in sides:
        meets = side.meets(like)
        rank = 2 + side.is_judged_as(like) if meets else int(bool(side.scored))
        if rank > most:
            chosen, most = side, rank
        if rank == _ALIKE:
            break
    assert chosen is not None
    return chosen


def newest(suite: Suite) -> SuiteRun:
    """Return the newest run with results. Raises NotFound."""
    runs = [run for run in suite.runs if run.results]
    if not runs:
        raise NotFound(f"suite {suite.name!r} was not run yet", f"uwf eval run {suite.name}")
    return max(runs, key=lambda run: (run.time, run.hash))


def by_hash(suite: Suite, text: str) -> SuiteRun | None:
    """Return a run by prefix. Raises Usage if ambiguous."""
    wanted = text.upper()
    if len(wanted) < SHORTEST or not wanted.isalnum():
        return None
    runs = [run for run in suite.runs if run.hash.startswith(wanted)]
    if len(runs) > 1:
        raise Usage(f"{text} is {counted(len(runs), 'run')} of {suite.name}", "give more characters")
    return runs[0] if runs else None


def agents_of(runs: Iterable[SuiteRun]) -> list[str]:
    return sorted({name for run in runs for name in (run.agent, run.label) if name})


def _scored(results: Iterable[Result]) -> Iterator[ScoredRun]:
    for result in results:
        if (score := result.score) is not None:
            spending = result.trial.told
            yield ScoredRun(result.name, score, spending.seconds, spending.cost, spending.unpriced)
