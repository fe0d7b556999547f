"""Generating a text that matches a regular expression, for sample outputs.

It walks Python's parsed pattern, taking first branches, minimal repetitions and plain characters, so texts
are short, readable and deterministic, unlike random generators' (`rstr`). Look-around is left to luck: the
result is checked.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

MOST = 10_000

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@ ,!#\n\té中"
_IN_EXPRESSION = r"[(,]\s*/((?:[^/\\\n]|\\.)+)/[im]*(?=\s*[,)])"
_CATEGORIES = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " \n\t",
    "CATEGORY_WORD": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_é中",
}


def matching(pattern: str, least: int = 0, most: int = MOST) -> str | None:
    """Return a matching text of `least` to `most` characters, None if none is found. Raises re.error."""
    compiled = re.compile(pattern)
    tree = _parse(pattern)
    if tree is None:
        return None
    for extra in (0, 1, 2, 4, 8, 16, least, 2 * least):
        text = _Writer(extra).write(tree)
        if text is None:
            return None
        for padded in (text, text + "a" * (least - len(text)), "a" * (least - len(text)) + text):
            if least <= len(padded) <= min(most, MOST) and compiled.search(padded):
                return padded
    return None


def matched_in(expression: str) -> list[str]:
    """Return a matching text for each regular expression in a JSONata expression, if found."""
    texts = []
    for pattern in re.findall(_IN_EXPRESSION, expression):
        with suppress(re.error):
            texts.append(matching(pattern))
    return [text for text in texts if text]


def _parse(pattern: str) -> Any:
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _parser.parse(pattern)


class _Writer:
    """Generates one text, with extra repetitions."""

    def __init__(self, extra: int) -> None:
        self._extra = extra
        self._groups: dict[int, str] = {}
        self._length = 0

    def write(self, nodes: Any) -> str | None:
        parts: list[str] = []
        for operation, argument in nodes:
            part = self._node(str(operation), argument)
            if part is None or self._length > MOST:
                return None
            parts.append(part)
        return "".join(parts)

    def _node(self, operation: str, argument: Any) -> str | None:
        match operation:
            case "LITERAL":
                return self._one(chr(argument))
            case "NOT_LITERAL":
                return self._one(next(item for item in _PLAIN if ord(item) != argument))
            case "ANY":
                return self._one("a")
            case "IN":
                return self._one(_member(argument))
            case "BRANCH":
                return self.write(argument[1][0])
            case "SUBPATTERN":
                text = self.write(argument[3])
                if text is not None and argument[0] is not None:
                    self._groups[argument[0]] = text
                return text
            case "ATOMIC_GROUP":
                return self.write(argument)
            case "GROUPREF":
                return self._groups.get(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = argument
                times = min(int(low) + self._extra, int(high), MOST + 1)
                return self.write(list(inner) * times)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                return ""
        return None

    def _one(self, character: str | None) -> str | None:
        self._length += 1
        return character


def _member(items: Any) -> str | None:
    negated = bool(items) and str(items[0][0]) == "NEGATE"
    parts = items[1:] if negated else items
    for character in _PLAIN:
        if any(_has(part, character) for part in parts) != negated:
            return character
    for operation, argument in parts if not negated else ():
        if str(operation) == "LITERAL":
            return chr(argument)
        if str(operation) == "RANGE":
            return chr(argument[0])
    return None


def _has(part: Any, character: str) -> bool:
    operation, argument = str(part[0]), part[1]
    if operation == "LITERAL":
        return bool(ord(character) == argument)
    if operation == "RANGE":
        return bool(argument[0] <= ord(character) <= argument[1])
    name = str(argument)
    if name in _CATEGORIES:
        return character in _CATEGORIES[name]
    opposite = name.replace("CATEGORY_NOT_", "CATEGORY_")
    return opposite in _CATEGORIES and character not in _CATEGORIES[opposite]
