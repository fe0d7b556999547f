"""Files that tools may read and write: named folders, and only what is really inside them.

    @project/src/a.py, src/a.py   the working folder: read and write
    @workflow/notes.md            the workflow's folder: read only
    @output/3.txt                 a long result: read only, removed with the step

A crew's step has `@pkg` and `@state` besides @project, and no others, under these names and the package's
placeholders only.

A file is written beside its target, synced, and renamed. Nothing is written into a git repository's own
folder, since git runs what is there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from uwf_git.base import system
from uwf_git.sandbox.mounts import NAMES, PROJECT, named, variable
from uwf_git.sandbox.path import (
    FILE,
    LONGEST,
    Identity,
    Mount,
    MountedPath,
    Rules,
    folded,
    identity,
    looked_like,
    makes_git_folder,
    missing,
    opened,
    places,
    system_failure,
    walk,
)
from uwf_git.sandbox.results import ToolFailure, shown

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.O_NOFOLLOW | system.O_CLOEXEC
_RESTORED = 64_000_000  # bytes of a file that one of several changes may replace


class Change(NamedTuple):
    """A file's new content, None to delete it. `mode` is for a new file."""

    path: str
    data: bytes | None
    mode: int | None = None


class Changed(NamedTuple):
    """A change made: "created", "changed" or "deleted"."""

    path: str
    kind: str


class _Before(NamedTuple):
    """A spot's old content. `data` is None if it need not be restored; for a link, `mode` is 0 and `data` its
    target."""

    mode: int
    data: bytes | None


class Limits(NamedTuple):
    """Maximum bytes read per call and written per file; None for no limit."""

    read: int | None = None
    write: int | None = None


