"""What a tool gives back: a failure with a stable code, or a text that is cut where it is too long.

A cut text shows its beginning and its end; the whole of it is kept in a file that the model can read.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from uwf_git.base.text import printable, shortened

SHOWN = 24_000  # characters of a text in a result
KEPT = 10_000_000  # bytes of a text in a file
_HEAD = 0.4  # the share of the beginning in what is shown; the end, of a command at least, tells more

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
    "unconfined",  # there is no sandbox, and the configuration wants one
    "unknown_tool",
]


class ToolFailure(Exception):
    """A call that can't be carried out. The toolbox tells it to the model; no caller of the toolbox sees it."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def value(self) -> dict[str, Any]:
        """The failure as a tool's result."""
        return {"ok": False, "error": {"code": self.code, "message": self.message}}


def shown(text: str, most: int = 200) -> str:
    """A text that came from a model, made safe to repeat in a message: printable, and at most `most` characters
    and an ellipsis."""
    return shortened(printable(text[: most + 1]), most + 1)


def truncated(rest: str) -> dict[str, Any]:
    """What a result says when it doesn't hold everything; `rest` tells the model how to get the remainder."""
    return {"truncated": True, "rest": rest}


def page(count: int, first: int, most: int) -> tuple[slice, dict[str, Any]]:
    """A page of a list of `count` entries, which begins at entry `first`, counted from 1: the slice of the list,
    and what to add to the result where more follows."""
    end = first - 1 + most
    return slice(first - 1, end), truncated(f"use offset={end + 1}") if end < count else {}


class Outputs:
    """A folder for what doesn't fit into results, removed by `close`. The model reads what is kept there as
    @output/NAME, or where it is kept in a folder that it sees, by the name of that. `clean` takes secrets out of a text
    before it is cut, since half of one would not be recognised."""

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
        """Removes all that was kept."""
        self._folder.cleanup()

    def new_file(self) -> tuple[BinaryIO, str]:
        """A new file to keep something in, and its name for the model."""
        while (self.path / (name := f"{next(self._numbers)}.txt")).exists():
            pass
        return (self.path / name).open("xb"), f"{self._called}/{name}"

    def retell(self, name: str, change: Callable[[str], str]) -> None:
        """Changes a text that is kept, by what `new_file` called it."""
        path = self.path / name.rpartition("/")[2]
        path.write_text(change(path.read_text("utf-8", "replace")), encoding="utf-8", newline="")

    def shorten(self, text: str, most: int = SHOWN) -> tuple[str, dict[str, Any]]:
        """The text and nothing to add; or, where it is longer than `most` characters, its beginning and end, and
        what to add to the result: `truncated` and `rest`. The whole is then kept in a file."""
        if len(text) <= most:
            return text, {}
        text = self.clean(text)
        data = text.encode("utf-8", "replace")
        file, name = self.new_file()
        with file:
            file.write(data[:KEPT])
        head = round(most * _HEAD)
        missing = f"{len(text) - most} characters"
        return ends(text[:head], text[head - most :], missing), kept_in(name, len(data))


def ends(head: str, tail: str, missing: str) -> str:
    """The two ends of a text, and between them how much is missing."""
    return f"{head}\n[… {missing} left out …]\n{tail}"


def kept_in(name: str, size: int) -> dict[str, Any]:
    """What to add to the result for a text of `size` bytes that is kept in the file of that name."""
    cut = f", its first {KEPT} bytes," if size > KEPT else ""
    return truncated(f"the whole{cut} is in {name}: read_file with offset and limit, or grep")
