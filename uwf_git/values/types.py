"""The built-in node types: their schemas, and the hashes of these.

A schema's hash is the type of its nodes, so changing a schema here makes a new type and leaves the
old nodes readable only if the old hash stays known: add to `_KINDS`, never replace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uwf_git.values.ids import Hash
from uwf_git.values.node import hash_of, self_hash
from uwf_git.values.schema import DIALECT

START = "$START"
END = "$END"
USER = "$USER"
SUSPEND = "$SUSPEND"
NEEDS_INPUT = "needs_input"
BUNDLE = "$BUNDLE"
"""Stands for the next role where a bundle's code decides who that is."""
DEFAULT_STATUS = "_"
NEW, RESUME = "new", "resume"
"""What $START leads on from: a thread that begins, and one that has ended and is gone on with."""
JAVASCRIPT, PYTHON = "javascript", "python"
"""What a bundle can be written in."""
MOST_ROUNDS = 1_000_000
"""That a descriptor or a start may allow a thread of a bundle."""
BMAD, OWN = "bmad", "crew"
"""The forms of a crew's package: one made elsewhere, or one of `crew.yaml` with workflows in YAML beside it."""
CREW_DEFINITION = "crew.json"
"""What says in a version's tree which workflow of which crew it is; the package's files are what it includes."""
DEFINITIONS = {None: "workflow.yaml", JAVASCRIPT: "workflow.esm.js", PYTHON: "workflow.py"}
"""What a definition is called in a version's tree, by the language of its code."""


def role_name(role: str) -> str:
    """What people call a step by whose it is: a bundle's result is nobody's, and of what its code failed at nobody
    knows whose it was to be."""
    return {END: "result", BUNDLE: "the bundle"}.get(role, role)


def next_name(role: str) -> str:
    """What people call who is next."""
    return "the bundle decides" if role == BUNDLE else role


_REF = {"type": "string", "format": "cas_ref"}
_NULLABLE_REF = {"anyOf": [_REF, {"type": "null"}]}
_TEXT = {"type": "string"}
_REFS = {"type": "array", "items": _REF}


def _object(title: str, required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


META_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "$ref": DIALECT,
    "title": "JSON Schema",
    "description": "The type of every schema node, its own included.",
}

META = self_hash(META_SCHEMA)

BUILTIN: dict[Hash, dict[str, Any]] = {META: META_SCHEMA}
"""The built-in schemas by their hashes."""


def _builtin(schema: dict[str, Any]) -> Hash:
    """The hash of a schema, which becomes a built-in one."""
    type_hash = hash_of(META, schema)
    BUILTIN[type_hash] = schema
    return type_hash


TEXT = _builtin({"title": "Text", "type": "string"})

_TARGET = _object("Target", ["role"], {"role": _TEXT, "prompt": _TEXT, "location": _TEXT})

_TEXTS = {"type": "array", "items": _TEXT}
_BUDGET = _object(
    "Budget",
    [],
    {
        "maxSteps": {"type": "integer", "minimum": 1},
        "maxTokens": {"type": "integer", "minimum": 1},
        "maxCost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars."},
        "maxWallTime": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
    },
)
_ROLE_TOOLS = _object(
    "Tools",
    [],
    {"allow": _TEXTS, "deny": _TEXTS, "runCommand": {"const": False}, "network": {"const": False}},
)


def _workflow_schema(
    title: str, in_role: dict[str, Any], besides: dict[str, Any], in_edge: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """`in_role`, `besides` and `in_edge` are what a role, the workflow and an edge with a condition may hold beyond the
    first version."""
    return _object(
        title,
        ["name", "description", "roles", "conditions", "graph"],
        {
            "name": _TEXT,
            "description": _TEXT,
            "roles": {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [
                        _object(
                            "Role",
                            ["description", "systemPrompt", "outputSchema"],
                            {"description": _TEXT, "systemPrompt": _TEXT, "outputSchema": _REF, **in_role},
                        ),
                        _object(
                            "Role with a procedure",
                            ["description", "goal", "frontmatter"],
                            {
                                "description": _TEXT,
                                "goal": _TEXT,
                                "capabilities": _TEXTS,
                                "procedure": _TEXT,
                                "output": _TEXT,
                                "frontmatter": _REF,
                                **in_role,
                            },
                        ),
                    ]
                },
            },
            "conditions": {
                "type": "object",
                "additionalProperties": _object(
                    "Condition", ["description", "expression"], {"description": _TEXT, "expression": _TEXT}
                ),
            },
            "graph": {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [
                        {
                            "type": "array",
                            "items": _object(
                                "Transition",
                                ["role", "condition"],
                                {
                                    "role": _TEXT,
                                    "condition": {"type": ["string", "null"]},
                                    "prompt": _TEXT,
                                    "location": _TEXT,
                                    **in_edge,
                                },
                            ),
                        },
                        {"type": "object", "additionalProperties": _TARGET},
                    ]
                },
            },
            **besides,
        },
    )


