"""The list of threads as it is at this moment, those that need a person first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from uwf_git.ext.top.filters import Filter
from uwf_git.plugin import (
    PRIVATE_FOLDER,
    SORTS,
    Freshness,
    Head,
    Instance,
    ListedThread,
    ThreadId,
    ThreadState,
    UwfError,
    Watch,
    board_head,
    board_threads,
    extensions,
    in_order,
    nest_threads,
    parent_threads,
    permission_requests,
    queued_threads,
    thread_items,
    thread_states,
)

Item = Mapping[str, Any]

ASKS, FAILED, READY, RUNNING, IDLE, PAUSED, ENDED = range(7)
"""The groups of the list, in their order. READY have ended, and wait for an action of an extension."""

_KEPT = 60.0  # seconds
_GROUPS = {
    thread_states.Group.WAITING: ASKS,
    thread_states.Group.FAILED: FAILED,
    thread_states.Group.RUNNING: RUNNING,
    thread_states.Group.DONE: ENDED,
}


class Row(NamedTuple):
    """A thread of the list. `depth` is how many parents are above it. Its `item`, as of `thread_items`, is read once it
    is in sight; of one that runs it has `heard`, when its agent last said anything, and `since`, when its step began,
    in Unix seconds. `request` is the id of what its running agent asks leave for, "" for nothing."""

    listed: ListedThread
    group: int
    depth: int = 0
    item: Item | None = None
    request: str = ""

    @property
    def thread(self) -> ThreadId:
        return self.listed.thread

    @property
    def head(self) -> Head | None:
        """None of a thread that is damaged."""
        return self.listed.head if isinstance(self.listed.head, Head) else None

    @property
    def title(self) -> str:
        head = self.head
        return head.row.title or head.row.name or self.thread if head is not None else self.thread

    @property
    def state(self) -> ThreadState:
        return self.listed.state

    @property
    def is_pausing(self) -> bool:
        """Whether it pauses once its step in progress has ended."""
        return self.item is not None and thread_states.is_pausing(self.item)

    @property
    def position(self) -> object:
        """A value that differs once the thread has moved on."""
        head = self.head
        at = (head.node, head.updated) if head is not None else None
        reason = (
            self.item["line"] if self.item is not None and self.state is not ThreadState.RUNNING else None
        )
        return self.thread, self.state, self.request, at, reason


class _Request(NamedTuple):
    """The first thing that a running agent asks leave for, since when."""

    id: str
    at: float


class Board(NamedTuple):
    """`counts` are by group; `spent` is today's, in US dollars; `running` are agents at work, `most` how many may be;
    `left_out` are threads of other projects. With a `problem` the list could not be made."""

    rows: tuple[Row, ...] = ()
    counts: Mapping[int, int] = {}
    spent: float | None = None
    running: int = 0
    most: int | None = None
    left_out: int = 0
    problem: str = ""


class Queue:
    """The finished threads that wait for an extension's action. Telling that may call git, so it is done again only
    when one has ended or landed, or a minute has passed, for what was done without uwf."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._seen: object = None
        self._ready: frozenset[ThreadId] = frozenset()
        self._until = 0.0

    def among(self, threads: Sequence[ListedThread], again: bool) -> list[ListedThread]:
        heads = [thread.head for thread in threads if isinstance(thread.head, Head)]
        seen = threads, extensions.work_states(self._instance, heads)
        if again or self._seen != seen or time.monotonic() >= self._until:
            self._ready = frozenset(queued_threads(self._instance, threads))
            self._seen, self._until = seen, time.monotonic() + _KEPT
        return [thread for thread in threads if thread.thread in self._ready]


