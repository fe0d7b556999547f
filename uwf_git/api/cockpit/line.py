"""What a thread is about at this moment, in one line."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import StoreDamaged, UwfError
from uwf_git.base.text import iso, one_line
from uwf_git.base.thread_states import Request, ThreadState
from uwf_git.engine.human_roles import HumanRoles
from uwf_git.engine.next_turn import known_outlooks, outlook
from uwf_git.engine.pause import pause_of
from uwf_git.engine.thread_state import asking_below, failure_reason

if TYPE_CHECKING:
    from uwf_git.base.extensions import WorkState
    from uwf_git.engine.progress import Progress, Watch
    from uwf_git.engine.waits import Waits
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance

LONGEST = 200  # characters
OUTPUT, QUESTION, REASON, VERDICT = "output", "question", "reason", "verdict"


class Line(NamedTuple):
    """`now` is the role at work, asking or next, None after the end; `kind` one of the four above, None without a
    `text`. Of a step in progress `silent` are the seconds since its agent last wrote anything, and `running` those
    since it began; None of other threads. `is_damaged`: it cannot be read, which the text says.
    `attempt` is the number of the failed attempt that it is about, and when that was."""

    now: str | None
    text: str = ""
    kind: str | None = None
    silent: int | None = None
    running: float | None = None
    waits: Waits | None = None
    is_damaged: bool = False
    attempt: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "line": self.text or None,
            "lineKind": self.kind if self.text else None,
            "silent": self.silent,
            **({"damaged": True} if self.is_damaged else {}),
            **({"attempt": {"number": self.attempt[0], "at": iso(self.attempt[1])}} if self.attempt else {}),
        }


class Lines:
    """The lines of many threads. Use one per look: what they share is read once, and what follows and what the last
    outputs come to is known in the index."""

    def __init__(
        self, instance: Instance, heads: Sequence[Head], waits: Mapping[ThreadId, Waits] = {}
    ) -> None:
        self._instance, self._people, self._known = instance, HumanRoles(instance), waits
        self._outlooks = known_outlooks(instance, [head.node for head in heads if head.archive is None])
        steps = [head.node for head in heads if head.row.kind == "step"]
        self._verdicts = instance.store.index.verdicts_at(steps)
        self._fresh: dict[Hash, str] = {}

    def remember(self) -> None:
        """Keep what outputs come to for the next look."""
        if self._fresh:
            self._instance.store.index.set_verdicts(self._fresh)

    def of(self, head: Head, state: ThreadState) -> Line:
        """Return a thread's line, which says so if a node of it is damaged."""
        line = Line(None)
        try:
            line = self._of(head, state)
        except StoreDamaged as error:
            line = Line(None, f"It cannot be read: {error.message}", REASON, is_damaged=True)
        except UwfError:  # reported by the command that reads the thread
            pass
        if not line.text:
            with suppress(UwfError):
                line = line._replace(text=self._verdict(head), kind=VERDICT)
        return line._replace(text=one_line(line.text, LONGEST))

    def _of(self, head: Head, state: ThreadState) -> Line:
        instance = self._instance
        if head.archive is not None:
            return Line(None, head.archive.reason, REASON)
        if state.is_at_work and (step := self._watch.step(head.thread)) is not None:
            return _running(step) if state is ThreadState.RUNNING else _asking_leave(instance, head, step)
        if state.request is not None and (waits := self._waits(head, state)) is not None:
            if waits.problem:
                return Line(None, waits.question, REASON, waits=waits, is_damaged=True)
            is_budget = waits.kind is Request.BUDGET
            text, kind = (waits.reason, REASON) if is_budget else (waits.question, QUESTION)
            return Line(waits.role or None, text, kind, waits=waits)
        following = self._outlooks.get(head.node) or outlook(instance, head)
        line = Line(following.next, following.problem or "", REASON)
        if state is ThreadState.PAUSED and (pause := pause_of(instance, head.thread)) is not None:
            by = f"paused by {pause.who}"
            return line._replace(text=f"{by}: {pause.reason}" if pause.reason else by)
        if state.is_failing and (reason := failure_reason(instance, head, state)):
            tried = None if state is ThreadState.STOPPED else instance.attempts.newest(head.thread)
            if state is ThreadState.INTERRUPTED and (began := instance.runs.began(head.thread)) is not None:
                tried = (tried[0] if tried else 0) + 1, int(began)  # its number once a step has recorded it
            return line._replace(text=reason, attempt=tried)
        if state is ThreadState.CALL_ASKS and (asking := asking_below(instance, head)):
            question = outlook(instance, asking[0])
            return line._replace(now=question.asks or line.now, text=question.question or "", kind=QUESTION)
        return line

    @cached_property
    def _watch(self) -> Watch:
        from uwf_git.engine.progress import Watch

        return Watch(self._instance)

    def _waits(self, head: Head, state: ThreadState) -> Waits | None:
        from uwf_git.engine.waits import waits_in

        return self._known.get(head.thread) or waits_in(self._instance, head, state, self._people)

    def _verdict(self, head: Head) -> str:
        """Return what the last output comes to, "" before the first step."""
        if head.row.kind != "step":
            return ""
        verdict = self._verdicts.get(head.node)
        if verdict is None:
            from uwf_git.api.cockpit.weight import verdict_of

            verdict = self._fresh[head.node] = verdict_of(
                self._instance, self._instance.store.step(head.node).output
            )
        return verdict


def of_work(line: Line, work: WorkState | None) -> Line:
    """Return the line of a thread with what became of its work: why that didn't land comes first."""
    if work is None or not work.problem:
        return line
    return line._replace(text=one_line(f"did not land: {work.problem}", LONGEST), kind=REASON)


def _asking_leave(instance: Instance, head: Head, step: Progress) -> Line:
    from uwf_git.api.cockpit.permissions import leave_request

    line = _running(step)
    if (request := leave_request(instance, head.thread)) is None:
        return line
    role, text = request
    return line._replace(now=role, text=text, kind=QUESTION, silent=None)


def _running(step: Progress) -> Line:
    """Return the line of a step in progress: the newest that its agent, or that of its sub-workflow, has said."""
    inner = step
    while inner.child is not None:
        inner = inner.child
    now = time.time()
    heard = max(inner.heard, step.heard)
    return Line(
        step.role, inner.last or step.last, OUTPUT, max(0, int(now - heard)), max(0.0, now - step.since)
    )
