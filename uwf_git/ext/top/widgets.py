"""The parts of the screen. Each draws its own lines, and redraws those that have changed alone."""

from __future__ import annotations

import math
import re
import time
from abc import abstractmethod
from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from uwf_git.ext.top.board import ASKS, ENDED, FAILED, IDLE, PAUSED, READY, RUNNING, Board, Item, Row
from uwf_git.ext.top.lines import Line, fit, flat, segments, shifted, wrapped
from uwf_git.ext.top.pane import STEPS, TABS
from uwf_git.plugin import ThreadState, extensions, left_out_line, role_name, thread_states, time_ago

_THREAD_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
_SIGNS = {
    ASKS: ("?", "warn"),
    FAILED: ("!", "bad"),
    READY: ("+", "good"),
    RUNNING: (">", "busy"),
    IDLE: ("-", ""),
    PAUSED: ("=", "calm"),
    ENDED: (".", "dim"),
}
_WORDS = {
    ASKS: "ask you",
    FAILED: ThreadState.FAILED.label,
    READY: " or ".join(action.queue_label for action in extensions.thread_actions() if action.queue),
    RUNNING: ThreadState.RUNNING.label,
    IDLE: ThreadState.IDLE.label,
    PAUSED: ThreadState.PAUSED.label,
    ENDED: "ended",
}
_SILENT = 180  # seconds after which silence is told
_SHOWN = 8.0  # seconds that a message stays
_TITLE = 300  # characters
_FIRST = 40  # rows that are read before the size is known

Parts = Sequence[tuple[str, str]]


