"""Changed files and patches for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uwf_cli import terminal
from uwf_git.base.text import counted, one_line

_MOST = 200  # files that are listed
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def summary(files: Sequence[Mapping[str, Any]]) -> str:
    """Return `2 files changed, +10 -3`."""
    if not files:
        return "no files changed"
    added, deleted = (sum(file[name] or 0 for file in files) for name in ("added", "deleted"))
    return f"{counted(len(files), 'file')} changed, +{added:,} -{deleted:,}"


def listed(files: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each of the first files: status, lines, path."""
    rows = [
        (
            file["status"],
            "binary" if file["binary"] else f"+{file['added']:,} -{file['deleted']:,}",
            _path(file["path"]) + (f", was {_path(file['from'])}" if "from" in file else ""),
        )
        for file in files[:_MOST]
    ]
    more = f"and {counted(len(files) - _MOST, 'more file')}\n" if len(files) > _MOST else ""
    return terminal.table(rows) + more


def patch(text: str) -> str:
    """Return a patch with all its invisible characters written out, coloured if colours are wanted."""
    lines = (terminal.escape_code(line) for line in text.split("\n"))
    return "\n".join(terminal.style(line, _COLOURS.get(line[:1], "")) for line in lines)


def _path(path: str) -> str:
    return one_line(terminal.escape_code(path), 300)
