"""macOS, by its C library where Python has no name for a call."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from uwf_git.base.system.posix import *  # noqa: F403

O_PATH: int = getattr(os, "O_EVTONLY", 0x8000) | os.O_NONBLOCK

_F_FULLFSYNC = 51
_KIND = 72  # where struct statfs of 64-bit inodes has the kind of file system
_PROC_PIDTASKINFO = 4


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sync(descriptor: int) -> None:
    """Wait until a file is on the disk. fsync alone leaves it in the disk's own memory, which a power cut takes. A file
    system that cannot do more is given what it can. Raises OSError."""
    try:
        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    except OSError:
        os.fsync(descriptor)


def share_content(source: int, target: int) -> None:
    del source, target
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


set_mode_unread = os.fchmod


def _sysctl(name: bytes, size: int) -> bytes:
    """Return a value of the kernel, b"" if it has none of this name."""
    value, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
    with suppress(AttributeError):
        if not _libc().sysctlbyname(name, value, ctypes.byref(length), None, ctypes.c_size_t(0)):
            return value.raw[: length.value]
    return b""


def booted_at() -> float:
    seconds = int.from_bytes(_sysctl(b"kern.boottime", 16)[:8], sys.byteorder)
    return float(seconds or time.time() - time.clock_gettime(time.CLOCK_MONOTONIC))


def boot_id() -> bytes:
    return _sysctl(b"kern.bootsessionuuid", 64)


def own_memory() -> tuple[int, int]:
    info = ctypes.create_string_buffer(96)
    with suppress(AttributeError):
        if _libc().proc_pidinfo(os.getpid(), _PROC_PIDTASKINFO, ctypes.c_uint64(0), info, 96) == 96:
            mapped, resident = (int.from_bytes(info.raw[at : at + 8], sys.byteorder) for at in (0, 8))
            return mapped, resident
    return 0, 0


def file_system(path: str | Path) -> str:
    libc, answer = _libc(), ctypes.create_string_buffer(4096)
    with suppress(AttributeError):
        statfs = getattr(libc, "statfs$INODE64", None) or libc.statfs  # the first on Intel
        if not statfs(os.fsencode(path), answer):
            return answer.raw[_KIND : _KIND + 16].split(b"\0")[0].decode("ascii", "replace")
    return ""


def keeps_order_of_names(_device: int) -> bool:
    return False
