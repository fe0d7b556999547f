"""`uwf eval compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.evaluation.commands.comparison_output import (
    comparison_text,
    comparison_value,
    flaky_text,
    flaky_value,
    judged_otherwise,
    pairs_of,
    parts_text,
    shares_value,
)
from uwf_git.ext.evaluation.commands.sides import find_sides, find_suite, narrowing
from uwf_git.plugin import Invocation, command, counted, terminal, write_whole

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.comparison import Comparison
    from uwf_git.ext.evaluation.sides import Side
    from uwf_git.ext.evaluation.suite import Suite


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

    found = find_suite(invocation, suite, (a, b))
    one, other = find_sides(invocation, found, (a, b), workflow, agent)
    warn_of_judges(invocation, one, other)
    value = compared_value(found, one, other, do(one.scored, other.scored))
    if plot is not None:
        from uwf_git.plugin import charts

        title, note = f"{one.said} → {other.said}", f"{found.name}: the score of each case, ○ before, ● after"
        write_whole(
            plot, charts.pair_chart(title, note, pairs_of(value)).encode("utf-8", "replace"), force=True
        )
    invocation.emit(value, compared_text)


def compared_value(suite: Suite, a: Side, b: Side, found: Comparison) -> dict[str, Any]:
    """Return the JSON. `byJudge` is null if unknown."""
    from uwf_git.ext.evaluation.breakdown import by_tag, shares

    tags = {suite.named[case.hash]: case.tags for case in suite.cases}
    judged = None if a.by_judge is None or b.by_judge is None else shares(a.by_judge, b.by_judge)
    return {
        "suite": suite.name,
        "a": side_value(a),
        "b": side_value(b),
        **comparison_value(found),
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
    if said := judged_otherwise(a, b):
        invocation.warn(f"no runs were judged alike, so the scores may not mean the same: {said}")


def compared_text(value: Mapping[str, Any]) -> str:
    return f"{_sides(value)}\n{comparison_text(value)}{parts_text(value)}{_flaky(value)}{_unknown(value)}"


def _sides(value: Mapping[str, Any]) -> str:
    rows = [(name, f"{value[name]['said']}  {terminal.style(value[name]['run'], 'dim')}") for name in "ab"]
    return terminal.fields([("suite", terminal.style(value["suite"], "bold")), *rows])


def _flaky(value: Mapping[str, Any]) -> str:
    rows = [(f"flaky in {name}", flaky_text(value[name]["flaky"])) for name in "ab"]
    return "\n" + terminal.fields(rows) if any(said for _, said in rows) else ""


def _unknown(value: Mapping[str, Any]) -> str:
    lines = ""
    for name in "ab":
        if unknown := value[name]["unknown"]:
            many = f"{counted(len(unknown), 'case')} of {name} without a score"
            lines += f"{terminal.style(many, 'yellow')}\n"
            lines += "".join(f"  {case}: {why}\n" for case, why in unknown.items())
    return lines
