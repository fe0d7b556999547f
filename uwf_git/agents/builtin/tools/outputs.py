"""Texts too long for a result: the beginning and the end are shown, the whole is kept in a file."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

SHOWN = 24_000  # characters of a text in a result
KEPT = 10_000_000  # bytes of a text in a file
_HEAD = 0.4  # what of the shown is its beginning; an end tells more, of a command at least


class Outputs:
    """A folder of its own, removed by `close`. What is kept there is read as @output/NAME. `clean` takes secrets
    out of a text before it is cut: a half of one would not be known any more."""

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self.clean = clean
        self._folder = tempfile.TemporaryDirectory(prefix="uwf-tools-", ignore_cleanup_errors=True)
        self._numbers = itertools.count(1)
        base = Path(self._folder.name).resolve()
        self.path = base / "output"
        self.scratch = base / "tmp"  # the /tmp of commands, and their HOME
        self.nothing = base / "nothing"  # an empty folder, to be mounted
        self.path.mkdir()
        self.nothing.mkdir()
        (self.scratch / "home").mkdir(parents=True)

    def close(self) -> None:
        """Removes all that was kept."""
        self._folder.cleanup()

    def new_file(self) -> tuple[BinaryIO, str]:
        """A new file to keep something in, and its name for the model."""
        name = f"{next(self._numbers)}.txt"
        return (self.path / name).open("xb"), f"@output/{name}"

    def shorten(self, text: str, most: int = SHOWN) -> tuple[str, dict[str, Any]]:
        """The text, or its beginning and end where it is longer than `most` characters, and what to add to
        the result then: `truncated`, and `rest`, which says how to get the remainder."""
        if len(text) <= most:
            return text, {}
        text = self.clean(text)
        data = text.encode("utf-8", "replace")
        file, name = self.new_file()
        with file:
            file.write(data[:KEPT])
        head = round(most * _HEAD)
        missing = f"{len(text) - most} characters"
        return ends(text[:head], text[head - most :], missing), {
            "truncated": True,
            "rest": rest(name, len(data)),
        }


def ends(head: str, tail: str, missing: str) -> str:
    """The two ends of a text, and between them how much is missing."""
    return f"{head}\n[… {missing} left out …]\n{tail}"


def rest(name: str, size: int) -> str:
    """How to read what was kept of a text of so many bytes."""
    cut = f", its first {KEPT} bytes," if size > KEPT else ""
    return f"the whole{cut} is in {name}: read_file with offset and limit, or grep"
