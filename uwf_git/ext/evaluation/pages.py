"""`/evals` and `/eval/SUITE` of `uwf web`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from uwf_git.ext.evaluation.baselines import Baselines
from uwf_git.plugin import Instance, NotFound, Page, PageRequest, charts, duration_text

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.sides import Side
    from uwf_git.ext.evaluation.suite import Suite


def evals(instance: Instance, asked: PageRequest) -> Page:
    from uwf_git.ext.evaluation.commands.baselines import brief
    from uwf_git.ext.evaluation.suite import Suites

    every_suite, baselines = Suites(instance.store), Baselines(instance.store)
    accepted = {name: brief(baselines, baselines.current(name)) for name in baselines.names()}
    suites = []
    for name in every_suite.names():
        suite = every_suite.read(name)
        suites.append(
            {
                "name": name,
                "cases": len(suite.cases),
                "runs": len(suite.runs),
                "last": max((run.time / 1000 for run in suite.runs), default=None),
                "baseline": accepted.get(name),
            }
        )
    return Page("evals.html", "Suites", {"suites": suites})


def suite(instance: Instance, request: PageRequest) -> Page:
    """Show a suite's newest run beside the baseline or the run before; `a` and `b` in the query are hashes of
    runs or `baseline`. Raises NotFound, Usage."""
    from uwf_git.ext.evaluation import sides
    from uwf_git.ext.evaluation.commands.baselines import version_value
    from uwf_git.ext.evaluation.commands.comparing import (
        OUTCOMES,
        comparison_value,
        difference_text,
        judged_otherwise,
        pairs_of,
    )
    from uwf_git.ext.evaluation.commands.sides import BASELINE, names_of
    from uwf_git.ext.evaluation.comparison import compare
    from uwf_git.ext.evaluation.grid import grid
    from uwf_git.ext.evaluation.suite import Suites

    name = request.parts["name"]
    found, baselines = Suites(instance.store).read(name), Baselines(instance.store)
    baseline = version_value(baselines, baselines.current(name)) if name in baselines.names() else None
    names = names_of(instance, found)
    runs = [run for run in reversed(found.runs) if run.results]
    values: dict[str, Any] = {
        "asked": request,
        "suite": name,
        "cases": [{"case": case, "name": found.named[case.hash]} for case in found.cases],
        "runs": [
            {"run": run.hash, "said": sides.run_name(run, found, names), "time": run.time / 1000}
            for run in runs[:RUNS]
        ],
        "baseline": baseline,
        "grid": grid(instance, found, names),
        "compared": None,
        "shown": None,
    }

    def side(text: str) -> sides.Side:
        if text == BASELINE:
            version = baselines.current(name)
            return sides.side_of_baseline(found, baselines.baseline(version))
        if (run := sides.by_hash(found, text)) is None:
            raise NotFound(f"suite {name!r} has no run {text!r}", f"see: uwf eval show {name}")
        return sides.side_of(found, run, names)

    b = request.one("b", runs[0].hash if runs else "")
    earlier = [run.hash for run in runs[1:]]
    if b:
        after = side(b)
        values["shown"] = _shown(instance, found, after)
    a = request.one("a", BASELINE if baseline else "")
    if not a and earlier:
        a = sides.likest(map(side, earlier), after).run
    if a and b:
        before = side(a)
        value = comparison_value(compare(before.scored, after.scored))
        values |= {
            "a": a,
            "b": b,
            "before": before,
            "after": after,
            "compared": value,
            "outcomes": OUTCOMES,
            "judged": judged_otherwise(before, after, ("the first", "the second")),
            "difference": difference_text(value["score"]) if value["score"] else "",
            "chart": Markup(
                charts.pairs_drawing(f"{before.said} and {after.said}", pairs_of(value)[:CHARTED])
            ),
            "uncharted": max(0, len(value["cases"]) - CHARTED),
            "duration": duration_text,
        }
    return Page("suite.html", f"Suite {name}", values)


RUNS = 200
"""Runs that are offered to be compared."""

CHARTED = 60
"""Cases in a chart: those that differ most."""

SAID = 5
"""What is shown of the reasons for a trial's scores."""


def _shown(instance: Instance, suite: Suite, side: Side) -> dict[str, Any]:
    from uwf_git.ext.evaluation.commands.comparing import average_value
    from uwf_git.ext.evaluation.comparison import average, by_case
    from uwf_git.ext.evaluation.trials import threads_of

    run = next((item for item in suite.runs if item.hash == side.run), None)
    if run is None:
        return {"said": side.said, "time": None, "stopped": "", "cases": []}
    scored = by_case(side.scored)
    cases: dict[str, dict[str, Any]] = {}
    results = suite.results(run)
    threads = threads_of(instance, results)
    for result in results:
        runs = scored.get(result.name)
        case = cases.setdefault(
            result.name,
            {
                "case": result.name,
                "average": average_value(average(runs)) if runs else None,
                "said": [],
                "threads": [],
            },
        )
        case["threads"] += [threads[result.trial.hash]] if result.trial.hash in threads else []
        reasons = [*(score.reason for score in result.scores), *result.errors, result.trial.error]
        case["said"] += [reason for reason in reasons if reason and reason not in case["said"]][:SAID]
    return {
        "said": side.said,
        "time": run.time / 1000,
        "stopped": run.stopped,
        "cases": [cases[name] for name in sorted(cases)],
    }
