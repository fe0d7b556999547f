"""A suite's newest runs side by side: a row for each case, a column for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uwf_git.ext.evaluation.comparison import LOSS, SAME, TIE, WIN, average, by_case
from uwf_git.ext.evaluation.records import PASSED, Result, SuiteRun
from uwf_git.ext.evaluation.sides import Side, run_name, side_of
from uwf_git.ext.evaluation.suite import Suite
from uwf_git.ext.evaluation.trials import threads_of
from uwf_git.plugin import Hash, Instance

RUNS = 8
"""How many runs stand side by side."""
CASES = 300
"""How many cases have a row."""

_FIRST = (LOSS, "flaky", WIN)


def grid(instance: Instance, suite: Suite, names: Mapping[Hash, str] = {}) -> dict[str, Any]:
    """Return a suite's newest runs, oldest first, and how each case did in them:

    runs    `run`, `said`, `agent`, `label`, `time` (Unix seconds) and the mean `score`
    cases   the `case` and its `cells`, one a run: those that got worse in the newest run first, then flaky and better
            ones
    cells   null if the case was not in the run; else `score` (null: none, for the reason `unknown`), `least` and
            `most` of its repeats, `passed` of `repeats`, whether it is `flaky`, its `change` since the run before,
            if that had the same judges (win, loss, tie, null), and a `thread`, that of its worst repeat, null if it is
            not here
    more    how many cases have no row
    """
    runs = [run for run in suite.runs if run.results][-RUNS:]
    results = [suite.results(run) for run in runs]
    sides = [side_of(suite, run, names, own) for run, own in zip(runs, results, strict=True)]
    every = [suite.named[case.hash] for case in suite.cases]
    columns = [_column(instance, side, own) for side, own in zip(sides, results, strict=True)]
    rows = [{"case": case, "cells": _cells(case, columns, sides)} for case in every]
    rows.sort(key=_rank)
    return {
        "runs": [_run(run, suite, names, side) for run, side in zip(runs, sides, strict=True)],
        "cases": rows[:CASES],
        "more": max(0, len(rows) - CASES),
    }


def _run(run: SuiteRun, suite: Suite, names: Mapping[Hash, str], side: Side) -> dict[str, Any]:
    cases = [average(runs).score for runs in by_case(side.scored).values()]
    return {
        "run": run.hash,
        "said": run_name(run, suite, names),
        "workflow": side.workflow,
        "agent": run.agent,
        "label": run.label or None,
        "time": run.time // 1000,
        "score": round(sum(cases) / len(cases), 6) if cases else None,
    }


def _column(instance: Instance, side: Side, results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """Return the cells of a run by case, without changes."""
    threads, scored = threads_of(instance, results), by_case(side.scored)
    of_case: dict[str, list[Result]] = {}
    for result in results:
        of_case.setdefault(result.name, []).append(result)
    cells = {}
    for case, own in of_case.items():
        mean = average(scored[case]) if case in scored else None
        worst = sorted(own, key=lambda result: (result.score is not None, result.score or 0.0))
        here = [threads[result.trial.hash] for result in worst if result.trial.hash in threads]
        cells[case] = {
            "score": None if mean is None else round(mean.score, 6),
            "least": None if mean is None else mean.least,
            "most": None if mean is None else mean.most,
            "passed": sum(result.state == PASSED for result in own),
            "repeats": len(own),
            "flaky": side.flaky is not None and case in side.flaky,
            "change": None,
            "unknown": side.unknown.get(case),
            "thread": here[0] if here else None,
        }
    return cells


def _cells(
    case: str, columns: Sequence[dict[str, dict[str, Any]]], sides: Sequence[Side]
) -> list[dict[str, Any] | None]:
    cells: list[dict[str, Any] | None] = []
    before: tuple[Mapping[Hash, str], float] | None = None
    for column, side in zip(columns, sides, strict=True):
        cell = column.get(case)
        cells.append(cell)
        if cell is None or cell["score"] is None:
            continue
        judges = (side.judged or {}).get(case, {})
        if before is not None and before[0].keys() == judges.keys():
            cell["change"] = _change(cell["score"] - before[1])
        before = judges, cell["score"]
    return cells


def _change(difference: float) -> str:
    return TIE if abs(difference) < SAME else WIN if difference > 0 else LOSS


def _rank(row: Mapping[str, Any]) -> tuple[int, str]:
    newest = row["cells"][-1] if row["cells"] else None
    kinds = (newest["change"], "flaky" if newest["flaky"] else None) if newest else ()
    return next((place for place, kind in enumerate(_FIRST) if kind in kinds), len(_FIRST)), row["case"]
