"""What programs that watch a service are told of the fleet that this store belongs to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from importlib.util import find_spec
from typing import Any, TypeVar

from uwf_git.ext.fleet.endpoint import Endpoint, find
from uwf_git.ext.fleet.queue_states import WORDS, word_of
from uwf_git.plugin import Hindrance, Instance, Metric, RemoteFailed, Sample

_T = TypeVar("_T")
_PATIENCE = 3.0  # seconds for the server to answer


def hindrances(instance: Instance) -> Iterator[Hindrance]:
    """Yield that the Temporal server of this store's fleet doesn't answer."""
    place = _place(instance)
    if place is None:
        return
    from uwf_git.ext.fleet.client import trouble

    try:
        problem = _within(trouble(place))
    except TimeoutError:
        problem = f"the Temporal server at {place.address} says nothing"
    if problem:
        yield Hindrance("temporal", problem)


def metrics(instance: Instance) -> Iterator[Metric]:
    """Yield how many threads are in the queue of this store's fleet, by their states."""
    place = _place(instance)
    if place is None:
        return
    from uwf_git.ext.fleet.client import Queue, Row, connect

    async def glance() -> list[Row]:
        return await Queue(await connect(place)).glance()

    counts, answers = Counter[str](), 1
    try:
        counts.update(word_of(row.state) for row in _within(glance()))
    except (RemoteFailed, TimeoutError):
        answers = 0
    yield Metric("uwf_fleet_up", "gauge", "Whether the Temporal server answers.", (Sample("", {}, answers),))
    samples = tuple(Sample("", {"state": word}, counts[word]) for word in WORDS if answers)
    yield Metric("uwf_fleet_threads", "gauge", "Threads in the queue; those at work are queued.", samples)


def _place(instance: Instance) -> Endpoint | None:
    return find(instance.store.repository.private) if find_spec("temporalio") is not None else None


def _within(call: Coroutine[Any, Any, _T]) -> _T:
    async def run() -> _T:
        async with asyncio.timeout(_PATIENCE):
            return await call

    return asyncio.run(run())