class Watcher:
    """Reads a board again when something has changed, and of running threads only what they say. Only rows in sight
    have items."""

    def __init__(self, instance: Instance) -> None:
        git_dir = instance.location.git_dir
        also = [
            git_dir / PRIVATE_FOLDER / name for name in ("budgets", "trusted", *extensions.note_folders())
        ]
        self.instance = instance
        self._refs = Freshness(git_dir, also=also)
        self._watch = Watch(instance)
        self._seen: object = None
        self._heard: dict[ThreadId, Item] = {}
        self._board = Board()
        self._queue = Queue(instance)

    def look(self, wanted: Filter, sight: range, again: bool = False) -> Board | None:
        """Return the board, with the items of the rows `sight`, if it differs from that of the last call, else None."""
        held, runs = self.instance.locks.held(), self.instance.locks.runs()
        requests = permission_requests(self.instance) if held else []
        asking = {request.thread: _Request(request.id, request.at) for request in reversed(requests)}
        seen = self._refs.mark(), held, runs, asking, wanted
        is_new = again or seen != self._seen
        if is_new:
            self._seen, self._heard = seen, {}
            self._board = self._read(wanted, asking, again)
        is_new = self._describe(sight) or is_new
        return self._board if self._hear(held) or is_new else None

    def _read(self, wanted: Filter, asking: Mapping[ThreadId, _Request], again: bool) -> Board:
        instance, filters = self.instance, wanted.filters
        try:
            threads, left_out = board_threads(instance, filters)
            above = board_head(instance, threads)
            queue: list[ListedThread] = []
            if not filters.states:
                ended = board_threads(instance, filters._replace(only_ended=True))[0]
                queue = self._queue.among(ended, again)
            ready, here = {thread.thread for thread in queue}, {thread.thread for thread in threads}
            threads = [*threads, *(thread for thread in queue if thread.thread not in here)]
            rows = [
                Row(
                    thread,
                    READY if thread.thread in ready else _group(thread, asking),
                    request=asking[thread.thread].id if thread.thread in asking else "",
                )
                for thread in in_order(instance, threads, filters.sort)
            ]
            parents = parent_threads(instance, [row.head for row in rows if row.head is not None])
        except (UwfError, OSError) as error:
            return Board(problem=getattr(error, "message", str(error)))
        if filters.sort == SORTS[0]:
            rows = _in_order(rows, parents, asking)
        return Board(
            tuple(_nested(rows, parents)),
            Counter(row.group for row in rows),
            above["today"]["cost"],
            above["running"],
            above["maxAgents"],
            left_out,
        )

    def _describe(self, sight: range) -> bool:
        """Read the items of rows that have none; return whether there were any."""
        rows = self._board.rows
        bare = [place for place in sight if place < len(rows) and rows[place].item is None]
        if bare:
            items = thread_items(self.instance, [rows[place].listed for place in bare])
            described = dict(zip(bare, items, strict=True))
            self._replace(
                row._replace(item={**described[place], **self._heard.get(row.thread, {})})
                if place in described
                else row
                for place, row in enumerate(rows)
            )
        return bool(bare)

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
            self._replace(
                row._replace(item={**row.item, **news[row.thread]})
                if row.thread in news and row.item is not None
                else row
                for row in self._board.rows
            )
        return bool(news)

    def _replace(self, rows: Iterable[Row]) -> None:
        self._board = self._board._replace(rows=tuple(rows))


def _group(thread: ListedThread, asking: Container[ThreadId]) -> int:
    state = thread.state
    if state is ThreadState.PAUSED:
        return PAUSED
    if thread.thread in asking:
        return ASKS
    return IDLE if state.is_ready else _GROUPS[state.group]


def _in_order(
    rows: Sequence[Row], parents: Mapping[ThreadId, ThreadId], asking: Mapping[ThreadId, _Request]
) -> list[Row]:
    """Return rows by group: those that wait for a person as the inbox has them, the others newest first. Parents are
    where the first of their branches is."""
    ranks = {row.thread: _rank(row, asking) for row in rows}
    for row in rows:
        parent = parents.get(row.thread)
        while parent in ranks:
            ranks[parent] = min(ranks[parent], ranks[row.thread])
            parent = parents.get(parent)
    return sorted(rows, key=lambda row: ranks[row.thread])


def _rank(row: Row, asking: Mapping[ThreadId, _Request]) -> tuple[int, bool, float, str]:
    """Return where a row is: what agents ask leave for is before all else that asks, since they are held up; then the
    oldest is first."""
    if row.group != ASKS or row.head is None:
        return row.group, False, 0.0, ""
    request = asking.get(row.thread)
    return row.group, request is None, row.head.updated if request is None else request.at, row.thread


def _nested(rows: Sequence[Row], parents: Mapping[ThreadId, ThreadId]) -> Iterator[Row]:
    by_thread = {row.thread: row for row in rows}
    places = [{"thread": row.thread, "parent": parents.get(row.thread)} for row in rows]
    for depth, place in nest_threads(places):
        yield by_thread[place["thread"]]._replace(depth=depth)
