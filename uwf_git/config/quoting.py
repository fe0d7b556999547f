r"""Quoting of characters in URLs (`%3c`, `+`), HTML (`&lt;`, `&#60;`), JSON and source code (`\u003c`,
`\x3c`). Programs differ in which characters they quote and in the case of digits, so a pattern finds quoted
values, tried only if the decoded text has them."""

from __future__ import annotations

import re
from functools import cache

_QUOTED = r"%[0-9A-Fa-f]{2}|&#?\w+|\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})"
_ESCAPE = r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))"
_SPACES = str.maketrans("", "", " +")


def unquoted(text: str) -> tuple[str, ...]:
    """Return the text decoded from URL, HTML, JSON or source code, and from all of them; () without quoted
    characters. Without spaces and `+`: compare with `unspaced`."""
    if not re.search(_QUOTED, text):
        return ()
    from html import unescape
    from urllib.parse import unquote

    return tuple(
        {
            unspaced(plain)
            for plain in (
                unquote(text),
                unescape(text),
                _unescaped(text),
                _unescaped(unescape(unquote(text))),
            )
        }
    )


def _unescaped(text: str) -> str:
    text = re.sub(_ESCAPE, lambda match: chr(int(match[1] or match[2], 16)), text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins the halves of a pair


def unspaced(value: str) -> str:
    """Return the value without spaces and `+`."""
    return value.translate(_SPACES)


def quoted_pattern(value: str) -> re.Pattern[str]:
    """Return a pattern for the value with any characters quoted in any way."""
    return re.compile("".join(map(_character, value)))


@cache
def _character(char: str) -> str:
    code = ord(char)
    data = char.encode("utf-8", "surrogatepass")
    halves = char.encode("utf-16-be", "surrogatepass").hex()
    units = [halves[at : at + 4] for at in range(0, len(halves), 4)]
    ways = [
        re.escape(char),
        "".join(f"%{byte:02x}" for byte in data),
        rf"&#0*{code};?",
        rf"&#x0*{code:x};?",
        "".join(rf"\\+u{unit}" for unit in units),
    ]
    if code < 256:
        ways.append(rf"\\+x{code:02x}")
    if char == " ":
        ways.append(r"\+")
    ways[1:] = [f"(?i:{way})" for way in ways[1:]]
    return f"(?:{'|'.join([*ways, *_entities().get(char, ())])})"


@cache
def _entities() -> dict[str, list[str]]:
    """Return HTML's names of characters, longest first, so that no semicolon is left."""
    from html.entities import html5

    names: dict[str, list[str]] = {}
    for name, char in sorted(html5.items(), key=lambda item: -len(item[0])):
        names.setdefault(char, []).append(re.escape(f"&{name}"))
    return names
