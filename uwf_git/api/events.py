"""Events of all threads, by any process: steps and turns from `engine.watching`, and events of threads as a
whole, as JSON. While nothing happens, a poll costs a few system calls."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from uwf_git.api.conversation import turn_value
from uwf_git.base.errors import NotFound, StoreDamaged
from uwf_git.base.text import iso
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.forks import awaited, parents_of
from uwf_git.engine.next_turn import outlook
from uwf_git.engine.outcome import summary
from uwf_git.engine.pause import pause_of
from uwf_git.engine.progress import Freshness
from uwf_git.engine.spending import spent
from uwf_git.engine.thread_state import ended_state, thread_state
from uwf_git.engine.waits import Waits, waits_of
from uwf_git.engine.watching import Event, StepBegan, StepMade, TurnAdded, TurnFeed, TurnPosition, WorkStopped
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.format.kinds import SUBWORKFLOW, parse_attempt, parse_step, remark_in
from uwf_git.store import layout

if TYPE_CHECKING:
    from uwf_git.git.repository import Oid
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance

Value = dict[str, Any]
_PREFIXES = (layout.THREADS, layout.ARCHIVE, layout.ATTEMPTS, layout.PAUSED)
_TOLD = (
    "kind",
    "step",
    "role",
    "question",
    "options",
    "reason",
    "assignee",
    "fields",
    "approvals",
    "command",
)
_LATE = 2  # seconds that a ref may have changed before the look that finds it


class Events:
    """Events since the last poll, by thread of the project, or of `only` one with its sub-workflows and branches.
    Begins with the turns of steps in progress."""

    def __init__(self, instance: Instance, only: ThreadId | None = None) -> None:
        self._instance = instance
        self._only = only
        self._members = frozenset[ThreadId]() if only is None else frozenset({only})
        self._fresh = Freshness(instance.location.git_dir, _PREFIXES)
        self._fresh.changed()
        self._looked = time.time()
        self._tips = self._read()
        self._meant: dict[ThreadId, bool] = {}
        self._news: dict[ThreadId, TurnFeed] = {}
        self._at: dict[ThreadId, Value] = {}  # who makes the step that is being made

    def news(self) -> list[Value]:
        """Return the events: `at`, `event`, `thread` and more. Raises StoreDamaged if refs cannot be listed."""
        looked = time.time()
        # Read the lock first, so that everything written before its release is seen.
        busy = self._busy()
        before, changed = self._tips, set[ThreadId]()
        if self._fresh.changed():
            self._tips = self._read()
            names = [name for name, _ in before.items() ^ self._tips.items()]
            changed = {thread for name in names if (thread := _thread_of(name)) is not None}
        events: list[Value] = []
        for thread in sorted(changed | busy | self._news.keys()):
            if thread in self._members or (self._only is None and self._is_meant(thread)):
                events += self._of(thread, before, thread in changed)
        self._looked = looked
        return events

    def _is_meant(self, thread: ThreadId) -> bool:
        """Return whether a thread is of the project; a removed one if it was known to be."""
        if thread not in self._meant:
            with suppress(NotFound, StoreDamaged):
                self._meant[thread] = self._instance.threads.is_meant(self._instance.threads.head(thread))
        return self._meant.get(thread, self._instance.threads.projects.here is None)

    def _busy(self) -> Set[ThreadId]:
        locks = self._instance.locks
        if self._only is None:
            return locks.held() | locks.runs()
        if self._members == {self._only}:
            return {self._only} if locks.is_at_work(self._only) else set()
        return (locks.held() | locks.runs()) & self._members

    def _read(self) -> Mapping[str, Oid]:
        repository = self._instance.store.repository
        if self._only is not None:
            self._members |= self._branches(self._members)
            names = [prefix + thread for prefix in _PREFIXES for thread in self._members]
            return {name: oid for name in names if (oid := repository.ref(name)) is not None}
        return {name: oid for prefix in _PREFIXES for name, oid in repository.refs(prefix).items()}

    def _branches(self, threads: Set[ThreadId]) -> frozenset[ThreadId]:
        """Return the branches that threads wait for, and those that these wait for."""
        branches: set[ThreadId] = set()
        pending = list(threads)
        while pending:
            with suppress(NotFound, StoreDamaged):
                heads = awaited(self._instance, self._instance.threads.head(pending.pop()))
                here = [head.thread for head in heads]
                pending += [thread for thread in here if thread not in branches | threads]
                branches.update(here)
        return frozenset(branches)

    def _of(self, thread: ThreadId, before: Mapping[str, Oid], moved: bool) -> Iterator[Value]:
        had = [before.get(prefix + thread) for prefix in _PREFIXES]
        active, ended, _, paused = (self._tips.get(prefix + thread) for prefix in _PREFIXES)
        if ended is not None and had[1] is not None:
            return  # finished turns don't change
        if active is None and ended is None:
            self._forget(thread)
            # A folded thread still exists; a lock or another ref may remain.
            if moved and had[:2] != [None, None] and not self._instance.threads.exists(thread):
                yield _value(thread, "removed")
            return
        try:
            if thread not in self._news:
                past = self._known(had[0], had[2])
                if had[0] is None:
                    head = self._instance.threads.head(thread)
                    past = self._before(head)
                    yield _value(thread, "started", **self._beginning(head, past))
                    if head.row.kind == "start" and (waits := waits_of(self._instance, head)) is not None:
                        yield _waiting(thread, waits)
                self._news[thread] = TurnFeed(self._instance, thread, TurnPosition(past + 1, 0))
            events = self._news[thread].news()
            yield from self._describe(thread, events)
            if ended is not None:
                yield self._end(thread)
            elif (paused is None) != (had[3] is None):
                pause = pause_of(self._instance, thread)
                yield _value(thread, "paused", **pause.as_json()) if pause else _value(thread, "resumed")
            if any(isinstance(event, WorkStopped) for event in events) and ended is None:
                if thread in self._at:
                    yield from self.standing(thread)
                self._forget(thread)
        except NotFound:  # it goes at this moment, which the next look tells
            self._forget(thread)
        except StoreDamaged as error:
            self._forget(thread)
            yield _value(thread, "damaged", problem=error.message)

    def _forget(self, thread: ThreadId) -> None:
        self._news.pop(thread, None)
        self._at.pop(thread, None)

    def _before(self, head: Head) -> int:
        since = (self._looked - _LATE) * 1000
        past = self._instance.threads.past(head.node)
        return head.row.number - sum(1 for _ in takewhile(lambda step: step.time >= since, past))

    def _known(self, tip: Oid | None, attempts: Oid | None) -> int:
        row = self._instance.store.index_commit(tip) if tip is not None else None
        return (row.number if row else 0) + self._instance.attempts.count(attempts)

    def _beginning(self, head: Head, past: int) -> Value:
        row = head.row
        branch = self._instance.threads.fork_of(head)
        if branch is not None:
            parent: str | None = min(parents_of(self._instance, head), default=None)
        else:
            parent = self._instance.sessions.owner(SUBWORKFLOW, head.thread) or None
        return {
            "workflow": row.workflow,
            "name": row.name,
            "title": row.title,
            "steps": past,
            "parent": parent,
            **({"branch": branch[1]} if branch is not None else {}),
        }

    def _end(self, thread: ThreadId) -> Value:
        self._forget(thread)
        archive = self._instance.threads.head(thread).archive
        assert archive is not None, "its ref was there"
        return _value(thread, "ended", status=ended_state(archive).word, reason=archive.reason or None)

    def standing(self, thread: ThreadId) -> Iterator[Value]:
        """Yield the state of an idle thread: `ended`, `waiting`, or `rests` with status and next role;
        nothing for a sub-workflow's. Raises NotFound, StoreDamaged."""
        instance = self._instance
        head = instance.threads.head(thread)
        if head.archive is not None:
            yield self._end(thread)
            return
        if self._only is None and instance.sessions.owner(SUBWORKFLOW, thread):
            return
        state = thread_state(instance, head)
        waits = None if state is ThreadState.PAUSED else waits_of(instance, head)
        if waits is not None:
            yield _waiting(thread, waits)
            return
        next_turn = outlook(instance, head)
        yield _value(thread, "rests", status=state.word, next=next_turn.next, problem=next_turn.problem)

    def _describe(self, thread: ThreadId, events: Sequence[Event]) -> Iterator[Value]:
        for place, event in enumerate(events):
            if isinstance(event, StepBegan):
                order = event.order
                at = {"step": order.number, "role": order.role, **order.credit.as_json()}
                self._at[thread] = at
                yield _value(thread, "step", **at)
            elif isinstance(event, TurnAdded):
                if self._only is None and event.thread != thread:
                    continue  # reported for that thread
                if not self._at.get(thread):
                    step_made = next((item for item in events[place:] if isinstance(item, StepMade)), None)
                    self._at[thread] = self._who(step_made) if step_made else {}
                what = "turn" if event.turn.tool is None else "tool"
                at = self._at[thread]
                yield _value(thread, what, step=at.get("step"), by=at.get("role"), **turn_value(event.turn))
            elif isinstance(event, StepMade):
                yield self._made(thread, event, events[place + 1 :])
                self._at[thread] = {}

    def _who(self, step_made: StepMade) -> Value:
        payload = self._instance.store.get(step_made.node).payload
        step = parse_attempt(payload, step_made.node) if step_made.failed else parse_step(payload)
        return {"step": step_made.number, "role": step.role, **self._instance.threads.credit(step).as_json()}

    def _made(self, thread: ThreadId, step_made: StepMade, later: Sequence[Event]) -> Value:
        instance, who = self._instance, self._who(step_made)
        store = instance.store
        payload = store.get(step_made.node).payload
        if step_made.failed:
            return _value(thread, "failed", **who, attempt=step_made.node, error=parse_attempt(payload).error)
        step = parse_step(payload)
        detail = store.detail(step.detail)
        following = next((item for item in later if isinstance(item, StepMade)), None)
        head = instance.threads.head(thread)
        if following is not None:
            then: str | None = self._who(following)["role"]
        else:
            then = outlook(instance, head).next if head.node == step_made.node else None
        cost = None
        if detail is not None:
            cost = spent(detail, store.turns(detail), False).money(instance.config.prices).cost
        node = store.get(step.output)
        output = node.payload
        return _value(
            thread,
            "finished",
            **who,
            **({"remark": True} if remark_in(step.role, output) is not None else {}),
            hash=step_made.node,
            verdict=summary(instance, node.type, output).text,
            next=then,
            seconds=detail.duration_ms / 1000 if detail is not None else None,
            cost=cost,
        )


def _waiting(thread: ThreadId, waits: Waits) -> Value:
    kept = waits.as_json()
    return _value(thread, "waiting", **{name: kept[name] for name in _TOLD if name in kept})


def _value(thread: ThreadId, event: str, **more: Any) -> Value:
    return {"at": iso(time.time()), "event": event, "thread": thread, **more}


def _thread_of(name: str) -> ThreadId | None:
    last = name.rpartition("/")[2]
    return ThreadId(last) if is_thread_id(last) else None
