"""Redacting a text that arrives in pieces, forwarding each as early as possible.

Text is held back only from a possible beginning of a secret: a few characters of a known one, or a token's
mark up to the next white space. So the first characters of a secret may be shown, but never the rest.
"""

from __future__ import annotations

import re

from uwf_git.base.text import COLOURS
from uwf_git.config.secrets import Redactor
from uwf_git.config.tokens import SHAPES

_SECRET_PREFIX = 4  # characters that a secret begins with
_LONGEST_HELD = 20_000  # characters; a private key is shorter
_PEM = "-----BEGIN "


class StreamedText:
    """A streamed text."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._marks = re.compile(
            "|".join(map(re.escape, sorted({mark for shape in SHAPES for mark in shape.marks})))
        )
        self._longest = max((len(mark) for shape in SHAPES for mark in shape.marks), default=_SECRET_PREFIX)
        self._passed = ""  # the end of the emitted text, in which marks and secrets may start
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be forwarded after a piece, possibly ""."""
        self._held += piece
        full = self._passed + self._held
        place = len(full) if len(self._held) > _LONGEST_HELD else self._safe(full)
        return self._pass(max(place - len(self._passed), 0))

    @property
    def held(self) -> str:
        """The end of what was fed that isn't forwarded yet."""
        return self._held

    def end(self) -> str:
        """Return the held back text, and reset."""
        text = self._pass(len(self._held))
        self._passed = ""
        return text

    def _pass(self, size: int) -> str:
        if not size:
            return ""
        before, text = self._passed, self._passed + self._held[:size]
        self._held = self._held[size:]
        self._passed = text[-self._longest :]
        clean = self._redactor.text(text)[0]
        shown = next(
            (n for n, (one, other) in enumerate(zip(clean, before, strict=False)) if one != other), None
        )
        return clean[min(len(before), len(clean)) if shown is None else shown :]

    def _safe(self, text: str) -> int:
        place = len(text)
        for value in self._redactor.known:
            for start in range(max(0, len(text) - len(value) + 1), len(text) - _SECRET_PREFIX + 1):
                if value.startswith(text[start:]):
                    place = min(place, start)
                    break
        for mark in self._marks.finditer(text):
            begun = re.search(r"\S*$", text[: mark.start()])
            rest = text[mark.end() :]
            if "-----END " not in rest if mark[0] == _PEM else not re.search(r"\s", rest):
                return min(place, begun.start() if begun else 0)
        return place


class ColouredText:
    """A streamed text with colours, in which secrets are found as if it had none: where one is redacted, the colours of
    the piece are dropped."""

    def __init__(self, redactor: Redactor) -> None:
        self._plain = StreamedText(redactor)
        self._colours: list[tuple[int, str]] = []  # their places in what is held back

    def feed(self, piece: str) -> str:
        """As `StreamedText.feed`."""
        held = self._plain.held
        colours, text, size = self._colours, held, len(held)
        for part in re.split(f"({COLOURS})", piece):
            if part.startswith("\x1b["):
                colours.append((size, part))
            else:
                text += part
                size += len(part)
        clean = self._plain.feed(text[len(held) :])
        passed = size - len(self._plain.held)
        self._colours = [(place - passed, colour) for place, colour in colours if place > passed]
        if clean != text[:passed]:
            return clean
        parts, at = [], 0
        for place, colour in colours:
            if place <= passed:
                parts += [clean[at:place], colour]
                at = place
        return "".join(parts) + clean[at:]
