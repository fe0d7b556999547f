"""Reading deterministic CBOR, the form of json-cas's files."""

from __future__ import annotations

import math
import struct
from typing import Any

from uwf_git.plugin import Invalid, cbor


def decode(data: bytes) -> Any:
    """The inverse of `cbor.encode`. Raises Invalid for other bytes, including other forms of CBOR."""
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
        if number > cbor.MAX_INTEGER - major:
            raise Invalid("CBOR with an integer outside ±(2^53-1)")
        return (number if major == 0 else -1 - number), at
    if major in (2, 6):
        raise Invalid("CBOR with bytes or tags, which are not JSON")
    if depth >= cbor.MAX_DEPTH:
        raise Invalid(f"value is nested deeper than {cbor.MAX_DEPTH} levels")
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
        if value.is_integer() and abs(value) <= cbor.MAX_INTEGER:
            raise Invalid("CBOR that is not deterministic: a whole number is written as a float")
        return value, at + 8
    if number == 23:
        raise Invalid("CBOR with undefined, which is not JSON")
    raise Invalid("CBOR that is not deterministic: a short float, or a simple value")
