"""Hooks: the user's commands that run when a thread waits, fails, ends or is paused on this machine.

Only config.yaml names hooks, so nothing from a store is run. A hook gets the thread's state as JSON on
standard input, after the lock is released, so it may call `uwf`, but not answer in a person's role. Its
output is discarded, its time limited, its failure only a warning. Sub-workflow threads run no hooks; their
parent does. The end of a branch is its parent's business, so it runs none either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from uwf_git.base import log
from uwf_git.base.errors import Absent, AgentFailed, UwfError
from uwf_git.base.text import last_line
from uwf_git.base.thread_states import ThreadState
from uwf_git.format.ids import ThreadId
from uwf_git.sandbox.step_variables import HOOK_VARIABLE
from uwf_git.store.instance import Instance
from uwf_git.workflow.turn import Outlook

if TYPE_CHECKING:
    from uwf_git.engine.outcome import Outcome


def announce(instance: Instance, thread: ThreadId, state: ThreadState, ahead: Outlook | None = None) -> None:
    """Run the hook for a state, if the user has hooks."""
    if instance.config.hooks.commands:
        instance.after(lambda: run_state_hook(instance, thread, state, ahead))


def announce_all(instance: Instance, outcomes: Iterable[Outcome]) -> None:
    """Run the hooks for the outcomes of steps."""
    for outcome in outcomes:
        announce(instance, outcome.thread, outcome.state, outcome.outlook)


def call_person(instance: Instance, thread: ThreadId, absent: Absent) -> None:
    """Run the hook for a person who is needed, once for each head."""
    event = ThreadState.PERSONS_TURN.hook
    if event in instance.config.hooks.commands:
        head = instance.threads.head(thread)
        if instance.runs.call(thread, head.node):
            from uwf_git.engine.human_turn import persons_role

            # The agent of a code workflow's call may be a person too, of which no role tells.
            is_role = bool(persons_role(instance, head))
            question = {} if is_role else {"question": f"{absent.message}: {absent.hint}"}
            instance.after(lambda: run_hook(instance, thread, event, **question))


def run_state_hook(
    instance: Instance, thread: ThreadId, state: ThreadState, following: Outlook | None = None
) -> None:
    """Run the hook for a thread's new state. Failures that were not recorded run none, and a person's turn is told
    once."""
    head = instance.threads.head(thread)
    if head.archive is not None and instance.threads.fork_of(head) is not None:
        return
    more: dict[str, Any] = {}
    if following is not None and following.problem is not None:
        state, more = ThreadState.STUCK, {"error": following.problem}
    elif state is ThreadState.PERSONS_TURN:
        if not instance.runs.call(thread, head.node):
            return
    elif state is ThreadState.STOPPED:
        more = {"error": instance.runs.why_stopped(thread, head.node)}
    elif state in (ThreadState.FAILING, ThreadState.FAILED, ThreadState.WITH_FAILURES):
        if head.archive is not None:
            more = {"error": head.archive.reason}
        elif not instance.attempts.failed(head):
            return
        else:
            last = instance.attempts.all(thread)[-1]
            more.update(failed={"role": last.role, "agent": last.agent})
    if state.hook and state is not ThreadState.PAUSED:  # whose hook the pause has run
        run_hook(instance, thread, state.hook, **more)


def run_hook(instance: Instance, thread: ThreadId, event: str, **more: Any) -> None:
    """Run the hook for an event of `thread_states.HOOKS`. `more` is added to its input."""
    hooks = instance.config.hooks
    command = hooks.commands.get(event)
    if event == ThreadState.WITH_FAILURES.hook and not command:
        command = hooks.commands.get(ThreadState.FAILED.hook)
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
    message = {
        "event": event,
        "name": head.row.name,
        "title": head.row.title,
        "question": None,
        **state(instance, head),
        **more,
    }
    if event == ThreadState.ASKING.hook and (shown := presented_at(instance, head)) is not None:
        message["shown"] = shown.as_json()
    environment = {
        **instance.secrets.environment(instance.config.hooks.env),
        **instance.location.environment(),
        "UWF_THREAD": thread,
        HOOK_VARIABLE: event,
    }
    try:
        done = run_command(
            command,
            stdin=(json.dumps(message, ensure_ascii=False) + "\n").encode("utf-8", "replace"),
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
        complaint = last_line(done.stderr_tail.decode("utf-8", "replace"))
        how = f"exited with {done.returncode}" if done.returncode > 0 else f"got signal {-done.returncode}"
        return how + (f": {complaint}" if complaint else "")
    return ""
