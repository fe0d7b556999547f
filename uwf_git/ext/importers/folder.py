"""Reading an untrusted folder: no links, only plain files up to a size. Nothing is changed; problems are
noted."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.plugin import Invalid, NotFound, one_line, shortened, system

_FOLDER = os.O_RDONLY | system.O_DIRECTORY | system.O_CLOEXEC
_INSIDE = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_CLOEXEC


class Folder:
    """An open folder. `name` is for messages."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Open the user's path, possibly a link. Raises NotFound, Invalid."""
        shown = one_line(str(path))
        try:
            return cls(system.open_file(path, _FOLDER), shown)
        except FileNotFoundError:
            raise NotFound(f"no folder {shown}", "name the storage root of the earlier program") from None
        except NotADirectoryError:
            raise Invalid(
                f"{shown} is not a folder", "name the storage root of the earlier program"
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Invalid(f"{shown} cannot be read: {reason}", "check its permissions") from None

    def close(self) -> None:
        os.close(self._descriptor)

    def names(self) -> Iterator[str]:
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                yield entry.name

    def has(self, name: str) -> bool:
        try:
            os.lstat(name, dir_fd=self._descriptor)
        except (OSError, ValueError):
            return False
        return True

    def folder(self, name: str) -> Folder | None:
        """Open a subfolder, None if missing. Raises Invalid for a link or file."""
        if not self.has(name):
            return None
        try:
            inside = system.open_file(name, _FOLDER | system.O_NOFOLLOW, dir_fd=self._descriptor)
        except OSError as error:
            raise Invalid(f"{self._path(name)} {self._reason(name, error)}") from None
        return Folder(inside, self._path(name))

    def read(self, name: str, at_most: int) -> bytes:
        """Read a file. Raises NotFound, Invalid."""
        try:
            file = system.open_file(name, _INSIDE, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise NotFound(f"there is no {self._path(name)}") from None
        except (OSError, ValueError) as error:
            raise Invalid(f"{self._path(name)} {self._reason(name, error)}") from None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise Invalid(f"{self._path(name)} is not a plain file")
            if status.st_size > at_most:
                raise Invalid(
                    f"{self._path(name)} has {status.st_size:,} bytes, over the limit of {at_most:,}"
                )
            data = os.read(file, status.st_size)
            while len(data) < status.st_size and (more := os.read(file, status.st_size - len(data))):
                data += more
            return data
        except OSError as error:
            raise Invalid(f"{self._path(name)} cannot be read: {error.strerror}") from None
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
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"


class SkippedItem(NamedTuple):
    """Something not imported, and why. `kind`: workflow, thread, node or file."""

    kind: str
    name: str
    reason: str


def _named(name: str) -> str:
    is_seen = name.isprintable() and name.strip() == name != ""
    return shortened(name if is_seen else json.dumps(name), 100)


class Source:
    """A source of folders, with its `problems`."""

    def __init__(self) -> None:
        self.problems: list[SkippedItem] = []

    def _refuse(self, kind: str, name: object, reason: str) -> None:
        self.problems.append(SkippedItem(kind, _named(str(name)), reason))

    def _folder(self, root: Folder, name: str) -> Folder | None:
        try:
            return root.folder(name)
        except Invalid as error:
            self._refuse("file", name, error.message)
            return None
