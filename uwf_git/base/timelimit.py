"""Hard limits on workflow code: expressions, templates, patterns.

In a command's main thread a timer signal ends the block, including code that checks no clock, such as a
backtracking regular expression. The timer also samples memory, and the kernel refuses single huge
allocations. (The kernel limit alone won't do: CPython 3.11 loops forever if it cannot allocate even a small
object.)

Elsewhere (other threads, uwf as a library), a second thread raises the exception by
`PyThreadState_SetAsyncExc`, without process-wide state. It takes effect between bytecodes, so it ends Python
loops but not a single C call; code that may make such calls runs in a helper process, see `apart`.
"""

from __future__ import annotations

import _thread
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from uwf_git.base import lifetime, log, system

AGAIN = 0.25
SAMPLE = 0.02
UNNOTICED = 0.1


class TimeExceeded(BaseException):
    """The time limit ran out. Callers convert it. Not an Exception, since interrupted libraries swallow
    those."""


class MemoryExceeded(BaseException):
    """The memory limit ran out. As TimeExceeded."""


class BudgetExceeded(Exception):
    """The shared time budget ran out. As TimeExceeded."""


_Clock = Callable[[], float]
_deadlines: list[tuple[_Clock, float]] = []


@contextmanager
def time_limit(seconds: float, memory: int | None = None, clock: _Clock = time.monotonic) -> Iterator[None]:
    """Raise TimeExceeded in the block after `seconds`, repeatedly. `clock` is wall time, or
    `time.thread_time` for CPU time. With `memory`, raise MemoryExceeded beyond that growth, and MemoryError
    for a single allocation of over twice that. Limits nest; the earliest deadline counts. With a watching
    thread, memory counts for all threads, and single allocations are not refused."""
    if not lifetime.is_own() or sys.platform == "win32":
        with _watched(seconds, memory, clock):
            yield
        return
    remaining, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < remaining <= seconds and not _deadlines:
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
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(remaining - (time.monotonic() - begun), 0.001), interval)
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
    """A thread that raises TimeExceeded or MemoryExceeded in its creator until `end` returns. `rang` is the
    limit that ran out, or "".

    Both wait on bare locks, single C calls that an asynchronous exception cannot leave half done.
    """

    _MACHINERY = (__file__, contextmanager.__code__.co_filename)

    def __init__(self, seconds: float, memory: int | None, clock: _Clock) -> None:
        self.rang = ""
        self._target = threading.get_ident()
        self._block = _outside(sys._getframe(), self._MACHINERY)
        if clock is time.thread_time and not hasattr(time, "pthread_getcpuclockid"):
            clock = time.monotonic  # one thread's time is not told to another: what it waits for counts too
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
        with suppress(RuntimeError):  # it was released before
            self._open.release()
        while not self._has_ended:
            self._closed.acquire(timeout=0.01)
        if self.rang and threading.get_ident() == self._target:
            _take_back(self._target)

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
        remaining = max(self._deadline - self._clock(), 0.001)
        return remaining if self._start is None else min(remaining, SAMPLE)

    def _what_ran_out(self) -> type[BaseException] | None:
        if self._clock() >= self._deadline:
            return TimeExceeded
        if self._start is None or self._memory is None:
            return None
        return MemoryExceeded if (mapped_memory() or 0) > self._start + self._memory else None

    def _called_by_block(self) -> str | None:
        called, frame = "", sys._current_frames().get(self._target)
        while frame is not None and frame is not self._block:
            called, frame = frame.f_code.co_filename, frame.f_back
        return called if frame is not None else None


def _outside(frame: FrameType, files: tuple[str, ...]) -> FrameType:
    while frame.f_code.co_filename in files and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _raise_in(thread: int, error: type[BaseException]) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


class _TakenBack(BaseException):
    """Takes the place of an exception that has not been raised yet."""


def _take_back(thread: int) -> None:
    """Raise nothing more in this thread. An exception is raised and caught here, since CPython 3.11 goes on looking for
    one after SetAsyncExc with NULL: slowly, and without end in a function that is traced or profiled."""
    try:
        _raise_in(thread, _TakenBack)
        while True:
            pass
    except _TakenBack:
        pass


_elsewhere = threading.local()


def charge(seconds: float) -> None:
    """Count CPU seconds that another process used for this thread; see `Budget`."""
    _elsewhere.seconds = _charged() + seconds


def _charged() -> float:
    return getattr(_elsewhere, "seconds", 0.0)


class Budget:
    """A shared budget of CPU seconds. Blocks below UNNOTICED are free, since there may be thousands. Includes
    helpers' time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Raise BudgetExceeded if the block exceeds the rest, making its result void. Waiting isn't charged."""
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
    """Return this process's mapped bytes, None if unknown."""
    return system.own_memory()[0] or None
