"""The table of built-in types, and the parts that their schemas share."""

from __future__ import annotations

from typing import Any

from uwf_git.format.ids import Hash
from uwf_git.format.schema import DIALECT

META_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "$ref": DIALECT,
    "title": "JSON Schema",
    "description": "The type of every schema node, its own included.",
}

META = Hash("1ETEAXPCRHVYW")

BUILTIN: dict[Hash, dict[str, Any]] = {META: META_SCHEMA}
"""The built-in schemas by their hashes."""


def builtin(name: str, schema: dict[str, Any]) -> Hash:
    """Make a schema a built-in one. `name` is its hash, written down since computing those of all would take most of a
    command's start; a test computes them."""
    BUILTIN[Hash(name)] = schema
    return Hash(name)


REF = {"type": "string", "format": "cas_ref"}
NULLABLE_REF = {"anyOf": [REF, {"type": "null"}]}
REFS = {"type": "array", "items": REF}
STRING = {"type": "string"}
STRINGS = {"type": "array", "items": STRING}
COUNT = {"type": "integer", "minimum": 0}
FLAG = {"type": "boolean"}
COST = {"type": "number", "minimum": 0, "description": "US dollars, as the agent reported it."}


def record(title: str, required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with these fields and no others."""
    return {
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


BUDGET = record(
    "Budget",
    [],
    {
        "maxSteps": {"type": "integer", "minimum": 1},
        "maxTokens": {"type": "integer", "minimum": 1},
        "maxCost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars."},
        "maxWallTime": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
    },
)
USAGE = {
    "anyOf": [
        record("Usage", ["input", "output"], {"input": COUNT, "output": COUNT, "cached": COUNT}),
        {"type": "null"},
    ]
}
