"""Lines of a stream that comes in pieces."""

from __future__ import annotations


class LineBuffer:
    """Parts pieces into lines. However long a line is, each byte is searched once and copied twice."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self.size = 0
        """The bytes of the line that has begun."""

    def add(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without their ends."""
        first, *others = piece.split(b"\n")
        lines = []
        self._begin(first)
        for line in others:
            lines.append(self.take())
            self._begin(line)
        return lines

    def take(self) -> bytes:
        """Return what has come of the line that has begun; the rest is a line of its own."""
        line = b"".join(self._begun)
        self._begun.clear()
        self.size = 0
        return line

    def _begin(self, part: bytes) -> None:
        if part:
            self._begun.append(part)
            self.size += len(part)
