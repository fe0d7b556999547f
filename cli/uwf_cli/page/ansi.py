"""A program's output as HTML: colours become classes, and a line is what a terminal would show of it at last.

Of escape sequences (ECMA-48) only SGR passes, as one of the classes of `base.css`: `f0` to `f15` and `b0` to `b15`,
`bold`, `dim`, `italic`, `underlined`. All others, strings such as OSC with what they hold, and control characters
are dropped; bidirectional and other misleading characters are written out.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import NamedTuple

from uwf_cli.terminal import escape
from uwf_git.base.text import without_colours

LONGEST = 10_000
"""Characters of a line that are shown."""

_TOKEN = re.compile(
    r"(?P<sgr>(?:\x1b\[|\x9b)[0-9;:]{0,1000}m)"
    r"|(?P<csi>(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|(?=\n)|$))"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])(?:[^\x07\x1b\x9c\n]|\x1b(?!\\))*(?:\x07|\x1b\\|\x9c|(?=\n)|$)"
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<back>[\r\x08])"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BITS = {1: "bold", 2: "dim", 3: "italic", 4: "underlined"}
_RGB = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0)),
    *((0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0)),
    *((92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)),
)  # xterm's
_LEVELS = (0, 95, 135, 175, 215, 255)


class Style(NamedTuple):
    """How characters look. `text` and `ground` are colours from 0 to 15, or None."""

    text: int | None = None
    ground: int | None = None
    bits: frozenset[int] = frozenset()

    @property
    def classes(self) -> str:
        names = [_BITS[bit] for bit in sorted(self.bits)]
        names += [] if self.text is None else [f"f{self.text}"]
        names += [] if self.ground is None else [f"b{self.ground}"]
        return " ".join(names)


PLAIN = Style()


def styled(text: str) -> str:
    """Return an output as HTML, for `pre`."""
    return styled_lines(text)[0] if _CONTROL.search(text) else html.escape(escape(text))


def styled_lines(text: str, style: Style = PLAIN, most: int | None = None) -> tuple[str, Style]:
    """Return lines as HTML, as `styled_line`."""
    lines = []
    for line in text.split("\n"):
        shown, style = styled_line(line, style, most)
        lines.append(shown)
    return "\n".join(lines), style


def styled_line(line: str, style: Style = PLAIN, most: int | None = None) -> tuple[str, Style]:
    """Return a line as HTML, and the style that the next begins with. Of a line with more than `most` characters,
    the rest is a number."""
    line = line.rstrip("\r")
    if not _CONTROL.search(line):
        rest = _rest(line, most)
        return _span(line[:most] if rest else line, style) + rest, style
    is_overwritten = "\r" in line or "\b" in line
    if is_overwritten and len(line) > 2 * LONGEST:  # cell by cell it would take seconds
        style = last_style(line[: line.rfind("\r") + 1], style)
        line, is_overwritten = line.rpartition("\r")[2], False
    parts, style = (_overwritten if is_overwritten else _runs)(line, style)
    if most is not None and (size := sum(len(text) for text, _ in parts)) > most:
        shown, room = [], most
        for text, look in parts:
            shown.append(_span(text[:room], look))
            room -= len(text[:room])
        return "".join(shown) + _more(size - most), style
    return "".join(_span(text, look) for text, look in parts), style


def plain(text: str) -> str:
    """Return an output's lines without what steers a terminal."""
    text = without_colours(text)  # of which there are most
    return _TOKEN.sub("", text) if _CONTROL.search(text) else text


def last_style(lines: str, style: Style = PLAIN) -> Style:
    """Return the style in which an output ends."""
    for match in _TOKEN.finditer(lines) if "\x1b" in lines or "\x9b" in lines else ():
        if match["sgr"]:
            style = _changed(style, match["sgr"])
    return style


def _rest(line: str, most: int | None) -> str:
    return _more(len(line) - most) if most is not None and len(line) > most else ""


def _more(characters: int) -> str:
    return f'<span class="cut">… {characters:,} more characters</span>'


def _span(text: str, style: Style) -> str:
    shown = html.escape(escape(text))
    return f'<span class="{style.classes}">{shown}</span>' if style != PLAIN and shown else shown


