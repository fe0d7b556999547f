"""The process that a `WarmPool` forks, and what is forked from it.

    python -m uwf_git.sandbox.warm_process DESCRIPTOR PROGRAM

It loads the program's module, and reads lines from a socket: ["fork"], answered by the id of a new process with the
socket of that; ["wait", ID], answered by the exit status of one; ["load", MODULE, …]. It ends with the socket, and has
one thread and no open store, since a fork would have neither.

A fork is sent calls: a number of bytes with four descriptors, its standard streams and its folder, then [arguments,
environment]. It answers BEGUN, from when on signals interrupt the call, then {status, modules, last}: the modules that
the call loaded, and whether the fork ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from uwf_git.base import lifetime, system
from uwf_git.sandbox.warm import BEGUN, NUMBER

LARGEST = 100 << 20
"""The bytes of memory with which a process is not used again."""
_MOST = 500  # calls of a process
_COLLECT = 25  # calls between two collections, without which what they leave would be 10 MB
_MOST_FILES = 256  # that calls may leave open, such as the packs of a store
_SIGNALS = (signal.SIGINT, *system.END_SIGNALS)

Program = Callable[[Sequence[str]], int]


def main(argv: Sequence[str]) -> NoReturn:
    """Fork on request, until the socket is closed."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    channel, name = socket.socket(fileno=int(argv[0])), argv[1]
    channel.set_inheritable(False)
    module, _, function = name.partition(":")
    program: Program = getattr(importlib.import_module(module), function)
    _freeze()
    ended: dict[int, int] = {}
    with channel.makefile("rb") as requests:
        for line in requests:
            match json.loads(line):
                case ["fork"]:
                    ours, theirs = socket.socketpair()
                    if (pid := os.fork()) == 0:
                        for other in (ours, requests, channel):
                            other.close()
                        _Fork(theirs, program).serve()
                    with ours, theirs:
                        socket.send_fds(channel, [b"%*d" % (NUMBER, pid)], [ours.fileno()])
                case ["wait", int(pid)]:
                    channel.sendall(b"%*d" % (NUMBER, _status(pid, ended)))
                case ["load", *names]:
                    for name in names:
                        with contextlib.suppress(Exception):  # the call that needs it says why
                            importlib.import_module(name)
                    _freeze()
            ended |= _ended()
    os._exit(0)


def _freeze() -> None:
    """Keep the collector of forks from what they share."""
    gc.collect()
    gc.freeze()


def _status(pid: int, ended: dict[int, int]) -> int:
    """Return the exit status of a fork, once it has ended; that of SIGKILL for what is none, or was asked for."""
    if pid in ended:
        return os.waitstatus_to_exitcode(ended.pop(pid))
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return -system.KILL


def _ended() -> dict[int, int]:
    """Return the forks that have ended since, and how."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            ended[end[0]] = end[1]
    return ended


class _Fork:
    """A process that runs a program for call after call."""

    def __init__(self, channel: socket.socket, program: Program) -> None:
        self._channel = channel
        self._program = program
        self._is_busy = False
        self._was_interrupted = False
        self._nowhere = system.open_file(os.devnull, os.O_RDWR)
        self._is_broken = False

    def serve(self) -> NoReturn:
        os.setsid()
        lifetime.begin()
        for number in _SIGNALS:
            signal.signal(number, self._interrupt)
        lifetime.heed_signals()
        threads, files, known = threading.active_count(), _files(), set(sys.modules)
        for calls in range(1, _MOST + 1):
            order = self._next()
            if order is None:
                break
            status = self._run(*order)
            new = [] if lifetime.is_shared() else [name for name in sys.modules if name not in known]
            is_last = (
                self._was_interrupted
                or self._is_broken
                or lifetime.is_shared()
                or threading.active_count() > threads
                or _files() > files + _MOST_FILES
                or lifetime.memory() > LARGEST
            )
            known.update(new)
            end = {"status": status, "modules": new, "last": is_last}
            try:
                self._channel.sendall(json.dumps(end).encode("ascii") + b"\n")
            except OSError:  # nobody waits for it
                break
            if is_last:
                break
            if calls % _COLLECT == 0:
                gc.collect()
        lifetime.end(0)

    def _next(self) -> tuple[list[str], dict[str, str]] | None:
        """Wait for the next call, and take over its streams and folder. Return None if none will come."""
        try:
            size, descriptors, _, _ = socket.recv_fds(self._channel, NUMBER, 4)
            if not size:
                return None
            data = b""
            while len(data) < int(size):
                data += (part := self._channel.recv(int(size) - len(data)))
                if not part:
                    return None
        except OSError:
            return None
        *streams, folder = descriptors
        os.fchdir(folder)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for descriptor in descriptors:
            os.close(descriptor)
        args, environ = json.loads(data)
        return args, environ

    def _run(self, args: list[str], environ: dict[str, str]) -> int:
        """Run the program and return its status."""
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = [sys.argv[0], *args]
        sys.stdin, sys.stdout, sys.stderr = _opened(0, "r"), _opened(1, "w"), _opened(2, "w")
        try:
            self._is_busy = True
            with contextlib.suppress(OSError):  # nobody waits for it
                self._channel.sendall(BEGUN)
            status = self._program(args)
            for (
                thread
            ) in threading.enumerate():  # foreign code may have left one, which a process would wait for
                if thread is not threading.main_thread() and not thread.daemon:
                    thread.join()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except lifetime.Terminated as signalled:
            status = 128 + signalled.number
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except Exception:
            import traceback

            traceback.print_exc()
            status = 1
        finally:
            self._is_busy = False
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        try:
            for number in range(3):
                os.dup2(self._nowhere, number)
            os.chdir("/")
        except OSError:  # foreign code has closed the descriptor, or forbidden it
            self._is_broken = True
        return status

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Interrupt a call; between two, only the end of the socket ends this process."""
        if not self._is_busy:
            return
        self._was_interrupted = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise lifetime.Terminated(number)


def _opened(number: int, mode: str) -> TextIO:
    """Open a standard stream as an interpreter does."""
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    return open(number, mode, 1 if number == 2 else -1, "utf-8", errors, closefd=False)  # type: ignore[return-value]


def _files() -> int:
    """Return how many files are open here, 0 if that is unknown."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1:])
