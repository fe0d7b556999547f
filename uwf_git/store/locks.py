"""Locks: one step of a thread at a time, by flock on a file of the private folder.

The kernel frees a lock when the last process with the open file dies, so there are no stale locks. An agent
inherits it, so an agent that outlives its engine still counts as running. The processes of a thread are those
with the file open; pids are never stored.

A process that runs a thread step after step also holds `run-<ULID>`, between two steps too. Agents don't inherit
it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from uwf_git.base import log, system
from uwf_git.base.errors import Busy, StoreUnwritable
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.fsync import make_folders, share
from uwf_git.git.writers import Writers

# Asking whether a lock is held takes it for an instant, which must not fail a step.
PROBE_SECONDS = 0.1
EXCHANGE_SECONDS = 60
STOP_SECONDS = 20.0  # that a run has to end its agent and to keep what that said
_LONGEST_PAUSE = 0.1  # seconds between two looks at a lock that others hold
_RUN = "run-"


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file; False if there is no file."""
    try:
        descriptor = system.open_file(path, os.O_RDONLY | system.O_NONBLOCK | system.O_CLOEXEC)
    except OSError:
        return False
    try:
        system.lock(descriptor, shared=True)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class Locks:
    """A store's locks, in `<git dir>/uwf/locks/<ULID>` and `run-<ULID>`."""

    def __init__(self, private: Path) -> None:
        self._folder = private / "locks"
        self._writers = Writers(private)

    @contextlib.contextmanager
    def hold(
        self, thread: ThreadId, wait: float = PROBE_SECONDS, gives_up: Callable[[], bool] | None = None
    ) -> Iterator[int]:
        """Hold a thread's lock for the block; yields the file descriptor, which children may inherit. Raises
        Busy if it is still held after `wait` seconds, or after PROBE_SECONDS if `gives_up`."""
        busy = Busy(
            f"thread {thread} is running", f"wait for it, or end its step: uwf thread pause {thread} --now"
        )
        with self._holding(thread, self._acquire(thread, wait, busy, gives_up)) as descriptor:
            # A deletion waits for no thread, and none starts before it is done.
            with self._writers.writing():
                pass
            yield descriptor

    @contextlib.contextmanager
    def run(self, thread: ThreadId) -> Iterator[int]:
        """Hold the run of a thread for the block; yields the file descriptor. A process that inherited it has the
        run already. Raises Busy if another process runs the thread."""
        name = _RUN + thread
        inherited = [item for item in self._open(name) if os.get_inheritable(item)]
        if inherited:
            descriptor = inherited[0]
            os.set_inheritable(descriptor, False)
        else:
            busy = Busy(
                f"thread {thread} is run by another process",
                f"wait for it: uwf thread wait {thread}; or end it: uwf thread stop {thread}",
            )
            descriptor = self._acquire(name, PROBE_SECONDS, busy)
        with self._holding(name, descriptor):
            yield descriptor

    @contextlib.contextmanager
    def _holding(self, name: str, descriptor: int) -> Iterator[int]:
        """Give a lock back after the block, without its file."""
        try:
            yield descriptor
        finally:
            os.close(descriptor)
            self._tidy(name)

    def descriptors(self, thread: ThreadId) -> tuple[int, ...]:
        """The descriptors of a thread's lock in this process, to pass to a command, so that it counts as
        running and can be ended."""
        return self._open(thread)

    def _open(self, name: str) -> tuple[int, ...]:
        descriptors: list[int] = []
        with contextlib.suppress(OSError):
            wanted = (self._folder / name).stat()
            for entry in os.listdir("/dev/fd"):  # noqa: PTH208
                with contextlib.suppress(OSError, ValueError):
                    if os.path.samestat(os.fstat(int(entry)), wanted):
                        descriptors.append(int(entry))
        return tuple(descriptors)

    @contextlib.contextmanager
    def exchange(self, remote: str, wait: float = EXCHANGE_SECONDS) -> Iterator[None]:
        """Hold a remote for the block, so that of two concurrent pulls the second finds the first one's
        results. Raises Busy after `wait` seconds."""
        busy = Busy(f"another process exchanges threads with {remote}", "repeat when it is done")
        name = f"remote-{remote}"
        with self._holding(name, self._acquire(name, wait, busy)), self._writers.writing():
            yield

    @contextlib.contextmanager
    def repair(self) -> Iterator[None]:
        """Hold the repair of the store for the block. Raises Busy after EXCHANGE_SECONDS."""
        busy = Busy("another process repairs the store", "repeat when it is done")
        with self._holding("repair", self._acquire("repair", EXCHANGE_SECONDS, busy)):
            yield

    @contextlib.contextmanager
    def turn(self, name: str, waits: Callable[[Sequence[int]], None] | None = None) -> Iterator[None]:
        """Hold a named lock for the block, after its current holders, whose processes are passed to `waits`.
        Raises Busy without `waits`, or if they wait for this process."""
        what = name.replace("-", " ", 1)
        busy = Busy(f"another process is working on {what}", "repeat when it is done")
        try:
            descriptor = self._acquire(name, PROBE_SECONDS, busy)
        except Busy:
            if waits is None:
                raise
            from uwf_git.sandbox.process_table import parents_of

            holders = self._holders(name)
            if not set(parents_of(os.getpid())).isdisjoint(holders):
                raise Busy(
                    f"this is run within what is working on {what}", "run it when that is done"
                ) from None
            waits(holders)
            descriptor = self._acquire(name, math.inf, busy)
        with self._holding(name, descriptor):
            yield

    @contextlib.contextmanager
    def deleting(self) -> Iterator[None]:
        """Exclude all writers and running threads while the block deletes unreachable objects. Raises Busy."""
        with self._writers.exclude_writers():
            if running := self.held():
                message = f"thread {min(running)} is running, and what it makes is not reachable yet"
                raise Busy(message, "wait for its end")
            yield

    def held(self) -> set[ThreadId]:
        return self._locked("")

    def is_held(self, thread: ThreadId) -> bool:
        """Return whether a thread is running."""
        return is_locked(self._folder / thread)

    def runs(self) -> set[ThreadId]:
        """Return the threads that processes here run, between two steps too."""
        return self._locked(_RUN)

    def is_run(self, thread: ThreadId) -> bool:
        """Return whether a process here runs a thread, between two steps too."""
        return is_locked(self._folder / f"{_RUN}{thread}")

    def is_at_work(self, thread: ThreadId) -> bool:
        """Return whether a process here runs or steps a thread."""
        return self.is_run(thread) or self.is_held(thread)

    def _locked(self, prefix: str) -> set[ThreadId]:
        try:
            names = [path.name for path in self._folder.iterdir() if path.name.startswith(prefix)]
        except OSError:
            return set()
        threads = {ThreadId(thread) for name in names if is_thread_id(thread := name.removeprefix(prefix))}
        return {thread for thread in threads if is_locked(self._folder / f"{prefix}{thread}")}

    def end(self, thread: ThreadId, grace: float = 3.0) -> None:
        """End the processes that hold a thread: its agent with its process group, then if needed the engine.
        Waits up to `grace` seconds after each signal. Raises Busy if the lock is still held."""
        for whom, number in (
            (self._agents, signal.SIGTERM),
            (self._agents, system.KILL),
            (self._holders, signal.SIGTERM),
            (self._holders, system.KILL),
        ):
            processes = whom(thread)
            if processes:
                log.info(
                    "SPPJDSQS",
                    "sends signal {signal} to the processes {processes}",
                    signal=number,
                    processes=processes,
                )
            for pid in processes:
                system.signal_group(pid, number)
            deadline = time.monotonic() + (grace if processes else 0)
            while self.is_held(thread):
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.02)
            else:
                return
        raise Busy(f"thread {thread} is still running", "end its agent yourself, then repeat")

    def stop(self, thread: ThreadId, grace: float = STOP_SECONDS) -> bool:
        """Have the process that runs a thread end as by Ctrl-C, and wait for its end; False if none does. Raises
        Busy if it still runs after `grace` seconds."""
        if not self.is_run(thread):
            return False
        busy = Busy(
            f"thread {thread} is still run after {grace:g} s",
            f"repeat, or end the thread: uwf thread kill {thread}",
        )
        # A second signal would interrupt what the run does on the first.
        name = f"stop-{thread}"
        with self._holding(name, self._acquire(name, grace, busy)):
            if not self.is_run(thread):
                return False
            for pid in self._openers(_RUN + thread):
                self._end_run(thread, pid)
            deadline = time.monotonic() + grace
            while self.is_run(thread):
                if time.monotonic() >= deadline:
                    raise busy
                time.sleep(0.02)
            return True

    def _end_run(self, thread: ThreadId, pid: int) -> None:
        """Ask a process to end if it holds a run."""
        name = self._folder / f"{_RUN}{thread}"
        if system.signal_opener(pid, name, signal.SIGTERM):
            log.info("R7WQ3KDN", "asks process {process} to end its run", process=pid)

    def _holders(self, name: str) -> list[int]:
        opened = self._openers(name)
        return [pid for pid, held in opened.items() if held] or list(opened)

    def _openers(self, name: str) -> dict[int, bool]:
        """Return the other processes that have a lock file open, and whether they hold the lock."""
        path = self._folder / name
        return system.openers(path) if path.exists() else {}

    def _agents(self, thread: ThreadId) -> list[int]:
        """Return the holders that an engine started: leaders of another process group than their parent's.
        The engine itself notices the agent's end, records the attempt and releases the lock."""
        holders = self._holders(thread)
        leaders = (process for process in system.processes(holders) if process.group == process.pid)
        return [leader.pid for leader in leaders if leader.parent in (*holders, 1)]

    def _tidy(self, name: str) -> None:
        path = self._folder / name
        with contextlib.suppress(OSError):
            descriptor = system.open_file(path, os.O_RDONLY | system.O_NONBLOCK)
            try:
                system.lock(descriptor)
                is_there = _is_at(descriptor, path)
            except OSError:
                is_there = False
            if is_there:
                system.remove_held(path, descriptor)
            else:
                os.close(descriptor)

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | system.O_NONBLOCK
        try:
            descriptor = system.open_file(path, flags, 0o600)
        except FileNotFoundError:
            make_folders(self._folder, synced=False)
            descriptor = system.open_file(path, flags, 0o600)
        share(path)
        return descriptor

    def _acquire(self, name: str, wait: float, busy: Busy, gives_up: Callable[[], bool] | None = None) -> int:
        begun = time.monotonic()
        deadline = begun + wait
        path = self._folder / name
        pause = 0.005
        while True:
            try:
                descriptor = self._opened(path)
            except OSError as error:
                raise StoreUnwritable(f"cannot lock {path}: {error}", "check the folder") from None
            try:
                system.lock(descriptor)
                if _is_at(descriptor, path):
                    log.debug("8QGENMM8", "holds the lock {lock}", lock=name)
                    return descriptor
                os.close(descriptor)  # its holder removed the file meanwhile
            except OSError:
                os.close(descriptor)
                now = time.monotonic()
                if now >= deadline or (gives_up and now >= begun + PROBE_SECONDS and gives_up()):
                    log.info(
                        "8T45G07H", "the lock {lock} is held by others for {waited} s", lock=name, waited=wait
                    )
                    raise busy from None
                time.sleep(pause)
                pause = min(pause * 1.1, _LONGEST_PAUSE)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
