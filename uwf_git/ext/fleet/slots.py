"""The slots of a worker: how many steps of a queue it takes, and how many of those are made at the same time.

With a remote, a step that waits for its push lets the next one begin, and while steps are quick, further ones are
fetched ahead, so that an exchange has many threads. Those are given back if the step before them takes its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

from uwf_git.ext.fleet import pace
from uwf_git.ext.fleet.exchange import Exchange

_AHEAD = 8  # steps that are taken before it is their turn, at most
_SHARED = 32  # steps that wait for their push, beyond which no others are taken
_LINGER = 1.0  # seconds that a push waits for the steps taken ahead
_WINDOW = 1.0  # seconds within which it will probably be the turn of those taken ahead
_WORKFLOWS = 100  # tasks of workflows at once, as by Temporal's default
_OTHERS = 1  # of local activities and Nexus, of which there are none


class NoTurn(Exception):
    """It isn't a step's turn soon, so that another worker is to make it."""


class Slots(CustomSlotSupplier):
    """The slots of a queue, for `most` steps at the same time, and more if it `takes_ahead`. `release_slot` is called
    by Temporal's threads."""

    def __init__(self, most: int, exchange: Exchange | None, takes_ahead: bool) -> None:
        self.most = most
        self._exchange = exchange
        self._takes_ahead = takes_ahead and exchange is not None
        self._taken = self._shared = 0
        self._turns = asyncio.Semaphore(most)
        self._pending = 0
        self._none_pending = asyncio.Event()
        self._lingering: asyncio.Task[None] | None = None
        self._moved = time.monotonic()  # when a turn began or ended
        self._seconds = 0.0  # that the last turn took, 0 before the first
        self._lock = threading.Lock()
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tuner(self) -> WorkerTuner:
        return WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(_WORKFLOWS),
            activity_supplier=FixedSizeSlotSupplier(self.most) if self._exchange is None else self,
            local_activity_supplier=FixedSizeSlotSupplier(_OTHERS),
            nexus_supplier=FixedSizeSlotSupplier(_OTHERS),
        )

    @contextlib.contextmanager
    def pending(self) -> Iterator[None]:
        """During the block, a step waits for its turn, or has it."""
        self._pending += 1
        self._none_pending.clear()
        try:
            yield
        finally:
            self._pending -= 1
            if not self._pending:
                self._none_pending.set()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, which is the block. Raises NoTurn if none has begun or ended for a while."""
        await self._wait()
        began = self._moved = time.monotonic()
        self._freed.set()
        try:
            yield
        finally:
            self._moved = time.monotonic()
            self._seconds = self._moved - began
            self._turns.release()
            self._freed.set()

    async def _wait(self) -> None:
        while True:
            patience = self._patience() if self._turns.locked() else None
            if patience is not None and patience <= 0:
                raise NoTurn
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._turns.acquire()
                    return

    def _patience(self) -> float:
        """Return the seconds within which one of the turns ends, if those are made of quick steps."""
        return self._moved + pace.SEQUENCE - time.monotonic()

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """During the block, a step is made, and another one may begin."""
        self._shared += 1
        self._freed.set()
        try:
            yield
        finally:
            self._shared -= 1

    async def linger(self) -> None:
        """Wait for the steps that are pending, though not for long, so that one push has all of them."""
        if self._pending and self._takes_ahead and self._seconds <= _WINDOW:
            if self._lingering is None:
                self._lingering = asyncio.ensure_future(self._linger())
            await asyncio.shield(self._lingering)

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await self._none_pending.wait()
        self._lingering = None

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        assert self._exchange is not None
        while True:
            await self._exchange.answers.wait()
            self._freed.clear()
            if self._reserve():
                return SlotPermit()
            if self._exchange.answers.is_set():
                await self._freed.wait()

    def _reserve(self) -> bool:
        assert self._exchange is not None
        with self._lock:
            waiting = self._taken - self._shared
            is_free = waiting < self.most + self._ahead() and self._taken < self.most + _SHARED
            if is_free and self._exchange.answers.is_set():
                self._taken += 1
                return True
        return False

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Take no step without asking for one: it would come to the worker that has given it back."""
        return None

    def _ahead(self) -> int:
        """Return how many more steps than may be made at the same time are worth taking, while so many are made."""
        # While none is made, it isn't known whether the remote answers.
        if not self._takes_ahead or not self._seconds or not self._turns.locked() or self._patience() <= 0:
            return 0
        return min(_AHEAD, int(self.most * _WINDOW / self._seconds))

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None: ...

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        with self._lock:
            self._taken -= 1
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._freed.set)
