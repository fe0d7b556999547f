"""How often a provider is asked, by all the workers of a machine together.

A thread's next step goes to the task queue of the provider that its agent asks, `uwf.<provider>`, or to `uwf` where it
asks none of config.yaml. How many steps of a queue begin in a second the server sees to. Here is the rest, in files of
the private folder, `<git dir>/uwf/fleet/providers/`, which the workers of a machine share:

    <provider>.<n>    a slot: who holds it (flock) makes one of so many steps at the same time
    <provider>.later  when the provider wants to be asked again, in Unix seconds, and for how long it was left alone

A provider that refuses to be asked so often is left alone by all of them, while steps that ask others go on. The
kernel frees the slots of a worker that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from uwf_git.base.errors import Throttled
from uwf_git.config.settings import Config, Rates
from uwf_git.engine.performer import provider_of
from uwf_git.ext.fleet.asked import QUEUE
from uwf_git.ext.fleet.exits import LONGEST_ASKED, UNWRITABLE, Fault
from uwf_git.ext.fleet.place import folder_of
from uwf_git.git.durable import share
from uwf_git.store.history import Head
from uwf_git.store.opened import Instance
from uwf_git.store.private import read_private, write_private

PATIENCE = 2.0
"""Seconds for which an agent of a fleet waits itself where a provider wants to be asked later: then its step ends, so
that the worker is free for others."""

_FIRST, _LONGEST = 1.0, 600.0  # seconds that a provider is left alone which doesn't say for how long
_FIRST_REST = 60.0  # seconds without a step where the store can't be written
_HANDS_BACK = 5.0  # seconds after which a step that came meanwhile is given back
_POLL = 0.05  # seconds between two looks for a free slot


def queue_of(provider: str) -> str:
    """The task queue of the steps that ask a provider, "" for none."""
    return f"{QUEUE}.{provider}" if provider else QUEUE


def provider_at(queue: str) -> str:
    """The provider whose task queue it is; "" for that of none."""
    return queue.removeprefix(QUEUE).removeprefix(".")


def queues(config: Config) -> dict[str, Rates]:
    """The task queues that a worker with this configuration serves, and their limits. Steps that ask a provider which
    isn't configured here are left to others."""
    return {QUEUE: Rates(), **{queue_of(name): each.limits for name, each in config.providers.items()}}


def next_queue(instance: Instance, head: Head, role: str | None, agent: str | None = None) -> str:
    """The task queue that the next step of a thread goes to, by the `role` that is next, None for none. `agent` goes
    before the configuration."""
    return queue_of(provider_of(instance, head, role, agent)) if role is not None else QUEUE


def impatient(config: Config) -> Config:
    """A configuration whose agents don't wait long themselves where a provider wants to be asked later."""
    providers = {
        name: each._replace(limits=each.limits._replace(wait=min(each.limits.wait, PATIENCE)))
        for name, each in config.providers.items()
    }
    return config._replace(providers=providers)


class Gate:
    """What steps that ask a provider pass through on this machine. `name` is the provider's, "" for steps that ask
    none, which always may."""

    def __init__(self, private: Path, name: str, rates: Rates = Rates()) -> None:  # noqa: B008
        self._folder = folder_of(private) / "providers"
        self._name = quote(name, safe="")
        self._most = rates.concurrent_steps
        self._later = self._folder / f"{self._name}.later"

    def open_at(self) -> float:
        """When the provider may be asked again, in Unix seconds; what is past says: now."""
        return self._alone()[0]

    def _alone(self) -> tuple[float, float]:
        try:
            until, seconds = json.loads(read_private(self._later))
            return float(until), float(seconds)
        except (OSError, ValueError, TypeError, RecursionError):  # nobody has refused anything
            return 0.0, 0.0

    def back_off(self, refusal: Throttled) -> float:
        """Leaves the provider alone for as long as it asks for, or for a while that doubles as often as it refuses
        right afterwards; returns when it may be asked again, in Unix seconds."""
        now = time.time()
        until, seconds = self._alone()
        if refusal.after is not None:
            seconds = min(max(refusal.after, 0.0), LONGEST_ASKED)
        elif until <= now:  # else it was refused to several at once, who are told the same
            seconds = min(2 * seconds, _LONGEST) if until and now - until < _LONGEST else _FIRST
        until = max(until, now + seconds)
        write_private(self._later, json.dumps([until, seconds]).encode("ascii"))
        return until

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until the provider may be asked, by one more; the block is the step that asks it."""
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
        """A slot that is held now, as a file descriptor; None where all of them are."""
        self._folder.mkdir(parents=True, exist_ok=True)
        share(self._folder)
        for number in range(most):
            path = self._folder / f"{self._name}.{number}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                share(path)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None


class Rest:
    """What a worker takes whose store can't be written, as on a full disk: a while without steps, which is twice as
    long each time, so that other machines make them. `tell` is told that it begins, and that the store can be written
    again."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._fault: Fault | None = None
        self._until = self._seconds = 0.0

    async def refuse(self) -> Fault | None:
        """Why a step is given back that has come, after a moment, so that it isn't here again at once; None where it is
        made."""
        left = self._until - time.monotonic()
        if self._fault is None or left <= 0:
            return None
        await asyncio.sleep(min(left, _HANDS_BACK))
        return self._fault

    def note(self, fault: Fault | None) -> None:
        """What a step that was made here has failed at; None where it hasn't."""
        about = {"of": "the store of this machine", "again": "can be written again"}
        if fault is None and self._fault is not None:
            self._fault, self._seconds = None, 0.0
            self._tell({**about, "trouble": None})
        elif fault is not None and fault.code == UNWRITABLE:
            if self._fault is None:
                self._tell({**about, "trouble": fault.as_json(), "meanwhile": "no step is made for a while"})
            if (now := time.monotonic()) >= self._until:
                self._seconds = min(2 * self._seconds, _LONGEST) or _FIRST_REST
                self._until = now + self._seconds
            self._fault = fault
