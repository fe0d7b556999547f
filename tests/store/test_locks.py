"""The lock is the kernel's: it ends with its holder, and its holders can be found and ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from uwf_git.base.errors import Busy
from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.store.locks import Locks

HOLDER = """
import subprocess, sys, time
from pathlib import Path
from uwf_git.store.locks import Locks
with Locks(Path(sys.argv[1])).hold(sys.argv[2]) as descriptor:
    child = None
    if sys.argv[3:]:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                                 pass_fds=(descriptor,), start_new_session=True)
    print(child.pid if child else 0, flush=True)
    if child: child.wait()
    else: time.sleep(60)
print("let go", flush=True)
"""


@pytest.fixture
def thread() -> ThreadId:
    return new_thread_id()


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path)


def hold(tmp_path: Path, thread: ThreadId, *more: str) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), thread, *more], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    holder.first = holder.stdout.readline().strip()  # type: ignore[attr-defined]
    return holder


def test_a_held_thread_is_busy_and_a_free_one_is_not(tmp_path: Path, locks: Locks, thread: ThreadId) -> None:
    assert not locks.is_held(thread)
    holder = hold(tmp_path, thread)
    try:
        assert locks.held() == {thread}
        with pytest.raises(Busy, match=thread), locks.hold(thread):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_the_lock_of_a_killed_holder_is_free_at_once(tmp_path: Path, locks: Locks, thread: ThreadId) -> None:
    holder = hold(tmp_path, thread)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not locks.is_held(thread)
    with locks.hold(thread):
        assert locks.is_held(thread)


def test_nothing_is_left_of_a_lock_that_was_let_go(tmp_path: Path, locks: Locks, thread: ThreadId) -> None:
    with locks.hold(thread):
        assert (tmp_path / "locks" / thread).exists()
    assert not (tmp_path / "locks" / thread).exists()


def test_an_agent_that_outlives_its_engine_still_counts_and_can_be_ended(
    tmp_path: Path, locks: Locks, thread: ThreadId
) -> None:
    holder = hold(tmp_path, thread, "with an agent")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert locks.is_held(thread)
    locks.end(thread)
    assert not locks.is_held(thread)


def test_ending_a_thread_ends_the_agent_and_lets_the_engine_finish(
    tmp_path: Path, locks: Locks, thread: ThreadId
) -> None:
    holder = hold(tmp_path, thread, "with an agent")
    locks.end(thread)
    assert holder.stdout
    assert holder.stdout.read().strip() == "let go"
    assert holder.wait() == 0


def test_ending_a_thread_signals_nobody_else(tmp_path: Path, locks: Locks, thread: ThreadId) -> None:
    bystander = hold(tmp_path, new_thread_id())
    holder = hold(tmp_path, thread)
    locks.end(thread)
    assert holder.wait() != 0
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_ending_a_thread_signals_nobody_whose_lock_was_given_its_inode(
    tmp_path: Path, locks: Locks, thread: ThreadId
) -> None:
    bystander = hold(tmp_path, other := new_thread_id())
    (held,) = tmp_path.rglob(other)
    held.with_name(thread).hardlink_to(held)
    with pytest.raises(Busy):
        locks.end(thread)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_many_holders_take_turns_and_probes_never_fail_one(locks: Locks, thread: ThreadId) -> None:
    inside, entered, stop = 0, 0, threading.Event()

    def probe() -> None:
        while not stop.is_set():
            locks.is_held(thread)

    def enter() -> None:
        nonlocal inside, entered
        for _ in range(20):
            with locks.hold(thread, wait=30):
                inside += 1
                assert inside == 1
                entered += 1
                inside -= 1

    prober = threading.Thread(target=probe)
    workers = [threading.Thread(target=enter) for _ in range(4)]
    for worker in (prober, *workers):
        worker.start()
    for worker in workers:
        worker.join()
    stop.set()
    prober.join()
    assert entered == 80
