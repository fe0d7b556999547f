"""`uwf eval report`: a run as one HTML file, or as a log of Inspect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.evaluation.commands.comparing import (
    OUTCOMES,
    compared_value,
    difference_text,
    flaky_text,
    pairs_of,
    percent,
    warn_of_judges,
)
from uwf_git.ext.evaluation.commands.result_output import parts_value, result_value, run_value, summary
from uwf_git.ext.evaluation.commands.sides import BASELINE, find_side, names_of
from uwf_git.plugin import (
    Invocation,
    NotFound,
    Usage,
    as_json,
    charts,
    command,
    completers,
    document,
    exact_time,
    markup,
    one_line,
    tag,
    write_whole,
)

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.records import SuiteRun
    from uwf_git.ext.evaluation.suite import Suite


@command(
    "uwf eval report bugs --html bugs.html              the newest run",
    "uwf eval report bugs codex --against claude-code --html agents.html",
    "uwf eval report bugs --html - | mail -s bugs ada   to standard output",
    "uwf eval report bugs --inspect logs                for Inspect's viewer",
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.argument("run", required=False)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write a page. - is standard output.",
)
@click.option(
    "--inspect",
    "log",
    metavar="FILE",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Write a log of Inspect; in a folder, under the name that Inspect looks for.",
)
@click.option("--against", metavar="RUN", help="Compare with this instead of the baseline.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def report(
    invocation: Invocation,
    suite: str,
    run: str | None,
    html: Path | None,
    log: Path | None,
    against: str | None,
    force: bool,
) -> None:
    """Write a run of a suite as one HTML file: scores by judge and tag, flaky cases, changes.

    RUN is a workflow version, an agent, a label or the hash of a run. Default: the newest. It is compared
    with the baseline, if there is one. The file has no script and loads nothing.

    --inspect writes a log for the viewer and the library of Inspect instead: a sample for each trial, with
    its messages, scores and models' usage.
    """
    file = html or log
    if file is None or (html and log) or (log and against):
        raise Usage("give --html FILE or --inspect FILE, and --against with --html alone")
    from uwf_git.ext.evaluation.baselines import Baselines
    from uwf_git.ext.evaluation.comparison import compare, drop
    from uwf_git.ext.evaluation.sides import side_of
    from uwf_git.ext.evaluation.suite import Suites

    instance = invocation.instance
    read = Suites(instance.store).read(suite)
    chosen = _chosen(invocation, read, run)
    names, results = names_of(instance, read), read.results(chosen)
    now = side_of(read, chosen, names, results)
    if against is None and suite in Baselines(instance.store).names():
        against = BASELINE
    if log is not None:
        from uwf_git.ext.evaluation.inspect_log import file_name, inspect_log

        if file.is_dir():
            file /= file_name(read, chosen)
        _write(
            invocation,
            file,
            as_json(inspect_log(instance, read, chosen, now.said)),
            force,
            suite,
            chosen,
            None,
        )
        return
    compared, lower = None, {}
    if against is not None:
        base = find_side(invocation, read, against, like=now)
        warn_of_judges(invocation, base, now)
        comparison = compare(base.scored, now.scored)
        compared = compared_value(read, base, now, comparison)
        lower = dict(drop(base.scored, now.scored, 0.0, between=comparison.difference).lower)
    value = {"suite": suite, "said": now.said, **_run_value(invocation, read, chosen)}
    base_run = None if compared is None else compared["a"]["run"]
    _write(invocation, file, page(value, compared, lower), force, suite, chosen, base_run)


def _write(
    invocation: Invocation,
    file: Path,
    text: str,
    force: bool,
    suite: str,
    run: SuiteRun,
    against: str | None,
) -> None:
    data = text.encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {"suite": suite, "run": run.hash, "against": against, "file": str(file), "bytes": len(data)},
        lambda shown: f"{shown['file']}: {shown['bytes']:,} bytes",
    )


def _chosen(invocation: Invocation, suite: Suite, text: str | None) -> SuiteRun:
    if text is not None:
        node = find_side(invocation, suite, text).run
        runs = [run for run in suite.runs if run.hash == node]
        if not runs:
            raise NotFound(f"the run of {text} isn't here", f"see: uwf eval show {suite.name}")
    else:
        runs = [run for run in suite.runs if run.results]
        if not runs:
            raise NotFound(f"suite {suite.name!r} was not run", f"uwf eval run {suite.name}")
    return runs[-1]


def _run_value(invocation: Invocation, suite: Suite, run: SuiteRun) -> dict[str, Any]:
    from uwf_git.ext.evaluation.trials import threads_of

    results = suite.results(run)
    threads = threads_of(invocation.instance, results)
    tags = {suite.named[case.hash]: case.tags for case in suite.cases}
    return {
        **run_value(run, results),
        "time": run.time // 1000,
        **parts_value(results, tags),
        "results": [result_value(result, threads.get(result.trial.hash)) for result in results],
    }


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
        tag("p", markup.text(f"{run['said']}, {exact_time(run['time'])}"), "dim"),
        tag("p", markup.text(summary(run))),
        tag("div", f"It stopped early: {markup.text(run['stopped'])}", "notice") if run["stopped"] else "",
        _flaky(run["flaky"]),
        _changes(compared, lower) if compared is not None else "",
        _parts(run, compared),
        _trials(run["results"]),
    ]
    return document(title, "".join(parts))


def _flaky(flaky: Sequence[Mapping[str, Any]]) -> str:
    notice = flaky_text(flaky)
    return tag("div", f"<strong>Flaky:</strong> {markup.text(notice)}", "notice") if notice else ""


def _changes(compared: Mapping[str, Any], lower: Mapping[str, float | None]) -> str:
    heading = tag("h2", f"{markup.text(compared['a']['said'])} → {markup.text(compared['b']['said'])}")
    if not compared["cases"]:
        return heading + tag("p", "The two have no case in common.")
    counts = f"{compared['wins']} better, {compared['losses']} worse, {compared['ties']} the same"
    one, other = (compared["average"][side]["score"] for side in "ab")
    headline = f"{counts}. Score {one:.2f} → {other:.2f}: {difference_text(compared['score'])}."
    chart = charts.pairs_drawing(
        "Score of each case: a circle is before, a dot after", pairs_of(compared)[:CHARTED]
    )
    rows = [
        (
            markup.text(case["case"]),
            _score(case["a"]),
            _score(case["b"]),
            markup.text(OUTCOMES[case["outcome"]]),
        )
        for case in compared["cases"]
    ]
    return (
        heading
        + tag("p", markup.text(headline))
        + "".join(map(_worse, lower, lower.values()))
        + tag("div", chart, "scrolls", tabindex="0")
        + markup.table(("case", "before", "after", ""), rows, "numbers")
        + _alone(compared)
    )


def _worse(case: str, chance: float | None) -> str:
    sure = "" if chance is None else f", which chance does in {percent(chance)} of checks"
    return tag("div", f"<strong>{markup.text(case)} is worse</strong>{markup.text(sure)}.", "notice")


def _alone(compared: Mapping[str, Any]) -> str:
    html = ""
    for key, side in (("onlyA", "a"), ("onlyB", "b")):
        if cases := compared[key]:
            html += tag(
                "p", markup.text(f"Only {compared[side]['said']} has a score of {', '.join(cases)}."), "dim"
            )
    return html


def _parts(run: Mapping[str, Any], compared: Mapping[str, Any] | None) -> str:
    shown = ""
    for key, called in (("byJudge", "judge"), ("byTag", "tag")):
        if not run[key]:
            continue
        before = {item["name"]: item["a"] for item in (compared or {}).get(key) or ()}
        rows = [
            (
                markup.text(item["name"]),
                str(item["cases"]),
                *([_number(before.get(item["name"]))] if compared else []),
                _number(item["score"]),
            )
            for item in run[key]
        ]
        header = (called, "cases", *(["before"] if compared else []), "score")
        shown += tag("h2", f"By {called}") + markup.table(header, rows, "numbers")
    return shown


def _trials(results: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            markup.text(result["case"]),
            str(result["repeat"]),
            markup.text(result["state"]),
            _number(result["score"]),
            "<br>".join(map(markup.text, _said(result))),
            tag("code", markup.text(result["thread"])) if result["thread"] else "",
        )
        for result in results
    ]
    return tag("h2", "Trials") + markup.table(
        ("case", "repeat", "", "score", "judges", "thread"), rows, "values"
    )


def _said(result: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{score['judge']} {score['score']:.2f}{': ' + score['reason'] if score['reason'] else ''}"
        for score in result["scores"]
    ]
    return [one_line(line, _REASON) for line in (*lines, *result["errors"], result["error"]) if line]


def _score(average: Mapping[str, Any]) -> str:
    least, most = average["least"], average["most"]
    return _number(average["score"]) + (f" ({least:.2f}–{most:.2f})" if least != most else "")


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"
