"""The table of built-in types, and the common parts of their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from uwf_git.base import extensions
from uwf_git.format.ids import DIALECT, Hash

META_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "$ref": DIALECT,
    "title": "JSON Schema",
    "description": "The type of every schema node, its own included.",
}

META = Hash("1ETEAXPCRHVYW")

Schema = dict[str, Any]


class Builtin(Mapping[Hash, Schema]):
    """The built-in schemas by hash. Those of shipped extensions are loaded on demand."""

    def __init__(self) -> None:
        self.core: dict[Hash, Schema] = {META: META_SCHEMA}

    def __getitem__(self, node: Hash) -> Schema:
        schema = self.core.get(node)
        return schema if schema is not None else _loaded(extensions.node_types()[node])[node]

    def __contains__(self, node: object) -> bool:
        return node in self.core or node in extensions.node_types()

    def __iter__(self) -> Iterator[Hash]:
        yield from self.core
        yield from map(Hash, extensions.node_types())

    def __len__(self) -> int:
        return len(self.core) + len(extensions.node_types())


@cache
def _loaded(where: str) -> Mapping[Hash, Schema]:
    return cast(Mapping[Hash, Schema], extensions.load(where))


BUILTIN = Builtin()


def builtin(name: str, schema: dict[str, Any]) -> Hash:
    """Add a schema to the format. `name` is its hash, written down because computing them all would dominate
    a command's start; a test recomputes them."""
    BUILTIN.core[Hash(name)] = schema
    return Hash(name)


def title_of(type_hash: str) -> str:
    """Return the title of a type of the core, "" for another."""
    return str(BUILTIN.core.get(Hash(type_hash), {}).get("title", ""))


def record(title: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a closed object. A name ending in `?` is optional. The order of the other fields
    is part of the hash."""
    return {
        "title": title,
        "type": "object",
        "properties": {name.removesuffix("?"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def node_type(name: str, title: str, fields: Mapping[str, Any]) -> Hash:
    """Add a type of closed objects to the format."""
    return builtin(name, record(title, fields))


def described(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text}


def word(text: str) -> dict[str, Any]:
    """Return the schema of a word out of a closed set. It leaves the words to the parsers (see `format/words`), so that
    one more doesn't change the type."""
    return described(STRING, f"{text} A word: newer versions may know more.")


def list_of(item: Any, **besides: Any) -> dict[str, Any]:
    """Return the schema of a list, with further keywords."""
    return {**besides, "type": "array", "items": item}


def map_of(value: Any, **besides: Any) -> dict[str, Any]:
    """Return the schema of an object that maps names to values, with further keywords."""
    return {**besides, "type": "object", "additionalProperties": value}


REF = {"type": "string", "format": "cas_ref"}
NULLABLE_REF = {"anyOf": [REF, {"type": "null"}]}
REFS = list_of(REF)
STRING = {"type": "string"}
NULLABLE_STRING = {"type": ["string", "null"]}
STRINGS = list_of(STRING)
COUNT = {"type": "integer", "minimum": 0}
POSITIVE = {"type": "integer", "minimum": 1}
FLAG = {"type": "boolean"}
COST = {"type": "number", "minimum": 0, "description": "US dollars, as the agent reported it."}
BUDGET = record(
    "Budget",
    {
        "maxSteps?": POSITIVE,
        "maxTokens?": POSITIVE,
        "maxCost?": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars."},
        "maxWallTime?": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."},
    },
)
USAGE = {"anyOf": [record("Usage", {"input": COUNT, "output": COUNT, "cached?": COUNT}), {"type": "null"}]}
CACHING_USAGE = record(
    "CachingUsage",
    {
        "input": COUNT,
        "output": COUNT,
        "cached?": COUNT,
        "written": described(COUNT, "The part of the input that was written into the provider's cache."),
    },
)
