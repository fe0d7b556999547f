"""`uwf thread`, the commands that write: start, fork, pause, resume, kill, rm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from uwf_cli import resolve, terminal
from uwf_cli.command import command
from uwf_cli.commands.running import AGENT, CWD, MAX_STEPS, QUIET, REMOTE, folder, run_one, stepper
from uwf_cli.completers import (
    complete_thread,
    complete_workflow,
)
from uwf_cli.exchange import find_thread
from uwf_cli.invocation import Invocation
from uwf_cli.selection import ACTIVE, Chosen, on_each, threads
from uwf_git.errors import NotFound, Usage
from uwf_git.text import nearest
from uwf_git.values.ids import Hash, ThreadId, is_thread_id

if TYPE_CHECKING:
    from uwf_git.store.index import CommitRow
    from uwf_git.store.opened import Instance
    from uwf_git.store.threads import Head
    from uwf_git.values.ids import ThreadId


PROMPT = click.option("-p", "--prompt", metavar="TEXT", help="The task; - reads standard input.")
PROMPT_FILE = click.option(
    "--prompt-file", metavar="FILE", help="A file with the task; - reads standard input."
)
MAX_TOKENS = click.option("--max-tokens", metavar="N", help="After so many tokens it waits for a human.")
MAX_COST = click.option("--max-cost", metavar="USD", help="Likewise, after so many US dollars.")
MAX_TIME = click.option(
    "--max-time", metavar="TIME", help="Likewise, after so much agents' time: 90s, 30m, 2h."
)


class Begun(NamedTuple):
    """A thread that was started, and its workflow."""

    thread: ThreadId
    workflow: Hash
    name: str


@command(
    'uwf thread start solve-issue -p "Fix the login bug"',
    "uwf thread start ./review.yaml --prompt-file task.md",
    "gh issue view 42 | uwf thread start solve-issue -p -",
    'uwf thread start solve-issue -p "Fix it" --max-cost 2.50 --max-time 1h',
)
@click.argument("workflow", shell_complete=complete_workflow)
@PROMPT
@PROMPT_FILE
@CWD
@click.option("--max-steps", metavar="N", help="Then it waits for a human.")
@MAX_TOKENS
@MAX_COST
@MAX_TIME
def start(
    invocation: Invocation,
    /,
    workflow: str,
    prompt: str | None,
    prompt_file: str | None,
    cwd: Path | None,
    **limits: str | None,
) -> None:
    """Start a run of a workflow; nothing is executed yet.

    WORKFLOW is looked for as a registered name, as a hash, as a file, and as .workflows/WORKFLOW.yaml in
    this folder and those above it, up to the edge of the repository.
    """
    begun = _begin(invocation, workflow, _prompt(prompt, prompt_file), folder(cwd), resolve.limits(limits))
    invocation.emit(
        {"workflow": begun.workflow, "thread": begun.thread},
        lambda value: terminal.fields(
            [
                ("thread", terminal.style(value["thread"], "bold")),
                ("workflow", f"{value['name']}  {value['workflow']}"),
                ("next", f"uwf thread run {value['thread']}"),
            ]
        ),
        shown=begun._asdict(),
    )


def _begin(
    invocation: Invocation, workflow: str, task: str, where: Path | None, budget: Mapping[str, float]
) -> Begun:
    instance = invocation.instance_for_writing()
    found = resolve.find_workflow(invocation, workflow)
    task, secrets = instance.redactor.text(task)
    if secrets:
        invocation.warn(f"took {secrets} secret{'s' * (secrets > 1)} out of the prompt")
    if len(task.encode("utf-8", "replace")) > resolve.ADVISED:
        invocation.warn("the prompt is larger than 1 MiB, which is more than forges like in one file")
    made = instance.threads.start(resolve.version_of(instance, found), found.hash, task, budget)
    if where is not None:
        instance.folders.remember(made, where)
    return Begun(made, found.hash, found.workflow.name)


@command(
    'uwf run solve-issue -p "Fix the login bug"',
    "uwf run ./review.yaml --prompt-file task.md --max-cost 2.50",
    "gh issue view 42 | uwf run solve-issue -p - --agent claude-code",
)
@click.argument("workflow", shell_complete=complete_workflow)
@PROMPT
@PROMPT_FILE
@MAX_TOKENS
@MAX_COST
@MAX_TIME
@MAX_STEPS
@AGENT
@CWD
@REMOTE
@QUIET
def start_and_run(
    invocation: Invocation,
    workflow: str,
    prompt: str | None,
    prompt_file: str | None,
    max_steps: int,
    agent: str | None,
    cwd: Path | None,
    remote: str | None,
    quiet: bool,
    **limits: str | None,
) -> None:
    """Start a thread of a workflow and run it. The thread's id comes first.

    It is `uwf thread start` and `uwf thread run` in one, with the options of both; --max-steps is that of `run`.
    """
    budget = resolve.limits({**limits, "max_steps": None})
    where = folder(cwd)
    begun = _begin(invocation, workflow, _prompt(prompt, prompt_file), where, budget)
    invocation.emit(
        {"workflow": begun.workflow, "thread": begun.thread},
        lambda value: terminal.fields([("thread", terminal.style(value["thread"], "bold"))]),
        compact=True,
    )
    do, thread = stepper(invocation, begun.thread, remote)
    run_one(invocation, do, thread, max_steps, agent, where, quiet)


@command(
    "uwf thread fork 8FWKR3TN5V1QA                  from a step",
    "uwf thread fork 01JK7M                         from a thread's head",
    "uwf thread fork 01JK7M --at 2                  after its second step",
    "uwf thread fork 01JK7M --from-role reviewer    so that the reviewer goes again",
)
@click.argument("origin", metavar="STEP|ID", shell_complete=complete_thread)
@click.option("--at", type=click.IntRange(min=0), metavar="N", help="After step N; 0 is the start.")
@click.option("--from-role", metavar="ROLE", help="Before the last step of that role.")
def fork(invocation: Invocation, origin: str, at: int | None, from_role: str | None) -> None:
    """Make a second thread that shares the first's past. It costs one ref; nothing is copied."""
    from uwf_git.git.repository import Oid

    if at is not None and from_role is not None:
        raise Usage("--at and --from-role exclude each other", "give one of them")
    instance = invocation.instance
    found = resolve.find_thread_or_step(instance, origin)
    thread = ThreadId(found) if is_thread_id(found) else None
    if thread is not None:
        row = _fork_point(instance, instance.threads.head(thread), at, from_role)
        node, commit = row.node, Oid(raw=row.oid)
    elif at is not None or from_role is not None:
        raise Usage(f"{found} is a step, so --at and --from-role mean nothing", "give a thread's id")
    else:
        node = Hash(found)
        commit = instance.threads.commit_of(node)
    made = instance.threads.fork(commit)
    folder = instance.folders.recall(thread) if thread else None
    if folder is not None:
        instance.folders.remember(made, folder)
    invocation.emit(
        {"thread": made, "forkedFrom": {"step": node}},
        lambda value: terminal.fields(
            [
                ("thread", terminal.style(value["thread"], "bold")),
                ("forked from", value["forkedFrom"]["step"]),
            ]
        ),
    )


