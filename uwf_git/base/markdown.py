"""Markdown that shows untrusted texts unchanged.

Each text is escaped for its place: none can end a table cell, a quote or a fence, become HTML, a link or a
heading, or colour a terminal. An agent's own Markdown stays Markdown, with its headings below the page's.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from uwf_git.base.text import fenced, printable, shortened

_LONGEST_CELL = 300
_LONGEST_FIELD = 200  # characters of a table cell
_WITHOUT_END = 1 << 30
_SHORT = 100

_MARKUP = r"[\\`*_{}\[\]<>#|~$!&@]"
_LINE_START = r"^(\s*)([-+=>]|\d+(?=[.)]))"
_WORD = r"[^\W_]+(?:_[^\W_]+)*"
_CODE_FENCE = r" {0,3}(`{3,}+(?!.*`)|~{3,}+)"
_HEADING = r"( {0,3})(#{1,6})(?=[ \t]|$)"
_UNDERLINE = r" {0,3}(=+|-+)[ \t]*"
_NO_PARAGRAPH = r" {4}|\t| {0,3}(?:[-+*>|]|\d+[.)])"


def inline(text: str, at_most: int = _LONGEST_CELL) -> str:
    """Escape a text for one line or a table."""
    return _short(text, at_most) if len(text) <= _SHORT else _inline(text, at_most)


def _inline(text: str, at_most: int) -> str:
    escaped = _flat(text, at_most)
    if "_" in escaped:
        escaped = re.sub(_WORD, lambda word: word.group().replace("_", "\0"), escaped)
    escaped = re.sub(_MARKUP, _escape, escaped)
    escaped = re.sub(_LINE_START, lambda match: match.group(1) + _shield(match.group(2)), escaped)
    return escaped.replace("\0", "_")


# Names, verdicts and titles: many pages show the same.
_short = functools.lru_cache(1024)(_inline)


def paragraphs(text: str) -> str:
    return "\n\n".join(inline(part, 4000) for part in re.split(r"\n\s*\n", text) if part.strip())


def code(text: str, at_most: int = _LONGEST_CELL) -> str:
    """Return a code span on one line, also for tables."""
    flat = _flat(text, at_most) or " "
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{padding}{flat}{padding}{fence}".replace("|", "\\|")


def quoted(text: str) -> str:
    """Return a quote with line breaks kept; a code block if lines are indented."""
    lines = text.strip("\r\n").splitlines()
    if any(line[:1] in (" ", "\t") and line.strip() for line in lines):
        return fenced(printable(text.strip("\r\n"), keep="\n\t"), "text")
    shown = [inline(line, _WITHOUT_END) for line in lines]
    # Two spaces break a line for every reader of Markdown; the last line of a paragraph needs none.
    ends = [
        "  " if line and following else "" for line, following in zip(shown, [*shown[1:], ""], strict=False)
    ]
    return "\n".join(f"> {line}{end}" if line else ">" for line, end in zip(shown, ends, strict=False))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown cells, without a final line end."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def output(value: Any, told: str = "") -> str:
    """Return an output: flat fields as a table, long texts as quotes, lists as lists, nested values as code
    blocks, a question with its options. `told` is a field to omit. Without a final line end; "" if empty."""
    if not isinstance(value, Mapping):
        return _large(value)
    if isinstance(value.get("question"), str) and _asks(value):
        return question(value)
    fields = [(key, value[key]) for key in sorted(value, key=_field_order(value)) if key != told]
    flat = [(inline(key), cell) for key, item in fields if (cell := _cell(item)) is not None]
    parts = [table(("field", "value"), flat)] if flat else []
    for key, item in fields:
        if _cell(item) is None:
            parts.append(f"**{inline(key)}**\n\n{_large(item)}")
    return "\n\n".join(parts)


def question(asked: Mapping[str, Any]) -> str:
    """Return a question with options and reason."""
    parts = [quoted(asked["question"])]
    if options := asked.get("options"):
        parts.append(_listed(options))
    if str(asked.get("reason") or "").strip():
        parts.append(f"Why it is asked:\n\n{quoted(asked['reason'])}")
    return "\n\n".join(parts)


def below(text: str, level: int) -> str:
    """Embed foreign Markdown below a heading level: its headings are lowered, an open code block is closed,
    code is unchanged."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        opened = re.match(_CODE_FENCE, line)
        if fence:
            if opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif opened:
            fence = opened[1]
        elif heading := re.match(_HEADING, line):
            line = "#" * min(len(heading[2]) + level, 6) + line[heading.end() :]
        elif (under := re.fullmatch(_UNDERLINE, line)) and lines and _is_paragraph(lines[-1]):
            lines[-1] = f"{'#' * min((1 if under[1][0] == '=' else 2) + level, 6)} {lines[-1].strip()}"
            continue
        lines.append(line)
    if fence:
        lines.append(fence)
    return "\n".join(lines)


def _is_paragraph(line: str) -> bool:
    return bool(line.strip()) and not re.match(_HEADING, line) and not re.match(_NO_PARAGRAPH, line)


def _asks(value: Mapping[str, Any]) -> bool:
    return value.keys() <= {"$status", "status", "question", "options", "reason"}


def _field_order(value: Mapping[str, Any]) -> Any:
    return lambda key: (key not in ("$status", "status"), not isinstance(value[key], bool), key)


def _cell(value: Any) -> str | None:
    if isinstance(value, str):
        text = value.strip()
        return inline(text) if len(text) <= _LONGEST_FIELD and len(text.splitlines()) <= 1 else None
    if isinstance(value, list | tuple | Mapping):
        return "none" if not value else None
    return json.dumps(value)


def _large(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value) if value.strip() else ""
    if (
        isinstance(value, list | tuple)
        and value
        and not any(isinstance(i, list | tuple | Mapping) for i in value)
    ):
        return _listed(value)
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    return fenced(text, "json")


def _listed(values: Iterable[Any]) -> str:
    return "\n".join(f"- {_item(value)}" for value in values)


def _item(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    lines = [inline(line, _WITHOUT_END) for line in value.strip().splitlines()]
    return "  \n  ".join(line for line in lines if line) or '""'


def _flat(text: str, at_most: int) -> str:
    return shortened(printable(" ".join(text.split())), at_most)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    entity = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(character)
    # A backslash keeps forges from mentioning users and linking issues; GitHub ignores it before @ and #.
    return entity or (f"&#{ord(character)};" if character in "@#" else "\\" + character)


def _shield(start: str) -> str:
    return start + "\\" if start.isdigit() else "\\" + start
