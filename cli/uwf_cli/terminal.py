"""Safe terminal output. Untrusted texts must not move the cursor, change colours or reorder text: control and
bidirectional characters are shown escaped."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from uwf_cli.streams import is_terminal as is_terminal
from uwf_git.base.thread_states import colour_of, label_of

if TYPE_CHECKING:
    from markdown_it.token import Token

# C0 but tab and newline, DEL, C1; the marks that reorder or hide text; surrogates; tag characters.
# Compiled when first used, which most calls never get to.
_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_ANSI = "\x1b\\[[0-9;]*m"
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_RESULT_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def escape(text: str) -> str:
    r"""Escape control and direction characters, as in `\x1b`, except tabs and line ends."""
    return text if text.isprintable() else re.sub(_UNSAFE, _shown, text.replace("\r\n", "\n"))


def escape_code(text: str) -> str:
    """As `escape`, for code under review and whatever else a person decides on: all that nobody sees as it is."""
    from uwf_git.base.text import written_out

    return written_out(text.replace("\r\n", "\n"), keep="\t\n")


def escape_value(value: Any) -> Any:
    """Escape every text in a JSON value."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(str(key)): escape_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escape_value(item) for item in value]
    return value


def _shown(match: re.Match[str]) -> str:
    from uwf_git.base.text import escaped

    return escaped(match.group())


def colours() -> bool:
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, *names: str) -> str:
    """Style an escaped text if colours are wanted."""
    codes = ";".join(STYLES[name] for name in names if name)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text and colours() else text


def status(word: str) -> str:
    """Return the word for people of a thread's state, or a check's result, in its colour."""
    return style(label_of(word), colour_of(word) or _RESULT_COLOURS.get(word, ""))


def width() -> int | None:
    """The terminal's columns, None if output isn't one."""
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().columns


def height() -> int | None:
    """The terminal's lines, None if output isn't one."""
    if not is_terminal(sys.stdout):
        return None
    import shutil

    return shutil.get_terminal_size().lines


def columns(text: str) -> int:
    """Return a text's columns, without styles."""
    plain = re.sub(_ANSI, "", text)
    return len(plain) if plain.isascii() else sum(_sizes(plain))


def _sizes(plain: str) -> Iterator[int]:
    from unicodedata import combining, east_asian_width

    for c in plain:
        yield 0 if combining(c) or c == "\u200d" else 2 if east_asian_width(c) in "WF" else 1


def table(
    rows: Iterable[Sequence[str]],
    header: Sequence[str] = (),
    free: int | None = None,
    names: Collection[int] = (),
) -> str:
    """Align rows in columns, for escaped and possibly styled texts. On a narrow terminal cells wrap between
    words, widest column first; only the column `free`, such as a title, is cut, and then those of `names`, which may
    be one long word. Cells that still don't fit continue on their own lines."""
    lines = [[_flat(cell) for cell in row] for row in rows]
    if header:
        lines.insert(0, [style(cell, "dim") for cell in header])
    if not lines:
        return ""
    widths = [max(columns(line[i]) for line in lines) for i in range(len(lines[0]))]
    room = width()
    if room is None or sum(widths) + 2 * (len(widths) - 1) <= room:
        return "\n".join(_beside(line, widths) for line in lines) + "\n"
    least = [max(_longest_word(line[i]) for line in lines) for i in range(len(widths))]
    narrow = {*names} if free is None else {*names, free}
    for place in narrow:
        least[place] = min(widths[place], _MIN_WIDTH if place == free else _MIN_NAME)
    least[-1] = max(least[-1], min(widths[-1], _MIN_WIDTH))
    narrowed = _narrowed(widths, least, room, free)
    if sum(narrowed) + 2 * (len(widths) - 1) <= room:
        widths = narrowed
    fitting = sum(end <= room for end in accumulate(widths, lambda end, size: end + 2 + size))
    shown = []
    for place, line in enumerate(lines):
        cells = list(line)
        for column in narrow:
            cells[column] = cut(cells[column], widths[column] if column < fitting else room - 4)
        beside = [_wrapped(cell, size) for cell, size in zip(cells[:fitting], widths, strict=False)]
        for number in range(max(map(len, beside), default=0)):
            shown.append(_beside([cell[number] if number < len(cell) else "" for cell in beside], widths))
        below = [] if header and not place else cells[fitting:]
        shown += [f"    {item}" for cell in _packed(below, room - 4) for item in _wrapped(cell, room - 4)]
    return "\n".join(shown) + "\n"


