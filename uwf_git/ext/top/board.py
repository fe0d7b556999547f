"""The list of threads as it is at this moment, those that need a person first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.top.filters import Filter
from uwf_git.plugin import (
    PRIVATE_FOLDER,
    Freshness,
    Instance,
    ThreadId,
    UwfError,
    Watch,
    board,
    nest_threads,
    thread_states,
)

Item = Mapping[str, Any]

ASKS, FAILED, RUNNING, IDLE, PAUSED, ENDED = range(6)
"""The groups of the list, in their order."""

_ALL = 1_000_000  # threads
_GROUPS = {
    thread_states.Group.WAITING: ASKS,
    thread_states.Group.FAILED: FAILED,
    thread_states.Group.RUNNING: RUNNING,
    thread_states.Group.DONE: ENDED,
}


def _group(state: thread_states.ThreadState) -> int:
    if state is thread_states.ThreadState.PAUSED:
        return PAUSED
    return IDLE if state.is_ready else _GROUPS[state.group]


_BY_WORD = {word: _group(thread_states.states_of(word)[0]) for word in thread_states.WORDS}


class Row(NamedTuple):
    """A thread of the list: its `item` is as `thread_items` has it, with `heard` for one that runs, when its agent last
    said anything, and `since`, when its step began, in Unix seconds. `depth` is how many parents are above it."""

    thread: ThreadId
    group: int
    item: Item
    depth: int = 0

    @property
    def is_damaged(self) -> bool:
        return self.item["head"] is None


class Board(NamedTuple):
    """`counts` are by group; `spent` is today's, in US dollars; `running` are agents at work, `most` how many may be.
    With a `problem` the list could not be made."""

    rows: tuple[Row, ...] = ()
    counts: Mapping[int, int] = {}
    spent: float | None = None
    running: int = 0
    most: int | None = None
    problem: str = ""


class Watcher:
    """Reads a board again when something has changed, and of running threads only what they say."""

    def __init__(self, instance: Instance) -> None:
        git_dir = instance.location.git_dir
        also = [git_dir / PRIVATE_FOLDER / name for name in ("budgets", "trusted")]
        self.instance = instance
        self._refs = Freshness(git_dir, also=also)
        self._watch = Watch(instance)
        self._seen: object = None
        self._heard: dict[ThreadId, Item] = {}
        self._board = Board()

    def look(self, wanted: Filter, again: bool = False) -> Board | None:
        """Return the board if it differs from that of the last call, else None."""
        held, runs = self.instance.locks.held(), self.instance.locks.runs()
        seen = self._refs.mark(), held, runs, wanted
        if again or seen != self._seen:
            self._seen, self._heard = seen, {}
            self._board = _read(self.instance, wanted)
            self._hear(held)
            return self._board
        return self._board if self._hear(held) else None

    def _hear(self, held: set[ThreadId]) -> bool:
        """Take over what running agents said last; return whether anything is new."""
        news: dict[ThreadId, Item] = {}
        for thread in held:
            if (step := self._watch.step(thread)) is None:
                continue
            inner = step
            while inner.child is not None:
                inner = inner.child
            heard = {
                "now": step.role,
                "line": inner.last or step.last,
                "since": step.since,
                "heard": max(inner.heard, step.heard),
            }
            if self._heard.get(thread) != heard:
                self._heard[thread] = news[thread] = heard
        if news:
            rows = (
                row._replace(item={**row.item, **news[row.thread]}) if row.thread in news else row
                for row in self._board.rows
            )
            self._board = self._board._replace(rows=tuple(rows))
        return bool(news)


def _read(instance: Instance, wanted: Filter) -> Board:
    try:
        value = board(instance, wanted.filters, most=_ALL)
    except (UwfError, OSError) as error:
        return Board(problem=getattr(error, "message", str(error)))
    rows = [Row(item["thread"], _BY_WORD[item["status"]], item) for item in value["items"]]
    return Board(
        _in_order(rows),
        Counter(row.group for row in rows),
        value["today"]["cost"],
        value["running"],
        value["maxAgents"],
    )


def _in_order(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return rows by group, those that wait for a person oldest first, the others newest first; branches below their
    parents, which stand where their first branch would."""
    by_thread = {row.thread: row for row in rows}
    groups = {row.thread: row.group for row in rows}
    for row in rows:
        parent, seen = row.item["parent"], {row.thread}
        while parent in by_thread and parent not in seen:
            groups[parent] = min(groups[parent], row.group)
            seen.add(parent)
            parent = by_thread[parent].item["parent"]
    newest = sorted(rows, key=lambda row: row.thread, reverse=True)
    waiting = sorted(
        (row for row in newest if groups[row.thread] == ASKS),
        key=lambda row: (row.item["updated"] or "", row.thread),
    )
    rest = sorted((row for row in newest if groups[row.thread] != ASKS), key=lambda row: groups[row.thread])
    places = [{"thread": row.thread, "parent": row.item["parent"]} for row in (*waiting, *rest)]
    return tuple(by_thread[place["thread"]]._replace(depth=depth) for depth, place in nest_threads(places))
