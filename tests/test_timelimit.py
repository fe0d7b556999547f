"""The limits hold against code that swallows exceptions, nest, and leave the process as it was."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from uwf_git.base.timelimit import (
    Budget,
    BudgetExceeded,
    MemoryExceeded,
    TimeExceeded,
    mapped_memory,
    time_limit,
)


def spin(seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def state() -> tuple[object, ...]:
    return signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_AS)


def test_a_block_that_goes_on_is_ended_and_the_process_is_as_before() -> None:
    before = state()
    with pytest.raises(TimeExceeded), time_limit(0.05):
        spin()
    with pytest.raises(TimeExceeded), time_limit(0.05, 1 << 30):
        spin()
    assert state() == before


def test_code_that_swallows_every_exception_does_not_swallow_the_limit() -> None:
    with pytest.raises(TimeExceeded), time_limit(0.05):
        while True:
            with contextlib.suppress(Exception):
                spin()


def test_a_block_that_survives_once_is_ended_again() -> None:
    with pytest.raises(TimeExceeded), time_limit(0.05):
        with contextlib.suppress(TimeExceeded):
            spin()
        spin()


def test_an_inner_limit_ends_only_its_own_block() -> None:
    with time_limit(60):
        with pytest.raises(TimeExceeded), time_limit(0.05):
            spin()
        with pytest.raises(TimeExceeded), time_limit(0.05, 1 << 30):
            spin()


def test_an_outer_limit_ends_an_inner_block_and_then_its_own() -> None:
    ended: list[str] = []
    with contextlib.suppress(TimeExceeded), time_limit(0.05):
        try:
            with time_limit(60):
                spin()
        except TimeExceeded:
            ended.append("inner")
        spin()
        ended.append("never")
    assert ended == ["inner"]


def test_the_timer_of_somebody_else_goes_on_afterwards() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: rung.append(number))
    old = signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        with pytest.raises(TimeExceeded), time_limit(0.05):
            spin()
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left < 30
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with time_limit(60):  # theirs comes first, so it is left alone
            while not rung:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old)
        signal.signal(signal.SIGALRM, before)
    assert rung == [signal.SIGALRM]


@pytest.mark.skipif(mapped_memory() is None, reason="the kernel does not tell what is mapped")
def test_memory_is_limited_in_small_pieces_and_in_a_large_one() -> None:
    before = state()
    kept: list[bytes] = []
    with pytest.raises(MemoryExceeded), time_limit(60, 32 << 20):
        while True:
            kept.append(bytes(1000))
    with pytest.raises(MemoryError), time_limit(60, 32 << 20):
        bytearray(1 << 40)
    kept.clear()
    assert state() == before


def in_thread(work: Callable[[], None]) -> None:
    """Run in a thread that isn't the main one, and raise what that raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize(
    "claim",
    [
        test_a_block_that_goes_on_is_ended_and_the_process_is_as_before,
        test_code_that_swallows_every_exception_does_not_swallow_the_limit,
        test_a_block_that_survives_once_is_ended_again,
        test_an_inner_limit_ends_only_its_own_block,
        test_an_outer_limit_ends_an_inner_block_and_then_its_own,
    ],
)
def test_in_another_thread_the_same_holds(claim: Callable[[], None]) -> None:
    in_thread(claim)


@pytest.mark.skipif(mapped_memory() is None, reason="the kernel does not tell what is mapped")
def test_in_another_thread_memory_is_limited_in_small_pieces() -> None:
    def work() -> None:
        kept: list[bytes] = []
        with pytest.raises(MemoryExceeded), time_limit(60, 32 << 20):
            while True:
                kept.append(bytes(1000))

    in_thread(work)


def test_in_another_thread_only_its_own_computing_is_counted() -> None:
    def work() -> None:
        with time_limit(0.2, clock=time.thread_time):
            time.sleep(0.4)
        with pytest.raises(TimeExceeded), time_limit(0.05, clock=time.thread_time):
            spin()
        with pytest.raises(BudgetExceeded), Budget(0.2).spend():
            spin()

    in_thread(work)


def test_blocks_of_several_threads_are_ended_each_at_its_own_time() -> None:
    def work(seconds: float) -> float:
        begun = time.monotonic()
        with pytest.raises(TimeExceeded), time_limit(seconds):
            spin()
        return time.monotonic() - begun

    given = [0.05, 0.6, 0.1, 0.3]
    with ThreadPoolExecutor(4) as pool:
        took = list(pool.map(work, given))
    assert all(least <= seconds for least, seconds in zip(given, took, strict=True))


def test_nothing_is_raised_after_a_block_that_ends_at_its_deadline() -> None:
    def work() -> None:
        for _ in range(150):
            with contextlib.suppress(TimeExceeded), time_limit(0.002):
                spin(0.002)
            spin(0.001)

    in_thread(work)


def test_a_program_that_is_no_command_of_ours_keeps_its_signals_and_limits() -> None:
    code = (
        "import resource, signal\n"
        "from uwf_git.base.timelimit import TimeExceeded, time_limit\n"
        "def state(): return signal.getsignal(signal.SIGALRM), signal.getitimer(0), resource.getrlimit(9)\n"
        "before = state()\n"
        "try:\n"
        "    with time_limit(0.05, 1 << 30):\n"
        "        assert state() == before\n"
        "        while True: pass\n"
        "except TimeExceeded: print('ended')\n"
        "assert state() == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ended\n"


def test_a_program_that_is_traced_or_profiled_gets_through_a_limited_block() -> None:
    code = """
import sys
from uwf_git.base.timelimit import time_limit
for watch in (sys.settrace, sys.setprofile):
    watch(lambda *_: None)
    with time_limit(5.0):
        pass
    watch(None)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_program_is_traced_and_profiled_to_its_end_after_a_limit_has_ended_a_block() -> None:
    code = """
import sys
from uwf_git.base.timelimit import TimeExceeded, time_limit
try:
    with time_limit(0.05):
        while True: pass
except TimeExceeded: print('ended')
def called(): pass
for watch in (sys.settrace, sys.setprofile):
    watch(lambda *_: None)
    called()
    watch(None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=30)
    assert done.stdout == b"ended\n"
