"""A pool of step processes, each making one step at a time. A dead one is replaced; its agent's turns are in
the store for the next try."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from uwf_git.ext.fleet.retry_policy import lost
from uwf_git.plugin import log, processes, system

if TYPE_CHECKING:
    import subprocess

    from uwf_git.ext.fleet.step_process import WorkerOptions
    from uwf_git.plugin import Location

PATIENCE = 20.0  # seconds that a hand has to end its agent and to keep what that said
_GRACE = 5.0

Tell = Callable[[Mapping[str, Any]], None]


class ChildProcess:
    """A process of a fleet: it prints values as JSON lines, and ends with its input."""

    def __init__(self, module: str, argument: str, env: Mapping[str, str]) -> None:
        argv = [sys.executable, "-P", "-m", f"uwf_git.ext.fleet.{module}", argument]
        self.process: subprocess.Popen[bytes] = processes.spawn(argv, cwd=None, env=env)
        self._pipes = processes.Pipes(self.process, keep=4096)

    async def connect(self) -> None:
        """Begin to read. Before `values`."""
        await self._pipes.connect()
        self._lines: AsyncIterator[bytes] = processes.lines(self._pipes.read)

    async def values(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield what it prints, until its end or the caller's."""
        async for line in self._lines:
            yield json.loads(line)

    async def close(self, patience: float) -> None:
        """End its input, wait for its end, and kill it after `patience` seconds."""
        self._pipes.close_input()
        if await self._pipes.exit_status(patience, 0.0) is None:
            self.kill()
            self.process.wait()
        await self._pipes.close()

    def kill(self) -> None:
        self.process.kill()


class _StepProcess(ChildProcess):
    """A step process, which answers requests."""

    async def ask(self, request: Mapping[str, Any], tell: Tell) -> tuple[Mapping[str, Any] | None, bool]:
        self._pipes.write(json.dumps(request).encode() + b"\n")
        async for value in self.values():
            if "answer" in value:
                return value["answer"], not value["last"]
            tell(value)
        return None, False

    async def last_words(self) -> tuple[str, str]:
        status = await self._pipes.exit_status(_GRACE, 0.5)
        line = self._pipes.stderr.strip().rpartition("\n")[2]
        if status is None:
            how = "closed its output"
        else:
            how = f"was ended by signal {-status}" if status < 0 else f"exited with {status}"
        return how, line

    def kill(self) -> None:
        """Kill it with its agent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, system.KILL)


class ProcessPool:
    """At most N processes, started on demand."""

    def __init__(self, location: Location, orders: WorkerOptions, most: int, tell: Tell) -> None:
        self._env = {**os.environ, **location.environment()}
        self._argument = orders.argument()
        self._notify = tell
        self._free: list[_StepProcess] = []
        self._all: set[_StepProcess] = set()
        self._places = asyncio.Semaphore(most)
        self._over = False

    @property
    def processes(self) -> list[int]:
        return [process.process.pid for process in self._all]

    def allow(self, more: int) -> None:
        for _ in range(more):
            self._places.release()

    async def do(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request's answer, or a fault if the process died. When cancelled, the step is interrupted
        and its turns kept."""
        async with self._places:
            if self._over:
                return {"fault": lost("the worker was ended").as_json()}
            hand = self._free.pop() if self._free else await self._start()
            asking = asyncio.ensure_future(hand.ask(request, self._notify))
            try:
                answer, takes_another = await asyncio.shield(asking)
            except asyncio.CancelledError:
                await self._break_off(hand, asking)
                raise
            if answer is not None and takes_another:
                self._free.append(hand)
                return answer
            return await self._replaced(hand, request, answer)

    async def close(self) -> None:
        self._over = True
        await asyncio.gather(*(process.close(PATIENCE) for process in self._all))
        self._all.clear()
        self._free.clear()

    def kill(self) -> None:
        """Kill all; pending requests get a fault."""
        for hand in self._all:
            hand.kill()

    async def _start(self) -> _StepProcess:
        hand = _StepProcess("step_process", self._argument, self._env)
        self._all.add(hand)
        await hand.connect()
        return hand

    async def _replaced(
        self, hand: _StepProcess, request: Mapping[str, Any], answer: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Drop a dead process. Its last line is logged here only, since it may be an agent's."""
        if answer is None:
            how, line = await hand.last_words()
            words = f"{how}: {line}" if line else how
            log.warning("D8Z6RRN4", "a process that made a step is gone: {words}", words=words)
            if "thread" in request:
                fault = lost(f"the process that made the step {words}")
                self._notify({"thread": request["thread"], "fault": fault.as_json()})
            answer = {"fault": lost(f"the process that made the step {how}").as_json()}
        self._all.discard(hand)
        await hand.close(PATIENCE)
        return answer

    async def _break_off(self, hand: _StepProcess, asking: asyncio.Future[Any]) -> None:
        with contextlib.suppress(ProcessLookupError):
            hand.process.send_signal(signal.SIGINT)
        takes_another = False
        with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
            answer, takes_another = await asyncio.wait_for(asking, PATIENCE)
            takes_another = takes_another and answer is not None
        if takes_another:
            self._free.append(hand)
            return
        self._all.discard(hand)
        hand.kill()
        await hand.close(PATIENCE)
