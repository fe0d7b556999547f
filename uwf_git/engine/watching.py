"""The turns of finished steps and of the step in progress, and other events of a thread, for watchers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import NotFound
from uwf_git.engine.kit.record import noted_turns
from uwf_git.engine.progress import Freshness
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.format.kinds import TurnRecord, parse_attempt, parse_step
from uwf_git.format.types import is_kind
from uwf_git.store import layout
from uwf_git.store.private import UNREAD, EngineOrder, StreamPosition

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

POLL = 0.2  # seconds
_RESTING = 0.4  # seconds: between two steps of a run the lock is let go for a moment
REFS = (layout.THREADS, layout.ARCHIVE, layout.ATTEMPTS)
"""The folders of refs that tell of steps and attempts."""

_TOLD = 20  # number of unseen steps whose turns are reported


class TurnPosition(NamedTuple):
    """The `turn`th turn of the `made`th step or attempt, both from 1. A `turn` of 0 is before the first."""

    made: int
    turn: int

    def __str__(self) -> str:
        return f"{self.made}.{self.turn}"


def parse_place(text: str) -> TurnPosition | None:
    """Parse a place from its `str`, None for other text."""
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", text, re.ASCII)
    return TurnPosition(int(match[1]), int(match[2])) if match else None


class StepBegan(NamedTuple):
    made: int
    order: EngineOrder
    since: float


class WordsAdded(NamedTuple):
    """The next words of a model, which become a turn later."""

    made: int
    text: str


class WordsDropped(NamedTuple):
    """The words since the last turn are void: the model is called again."""

    made: int


class LinesPrinted(NamedTuple):
    """The next lines of the agent's command. A turn keeps their end."""

    made: int
    text: str


class TurnAdded(NamedTuple):
    """A turn was recorded; for a sub-workflow's step, in its `thread`. An assistant's turn includes the words
    streamed before."""

    place: TurnPosition
    turn: TurnRecord
    thread: ThreadId


class StepMade(NamedTuple):
    """A step was made, or an attempt `failed`. `node` is the StepNode or Attempt, `number` the step's."""

    made: int
    node: Hash
    number: int
    failed: bool


class WorkStopped(NamedTuple):
    """No process works on the thread any more."""


Event = StepBegan | WordsAdded | WordsDropped | LinesPrinted | TurnAdded | StepMade | WorkStopped


def turns_of(instance: Instance, node: Hash) -> tuple[TurnRecord, ...]:
    """Return the turns of a StepNode or Attempt, oldest first; for a sub-workflow's step, those of all its
    steps."""
    store = instance.store
    content = store.get(node)
    detail: Hash | None = None
    if is_kind(content.type, "attempt"):
        detail = parse_attempt(content.payload).detail
    elif is_kind(content.type, "step"):
        detail = parse_step(content.payload).detail
    if detail is None:
        return ()
    if is_kind(store.get(detail).type, "step"):
        steps = [past.hash for past in instance.threads.past(detail)]
        return tuple(turn for step in reversed(steps) for turn in turns_of(instance, step))
    record = store.detail(detail)
    return store.turns(record) if record else ()


def current_turns(instance: Instance, thread: ThreadId) -> tuple[TurnRecord, ...]:
    """Return the turns of the step in progress, or of its sub-workflow's step."""
    notes = instance.runs.notes(thread)
    turns = noted_turns(instance, thread, notes)
    if not turns and notes and is_thread_id(child := notes[-1].get("session", "")):
        return current_turns(instance, ThreadId(child))
    return turns


def follow(instance: Instance, thread: ThreadId) -> Iterator[TurnRecord]:
    """Yield the turns of the step in progress as they come, then those of later steps, until no process works
    on the thread."""
    news = TurnFeed(instance, thread)
    while True:
        events = news.news()
        yield from (event.turn for event in events if isinstance(event, TurnAdded))
        if any(isinstance(event, WorkStopped) for event in events):
            return
        time.sleep(POLL)


