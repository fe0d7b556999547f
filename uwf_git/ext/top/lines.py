"""Untrusted texts as lines of a terminal: escaped, and bounded and cut at the edge, or wrapped if they ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style

from uwf_git.plugin import terminal, without_colours

LONGEST = 2_000  # characters of a line that are kept
MOST = 5_000  # lines of a text

STYLES = {
    "": Style(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "head": Style(bold=True),
    "good": Style(color="green"),
    "bad": Style(color="red"),
    "warn": Style(color="yellow"),
    "busy": Style(color="blue"),
    "calm": Style(color="cyan"),
    "chosen": Style(reverse=True),
    "pressed": Style(bold=True, reverse=True),
}
"""Names of styles, of the terminal's own 16 colours. Nothing is told by colour alone."""

_PATCH = {"+": "good", "-": "bad", "@": "calm"}


class Line(NamedTuple):
    """An escaped line, and the name of its style. `choice` is the number whose key chooses it, 0 for none. One that
    `asks` is wrapped and never cut, since it must be read to its end before it is answered."""

    text: str
    style: str = ""
    choice: int = 0
    asks: bool = False


def line(text: str, style: str = "", choice: int = 0) -> Line:
    """Return any text as a single line."""
    return Line(flat(text), style, choice)


def asking(text: str, style: str = "", choice: int = 0) -> Iterator[Line]:
    """Yield the lines of what a person is asked, with all invisible characters written out."""
    for item in text.split("\n"):
        yield Line(terminal.escape_code(item.removesuffix("\r")).expandtabs(4), style, choice, asks=True)


def wrapped(items: Sequence[Line], width: int) -> tuple[Line, ...]:
    """Return lines of which those that ask go on below, after an ellipsis, at a width in columns."""
    if width <= 0 or not any(item.asks and cell_len(item.text) > width for item in items):
        return tuple(items)
    return tuple(part for item in items for part in (_parts(item, width) if item.asks else [item]))


def _parts(item: Line, width: int) -> Iterator[Line]:
    if cell_len(item.text) <= width:
        yield item
        return
    for number, text in enumerate(chop_cells(item.text, max(width - 2, 2))):
        yield item._replace(text=f"… {text}" if number else text)


def lines(text: str, style: str = "", indent: str = "") -> Iterator[Line]:
    """Yield the lines of any text, without its colours; a last one says how many more there are."""
    items = without_colours(text).replace("\r\n", "\n").rstrip("\n").split("\n")
    for item in items[:MOST]:
        yield Line(indent + _shown(item), style)
    if len(items) > MOST:
        yield Line(f"[… {len(items) - MOST:,} more lines …]", "dim")


def patch(text: str) -> Iterator[Line]:
    """Yield the lines of a patch, with all invisible characters written out."""
    items = text.rstrip("\n").split("\n")
    for item in islice(items, MOST):
        style = "bold" if item.startswith(("+++ ", "--- ", "diff ")) else _PATCH.get(item[:1], "")
        yield Line(_cut(terminal.escape_code(item[:LONGEST]).expandtabs(4), len(item)), style)
    if len(items) > MOST:
        yield Line(f"[… {len(items) - MOST:,} more lines …]", "dim")


def code_line(before: str, text: str, kind: str) -> Line:
    """Return a line of code under review, of its `kind` in a patch, with all invisible characters written out."""
    shown = terminal.escape_code(text[:LONGEST]).expandtabs(4)
    return Line(_cut(before + shown, len(text)), _PATCH.get(kind, ""))


def flat(text: str, at_most: int = LONGEST) -> str:
    """Return any text on one line, escaped and cut to a number of characters."""
    start = text[: at_most + 1] if text.isprintable() else " ".join(text[: 2 * at_most].split())
    shown = terminal.escape(start[:at_most])
    return shown if len(start) <= at_most else shown + "…"


def _shown(text: str) -> str:
    return _cut(terminal.escape(text[:LONGEST]).expandtabs(4), len(text))


def _cut(shown: str, size: int) -> str:
    return shown if size <= LONGEST else f"{shown}…"


def fit(text: str, width: int, right: bool = False) -> str:
    """Return an escaped text in exactly `width` columns, with an ellipsis if it was cut."""
    if width <= 0:
        return ""
    size = cell_len(text[: 4 * width])
    if size > width or len(text) > 4 * width:
        return set_cell_size(text[: 4 * width], width - 1) + "…"
    return " " * (width - size) + text if right else text + " " * (width - size)


def shifted(text: str, columns: int) -> str:
    """Return a line without its first columns."""
    if not columns:
        return text
    before, _, after = (text, "", text[columns:]) if text.isascii() else ("", "", _after(text, columns))
    return f"…{after[1:]}" if after else ("…" if before else "")


def _after(text: str, columns: int) -> str:
    first = chop_cells(text, columns)[:1]
    return text[len(first[0]) :] if first else ""


def segments(parts: Sequence[tuple[str, str]], width: int, base: str = "") -> list[Segment]:
    """Return texts with their styles as a line of exactly `width` columns. `base` is the style below all."""
    below, row, room = STYLES[base], list[Segment](), width
    for text, style in parts:
        size = cell_len(text)
        if size > room:
            text = fit(text, room)
            size = room
        row.append(Segment(text, below + STYLES[style]))
        room -= size
        if not room:
            break
    if room:
        row.append(Segment(" " * room, below))
    return row
