"""`uwf thread prompt` and `uwf thread turns`: what an agent is told, and what it says and does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_step, complete_thread
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_cli.resolve import numbered_step, with_step
from uwf_git.base.errors import Invalid, NotFound, Usage

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash, ThreadId
    from uwf_git.format.kinds import TurnRecord
    from uwf_git.store.history import Head
    from uwf_git.store.opened import Instance

SHOWN = 300  # characters of a tool's arguments and result, for people


@command(
    "uwf thread prompt 01JK7M",
    "uwf thread prompt 01JK7M@3             what the agent of step 3 was told",
    "uwf thread prompt 01JK7M --role reviewer",
    "uwf thread prompt 01JK7M --resumed     for an agent that remembers",
)
@click.argument("thread", metavar="ID[@STEP]", shell_complete=complete_thread)
@click.option("--role", metavar="ROLE", help="Another role than the next one.")
@click.option("--resumed", is_flag=True, help="Leave out what an agent remembers from the role's last turn.")
def prompt(invocation: Invocation, thread: str, role: str | None, resumed: bool) -> None:
    """Print the prompt of the next step, without running it, or of a past step."""
    name, number = with_step(thread)
    if number is None:
        value = _next_prompt(invocation.instance, find_thread(invocation, name), role, resumed)
    elif role is not None or resumed:
        raise Usage(f"--role and --resumed don't apply to step {number}", f"uwf thread prompt {thread}")
    else:
        value = _past_prompt(invocation.instance, find_thread(invocation, name), number)
    invocation.emit_document(value["prompt"], value)


def _next_prompt(instance: Instance, thread: ThreadId, role: str | None, resumed: bool) -> dict[str, Any]:
    from uwf_git.engine.kit.prompt import prompt_at, role_of
    from uwf_git.engine.past_prompt import configured_recipient
    from uwf_git.engine.status import outlook, raise_if_stuck
    from uwf_git.format.types import BUNDLE, END, USER
    from uwf_git.store.history import Position

    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    following = outlook(instance, head, history)
    if role is None:
        raise_if_stuck(following, thread)
        role = following.asks if following.next == USER else following.next
        if role is None or role == END:
            raise Invalid(
                f"thread {thread} has nobody next",
                f"name one with --role, or a step: {thread}@{head.row.number}",
            )
        if role == BUNDLE:
            raise Invalid(f"the code of thread {thread} decides who is next", "name a role with --role")
    instruction = following.instruction if role == following.next else None
    recipient = configured_recipient(instance, Position(head, history), role)._replace(remembers=resumed)
    text = prompt_at(instance, history, role_of(history, role), instruction, recipient)
    return {"thread": thread, "role": role, "instruction": instruction, "prompt": text}


def _past_prompt(instance: Instance, thread: ThreadId, number: int) -> dict[str, Any]:
    from uwf_git.engine.past_prompt import prompt_of_step
    from uwf_git.format.kinds import parse_step
    from uwf_git.format.types import USER
    from uwf_git.git.repository import Oid

    row = numbered_step(instance, thread, number)
    before = instance.store.take_in(Oid(raw=row.parent or b""))
    history = instance.threads.history_at(thread, before.node)
    detail = instance.store.detail(parse_step(instance.store.get(row.node).payload).detail)
    if row.role == USER:
        raise Invalid(f"step {number} of thread {thread} was said by a person, who had no prompt", "")
    if history.workflow.code is not None or row.role not in history.workflow.roles:
        raise Invalid(f"the code of the workflow made the prompt of step {number} of thread {thread}", "")
    if detail is None:
        raise Invalid(f"step {number} of thread {thread} doesn't say what its agent was told", "")
    text = prompt_of_step(instance, history, before, row, detail)
    step = {"step": row.node, "number": number, "agent": row.agent}
    return {"thread": thread, "role": row.role, "instruction": detail.instruction, **step, "prompt": text}


@command(
    "uwf thread turns 01JK7M             of the last step, or of that which runs",
    "uwf thread turns 01JK7M --live      as they happen, until it rests",
    "uwf thread turns 01JK7M --step 8FWKR3",
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--live", is_flag=True, help="Follow what runs.")
@click.option("--step", metavar="STEP", help="A step or a failed attempt.", shell_complete=complete_step)
def turns(invocation: Invocation, thread: str, live: bool, step: str | None) -> None:
    """Show what an agent said and which tools it called. With --live a line each, as JSON off a terminal."""
    from uwf_git.engine.turns import follow, turns_of, turns_so_far

    instance = invocation.instance
    found = find_thread(invocation, thread)
    if live:
        if not instance.locks.is_held(found):
            raise Invalid(f"thread {found} is not running", f"uwf thread turns {found}")
        for turn in follow(instance, found):
            value = turn_value(turn)
            if invocation.format != "text" or _line(value):
                invocation.emit(value, _line, compact=True)
        return
    if step is not None:
        from uwf_cli.resolve import find_step

        node = find_step(instance, step, attempts=True)
        seen = turns_of(instance, node)
    elif instance.locks.is_held(found) or instance.runs.notes(found):
        seen = turns_so_far(instance, found)
    else:
        seen = turns_of(instance, _last(instance, instance.threads.head(found)))
    invocation.emit([turn_value(turn) for turn in seen], turn_lines)


def _last(instance: Instance, head: Head) -> Hash:
    """The last step, or the failed attempt that came after it."""
    if instance.attempts.last(head) is not None:
        return instance.attempts.all(head.thread)[-1].hash
    if head.row.kind != "step":
        raise NotFound(f"thread {head.thread} has no step yet", f"uwf thread step {head.thread}")
    return head.node


def turn_value(turn: TurnRecord) -> dict[str, Any]:
    """A turn as JSON."""
    value: dict[str, Any] = {"role": turn.role, "text": turn.text}
    if turn.tool is not None:
        value |= {
            "tool": turn.tool,
            "arguments": turn.arguments,
            "result": turn.result,
            "failed": turn.failed,
        }
    value["model"] = turn.model
    value["usage"] = turn.usage._asdict() if turn.usage else None
    value["durationMs"] = turn.duration_ms
    return value


def turn_lines(values: Any) -> str:
    """Turns for people, as `turn_value` gives them."""
    return "\n".join(filter(None, map(_line, values))) or "No turns were recorded."


def _line(value: Any) -> str:
    """A turn for people: who, what was said, or the call and what came of it. "" for who said nothing, at no
    known cost, before a call."""
    if "tool" in value:
        sign = terminal.style("✗", "red") if value["failed"] else terminal.style("→", "dim")
        called = f"  {value['tool']} {_short(value['arguments'])}{terminal.style(_spent(value), 'dim')}"
        return f"{called}\n  {sign} {_short(value['result'] or value['text'])}"
    spent = _spent(value)
    text = value["text"].strip()
    if not text and not spent:
        return ""
    said = f": {text}" if text else ""
    return f"{terminal.style(value['role'], 'bold')}{terminal.style(spent, 'dim')}{said}"


def _spent(value: Any) -> str:
    usage, took = value["usage"], value["durationMs"]
    parts = [f"{took / 1000:.1f} s"] if took else []
    if usage:
        parts.append(f"{usage['input']:,} in, {usage['output']:,} out")
    return f" ({', '.join(parts)})" if parts else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else f"{flat[:SHOWN]}…"
