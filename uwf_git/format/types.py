"""The built-in node types of threads, by schema and hash. A schema's hash is its nodes' type, so schemas are
added to `_KINDS`, never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from uwf_git.base.errors import UnknownWord
from uwf_git.format.builtin import (
    BUDGET,
    BUILTIN,
    CACHING_USAGE,
    COST,
    COUNT,
    FLAG,
    NULLABLE_REF,
    NULLABLE_STRING,
    POSITIVE,
    REF,
    REFS,
    STRING,
    STRINGS,
    USAGE,
    builtin,
    described,
    list_of,
    map_of,
    node_type,
    record,
    title_of,
    word,
)
from uwf_git.format.ids import Hash
from uwf_git.format.quick_schema import NODE_HASH, OBJECT_ID, PERCENTAGE, PRINTABLE_ASCII, SHA256
from uwf_git.format.statuses import NEEDS_INPUT, SUSPEND
from uwf_git.format.words import LANGUAGES, PACKAGE_FORMS

START = "$START"
"""Where a thread begins: its edges name the first role."""
END = "$END"
"""The end of a thread."""
FAIL = "$FAIL"
"""The end of a thread that did not reach its goal."""
ENDS = END, FAIL
"""The targets of edges that end a thread."""
FORK, JOIN = "$FORK", "$JOIN"
"""The roles of the steps that begin and join branches. An edge to `$FORK` fans out."""
UWF = "uwf"  # the agent of these steps
USER = "$USER"
"""The role of a step with a person's answer or remark."""
PERSON = "human"  # the agent of a step of $USER
BUNDLE = "$BUNDLE"
"""Stands for the next role where a bundle's code decides who that is."""
NEW, RESUME = "new", "resume"
"""What $START leads on from: a thread that begins, and one that has ended and is gone on with."""
JAVASCRIPT, PYTHON = LANGUAGES
"""What a bundle can be written in."""
MOST_ROUNDS = 1_000_000
"""That a descriptor or a start may allow a thread of a bundle."""
BMAD, OWN = PACKAGE_FORMS
"""The forms of a crew's package: one made elsewhere, or one of `crew.yaml` with workflows in YAML beside it."""
CREW_DEFINITION = "crew.json"
"""What says in a version's tree which workflow of which crew it is; the package's files are what it includes."""
SHOWN_PARTS = "task", "output", "question", "instruction", "code", "diff"
"""What a person may have been shown before an answer, in the order of its digest."""
DEFINITIONS = {None: "workflow.yaml", JAVASCRIPT: "workflow.esm.js", PYTHON: "workflow.py"}
"""What a definition is called in a version's tree, by the language of its code."""


def role_name(role: str) -> str:
    """Return a step's role for people; results and failures of code have none."""
    return {END: "result", BUNDLE: "the bundle"}.get(role, role)


def called(role: str) -> str:
    """Return a role for messages: `role writer`; what code asks of an agent has none."""
    return "the call" if role == BUNDLE else f"role {role}"


def is_chosen_by_maker(role: str | None) -> bool:
    """Return whether a role is a place for the one that the step's maker chooses."""
    return role == BUNDLE


def next_name(role: str) -> str:
    return "the bundle decides" if role == BUNDLE else role


TEXT = builtin("8451C8DVPAGHX", {"title": "Text", "type": "string"})
"""A plain text."""

