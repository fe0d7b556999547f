"""Start and end of a command's process: without work that pays off only in long-lived ones, and not in the
middle of atomic operations."""

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

_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.5  # seconds until a wait is interrupted, and at most until it is again

_is_ours = True
_is_own = False
_is_helper = False


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, handled like Ctrl-C so that agents end too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def begin() -> None:
    """Set up a command's process, with less frequent garbage collection."""
    own()
    gc.set_threshold(_CYCLES)


def own() -> None:
    """Declare this process a command of ours: its signals, limits and current folder may be set. Called by
    `main` only; elsewhere uwf is a library and leaves them alone."""
    global _is_own
    _is_own = True


def help_another() -> None:
    """Declare this process a helper of another one, which ends it if a call takes too long."""
    global _is_helper
    own()
    _is_helper = True


def limits_code() -> bool:
    """Return whether code that is called here can be ended in the middle of a call: by a signal of a timer, or with the
    whole process, if that is a helper."""
    return is_own() and (_is_helper or sys.platform != "win32")


def is_own() -> bool:
    """Return whether process-wide state may be set: in a command's main thread."""
    import threading

    return _is_own and threading.current_thread() is threading.main_thread()


def heed_signals() -> None:
    """Let no signal to a command be lost. One that comes just before a blocking call is followed by helper signals
    until its handler has run. One whose handler raises where Python ignores exceptions, as in a destructor, is sent
    again. For the main thread; an event loop with its own signal handling turns off the first."""
    import _thread
    import signal

    if sys.platform == "win32":  # such a call is woken there
        return
    heard, writing = os.pipe()
    os.set_blocking(writing, False)
    main, helper = _thread.get_ident(), signal.SIGURG
    handled = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal handled
        handled += 1

    def disturb() -> None:
        while came := os.read(heard, 64):
            if set(came) == {helper}:
                continue
            before, pause = handled, _FIRST_PAUSE
            time.sleep(pause)
            while handled == before:  # handlers run in the order of their numbers, and this has the highest
                signal.pthread_kill(main, helper)
                time.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)

    def send_again(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if isinstance(error, KeyboardInterrupt):
            number = error.number if isinstance(error, Terminated) else signal.SIGINT
            _thread.start_new_thread(send, (number,))
        else:
            sys.__unraisablehook__(unraisable)

    def send(number: int) -> None:
        time.sleep(_FIRST_PAUSE)  # until the call is over
        os.kill(os.getpid(), number)

    signal.signal(helper, handle)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    sys.unraisablehook = send_again
    _thread.start_new_thread(disturb, ())


def share() -> None:
    """Note that foreign code runs in this process and may rely on a full exit."""
    global _is_ours
    _is_ours = False


def is_shared() -> bool:
    """Return whether foreign code has run in this process."""
    return not _is_ours


def memory() -> int:
    """Return the bytes of memory that this process has, 0 if unknown."""
    from uwf_git.base import system

    return system.own_memory()[1]


def end(status: int) -> NoReturn:
    """Exit once all threads have ended, running exit handlers but skipping interpreter teardown, which takes
    up to a fifth of a small command; unless shared or profiled."""
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
    """Defer signals during the block, so that Ctrl-C cannot separate starting a child or making a lock from
    remembering it. No effect outside a command's main thread."""
    import signal

    from uwf_git.base import system

    if not is_own():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    numbers = (signal.SIGINT, *system.END_SIGNALS)
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
