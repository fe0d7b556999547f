"""Results of tools: a failure with a stable code, or a text, shortened if too long. A shortened text has its
beginning and end; a file has the whole."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from uwf_git.base.text import printable, shortened

SHOWN = 24_000  # characters of a text in a result
KEPT = 10_000_000  # bytes of a text in a file
_HEAD = 0.4  # share of the beginning in a truncated text; the end of a command's output matters more

Code = Literal[
    "binary",  # not a text
    "denied",  # by the policy, or because tools keep out of that place
    "failed",  # the system refused: the message says why
    "internal",  # a fault of the tool itself
    "invalid_arguments",
    "is_directory",
    "network",  # no connection, no such host, or an answer that can't be read
    "no_match",  # the text to replace, or a patch's context, is not there
    "not_directory",
    "not_found",
    "not_unique",
    "outside_workspace",
    "read_only",
    "special_file",  # a device, a pipe, a socket
    "timeout",
    "too_large",
    "unconfined",  # no sandbox, but the configuration requires one
    "unknown_tool",
]


class ToolFailure(Exception):
    """A failed call, reported to the model by the toolbox."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def value(self) -> dict[str, Any]:
        return {"ok": False, "error": {"code": self.code, "message": self.message}}


def shown(text: str, most: int = 200) -> str:
    """Return a model's text for a message: printable, at most `most` characters."""
    return shortened(printable(text[: most + 1]), most + 1)


def truncated(rest: str) -> dict[str, Any]:
    """Return the note on an incomplete result; `rest` says how to get the remainder."""
    return {"truncated": True, "rest": rest}


def page(count: int, first: int, most: int) -> tuple[slice, dict[str, Any]]:
    """Return the slice of a page that begins at `first` (from 1), and a note if more follows."""
    end = first - 1 + most
    return slice(first - 1, end), truncated(f"use offset={end + 1}") if end < count else {}


class Outputs:
    """A temporary folder for long results, read by the model as @output/NAME. `clean` redacts a text before
    it is cut, since half a secret is not recognised."""

    def __init__(
        self, clean: Callable[[str], str] = str, path: Path | None = None, called: str = "@output"
    ) -> None:
        self.clean = clean
        self._called = called
        self._folder = tempfile.TemporaryDirectory(prefix="uwf-tools-", ignore_cleanup_errors=True)
        self._numbers = itertools.count(1)
        base = Path(self._folder.name).resolve()
        self.path = path or base / "output"
        self.scratch = base / "tmp"  # the /tmp of commands, and their HOME
        self.nothing = base / "nothing"  # an empty folder, to be mounted
        self.path.mkdir(exist_ok=True)
        self.nothing.mkdir()
        (self.scratch / "home").mkdir(parents=True)

    def close(self) -> None:
        self._folder.cleanup()

    def new_file(self) -> tuple[BinaryIO, str]:
        """Return a new file and its name for the model."""
        while (self.path / (name := f"{next(self._numbers)}.txt")).exists():
            pass
        return (self.path / name).open("xb"), f"{self._called}/{name}"

    def retell(self, name: str, change: Callable[[str], str]) -> None:
        path = self.path / name.rpartition("/")[2]
        path.write_text(change(path.read_text("utf-8", "replace")), encoding="utf-8", newline="")

    def shorten(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return a text, shortened beyond SHOWN characters and kept whole in a file, and the note for the
        result."""
        if len(text) <= SHOWN:
            return text, {}
        text = self.clean(text)
        data = text.encode("utf-8", "replace")
        file, name = self.new_file()
        with file:
            file.write(data[:KEPT])
        head = round(SHOWN * _HEAD)
        missing = f"{len(text) - SHOWN} characters"
        return ends(text[:head], text[head - SHOWN :], missing), truncation_note(name, len(data))


def ends(head: str, tail: str, missing: str) -> str:
    """Join the two ends of a text with a note of the missing size."""
    return f"{head}\n[… {missing} left out …]\n{tail}"


def truncation_note(name: str, size: int) -> dict[str, Any]:
    """Return the note for a text of `size` bytes kept in a file."""
    cut = f", its first {KEPT} bytes," if size > KEPT else ""
    return truncated(f"the whole{cut} is in {name}: read_file with offset and limit, or grep")
