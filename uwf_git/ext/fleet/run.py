"""A local fleet: child workers, and a server unless one is given, until nothing is left to do. Crashed
processes are restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from uwf_git.ext.fleet import endpoint, messages
from uwf_git.ext.fleet.admission import Admission, FleetLimits
from uwf_git.ext.fleet.client import Queue, Row, connect
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.messages import ThreadEntry
from uwf_git.ext.fleet.process_pool import ChildProcess, ProcessPool, Tell
from uwf_git.ext.fleet.queue_states import QueueState, RowState
from uwf_git.ext.fleet.queue_sync import outdated
from uwf_git.ext.fleet.retry_policy import LATER, parse_fault, way_on
from uwf_git.ext.fleet.server import Server
from uwf_git.ext.fleet.worker import WorkerSettings
from uwf_git.plugin import (
    RemoteFailed,
    ThreadId,
    ThreadState,
    UwfError,
    ended_state,
    is_thread_id,
    log,
    parents_of,
    thread_state,
    thread_states,
    waits_for_branches,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance

_T = TypeVar("_T")

_TICK = 0.2  # seconds between two looks at the children
_QUIET = 0.5  # seconds without a word of any worker, after which the queue is asked whether all is done
_ASKED = 5.0  # seconds after which it is asked in any case
_SHARE = 5  # of the time, if other threads depend on their state, which is polled continuously
_NEWS = 2.0  # seconds between checks for answers that didn't notify the queue
_FAR = 30.0  # seconds between two looks for those that came to the remote
_PATIENCE = 30.0  # seconds for a worker to break off its steps
_AGAIN = 1.0  # seconds before a worker that ended at once is started again
_DEATHS = 5  # of a worker that ends before it has begun to work, one after the other


class _Worker(ChildProcess):
    """A child worker."""

    def __init__(self, env: Mapping[str, str], duty: WorkerSettings, tell: Tell) -> None:
        super().__init__("worker", duty.argument(), env)
        self.begun = time.monotonic()
        self.works = False
        self.error: UwfError | None = None
        self._notify = tell

    async def listen(self) -> None:
        await self.connect()
        async for value in self.values():
            if "error" in value:
                self.error = RemoteFailed(value["error"]["message"], value["error"]["hint"])
                continue
            self.works = self.works or "worker" in value
            self._notify(value)


class Fleet:
    """Workers of a place and their threads. `tell` gets events, `seen` all threads' states."""

    def __init__(
        self,
        instance: Instance,
        server: Server | None,
        duty: WorkerSettings,
        workers: int,
        tell: Tell,
        seen: Callable[[Mapping[str, RowState]], None] = lambda states: None,
    ) -> None:
        self._instance = instance
        self._server = server
        self._duty = duty
        self._many = workers
        self._notify = tell
        self._seen = seen
        self._heard = time.monotonic()
        self._fetched = self._heard
        self._env = {**os.environ, **instance.location.environment()}
        self._workers: dict[_Worker, asyncio.Task[None]] = {}
        self._deaths = 0
        self._carrier = ProcessPool(instance.location, duty.orders, 1, tell) if duty.orders.remote else None
        self._admission = Admission((), FleetLimits())
        self._begun: dict[str, ThreadEntry] = {}
        self._taken: set[str] = set()  # those that were in the queue, and belong to the budget of this fleet
        self._before: dict[str, Mapping[str, float] | None] = {}  # its count when it was adopted
        self._resting: dict[str, RowState] = {}  # by thread: why it rests
        self._given_up: dict[str, Row] = {}  # branches

    async def run(self, admission: Admission, stays: bool = False) -> dict[str, Row]:
        """Run threads until each has ended, waits or was given up; with `stays` until none waits. Return
        their rows. Raises RemoteFailed, UwfError if no worker starts."""
        self._admission = admission
        queue = Queue(await self._persist(lambda: connect(self._duty.place)))
        if self._server is None:
            there = await queue.take(admission.kept())
            self._taken = {thread for thread, row in there.items() if row}
            self._remember(there)
            admission.prefer(
                [thread for thread, row in there.items() if row and row.state is ThreadState.RUNNING]
            )
        try:
            for _ in range(self._many):
                self._begin_worker()
            await self._admit(queue, 0)
            return await self._watch(queue, stays)
        finally:
            await self._end_workers()

    def abandon(self) -> None:
        """Kill the workers; their step processes interrupt their steps and end by themselves."""
        for worker in self._workers:
            worker.kill()
        if self._carrier is not None:
            self._carrier.kill()

    async def _admit(self, queue: Queue, busy: int) -> bool:
        begun = self._admission.next(busy)
        self._begun.update((begin.thread, begin) for begin in begun)
        # Adopted ones count from then on.
        taken: dict[str, int | None] = {
            begin.thread: begin.most for begin in begun if begin.thread in self._taken
        }
        await self._persist(lambda: queue.allow(taken))
        others = [begin for begin in begun if begin.thread not in taken]
        # On a shared server, threads held by an earlier fleet continue on this one's budget.
        over = () if self._server is not None else (messages.USED_UP, messages.MADE_ALL)
        self._remember(await self._persist(lambda: queue.start(others, over)))
        return bool(begun)

    def _remember(self, rows: Mapping[str, Row | None]) -> None:
        self._before.update({thread: row.used if row else None for thread, row in rows.items()})

    async def _persist(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return await ask()
            except RemoteFailed:
                if self._server is None or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_TICK)
            await self._mend()

    async def _watch(self, queue: Queue, stays: bool) -> dict[str, Row]:
        done: dict[str, Row] = {}
        asked_at = news_at = time.monotonic()
        took = 0.0
        while True:
            await asyncio.sleep(_TICK)
            await self._mend()
            now = time.monotonic()
            if now - news_at >= _NEWS:
                news_at = now
                with contextlib.suppress(UwfError):  # it is on its way up again
                    await self._pass_on_news(queue)
            often = max(_TICK, _SHARE * took) if self._admission.is_bound else _ASKED
            if now - asked_at < often and (now - self._heard < _QUIET or now - asked_at < _QUIET):
                continue
            asked_at = now
            try:
                open_, done = await self._look(queue, done)
                took = time.monotonic() - now
                self._seen({row.thread: row.state for row in (*done.values(), *open_.values())})
                more = await self._bound(queue, {**done, **open_})
            except UwfError as error:
                log.warning("Z9M5P6KC", "the queue cannot be asked: {error}", error=error.message)
                if self._server is None:
                    raise
                continue
            if not more and not (stays and open_) and await self._all_rest(queue, {**done, **open_}):
                return {**done, **open_, **self._given_up}

    async def _all_rest(self, queue: Queue, rows: Mapping[str, Row]) -> bool:
        for row in rows.values():
            if row.open and not (row.resting and await self._branches_rest(queue, row, rows)):
                return False
        return True

    async def _branches_rest(self, queue: Queue, row: Row, rows: Mapping[str, Row]) -> bool:
        """Return whether the branches that a thread waits for need an outside event to continue; True for another
        thread."""
        if row.state is not ThreadState.JOINING:
            return True
        branches = None
        with contextlib.suppress(UwfError):
            branches = waits_for_branches(self._instance, ThreadId(row.thread))
        if branches is None:
            return False  # it is joined, or is about to be
        for state in branches.open:
            if state.head is None:
                continue
            there = rows.get(state.thread) or await queue.row(state.thread)
            if there is None:  # it isn't its turn, or it cannot go on
                at = thread_state(self._instance, state.head)
                if at.is_at_work or at.actor is not thread_states.Actor.PERSON:
                    return False
            elif not there.open:
                if isinstance(there.state, ThreadState):
                    return False
                self._given_up[state.thread] = there
            elif not (there.resting and await self._branches_rest(queue, there, rows)):
                return False
        return True

    async def _bound(self, queue: Queue, rows: Mapping[str, Row]) -> bool:
        admission = self._admission
        for row in rows.values():
            if row.used not in (None, self._before.get(row.thread)) and row.thread in self._before:
                admission.note(row.thread, row.used)
        if admission.used().standing.reached is not None:
            going = [
                row.thread
                for row in rows.values()
                if row.open and (row.state is not QueueState.HELD or row.why == messages.MADE_ALL)
            ]
            held = set(going) & self._begun.keys()
            held |= {thread for thread in going if self._is_branch_of(thread, held)}
            await queue.signal(held, messages.HOLD, messages.USED_UP)
            return False
        ours = [rows[thread] for thread in self._begun if thread in rows]
        wanting = [
            row.thread for row in ours if row.state is QueueState.HELD and row.why == messages.MADE_ALL
        ]
        resting = [row.thread for row in ours if row.resting and row.thread not in wanting]
        allowed = admission.allow(wanting, resting, [row.thread for row in ours if not row.open])
        await queue.allow(allowed)
        busy = len(wanting) + sum(not row.resting for row in ours)
        more = await self._admit(queue, busy)
        return more or any(map(admission.is_about, wanting))

    async def _look(self, queue: Queue, done: Mapping[str, Row]) -> tuple[dict[str, Row], dict[str, Row]]:
        wanted = self._begun
        open_ = {row.thread: row for row in await queue.glance() if self._is_ours(row.thread)}
        known = dict(done)
        for thread in wanted.keys() - open_.keys() - known.keys():
            row = await queue.row(thread)
            if row is not None and isinstance(row.state, ThreadState) and row.state.is_ended:
                row = await self._seen_to(row)
            if row is None:
                await queue.start([self._admission.again(wanted[thread])])
                row = Row(thread, QueueState.QUEUED)
            (open_ if row.open else known)[thread] = row
        self._resting = {row.thread: row.state for row in open_.values() if row.resting}
        return open_, known

    def _is_branch_of(self, thread: str, parents: Collection[str]) -> bool:
        with contextlib.suppress(UwfError):
            head = self._instance.threads.head(ThreadId(thread))
            return not set(parents_of(self._instance, head)).isdisjoint(parents)
        return False

    def _is_ours(self, thread: str) -> bool:
        if thread in self._begun:
            return True
        return is_thread_id(thread) and self._instance.threads.exists(ThreadId(thread))

    async def _seen_to(self, row: Row) -> Row | None:
        head = self._ended(row.thread)
        if head is None and self._carrier is not None:
            answer = await self._carrier.do({"do": "gather", "threads": [row.thread]})
            fault_value = answer.get("fault") or answer["problems"].get(row.thread)
            if fault_value is not None:
                fault = parse_fault(fault_value)
                return row._replace(
                    state=QueueState.DELAYED if way_on(fault) == LATER else QueueState.GAVE_UP,
                    why=fault.message,
                )
            head = self._ended(row.thread)
        if head is not None and head.archive is not None:
            return row._replace(state=ended_state(head.archive), head=head.node, why=head.archive.reason)
        self._notify({"warning": f"the queue says that thread {row.thread} has ended, which it hasn't"})
        return None

    def _ended(self, thread: str) -> Head | None:
        with contextlib.suppress(UwfError):
            head = self._instance.threads.head(ThreadId(thread))
            return head if head.archive is not None else None
        return None

    async def _pass_on_news(self, queue: Queue) -> None:
        if self._carrier is not None and self._resting and time.monotonic() - self._fetched >= _FAR:
            self._fetched = time.monotonic()
            await self._carrier.do({"do": "gather", "threads": list(self._resting)})
        if threads_told := outdated(self._instance, self._resting):
            await queue.signal(threads_told, messages.LOOK)
            self._resting = {
                thread: state for thread, state in self._resting.items() if thread not in threads_told
            }

    def _begin_worker(self) -> None:
        worker = _Worker(self._env, self._duty, self._hear)
        self._workers[worker] = asyncio.ensure_future(worker.listen())

    def _hear(self, value: Mapping[str, Any]) -> None:
        self._heard = time.monotonic()
        self._notify(value)

    async def _mend(self) -> None:
        if self._server is not None and self._server.mend():
            self._notify({"restarted": "server"})
        for worker in list(self._workers):
            if worker.process.poll() is None:
                continue
            if not worker.works and time.monotonic() - worker.begun < _AGAIN:
                continue
            log.warning("W0Q4ZT7J", "a worker has ended with {status}", status=worker.process.returncode)
            listening = self._workers.pop(worker)
            await worker.close(_PATIENCE)
            await listening
            self._deaths = 0 if worker.works else self._deaths + 1
            if self._deaths >= _DEATHS:
                raise worker.error or UwfError(
                    "the workers of the fleet end as soon as they begin", "see: uwf doctor"
                )
            self._begin_worker()
            self._notify({"restarted": "worker"})

    async def _end_workers(self) -> None:
        await asyncio.gather(*(worker.close(_PATIENCE) for worker in self._workers))
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        if self._carrier is not None:
            await self._carrier.close()


@contextlib.contextmanager
def up(instance: Instance, given: Endpoint | None) -> Iterator[tuple[Endpoint, Server | None]]:
    """Yield the given endpoint, or that of an own server. Raises Busy if another fleet is running, UwfError
    if no server starts."""
    private = instance.store.repository.private
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(endpoint.fleet_membership(private, alone=given is None))
        server = None if given is not None else stack.enter_context(Server(folder))
        at = given if server is None else Endpoint(server.address, own=True)
        assert at is not None
        endpoint.announce(folder, at)
        yield at, server
