"""Linux."""

from __future__ import annotations

import fcntl
import os
import time
from functools import lru_cache
from pathlib import Path

from uwf_git.base.system.posix import *  # noqa: F403

O_PATH: int = getattr(os, "O_PATH", 0)
"""Open a file without reading it."""
_FICLONE = 0x40049409

sync = os.fsync


def share_content(source: int, target: int) -> None:
    """Give an empty file the content of another, without using more of the disk. Raises OSError."""
    fcntl.ioctl(target, _FICLONE, source)


def set_mode_unread(descriptor: int, mode: int) -> None:
    """Set the mode of a file that is open by O_PATH. Raises OSError."""
    os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101


def own_memory() -> tuple[int, int]:
    """Return the bytes that this process has mapped, and those of them in memory; 0 if unknown."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        mapped, resident, *_ = os.read(descriptor, 128).split()
        page = os.sysconf("SC_PAGE_SIZE")
        return int(mapped) * page, int(resident) * page
    except (OSError, ValueError):
        return 0, 0
    finally:
        os.close(descriptor)


def booted_at() -> float:
    """Return when the machine was started, in seconds since 1970, by the clock of now."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> bytes:
    """Return what another start of the machine doesn't have, b"" if that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read()
    except OSError:
        return b""


def file_system(path: str | Path) -> str:
    """Return the kind of file system that a path is on, "" if that is not known. Raises OSError."""
    return _file_system(os.stat(path).st_dev)  # noqa: PTH116


@lru_cache(maxsize=16)
def _file_system(device: int) -> str:
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next(
        (line.partition(" - ")[2].split(" ")[0] for line in lines if line.split(" ")[2] == number), ""
    )


@lru_cache(maxsize=16)
def keeps_order_of_names(device: int) -> bool:
    """Return whether a file system journals all changes of folders in their order: ext4 with a journal, XFS. Unknown
    counts as no."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        name = Path(f"/sys/dev/block/{number}").readlink().name
        if any(item.startswith(f"{name}-") for item in os.listdir("/proc/fs/jbd2")):  # noqa: PTH208
            return True
    except OSError:
        pass
    return _file_system(device) == "xfs"
