"""Signals that come at the wrong moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[None]:
    """Puts off what signals do until the block has ended. A Ctrl-C between the start of a child and the line that
    remembers it would otherwise leave that child alone. Outside the main thread it does nothing, since signals
    don't come there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _HELD if callable(handler := signal.getsignal(number))}
    for held in handlers:
        signal.signal(held, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        for number, frame in came:
            handlers[signal.Signals(number)](number, frame)
