"""Files and folders that survive a power cut: made aside, synced, then put in their place.

A rename can reach the disk before what it names does, so whatever others may rely on is synced first; a new name
counts once its folder is synced too. git and libgit2 do this for objects and refs when they are told to, and for
nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache
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


def sync_all(descriptors: Sequence[int]) -> None:
    """Waits until what several files of one file system hold is on the disk. Where that has a journal they wait
    together, for about as long as for one; btrfs is quicker one by one. Raises OSError."""
    first, *others = descriptors
    if not others or not _has_journal(os.fstat(first).st_dev):
        for descriptor in descriptors:
            os.fsync(descriptor)
        return
    from threading import Thread

    failed: list[OSError] = []

    def wait(descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            failed.append(error)

    waiting = [Thread(target=wait, args=(each,)) for each in others]
    for thread in waiting:
        thread.start()
    try:
        wait(first)
    finally:
        for thread in waiting:
            thread.join()
    if failed:
        raise failed[0]


def keeps_order(path: Path, other: Path) -> bool:
    """Whether new names in one folder are on the disk once later ones in another are: both are in one journal, which
    is written in order."""
    device = path.stat().st_dev
    return device == other.stat().st_dev and _has_journal(device)


@lru_cache(maxsize=16)
def _has_journal(device: int) -> bool:
    """Whether a file system writes every change of its folders to one journal: ext4 with a journal does, and XFS.
    What can't be found out is taken for one that doesn't."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        name = Path(f"/sys/dev/block/{number}").readlink().name
        if any(each.startswith(f"{name}-") for each in os.listdir("/proc/fs/jbd2")):  # noqa: PTH208
            return True
    except OSError:
        pass
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split(" ")[2] == number and " - xfs " in line for line in lines)


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


def refusal(folder: Path, size: int = 1) -> OSError | None:
    """Why a file of so many bytes can't be made in a folder; None where it can. It is gone again, and nothing that
    looks for refs or objects there takes it for one."""
    path = folder / f".{os.getpid()}.lock"
    try:
        reserve(path, size, 0o600)
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return None


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
