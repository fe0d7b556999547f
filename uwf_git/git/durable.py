"""Files and folders that survive a power cut: made aside, synced, then put in their place.

A rename can reach the disk before what it names does, so whatever others may rely on is synced first; a new name
counts once its folder is synced too. git and libgit2 do this for objects and refs when they are told to, and for
nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

_shared: dict[str, int] = {}  # what `share` gives what is below a folder, as `GitConfig.sharing` says
ASIDE = ".new"
"""How the names of folders end that are still being made, or whose maker was killed."""


def sync(path: str | Path) -> None:
    """Waits until a file's content, or a folder's names, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(descriptors: Sequence[int], meanwhile: Callable[[], object] | None = None) -> None:
    """Waits until what several files hold is on the disk, which is told of all of them before any is waited for; what
    is done `meanwhile` must not rely on them. Raises OSError, and what `meanwhile` raises."""
    if hasattr(os, "posix_fadvise"):
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # it is a hint
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if meanwhile:
        meanwhile()
    for descriptor in descriptors:
        os.fsync(descriptor)


@lru_cache(maxsize=64)
def keeps_order(path: str | Path, other: str | Path) -> bool:
    """Whether new names in one folder are on the disk once later ones in another are: both are in one journal, which
    is written in order."""
    device = os.stat(path).st_dev  # noqa: PTH116
    return device == os.stat(other).st_dev and _has_journal(device)  # noqa: PTH116


@lru_cache(maxsize=16)
def _has_journal(device: int) -> bool:
    """Whether a file system writes every change of its folders to one journal: ext4 with a journal does, and XFS.
    What can't be found out is taken for one that doesn't."""
    try:
        name = Path(f"/sys/dev/block/{_number(device)}").readlink().name
        if any(each.startswith(f"{name}-") for each in os.listdir("/proc/fs/jbd2")):  # noqa: PTH208
            return True
    except OSError:
        pass
    return _kind(device) == "xfs"


@lru_cache(maxsize=16)
def _kind(device: int) -> str:
    """The kind of a file system, as Linux names it; "" where that can't be found out."""
    number = _number(device)
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next(
        (line.partition(" - ")[2].split(" ")[0] for line in lines if line.split(" ")[2] == number), ""
    )


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def share_below(folder: Path, sharing: int) -> None:
    """Has `share` follow what `core.sharedRepository` says of a repository, as `GitConfig.sharing` gives it."""
    if sharing:
        _shared[f"{folder}/"] = sharing


def share(path: str | Path, make: bool = False) -> None:
    """Gives a file or folder of ours the mode that git gives its own, by `core.sharedRepository`; elsewhere it is left
    as the umask made it. With `make` a file that is to be shared and isn't there is made first. Raises OSError."""
    if not _shared:
        return
    sharing = next((mode for below, mode in _shared.items() if str(path).startswith(below)), 0)
    if not sharing:
        return
    if make and not os.path.lexists(path):
        Path(path).touch()
    try:
        old = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:  # a git has packed it already
        return
    more = abs(sharing)
    if not old.st_mode & stat.S_IWUSR:
        more &= ~0o222
    if old.st_mode & stat.S_IXUSR:
        more |= (more & 0o444) >> 2
    mode = stat.S_IMODE(old.st_mode) & (0o7000 if sharing < 0 else 0o7777) | more
    if stat.S_ISDIR(old.st_mode) and mode & 0o060:
        mode |= stat.S_ISGID
    if mode != stat.S_IMODE(old.st_mode) and old.st_uid == os.geteuid():  # another's is as they made it
        os.chmod(path, mode)  # noqa: PTH101


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
        share(path)
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
    for each in reversed(missing):
        share(each)
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
        import shutil

        shutil.rmtree(aside, ignore_errors=True)
