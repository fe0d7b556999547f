"""Standard output and standard error of this process: what can't be printed, and whom nobody listens to."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any, TextIO

_PATIENCE = 2.0  # seconds that a write may take, once the command was told to end
_TICK = 0.1

_writes: dict[object, float] = {}
"""Since when each write lasts that is going on, of any thread."""


class _Stream(io.FileIO):
    """A standard stream. What it can't take is left out: no step fails because nobody can be told how it goes."""

    def write(self, data: Any) -> int:
        write = object()
        _writes[write] = time.monotonic()
        try:
            return super().write(data)
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            return self.lost(data, error)
        finally:
            del _writes[write]

    def lost(self, data: Any, error: OSError) -> int:
        """What a write comes to that fails."""
        return memoryview(data).nbytes


class _Output(_Stream):
    """Standard output. What it can't take, on a full disk, is no failure of what the command did, and is told."""

    def lost(self, data: Any, error: OSError) -> int:
        from uwf_git.base.errors import OutputFailed

        raise OutputFailed(
            f"can't print the result: {error.strerror}",
            "what the command did until then is done: look with uwf thread show or uwf thread list",
        ) from None


def prepare() -> None:
    """Sets up both, also where who called has closed them."""
    if sys.stdout is None or sys.stderr is None:  # as in >&-
        nowhere = open(os.devnull, "w")  # noqa: SIM115
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    sys.stdout, sys.stderr = _reopened(sys.stdout, _Output), _reopened(sys.stderr, _Stream)


def _reopened(stream: TextIO, kind: type[_Stream]) -> TextIO:
    """A standard stream of that kind, which prints all texts there are, a line at a time on a terminal and on standard
    error."""
    is_terminal = stream.isatty()
    encoding = stream.encoding if is_terminal else "utf-8"
    raw = io.BufferedWriter(kind(stream.fileno(), "w", closefd=False))
    at_once = bool(getattr(stream, "line_buffering", True))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=at_once)


def flush() -> None:
    """Prints what is left of a command's output. Where that can't be, it was said already."""
    from uwf_git.base.errors import OutputFailed

    try:
        sys.stdout.flush()
    except (OSError, OutputFailed):
        forget()


def forget() -> None:
    """Gives up what could not be written, as Python would try again at its end and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_unheard(status: int) -> None:
    """From now on a write that nobody takes, to a pipe or a terminal that isn't read, ends the process, with that
    status. Children have guards, and see that their input ends."""
    import threading

    threading.Thread(target=_end_unheard, args=(status, time.monotonic()), daemon=True).start()


def _end_unheard(status: int, told: float) -> None:
    from uwf_git.base import log

    while True:
        time.sleep(_TICK)
        since = min(list(_writes.values()), default=None)
        if since is not None and time.monotonic() - max(since, told) >= _PATIENCE:
            log.warning("4KX0W7TD", "ends: nobody takes what it prints")
            os._exit(status)
