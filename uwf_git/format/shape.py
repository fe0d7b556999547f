"""The fields of a role's schema: its variants, each a flat list of fields.

A schema may spread one object over `$ref`, `allOf`, `oneOf` and `if`; people, commands and models fill in a
list. The list is a suggestion; only the schema validates.
"""

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
    objects = _flatten(root, schema, 0, iter(range(_MOST_STEPS)))
    return tuple(Variant(thing.title, _fields(thing), thing.closed) for thing in objects)


def named(payload: Any) -> Named:
    """Return the fields named in any variant. Raises re.error for an invalid pattern."""
    names: set[str] = set()
    patterns: list[str] = []
    others = False
    for item in _in_place(payload, payload, 0, iter(range(_MOST_STEPS))):
        for keyword, kind in (("properties", Mapping), ("required", list), ("dependentRequired", Mapping)):
            if isinstance(part := item.get(keyword), kind):
                names |= {name for name in part if isinstance(name, str)}
        if isinstance(part := item.get("patternProperties"), Mapping):
            from uwf_git.format.ecma_pattern import translate_recorded

            patterns += [pattern for pattern in map(translate_recorded, part) if re.compile(pattern)]
        rests = [item[key] for key in ("additionalProperties", "unevaluatedProperties") if key in item]
        others = others or any(value is not False for value in rests)
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
    for item in inner:
        yield from _in_place(root, item, depth + 1, steps)


def _fields(shape: _Object) -> tuple[Field, ...]:
    order = dict.fromkeys([*(name for name in shape.required if name in shape.properties), *shape.properties])
    return tuple(Field(name, shape.properties[name], name in shape.required) for name in order)


def resolve(root: Any, schema: Any) -> dict[str, Any]:
    """Return a subschema with its `$ref` replaced; siblings win. Unresolvable ones are empty."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        target = schema.get("$ref")
        if not isinstance(target, str):
            return dict(schema)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        target_schema = value_at(root, path_of(root, target[1:])) if target.startswith("#") else None
        schema = {**target_schema, **rest} if isinstance(target_schema, Mapping) else rest
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
            if all(item is not None for item in listed):
                return tuple(value for item in listed for value in item or ())
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
    objects = [
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
        return objects
    branches = schema.get("allOf")
    for branch in branches if isinstance(branches, list) else ():
        objects = _combine(objects, _flatten(root, branch, depth + 1, steps))
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            each_other = (
                item
                for branch in branches
                if _object_like(root, branch)
                for item in _flatten(root, branch, depth + 1, steps)
            )
            others = list(islice(each_other, MOST_VARIANTS))
            objects = _combine(objects, others) if others else objects
    if "if" in schema:
        taken = _combine(
            _flatten(root, schema["if"], depth + 1, steps),
            _flatten(root, schema.get("then"), depth + 1, steps),
        )
        objects = _combine(objects, taken + _flatten(root, schema.get("else"), depth + 1, steps))
    return objects


def _object_like(root: Any, branch: Any) -> bool:
    kinds = types(resolve(root, branch))
    return not kinds or "object" in kinds


def _combine(objects: Iterable[_Object], right: Iterable[_Object]) -> list[_Object]:
    right = list(right)
    pairs = [(one, other) for one in objects for other in right]
    return [_merge(one, other) for one, other in pairs[:MOST_VARIANTS]]


def _merge(one: _Object, other: _Object) -> _Object:
    properties = dict(one.properties)
    for name, item in other.properties.items():
        properties[name] = {**properties.get(name, {}), **item}
    required = tuple(dict.fromkeys((*one.required, *other.required)))
    return _Object(other.title or one.title, properties, required, one.closed or other.closed)
