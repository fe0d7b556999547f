"""`uwf eval compare`, and how a comparison is printed: JSON, text, chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.evaluation.commands.sides import find_sides, find_suite, narrowing
from uwf_git.ext.evaluation.comparison import LOSS, SHARE, TIE, WIN, Average, Comparison, Interval
from uwf_git.plugin import Invocation, command, counted, in_dollars, terminal, write_whole

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.comparison import Comparison
    from uwf_git.ext.evaluation.sides import Passes, Share, Side
    from uwf_git.ext.evaluation.suite import Suite
    from uwf_git.plugin import charts


@command(
    "uwf eval compare solve-issue~1 solve-issue         two versions",
    "uwf eval compare claude-code codex --suite issues  two agents",
    "uwf eval compare baseline solve-issue --plot scores.svg",
)
@click.argument("a")
@click.argument("b")
@click.option("--suite", metavar="SUITE", help="The suite, if there are several.")
@narrowing
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also write a chart to this SVG file."
)
def compare(
    invocation: Invocation,
    a: str,
    b: str,
    suite: str | None,
    workflow: str | None,
    agent: str | None,
    plot: Path | None,
) -> None:
    """Compare two runs of a suite, case by case and on average.

    A and B are workflow versions, agents, labels, hashes of runs, or "baseline". Nothing is run. Of several
    matching runs, the newest ones with the same judges count.
    """
    from uwf_git.ext.evaluation.comparison import compare as do

    suite_here = find_suite(invocation, suite, (a, b))
    one, other = find_sides(invocation, suite_here, (a, b), workflow, agent)
    warn_of_judges(invocation, one, other)
    value = compared_value(suite_here, one, other, do(one.scored, other.scored))
    if plot is not None:
        from uwf_git.plugin import charts

        title, note = (
            f"{one.said} → {other.said}",
            f"{suite_here.name}: the score of each case, ○ before, ● after",
        )
        write_whole(
            plot, charts.pair_chart(title, note, pairs_of(value)).encode("utf-8", "replace"), force=True
        )
    invocation.emit(value, compared_text)


def compared_value(suite: Suite, a: Side, b: Side, comparison: Comparison) -> dict[str, Any]:
    """Return the JSON. `byJudge` is null if unknown."""
    from uwf_git.ext.evaluation.sides import by_tag, shares

    tags = {suite.named[case.hash]: case.tags for case in suite.cases}
    judged = None if a.by_judge is None or b.by_judge is None else shares(a.by_judge, b.by_judge)
    return {
        "suite": suite.name,
        "a": side_value(a),
        "b": side_value(b),
        **comparison_value(comparison),
        "byJudge": None if judged is None else shares_value(judged),
        "byTag": shares_value(shares(by_tag(a.scored, tags), by_tag(b.scored, tags))),
    }


def side_value(side: Side) -> dict[str, Any]:
    return {
        "said": side.said,
        "run": side.run,
        "workflow": side.workflow,
        "agent": side.agent,
        "judges": sorted(side.judges),
        "unknown": dict(sorted(side.unknown.items())),
        "flaky": flaky_value(side.flaky),
    }


def warn_of_judges(invocation: Invocation, a: Side, b: Side) -> None:
    """Warn if the sides' scores are not comparable."""
    if difference := judged_otherwise(a, b):
        invocation.warn(f"no runs were judged alike, so the scores may not mean the same: {difference}")


def compared_text(value: Mapping[str, Any]) -> str:
    return f"{_sides(value)}\n{comparison_text(value)}{parts_text(value)}{_flaky(value)}{_unknown(value)}"


def _sides(value: Mapping[str, Any]) -> str:
    rows = [(name, f"{value[name]['said']}  {terminal.style(value[name]['run'], 'dim')}") for name in "ab"]
    return terminal.fields([("suite", terminal.style(value["suite"], "bold")), *rows])


def _flaky(value: Mapping[str, Any]) -> str:
    rows = [(f"flaky in {name}", flaky_text(value[name]["flaky"])) for name in "ab"]
    return "\n" + terminal.fields(rows) if any(text for _, text in rows) else ""


def _unknown(value: Mapping[str, Any]) -> str:
    lines = ""
    for name in "ab":
        if unknown := value[name]["unknown"]:
            many = f"{counted(len(unknown), 'case')} of {name} without a score"
            lines += f"{terminal.style(many, 'yellow')}\n"
            lines += "".join(f"  {case}: {why}\n" for case, why in unknown.items())
    return lines


OUTCOMES = {WIN: "better", LOSS: "worse", TIE: "same"}
"""What people call how a case came out."""

_COLOUR = {WIN: "green", LOSS: "red", TIE: "dim"}


def comparison_value(comparison: Comparison) -> dict[str, Any]:
    between = comparison.difference
    return {
        "wins": comparison.count(WIN),
        "losses": comparison.count(LOSS),
        "ties": comparison.count(TIE),
        "chance": round(comparison.chance, 6),
        "score": None if between is None else _rounded(between),
        "average": {"a": average_value(comparison.a), "b": average_value(comparison.b)},
        "cases": [
            {
                "case": case.case,
                "outcome": case.outcome,
                "difference": round(case.difference, 6) + 0.0,
                "a": average_value(case.a),
                "b": average_value(case.b),
            }
            for case in comparison.cases
        ],
        "onlyA": list(comparison.only_a),
        "onlyB": list(comparison.only_b),
    }


def average_value(average: Average | None) -> dict[str, Any] | None:
    return None if average is None else _rounded(average._replace(seconds=round(average.seconds, 3)))


def shares_value(shares: Iterable[Share]) -> list[dict[str, Any]]:
    return list(map(_rounded, shares))