class TurnFeed:
    """Events of a thread since the last call, cheap to poll several times a second. Begins with all turns of
    the step in progress, or right `after` a place."""

    def __init__(self, instance: Instance, thread: ThreadId, after: TurnPosition | None = None) -> None:
        """Raises NotFound, StoreDamaged."""
        self._instance = instance
        self._runs = instance.runs
        self._thread = thread
        self._refs = Freshness(instance.location.git_dir, REFS)
        self._refs.changed()
        head = instance.threads.head(thread)
        self._head = head.node
        self._steps = head.row.number
        self._tried = instance.attempts.count(instance.attempts.tip(thread))
        self._made = self._steps + self._tried  # of reported ones
        self._pending: list[StepMade] = []
        if after is not None and 0 < after.made <= self._made:
            self._pending = _newest(instance, thread, head.row.number, self._made - after.made + 1)
            self._made -= len(self._pending)
        self._skip = after.turn if after is not None and after.made == self._made + 1 else 0
        self._began: float | None = None  # the step that is being made
        self._over: float | None = None  # the one whose files are about to go, since it was made
        self._worked = self._rested = False
        self._free_since: float | None = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        self._noted: tuple[int, float] = (0, 0.0)
        self._notes = 0  # of reported turns
        self._shown = 0  # turns of the step that is being made, its sub-workflow's too
        self._words, self._spoke = UNREAD, False
        self._lines = UNREAD
        self._child: _Child | None = None

    @property
    def thread(self) -> ThreadId:
        return self._thread

    def threads(self) -> Iterator[ThreadId]:
        """Yield the threads whose files tell the news: the thread, and that of its sub-workflow."""
        yield self._thread
        if self._child is not None:
            yield from self._child.news.threads()

    @property
    def works(self) -> bool:
        """Whether a process was working on the thread at the last call, or a moment before."""
        return self._worked

    def news(self) -> list[Event]:
        """Return the events since the last call, in order. Raises NotFound if the thread was removed,
        StoreDamaged."""
        # Read the lock first, so that everything written before its release is seen.
        held = self._instance.locks.is_at_work(self._thread)
        rests = self._rests(held)
        began = self._runs.began(self._thread)
        words, text = self._runs.said(self._thread, self._words)
        lines, output, is_cut = self._runs.printed(self._thread, self._lines)
        noted = self._runs.noted(self._thread)  # after the words, which go once their turn is noted
        notes = self._runs.notes(self._thread) if noted != self._noted and noted[0] else []
        events: list[Event] = []
        if step_mades := self._newly_made():
            # To which step those notes belong isn't known now; if to the next, they will be there again.
            for index, step_made in enumerate(step_mades, -len(step_mades)):
                events += self._over_with(step_made, index >= -_TOLD)
            self._over, self._began = self._began or self._over, None
        elif held or self._worked:
            events += self._order(began)
            if began is not None and began == self._began:
                events += self._output(lines, output, is_cut)
                events += self._turns(words, text, noted, notes)
        return [*events, WorkStopped()] if rests else events

    def _rests(self, held: bool) -> bool:
        now = time.monotonic()
        if held:
            self._free_since, self._worked, self._rested = None, True, False
            return False
        if self._free_since is None:
            self._free_since = now
        if self._rested or now - self._free_since < _RESTING:
            return False
        self._worked, self._rested = False, True
        return True

    def _order(self, began: float | None) -> list[Event]:
        if began is None or began in (self._began, self._over):
            return []
        order = self._runs.read_order(self._thread)
        if order is None or order.head != self._head:
            return []
        skip = self._skip
        self._forget()
        self._began, self._skip = began, skip
        return [StepBegan(self._made + 1, order, began)]

    def _newly_made(self) -> list[StepMade]:
        step_mades, self._pending = self._pending, []
        if not self._refs.changed():
            return step_mades
        head = self._instance.threads.head(self._thread)
        attempts = self._instance.attempts
        tip = attempts.tip(self._thread)
        tried = attempts.all(self._thread) if attempts.count(tip) != self._tried else []
        if head.node == self._head and not tried:
            return step_mades
        steps: list[Hash] = []
        for past in self._instance.threads.past(head.node):
            if past.hash == self._head:
                break
            steps.insert(0, past.hash)
        if len(steps) == head.row.number - self._steps:
            before = self._head if self._steps else None
            news = [(attempt.hash, attempt.prev) for attempt in tried[self._tried :]]
            step_mades += _merged(steps, before, self._steps, news)
        # Otherwise another process moved it back or elsewhere: continue from there.
        self._head, self._steps = head.node, head.row.number
        self._tried = len(tried) or self._tried
        return step_mades

    def _over_with(self, step_made: StepMade, told: bool) -> Iterator[Event]:
        shown = max(self._shown, self._skip)
        self._made += 1
        turns = turns_of(self._instance, step_made.node) if told else ()
        for number, turn in enumerate(turns[shown:], shown + 1):
            yield TurnAdded(TurnPosition(self._made, number), turn, self._thread)
        yield step_made._replace(made=self._made)
        self._skip = 0
        self._forget()

    def _output(self, lines: StreamPosition, output: bytes, is_cut: bool) -> Iterator[Event]:
        self._lines = lines
        text = output.decode("utf-8", "replace")
        if is_cut:
            text = "[…]\n" + text.partition("\n")[2]
        if text:
            yield LinesPrinted(self._made + 1, text)

    def _turns(
        self, words: StreamPosition, text: str, noted: tuple[int, float], notes: Sequence[Mapping[str, Any]]
    ) -> Iterator[Event]:
        same = words.begun == self._words.begun
        self._words = words
        if same and text:
            self._spoke = True
            yield WordsAdded(self._made + 1, text)
        said_before = self._spoke
        if notes:
            self._noted = noted
            named = [note for note in notes if "turn" in note]
            for turn in noted_turns(self._instance, self._thread, named[self._notes :]):
                self._notes += 1
                self._spoke = self._spoke and turn.role != "assistant"
                yield from self._turn(self._shown + 1, turn, self._thread)
            if not named:
                self._attend(notes[-1].get("session", ""))
        if not same:
            if said_before and self._spoke:
                yield WordsDropped(self._made + 1)
            self._spoke = bool(text)
            if text:
                yield WordsAdded(self._made + 1, text)
        if self._child is not None:
            yield from self._of_child(self._child)

    def _turn(self, number: int, turn: TurnRecord, thread: ThreadId) -> Iterator[Event]:
        self._shown = number
        if number > self._skip:
            yield TurnAdded(TurnPosition(self._made + 1, number), turn, thread)

    def _attend(self, session: str) -> None:
        if not is_thread_id(session) or (self._child is not None and self._child.thread == session):
            return
        with suppress(NotFound):
            news = TurnFeed(self._instance, child := ThreadId(session))
            past = [step.hash for step in self._instance.threads.past(news._head)]
            self._child = _Child(child, news, sum(len(turns_of(self._instance, node)) for node in past))
            self._shown = self._child.before

    def _of_child(self, child: _Child) -> Iterator[Event]:
        try:
            events = child.news.news()
        except NotFound:
            self._child = None
            return
        for event in events:
            if isinstance(event, TurnAdded):
                yield from self._turn(child.before + event.place.turn, event.turn, event.thread)
            elif isinstance(event, WordsAdded | WordsDropped | LinesPrinted):
                yield event._replace(made=self._made + 1)
            elif isinstance(event, StepMade):
                # The turns of an attempt are no part of the step.
                if not event.failed:
                    child = child._replace(before=child.before + len(turns_of(self._instance, event.node)))
                    self._child = child
                self._shown = child.before


