"""Suites whose runs are written without running anything: what was judged is what a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli_samples import PAIR
from workflows import register

from uwf_git.ext.evaluation.node_types import CASE, SCORE, SUITE_RUN, TRIAL
from uwf_git.ext.evaluation.records import (
    COMPLETED,
    FAILED,
    JSONATA,
    AgentSpending,
    Case,
    Judge,
    RunResult,
    Score,
    ScoreKey,
    SuiteRun,
    Trial,
    TrialKey,
)
from uwf_git.ext.evaluation.suite import Additions, Suites
from uwf_git.format.ids import Hash
from uwf_git.format.node import hash_of
from uwf_git.format.types import STARTNODE
from uwf_git.store.instance import Instance

Scores = Mapping[str, Sequence[float | None]]

JUDGE = Judge("well", JSONATA, "true")


def version(instance: Instance, description: str) -> Hash:
    """A version of the workflow `pair` that differs by its description, registered as the newest."""
    return register(instance, PAIR.replace("Writes a text.", description)).hash


def case_of(name: str) -> Case:
    """A case of that name."""
    case = Case(Hash(""), name, prompt=f"Do {name}.")
    return case._replace(hash=hash_of(CASE, case.payload()))


def run(
    instance: Instance,
    suite: str,
    workflow: Hash,
    scores: Scores,
    agent: str | None = None,
    cost: float | None = None,
) -> Hash:
    """A run of a suite: by the name of each case the scores of its repeats, None for an agent that failed."""
    cases, trials, said, results = [], [], [], []
    for name, repeats in scores.items():
        case = case_of(name)
        cases.append(case)
        start = instance.store.put(STARTNODE, {"workflow": workflow, "prompt": case.prompt}, timestamp=0)
        for number, score in enumerate(repeats, 1):
            key = TrialKey(workflow, start, {"writer": agent or "uwf-rehearse"}, number)
            told = AgentSpending(cost=cost, seconds=number)
            ended = Trial(Hash(""), key, COMPLETED, told=told)
            trial = ended if score is not None else ended._replace(status=FAILED, error="it broke")
            trial = trial._replace(hash=hash_of(TRIAL, trial.payload()))
            trials.append(trial)
            given = []
            if score is not None:
                one = Score(
                    Hash(""), ScoreKey(trial.hash, JUDGE, None), score, score >= 0.5, f"{score:.0%} is done"
                )
                given.append(one._replace(hash=hash_of(SCORE, one.payload())))
            said += given
            results.append(RunResult(case.hash, trial.hash, tuple(each.hash for each in given)))
    made = SuiteRun(Hash(""), len(cases), 1, tuple(results), workflow, agent)
    made = made._replace(hash=hash_of(SUITE_RUN, made.payload()))
    Suites(instance.store).add(suite, Additions(cases=cases, trials=trials, scores=said, runs=[made]))
    return made.hash
