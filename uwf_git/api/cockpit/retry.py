"""Trying a failed thread again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Busy, Invalid
from uwf_git.base.thread_states import Group, ThreadState
from uwf_git.engine.thread_state import ended_state, thread_state
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.workflow.turn import gathers_threads

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


class RetryPlan(NamedTuple):
    """How a thread is tried again: it is run, or, since it has ended, a fork of it after step `at`."""

    thread: ThreadId
    at: int | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that do the same."""
        if self.at is None:
            return (f"uwf thread run {self.thread}",)
        return (f"uwf thread fork {self.thread} --at {self.at}", "uwf thread run FORK")


def plan_retry(instance: Instance, head: Head) -> RetryPlan:
    """Return how to try a thread again: one that has not ended is run; one that ended at `$FAIL` is forked before the
    step that led there, before its fan-out if that was the join, and the fork is run. Raises Invalid for a thread that
    waits for a person, has ended otherwise, or is a branch that has ended, Busy for one that is at work."""
    thread, state = head.thread, thread_state(instance, head)
    if state is ThreadState.RUNNING:
        raise Busy(f"thread {thread} is running", f"see: uwf thread show {thread}")
    if head.archive is None:
        if state.group is Group.WAITING:
            raise Invalid(f"thread {thread} waits for a person", f"see: uwf thread show {thread}")
        return RetryPlan(thread)
    if ended_state(head.archive) is not ThreadState.FAILED:
        raise Invalid(f"thread {thread} is {head.archive.status}", instance.threads.way_on(head))
    if instance.threads.fork_of(head) is not None:
        from uwf_git.engine.lineage import parent_of_branch

        parent = parent_of_branch(instance, head)
        hint = f"retry what waits for it: uwf thread retry {parent}" if parent else "fork its parent"
        raise Invalid(f"thread {thread} is a branch, and no join waits for a fork of it", hint)
    return RetryPlan(thread, max(0, head.row.number - (2 if gathers_threads(head.row.role) else 1)))


def to_retry(instance: Instance, threads: Sequence[ThreadId]) -> list[ThreadId]:
    """Return those of failed threads that stand for themselves: without sub-workflows of others among them, branches
    that have ended, and those that have ended and were forked since."""
    owners, among = instance.sessions.owners(SUBWORKFLOW, threads), set(threads)
    forked = retried(instance)

    def stands_for_itself(thread: ThreadId) -> bool:
        if owners.get(thread) in among:
            return False
        head = instance.threads.head(thread)
        return head.archive is None or not (thread in forked or instance.threads.fork_of(head) is not None)

    return list(filter(stands_for_itself, threads))


def retried(instance: Instance) -> set[ThreadId]:
    """Return the threads that have been forked."""
    from uwf_git.store.history import links

    return {link.origin for link in links(instance.store).values() if link.forked}
