"""Texts of strangers in Markdown that a forge shows in the repository's name.

Forges look for mentions, references, closing keywords, addresses and commands in the text that Markdown leaves, so
escaping Markdown isn't enough: `\\@team` still calls the team, and GitLab carries out a line that begins with
`/merge`. In code none of them does. So every foreign text is a code span, or a fenced block.
"""

from __future__ import annotations

import re

from uwf_git.plugin import fenced, printable, shortened


def span(text: str, at_most: int = 120) -> str:
    """Return a text as a code span on one line."""
    flat = shortened(" ".join(printable(text, " ").split()), at_most) or " "
    longest = max(map(len, re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{padding}{flat}{padding}{fence}"


def block(text: str) -> str:
    """Return a text as a fenced block, with its line breaks."""
    lines = [printable(line) for line in text.replace("\r\n", "\n").split("\n")]
    return fenced("\n".join(lines), "text")
