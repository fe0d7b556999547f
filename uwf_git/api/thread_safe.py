"""A store for multi-threaded programs."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.store.instance import Instance
from uwf_git.store.location import Location

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange


class ThreadSafeStore:
    """A store that several threads may use: each opens its own files and index, since SQLite connections and
    `Instance` cannot be shared. Warnings are Python warnings."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._local = threading.local()
        self._opened()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadSafeStore) and self._location == other._location

    def __hash__(self) -> int:
        return hash(self._location)

    @property
    def path(self) -> Path:
        return self._location.git_dir

    @property
    def _instance(self) -> Instance:
        instance: Instance | None = getattr(self._local, "instance", None)
        return instance if instance is not None else self._opened()

    def _opened(self) -> Instance:
        instance = Instance(self._location)
        instance.warn = lambda text: warnings.warn(text, stacklevel=2)
        self._local.instance = instance
        return instance

    def _exchange(self, remote: str | None) -> Exchange:
        from uwf_git.api.exchange import exchange_with

        return exchange_with(self._instance, remote)
