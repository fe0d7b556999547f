"""The user's hooks, run for a thread's new state once its lock is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.base.errors import Absent
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.next_turn import Outlook
from uwf_git.engine.status import persons_role
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from uwf_git.engine.outcome import Outcome


def announce(instance: Instance, thread: ThreadId, state: ThreadState, ahead: Outlook | None = None) -> None:
    """Run the hook for a state, if the user has hooks."""
    if instance.config.hooks.commands:
        from uwf_git.engine.hooks import run_state_hook

        instance.after(lambda: run_state_hook(instance, thread, state, ahead))


def announce_all(instance: Instance, outcomes: Iterable[Outcome]) -> None:
    """Run the hooks for the outcomes of steps."""
    for outcome in outcomes:
        announce(instance, outcome.thread, outcome.state, outcome.outlook)


def call_person(instance: Instance, thread: ThreadId, absent: Absent) -> None:
    """Run the hook for a person who is needed, once for each head."""
    event = ThreadState.PERSONS_TURN.hook
    if event in instance.config.hooks.commands:
        from uwf_git.engine.hooks import run_hook

        head = instance.threads.head(thread)
        if instance.runs.call(thread, head.node):
            # The agent of a code workflow's call may be a person too, of which no role tells.
            is_role = bool(persons_role(instance, head))
            question = {} if is_role else {"question": f"{absent.message}: {absent.hint}"}
            instance.after(lambda: run_hook(instance, thread, event, **question))
