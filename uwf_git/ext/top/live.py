"""The output of a running agent, as lines that grow."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from uwf_git.ext.top.lines import MOST, Line, flat, line, lines
from uwf_git.plugin import Instance, ThreadId, role_name, watching

_SPOKEN = 20_000  # characters of an unfinished turn that are kept
_PRINTED = 200_000  # characters that a command printed since the last look
_RESULT = 12  # lines of a tool's result


class Live:
    """The events of a thread since it was opened, as lines; the oldest are dropped."""

    def __init__(self, instance: Instance, thread: ThreadId) -> None:
        """Raises NotFound, StoreDamaged."""
        self.thread = thread
        self._feed = watching.TurnFeed(instance, thread)
        self._lines: deque[Line] = deque(maxlen=MOST)
        self._spoken = ""
        self._printed = ""

    def look(self) -> bool:
        """Take over what is new; return whether there was anything. Raises NotFound, StoreDamaged."""
        news = self._feed.news()
        for event in news:
            self._add(event)
        return bool(news)

    def lines(self) -> tuple[Line, ...]:
        tail = [*lines(self._spoken)] if self._spoken else []
        tail += [*lines(self._printed, "dim")] if self._printed else []
        return (*self._lines, *tail)

    def _add(self, event: watching.Event) -> None:
        match event:
            case watching.StepBegan(_, order, _):
                self._lines.append(
                    line(f"step {order.number} · {role_name(order.role)} by {order.credit.name}", "bold")
                )
            case watching.WordsAdded(_, text):
                self._spoken = (self._spoken + text)[-_SPOKEN:]
            case watching.WordsDropped():
                self._spoken = ""
            case watching.LinesPrinted(_, text):
                whole, _, self._printed = (self._printed + text).rpartition("\n")
                self._printed = self._printed[-_SPOKEN:]
                if whole:
                    self._lines.extend(lines(whole[-_PRINTED:], "dim"))
            case watching.TurnAdded(_, turn, _):
                if turn.role == "assistant":
                    self._spoken = ""
                self._lines.extend(_turn(turn))
            case watching.StepMade(_, _, number, failed):
                self._spoken = self._printed = ""
                end = line(f"step {number} failed", "bad") if failed else line(f"step {number} made", "good")
                self._lines.append(end)


def _turn(turn: Any) -> Iterator[Line]:
    if turn.tool is None:
        if turn.role == "assistant":
            yield from lines(turn.text.strip())
        else:
            yield line(f"{turn.role}: {turn.text}", "dim")
        return
    mark = "failed: " if turn.failed else ""
    yield line(f"› {mark}{turn.tool} {_plain(turn.arguments)}", "bad" if turn.failed else "calm")
    result = _plain(turn.result) if turn.result not in (None, "") else turn.text
    shown: Sequence[Line] = [*lines(result[:_SPOKEN].strip(), "dim", "  ")] if result.strip() else ()
    yield from shown[:_RESULT]
    if len(shown) > _RESULT:
        yield line(f"  [… {len(shown) - _RESULT} more lines]", "dim")


def _plain(value: Any) -> str:
    return flat(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:_SPOKEN]
