"""A thread's state, derived from its refs, its locks and its head."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from uwf_git.base.errors import UwfError
from uwf_git.base.thread_states import RESTS, ThreadState
from uwf_git.engine.budget import Budgets, BudgetState, used_up
from uwf_git.engine.conversation import at_rest, in_conversation
from uwf_git.format.endings import COMPLETED, FAILED
from uwf_git.format.kinds import HUMAN, STEP_INTERRUPTED
from uwf_git.format.types import CODE
from uwf_git.store.layout import ATTEMPTS
from uwf_git.store.threads import DamagedThread

if TYPE_CHECKING:
    from uwf_git.engine.human_roles import HumanRoles
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.index import ArchiveRow
    from uwf_git.store.instance import Instance
    from uwf_git.store.private import EngineOrder

EndedState = Literal[ThreadState.COMPLETED, ThreadState.WITH_FAILURES, ThreadState.FAILED, ThreadState.KILLED]


class RestingThread:
    """A thread without a process, for `base.thread_states.Resting`. `is_ours`: this process holds its lock."""

    _is_ours = False

    def __init__(
        self, instance: Instance, head: Head, people: HumanRoles | None = None, is_ours: bool = False
    ) -> None:
        self._instance, self.head, self._people, self._is_ours = instance, head, people, is_ours

    def seconds_idle(self) -> float:
        return time.time() - self.head.updated

    @cached_property
    def standing(self) -> BudgetState | None:
        """Its budget, if that is used up."""
        return used_up(self._instance, self.head)

    def state(self, apart_from: ThreadState | None = None) -> ThreadState:
        """Return its state. A conversation at rest is idle. STUCK is left to those who read the outlook anyway."""
        if self.head.archive:
            return ended_state(self.head.archive)
        return next(
            (state for state, when in RESTS if when(self) and state is not apart_from), ThreadState.IDLE
        )

    def is_paused(self) -> bool:
        return self._instance.threads.is_paused(self.head.thread)

    def asks(self) -> bool:
        return self.head.row.asks and (self.standing is not None or not at_rest(self._instance, self.head))

    def is_over_budget(self) -> bool:
        return not self.head.waits_for_join and self.standing is not None

    def awaits_person(self) -> bool:
        if self.head.waits_for_join:
            return False
        if self._people is None and not self._instance.may_ask_people(self.head.row):
            return False
        from uwf_git.engine.human_turn import persons_role

        return bool(persons_role(self._instance, self.head, self._people))

    def awaits_branches(self) -> bool:
        return self.head.waits_for_join

    def has_failed(self) -> bool:
        is_tried = self._instance.store.repository.ref(ATTEMPTS + self.head.thread) is not None
        has_failed = is_tried and self._instance.attempts.failed(self.head)
        return has_failed and not (self.was_interrupted() or self.was_stopped())

    def was_stopped(self) -> bool:
        return bool(self._instance.runs.why_stopped(self.head.thread, self.head.node)) and not (
            self.was_interrupted()
        )

    def was_interrupted(self) -> bool:
        return not self._is_ours and interrupted_order(self._instance, self.head) is not None

    def has_asking_call(self) -> bool:
        is_code = self._instance.threads.is_code(self.head.row.workflow)
        return is_code and bool(asking_below(self._instance, self.head))


class ThreadStates:
    """The states of a store's threads. Use one per look: shared data is read once, and a thread that can only be idle
    costs no look of its own."""

    def __init__(self, instance: Instance) -> None:
        from uwf_git.engine.human_roles import HumanRoles
        from uwf_git.engine.pause import paused_threads

        self.instance = instance
        self.ordered = instance.runs.ordered()  # before the locks: who begins now is none that was killed
        self.stopped = instance.runs.stopped()
        self.running, self.paused = instance.locks.held(), paused_threads(instance)
        self.tried = frozenset(instance.store.repository.ref_names(ATTEMPTS))
        self.code = frozenset(instance.store.index.hashes_of_type(CODE))
        self.budgets = Budgets(instance)
        self.people = HumanRoles(instance)
        self._talks: dict[Hash | None, bool] = {}

    def of(self, head: Head | DamagedThread) -> ThreadState:
        """Return a thread's state. A paused thread is running until its step in progress ends."""
        if isinstance(head, DamagedThread):
            return ThreadState.CORRUPT
        if head.archive is None and head.thread in self.running:
            return ThreadState.ASKS_LEAVE if head.thread in self._asking_leave else ThreadState.RUNNING
        return _OneOfMany(self, head).state()

    def may_talk(self, head: Head) -> bool:
        """Return whether a thread may be a conversation at rest."""
        workflow = head.row.workflow
        if workflow not in self._talks:
            with suppress(UwfError):  # of a thread that can't be read, its reader says why
                self._talks[workflow] = in_conversation(self.instance, head)
        return self._talks.get(workflow, True)

    @cached_property
    def _asking_leave(self) -> frozenset[ThreadId]:
        return frozenset(request.thread for request in self.instance.permission_files.waiting())


