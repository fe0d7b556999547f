"""The activity: a step of a thread on a worker's machine, and those after it while they are quick. Temporal may
request a step twice, or from two workers at once, so the thread is checked first, and the step counts once its ref
has moved by compare-and-swap."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from uwf_git.ext.fleet import messages, pace
from uwf_git.ext.fleet.client import Queue
from uwf_git.ext.fleet.exchange import Exchange
from uwf_git.ext.fleet.limits import Backoff, Gate, queue_of
from uwf_git.ext.fleet.messages import ThreadEntry
from uwf_git.ext.fleet.process_pool import ProcessPool
from uwf_git.ext.fleet.retry_policy import (
    DONE,
    PASSED_ON,
    UNKEPT,
    UNWANTED,
    Fault,
    fault_of,
    parse_fault,
    way_on,
)
from uwf_git.ext.fleet.slots import NoTurn, Slots
from uwf_git.plugin import Invalid, RemoteFailed, Throttled

_SIGNS = 4  # of life within the time after which a step is given to another
_HEARTBEAT_INTERVAL = 2.0  # seconds between two of them: by one it is heard that a step is to be broken off
_STALE_AFTER = 1.0  # seconds that a step has waited for its turn, after which it may be wanted no more
_UNWANTED = Fault(UNWANTED, 5, "its thread was held, or taken out of the queue")
_PASSED_ON = Fault(PASSED_ON, 8, "its worker is busy with a step that takes its time")
_UNSHARED = (UNKEPT, RemoteFailed.code)  # defaults, and the case without a step


class Steps:
    """Makes steps with a worker's step processes, as the queue's gate permits, and exchanges them with a
    remote if there is one."""

    def __init__(
        self,
        hands: ProcessPool,
        gates: Mapping[str, Gate],
        slots: Mapping[str, Slots],
        rest: Backoff,
        exchange: Exchange | None = None,
    ) -> None:
        self._hands = hands
        self._rest = rest
        self._gates = gates
        self._slots = slots
        self._exchange = exchange
        self.ending = False
        """Whether the worker is about to end: a step that is cancelled then is for another one."""
        self.idle = asyncio.Event()
        """Whether none is being made."""
        self.idle.set()
        self._many = 0

    @activity.defn(name=messages.STEP)
    async def step(
        self, thread: Any, head: Any, counts: Any = False, tries: Any = messages.TRIES
    ) -> dict[str, Any]:
        """Return the thread's state after the step that follows `head`, made here or already made elsewhere, and after
        the next ones while these are quick; with `counts` after that step alone, with its spending. Puts the branches
        that it waits for into the queue, where a step of theirs is tried `tries` times. Raises ApplicationError with
        the fault, and the state if known."""
        try:
            messages.parse_step(thread, head)
        except Invalid as error:
            raise _failure(fault_of(error)) from None
        if self.ending:  # it arrived while the worker was told to stop
            raise _ended()
        request = {"do": "step", "thread": thread, "head": head, "counts": counts}
        async with _alive(), self._counted():
            try:
                if (resting := await self._rest.refuse()) is not None:
                    raise _failure(resting)
                answer = await self._made(request)
                await _begin_branches(thread, answer.get("branches", ()), tries)
                self._rest.note(parse_fault(answer["fault"]) if "fault" in answer else None)
                return _stand(answer)
            except asyncio.CancelledError:
                if self.ending:
                    raise _ended() from None
                raise

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._many += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._many -= 1
            if not self._many:
                self.idle.set()

    async def _made(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        queue, came = activity.info().task_queue, time.monotonic()
        slots = self._slots[queue]
        with slots.pending():
            if (kept := await self._gather(request["thread"])) is not None:
                return {"fault": kept.as_json()}
            gathered = time.monotonic()
            try:
                async with slots.turn(), self._gates[queue].turn():
                    if not await _is_wanted(time.monotonic() - came):
                        return {"fault": _UNWANTED.as_json()}
                    is_stale = time.monotonic() - gathered >= _STALE_AFTER
                    if is_stale and (kept := await self._gather(request["thread"])) is not None:
                        return {"fault": kept.as_json()}
                    answer = await self._sequence(request, self._gates[queue])
            except NoTurn:
                return {"fault": _PASSED_ON.as_json()}
        if self._exchange is None or answer.get("fault", {}).get("code") in _UNSHARED:
            return answer
        with slots.sharing():
            fault = await self._exchange.share(request["thread"], slots.linger)
        if fault is None:
            return answer
        if way_on(fault) == DONE:
            looked = await self._hands.do({**request, "do": "look"})
            is_news = "fault" in looked or _has_moved(looked, request)
            return looked if is_news else {**looked, "fault": fault.as_json()}
        # A machine that fetches the thread doesn't get the steps: the queue is not to go on from them.
        return answer if "fault" in answer and not _has_moved(answer, request) else {"fault": fault.as_json()}

    async def _gather(self, thread: str) -> Fault | None:
        return None if self._exchange is None else await self._exchange.gather(thread)

    async def _sequence(self, request: Mapping[str, Any], gate: Gate) -> Mapping[str, Any]:
        """Make a step, and the next ones in its turn at the gate; return the last answer. If that is a fault, it has
        the state after the step before."""
        asked = time.monotonic()
        until = asked + pace.SEQUENCE
        try:
            answer = await self._by_hand(request, gate)
            while self._goes_on(request, answer, gate) and (now := time.monotonic()) < until:
                if now >= asked + pace.ASK_INTERVAL:
                    asked = now
                    if not await _queue_wants():
                        break
                stand = answer["stand"]
                # A provider may refuse at any step, and others are to hear of that before the next.
                seconds = pace.ASK_INTERVAL if stand["queue"] == messages.QUEUE else 0.0
                following = self._by_hand({**request, "head": stand["head"], "seconds": seconds}, gate)
                answer = {"stand": stand, **await self._sharing(following, request["thread"], until)}
            return answer
        except asyncio.CancelledError:
            if self._exchange is not None:
                await self._exchange.part(request["thread"])  # its steps, and its agent's output so far
            raise

    async def _sharing(
        self, step: Coroutine[Any, Any, Mapping[str, Any]], thread: str, until: float
    ) -> Mapping[str, Any]:
        """Return what a step returns. If it isn't made in time, those before it don't wait for its end to be pushed."""
        if self._exchange is None:
            return await step
        async with asyncio.TaskGroup() as group:
            making = group.create_task(step)
            await asyncio.wait([making], timeout=until - time.monotonic())
            if not making.done():
                await self._exchange.part(thread)
        return making.result()

    def _goes_on(self, request: Mapping[str, Any], answer: Mapping[str, Any], gate: Gate) -> bool:
        """Return whether the next step may be made in the same activity. Budgets count each step, servers limit
        activities per second, and a worker that dies has left unknown what the step was that it died of."""
        info = activity.info()
        if "fault" in answer or not answer.get("quick") or answer["stand"]["queue"] != info.task_queue:
            return False
        return info.attempt == 1 and not request["counts"] and not self.ending and gate.takes_next()

    async def _by_hand(self, request: Mapping[str, Any], gate: Gate) -> Mapping[str, Any]:
        answer = await self._hands.do(request)
        if "fault" in answer:
            fault = parse_fault(answer["fault"])
            if fault.by is not None:
                self._gates.get(queue_of(fault.by), gate).back_off(Throttled(fault.by, fault.after))
        return answer


def _has_moved(answer: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    stand = answer.get("stand")
    return stand is not None and stand["head"] != request["head"]


async def _is_wanted(waited: float) -> bool:
    info = activity.info()
    queued = (info.started_time - info.current_attempt_scheduled_time).total_seconds()
    return queued + waited < _STALE_AFTER or await _queue_wants()


async def _queue_wants() -> bool:
    info = activity.info()
    assert info.workflow_id is not None
    return await Queue(activity.client()).wants(info.workflow_id, info.workflow_run_id)


async def _begin_branches(parent: str, branches: Sequence[Sequence[Any]], tries: int) -> None:
    if branches:
        within = activity.info().heartbeat_timeout or timedelta(seconds=messages.HEARTBEAT)
        begins = [
            ThreadEntry(
                thread, head, queue, within.total_seconds(), tries, parent=parent, depth=depth, about=about
            )
            for thread, head, queue, depth, about in branches
        ]
        await Queue(activity.client()).start_branches(begins)


def _stand(answer: Mapping[str, Any]) -> dict[str, Any]:
    if "fault" in answer:
        raise _failure(parse_fault(answer["fault"]), answer.get("stand"))
    return dict(answer["stand"])


def _ended() -> ApplicationError:
    return ApplicationError("the worker was ended", type="ended")


def _failure(fault: Fault, stand: Mapping[str, Any] | None = None) -> ApplicationError:
    details = [fault.as_json(), *([dict(stand)] if stand else [])]
    return ApplicationError(fault.message, *details, type=fault.code, non_retryable=True)


@contextlib.asynccontextmanager
async def _alive() -> AsyncIterator[None]:
    within = activity.info().heartbeat_timeout or timedelta(seconds=messages.HEARTBEAT)
    between = min(within.total_seconds() / _SIGNS, _HEARTBEAT_INTERVAL)

    async def signs() -> None:
        while True:
            await asyncio.sleep(between)
            activity.heartbeat()

    task = asyncio.ensure_future(signs())
    try:
        yield
    finally:
        task.cancel()
