"""Deterministic CBOR (RFC 8949, section 4.2) of JSON values, as in json-cas.

As in JavaScript, a float with an integral value within ±(2^53-1) is an integer. Other floats are float64,
never shortened. `normalise` decides this once, so that the validated, hashed and stored values are the same.
"""

from __future__ import annotations

import math
import struct
from operator import itemgetter
from typing import Any

from uwf_git.base.errors import Invalid

MAX_INTEGER = 2**53 - 1
MAX_DEPTH = 200

LARGE_INTEGER_HINT = "write it as a string (I-JSON)"
TOO_LONG = "an integer of thousands of digits is outside ±(2^53-1)"
"""What is wrong where Python's JSON parser raises a ValueError that is no JSONDecodeError."""

type_error_hint = "a payload is JSON: null, booleans, numbers, strings, lists and string-keyed objects"


def sort_keys(value: Any) -> Any:
    """Return a JSON value with the keys of its objects in the order of a node's file."""
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    return [sort_keys(item) for item in value] if isinstance(value, list) else value


def normalise(value: Any, depth: int = 0) -> Any:
    """Return a copy with integral floats as integers. Raises Invalid for values without a hash: integers
    outside ±(2^53-1), NaN, infinities, lone surrogates, more than 200 levels."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return value
        raise Invalid(f"integer {str(value)[:24]} is outside ±(2^53-1)", LARGE_INTEGER_HINT)
    if kind is float:
        if not math.isfinite(value):
            what = (
                f"{value} is not a JSON number" if math.isnan(value) else "a number is too large, or infinite"
            )
            raise Invalid(what, "NaN, infinities and what is beyond 1.8e308 have no hash")
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else value
    if depth >= MAX_DEPTH:
        raise Invalid(f"value is nested deeper than {MAX_DEPTH} levels")
    if kind is list or kind is tuple:
        return [normalise(item, depth + 1) for item in value]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise Invalid(f"object key {key!r} is not a string", type_error_hint)
        return {_text(key): normalise(item, depth + 1) for key, item in value.items()}
    raise Invalid(f"{kind.__name__} is not a JSON value", type_error_hint)


def _text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid("text holds a lone surrogate", "it is not valid Unicode; replace it") from None
    return value


def encode(value: Any) -> bytes:
    """Return the CBOR of a normalised JSON value."""
    out: list[bytes] = []
    _encode(value, out)
    return b"".join(out)


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    if number < 0x100:
        return bytes((major << 5 | 24, number))
    if number < 0x10000:
        return struct.pack(">BH", major << 5 | 25, number)
    if number < 0x100000000:
        return struct.pack(">BI", major << 5 | 26, number)
    return struct.pack(">BQ", major << 5 | 27, number)


def _encode(value: Any, out: list[bytes]) -> None:
    if value is None:
        out.append(b"\xf6")
    elif value is True:
        out.append(b"\xf5")
    elif value is False:
        out.append(b"\xf4")
    elif isinstance(value, str):
        out.append(_encoded_text(value))
    elif isinstance(value, int):
        out.append(_head(0, value) if value >= 0 else _head(1, -1 - value))
    elif isinstance(value, float):
        out.append(b"\xfb" + struct.pack(">d", value))
    elif isinstance(value, dict):
        out.append(_head(5, len(value)))
        # Bytewise order of the encoded keys: shorter first, as the length is in the head.
        for key, item in sorted(((_encoded_text(k), v) for k, v in value.items()), key=itemgetter(0)):
            out.append(key)
            _encode(item, out)
    else:
        out.append(_head(4, len(value)))
        for item in value:
            _encode(item, out)


def _encoded_text(text: str) -> bytes:
    data = text.encode("utf-8")
    return _head(3, len(data)) + data