class _OneOfMany(RestingThread):
    """A resting thread in a look at all, whose shared data answers most questions."""

    def __init__(self, look: ThreadStates, head: Head) -> None:
        self._instance, self.head, self._people = look.instance, head, look.people
        self._look = look

    @cached_property
    def standing(self) -> BudgetState | None:
        if not self._look.budgets.may_limit(self.head):
            return None
        return used_up(self._look.instance, self.head, self._look.budgets)

    def awaits_person(self) -> bool:
        return self._look.people.among(self.head.row) and super().awaits_person()

    def asks(self) -> bool:
        return self.head.row.asks and (not self._look.may_talk(self.head) or super().asks())

    def is_paused(self) -> bool:
        return self.head.thread in self._look.paused

    def has_failed(self) -> bool:
        return ATTEMPTS + self.head.thread in self._look.tried and super().has_failed()

    def was_stopped(self) -> bool:
        return self.head.thread in self._look.stopped and super().was_stopped()

    def was_interrupted(self) -> bool:
        return self.head.thread in self._look.ordered and super().was_interrupted()

    def has_asking_call(self) -> bool:
        return self.head.row.workflow in self._look.code and super().has_asking_call()


def thread_state(instance: Instance, head: Head) -> ThreadState:
    """Return the state of one thread, as `ThreadStates.of`."""
    if head.archive is None and instance.locks.is_held(head.thread):
        return ThreadState.ASKS_LEAVE if _asks_leave(instance, head.thread) else ThreadState.RUNNING
    return RestingThread(instance, head).state()


def _asks_leave(instance: Instance, thread: ThreadId) -> bool:
    return instance.runs.has_requests(thread) and bool(instance.permission_files.waiting(thread))


def interrupted_order(instance: Instance, head: Head) -> EngineOrder | None:
    """Return the order of a step whose engine was killed, unless what its agent left is to be taken over, a user broke
    it off, or somebody works on the thread."""
    runs, thread = instance.runs, head.thread
    order = runs.read_order(thread)
    if order is None or order.head != head.node or order.command[:1] == (HUMAN,):
        return None
    report = runs.answer_to(thread, order.head, order.role)
    if (report is not None and report.step) or runs.answers(thread, order) or runs.broken_off(thread):
        return None
    return None if instance.locks.is_held(thread) or at_rest(instance, head) else order


def failure_reason(instance: Instance, head: Head, state: ThreadState) -> str:
    """Return why the last try at a thread's next step has failed, "" if it hasn't."""
    if not state.is_failing:
        return ""
    if state is ThreadState.INTERRUPTED:
        report = instance.runs.read_report(head.thread)
        return (report.error if report is not None else "") or STEP_INTERRUPTED
    if state is ThreadState.STOPPED:
        return instance.runs.why_stopped(head.thread, head.node)
    attempt = instance.attempts.last(head)
    return attempt.error if attempt is not None else ""


def ended_state(archive: ArchiveRow) -> EndedState:
    """Return the state of an ended thread, by its archive tag."""
    if archive.status == COMPLETED:
        from uwf_git.engine.census import FAILURES

        is_partial = archive.reason.startswith(FAILURES)
        return ThreadState.WITH_FAILURES if is_partial else ThreadState.COMPLETED
    return ThreadState.FAILED if archive.status == FAILED else ThreadState.KILLED


def asking_below(instance: Instance, head: Head) -> list[Head]:
    """Return the threads that work for another and ask a person, oldest first: it goes on when they are answered."""
    from uwf_git.engine.calls import left

    asking = (call for call in left(instance, head) if call.row.asks)
    return sorted(asking, key=lambda call: call.updated)
