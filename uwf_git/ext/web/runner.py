"""Carries out requested actions: calls of the API in threads of the server, agents' work in `uwf` processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from uwf_git.ext.web import people
from uwf_git.ext.web.actions import ActionFailed, ActionRequest
from uwf_git.plugin import (
    STATUS_FIELD,
    Call,
    CommandFailed,
    CompletedWithFailures,
    Location,
    NotRunning,
    ThreadId,
    Waiting,
    WarmProcess,
    calling,
    failures_reported,
    spawn_command,
)

AT_ONCE = 8
PATIENCE = 60.0  # seconds that a page waits for an action
_BEGIN = 10.0  # and for a step to begin
_LOOK = 0.02
_REAP = 1.0
_PRINTED = 4 << 20  # bytes that are read of a command's output or error


class Work(NamedTuple):
    """A command's work: whether it began, and what to call with its failure, or with its output."""

    is_begun: Callable[[], bool]
    refused: Callable[[ActionFailed], None]
    done: Callable[[bytes], None] | None = None


class Runner:
    """Carries out actions on a store, AT_ONCE at a time."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._processes = asyncio.Semaphore(AT_ONCE)
        self._left: set[asyncio.Task[None]] = set()

    async def call(self, request: ActionRequest, do: Callable[[Call], ThreadId]) -> ThreadId:
        """Call the API in another thread. Raises ActionFailed if that takes longer than PATIENCE, and its errors."""
        by = people.person()  # another thread is in nobody's name

        def called() -> ThreadId:
            with calling(self._location, by) as call:
                return do(call)

        doing = asyncio.get_running_loop().run_in_executor(self._threads, called)
        try:
            done, _ = await asyncio.wait([doing], timeout=PATIENCE)
        except asyncio.CancelledError:  # the server stops; the thread's work finishes
            doing.cancel()
            raise
        if not done:
            doing.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise ActionFailed(
                f"this is still being done after {PATIENCE:.0f} seconds: {request.shown}",
                "look at the thread: it continues",
                504,
            )
        try:
            return doing.result()
        except CommandFailed as error:
            raise _not_done(error.message, error.hint, error.status, request) from None

    async def run(self, request: ActionRequest, work: Work) -> None:
        """Start agents' work in its own session, with its output in unnamed files, so that a step
        outlives the server and a kill ends it. Raises ActionFailed if it doesn't start."""
        async with self._processes:
            # They are closed when the process has ended.
            out = TemporaryFile() if work.done is not None else None  # noqa: SIM115
            err = TemporaryFile()  # noqa: SIM115
            try:
                start = partial(
                    spawn_command, self._location, request.argv, stdout=out or subprocess.DEVNULL, stderr=err
                )
                child = await asyncio.get_running_loop().run_in_executor(self._threads, start)
            except (OSError, ValueError) as error:
                for file in filter(None, (out, err)):
                    file.close()
                failure = ActionFailed(f"uwf does not start: {error}", request.shown, 500)
                if work.done is not None:
                    work.refused(failure)
                raise failure from None
            ended = asyncio.create_task(self._ended(child, request, out, err, work))
            self._left.add(ended)
            ended.add_done_callback(self._left.discard)
            deadline = time.monotonic() + _BEGIN
            while not ended.done() and not work.is_begun() and time.monotonic() < deadline:
                await asyncio.sleep(_LOOK)

    async def _ended(
        self, child: WarmProcess, request: ActionRequest, out: IO[bytes] | None, err: IO[bytes], work: Work
    ) -> None:
        with err, out or nullcontext():
            pause = _LOOK
            while (code := child.poll()) is None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.1, _REAP)
            if (failure := _failure(code, err, request)) is not None:
                work.refused(failure)
            elif out is not None and work.done is not None:
                out.seek(0)
                work.done(out.read(_PRINTED))


def _failure(code: int, err: IO[bytes], request: ActionRequest) -> ActionFailed | None:
    if code in (0, Waiting.exit_status, NotRunning.exit_status, CompletedWithFailures.exit_status):
        return None
    err.seek(0, os.SEEK_END)
    err.seek(max(0, err.tell() - _PRINTED))
    error = failures_reported(err.read().decode("utf-8", "replace"))
    if error is None:
        return ActionFailed(
            f"the command ended with status {code}: {request.shown}", "run it in a terminal", 500
        )
    return _not_done(error["message"], error["hint"], code, request)


def _not_done(message: str, hint: str, status: int, request: ActionRequest) -> ActionFailed:
    before = f"{hint} — " if hint else ""
    return ActionFailed(
        message, f"{before}the same in a terminal: {request.shown}", STATUS_FIELD.get(status, 422)
    )
