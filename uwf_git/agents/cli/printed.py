"""JSON as programs print it, read such that a node can hold it.

Whatever is nested deeper than nodes can be, and numbers that none can hold, are kept as the text that was printed:
nobody is to lose the rest of an answer over them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

DEEPEST = 64
"""Levels of lists and mappings; what is below stands as text."""
_SAFE = 2**53 - 1
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def parse(text: bytes | str) -> Any:
    """The JSON value in a text; None where there is none."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        value = _loads(text)
        if text.count("[") + text.count("{") <= DEEPEST:
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
    """The same JSON with what is nested too deep as texts."""
    kept: list[str] = []
    depth = done = start = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth == DEEPEST + 1:
                start = token.start()
        elif sign in ("]", "}"):
            if depth == DEEPEST + 1:
                kept += [text[done:start], json.dumps(text[start : token.end()])]
                done = token.end()
            depth -= 1
    return "".join((*kept, text[done:])) if kept else text


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _integer(text: str) -> int | str:
    return text if len(text) > 17 or abs(int(text)) > _SAFE else int(text)