WORKFLOW = _builtin(_workflow_schema("Workflow", {}, {}))
LIMITED_WORKFLOW = _builtin(_workflow_schema("Workflow2", {"tools": _ROLE_TOOLS}, {"budget": _BUDGET}))
EXTRACTING_WORKFLOW = _builtin(
    _workflow_schema("Workflow3", {"tools": _ROLE_TOOLS, "extractPrompt": _TEXT}, {"budget": _BUDGET})
)

_COUNT = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
_PERSONA = _object(
    "Persona",
    ["name"],
    {
        **dict.fromkeys(("name", "title", "icon", "description", "role", "identity", "style"), _TEXT),
        "principles": _TEXTS,
        "actions": {**_TEXTS, "description": "What it does whatever it is asked."},
        "systemPrompt": {**_TEXT, "description": "Told instead of all that."},
        "tools": _object(
            "Tools",
            [],
            {
                "allow": _TEXTS,
                "deny": _TEXTS,
                "files": _FLAG,
                "maxReadBytes": _COUNT,
                "maxWriteBytes": _COUNT,
                "mcp": _FLAG,
                "servers": _TEXTS,
            },
        ),
    },
)
_NODE = _object(
    "Node",
    ["type", "file"],
    {
        "type": {"enum": ["step", "decision", "merge", "end"]},
        **dict.fromkeys(("file", "title"), _TEXT),
        "inputs": _TEXTS,
        "outputs": _TEXTS,
    },
)
CREW_WORKFLOW = _builtin(
    _workflow_schema(
        "Workflow4",
        {"tools": _ROLE_TOOLS, "extractPrompt": _TEXT, "persona": _TEXT, "node": _NODE},
        {
            "budget": _BUDGET,
            "crew": _object(
                "Origin",
                ["name", "workflow", "format"],
                {
                    **dict.fromkeys(("name", "workflow"), _TEXT),
                    "format": {"enum": [BMAD, OWN]},
                    "entry": {**_TEXT, "description": "The path of the document that it begins with."},
                    "graph": {**_TEXT, "description": "The path of its graph in the package."},
                    "variables": {"type": "object", "description": "What a run knows at its start."},
                },
            ),
            "personas": {"type": "object", "additionalProperties": _PERSONA},
        },
        {
            "label": {**_TEXT, "description": "What the package calls the edge."},
            "text": {**_TEXT, "description": "When to take it, for whoever decides."},
        },
    )
)

_DOES = dict.fromkeys(("workflow", "exec", "action", "data"), _TEXT)
CREW = _builtin(
    _object(
        "Crew",
        ["name", "version", "description", "format", "personas", "workflows"],
        {
            "name": _TEXT,
            "version": _TEXT,
            "description": _TEXT,
            "format": {"enum": [BMAD, OWN]},
            "personas": {
                "description": "The first is who speaks where nobody is named.",
                "type": "array",
                "minItems": 1,
                "items": _object(
                    "Member",
                    ["id", "persona"],
                    {
                        "id": _TEXT,
                        "persona": _PERSONA,
                        "prompts": {"type": "object", "additionalProperties": _TEXT},
                        "menu": {
                            "type": "array",
                            "items": _object(
                                "Item",
                                ["description"],
                                {
                                    **dict.fromkeys(("description", "trigger", "cmd"), _TEXT),
                                    "aliases": _TEXTS,
                                    "handlers": {
                                        "type": "array",
                                        "items": _object("Handler", ["match"], {"match": _TEXT, **_DOES}),
                                    },
                                    **_DOES,
                                    "validate": _TEXT,
                                    "surface": {"enum": ["ide", "web", "none"]},
                                },
                            ),
                        },
                    },
                ),
            },
            "workflows": {
                "type": "array",
                "items": _object(
                    "Offered",
                    ["id", "workflow"],
                    {
                        **dict.fromkeys(("id", "title", "description", "entry"), _TEXT),
                        "tags": _TEXTS,
                        "workflow": _REF,
                    },
                ),
            },
        },
    )
)

