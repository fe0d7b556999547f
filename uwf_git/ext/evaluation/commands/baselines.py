"""`uwf eval baseline`."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_git.ext.evaluation import sides
from uwf_git.ext.evaluation.baselines import Baseline, Baselines
from uwf_git.ext.evaluation.commands.comparing import score_text
from uwf_git.ext.evaluation.commands.sides import find_side, names_of, narrowing
from uwf_git.ext.evaluation.suite import Suites
from uwf_git.plugin import (
    Failures,
    Invocation,
    Record,
    Table,
    TableColumn,
    View,
    command,
    counted,
    definitions,
    iso,
    options,
)

if TYPE_CHECKING:
    from uwf_git.plugin import PastVersion, RegisteredVersion


class MeasuredRun(NamedTuple):
    """A run whose scores are to be a baseline, as typed."""

    suite: str
    run: str | None
    workflow: str | None
    agent: str | None
    partial: bool

    def baseline(self, invocation: Invocation) -> Baseline:
        """Raises NotFound, Usage."""
        suite = Suites(invocation.instance.store).read(self.suite)
        if self.run is not None:
            side = find_side(invocation, suite, self.run, self.workflow, self.agent)
        elif self.workflow or self.agent:
            side = find_side(invocation, suite, self.workflow or self.agent or "", None, self.agent)
        else:
            side = sides.side_of(suite, sides.newest(suite), names_of(invocation.instance, suite))
        return sides.baseline_of(suite, side, self.partial)


measured = options.packed(
    "measured",
    MeasuredRun,
    click.argument("suite"),
    click.argument("run", required=False),
    narrowing,
    click.option(
        "--partial", is_flag=True, help="Accept a run in which some cases have no score, and leave those out."
    ),
)
"""Adds the arguments and options that choose a run."""


@command(
    "uwf eval baseline set issues                   the newest run",
    "uwf eval baseline set issues solve-issue~1     the newest of that version",
    "uwf eval baseline set issues 4KNM2PXR3B1QW     a run",
)
@measured
def set_(invocation: Invocation, measured: MeasuredRun) -> None:
    """Set a suite's baseline to the scores of a run.

    RUN is anything that "uwf eval compare" takes: a workflow version, an agent, a label or a hash. Default:
    the newest run. Every case needs a score, unless --partial is given.
    """
    baselines = Baselines(invocation.instance.store)
    suite = measured.suite
    old = baselines.current(suite).commit if suite in baselines.names() else None
    version = baselines.put(measured.baseline(invocation).payload)
    value = {**version_value(baselines, version), "changed": version.commit != old}
    unchanged = ("unchanged", lambda value: "" if value["changed"] else "it was that already")
    invocation.emit(value, _scores_view(unchanged))


@command("uwf eval baseline show issues", "uwf eval baseline show issues~1")
@click.argument("suite", metavar="SUITE[~N]")
def show(invocation: Invocation, suite: str) -> None:
    """Show a suite's baseline: the score of each case. ~1 is the baseline before."""
    baselines = Baselines(invocation.instance.store)
    invocation.emit(version_value(baselines, baselines.named(suite)), _scores_view())


@command("uwf eval baseline list")
def list_(invocation: Invocation) -> None:
    """List the baselines and how each was measured."""
    baselines = Baselines(invocation.instance.store)
    rows = [brief(baselines, baselines.current(name)) for name in baselines.names()]
    columns = ("suite", _SCORE, ("set", "time"), ("of", "said"))
    invocation.emit(rows, Table(*columns, empty="no baseline; uwf eval baseline set SUITE"))
    Failures(invocation).missing()


@command("uwf eval baseline history issues")
@click.argument("suite")
def history(invocation: Invocation, suite: str) -> None:
    """List a suite's baselines, newest first, with their authors."""
    columns = (_SCORE, ("set", "time"), ("commit", "{commit:short}"), ("by", "author"), ("of", "said"))
    rows = past(Baselines(invocation.instance.store), suite)
    invocation.emit(rows, Table(*columns, ("", definitions.history_note)))


