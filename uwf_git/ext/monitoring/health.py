"""Whether a service can work: its store can be read and written, and its disk has room."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uwf_git.plugin import EndpointAnswer, Hindrance, Instance, Location, UwfError, extensions

_COUNTS = 1.0  # seconds that a look counts
_looking = threading.Lock()
_last: dict[Path, tuple[float, list[str]]] = {}
_LEAST = 256 << 20  # bytes of free disk, below which a worktree or a pack may not fit


@contextmanager
def opened(location: Location) -> Iterator[Instance]:
    instance = Instance(location)
    try:
        yield instance
    finally:
        instance.store.index.close()


def hindrances(instance: Instance) -> Iterator[Hindrance]:
    """Yield why steps could not be made or kept in a store now."""
    repository = instance.store.repository
    try:
        instance.threads.ids()
    except (UwfError, OSError) as error:
        yield Hindrance("store", f"the store cannot be read: {error}")
        return
    if not os.access(repository.private, os.W_OK):
        yield Hindrance("store", f"the store cannot be written: {repository.private}")
    free = shutil.disk_usage(repository.path).free
    if free < _LEAST:
        yield Hindrance("disk", f"{free >> 20} MiB are free on the store's disk, less than {_LEAST >> 20}")


def alive(_location: Location) -> EndpointAnswer:
    return EndpointAnswer("alive\n")


def ready(location: Location) -> EndpointAnswer:
    """Anybody may ask, as often as they like, so it looks once a second, and names what hinders without paths and
    addresses."""
    with _looking:
        looked, names = _last.get(location.git_dir, (0.0, []))
        if not looked or time.monotonic() - looked > _COUNTS:
            try:
                with opened(location) as instance:
                    names = sorted({item.name for item in extensions.hindrances(instance)})
            except (UwfError, OSError):
                names = ["store"]
            _last[location.git_dir] = time.monotonic(), names
    return EndpointAnswer(f"not ready: {', '.join(names)}\n", 503) if names else EndpointAnswer("ready\n")
