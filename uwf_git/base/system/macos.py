"""macOS, by its C library where Python has no name for a call."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from uwf_git.base.system.posix import *  # noqa: F403
from uwf_git.base.system.process import Process as Process

NAME = "macOS"
O_PATH: int = getattr(os, "O_EVTONLY", 0x8000) | os.O_NONBLOCK

_F_FULLFSYNC = 51
_KIND = 72  # where struct statfs of 64-bit inodes has the kind of file system
# Of libproc: flavours of proc_pidinfo, and the sizes of what they answer.
_ALL, _BSD, _TASK, _FOLDERS = (2, 232), (3, 136), (4, 96), (9, 2352)
_ZOMBIE = 5
_PROCARGS2 = 1, 49  # kern.procargs2


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
    mapped, resident = struct.unpack_from("=QQ", _info(os.getpid(), _TASK) or bytes(16))
    return mapped, resident


def file_system(path: str | Path) -> str:
    libc, answer = _libc(), ctypes.create_string_buffer(4096)
    with suppress(AttributeError):
        statfs = getattr(libc, "statfs$INODE64", None) or libc.statfs  # the first on Intel
        if not statfs(os.fsencode(path), answer):
            return answer.raw[_KIND : _KIND + 16].split(b"\0")[0].decode("ascii", "replace")
    return ""


def is_in_windows() -> bool:
    return False


def keeps_order_of_names(_device: int) -> bool:
    return False


def _info(pid: int, flavour: tuple[int, int]) -> bytes:
    """Return what the kernel tells of a process, b"" for one that is gone or another user's."""
    number, size = flavour
    answer = ctypes.create_string_buffer(size)
    with suppress(AttributeError):
        if _libc().proc_pidinfo(pid, number, ctypes.c_uint64(0), answer, size) == size:
            return answer.raw
    return b""


def has_processes() -> bool:
    return True


def numbers() -> list[int]:
    room = 4 * max(_libc().proc_listallpids(None, 0), 0) + 4096
    answer = ctypes.create_string_buffer(room)
    count = max(_libc().proc_listallpids(answer, room), 0)
    return [*struct.unpack_from(f"={count}i", answer.raw)]


def processes(wanted: Iterable[int]) -> Iterator[Process]:
    unit = (ctypes.c_uint32 * 2)(1, 1)
    with suppress(AttributeError):
        _libc().mach_timebase_info(unit)
    for pid in wanted:
        told = _info(pid, _ALL) or _info(pid, _BSD)
        if told and (process := process_of(told, unit[0] / unit[1] / 1e9)) is not None:
            yield process


def process_of(told: bytes, unit: float) -> Process | None:
    """Return the process that a struct proc_taskallinfo tells of, or its beginning for another user's; None for a
    zombie. `unit` is the seconds of a tick."""
    status, pid, parent = struct.unpack_from("=I4xII", told, 4)
    group, seconds, microseconds = struct.unpack_from("=I16xQQ", told, 100)
    resident = threads = 0
    processor = 0.0
    if len(told) >= _ALL[1]:
        resident, user, kernel = struct.unpack_from("=QQQ", told, 144)
        processor = (user + kernel) * unit
        (threads,) = struct.unpack_from("=i", told, 220)
    start = seconds * 1_000_000 + microseconds
    return None if status == _ZOMBIE else Process(pid, parent, group, start, threads, processor, resident)


def seconds_of(process: Process) -> float:
    return process.start / 1e6


def _arguments(pid: int) -> bytes:
    name = (ctypes.c_int * 3)(*_PROCARGS2, pid)
    size = ctypes.c_size_t(1 << 20)
    answer = ctypes.create_string_buffer(size.value)
    if _libc().sysctl(name, 3, answer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return answer.raw[: size.value]


def environment_of(pid: int) -> bytes:
    return variables_of(_arguments(pid))


def variables_of(arguments: bytes) -> bytes:
    """Return the variables in the kernel's copy of a process's beginning: a number of arguments, the program's path,
    filling, the arguments, the variables."""
    (count,) = struct.unpack_from("=i", arguments)
    _, _, rest = arguments[4:].partition(b"\0")
    rest = rest.lstrip(b"\0")
    for _ in range(count):
        _, _, rest = rest.partition(b"\0")
    return rest


def notify(process: Process, *signals: int) -> None:
    # Its number could be another's the moment after; nothing here holds on to a process.
    if is_there(process):
        for number in signals:
            with suppress(OSError):
                os.kill(process.pid, number)


def is_there(process: Process) -> bool:
    return any(item.start == process.start for item in processes((process.pid,)))


def made_at(path: Path) -> float | None:
    return getattr(path.stat(), "st_birthtime", None)


def files_of(_pid: int) -> Iterator[tuple[int, str]]:
    return iter(())


def is_closed_in_children(_pid: int, _descriptor: int) -> bool:
    return True


def openers(path: Path) -> dict[int, bool]:
    import subprocess

    try:
        done = subprocess.run(["/usr/sbin/lsof", "-t", str(path)], capture_output=True, check=False)
    except OSError:
        return {}
    return dict.fromkeys({*map(int, done.stdout.split())} - {os.getpid()}, True)


def signal_opener(pid: int, path: Path, number: int) -> bool:
    if pid not in openers(path):
        return False
    with suppress(OSError):
        os.kill(pid, number)
        return True
    return False


def works_below(program: str, folder: Path, named: Path) -> bool:
    for pid in numbers():
        if _info(pid, _BSD)[48:64].startswith(program.encode()):
            at = Path(os.fsdecode(_info(pid, _FOLDERS)[152:1176].split(b"\0")[0] or b"/"))
            with suppress(OSError):
                if at.is_relative_to(folder) or os.fsencode(named) in _arguments(pid):
                    return True
    return False


def children() -> list[int]:
    return [process.pid for process in processes(numbers()) if process.parent == os.getpid()]


def adopt_orphans(_yes: bool) -> bool:
    return False
