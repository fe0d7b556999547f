"""The buttons `Land` and `Sync` of a thread's page: when they are offered, and what they have done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uwf_git.ext.landing.work_states import work_states
from uwf_git.plugin import counted

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


def landed_line(value: Any) -> str:
    """Return what `uwf land` has done, by its JSON."""
    if (pull := value["pull"]) is not None:
        return f"{pull['url']} {pull_done(pull)}"
    return f"{counted(value['commits'], 'commit')} landed on {value['onto']}, which is {value['commit'][:12]} now"


def pull_done(pull: Any) -> str:
    """Return what was done with a request, by its JSON."""
    return "was opened" if pull["new"] else "was brought up to date" if pull["changed"] else "was up to date"


def synced_line(value: Any) -> str:
    """Return what `uwf land --sync` has done, by its JSON."""
    if value["told"] is None:
        return f"{value['url']} is {value['state']}" + (", nothing new" if value["state"] == "open" else "")
    return f"{counted(len(value['items']), 'item')} of {value['url']} given to thread {value['told']}"
