"""What Linux and macOS share."""

from __future__ import annotations

import fcntl
import os
import signal
from os import O_CLOEXEC as O_CLOEXEC
from os import O_DIRECTORY as O_DIRECTORY
from os import O_NOCTTY as O_NOCTTY
from os import O_NOFOLLOW as O_NOFOLLOW
from os import O_NONBLOCK as O_NONBLOCK
from pathlib import Path

END_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end, besides Ctrl-C."""
KILL: int = signal.SIGKILL
"""The signal of which a process learns nothing, by the number in exit statuses."""

open_file = os.open
read_at = os.pread
write_at = os.pwrite
replace = os.replace
remove = os.unlink
user = os.getuid


def lock(descriptor: int, shared: bool = False, wait: bool = False) -> None:
    """Hold an open file, alone or `shared`. Raises BlockingIOError if another holds it and this doesn't `wait`, another
    OSError on a file system without locks."""
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def lock_for_process(descriptor: int, wait: bool = False) -> None:
    """Hold an open file as this process alone: no child has the lock. It ends when the process closes any descriptor of
    the file. Raises OSError."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def lock_folder(path: str | Path, wait: bool = False) -> int:
    """Hold a folder, and return the descriptor that holds it. Raises OSError, as `lock` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(descriptor, wait=wait)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
