"""What is being done, told to whoever debugs it: nothing, unless somebody asked for a log.

    log.debug("5K0R2X7M", "asks {agent} for step {number}", agent=name, number=3)

The first argument is the tag of the call: eight characters of Crockford Base32, 40 random bits, that stand nowhere
else, so that a record leads to its line. The second is the content, in which a `{name}` stands for the field of that
name; the others go with it as they are. A record tells what no output says otherwise. While there is no log a call
costs next to nothing, as long as its fields are values that are there anyway.

Who opens a log says where records go, and takes the secrets out of them; see `log_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""As `logging` counts them, which is imported where there is a log."""

LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

Write = Callable[[int, str, str, dict[str, object]], None]
"""Takes a record: level, tag, content with its places unfilled, fields. Must not raise."""

_OFF = 100

_threshold = _OFF
_write: Write | None = None
_about: ContextVar[Mapping[str, object]] = ContextVar("about", default={})  # noqa: B039 -- nobody changes it


def begin(level: int, write: Write) -> None:
    """From now on `write` takes the records of that level and above."""
    global _threshold, _write
    _threshold, _write = level, write


def end() -> None:
    """From now on there is no log."""
    global _threshold, _write
    _threshold, _write = _OFF, None


def is_on(level: int = ERROR) -> bool:
    """Whether records of that level are taken."""
    return level >= _threshold


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """The records of the block have these fields too: the `thread` that it is at, the `role`. Those of other threads of
    the program do not."""
    before = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(before)


def debug(tag: str, content: str, /, **fields: object) -> None:
    """What only somebody who debugs wants to know."""
    _tell(DEBUG, tag, content, fields)


def info(tag: str, content: str, /, **fields: object) -> None:
    """What happened, in the large."""
    _tell(INFO, tag, content, fields)


def warning(tag: str, content: str, /, **fields: object) -> None:
    """What went another way than it should, and was coped with."""
    _tell(WARNING, tag, content, fields)


def error(tag: str, content: str, /, **fields: object) -> None:
    """What failed."""
    _tell(ERROR, tag, content, fields)


def _tell(level: int, tag: str, content: str, fields: dict[str, object]) -> None:
    if level >= _threshold and _write is not None:
        _write(level, tag, content, {**_about.get(), **fields})
