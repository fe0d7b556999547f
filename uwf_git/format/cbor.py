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


def decode(data: bytes) -> Any:
    """The inverse of `encode`. Raises Invalid for other bytes, including other forms of CBOR."""
    try:
        value, end = _decoded(data, 0, 0)
    except (IndexError, struct.error):
        raise Invalid("CBOR that is cut off") from None
    except UnicodeDecodeError:
        raise Invalid("CBOR with a text that is not UTF-8") from None
    if end != len(data):
        raise Invalid(f"CBOR with {len(data) - end} more bytes behind its value")
    return value


_SIZES = {24: (">B", 1, 24), 25: (">H", 2, 1 << 8), 26: (">I", 4, 1 << 16), 27: (">Q", 8, 1 << 32)}


def _decoded(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    first = data[at]
    at += 1
    major, number = first >> 5, first & 31
    if major == 7:
        return _simple(data, at, number)
    if number >= 24:
        if number not in _SIZES:
            raise Invalid("CBOR of indefinite length")
        form, size, least = _SIZES[number]
        (number,) = struct.unpack_from(form, data, at)
        at += size
        if number < least:
            raise Invalid("CBOR that is not deterministic: a number is longer than it must be")
    if major == 3:
        end = at + number
        if end > len(data):
            raise IndexError
        return data[at:end].decode("utf-8"), end
    if major <= 1:
        if number > MAX_INTEGER - major:
            raise Invalid("CBOR with an integer outside ±(2^53-1)")
        return (number if major == 0 else -1 - number), at
    if major in (2, 6):
        raise Invalid("CBOR with bytes or tags, which are not JSON")
    if depth >= MAX_DEPTH:
        raise Invalid(f"value is nested deeper than {MAX_DEPTH} levels")
    if number > len(data) - at:  # each item has a byte at least: nothing is made room for that isn't there
        raise IndexError
    if major == 4:
        items = []
        for _ in range(number):
            item, at = _decoded(data, at, depth + 1)
            items.append(item)
        return items, at
    entries: dict[str, Any] = {}
    before = b""
    for _ in range(number):
        if data[at] >> 5 != 3:
            raise Invalid("CBOR with a key that is not text")
        key, end = _decoded(data, at, depth)
        if data[at:end] <= before:
            raise Invalid("CBOR that is not deterministic: its keys are not in order")
        before = data[at:end]
        entries[key], at = _decoded(data, end, depth + 1)
    return entries, at


def _simple(data: bytes, at: int, number: int) -> tuple[Any, int]:
    if number in (20, 21, 22):
        return (False, True, None)[number - 20], at
    if number == 27:
        (value,) = struct.unpack_from(">d", data, at)
        if not math.isfinite(value):
            raise Invalid("CBOR with NaN or an infinity, which are not JSON")
        if value.is_integer() and abs(value) <= MAX_INTEGER:
            raise Invalid("CBOR that is not deterministic: a whole number is written as a float")
        return value, at + 8
    if number == 23:
        raise Invalid("CBOR with undefined, which is not JSON")
    raise Invalid("CBOR that is not deterministic: a short float, or a simple value")
