"""The fields of a role's schema: its variants, each a flat list of fields.

A schema may spread one object over `$ref`, `allOf`, `oneOf` and `if`; people, commands and models fill in a
list. The list is a suggestion; only the schema validates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from uwf_git.format.schema import path_of, value_at

MOST_VARIANTS = 24
_DEEPEST = 20
# Subschemas looked at: references that fan out and meet again would otherwise be walked 2^20 times.
_MOST_STEPS = 2000


class Field(NamedTuple):
    """A property. References in `schema` are resolved one level deep."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def description(self) -> str:
        """The schema's description on one line; may be ""."""
        text = self.schema.get("description", "")
        return " ".join(text.split()) if isinstance(text, str) else ""


class Variant(NamedTuple):
    """One way to fill the object. `closed`: no other fields are allowed."""

    title: str
    fields: tuple[Field, ...]
    closed: bool

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


class Named(NamedTuple):
    """The fields that a schema names: `names` and `patterns`; `others` if it describes further ones."""

    names: frozenset[str]
    patterns: tuple[str, ...]
    others: bool

    def has(self, name: str) -> bool:
        return name in self.names or any(re.search(pattern, name) for pattern in self.patterns)


class _Object(NamedTuple):
    title: str
    properties: dict[str, dict[str, Any]]
    required: tuple[str, ...]
    closed: bool


def variants(payload: Any) -> tuple[Variant, ...]:
    """Return the variants of an object's schema, from 1 to 24."""
    return variants_of(payload, payload)


def variants_of(root: Any, schema: Any) -> tuple[Variant, ...]:
    """As `variants`, for a subschema of `root`."""
    found = _flatten(root, schema, 0, iter(range(_MOST_STEPS)))
    return tuple(Variant(each.title, _fields(each), each.closed) for each in found)


def named(payload: Any) -> Named:
    """Return the fields named in any variant. Raises re.error for an invalid pattern."""
    names: set[str] = set()
    patterns: list[str] = []
    others = False
    for each in _in_place(payload, payload, 0, iter(range(_MOST_STEPS))):
        for keyword, kind in (("properties", Mapping), ("required", list), ("dependentRequired", Mapping)):
            if isinstance(found := each.get(keyword), kind):
                names |= {name for name in found if isinstance(name, str)}
        if isinstance(found := each.get("patternProperties"), Mapping):
            from uwf_git.format.ecma_pattern import translate_recorded

            patterns += [pattern for pattern in map(translate_recorded, found) if re.compile(pattern)]
        said = [each[key] for key in ("additionalProperties", "unevaluatedProperties") if key in each]
        others = others or any(value is not False for value in said)
    return Named(frozenset(names), tuple(patterns), others)


def _in_place(root: Any, schema: Any, depth: int, steps: Iterator[int]) -> Iterator[dict[str, Any]]:
    if depth >= _DEEPEST or next(steps, None) is None:
        return
    schema = resolve(root, schema)
    yield schema
    inner = [schema[keyword] for keyword in ("if", "then", "else") if keyword in schema]
    for keyword in ("allOf", "oneOf", "anyOf"):
        branches = schema.get(keyword)
        inner += branches if isinstance(branches, list) else []
    dependent = schema.get("dependentSchemas")
    inner += dependent.values() if isinstance(dependent, Mapping) else []
    for each in inner:
        yield from _in_place(root, each, depth + 1, steps)


def _fields(found: _Object) -> tuple[Field, ...]:
    order = dict.fromkeys([*(name for name in found.required if name in found.properties), *found.properties])
    return tuple(Field(name, found.properties[name], name in found.required) for name in order)


def resolve(root: Any, schema: Any) -> dict[str, Any]:
    """Return a subschema with its `$ref` replaced; siblings win. Unresolvable ones are empty."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return dict(schema)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        found = value_at(root, path_of(root, target[1:])) if target.startswith("#") else None
        schema = {**found, **rest} if isinstance(found, Mapping) else rest
    return {}


def choices(root: Any, schema: Any) -> tuple[Any, ...] | None:
    """Return the values that a subschema lists (const, enum, or variants of these), else None."""
    return _choices(root, schema, 0, iter(range(_MOST_STEPS)))


def _choices(root: Any, schema: Any, depth: int, steps: Iterator[int]) -> tuple[Any, ...] | None:
    if depth >= _DEEPEST or next(steps, None) is None:
        return None
    schema = resolve(root, schema)
    if "const" in schema:
        return (schema["const"],)
    if isinstance(schema.get("enum"), list):
        return tuple(schema["enum"])
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list) and branches:
            listed = [_choices(root, branch, depth + 1, steps) for branch in branches]
            if all(each is not None for each in listed):
                return tuple(value for each in listed for value in each or ())
    return None


def types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a resolved subschema's types, inferred from keywords if it names none."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(str(name) for name in kind)
    if "properties" in schema:
        return ("object",)
    if "items" in schema or "prefixItems" in schema:
        return ("array",)
    return ()


def _flatten(root: Any, schema: Any, depth: int, steps: Iterator[int]) -> list[_Object]:
    schema = resolve(root, schema)
    properties = schema.get("properties")
    required = schema.get("required")
    title = schema.get("title")
    found = [
        _Object(
            title if isinstance(title, str) else "",
            {str(name): resolve(root, item) for name, item in properties.items()}
            if isinstance(properties, Mapping)
            else {},
            tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else (),
            schema.get("additionalProperties") is False or schema.get("unevaluatedProperties") is False,
        )
    ]
    if depth >= _DEEPEST or next(steps, None) is None:
        return found
    branches = schema.get("allOf")
    for branch in branches if isinstance(branches, list) else ():
        found = _combine(found, _flatten(root, branch, depth + 1, steps))
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            each_other = (
                each
                for branch in branches
                if _object_like(root, branch)
                for each in _flatten(root, branch, depth + 1, steps)
            )
            others = list(islice(each_other, MOST_VARIANTS))
            found = _combine(found, others) if others else found
    if "if" in schema:
        taken = _combine(
            _flatten(root, schema["if"], depth + 1, steps),
            _flatten(root, schema.get("then"), depth + 1, steps),
        )
        found = _combine(found, taken + _flatten(root, schema.get("else"), depth + 1, steps))
    return found


def _object_like(root: Any, branch: Any) -> bool:
    kinds = types(resolve(root, branch))
    return not kinds or "object" in kinds


def _combine(left: Iterable[_Object], right: Iterable[_Object]) -> list[_Object]:
    right = list(right)
    pairs = [(one, other) for one in left for other in right]
    return [_merge(one, other) for one, other in pairs[:MOST_VARIANTS]]


def _merge(one: _Object, other: _Object) -> _Object:
    properties = dict(one.properties)
    for name, item in other.properties.items():
        properties[name] = {**properties.get(name, {}), **item}
    required = tuple(dict.fromkeys((*one.required, *other.required)))
    return _Object(other.title or one.title, properties, required, one.closed or other.closed)
