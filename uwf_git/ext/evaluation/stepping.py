"""Threads of an evaluation: ordinary ones with derived ids, so that interrupted ones are continued. A
question ends them, since nobody answers."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from uwf_git.ext.evaluation.fixtures import is_folder
from uwf_git.ext.evaluation.records import COMPLETED, FAILED, LIMITED, STUCK, WAITING, AgentSpending
from uwf_git.plugin import (
    NO_TIME,
    AgentFailed,
    Budgets,
    BudgetState,
    Hash,
    Head,
    HeadMoved,
    Instance,
    Invalid,
    NotFound,
    NoTransition,
    NotRunning,
    Oid,
    RunOptions,
    SpendingTotals,
    ThreadId,
    ThreadState,
    TokenUsage,
    UwfError,
    Waiting,
    ancestry,
    counted,
    derived_id,
    ended_state,
    layout,
    log,
    run_thread,
    spending_account,
)

MOST_STEPS = 50
RETRIES = 2
TRIAL, JUDGE = "trial", "judge"
_NOBODY = ThreadId("0" * 26)
_LONGEST_WAIT = 120.0  # seconds that a provider may ask for


class Limits(NamedTuple):
    """A thread's limits: `most` steps, a budget, `retries` of a failed step."""

    most: int = MOST_STEPS
    budget: Mapping[str, float] = {}
    retries: int = RETRIES


class ThreadEnd(NamedTuple):
    """A thread's end: a trial's status, and an error or "". `work`: something was done now."""

    status: str
    error: str = ""
    work: bool = False


def threads_for(
    instance: Instance, what: str, key: Hash, removed: Container[str] | None = None
) -> Iterator[ThreadId]:
    """Yield the existing or possible thread ids for a key (TRIAL or JUDGE): the first, then those after
    unusable ones. Ids depend on the key and have an old time, so none is taken for the newest thread.
    `removed` ones are skipped."""
    if removed is None:
        removed = removed_here(instance)
    for number in count():
        thread = derived_id(NO_TIME, f"uwf {what} {key}" + (f" {number}" if number else ""))
        if thread not in removed:
            yield thread


def removed_here(instance: Instance) -> frozenset[str]:
    names = instance.store.repository.ref_names(layout.REMOVED)
    return frozenset(name.removeprefix(layout.REMOVED) for name in names)


def begin(instance: Instance, thread: ThreadId, commit: Oid) -> None:
    """Make `refs/uwf/threads/<ULID>` on a commit if missing, with its fork's tag if it is another thread's."""
    if not instance.threads.exists(thread):
        instance.store.index_commit(commit)
        instance.threads.fork(commit, thread=thread)


def head_at(instance: Instance, commit: Oid) -> Head:
    return Head(_NOBODY, commit, instance.store.index_commit(commit), None)


def run_out(
    instance: Instance,
    thread: ThreadId,
    base: Head,
    folder: Path,
    limits: Limits,
    agent: str | None = None,
    steps: int | None = None,
) -> ThreadEnd:
    """Step a thread until it ends, asks, fails, reaches a limit, or made `steps`. What precedes `base`
    doesn't count. Raises Busy, Untrusted, Usage."""
    way = _Way(instance, thread, base, folder, limits, agent, steps)
    for _ in run_thread(instance, thread, way.following, again=way.again):
        way.worked, way.tries = True, 0
    way.following()  # it may have ended with its last step
    assert way.ended is not None
    return way.ended


