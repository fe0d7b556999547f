"""`uwf top` in this process, on a screen in memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

if TYPE_CHECKING:
    from uwf_git.ext.top.app import Top

_PATIENCE = 60.0  # seconds


class Player:
    """Presses keys, and reads the screen. `app` is the application itself."""

    def __init__(self, app: Top, pilot: Any) -> None:
        self.app, self._pilot = app, pilot

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without spaces at their ends."""
        rows = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in row).rstrip() for row in rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type a line, and press Enter."""
        self.app._entry.value = text
        await self.press("enter")

    async def wait(self, condition: str | Callable[[str], bool]) -> None:
        """Return once the screen has a text, or meets a condition."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + _PATIENCE
        while not holds(self.text):
            assert time.monotonic() < deadline, f"never shown: {condition}\n{self.text}"
            await asyncio.sleep(0.02)


def play(
    script: Callable[[Player], Awaitable[None]], *words: str, columns: int = 160, rows: int = 50
) -> None:
    """Run the application with a filter, and a script on it."""
    from uwf_git.ext.top.app import Top
    from uwf_git.ext.top.filters import parse

    async def played() -> None:
        location = locate(None, os.environ, Path.cwd())
        app = Top(location, None, parse(Instance(location), words))
        async with app.run_test(size=(columns, rows)) as pilot:
            await script(Player(app, pilot))

    asyncio.run(played())
