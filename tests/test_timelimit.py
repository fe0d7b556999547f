"""The limits hold against code that swallows exceptions, nest, and leave the process as it was."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
import time

import pytest

from uwf_git.base.timelimit import MemoryExceeded, TimeExceeded, mapped_memory, time_limit


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


def test_other_threads_are_left_alone() -> None:
    done: list[bool] = []

    def run() -> None:
        with time_limit(0.01, 1):
            spin(0.1)
        done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]
