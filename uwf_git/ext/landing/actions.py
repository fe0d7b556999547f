"""When the buttons `Land` and `Sync` of a thread's page are offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.ext.landing.work_states import work_states

if TYPE_CHECKING:
    from uwf_git.plugin import Head, Instance


def may_land(instance: Instance, head: Head) -> bool:
    """Return whether a thread has work that is ready to land."""
    from uwf_git.ext.landing.train import is_ready

    return is_ready(instance, head, work_states(instance, [head]).get(head.thread))


def may_sync(instance: Instance, head: Head) -> bool:
    """Return whether there is a request of a thread that is not merged."""
    state = work_states(instance, [head]).get(head.thread)
    return state is not None and state.state in ("draft", "open", "closed")
