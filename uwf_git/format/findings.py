"""What a check finds: a line, a stable code and a message; and the list that collects them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from uwf_git.base.text import closest, nearest, one_line
from uwf_git.format.document import Document, Mark
from uwf_git.format.schema import ValuePath

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """One problem. `line` and `column` count from 1; `code` is stable; `hint` says what to do, or ""."""

    line: int
    column: int
    severity: Severity
    code: str
    message: str
    hint: str = ""


class Findings:
    """The findings about one document. At most `LIMIT` are kept: nobody reads more."""

    LIMIT = 500
    SUGGESTIONS = 40

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[Finding, None] = {}
        self._places: dict[ValuePath, ValuePath] = {}
        self._suggested = 0

    def reads(self, path: ValuePath, place: ValuePath) -> None:
        """Notes that the value of `path` was taken from `place`, where a key stands that means the same: findings
        about it are told there."""
        self._places[path] = place

    def error(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Adds what keeps the workflow from being registered, at the value of path."""
        self._add(self._document.mark(self._place(path)), "error", code, message, hint)

    def key_error(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Adds an error at the key of path."""
        self._add(self._document.key_mark(self._place(path)), "error", code, message, hint)

    def warning(self, path: ValuePath, code: str, message: str, hint: str = "") -> None:
        """Adds what is probably a slip but can run, at the key of path."""
        self._add(self._document.key_mark(self._place(path)), "warning", code, message, hint)

    def at(self, mark: Mark, code: str, message: str, hint: str = "") -> None:
        """Adds an error at a place that is no value's, such as that of a key that stands twice."""
        self._add(mark, "error", code, message, hint)

    def nearest(self, name: str, known: Iterable[str]) -> str:
        """A hint for a name that isn't known. Only the first findings get one: comparing thousands of
        names with thousands would take minutes."""
        self._suggested += 1
        return nearest(name, known) if self._suggested <= self.SUGGESTIONS else ""

    def closest(self, name: str, known: Iterable[str]) -> str | None:
        """The name that was probably meant, within the same limit."""
        return closest(name, known) if self._suggested < self.SUGGESTIONS else None

    def raw(self, path: ValuePath) -> str | None:
        """The text of the scalar at path as it was written."""
        return self._document.raw(self._place(path))

    def sorted(self) -> list[Finding]:
        """All findings in the order of the text, errors first where they share a place."""
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
