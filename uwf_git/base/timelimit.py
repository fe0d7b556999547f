"""Hard limits on what code from a workflow may take: expressions, templates, patterns.

There are two ways to end a block, since signals and limits of memory belong to the whole process.

In the main thread of a command of ours a timer signal does it, which also ends code that checks no clock itself, such
as a regular expression that backtracks. Memory is limited twice there: the same timer samples it, which catches growth
in small pieces, and the kernel refuses a single piece that is far too large. (The kernel alone won't do: when not even
a small object can be had, CPython 3.11 loops for ever on its way to an error handler.)

Everywhere else, in other threads and in programs that use uwf as a library, a second thread watches the block and
raises the exception in it by `PyThreadState_SetAsyncExc`. That needs no signal and sets no limit of the process, and
several blocks can be watched at once. It takes effect between two bytecodes: it ends any loop of Python, but not a
single call of C that holds the interpreter. What may make such a call with a workflow's own pattern or size is
evaluated in a helper process instead; see `apart`.
"""

from __future__ import annotations

import _thread
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from uwf_git.base import lifetime, log

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
    counts. Where a second thread watches the block, the memory of all threads is counted together, and no single
    allocation is refused."""
    if not lifetime.is_own():
        with _watched(seconds, memory, clock):
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
            _note(rang, seconds, memory)


def _note(rang: str, seconds: float, memory: int | None) -> None:
    log.warning(
        "EEE53SPE", "what may take {seconds} s is out of {what}", what=rang, seconds=seconds, memory=memory
    )


@contextmanager
def _watched(seconds: float, memory: int | None, clock: _Clock) -> Iterator[None]:
    watch = _Watch(seconds, memory, clock)
    try:
        try:
            yield
        finally:
            watch.end()
    finally:
        watch.end()  # the first call may have been interrupted by the watch itself
        if watch.rang:
            _note(watch.rang, seconds, memory)


class _Watch:
    """A thread that raises TimeExceeded or MemoryExceeded in the thread that makes it, until `end` returns. `rang` is
    what ran out, "" if nothing did.

    Both threads wait on bare locks, whose calls are single calls of C: an exception that comes in the midst of them
    can't leave one of them half taken."""

    _MACHINERY = (__file__, contextmanager.__code__.co_filename)

    def __init__(self, seconds: float, memory: int | None, clock: _Clock) -> None:
        self.rang = ""
        self._target = threading.get_ident()
        self._block = _outside(sys._getframe(), self._MACHINERY)
        if clock is time.thread_time:
            number = time.pthread_getcpuclockid(self._target)
            clock = lambda: time.clock_gettime(number)  # noqa: E731
        self._clock, self._deadline = clock, clock() + seconds
        self._memory = memory
        self._start = None if memory is None else mapped_memory()
        self._open, self._closed = threading.Lock(), threading.Lock()
        self._has_ended = False
        self._open.acquire()
        self._closed.acquire()
        _thread.start_new_thread(self._run, ())

    def end(self) -> None:
        """Return once nothing will be raised any more. May be called again."""
        with suppress(RuntimeError):  # it was released before
            self._open.release()
        while not self._has_ended:
            self._closed.acquire(timeout=0.01)
        if (
            self.rang
        ):  # a call of it that takes nothing back leaves CPython looking for an exception, for ever if traced
            _raise_in(self._target, None)

    def _run(self) -> None:
        try:
            while not self._open.acquire(timeout=self._pause()):
                called = self._called_by_block()
                if called is None:
                    return  # the block was left without `end`
                out = self._what_ran_out()
                if out is not None and called not in self._MACHINERY:
                    self.rang = "time" if out is TimeExceeded else "memory"
                    _raise_in(self._target, out)
        finally:
            self._has_ended = True
            self._closed.release()

    def _pause(self) -> float:
        if self.rang:
            return AGAIN
        left = max(self._deadline - self._clock(), 0.001)
        return left if self._start is None else min(left, SAMPLE)

    def _what_ran_out(self) -> type[BaseException] | None:
        if self._clock() >= self._deadline:
            return TimeExceeded
        if self._start is None or self._memory is None:
            return None
        return MemoryExceeded if (mapped_memory() or 0) > self._start + self._memory else None

    def _called_by_block(self) -> str | None:
        """Return the file of the function that the block is in the midst of calling, "" for none, and None if the
        block's own function has returned. While it begins or ends, that function is one of the machinery."""
        called, frame = "", sys._current_frames().get(self._target)
        while frame is not None and frame is not self._block:
            called, frame = frame.f_code.co_filename, frame.f_back
        return called if frame is not None else None


def _outside(frame: FrameType, files: tuple[str, ...]) -> FrameType:
    while frame.f_code.co_filename in files and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise an exception at its next bytecode; None takes back one that it has not raised yet."""
    import ctypes

    given: Any = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_elsewhere = threading.local()


def charge(seconds: float) -> None:
    """Count seconds that another process has computed for this thread; see `Budget`."""
    _elsewhere.seconds = _charged() + seconds


def _charged() -> float:
    return getattr(_elsewhere, "seconds", 0.0)


class Budget:
    """Seconds of computing that many blocks may take together. A block that takes less than UNNOTICED is free, and may
    run when all is spent: there may be thousands, each as long as what somebody has sent. What a helper process has
    computed for the block counts too."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Raises BudgetExceeded if the block takes more than is left. Its result is then void, since a limit of its own
        may have been met too early. Waiting for a busy machine is not charged."""
        begun, most = time.thread_time(), max(self._left, UNNOTICED)
        before = _charged()
        try:
            if most == math.inf:
                yield
                return
            with time_limit(most, clock=time.thread_time):
                yield
        except TimeExceeded:
            self._left = 0.0
            raise BudgetExceeded from None
        took = time.thread_time() - begun + _charged() - before
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
