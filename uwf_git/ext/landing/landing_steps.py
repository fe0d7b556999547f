"""The steps in which a thread's work has landed, or did not: those of the agent `uwf-land`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.plugin import USER, status_of

if TYPE_CHECKING:
    from uwf_git.plugin import Hash, Head, History, Instance

AGENT = "uwf-land"
LANDED, CONFLICT, FAILED = "landed", "conflict", "failed"
"""What such a step says: its work landed, conflicts with the target, or a check failed on both together."""


def has_landed_in_step(instance: Instance, history: History) -> bool:
    """Return whether a step has landed the code that a thread has at its head."""
    from uwf_git.plugin import step_code

    for step in reversed(history.steps):
        if step.agent == AGENT and status_of(step.output) == LANDED:
            return True
        code = step_code(instance, step.detail) if step.role != USER else None
        if code is not None and code.is_changed:
            return False
    return False


def has_code_of(instance: Instance, step: Hash | None, head: Head) -> bool:
    """Return whether a thread had the code of its head at a step: what a step lands is of the one before it."""
    if step is None or step == head.node:
        return step is not None
    return _commit_at(instance, step) == _commit_at(instance, head.node)


def _commit_at(instance: Instance, node: Hash) -> str:
    """Return the commit of the code up to a step, "" if it has none."""
    from uwf_git.plugin import step_code

    steps = (past.step for past in instance.threads.past(node))
    codes = (step_code(instance, step.detail) for step in steps if step.role != USER)
    return next((code.commit for code in codes if code is not None), "")
