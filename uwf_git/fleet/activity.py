"""The one activity there is: a step of a thread, on the machine of the worker that has got it.

It may be asked twice for the same step, by a server that has lost sight of a worker, and of two workers at once. So it
looks where the thread is first, and the step counts when its ref has moved by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from uwf_git.errors import Throttled
from uwf_git.fleet import asked
from uwf_git.fleet.exits import Fault, parse_fault
from uwf_git.fleet.hands import Hands
from uwf_git.fleet.limits import Gate, queue_of

_SIGNS = 4  # of life within the time after which a step is given to another
_AT_MOST = 10.0


class Steps:
    """Makes steps by the hands of a worker, as the gate of their queue lets them in."""

    def __init__(self, hands: Hands, gates: Mapping[str, Gate]) -> None:
        self._hands = hands
        self._gates = gates
        self.ending = False
        """Whether the worker is about to end: a step that is cancelled then is for another one."""

    @activity.defn(name=asked.STEP)
    async def step(self, thread: str, head: str, counts: bool = False) -> dict[str, Any]:
        """Where a thread stands after the step that comes after `head`, made here, or by somebody else before; with
        `counts` also what it has used. Raises ApplicationError with the fault, and where the thread stands if that is
        known."""
        gate = self._gates[activity.info().task_queue]
        async with _alive():
            try:
                async with gate.turn():
                    answer = await self._hands.do({"thread": thread, "head": head, "counts": counts})
            except asyncio.CancelledError:
                if self.ending:
                    raise ApplicationError("the worker was ended", type="ended") from None
                raise
        if "fault" not in answer:
            return dict(answer["stand"])
        fault = parse_fault(answer["fault"])
        if fault.by is not None:
            self._gates.get(queue_of(fault.by), gate).back_off(Throttled(fault.by, fault.after))
        raise _failure(fault, answer.get("stand"))


def _failure(fault: Fault, stand: Mapping[str, Any] | None) -> ApplicationError:
    """What Temporal is told; when it is tried again is for the workflow to say."""
    details = [fault.as_json(), *([dict(stand)] if stand else [])]
    return ApplicationError(fault.message, *details, type=fault.code, non_retryable=True)


@contextlib.asynccontextmanager
async def _alive() -> AsyncIterator[None]:
    """Gives signs of life as often as the server wants them."""
    within = activity.info().heartbeat_timeout or timedelta(seconds=asked.HEARTBEAT)
    between = min(within.total_seconds() / _SIGNS, _AT_MOST)

    async def signs() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(between)

    task = asyncio.ensure_future(signs())
    try:
        yield
    finally:
        task.cancel()
