"""Slots of a worker: concurrent steps of a queue, none while its remote fails, so that other machines take
them."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

from uwf_git.ext.fleet.exchange import Exchange

_WORKFLOWS = 100  # tasks of workflows at once, as by Temporal's default
_OTHERS = 1  # of local activities and Nexus, of which there are none


def tuner(most: int, exchange: Exchange | None) -> WorkerTuner:
    """Return the slots of a worker for `most` steps."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(_WORKFLOWS),
        activity_supplier=FixedSizeSlotSupplier(most) if exchange is None else _Slots(most, exchange),
        local_activity_supplier=FixedSizeSlotSupplier(_OTHERS),
        nexus_supplier=FixedSizeSlotSupplier(_OTHERS),
    )


class _Slots(CustomSlotSupplier):
    """Slots for steps. All but `reserve_slot` is called from Temporal's threads."""

    def __init__(self, most: int, exchange: Exchange) -> None:
        self._exchange = exchange
        self._free = most
        self._lock = threading.Lock()
        self._freed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while True:
            await self._exchange.answers.wait()
            self._freed.clear()
            if (permit := self.try_reserve_slot(ctx)) is not None:
                return permit
            if self._exchange.answers.is_set():
                await self._freed.wait()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        with self._lock:
            if not self._free or not self._exchange.answers.is_set():
                return None
            self._free -= 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None: ...

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        with self._lock:
            self._free += 1
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._freed.set)
