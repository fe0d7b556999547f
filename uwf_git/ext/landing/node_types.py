"""Node types of effects and checks."""

from __future__ import annotations

from typing import Any

from uwf_git.plugin import OBJECT_ID, Hash, schemas

SCHEMAS: dict[Hash, dict[str, Any]] = {}
"""The schemas by their hashes."""


def _type(name: str, schema: dict[str, Any]) -> Hash:
    SCHEMAS[Hash(name)] = schema
    return Hash(name)


def _digits(count: int, text: str) -> dict[str, Any]:
    return {**schemas.STRING, "minLength": count, "maxLength": count, "description": text}


_GIT_ID = {**schemas.STRING, "pattern": OBJECT_ID}
_AT = schemas.described(schemas.COUNT, "Unix seconds.")
EFFECT = _type(
    "9ZX7TD69ANCDQ",
    schemas.record(
        "Effect",
        {
            "start": schemas.REF,
            "prev": schemas.described(schemas.NULLABLE_REF, "The step at which it was to be sent."),
            "key": _digits(32, "What it is known by at the other side, too: it follows from its thread."),
            "kind": schemas.word("What is sent."),
            "target?": schemas.described(schemas.STRING, "Where to: the address of a repository, an issue."),
            "name": schemas.described(schemas.STRING, "Tells it from others of its kind and target."),
            "text?": schemas.described(schemas.STRING, "What is sent, in a line."),
            "sha256": _digits(64, "Of the bytes that are sent."),
            "at": _AT,
        },
    ),
)
"""Something that is about to be sent to the outside."""
SETTLEMENT = _type(
    "BXMK3YSCEJ641",
    schemas.record(
        "Settlement",
        {
            "effect": schemas.REF,
            "outcome": schemas.word("What became of it."),
            "reference?": schemas.described(
                schemas.STRING, "What the other side calls it: an address, a number."
            ),
            "reason?": schemas.described(schemas.STRING, "Why it failed, or is unknown."),
            "at": _AT,
        },
    ),
)
"""What became of an effect."""
CHECK = _type(
    "80GWRGV0RW5XG",
    schemas.record(
        "Check",
        {
            "start": schemas.REF,
            "prev": schemas.described(schemas.NULLABLE_REF, "The step that was the head."),
            "commit": schemas.described(_GIT_ID, "The commit that it was made on, in the project."),
            "tree": schemas.described(_GIT_ID, "The tree of that commit."),
            "command": schemas.list_of(schemas.STRING, minItems=1),
            "status": {
                "type": ["integer", "null"],
                "description": "The exit status, below 0 for a signal; null if it ran out of time.",
            },
            "log": schemas.described(schemas.REF, "The Text of what it printed, the end of it."),
            "at": _AT,
        },
    ),
)
"""A command that was run on a commit before that was to land."""
