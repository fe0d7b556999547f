"""A fast path for plain schemas, about fifty times as fast as the general validator, whose import alone takes
a quarter of a step.

True means that the value is valid. False decides nothing: the general validator is asked, which also says
what is wrong.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from uwf_git.format.ids import REFERENCE_FORMATS, is_hash

Check = Callable[[Any], bool]

# Not $, which Python also finds before a newline at the end.
_END_OF_TEXT = r"(?![\s\S])"
OBJECT_ID = f"^([0-9a-f]{{40}}|[0-9a-f]{{64}}){_END_OF_TEXT}"
SHA256 = f"^[0-9a-f]{{64}}{_END_OF_TEXT}"
PRINTABLE_ASCII = f"^[!-~]+{_END_OF_TEXT}"
NODE_HASH = "^[0-9A-F][0-9A-HJKMNP-TV-Z]{12}$"
PERCENTAGE = "^(100|[1-9][0-9]?)%$"
# Patterns that match in linear time. Others may not, and the validator limits its time.
# As `ecma_pattern` has them, which takes longer to load.
_PATTERNS = {
    pattern: re.compile(pattern.removesuffix("$") + _END_OF_TEXT)
    for pattern in (OBJECT_ID, SHA256, PRINTABLE_ASCII, NODE_HASH, PERCENTAGE)
}

_IGNORED = {"title", "description", "default", "examples", "$comment", "$schema"}
_OF_OBJECTS = {"properties", "required", "additionalProperties"}
_TYPES: dict[str, Check] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
}


def plain_check(schema: Any) -> Check | None:
    """Return a check for a plain schema, None for others."""
    try:
        return _check(schema, 0)
    except (_NotPlainError, TypeError, AttributeError, KeyError):
        return None


def is_plainly_schema(payload: Any) -> bool:
    """Return whether a payload is a JSON Schema of well-known keywords with valid arguments. False decides
    nothing."""
    return _is_schema(payload, 0)


def _is_schema(payload: Any, depth: int) -> bool:
    if type(payload) is bool:
        return True
    if type(payload) is not dict or depth > 20:
        return False
    return all(key in _ARGUMENTS and _ARGUMENTS[key](value, depth) for key, value in payload.items())


class _NotPlainError(Exception):
    """A keyword that needs the general validator."""


def _check(schema: Any, depth: int) -> Check:
    if schema is True:
        return lambda value: True
    if type(schema) is not dict or depth > 20:
        raise _NotPlainError
    checks = [_KEYWORDS[key](argument, depth) for key, argument in schema.items() if key in _KEYWORDS]
    rest = schema.keys() - _KEYWORDS.keys() - _IGNORED
    if rest & _OF_OBJECTS:
        checks.append(_object(schema, depth))
    if rest - _OF_OBJECTS:
        raise _NotPlainError
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _type(names: Any, _depth: int) -> Check:
    if type(names) is str:
        return _TYPES[names]
    allowed = [_TYPES[name] for name in names]
    return lambda value: any(check(value) for check in allowed)


def _listed(values: Any, _depth: int) -> Check:
    if type(values) is not list or not all(type(value) in (str, bool) for value in values):
        raise _NotPlainError
    texts, flags = ([value for value in values if type(value) is kind] for kind in (str, bool))
    return lambda value: (type(value) is str and value in texts) or (type(value) is bool and value in flags)


def _any_of(schemas: Any, depth: int) -> Check:
    branches = [_check(each, depth + 1) for each in schemas]
    return lambda value: any(check(value) for check in branches)


def _items(schema: Any, depth: int) -> Check:
    check = _check(schema, depth + 1)
    return lambda value: type(value) is not list or all(map(check, value))


def _format(name: Any, _depth: int) -> Check:
    if name not in REFERENCE_FORMATS:
        return lambda value: True  # other formats are for people, as the validator has it
    return lambda value: type(value) is not str or is_hash(value)


def _pattern(pattern: Any, _depth: int) -> Check:
    matches = _PATTERNS[pattern].search
    return lambda value: type(value) is not str or matches(value) is not None


def _bound(holds: Callable[[Any, Any], bool]) -> Callable[[Any, int], Check]:
    def made(limit: Any, _depth: int) -> Check:
        if type(limit) not in (int, float):
            raise _NotPlainError
        return lambda value: type(value) not in (int, float) or holds(value, limit)

    return made


def _length(kind: type[Any], holds: Callable[[Any, Any], bool]) -> Callable[[Any, int], Check]:
    def made(limit: Any, _depth: int) -> Check:
        if type(limit) is not int:
            raise _NotPlainError
        return lambda value: type(value) is not kind or holds(len(value), limit)

    return made


def _object(schema: dict[str, Any], depth: int) -> Check:
    known = {name: _check(each, depth + 1) for name, each in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    if type(required) is not list or not all(type(name) is str for name in required):
        raise _NotPlainError
    others = schema.get("additionalProperties", True)
    other = None if others is False else _check(others, depth + 1)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return True
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            found = known.get(name, other)
            if found is None or not found(item):
                return False
        return True

    return check


_KEYWORDS: dict[str, Callable[[Any, int], Check]] = {
    "type": _type,
    "enum": _listed,
    "const": lambda value, depth: _listed([value], depth),
    "anyOf": _any_of,
    "items": _items,
    "format": _format,
    "pattern": _pattern,
    "minimum": _bound(operator.ge),
    "exclusiveMinimum": _bound(operator.gt),
    "maximum": _bound(operator.le),
    "exclusiveMaximum": _bound(operator.lt),
    "minLength": _length(str, operator.ge),
    "maxLength": _length(str, operator.le),
    "minItems": _length(list, operator.ge),
    "maxItems": _length(list, operator.le),
}


def _is_text(value: Any, _depth: int) -> bool:
    return type(value) is str


def _is_number(value: Any, _depth: int) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any, _depth: int) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: Any, _depth: int) -> bool:
    return type(value) is list and all(type(each) is str for each in value) and len(set(value)) == len(value)


def _are_types(value: Any, depth: int) -> bool:
    if type(value) is str:
        return value in _TYPES
    return _are_texts(value, depth) and bool(value) and all(each in _TYPES for each in value)


def _is_inner(value: Any, depth: int) -> bool:
    return _is_schema(value, depth + 1)


def _are_inner(value: Any, depth: int) -> bool:
    return type(value) is list and bool(value) and all(_is_schema(each, depth + 1) for each in value)


def _are_named(value: Any, depth: int) -> bool:
    return type(value) is dict and all(_is_schema(each, depth + 1) for each in value.values())


_ARGUMENTS: dict[str, Callable[[Any, int], bool]] = {
    **dict.fromkeys(("title", "description", "$comment", "format"), _is_text),
    **dict.fromkeys(("default", "const"), lambda value, depth: True),
    **dict.fromkeys(("enum", "examples"), lambda value, depth: type(value) is list),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("anyOf", "allOf", "oneOf"), _are_inner),
    **dict.fromkeys(("items", "additionalProperties", "not"), _is_inner),
    "properties": _are_named,
    "required": _are_texts,
    "type": _are_types,
}