class _Child(NamedTuple):
    """A sub-workflow's thread; `before` is the number of its turns before the current step."""

    thread: ThreadId
    news: TurnFeed
    before: int


def _newest(instance: Instance, thread: ThreadId, number: int, many: int) -> list[StepMade]:
    steps: list[Hash] = []
    before: Hash | None = None
    for past in instance.threads.past(instance.threads.head(thread).node):
        if len(steps) == many:
            before = past.hash
            break
        steps.insert(0, past.hash)
    tried = [(attempt.hash, attempt.prev) for attempt in instance.attempts.all(thread)]
    tried = [item for item in tried if item[1] == before or item[1] in steps]
    return _merged(steps, before, number - len(steps), tried)[-many:]


def _merged(
    steps: Sequence[Hash], before: Hash | None, number: int, tried: Sequence[tuple[Hash, Hash | None]]
) -> list[StepMade]:
    """Merge steps with attempts, each given with the step before it, in the order they were made. `before` is
    the step before the first, the `number`th."""
    step_mades = [StepMade(0, node, number + 1, True) for node, prev in tried if prev == before]
    for each in steps:
        number += 1
        step_mades.append(StepMade(0, each, number, False))
        step_mades += [StepMade(0, node, number + 1, True) for node, prev in tried if prev == each]
    return step_mades
