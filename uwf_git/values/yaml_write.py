"""JSON values as YAML 1.2 that reads well and means the same to every reader, 1.1 ones included."""

from __future__ import annotations

import json
import re
from typing import Any

from uwf_git.values.yaml12 import core

_PLAIN = re.compile(r"[A-Za-z_$/][\w$/.@+-]*(?: [\w$/.@+(][\w$/.@+,;()'-]*)*", re.ASCII)
# Words that YAML 1.1 takes for booleans and nothing: other readers may still follow it.
_OLD_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_LONGEST_PLAIN = 100
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def dump(value: Any) -> str:
    """A JSON value as a YAML document in block style, keys in their order, ending in a newline.
    `yaml12.load` gives the same value back."""
    lines: list[str] = []
    _block(value, 0, lines)
    return "\n".join(lines) + "\n"


def scalar(value: Any) -> str:
    """A value that is no collection, on one line."""
    if not isinstance(value, str):
        return json.dumps(value)
    if (
        len(value) <= _LONGEST_PLAIN
        and _PLAIN.fullmatch(value)
        and value.casefold() not in _OLD_WORDS
        and isinstance(core(value), str)
    ):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _ODD.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)


def _block(value: Any, indent: int, lines: list[str]) -> None:
    """Appends a collection's lines; of anything else the one line."""
    space = " " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _entry(f"{space}{scalar(str(key))}:", item, indent, lines)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            if isinstance(item, dict | list | tuple) and item:
                inner: list[str] = []
                _block(item, indent + 2, inner)
                lines.append(f"{space}- {inner[0].lstrip(' ')}")
                lines += inner[1:]
            else:
                _entry(f"{space}-", item, indent, lines)
    else:
        _entry("", value, indent - 2, lines)


def _entry(head: str, value: Any, indent: int, lines: list[str]) -> None:
    """Appends what follows `head`, which is a key or a dash, or nothing at the top of a document."""
    lead = head + " " if head else ""
    if isinstance(value, dict | list | tuple):
        if value:
            lines.append(head)
            _block(value, indent + 2, lines)
        else:
            lines.append(lead + ("{}" if isinstance(value, dict) else "[]"))
    elif isinstance(value, str) and _reads_as_block(value):
        body = value.removesuffix("\n")
        lines.append(f"{lead}|{'-' if body == value else '+' if body.endswith(chr(10)) else ''}")
        pad = " " * (indent + 2)
        lines += [pad + line if line else "" for line in body.split("\n")]
    else:
        lines.append(lead + scalar(value))


def _reads_as_block(text: str) -> bool:
    """Whether a text can stand as a literal block: several lines, nothing that needs an escape."""
    first = text.lstrip("\n")[:1]
    return (
        "\n" in text.rstrip("\n")
        and first not in ("", " ", "\t")
        and not text.startswith("\n")
        and "\x85" not in text
        and not _ODD.search(text)
    )
