"""Programs of ours in warm processes: forked from one that has loaded what the program needs, they run it again and
again, one call at a time.

A call is a process as far as its caller can tell: it has its own standard streams, environment and folder, can be sent
signals and killed, and ends with a status. A process that was killed, was sent a signal, ran foreign code, or grew, is
not used again, so a call that breaks its process breaks nothing else. A pool starts processes when they are needed, and
must be closed; a call that is running then, or whose pool was killed, comes to its end by itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from uwf_git.base import log, system
from uwf_git.sandbox.child import spawn, working_in
from uwf_git.sandbox.programs import elsewhere

NUMBER = 16
"""The bytes of a number in a message."""
BEGUN = b"+"
"""What a process says when a call begins."""

_PIECE = 1 << 16
_LOOK = 0.5  # seconds after which another thread may have seen the end of a call
# Enough to go to a folder, also to one that is gone.
_FOLDER = system.O_DIRECTORY | system.O_PATH
_START = 10.0  # seconds that a call has to begin
_LOST = 1  # the status of a call whose process says that all is well, without the call's end
_FAILED = "the process that others are forked from has ended"


class WarmPool:
    """Runs `program`, "module:function" that takes arguments and returns an exit status, in processes started in the
    environment `env`, which inherit the descriptors `pass_fds`."""

    def __init__(self, program: str, env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> None:
        system.require("threads, calls and actions in processes beside this one")
        self._program = program
        self._env = env
        self._pass_fds = tuple(pass_fds)
        self._guard = threading.Condition()
        self._running = 0
        self._ended = 0.0  # when the last call did, on time.monotonic()
        self._template: _Template | None = None
        self._idle: list[_Worker] = []
        self._ending: list[int] = []  # processes that end after their last call

    def spawn(
        self,
        args: Sequence[str],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        patience: float = 0.0,
    ) -> WarmProcess:
        """Run the program once, as `child.spawn` does in a session of its own; `env` replaces that of the pool. When as
        many calls run as there are processors, wait for one of them, as long as one ends every `patience` seconds: no
        further process is needed for quick ones. Raises OSError, ValueError."""
        given = working_in(cwd, elsewhere(self._env if env is None else env))
        if any("\0" in word for word in args):
            raise ValueError("embedded null byte")
        order = json.dumps([list(args), given]).encode("ascii")
        with self._guard:
            began = time.monotonic()
            while not self._idle and self._running >= (os.cpu_count() or 1):
                left = max(began, self._ended) + patience - time.monotonic()
                if left <= 0:
                    break
                self._guard.wait(left)
            folder = system.open_file(cwd or ".", _FOLDER)
            streams, pipes, theirs = _streams(stdin, stdout, stderr)
            theirs.append(folder)
            try:
                worker = self._begin(order, [*streams, folder])
                self._running += 1
            except BaseException:
                for pipe in filter(None, pipes):
                    pipe.close()
                raise
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
        log.debug("H5Y0QK8B", "process {process} runs {command}", process=worker.pid, command=list(args))
        return WarmProcess(self, worker, *pipes)

    @property
    def first(self) -> subprocess.Popen[bytes] | None:
        """The process that others are forked from, None before the first call and once closed."""
        return None if self._template is None else self._template.process

    def close(self) -> None:
        """End the processes that do nothing, and wait until they have let go of what they inherited. Idempotent."""
        with self._guard:
            for worker in self._idle:
                worker.channel.close()
                self._ending.append(worker.pid)
            self._idle.clear()
            template, self._template = self._template, None
            if template is not None:
                with contextlib.suppress(OSError, ValueError):  # it was killed
                    for pid in self._ending:
                        template.wait(pid)
                template.close()

    def _begin(self, order: bytes, descriptors: Sequence[int]) -> _Worker:
        while True:
            worker = self._idle.pop() if self._idle else self._forked()
            try:
                worker.send(order, descriptors)
                return worker
            except OSError:  # an idle one was killed
                worker.channel.close()
                if worker.is_new:
                    raise

    def _forked(self) -> _Worker:
        if self._template is not None:
            with contextlib.suppress(OSError):
                return self._template.fork()
            self._template.close()
        self._template = _Template(self._program, self._env, self._pass_fds)
        return self._template.fork()

    def _take_back(self, worker: _Worker, modules: Sequence[str], is_last: bool) -> None:
        with self._guard:
            self._running -= 1
            self._ended = time.monotonic()
            if self._template is None or is_last:
                worker.channel.close()
                self._ending.append(worker.pid)
            else:
                self._idle.append(worker)
                self._guard.notify()
                worker.is_new = False
                self._template.load(modules)

    def _status_of(self, pid: int) -> int:
        """Return the exit status of a process that ended before its call did."""
        with self._guard, contextlib.suppress(OSError, ValueError):
            if self._template is not None:
                return self._template.wait(pid)
        return -system.KILL


class WarmProcess:
    """A call of a pool's program, as a `subprocess.Popen`. `is_lost`: its process ended before the call did, which is a
    failure whatever the exit status."""

    def __init__(
        self,
        pool: WarmPool,
        worker: _Worker,
        stdin: IO[bytes] | None,
        stdout: IO[bytes] | None,
        stderr: IO[bytes] | None,
    ) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.pid = worker.pid
        self.returncode: int | None = None
        self.is_lost = False
        self._pool = pool
        self._worker = worker
        self._guard = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor that is readable when the call has ended, and before until `poll` sees that it has
        begun."""
        return self._worker.channel.fileno()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, None while it runs."""
        with self._guard:
            if self.returncode is None and (end := self._worker.end()) is not None:
                self.returncode, modules, is_last = end
                if self.returncode is None:
                    self.is_lost = is_last = True
                    self.returncode = self._pool._status_of(self.pid) or _LOST
                self._pool._take_back(self._worker, modules, is_last)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeoutExpired after `timeout` seconds."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ends = select.poll()
        with contextlib.suppress(ValueError):  # another thread has seen the end
            ends.register(self, select.POLLIN)
        while (status := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                assert timeout is not None
                raise subprocess.TimeoutExpired([self._pool._program], timeout)
            ends.poll(min(left, _LOOK) * 1000)
        return status

    def send_signal(self, number: int) -> None:
        with self._guard:
            if self.returncode is None and number != system.KILL:  # others reach no call that hasn't begun
                self._worker.wait_until_begun(_START)
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(system.KILL)


class _Worker:
    """A forked process, and the connection to it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel
        self.is_new = True
        self._read = b""

    def send(self, order: bytes, descriptors: Sequence[int]) -> None:
        self.channel.setblocking(True)
        socket.send_fds(self.channel, [b"%*d" % (NUMBER, len(order))], descriptors)
        self.channel.sendall(order)
        self.channel.setblocking(False)

    def wait_until_begun(self, seconds: float) -> None:
        """Wait until the call has begun, or the process ends."""
        begins = select.poll()
        with contextlib.suppress(OSError, ValueError):
            begins.register(self.channel, select.POLLIN)
            if not self._read and begins.poll(seconds * 1000):
                self._read += self.channel.recv(len(BEGUN))

    def end(self) -> tuple[int | None, Sequence[str], bool] | None:
        """Return how the call has ended, None while it runs: its status, None if the process is gone, the modules that
        it has loaded, and whether the process ends too."""
        while not self._read.endswith(b"\n"):
            try:
                data = self.channel.recv(_PIECE)
            except BlockingIOError:
                return None
            except OSError:
                data = b""
            if not data:
                return None, (), True
            self._read += data
        end, self._read = json.loads(self._read.removeprefix(BEGUN)), b""
        return end["status"], end["modules"], end["last"]


