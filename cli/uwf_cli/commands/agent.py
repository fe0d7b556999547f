"""`uwf agent`: which agents there are, and whether one of them answers."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_agent
from uwf_cli.invocation import Invocation
from uwf_git.base.errors import AgentFailed, Usage
from uwf_git.format.amounts import parse_duration

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.opened import Instance


@command("uwf agent list")
def list_(invocation: Invocation) -> None:
    """List every known agent: who provides it, its program, the version that is installed."""
    from uwf_git.config.read import load_config
    from uwf_git.ext.agents.roster import members

    found = members(load_config(invocation.location.root))
    invocation.emit([{**each._asdict(), "ready": not each.problem} for each in found], _table)


def _table(values: Any) -> str:
    rows = [
        (
            terminal.style("✗", "red") if each["problem"] else terminal.style("✓", "green"),
            each["name"],
            each["by"],
            each["program"] or "in the engine",
            each["version"] or "",
            f"{each['problem']}: {each['hint']}" if each["problem"] else "",
        )
        for each in values
    ]
    return terminal.table(rows, ("", "agent", "by", "program", "version", ""))


@command(
    "uwf agent check claude-code",
    "uwf agent check coder --timeout 30s",
    'uwf agent check "uwf-acp opencode acp"',
)
@click.argument("name", shell_complete=complete_agent)
@click.option("--timeout", metavar="TIME", help="How long it may take: its own timeout, or 2m.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where it works; an empty folder if not said.",
)
def check(invocation: Invocation, name: str, timeout: str | None, cwd: Path | None) -> None:
    """Have an agent answer with one word, in a store that is thrown away, and say what is wrong."""
    from uwf_git.config.read import load_config
    from uwf_git.ext.agents.roster import check as ask

    seconds = None if timeout is None else parse_duration(timeout)
    if timeout is not None and seconds is None:
        raise Usage(f"--timeout {timeout!r} is no duration", "as in 90s, 10m, 1h30m")
    root = invocation.location.root
    watched = _live if invocation.format == "text" and terminal.colours() else None
    done = ask(root, load_config(root), name, seconds, cwd.absolute() if cwd else None, watched)
    if done.problem:
        raise AgentFailed(done.problem, done.hint)
    value = {
        "agent": done.agent,
        "ready": True,
        "seconds": round(done.seconds, 1),
        "model": done.model,
        "usage": done.usage,
    }
    invocation.emit(value, _answered)


@command(
    """uwf agent put-step '{"approved": true}'""",
    'my-model "$(uwf thread prompt "$UWF_THREAD")" | uwf agent put-step -',
)
@click.argument("answer")
@click.option("--name", metavar="NAME", default="", help="Store this name for the agent, not its program's.")
def put_step(invocation: Invocation, answer: str, name: str) -> None:
    """Store the answer of an agent as the step it was asked for, and print the hash that the agent must print.

    For the command of an agent without the kit: UWF_THREAD and UWF_ROLE say which step. ANSWER is the output as JSON,
    or text that holds it; - reads it from standard input.
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


def _live(instance: Instance, thread: ThreadId) -> AbstractContextManager[object]:
    from uwf_cli.watching.lines import of_step

    return of_step(instance, thread)


def _answered(value: Any) -> str:
    by = f" with {value['model']}" if value["model"] else ""
    usage = value["usage"]
    spent = f", {usage['input']} tokens in, {usage['output']} out" if usage else ""
    return f"{value['agent']} answered in {value['seconds']} s{by}{spent}"
