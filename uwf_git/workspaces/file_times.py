"""What tells without git that no file of a worktree has changed since git read it: the files' times of change.

No program can set those, so what an agent does to a file's content, times or mode shows, as does another file in its
place. They are taken before git reads, so a later change differs from them; a change within the same tick of the
clock can't be told, so a folder with one as new is not known. Each file is asked for, but no file is opened.

Folders that git ignores are passed over, if they are large: which they are follows from the `.gitignore` files, which
are among the others, and from the files of `rules`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import marshal
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system

MOST = 2000
"""Files and folders. Of more, asking for each takes as long as git does, which has to ask again if one has changed."""

_TICK = 20_000_000  # nanoseconds, of the slowest clock that Linux gives a file's times
_KINDS = frozenset(("ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "tmpfs", "overlay"))
_IGNORES = ".gitignore"
_State = tuple[int, int, int, int]  # a file's inode, mode, size and time of change
_FOLDER = os.O_RDONLY | system.O_DIRECTORY | system.O_NOFOLLOW | system.O_CLOEXEC


class TooMany(Exception):
    """There are more than MOST files and folders. `folders` are those seen, by their paths."""

    def __init__(self, folders: Collection[str]) -> None:
        super().__init__()
        self.folders = folders


class _Folder(NamedTuple):
    """A folder: its inode and times, its files and folders by name, and a digest of the files' states, "" if one is too
    new to tell a change."""

    inode: int
    modified: int
    changed: int
    files: list[str]
    folders: list[str]
    digest: str


class FileTimes(NamedTuple):
    """The state of a worktree's files. `rules` is that of other files that decide what git reads, `ignores` that of
    the `.gitignore` files, for which `skipped` folders are ignored. Without `folders`, there are too many files."""

    rules: dict[str, list[int]]
    ignores: str
    skipped: list[str]
    folders: dict[str, _Folder]

    def same_as(self, known: FileTimes) -> bool:
        """Whether no file has changed since `known` was taken."""
        return bool(known.folders) and known.is_settled and self == known

    @property
    def is_settled(self) -> bool:
        """Whether a change would show."""
        return all(folder.digest for folder in self.folders.values())

    def as_json(self) -> bytes:
        return json.dumps(self).encode("ascii")

    @classmethod
    def parse(cls, text: bytes) -> FileTimes:
        """Raises ValueError, TypeError."""
        rules, ignores, skipped, folders = json.loads(text)
        return cls(rules, ignores, skipped, {path: _Folder(*row) for path, row in folders.items()})


def can_tell(folder: Path) -> bool:
    """Whether the times of files in a folder are those of this machine's clock."""
    return system.file_system(folder) in _KINDS


def states(paths: Iterable[Path | str]) -> dict[str, list[int]]:
    """Return the states of files by path, [] for one that is absent, or whose name no file can have."""
    rows = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116
            rows[str(path)] = [
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            ]
        except (OSError, ValueError):
            rows[str(path)] = []
    return rows


def take(
    top: Path,
    rules: Mapping[str, list[int]],
    known: FileTimes | None,
    ignored: Callable[[Collection[str]], Iterable[str]],
) -> FileTimes:
    """Return the state of the files below a folder. `ignored` returns those of folders that git ignores, and has no
    file of. Raises OSError."""
    rules = dict(rules)
    if known is not None and known.rules == rules:
        if not known.folders:
            return known
        with contextlib.suppress(TooMany):
            times = _walk(top, rules, known, known.skipped)
            if times.ignores == known.ignores or not known.skipped:
                return times
    try:
        return _walk(top, rules, known, [])
    except TooMany as many:
        skipped = sorted(ignored(many.folders))
    try:
        return _walk(top, rules, known, skipped)
    except TooMany:
        return FileTimes(rules, "", skipped, {})


def _walk(top: Path, rules: dict[str, list[int]], known: FileTimes | None, skipped: list[str]) -> FileTimes:
    before = time.time_ns() - _TICK
    old = known.folders if known is not None and known.skipped == skipped else {}
    passed = frozenset(skipped)
    folders: dict[str, _Folder] = {}
    ignores: list[_State] = []
    level, count = [""], 0
    while level:
        below: list[str] = []
        for path in level:
            folder = _folder(f"{top}/{path}", path, old.get(path), passed, before, ignores)
            folders[path] = folder
            prefix = f"{path}/" if path else ""
            below += [prefix + name for name in folder.folders]
            count += len(folder.files) + 1
            if count > MOST:
                raise TooMany([*folders, *below])
        level = below
    return FileTimes(rules, _digest(ignores), skipped, folders)


def _folder(
    place: str, path: str, old: _Folder | None, passed: Collection[str], before: int, ignores: list[_State]
) -> _Folder:
    descriptor = system.open_file(place, _FOLDER)
    try:
        own = os.fstat(descriptor)
        if old is not None and (own.st_ino, own.st_mtime_ns, own.st_ctime_ns) == old[:3]:
            files, inner = old.files, old.folders
        else:
            files, inner = _names(descriptor, f"{path}/" if path else "", passed)
        newest, rows = own.st_ctime_ns, []
        for name in files:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            changed = status.st_ctime_ns
            rows.append((status.st_ino, status.st_mode, status.st_size, changed))
            if changed > newest:
                newest = changed
        if _IGNORES in files:
            ignores.append(rows[files.index(_IGNORES)])
        digest = _digest(rows) if newest < before else ""
        return _Folder(own.st_ino, own.st_mtime_ns, own.st_ctime_ns, files, inner, digest)
    finally:
        os.close(descriptor)


def _names(descriptor: int, prefix: str, passed: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the files and the folders in a folder, by name."""
    files, folders = [], []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if prefix + entry.name not in passed:
                    folders.append(entry.name)
            else:
                files.append(entry.name)
    return sorted(files), sorted(folders)


def _digest(rows: list[_State]) -> str:
    # Version 2: later ones write the same numbers in several ways.
    return hashlib.blake2b(marshal.dumps(rows, 2), digest_size=16).hexdigest()
