"""A thread's state, derived from its refs, its locks and its head."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Literal

from uwf_git.base.thread_states import ThreadState
from uwf_git.engine import calls
from uwf_git.engine.budget import Budgets, BudgetState, used_up
from uwf_git.engine.census import FAILURES
from uwf_git.engine.conversation import at_rest
from uwf_git.engine.human_roles import HumanRoles
from uwf_git.engine.human_turn import persons_role
from uwf_git.engine.pause import is_paused, paused_threads
from uwf_git.format.endings import COMPLETED, FAILED
from uwf_git.format.types import CODE
from uwf_git.store.layout import ATTEMPTS
from uwf_git.store.starts import is_call
from uwf_git.store.threads import DamagedThread

if TYPE_CHECKING:
    from uwf_git.store.history import Head
    from uwf_git.store.index import ArchiveRow
    from uwf_git.store.instance import Instance

EndedState = Literal[ThreadState.COMPLETED, ThreadState.WITH_FAILURES, ThreadState.FAILED, ThreadState.KILLED]


class ThreadStates:
    """The states of a store's threads. Use one per look: shared data is read once, and a thread that can only be idle
    costs no look of its own."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._running, self._paused = instance.locks.held(), paused_threads(instance)
        self._tried = frozenset(instance.store.repository.ref_names(ATTEMPTS))
        self._code = frozenset(instance.store.index.hashes_of_type(CODE))
        self._budgets = Budgets(instance)
        self.people = HumanRoles(instance)

    def of(self, head: Head | DamagedThread) -> ThreadState:
        """Return a thread's state. A paused thread is running until its step in progress ends."""
        if isinstance(head, DamagedThread):
            return ThreadState.CORRUPT
        if self._is_idle(head):
            return ThreadState.IDLE
        if head.archive is None and head.thread in self._running:
            return ThreadState.RUNNING
        standing = used_up(self._instance, head, self._budgets)
        return resting_state(self._instance, head, standing, self._paused, self.people)

    def _is_idle(self, head: Head) -> bool:
        return not (
            head.archive
            or head.thread in self._running
            or head.thread in self._paused
            or head.row.asks
            or head.waits_for_join
            or head.row.workflow in self._code
            or ATTEMPTS + head.thread in self._tried
            or self._budgets.sources(head)
            or self.people.among(head.row)
        )


def thread_state(instance: Instance, head: Head) -> ThreadState:
    """Return the state of one thread, as `ThreadStates.of`."""
    if head.archive is None and instance.locks.is_held(head.thread):
        return ThreadState.RUNNING
    return resting_state(instance, head, used_up(instance, head))


def ended_state(archive: ArchiveRow) -> EndedState:
    """Return the state of an ended thread, by its archive tag."""
    if archive.status == COMPLETED:
        is_partial = archive.reason.startswith(FAILURES)
        return ThreadState.WITH_FAILURES if is_partial else ThreadState.COMPLETED
    return ThreadState.FAILED if archive.status == FAILED else ThreadState.KILLED


def resting_state(
    instance: Instance,
    head: Head,
    standing: BudgetState | None,
    paused: Container[str] | None = None,
    people: HumanRoles | None = None,
) -> ThreadState:
    """Return the state of a thread without a process; `standing` is its used-up budget, if any. A paused thread may
    also ask or have failed. A conversation at rest is idle. STUCK is left to those who read the outlook anyway."""
    if head.archive:
        return ended_state(head.archive)
    if head.thread in paused if paused is not None else is_paused(instance, head.thread):
        return ThreadState.PAUSED
    if head.waits_for_join:
        return ThreadState.JOINING
    if head.row.asks and (standing or not at_rest(instance, head)):
        return ThreadState.ASKING
    if standing:
        return ThreadState.OVER_BUDGET
    if persons_role(instance, head, people):
        return ThreadState.PERSONS_TURN
    if instance.attempts.failed(head):
        return ThreadState.FAILING
    return ThreadState.CALL_ASKS if asking_below(instance, head) else ThreadState.IDLE


def asking_below(instance: Instance, head: Head) -> list[Head]:
    """Return the threads that work for another and ask a person, oldest first: it goes on when they are answered."""
    if not calls.is_code(instance, head.row) or is_call(instance.store, head.row.start):
        return []
    asking = (call for call in calls.left(instance, head) if call.row.asks)
    return sorted(asking, key=lambda call: call.updated)
