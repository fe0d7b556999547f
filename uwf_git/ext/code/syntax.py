"""Findings from a syntax tree, for both languages: violations of the contract, and positions of the
descriptor's parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from uwf_git.plugin import Finding, SourceMark, ValuePath, one_line

_MAX_BREACHES = 200  # reported breaches
_MOST_LEVELS = 24  # of a descriptor whose places are looked for

Places = dict[ValuePath, SourceMark]
Tree = TypeVar("Tree")
Part = tuple[str | int, Tree | None, Tree | None]
"""A part of a value in a syntax tree: its key or position, what the key is written as, if it is, and its value."""


class Breaches:
    """A growing list of violations."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    def add(
        self,
        mark: SourceMark,
        code: str,
        message: str,
        hint: str = "",
        severity: Literal["error", "warning"] = "error",
    ) -> None:
        """Add a violation. `code` is stable."""
        if len(self._found) < _MAX_BREACHES:
            self._found[Finding(mark.line, mark.column, severity, code, one_line(message, 400), hint)] = None

    def sorted(self) -> list[Finding]:
        return sorted(self._found)


def places_in(
    top: Tree | None,
    resolved: Callable[[Tree | None], Tree | None],
    mark: Callable[[Tree], SourceMark],
    parts: Callable[[Tree, ValuePath], Iterable[Part[Tree]]],
) -> tuple[Places, Places]:
    """Return the positions of a descriptor's literal values and keys. `resolved` resolves names, `parts`
    lists a value's parts."""
    marks: Places = {}
    keys: Places = {}
    pending: list[tuple[ValuePath, Tree | None]] = [((), top)]
    while pending:
        path, tree = pending.pop()
        value = resolved(tree)
        if value is None:
            continue
        marks[path] = mark(value)
        if len(path) == _MOST_LEVELS:
            continue
        for step, key, part in parts(value, path):
            if key is not None:
                keys[(*path, step)] = mark(key)
            pending.append(((*path, step), part))
    return marks, keys


def check_meta(meta: Any, mark: SourceMark, breaches: Breaches) -> None:
    """Check the `meta` of a workflow script."""
    if not isinstance(meta, dict):
        breaches.add(mark, "bad-meta", "meta is not an object", "{ name, description }")
        return
    for key in ("name", "description"):
        if not isinstance(meta.get(key), str) or not meta[key].strip():
            breaches.add(mark, "missing-key", f"meta has no {key}, which is text")
    if "tolerates" in meta and _share(meta["tolerates"]) is None:
        hint = 'tolerates: 3, or tolerates: "5%"'
        breaches.add(mark, "bad-meta", "meta: tolerates is neither a number of calls nor a percentage", hint)


def tolerated(meta: Any, asked: int) -> int:
    """Return how many of the calls that a script asked may fail by its `meta`."""
    share = _share(meta.get("tolerates", 0)) if isinstance(meta, dict) else None
    number, is_percentage = share or (0, False)
    return asked * number // 100 if is_percentage else number


def _share(value: Any) -> tuple[int, bool] | None:
    """Parse a number, or a percentage of at most 100."""
    if isinstance(value, str) and (match := re.fullmatch(r"(100|[0-9]{1,2}) ?%", value)) is not None:
        return int(match[1]), True
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 31 or value % 1:
        return None
    return int(value), False
