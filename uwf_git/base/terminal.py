"""The process's terminal: nothing else is drawn on it during a question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

_drawn: list[Callable[[], AbstractContextManager[None]]] = []


@contextmanager
def drawing(hidden: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Something is drawn repeatedly during the block; `hidden` hides it for a block, from any thread."""
    _drawn.append(hidden)
    try:
        yield
    finally:
        _drawn.remove(hidden)


def is_drawn_on() -> bool:
    return bool(_drawn)


@contextmanager
def undisturbed() -> Iterator[None]:
    """The terminal belongs to the caller during the block, as for a question."""
    with ExitStack() as stack:
        for hidden in list(_drawn):
            stack.enter_context(hidden())
        yield
