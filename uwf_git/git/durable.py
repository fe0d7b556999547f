"""Files and folders that survive a power cut: made aside, synced, then put in their place.

A rename can reach the disk before what it names does, so whatever others may rely on is synced first; a new name
counts once its folder is synced too. git and libgit2 do this for objects and refs when they are told to, and for
nothing else.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

ASIDE = ".new"
"""How the names of folders end that are still being made, or whose maker was killed."""


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's names, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Syncs a folder with all files and folders in it. Raises OSError."""
    for folder, _folders, names in os.walk(path):
        for name in names:
            if stat.S_ISREG(os.lstat(Path(folder, name)).st_mode):  # anything else could be waited for
                sync(Path(folder, name))
        sync(Path(folder))


def reserve(path: Path, size: int, mode: int) -> None:
    """Makes a file of so many bytes that have their place on the disk, without writing them where that can be helped.
    Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(descriptor, 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Makes a folder and those above it that are missing, and syncs their names. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def make_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Makes a folder that is whole or not there: `fill` gets one beside it, which is synced and renamed. Where
    somebody else makes it meanwhile, theirs stays. Raises what `fill` raises, and OSError."""
    make_folders(path.parent)
    aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}{ASIDE}")
    aside.mkdir()
    try:
        fill(aside)
        sync_folder(aside)
        try:
            aside.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
