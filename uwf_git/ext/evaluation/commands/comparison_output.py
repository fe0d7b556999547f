"""Printing a comparison: JSON, text, chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.ext.evaluation.comparison import LOSS, SHARE, TIE, WIN, Average, Comparison
from uwf_git.plugin import counted, in_dollars, terminal

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.breakdown import Passes, Share
    from uwf_git.ext.evaluation.sides import Side
    from uwf_git.plugin import charts

OUTCOMES = {WIN: "better", LOSS: "worse", TIE: "same"}
"""What people call how a case came out."""

_COLOUR = {WIN: "green", LOSS: "red", TIE: "dim"}


def comparison_value(found: Comparison) -> dict[str, Any]:
    between = found.difference
    return {
        "wins": found.count(WIN),
        "losses": found.count(LOSS),
        "ties": found.count(TIE),
        "chance": round(found.chance, 6),
        "score": None
        if between is None
        else {key: _rounded(number) for key, number in between._asdict().items()},
        "average": {"a": average_value(found.a), "b": average_value(found.b)},
        "cases": [
            {
                "case": each.case,
                "outcome": each.outcome,
                "difference": _rounded(each.difference),
                "a": average_value(each.a),
                "b": average_value(each.b),
            }
            for each in found.cases
        ],
        "onlyA": list(found.only_a),
        "onlyB": list(found.only_b),
    }


def average_value(found: Average | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "runs": found.runs,
        "score": _rounded(found.score),
        "least": _rounded(found.least),
        "most": _rounded(found.most),
        "seconds": round(found.seconds, 3),
        "cost": None if found.cost is None else round(found.cost, 6),
        "unpriced": found.unpriced,
    }


def shares_value(found: Iterable[Share]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "cases": each.cases,
            "a": None if each.a is None else _rounded(each.a),
            "b": None if each.b is None else _rounded(each.b),
            "wins": each.wins,
            "losses": each.losses,
        }
        for each in found
    ]


def flaky_value(found: Mapping[str, Passes] | None) -> list[dict[str, Any]] | None:
    """Return flaky cases as JSON, None if unknown."""
    return None if found is None else [{"case": case, **each._asdict()} for case, each in found.items()]


def _rounded(number: float) -> float:
    return round(number, 6) + 0.0  # no -0.0


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
        (each["case"], score_text(each["a"]), score_text(each["b"]), outcome_text(each["outcome"]))
        for each in value["cases"]
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
                (each["name"], str(each["cases"]), *(_mean(each[side]) for side in "ab"), _won(each))
                for each in parts
            ]
            text += "\n" + terminal.table(rows, (called, "cases", "a", "b", ""))
    return text


def flaky_text(found: Sequence[Mapping[str, Any]] | None) -> str:
    return ", ".join(f"{each['case']} ({each['passed']} of {each['runs']} passed)" for each in found or ())


def _mean(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _won(part: Mapping[str, Any]) -> str:
    if part["a"] is None or part["b"] is None:
        return ""
    counts = [f"{part[key]} {said}" for key, said in (("wins", "better"), ("losses", "worse")) if part[key]]
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
    return any(each["cost"] is not None or each["unpriced"] for each in averages)


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
            each["case"],
            spread(each["a"]),
            spread(each["b"]),
            f"{each['a']['score']:.2f} → {each['b']['score']:.2f}",
        )
        for each in value["cases"]
    ]
