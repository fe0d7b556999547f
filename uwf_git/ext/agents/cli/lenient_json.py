"""JSON in programs' output: too deep values, too large numbers, raw service errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

_DEEPEST = 64  # nesting levels; deeper values become text
_SAFE = 2**53 - 1
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_LOOKED_AT = 20_000  # characters of a text in which a service's error is looked for
_TRIES = 20  # of its braces that may begin it
_WRAPPED = re.compile(r"\A\[(.*)\]\Z", re.DOTALL)


def whole(text: str) -> Iterator[Any]:
    """Yield the JSON value after any leading lines."""
    for start in re.finditer(r"(?m)^\s*[\[{]", text):
        value = parse(text[start.start() :])
        if value is not None:
            yield value
            return
        if start.start() > 100_000:
            return


def parse(text: bytes | str) -> Any:
    """Parse JSON, or return None. Too deep values and unstorable numbers become text."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        value = _loads(text)
        if text.count("[") + text.count("{") <= _DEEPEST:
            return value
    except RecursionError:
        pass
    except ValueError:
        return None
    try:
        return _loads(_shallow(text))
    except (ValueError, RecursionError):
        return None


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=_number, parse_int=_integer, parse_constant=str)


def _shallow(text: str) -> str:
    kept: list[str] = []
    depth = done = start = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth == _DEEPEST + 1:
                start = token.start()
        elif sign in ("]", "}"):
            if depth == _DEEPEST + 1:
                kept += [text[done:start], json.dumps(text[start : token.end()])]
                done = token.end()
            depth -= 1
    return "".join((*kept, text[done:])) if kept else text


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _integer(text: str) -> int | str:
    return text if len(text) > 17 or abs(int(text)) > _SAFE else int(text)


def sentence(text: str) -> str:
    """Replace a service's JSON error in a text by its message: "slow down (429)"."""
    for brace in islice(re.finditer("{", text[:_LOOKED_AT]), _TRIES):
        try:
            value, end = json.JSONDecoder().raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        if not (sentence_here := _describe(value)):
            return text
        whole = f"{text[: brace.start()]}{sentence_here}{text[end:]}".strip()
        return _WRAPPED.sub(r"\1", whole)
    return text


def _describe(value: Any) -> str:
    error = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(error, dict) or not isinstance(message := error.get("message"), str):
        return ""
    codes = [str(each) for key in ("code", "status", "type") if isinstance(each := error.get(key), str | int)]
    inner = sentence(message)
    return inner if inner != message or not codes else f"{message} ({' '.join(dict.fromkeys(codes))})"