CODE = _builtin(
    _object(
        "Bundle",
        ["name", "description", "language", "file", "roles", "graph"],
        {
            "name": _TEXT,
            "description": _TEXT,
            "language": {"enum": [JAVASCRIPT, PYTHON]},
            "file": _object(
                "File",
                ["id", "sha256", "size"],
                {
                    "id": {"type": "string", "description": "XXH64 of its bytes, in Crockford's Base32."},
                    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    "size": {"type": "integer", "minimum": 1},
                },
            ),
            "roles": {
                "type": "object",
                "additionalProperties": _object(
                    "Role",
                    ["description", "systemPrompt", "outputSchema"],
                    {
                        "description": _TEXT,
                        "systemPrompt": _TEXT,
                        "extractPrompt": _TEXT,
                        "outputSchema": _REF,
                    },
                ),
            },
            "graph": {
                "description": "What the bundle says of its ways, for people: its code decides.",
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": _object(
                        "Way",
                        ["role", "condition"],
                        {"role": _TEXT, "condition": {"type": ["string", "null"]}},
                    ),
                },
            },
            "maxRounds": {"type": "integer", "minimum": 1},
            "budget": _BUDGET,
        },
    )
)
RESULT = _builtin({"title": "Result", "description": "What a bundle returned at its end: any value."})

_START = {"workflow": _REF, "prompt": _TEXT}
STARTNODE = _builtin(_object("StartNode", list(_START), _START))
_START_WITH_BUDGET = {**_START, "budget": _BUDGET}
LIMITED_START = _builtin(_object("StartNode2", list(_START_WITH_BUDGET), _START_WITH_BUDGET))
ROUNDS_START = _builtin(
    _object(
        "StartNode3",
        [*_START, "maxRounds"],
        {**_START_WITH_BUDGET, "maxRounds": {"type": "integer", "minimum": 1}},
    )
)
CREW_START = _builtin(
    _object(
        "StartNode4",
        [*_START, "persona"],
        {
            **_START_WITH_BUDGET,
            "persona": {**_TEXT, "description": "Who does what the workflow leaves to nobody in particular."},
            "data": _object(
                "Data",
                ["path", "format", "text", "size"],
                {
                    **dict.fromkeys(("path", "format"), _TEXT),
                    "text": {**_TEXT, "description": "Its beginning, as far as the policy lets it be read."},
                    "size": {**_COUNT, "description": "Bytes."},
                },
            ),
        },
    )
)

_STEP = {"start": _REF, "prev": _NULLABLE_REF, "role": _TEXT, "output": _REF, "detail": _REF, "agent": _TEXT}
STEPNODE = _builtin(_object("StepNode", list(_STEP), _STEP))

_USAGE = {
    "anyOf": [
        _object("Usage", ["input", "output"], {"input": _COUNT, "output": _COUNT, "cached": _COUNT}),
        {"type": "null"},
    ]
}

_TURN = {
    "role": _TEXT,
    "text": _TEXT,
    "tool": _TEXT,
    "arguments": True,
    "result": True,
    "usage": _USAGE,
    "durationMs": _COUNT,
}
FIRST_TURN = _builtin(_object("Turn", ["role", "text"], _TURN))
TURN = _builtin(
    _object(
        "Turn2",
        ["role", "text"],
        {
            **_TURN,
            "model": _TEXT,
            "call": {"type": "string", "description": "The id that the model gave a tool call."},
            "failed": {"type": "boolean"},
        },
    )
)

