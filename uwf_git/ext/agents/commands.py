"""`uwf agent list` and `uwf agent check`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_git.plugin import (
    AgentFailed,
    Invocation,
    Table,
    Usage,
    command,
    completers,
    parse_duration,
    terminal,
)

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, ThreadId


@command("uwf agent list")
def list_(invocation: Invocation) -> None:
    """List all known agents with their source, program and installed version."""
    from uwf_git.ext.agents.roster import members
    from uwf_git.plugin import load_config

    all_members = members(load_config(invocation.location.root))
    invocation.emit([{**member._asdict(), "ready": not member.problem} for member in all_members], _AGENTS)


def _sign(agent: Any) -> str:
    return terminal.style("✗", "red") if agent["problem"] else terminal.style("✓", "green")


_AGENTS = Table(
    *(("", _sign), ("agent", "name"), "by"),
    ("program", lambda agent: agent["program"] or "in the engine"),
    "version",
    ("", lambda agent: f"{agent['problem']}: {agent['hint']}" if agent["problem"] else ""),
)


@command(
    "uwf agent check claude-code",
    "uwf agent check coder --timeout 30s",
    'uwf agent check "uwf-acp opencode acp"',
)
@click.argument("name", shell_complete=completers.complete_agent)
@click.option("--timeout", metavar="TIME", help="Time limit. Default: the agent's own, or 2m.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder to work in. Default: an empty one.",
)
def check(invocation: Invocation, name: str, timeout: str | None, cwd: Path | None) -> None:
    """Test an agent: have it answer with one word in a temporary store, and report problems."""
    from uwf_git.ext.agents.roster import check as ask
    from uwf_git.plugin import load_config

    seconds = None if timeout is None else parse_duration(timeout)
    if timeout is not None and seconds is None:
        raise Usage(f"--timeout {timeout!r} is not a duration", "as in 90s, 10m, 1h30m")
    root = invocation.location.root
    watched = _live if invocation.draws else None
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


def _live(instance: Instance, thread: ThreadId) -> AbstractContextManager[object]:
    from uwf_git.plugin import step_lines

    return step_lines.of_step(instance, thread)


def _answered(value: Any) -> str:
    by = f" with {value['model']}" if value["model"] else ""
    usage = value["usage"]
    spent = f", {usage['input']} tokens in, {usage['output']} out" if usage else ""
    return f"{value['agent']} answered in {value['seconds']} s{by}{spent}"
