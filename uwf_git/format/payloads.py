"""Values of nodes as payloads, and back: named tuples and JSON objects.

A field is called in camelCase in a payload. One with a default is optional: a payload leaves it out if it is the
default or empty. Tuples are lists in JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, ForwardRef, TypeVar, cast, get_origin

_Kind = TypeVar("_Kind", bound=tuple[Any, ...])


def to_payload(value: tuple[Any, ...], always: Collection[str] = ()) -> dict[str, Any]:
    """Return the payload of a named tuple. Optional fields of `always` are never left out."""
    defaults = cast(Any, value)._field_defaults
    payload = {}
    for (key, (name, _)), item in zip(_fields(type(value)).items(), value, strict=True):
        is_silent = name in defaults and (item == defaults[name] or item == () or item == {})
        if not is_silent or name in always:
            payload[key] = _plain(item)
    return payload


def from_payload(kind: type[_Kind], payload: Mapping[str, Any], /, **values: Any) -> _Kind:
    """Return a payload's value. `values` are its fields that the payload has in another form. Raises KeyError for
    a missing key, TypeError."""
    fields = _fields(kind)
    for key, item in payload.items():
        if key in fields:
            name, is_tuple = fields[key]
            if name not in values:
                values[name] = tuple(item) if is_tuple else item
    try:
        return kind(**values)
    except TypeError:
        for key, (name, _) in fields.items():
            if name not in values and name not in cast(Any, kind)._field_defaults:
                raise KeyError(key) from None
        raise


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        if hasattr(item, "payload"):
            return item.payload()
        return to_payload(item) if hasattr(item, "_fields") else [_plain(entry) for entry in item]
    return dict(item) if isinstance(item, Mapping) else item


@cache
def _fields(kind: type[tuple[Any, ...]]) -> dict[str, tuple[str, bool]]:
    """Return the fields of a kind by their keys: name, and whether it is a tuple."""
    types = kind.__annotations__
    return {_in_camel_case(name): (name, _is_tuple(types[name])) for name in cast(Any, kind)._fields}


def _is_tuple(annotation: Any) -> bool:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__.startswith("tuple[")
    return get_origin(annotation) is tuple


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
