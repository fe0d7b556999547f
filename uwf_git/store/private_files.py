"""Writing and reading files of the private folder, whole and without waiting for a pipe."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from uwf_git.base import system
from uwf_git.base.errors import StoreUnwritable
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.fsync import make_folders, share, sync, write_all
from uwf_git.git.refs import read_file

_READ = 0o755
MOST = 256 << 20  # bytes of a file that is read: far more than any of ours has


def write_private(
    path: Path,
    content: bytes,
    failure: str = "",
    hint: str = "check permissions and free space",
    synced: bool = False,
    mode: int = 0o666,
    shared: bool = True,
) -> None:
    """Write a file atomically, making its folder if needed. `synced` waits for the disk. `mode` is narrowed
    by the umask, and widened by `core.sharedRepository` if `shared`. Raises StoreUnwritable with `failure`
    and `hint`."""
    temporary = f"{path}.{os.getpid()}"
    try:
        if not path.parent.is_dir():
            make_folders(path.parent)
            if not shared:
                path.parent.chmod(_READ)
        descriptor = opener(mode, shared)(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system.O_CLOEXEC)
        try:
            write_all(descriptor, content)
            if synced:
                system.sync(descriptor)
        finally:
            os.close(descriptor)
        system.replace(temporary, path)
        if synced:
            sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        failure = failure or f"cannot write {path}"
        raise StoreUnwritable(f"{failure}: {error}", hint) from None


def opener(mode: int, shared: bool = True) -> Callable[[str, int], int]:
    def opened(path: str, flags: int) -> int:
        descriptor = system.open_file(path, flags | system.O_NONBLOCK, mode)
        if shared and flags & os.O_CREAT:
            share(path)
        return descriptor

    return opened


def content_of(path: str | Path) -> bytes:
    """As `read_private`; b"" for a file that cannot be read."""
    try:
        return read_file(path, at_most=MOST) or b""
    except OSError:
        return b""


def read_private(path: str | Path) -> bytes:
    """Read a file. Raises OSError, also for anything but a regular file (a FIFO would block) and for more
    than MOST bytes."""
    data = read_file(path, at_most=MOST)
    if data is None:
        raise FileNotFoundError(path)
    return data


def forget_threads(folder: Path, wanted: Callable[[ThreadId], bool]) -> None:
    """Delete the folders of threads for which `wanted` is False, from the folder that has one for each. Best effort."""
    with contextlib.suppress(OSError):
        for own in [*folder.iterdir()]:
            if not (is_thread_id(own.name) and wanted(ThreadId(own.name))):
                for path in [*own.iterdir()]:
                    path.unlink()
                own.rmdir()