class Workspace:
    """The mounts: @project and `others`. `hidden` files and folders cannot be touched or created. With
    `by_name`, no path of this machine is shown. Raises OSError if a folder is missing."""

    def __init__(
        self,
        project: Path,
        others: Iterable[Mount] = (),
        hidden: Sequence[Path] = (),
        limits: Limits = Limits(),  # noqa: B008
        by_name: bool = False,
    ) -> None:
        self.project = Mount(PROJECT, project.resolve(strict=True), True)
        real = (other._replace(path=other.path.resolve(strict=True)) for other in others)
        self._mounts = {mount.name: mount for mount in (self.project, *real)}
        self._told_paths = {str(project.absolute()): PROJECT} if by_name else {}
        if by_name:
            self._told_paths |= {str(mount.path): mount.name for mount in self.mounts}
        self.limits = limits
        self.by_name = by_name
        self.hidden = tuple(path.resolve() for path in hidden if path.exists())
        self._identities = frozenset(identity(path.stat()) for path in self.hidden)
        self._closed = frozenset(
            folded(place.relative_to(self.project.path).parts)
            for path in hidden
            for place in places(path)
            if place.is_relative_to(self.project.path) and place != self.project.path
        )

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(self._mounts.values())

    def split_pattern(self, pattern: str) -> tuple[str, str]:
        """Return a glob's mount, by default @project, and the rest."""
        pattern = named(pattern) if self.by_name else pattern
        first, slash, rest = pattern.partition("/")
        return (first, rest) if slash and first in self._mounts else (PROJECT, pattern)

    def is_hidden(self, status: os.stat_result) -> bool:
        return identity(status) in self._identities

    @contextlib.contextmanager
    def locate(self, path: str, rules: Rules = Rules()) -> Iterator[MountedPath]:  # noqa: B008
        """Walk to a path, with its folder open for the block. Raises ToolFailure, also for an OSError in the
        block."""
        mount, parts = self._parse(path)
        if rules.writing and not mount.writable:
            raise ToolFailure("read_only", f"{mount.name} can only be read; write to {PROJECT}")
        try:
            with walk(mount, parts, rules._replace(hidden=self._identities, closed=self._closed)) as spot:
                yield spot
        except OSError as error:
            raise system_failure(error, path) from None

    @contextlib.contextmanager
    def open_file(self, path: str) -> Iterator[tuple[BinaryIO, MountedPath]]:
        """Open a regular file. Raises ToolFailure."""
        with self.locate(path) as spot, open_regular(spot) as file:
            yield file, spot

    @contextlib.contextmanager
    def open_folder(self, path: str) -> Iterator[tuple[int, MountedPath]]:
        with self.locate(path) as spot:
            status = spot.status()
            if status is None:
                raise missing(spot.shown)
            if not stat.S_ISDIR(status.st_mode):
                raise ToolFailure("not_directory", f"{shown(spot.shown)} is not a folder")
            with opened(spot.name or ".", spot.folder) as folder:
                yield folder, spot

    def read(self, path: str, most: int) -> tuple[bytes, int]:
        """Return a file's bytes and mode. Raises ToolFailure, `too_large`."""
        with self.open_file(path) as (file, spot):
            return _whole(file, most, spot), stat.S_IMODE(os.fstat(file.fileno()).st_mode)

    def change(self, changes: Sequence[Change]) -> list[Changed]:
        """Make all changes or none. Raises ToolFailure."""
        folders: list[str] = []
        try:
            with contextlib.ExitStack() as stack:
                spots = [stack.enter_context(self._target(change, folders)) for change in changes]
                for change, spot in zip(changes, spots, strict=True):
                    self._allow(change, spot)
                _refuse_twins(spots)
                _refuse_repositories(changes, spots)
                return _carry_out(changes, spots)
        except BaseException:
            self._remove_folders(folders)
            raise

    def _allow(self, change: Change, spot: MountedPath) -> None:
        most, size = self.limits.write, 0 if change.data is None else len(change.data)
        if most is not None and size > most:
            raise ToolFailure(
                "too_large",
                f"{shown(spot.shown)} would hold {size} bytes, and what is written here may hold {most} at most",
            )
        if spot.mount.check is not None:
            spot.mount.check(spot.parts, change.data)

    @property
    def variables(self) -> dict[str, str]:
        """Variables with the mounts' paths, for commands."""
        return {variable(mount.name): str(mount.path) for mount in self.mounts} if self.by_name else {}

    def told(self, text: str) -> str:
        """Replace this machine's paths in a text by mounts' names."""
        for path in sorted(self._told_paths, key=len, reverse=True):
            text = text.replace(path, self._told_paths[path])
        return text

    def told_link(self, path: str, target: str) -> str:
        """Return a link's target for display."""
        if not self.by_name:
            return target
        try:
            with self.locate(path) as spot:
                return spot.shown
        except ToolFailure:
            return "nowhere that a tool can go"

    def _target(self, change: Change, folders: list[str]) -> contextlib.AbstractContextManager[MountedPath]:
        deleted = change.data is None
        return self.locate(
            change.path, Rules(writing=True, make_folders=not deleted, follow=not deleted, made=folders)
        )

    def _remove_folders(self, folders: list[str]) -> None:
        for path in reversed(folders):
            with contextlib.suppress(ToolFailure), self.locate(path, Rules(writing=True)) as spot:
                os.rmdir(spot.name, dir_fd=spot.folder)

    def _parse(self, path: str) -> tuple[Mount, list[str]]:
        if not path or "\0" in path:
            raise ToolFailure("invalid_arguments", "a path is empty or holds a NUL")
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise ToolFailure("invalid_arguments", "a path holds an incomplete character") from None
        if size > LONGEST:
            raise ToolFailure("invalid_arguments", f"a path has more than {LONGEST} bytes")
        first, *rest = (named(path) if self.by_name else path).split("/")
        if first in self._mounts:
            return self._mounts[first], rest
        if (plain := looked_like(first)) in NAMES:
            if plain in self._mounts:
                raise ToolFailure("invalid_arguments", f"{shown(first)} is not a mount: write it {plain}")
            raise ToolFailure("not_found", f"there is no {plain} here, but {', '.join(self._mounts)}")
        if first == "~":
            raise ToolFailure("outside_workspace", f"the home folder is outside of {PROJECT}")
        if first == "":
            return self._absolute(path)
        return self.project, [first, *rest]

    def _absolute(self, path: str) -> tuple[Mount, list[str]]:
        if self.by_name:
            raise ToolFailure(
                "outside_workspace", f"paths begin with {', '.join(self._mounts)}, not with a /"
            )
        for mount in self._mounts.values():
            root = str(mount.path).rstrip("/") + "/"
            if (path + "/").startswith(root):
                return mount, path[len(root) :].split("/")
        raise ToolFailure("outside_workspace", f"{shown(path)} is outside of {', '.join(self._mounts)}")


