"""Measuring side by side: what is compared runs in turns, so that the machine's noise hits both alike, and
of each the fastest turn counts, which is the one that was disturbed least."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Turn = Callable[[], float]


def run(argv: Sequence[str], environ: Mapping[str, str], status_wanted: int = 0) -> float:
    """The wall-clock seconds that a command takes. Raises CalledProcessError if it ends with another status."""
    with Path(os.devnull).open("r+b") as null:
        files = [(os.POSIX_SPAWN_DUP2, null.fileno(), stream) for stream in (0, 1)]
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, dict(environ), file_actions=files)
        _, status = os.waitpid(pid, 0)
        seconds = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    if code != status_wanted:
        raise subprocess.CalledProcessError(code, list(argv))
    return seconds


# Linux counts as a process's memory what the one that it was forked from had: so the one that measures
# must be small.
_PEAK = """
import os, resource, sys
null = os.open(os.devnull, os.O_RDWR)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def peak(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The bytes of memory that a command has at most. Raises CalledProcessError where it fails."""
    command = [sys.executable, "-I", "-S", "-c", _PEAK, *argv]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * unit


# As a subreaper it has the processes that outlive the one that started them as its own children.
_USED = """
import ctypes, os, resource, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
null = os.open(os.devnull, os.O_RDWR)
began = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
seconds = time.perf_counter() - began
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    pass
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, spent.ru_utime + spent.ru_stime)
sys.exit(code)
"""


def used(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """The wall-clock seconds that a command takes, and the CPU-seconds of it and of all that it started. Raises
    CalledProcessError where it fails."""
    command = [sys.executable, "-I", "-S", "-c", _USED, *argv]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    seconds, cpu = map(float, done.stdout.split())
    return seconds, cpu


def process(argv: Sequence[str], environ: Mapping[str, str]) -> Turn:
    """A turn that runs a command."""
    return lambda: run(argv, environ)


def timed(function: Callable[[], object]) -> Turn:
    """A turn that calls a function, without the garbage of whoever came before."""

    def turn() -> float:
        gc.collect()
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    return turn


def spent(function: Callable[[], object]) -> Turn:
    """A turn whose seconds are those of the processor, in this process and those that it started and that ended."""

    def turn() -> float:
        gc.collect()
        began = _processor()
        function()
        return _processor() - began

    return turn


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def fastest(turns: int, *things: Turn) -> list[float]:
    """The seconds that each thing took in its fastest turn, after one turn that doesn't count."""
    best = [float("inf")] * len(things)
    for number in range(turns + 1):
        for place, thing in enumerate(things):
            seconds = thing()
            if number:
                best[place] = min(best[place], seconds)
    return best


def disk(folder: Path) -> tuple[int, int]:
    """The bytes in a folder's files, and the bytes that the file system gives them."""
    apparent = allocated = 0
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            apparent += status.st_size
            allocated += status.st_blocks * 512
    return apparent, allocated