_NEED = {
    "anyOf": [{"enum": ["all", "first"]}, POSITIVE, {**STRING, "pattern": PERCENTAGE}],
    "description": "How many branches must complete. All, if missing: then a join waits until all have ended.",
}
_ON_FAILURE = word("What a branch that fails does to its fan-out.")
_FIXED_BRANCH = record("Fixed branch", {"role?": STRING, "workflow?": STRING, "prompt?": STRING})
_FAN_OUT = record(
    "Fan-out",
    {
        "items?": {
            "anyOf": [STRING, {"type": "array"}],
            "description": "An expression to an array, or the items.",
        },
        "branches?": described(list_of(_FIXED_BRANCH, minItems=1), "Instead of items."),
        "name?": described(STRING, "What the item is called in templates. `item` if missing."),
        "role?": described(STRING, "The role that branches begin at."),
        "workflow?": described(STRING, "The name of the workflow that branches are of."),
        "atOnce?": described(POSITIVE, "How many branches may run at the same time."),
        "max?": described(POSITIVE, "How many items there may be."),
        "need?": _NEED,
        "onFailure?": _ON_FAILURE,
        "onConflict?": described(STRING, "ask, fail, or the role that resolves conflicts of code."),
        "join": list_of(
            record("Join edge", {"role": STRING, "condition": NULLABLE_STRING, "prompt?": STRING}), minItems=1
        ),
    },
)
_PACKAGE_FORM = word("The form of the crew's package.")
_PERSONA = record(
    "Persona",
    {
        "name": STRING,
        **dict.fromkeys(("title?", "icon?", "description?", "role?", "identity?", "style?"), STRING),
        "principles?": STRINGS,
        "actions?": described(STRINGS, "What it does whatever it is asked."),
        "systemPrompt?": described(STRING, "Told instead of all that."),
        "tools?": record(
            "Tools",
            {
                "allow?": STRINGS,
                "deny?": STRINGS,
                "files?": FLAG,
                "maxReadBytes?": COUNT,
                "maxWriteBytes?": COUNT,
                "mcp?": FLAG,
                "servers?": STRINGS,
            },
        ),
    },
)
_NODE = record(
    "Node",
    {
        "type": {"enum": ["step", "decision", "merge", "end"]},
        "file": STRING,
        "title?": STRING,
        "inputs?": STRINGS,
        "outputs?": STRINGS,
    },
)
_DURATION = {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."}
_RETRY = record(
    "Retry",
    {
        "times": {**POSITIVE, "maximum": 100, "description": "Tries after the first."},
        "backoff?": described(_DURATION, "Seconds before the second try, doubled for each further one."),
        "on?": list_of(word("A cause of a failed attempt.")),
    },
)
_ROLE = {
    "tools?": record(
        "Tools",
        {"allow?": STRINGS, "deny?": STRINGS, "runCommand?": {"const": False}, "network?": {"const": False}},
    ),
    "extractPrompt?": described(STRING, "Told to the model that reads an output out of an answer."),
    "timeout?": _DURATION,
    "retry?": _RETRY,
    "fallback?": described(STRING, "The agent that plays the role when its own is throttled."),
    "human?": {"const": True, "description": "A person plays the role, never an agent."},
    "assignee?": described(STRING, "Who is asked to play it."),
    "approvers?": described(
        list_of(STRING, minItems=1), "Who may answer: people, groups, addresses. Without it, anybody."
    ),
    "quorum?": described(POSITIVE, "How many of them must agree. 1 if missing."),
    "notAuthor?": {"const": True, "description": "Who made what is judged may not answer."},
    "signed?": {"const": True, "description": "An unsigned approval doesn't count."},
    "persona?": described(STRING, "The id of the persona that speaks for the role."),
    "node?": described(_NODE, "The node of a crew's package that the role was made of."),
}
WORKFLOW = node_type(
    "BF5BSJ3MPG87J",
    "Workflow",
    {
        "name": STRING,
        "description": STRING,
        "roles": map_of(
            {
                "anyOf": [
                    record(
                        "Role", {"description": STRING, "systemPrompt": STRING, "outputSchema": REF, **_ROLE}
                    ),
                    record(
                        "Role with a procedure",
                        {
                            "description": STRING,
                            "goal": STRING,
                            "capabilities?": STRINGS,
                            "procedure?": STRING,
                            "output?": STRING,
                            "frontmatter": REF,
                            **_ROLE,
                        },
                    ),
                ]
            }
        ),
        "conditions": map_of(record("Condition", {"description": STRING, "expression": STRING})),
        "graph": map_of(
            {
                "anyOf": [
                    list_of(
                        record(
                            "Transition",
                            {
                                "role": STRING,
                                "condition": NULLABLE_STRING,
                                "prompt?": STRING,
                                "location?": STRING,
                                "fanOut?": _FAN_OUT,
                                "label?": described(STRING, "What a crew's package calls the edge."),
                                "text?": described(STRING, "When to take it, for whoever decides."),
                            },
                        )
                    ),
                    map_of(
                        record(
                            "Target",
                            {"role": STRING, "prompt?": STRING, "location?": STRING, "fanOut?": _FAN_OUT},
                        )
                    ),
                ]
            }
        ),
        "budget?": BUDGET,
        "workspace?": word("The kind of folder that agents work in."),
        "crew?": record(
            "Origin",
            {
                "name": STRING,
                "workflow": STRING,
                "format": _PACKAGE_FORM,
                "entry?": described(STRING, "The path of the document that it begins with."),
                "graph?": described(STRING, "The path of its graph in the package."),
                "variables?": {"type": "object", "description": "What a run knows at its start."},
            },
        ),
        "personas?": map_of(_PERSONA),
    },
)

_DOES = dict.fromkeys(("workflow?", "exec?", "action?", "data?"), STRING)
_ITEM = record(
    "Item",
    {
        "description": STRING,
        "trigger?": STRING,
        "cmd?": STRING,
        "aliases?": STRINGS,
        "handlers?": list_of(record("Handler", {"match": STRING, **_DOES})),
        **_DOES,
        "validate?": STRING,
        "surface?": {"enum": ["ide", "web", "none"]},
    },
)
_MEMBER = record(
    "Member", {"id": STRING, "persona": _PERSONA, "prompts?": map_of(STRING), "menu?": list_of(_ITEM)}
)
_OFFERED = record(
    "Offered",
    {
        "id": STRING,
        **dict.fromkeys(("title?", "description?", "entry?"), STRING),
        "tags?": STRINGS,
        "workflow": REF,
    },
)
CREW = node_type(
    "8N69ZJ647PTVR",
    "Crew",
    {
        "name": STRING,
        "version": STRING,
        "description": STRING,
        "format": _PACKAGE_FORM,
        "personas": list_of(
            _MEMBER, minItems=1, description="The first is who speaks where nobody is named."
        ),
        "workflows": list_of(_OFFERED),
    },
)
"""A crew: its personas and the workflows that it offers."""

CODE = node_type(
    "72JDKH3Z3AHDA",
    "Bundle",
    {
        "name": STRING,
        "description": STRING,
        "language": word("The language of the code."),
        "file": record(
            "File",
            {
                "id": described(STRING, "XXH64 of its bytes, in Crockford's Base32."),
                "sha256": {**STRING, "pattern": SHA256},
                "size": POSITIVE,
            },
        ),
        "roles": map_of(
            record(
                "Role",
                {
                    "description": STRING,
                    "systemPrompt": STRING,
                    "extractPrompt?": STRING,
                    "outputSchema": REF,
                },
            )
        ),
        "graph": map_of(
            list_of(record("Way", {"role": STRING, "condition": NULLABLE_STRING})),
            description="What the bundle says of its ways, for people: its code decides.",
        ),
        "maxRounds?": POSITIVE,
        "budget?": BUDGET,
    },
)
"""A code workflow: its file and roles."""
RESULT = builtin(
    "D4N65S95CBY8P", {"title": "Result", "description": "What a bundle returned at its end: any value."}
)
"""The result of a code workflow, any value."""

_DATA = record(
    "Data",
    {
        **dict.fromkeys(("path", "format"), STRING),
        "text": described(STRING, "Its beginning, as far as the policy lets it be read."),
        "size": described(COUNT, "Bytes."),
    },
)
_NODE_HASH = {**STRING, "pattern": NODE_HASH}
_BRANCH = record(
    "Branch",
    {
        "fork": described(_NODE_HASH, "The StepNode of its fork, which its commit's second parent records."),
        "index": COUNT,
        "name": described(STRING, "What the item is called in templates."),
        "item": True,
        "role?": described(STRING, "The role that it begins at."),
        "until?": described(STRINGS, "An edge to one of these roles ends it."),
    },
)
_START = {
    "workflow": REF,
    "prompt": STRING,
    "budget?": BUDGET,
    "maxRounds?": POSITIVE,
    "persona?": described(STRING, "Who does what a crew's workflow leaves to nobody in particular."),
    "data?": _DATA,
    "branch?": _BRANCH,
}
STARTNODE = node_type("8R6Z0B1ZGMPY5", "StartNode", _START)
FORK_OUTPUT = node_type(
    "46HNQXN2BXGD8",
    "Fork",
    {
        "summary": described(STRING, "In words, for people."),
        "source": described(STRING, "The role whose edge fans out."),
        "edge": described(COUNT, "The index of that edge."),
        "name": STRING,
        "items": {"type": "array"},
        "branches": described(
            list_of(record("Forked branch", {"workflow": _NODE_HASH, "role?": STRING})),
            "The branch of each item, or one for all.",
        ),
        "until": STRINGS,
        "need": {
            "anyOf": [{"const": "all"}, COUNT],
            "description": "How many branches must complete; all: until all have ended.",
        },
        "onFailure": _ON_FAILURE,
        "onConflict": STRING,
        "atOnce?": POSITIVE,
        "budget?": described(BUDGET, "Each branch's share of the thread's limits."),
    },
)
JOIN_OUTPUT = node_type(
    "29KRD48F4QD6G",
    "Join",
    {
        "summary": described(STRING, "In words, for people."),
        "branches": list_of(
            record(
                "Joined branch",
                {
                    "status": word("How the branch ended."),
                    "thread": STRING,
                    "step": {"anyOf": [_NODE_HASH, {"type": "null"}], "description": "Its last StepNode."},
                    "output": True,
                    "reason?": described(STRING, "Why it failed or was killed."),
                    "conflict?": described(
                        record(
                            "Conflict",
                            {
                                "commit": {**STRING, "pattern": OBJECT_ID},
                                "paths": STRINGS,
                                "text": described(STRING, "The conflicting lines, in part."),
                            },
                        ),
                        "Why its code, this commit, is not merged.",
                    ),
                },
            ),
            description="By index.",
        ),
        "$status?": {"const": SUSPEND},
        "question?": described(STRING, "Asks a person to merge what conflicts."),
    },
)

STEPNODE = node_type(
    "2VPBA58TEM5G7",
    "StepNode",
    {"start": REF, "prev": NULLABLE_REF, "role": STRING, "output": REF, "detail": REF, "agent": STRING},
)
"""A step: its role, output and detail, after the step before."""

_TURN = {
    "role": STRING,
    "text": STRING,
    "tool?": STRING,
    "arguments?": True,
    "result?": True,
    "usage?": USAGE,
    "durationMs?": COUNT,
    "model?": STRING,
    "call?": described(STRING, "The id that the model gave a tool call."),
    "failed?": FLAG,
}
TURN = node_type("8PA8H3KE56GQR", "Turn", _TURN)
"""A turn of an agent: what a model said, or a call of a tool with its result."""
CACHING_TURN = node_type("EWCVVGWB2T2J0", "CachingTurn", {**_TURN, "usage?": CACHING_USAGE})
"""A turn whose model wrote input into its provider's cache."""

_GIT_ID = {**STRING, "pattern": OBJECT_ID}
_REVISION = record(
    "Revision",
    {
        "commit": described(_GIT_ID, "The commit that the step left."),
        "tree": _GIT_ID,
        "base": described(_GIT_ID, "The commit that the step began at."),
        "root?": described(_GIT_ID, "The first commit of the repository, by which it is known."),
        "remote?": {
            **STRING,
            "maxLength": 1000,
            "pattern": PRINTABLE_ASCII,
            "description": "The URL of its remote, without a password.",
        },
    },
)
_DETAIL = {
    "answer": described(STRING, "What the agent said last, verbatim."),
    "turns": REFS,
    "session": NULLABLE_STRING,
    "model": NULLABLE_STRING,
    "usage": USAGE,
    "durationMs": COUNT,
    "instruction": described(NULLABLE_STRING, "The edge's rendered prompt."),
    "context": described(
        NULLABLE_REF, "The head the prompt was built from: prompts are rebuilt, never stored."
    ),
    "extraction": described(
        STRING,
        "frontmatter, correction, native, imported, or model:<name> where a model extracted the output.",
    ),
    "cost?": COST,
    "notes?": described(STRINGS, "What happened besides: a session that was gone, a tool denied."),
    "budget?": described(BUDGET, "Limits that a human raised before this step."),
    "redactions?": list_of(
        record("Redaction", {"where": STRING, "count": COUNT}),
        description="Where secrets were taken out, and how many.",
    ),
    "code?": _REVISION,
    "kept?": described(REF, "The Session: what the agent's program kept of the conversation."),
    "approvals?": described(
        list_of(REF, minItems=1), "The Approvals of the people whose answer the step is."
    ),
    "calls?": record(
        "Calls",
        {
            "asked": POSITIVE,
            "failed": COUNT,
            "dropped": described(COUNT, "Those that the code went on without."),
            "tolerated": described(COUNT, "How many may fail."),
        },
    ),
    "source?": described(STRING, "What the step is called where it was imported from."),
    "nodes?": described(REFS, "Nodes of that step, as they were there."),
}
DETAIL = node_type("DQG9SW25TK4D0", "Detail", _DETAIL)
"""How a step's output came about: the answer, the turns, the usage."""
CACHING_DETAIL = node_type("54TM0CQRMKBY1", "CachingDetail", {**_DETAIL, "usage": CACHING_USAGE})
"""A detail of a run that wrote input into a provider's cache."""
_IDENTITY = record("Identity", {"name": STRING, "email": described(STRING, "As git's user.email has it.")})
_MOMENT = {**COUNT, "maximum": 1 << 40, "description": "Unix seconds."}
_DIGEST = {**STRING, "pattern": SHA256}
ISSUE_START = node_type(
    "EK6YB0EA49XFV",
    "IssueStart",
    {
        **_START,
        "issue": record(
            "Issue",
            {
                "url": described(STRING, "Its page."),
                "number": POSITIVE,
                "title": STRING,
                "author": described(STRING, "The login."),
                "labels": STRINGS,
                "readAt": _MOMENT,
                "length": described(POSITIVE, "In characters: with as many of its text the prompt ends."),
                "sha256": described(_DIGEST, "Of that text, in UTF-8."),
            },
        ),
    },
)
"""The start of a thread whose task is an issue of a forge, as it was when it was read."""
APPROVAL = node_type(
    "BM5VV1V69H1YY",
    "Approval",
    {
        "start": REF,
        "prev": described(NULLABLE_REF, "The step that was the head. Null at the start."),
        "role": STRING,
        "output": described(REF, "What the person answers."),
        "by": _IDENTITY,
        "shown": record(
            "Shown",
            {
                "digest": _DIGEST,
                "of": list_of(
                    record(
                        "Part", {"name": {"enum": list(SHOWN_PARTS)}, "sha256": _DIGEST, "commit?": _GIT_ID}
                    ),
                    minItems=1,
                ),
            },
        ),
        "reason?": STRING,
        "at": _MOMENT,
    },
)
REVOCATION = node_type(
    "3SC9BHGNZEK8B",
    "Revocation",
    {
        "approval": described(REF, "The Approval that is taken back."),
        "by": _IDENTITY,
        "reason?": STRING,
        "at": _MOMENT,
    },
)
SESSION = node_type(
    "512R62TP7YZ4F",
    "Session",
    {
        "program": STRING,
        "session": described(STRING, "Its id, as the program calls it."),
        "folder": described(STRING, "The folder that the program worked in."),
        "files": list_of(
            record(
                "SessionFile",
                {
                    "path": described(STRING, "Below the program's folder of sessions."),
                    "parts": described(REFS, "Texts that follow one another."),
                },
            )
        ),
    },
)
"""The files of a program's own conversation, by which another machine goes on with it."""
ATTEMPT = node_type(
    "93K366M2KRD2W",
    "Attempt",
    {
        "start": REF,
        "prev": NULLABLE_REF,
        "role": STRING,
        "agent": STRING,
        "error": STRING,
        "detail": NULLABLE_REF,
        "stdout?": described(STRING, "The end of what it printed."),
        "stderr?": described(STRING, "The end of what it logged."),
        "code?": _REVISION,
        "cause?": word("Why it failed, if that is known."),
        "resetsAt?": described(COUNT, "Unix seconds at which the provider answers again, as it said."),
    },
)

ANSWER = node_type("37JFM247WQ9DK", "Answer", {"answer": STRING})
"""A person's answer to a question."""
REMARK = node_type(
    "598QZEAVDK23W",
    "Remark",
    {"remark": described(STRING, "What a person said to a thread that asked nothing.")},
)
"""A person's remark to a thread that asked nothing."""

SUSPEND_SCHEMA: dict[str, Any] = {
    "title": "Question",
    "description": "What any role may answer instead of its own output, to ask a human.",
    "type": "object",
    "properties": {
        "$status": {"const": SUSPEND},
        "status": {"const": NEEDS_INPUT},
        "question": {"type": "string", "minLength": 1},
        "options": STRINGS,
        "reason": STRING,
    },
    "required": ["question"],
    "anyOf": [{"required": ["$status"]}, {"required": ["status"]}],
    "additionalProperties": False,
}

QUESTION = builtin("6BKEEWRFC00TX", SUSPEND_SCHEMA)
"""An output that asks a person."""

Kind = Literal[
    "workflow",
    "crew",
    "start",
    "step",
    "detail",
    "approval",
    "revocation",
    "turn",
    "attempt",
    "session",
    "text",
]
_KINDS: dict[Kind, frozenset[Hash]] = {
    "workflow": frozenset({WORKFLOW, CODE}),
    "crew": frozenset({CREW}),
    "start": frozenset({STARTNODE, ISSUE_START}),
    "step": frozenset({STEPNODE}),
    "detail": frozenset({DETAIL, CACHING_DETAIL}),
    "approval": frozenset({APPROVAL}),
    "revocation": frozenset({REVOCATION}),
    "turn": frozenset({TURN, CACHING_TURN}),
    "attempt": frozenset({ATTEMPT}),
    "session": frozenset({SESSION}),
    "text": frozenset({TEXT}),
}
_LATER = CACHING_TURN, CACHING_DETAIL, ISSUE_START
OF_THREADS = tuple(node for node in BUILTIN.core if node not in _LATER)
"""The built-in types that every version of a workflow has in its tree. Later types stand beside the steps that use
them, so that an equal definition keeps its tree."""
LIMITED, HAS_CAST, FANS_OUT, WITH_PEOPLE, OF_BRANCH = "limited", "crew", "fans-out", "people", "branch"
_OF_START: dict[str, Callable[[Any], bool]] = {
    LIMITED: lambda payload: "budget" in payload or "branch" in payload,  # a branch has those of its thread
    OF_BRANCH: lambda payload: "branch" in payload,
}
_TRAITS: dict[Hash, dict[str, Callable[[Any], bool]]] = {
    WORKFLOW: {
        LIMITED: lambda payload: "budget" in payload,
        HAS_CAST: lambda payload: "crew" in payload,
        FANS_OUT: lambda payload: any("fanOut" in edge for edge in _edges_in(payload)),
        WITH_PEOPLE: lambda payload: any("human" in role for role in payload["roles"].values()),
    },
    CODE: {LIMITED: lambda payload: "budget" in payload},
    STARTNODE: _OF_START,
    ISSUE_START: _OF_START,
}


def traits_of(type_hash: str, payload: Any) -> tuple[str, ...]:
    """Return the traits by which the index finds a node without reading it; none of an invalid payload."""
    try:
        return tuple(name for name, holds in _TRAITS.get(Hash(type_hash), {}).items() if holds(payload))
    except (AttributeError, KeyError, TypeError):
        return ()


def _edges_in(workflow: Any) -> Iterator[Any]:
    for edges in workflow["graph"].values():
        yield from edges if isinstance(edges, list) else edges.values()


def is_kind(type_hash: str, kind: Kind) -> bool:
    """Return whether a type is one of a built-in kind."""
    return type_hash in _KINDS[kind]


def versions(kind: Kind) -> frozenset[Hash]:
    """Return the types of a kind."""
    return _KINDS[kind]


def require_known_type(node: str, schema: Any, *kinds: Kind) -> None:
    """Raise UnknownWord for a node in the place of one of `kinds` whose type, which has this schema, is none of them
    but is called as they are: a newer version gave them another form."""
    title = schema.get("title") if isinstance(schema, dict) else None
    if title and title in {title_of(known) for kind in kinds for known in versions(kind)}:
        raise UnknownWord(
            f"node {node} is a {title} of a type which this uwf does not know", UnknownWord.WAY_OUT
        )


def workflow_type(payload: Any) -> Hash:
    """Return the type of a Workflow node: that of a code workflow's differs."""
    return CODE if "file" in payload else WORKFLOW
