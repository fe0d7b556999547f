"""How a process of the command begins and ends: without the work that pays only in one which lives long, and not in the
midst of what has to be whole."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

# Python looks for cycles among the newest objects each time there are 700 more, of which loading modules makes 30,000.
_CYCLES = 50_000

_is_ours = True


def begin() -> None:
    """Lets more objects be made before Python looks for garbage."""
    gc.set_threshold(_CYCLES)


def share() -> None:
    """Code of somebody else runs in this process, which may count on its whole end: on files being flushed that nobody
    closed."""
    global _is_ours
    _is_ours = False


def end(status: int) -> NoReturn:
    """Ends the process, once its threads have ended, with all that waits for its exit. What it has loaded isn't taken
    down piece by piece, which takes as long as a fifth of a small command; unless it is shared, or watched by
    a profiler."""
    if _is_ours and sys.gettrace() is None and sys.getprofile() is None:
        import atexit

        if threading := sys.modules.get("threading"):
            threading._shutdown()
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.exit(status)  # which says so
        os._exit(status)
    sys.exit(status)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Puts off what signals do until the block has ended. A Ctrl-C between the start of a child, or the making of
    a lock, and the line that remembers it would otherwise leave that alone. Outside the main thread it does nothing,
    since signals don't come there."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for held in handlers:
        signal.signal(held, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        for number, frame in came:
            handlers[signal.Signals(number)](number, frame)
