"""What stands on a terminal's screen after all that was written to it, as far as `uwf` steers one."""

from __future__ import annotations

import re
from unicodedata import east_asian_width

_TOKEN = re.compile(r"\x1b\[(?P<number>[0-9;]*)(?P<verb>[A-Za-z])|(?P<text>.)", re.DOTALL)


class Screen:
    """A screen of so many columns, endless downwards. A line that goes beyond the last column makes
    `wrapped` true; `ever` are the lines as they stood when they were drawn over."""

    def __init__(self, columns: int, written: str) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self.wrapped = False
        self.ever: list[str] = []
        for token in _TOKEN.finditer(written):
            if token["verb"]:
                self._steer(token["verb"], token["number"])
            else:
                self._put(token["text"])

    @property
    def text(self) -> str:
        """The lines that stand there at the end, without those that are empty below the last."""
        return "\n".join("".join(row).rstrip() for row in self._rows).rstrip("\n")

    def _steer(self, verb: str, number: str) -> None:
        if verb == "A":
            self._row = max(0, self._row - int(number or 1))
        elif verb == "K":
            self._keep()
            del self._rows[self._row][self._column :]
        elif verb == "J":
            self._keep()
            del self._rows[self._row][self._column :]
            del self._rows[self._row + 1 :]
        else:
            assert verb == "m", f"nothing here knows what ESC [ {number} {verb} does"

    def _keep(self) -> None:
        self.ever.append("".join(self._rows[self._row]).rstrip())

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row, self._column = self._row + 1, 0
            self._rows += [[] for _ in range(self._row + 1 - len(self._rows))]
        else:
            assert character.isprintable(), f"{character!r} reached the terminal"
            wide = 2 if east_asian_width(character) in "WF" else 1
            if self._column + wide > self._columns:
                self.wrapped = True
            row = self._rows[self._row]
            row += " " * (self._column + wide - len(row))
            row[self._column : self._column + wide] = [character] + [""] * (wide - 1)
            self._column += wide
