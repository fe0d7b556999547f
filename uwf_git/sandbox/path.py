"""Walking to a path inside a folder without leaving it.

A path is walked from the folder's descriptor, one name at a time. Symbolic links are read and walked the same
way, and every open refuses links, so what was checked is what is used, even during concurrent renames.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system
from uwf_git.sandbox.results import ToolFailure, shown

DEEPEST = 100  # folders below each other; each is an open descriptor while a path is walked
LONGEST = 4096  # bytes of a path
FOLDER = os.O_RDONLY | system.O_DIRECTORY | system.O_NOFOLLOW | system.O_CLOEXEC
FILE = os.O_RDONLY | system.O_NOFOLLOW | system.O_NONBLOCK | system.O_NOCTTY | system.O_CLOEXEC
_LINKS = 40
GIT_FOLDER = frozenset(("head", "commondir", "objects", "refs"))  # by which git knows a folder of its own
# Characters that some file systems ignore in a name.
_UNSEEN = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])

Identity = tuple[int, int]  # device and inode


def identity(status: os.stat_result) -> Identity:
    """Return a file's identity, independent of its name."""
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def opened(path: str | Path, inside: int | None = None) -> Iterator[int]:
    """Open a folder for the block; relative paths start at `inside`. Raises OSError, also if the last name is
    a link."""
    system.require("tools that are confined to folders")
    descriptor = system.open_file(path, FOLDER, dir_fd=inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_below(folder: Path, parts: Iterable[str]) -> Iterator[int]:
    """Open a folder below another by descriptors, so that no link can redirect it. Raises OSError."""
    system.require("tools that are confined to folders")
    descriptor = system.open_file(folder, FOLDER)
    try:
        for name in parts:
            inner = system.open_file(name, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


class Mount(NamedTuple):
    """A folder for tools. `path` has no symbolic links. `told` is its description in prompts. `check` gets a
    file's names and new content (None to delete) before a change; it raises ToolFailure."""

    name: str
    path: Path
    writable: bool = False
    told: str = ""
    check: Callable[[tuple[str, ...], bytes | None], None] | None = None


class MountedPath(NamedTuple):
    """A place in a mount: an open folder and a name, "" for the mount itself. It may not exist. `parts` are
    the resolved names from the mount."""

    mount: Mount
    folder: int
    name: str
    parts: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The path in the model's notation."""
        return "/".join((self.mount.name, *self.parts))

    def status(self) -> os.stat_result | None:
        """Return the lstat, None if missing."""
        try:
            return os.stat(self.name or ".", dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


class Rules(NamedTuple):
    """How to walk. `hidden` may not be reached; `closed` are folded paths that may not exist either.
    `writing` refuses git's files. `make_folders` makes missing folders and appends them to `made`. Without
    `follow`, the last name may be a link."""

    hidden: frozenset[Identity] = frozenset()
    closed: frozenset[tuple[str, ...]] = frozenset()
    writing: bool = False
    make_folders: bool = False
    follow: bool = True
    made: list[str] | None = None


@contextlib.contextmanager
def walk(mount: Mount, parts: Iterable[str], rules: Rules) -> Iterator[MountedPath]:
    """Yield the spot of a path with its folder open. Raises ToolFailure, OSError."""
    steps = _Steps(mount, rules)
    try:
        spot = steps.take(parts)
        steps.close(but=spot.folder)
        yield spot
    finally:
        steps.close()


def system_failure(error: OSError, path: str) -> ToolFailure:
    """Return the failure that reports an OSError to a model."""
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return missing(path)
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ToolFailure("failed", f"{shown(path)} was changed while it was used; try again")
    if error.errno == errno.ENAMETOOLONG:
        return ToolFailure("invalid_arguments", f"{shown(path)} has a name that is too long")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ToolFailure("denied", f"{shown(path)}: {os.strerror(error.errno)}")
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return ToolFailure("failed", f"{shown(path)}: {reason}")


def missing(path: str) -> ToolFailure:
    return ToolFailure("not_found", f"{shown(path)} does not exist")


def places(path: Path) -> Iterator[Path]:
    """Yield the symbolic links on the way to a path, and the end."""
    here = Path("/")
    pending = [*path.absolute().parts[1:]][::-1]
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            here = here.parent
            continue
        try:
            target = (here / name).readlink()
        except OSError:
            here = here / name
            continue
        yield here / name
        links += 1
        if links > _LINKS:
            return
        here = Path("/") if target.is_absolute() else here
        pending += [part for part in target.parts if part != "/"][::-1]
    yield here


class _Steps:
    """One walk. `_open` are the descriptors from the mount on, `_names` the names of all but the first."""

    def __init__(self, mount: Mount, rules: Rules) -> None:
        system.require("tools that are confined to folders")
        self._mount = mount
        self._rules = rules
        self._open = [system.open_file(mount.path, FOLDER)]
        self._names: list[str] = []
        self._links = 0

    def close(self, but: int | None = None) -> None:
        for descriptor in self._open:
            if descriptor != but:
                os.close(descriptor)
        self._open = [descriptor for descriptor in self._open if descriptor == but]

    def take(self, parts: Iterable[str]) -> MountedPath:
        self._check_folder()
        pending = [part for part in parts if part not in ("", ".")][::-1]
        while pending:
            name = pending.pop()
            if name == "..":
                self._up()
                continue
            self._check_name(name)
            status = self._spot(name).status()
            if status is not None and stat.S_ISLNK(status.st_mode) and (pending or self._rules.follow):
                pending += self._target(name)
            elif not pending:
                if status is not None:
                    self._check_identity(status, name)
                return self._spot(name)
            else:
                self._enter(name, status)
        return self._spot("")

    def _spot(self, name: str) -> MountedPath:
        return MountedPath(
            self._mount, self._open[-1], name, (*self._names, name) if name else tuple(self._names)
        )

    def _up(self) -> None:
        if len(self._open) == 1:
            raise self._outside()
        os.close(self._open.pop())
        self._names.pop()

    def _target(self, name: str) -> list[str]:
        self._links += 1
        if self._links > _LINKS:
            raise ToolFailure("failed", f"{self._shown(name)}: its symbolic links form a cycle")
        target = os.readlink(name, dir_fd=self._open[-1])
        if target.startswith("/"):
            try:
                target = str(Path(target).relative_to(self._mount.path))
            except ValueError:
                raise self._outside(name) from None
            while len(self._open) > 1:
                self._up()
        return [part for part in target.split("/") if part not in ("", ".")][::-1]

    def _enter(self, name: str, status: os.stat_result | None) -> None:
        if len(self._open) > DEEPEST:
            raise ToolFailure("invalid_arguments", f"the path is more than {DEEPEST} folders deep")
        if status is None:
            if not self._rules.make_folders:
                raise missing(self._shown(name))
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._open[-1])
                if self._rules.made is not None:
                    self._rules.made.append(self._spot(name).shown)
        elif not stat.S_ISDIR(status.st_mode):
            raise ToolFailure("not_directory", f"{self._shown(name)} is not a folder")
        self._open.append(system.open_file(name, FOLDER, dir_fd=self._open[-1]))
        self._names.append(name)
        self._check_folder()

    def _check_folder(self) -> None:
        here = self._open[-1]
        self._check_identity(os.fstat(here), "")
        if self._rules.writing and is_git_folder(here):
            raise self._git("")

    def _check_identity(self, status: os.stat_result, name: str) -> None:
        if identity(status) in self._rules.hidden:
            raise self._closed(name)

    def _check_name(self, name: str) -> None:
        if self._mount.writable and folded((*self._names, name)) in self._rules.closed:
            raise self._closed(name)
        if self._rules.writing and (is_git_name(name) or makes_git_folder(self._open[-1], (name,))):
            raise self._git(name)

    def _closed(self, name: str) -> ToolFailure:
        return ToolFailure("denied", f"{self._shown(name)} is not for tools")

    def _git(self, name: str) -> ToolFailure:
        return ToolFailure("denied", f"{self._shown(name)} belongs to git, and tools don't write there")

    def _outside(self, link: str = "") -> ToolFailure:
        if link:
            return ToolFailure(
                "outside_workspace", f"{self._shown(link)} is a link that leads out of {self._mount.name}"
            )
        return ToolFailure("outside_workspace", f"the path leads out of {self._mount.name}")

    def _shown(self, name: str) -> str:
        return shown("/".join((self._mount.name, *self._names, *([name] if name else []))))


def is_git_name(name: str) -> bool:
    """Return whether any file system may take a name for `.git`."""
    plain = name.translate(_UNSEEN).casefold().split(":")[0].rstrip(". ")
    return plain in (".git", "git~1")


def looked_like(name: str) -> str:
    """Return a name as it looks: without invisible characters, in lower case, normalised."""
    plain = unicodedata.normalize("NFKC", name)
    return "".join(sign for sign in plain if sign.isprintable() and not sign.isspace()).casefold()


def folded(names: Iterable[str]) -> tuple[str, ...]:
    """Return names as a case-insensitive file system compares them."""
    return tuple(name.translate(_UNSEEN).casefold().rstrip(". ") for name in names)


def is_git_folder(descriptor: int, further: Iterable[str] = ()) -> bool:
    """Return whether git would take a folder for a repository. `further` are additional names in it."""
    names = set(folded(further))

    def there(name: str) -> bool:
        if name.casefold() in names:
            return True
        try:
            os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    return there("HEAD") and (there("commondir") or (there("objects") and there("refs")))


def makes_git_folder(descriptor: int, names: Iterable[str]) -> bool:
    """Return whether adding these names makes a folder a repository."""
    marks = [name for name in folded(names) if name in GIT_FOLDER]
    return bool(marks) and is_git_folder(descriptor, marks)
