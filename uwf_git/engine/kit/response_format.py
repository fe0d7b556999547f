"""The `response_format` of a model request, made from a schema.

Strict modes accept a subset of JSON Schema. A schema is rewritten into it: an optional field may be null,
which is read as absent, and limits on length or value are dropped, since the schema checks the reply anyway.
Other schemas request any JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uwf_git.format.ids import DIALECT
from uwf_git.format.shape import types

JSON_OBJECT: Mapping[str, Any] = {"type": "json_object"}

_DEEPEST = 40
_SCALARS = ("string", "integer", "number", "boolean", "null")
# Keywords that only narrow what the others describe: without them more is let through, and checked afterwards.
_DROPPED = frozenset(
    (
        *("$schema", "$id", "$comment", "title", "examples", "default", "deprecated"),
        *("readOnly", "writeOnly"),
        *("format", "pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "dependentRequired", "propertyNames"),
    )
)
_KNOWN = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "unevaluatedProperties", "items"),
        *("anyOf", "oneOf", "enum", "const", "$ref", "$defs", "definitions", "description"),
    )
)


class _NotStrict(Exception):
    pass


def response_format(payload: Any) -> Mapping[str, Any] | None:
    """Return the `response_format` for a schema; None if the schema isn't one of an object."""
    if types(payload) not in ((), ("object",)) or not isinstance(payload, Mapping):
        return None
    try:
        schema = _object(payload, 0)
        for keyword in ("$defs", "definitions"):
            if keyword in payload:
                schema[keyword] = {name: _strict(inner, 1) for name, inner in payload[keyword].items()}
    except (_NotStrict, AttributeError, TypeError):
        return JSON_OBJECT
    return {"type": "json_schema", "json_schema": {"name": "output", "strict": True, "schema": schema}}


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST or set(schema) - _DROPPED - _KNOWN:
        raise _NotStrict
    if schema.get("$schema", DIALECT).rstrip("#") != DIALECT:
        raise _NotStrict
    strict: dict[str, Any] = {}
    if isinstance(schema.get("description"), str):
        strict["description"] = schema["description"]
    if "$ref" in schema:
        if not str(schema["$ref"]).startswith("#"):
            raise _NotStrict
        return {"$ref": schema["$ref"]}
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            if {"properties", "items", "anyOf", "oneOf"} & (set(schema) - {keyword}):
                raise _NotStrict
            return {**strict, "anyOf": [_strict(branch, depth + 1) for branch in schema[keyword]]}
    if "const" in schema or "enum" in schema:
        return {**strict, **_listed([schema["const"]] if "const" in schema else schema["enum"])}
    kinds = types(schema)
    if kinds == ("object",):
        return _object(schema, depth)
    if kinds == ("array",):
        return {**strict, "type": "array", "items": _strict(schema.get("items"), depth + 1)}
    if not kinds or not set(kinds) <= set(_SCALARS):
        raise _NotStrict
    return {**strict, "type": kinds[0] if len(kinds) == 1 else list(kinds)}


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    open_to = [schema.get(key, False) for key in ("additionalProperties", "unevaluatedProperties")]
    if not isinstance(properties, Mapping) or not properties or any(value is not False for value in open_to):
        raise _NotStrict
    if set(schema) - _DROPPED - _KNOWN or {"anyOf", "oneOf", "enum", "const", "$ref"} & set(schema):
        raise _NotStrict
    required = schema.get("required", ())
    if not set(required) <= set(properties):
        raise _NotStrict
    fields = {}
    for name, inner in properties.items():
        field = _strict(inner, depth + 1)
        fields[name] = field if name in required else {"anyOf": [field, {"type": "null"}]}
    strict = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if isinstance(schema.get("description"), str):
        strict["description"] = schema["description"]
    return strict


def _listed(values: list[Any]) -> dict[str, Any]:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": list(values)}
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        raise _NotStrict
    return {"enum": list(values)}
