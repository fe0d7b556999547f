"""`uwf thread step`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from uwf_cli.command import command
from uwf_cli.invocation import Invocation
from uwf_cli.options import CWD, FILES, QUIET, REMOTE, STEP_AGENT, THREAD, WORKSPACE, folder
from uwf_cli.stepping import (
    emit_outcome,
    exchanged,
    live_line,
    live_stderr,
    place,
    repeated,
    repeating,
    stopped,
    warn_of_agent,
)


@command(
    "uwf thread step 01JK7M",
    "uwf thread step 01JK7M --agent uwf-human",
    'uwf thread step 01JK7M --agent "my-agent --fast" --cwd ~/project',
)
@THREAD
@STEP_AGENT
@CWD
@WORKSPACE
@FILES
@REMOTE
@QUIET
def step(
    invocation: Invocation,
    thread: str,
    agent: str | None,
    cwd: Path | None,
    workspace: str | None,
    files: str | None,
    remote: str | None,
    quiet: bool,
) -> None:
    """Run one step of a thread: the next role's agent runs, and its output becomes the new head."""
    from uwf_git.api.run import Options
    from uwf_git.api.run import step as make

    shared, thread_id = exchanged(invocation, thread, remote)
    if agent is None and invocation.instance.threads.head(thread_id).row.kind == "start":
        from uwf_git.api.preflight import warn_unless_ready

        warn_unless_ready(invocation.instance, thread_id)
    where = None if cwd is None else folder(cwd)
    place(invocation, thread_id, workspace, where)
    warn_of_agent(invocation, thread_id, agent)
    command, repeats = f"uwf thread step {thread_id}", repeated(agent, where, remote)
    lines = live_line(invocation, command + repeats, thread_id, quiet)
    with repeating(command, repeats), lines or nullcontext():
        options = Options(agent, where, live_stderr(invocation, lines), shared, files=files or "")
        outcome = make(invocation.instance, thread_id, options)
    emit_outcome(invocation, outcome)
    if outcome.done:
        from uwf_git.api.outcome import raise_as_ended

        raise_as_ended(invocation.instance, outcome.position.head)
    error = stopped(invocation, outcome)
    if error is not None:
        invocation.note(f"{error.message} — {error.hint}")
