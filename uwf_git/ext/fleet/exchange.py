"""A worker's exchange with a remote: threads are fetched before a step and pushed afterwards, several at a
time. Requests queue during an exchange, so the server sees few pushes."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from uwf_git.ext.fleet.process_pool import ProcessPool, Tell
from uwf_git.ext.fleet.retry_policy import (
    DONE,
    LATER,
    NEVER,
    UNWRITABLE,
    Fault,
    lost,
    parse_fault,
    pause_before,
    way_on,
)
from uwf_git.plugin import Declined, RemoteFailed

GATHER, SHARE = "gather", "share"
_TRIES = 5  # of an exchange that fails for the moment, before the step is given back
_PARTING = 5.0  # seconds for the push of a step that was broken off


class Exchange:
    """Sequential exchanges in a separate process."""

    def __init__(self, hands: ProcessPool, remote: str, tell: Tell) -> None:
        self._hands = hands
        self._troubles = FaultReports(remote, tell)
        self._wanted: dict[str, dict[str, asyncio.Future[Fault | None]]] = {SHARE: {}, GATHER: {}}
        self._running: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self.answers = asyncio.Event()
        """Set as long as the remote answers. Until it does again, it is asked every now and then."""
        self.answers.set()

    async def gather(self, thread: str) -> Fault | None:
        """Fetch a thread; return why it cannot be stepped here. A failing remote isn't asked: the step goes
        to another worker."""
        return self._troubles.fault or await self._persist(GATHER, thread)

    def end(self) -> None:
        if self._probing is not None:
            self._probing.cancel()

    async def share(self, thread: str, linger: Callable[[], Awaitable[None]]) -> Fault | None:
        """Push a thread, once `linger` has let others join it; return the fault. When cancelled it still waits briefly
        for the push, to avoid repeating the step elsewhere."""

        async def push() -> Fault | None:
            await linger()
            return await self._persist(SHARE, thread)

        pushing = asyncio.ensure_future(push())
        try:
            return await asyncio.shield(pushing)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(pushing, _PARTING)
            raise

    async def part(self, thread: str) -> None:
        """Push a thread's work so far, if quick."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._persist(SHARE, thread), _PARTING)

    async def _persist(self, kind: str, thread: str) -> Fault | None:
        for tries in range(1, _TRIES + 1):
            fault = await self._ask(kind, thread)
            self._note(kind, thread, fault)
            if fault is None or (way_on(fault) != LATER and fault.code != Declined.code):
                break
            if kind == GATHER and fault.code in (RemoteFailed.code, UNWRITABLE):
                break  # nothing is lost yet, and others may reach it
            if tries < _TRIES:
                await asyncio.sleep(pause_before(LATER, tries))
        return fault

    def _note(self, kind: str, thread: str, fault: Fault | None) -> None:
        self._troubles.note(thread, fault)
        if self._troubles.fault is None:
            self.answers.set()
        elif self.answers.is_set():
            self.answers.clear()
            self._probing = asyncio.ensure_future(self._probe(kind, thread))

    async def _probe(self, kind: str, thread: str) -> None:
        tries = 0
        while not self.answers.is_set():
            tries += 1
            await asyncio.sleep(pause_before(LATER, tries))
            fault = await self._ask(kind, thread)
            # A refusal of this thread is an answer. A fault of this machine says nothing of the remote.
            if fault is None or fault.code == Declined.code or way_on(fault) in (DONE, NEVER):
                self._note(kind, thread, None)

    def _ask(self, kind: str, thread: str) -> asyncio.Future[Fault | None]:
        wanted = self._wanted[kind]
        if thread not in wanted:
            wanted[thread] = asyncio.get_running_loop().create_future()
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        return asyncio.ensure_future(asyncio.shield(wanted[thread]))

    async def _run(self) -> None:
        while any(self._wanted.values()):
            for kind in self._wanted:
                futures, self._wanted[kind] = self._wanted[kind], {}
                if not futures:
                    continue
                answer = await self._hands.do({"do": kind, "threads": list(futures)})
                for thread, future in futures.items():
                    if not future.done():
                        future.set_result(_of(answer, thread))


class FaultReports:
    """Reports a remote's faults and recoveries once each, as `trouble` (None when over) and `of`."""

    def __init__(self, remote: str, tell: Tell) -> None:
        self._of_what = f"remote {remote}"
        self._notify = tell
        self._now = ""
        self.fault: Fault | None = None
        """Why the remote doesn't answer, as it was told."""
        self._of: dict[str, str] = {}  # by thread; a refusal of one thread says nothing about the remote

    def note(self, thread: str, fault: Fault | None) -> None:
        if fault is None:
            self._of.pop(thread, None)
            if self._now:
                self._of = {item: kind for item, kind in self._of.items() if kind != self._now}
                self._now, self.fault = "", None
                self._notify({"of": self._of_what, "trouble": None})
        elif fault.code == Declined.code:
            if self._of.get(thread) != fault.message:
                self._of[thread] = fault.message
                self._notify({"thread": thread, "fault": fault.as_json()})
        elif fault.code == RemoteFailed.code:
            # Whether it was asked or pushed to, after how many milliseconds it gave up: it is the same trouble.
            kind = re.sub(r"[0-9]+|^git \S+ failed: ", "", fault.message)
            if kind not in (self._now, self._of.get(thread)):
                self._now, self.fault = kind, fault
                fault_here = fault._replace(message=f"{self._of_what}: {fault.message}")
                self._notify({"of": self._of_what, "trouble": fault_here.as_json()})
            self._of[thread] = kind


def _of(answer: Mapping[str, Any], thread: str) -> Fault | None:
    if "fault" in answer:
        return parse_fault(answer["fault"])
    problem = answer["problems"].get(thread, lost("the exchange says nothing of it").as_json())
    return None if problem is None else parse_fault(problem)
