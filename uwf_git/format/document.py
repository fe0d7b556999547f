"""Documents from outside: a file's bytes, text and value, with the position of each part."""

import errno
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import one_line
from uwf_git.format.schema import ValuePath

MAX_BYTES = 1 << 20
"""The size of a document, at most."""
_HANDED_OVER = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")

# The complement of YAML's c-printable; the UTF-8 decoder refuses surrogates.
_UNPRINTABLE = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ud800-\udfff]"


class Mark(NamedTuple):
    """A position, counted from 1. For an included file it is that of the `!include`, and `within` has
    `file:line:column` inside it."""

    line: int
    column: int
    within: str = ""


TOP = Mark(1, 1)


class InvalidYaml(Invalid):
    """The text is not acceptable YAML. `problem` is the message without the position."""

    def __init__(self, name: str, mark: Mark, problem: str, hint: str = "") -> None:
        super().__init__(f"{one_line(name)}:{mark.line}:{mark.column}: {problem}", hint)
        self.mark = mark
        self.problem = problem


class Document(NamedTuple):
    """A parsed document. `data` is JSON-like. By a value's path, `marks` has its position, `keys` its key's
    position, and `scalars` the text of a scalar before typing."""

    name: str
    data: Any
    marks: Mapping[ValuePath, Mark]
    keys: Mapping[ValuePath, Mark]
    scalars: Mapping[ValuePath, str]

    def mark(self, path: ValuePath) -> Mark:
        """Return the position of a value, or of its nearest existing ancestor."""
        for length in range(len(path), -1, -1):
            if (mark := self.marks.get(path[:length])) is not None:
                return mark
        return TOP

    def key_mark(self, path: ValuePath) -> Mark:
        """Return the position of a value's key, or of a list item."""
        return self.keys.get(path) or self.mark(path)

    def raw(self, path: ValuePath) -> str | None:
        """Return a scalar's text: "1:30", "yes", "007". None for anything else."""
        return self.scalars.get(path)


def read_bytes(path: Path, at_most: int = MAX_BYTES) -> bytes:
    """Read a file. Raises NotFound, Invalid for a folder, an unreadable or oversized file."""
    shown = one_line(str(path))
    try:
        with open_file(path) as file:
            data = file.read(at_most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no file {shown}", "check the path") from None
    except IsADirectoryError:
        raise Invalid(f"{shown} is a folder, not a file", "name a file in it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise unreadable(shown, error) from None
    check_size(data, shown, at_most)
    return data


def unreadable(shown: str, error: Exception) -> Invalid:
    """Return the error for an unreadable file. ValueError means a NUL in its path."""
    is_permitted = isinstance(error, OSError) and error.errno == errno.EINVAL  # as `open_file` raises it
    hint = "put a file there, or name another" if is_permitted else "check its permissions"
    return Invalid(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}", hint)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file or a file that a shell passes; other FIFOs and devices, which could block, are
    refused. Raises OSError."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(_HANDED_OVER)):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return path.open("rb")


def check_size(data: str | bytes, name: str, at_most: int = MAX_BYTES) -> None:
    """Raise Invalid for an oversized document."""
    if len(data) > at_most:
        raise Invalid(
            f"{one_line(name)} is larger than {at_most >> 20} MiB", "is it the file that was meant?"
        )


def decode(data: str | bytes, name: str) -> str:
    """Decode UTF-8, dropping a byte order mark. Raises InvalidYaml for other encodings and control
    characters."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        mark = _position(error.object[: error.start].decode("utf-8", "replace"))
        raise InvalidYaml(name, mark, "not UTF-8", "save the file as UTF-8") from None
    if (match := re.search(_UNPRINTABLE, text)) is not None:
        problem = f"control character U+{ord(match.group()):04X}"
        raise InvalidYaml(name, _position(text[: match.start()]), problem, 'write it as an escape: "\\x1b"')
    return text.removeprefix("\ufeff")


def _position(before: str) -> Mark:
    return Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
