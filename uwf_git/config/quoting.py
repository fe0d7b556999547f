r"""The ways in which programs quote the characters of a value: `%3c` and `+` in a URL, `&lt;` and `&#60;` in HTML,
`\u003c` and `\x3c` in JSON and source code. Programs differ in which characters they quote and in the case of hex
digits, so a pattern finds the value. Texts are decoded first, to tell whether the pattern is worth trying.
"""

from __future__ import annotations

import re
from functools import cache

_QUOTED = re.compile(r"%[0-9A-Fa-f]{2}|&#?\w+|\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})")
_ESCAPE = re.compile(r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))")
_SPACES = str.maketrans("", "", " +")


def unquoted(text: str) -> tuple[str, ...]:
    """Return the text as decoded from a URL, from HTML, from JSON or source code, and from all of them; () if it has no
    quoted characters. Spaces are left out, and so is `+`, which a URL has for a space: compare with `unspaced`."""
    if not _QUOTED.search(text):
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
    text = _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins the halves of a pair


def unspaced(value: str) -> str:
    """Return the value without spaces and `+`."""
    return value.translate(_SPACES)


def quoted_pattern(value: str) -> re.Pattern[str]:
    """Return a pattern that matches the value with any of its characters quoted in any of these ways."""
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
    """The names of each character in HTML, the longest first, so that no semicolon stays behind."""
    from html.entities import html5

    names: dict[str, list[str]] = {}
    for name, char in sorted(html5.items(), key=lambda item: -len(item[0])):
        names.setdefault(char, []).append(re.escape(f"&{name}"))
    return names