def flaky_value(passeses: Mapping[str, Passes] | None) -> list[dict[str, Any]] | None:
    """Return flaky cases as JSON, None if unknown."""
    return (
        None
        if passeses is None
        else [{"case": case, **passese._asdict()} for case, passese in passeses.items()]
    )


def _rounded(value: Interval | Average | Share) -> dict[str, Any]:
    """Return a value's fields, numbers with six digits and without -0.0."""
    fields = value._asdict()
    return {
        key: round(field, 6) + 0.0 if isinstance(field, float) else field for key, field in fields.items()
    }


# For people


def judged_otherwise(a: Side, b: Side, called: Sequence[str] = ("a", "b")) -> str:
    """Return how the sides' judges differ, or ""."""
    apart = a.judges_apart(b)
    if not any(apart) or not (a.scored and b.scored):
        return ""
    one, other = (", ".join(sorted(names)) for names in apart)
    if one == other:
        are = "is not" if len(apart[0]) == 1 else "are not"
        return f"{one} {are} the same judge for {called[0]} and for {called[1]}"
    if one and other:
        return f"those of {called[0]} are by {one}, those of {called[1]} by {other}"
    return f"those of {called[0] if one else called[1]} are also by {one or other}"


def comparison_text(value: Mapping[str, Any]) -> str:
    if not value["cases"]:
        return "the two have no case in common\n" + _only(value)
    rows = [
        (case["case"], score_text(case["a"]), score_text(case["b"]), outcome_text(case["outcome"]))
        for case in value["cases"]
    ]
    one, other = value["average"]["a"], value["average"]["b"]
    summary = [
        ("cases", _parted(value)),
        ("score", f"{one['score']:.2f} → {other['score']:.2f}  {difference_text(value['score'])}"),
        ("cost", f"{_paid(one)} → {_paid(other)} a run" if _known(one, other) else ""),
        ("time", f"{_time(one)} → {_time(other)} a run"),
    ]
    return f"{terminal.table(rows, ('case', 'a', 'b', ''))}{_only(value)}\n{terminal.fields(summary)}"


def parts_text(value: Mapping[str, Any]) -> str:
    """Return tables by judge and by tag, or ""."""
    text = ""
    for key, called in (("byJudge", "judge"), ("byTag", "tag")):
        if parts := value[key]:
            rows = [
                (part["name"], str(part["cases"]), *(_mean(part[side]) for side in "ab"), _won(part))
                for part in parts
            ]
            text += "\n" + terminal.table(rows, (called, "cases", "a", "b", ""))
    return text


def flaky_text(cases: Sequence[Mapping[str, Any]] | None) -> str:
    return ", ".join(f"{item['case']} ({item['passed']} of {item['runs']} passed)" for item in cases or ())


def _mean(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _won(part: Mapping[str, Any]) -> str:
    if part["a"] is None or part["b"] is None:
        return ""
    counts = [f"{part[key]} {word}" for key, word in (("wins", "better"), ("losses", "worse")) if part[key]]
    return ", ".join(counts) or "same"


def outcome_text(outcome: str) -> str:
    return terminal.style(OUTCOMES[outcome], _COLOUR[outcome])


def score_text(average: Mapping[str, Any] | None) -> str:
    """Format a score with its spread: `0.50 (0.00–1.00)`."""
    if average is None:
        return "–"
    least, most = average["least"], average["most"]
    spread = f" ({least:.2f}–{most:.2f})" if least != most else ""
    return f"{average['score']:.2f}{spread}"


def difference_text(score: Mapping[str, float]) -> str:
    """Format a difference with its interval: `+0.17 (95 %: +0.00 to +0.25)`."""
    low, high = score["low"], score["high"]
    sure = f" ({SHARE:.0%}: {low:+.2f} to {high:+.2f})".replace("%", " %") if low != high else ""
    return f"{score['mean']:+.2f}{sure}"


def _parted(value: Mapping[str, Any]) -> str:
    text = f"{value['wins']} better, {value['losses']} worse, {value['ties']} the same"
    if not (value["wins"] or value["losses"]):
        return text
    return f"{text}; a coin parts them so in {percent(value['chance'])} of all tries"


def percent(share: float) -> str:
    """Format a probability, below 1 % with one significant digit: `0.2 %`."""
    if share < 0.0001:
        return "less than 0.01 %"
    return f"{share * 100:.{0 if share >= 0.00995 else 1 if share >= 0.00095 else 2}f} %"


def _only(value: Mapping[str, Any]) -> str:
    lines = ""
    for key, name in (("onlyA", "a"), ("onlyB", "b")):
        if some := value[key]:
            lines += f"{counted(len(some), 'case')} with results of {name} alone: {', '.join(some)}\n"
    return lines


def _known(*averages: Mapping[str, Any]) -> bool:
    return any(average["cost"] is not None or average["unpriced"] for average in averages)


def _paid(average: Mapping[str, Any]) -> str:
    return in_dollars(average["cost"], average["unpriced"])


def _time(average: Mapping[str, Any]) -> str:
    from uwf_git.plugin import duration_text

    return str(duration_text(average["seconds"]))


def pairs_of(value: Mapping[str, Any]) -> list[charts.Pair]:
    from uwf_git.plugin import charts

    def spread(average: Mapping[str, Any]) -> charts.Spread:
        return charts.Spread(average["least"], average["score"], average["most"])

    return [
        charts.Pair(
            case["case"],
            spread(case["a"]),
            spread(case["b"]),
            f"{case['a']['score']:.2f} → {case['b']['score']:.2f}",
        )
        for case in value["cases"]
    ]
