"""Durable files and folders: made aside, synced, then renamed.

A rename can reach the disk before the content, so content is synced first; a new name counts once its folder
is synced. git and libgit2 do this only for objects and refs, if told to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from uwf_git.base import system

_git_dirs: set[Path] = set()
_shared: dict[str, int] = {}  # what `share` gives what is below a folder, as `GitConfig.sharing` says
ASIDE = ".new"
"""How the names of folders end that are still being made, or whose maker was killed."""


def sync(path: str | Path) -> None:
    """fsync a file or folder. Raises OSError."""
    descriptor = system.open_file(path, os.O_RDONLY | system.O_CLOEXEC)
    try:
        system.sync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write a file's content, however much the system takes at once. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_all(descriptors: Sequence[int], meanwhile: Callable[[], object] | None = None) -> None:
    """fsync several files, starting all before waiting; `meanwhile` must not rely on them. Raises OSError,
    and what `meanwhile` raises."""
    if hasattr(os, "posix_fadvise"):
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # it is a hint
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if meanwhile:
        meanwhile()
    for descriptor in descriptors:
        system.sync(descriptor)


@lru_cache(maxsize=64)
def keeps_order(path: str | Path, other: str | Path) -> bool:
    """Whether new names in one folder are durable before later ones in another: both are in one ordered
    journal."""
    device = os.stat(path).st_dev  # noqa: PTH116
    return device == os.stat(other).st_dev and system.keeps_order_of_names(device)  # noqa: PTH116


def keep_folder(git_dir: Path) -> None:
    """Have `make_folders` make folders below a repository's folder, and never that folder itself: one that was moved
    away gets no fragment of a repository at its old place."""
    _git_dirs.add(git_dir)


def require_folder(git_dir: Path) -> None:
    """Raise StoreUnwritable for a repository's folder that is gone."""
    if not git_dir.is_dir():
        from uwf_git.base.errors import StoreUnwritable

        raise StoreUnwritable(
            f"store {git_dir} is not there any more",
            "move it back, and repeat: what is not recorded there is asked for again",
        )


def share_below(folder: Path, sharing: int) -> None:
    """Apply `core.sharedRepository` to `share` below a folder."""
    if sharing:
        _shared[f"{folder}/"] = sharing


def share(path: str | Path, make: bool = False) -> None:
    """Give a file or folder git's mode by `core.sharedRepository`. With `make`, create a shared file first.
    Raises OSError."""
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
    if mode != stat.S_IMODE(old.st_mode) and old.st_uid == system.user():  # another's is as they made it
        os.chmod(path, mode)  # noqa: PTH101


def sync_folder(path: Path) -> None:
    """fsync a folder with all contents. Raises OSError."""
    for folder, _folders, names in os.walk(path):
        for name in names:
            if stat.S_ISREG(os.lstat(Path(folder, name)).st_mode):  # anything else could be waited for
                sync(Path(folder, name))
        sync(Path(folder))


def reserve(path: str | Path, size: int, mode: int) -> None:
    """Make a file with allocated space, unwritten if possible. Raises OSError."""
    descriptor = system.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system.O_CLOEXEC, mode)
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
    """Return why a file of this size cannot be made, None if it can. The test file is removed, and is never
    taken for a ref or object."""
    path = folder / f".{os.getpid()}.lock"
    try:
        reserve(path, size, 0o600)
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return None


def make_folders(path: Path, mode: int = 0o777, synced: bool = True) -> None:
    """Make a folder with parents, of which the last gets the `mode`, and sync their names. Raises OSError, and
    StoreUnwritable below a repository's folder that is gone."""
    git_dir = next((parent for parent in path.parents if parent in _git_dirs), None)
    missing = [
        item for item in takewhile(lambda item: item != git_dir, (path, *path.parents)) if not item.exists()
    ]
    try:
        for item in reversed(missing or [path]):
            item.mkdir(mode if item == path else 0o777, exist_ok=True)
            share(item)
    except FileNotFoundError:
        if git_dir is not None:
            require_folder(git_dir)
        raise
    for item in missing if synced else ():
        sync(item.parent)


def make_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder atomically: `fill` gets a temporary one, which is synced and renamed. An existing one
    stays. Raises what `fill` raises, and OSError."""
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
