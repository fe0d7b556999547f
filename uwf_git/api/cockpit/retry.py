"""Trying a failed thread again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import Busy, Invalid
from uwf_git.base.thread_states import Group, ThreadState
from uwf_git.engine.permission_requests import permission_requests, request_value
from uwf_git.engine.thread_state import ended_state, thread_state
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.workflow.turn import gathers_threads

if TYPE_CHECKING:
    from uwf_git.api.fork import Fork
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head, Link
    from uwf_git.store.instance import Instance


_NAMED = 5  # retries of one thread that a message names, the newest ones


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
    waits for a person, has ended otherwise or was forked since, or is a branch that has ended, Busy for one that is at
    work, or whose agent asks leave."""
    thread, state = head.thread, thread_state(instance, head)
    if state is ThreadState.ASKS_LEAVE and (requests := permission_requests(instance, thread)):
        value = request_value(requests[0])
        raise Busy(f"the agent of thread {thread} asks leave: {value['line']}", value["commands"]["allow"])
    if state.is_at_work:
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
    at = max(0, head.row.number - (2 if gathers_threads(head.row.role) else 1))
    if retries := _retries(instance, head):
        hint = f"see: uwf thread show {retries[-1]}; for one more: uwf thread fork {thread} --at {at}"
        raise Invalid(f"thread {thread} is retried by {' and '.join(retries[-_NAMED:])} already", hint)
    return RetryPlan(thread, at)


def fork_to_retry(instance: Instance, thread: ThreadId) -> Fork:
    """Fork a thread that has ended at `$FAIL` as planned, once: of several processes the first does. Makes
    `refs/uwf/threads/<new ULID>` and `refs/uwf/forks/<new ULID>`. Raises as `plan_retry`."""
    from uwf_git.api.fork import fork_thread

    with instance.locks.turn(f"retry-{thread}", waits=lambda _: None):
        return fork_thread(instance, thread, plan_retry(instance, instance.threads.head(thread)).at)


def to_retry(instance: Instance, threads: Sequence[ThreadId]) -> list[ThreadId]:
    """Return those of failed threads that stand for themselves: without sub-workflows of others among them, branches
    that have ended, and those that have ended and were forked since."""
    owners, among = instance.sessions.owners(SUBWORKFLOW, threads), set(threads)
    forks = newest_forks(instance)

    def stands_for_itself(thread: ThreadId) -> bool:
        if owners.get(thread) in among:
            return False
        head = instance.threads.head(thread)
        return head.archive is None or not (
            retried_by(head, forks) or instance.threads.fork_of(head) is not None
        )

    return list(filter(stands_for_itself, threads))


def _retries(instance: Instance, head: Head) -> list[ThreadId]:
    """Return the forks of a thread that has ended which were made since, oldest first. Machines that did not know of
    one another may each have made one."""
    return [link.thread for link in _forks(instance) if retried_by(head, {link.origin: link})]


def _forks(instance: Instance) -> list[Link]:
    """Return the links of all forks, oldest first, in the same order on all machines."""
    from uwf_git.store.history import links

    forked = (link for link in links(instance.store).values() if link.forked)
    return sorted(forked, key=lambda link: (link.time, link.thread))


def newest_forks(instance: Instance) -> dict[ThreadId, Link]:
    """Return the links of the newest forks, by the threads that they are of."""
    return {link.origin: link for link in _forks(instance)}


def retried_by(head: Head, forks: Mapping[ThreadId, Link]) -> ThreadId | None:
    """Return the newest fork of a thread that has ended if it was made since, None if there is none."""
    link = forks.get(head.thread)
    return link.thread if link and head.archive and link.time >= head.archive.time else None
