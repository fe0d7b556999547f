"""The application: what is on its screen, and where its keys lead."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from uwf_git.ext.top import actions, filters, keys
from uwf_git.ext.top.board import ASKS, RUNNING, Board, Row
from uwf_git.ext.top.entry import Entry
from uwf_git.ext.top.feed import Feed, Wanted
from uwf_git.ext.top.filters import LAST_NIGHT, Filter
from uwf_git.ext.top.guard import Guard
from uwf_git.ext.top.handover import hand_over
from uwf_git.ext.top.pane import DIFF, LIVE, PROMPT, STEPS, TABS, Content, content
from uwf_git.ext.top.question import Answer, Decision
from uwf_git.ext.top.reader import Reader
from uwf_git.ext.top.steering import Steering, named
from uwf_git.ext.top.widgets import Bar, Foot, Pane, ThreadList
from uwf_git.plugin import CommandFailed, Instance, Location, ThreadId, UwfError, itself, system

WIDE = 120
"""Columns from which on the list and a thread are beside each other."""

_TICK = 0.2  # seconds between two looks at the store
_AGES = 10.0  # and between two drawings of ages
_SIDEWAYS = 20  # columns

_HINT = "Enter open  a answer  r run  s stop  p pause  f fork  / filter  : command  ? keys  q quit"


def run(location: Location, place: Path | None, wanted: Filter) -> None:
    """Run the application on this terminal until it is left."""
    Top(location, place, wanted).run(mouse=False)


class Top(App[None]):
    """The board of a store, the thread under the cursor, and a line for input."""

    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", priority=True, show=False)]
    CSS = """
    Screen { background: ansi_default; color: ansi_default; layout: vertical; }
    Bar, Foot { height: 1; }
    Horizontal { height: 1fr; }
    ThreadList { width: 1fr; height: 100%; }
    Pane { width: 1fr; height: 100%; }
    Entry { height: 1; border: none; padding: 0 1; display: none; background: ansi_default; color: ansi_default; }
    Entry.-shown { display: block; }
    """

    def __init__(self, location: Location, place: Path | None, wanted: Filter) -> None:
        super().__init__(ansi_color=True)
        self._location = location
        self._reader = Reader(location, place)
        self._bar, self._foot, self._entry = Bar(), Foot(), Entry()
        self._list, self._pane = ThreadList(), Pane()
        self._actions = actions.Actions(location, self._foot.tell)
        self._steering = Steering(self._reader, self._actions, self._ask, self._foot.tell)
        self._filter = wanted
        self._before_night: Filter | None = None
        self._feed = Feed()
        self._lacks_live = True
        self._board = Board()
        self._is_open = False
        self._guard = Guard()
        self._answers = False
        self._ignored = ""
        self._shown: object = None
        self._answered: dict[ThreadId, str] = {}
        self._changed = asyncio.Event()
        self._awake = asyncio.Event()
        self._is_stale = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._drawn_at = 0.0
        self._by_key = keys.actions()
        self._of_extensions = keys.of_extensions()

    def compose(self) -> ComposeResult:
        yield self._bar
        yield Horizontal(self._list, self._pane)
        yield self._foot
        yield self._entry

    def on_mount(self) -> None:
        self._foot.hint = _HINT
        loop = asyncio.get_running_loop()
        for number in system.END_SIGNALS:
            with suppress(ValueError, RuntimeError):  # not in the main thread, as in tests
                loop.add_signal_handler(number, self.exit)
        self._lay_out()
        self._begin(self._watch())
        self._begin(self._show())

    def on_unmount(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._actions.close()
        self._reader.close()

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)  # until then it has its old size

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, CommandFailed):
                self._foot.tell(actions.message_of(error), True)
            elif isinstance(error, UwfError):
                self._foot.tell(actions.in_a_line(error.message, error.hint), True)
            else:
                assert isinstance(error, Exception)
                self._handle_exception(error)

    # Watching

    async def _watch(self) -> None:
        """Look at the store again and again, and show what is new."""
        while True:
            again, began = self._is_stale, time.monotonic()
            self._is_stale = False
            self._awake.clear()
            row = self._row
            running = row.thread if row is not None and self._follows(row.thread) else None
            wanted = Wanted(self._filter, self._list.sight, running, again, self._lacks_live)
            try:
                board, live = await self._reader(partial(self._feed.look, wanted))
            except UwfError as error:
                board, live = Board(problem=error.message), None
                self._is_stale = True
            if board is not None:
                self._take(board)
            if live is not None and self._follows(running):
                self._lacks_live = False
                self._pane.show(live)
                self._pane.redraw()
            self._pass_time()
            with suppress(TimeoutError):  # a store that takes long to read is read less often
                await asyncio.wait_for(self._awake.wait(), max(_TICK, time.monotonic() - began))

    def _look_again(self) -> None:
        self._is_stale = True
        self._awake.set()

    def _follows(self, thread: ThreadId | None) -> bool:
        """Return whether the pane shows the live output of a thread."""
        row, pane = self._row, self._pane
        is_live = self._is_pane_shown and pane.tab == LIVE and not pane.is_help
        return is_live and row is not None and row.thread == thread and row.group == RUNNING

    def _take(self, board: Board) -> None:
        before = self._row
        self._board = board
        places = {row.thread: place for place, row in enumerate(board.rows)}
        cursor = places.get(before.thread, self._list.cursor) if before is not None else 0
        self._list.take(board.rows, cursor)
        if before is None:
            self._expect()
        if self._list.is_bare:
            self._awake.set()
        self._list.problem, self._list.left_out = board.problem, board.left_out
        self._list.is_filtered = bool(self._filter.words)
        self._list.marked &= places.keys()
        asking = {row.thread for row in board.rows if row.group == ASKS}
        self._answered = {at: key for at, key in self._answered.items() if at in asking}
        self._bar.board = board
        self._bar.filter = self._filter.text
        self._draw()

    def _pass_time(self) -> None:
        now = time.monotonic()
        pause = 1.0 if self._board.running else _AGES
        if now - self._drawn_at >= pause:
            self._drawn_at = now
            self._list.redraw()
        self._foot.pass_time()

    # The pane

    async def _show(self) -> None:
        """Read what the pane is to show, whenever that is something else."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            row, pane = self._row, self._pane
            wanted = self._wanted()
            if wanted is None or wanted == self._shown or row is None:
                continue
            read = await self._reader(partial(_read, row, pane.tab, pane.step))
            if wanted == self._wanted() and not pane.is_help:
                self._shown = wanted
                if self._guard.take(read.question):
                    pane.top = pane.left = 0
                self._lacks_live = pane.follows = self._follows(row.thread)
                if not pane.follows:
                    pane.show(read.lines)
                self._draw()

    def _expect(self) -> None:
        self._guard.expect(self._row.thread if self._row is not None else None)

    def _warning(self) -> str:
        """Return why a digit does not answer the question that is shown, "" if it does or there is none."""
        if self._guard.question is None or not self._is_pane_shown or self._pane.is_help:
            return ""
        if self._guard.is_replaced:
            return "another question is asked here now: a digit answers once you have read it"
        if self._pane.read == math.inf:
            return (
                "more below: End shows it" if self._is_open else "more below: a digit opens it, End shows it"
            )
        return ""

    def _wanted(self) -> object:
        """Return what the pane's content follows from, None if it isn't shown."""
        row, pane = self._row, self._pane
        if row is None or not self._is_pane_shown:
            return None
        return row.position, pane.tab, pane.step

    @property
    def _is_wide(self) -> bool:
        return bool(self.size.width >= WIDE)

    @property
    def _is_pane_shown(self) -> bool:
        return self._is_wide or self._is_open or self._pane.is_help

    @property
    def _row(self) -> Row | None:
        rows = self._list.rows
        return rows[self._list.cursor] if self._list.cursor < len(rows) else None

    def _lay_out(self) -> None:
        self._list.display = self._is_wide or not (self._is_open or self._pane.is_help)
        self._pane.display = self._is_pane_shown
        self._pane.is_alone = not self._is_wide
        self._list.styles.width = max(45, self.size.width * 3 // 8) if self._is_wide else "1fr"
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        row, pane = self._row, self._pane
        if self._wanted() != self._shown:
            if isinstance(self._shown, tuple) and row is not None and self._shown[0][0] != row.thread:
                pane.show(())
                pane.top, self._guard.question = 0, None
            self._changed.set()
        if row is None and not pane.is_help:
            pane.show(())
            pane.title, pane.about, self._guard.question = "", "", None
        elif row is not None:
            name = row.head.row.name if row.head is not None else None
            pane.title = row.title
            state = f"{row.state.label}, pauses after this step" if row.is_pausing else row.state.label
            pane.about = " · ".join(filter(None, [state, name, f"…{row.thread[-6:]}"]))
        pane.is_active = self._is_open
        self._list.is_active = not self._is_open
        self._list.place(self._list.cursor)
        for widget in (self._bar, self._list, pane):
            widget.redraw()
        self._foot.warning = self._warning()
        self._foot.redraw()

    # Keys

    async def on_event(self, event: events.Event) -> None:
        """Take keys in their order: through the widgets, those behind one that asks for a line would miss it."""
        if isinstance(event, events.Key) and event.key != "ctrl+c" and not self._entry.is_shown:
            await self._press(event)
        else:
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            self._entry.end(None)

    async def _press(self, event: events.Key) -> None:
        name = next((name for name in (event.key, event.character) if name and name in self._by_key), None)
        if name is not None:
            self._act(self._by_key[name])
            await asyncio.sleep(0)  # so that a line that is asked for gets the next key
        elif event.character and event.character.isascii() and event.character.isdigit():
            self._digit(int(event.character), event.time)
        elif event.character in self._of_extensions:
            self._begin(self._steering.extend(self._of_extensions[event.character], self._take_marked()))

    def _act(self, name: str) -> None:
        work = getattr(self, f"_do_{name}")()
        if work is not None:
            self._begin(work)
        self._draw()

    def _do_down(self) -> None:
        self._move(1)

    def _do_up(self) -> None:
        self._move(-1)

    def _do_page_down(self) -> None:
        self._move(self._page)

    def _do_page_up(self) -> None:
        self._move(-self._page)

    @property
    def _page(self) -> int:
        return self._pane.page if self._is_open or self._pane.is_help else max(1, self._list.size.height - 1)

    def _do_home(self) -> None:
        self._move(-(10**9))

    def _do_end(self) -> None:
        self._move(10**9)

    def _move(self, lines: int) -> None:
        if self._is_open or self._pane.is_help:
            self._pane.move(lines)
        else:
            self._go_to(self._list.cursor + lines)

    def _go_to(self, place: int) -> None:
        before = self._row
        self._list.place(place)
        if self._list.is_bare:
            self._awake.set()
        if self._row is not before:
            self._pane.step, self._pane.top, self._pane.left, self._pane.chosen = None, 0, 0, 0
            self._expect()

    def _do_left(self) -> None:
        self._pane.left = max(0, self._pane.left - _SIDEWAYS)

    def _do_right(self) -> None:
        self._pane.left += _SIDEWAYS

    def _do_open(self) -> None:
        if self._row is None or self._pane.is_help:
            return
        if self._is_open and self._pane.tab == STEPS and self._pane.chosen:
            self._pane.step = self._pane.chosen
            self._turn_to(DIFF)
            return
        if not self._is_open:
            self._is_open, self._answers = True, False
            self._turn_to(LIVE if self._row.group == ASKS else self._pane.tab)
        self._lay_out()

    def _do_close(self) -> None:
        if self._pane.is_help:
            self._do_help()
        elif self._is_open and self._pane.step is not None:
            self._pane.step = None
            self._turn_to(STEPS)
        elif self._is_open:
            self._is_open = self._answers = False
            self._lay_out()
        elif self._list.marked:
            self._list.marked = frozenset()
        elif self._filter != Filter():
            self._set_filter(Filter())

    def _do_next_tab(self) -> None:
        self._turn_by(1)

    def _do_last_tab(self) -> None:
        self._turn_by(-1)

    def _turn_by(self, tabs: int) -> None:
        self._turn_to(TABS[(TABS.index(self._pane.tab) + tabs) % len(TABS)])

    def _turn_to(self, tab: str) -> None:
        pane = self._pane
        pane.tab, pane.top, pane.left = tab, 0, 0
        self._answers = self._answers and tab == LIVE
        pane.show(())
        self._guard.question, self._shown = None, None
        self._expect()
        self._changed.set()

    def _do_diff(self) -> None:
        self._pane.step = None
        self._do_open()
        self._turn_to(DIFF)

    def _digit(self, number: int, typed: float) -> None:
        """Show a step of an opened thread, else choose an option. Nobody answers what they haven't seen: a key `typed`
        before the question was on the screen is told to be ignored."""
        row, pane = self._row, self._pane
        if pane.is_help or row is None:
            return
        if self._is_open and not self._answers:
            pane.step = number or None
            self._turn_to(PROMPT if pane.tab == PROMPT else DIFF)
        elif row.group != ASKS:
            self._ignore(f"{number}, nothing is asked here")
        elif not self._is_pane_shown or pane.tab != LIVE:
            self._is_open = self._answers = not self._is_wide
            self._turn_to(LIVE)
            self._lay_out()
        elif refusal := self._guard.refusal(row.thread, number, typed, pane.drawn):
            self._ignore(refusal)
        elif typed < pane.read:
            if not self._is_open:
                self._is_open = self._answers = True
                self._lay_out()
            self._ignore(f"{number}, {self._warning() or 'typed before all of the question was shown'}")
        elif (answer := self._guard.choose(number)) is None:
            self._foot.tell(f"there is no option {number}", True)
        else:
            self._ignored = ""
            self._begin(self._answer(row, answer))
        self._draw()

    def _ignore(self, key: str) -> None:
        self._ignored = f"ignored: {key}"
        self._foot.tell(self._ignored, True)

    def _do_mark(self) -> None:
        if (row := self._row) is not None:
            self._list.marked ^= {row.thread}
            self._go_to(self._list.cursor + 1)

    def _do_mark_all(self) -> None:
        threads = frozenset(row.thread for row in self._list.rows)
        self._list.marked = frozenset() if self._list.marked == threads else threads

    def _do_help(self) -> None:
        pane = self._pane
        pane.is_help = not pane.is_help
        pane.show(tuple(keys.help_lines()) if pane.is_help else ())
        pane.top = pane.left = 0
        self._shown = None
        self._lay_out()

    def _do_quit(self) -> None:
        self.exit()

    # Filters

    async def _do_filter(self) -> None:
        text = await self._ask(
            "filter: --status failed --since 12h --workflow W --view NAME text", self._filter.text
        )
        if text is not None:
            self._set_filter(await self._parsed(filters.split(text)))

    async def _do_last_night(self) -> None:
        if self._before_night is not None and self._filter.words == LAST_NIGHT:
            self._set_filter(self._before_night)
        else:
            before = self._filter
            self._set_filter(await self._parsed(LAST_NIGHT))
            self._before_night = before

    async def _parsed(self, words: Sequence[str]) -> Filter:
        return await self._reader(partial(filters.parse, words=words))

    def _set_filter(self, wanted: Filter) -> None:
        self._filter, self._before_night = wanted, None
        self._list.marked = frozenset()
        self._look_again()

    # Actions

    def _chosen(self) -> list[Row]:
        """Return the marked threads, else the one under the cursor."""
        marked = [row for row in self._list.rows if row.thread in self._list.marked]
        return marked or [row for row in (self._row,) if row is not None]

    def _take_marked(self) -> list[Row]:
        """Return the chosen threads, and remove all marks."""
        rows = self._chosen()
        self._list.marked = frozenset()
        return rows

    def _do_retry(self) -> Coroutine[Any, Any, None]:
        return self._steering.retry(self._take_marked())

    def _do_stop(self) -> Coroutine[Any, Any, None]:
        return self._steering.stop(self._take_marked())

    def _do_pause(self) -> Coroutine[Any, Any, None]:
        return self._steering.pause(self._take_marked())

    async def _do_fork(self) -> None:
        if (row := self._row) is not None and row.head is not None:
            last = max(0, row.head.row.number - row.state.is_ended)
            step = self._pane.step or self._pane.chosen
            await self._steering.fork(row, step if step > 0 else last)

    async def _do_answer(self) -> None:
        row = self._row
        if row is None:
            return
        if not self._is_pane_shown or self._pane.tab != LIVE:
            self._do_open()
            self._turn_to(LIVE)
            self._draw()
        question = self._guard.question
        if question is None or question.thread != row.thread:
            question = (await self._reader(partial(_read, row, LIVE, None))).question
        if question is None and row.group == RUNNING:
            await self._steering.remark(row)
        elif question is None:
            self._foot.tell(f"{row.thread} is not waiting for an answer", True)
        elif question.is_budget:
            await self._command_line(question.command.removeprefix("uwf "))
        elif (answer := await self._steering.compose(question)) is not None:
            if isinstance(answer, Decision) and (
                self._guard.question != question or self._pane.read == math.inf
            ):
                self._ignore(f"an answer, {self._warning() or 'typed before all of the question was shown'}")
            else:
                await self._answer(row, answer)

    async def _answer(self, row: Row, answer: Answer | Decision) -> None:
        """Answer; once that is recorded go to the next thread that asks, and let this one go on."""
        if self._answered.get(row.thread) == answer.key:
            self._ignore("a second answer to the same question")
            return
        self._answered[row.thread] = answer.key
        rows = self._list.rows
        places = (*range(self._list.cursor + 1, len(rows)), *range(self._list.cursor))
        others = [rows[at].thread for at in places]
        try:
            goes_on = await self._actions.answer(answer, partial(self._leave_answered, answer, others))
        except CommandFailed:
            self._answered.pop(row.thread, None)
            raise
        message = f"answered: {named(row, 1)}"
        self._foot.tell(f"{message} — {self._ignored}" if self._ignored else message, bool(self._ignored))
        self._ignored = ""
        if goes_on:
            await self._actions.start(("thread", "run", "--", row.thread))

    def _leave_answered(self, answer: Answer | Decision, others: Sequence[ThreadId]) -> None:
        """Go from an answered thread to the first of the others that asks, unless a key has left it already."""
        thread = answer.thread
        self._guard.record(answer)
        self._steering.sent(thread)
        asking = {row.thread: place for place, row in enumerate(self._list.rows) if row.group == ASKS}
        following = [other for other in others if other in asking and other not in self._answered]
        if following and self._row is not None and self._row.thread == thread:
            self._go_to(asking[following[0]])
            self._draw()

    # Lines that are typed

    async def _ask(self, label: str, value: str = "") -> str | None:
        """Return a typed line, None after Esc."""
        self._foot.label(label)
        try:
            return await self._entry.read(value)
        finally:
            self._foot.label("")
            self.call_after_refresh(self._draw)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._entry.end(event.value)

    async def _do_command(self) -> None:
        await self._command_line("")

    async def _command_line(self, text: str) -> None:
        typed = await self._ask("uwf …; % is the thread, or those marked", text)
        if not typed or not typed.strip():
            return
        threads = [row.thread for row in self._chosen()]
        words = [word for item in filters.split(typed) for word in (threads if item == "%" else [item])]
        words = words[1:] if words[:1] == ["uwf"] else words
        self._leave(itself(None, *words), None, waits=True)

    async def _do_shell(self) -> None:
        if (row := self._row) is None:
            return
        value = await self._actions.call(("workspace", "path", "--", row.thread))
        self._leave([os.environ.get("SHELL") or "/bin/sh"], Path(value["path"]), waits=False)

    def _leave(self, argv: Sequence[str], folder: Path | None, waits: bool) -> None:
        environment = {**os.environ, **self._location.environment()}
        hand_over(self, argv, environment, folder, waits)
        self._look_again()
        self.refresh(layout=True)


def _read(row: Row, tab: str, step: int | None, instance: Instance) -> Content:
    return content(instance, row.thread, tab, step)
