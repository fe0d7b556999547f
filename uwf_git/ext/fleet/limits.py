"""Rate limits of providers, shared by a machine's workers.

A step goes to its provider's task queue `uwf.<provider>`, or to `uwf`. The server limits steps per second.
The rest is in `<git dir>/uwf/fleet/providers/`:

    <provider>.<n>    a slot, held by flock, for one of N concurrent steps
    <provider>.later  when the provider may be called again, in Unix seconds, and the last back-off

All workers back off a rate-limited provider, while other steps continue. The kernel frees slots of killed
workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from uwf_git.ext.fleet.endpoint import folder_of
from uwf_git.ext.fleet.messages import QUEUE
from uwf_git.ext.fleet.retry_policy import LONGEST_ASKED, UNWRITABLE, Fault
from uwf_git.plugin import (
    Config,
    Head,
    Instance,
    Rates,
    Throttled,
    provider_of,
    read_private,
    share_folder,
    system,
    write_private,
)

if TYPE_CHECKING:
    from uwf_git.plugin import AgentOptions

PATIENCE = 2.0
"""Seconds for which an agent of a fleet waits itself where a provider wants to be asked later: then its step ends, so
that the worker is free for others."""

_FIRST_BACKOFF, _MAX_BACKOFF = (
    1.0,
    600.0,
)  # seconds that a provider is left alone which doesn't say for how long
_FIRST_REST = 60.0  # seconds without a step if the store cannot be written
_HANDS_BACK = 5.0  # seconds after which a step that came meanwhile is given back
_POLL = 0.05  # seconds between two looks for a free slot


def queue_of(provider: str) -> str:
    return f"{QUEUE}.{provider}" if provider else QUEUE


def provider_at(queue: str) -> str:
    return queue.removeprefix(QUEUE).removeprefix(".")


def queues(config: Config) -> dict[str, Rates]:
    """Return a worker's task queues and limits. Steps for providers not configured here are left to others."""
    return {
        QUEUE: Rates(),
        **{queue_of(name): provider.limits for name, provider in config.providers.items()},
    }


def next_queue(instance: Instance, head: Head, role: str | None, agent: AgentOptions | None = None) -> str:
    """Return the task queue of a thread's next step by its `role`. `agent` overrides the configuration."""
    return queue_of(provider_of(instance, head, role, agent)) if role is not None else QUEUE


def impatient(config: Config) -> Config:
    """Return a configuration whose agents don't wait long for rate limits themselves."""
    providers = {
        name: provider._replace(limits=provider.limits._replace(wait=min(provider.limits.wait, PATIENCE)))
        for name, provider in config.providers.items()
    }
    return config._replace(providers=providers)


class Gate:
    """The gate of a provider on this machine; "" is always open."""

    def __init__(self, private: Path, name: str, rates: Rates = Rates()) -> None:  # noqa: B008
        self._folder = folder_of(private) / "providers"
        self._name = quote(name, safe="")
        self._most = rates.concurrent_steps
        self._is_paced = rates.steps_per_second is not None
        self._later = self._folder / f"{self._name}.later"

    def open_at(self) -> float:
        """Return the Unix time at which the provider may be called again."""
        return self._alone()[0]

    def takes_next(self) -> bool:
        """Return whether whoever has a turn may make another step in it."""
        return not self._is_paced and self.open_at() <= time.time()

    def _alone(self) -> tuple[float, float]:
        try:
            until, seconds = json.loads(read_private(self._later))
            return float(until), float(seconds)
        except (OSError, ValueError, TypeError, RecursionError):  # nothing was refused
            return 0.0, 0.0

    def back_off(self, refusal: Throttled) -> float:
        """Back off as requested, or exponentially; return the Unix time of the end."""
        now = time.time()
        until, seconds = self._alone()
        if refusal.after is not None:
            seconds = min(max(refusal.after, 0.0), LONGEST_ASKED)
        elif until <= now:  # otherwise several steps were refused at once, with the same delay
            seconds = (
                min(2 * seconds, _MAX_BACKOFF) if until and now - until < _MAX_BACKOFF else _FIRST_BACKOFF
            )
        until = max(until, now + seconds)
        write_private(self._later, json.dumps([until, seconds]).encode("ascii"))
        return until

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the gate; the block is the step."""
        descriptor = None
        try:
            while True:
                if (wait := self.open_at() - time.time()) > 0:
                    await asyncio.sleep(min(wait, 1.0))
                elif self._most is None or (descriptor := self._slot(self._most)) is not None:
                    break
                else:
                    await asyncio.sleep(_POLL)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _slot(self, most: int) -> int | None:
        self._folder.mkdir(parents=True, exist_ok=True)
        share_folder(self._folder)
        for number in range(most):
            path = self._folder / f"{self._name}.{number}"
            descriptor = system.open_file(path, os.O_RDWR | os.O_CREAT | system.O_CLOEXEC, 0o600)
            try:
                share_folder(path)
                system.lock(descriptor)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None


class Backoff:
    """Backing off a worker with an unwritable store, exponentially, so that others take its steps. `tell`
    hears the begin and end."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._notify = tell
        self._fault: Fault | None = None
        self._until = self._seconds = 0.0

    async def refuse(self) -> Fault | None:
        """Return the fault for a step to give back, after a moment; None to make it."""
        remaining = self._until - time.monotonic()
        if self._fault is None or remaining <= 0:
            return None
        await asyncio.sleep(min(remaining, _HANDS_BACK))
        return self._fault

    def note(self, fault: Fault | None) -> None:
        about = {"of": "the store of this machine", "again": "can be written again"}
        if fault is None and self._fault is not None:
            self._fault, self._seconds = None, 0.0
            self._notify({**about, "trouble": None})
        elif fault is not None and fault.code == UNWRITABLE:
            if self._fault is None:
                self._notify(
                    {**about, "trouble": fault.as_json(), "meanwhile": "no step is made for a while"}
                )
            if (now := time.monotonic()) >= self._until:
                self._seconds = min(2 * self._seconds, _MAX_BACKOFF) or _FIRST_REST
                self._until = now + self._seconds
            self._fault = fault
