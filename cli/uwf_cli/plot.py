"""Bar charts as SVG: text in, text out, the same for the same. Readable on light and on dark, and without
colour: each bar has its name before it and its value behind it. One is a file with its style, or a part of a page that
has the style of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from uwf_git.text import shortened

_WIDTH = 760
_ROW = 30
_BAR = 18
_TOP = 76
_EDGE = 24
_LETTER = 7.2  # pixels, about, of a letter at 13 pixels
_LONGEST = 34  # letters of a name
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """\
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-size: 17px; font-weight: 600; }
    .note { fill: #59636e; }
    .bar { fill: #3b6fb6; }
    .page { fill: #ffffff; }
    .axis { stroke: #8c959f; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .note { fill: #9198a1; }
      .bar { fill: #6ea8fe; }
      .page { fill: #0d1117; }
      .axis { stroke: #656c76; }
    }"""


class Bar(NamedTuple):
    """`value` decides the length; None means that nothing is known. `text` is what stands behind it."""

    name: str
    value: float | None
    text: str


class _Drawn(NamedTuple):
    """The rows of a chart, below `top`."""

    width: int
    height: int
    lines: list[str]


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> str:
    """An SVG document, its last line end included. `note` says what the bars mean."""
    drawn = _rows(bars, _TOP)
    lines = [
        _opening(drawn, title, ""),
        f"  <title>{_xml(title)}</title>",
        f"  <style>\n{_STYLE}\n  </style>",
        f'  <rect class="page" width="{drawn.width}" height="{drawn.height}"/>',
        f'  <text class="title" x="{_EDGE}" y="34">{_xml(title)}</text>',
        f'  <text class="note" x="{_EDGE}" y="56">{_xml(note)}</text>',
    ]
    return "\n".join((*lines, *drawn.lines, "</svg>")) + "\n"


def bars_drawing(title: str, bars: Sequence[Bar]) -> str:
    """An element of a page. What it shows is said in its text alternative."""
    drawn = _rows(bars, 8)
    said = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    lines = [
        _opening(drawn, title, "chart"),
        f"  <title>{_xml(title)}</title>",
        f"  <desc>{_xml(said)}</desc>",
    ]
    return "\n".join((*lines, *drawn.lines, "</svg>"))


def _opening(drawn: _Drawn, title: str, classes: str) -> str:
    given = f' class="{classes}"' if classes else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{given} viewBox="0 0 {drawn.width} {drawn.height}"'
        f' width="{drawn.width}" height="{drawn.height}" role="img" aria-label="{_xml(title)}">'
    )


def _rows(bars: Sequence[Bar], top: int) -> _Drawn:
    names = [shortened(bar.name, _LONGEST) for bar in bars]
    left = _EDGE + round(max(map(_wide, names), default=0)) + 10
    behind = round(max((_wide(bar.text) for bar in bars), default=0)) + 10
    room = max(120, _WIDTH - left - behind - _EDGE)
    width, height = left + room + behind + _EDGE, top + _ROW * max(len(bars), 1) + _EDGE
    most = max((bar.value for bar in bars if bar.value), default=0)
    lines = []
    if not bars:
        lines.append(f'  <text class="note" x="{_EDGE}" y="{top + 20}">nothing to show</text>')
    for number, (bar, name) in enumerate(zip(bars, names, strict=True)):
        y = top + number * _ROW
        base = y + _BAR - 4
        length = round(room * bar.value / most, 1) if bar.value and most else 0
        lines.append(f'  <text x="{left - 10}" y="{base}" text-anchor="end">{_xml(name)}</text>')
        if length:
            lines.append(
                f'  <rect class="bar" x="{left}" y="{y}" width="{length:g}" height="{_BAR}" rx="2"/>'
            )
        lines.append(f'  <text class="note" x="{left + length + 6:g}" y="{base}">{_xml(bar.text)}</text>')
    if bars:
        bottom = top + len(bars) * _ROW - (_ROW - _BAR)
        lines.append(f'  <line class="axis" x1="{left}" y1="{top - 4}" x2="{left}" y2="{bottom + 4}"/>')
    return _Drawn(width, height, lines)


def _wide(text: str) -> float:
    """How wide a text is, about, in units of the picture: capitals and digits are wider than most letters."""
    return sum(
        _LETTER * (1.35 if each.isupper() or each.isdigit() or not each.isascii() else 1) for each in text
    )


def _xml(text: str) -> str:
    return escape(_NOT_XML.sub("�", text), {'"': "&quot;"})
