"""How values read for people.

A command emits one value. That is its JSON and YAML; a view says how it reads as text:

    "forgot {name}, which was {hash}"                         a line
    Listing("{commit:short}  {subject}", empty="no commits")  a line for each object of a list
    Record("thread", ("next", "uwf thread run {thread}"))     an object's fields, one below the other
    Table("hash", ("by", "author"), empty="no versions")      a row for each object of a list

A column or field is a name that is also its key, or a pair of a name and a cell: a key, a template, or a function of
the object. Values arrive escaped (see `terminal`), and a view of one command alone may be any function of them.

Templates are those of `str.format`, with these formats besides: a style (`{name:bold}`), `status`, `role`, `short` (a
commit) and `counted NOUN`. One that has a field without a value, None or missing, is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from uwf_cli import terminal
from uwf_git.base.text import counted
from uwf_git.format.types import role_name

View = str | Callable[[Any], str]
"""How a value reads: a template, or a function of the value."""
Cell = str | Callable[[Any], str | None]
Column = str | tuple[str, Cell]
"""A column or field: its key, or its name with a key, a template or a function of the object."""
Pairs = Callable[[Any], Iterable[tuple[str, str]]]
"""Fields that depend on the value: their names and texts."""

_SHORT = 10  # characters of a commit's id


def render(view: View, value: Any) -> str:
    return _filled(view, value) if isinstance(view, str) else view(value)


class Table:
    """A row for each object of a list, in aligned columns. `empty` is the text of an empty list. The column at `free`
    is cut on a narrow terminal, and then those at `names`; `optional` columns are left out if no row has a text
    there."""

    def __init__(
        self,
        *columns: Column,
        empty: str = "",
        free: int | None = None,
        names: Collection[int] = (),
        optional: Sequence[str] = (),
    ) -> None:
        self._columns = list(map(_pair, columns))
        self._empty = empty
        self._free = free
        self._names = names
        self._optional = optional

    def __call__(self, rows: Sequence[Any]) -> str:
        if not rows:
            return self._empty
        columns = [
            (place, title, [_cell(cell, row) for row in rows])
            for place, (title, cell) in enumerate(self._columns)
        ]
        shown = [column for column in columns if column[1] not in self._optional or any(column[2])]
        titles = [title for _, title, _ in shown]
        names = [number for number, (place, _, _) in enumerate(shown) if place in self._names]
        free = None if self._free is None else self._free % len(titles)
        lines = list(zip(*(cells for _, _, cells in shown), strict=True))
        return terminal.table(lines, titles if any(titles) else (), free, names)


class Record:
    """The fields of an object, without those that have no text."""

    def __init__(self, *fields: Column | Pairs) -> None:
        self._fields = fields

    def __call__(self, value: Any) -> str:
        pairs: list[tuple[str, str]] = []
        for field in self._fields:
            if callable(field):
                pairs += field(value)
            else:
                name, cell = _pair(field)
                pairs.append((name, _cell(cell, value)))
        return terminal.fields(pairs)


class Listing:
    """A line, or several, for each object of a list. `empty` is shown for an empty list."""

    def __init__(self, each: View, empty: str = "") -> None:
        self._each = each
        self._empty = empty

    def __call__(self, rows: Iterable[Any]) -> str:
        return "\n".join(render(self._each, row) for row in rows) or self._empty


def _pair(column: Column) -> tuple[str, Cell]:
    return (column, column) if isinstance(column, str) else column


def _cell(cell: Cell, row: Any) -> str:
    if callable(cell):
        return cell(row) or ""
    if "{" in cell:
        return _filled(cell, row)
    value = row.get(cell)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None or value is False else str(value)


def _filled(template: str, value: Mapping[str, Any]) -> str:
    try:
        return template.format_map(_Part(value))
    except KeyError:
        return ""


class _Part:
    """A part of a value in a template. Raises KeyError if it is None."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, key: str) -> _Part:
        if self._value is None:
            raise KeyError(key)
        return _Part(self._value[key])

    def __format__(self, form: str) -> str:
        value = self._value
        if value is None:
            raise KeyError
        if form in terminal.STYLES:
            return terminal.style(str(value), form)
        kind, _, noun = form.partition(" ")
        match kind:
            case "status":
                return terminal.status(value)
            case "role":
                return role_name(value)
            case "short":
                return str(value[:_SHORT])
            case "counted":
                return counted(value, noun)
        return format(value, form)
