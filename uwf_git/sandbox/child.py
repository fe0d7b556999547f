"""Child processes: starting, watching, limiting, and ending them with all descendants.

Agents, tools' commands and tool servers lead their own session and process group. A step ends with them:
leftovers are ended too, see `descendants`. `limits` bounds their use.

`run_command` runs a program to its end. `Pipes` watches one from an event loop, for dialogues.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from uwf_git.base import log, system
from uwf_git.base.errors import AgentFailed, Unavailable
from uwf_git.base.lifetime import deferred
from uwf_git.base.line_buffer import LineBuffer
from uwf_git.base.text import duration
from uwf_git.sandbox.descendants import Descendants, adopted, leaders
from uwf_git.sandbox.process_table import end_each, started_by
from uwf_git.sandbox.programs import elsewhere

if TYPE_CHECKING:
    import asyncio

    from uwf_git.sandbox.quota import Exceeded, Quota

KEEP = 256 * 1024
GRACE = 2.0
_PIECE = 1 << 16
_POLL = 0.01
_SLOW_POLL = 0.05
_NEXT_INPUT = 0.2  # seconds between two looks for more input


class Process(Protocol):
    """A process as its starter sees it: a `subprocess.Popen`, or a call of a pool of warm ones."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class CommandResult(NamedTuple):
    """The end of a command. The tails are the last `keep` bytes; `returncode` is negative for a signal;
    `exceeded` is the limit that ended it. `took` and `silent` are in seconds; `fell_silent`: it was ended for
    silence."""

    returncode: int
    stdout_tail: bytes
    stderr_tail: bytes
    timed_out: bool
    stdout_size: int = 0
    stderr_size: int = 0
    exceeded: Exceeded | None = None
    took: float = 0.0
    silent: float = 0.0
    fell_silent: bool = False

    @property
    def overran(self) -> str:
        """Describe a command that ran out of time or of permitted silence."""
        return "was ended, for it printed nothing" if self.fell_silent else "ran out of time"

    @property
    def told(self) -> str:
        """Describe how long it ran and since when it was silent."""
        silent = f", silent for the last {duration(round(self.silent))}" if self.silent >= 1 else ""
        return f"after {duration(round(self.took) if self.took >= 1 else self.took)}{silent}"


def run_command(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    silence: float | None = None,
    pass_fds: Sequence[int] = (),
    stderr_to: Path | None = None,
    keep: int = KEEP,
    on_stderr: Callable[[bytes], None] | None = None,
    on_stdout: Callable[[bytes], None] | None = None,
    quota: Quota | None = None,
    guarded: bool = False,
    on_exit: Callable[[CommandResult], object] | None = None,
    feed: Callable[[], bytes | None] | None = None,
    waits: Callable[[], bool] = lambda: False,
) -> CommandResult:
    """Run a command to its end, and end its descendants.

    After `timeout` seconds, `silence` seconds without output, or an interrupt, they get SIGTERM, two seconds
    later SIGKILL. `stderr_to` is a file, so that a command which outlives this process can still log.
    `on_stdout` and `on_stderr` get pieces of at most 64 KB; an exception ends the command. `quota` limits it
    with its descendants. `guarded`: they are killed with this process. `on_exit` gets its natural end before
    descendants are ended. `feed`, in place of `stdin`, is asked a few times a second for the next input, until it
    returns None, which ends it. While it `waits` for a person, its silence doesn't count. Raises AgentFailed if it
    cannot be started.
    """
    stdout, stderr = Tail(keep, on_stdout), Tail(keep, on_stderr)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(adopted(GRACE))
        descendants = Descendants(os.environ if env is None else env, quota)
        stack.callback(descendants.close)
        if guarded:
            descendants.guard()
        written = stack.enter_context(open(stderr_to, "wb+", opener=_for_its_user)) if stderr_to else None
        child: subprocess.Popen[bytes] | None = None
        try:
            with deferred():
                child = start(
                    argv,
                    descendants,
                    stdin=subprocess.PIPE if feed else _source(stdin, stack),
                    stderr=written.fileno() if written else subprocess.PIPE,
                    cwd=cwd,
                    pass_fds=pass_fds,
                )
            source = _Feed(child.stdin, feed) if child.stdin is not None and feed is not None else None
            timed_out, exceeded = _watch(
                child, stdout, stderr, timeout, silence, written, descendants, source, waits
            )
            ended = time.monotonic()
            if exceeded is not None:
                descendants.kill(child)
            elif on_exit is not None and not timed_out:
                on_exit(_finished(child, stdout, stderr))
        finally:
            if child is not None:
                descendants.end(child, GRACE)
                for stream in filter(None, (child.stdin, child.stdout, child.stderr)):
                    with contextlib.suppress(OSError):
                        stream.close()
        if written:
            stderr.listener = None
            stderr.follow(written)  # output written while the command was being ended
    log.debug(
        "NDNYP20K",
        "process {process} ended with {status}",
        process=child.pid,
        status=child.returncode,
        seconds=round(time.monotonic() - began, 3),
        stdout_size=stdout.size,
        stderr_size=stderr.size,
    )
    silent = ended - max(began, stdout.last, stderr.last)
    return _finished(child, stdout, stderr)._replace(
        timed_out=timed_out,
        exceeded=exceeded,
        took=ended - began,
        silent=silent,
        fell_silent=timed_out and silence is not None and (timeout is None or ended - began < timeout),
    )


