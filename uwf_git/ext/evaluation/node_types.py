"""Node types of suites and baselines."""

from __future__ import annotations

from typing import Any

from uwf_git.format.builtin import (
    BUDGET,
    COST,
    COUNT,
    FLAG,
    NULLABLE_REF,
    POSITIVE,
    REF,
    REFS,
    STRING,
    STRINGS,
    USAGE,
    list_of,
    map_of,
    record,
)
from uwf_git.format.ids import Hash

SCHEMAS: dict[Hash, dict[str, Any]] = {}
"""The schemas by their hashes."""


def _type(name: str, schema: dict[str, Any]) -> Hash:
    SCHEMAS[Hash(name)] = schema
    return Hash(name)


_FOLDER_ID = {
    "type": "string",
    "minLength": 40,
    "maxLength": 40,
    "description": "The id of a git tree, which stands in files/ under it.",
}
_BY_ROLE = map_of(STRING)
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_JUDGE = {
    "name": STRING,
    "use?": {**STRING, "description": "The name of a judge in the configuration of whoever runs the case."},
    "jsonata?": {**STRING, "description": "An expression over what came of the case."},
    "exact?": {**STRINGS, "description": "Fields that are as expected; none for the whole output."},
    "schema?": {"description": "A JSON Schema that the output obeys."},
    "workflow?": {**STRING, "description": "The name of a workflow that judges."},
    "output?": {**STRING, "description": "What its last output means: an expression over its history."},
    "threshold?": {**_SHARE, "description": "The least score that passes; 0.5 where it isn't said."},
}
SUITE = _type("6VTWWHRPQQYDV", record("Suite", {"name": STRING}))
CASE = _type(
    "5BD7YF89X13DB",
    record(
        "Case",
        {
            "name": STRING,
            "prompt?": {**STRING, "description": "The task of a case that is no thread's."},
            "workflow?": {**REF, "description": "What such a case was written for, where that was said."},
            "start?": {**REF, "description": "The StartNode of a thread that the case is of."},
            "step?": {**REF, "description": "The StepNode that it had come to, or that is done again."},
            "role?": {**STRING, "description": "Whose step is done again; without it all of the thread is."},
            "fixture?": _FOLDER_ID,
            "expected?": {"description": "What the judges hold the output against."},
            "judges?": list_of(record("Judge", _JUDGE)),
            "limits?": BUDGET,
            "tags?": STRINGS,
            "replaces?": REFS,
        },
    ),
)
CASE_REMOVAL = _type("F27S8NB1B30BY", record("CaseRemoval", {"case": REF}))
TRIAL_ENDS = ("completed", "failed", "waiting", "stuck", "limited", "inapplicable")
"""What can become of a trial: only one that is completed is judged."""
_TOLD = {"usage": USAGE, "cost?": COST, "unpriced": COUNT, "durationMs": COUNT}
TRIAL = _type(
    "DY0VM7BMRT4E5",
    record(
        "Trial",
        {
            "workflow": REF,
            "head": {
                **REF,
                "description": "The StartNode, or what the role that is done again went on from.",
            },
            "role?": STRING,
            "fixture?": _FOLDER_ID,
            "agents": {**_BY_ROLE, "description": "The command line of each role's agent."},
            "label?": {**STRING, "description": "What tells it from others that look the same."},
            "repeat": POSITIVE,
            "status": {"enum": list(TRIAL_ENDS)},
            "last": {**NULLABLE_REF, "description": "The last StepNode of its thread."},
            "error?": STRING,
            "work?": {
                **_FOLDER_ID,
                "description": "What the fixture's folder was in the end: a tree in files/.",
            },
            "steps": COUNT,
            "attempts": COUNT,
            **_TOLD,
            "notes?": STRINGS,
        },
    ),
)
SCORE = _type(
    "3Y1P8V59PQ6XF",
    record(
        "Score",
        {
            "trial": REF,
            "judge": record(
                "Judge",
                {
                    **{key: value for key, value in _JUDGE.items() if key != "use?"},
                    "command?": {**STRINGS, "description": "A program and its arguments."},
                    "version?": {**REF, "description": "The Workflow node of the workflow that judged."},
                    "agents?": _BY_ROLE,
                },
            ),
            "expected?": True,
            "score": _SHARE,
            "passed": FLAG,
            "reason?": STRING,
            "step?": {**REF, "description": "The last StepNode of the thread that judged."},
            **_TOLD,
        },
    ),
)
_RESULT = record(
    "Result",
    {
        "case": REF,
        "trial": REF,
        "scores": REFS,
        "errors?": {**STRINGS, "description": "Why judges came to no score."},
    },
)
SUITE_RUN = _type(
    "9D4ST712WQ95H",
    record(
        "SuiteRun",
        {
            "workflow?": {**REF, "description": "The one that was asked for, where one was."},
            "agent?": {**STRING, "description": "The one that was asked for, where one was."},
            "label?": STRING,
            "cases": {**COUNT, "description": "How many were to be run."},
            "repeat": POSITIVE,
            "results": list_of(_RESULT),
            "stopped?": {**STRING, "description": "Why it stopped before all cases were run."},
        },
    ),
)

_SCORED = record("Scored", {"score": _SHARE, "cost?": COST, "unpriced": COUNT, "durationMs": COUNT})
_BASELINE_OF_A_CASE = record(
    "Baseline of a case",
    {
        "case": {**STRING, "description": "The hash of the Case."},
        "name": STRING,
        "runs": list_of(_SCORED, minItems=1),
    },
)
BASELINE = _type(
    "9ENYQ67A48NW3",
    record(
        "Baseline",
        {
            "suite": {**STRING, "description": "The name of a suite."},
            "said": {**STRING, "description": "What was run, for people."},
            "run": {**STRING, "description": "The hash of the SuiteRun that it was measured in."},
            "workflow?": {
                **STRING,
                "description": "The hash of the Workflow node that all of it was run with.",
            },
            "agent?": {**STRING, "description": "The one that was asked for, where one was."},
            "judges?": {**STRINGS, "description": "The names of those that gave the scores."},
            "cases": list_of(_BASELINE_OF_A_CASE, minItems=1),
        },
    ),
)


OF_SUITES = (SUITE, CASE, CASE_REMOVAL, TRIAL, SCORE, SUITE_RUN)
"""The types of the nodes of a suite."""