def numbers(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Right-align all cells but the first."""
    widths = [max(columns(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        (
            row[0],
            *(" " * (width - columns(cell)) + cell for cell, width in zip(row[1:], widths[1:], strict=True)),
        )
        for row in rows
    ]


_MIN_WIDTH = 16
"""Columns that a text gets at least beside others; one that has fewer stands below them."""
_MIN_NAME = 8
"""And those of a name that may be cut."""


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int, free: int | None) -> list[int]:
    # Cells wider than the terminal would be narrowed anyway.
    found = [max(low, min(size, room)) for size, low in zip(widths, least, strict=True)]
    for _ in range(sum(found) + 2 * (len(found) - 1) - room):
        able = [place for place in range(len(found)) if found[place] > least[place]]
        if not able:
            break
        found[free if free in able else max(able, key=lambda place: found[place])] -= 1
    return found


def _beside(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (size - columns(cell)) for cell, size in zip(cells, widths, strict=False))
    return "  ".join(padded).rstrip()


def _packed(cells: Iterable[str], room: int) -> list[str]:
    lines: list[str] = []
    for cell in filter(None, cells):
        if lines and columns(lines[-1]) + 2 + columns(cell) <= room:
            lines[-1] += f"  {cell}"
        else:
            lines.append(cell)
    return lines


def _longest_word(text: str) -> int:
    return max(map(columns, text.split()), default=0)


def wrapped(text: str, by: int) -> list[str]:
    """Wrap an escaped text at the terminal's edge with an indent."""
    room = width()
    lines = [text] if room is None else _wrapped(text, max(room - by, _MIN_WIDTH))
    return [" " * by + line for line in lines]


def _wrapped(text: str, room: int) -> list[str]:
    if columns(text) <= room:
        return [text]
    styled = re.fullmatch(f"({_ANSI})([^\x1b]*)({_ANSI})", text)
    begin, plain, end = styled.groups() if styled else ("", text, "")
    lines: list[str] = []
    taken = 0
    for word in plain.split():
        size = columns(word)
        if lines and taken + 1 + size <= room:
            lines[-1] += f" {word}"
            taken += 1 + size
        else:
            lines.append(word)
            taken = size
    return [f"{begin}{line}{end}" for line in lines]


def cut(text: str, room: int) -> str:
    """Shorten a text to a number of columns, and limit zero-width marks. A styled one loses its style if cut."""
    if _fits(text, room):
        return text
    plain = re.sub(_ANSI, "", text)[: max(room, 0) * _MARKS]
    taken = enumerate(accumulate(_sizes(plain)))
    end = next((place for place, size in taken if size >= room), len(plain))
    return plain[:end] + "…"


_MARKS = 8
"""Characters a column at most; written text has no more than four."""


def _fits(text: str, room: int) -> bool:
    if len(text) > max(room, 0) * _MARKS:
        text = re.sub(_ANSI, "", text)
    return len(text) <= max(room, 0) * _MARKS and columns(text) <= room


def around(text: str, place: int, room: int) -> str:
    """Return the part of a text around a position that fits."""
    if _fits(text, room):
        return text
    begin = max(0, min(place - room // 4, len(text) - room + 1))
    return cut(f"…{text[begin + 1 :]}" if begin else text, room)


def _flat(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Format names and values, escaped; multi-line values are indented, empty ones omitted."""
    shown = [(name, value) for name, value in pairs if value]
    size = max((len(name) for name, _ in shown), default=0)
    lines = []
    for name, value in shown:
        first, *rest = value.split("\n")
        lines.append(f"{style(name.ljust(size), 'dim')}  {first}")
        lines += [" " * (size + 2) + line if line else "" for line in rest]
    return "\n".join(lines) + "\n"


def markdown(text: str) -> str:
    """Render Markdown for the terminal. Nothing is hidden: HTML, comments and link addresses are shown as
    text."""
    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    room = min(width() or 80, 100)
    shown = StringIO()
    # Without hyperlinks: an address that differs from its text has to be seen.
    console = Console(
        file=shown,
        force_terminal=True,
        no_color=not colours(),
        width=room,
        legacy_windows=False,
        theme=Theme({"markdown.code": "cyan", "markdown.code_block": "none"}),
    )
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
    page = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    page.parsed = [_describe(token) for token in parser.parse(escape(text))]
    console.print(page)
    rendered = shown.getvalue()
    return rendered if colours() else re.sub(_ANSI, "", rendered)


def _describe(token: Token) -> Token:
    from markdown_it.token import Token

    if token.type == "image":
        address = _address(token, "src")
        alt = f"picture: {token.content}" if token.content.strip() else "picture"
        return Token("text", "", 0, content=f"[{alt}] ({address})")
    if token.type == "link_open":
        token.attrs["href"] = _address(token, "href")
    token.children = [_describe(child) for child in token.children] if token.children else token.children
    return token


def _address(token: Token, name: str) -> str:
    title = token.attrs.get("title")
    return f"{token.attrs.get(name, '')}" + (f' "{title}"' if title else "")
