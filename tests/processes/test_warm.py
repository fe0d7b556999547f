"""Calls of a program in warm processes are processes as far as their caller can tell."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import alive, wait_for, wait_until_gone

from uwf_git.sandbox.warm import WarmPool, WarmProcess

DOUBLES = Path(__file__).parents[1] / "doubles"
PROGRAM = "warm_calls:main"


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(DOUBLES)}


@pytest.fixture
def pool() -> Iterator[WarmPool]:
    pool = WarmPool(PROGRAM, environ())
    yield pool
    pool.close()


def process_of(pool: WarmPool) -> int:
    """Return the process that the next call runs in."""
    return int(told(pool.spawn(["tell"]))[0])


def told(process: WarmProcess) -> list[str]:
    assert process.stdout is not None
    words = process.stdout.read().decode().split()
    assert process.wait() == 0
    return words


def test_a_call_has_its_own_streams_folder_and_environment_in_the_process_of_the_one_before(
    pool: WarmPool, tmp_path: Path
) -> None:
    first = process_of(pool)
    process = pool.spawn(["tell"], stdin=subprocess.PIPE, cwd=tmp_path, env={**environ(), "COLOUR": "red"})
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b"given")
    process.stdin.close()
    assert told(process) == [str(first), str(tmp_path), "red", "given"]
    assert process.stderr.read() == b"beside\n"
    assert told(pool.spawn(["tell"])) == [str(first), str(Path.cwd()), "None"]


@pytest.mark.parametrize(
    ("words", "status"), [(["exit", "4"], 4), (["exit", "0"], 0), (["raise"], 1), (["die", "3"], 3)]
)
def test_a_call_ends_with_a_status_of_its_own(pool: WarmPool, words: list[str], status: int) -> None:
    process = pool.spawn(words)
    assert process.wait(10) == status == process.poll()
    assert process.is_lost == (words[0] == "die")
    assert process_of(pool)


def test_a_call_whose_process_is_gone_without_its_end_has_failed_whatever_the_status(pool: WarmPool) -> None:
    process = pool.spawn(["die", "0"])
    assert process.wait(10) == 1 and process.is_lost


def test_a_process_that_is_killed_fails_its_call_alone(pool: WarmPool, tmp_path: Path) -> None:
    other = pool.spawn(["wait", str(tmp_path / "other")])
    wait_for(tmp_path / "other")
    process = pool.spawn(["sleep", str(tmp_path / "pid")])
    wait_for(tmp_path / "pid")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(10) == -signal.SIGKILL
    process.kill()  # of what has ended, it hits nobody
    (tmp_path / "other").unlink()
    assert other.wait(10) == 0
    assert process_of(pool) == other.pid


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_a_call_and_no_process_that_is_idle(
    pool: WarmPool, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    idle = process_of(pool)
    os.kill(idle, number)
    assert process_of(pool) == idle
    process = pool.spawn(["sleep", str(tmp_path / "pid")])
    wait_for(tmp_path / "pid")
    process.send_signal(number)
    assert process.wait(10) == status
    wait_until_gone(process.pid)


@pytest.mark.parametrize("process", ["a new one", "an idle one"])
def test_a_signal_that_a_call_is_sent_before_it_has_begun_interrupts_it(
    pool: WarmPool, tmp_path: Path, process: str
) -> None:
    for _ in range(5):
        if process == "an idle one":
            assert process_of(pool)
        called = pool.spawn(["sleep", str(tmp_path / "pid")])
        called.send_signal(signal.SIGINT)
        assert called.wait(10) == 130


@pytest.mark.parametrize("what", ["foreign code", "a thread", "files", "a limit of files", "memory"])
def test_a_process_that_a_call_left_otherwise_than_it_was_is_not_used_again(
    pool: WarmPool, what: str
) -> None:
    first = process_of(pool)
    assert pool.spawn(["leave", what]).wait(10) == 0
    assert process_of(pool) != first


def test_a_call_ends_with_the_threads_that_a_process_would_wait_for(pool: WarmPool, tmp_path: Path) -> None:
    assert pool.spawn(["leave", "a thread to wait for", str(tmp_path / "over")]).wait(10) == 0
    assert (tmp_path / "over").read_text() == "over"


def test_a_pool_goes_on_without_the_process_that_it_forked(pool: WarmPool, tmp_path: Path) -> None:
    process = pool.spawn(["wait", str(tmp_path / "other")])
    wait_for(tmp_path / "other")
    assert pool.first is not None
    os.kill(pool.first.pid, signal.SIGKILL)
    assert process_of(pool) != process.pid
    (tmp_path / "other").unlink()
    assert process.wait(10) == 0


def test_an_idle_process_that_was_killed_is_replaced(pool: WarmPool) -> None:
    os.kill(idle := process_of(pool), signal.SIGKILL)
    while len(list(Path(f"/proc/{idle}/task").iterdir())) > 1:  # one that is left has its files open
        time.sleep(0.01)
    wait_until_gone(idle)
    assert process_of(pool) != idle


@pytest.mark.parametrize("how", ["closes its pool", "is killed"])
def test_a_call_comes_to_its_end_though_its_caller(tmp_path: Path, how: str) -> None:
    path = tmp_path / "other"
    program = f"""
