"""Questions to a human: `uwf thread answer`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.commands.running import emit_outcome
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Usage

if TYPE_CHECKING:
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head


@command(
    'uwf thread answer 01JK7M -m "Use PostgreSQL"',
    "uwf thread answer 01JK7M                          asks on a terminal",
    'uwf thread answer 01JK7M --for 8FWKR3 -m "yes"    only if that step still asks',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("-m", "--message", metavar="TEXT", help="The answer; - reads standard input.")
@click.option(
    "--for", "asked_by", metavar="STEP", help="The step that is answered.", shell_complete=complete_step
)
def answer(invocation: Invocation, thread: str, message: str | None, asked_by: str | None) -> None:
    """Answer a thread that waits for a human. The role that asked goes next."""
    from uwf_git.engine.step import answer as give

    instance = invocation.instance
    found = find_thread(invocation, thread)
    step_asking = resolve.find_step(instance, asked_by) if asked_by else None
    if message is None:
        head = instance.threads.active_head(found)
        message = _ask(instance, head) if head.row.asks else ""
        # What is answered is the question that was read, whatever happened while somebody typed.
        step_asking = step_asking or (head.node if head.row.asks else None)
    elif message == resolve.STDIN:
        message = resolve.read_stdin("answer")
    emit_outcome(invocation, give(instance, found, message, step_asking))


def _ask(instance: Instance, head: Head) -> str:
    """The answer to a thread's question: asked for on a terminal, else read from standard input."""
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        text = "" if terminal.is_terminal(sys.stdin) else resolve.read_stdin("answer")
        if not text.strip():
            raise Usage(f"there is no answer for thread {head.thread}", "give one with -m TEXT")
        return text
    from uwf_git.engine.status import outlook

    asked = outlook(instance, head)
    lines = [f"{asked.asks} asks: {asked.question}"]
    lines += [f"  {number}  {option}" for number, option in enumerate(asked.options, 1)]
    lines += [f"({asked.reason})"] if asked.reason else []
    sys.stderr.write(terminal.escape("\n".join(lines)) + "\n> ")
    sys.stderr.flush()
    text = sys.stdin.readline().strip()
    if text.isdigit() and 0 < int(text) <= len(asked.options):
        return asked.options[int(text) - 1]
    return text
