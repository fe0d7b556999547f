"""Hard limits on what code from a workflow may take: expressions, templates, patterns.

Time is limited by a timer signal, which also ends what checks no clock itself, such as a regular
expression that backtracks. Memory is limited twice: the same timer samples it, which catches growth in
small pieces, and the kernel refuses a single piece that is far too large. (The kernel alone won't do:
when not even a small object can be had, CPython 3.11 loops for ever on its way to an error handler.)

Signals and limits of memory belong to the whole process, hence only the main thread sets them. In other threads these
functions set no limit, and only those of the libraries hold.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from uwf_git.base import log

AGAIN = 0.25
SAMPLE = 0.02
UNNOTICED = 0.1


class TimeExceeded(BaseException):
    """The time limit ran out. Internal: callers turn it into an error that names what ran.

    No Exception, for the libraries it interrupts have places that swallow every one of those.
    """


class MemoryExceeded(BaseException):
    """The memory limit ran out. Internal, as TimeExceeded."""


class BudgetExceeded(Exception):
    """What was to be done took more than was left. Internal, as TimeExceeded."""


_Clock = Callable[[], float]
_deadlines: list[tuple[_Clock, float]] = []


@contextmanager
def time_limit(seconds: float, memory: int | None = None, clock: _Clock = time.monotonic) -> Iterator[None]:
    """Raises TimeExceeded inside the block after so many seconds, and again and again for as long as the block goes
    on. `clock` counts them: those on the wall, or with `time.thread_time` those of computing. With
    `memory`, raises MemoryExceeded when the process has mapped so many more bytes than at the start, and Python raises
    MemoryError where a single allocation would take more than twice that. Limits nest; of two deadlines the earlier
    counts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < left <= seconds and not _deadlines:
        yield  # a limit that isn't ours, and ends this earlier
        return
    begun = time.monotonic()
    deadlines = [(clock, clock() + seconds), *_deadlines]
    start = None if memory is None else mapped_memory()
    armed, rang = True, ""

    def ring(_number: int, _frame: object) -> None:
        nonlocal rang
        if not armed:
            return
        if any(counted() >= deadline for counted, deadline in deadlines):
            rang = "time"
            raise TimeExceeded
        if start is not None and memory is not None and (mapped_memory() or 0) > start + memory:
            rang = "memory"
            raise MemoryExceeded

    before = signal.signal(signal.SIGALRM, ring)
    pause = AGAIN if start is None else SAMPLE
    _deadlines.append(deadlines[0])
    soonest = min(deadline - counted() for counted, deadline in deadlines)
    signal.setitimer(signal.ITIMER_REAL, max(soonest, 0.001) if start is None else pause, pause)
    try:
        if start is not None and memory is not None:
            with _at_most(start + 2 * memory):
                yield
        else:
            yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        _deadlines.pop()
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001), interval)
        if rang:
            log.warning(
                "EEE53SPE",
                "what may take {seconds} s is out of {what}",
                what=rang,
                seconds=seconds,
                memory=memory,
            )


class Budget:
    """Seconds of computing that many blocks may take together. A block that takes less than UNNOTICED is free, and may
    run when all is spent: there may be thousands, each as long as what somebody has sent."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Raises BudgetExceeded if the block takes more than is left. Its result is then void, since a limit of its own
        may have been met too early. Waiting for a busy machine is not charged."""
        begun, most = time.thread_time(), max(self._left, UNNOTICED)
        try:
            if most == math.inf:
                yield
                return
            with time_limit(most, clock=time.thread_time):
                yield
        except TimeExceeded:
            self._left = 0.0
            raise BudgetExceeded from None
        took = time.thread_time() - begun
        if took > UNNOTICED:
            self._left -= took
        if took >= most:
            raise BudgetExceeded


@contextmanager
def _at_most(size: int) -> Iterator[None]:
    """Limits the address space of this process to so many bytes, unless it has a lower limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft <= size:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def mapped_memory() -> int | None:
    """The bytes this process has mapped, or None where the kernel doesn't tell."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(descriptor, 64).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(descriptor)