_REDACTIONS = {
    "type": "array",
    "items": _object("Redaction", ["where", "count"], {"where": _TEXT, "count": _COUNT}),
    "description": "Where secrets were taken out, and how many.",
}
_COST = {"type": "number", "minimum": 0, "description": "US dollars, as the agent reported it."}

_DETAIL: dict[str, Any] = {
    "answer": {"type": "string", "description": "What the agent said last, verbatim."},
    "turns": _REFS,
    "session": {"type": ["string", "null"]},
    "model": {"type": ["string", "null"]},
    "usage": _USAGE,
    "durationMs": _COUNT,
    "instruction": {"type": ["string", "null"], "description": "The edge's rendered prompt."},
    "context": {
        **_NULLABLE_REF,
        "description": "The head the prompt was built from: prompts are rebuilt, never stored.",
    },
    "extraction": {
        "type": "string",
        "description": "frontmatter, correction, native, or model:<name> where a model extracted the output.",
    },
}
FIRST_DETAIL = _builtin(_object("Detail", list(_DETAIL), {**_DETAIL, "redactions": _COUNT}))
DETAIL = _builtin(
    _object(
        "Detail2",
        list(_DETAIL),
        {
            **_DETAIL,
            "cost": _COST,
            "notes": {
                **_TEXTS,
                "description": "What happened besides: a session that was gone, a tool denied.",
            },
            "budget": {**_BUDGET, "description": "Limits that a human raised before this step."},
            "redactions": _REDACTIONS,
        },
    )
)
_SOURCE = {
    "source": {"type": "string", "description": "What the step is called where it was imported from."},
    "nodes": {**_REFS, "description": "Nodes of that step, as they were there."},
}
IMPORTED_DETAIL = _builtin(
    _object(
        "ImportedDetail",
        [*_DETAIL, *_SOURCE],
        {
            **_DETAIL,
            **_SOURCE,
            "cost": _COST,
            "notes": {**_TEXTS, "description": "What didn't come along, and why."},
            "redactions": _REDACTIONS,
        },
    )
)

ATTEMPT = _builtin(
    _object(
        "Attempt",
        ["start", "prev", "role", "agent", "error", "detail"],
        {
            "start": _REF,
            "prev": _NULLABLE_REF,
            "role": _TEXT,
            "agent": _TEXT,
            "error": _TEXT,
            "detail": _NULLABLE_REF,
            "stdout": {"type": "string", "description": "The end of what it printed."},
            "stderr": {"type": "string", "description": "The end of what it logged."},
        },
    )
)

