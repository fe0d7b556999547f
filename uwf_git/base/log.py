"""The debug log, off by default.

    log.debug("5K0R2X7M", "asks {agent} for step {number}", agent=name, number=3)

The first argument is the call's unique tag, eight characters of Crockford Base32, so that a record leads to
its line. `{name}` in the content stands for a field; other fields are added. Without a log a call costs next
to nothing.

`log_files` decides where records go, and removes secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

Write = Callable[[int, str, str, dict[str, object]], None]
"""Takes a record: level, tag, content with its places unfilled, fields. Must not raise."""

_OFF = 100

_threshold = _OFF
_write: Write | None = None
_about: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039 -- nobody changes it


def begin(level: int, write: Write) -> None:
    """Send records of this level and above to `write`."""
    global _threshold, _write
    _threshold, _write = level, write


def end() -> None:
    global _threshold, _write
    _threshold, _write = _OFF, None


def is_on() -> bool:
    return _write is not None


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """Add fields, such as `thread` and `role`, to the block's records in this context."""
    before = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(before)


def debug(tag: str, content: str, /, **fields: object) -> None:
    _notify(DEBUG, tag, content, fields)


def info(tag: str, content: str, /, **fields: object) -> None:
    _notify(INFO, tag, content, fields)


def warning(tag: str, content: str, /, **fields: object) -> None:
    _notify(WARNING, tag, content, fields)


def error(tag: str, content: str, /, **fields: object) -> None:
    _notify(ERROR, tag, content, fields)


def _notify(level: int, tag: str, content: str, fields: dict[str, object]) -> None:
    if level >= _threshold and _write is not None:
        _write(level, tag, content, {**_about.get(), **fields})
