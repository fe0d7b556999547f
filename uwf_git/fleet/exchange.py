"""What a worker exchanges with a remote: threads are fetched before a step and pushed after it, those of several steps
together. While one exchange is under way the next ones gather, so that a server sees few pushes however many steps
there are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from uwf_git.fleet.exits import LATER, Fault, lost, parse_fault, pause_before, way_on
from uwf_git.fleet.hands import PATIENCE, Hands

GATHER, SHARE = "gather", "share"
_TRIES = 5  # of an exchange that fails for the moment, before the step is given back


class Exchange:
    """Exchanges by a process of its own, one after the other."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._wanted: dict[str, dict[str, asyncio.Future[Fault | None]]] = {SHARE: {}, GATHER: {}}
        self._running: asyncio.Task[None] | None = None

    async def gather(self, thread: str) -> Fault | None:
        """Brings a thread here as the remote has it; what keeps it from being stepped here."""
        return await self._persist(GATHER, thread)

    async def share(self, thread: str) -> Fault | None:
        """Pushes what was made of a thread; what kept it from getting there. Where this is cancelled, it waits for the
        push all the same, since what was made would have to be made again elsewhere."""
        pushing = asyncio.ensure_future(self._persist(SHARE, thread))
        try:
            return await asyncio.shield(pushing)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(pushing, PATIENCE)
            raise

    async def _persist(self, kind: str, thread: str) -> Fault | None:
        for tries in range(1, _TRIES + 1):
            fault = await self._ask(kind, thread)
            if fault is None or way_on(fault) != LATER:
                break
            if tries < _TRIES:
                await asyncio.sleep(pause_before(LATER, tries))
        return fault

    def _ask(self, kind: str, thread: str) -> asyncio.Future[Fault | None]:
        """Has a thread go along with the next exchange."""
        wanted = self._wanted[kind]
        if thread not in wanted:
            wanted[thread] = asyncio.get_running_loop().create_future()
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        return asyncio.ensure_future(asyncio.shield(wanted[thread]))

    async def _run(self) -> None:
        while any(self._wanted.values()):
            for kind in self._wanted:
                asked, self._wanted[kind] = self._wanted[kind], {}
                if not asked:
                    continue
                answer = await self._hands.do({"do": kind, "threads": list(asked)})
                for thread, future in asked.items():
                    if not future.done():
                        future.set_result(_of(answer, thread))


def _of(answer: Mapping[str, Any], thread: str) -> Fault | None:
    """What an exchange has come to for one of its threads."""
    if "fault" in answer:
        return parse_fault(answer["fault"])
    problem = answer["problems"].get(thread, lost("the exchange says nothing of it").as_json())
    return None if problem is None else parse_fault(problem)
