"""`uwf thread wait` and `uwf thread stop`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import Number, command
from uwf_cli.completers import complete_thread
from uwf_cli.invocation import Invocation
from uwf_cli.selection import Selection, on_each
from uwf_git.api.listing import Filters
from uwf_git.base.thread_states import ThreadState

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId

_THREADS = click.argument("threads", metavar="ID...", nargs=-1, required=True, shell_complete=complete_thread)


@command(
    "uwf thread wait 01JK7M",
    "uwf thread wait @ @2 @3 --timeout 3600",
    "uwf thread wait 01JK7M && git diff main...uwf/work/01JK7M",
)
@_THREADS
@click.option(
    "--timeout", type=Number(min=0), metavar="SECONDS", help="Give up after SECONDS, with exit status 124."
)
def wait(invocation: Invocation, threads: tuple[str, ...], timeout: float | None) -> None:
    """Wait until no process here works on the threads. The exit status is that of thread run.

    It is 0 for completed threads, 15 for those completed with failures, 10 for failed ones, 5 for those that
    wait for a person, 6 if the last step failed, and 11 for a thread that could go on but that no process here
    runs. Of several, the highest counts, but 5 only if no other is bad.
    """
    from uwf_git.api.waiting import wait as wait_for

    instance = invocation.instance
    deadline = None if timeout is None else time.monotonic() + timeout
    invocation.going_on = "only the wait has ended; what runs goes on"

    def do(thread: ThreadId) -> dict[str, Any]:
        head = wait_for(instance, thread, deadline)
        return {"thread": thread, "head": head.node, "status": ThreadState.COMPLETED.word}

    on_each(invocation, Selection(threads, Filters()), do, "{thread} is {status:status}")


@command("uwf thread stop 01JK7M", "uwf thread stop @ @2")
@_THREADS
def stop(invocation: Invocation, threads: tuple[str, ...]) -> None:
    """Stop the processes here that run threads, as Ctrl-C does; nothing is lost.

    A step in progress is ended with its agent, and what that did is kept as an attempt, which the next step
    resumes. uwf thread run goes on. Threads that no process here runs are left as they are.
    """
    from uwf_git.api.waiting import stop as end

    instance = invocation.instance
    on_each(invocation, Selection(threads, Filters()), lambda thread: end(instance, thread), _stopped_text)


def _stopped_text(value: Any) -> str:
    thread, status = value["thread"], terminal.status(value["status"])
    if not value["stopped"]:
        return f"no process here runs {thread}; it is {status}"
    onward = (
        ""
        if value["done"] or value["status"] == ThreadState.ASKING.word
        else f"; uwf thread run {thread} goes on"
    )
    return f"stopped the run of {thread}, which is {status}{onward}"
