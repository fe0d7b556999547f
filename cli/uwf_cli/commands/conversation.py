"""`uwf thread prompt`, `uwf thread turns`, and `uwf agent put-step`: the answer of an agent without the kit."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.invocation import Invocation, find_thread
from uwf_cli.options import THREAD
from uwf_git.api.find import find_step, with_step
from uwf_git.base.errors import Invalid, Usage
from uwf_git.base.text import without_colours

SHOWN = 300  # characters of a tool's arguments and result, for people


@command(
    "uwf thread prompt 01JK7M",
    "uwf thread prompt 01JK7M@3             what the agent of step 3 was told",
    "uwf thread prompt 01JK7M --role reviewer",
    "uwf thread prompt 01JK7M --resumed     for an agent that remembers",
)
@click.argument("thread", metavar="ID[@STEP]", shell_complete=complete_thread)
@click.option("--role", metavar="ROLE", help="Role to render the prompt for. Default: the next role.")
@click.option("--resumed", is_flag=True, help="Omit text that the role's agent has in its session.")
def prompt(invocation: Invocation, thread: str, role: str | None, resumed: bool) -> None:
    """Print the prompt of the next step or of a past step, without running it."""
    from uwf_git.api.conversation import next_prompt, past_prompt

    name, number = with_step(thread)
    if number is None:
        value = next_prompt(invocation.instance, find_thread(invocation, name), role, resumed)
    elif role is not None or resumed:
        raise Usage(f"--role and --resumed don't apply to step {number}", f"uwf thread prompt {thread}")
    else:
        value = past_prompt(invocation.instance, find_thread(invocation, name), number)
    invocation.emit_document(value["prompt"], value)


@command(
    "uwf thread turns 01JK7M             of the last step, or of that which runs",
    "uwf thread turns 01JK7M --live      as they happen, until it rests",
    "uwf thread turns 01JK7M --step 8FWKR3",
)
@THREAD
@click.option("--live", is_flag=True, help="Follow the step in progress.")
@click.option(
    "--step",
    metavar="STEP",
    help="Hash of a step or a failed attempt. Default: the newest.",
    shell_complete=complete_step,
)
def turns(invocation: Invocation, thread: str, live: bool, step: str | None) -> None:
    """Show an agent's messages and tool calls. With --live, print one line per event."""
    from uwf_git.api.conversation import follow, last_turns, turn_value, turns_of

    instance = invocation.instance
    thread_id = find_thread(invocation, thread)
    if live:
        if not instance.locks.is_held(thread_id):
            raise Invalid(f"thread {thread_id} is not running", f"uwf thread turns {thread_id}")
        for turn in follow(instance, thread_id):
            value = turn_value(turn)
            if invocation.format != "text" or _line(value):
                invocation.emit(value, _line, compact=True)
        return
    if step is not None:
        seen = turns_of(instance, find_step(instance, step, attempts=True))
    else:
        seen = last_turns(instance, thread_id)
    invocation.emit([turn_value(turn) for turn in seen], turn_lines)


def turn_lines(values: Any) -> str:
    """Format turns, as `turn_value` returns them."""
    return "\n".join(filter(None, map(_line, values))) or "No turns were recorded."


def _line(value: Any) -> str:
    """Format a turn: role, text, or call and result; "" for an empty turn without known cost before a call."""
    if "tool" in value:
        sign = terminal.style("✗", "red") if value["failed"] else terminal.style("→", "dim")
        called = f"  {value['tool']} {_short(value['arguments'])}{terminal.style(_spent(value), 'dim')}"
        return f"{called}\n  {sign} {_short(value['result'] or value['text'])}"
    spent = _spent(value)
    text = without_colours(value["text"]).strip()
    if not text and not spent:
        return ""
    text_shown = f": {text}" if text else ""
    return f"{terminal.style(value['role'], 'bold')}{terminal.style(spent, 'dim')}{text_shown}"


def _spent(value: Any) -> str:
    usage, took = value["usage"], value["durationMs"]
    parts = [f"{took / 1000:.1f} s"] if took else []
    if usage:
        parts.append(f"{usage['input']:,} in, {usage['output']:,} out")
    return f" ({', '.join(parts)})" if parts else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    flat = " ".join(without_colours(text).split())
    return flat if len(flat) <= SHOWN else f"{flat[:SHOWN]}…"


@command(
    """uwf agent put-step '{"approved": true}'""",
    'my-model "$(uwf thread prompt "$UWF_THREAD")" | uwf agent put-step -',
)
@click.argument("answer")
@click.option(
    "--name", metavar="NAME", default="", help="Name to record for the agent. Default: its program's name."
)
def put_step(invocation: Invocation, answer: str, name: str) -> None:
    """Record an agent's answer as a step and print the hash that the agent must print.

    For agents written without the kit. UWF_THREAD and UWF_ROLE name the step. ANSWER is the output as JSON,
    or text that contains it; - reads standard input.
    """
    from uwf_cli.resolve import STDIN, read_stdin
    from uwf_git.engine.kit.agent import put_step as put
    from uwf_git.format.ids import parse_thread_id

    thread, role = os.environ.get("UWF_THREAD"), os.environ.get("UWF_ROLE")
    if not thread or not role:
        raise Usage(
            "UWF_THREAD and UWF_ROLE name no step", "call it in an agent's command, for which uwf sets them"
        )
    text = read_stdin("answer") if answer == STDIN else answer
    # A hash whatever the format is: the agent's last line must be that.
    invocation.write(put(invocation.instance, parse_thread_id(thread), role, text, name))
