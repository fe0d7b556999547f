"""Runs a command in a process group of its own, and ends with it whatever it has started.

Output of any size is read as it comes and only its end is kept. When the command has exited, what it
left running is ended too, in its group or, as far as that can be told, outside: a step is over when its agent is.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from uwf_git.descendants import Descendants
from uwf_git.errors import AgentFailed
from uwf_git.interrupt import deferred

KEEP = 256 * 1024
GRACE = 2.0
POLL = 0.05


class Finished(NamedTuple):
    """How a command ended. The tails are the last `keep` bytes; `returncode` is negative for a signal."""

    returncode: int
    stdout_tail: bytes
    stderr_tail: bytes
    timed_out: bool
    stdout_size: int = 0
    stderr_size: int = 0


class _Tail:
    """The end of a stream."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._data = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._data += data
        if len(self._data) > 2 * self._keep:
            del self._data[: -self._keep]

    def end(self) -> bytes:
        return bytes(self._data[-self._keep :])


def run_command(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    pass_fds: Sequence[int] = (),
    stderr_to: Path | None = None,
    keep: int = KEEP,
    on_stderr: Callable[[bytes], None] | None = None,
    on_stdout: Callable[[bytes], None] | None = None,
) -> Finished:
    """Runs a command to its end. `timeout` is in seconds; afterwards what is left gets SIGTERM, and two
    seconds later SIGKILL, as it does when this process is interrupted. `stderr_to` sends stderr to a
    file, so that a command which outlives this process can still log; `on_stderr` is handed it either
    way, and `on_stdout` stdout, in pieces of at most 64 KB; what they raise ends the command. Raises AgentFailed when
    the command can't be started."""
    listeners = {name: each for name, each in (("stdout", on_stdout), ("stderr", on_stderr)) if each}
    tails = {"stdout": _Tail(keep), "stderr": _Tail(keep)}
    descendants = Descendants(os.environ if env is None else env)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(stderr_to.open("wb+")) if stderr_to else None
        child: subprocess.Popen[bytes] | None = None
        try:
            with deferred():
                child = start(
                    argv,
                    stdin=_source(stdin, stack),
                    stderr=log.fileno() if log else subprocess.PIPE,
                    cwd=cwd,
                    env=descendants.env,
                    pass_fds=pass_fds,
                )
            timed_out = _watch(child, tails, timeout, listeners, log)
        finally:
            if child is not None:
                descendants.end(child, GRACE)
                for stream in filter(None, (child.stdout, child.stderr)):
                    stream.close()
        if log:
            _read_log(log.fileno(), tails["stderr"])
    return Finished(
        child.returncode,
        tails["stdout"].end(),
        tails["stderr"].end(),
        timed_out,
        tails["stdout"].size,
        tails["stderr"].size,
    )


def start(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    cwd: Path | None,
    env: Mapping[str, str],
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    """Starts a command with a pipe for stdout, as the leader of a session and a group of its own. Raises AgentFailed
    where that can't be done."""
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise AgentFailed(f"command {argv[0]!r} is not on PATH", "install it, or name it with its whole path")
    try:
        return subprocess.Popen(
            [os.path.abspath(program), *argv[1:]],  # noqa: PTH100
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise AgentFailed(
            f"command {argv[0]!r} does not start: {error}", "check its file and arguments"
        ) from None


def _source(stdin: bytes | None, stack: contextlib.ExitStack) -> int | IO[bytes]:
    """What a command reads: a file, so that nobody waits to write."""
    if stdin is None:
        return subprocess.DEVNULL
    source = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- the stack is the caller's
    source.write(stdin)
    source.seek(0)
    return source


def _watch(
    child: subprocess.Popen[bytes],
    tails: Mapping[str, _Tail],
    timeout: float | None,
    listeners: Mapping[str, Callable[[bytes], None]],
    log: IO[bytes] | None,
) -> bool:
    """Reads until the child has exited; returns whether it was ended for its time. What the child adds to
    its log meanwhile is handed on."""
    seen = 0
    on_stderr = listeners.get("stderr")

    def follow() -> None:
        nonlocal seen
        if log is not None and on_stderr is not None:
            while data := os.pread(log.fileno(), 1 << 16, seen):
                seen += len(data)
                on_stderr(data)

    deadline = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for name in ("stdout", "stderr"):
            stream = getattr(child, name)
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
        with contextlib.ExitStack() as stack:
            if hasattr(os, "pidfd_open"):
                descriptor = os.pidfd_open(child.pid)
                stack.callback(os.close, descriptor)
                selector.register(descriptor, selectors.EVENT_READ, "exit")
            while child.poll() is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return True
                polled = not hasattr(os, "pidfd_open") or (log is not None and on_stderr is not None)
                _read_ready(selector, tails, POLL if polled else left, listeners)
                follow()
            # The child is gone; something it left behind may hold the pipes open for ever.
            while _read_ready(selector, tails, 0, listeners):
                pass
            follow()
    return False


def _read_ready(
    selector: selectors.BaseSelector,
    tails: Mapping[str, _Tail],
    wait: float | None,
    listeners: Mapping[str, Callable[[bytes], None]],
) -> bool:
    got = False
    for key, _events in selector.select(wait):
        if key.data == "exit":
            continue
        try:
            data = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            continue
        if not data:
            selector.unregister(key.fileobj)
            continue
        got = True
        tails[key.data].add(data)
        if listener := listeners.get(key.data):
            listener(data)
    return got


def _read_log(descriptor: int, tail: _Tail) -> None:
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, max(0, size - KEEP), os.SEEK_SET)
    while data := os.read(descriptor, 1 << 16):
        tail.add(data)
    tail.size = size
