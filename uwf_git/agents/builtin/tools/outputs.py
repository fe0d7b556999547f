"""How a tool says no: a stable code, and a sentence for the model.

Texts too long for a result: the beginning and the end are shown, the whole is kept in a file.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

Code = Literal[
    "binary",  # no text
    "denied",  # the policy, or a place that tools keep out of
    "failed",  # the system said no: the message says what
    "internal",  # a fault of the tool itself
    "invalid_arguments",
    "is_directory",
    "network",  # no connection, no such host, no answer that can be read
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
    """What a call ends with when it can't be carried out. Told to the model, never to a caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def value(self) -> dict[str, Any]:
        """As a tool's result."""
        return {"ok": False, "error": {"code": self.code, "message": self.message}}


def shown(text: str, most: int = 200) -> str:
    """A text that came from a model, safe to repeat in a message."""
    clean = "".join(each if each.isprintable() else "�" for each in text[:most])
    return clean + ("…" if len(text) > most else "")


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
