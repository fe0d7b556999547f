"""SVG charts: bars, stacks over time, and pairs on one scale. Deterministic; readable on light and dark backgrounds
and without colours. Standalone, or part of a page with its own style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeVar
from xml.sax.saxutils import escape

from uwf_git.base.text import for_xml, shortened

_WIDTH = 760
_NARROW = 330  # pixels: the smallest telephone, without the margins of its page
_ROW = 30
_STACKED = 50  # a row with its name above it
_BAR = 18
_TOP = 76
_BARE = 8  # of a chart with its title elsewhere
_EDGE = 24
_LETTER = 7.2  # pixels, about, of a letter at 13 pixels
_LONGEST = 34  # letters of a name

_STYLE = """\
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-size: 17px; font-weight: 600; }
    .note { fill: #59636e; }
    .bar, .after { fill: #3b6fb6; }
    .before { fill: none; stroke: #59636e; stroke-width: 2; }
    .spread { stroke: #8c959f; stroke-width: 2; }
    .page { fill: #ffffff; }
    .axis { stroke: #8c959f; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .note { fill: #9198a1; }
      .bar, .after { fill: #6ea8fe; }
      .before { stroke: #9198a1; }
      .page { fill: #0d1117; }
      .axis { stroke: #656c76; }
    }"""


class Bar(NamedTuple):
    """A bar; None is unknown. `text` is shown behind it."""

    name: str
    value: float | None
    text: str


class Spread(NamedTuple):
    """Mean, minimum and maximum, from 0 to 1."""

    least: float
    mean: float
    most: float


class Pair(NamedTuple):
    """Two spreads on one scale. `text` is shown behind them."""

    name: str
    before: Spread | None
    after: Spread | None
    text: str


class Stack(NamedTuple):
    """A column of `parts`, in the order of the chart's names; the total is shown as `text` when it is pointed at."""

    name: str
    parts: Sequence[float]
    text: str


class _Drawn(NamedTuple):
    """The rows of a chart, below `top`."""

    width: int
    height: int
    lines: list[str]


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> str:
    """Return an SVG document. `note` explains the bars."""
    return _document(title, note, _bars(bars, _TOP))


def pair_chart(title: str, note: str, pairs: Sequence[Pair]) -> str:
    """Return an SVG document of pairs: a circle before, a dot after, a line for the spread."""
    return _document(title, note, _pairs(pairs, _TOP))


def bars_drawing(title: str, bars: Sequence[Bar]) -> str:
    """Return two elements, of which the page's style shows one: `wide`, and `narrow` with names above the
    bars. Both have text alternatives."""
    return _elements(title, bars, _bars(bars, _BARE), _bars(bars, _BARE, narrow=True))


def pairs_drawing(title: str, pairs: Sequence[Pair]) -> str:
    return _elements(title, pairs, _pairs(pairs, _BARE), _pairs(pairs, _BARE, narrow=True))


STACKED = 8
"""Parts of a column that have a colour of their own, `part-0` to `part-7` in a style."""

_STACKS, _STACKS_NARROW = (1000, 220), (_NARROW, 190)
_GRID = 4  # lines above the axis
_LABEL = 90  # pixels between two names below the axis
_COLUMN = 44


def stacks_drawing(title: str, stacks: Sequence[Stack], text: Callable[[float, int], str]) -> str:
    """Return two elements, as `bars_drawing`, of columns on one axis, such as days. `text` formats a value with the
    decimals that tell the marks of the axis apart."""
    wide, narrow = (_stacks(stacks, size, text) for size in (_STACKS, _STACKS_NARROW))
    return _elements(title, stacks, wide, narrow)


def _stacks(stacks: Sequence[Stack], size: tuple[int, int], text: Callable[[float, int], str]) -> _Drawn:
    width, height = size
    step = _round((max((sum(stack.parts) for stack in stacks), default=0.0) or 1.0) / _GRID)
    marks = [step * line for line in range(_GRID + 1)]
    highest = marks[-1]
    labels = [text(mark, _decimals(step)) for mark in marks]
    left = round(max(map(_wide, labels))) + 8
    bottom = height - _EDGE
    room, rise = (width - left) / max(len(stacks), 1), bottom - _BARE
    lines = []
    for mark, label in zip(marks, labels, strict=True):
        y = round(bottom - rise * mark / highest, 1)
        lines.append(f'  <line class="axis" x1="{left}" y1="{y:g}" x2="{width}" y2="{y:g}"/>')
        lines.append(
            f'  <text class="note" x="{left - 6}" y="{y + 4:g}" text-anchor="end">{_xml(label)}</text>'
        )
    every = max(1, round(_LABEL / room))
    for number, stack in enumerate(stacks):
        x, y = left + number * room, float(bottom)
        lines.append(f"  <g><title>{_xml(f'{stack.name}: {stack.text}')}</title>")
        for place, part in enumerate(stack.parts):
            tall = rise * part / highest
            y -= tall
            if tall > 0:
                box = f'x="{x + room * 0.1:.1f}" y="{y:.1f}" width="{min(room * 0.8, _COLUMN):.1f}" height="{tall:.1f}"'
                lines.append(f'    <rect class="part-{min(place, STACKED - 1)}" {box}/>')
        lines.append("  </g>")
        if number % every == 0 and x + _wide(stack.name) <= width:
            lines.append(f'  <text class="note" x="{x:.0f}" y="{height - 6}">{_xml(stack.name)}</text>')
    return _Drawn(width, height, lines)


def _round(value: float) -> float:
    """Return the next larger number that is 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if value <= power * factor * (1 + 1e-9))


def _decimals(step: float) -> int:
    exponent = Decimal(f"{step:.2g}").normalize().as_tuple().exponent
    return max(0, -int(exponent))


def _document(title: str, note: str, drawn: _Drawn) -> str:
    lines = [
        _opening(drawn, title, ""),
        f"  <title>{_xml(title)}</title>",
        f"  <style>\n{_STYLE}\n  </style>",
        f'  <rect class="page" width="{drawn.width}" height="{drawn.height}"/>',
        f'  <text class="title" x="{_EDGE}" y="34">{_xml(title)}</text>',
        f'  <text class="note" x="{_EDGE}" y="56">{_xml(note)}</text>',
    ]
    return "\n".join((*lines, *drawn.lines, "</svg>")) + "\n"


def _elements(title: str, rows: Sequence[Bar | Pair | Stack], wide: _Drawn, narrow: _Drawn) -> str:
    return _element(title, rows, wide, "chart wide") + "\n" + _element(title, rows, narrow, "chart narrow")


def _element(title: str, rows: Sequence[Bar | Pair | Stack], drawn: _Drawn, classes: str) -> str:
    description = "; ".join(f"{row.name}: {row.text}" for row in rows)
    lines = [
        _opening(drawn, title, classes),
        f"  <title>{_xml(title)}</title>",
        f"  <desc>{_xml(description)}</desc>",
    ]
    return "\n".join((*lines, *drawn.lines, "</svg>"))


def _opening(drawn: _Drawn, title: str, classes: str) -> str:
    class_attribute = f' class="{classes}"' if classes else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{class_attribute} viewBox="0 0 {drawn.width} {drawn.height}"'
        f' width="{drawn.width}" height="{drawn.height}" role="img" aria-label="{_xml(title)}">'
    )


class _Place(NamedTuple):
    """A row's position."""

    left: int
    room: int
    y: int


def _bars(bars: Sequence[Bar], top: int, narrow: bool = False) -> _Drawn:
    most = max((bar.value for bar in bars if bar.value), default=0)

    def draw(bar: Bar, place: _Place) -> tuple[float, list[str]]:
        length = round(place.room * bar.value / most, 1) if bar.value and most else 0
        box = f'x="{place.left}" y="{place.y}" width="{length:g}" height="{_BAR}"'
        return place.left + length, [f'  <rect class="bar" {box} rx="2"/>'] if length else []

    return (_stacked if narrow else _rows)(bars, top, draw)


def _pairs(pairs: Sequence[Pair], top: int, narrow: bool = False) -> _Drawn:
    def draw(pair: Pair, place: _Place) -> tuple[float, list[str]]:
        middle = place.y + _BAR // 2
        lines = []
        for spread, kind, offset in ((pair.before, "before", -4), (pair.after, "after", 4)):
            if spread is not None:
                least, mean, most = (round(place.left + place.room * value, 1) for value in spread)
                y = middle + offset
                lines.append(f'  <line class="spread" x1="{least:g}" y1="{y}" x2="{most:g}" y2="{y}"/>')
                lines.append(f'  <circle class="{kind}" cx="{mean:g}" cy="{y}" r="4"/>')
        return place.left + place.room + 6, lines

    return (_stacked if narrow else _rows)(pairs, top, draw)


_Row = TypeVar("_Row", Bar, Pair)


def _rows(rows: Sequence[_Row], top: int, draw: Callable[[_Row, _Place], tuple[float, list[str]]]) -> _Drawn:
    names = [shortened(row.name, _LONGEST) for row in rows]
    begin = _EDGE + round(max(map(_wide, names), default=0)) + 10
    behind = round(max((_wide(row.text) for row in rows), default=0)) + 10
    room = max(120, _WIDTH - begin - behind - _EDGE)
    width, height = begin + room + behind + _EDGE, top + _ROW * max(len(rows), 1) + _EDGE
    lines = []
    if not rows:
        lines.append(f'  <text class="note" x="{_EDGE}" y="{top + 20}">nothing to show</text>')
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        y = top + number * _ROW
        base = y + _BAR - 4
        end, drawn = draw(row, _Place(begin, room, y))
        lines.append(f'  <text x="{begin - 10}" y="{base}" text-anchor="end">{_xml(name)}</text>')
        lines += drawn
        lines.append(f'  <text class="note" x="{end + 6:g}" y="{base}">{_xml(row.text)}</text>')
    if rows:
        bottom = top + len(rows) * _ROW - (_ROW - _BAR)
        lines.append(f'  <line class="axis" x1="{begin}" y1="{top - 4}" x2="{begin}" y2="{bottom + 4}"/>')
    return _Drawn(width, height, lines)


def _stacked(
    rows: Sequence[_Row], top: int, draw: Callable[[_Row, _Place], tuple[float, list[str]]]
) -> _Drawn:
    behind = round(max((_wide(row.text) for row in rows), default=0)) + 10
    room = max(60, _NARROW - behind)
    lines = [] if rows else [f'  <text class="note" x="0" y="{top + 20}">nothing to show</text>']
    for number, row in enumerate(rows):
        y = top + number * _STACKED + 20
        end, drawn = draw(row, _Place(0, room, y))
        lines.append(f'  <text x="0" y="{y - 5}">{_xml(shortened(row.name, _LONGEST))}</text>')
        lines += drawn
        lines.append(f'  <text class="note" x="{end + 6:g}" y="{y + _BAR - 4}">{_xml(row.text)}</text>')
    return _Drawn(room + behind, top + _STACKED * max(len(rows), 1), lines)


def _wide(text: str) -> float:
    return sum(
        _LETTER * (1.35 if item.isupper() or item.isdigit() or not item.isascii() else 1) for item in text
    )


def _xml(text: str) -> str:
    return escape(for_xml(text), {'"': "&quot;"})
