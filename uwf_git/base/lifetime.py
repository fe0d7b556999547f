"""How a process of the command begins and ends: without the work that pays only in one which lives long, and not in the
midst of what has to be whole."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

# Python looks for cycles among the newest objects each time there are 700 more, of which loading modules makes 30,000.
_CYCLES = 50_000

_DISTURBS = (0.02, 0.1, 0.5)  # seconds between two: also the first may come before the wait

_is_ours = True
_is_own = False


def begin() -> None:
    """Take the process for a command of ours, and let more objects be made before Python looks for garbage."""
    own()
    gc.set_threshold(_CYCLES)


def own() -> None:
    """Take the process for a command of ours: its signals, limits and current folder may be set. Only the `main` of a
    command calls this. In any other process uwf is a library, which leaves them alone."""
    global _is_own
    _is_own = True


def is_own() -> bool:
    """Return whether the caller may set what belongs to the whole process: in a command of ours, in its main thread."""
    import threading

    return _is_own and threading.current_thread() is threading.main_thread()


def heed_signals() -> None:
    """From now on a signal is heard also where it comes between Python's last look for one and the call of the kernel
    that then waits, for a child or a server, as long as that takes: the call is disturbed a moment later, by a signal
    that does nothing else, and Python looks again. For the main thread, which alone hears signals. An event loop that
    listens for signals sees to them itself, and takes this back for good."""
    import _thread
    import signal

    heard, told = os.pipe()
    os.set_blocking(told, False)
    main, nothing = _thread.get_ident(), signal.SIGURG

    def disturb() -> None:
        while came := os.read(heard, 64):
            if set(came) == {nothing}:
                continue
            for pause in _DISTURBS:
                time.sleep(pause)
                signal.pthread_kill(main, nothing)

    signal.signal(nothing, lambda _number, _frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    _thread.start_new_thread(disturb, ())


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
    a lock, and the line that remembers it would otherwise leave that alone. It does nothing outside the main thread,
    since signals don't come there, and in a program that uses uwf as a library, whose handlers are its own."""
    import signal

    if not is_own():
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
