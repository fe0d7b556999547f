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

from uwf_git.format.ids import DIALECT, REFERENCE_FORMATS, is_hash

Check = Callable[[Any], bool]

# Not $, which Python also finds before a newline at the end.
_END_OF_TEXT = r"(?![\s\S])"
OBJECT_ID = f"^([0-9a-f]{{40}}|[0-9a-f]{{64}}){_END_OF_TEXT}"
"""The pattern of the id of a git object."""
SHA256 = f"^[0-9a-f]{{64}}{_END_OF_TEXT}"
PRINTABLE_ASCII = f"^[!-~]+{_END_OF_TEXT}"
NODE_HASH = "^[0-9A-F][0-9A-HJKMNP-TV-Z]{12}$"
PERCENTAGE = "^(100|[1-9][0-9]?)%$"
# Patterns that match in linear time. Others may not, and the validator limits its time.
# As `ecma_pattern` has them, which takes longer to load.
_PATTERNS = {
    pattern: pattern.removesuffix("$") + _END_OF_TEXT
    for pattern in (OBJECT_ID, SHA256, PRINTABLE_ASCII, NODE_HASH, PERCENTAGE)
}

_ANNOTATIONS: dict[str, Check] = {
    **dict.fromkeys(("title", "description", "$comment"), lambda value: type(value) is str),
    "examples": lambda value: type(value) is list,
    "default": lambda value: True,
    "$schema": lambda value: value == DIALECT,
}
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
    """Return a check for a plain schema, a JSON Schema of well-known keywords with valid arguments; None for others."""
    try:
        return _check(schema, 0)
    except (_NotPlainError, TypeError, AttributeError, KeyError):
        return None


class _NotPlainError(Exception):
    """A keyword that needs the general validator."""


def _check(schema: Any, depth: int) -> Check:
    if schema is True:
        return lambda value: True
    if type(schema) is not dict or depth > 20:
        raise _NotPlainError
    checks = []
    for key, argument in schema.items():
        if key in _KEYWORDS:
            checks.append(_KEYWORDS[key](argument, depth))
        elif not (key in _OF_OBJECTS or _ANNOTATIONS[key](argument)):
            raise _NotPlainError
    if schema.keys() & _OF_OBJECTS:
        checks.append(_object(schema, depth))
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _type(names: Any, _depth: int) -> Check:
    if type(names) is str:
        return _TYPES[names]
    allowed = [_TYPES[name] for name in _distinct(names)]
    if not allowed:
        raise _NotPlainError
    return lambda value: any(check(value) for check in allowed)


def _distinct(names: Any) -> list[str]:
    if type(names) is not list or not all(type(name) is str for name in names) or len({*names}) < len(names):
        raise _NotPlainError
    return names


def _listed(values: Any, _depth: int) -> Check:
    if type(values) is not list or not all(type(value) in (str, bool) for value in values):
        raise _NotPlainError
    texts, flags = ([value for value in values if type(value) is kind] for kind in (str, bool))
    return lambda value: (type(value) is str and value in texts) or (type(value) is bool and value in flags)


def _any_of(schemas: Any, depth: int) -> Check:
    branches = [_check(schema, depth + 1) for schema in schemas]
    if type(schemas) is not list or not branches:
        raise _NotPlainError
    return lambda value: any(check(value) for check in branches)


def _items(schema: Any, depth: int) -> Check:
    check = _check(schema, depth + 1)
    return lambda value: type(value) is not list or all(map(check, value))


def _format(name: Any, _depth: int) -> Check:
    if type(name) is not str:
        raise _NotPlainError
    if name not in REFERENCE_FORMATS:
        return lambda value: True  # other formats are for people, as the validator has it
    return lambda value: type(value) is not str or is_hash(value)


def _pattern(pattern: Any, _depth: int) -> Check:
    matches = re.compile(_PATTERNS[pattern]).search
    return lambda value: type(value) is not str or matches(value) is not None


def _bound(holds: Callable[[Any, Any], bool]) -> Callable[[Any, int], Check]:
    def made(limit: Any, _depth: int) -> Check:
        if type(limit) not in (int, float):
            raise _NotPlainError
        return lambda value: type(value) not in (int, float) or holds(value, limit)

    return made


def _length(kind: type[Any], holds: Callable[[Any, Any], bool]) -> Callable[[Any, int], Check]:
    def made(limit: Any, _depth: int) -> Check:
        if type(limit) is not int or limit < 0:
            raise _NotPlainError
        return lambda value: type(value) is not kind or holds(len(value), limit)

    return made


def _object(schema: dict[str, Any], depth: int) -> Check:
    known = {name: _check(item, depth + 1) for name, item in schema.get("properties", {}).items()}
    required = _distinct(schema.get("required", []))
    others = schema.get("additionalProperties", True)
    other = None if others is False else _check(others, depth + 1)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return True
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            check_item = known.get(name, other)
            if check_item is None or not check_item(item):
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
