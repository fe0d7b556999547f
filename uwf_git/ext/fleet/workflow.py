"""A thread's Temporal workflow: one step after another, until the thread ends or cannot continue.

It decides nothing about the thread and knows only what git has, so it can be lost and rebuilt. Temporal
replays it, so it must not use time, network or store.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TimedOut

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.messages import STEPS, ThreadEntry, ThreadReport
from uwf_git.ext.fleet.queue_states import QueueState, RowState, rests, word_of
from uwf_git.ext.fleet.retry_policy import (
    AGAIN,
    DONE,
    LATER,
    PASSED_ON,
    UNWANTED,
    WAIT,
    Fault,
    lost,
    parse_fault,
    pause_before,
    way_on,
)
from uwf_git.plugin import HeadMoved, Invalid, Paused, ThreadState

_MAX_BACKOFF = timedelta(
    days=30
)  # of a step: its agent has a time limit of its own, its worker the heartbeat
_DEATHS = 10  # workers that may die over a step before that counts as its failure
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=_DEATHS,
)

_UNMOVED = Fault(HeadMoved.code, HeadMoved.exit_status, "a step was answered, and the thread is where it was")


# An invalid input fails at once: a workflow that fails to replay is replayed forever.
@workflow.defn(
    name=messages.WORKFLOW,
    sandboxed=False,
    failure_exception_types=[Invalid, TypeError, ValueError, KeyError],
)
class ThreadInFleet:
    """One thread, with the thread's id; ends with it, and fails if a step cannot be made."""

    @workflow.init  # before signals come
    def __init__(self, value: Any = None) -> None:
        at = messages.parse_begin(value)
        if workflow.info().workflow_id != at.thread:
            raise Invalid("the queue has a thread by another name", "put it in with: uwf fleet start ID")
        self._begin = at
        self._looks = 0
        self._says: dict[str, Any] = {
            key: workflow.memo_value(key, None) for key in ("state", "why", "tries", "worker")
        }
        self._worker = ""  # who had the last step that failed
        self._held = at.held
        self._before = at.used  # the budget that it counts towards
        self._used: dict[str, float] = {}
        self._made, self._most = at.made, at.most
        self._shown: dict[str, Any] = {}

    @workflow.signal(name=messages.LOOK)
    def look(self) -> None:
        self._looks += 1

    @workflow.signal(name=messages.HOLD)
    def hold(self, why: Any = messages.PAUSED) -> None:
        """Begin no more steps, including a queued one."""
        if self._held != messages.PAUSED:
            self._hold(messages.hold_reason(self._held, messages.HOLD, why))

    @workflow.signal(name=messages.LET)
    def let(self) -> None:
        """Make steps again, without a limit."""
        self._hold("")
        self._most = None

    @workflow.signal(name=messages.ALLOW)
    def allow(self, most: int | None) -> None:
        """Set the step allowance, None for no limit, and release a budget's hold."""
        self._most = None if most is None else int(most)
        if self._held == messages.USED_UP:
            self._hold("")

    @workflow.signal(name=messages.TAKE)
    def take(self, value: Any) -> None:
        """Put it under a budget, also during a step; a pause stays."""
        at = messages.parse_begin(value)
        self._before, self._made, self._most = at.used, at.made, at.most
        self._used = {}
        workflow.upsert_memo({"used": None})
        if self._held != messages.PAUSED:
            self._hold(at.held)

    def _hold(self, why: str) -> None:
        self._held = why
        workflow.upsert_memo({messages.HELD: why or None})

    def _may(self) -> bool:
        return self._most is None or self._made < self._most

    @workflow.run
    async def run(self, value: Any = None) -> dict[str, Any]:
        """Make steps to the thread's end and return it. Fails with the fault."""
        at = self._begin
        failures = delays = 0
        trouble = ""
        while True:
            if self._held:
                await self._stay(self._held)
                continue
            if not self._may():
                self._say(QueueState.HELD, messages.MADE_ALL)
                await workflow.wait_condition(lambda: bool(self._held) or self._may())
                continue
            if workflow.info().is_continue_as_new_suggested():
                again = at._replace(held=self._held, used=self._before, most=self._most, made=self._made)
                workflow.continue_as_new(again.as_json())
            self._say(None, trouble, failures + delays + 1 if trouble else 0)
            looks = self._looks
            stand, fault = await self._step(at)
            moved = stand is not None and stand.head != at.head
            if moved and stand is not None:
                failures = delays = 0
                trouble = ""
                at = at._replace(head=stand.head)
            if stand is not None:
                at = at._replace(queue=stand.queue, depth=max(at.depth, stand.depth))
                self._count(stand, moved)
                self._show(messages.BY_ROLE, stand.next or "")
                self._show(messages.BY_COST, stand.cost)
                if stand.done:
                    self._show(messages.BY_STATUS, stand.state.word)
                    await self._tell_parent(at)
                    return {"thread": at.thread, "head": at.head, "status": stand.state.word}
            if workflow.cancellation_reason() is not None:  # a step that ended first has taken its place
                raise asyncio.CancelledError
            if fault is None:
                assert stand is not None
                if stand.problem is not None:
                    await self._tell_parent(at)
                    self._fail(Fault("no_transition", 1, stand.problem))
                if rests(stand.state):
                    await self._tell_parent(at)
                    await self._wait(stand.state, stand.why, looks)
                    continue
                if moved:
                    continue
                fault = _UNMOVED  # repeating at once could loop forever, unseen
            if fault.code in (UNWANTED, PASSED_ON):
                continue
            way = way_on(fault)
            if moved and way in (DONE, WAIT):
                continue
            if way == WAIT:
                # A human plays the role, or the code is untrusted: no ref will tell when that changes.
                await self._tell_parent(at)
                state = ThreadState.PAUSED if fault.code == Paused.code else QueueState.BLOCKED
                await self._wait(state, fault.message, looks)
            elif way in (DONE, LATER):
                delays += 1
                await self._rest(
                    QueueState.DELAYED,
                    fault,
                    failures + delays,
                    pause_before(LATER, delays, fault.after),
                    looks,
                )
            elif way == AGAIN and failures + 1 < at.tries:
                failures += 1
                await self._rest(
                    ThreadState.FAILING,
                    fault,
                    failures + delays,
                    pause_before(AGAIN, failures, fault.after),
                    looks,
                )
            else:
                await self._tell_parent(at)
                self._fail(fault)
            trouble = fault.message if way != WAIT else ""

    async def _step(self, at: ThreadEntry) -> tuple[ThreadReport | None, Fault | None]:
        try:
            value = await workflow.execute_activity(
                messages.STEP,
                args=[at.thread, at.head, self._before is not None, at.tries],
                activity_id=messages.activity_id(at.thread, at.head),
                task_queue=at.queue,
                start_to_close_timeout=_MAX_BACKOFF,
                heartbeat_timeout=timedelta(seconds=at.heartbeat),
                retry_policy=_RETRY,
                priority=Priority(priority_key=messages.priority_of(at.depth)),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        except ActivityError as error:
            cause, self._worker = error.cause, error.identity
            if isinstance(cause, ApplicationError) and cause.details:
                stand = messages.parse_report(cause.details[1]) if len(cause.details) > 1 else None
                return stand, parse_fault(cause.details[0])
            if isinstance(cause, ApplicationError):
                return None, Fault("internal", 1, cause.message)
            if isinstance(cause, TimedOut):
                return None, lost(f"{_DEATHS} workers ended without a word while they made the step")
            raise  # it was cancelled
        return messages.parse_report(value), None

    async def _tell_parent(self, at: ThreadEntry) -> None:
        """Have the thread that waits for this branch looked at."""
        if at.parent:
            with contextlib.suppress(ApplicationError):  # it isn't in the queue any more
                await workflow.get_external_workflow_handle(at.parent).signal(messages.LOOK)

    async def _stay(self, held: str) -> None:
        self._say(QueueState.HELD, "" if held == messages.PAUSED else held)
        await workflow.wait_condition(lambda: self._held != held)

    async def _wait(self, state: RowState, why: str, looks: int) -> None:
        self._say(state, why)
        await workflow.wait_condition(lambda: self._looks != looks)

    async def _rest(self, state: RowState, fault: Fault, tries: int, seconds: float, looks: int) -> None:
        self._say(state, fault.message, tries)
        try:
            await workflow.wait_condition(
                lambda: self._looks != looks or bool(self._held),
                timeout=timedelta(seconds=seconds),
                timeout_summary=fault.code,
            )
        except TimeoutError:
            return

    def _say(self, state: RowState | None, why: str = "", tries: int = 0) -> None:
        worker = self._worker if tries else ""
        says = {
            "state": None if state is None else word_of(state),
            "why": why[:500] or None,
            "tries": tries or None,
            "worker": worker or None,
        }
        if says != self._says:
            self._says = says
            workflow.upsert_memo(says)
        self._show(messages.BY_STATUS, word_of(ThreadState.RUNNING if state is None else state))

    def _show(self, name: str, value: str | float | None) -> None:
        """Show a value of ATTRIBUTES on the server, if it has these."""
        if not self._begin.is_shown or self._shown.get(name, self._begin.about.get(name)) == value:
            return
        self._shown[name] = value
        if isinstance(value, str):
            keyword = SearchAttributeKey.for_keyword(name)
            workflow.upsert_search_attributes([keyword.value_set(value) if value else keyword.value_unset()])
        elif value is not None:
            workflow.upsert_search_attributes([SearchAttributeKey.for_float(name).value_set(float(value))])

    def _count(self, stand: ThreadReport, moved: bool) -> None:
        if self._before is None:
            return
        if stand.used is None:
            used = {**self._used, STEPS: self._made + moved}
        else:
            used = {key: value - self._before.get(key, 0) for key, value in stand.used.items()}
        if used != self._used:
            self._used = used
            self._made = int(used.get(STEPS, 0))
            workflow.upsert_memo({"used": used})

    def _fail(self, fault: Fault) -> None:
        self._say(QueueState.GAVE_UP, fault.message)
        raise ApplicationError(fault.message, fault.as_json(), type=fault.code, non_retryable=True)
