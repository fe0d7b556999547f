"""The mark of what uwf writes on a forge: a comment that the page doesn't show, with the key of the effect."""

from __future__ import annotations

import re

OURS = "<!-- uwf "
"""The beginning of each mark."""
MARK = re.compile(r"<!-- uwf ([0-9A-Za-z -]+) -->")
"""A mark; its group is the key."""


def mark_of(key: str) -> str:
    """Return the mark of a key, which is a line."""
    return f"{OURS}{key} -->"


def key_at_end(text: str) -> str:
    """Return the key of the mark with which a text ends, "" if it ends otherwise."""
    last = text.rstrip().rpartition("\n")[2]
    match = MARK.fullmatch(last)
    return match[1] if match is not None else ""