class _Way:
    """A thread's progress. `ended` is its end; `tries` counts failures since the last step."""

    def __init__(
        self,
        instance: Instance,
        thread: ThreadId,
        base: Head,
        folder: Path,
        limits: Limits,
        agent: str | None,
        steps: int | None,
    ) -> None:
        self._instance = instance
        self._thread = thread
        self._base = base
        self._folder = folder
        self._limits = limits
        self._steps = steps
        self._options = RunOptions(agent, folder, hooks=False)
        self._head = base
        self.ended: ThreadEnd | None = None
        self.worked = False
        self.tries = 0

    def following(self) -> RunOptions | None:
        if self.ended is None and (end := self._end()) is not None:
            self.ended = ThreadEnd(*end, self.worked)
        return self._options if self.ended is None else None

    def _end(self) -> tuple[str, str] | None:
        instance, base, limits = self._instance, self._base, self._limits
        head = self._head = instance.threads.head(self._thread)
        count = head.row.number - base.row.number
        if self._steps is not None and count >= self._steps:
            return COMPLETED, ""
        if head.archive is not None and ended_state(head.archive) is ThreadState.KILLED:
            return FAILED, head.archive.reason or _killed(self._thread)
        if head.archive is not None:
            # It may have come to its end within wider limits than those of now.
            last = _before_last(instance, head)
            why = _over(instance, last, base, limits, count - 1) if count else ""
            return (LIMITED, why) if why else (COMPLETED, "")
        if why := _over(instance, head, base, limits, count):
            return LIMITED, why
        if not is_folder(self._folder):
            return FAILED, "the folder that it worked in is gone: an agent removed it"
        return None

    def again(self, error: UwfError) -> bool:
        if isinstance(error, Waiting | NotRunning) and self.ended is not None:
            return True  # it ended in a branch, at a limit, so the thread waits for the others
        if isinstance(error, Waiting):
            standing = Budgets(self._instance).standing(self._head)
            is_over = standing is not None and standing.reached is not None
            self._ends(LIMITED if is_over else WAITING, error)
        elif isinstance(error, NoTransition):
            self._ends(STUCK, error)
        elif isinstance(error, AgentFailed):
            self.worked, self.tries = True, self.tries + 1
            log.info("7D1Q5XPE", "failed, try {tries}: {error}", tries=self.tries, error=error.message)
            if self.tries > self._limits.retries:
                self._ends(FAILED, error)
            else:
                _pause(error, self.tries)
        elif isinstance(error, Invalid | NotFound):
            self._ends(FAILED, error)
        else:
            return isinstance(error, HeadMoved)
        return True

    def _ends(self, status: str, error: UwfError) -> None:
        self.ended = ThreadEnd(status, error.message, self.worked)


def _before_last(instance: Instance, head: Head) -> Head:
    rows = list(ancestry(instance.store, head.commit))
    last = next((place for place, row in enumerate(rows) if row.kind == "step"), None)
    return head if last is None else head_at(instance, Oid(raw=rows[last + 1].oid))


def _killed(thread: ThreadId) -> str:
    return f"thread {thread} was killed; to have it tried anew: uwf thread rm {thread}"


def _pause(failed: AgentFailed, tries: int) -> None:
    if (throttled := failed.throttled) is not None:
        time.sleep(min(_LONGEST_WAIT, throttled.after if throttled.after is not None else 2.0**tries))


def _over(instance: Instance, head: Head, base: Head, limits: Limits, count: int) -> str:
    if count >= limits.most:
        return f"it has made {counted(count, 'step')}, and no more are allowed"
    if not limits.budget:
        return ""
    used = spent_since(instance, head, base).amounts(instance.config.prices)
    return BudgetState.of("case", limits.budget, used).used_up


def spent_since(instance: Instance, head: Head, base: Head) -> SpendingTotals:
    """Return the spending after a head, failed attempts included."""
    whole = spending_account(instance, head).spent
    return whole.minus(spending_account(instance, base).spent) if base.row.number else whole


def spending_of(instance: Instance, spent: SpendingTotals) -> AgentSpending:
    """Return spending as recorded, with cost at current prices."""
    tokens = spent.tokens
    priced = spent.money(instance.config.prices)
    usage = TokenUsage(tokens.input, tokens.output, tokens.cached) if tokens is not None else None
    return AgentSpending(usage, priced.cost, priced.unpriced, spent.seconds)
