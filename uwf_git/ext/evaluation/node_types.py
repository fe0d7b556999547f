"""Node types of suites and baselines."""

from __future__ import annotations

from typing import Any

from uwf_git.plugin import Hash, schemas

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
_BY_ROLE = schemas.map_of(schemas.STRING)
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_JUDGE = {
    "name": schemas.STRING,
    "use?": {
        **schemas.STRING,
        "description": "The name of a judge in the configuration of whoever runs the case.",
    },
    "jsonata?": {**schemas.STRING, "description": "An expression over what came of the case."},
    "exact?": {**schemas.STRINGS, "description": "Fields that are as expected; none for the whole output."},
    "schema?": {"description": "A JSON Schema that the output obeys."},
    "workflow?": {**schemas.STRING, "description": "The name of a workflow that judges."},
    "output?": {
        **schemas.STRING,
        "description": "What its last output means: an expression over its history.",
    },
    "threshold?": {**_SHARE, "description": "The least score that passes; 0.5 where it isn't said."},
}
SUITE = _type("6VTWWHRPQQYDV", schemas.record("Suite", {"name": schemas.STRING}))
CASE = _type(
    "5BD7YF89X13DB",
    schemas.record(
        "Case",
        {
            "name": schemas.STRING,
            "prompt?": {**schemas.STRING, "description": "The task of a case that is no thread's."},
            "workflow?": {
                **schemas.REF,
                "description": "What such a case was written for, where that was said.",
            },
            "start?": {**schemas.REF, "description": "The StartNode of a thread that the case is of."},
            "step?": {
                **schemas.REF,
                "description": "The StepNode that it had come to, or that is done again.",
            },
            "role?": {
                **schemas.STRING,
                "description": "Whose step is done again; without it all of the thread is.",
            },
            "fixture?": _FOLDER_ID,
            "expected?": {"description": "What the judges hold the output against."},
            "judges?": schemas.list_of(schemas.record("Judge", _JUDGE)),
            "limits?": schemas.BUDGET,
            "tags?": schemas.STRINGS,
            "replaces?": schemas.REFS,
        },
    ),
)
CASE_REMOVAL = _type("F27S8NB1B30BY", schemas.record("CaseRemoval", {"case": schemas.REF}))
TRIAL_ENDS = ("completed", "failed", "waiting", "stuck", "limited", "inapplicable")
"""What can become of a trial: only one that is completed is judged."""
_TOLD = {
    "usage": schemas.USAGE,
    "cost?": schemas.COST,
    "unpriced": schemas.COUNT,
    "durationMs": schemas.COUNT,
}
TRIAL = _type(
    "DY0VM7BMRT4E5",
    schemas.record(
        "Trial",
        {
            "workflow": schemas.REF,
            "head": {
                **schemas.REF,
                "description": "The StartNode, or what the role that is done again went on from.",
            },
            "role?": schemas.STRING,
            "fixture?": _FOLDER_ID,
            "agents": {**_BY_ROLE, "description": "The command line of each role's agent."},
            "label?": {**schemas.STRING, "description": "What tells it from others that look the same."},
            "repeat": schemas.POSITIVE,
            "status": {"enum": list(TRIAL_ENDS)},
            "last": {**schemas.NULLABLE_REF, "description": "The last StepNode of its thread."},
            "error?": schemas.STRING,
            "work?": {
                **_FOLDER_ID,
                "description": "What the fixture's folder was in the end: a tree in files/.",
            },
            "steps": schemas.COUNT,
            "attempts": schemas.COUNT,
            **_TOLD,
            "notes?": schemas.STRINGS,
        },
    ),
)
SCORE = _type(
    "3Y1P8V59PQ6XF",
    schemas.record(
        "Score",
        {
            "trial": schemas.REF,
            "judge": schemas.record(
                "Judge",
                {
                    **{key: value for key, value in _JUDGE.items() if key != "use?"},
                    "command?": {**schemas.STRINGS, "description": "A program and its arguments."},
                    "version?": {
                        **schemas.REF,
                        "description": "The Workflow node of the workflow that judged.",
                    },
                    "agents?": _BY_ROLE,
                },
            ),
            "expected?": True,
            "score": _SHARE,
            "passed": schemas.FLAG,
            "reason?": schemas.STRING,
            "step?": {**schemas.REF, "description": "The last StepNode of the thread that judged."},
            **_TOLD,
        },
    ),
)
_RESULT = schemas.record(
    "Result",
    {
        "case": schemas.REF,
        "trial": schemas.REF,
        "scores": schemas.REFS,
        "errors?": {**schemas.STRINGS, "description": "Why judges came to no score."},
    },
)
SUITE_RUN = _type(
    "9D4ST712WQ95H",
    schemas.record(
        "SuiteRun",
        {
            "workflow?": {**schemas.REF, "description": "The one that was asked for, where one was."},
            "agent?": {**schemas.STRING, "description": "The one that was asked for, where one was."},
            "label?": schemas.STRING,
            "cases": {**schemas.COUNT, "description": "How many were to be run."},
            "repeat": schemas.POSITIVE,
            "results": schemas.list_of(_RESULT),
            "stopped?": {**schemas.STRING, "description": "Why it stopped before all cases were run."},
        },
    ),
)

_SCORED = schemas.record(
    "Scored", {"score": _SHARE, "cost?": schemas.COST, "unpriced": schemas.COUNT, "durationMs": schemas.COUNT}
)
_BASELINE_OF_A_CASE = schemas.record(
    "Baseline of a case",
    {
        "case": {**schemas.STRING, "description": "The hash of the Case."},
        "name": schemas.STRING,
        "runs": schemas.list_of(_SCORED, minItems=1),
    },
)
BASELINE = _type(
    "9ENYQ67A48NW3",
    schemas.record(
        "Baseline",
        {
            "suite": {**schemas.STRING, "description": "The name of a suite."},
            "said": {**schemas.STRING, "description": "What was run, for people."},
            "run": {**schemas.STRING, "description": "The hash of the SuiteRun that it was measured in."},
            "workflow?": {
                **schemas.STRING,
                "description": "The hash of the Workflow node that all of it was run with.",
            },
            "agent?": {**schemas.STRING, "description": "The one that was asked for, where one was."},
            "judges?": {**schemas.STRINGS, "description": "The names of those that gave the scores."},
            "cases": schemas.list_of(_BASELINE_OF_A_CASE, minItems=1),
        },
    ),
)


OF_SUITES = (SUITE, CASE, CASE_REMOVAL, TRIAL, SCORE, SUITE_RUN)
"""The types of the nodes of a suite."""
