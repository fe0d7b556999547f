"""What Linux and macOS share."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import O_CLOEXEC as O_CLOEXEC
from os import O_DIRECTORY as O_DIRECTORY
from os import O_NOCTTY as O_NOCTTY
from os import O_NOFOLLOW as O_NOFOLLOW
from os import O_NONBLOCK as O_NONBLOCK
from pathlib import Path

_PIECE = 1 << 16

END_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end, besides Ctrl-C."""
KILL: int = signal.SIGKILL
"""The signal of which a process learns nothing, by the number in exit statuses."""

LINKS_OPEN_FILES = True
"""Whether an open file can be given another name, and that can be removed again."""

open_file = os.open
read_at = os.pread
write_at = os.pwrite
replace = os.replace
remove = os.unlink
set_mode = os.fchmod
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


def remove_held(path: str | Path, descriptor: int) -> None:
    """Remove a file that this process holds, and let go of it: nobody finds it without a holder. Raises OSError if it
    cannot be removed; it is let go of all the same."""
    try:
        os.unlink(path)  # noqa: PTH108
    finally:
        os.close(descriptor)


@contextmanager
def entered(folder: str | Path) -> Iterator[None]:
    """Make a folder this process's current one for the block, and go back, even if where it was is gone by then."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


class AskedChild:
    """A child that is asked by its standard input and answers by its standard output, and to which Ctrl-C means
    nothing. Starting it does not copy this process."""

    def __init__(self, argv: Sequence[str]) -> None:
        theirs, self._requests = os.pipe()
        self._replies, answers = os.pipe()
        try:
            self._process = os.posix_spawn(
                argv[0],
                [*argv],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_DUP2, answers, 1)],
                setpgroup=0,
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
            )
        except BaseException:
            self.forget()
            raise
        finally:
            os.close(theirs)
            os.close(answers)

    def send(self, data: bytes) -> None:
        """Send input. Raises BrokenPipeError if the child has ended."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._requests, rest) :]

    def receive(self, seconds: float) -> bytes:
        """Return the next output, b"" at its end. Raises TimeoutError if there is none after `seconds`."""
        import select

        ready = select.poll()
        ready.register(self._replies, select.POLLIN)
        if not ready.poll(seconds * 1000):
            raise TimeoutError
        return os.read(self._replies, _PIECE)

    def forget(self) -> None:
        """Close the pipes, after which the child ends by itself."""
        os.close(self._requests)
        os.close(self._replies)

    def kill(self) -> None:
        """End the child."""
        self.forget()
        with suppress(OSError):
            os.kill(self._process, KILL)
            os.waitpid(self._process, 0)
