"""Standard output and error: unwritable and unread streams."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import IO, Any, TextIO

_PATIENCE = 2.0  # seconds for a write after the command was told to end
_TICK = 0.1

_writes: dict[object, float] = {}
"""Since when each write lasts that is going on, of any thread."""


class _Stream(io.FileIO):
    """A standard stream that drops what it cannot write, so that no step fails for lack of output."""

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
        return memoryview(data).nbytes


class _Output(_Stream):
    """Standard output. A full disk doesn't fail the command, but is reported."""

    def lost(self, data: Any, error: OSError) -> int:
        from uwf_git.base.errors import OutputFailed

        raise OutputFailed(
            f"cannot print the result: {error.strerror}",
            "what the command did until then is done: look with uwf thread show or uwf thread list",
        ) from None


def is_terminal(stream: IO[Any] | None) -> bool:
    """Return whether a stream is a terminal. Python has None for closed ones."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def prepare() -> None:
    """Set up both, even if closed by the caller."""
    if sys.stdout is None or sys.stderr is None:  # as in >&-
        nowhere = open(os.devnull, "w")  # noqa: SIM115
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    sys.stdout, sys.stderr = _reopened(sys.stdout, _Output), _reopened(sys.stderr, _Stream)


def _reopened(stream: TextIO, kind: type[_Stream]) -> TextIO:
    is_terminal = stream.isatty()
    encoding = stream.encoding if is_terminal else "utf-8"
    raw = io.BufferedWriter(kind(stream.fileno(), "w", closefd=False))
    at_once = bool(getattr(stream, "line_buffering", True))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=at_once)


def flush() -> None:
    """Flush the output; failures were reported already."""
    from uwf_git.base.errors import OutputFailed

    try:
        sys.stdout.flush()
    except (OSError, OutputFailed):
        forget()


def forget() -> None:
    """Drop unwritten output, which Python would retry at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_unheard(status: int) -> None:
    """From now on a write to an unread pipe or terminal ends the process with this status. Children have
    guards, and notice the end of their input."""
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
