"""Processes of this machine, from /proc, and signals to them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system

_PROC = Path("/proc")
_PIECE = 1 << 16
_POLL = 0.01
# Seconds: a process's start is a whole number of ticks, and a file's time that of the last tick.
_EARLY = 0.02
_AT_FDCWD = -100
_STATX_BTIME = 0x800
_BTIME_OFFSET = 80  # in struct statx


class Process(NamedTuple):
    """A process. `processor` is CPU seconds including ended children, `resident` bytes of memory; `start`
    distinguishes reused numbers."""

    pid: int
    parent: int
    group: int
    start: int
    threads: int
    processor: float
    resident: int


def has_table() -> bool:
    return (_PROC / "self" / "stat").exists()


def numbers() -> list[int]:
    try:
        with os.scandir(_PROC) as entries:
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


def parents_of(pid: int) -> list[int]:
    """Return a process's parent, that one's parent, and so on; of `ps` if there is no /proc."""
    chain: list[int] = []
    parents = _parents_by_ps() if not has_table() else None
    while True:
        if parents is not None:
            pid = parents.get(pid, 0)
        else:
            pid = next((process.parent for process in processes((pid,))), 0)
        if pid <= 0 or pid in chain:
            return chain
        chain.append(pid)


def started_at(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970 and a little early; None if that is not known."""
    if has_table():
        ticks = next((process.start for process in processes((pid,))), None)
        if ticks is None:
            return None
        return system.booted_at() + ticks / os.sysconf("SC_CLK_TCK") - _EARLY
    import subprocess

    from uwf_git.sandbox.programs import find_program

    if (program := find_program("ps")) is None:
        return None
    words = [program, "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(words, capture_output=True, check=False, env={"LC_ALL": "C"}, text=True)
    try:
        return time.mktime(time.strptime(" ".join(done.stdout.split()), "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        return None


def made_at(path: Path) -> float | None:
    """Return when a file was made, in seconds since 1970; None if the file system doesn't say that."""
    try:
        if (birth := getattr(path.stat(), "st_birthtime", None)) is not None:
            return float(birth)
        return _made_by_statx(path)
    except (OSError, AttributeError):
        return None


def _made_by_statx(path: Path) -> float | None:
    import ctypes
    import struct

    answer = ctypes.create_string_buffer(256)
    statx = ctypes.CDLL(None, use_errno=True).statx
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer):
        return None
    if not struct.unpack_from("=I", answer)[0] & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_OFFSET)
    return float(seconds + nanoseconds / 1e9)


def _parents_by_ps() -> dict[int, int]:
    import subprocess

    from uwf_git.sandbox.programs import find_program

    if (program := find_program("ps")) is None:
        return {}
    done = subprocess.run([program, "-A", "-o", "pid=,ppid="], capture_output=True, check=False)
    lines = (line.split() for line in done.stdout.splitlines())
    return {int(line[0]): int(line[1]) for line in lines if len(line) == 2}


def started_by(pid: int) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in processes(numbers()):
        children.setdefault(process.parent, []).append(process)
    descendants = list(children.get(pid, ()))
    for process in descendants:  # which grows meanwhile
        descendants.extend(children.get(process.pid, ()))
    return descendants


def notify(process: Process, *numbers: int) -> None:
    """Signal one process by a descriptor, since its number may be reused."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if numbers and _is_there(process):
                for number in numbers:
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _is_there(process: Process) -> bool:
    return any(item.start == process.start for item in processes((process.pid,)))


def end_each(processes: Sequence[Process], grace: float) -> None:
    """End processes, not necessarily children: SIGTERM, after `grace` seconds SIGKILL."""
    for process in processes:
        notify(process, signal.SIGTERM, signal.SIGCONT)
    deadline = time.monotonic() + grace
    while (processes := list(filter(_is_there, processes))) and time.monotonic() < deadline:
        time.sleep(_POLL)
    for process in processes:
        notify(process, system.KILL)


def content(path: str) -> bytes:
    """Read a file of /proc, five times as fast as with pathlib; every process is read when a step ends."""
    descriptor = system.open_file(path, os.O_RDONLY | system.O_CLOEXEC)
    try:
        content = b""
        while data := os.read(descriptor, _PIECE):
            content += data
        return content
    finally:
        os.close(descriptor)