@command(
    "uwf thread pause 01JK7M",
    'uwf thread pause 01JK7M -m "until the tests are mended"',
    "uwf thread pause 01JK7M --now          ends the step in progress",
    "uwf thread pause --workflow solve-issue",
)
@threads
@click.option("--now", is_flag=True, help="End the step in progress; what its agent did is kept.")
@click.option("-m", "--message", default="", metavar="TEXT", help="Why, for those who come to step it.")
def pause(invocation: Invocation, chosen: Chosen, now: bool, message: str) -> None:
    """Keep threads from being stepped, here and after a push elsewhere, until they are resumed.

    A step in progress comes to its end first. They can still be read, forked, answered and killed.
    """
    from uwf_git.engine.hooks import tell
    from uwf_git.engine.pause import is_paused
    from uwf_git.engine.pause import pause as keep

    instance = invocation.instance
    why = instance.redactor.text(message)[0]

    def do(thread: ThreadId) -> dict[str, Any]:
        before = is_paused(instance, thread)
        found = keep(instance, thread, why, now)
        if not before:
            tell(instance, thread, "paused")
        status = "running" if instance.locks.is_held(thread) else "paused"
        return {"thread": thread, "status": status, "paused": found.as_json()}

    on_each(invocation, chosen, do, _paused_text, ACTIVE)


