"""A folder that may be anybody's making, read without leaving it: no link is followed, only plain files are opened, and
none that is larger than its reader takes. Nothing in it is changed. What can't be taken of it is noted."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid, NotFound
from uwf_git.base.text import one_line, shortened

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INSIDE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """An opened folder. `name` is what it is called in messages."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name

    @classmethod
    def open(cls, path: Path) -> Folder:
        """The folder at a path that the user gave, which may be a link. Raises NotFound, Invalid."""
        shown = one_line(str(path))
        try:
            return cls(os.open(path, _FOLDER), shown)
        except FileNotFoundError:
            raise NotFound(f"no folder {shown}", "name the storage root of the earlier program") from None
        except NotADirectoryError:
            raise Invalid(f"{shown} is no folder", "name the storage root of the earlier program") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Invalid(f"{shown} can't be read: {reason}", "check its permissions") from None

    def close(self) -> None:
        """Closes it."""
        os.close(self._descriptor)

    def names(self) -> Iterator[str]:
        """The names in it, in no order."""
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                yield entry.name

    def has(self, name: str) -> bool:
        """Whether something is called so, of whatever kind."""
        try:
            os.lstat(name, dir_fd=self._descriptor)
        except (OSError, ValueError):
            return False
        return True

    def folder(self, name: str) -> Folder | None:
        """A folder in it; None where there is none. Raises Invalid for a link, or another thing in its place."""
        if not self.has(name):
            return None
        try:
            inside = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except OSError as error:
            raise Invalid(f"{self._path(name)} {self._reason(name, error)}") from None
        return Folder(inside, self._path(name))

    def read(self, name: str, at_most: int) -> bytes:
        """A file's content. Raises NotFound, or Invalid for what is no plain file, or has more bytes than that."""
        try:
            file = os.open(name, _INSIDE, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise NotFound(f"there is no {self._path(name)}") from None
        except (OSError, ValueError) as error:
            raise Invalid(f"{self._path(name)} {self._reason(name, error)}") from None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise Invalid(f"{self._path(name)} is no plain file")
            if found.st_size > at_most:
                raise Invalid(
                    f"{self._path(name)} has {found.st_size:,} bytes, over the limit of {at_most:,}"
                )
            data = os.read(file, found.st_size)
            while len(data) < found.st_size and (more := os.read(file, found.st_size - len(data))):
                data += more
            return data
        except OSError as error:
            raise Invalid(f"{self._path(name)} can't be read: {error.strerror}") from None
        finally:
            os.close(file)

    def _path(self, name: str) -> str:
        return one_line(f"{self.name}/{name}")

    def _reason(self, name: str, error: OSError | ValueError) -> str:
        try:
            if stat.S_ISLNK(os.lstat(name, dir_fd=self._descriptor).st_mode):
                return "is a link, which isn't followed"
        except (OSError, ValueError):
            pass
        return f"can't be read: {getattr(error, 'strerror', None) or error}"


class Untaken(NamedTuple):
    """Something of a source that can't be taken, and why. `kind`: workflow, thread, node or file."""

    kind: str
    name: str
    reason: str


def _named(name: str) -> str:
    """A name as it is; where that can't be seen, in quotes, and written out."""
    is_seen = name.isprintable() and name.strip() == name != ""
    return shortened(name if is_seen else json.dumps(name), 100)


class Source:
    """Something that is read out of folders. `problems` are what can't be taken of it."""

    def __init__(self) -> None:
        self.problems: list[Untaken] = []

    def _refuse(self, kind: str, name: object, reason: str) -> None:
        self.problems.append(Untaken(kind, _named(str(name)), reason))

    def _folder(self, root: Folder, name: str) -> Folder | None:
        try:
            return root.folder(name)
        except Invalid as error:
            self._refuse("file", name, error.message)
            return None