def past(baselines: Baselines, suite: str) -> list[dict[str, Any]]:
    """Return a suite's baselines, newest first: the JSON of `uwf eval baseline history`. Raises NotFound."""
    from uwf_git.plugin import history_values

    entries: list[PastVersion] = baselines.history(suite)
    return [
        {**brief(baselines, entry.version), **registered}
        for entry, registered in zip(entries, history_values(entries), strict=True)
    ]


@command(
    "uwf eval baseline propose issues --branch new-plan --remote origin",
    "uwf eval baseline propose issues solve-issue --branch new-plan",
)
@measured
@definitions.PROPOSED_BRANCH
@definitions.REVIEW_REMOTE
def propose(invocation: Invocation, measured: MeasuredRun, branch: str, remote: str | None) -> None:
    """Propose a baseline without setting it. On its branch, each changed score is one line.

    Without --remote the proposal stays on this machine. Proposing again under the same name adds a version.
    """
    baselines = Baselines(invocation.instance.store)
    baseline = measured.baseline(invocation)
    view = _scores_view(definitions.PROPOSAL)
    definitions.propose(
        invocation, baselines, baseline.payload, branch, remote, lambda _: _scores(baseline), view
    )


@command(
    "uwf eval baseline accept new-plan",
    "uwf eval baseline accept new-plan --remote origin",
)
@definitions.accepting
def accept(invocation: Invocation, branch: str, remote: str | None) -> None:
    """Set a proposed baseline: the local one, or with --remote a branch of that remote."""
    accepted = definitions.accept(invocation, branch, remote, "baseline")
    baselines = Baselines(invocation.instance.store)
    value = {**accepted.to_json(), **version_value(baselines, accepted.version)}
    invocation.emit(value, _scores_view(definitions.ACCEPTED))


@command("uwf eval baseline rm issues")
@click.argument("suite")
def rm(invocation: Invocation, suite: str) -> None:
    """Remove a suite's baseline. Its runs are kept."""
    baselines = Baselines(invocation.instance.store)
    value = {**brief(baselines, baselines.current(suite)), "removed": True}
    baselines.remove(suite)
    invocation.emit(value, "forgot the baseline of {suite}: {said}")


def version_value(baselines: Baselines, version: RegisteredVersion) -> dict[str, Any]:
    return {**brief(baselines, version), **_scores(baselines.baseline(version))}


def brief(baselines: Baselines, version: RegisteredVersion) -> dict[str, Any]:
    value = _scores(baselines.baseline(version))
    del value["cases"]
    return {**value, "hash": version.hash, "commit": version.commit, "time": iso(version.time)}


def _scores(baseline: Baseline) -> dict[str, Any]:
    payload = baseline.payload
    cases = [_case(case) for case in payload["cases"]]
    return {
        "suite": baseline.suite,
        "said": payload["said"],
        "run": payload["run"],
        "workflow": payload.get("workflow"),
        "agent": payload.get("agent"),
        "score": round(fmean(case["score"] for case in cases), 6),
        "cases": cases,
    }


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    scores = [run["score"] for run in case["runs"]]
    return {
        "case": case["name"],
        "hash": case["case"],
        "runs": len(scores),
        "score": round(fmean(scores), 6),
        "least": min(scores),
        "most": max(scores),
    }


_SCORE = ("score", "{score:.2f}")


def _baseline(value: Any) -> str:
    return f"{value['score']:.2f} over {counted(len(value['cases']), 'case')}"


def _scores_view(*more: TableColumn) -> View:
    """Return a view of a baseline with further fields, and of its cases."""
    suite = ("suite", "{suite:bold}")
    fields = Record(suite, ("baseline", _baseline), ("of", "said"), "run", "commit", *more)
    cases = Table("case", ("score", score_text))
    return lambda value: fields(value) + "\n" + cases(value["cases"])
