"""Running the branches of a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from uwf_git.base.errors import AgentFailed, NotFound, Waiting
from uwf_git.engine.fan_out import Branches as Branches
from uwf_git.engine.fan_out import branches_at, pending
from uwf_git.engine.status import FAILED, JOINING, PAUSED, RUNNING, WAITING, status_of
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import FORK
from uwf_git.store.instance import Instance
from uwf_git.workflow.fan_out import Pending

AT_ONCE = 8
"""How many branches run at the same time if the workflow doesn't say."""

RunBranches = Callable[[Instance, ThreadId, Branches], None]
"""Runs the branches of a thread that have not ended. Errors of single branches are not raised."""


def waits_for_branches(instance: Instance, thread: ThreadId) -> Branches | None:
    """Return the branches that a thread waits for, None if it waits for none. Raises NotFound."""
    head = instance.threads.head(thread)
    if head.archive is not None or head.row.role != FORK:
        return None
    branches = branches_at(instance, head)
    return branches if isinstance(branches.verdict, Pending) else None


def at_once(branches: Branches) -> int:
    """Return how many branches may run at the same time."""
    return min(branches.fork.at_once or AT_ONCE, max(1, len(branches.open)))


def statuses(instance: Instance, branches: Branches) -> dict[ThreadId, str]:
    """Return the statuses of branches that have not ended; "" for those that are not here."""
    found: dict[ThreadId, str] = {}
    for each in branches.open:
        with suppress(NotFound):
            found[each.thread] = status_of(instance, each.head) if each.head is not None else ""
    return found


def raise_if_stopped(instance: Instance, thread: ThreadId) -> None:
    """Raise Waiting or AgentFailed if a thread still waits for branches that have been run."""
    branches = waits_for_branches(instance, thread)
    if branches is None:
        return
    open_ = statuses(instance, branches)
    if failed := [each for each, status in open_.items() if status == FAILED]:
        error = _error_of(instance, failed[0])
        which = (
            f"branch {failed[0]}" if len(failed) == 1 else f"{len(failed)} branches, the first {failed[0]},"
        )
        raise AgentFailed(f"{which} of thread {thread} failed{error}", f"try again: uwf thread run {thread}")
    for status, hint in ((WAITING, "uwf inbox"), (PAUSED, "uwf thread resume ID")):
        if at_rest := [each for each, now in open_.items() if now == status]:
            which = f"branch {at_rest[0]}" if len(at_rest) == 1 else f"{len(at_rest)} branches"
            raise Waiting(f"{which} of thread {thread}: {status}", hint)
    raise pending(thread, branches)


def _error_of(instance: Instance, thread: ThreadId) -> str:
    attempts = instance.attempts.all(thread)
    return f": {attempts[-1].error}" if attempts else ""


def counts(instance: Instance, branches: Branches) -> Mapping[str, int]:
    """Return how many branches have each status, for people."""
    found: dict[str, int] = {}
    open_ = statuses(instance, branches)
    for each in branches.each:
        status = each.state or open_.get(each.thread) or "not here"
        found[status] = found.get(status, 0) + 1
    order = ("completed", FAILED, "killed", RUNNING, JOINING, WAITING, PAUSED, "idle", "not here")
    return {
        status: found[status]
        for status in sorted(found, key=lambda each: order.index(each) if each in order else 99)
    }
