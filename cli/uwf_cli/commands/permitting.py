"""`uwf thread permit`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.invocation import Invocation, find_thread
from uwf_cli.options import THREAD
from uwf_git.base.errors import Invalid, Usage
from uwf_git.engine.permission_requests import request_lines

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId

_MOST_LINES = 20
_MOST_CHARACTERS = 2000
_WORDS = {"y": (True, False), "n": (False, False), "always": (True, True), "never": (False, True)}


@command(
    "uwf thread permit 01JK7M                    asks on a terminal",
    "uwf thread permit 01JK7M 7Q2XKMPD           for this once",
    "uwf thread permit 01JK7M 7Q2XKMPD --always  also the next equal ones",
    "uwf thread permit 01JK7M 7Q2XKMPD --deny",
)
@THREAD
@click.argument("request", required=False)
@click.option("--deny", is_flag=True, help="Refuse it.")
@click.option("--always", is_flag=True, help="Decide equal requests of this role and thread likewise.")
def permit(invocation: Invocation, thread: str, request: str | None, deny: bool, always: bool) -> None:
    """Allow or deny what the agent of a running step asks leave for.

    REQUEST is the id that `uwf inbox` and `uwf thread show` name. Requests wait
    for a person as long as permissionWait in config.yaml says.
    """
    from uwf_git.api.control import permit as decide

    instance = invocation.instance
    thread_id = find_thread(invocation, thread)
    if request is None:
        decided = _ask(invocation, thread_id, deny, always)
        invocation.emit(decided, lambda lines: "\n".join(map(_line, lines)))
    else:
        invocation.emit(decide(instance, thread_id, request, not deny, always), _line)


def _ask(invocation: Invocation, thread: ThreadId, deny: bool, always: bool) -> list[dict[str, Any]]:
    """Ask about each open request on the terminal. With an option that decides, a request has to be named."""
    from uwf_git.api.control import permit as decide
    from uwf_git.engine.permission_requests import permission_requests, request_value

    instance = invocation.instance
    values = list(map(request_value, permission_requests(instance, thread)))
    if not values:
        raise Invalid(
            f"no agent of thread {thread} asks leave for anything", f"see: uwf thread show {thread}"
        )
    if deny or always or not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        commands = values[0]["commands"]
        more = " --always" if always and "always" in commands else ""
        raise Usage(
            f"thread {thread} has an open request: name it", commands["deny" if deny else "allow"] + more
        )
    decided: list[dict[str, Any]] = []
    for value in values:
        words = [word for word in _WORDS if "always" in value["commands"] or not _WORDS[word][1]]
        sys.stderr.write(request_text(value) + "\n")
        answer = ""
        while answer not in words:
            sys.stderr.write(f"{', '.join(words)}? ")
            sys.stderr.flush()
            if not (line := sys.stdin.readline()):
                return decided
            answer = line.strip().casefold()
        granted, always = _WORDS[answer]
        decided.append(decide(instance, thread, value["request"], granted, always))
    return decided


def request_text(value: Mapping[str, Any]) -> str:
    """Format a request, as `request_value` returns it, with all that it asks for, for a terminal."""
    who = terminal.escape(f"{value['role']} ({value['agent']})")
    return f"{who} asks for leave to " + "\n".join(map(terminal.escape_code, request_lines(value)))


def request_part(value: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the lines of a request for a terminal, with the command that allows it. Of a long one they are the first,
    and the command is the one that shows it whole and asks."""
    lines = [*map(terminal.escape_code, request_lines(value))]
    whole = "\n".join(lines)
    if len(lines) <= _MOST_LINES and len(whole) <= _MOST_CHARACTERS:
        return lines, value["commands"]["allow"]
    shown = whole[:_MOST_CHARACTERS].split("\n")[:_MOST_LINES]
    rest = len(whole) - len("\n".join(shown))
    return [*shown, f"[… {rest:,} more characters]"], f"uwf thread permit {value['thread']}"


def _line(value: dict[str, Any]) -> str:
    how = "allowed" if value["granted"] else "denied"
    always = ", and equal requests of this role in this thread too" if value["always"] else ""
    return f"{how}: {value['line']}{always}"
