"""Printing cases, results and runs: JSON, lines, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from uwf_git.ext.evaluation.commands.comparing import flaky_text, flaky_value
from uwf_git.ext.evaluation.records import COMPLETED, ERROR, MISSED, PASSED, AgentSpending
from uwf_git.plugin import Table, counted, in_dollars, one_line, terminal

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.records import Case, Judge, Result, SuiteRun

_LONGEST_NAME = 200
_CASE = ("prompt", "workflow", "start", "step", "role", "fixture", "expected")
_COLOUR = {PASSED: "green", MISSED: "red", ERROR: "yellow"}


def judge_value(judge: Judge) -> dict[str, Any]:
    return judge.payload()


def case_value(name: str, case: Case) -> dict[str, Any]:
    return {
        "case": name,
        "hash": case.hash,
        "kind": "step" if case.role else "thread" if case.start else "prompt",
        **{name: getattr(case, name) for name in _CASE},
        "judges": [judge_value(judge) for judge in case.judges],
        "limits": dict(case.limits),
        "tags": list(case.tags),
    }


def told_value(spending: AgentSpending) -> dict[str, Any]:
    return {
        "cost": spending.cost,
        "unpriced": spending.unpriced,
        "seconds": round(spending.seconds, 3),
        "usage": spending.usage.payload() if spending.usage else None,
    }


def result_value(result: Result, thread: str | None = None) -> dict[str, Any]:
    """Return a result as JSON. `thread` is its trial's, if here."""
    trial = result.trial
    return {
        "case": result.name,
        "repeat": trial.key.repeat,
        "state": result.state,
        "score": None if result.score is None else round(result.score, 6),
        "status": trial.status,
        "error": trial.error or None,
        "trial": trial.hash,
        "thread": thread,
        "workflow": trial.key.workflow,
        "last": trial.last,
        "work": trial.work,
        "steps": trial.steps,
        "attempts": trial.attempts,
        **told_value(trial.told),
        "notes": list(trial.notes),
        "scores": [
            {
                "judge": score.judge.name,
                "kind": score.judge.kind,
                "score": score.score,
                "passed": score.passed,
                "reason": score.reason or None,
                "step": score.step,
                **told_value(score.told),
            }
            for score in result.scores
        ],
        "errors": list(result.errors),
    }


def run_value(run: SuiteRun, results: Sequence[Result], lost: AgentSpending | None = None) -> dict[str, Any]:
    """Return a run as JSON without results. `lost` is the spending of judges without score, if known."""
    whole, judging = AgentSpending(), lost or AgentSpending()
    # Cases that are the same are one trial, and were paid once.
    for trial in {result.trial.hash: result.trial for result in results}.values():
        whole = whole.plus(trial.told)
    for score in {score.hash: score for result in results for score in result.scores}.values():
        judging = judging.plus(score.told)
    states = [result.state for result in results]
    scores = [result.score for result in results if result.score is not None]
    return {
        "run": run.hash,
        "workflow": run.workflow,
        "agent": run.agent,
        "label": run.label or None,
        "cases": run.cases,
        "repeat": run.repeat,
        "passed": states.count(PASSED),
        "failed": states.count(MISSED),
        "errors": states.count(ERROR),
        "missing": run.cases * run.repeat - len(results),
        "score": round(fmean(scores), 6) if scores else None,
        "thresholds": sorted({score.judge.threshold for result in results for score in result.scores}),
        **told_value(whole),
        "judging": told_value(judging),
        "stopped": run.stopped or None,
    }


def parts_value(results: Sequence[Result], tags: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    from uwf_git.ext.evaluation.comparison import ScoredRun, by_case, overall
    from uwf_git.ext.evaluation.sides import by_judge, by_tag, flaky

    scored = [ScoredRun(result.name, result.score) for result in results if result.score is not None]
    value: dict[str, Any] = {}
    for key, parts in (("byJudge", by_judge(results)), ("byTag", by_tag(scored, tags))):
        value[key] = []
        for name, runs in sorted(parts.items()):
            cases = by_case(runs)
            average = overall(cases.values())
            assert average is not None
            value[key].append({"name": name, "cases": len(cases), "score": round(average.score, 6)})
    return value | {"flaky": flaky_value(flaky(results))}


# For people


def called(name: str, repeat: int) -> str:
    """Return a trial's name: case and repeat, if not the first."""
    name = one_line(name, _LONGEST_NAME)
    return f"{name} ({repeat})" if repeat > 1 else name


def result_line(value: Mapping[str, Any], size: int = 0, is_known: bool = False) -> str:
    """Format an escaped result: state, name, score, spending, reason."""
    name = called(value["case"], value["repeat"])
    took = [f"{value['seconds']:.1f} s"] if value["seconds"] else []
    took += [in_dollars(value["cost"], value["unpriced"])] if value["cost"] or value["unpriced"] else []
    details = ", ".join(took) + (" (known)" if is_known else "")
    why = why_of(value)
    parts = [
        terminal.style(value["state"].ljust(6), _COLOUR[value["state"]]),
        name + " " * (size - terminal.columns(name)),
        "–".ljust(4) if value["score"] is None else f"{value['score']:.2f}",
        terminal.style(details.strip(), "dim"),
        one_line(why, 160) if why else "",
    ]
    return "  ".join(part for part in parts if part)


def why_of(value: Mapping[str, Any]) -> str:
    if value["status"] != COMPLETED:
        return f"{value['status']}: {value['error']}" if value["error"] else str(value["status"])
    missed = [
        f"{score['judge']}: {score['reason'] or 'no'}" for score in value["scores"] if not score["passed"]
    ]
    failed = [value["error"]] if value["error"] else []
    return "; ".join([*value["errors"], *missed, *failed])


def summary(value: Mapping[str, Any]) -> str:
    parts = [f"{counted(value['passed'], 'trial')} passed ({_passing(value['thresholds'])})"]
    parts += [f"{value['failed']} failed"] if value["failed"] else []
    parts += [f"{value['errors']} in error, without a score"] if value["errors"] else []
    parts += [f"{value['missing']} missing"] if value["missing"] else []
    score = "–" if value["score"] is None else f"{value['score']:.2f}"
    took = f"{value['seconds']:.1f} s of agents' time"
    for paid, who in ((value, "cost"), (value["judging"], "judges' cost")):
        if paid["cost"] or paid["unpriced"]:
            took += f", {who} {in_dollars(paid['cost'], paid['unpriced'])}"
    return f"{', '.join(parts)}; score {score}; {took}"


def parts_of_run(value: Mapping[str, Any]) -> str:
    text = ""
    for key, called_ in (("byJudge", "judge"), ("byTag", "tag")):
        parts = Table((f"{called_} of {value['run']}", "name"), "cases", ("score", "{score:.2f}"))
        text += "\n" + parts(value[key]) if value[key] else ""
    flaky = flaky_text(value["flaky"])
    return text + ("\n" + terminal.fields([("flaky", flaky)]) if flaky else "")


def _passing(thresholds: Sequence[float]) -> str:
    if not thresholds:
        return "no judge: each completed"
    least = f"{thresholds[0]:g}" if len(thresholds) == 1 else "its threshold"
    return f"each judge gave {least} or more"
