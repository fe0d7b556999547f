"""The line for typing, below the foot."""

from __future__ import annotations

import asyncio

from textual.widgets import Input


class Entry(Input):
    """Hidden until a line is asked for. It has the keys until Enter or Esc."""

    can_focus = False  # Tab is a key of the screen
    _line: asyncio.Future[str | None] | None = None

    @property
    def is_shown(self) -> bool:
        return self._line is not None and not self._line.done()

    async def read(self, value: str = "") -> str | None:
        """Return a typed line, None after Esc. `value` is there to begin with."""
        self.value = value
        self.add_class("-shown")
        self.can_focus = True
        self.screen.set_focus(self)
        self._line = asyncio.get_running_loop().create_future()
        try:
            return await self._line
        finally:
            self._line = None
            self.remove_class("-shown")
            self.screen.set_focus(None)
            self.can_focus = False

    def end(self, line: str | None) -> None:
        if self._line is not None and not self._line.done():
            self._line.set_result(line)
