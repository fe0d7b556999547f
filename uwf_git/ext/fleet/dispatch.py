"""A temporary local fleet for other features than `uwf fleet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from uwf_git.plugin import UwfError

if TYPE_CHECKING:
    from uwf_git.ext.fleet.messages import ThreadEntry
    from uwf_git.plugin import AgentOptions, Instance, StepOptions, ThreadId


def dispatch(
    instance: Instance, terms: StepOptions, warn: Callable[[str], None]
) -> Callable[[Sequence[ThreadId]], None]:
    """Return an `api.dispatch.Dispatch` function. Raises UwfError without the fleet extra."""
    from uwf_git.ext.fleet import client

    client.require()

    def tell(value: Mapping[str, Any]) -> None:
        if "warning" in value:
            warn(value["warning"])

    def step(threads: Sequence[ThreadId]) -> None:
        import asyncio

        from uwf_git.ext.fleet.admission import Admission, FleetLimits
        from uwf_git.ext.fleet.messages import HEARTBEAT
        from uwf_git.ext.fleet.run import Fleet, up
        from uwf_git.ext.fleet.step_process import WorkerOptions
        from uwf_git.ext.fleet.worker import WorkerSettings

        orders = WorkerOptions(() if terms.agent is None else (terms.agent,))
        wanted = begins(instance, threads, HEARTBEAT, terms.retries + 1, orders.agent, bool(terms.limits))
        stops = instance.config.stops_unpriced
        admission = Admission(wanted, FleetLimits(None, dict(terms.limits), stops))
        with up(instance, None) as (at, server):
            fleet = Fleet(instance, server, WorkerSettings(at, terms.at_once, orders), 1, tell)
            asyncio.run(fleet.run(admission))
        instance.store.sync()

    return step


def begins(
    instance: Instance,
    threads: Sequence[ThreadId],
    heartbeat: float,
    tries: int,
    agent: AgentOptions | None = None,
    counts: bool = False,
) -> list[ThreadEntry]:
    """Return threads for the queue. `agent` overrides the configuration; `counts`: their spending is counted."""
    from uwf_git.ext.fleet.admission import used_by
    from uwf_git.ext.fleet.limits import next_queue
    from uwf_git.ext.fleet.messages import QUEUE, ThreadEntry
    from uwf_git.plugin import thread_outlook

    def begin(thread: ThreadId) -> ThreadEntry:
        head, queue = instance.threads.head(thread), QUEUE
        with suppress(UwfError):  # the step will say why it can't be read
            queue = next_queue(instance, head, thread_outlook(instance, head).next, agent)
        used = used_by(instance, thread) if counts else None
        return ThreadEntry(thread, head.node, queue, heartbeat, tries, used=used)

    return list(map(begin, threads))
