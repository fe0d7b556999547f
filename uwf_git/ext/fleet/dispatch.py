"""A temporary local fleet for other features than `uwf fleet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, StepOptions, ThreadId


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
        from uwf_git.ext.fleet.commands.options import EntryOptions
        from uwf_git.ext.fleet.messages import HEARTBEAT
        from uwf_git.ext.fleet.run import Fleet, up
        from uwf_git.ext.fleet.step_process import WorkerOptions
        from uwf_git.ext.fleet.worker import WorkerSettings

        orders = WorkerOptions(() if terms.agent is None else (terms.agent,))
        entries = EntryOptions(HEARTBEAT, terms.retries + 1)
        wanted = entries.entries(instance, threads, orders.agent, bool(terms.limits))
        limits = FleetLimits(None, dict(terms.limits), instance.config.stops_unpriced).at_most(terms.at_once)
        admission = Admission(wanted, limits)
        with up(instance, None) as (at, server):
            fleet = Fleet(instance, server, WorkerSettings(at, terms.at_once, orders), 1, tell)
            asyncio.run(fleet.run(admission))
        instance.store.sync()

    return step
