"""Questions to a human: `uwf inbox` and `uwf thread answer`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.commands.running import emit_outcome
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.exchange import adopt_news, find_thread
from uwf_cli.invocation import Invocation
from uwf_cli.output import ago, iso
from uwf_git.errors import Usage
from uwf_git.text import numbered, one_line

if TYPE_CHECKING:
    from uwf_git.store.history import Head
    from uwf_git.store.opened import Instance


@command(
    "uwf inbox",
    "uwf inbox --format json | jq -r '.[].command'",
)
def inbox(invocation: Invocation) -> None:
    """List what waits for a person here, the longest first.

    That is questions, budgets that are used up, and roles that uwf-human plays on this machine.
    """
    from uwf_git.engine.inbox import waiting_for_people

    adopt_news(invocation)
    found = waiting_for_people(invocation.instance)
    values = [{**each._asdict(), "options": list(each.options), "since": iso(each.since)} for each in found]
    shown = [{**value, "ago": ago(each.since)} for value, each in zip(values, found, strict=True)]
    invocation.emit(values, _inbox_text, shown)


def _inbox_text(value: Any) -> str:
    return "\n".join(map(_waits_text, value)) if value else "nothing waits for a person here"


def _waits_text(value: Any) -> str:
    about = f"{value['name']}: {value['title']}" if value["title"] else value["name"]
    lines = [
        f"{terminal.style(value['thread'], 'bold')}  {terminal.style(value['ago'], 'yellow')}",
        *terminal.wrapped(about, 2),
        *terminal.wrapped(f"{_WHO[value['kind']].format(value['role'])}: {_wanted(value)}", 2),
    ]
    room = terminal.width()
    for option in numbered(value["options"]):
        lines.append("    " + (option if room is None else terminal.cut(option, max(room - 4, 1))))
    if value["reason"] and value["kind"] == "question":
        lines += terminal.wrapped(f"({value['reason']})", 2)
    return "\n".join([*lines, "  " + terminal.style(value["command"], "cyan")]) + "\n"


_WHO = {"question": "{} asks", "budget": "{} has to wait", "role": "you are {}"}


def _wanted(value: Any) -> str:
    return one_line(value["reason"] if value["kind"] == "budget" else value["question"], 400)


@command(
    'uwf thread answer 01JK7M -m "Use PostgreSQL"',
    "uwf thread answer 01JK7M                          asks on a terminal",
    "uwf thread answer 01JK7M -m 2                     the second of its options",
    'uwf thread answer 01JK7M --for 8FWKR3 -m "yes"    only if that step still asks',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("-m", "--message", metavar="TEXT", help="The answer; - reads standard input.")
@click.option(
    "--for", "asked_by", metavar="STEP", help="The step that is answered.", shell_complete=complete_step
)
@click.option("--other", is_flag=True, help="Answer something else than one of the options.")
def answer(
    invocation: Invocation, thread: str, message: str | None, asked_by: str | None, other: bool
) -> None:
    """Answer a thread that waits for a human. The role that asked goes next.

    Where the question has options, the answer is one of them or its number.
    """
    from uwf_git.engine.inbox import answer as give

    instance = invocation.instance
    found = find_thread(invocation, thread)
    step_asking = resolve.find_step(instance, asked_by) if asked_by else None
    if message is None:
        head = instance.threads.active_head(found)
        message = _ask(instance, head, other) if head.row.asks else ""
        # What is answered is the question that was read, whatever happened while somebody typed.
        step_asking = step_asking or (head.node if head.row.asks else None)
    elif message == resolve.STDIN:
        message = resolve.read_stdin("answer")
    emit_outcome(invocation, give(instance, found, message, step_asking, other))


def _ask(instance: Instance, head: Head, other: bool) -> str:
    """The answer to a thread's question: asked for on a terminal, else read from standard input."""
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        text = "" if terminal.is_terminal(sys.stdin) else resolve.read_stdin("answer")
        if not text.strip():
            raise Usage(f"there is no answer for thread {head.thread}", "give one with -m TEXT")
        return text
    from uwf_git.engine.status import chosen, outlook

    asked = outlook(instance, head)
    first, *rest = (asked.question or "").splitlines() or [""]
    lines = [f"{asked.asks} asks: {first}", *map(str.strip, rest)]  # indented, one could pass for an option
    lines += [f"  {option}" for option in numbered(asked.options)]
    lines += [f"({asked.reason})"] if asked.reason else []
    sys.stderr.write(terminal.escape("\n".join(lines)) + "\n")
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        text = sys.stdin.readline().strip()
        if other or not text or not asked.options:
            return text
        try:
            return chosen(head.thread, asked.options, text)
        except Usage as error:
            if text in (option.strip() for option in asked.options):
                sys.stderr.write(terminal.escape(f"{error.message} — {error.hint}") + "\n")
            sys.stderr.write("Please choose one of these, or its number; --other takes any answer.\n")