def _finished(child: subprocess.Popen[bytes], stdout: Tail, stderr: Tail) -> CommandResult:
    return CommandResult(child.returncode, stdout.end(), stderr.end(), False, stdout.size, stderr.size)


def start(
    argv: Sequence[str],
    descendants: Descendants,
    *,
    stdin: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    cwd: Path | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    """Start a command from its environment's PATH, as `spawn` does, with `descendants`. Raises AgentFailed,
    closing these."""
    import shutil

    env = descendants.env
    try:
        program = shutil.which(argv[0], path=env.get("PATH"))
        if program is None:
            if "/" in argv[0]:
                raise Unavailable(f"command {argv[0]!r} is not a file that can be run", "correct its path")
            raise Unavailable(
                f"command {argv[0]!r} is not on PATH", "install it, or name it with its whole path"
            )
        system.check_arguments(program, argv[1:])
        process = spawn(
            [*descendants.before, os.path.abspath(program), *argv[1:]],  # noqa: PTH100
            stdin=stdin,
            stderr=stderr,
            cwd=cwd,
            env=env,
            pass_fds=pass_fds,
            held=True,
        )
    except (OSError, ValueError) as error:
        descendants.close()
        raise AgentFailed(
            f"command {argv[0]!r} does not start: {error}", "check its file and arguments"
        ) from None
    except BaseException:
        descendants.close()
        raise
    descendants.started(process)
    return process


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.PIPE,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    cwd: Path | None,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    own_session: bool = True,
    limits: Mapping[str, int] = MappingProxyType({}),
    held: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program as leader of its own session and group, unless it needs the terminal's session; with
    pipes unless given files. `PWD` is set to its folder, which some programs trust; in a session of its own it
    gets no variables of a surrounding git. `limits` are `ulimit`
    options for it and each child. `held`: its `Descendants` let it run. Raises OSError, ValueError."""
    child = subprocess.Popen(
        [*_limited(limits), *argv],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=working_in(cwd, elsewhere(env) if own_session else env),
        **system.in_own_group(own_session, pass_fds, held),
    )
    if own_session:
        leaders.add(child.pid)
    log.debug(
        "CMJF8BEY",
        "starts process {process}: {command}",
        process=child.pid,
        command=argv,
        folder=cwd,
        limits=dict(limits),
    )
    return child


def working_in(folder: Path | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a folder, with `PWD` as a shell sets it, or without if it is gone."""
    variables = dict(env)
    try:
        variables["PWD"] = os.path.abspath(folder or os.getcwd())  # noqa: PTH100, PTH109
    except FileNotFoundError:
        variables.pop("PWD", None)
    return variables


def _limited(limits: Mapping[str, int]) -> list[str]:
    """Return a shell that sets limits and execs the command, three times as fast as forking this process."""
    if not limits or sys.platform == "win32":
        return []
    # Soft ones: at a hard limit of time the kernel kills without a word.
    orders = "".join(f"ulimit -S -{kind} {at_most} 2>/dev/null\n" for kind, at_most in limits.items())
    return ["/bin/sh", "-c", f'{orders}exec "$@"', "sh"]


def stop(child: Process, grace: float, attached: bool = False) -> None:
    """End the process alone: SIGTERM, after `grace` seconds SIGKILL. With `attached`, also its descendants
    that are not daemons."""
    if child.poll() is None:
        processes = started_by(child.pid) if attached else []
        child.terminate()
        try:
            child.wait(grace)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        end_each(processes, min(grace, GRACE))


class Pipes:
    """The pipes of a spawned process in an asyncio loop. The last `keep` bytes of stderr are kept."""

    def __init__(self, process: Process, keep: int = KEEP) -> None:
        self._process = process
        self._stderr = Tail(keep)
        self._transports: list[asyncio.BaseTransport] = []
        self._input: asyncio.WriteTransport | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Attach to the running loop. The task `over` finishes when the process has exited or closed its
        input."""
        import asyncio
        from functools import partial

        loop, process = asyncio.get_running_loop(), self._process
        self._out, err = asyncio.StreamReader(limit=1 << 20), asyncio.StreamReader()
        for reader, pipe in ((self._out, process.stdout), (err, process.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        if process.stdin is not None:
            self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
            self._transports.append(self._input)
        self.over = loop.create_task(self._wait())
        self._tasks = [loop.create_task(self._listen(err)), self.over]

    @property
    def stderr(self) -> str:
        """The end of its standard error."""
        return self._stderr.end().decode("utf-8", "replace")

    async def read(self) -> bytes:
        """Return the next output, empty at the end."""
        try:
            return await self._out.read(1 << 18)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Send input; lost if it is no longer read."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(data)

    def close_input(self) -> None:
        """Close the input after pending data."""
        if self._input is not None:
            self._input.close()

    async def exit_status(self, patience: float, drain: float) -> int | None:
        """Return the exit status, None after `patience` seconds. Waits `drain` more seconds for stderr, which
        a leftover may hold open."""
        import asyncio

        deadline = time.monotonic() + patience
        while (status := self._process.poll()) is None and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
        if status is not None and self._tasks:
            await asyncio.wait(self._tasks, timeout=drain)
        return status

    async def close(self) -> None:
        import asyncio

        for task in self._tasks:
            task.cancel()
        for transport in self._transports:
            transport.close()
        await asyncio.sleep(0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    async def _listen(self, err: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await err.read(_PIECE):
                self._stderr.add(data)

    async def _wait(self) -> None:
        import asyncio

        while self._process.poll() is None and not (self._input and self._input.is_closing()):
            await asyncio.sleep(_SLOW_POLL)


class LineTooLong(Exception):
    pass


async def lines(read: Callable[[], Awaitable[bytes]], longest: int | None = None) -> AsyncIterator[bytes]:
    """Yield the lines of chunks until an empty one; the last may be unterminated. Raises LineTooLong beyond
    `longest` bytes."""
    buffer = LineBuffer()
    while data := await read():
        for line in buffer.add(data):
            yield line
        if longest is not None and buffer.size > longest:
            raise LineTooLong
    if buffer.size:
        yield buffer.take()


class Tail:
    """The end of a stream, and its size. `listener` gets everything."""

    def __init__(self, keep: int, listener: Callable[[bytes], None] | None = None) -> None:
        self._keep = keep
        self._data = bytearray()
        self.listener = listener
        self.size = 0
        self.last = 0.0  # when something came, on time.monotonic()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.last = time.monotonic()
        self._data += data
        if len(self._data) > 2 * self._keep:
            del self._data[: -self._keep]
        if self.listener:
            self.listener(data)

    def follow(self, file: IO[bytes]) -> None:
        """Add what was appended to a file."""
        while data := system.read_at(file.fileno(), _PIECE, self.size):
            self.add(data)

    def end(self) -> bytes:
        return bytes(self._data[-self._keep :])


def _for_its_user(path: str, flags: int) -> int:
    return system.open_file(path, flags, 0o600)


def _source(stdin: bytes | None, stack: contextlib.ExitStack) -> int | IO[bytes]:
    if stdin is None:
        return subprocess.DEVNULL
    import tempfile

    source = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 -- the stack is the caller's
    source.write(stdin)
    source.seek(0)
    return source


class _Feed:
    """The input that a running command gets bit by bit."""

    def __init__(self, pipe: IO[bytes], more: Callable[[], bytes | None]) -> None:
        self._pipe = pipe
        self._more = more
        self._rest = b""
        if sys.platform != "win32":
            os.set_blocking(pipe.fileno(), False)

    def push(self) -> float | None:
        """Write what there is, and return the seconds until the next look, None once the input has ended."""
        if self._pipe.closed:
            return None
        if not self._rest:
            data = self._more()
            if data is None:
                self._pipe.close()
                return None
            self._rest = data
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._pipe.fileno(), self._rest[:_PIECE]) :]
        except BlockingIOError:
            return _POLL
        except BrokenPipeError:
            self._pipe.close()
            return None
        return _NEXT_INPUT


def _watch(
    child: subprocess.Popen[bytes],
    stdout: Tail,
    stderr: Tail,
    timeout: float | None,
    silence: float | None,
    written: IO[bytes] | None,
    descendants: Descendants,
    source: _Feed | None = None,
    waits: Callable[[], bool] = lambda: False,
) -> tuple[bool, Exceeded | None]:
    """Read until the child exits; return whether time or silence ran out first, and the exceeded limit. A
    stderr `written` to a file is read from there."""
    began = heard = time.monotonic()
    deadline = None if timeout is None else began + timeout
    followed = written if stderr.listener or silence is not None else None
    streams = (child.stdout, stdout.add), (child.stderr, stderr.add)
    with contextlib.closing(system.Outputs(child.pid, streams)) as outputs:
        while not descendants.has_exited(child):
            remaining = None if deadline is None else deadline - time.monotonic()
            if silence is not None:
                heard = time.monotonic() if waits() else max(heard, stdout.last, stderr.last)
                quiet = heard + silence - time.monotonic()
                remaining = quiet if remaining is None else min(remaining, quiet)
            if remaining is not None and remaining <= 0:
                log.warning(
                    "V1R01HFS",
                    "process {process} has had its {timeout} s",
                    process=child.pid,
                    timeout=timeout,
                )
                return True, None
            if (exceeded := descendants.exceeded(child)) is not None:
                return False, exceeded
            pauses = (
                remaining if outputs.hears_end and not followed else _SLOW_POLL,
                descendants.pause,
                source.push() if source is not None else None,
            )
            outputs.wait(min((pause for pause in pauses if pause is not None), default=None))
            if followed:
                stderr.follow(followed)
        outputs.drain()
        if followed:
            stderr.follow(followed)
    return False, descendants.exceeded(child)
