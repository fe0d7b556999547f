"""Reading the store in one thread of its own, so that keys are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from uwf_git.plugin import Instance, Location, signature

T = TypeVar("T")


class Reader:
    """Calls functions with the open store, one after the other. `place` is the folder whose project's threads are
    meant, None for all."""

    def __init__(self, location: Location, place: Path | None) -> None:
        self._location = location
        self._place = place
        self._thread = ThreadPoolExecutor(1, "store")
        self._instance: Instance | None = None
        self._signatures: object = None

    async def __call__(self, read: Callable[[Instance], T]) -> T:
        """Raises what `read` raises, and NotFound and Invalid of a store that can't be opened."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: read(self._opened()))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _opened(self) -> Instance:
        # The configuration is read once by an open store, which doesn't see that it was removed.
        root, git_dir = self._location.root, self._location.git_dir
        signatures = [signature(path) for path in (root / "config.yaml", root / ".env", git_dir / "HEAD")]
        if self._instance is None or signatures != self._signatures:
            if self._instance is not None:
                self._instance.store.index.close()
                self._instance = None
            instance = Instance(self._location)
            instance.threads.place = self._place
            instance.warn = instance.store.repository.lockfiles.told = lambda text: None
            self._instance, self._signatures = instance, signatures
        self._instance.renew_judging()
        return self._instance
