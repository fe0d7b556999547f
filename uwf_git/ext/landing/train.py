"""The threads whose work is ready to land, in the order in which a train lands it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.ext.landing.destination import branch_at
from uwf_git.ext.landing.kin import effects_of, goes_on_as, kin_of
from uwf_git.ext.landing.landing_steps import has_code_of
from uwf_git.plugin import DamagedThread, ThreadState, code_at_end, ended_state, thread_code, words

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance, ThreadId


def ready(instance: Instance) -> list[ThreadId]:
    """Return the project's threads whose work was accepted and has not landed, oldest first. What goes on in another
    thread is left to that."""
    return sorted(
        head.thread
        for head in instance.threads.all(archived=True)
        if not isinstance(head, DamagedThread)
        and instance.threads.is_meant(head)
        and _is_ready(instance, head)
    )


def _is_ready(instance: Instance, head: Head) -> bool:
    if head.archive is None or ended_state(head.archive) is not ThreadState.COMPLETED:
        return False
    code = thread_code(instance, head.node)
    if code is None or code.commit == code.base:
        return False
    kin = kin_of(instance, head)
    if goes_on_as(instance, head, kin) is not head or has_landed(instance, head, kin):
        return False
    left = code_at_end(instance, instance.threads.position(head))
    return left is not None and bool(left.merge)


def has_landed(instance: Instance, head: Head, kin: list[Head]) -> bool:
    """Return whether the work up to a head was pushed to its target, other than to the branch of a request."""
    requests = {item.effect.name for _, item in effects_of(instance, kin, words.PULL_REQUEST)}
    return any(
        item.is_settled
        and branch_at(item.effect.target) not in requests
        and has_code_of(instance, item.effect.prev, head)
        for _, item in effects_of(instance, [head], words.PUSH)
    )
