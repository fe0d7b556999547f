"""What is recorded of a request that was merged: `merged by ann as <id>`; by whom, and as which commit, if its forge
says so. Older records have the first 12 digits of the id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from uwf_git.plugin import one_line

if TYPE_CHECKING:
    from uwf_git.plugin import ForgeChange

_ID = "[0-9a-f]{40}|[0-9a-f]{64}"
_NOTE = re.compile(rf"(merged(?: by .+)?) as ([0-9a-f]{{12}}|{_ID})", re.DOTALL)
_SHOWN = 12  # digits


def merge_note(change: ForgeChange) -> str:
    by = f" by {one_line(change.merged_by, 100)}" if change.merged_by else ""
    return f"merged{by}" + (f" as {change.merge_commit}" if re.fullmatch(_ID, change.merge_commit) else "")


def merge_commit(note: str) -> str:
    """Return the id of the commit in a note, or its first digits; "" if there is none."""
    match = _NOTE.fullmatch(note)
    return match[2] if match is not None else ""


def shown(note: str) -> str:
    """Return a note with a short id, for people."""
    match = _NOTE.fullmatch(note)
    return f"{match[1]} as {match[2][:_SHOWN]}" if match is not None else note
