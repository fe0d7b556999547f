"""Calling a command in its own process, which ends when the call is cancelled: for agents and long computations."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread

from uwf_cli.call import Failed, Result
from uwf_cli.failures import reported
from uwf_cli.invocation import PROGRAM, words_of
from uwf_git.sandbox.child import Pipes, Process, stop
from uwf_git.sandbox.warm import WarmPool, WarmProcess
from uwf_git.store.location import Location

GRACE = 10.0
DRAIN = 1.0
LARGEST = 32 << 20
"""The bytes that a command may print."""


_guard = threading.Lock()
_pool: tuple[dict[str, str], WarmPool] | None = None


class TooLarge(Failed):
    """A command printed more than allowed."""

    def __init__(self, most: int = LARGEST) -> None:
        super().__init__("failure", f"the result is larger than {most >> 20} MiB", "ask for less of it")


def spawn_command(
    location: Location,
    argv: tuple[str, ...],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    folder: Path | None = None,
) -> WarmProcess:
    """Start a command on a store, which prints JSON, in a process of this server's pool, which it may outlive. Raises
    OSError, ValueError."""
    global _pool
    inherited = {name: value for name, value in os.environ.items() if name != "UWF_FORMAT"}
    env = {**inherited, **location.environment()}
    with _guard:
        if _pool is None or _pool[0] != env:
            if _pool is not None:
                _pool[1].close()
            _pool = env, WarmPool(PROGRAM, env)
        pool = _pool[1]
    return pool.spawn(words_of("json", *argv), stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder)


async def call_in_process(
    location: Location,
    argv: tuple[str, ...],
    stdin: str | None = None,
    folder: Path | None = None,
    most: int = LARGEST,
) -> Result:
    """Run a command as `call.call`, in a folder, with at most `most` bytes of output. Raises Failed,
    TooLarge."""
    content = None if stdin is None else stdin.encode("utf-8", "replace")
    try:
        source = subprocess.DEVNULL if content is None else subprocess.PIPE
        start = partial(spawn_command, location, argv, stdin=source, folder=folder)
        process = await anyio.to_thread.run_sync(start)
    except (OSError, ValueError) as error:
        raise Failed("failure", f"uwf does not start: {error}") from None
    out, err = await _end_of(process, content or b"", most)
    code = process.wait()
    if (report := reported(err)) is not None:
        with suppress(ValueError):  # such as the outcome of a step that ended its thread as failed
            report["result"] = _printed(out.decode("utf-8", "replace"))
        raise Failed(status=code, **report)
    if code < 0:
        raise Failed("failure", f"the command was killed by signal {-code}", "repeat", code)
    if len(out) > most:
        raise TooLarge(most)
    try:
        value = _printed(out.decode("utf-8", "replace"))
    except ValueError:
        raise Failed("internal", f"`uwf {' '.join(argv[:2])}` printed no JSON") from None
    messages = (line for line in err.splitlines() if line.startswith("uwf: "))
    return Result(value, [line.removeprefix("uwf: ") for line in messages])


async def _end_of(process: Process, stdin: bytes, most: int) -> tuple[bytes, str]:
    """Wait for a process and return its output and standard error. Cancelled, only the process is terminated:
    it ends its agent itself, and git's packing may continue. It has its own session, so signals to the
    server's client don't reach it."""
    pipes = Pipes(process, most)
    try:
        await pipes.connect()
        pipes.write(stdin)
        pipes.close_input()
        out = bytearray()
        async with anyio.create_task_group() as reading:
            read = anyio.Event()
            reading.start_soon(_read, pipes, out, most, read)
            await pipes.exit_status(math.inf, 0)
            with anyio.move_on_after(DRAIN):  # its children may hold the pipes forever
                await read.wait()
                await pipes.exit_status(0, DRAIN)
            reading.cancel_scope.cancel()
        return bytes(out), pipes.stderr
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(stop, process, GRACE)
            await pipes.close()


async def _read(pipes: Pipes, into: bytearray, most: int, done: anyio.Event) -> None:
    while data := await pipes.read():
        if len(into) <= most:
            into += data
    done.set()


def _printed(text: str) -> Any:
    """Return the result in a command's output, after possible output of an in-process agent. Raises
    ValueError."""
    try:
        return json.loads(text)
    except ValueError:
        begin = max(text.rfind(opening) for opening in ("\n{\n", "\n[\n"))
        if begin < 0:
            raise
        return json.loads(text[begin:])
