"""Hooks: the user's commands that run when a thread waits, fails, ends or is paused on this machine.

Only config.yaml names hooks, so nothing from a store is run. A hook gets the thread's state as JSON on
standard input, after the lock is released, so it may call `uwf`, but not answer in a person's role. Its
output is discarded, its time limited, its failure only a warning. Sub-workflow threads run no hooks; their
parent does. The end of a branch is its parent's business, so it runs none either.
"""

from __future__ import annotations

import json
import os
from typing import Any

from uwf_git.base import log
from uwf_git.base.errors import AgentFailed, UwfError
from uwf_git.base.text import last_line
from uwf_git.config.settings import HOOK_EVENTS
from uwf_git.engine.status import (
    COMPLETED,
    FAILED,
    KILLED,
    PAUSED,
    WAITING,
    WITH_FAILURES,
    Outlook,
    persons_role,
)
from uwf_git.format.ids import ThreadId
from uwf_git.format.types import USER
from uwf_git.sandbox.enclosing_step import HOOK_VARIABLE
from uwf_git.store.instance import Instance

BUDGET = "budget"
assert set(HOOK_EVENTS) == {WAITING, BUDGET, FAILED, COMPLETED, WITH_FAILURES, KILLED, PAUSED}


def run_status_hook(instance: Instance, thread: ThreadId, status: str, found: Outlook | None = None) -> None:
    """Run the hook for a thread's new status. Failures that were not recorded run none."""
    if _is_ended_branch(instance, thread):
        return
    if found is not None and found.problem is not None:
        run_hook(instance, thread, FAILED, error=found.problem)
    elif status == WAITING and (found is None or found.next == USER):
        run_hook(instance, thread, WAITING)
    elif status == WAITING:
        head = instance.threads.head(thread)
        if not persons_role(instance, head, found=found):
            run_hook(instance, thread, BUDGET)
        elif instance.runs.call(thread, head.node):
            run_hook(instance, thread, WAITING)
    elif status == FAILED and FAILED in instance.config.hooks.commands:
        head = instance.threads.head(thread)
        if head.archive is not None:
            run_hook(instance, thread, FAILED, error=head.archive.reason)
        elif instance.attempts.failed(head):
            last = instance.attempts.all(thread)[-1]
            run_hook(instance, thread, FAILED, failed={"role": last.role, "agent": last.agent})
    elif status == WITH_FAILURES:
        archive = instance.threads.head(thread).archive
        run_hook(instance, thread, status, error=archive.reason if archive is not None else "")
    elif status in (COMPLETED, KILLED):
        run_hook(instance, thread, status)


def _is_ended_branch(instance: Instance, thread: ThreadId) -> bool:
    head = instance.threads.head(thread)
    return head.archive is not None and instance.threads.fork_of(head) is not None


def run_hook(instance: Instance, thread: ThreadId, event: str, **more: Any) -> None:
    """Run the hook for an event of HOOK_EVENTS. `more` is added to its input."""
    hooks = instance.config.hooks
    command = hooks.commands.get(event)
    if event == WITH_FAILURES and not command:
        command = hooks.commands.get(FAILED)
    if not command:
        return
    log.info("YQQ8DT2Y", "tells {command} of {event}", command=command, event=event, thread=thread)
    try:
        problem = _run(instance, thread, event, command, hooks.timeout, more)
    except (UwfError, OSError) as error:
        problem = str(error)
    if problem:
        instance.warn(f"the hook for {event} {instance.redactor.text(problem)[0]}")


def _run(
    instance: Instance, thread: ThreadId, event: str, command: tuple[str, ...], timeout: float, more: Any
) -> str:
    from uwf_git.engine.presented import presented_at
    from uwf_git.engine.state import state
    from uwf_git.sandbox.child import run_command

    head = instance.threads.head(thread)
    told = {
        "event": event,
        "name": head.row.name,
        "title": head.row.title,
        "question": None,
        **state(instance, head),
        **more,
    }
    if event == WAITING and (shown := presented_at(instance, head)) is not None:
        told["shown"] = shown.as_json()
    environment = {
        **instance.secrets,
        **os.environ,
        **instance.location.environment(),
        "UWF_THREAD": thread,
        HOOK_VARIABLE: event,
    }
    try:
        done = run_command(
            command,
            stdin=(json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "replace"),
            cwd=instance.location.root,
            env=environment,
            timeout=timeout,
            keep=4096,
        )
    except AgentFailed as error:
        return f"doesn't start: {error.message}"
    if done.timed_out:
        return f"was ended after {timeout:g} s; hooks.timeout gives it longer"
    if done.returncode:
        said = last_line(done.stderr_tail.decode("utf-8", "replace"))
        how = f"exited with {done.returncode}" if done.returncode > 0 else f"got signal {-done.returncode}"
        return how + (f": {said}" if said else "")
    return ""
