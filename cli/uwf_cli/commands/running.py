"""Doing steps: `uwf thread step` and `run`."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_agent, complete_remote, complete_thread
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_git.errors import Invalid, NotFound, Waiting
from uwf_git.values.ids import parse_thread_id

if TYPE_CHECKING:
    from uwf_git.engine.step import Outcome
    from uwf_git.values.ids import ThreadId

AGENT = click.option(
    "--agent", metavar="CMD", help="An agent of config.yaml or a command.", shell_complete=complete_agent
)
CWD = click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where agents work; remembered on this machine.",
)
REMOTE = click.option(
    "--remote",
    metavar="R",
    help="Pull the thread from there before each step, and push it after.",
    shell_complete=complete_remote,
)


@command(
    "uwf thread step 01JK7M",
    "uwf thread step 01JK7M --agent uwf-human",
    'uwf thread step 01JK7M --agent "my-agent --fast" --cwd ~/project',
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@AGENT
@CWD
@REMOTE
def step(
    invocation: Invocation, thread: str, agent: str | None, cwd: Path | None, remote: str | None
) -> None:
    """Do one step. Who is next works, and what comes of it becomes the new head."""
    do, found = _stepper(invocation, thread, remote)
    emit_outcome(invocation, do(found, agent, folder(cwd), _live_stderr(invocation)))


@command(
    "uwf thread run 01JK7M",
    "uwf thread run 01JK7M --max-steps 5",
)
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option(
    "--max-steps", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="Stop then."
)
@AGENT
@CWD
@REMOTE
def run(
    invocation: Invocation,
    thread: str,
    max_steps: int,
    agent: str | None,
    cwd: Path | None,
    remote: str | None,
) -> None:
    """Step until the end, a question or a failure. Prints one line a step."""
    from uwf_git.engine.budget import waiting
    from uwf_git.engine.status import WAITING

    do, found = _stepper(invocation, thread, remote)
    where = folder(cwd)
    stderr = _live_stderr(invocation)
    for _ in range(max_steps):
        outcome = do(found, agent, where, stderr)
        emit_outcome(invocation, outcome, compact=True)
        if outcome.done:
            return
        if outcome.status == WAITING:
            if outcome.outlook.question is None and outcome.standing is not None:
                raise waiting(found, outcome.standing)
            raise Waiting(
                f"thread {found} asks: {outcome.outlook.question}", f"uwf thread answer {found} -m TEXT"
            )
    invocation.note(f"stopped after {max_steps} step{'s' * (max_steps > 1)}; uwf thread run {found} goes on")


def emit_outcome(invocation: Invocation, outcome: Outcome, compact: bool = False) -> None:
    """Prints where a thread stands after a step; for people as one line."""
    from uwf_git.config.secrets import told
    from uwf_git.store.layout import summary

    following = outcome.outlook
    steps = outcome.position.history.steps
    value: dict[str, Any] = {
        "workflow": outcome.workflow,
        "thread": outcome.thread,
        "head": outcome.head,
        "done": outcome.done,
        "status": outcome.status,
        "role": outcome.role,
        "agent": steps[-1].agent if outcome.role is not None else None,
    }
    if following.problem is not None:
        value["problem"] = following.problem
    if redactions := told(outcome.redactions):
        invocation.warn(redactions)
    shown = {
        **value,
        "number": len(steps),
        "verdict": summary(steps[-1].output) if steps else "",
        "next": following.next,
        "question": following.question or (outcome.standing.reason if outcome.standing else ""),
    }
    invocation.emit(value, _line, shown, compact)


def _line(value: dict[str, Any]) -> str:
    if value["role"] is None:
        begin = "nothing left to do"
    else:
        agent = terminal.style(f"({value['agent']})", "dim")
        begin = f"{value['number']:4d}  {terminal.style(value['role'], 'bold')} {agent}"
        begin += f": {value['verdict']}" if value["verdict"] else ""
    if value["done"]:
        return f"{begin}  → {terminal.status(value['status'])}"
    if value.get("problem"):
        return f"{begin}  → {terminal.style('stuck', 'red')}: {value['problem']}"
    if value["status"] == "waiting":
        return f"{begin}  → {terminal.status('waiting')}: {value['question']}"
    if value["status"] == "paused":
        return f"{begin}  → {terminal.status('paused')}"
    return f"{begin}  → {value['next']}"


def _stepper(
    invocation: Invocation, thread: str, remote: str | None
) -> tuple[Callable[..., Outcome], ThreadId]:
    """The function that does a step of a thread, with a remote between a pull and a push, and the thread's id. A whole
    id may be one that only the remote knows: the thread is pulled then."""
    instance = invocation.instance
    if remote is None:
        from uwf_git.engine.step import step

        return partial(step, instance), find_thread(invocation, thread)
    from uwf_git.sharing.pull import pull, raise_if_refused
    from uwf_git.sharing.step import shared_step

    git, there = exchange.git_for(instance), instance.remotes.get(remote)
    if len(thread.strip()) == 26 and not instance.threads.exists(parse_thread_id(thread)):
        raise_if_refused(pull(instance, git, there, parse_thread_id(thread)))
    return partial(shared_step, instance, git, there), find_thread(invocation, thread)


def _live_stderr(invocation: Invocation) -> Callable[[bytes], None] | None:
    """What passes on an agent's stderr as it comes; None where ours is no terminal, or the format isn't text."""
    if not terminal.is_terminal(sys.stderr) or invocation.format != "text":
        return None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        text = decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
        sys.stderr.write(terminal.escape(text))
        sys.stderr.flush()

    return show


def folder(cwd: Path | None) -> Path | None:
    if cwd is None:
        return None
    found = cwd.expanduser()
    if not found.is_dir():
        if found.exists():
            raise Invalid(f"--cwd {cwd} is no folder")
        raise NotFound(f"no folder {cwd}", "create it first")
    return found.absolute()
