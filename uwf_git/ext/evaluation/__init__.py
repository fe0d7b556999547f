"""Suites of cases, their runs, judges, and the comparison of two versions."""

from uwf_git.ext import Command, Extension, Pages, RefKind

SUITES = RefKind(
    "refs/uwf/evals/",
    "name",
    order=100,
    records=("suite",),
    trailer="Uwf-Suite",
    name_field="name",
    settle="grow",
    word="suite",
    owner="the suite is called",
)
BASELINES = RefKind(
    "refs/uwf/baselines/",
    "name",
    order=110,
    records=("baseline",),
    trailer="Uwf-Baseline",
    record_parents=1,
    name_field="suite",
    settle="version",
    word="baseline",
    owner="the baseline is of suite",
    branches="refs/heads/uwf/baselines/",
    commands="uwf eval baseline",
)

EXTENSION = Extension(
    "evaluation",
    commands=(
        Command(
            "eval",
            "uwf_git.ext.evaluation.commands.tree:eval_",
            "Suites of cases that workflows and agents are judged by.",
            "Many at once",
        ),
    ),
    refs=(SUITES, BASELINES),
    pages=Pages(
        "Suites",
        "refs/uwf/evals/",
        {
            "/evals": "uwf_git.ext.evaluation.pages:evals",
            "/eval/{name}": "uwf_git.ext.evaluation.pages:suite",
        },
    ),
)
