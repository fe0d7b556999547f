"""`uwf eval report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.ext.evaluation.commands.comparing import compared_value, warn_of_judges
from uwf_git.ext.evaluation.commands.result_output import parts_value, result_value, run_value
from uwf_git.ext.evaluation.commands.sides import BASELINE, find_side, names_of
from uwf_git.plugin import Invocation, NotFound, command, completers, write_whole

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.records import SuiteRun
    from uwf_git.ext.evaluation.suite import Suite


@command(
    "uwf eval report bugs --html bugs.html              the newest run",
    "uwf eval report bugs codex --against claude-code --html agents.html",
    "uwf eval report bugs --html - | mail -s bugs ada   to standard output",
)
@click.argument("suite", shell_complete=completers.complete_suite)
@click.argument("run", required=False)
@click.option(
    "--html",
    "file",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Output file. - is standard output.",
)
@click.option("--against", metavar="RUN", help="Compare with this instead of the baseline.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def report(
    invocation: Invocation, suite: str, run: str | None, file: Path, against: str | None, force: bool
) -> None:
    """Write a run of a suite as one HTML file: scores by judge and tag, flaky cases, changes.

    RUN is a workflow version, an agent, a label or the hash of a run. Default: the newest. It is compared
    with the baseline, if there is one. The file has no script and loads nothing.
    """
    from uwf_git.ext.evaluation.baselines import Baselines
    from uwf_git.ext.evaluation.commands.page import page
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
    compared, lower = None, {}
    if against is not None:
        base = find_side(invocation, read, against, like=now)
        warn_of_judges(invocation, base, now)
        found = compare(base.scored, now.scored)
        compared = compared_value(read, base, now, found)
        lower = dict(drop(base.scored, now.scored, 0.0, between=found.difference).lower)
    value = {"suite": suite, "said": now.said, **_run_value(invocation, read, chosen)}
    data = page(value, compared, lower).encode("utf-8", "replace")
    if str(file) == "-":
        invocation.write(data.decode("utf-8"))
        return
    write_whole(file, data, force)
    invocation.emit(
        {
            "suite": suite,
            "run": chosen.hash,
            "against": None if compared is None else compared["a"]["run"],
            "file": str(file),
            "bytes": len(data),
        },
        lambda shown: f"{shown['file']}: {shown['bytes']:,} bytes",
    )


def _chosen(invocation: Invocation, suite: Suite, text: str | None) -> SuiteRun:
    if text is not None:
        found = find_side(invocation, suite, text).run
        runs = [run for run in suite.runs if run.hash == found]
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
        "results": [result_value(each, threads.get(each.trial.hash)) for each in results],
    }
