"""The table of built-in types, and the parts that their schemas share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from uwf_git import ext
from uwf_git.format.ids import Hash
from uwf_git.format.schema import DIALECT

META_SCHEMA: dict[str, Any] = {
    "$schema": DIALECT,
    "$ref": DIALECT,
    "title": "JSON Schema",
    "description": "The type of every schema node, its own included.",
}

META = Hash("1ETEAXPCRHVYW")

Schema = dict[str, Any]


class Builtin(Mapping[Hash, Schema]):
    """The built-in schemas by their hashes: those of the format, then those of the extensions that ship, which are
    loaded when one is asked for."""

    def __init__(self) -> None:
        self.core: dict[Hash, Schema] = {META: META_SCHEMA}

    def __getitem__(self, node: Hash) -> Schema:
        schema = self.core.get(node)
        return schema if schema is not None else _loaded(ext.node_types()[node])[node]

    def __contains__(self, node: object) -> bool:
        return node in self.core or node in ext.node_types()

    def __iter__(self) -> Iterator[Hash]:
        yield from self.core
        yield from map(Hash, ext.node_types())

    def __len__(self) -> int:
        return len(self.core) + len(ext.node_types())


@cache
def _loaded(where: str) -> Mapping[Hash, Schema]:
    return cast(Mapping[Hash, Schema], ext.load(where))


BUILTIN = Builtin()


def builtin(name: str, schema: dict[str, Any]) -> Hash:
    """Make a schema one of the format. `name` is its hash, written down since computing all of them would take most of
    a command's start; a test computes them."""
    BUILTIN.core[Hash(name)] = schema
    return Hash(name)


def record(title: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with these fields and no others. A `?` at the end of a field's name says that it may be
    left out. The order of the other fields is part of the schema's hash."""
    return {
        "title": title,
        "type": "object",
        "properties": {name.removesuffix("?"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def list_of(item: Any, **besides: Any) -> dict[str, Any]:
    """The schema of a list; `besides` are further keywords."""
    return {**besides, "type": "array", "items": item}


def map_of(value: Any, **besides: Any) -> dict[str, Any]:
    """The schema of an object that maps names to values; `besides` are further keywords."""
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
