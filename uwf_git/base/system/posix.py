"""What Linux and macOS share."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import O_CLOEXEC as O_CLOEXEC
from os import O_DIRECTORY as O_DIRECTORY
from os import O_NOCTTY as O_NOCTTY
from os import O_NOFOLLOW as O_NOFOLLOW
from os import O_NONBLOCK as O_NONBLOCK
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    import subprocess

_PIECE = 1 << 16

END_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end, besides Ctrl-C."""
WAKING: tuple[int, ...] = (signal.SIGCONT,)
"""What a stopped process needs so that it receives another signal."""
KILL: int = signal.SIGKILL
"""The signal of which a process learns nothing, by the number in exit statuses."""


def require(_what: str) -> None:
    """Raise UwfError where this system, and so ours on it, doesn't have what a plural noun names."""


LINKS_OPEN_FILES = True
"""Whether an open file can be given another name, and that can be removed again."""

open_file = os.open
read_at = os.pread
write_at = os.pwrite
replace = os.replace
remove = os.unlink
set_mode = os.fchmod
list_folder = os.listdir
user = os.geteuid


def is_private(status: os.stat_result) -> bool:
    """Return whether only its owner can read and write a file, as far as its mode says."""
    return not status.st_mode & 0o077


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


def signal_group(pid: int, number: int) -> None:
    """Signal a process, with its group if it leads one that isn't this process's."""
    with suppress(OSError):
        if os.getpgid(pid) == pid and pid != os.getpgrp():
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


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


def in_own_group(own: bool, descriptors: Sequence[int], held: bool = False) -> Mapping[str, Any]:
    """Return the arguments of `subprocess.Popen` by which a child leads a group and a session of its own, away from the
    terminal and its Ctrl-C, and inherits descriptors."""
    return {"start_new_session": own, "pass_fds": descriptors}


def check_arguments(_program: str, _arguments: Sequence[str]) -> None:
    """Raise ValueError for arguments that a program would not get as they are."""


def bind(listening: socket.socket, address: tuple[str, int]) -> bool:
    """Take an address for a server; return whether it could be had, and no other program has it."""
    from socket import SO_REUSEADDR, SOL_SOCKET

    listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)  # also one of a server that has just ended
    try:
        listening.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


class Tree:
    """The processes of a command as the kernel knows them. Here it knows none: `sandbox.descendants` finds them, and
    asks this if it `is_known`."""

    is_known = False

    def add(self, child: subprocess.Popen[bytes]) -> None:
        """Take in a child that was started `held`, and let it run. All that it starts is in, too."""

    def members(self) -> list[int]:
        return []

    def signal(self, leader: int, *signals: int) -> bool:
        """Signal all; return whether any lives."""
        return False

    def close(self) -> None:
        """Kill those that are left, where the kernel knows them."""


class Outputs:
    """What a child writes, given to `take` as it comes. With `hears_end`, `wait` also returns when the child ends."""

    hears_end = hasattr(os, "pidfd_open")

    def __init__(
        self, child: int, streams: Sequence[tuple[IO[bytes] | None, Callable[[bytes], object]]]
    ) -> None:
        import selectors

        self._selector = selectors.DefaultSelector()
        self._end = -1
        for stream, take in streams:
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, take)
        if self.hears_end:
            self._end = os.pidfd_open(child)
            self._selector.register(self._end, selectors.EVENT_READ)

    def wait(self, seconds: float | None) -> bool:
        """Take what has come; wait for something if nothing has. Return whether anything came."""
        came = False
        for key, _events in self._selector.select(seconds):
            if key.data is None:  # the child's exit
                continue
            try:
                data = os.read(key.fd, _PIECE)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            came = True
            key.data(data)
        return came

    def drain(self) -> None:
        """Take what a child that is gone has written; something it left behind may hold the pipes open for ever."""
        while self.wait(0):
            pass

    def close(self) -> None:
        self._selector.close()
        if self._end >= 0:
            os.close(self._end)