class _Template:
    """The process that others are forked from."""

    def __init__(self, program: str, env: Mapping[str, str], pass_fds: Sequence[int]) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            module = "uwf_git.sandbox.warm_process"
            self.process = spawn(
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=Path("/"),
                env=env,
                pass_fds=(theirs.fileno(), *pass_fds),
            )

    def fork(self) -> _Worker:
        """Return a new process. Raises OSError."""
        descriptors: list[int] = []
        with contextlib.suppress(ConnectionError):
            self._ask("fork")
            data, descriptors, _, _ = socket.recv_fds(self._channel, NUMBER, 1)
        if not descriptors:
            raise OSError(_FAILED)
        return _Worker(int(data), socket.socket(fileno=descriptors[0]))

    def wait(self, pid: int) -> int:
        self._ask("wait", pid)
        return int(self._channel.recv(NUMBER, socket.MSG_WAITALL))

    def load(self, modules: Sequence[str]) -> None:
        """Have it load modules before it is forked again."""
        with contextlib.suppress(OSError):
            if modules:
                self._ask("load", *modules)

    def close(self) -> None:
        self._channel.close()
        self.process.wait()

    def _ask(self, *words: Any) -> None:
        self._channel.sendall(json.dumps(words).encode("ascii") + b"\n")


def _streams(
    *given: int | IO[bytes],
) -> tuple[list[int], list[IO[bytes] | None], list[int]]:
    """Return the descriptors of the standard streams, our ends of those that are pipes, and what is to be closed once
    they are handed over."""
    streams: list[int] = []
    pipes: list[IO[bytes] | None] = []
    opened: list[int] = []
    for number, stream in enumerate(given):
        ours: IO[bytes] | None = None
        if stream == subprocess.PIPE:
            reading, writing = os.pipe()
            theirs, own = (reading, writing) if number == 0 else (writing, reading)
            ours = open(own, "wb" if number == 0 else "rb")  # noqa: SIM115
            opened.append(theirs)
        elif stream == subprocess.DEVNULL:
            theirs = system.open_file(os.devnull, os.O_RDWR)
            opened.append(theirs)
        else:
            theirs = stream if isinstance(stream, int) else stream.fileno()
        streams.append(theirs)
        pipes.append(ours)
    return streams, pipes, opened