@contextlib.contextmanager
def open_regular(spot: MountedPath) -> Iterator[BinaryIO]:
    """Open a regular file at a spot. Raises ToolFailure, OSError."""
    status = spot.status()
    if status is None:
        raise missing(spot.shown)
    _refuse_irregular(status, spot)
    # Checked again after opening: the file may have become a pipe.
    with open(system.open_file(spot.name, FILE, dir_fd=spot.folder), "rb") as file:
        _refuse_irregular(os.fstat(file.fileno()), spot)
        yield file


def _whole(file: BinaryIO, most: int, spot: MountedPath) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise ToolFailure("too_large", f"{shown(spot.shown)} holds more than {most} bytes")
    return data


def _refuse_irregular(status: os.stat_result, spot: MountedPath) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailure("is_directory", f"{shown(spot.shown)} is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailure("special_file", f"{shown(spot.shown)} is a device, a pipe or a socket")


def _refuse_twins(spots: Sequence[MountedPath]) -> None:
    places = [(identity(os.fstat(spot.folder)), spot.name) for spot in spots]
    for spot, place in zip(spots, places, strict=True):
        if places.count(place) > 1:
            raise ToolFailure("invalid_arguments", f"{shown(spot.shown)} is changed twice")


def _refuse_repositories(changes: Sequence[Change], spots: Sequence[MountedPath]) -> None:
    pathses: dict[Identity, list[MountedPath]] = {}
    for change, spot in zip(changes, spots, strict=True):
        if change.data is not None:
            pathses.setdefault(identity(os.fstat(spot.folder)), []).append(spot)
    for beside in pathses.values():
        if makes_git_folder(beside[0].folder, [spot.name for spot in beside]):
            raise ToolFailure(
                "denied", f"{shown(beside[0].shown)} would make its folder a git repository's own"
            )


def _carry_out(changes: Sequence[Change], spots: Sequence[MountedPath]) -> list[Changed]:
    before = [_before(change, spot, len(spots) > 1) for change, spot in zip(changes, spots, strict=True)]
    staged: list[tuple[MountedPath, str]] = []
    done: list[tuple[MountedPath, _Before | None]] = []
    try:
        for change, spot, held in zip(changes, spots, before, strict=True):
            mode = held.mode if held is not None else change.mode
            temporary = "" if change.data is None else _stage(spot, change.data, mode)
            staged.append((spot, temporary))
        for (spot, temporary), held in zip(staged, before, strict=True):
            if temporary:
                os.rename(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
            else:
                os.unlink(spot.name, dir_fd=spot.folder)
            done.append((spot, held))
        for folder in {spot.folder for spot in spots}:
            system.sync(folder)
    except BaseException:
        for spot, held in reversed(done):
            _restore(spot, held)
        for spot, temporary in staged[len(done) :]:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=spot.folder)
        raise
    return [
        Changed(spot.shown, "deleted" if change.data is None else "created" if held is None else "changed")
        for change, spot, held in zip(changes, spots, before, strict=True)
    ]


def _before(change: Change, spot: MountedPath, one_of_several: bool) -> _Before | None:
    status = spot.status()
    if not spot.name:
        raise ToolFailure("is_directory", f"{spot.shown} is a folder")
    if status is None:
        if change.data is None:
            raise missing(spot.shown)
        return None
    if change.data is None and stat.S_ISLNK(status.st_mode):
        return _Before(0, os.fsencode(os.readlink(spot.name, dir_fd=spot.folder)))
    _refuse_irregular(status, spot)
    if not status.st_mode & 0o222:
        raise ToolFailure("read_only", f"{shown(spot.shown)} is write-protected")
    data = None
    if one_of_several:
        with open_regular(spot) as file:
            data = _whole(file, _RESTORED, spot)
    return _Before(stat.S_IMODE(status.st_mode), data)


def _stage(spot: MountedPath, data: bytes, mode: int | None) -> str:
    name = f".uwf-{secrets.token_hex(8)}.tmp"
    descriptor = system.open_file(name, _NEW, 0o666, dir_fd=spot.folder)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode & 0o777)
            file.write(data)
            file.flush()
            system.sync(file.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=spot.folder)
        raise
    return name


def _restore(spot: MountedPath, held: _Before | None) -> None:
    with contextlib.suppress(OSError):
        if held is None:
            os.unlink(spot.name, dir_fd=spot.folder)
        elif held.mode == 0 and held.data is not None:
            os.symlink(held.data, os.fsencode(spot.name), dir_fd=spot.folder)
        elif held.data is not None:
            temporary = _stage(spot, held.data, held.mode)
            os.rename(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
