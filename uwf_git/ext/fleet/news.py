"""What the queue doesn't know yet: where a thread stands is in the refs, and who moves these may not have told it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping

from uwf_git.base.errors import UwfError
from uwf_git.ext.fleet import asked
from uwf_git.ext.fleet.client import Queue, connect, require
from uwf_git.ext.fleet.hand import standing
from uwf_git.ext.fleet.place import Place, find
from uwf_git.format.ids import ThreadId
from uwf_git.store.opened import Instance

_RESTS = ("waiting", "paused")


def outdated(instance: Instance, states: Mapping[str, str]) -> list[str]:
    """The threads that wait in the queue, by its states, and don't wait any more by the refs here: somebody answered,
    resumed or ended them. Of those that aren't here nothing is known."""
    found = []
    for thread, state in states.items():
        if state in _RESTS:
            with contextlib.suppress(UwfError):
                stand = standing(instance, ThreadId(thread))
                if stand.done or stand.status not in _RESTS:
                    found.append(thread)
    return found


async def look(place: Place, threads: Collection[str]) -> dict[str, bool]:
    """Has a fleet look at threads again, where it has them; of each whether it has. Raises RemoteFailed."""
    return await Queue(await connect(place)).signal(threads, asked.LOOK)


def tell(instance: Instance, threads: Collection[str]) -> None:
    """Tell the fleet that is up for this store, if one is, that threads which it may have waiting can go on."""
    place = find(instance.store.repository.private)
    if place is None or not threads:
        return
    try:
        require()
        asyncio.run(look(place, threads))
    except UwfError as error:
        instance.warn(f"the fleet wasn't told: {error.message} — uwf fleet sync")
