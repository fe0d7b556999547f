"""A patch as files with numbered lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from uwf_git.base.text import cut

if TYPE_CHECKING:
    from uwf_git.workspaces.changes import ChangedFile

LINES = 2_000
"""How many lines of a patch are shown at once."""

_LONGEST = 2_000  # characters of a line
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def patch_files(patch: str, files: Sequence[ChangedFile], room: int = LINES) -> list[dict[str, Any]]:
    """Return the changed `files` as JSON, each with the `lines` of its part of the patch, `room` lines in all, and the
    number of those that are `left` out. A line has its `kind`, `+`, `-`, ` `, `@` (the head of a hunk) or `\\`, its
    numbers in the `old` and the `new` file, and its `text`."""
    parts = list(_parts(patch))
    values = []
    for number, file in enumerate(files):
        lines = list(_lines(parts[number])) if number < len(parts) else []
        shown = lines[: max(0, room)]
        room -= len(shown)
        values.append({**file.as_json(), "lines": shown, "left": len(lines) - len(shown)})
    return values


def _parts(patch: str) -> Iterator[list[str]]:
    """Yield the lines of each file. The lines of a hunk are counted, as text may look like the head of a file."""
    part: list[str] | None = None
    old = new = 0
    for line in patch.split("\n"):
        if old > 0 or new > 0:
            kind = line[:1]
            old -= kind in ("-", " ", "")
            new -= kind in ("+", " ", "")
        elif line.startswith("diff --git "):
            if part is not None:
                yield part
            part = []
        elif match := _HUNK.match(line):
            old, new = (int(match[place] or 1) for place in (2, 4))
        if part is not None:
            part.append(line)
    if part is not None:
        yield part


def _lines(part: Sequence[str]) -> Iterator[dict[str, Any]]:
    old = new = 0
    old_left = new_left = 0
    for line in part:
        kind = line[:1] or " "
        if old_left > 0 or new_left > 0:
            if kind in ("-", " "):
                old, old_left = old + 1, old_left - 1
            if kind in ("+", " "):
                new, new_left = new + 1, new_left - 1
            yield {
                "kind": kind,
                "old": old if kind in ("-", " ") else None,
                "new": new if kind in ("+", " ") else None,
                "text": cut(line[1:], _LONGEST),
            }
        elif match := _HUNK.match(line):
            old, new = int(match[1]) - 1, int(match[3]) - 1
            old_left, new_left = (int(match[place] or 1) for place in (2, 4))
            yield {"kind": "@", "old": None, "new": None, "text": cut(line, _LONGEST)}
        elif kind == "\\":
            yield {"kind": kind, "old": None, "new": None, "text": cut(line[2:], _LONGEST)}
