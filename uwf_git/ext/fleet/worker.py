"""A worker: polls a server for steps and makes them with step processes.

Those of `uwf fleet run` are started as `python -P -m uwf_git.ext.fleet.worker DUTY`, print events as JSON
lines, and end with their input. `uwf fleet worker` is one in its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git import __version__
from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.client import connect, refusal_reason, watch
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.exchange import Exchange
from uwf_git.ext.fleet.limits import Backoff, Gate, provider_at, queues
from uwf_git.ext.fleet.process_pool import ProcessPool, Tell
from uwf_git.ext.fleet.step_process import WorkerOptions
from uwf_git.plugin import (
    CONFIG_FILE,
    PRIVATE_FOLDER,
    Invalid,
    Location,
    Rates,
    begin_log,
    failure_of,
    lifetime,
    load_config,
    locate_store,
    log,
    signature,
    wanted_log,
)

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.worker import Worker

    from uwf_git.ext.fleet.activity import Steps
    from uwf_git.ext.fleet.slots import Slots

DEPLOYMENT = "uwf"
"""The name of the workers as a deployment of Temporal."""
_CACHED = 500  # workflows that a worker remembers; of others it reads the events once more
_POLL_INTERVAL = 2.0  # seconds between two looks whether the configuration has changed
_POLLS = 2  # calls that wait for steps, and for workflows to go on with
_PARTING = 2.0  # seconds for the server to take that steps were broken off
_SAYS = timedelta(seconds=1)  # between two signs of life of a step that get to the server
_STICKS = timedelta(seconds=1)  # after which another worker takes over a dead worker's workflow


class WorkerSettings(NamedTuple):
    """A worker's endpoint, concurrent steps, and orders. With a `build` it is a version of DEPLOYMENT, and gets only
    the steps that the server has for that."""

    place: Endpoint
    jobs: int = 1
    orders: WorkerOptions = WorkerOptions()
    build: str = ""

    def argument(self) -> str:
        return json.dumps({"place": self.place._asdict(), "jobs": self.jobs, "orders": self.orders._asdict()})


def parse_duty(text: str) -> WorkerSettings:
    """The inverse of `argument`."""
    value = json.loads(text)
    return WorkerSettings(Endpoint(**value["place"]), value["jobs"], WorkerOptions(**value["orders"]))


async def make_steps(
    location: Location, duty: WorkerSettings, tell: Tell, over: asyncio.Event, alone: bool = False
) -> None:
    """Make steps until `over`. Steps in progress are interrupted and kept; another worker continues. `alone`:
    no `uwf fleet run` watches the server, so its outages are reported here. Raises RemoteFailed if the server
    refuses this worker."""
    client = await connect(duty.place)
    serving = _Serving(client, location, duty, tell)
    serving.begin()
    ending = asyncio.ensure_future(over.wait())
    watching = asyncio.ensure_future(watch(client, tell) if alone else over.wait())
    tell({"worker": os.getpid()})
    try:
        while not await serving.ended_or(ending):
            # A process with a newer configuration may send steps to queues that no one else serves.
            serving.begin()
    finally:
        ending.cancel()
        watching.cancel()
        ended = await serving.end()
    for error in ended:
        if isinstance(error, Exception):
            raise refusal_reason(duty.place, error) from None


class _Serving:
    """One Temporal worker per queue, so that a provider's steps don't occupy others' slots."""

    def __init__(self, client: Client, location: Location, duty: WorkerSettings, tell: Tell) -> None:
        from uwf_git.ext.fleet.activity import Steps

        self._client = client
        self._location = location
        self._duty = duty
        self._hands = ProcessPool(location, duty.orders, 0, tell)
        self._gates: dict[str, Gate] = {}
        self._slots: dict[str, Slots] = {}
        self._carrier = ProcessPool(location, duty.orders, 1, tell)
        remote = duty.orders.remote
        self._exchange = Exchange(self._carrier, remote, tell) if remote else None
        self._steps = Steps(self._hands, self._gates, self._slots, Backoff(tell), self._exchange)
        self._running: dict[Worker, asyncio.Future[None]] = {}
        self._seen: object = ()

    def begin(self) -> None:
        seen = signature(self._location.root / CONFIG_FILE)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            wanted = queues(load_config(self._location.root))
        except Invalid:
            if self._running:  # each step says so
                return
            raise
        for queue, limits in wanted.items():
            if queue not in self._gates:
                self._gates[queue] = Gate(self._location.git_dir / PRIVATE_FOLDER, provider_at(queue), limits)
                self._slots[queue] = self._slots_of(limits)
                self._hands.allow(self._duty.jobs)
                slots = self._slots[queue]
                worker = _worker(self._client, self._steps, queue, limits, slots, self._duty.build)
                self._running[worker] = asyncio.ensure_future(worker.run())

    def _slots_of(self, limits: Rates) -> Slots:
        from uwf_git.ext.fleet.slots import Slots

        at_once = min(self._duty.jobs, limits.concurrent_steps or self._duty.jobs)
        is_limited = limits.concurrent_steps is not None or limits.steps_per_second is not None
        return Slots(at_once, self._exchange, takes_ahead=not is_limited)

    async def ended_or(self, ending: asyncio.Future[Any]) -> bool:
        waiting = [*self._running.values(), ending]
        done, _ = await asyncio.wait(waiting, timeout=_POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def end(self) -> list[BaseException | None]:
        self._steps.ending = True
        if self._exchange is not None:
            self._exchange.end()
        shutting = [asyncio.ensure_future(worker.shutdown()) for worker in self._running]
        await self._steps.idle.wait()
        await asyncio.wait(self._running.values(), timeout=_PARTING)
        for item in shutting:
            item.cancel()
        await asyncio.gather(self._hands.close(), self._carrier.close())
        return [running.exception() for running in self._running.values() if running.done()]


def _worker(client: Client, steps: Steps, queue: str, limits: Rates, slots: Slots, build: str) -> Worker:
    from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
    from temporalio.worker import (
        PollerBehaviorSimpleMaximum,
        UnsandboxedWorkflowRunner,
        Worker,
        WorkerDeploymentConfig,
    )

    from uwf_git.ext.fleet.workflow import ThreadInFleet

    deployment = None
    if build:  # threads may wait for people for weeks, so none is bound to the version that began it
        version = WorkerDeploymentVersion(DEPLOYMENT, build)
        deployment = WorkerDeploymentConfig(version, True, VersioningBehavior.AUTO_UPGRADE)
    return Worker(
        client,
        task_queue=queue,
        workflows=[ThreadInFleet] if queue == messages.QUEUE else [],
        activities=[steps.step],
        workflow_runner=UnsandboxedWorkflowRunner(),
        build_id=None if build else f"uwf-{__version__}",
        deployment_config=deployment,
        max_cached_workflows=_CACHED,
        tuner=slots.tuner(),
        max_task_queue_activities_per_second=limits.steps_per_second,
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(_POLLS),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(min(_POLLS, slots.most)),
        max_heartbeat_throttle_interval=_SAYS,
        default_heartbeat_throttle_interval=_SAYS,
        sticky_queue_schedule_to_start_timeout=_STICKS,
    )


def main() -> None:
    """A worker of `uwf fleet run`."""
    lifetime.own()
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    status = 0

    def tell(value: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            sink.write(json.dumps(value).encode() + b"\n")
            sink.flush()

    try:
        location = locate_store(None, os.environ, Path.cwd())
        if level := wanted_log(os.environ):
            begin_log(location, level)
        asyncio.run(_until_gone(location, parse_duty(sys.argv[1]), tell))
    except Exception as error:
        failure = failure_of(error)
        tell({"error": {"code": failure.code, "message": failure.message, "hint": failure.hint}})
        status = failure.status
    lifetime.end(status)  # the threads of Temporal's library outlive no interpreter that is taken down


async def _until_gone(location: Location, duty: WorkerSettings, tell: Tell) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)

    def listen() -> None:
        while os.read(0, 4096):
            pass
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=listen, daemon=True).start()
    log.debug("0GYX8K6P", "begins to work for the fleet at {address}", address=duty.place.address)
    await make_steps(location, duty, tell, over)


if __name__ == "__main__":
    main()
