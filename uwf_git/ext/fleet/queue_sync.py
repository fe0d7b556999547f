"""Synchronising the queue with the refs, which others move."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.client import Queue, connect, require
from uwf_git.ext.fleet.endpoint import find
from uwf_git.ext.fleet.queue_states import RowState, rests
from uwf_git.ext.fleet.step_process import standing
from uwf_git.plugin import Instance, ThreadId, ThreadState, UwfError, parents_of, waits_for_branches


def outdated(instance: Instance, states: Mapping[str, RowState]) -> list[str]:
    """Return local threads that wait in the queue but not by the refs: answered, resumed, joined or ended."""
    threads = []
    for thread, state in states.items():
        if isinstance(state, ThreadState) and rests(state):
            with contextlib.suppress(UwfError):
                stand = standing(instance, ThreadId(thread))
                is_joinable = (
                    stand.state is ThreadState.JOINING
                    and waits_for_branches(instance, ThreadId(thread)) is None
                )
                if stand.done or not rests(stand.state) or is_joinable:
                    threads.append(thread)
    return threads


def notify_fleet(instance: Instance, threads: Collection[str]) -> None:
    """Tell this store's running fleet that threads can continue, and those that wait for them as branches."""
    place = find(instance.store.repository.private)
    if place is None or not threads:
        return

    async def look(among: Collection[str]) -> None:
        await Queue(await connect(place)).signal(among, messages.LOOK)

    try:
        require()
        heads = [instance.threads.head(ThreadId(thread)) for thread in threads]
        above = {parent for head in heads for parent in parents_of(instance, head)}
        asyncio.run(look({*threads, *above}))
    except UwfError as error:
        instance.warn(f"the fleet was not notified: {error.message} — uwf fleet sync")
