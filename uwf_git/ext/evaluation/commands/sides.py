"""Resolving words to sides of a comparison: runs, workflow versions, agents, the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uwf_git.ext.evaluation import sides
from uwf_git.plugin import NotFound, Usage, nearest

if TYPE_CHECKING:
    from uwf_git.ext.evaluation.sides import Side
    from uwf_git.ext.evaluation.suite import Suite
    from uwf_git.plugin import Hash, Instance, Invocation

BASELINE = "baseline"
"""The word for what was accepted as good; with ~1 after it the baseline before."""

_F = TypeVar("_F", bound=Callable[..., Any])


def narrowing(function: _F) -> _F:
    """Add the options `workflow` and `agent` that choose among matching runs."""
    options = (
        click.option("--workflow", metavar="WORKFLOW", help="Only runs of this workflow version."),
        click.option("--agent", metavar="AGENT", help="Only runs of this agent or label."),
    )
    for option in options:
        function = option(function)
    return function


def find_side(
    invocation: Invocation,
    suite: Suite,
    text: str,
    workflow: str | None = None,
    agent: str | None = None,
    like: Side | None = None,
) -> Side:
    """Return a word's side: the baseline, a run by hash, or the newest run of a version or agent, completed
    ones first. `workflow` and `agent` must match; runs with the judges of `like` take precedence, then with
    its version and agent. Raises NotFound, Usage."""
    candidates = _fitting(invocation, suite, text, workflow, agent)
    return candidates[0].side if like is None else _likest(candidates, like)


def find_sides(
    invocation: Invocation,
    suite: Suite,
    texts: tuple[str, str],
    workflow: str | None = None,
    agent: str | None = None,
) -> tuple[Side, Side]:
    """Return two words' sides: the newest second with a first by the same judges; else the newest with a
    common case, else the newest. Raises NotFound, Usage."""
    others = _fitting(invocation, suite, texts[1], workflow, agent)
    ones = _fitting(invocation, suite, texts[0], workflow, agent)
    sides: tuple[Side, Side] | None = None
    for other in others:
        one = _likest(ones, other.side)
        if one.meets(other.side):
            if one.is_judged_as(other.side):
                return one, other.side
            sides = sides or (one, other.side)
    return sides or (_likest(ones, others[0].side), others[0].side)


class _Candidate:
    """A possible side, read on demand."""

    def __init__(self, agent: str | None, workflow: Hash | None, read: Callable[[], Side]) -> None:
        self.agent = agent
        self.workflow = workflow
        self._read = read

    @cached_property
    def side(self) -> Side:
        return self._read()


def _likest(candidates: Sequence[_Candidate], like: Side) -> Side:
    near = sorted(
        candidates,
        key=lambda candidate: (candidate.agent != like.agent) + (candidate.workflow != like.workflow),
    )
    return sides.likest((candidate.side for candidate in near), like)


def _fitting(
    invocation: Invocation, suite: Suite, text: str, workflow: str | None, agent: str | None
) -> list[_Candidate]:
    store = invocation.instance.store
    if text.partition("~")[0] == BASELINE:
        from uwf_git.ext.evaluation.baselines import Baselines

        baselines = Baselines(store)
        version = baselines.named(suite.name + text.removeprefix(BASELINE))
        side = sides.side_of_baseline(suite, baselines.baseline(version))
        return [_Candidate(side.agent, side.workflow, lambda: side)]
    if (one := sides.by_hash(suite, text)) is not None:
        runs = [one]
    elif (version_ := _version(invocation, text)) is not None:
        runs = sides.matching(suite, version_, agent)
    else:
        runs = sides.matching(suite, _version(invocation, workflow) if workflow else None, text)
    if not runs:
        raise _no_run(suite, text, version_ is not None, workflow, agent)
    names = names_of(invocation.instance, suite)
    return [
        _Candidate(run.agent, sides.workflow_of(suite, run), partial(sides.side_of, suite, run, names))
        for run in runs
    ]


def _version(invocation: Invocation, text: str) -> Hash | None:
    from uwf_git.plugin import resolve

    try:
        return resolve.find_version(invocation, text).hash
    except NotFound:
        return None


def _no_run(suite: Suite, text: str, is_workflow: bool, workflow: str | None, agent: str | None) -> NotFound:
    chosen = {"--workflow": text if is_workflow else workflow, "--agent": agent if is_workflow else text}
    options = "".join(f" {option} {value}" for option, value in chosen.items() if value)
    again = f"uwf eval run {suite.name}{options}"
    if is_workflow:
        return NotFound(f"suite {suite.name!r} was not run with{options}", again)
    known = [*sides.agents_of(suite.runs), *([BASELINE] if text != BASELINE else [])]
    hint = nearest(text, known) or f"see: uwf eval show {suite.name}"
    return NotFound(f"suite {suite.name!r} has no run of {text!r}", hint)


def names_of(instance: Instance, suite: Suite) -> dict[Hash, str]:
    """Return the names of a suite's workflows."""
    versions = {trial.key.workflow for trial in suite.trials.values()}
    return {version: str(instance.store.get(version).payload["name"]) for version in versions}


def find_suite(invocation: Invocation, name: str | None, words: Sequence[str]) -> Suite:
    """Return a suite by name, by default the only one, or the only one in which all words match. Raises
    NotFound, Usage."""
    from uwf_git.ext.evaluation.suite import Suites

    suites = Suites(invocation.instance.store)
    if name is not None:
        return suites.read(name)
    names = suites.names()
    if len(names) == 1:
        return suites.read(names[0])
    if not names:
        raise NotFound("there is no suite", "uwf eval add THREAD --to SUITE")
    suites_here = [suite for suite in map(suites.read, names) if _has(invocation, suite, words)]
    phrase = " and ".join(words)
    if not suites_here:
        raise NotFound(f"no suite has runs of {phrase}", f"name one: --suite SUITE, of {', '.join(names)}")
    if len(suites_here) > 1:
        which = ", ".join(suite.name for suite in suites_here)
        raise Usage(f"{phrase} may be of several suites: {which}", "name one: --suite SUITE")
    return suites_here[0]


def _has(invocation: Invocation, suite: Suite, words: Sequence[str]) -> bool:
    try:
        return all(find_side(invocation, suite, word) for word in words)
    except NotFound:
        return False
