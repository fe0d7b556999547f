"""Commands on threads: short ones are called in this process, agents' work is a process that outlives this one."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

from uwf_git.ext.top.board import FAILED, IDLE, PAUSED, RUNNING, Row
from uwf_git.ext.top.question import Answer, Decision
from uwf_git.plugin import (
    CommandFailed,
    CompletedWithFailures,
    Location,
    NotRunning,
    Waiting,
    WarmProcess,
    call_command,
    calling,
    failures_reported,
    spawn_command,
)

_AT_ONCE = 4
_LOOK = 0.05  # seconds
_PRINTED = 1 << 16  # bytes of an error that are read
_NO_FAILURE = {0, Waiting.exit_status, NotRunning.exit_status, CompletedWithFailures.exit_status}


def retry(row: Row) -> tuple[str, ...] | None:
    """Return the command that runs a thread, again if it failed; None if it has nothing to do."""
    if row.head is None or row.group not in (FAILED, IDLE, RUNNING):
        return None
    return ("thread", "retry", "--", row.thread)


def stop(row: Row) -> tuple[str, ...] | None:
    return None if _has_ended(row) else ("thread", "pause", "--now", "--", row.thread)


def pause(row: Row) -> tuple[str, ...] | None:
    if row.group == PAUSED or row.is_pausing:
        return ("thread", "resume", "--", row.thread)
    return None if _has_ended(row) else ("thread", "pause", "--", row.thread)


def _has_ended(row: Row) -> bool:
    return row.head is None or row.state.is_ended


class Actions:
    """Carries out commands on a store. `tell` shows a line, and whether it is a failure."""

    def __init__(self, location: Location, tell: Callable[[str, bool], None]) -> None:
        self._location = location
        self._tell = tell
        self._threads = ThreadPoolExecutor(_AT_ONCE, "actions")
        self._watched: set[asyncio.Task[None]] = set()

    async def call(self, argv: tuple[str, ...]) -> Any:
        """Return a command's JSON. Raises CommandFailed."""
        do = partial(call_command, self._location, argv)
        return (await asyncio.get_running_loop().run_in_executor(self._threads, do)).value

    async def answer(self, answer: Answer | Decision, recorded: Callable[[], None]) -> bool:
        """Answer a thread, call `recorded` before anybody is notified, and return whether it goes on. Raises
        CommandFailed."""
        loop = asyncio.get_running_loop()

        def do() -> bool:
            with calling(self._location) as call:
                goes_on = answer.give(call.instance)
                loop.call_soon_threadsafe(recorded)
                return goes_on

        return await loop.run_in_executor(self._threads, do)

    async def start(self, argv: tuple[str, ...]) -> None:
        """Begin agents' work; its failure is told when it comes."""
        error = TemporaryFile()  # noqa: SIM115 closed when the process has ended
        spawn = partial(spawn_command, self._location, argv, stdout=subprocess.DEVNULL, stderr=error)
        try:
            child = await asyncio.get_running_loop().run_in_executor(self._threads, spawn)
        except (OSError, ValueError) as problem:
            error.close()
            self._tell(f"uwf does not start: {problem}", True)
            return
        task = asyncio.create_task(self._watch(child, error, argv))
        self._watched.add(task)
        task.add_done_callback(self._watched.discard)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _watch(self, child: WarmProcess, error: IO[bytes], argv: tuple[str, ...]) -> None:
        with error:
            pause = _LOOK
            while (code := child.poll()) is None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, 1.0)
            if code in _NO_FAILURE:
                return
            error.seek(max(0, error.seek(0, os.SEEK_END) - _PRINTED))
            failure = failures_reported(error.read().decode("utf-8", "replace"))
        if failure is None:
            self._tell(f"uwf {' '.join(argv)} ended with status {code}", True)
        else:
            self._tell(in_a_line(failure["message"], failure["hint"]), True)


def in_a_line(message: str, hint: str) -> str:
    return f"{message} — {hint}" if hint else message


def message_of(error: CommandFailed) -> str:
    return in_a_line(error.message, error.error["hint"])
