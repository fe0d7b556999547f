"""Node types of suites and baselines."""

from __future__ import annotations

from typing import Any

from uwf_git.plugin import (
    BUDGET_SCHEMA,
    COST_SCHEMA,
    COUNT_SCHEMA,
    FLAG_SCHEMA,
    NULLABLE_REF_SCHEMA,
    POSITIVE_SCHEMA,
    REF_SCHEMA,
    REFS_SCHEMA,
    STRING_SCHEMA,
    STRINGS_SCHEMA,
    USAGE_SCHEMA,
    Hash,
    list_schema,
    map_schema,
    record_schema,
)

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
_BY_ROLE = map_schema(STRING_SCHEMA)
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_JUDGE = {
    "name": STRING_SCHEMA,
    "use?": {
        **STRING_SCHEMA,
        "description": "The name of a judge in the configuration of whoever runs the case.",
    },
    "jsonata?": {**STRING_SCHEMA, "description": "An expression over what came of the case."},
    "exact?": {**STRINGS_SCHEMA, "description": "Fields that are as expected; none for the whole output."},
    "schema?": {"description": "A JSON Schema that the output obeys."},
    "workflow?": {**STRING_SCHEMA, "description": "The name of a workflow that judges."},
    "output?": {
        **STRING_SCHEMA,
        "description": "What its last output means: an expression over its history.",
    },
    "threshold?": {**_SHARE, "description": "The least score that passes; 0.5 where it isn't said."},
}
SUITE = _type("6VTWWHRPQQYDV", record_schema("Suite", {"name": STRING_SCHEMA}))
CASE = _type(
    "5BD7YF89X13DB",
    record_schema(
        "Case",
        {
            "name": STRING_SCHEMA,
            "prompt?": {**STRING_SCHEMA, "description": "The task of a case that is no thread's."},
            "workflow?": {
                **REF_SCHEMA,
                "description": "What such a case was written for, where that was said.",
            },
            "start?": {**REF_SCHEMA, "description": "The StartNode of a thread that the case is of."},
            "step?": {
                **REF_SCHEMA,
                "description": "The StepNode that it had come to, or that is done again.",
            },
            "role?": {
                **STRING_SCHEMA,
                "description": "Whose step is done again; without it all of the thread is.",
            },
            "fixture?": _FOLDER_ID,
            "expected?": {"description": "What the judges hold the output against."},
            "judges?": list_schema(record_schema("Judge", _JUDGE)),
            "limits?": BUDGET_SCHEMA,
            "tags?": STRINGS_SCHEMA,
            "replaces?": REFS_SCHEMA,
        },
    ),
)
CASE_REMOVAL = _type("F27S8NB1B30BY", record_schema("CaseRemoval", {"case": REF_SCHEMA}))
TRIAL_ENDS = ("completed", "failed", "waiting", "stuck", "limited", "inapplicable")
"""What can become of a trial: only one that is completed is judged."""
_TOLD = {"usage": USAGE_SCHEMA, "cost?": COST_SCHEMA, "unpriced": COUNT_SCHEMA, "durationMs": COUNT_SCHEMA}
TRIAL = _type(
    "DY0VM7BMRT4E5",
    record_schema(
        "Trial",
        {
            "workflow": REF_SCHEMA,
            "head": {
                **REF_SCHEMA,
                "description": "The StartNode, or what the role that is done again went on from.",
            },
            "role?": STRING_SCHEMA,
            "fixture?": _FOLDER_ID,
            "agents": {**_BY_ROLE, "description": "The command line of each role's agent."},
            "label?": {**STRING_SCHEMA, "description": "What tells it from others that look the same."},
            "repeat": POSITIVE_SCHEMA,
            "status": {"enum": list(TRIAL_ENDS)},
            "last": {**NULLABLE_REF_SCHEMA, "description": "The last StepNode of its thread."},
            "error?": STRING_SCHEMA,
            "work?": {
                **_FOLDER_ID,
                "description": "What the fixture's folder was in the end: a tree in files/.",
            },
            "steps": COUNT_SCHEMA,
            "attempts": COUNT_SCHEMA,
            **_TOLD,
            "notes?": STRINGS_SCHEMA,
        },
    ),
)
SCORE = _type(
    "3Y1P8V59PQ6XF",
    record_schema(
        "Score",
        {
            "trial": REF_SCHEMA,
            "judge": record_schema(
                "Judge",
                {
                    **{key: value for key, value in _JUDGE.items() if key != "use?"},
                    "command?": {**STRINGS_SCHEMA, "description": "A program and its arguments."},
                    "version?": {
                        **REF_SCHEMA,
                        "description": "The Workflow node of the workflow that judged.",
                    },
                    "agents?": _BY_ROLE,
                },
            ),
            "expected?": True,
            "score": _SHARE,
            "passed": FLAG_SCHEMA,
            "reason?": STRING_SCHEMA,
            "step?": {**REF_SCHEMA, "description": "The last StepNode of the thread that judged."},
            **_TOLD,
        },
    ),
)
_RESULT = record_schema(
    "Result",
    {
        "case": REF_SCHEMA,
        "trial": REF_SCHEMA,
        "scores": REFS_SCHEMA,
        "errors?": {**STRINGS_SCHEMA, "description": "Why judges came to no score."},
    },
)
SUITE_RUN = _type(
    "9D4ST712WQ95H",
    record_schema(
        "SuiteRun",
        {
            "workflow?": {**REF_SCHEMA, "description": "The one that was asked for, where one was."},
            "agent?": {**STRING_SCHEMA, "description": "The one that was asked for, where one was."},
            "label?": STRING_SCHEMA,
            "cases": {**COUNT_SCHEMA, "description": "How many were to be run."},
            "repeat": POSITIVE_SCHEMA,
            "results": list_schema(_RESULT),
            "stopped?": {**STRING_SCHEMA, "description": "Why it stopped before all cases were run."},
        },
    ),
)

_SCORED = record_schema(
    "Scored", {"score": _SHARE, "cost?": COST_SCHEMA, "unpriced": COUNT_SCHEMA, "durationMs": COUNT_SCHEMA}
)
_BASELINE_OF_A_CASE = record_schema(
    "Baseline of a case",
    {
        "case": {**STRING_SCHEMA, "description": "The hash of the Case."},
        "name": STRING_SCHEMA,
        "runs": list_schema(_SCORED, minItems=1),
    },
)
BASELINE = _type(
    "9ENYQ67A48NW3",
    record_schema(
        "Baseline",
        {
            "suite": {**STRING_SCHEMA, "description": "The name of a suite."},
            "said": {**STRING_SCHEMA, "description": "What was run, for people."},
            "run": {**STRING_SCHEMA, "description": "The hash of the SuiteRun that it was measured in."},
            "workflow?": {
                **STRING_SCHEMA,
                "description": "The hash of the Workflow node that all of it was run with.",
            },
            "agent?": {**STRING_SCHEMA, "description": "The one that was asked for, where one was."},
            "judges?": {**STRINGS_SCHEMA, "description": "The names of those that gave the scores."},
            "cases": list_schema(_BASELINE_OF_A_CASE, minItems=1),
        },
    ),
)


OF_SUITES = (SUITE, CASE, CASE_REMOVAL, TRIAL, SCORE, SUITE_RUN)
"""The types of the nodes of a suite."""