_FOLDER_ID = {
    "type": "string",
    "minLength": 40,
    "maxLength": 40,
    "description": "The id of a git tree, which stands in files/ under it.",
}
_BY_ROLE = {"type": "object", "additionalProperties": _TEXT}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_JUDGE = {
    "name": _TEXT,
    "use": {**_TEXT, "description": "The name of a judge in the configuration of whoever runs the case."},
    "jsonata": {**_TEXT, "description": "An expression over what came of the case."},
    "exact": {**_TEXTS, "description": "Fields that are as expected; none for the whole output."},
    "schema": {"description": "A JSON Schema that the output obeys."},
    "workflow": {**_TEXT, "description": "The name of a workflow that judges."},
    "output": {**_TEXT, "description": "What its last output means: an expression over its history."},
    "threshold": {**_SHARE, "description": "The least score that passes; 0.5 where it isn't said."},
}
SUITE = _builtin(_object("Suite", ["name"], {"name": _TEXT}))
CASE = _builtin(
    _object(
        "Case",
        ["name"],
        {
            "name": _TEXT,
            "prompt": {**_TEXT, "description": "The task of a case that is no thread's."},
            "workflow": {**_REF, "description": "What such a case was written for, where that was said."},
            "start": {**_REF, "description": "The StartNode of a thread that the case is of."},
            "step": {**_REF, "description": "The StepNode that it had come to, or that is done again."},
            "role": {**_TEXT, "description": "Whose step is done again; without it all of the thread is."},
            "fixture": _FOLDER_ID,
            "expected": {"description": "What the judges hold the output against."},
            "judges": {"type": "array", "items": _object("Judge", ["name"], _JUDGE)},
            "limits": _BUDGET,
            "tags": _TEXTS,
            "replaces": _REFS,
        },
    )
)
CASE_REMOVAL = _builtin(_object("CaseRemoval", ["case"], {"case": _REF}))
TRIAL_ENDS = ("completed", "failed", "waiting", "stuck", "limited", "inapplicable")
"""What can become of a trial: only one that is completed is judged."""
_TOLD = {"usage": _USAGE, "cost": _COST, "unpriced": _COUNT, "durationMs": _COUNT}
_TOLD_ALWAYS = ("usage", "unpriced", "durationMs")
TRIAL = _builtin(
    _object(
        "Trial",
        ["workflow", "head", "agents", "repeat", "status", "last", "steps", "attempts", *_TOLD_ALWAYS],
        {
            "workflow": _REF,
            "head": {
                **_REF,
                "description": "The StartNode, or what the role that is done again went on from.",
            },
            "role": _TEXT,
            "fixture": _FOLDER_ID,
            "agents": {**_BY_ROLE, "description": "The command line of each role's agent."},
            "label": {**_TEXT, "description": "What tells it from others that look the same."},
            "repeat": {"type": "integer", "minimum": 1},
            "status": {"enum": list(TRIAL_ENDS)},
            "last": {**_NULLABLE_REF, "description": "The last StepNode of its thread."},
            "error": _TEXT,
            "work": {
                **_FOLDER_ID,
                "description": "What the fixture's folder was in the end: a tree in files/.",
            },
            "steps": _COUNT,
            "attempts": _COUNT,
            **_TOLD,
            "notes": _TEXTS,
        },
    )
)
SCORE = _builtin(
    _object(
        "Score",
        ["trial", "judge", "score", "passed", *_TOLD_ALWAYS],
        {
            "trial": _REF,
            "judge": _object(
                "Judge",
                ["name"],
                {
                    **{key: value for key, value in _JUDGE.items() if key != "use"},
                    "command": {**_TEXTS, "description": "A program and its arguments."},
                    "version": {**_REF, "description": "The Workflow node of the workflow that judged."},
                    "agents": _BY_ROLE,
                },
            ),
            "expected": True,
            "score": _SHARE,
            "passed": _FLAG,
            "reason": _TEXT,
            "step": {**_REF, "description": "The last StepNode of the thread that judged."},
            **_TOLD,
        },
    )
)
SUITE_RUN = _builtin(
    _object(
        "SuiteRun",
        ["cases", "repeat", "results"],
        {
            "workflow": {**_REF, "description": "The one that was asked for, where one was."},
            "agent": {**_TEXT, "description": "The one that was asked for, where one was."},
            "label": _TEXT,
            "cases": {**_COUNT, "description": "How many were to be run."},
            "repeat": {"type": "integer", "minimum": 1},
            "results": {
                "type": "array",
                "items": _object(
                    "Result",
                    ["case", "trial", "scores"],
                    {
                        "case": _REF,
                        "trial": _REF,
                        "scores": _REFS,
                        "errors": {**_TEXTS, "description": "Why judges came to no score."},
                    },
                ),
            },
            "stopped": {**_TEXT, "description": "Why it stopped before all cases were run."},
        },
    )
)

BASELINE = _builtin(
    _object(
        "Baseline",
        ["suite", "said", "run", "cases"],
        {
            "suite": {**_TEXT, "description": "The name of a suite."},
            "said": {**_TEXT, "description": "What was run, for people."},
            "run": {**_TEXT, "description": "The hash of the SuiteRun that it was measured in."},
            "workflow": {
                **_TEXT,
                "description": "The hash of the Workflow node that all of it was run with.",
            },
            "agent": {**_TEXT, "description": "The one that was asked for, where one was."},
            "judges": {**_TEXTS, "description": "The names of those that gave the scores."},
            "cases": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    "Baseline of a case",
                    ["case", "name", "runs"],
                    {
                        "case": {**_TEXT, "description": "The hash of the Case."},
                        "name": _TEXT,
                        "runs": {
                            "type": "array",
                            "minItems": 1,
                            "items": _object(
                                "Scored",
                                ["score", "unpriced", "durationMs"],
                                {"score": _SHARE, "cost": _COST, "unpriced": _COUNT, "durationMs": _COUNT},
                            ),
                        },
                    },
                ),
            },
        },
    )
)

