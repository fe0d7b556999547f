"""Evaluation: suites of cases, runs, judges, comparisons, baselines."""

from uwf_git.plugin import Command, ConfigSection, Extension, Pages, RefKind

SUITES = RefKind(
    "refs/uwf/evals/",
    "name",
    order=100,
    records=("suite",),
    trailer="Uwf-Suite",
    name_field="name",
    settle="grow",
    rule="suites",
    along=("refs/uwf/baselines/",),
    foreign=("files/",),
    check="uwf_git.ext.evaluation.suite_check:check_suite",
    commands="uwf eval",
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
    rule="baselines",
    word="baseline",
    owner="the baseline is of suite",
    versions="uwf_git.ext.evaluation.baselines:Baselines",
    branches="refs/heads/uwf/baselines/",
    commands="uwf eval baseline",
    made_of="run",
    put="uwf eval baseline set SUITE",
    propose="uwf eval baseline propose SUITE",
)

EXTENSION = Extension(
    "evaluation",
    commands=(
        Command(
            "eval",
            "uwf_git.ext.evaluation.commands.tree:eval_",
            "Evaluate workflows and agents with suites of cases.",
            "Many at once",
        ),
    ),
    refs=(SUITES, BASELINES),
    config=(
        ConfigSection(
            "judges",
            "uwf_git.ext.evaluation.judge_settings:read_judges",
            texts=("command", "jsonata", "workflow"),
        ),
    ),
    node_types=dict.fromkeys(
        (
            "6VTWWHRPQQYDV",
            "5BD7YF89X13DB",
            "F27S8NB1B30BY",
            "DY0VM7BMRT4E5",
            "3Y1P8V59PQ6XF",
            "9D4ST712WQ95H",
            "9ENYQ67A48NW3",
        ),
        "uwf_git.ext.evaluation.node_types:SCHEMAS",
    ),
    pages=Pages(
        "Suites",
        "refs/uwf/evals/",
        {
            "/evals": "uwf_git.ext.evaluation.pages:evals",
            "/eval/{name}": "uwf_git.ext.evaluation.pages:suite",
        },
    ),
)