def _paused_text(value: Any) -> str:
    then = " once its step in progress has ended" if value["status"] == "running" else ""
    return f"paused {value['thread']}{then}; uwf thread resume {value['thread']}"


@command(
    "uwf thread resume 01JK7M",
    "uwf thread resume --status paused",
)
@threads
def resume(invocation: Invocation, chosen: Chosen) -> None:
    """Let paused threads be stepped again. It does no step: that is for uwf thread run."""
    from uwf_git.engine.pause import resume as let
    from uwf_git.engine.status import status_of

    instance = invocation.instance

    def do(thread: ThreadId) -> dict[str, Any]:
        resumed = let(instance, thread)
        status = status_of(instance, instance.threads.head(thread))
        return {"thread": thread, "status": status, "resumed": resumed}

    on_each(invocation, chosen, do, _resumed_text, ("paused", "running"))


def _resumed_text(value: Any) -> str:
    if not value["resumed"]:
        return f"{value['thread']} is {terminal.status(value['status'])}, it was not paused"
    return f"resumed {value['thread']}, which is {terminal.status(value['status'])}"


@command(
    "uwf thread kill 01JK7M",
    'uwf thread kill 01JK7M 01JK9Q --reason "superseded"',
    "uwf thread kill --status failed --workflow solve-issue --yes",
)
@threads
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who read it later.")
@click.option("--yes", is_flag=True, help="Really do it to all that filters select.")
def kill(invocation: Invocation, chosen: Chosen, reason: str, yes: bool) -> None:
    """End threads for good, their running agents first. They stay readable."""
    from uwf_git.engine.step import kill as end

    instance = invocation.instance
    why = instance.redactor.text(reason)[0]

    def do(thread: ThreadId) -> dict[str, Any]:
        return {"thread": end(instance, thread, why).thread, "archived": True}

    on_each(invocation, chosen, do, _killed_text, ACTIVE, "" if yes else "killed")


def _killed_text(value: Any) -> str:
    return f"killed {value['thread']}; it can still be read and forked"


@command("uwf thread rm 01JK7M --yes")
@click.argument("thread", metavar="ID", shell_complete=complete_thread)
@click.option("--yes", is_flag=True, help="Really do it.")
def rm(invocation: Invocation, thread: str, yes: bool) -> None:
    """Delete a thread and its failed attempts. Forks of it keep what they share."""
    from uwf_git.engine.budget import forget

    instance = invocation.instance
    found = find_thread(invocation, thread)
    if not yes:
        raise Usage(f"thread {found} would be deleted for good", f"uwf thread rm {found} --yes")
    with instance.locks.hold(found):
        instance.threads.remove(found)
        instance.runs.clear(found)
        instance.sessions.forget(lambda owner: owner != found)
        forget(instance, found)
    invocation.emit(
        {"thread": found, "archived": False, "removed": True}, lambda value: f"deleted {value['thread']}"
    )


def _prompt(text: str | None, file: str | None) -> str:
    if text is not None and file is not None:
        raise Usage("-p and --prompt-file exclude each other", "give one of them")
    if text == resolve.STDIN:
        text = resolve.read_stdin("prompt")
    elif file is not None:
        text = resolve.read_file(file, "prompt")
    if text is None:
        raise Usage("there is no prompt", "give one with -p TEXT, --prompt-file FILE, or -p - to pipe it in")
    if not text.strip():
        raise Usage("the prompt is empty", "say what is to be done")
    return text


def _fork_point(instance: Instance, head: Head, at: int | None, from_role: str | None) -> CommitRow:
    """What is recorded at a thread's head, at its step number `at`, or before the last step of a role."""
    from uwf_git.store.ancestry import ancestry

    if from_role is not None:
        rows = ancestry(instance.store, head.commit)
        roles = []
        for row in rows:
            if row.kind == "step" and row.role == from_role:
                return next(rows)
            if row.kind == "step":
                roles.append(row.role or "")
        hint = nearest(from_role, sorted(set(roles)))
        raise NotFound(f"thread {head.thread} has no step of role {from_role!r}", hint)
    number = head.row.number if at is None else at
    if number > head.row.number:
        raise NotFound(
            f"thread {head.thread} has {head.row.number} steps, not {number}",
            f"see: uwf thread steps {head.thread}",
        )
    return next(row for row in ancestry(instance.store, head.commit) if row.number == number)