class Surface(Widget):
    """A widget that is lines of text."""

    DEFAULT_CSS = "Surface { background: ansi_default; color: ansi_default; }"

    _strips: Sequence[Strip] = ()

    @abstractmethod
    def parts(self, y: int) -> tuple[Parts, str]:
        """Return the texts of a line with their styles, and the style below all of it."""

    def redraw(self) -> None:
        width, height = self.size
        strips = [Strip(self._line(y, width), width) for y in range(height)]
        before, self._strips = self._strips, strips
        changed = [
            Region(0, y, width, 1) for y, strip in enumerate(strips) if y >= len(before) or before[y] != strip
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def on_resize(self) -> None:
        self._strips = ()
        self.redraw()

    def _line(self, y: int, width: int) -> list[Segment]:
        parts, base = self.parts(y)
        return segments(parts, width, base)


class Bar(Surface):
    """The counts, today's cost, and the number of agents at work and of those allowed."""

    board = Board()
    filter = ""
    shown = 0

    def parts(self, y: int) -> tuple[Parts, str]:
        board = self.board
        parts: list[tuple[str, str]] = [(" uwf top ", "pressed")]
        for group, word in _WORDS.items():
            if number := board.counts.get(group, 0):
                sign, style = _SIGNS[group]
                parts.append((f"  {sign} {number} {word}", style))
        if board.spent is not None:
            parts.append((f"  {_dollars(board.spent)} today", ""))
        most = f" of {board.most}" if board.most is not None else ""
        parts.append((f"  agents {board.running}{most}", ""))
        if self.filter:
            parts.append((f"  / {flat(self.filter, 200)}", "calm"))
        return parts, ""


class ThreadList(Surface):
    """The threads, a line each; those of branches are indented."""

    rows: Sequence[Row] = ()
    marked: frozenset[str] = frozenset()
    problem = ""
    left_out = 0
    is_filtered = False
    cursor = 0
    top = 0
    is_active = True

    @property
    def sight(self) -> range:
        """The places of the rows that are shown, and of those a screen before and after."""
        height = self.size.height or _FIRST
        return range(max(0, self.top - height), self.top + 2 * height)

    @property
    def is_bare(self) -> bool:
        """Whether a row in sight has yet to be read."""
        rows = self.rows
        return any(rows[place].item is None for place in self.sight if place < len(rows))

    def place(self, cursor: int) -> None:
        """Put the cursor on a row that is there, and scroll to it."""
        height = max(1, self.size.height)
        self.cursor = max(0, min(cursor, len(self.rows) - 1))
        self.top = max(0, min(self.top, self.cursor, len(self.rows) - height), self.cursor - height + 1)

    def take(self, rows: Sequence[Row], cursor: int) -> None:
        """Take over new rows, and leave the cursor's row in its place on the screen."""
        self.top = max(0, self.top + cursor - self.cursor)
        self.rows = rows
        self.place(cursor)

    def parts(self, y: int) -> tuple[Parts, str]:
        place = self.top + y
        if place >= len(self.rows):
            if self.rows or y > 1:
                return (), ""
            if self.problem:
                return [(f" {flat(self.problem)}" if not y else "", "bad")], ""
            others = "" if self.is_filtered else "/ --all has those that have ended"
            if self.left_out:
                others = left_out_line(self.left_out)
            return [(f" {others if y else 'no such threads'}", "dim")], ""
        row = self.rows[place]
        base = ("chosen" if self.is_active else "bold") if place == self.cursor else ""
        return row_parts(row, self.size.width, row.thread in self.marked, time.time()), base


def row_parts(row: Row, width: int, is_marked: bool, now: float) -> Parts:
    """Return a row's texts in columns: the state's sign, the task, its line, the role at work, asking or next, age and
    cost. Narrow lists have fewer."""
    sign, style = _SIGNS[row.group]
    marks = [("*" if is_marked else " ", "warn"), (sign, style), (" ", "")]
    head, item = row.head, row.item or {}
    if head is None:
        return [*marks, (f"{row.thread[-6:]} {flat(problem_of(row), _TITLE)}", style)]
    who = 11 if width >= 48 else 0
    room = width - 3 - who - 5 - 9
    title = flat(f"{'  ' * min(row.depth, 4)}{_mark(row, item)}{row.title}", _TITLE)
    line = flat(_about(item, now), _TITLE) if room >= 44 else ""
    named = room if not line else max(20, min(room // 2, 56))
    parts = [*marks, (fit(title, named), "")]
    if room > named:
        parts.append((fit(f" {line}", room - named), style if row.group in (ASKS, FAILED) else "dim"))
    if who:
        role = item.get("now") or (None if row.state.is_ended else head.row.role)
        parts.append((fit(f" {flat(role_name(role) if role else row.state.label, 40)}", who), style))
    parts.append((fit(_age(item.get("since") or head.updated, now), 5, right=True), "dim"))
    parts.append((fit(_cost(item), 9, right=True), ""))
    return parts


def problem_of(row: Row) -> str:
    """Return why a damaged thread cannot be read."""
    return str(getattr(row.listed.head, "problem", ""))


def _mark(row: Row, item: Item) -> str:
    counts = item.get("branches")
    branches = f"{item['branchesEnded']} of {sum(counts.values())}" if counts else ""
    below = ", ".join(filter(None, (branches, thread_states.asking_text(item))))
    marks = "pausing: " if row.is_pausing else "", f"({below}) " if below else ""
    return "".join(marks) + ("fork: " if item.get("forkedFrom") else "")


def _about(item: Item, now: float) -> str:
    heard = item.get("heard")
    silent = int(now - heard) if heard else 0
    waits = f"silent for {silent // 60} min · " if silent >= _SILENT else ""
    return waits + (item.get("problem") or item.get("line") or "")


def _age(since: float, now: float) -> str:
    return time_ago(since, now).removesuffix(" ago")[:4]


def _cost(item: Item) -> str:
    cost = item.get("cost")
    return "" if cost is None else f"{'≥' if item['unpriced'] else ''}{_dollars(cost)}"


def _dollars(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 0.005 or not cost else "<$0.01"


class Pane(Surface):
    """A thread in tabs: a title, the tabs, lines."""

    title = about = ""
    tab = TABS[0]
    step: int | None = None
    lines: Sequence[Line] = ()
    top = 0
    left = 0
    chosen = 0
    follows = False
    drawn = 0.0  # when these lines were first drawn, on the monotonic clock
    read = math.inf  # and when the last one of those that ask was
    is_active = False
    is_alone = False
    is_help = False
    _whole: Sequence[Line] = ()
    _asks = 0  # lines from the first to the last one that asks

    @property
    def page(self) -> int:
        """How many lines there is room for."""
        height: int = self.size.height
        return max(1, height - (0 if self.is_help else 2))

    def move(self, lines: int) -> None:
        """Choose another step in the tab of steps, else scroll."""
        if self.is_help or self.tab != STEPS:
            self._scroll_by(lines)
        elif numbers := [item.choice for item in self.lines if item.choice]:
            place = numbers.index(self.chosen) if self.chosen in numbers else -1
            self._choose(numbers[max(0, min(place + lines, len(numbers) - 1))])

    def _scroll_by(self, lines: int) -> None:
        last = max(0, len(self.lines) - self.page)
        self.top = max(0, min(self.top + lines, last))
        self.follows = (self.follows and self.top == last) or (lines > 0 and self.top == last)

    def _choose(self, number: int) -> None:
        self.chosen = number
        for place, item in enumerate(self.lines):
            if item.choice == number:
                self.top = max(0, min(self.top, place), place - self.page + 1)

    def show(self, lines: Sequence[Line]) -> None:
        self._whole, self.drawn, self.read = lines, math.inf, math.inf
        self._wrap()
        last = max(0, len(self.lines) - self.page)
        self.top = last if self.follows else min(self.top, last)

    def _wrap(self) -> None:
        self.lines = wrapped(self._whole, self.size.width - len(self._edge[0]))
        self._asks = max((place for place, item in enumerate(self.lines, 1) if item.asks), default=0)

    def redraw(self) -> None:
        super().redraw()
        if self.display and not self.left and self.top + self.page >= self._asks:
            self.read = min(self.read, time.monotonic())

    def on_resize(self) -> None:
        self._wrap()
        super().on_resize()

    def parts(self, y: int) -> tuple[Parts, str]:
        self.drawn = min(self.drawn, time.monotonic())
        if not self.is_help:
            if y == 0:
                title = fit(flat(self.title, _TITLE), max(20, self.size.width - len(self.about) - 4))
                return [self._edge, (title, "bold"), (f"  {flat(self.about, _TITLE)}", "dim")], ""
            if y == 1:
                return self._tabs(), ""
            y -= 2
        place = self.top + y
        if place >= len(self.lines):
            return [self._edge], ""
        item = self.lines[place]
        is_chosen = item.choice and item.choice == self.chosen and self.is_active
        return [self._edge, (shifted(item.text, self.left), item.style)], "chosen" if is_chosen else ""

    @property
    def _edge(self) -> tuple[str, str]:
        return (" " if self.is_alone else "│ "), "dim"

    def _tabs(self) -> Parts:
        parts: list[tuple[str, str]] = [self._edge]
        for name in TABS:
            word = f"{name} {self.step}" if (self.step or 0) > 0 and name in ("diff", "prompt") else name
            parts.append((f" {word} ", "pressed" if name == self.tab else "dim"))
        return parts


class Foot(Surface):
    """What the line for typing is for, else the last message, else a warning, else the keys."""

    hint = ""
    warning = ""
    _label = ""
    _message = ""
    _is_bad = False
    _ends = 0.0  # when the message goes, on the monotonic clock

    def label(self, text: str) -> None:
        """Say what is typed now; messages wait until it is empty again."""
        self._label = text
        self.redraw()

    def tell(self, text: str, is_bad: bool = False) -> None:
        self._message, self._is_bad, self._ends = text, is_bad, time.monotonic() + _SHOWN
        self.redraw()

    def pass_time(self) -> None:
        if self._message and time.monotonic() >= self._ends:
            self.tell("")

    def parts(self, y: int) -> tuple[Parts, str]:
        if self._label:
            return [(f" {flat(self._label)}", "good")], ""
        if self._message:
            text = f" {flat(self._message)}"
            if len(text) > self.size.width:  # what to do next stands at its end
                text = _THREAD_ID.sub(lambda match: f"…{match[0][-6:]}", text)
            return [(text, "bad" if self._is_bad else "good")], ""
        if self.warning:
            return [(f" {self.warning}", "warn")], ""
        return [(f" {self.hint}", "dim")], ""
