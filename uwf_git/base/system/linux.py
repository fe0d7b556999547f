"""Linux."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from uwf_git.base.system.posix import *  # noqa: F403
from uwf_git.base.system.process import Process as Process

NAME = "Linux"
O_PATH: int = getattr(os, "O_PATH", 0)
"""Open a file without reading it."""
_FICLONE = 0x40049409
_PIECE = 1 << 16
# Seconds: a process's start is a whole number of ticks, and a file's time that of the last tick.
_EARLY = 0.02
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_PR_SET_CHILD_SUBREAPER = 36
_BTIME_OFFSET = 80  # in struct statx

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


def is_in_windows() -> bool:
    """Return whether this Linux is one in Windows, WSL."""
    try:
        return b"microsoft" in content("/proc/sys/kernel/osrelease").lower()
    except OSError:
        return False


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


def has_processes() -> bool:
    """Return whether the processes of this machine can be listed."""
    return Path("/proc/self/stat").exists()


def numbers() -> list[int]:
    """Return the numbers of all processes that can be seen."""
    try:
        with os.scandir("/proc") as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def processes(wanted: Iterable[int]) -> Iterator[Process]:
    """Yield the living processes among these."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for pid in wanted:
        try:
            # The name, in parentheses, may have spaces: split after the last parenthesis.
            contents = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            if contents[0] not in (b"Z", b"X"):
                processor = sum(map(int, contents[11:15])) / tick
                yield Process(
                    pid,
                    int(contents[1]),
                    int(contents[2]),
                    int(contents[19]),
                    int(contents[17]),
                    processor,
                    int(contents[21]) * page,
                )
        except (OSError, ValueError, IndexError):
            continue


def seconds_of(process: Process) -> float:
    """Return when a process was started, in seconds since 1970 and a little early."""
    return booted_at() + process.start / os.sysconf("SC_CLK_TCK") - _EARLY


def environment_of(pid: int) -> bytes:
    """Return the variables that a process was started with, each followed by a zero. Raises OSError, also for another
    user's."""
    return content(f"/proc/{pid}/environ")


def notify(process: Process, *signals: int) -> None:
    """Signal one process by a descriptor, since its number may be reused."""
    with suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if signals and is_there(process):
                for number in signals:
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def is_there(process: Process) -> bool:
    """Return whether it lives, and isn't another one of its number."""
    return any(item.start == process.start for item in processes((process.pid,)))


def content(path: str) -> bytes:
    """Read a file of /proc, five times as fast as with pathlib; every process is read when a step ends."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while data := os.read(descriptor, _PIECE):
            content += data
        return content
    finally:
        os.close(descriptor)


def made_at(path: Path) -> float | None:
    """Return when a file was made, in seconds since 1970; None if the file system doesn't say that."""
    import ctypes
    import struct

    answer = ctypes.create_string_buffer(256)
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return None
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer):
        return None
    if not struct.unpack_from("=I", answer)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_OFFSET)
    return float(seconds + nanoseconds / 1e9)


def files_of(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the files that a process has open, by their descriptors, as far as they can be seen."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            links = [(int(entry.name), entry.path) for entry in entries]
    except OSError:
        return
    for descriptor, link in links:
        with suppress(OSError):
            yield descriptor, os.readlink(link)  # noqa: PTH115 - pathlib takes five times as long


def is_closed_in_children(pid: int, descriptor: int) -> bool:
    """Return whether a file that a process has open isn't open in what it starts; also if that is not known."""
    try:
        flags = content(f"/proc/{pid}/fdinfo/{descriptor}").split(b"flags:")[1].split()[0]
    except (OSError, IndexError):
        return True
    return bool(int(flags, 8) & os.O_CLOEXEC)


def openers(path: Path) -> dict[int, bool]:
    """Return the other processes that have a file open, and whether they hold its lock."""
    status, here = path.stat(), os.getpid()
    return {pid: held for pid in numbers() if pid != here for held in _openings(pid, path.name, status)}


def _openings(pid: int, name: str, wanted: os.stat_result) -> list[bool]:
    """Return for each open file of a process that is this one whether it holds its lock. The name counts too, since an
    inode may be reused."""
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []
    locks_held = []
    for link in links:
        with suppress(OSError):
            if os.path.samestat(link.stat(), wanted) and link.readlink().name == name:
                locks_held.append("FLOCK" in Path(f"/proc/{pid}/fdinfo/{link.name}").read_text())
    return [any(locks_held)] if locks_held else []


def signal_opener(pid: int, path: Path, number: int) -> bool:
    """Signal a process if it has a file open. Opened before the check, a descriptor of the process cannot mean another
    one that got its number."""
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if any(_openings(pid, path.name, path.stat())):
                signal.pidfd_send_signal(process, number)
                return True
        finally:
            os.close(process)
    return False


def works_below(program: str, folder: Path, named: Path) -> bool:
    """Return whether a program is at work in a folder, or with `named` among its arguments, as far as can be seen."""
    for pid in numbers():
        with suppress(OSError):
            if content(f"/proc/{pid}/comm").startswith(program.encode()):
                at = Path(os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115
                if at.is_relative_to(folder) or os.fsencode(named) in content(f"/proc/{pid}/cmdline"):
                    return True
    return False


def children() -> list[int]:
    """Return this process's children, zombies included."""
    pids: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            pids += map(int, content(f"{task}/children").split())
    return pids


def adopt_orphans(yes: bool) -> bool:
    """Have orphans among this process's descendants become its children, or init's again; return whether that works."""
    import ctypes

    return has_processes() and not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)
