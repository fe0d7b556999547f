"""Converting an answer's values to the types of its role's schema: by the YAML 1.2 core schema if the role's
schema allows it, otherwise to the schema's type. A valid value is never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from uwf_git.base.errors import Invalid
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format.schema import SECONDS, Schema, property_schemas
from uwf_git.format.yaml12 import core, is_json_number


class Plain(str):
    """A plain scalar that YAML's core schema does not read as text, not yet resolved: `007`, `true`, `null`."""

    __slots__ = ()


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_DEEPEST = 100
_NONE = object()


def natural(value: Any) -> Any:
    """Return a value with plain scalars read by the YAML 1.2 core schema, as JSON. Numbers that JSON cannot
    represent exactly (integers outside ±(2^53-1), infinities) stay text. What is nested too deeply for that stays
    as it is, and is refused by the check of its depth."""
    try:
        return _natural(value)
    except RecursionError:
        return value


def _natural(value: Any) -> Any:
    if type(value) is Plain:
        return _read(value)
    if isinstance(value, dict):
        return {str(key): _natural(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_natural(item) for item in value]
    return value


def coerce(value: Any, schema: Schema) -> Any:
    """Return the value as JSON, with the schema's types if only one reading is possible.

    A single value becomes a list of one if only a list is allowed, an empty value an empty list; an optional
    null field is dropped; text that equals an enum value except for case becomes that value. Never raises;
    `Schema.problems` reports misfits.
    """
    reading = natural(value)
    if schema.plainly_fits(reading):
        return reading
    from jsonschema.exceptions import ValidationError
    from referencing.exceptions import Unresolvable

    try:
        with time_limit(SECONDS):
            return natural(_Coercion(schema).want(value, schema.applied, 0))
    except (
        TimeExceeded,
        RecursionError,
        Invalid,
        Unresolvable,
        ValidationError,
        re.error,
        TypeError,
        ValueError,
    ):
        return reading  # the schema itself is at fault, and validation will say how


def _read(text: str) -> Any:
    value = core(text)
    if isinstance(value, int | float) and not is_json_number(value):
        return str(text)
    return str(value) if isinstance(value, str) else value


def _number(text: str) -> int | float | None:
    value = _read(text)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class _Coercion:
    """One pass over a value along a schema. Results may still have plain scalars if any reading fits."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validator: Any = schema.validator()

    def fits(self, value: Any, schema: Any) -> bool:
        return bool(self._validator.evolve(schema=schema).is_valid(natural(value)))

    def want(self, value: Any, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > _DEEPEST or self.fits(value, schema):
            return value
        value = self._here(value, schema, depth)
        if isinstance(target := schema.get("$ref"), str):
            value = self.want(value, self._schema.resolve(target), depth + 1)
        for branch in schema.get("allOf", ()):
            value = self.want(value, branch, depth + 1)
        if "if" in schema:
            taken = schema.get("then" if self.fits(value, schema["if"]) else "else")
            value = self.want(value, taken, depth + 1)
        for keyword in ("oneOf", "anyOf"):
            if schema.get(keyword) and not self.fits(value, {keyword: schema[keyword]}):
                value = self._branch(value, schema[keyword], keyword, depth)
        return value

    def _here(self, value: Any, schema: dict[str, Any], depth: int) -> Any:
        if "const" in schema or "enum" in schema:
            listed = [schema["const"]] if "const" in schema else schema["enum"]
            return _choice(value, listed)
        kind = schema.get("type", ())
        kinds = {kind} if isinstance(kind, str) else set(kind)
        if isinstance(value, dict) and (not kinds or "object" in kinds):
            return self._object(value, schema, depth)
        if isinstance(value, list) and (not kinds or "array" in kinds):
            return self._array(value, schema, depth)
        for reading in self._readings(value, kinds):
            if self.fits(reading, schema):
                return reading
        if kinds == {"array"} and not isinstance(value, list):
            return self._single(value, schema, depth)
        if kinds == {"string"} and type(value) is Plain:
            return value if _read(value) is None else str(value)  # so that the problem named is the text's
        return value

    @staticmethod
    def _readings(value: Any, kinds: set[str]) -> Iterator[Any]:
        if isinstance(value, bool):
            if "string" in kinds:
                yield "true" if value else "false"
            return
        if not isinstance(value, str):
            return
        text = value.strip()
        if "boolean" in kinds and text.lower() in _WORDS:
            yield _WORDS[text.lower()]
        if kinds & {"integer", "number"} and (number := _number(text)) is not None:
            yield number
        # An explicit null is not text, but a key without a value may mean empty text.
        if "string" in kinds and type(value) is Plain and (value == "" or _read(value) is not None):
            yield str(value)

    def _single(self, value: Any, schema: dict[str, Any], depth: int) -> Any:
        if natural(value) is None:
            return [] if self.fits([], schema) else value
        wrapped = self._array([value], schema, depth)
        return wrapped if self.fits(wrapped, schema) else value

    def _object(self, value: dict[str, Any], schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        result: dict[str, Any] = {}
        for key, item in value.items():
            for branch in property_schemas(schema, key) or [schema.get("additionalProperties")]:
                item = self.want(item, branch, depth + 1)
            if (
                key in properties
                and key not in required
                and natural(item) is None
                and not self.fits(None, properties[key])
            ):
                continue
            result[key] = item
        return result

    def _array(self, value: list[Any], schema: dict[str, Any], depth: int) -> list[Any]:
        prefix = schema.get("prefixItems", [])
        return [
            self.want(item, prefix[number] if number < len(prefix) else schema.get("items"), depth + 1)
            for number, item in enumerate(value)
        ]

    def _branch(self, value: Any, branches: list[Any], keyword: str, depth: int) -> Any:
        best, least = value, float("inf")
        for branch in branches:
            candidate = self.want(value, branch, depth + 1)
            if self.fits(candidate, {keyword: branches}):
                return candidate
            errors = self._validator.evolve(schema=branch).iter_errors(natural(candidate))
            distance = sum(100 if error.validator in ("const", "enum", "type") else 1 for error in errors)
            if distance < least:
                best, least = candidate, distance
        return best


def _choice(value: Any, listed: list[Any]) -> Any:
    if not isinstance(value, str):
        return value
    if value in [item for item in listed if isinstance(item, str)]:
        return str(value)
    text = value.strip()
    for reading in (_WORDS.get(text.lower(), _NONE), _number(text)):
        if any(type(item) is type(reading) and item == reading for item in listed):
            return reading
    folded = [item for item in listed if isinstance(item, str) and item.lower() == text.lower()]
    return folded[0] if len(folded) == 1 else value
