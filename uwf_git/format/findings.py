"""Findings of a check: position, stable code, message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from uwf_git.base.text import closest, nearest, one_line
from uwf_git.format.document import Document, Mark
from uwf_git.format.schema import ValuePath

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """A problem. `line` and `column` count from 1; `code` is stable; `hint` may be ""."""

    line: int
    column: int
    severity: Severity
    code: str
    message: str
    hint: str = ""


class Findings:
    """The findings of one document, at most `LIMIT`."""

    LIMIT = 500
    SUGGESTIONS = 40

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[Finding, None] = {}
        self._places: dict[ValuePath, ValuePath] = {}
        self._suggested = 0

    def reads(self, path: ValuePath, place: ValuePath) -> None:
        """Note that the value of `path` was read from a synonym at `place`, where its findings are reported."""
        self._places[path] = place

    def error(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Add an error at a value."""
        self._add(self._document.mark(self._place(path)), "error", code, message, hint)

    def key_error(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Add an error at a key."""
        self._add(self._document.key_mark(self._place(path)), "error", code, message, hint)

    def warning(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Add a warning, for a probable mistake that can run, at a key."""
        self._add(self._document.key_mark(self._place(path)), "warning", code, message, hint)

    def at(self, mark: Mark, code: str, message: str, hint: str = "") -> None:
        """Add an error at a position without a value, such as a duplicate key."""
        self._add(mark, "error", code, message, hint)

    def nearest(self, name: str, known: Iterable[str]) -> str:
        """Return a did-you-mean hint. Only for the first findings, since comparing thousands of names would
        take minutes."""
        self._suggested += 1
        return nearest(name, known) if self._suggested <= self.SUGGESTIONS else ""

    def closest(self, name: str, known: Iterable[str]) -> str | None:
        """Return the closest name, with the same limit."""
        return closest(name, known) if self._suggested < self.SUGGESTIONS else None

    def raw(self, path: ValuePath) -> str | None:
        return self._document.raw(self._place(path))

    def sorted(self) -> list[Finding]:
        """Return all findings in document order, errors first."""
        return sorted(self._found)

    def _place(self, path: ValuePath) -> ValuePath:
        for length in range(len(path), 0, -1):
            if (place := self._places.get(path[:length])) is not None:
                return self._place((*place, *path[length:]))
        return path

    def _add(self, mark: Mark, severity: Severity, code: str, message: str, hint: str) -> None:
        if len(self._found) < self.LIMIT:
            message = one_line(message, 400) + (f" (in {mark.within})" if mark.within else "")
            self._found[Finding(mark.line, mark.column, severity, code, message, one_line(hint, 400))] = None
