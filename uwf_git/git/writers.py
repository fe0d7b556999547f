"""Mutual exclusion of writers of unreferenced objects and their deletion.

Until a ref leads to them, new objects can be deleted by a prune. So writers hold a shared lock in the private
folder from before the first object until a ref has moved, and a prune holds it exclusively. The kernel frees
it. Each thread of a process holds its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from uwf_git.base import system
from uwf_git.base.errors import Busy
from uwf_git.git.fsync import make_folders, share

# A writer waits for a deletion, which may repack a large store.
WRITER_SECONDS = 600
ALONE_SECONDS = 20

_alone: set[Path] = set()  # locks held exclusively by this process, which needn't hold them as a writer


class _Hold:
    """An open locked file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


class Writers:
    """The writers of one store."""

    def __init__(self, private: Path) -> None:
        self._path = private / "locks" / "writers"
        self._mine = threading.local()

    def begin(self) -> None:
        """Begin writing in this thread. Raises Busy during a long deletion."""
        if getattr(self._mine, "hold", None) is None and self._path not in _alone:
            self._mine.hold = self._held(WRITER_SECONDS)

    def end(self) -> None:
        """End writing: objects have a ref, or never will."""
        if (hold := getattr(self._mine, "hold", None)) is not None:
            self._mine.hold = None
            hold.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write during the block, however many refs move. Raises Busy."""
        hold = None if self._path in _alone else self._held(WRITER_SECONDS)
        try:
            yield
        finally:
            if hold is not None:
                hold.close()

    @contextlib.contextmanager
    def exclude_writers(self) -> Iterator[None]:
        """Exclude writers during the block. Raises Busy."""
        self.end()
        hold = self._held(ALONE_SECONDS, alone=True)
        _alone.add(self._path)
        try:
            yield
        finally:
            _alone.discard(self._path)
            if hold is not None:
                hold.close()

    def _held(self, seconds: float, alone: bool = False) -> _Hold | None:
        """None if the file cannot be made: then nothing can be written or deleted either."""
        try:
            descriptor = self._opened()
        except OSError:
            return None
        hold, deadline = _Hold(descriptor), time.monotonic() + seconds
        while True:
            try:
                system.lock(descriptor, shared=not alone)
                return hold
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    hold.close()
                    who = "somebody writes to the store" if alone else "uwf gc --prune is at work"
                    raise Busy(who, "repeat when that is done") from None
            except OSError:  # a file system without locks
                return hold
            time.sleep(0.005)

    def _opened(self) -> int:
        flags = os.O_RDONLY | os.O_CREAT | system.O_CLOEXEC | system.O_NONBLOCK
        try:
            descriptor = system.open_file(self._path, flags, 0o600)
        except FileNotFoundError:
            make_folders(self._path.parent)
            descriptor = system.open_file(self._path, flags, 0o600)
        share(self._path)
        return descriptor
