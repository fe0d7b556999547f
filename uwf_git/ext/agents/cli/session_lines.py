"""A program's session as text: JSON Lines without secrets, in parts for nodes, with paths of another folder."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uwf_git.plugin import Redactor

PART = 200_000  # characters of a Text node: less than 1 MB in every script
_SIGNATURES = ("signature", "thoughtSignature", "encrypted_content")
_BESIDE = ("metadata", "providerMetadata", "providerOptions")


class Unusable(Exception):
    """A session that cannot be kept or restored; the text is why."""


def without_secrets(data: bytes, redactor: Redactor) -> tuple[str, int]:
    """Return a session's lines without secrets, and their number. Lines without any stay as they are; an
    unfinished last line is left out. Raises Unusable."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise Unusable("its file is not UTF-8") from None
    end = lines.pop()
    if end.strip() and _parsed(end) is not None:
        lines.append(end)
    total = 0
    for place, line in enumerate(lines):
        if not line.strip():
            continue
        value = _parsed(line)
        if value is None:
            raise Unusable(f"line {place + 1} of its file is not a JSON object")
        clean, count = redactor.value(value)
        if count:
            if _breaks_signature(value, clean):
                raise Unusable("a secret is in a part that is signed, and can't be taken out")
            lines[place] = json.dumps(clean, separators=(",", ":"))
            total += count
    return "".join(f"{line}\n" for line in lines), total


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _breaks_signature(value: Any, clean: Any) -> bool:
    if value == clean:
        return False
    if isinstance(value, dict):
        return _is_signed(value) or any(map(_breaks_signature, value.values(), clean.values()))
    return isinstance(value, list) and any(map(_breaks_signature, value, clean))


def _is_signed(value: dict[str, Any]) -> bool:
    """Whether a service would notice a change: it gets its signature back with the text."""
    if any(isinstance(value.get(name), str) and value[name] for name in _SIGNATURES):
        return True
    beside = [value[name] for name in _BESIDE if isinstance(value.get(name), dict)]
    return any(_is_signed(item) for part in beside for item in part.values() if isinstance(item, dict))


def parts_of(text: str) -> list[str]:
    """Split a text into parts of at most PART characters, at line ends if possible. A text that grows keeps
    all parts but the last."""
    parts: list[str] = []
    begin = 0
    while len(text) - begin > PART:
        end = text.rfind("\n", begin, begin + PART) + 1 or begin + PART
        parts.append(text[begin:end])
        begin = end
    return [*parts, text[begin:]] if len(text) > begin else parts


def moved(text: str, old: str, new: str) -> str:
    """Return a session's lines with paths in the folder `new` in place of `old`."""
    if old == new:
        return text
    for ascii_only in (False, True):
        before, after = (json.dumps(folder, ensure_ascii=ascii_only)[1:-1] for folder in (old, new))
        # Not within longer names; a character before may be the end of an escaped one.
        pattern = rf"(?:(?<![\w./-])|(?<=\\[nrt])){re.escape(before)}(?![\w-]|\.\w)"
        text = re.sub(pattern, lambda _, after=after: after, text)  # type: ignore[misc]
    return text


def lines_of(document: bytes, key: str) -> bytes:
    """Return an exported session as lines: its messages, and last the rest of it. Raises Unusable."""
    try:
        value = json.loads(document)
        messages = value.pop(key)
        if not isinstance(messages, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"its export is not a JSON object with a list of {key}") from None
    # Sorted: a program may print what it took back in another order.
    lines = (json.dumps(item, separators=(",", ":"), sort_keys=True) for item in [*messages, value])
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def document_of(lines: str, key: str) -> bytes:
    """Return the export of such lines. Raises Unusable."""
    values = [_parsed(line) for line in lines.splitlines()]
    if not values or None in values or key in (values[-1] or {}):
        raise Unusable("what is kept of it is no export")
    *messages, rest = values
    return json.dumps({**(rest or {}), key: messages}).encode("ascii")
