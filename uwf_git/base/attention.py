"""The one terminal of this process: while a person is asked something there, nothing else is drawn on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

_drawn: list[Callable[[], AbstractContextManager[None]]] = []


@contextmanager
def drawing(hidden: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """For the block something is drawn on the terminal, again and again; `hidden` makes what takes it away for a
    block, and may be called by any thread."""
    _drawn.append(hidden)
    try:
        yield
    finally:
        _drawn.remove(hidden)


def is_drawn_on() -> bool:
    """Whether something is drawn on the terminal again and again."""
    return bool(_drawn)


@contextmanager
def undisturbed() -> Iterator[None]:
    """For the block the terminal belongs to its caller alone, as for a question to a person."""
    with ExitStack() as stack:
        for hidden in list(_drawn):
            stack.enter_context(hidden())
        yield
