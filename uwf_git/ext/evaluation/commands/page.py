"""A run as one HTML file: scores by judge and tag, flaky cases, changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from uwf_git.ext.evaluation.commands.comparison_output import (
    OUTCOMES,
    difference_text,
    flaky_text,
    pairs_of,
    percent,
)
from uwf_git.ext.evaluation.commands.result_output import summary
from uwf_git.plugin import charts, document, exact_number, markup, one_line, tag

CHARTED = 60
"""Cases in the chart: those that differ most."""

_REASON = 300  # characters of a judge's reason


def page(
    run: Mapping[str, Any], compared: Mapping[str, Any] | None, lower: Mapping[str, float | None]
) -> str:
    """Return a run's page. `compared` is its comparison with an earlier run; `lower` are significantly lower
    cases with their probabilities."""
    title = f"Suite {run['suite']}"
    parts = [
        tag("h1", markup.text(title)),
        tag("p", markup.text(f"{run['said']}, {exact_number(run['time'])}"), "dim"),
        tag("p", markup.text(summary(run))),
        tag("div", f"It stopped early: {markup.text(run['stopped'])}", "notice") if run["stopped"] else "",
        _flaky(run["flaky"]),
        _changes(compared, lower) if compared is not None else "",
        _parts(run, compared),
        _trials(run["results"]),
    ]
    return document(title, "".join(parts))


def _flaky(flaky: Sequence[Mapping[str, Any]]) -> str:
    said = flaky_text(flaky)
    return tag("div", f"<strong>Flaky:</strong> {markup.text(said)}", "notice") if said else ""


def _changes(compared: Mapping[str, Any], lower: Mapping[str, float | None]) -> str:
    heading = tag("h2", f"{markup.text(compared['a']['said'])} → {markup.text(compared['b']['said'])}")
    if not compared["cases"]:
        return heading + tag("p", "The two have no case in common.")
    counts = f"{compared['wins']} better, {compared['losses']} worse, {compared['ties']} the same"
    one, other = (compared["average"][side]["score"] for side in "ab")
    said = f"{counts}. Score {one:.2f} → {other:.2f}: {difference_text(compared['score'])}."
    chart = charts.pairs_drawing(
        "Score of each case: a circle is before, a dot after", pairs_of(compared)[:CHARTED]
    )
    rows = [
        (
            markup.text(each["case"]),
            _score(each["a"]),
            _score(each["b"]),
            markup.text(OUTCOMES[each["outcome"]]),
        )
        for each in compared["cases"]
    ]
    return (
        heading
        + tag("p", markup.text(said))
        + "".join(map(_worse, lower, lower.values()))
        + tag("div", chart, "scrolls", tabindex="0")
        + markup.table(("case", "before", "after", ""), rows, "numbers")
        + _alone(compared)
    )


def _worse(case: str, chance: float | None) -> str:
    sure = "" if chance is None else f", which chance does in {percent(chance)} of checks"
    return tag("div", f"<strong>{markup.text(case)} is worse</strong>{markup.text(sure)}.", "notice")


def _alone(compared: Mapping[str, Any]) -> str:
    said = ""
    for key, side in (("onlyA", "a"), ("onlyB", "b")):
        if cases := compared[key]:
            said += tag(
                "p", markup.text(f"Only {compared[side]['said']} has a score of {', '.join(cases)}."), "dim"
            )
    return said


def _parts(run: Mapping[str, Any], compared: Mapping[str, Any] | None) -> str:
    shown = ""
    for key, called in (("byJudge", "judge"), ("byTag", "tag")):
        if not run[key]:
            continue
        before = {each["name"]: each["a"] for each in (compared or {}).get(key) or ()}
        rows = [
            (
                markup.text(each["name"]),
                str(each["cases"]),
                *([_number(before.get(each["name"]))] if compared else []),
                _number(each["score"]),
            )
            for each in run[key]
        ]
        header = (called, "cases", *(["before"] if compared else []), "score")
        shown += tag("h2", f"By {called}") + markup.table(header, rows, "numbers")
    return shown


def _trials(results: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            markup.text(each["case"]),
            str(each["repeat"]),
            markup.text(each["state"]),
            _number(each["score"]),
            "<br>".join(map(markup.text, _said(each))),
            tag("code", markup.text(each["thread"])) if each["thread"] else "",
        )
        for each in results
    ]
    return tag("h2", "Trials") + markup.table(
        ("case", "repeat", "", "score", "judges", "thread"), rows, "values"
    )


def _said(result: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{each['judge']} {each['score']:.2f}{': ' + each['reason'] if each['reason'] else ''}"
        for each in result["scores"]
    ]
    return [one_line(each, _REASON) for each in (*lines, *result["errors"], result["error"]) if each]


def _score(average: Mapping[str, Any]) -> str:
    least, most = average["least"], average["most"]
    return _number(average["score"]) + (f" ({least:.2f}–{most:.2f})" if least != most else "")


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"