import os, time
from uwf_git.sandbox.warm import WarmPool
pool = WarmPool({PROGRAM!r}, os.environ)
pool.spawn(["tell"]).wait()
process = pool.spawn(["wait", {str(path)!r}])
while not os.path.exists({str(path)!r}): time.sleep(0.01)
print(pool.first.pid, process.pid, flush=True)
pool.close() if {how == "closes its pool"} else time.sleep(60)
"""
    caller = subprocess.Popen([sys.executable, "-c", program], env=environ(), stdout=subprocess.PIPE)
    assert caller.stdout is not None
    first, process = map(int, caller.stdout.readline().split())
    if how == "is killed":
        caller.kill()
    caller.wait()
    wait_until_gone(first)
    assert alive(process)
    path.unlink()
    wait_for(tmp_path / "other.over")
    wait_until_gone(process)


def test_quick_calls_wait_for_a_process_and_slow_ones_get_their_own(pool: WarmPool, tmp_path: Path) -> None:
    def call(_number: int) -> str:
        return told(pool.spawn(["tell"], patience=5.0))[0]

    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(call, range(64)))) <= (os.cpu_count() or 1)
    slow = [pool.spawn(["wait", str(tmp_path / str(at))], patience=0.01) for at in range(os.cpu_count() or 1)]
    began = time.monotonic()
    assert process_of(pool) not in {process.pid for process in slow}
    assert pool.spawn(["exit", "0"], patience=0.01).wait(10) == 0
    assert time.monotonic() - began < 60
    for at in range(len(slow)):
        wait_for(tmp_path / str(at))
        (tmp_path / str(at)).unlink()
    assert [process.wait(10) for process in slow] == [0] * len(slow)


def test_a_call_runs_in_a_folder_that_is_gone_as_a_process_does(
    pool: WarmPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "gone").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    process = pool.spawn(["tell"])
    assert process.stderr is not None and b"FileNotFoundError" in process.stderr.read()
    assert process.wait(10) == 1
    monkeypatch.chdir(tmp_path)
    assert told(pool.spawn(["tell"]))[1] == str(tmp_path)


def test_a_closed_pool_has_let_go_of_what_its_processes_inherited(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pool = WarmPool(PROGRAM, environ(), (held.fileno(),))
        process_of(pool)
        assert pool.spawn(["leave", "foreign code"]).wait(10) == 0
        process_of(pool)
    with (tmp_path / "lock").open() as again:
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
        pool.close()
        fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_process_ends_with_a_caller_that_dies_while_it_sends_a_call(pool: WarmPool) -> None:
    assert process_of(pool)
    (worker,) = pool._idle
    socket.send_fds(worker.channel, [b"%16d" % 100], [0, 1, 2, 0])
    worker.channel.close()
    wait_until_gone(worker.pid)


def test_words_that_no_process_can_be_given_start_none(pool: WarmPool) -> None:
    with pytest.raises(ValueError, match="null"):
        pool.spawn(["\0"])
    assert pool.first is None


def test_a_program_that_cannot_be_loaded_is_an_error() -> None:
    pool = WarmPool("no_such_module:main", environ())
    with pytest.raises(OSError, match="forked from"):
        pool.spawn([])
    pool.close()