ANSWER = _builtin(_object("Answer", ["answer"], {"answer": _TEXT}))

SUSPEND_SCHEMA: dict[str, Any] = {
    "title": "Question",
    "description": "What any role may answer instead of its own output, to ask a human.",
    "type": "object",
    "properties": {
        "$status": {"const": SUSPEND},
        "status": {"const": NEEDS_INPUT},
        "question": {"type": "string", "minLength": 1},
        "options": {"type": "array", "items": _TEXT},
        "reason": _TEXT,
    },
    "required": ["question"],
    "anyOf": [{"required": ["$status"]}, {"required": ["status"]}],
    "additionalProperties": False,
}

QUESTION = _builtin(SUSPEND_SCHEMA)

_KINDS: dict[str, frozenset[Hash]] = {
    "workflow": frozenset({WORKFLOW, LIMITED_WORKFLOW, EXTRACTING_WORKFLOW, CREW_WORKFLOW, CODE}),
    "crew": frozenset({CREW}),
    "start": frozenset({STARTNODE, LIMITED_START, ROUNDS_START, CREW_START}),
    "step": frozenset({STEPNODE}),
    "detail": frozenset({FIRST_DETAIL, DETAIL, IMPORTED_DETAIL}),
    "turn": frozenset({FIRST_TURN, TURN}),
    "attempt": frozenset({ATTEMPT}),
    "text": frozenset({TEXT}),
    "suite": frozenset({SUITE}),
    "case": frozenset({CASE}),
    "removal": frozenset({CASE_REMOVAL}),
    "trial": frozenset({TRIAL}),
    "score": frozenset({SCORE}),
    "run": frozenset({SUITE_RUN}),
    "baseline": frozenset({BASELINE}),
}
OF_SUITES = (SUITE, CASE, CASE_REMOVAL, TRIAL, SCORE, SUITE_RUN)
"""The types of what a suite holds; no thread has nodes of them."""
OF_THREADS = tuple(each for each in BUILTIN if each not in (*OF_SUITES, BASELINE))
"""The built-in types that a thread may have nodes of."""


MAY_LIMIT = (
    LIMITED_START,
    ROUNDS_START,
    CREW_START,
    LIMITED_WORKFLOW,
    EXTRACTING_WORKFLOW,
    CREW_WORKFLOW,
    CODE,
)
"""The types of StartNodes and Workflow nodes that may have a budget."""


def is_kind(type_hash: str, kind: str) -> bool:
    """Whether a type is one of the versions of a built-in kind ("step", "detail", …)."""
    return type_hash in _KINDS[kind]


def versions(kind: str) -> frozenset[Hash]:
    """The types of a built-in kind, of all its versions."""
    return _KINDS[kind]


def workflow_type(payload: Any) -> Hash:
    """The type of a Workflow node: a bundle's, or the first version that has a place for all it holds, so that a
    definition keeps its hash."""
    if "file" in payload:
        return CODE
    if "crew" in payload:
        return CREW_WORKFLOW
    in_roles = {key for role in payload["roles"].values() for key in role}
    if "extractPrompt" in in_roles:
        return EXTRACTING_WORKFLOW
    return LIMITED_WORKFLOW if "budget" in payload or "tools" in in_roles else WORKFLOW


def start_node(
    workflow: Hash,
    prompt: str,
    budget: Mapping[str, float] | None = None,
    max_rounds: int | None = None,
    persona: str = "",
    data: Mapping[str, Any] | None = None,
) -> tuple[Hash, Any]:
    """The type and the payload of a StartNode. `persona` and `data` are of a crew's workflow."""
    payload: dict[str, Any] = {"workflow": workflow, "prompt": prompt}
    if budget:
        payload["budget"] = dict(budget)
    if persona:
        return CREW_START, {**payload, "persona": persona, **({"data": dict(data)} if data else {})}
    if max_rounds is not None:
        return ROUNDS_START, {**payload, "maxRounds": max_rounds}
    return LIMITED_START if budget else STARTNODE, payload