def _runs(line: str, style: Style) -> tuple[list[tuple[str, Style]], Style]:
    runs: list[tuple[str, Style]] = []
    at = 0
    for match in _TOKEN.finditer(line):
        if text := line[at : match.start()]:
            runs.append((text, style))
        at = match.end()
        if match["sgr"]:
            style = _changed(style, match["sgr"])
    if at < len(line):
        runs.append((line[at:], style))
    return runs, style


def _overwritten(line: str, style: Style) -> tuple[list[tuple[str, Style]], Style]:
    """As `_runs`, with characters that return to a column and write over others."""
    cells: list[tuple[str, Style]] = []
    column = at = 0
    for match in [*_TOKEN.finditer(line), None]:
        text = line[at : match.start() if match else len(line)]
        cells[column : column + len(text)] = [(character, style) for character in text]
        column += len(text)
        if match is None:
            break
        at = match.end()
        if match["sgr"]:
            style = _changed(style, match["sgr"])
        elif match["back"]:
            column = 0 if match["back"] == "\r" else max(0, column - 1)
        elif match["csi"] and match["csi"][-1] == "K":  # erases the line: what a progress bar does first
            erased = match["csi"].lstrip("\x1b\x9b[")[:-1]
            if erased in ("", "0"):
                del cells[column:]
            elif erased == "2":
                cells[:] = [(" ", PLAIN)] * column
    runs: list[tuple[str, Style]] = []
    begin = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index][1] != cells[begin][1]:
            runs.append(("".join(character for character, _ in cells[begin:index]), cells[begin][1]))
            begin = index
    return runs, style


@lru_cache(maxsize=4096)
def _changed(style: Style, sgr: str) -> Style:
    """Return the style after an SGR sequence; codes without a class change nothing."""
    codes = sgr.lstrip("\x1b\x9b[")[:-1].split(";")
    text, ground, bits = style
    index = 0
    while index < len(codes):
        first, *below = codes[index].split(":")
        code = _number(first)
        index += 1
        if code == 0:
            text, ground, bits = PLAIN
        elif code in _BITS or code == 21:
            is_off = below[:1] == ["0"]
            bit = 4 if code == 21 else code
            bits = bits - {bit} if is_off else bits | {bit}
        elif code in (22, 23, 24):
            bits = bits - {1, 2} if code == 22 else bits - {code - 20}
        elif code in (38, 48):
            colour, used = _extended(below, codes[index:])
            index += used
            if colour is not None:
                text, ground = (colour, ground) if code == 38 else (text, colour)
        elif code in (39, 49):
            text, ground = (None, ground) if code == 39 else (text, None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            text = code - 30 if code < 90 else code - 82
        elif 40 <= code <= 47 or 100 <= code <= 107:
            ground = code - 40 if code < 100 else code - 92
    return Style(text, ground, bits)


def _extended(below: list[str], after: list[str]) -> tuple[int | None, int]:
    """Return the colour of 38 or 48, which has its parts behind colons or as the next codes, and the codes used."""
    parts, used = (below, 0) if below else (after, len(after))
    if parts[:1] == ["5"] and len(parts) > 1:
        return _of_256(_number(parts[1])), min(used, 2)
    if parts[:1] == ["2"] and len(parts) > 3:
        # Behind colons a colour space comes first.
        red, green, blue = parts[2:5] if below and len(parts) > 4 else parts[1:4]
        return _nearest(_number(red), _number(green), _number(blue)), min(used, 4)
    return None, used


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _of_256(number: int) -> int | None:
    if number < 16:
        return number
    if number > 255:
        return None
    if number >= 232:
        return _nearest(*[8 + 10 * (number - 232)] * 3)
    cube = number - 16
    return _nearest(_LEVELS[cube // 36], _LEVELS[cube // 6 % 6], _LEVELS[cube % 6])


@lru_cache(maxsize=4096)
def _nearest(red: int, green: int, blue: int) -> int:
    wanted = (min(red, 255), min(green, 255), min(blue, 255))
    return min(range(16), key=lambda one: sum((a - b) ** 2 for a, b in zip(_RGB[one], wanted, strict=True)))
