"""Runs a command in a process group of its own, and ends with it whatever it has started.

Output of any size is read as it comes and only its end is kept. When the command has exited, what it
left running is ended too, in its group or, as far as that can be told, outside: a step is over when its agent is.

Whatever a started process has started in its turn, as far as it can be told.

A process leads a group of its own. What leaves the group, as daemons do and wrappers with the program that they
wrap, still has a mark in its environment, which it inherits; what drops that too is not found. Where the system has no
/proc, the group alone is known.

Signals that come at the wrong moment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from uwf_git.errors import AgentFailed

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


MARK = "UWF_AGENT_MARK"
_PROC = Path("/proc")
_ROUNDS = 20  # of looking for what was started while the others were being killed
_PAUSE = 0.005
_POLL = 0.01


class Descendants:
    """Those of a process to be started with the environment `env`, in a group of its own."""

    def __init__(self, env: Mapping[str, str]) -> None:
        token = secrets.token_hex(8)
        self._token = token.encode()
        # A step may run this program again: the inner one's processes belong to the outer one's too, even where the
        # environment in between was made anew.
        outer = env.get(MARK) or os.environ.get(MARK)
        self.env = {**env, MARK: ":".join(filter(None, (outer, token)))}

    def end(self, process: subprocess.Popen[bytes], grace: float) -> None:
        """Ends the process and whoever is left of what it has started: with SIGTERM, and `grace` seconds later with
        SIGKILL. Where that is nobody, /proc is looked through once."""
        group = process.pid
        process.poll()
        if self._signal(group, signal.SIGTERM):
            deadline = time.monotonic() + grace
            while time.monotonic() < deadline:
                time.sleep(_POLL)
                process.poll()
                if not self._alive(group):
                    break
            self._kill(group)
        process.wait()

    def _alive(self, group: int) -> bool:
        """Whether anybody is left, of that group or with the mark. Zombies don't count."""
        if not _has_proc():
            return signal_group(group, 0)
        return any(self._belongs(pid, group) for pid in _processes())

    def _signal(self, group: int, number: int) -> bool:
        """Signals whoever is left; returns whether there was anybody."""
        if not _has_proc():
            return signal_group(group, number)
        found = [pid for pid in _processes() if self._belongs(pid, group)]
        for pid in found:
            # By a descriptor of the process: its number may be another one's by now.
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                try:
                    if self._belongs(pid, group):
                        signal.pidfd_send_signal(descriptor, number)
                finally:
                    os.close(descriptor)
        return bool(found)

    def _kill(self, group: int) -> None:
        """Kills whoever is left, and what those start meanwhile."""
        for _ in range(_ROUNDS):
            if not self._signal(group, signal.SIGKILL):
                break
            time.sleep(_PAUSE)

    def _belongs(self, pid: int, group: int) -> bool:
        if pid == os.getpid():
            return False
        try:
            # The name, in parentheses, may itself hold spaces: what counts comes after the last one.
            state, _parent, its_group = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:3]
            if state in "ZX":
                return False
            return int(its_group) == group or self._token in (_PROC / str(pid) / "environ").read_bytes()
        except (OSError, ValueError):
            return False


def signal_group(group: int, number: int) -> bool:
    """Signals the processes of a group; returns whether there was anybody."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _processes() -> Iterator[int]:
    with os.scandir(_PROC) as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[None]:
    """Puts off what signals do until the block has ended. A Ctrl-C between the start of a child and the line that
    remembers it would otherwise leave that child alone. Outside the main thread it does nothing, since signals
    don't come there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _HELD if callable(handler := signal.getsignal(number))}
    for held in handlers:
        signal.signal(held, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        for number, frame in came:
            handlers[signal.Signals(number)](number, frame)
