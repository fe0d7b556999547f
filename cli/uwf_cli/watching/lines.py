"""Live lines at the bottom of a terminal.

The work needs the main thread, for signals and time limits, so lines are drawn by another thread that reads
only the private folder. Permanent output is printed while they are hidden, and nothing is left at the end.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from uwf_cli import terminal
from uwf_cli.output import whose
from uwf_git.base.errors import OutputFailed
from uwf_git.base.terminal import drawing
from uwf_git.base.text import counted
from uwf_git.format.types import role_name

if TYPE_CHECKING:
    from uwf_git.api.progress import Progress
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

_TICK = 0.15  # seconds
_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[A", "\x1b[K", "\x1b[J"

Compose = Callable[[], Sequence[str]]


class Lines:
    """Draws the lines of `compose`, called in another thread, until the block ends. Texts are escaped, and
    cut at the terminal's edge."""

    def __init__(self, compose: Compose) -> None:
        self._compose = compose
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._shown: tuple[str, ...] = ()
        self._hiding = 0
        self._thread = threading.Thread(target=self._draw_on, daemon=True)
        self._stack = ExitStack()

    def __enter__(self) -> Lines:
        self._stack.enter_context(drawing(self.hidden))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._lock:
            self._hiding += 1  # for good
            self._erase()
        self._stack.close()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the lines for the block, reentrant."""
        with self._lock:
            self._hiding += 1
            self._erase()
        try:
            yield
        finally:
            with self._lock:
                self._hiding -= 1

    def _draw_on(self) -> None:
        while not self._over.wait(_TICK):
            try:
                with self._lock:
                    if not self._hiding:
                        self._draw()
            except (OSError, ValueError, MemoryError):  # memory is short for a moment
                continue

    def _draw(self) -> None:
        width, height = _size()
        texts = list(self._compose())
        if len(texts) >= height > 1:
            texts[height - 2 :] = [f"… and {len(texts) - height + 2} more"]
        lines = tuple(terminal.cut(re.sub(r"[\t\n]", " ", text), max(width - 1, 1)) for text in texts)
        if lines == self._shown:
            return
        if not lines:
            self._erase()
            return
        out = _back_over(self._shown) + "\n".join(line + _ERASE_LINE for line in lines) + _ERASE_BELOW
        self._shown = lines
        _write(out)

    def _erase(self) -> None:
        if self._shown:
            out, self._shown = _back_over(self._shown) + _ERASE_BELOW, ()
            _write(out)


def of_step(instance: Instance, thread: ThreadId) -> Lines:
    """The live line of a thread's steps from now on."""
    from uwf_git.api.progress import Watch

    watch, began = Watch(instance), time.time()

    def compose() -> list[str]:
        step = watch.step(thread)
        # Leftovers of a killed engine are not running.
        return [step_line(step)] if step and (step.since >= began or instance.locks.is_held(thread)) else []

    return Lines(compose)


def step_line(step: Progress) -> str:
    """Format a step in progress like a finished one's line."""
    from uwf_git.api.progress import step_value

    who, at = "", step
    while True:
        who += terminal.escape(f"{role_name(at.role)} {whose(at.credit.as_json())}")
        if at.child is None:
            break
        who, at = f"{who} → ", at.child
    value = terminal.escape_value(step_value(at))
    return " · ".join([f"{step.number:4d}  {who}", lasted(time.time() - step.since), *spent(value)])


def spent(value: Mapping[str, Any]) -> list[str]:
    """Return what else is known of a step: model, turns, tokens, latest output."""
    known = (
        value["model"],
        counted(value["turns"], "turn") if value["turns"] else "",
        tokens(value["tokens"]) if value["tokens"] else "",
        value["last"],
    )
    return [item for item in known if item]


def lasted(seconds: float) -> str:
    """Format whole seconds: "12s", "3m 12s", "1h 4m"."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m {whole % 60}s" if whole < 3600 else f"{whole // 3600}h {whole % 3600 // 60}m"


def tokens(number: int) -> str:
    """Format tokens: "980 tokens", "12.4k tokens"."""
    if number < 10_000:
        return counted(number, "token")
    return f"{number / 1000:.1f}k tokens" if number < 1_000_000 else f"{number / 1_000_000:.1f}M tokens"


def _back_over(shown: Sequence[str]) -> str:
    return "\r" + _UP * (len(shown) - 1)


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def _write(text: str) -> None:
    with suppress(OSError, ValueError, OutputFailed):  # the terminal is gone
        sys.stdout.write(text)
        sys.stdout.flush()
