"""What the buttons `Land` and `Sync` of pages would do with a thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from uwf_git.ext.landing.destination import destination_of, raise_if_unknown
from uwf_git.ext.landing.settings import KEEP, SQUASH, settings_of
from uwf_git.ext.landing.train import raise_unless_ready
from uwf_git.ext.landing.work_states import work_states
from uwf_git.plugin import ActionPlan, Invalid, UwfError, thread_code

if TYPE_CHECKING:
    from uwf_git.ext.landing.destination import Destination
    from uwf_git.plugin import Head, Instance

MOVE, PUSH, REQUEST = "move", "push", "request"
"""How work lands: the branch moves here, or at the remote, or its forge gets a request to merge it."""


def landing_plan(instance: Instance, head: Head) -> ActionPlan:
    """Return what `uwf land` does with a thread's work, as far as is known without asking a remote. Raises Invalid if
    it is not ready to land."""
    raise_unless_ready(instance, head, work_states(instance, [head]).get(head.thread))
    code = thread_code(instance, head.node)
    try:
        to = destination_of(instance, instance.threads.position(head))
        raise_if_unknown(instance, to)
    except UwfError as error:
        return ActionPlan(code, text=f"{error.message}: {error.hint}")
    settings = settings_of(instance.config_of(head.row))
    onto = settings.onto or _usual_branch(to)
    commits = {SQUASH: "one commit", KEEP: "its own commits"}.get(settings.commits, "a commit for each step")
    if to.repository is not None:
        how, target = REQUEST, f"{to.repository} {onto}".strip()
        text = f"A request to merge it into {onto or 'the default branch'} of {to.repository}"
    else:
        how = PUSH if to.remote else MOVE
        target = f"{to.remote}/{onto}" if to.remote else onto
        text = f"Pushed to {target}" if to.remote else f"Branch {onto} moves to it"
    return ActionPlan(code, target, how, f"{text}, as {commits} on top of what the branch is then.")


def _usual_branch(to: Destination) -> str:
    """Return the branch that is meant if none is named, "" if only the remote knows."""
    if not to.remote:
        return to.project.line("symbolic-ref", "--short", "-q", "HEAD")
    with suppress(UwfError):
        ref = to.project.line("symbolic-ref", "-q", f"refs/remotes/{to.remote}/HEAD")
        return ref.removeprefix(f"refs/remotes/{to.remote}/")
    return ""


def sync_plan(instance: Instance, head: Head) -> ActionPlan:
    """Raises Invalid unless there is a request of a thread that is not merged."""
    state = work_states(instance, [head]).get(head.thread)
    if state is None or state.state not in ("draft", "open", "closed"):
        raise Invalid(
            f"thread {head.thread} has no request that waits", f"see: uwf thread show {head.thread}"
        )
    return ActionPlan()
