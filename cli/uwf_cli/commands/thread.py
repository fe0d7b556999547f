"""`uwf thread` start, fork, kill, rm and restore; `uwf run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import options, resolve, terminal
from uwf_cli.command import command
from uwf_cli.completers import complete_thread, complete_workflow
from uwf_cli.detached import DETACH
from uwf_cli.exchange import exchange_for
from uwf_cli.invocation import Invocation
from uwf_cli.options import (
    AGENT,
    AS,
    CWD,
    INCLUDE_CHANGES,
    MAX_ROUNDS,
    MAX_STEPS,
    PAUSES,
    PROMPT,
    PROMPT_FILE,
    QUIET,
    REMOTE,
    WAIT,
    WORKSPACE,
    budget,
    folder,
    patience,
    workspace_option,
)
from uwf_cli.output import dollars
from uwf_cli.selection import Selection, on_each, threads
from uwf_cli.starting import StartedThread, begin, require_agent, require_code, startable
from uwf_cli.stepping import exchanged, run_one
from uwf_cli.views import Listing, Record, Table
from uwf_git.api.listing import ACTIVE, Filters
from uwf_git.base.errors import Usage, UwfError
from uwf_git.base.text import counted, one_line
from uwf_git.format.ids import Hash, ThreadId, is_thread_id

if TYPE_CHECKING:
    from uwf_git.api.preflight import Part, Usual
    from uwf_git.api.start import Start
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.format.casting import Cast
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance


@command(
    'uwf thread start solve-issue -p "Fix the login bug"',
    "uwf thread start ./review.yaml --prompt-file task.md",
    "uwf thread start solve-issue https://github.com/acme/shop/issues/42",
    'uwf thread start solve-issue -p "Fix it" --max-cost 2.50 --max-time 1h',
    'uwf thread start trip/plan-trip --as mary -p "Three days in Rome"',
    "uwf thread start solve-issue --each tasks.jsonl --max-cost 2.50",
)
@click.argument("workflow", shell_complete=complete_workflow)
@click.argument("issue", required=False)
@PROMPT
@PROMPT_FILE
@click.option(
    "--each",
    metavar="FILE",
    help="Start one thread per line of a JSON Lines file. - reads standard input.",
)
@AS
@CWD
@WORKSPACE
@INCLUDE_CHANGES
@budget({"steps": "Pause for approval after N steps.", **PAUSES})
@MAX_ROUNDS
def start(
    invocation: Invocation,
    /,
    workflow: str,
    issue: str | None,
    prompt: str | None,
    prompt_file: str | None,
    each: str | None,
    persona: str | None,
    cwd: Path | None,
    workspace: str | None,
    include_changes: bool,
    max_rounds: int | None,
    budget: dict[str, float],
) -> None:
    """Start a thread. No step is run yet.

    WORKFLOW is a registered name, CREW/ID, a hash, a file, or the name of .uwf/workflows/WORKFLOW.yaml in this
    folder or one above it in the same repository.

    ISSUE is an issue's URL on GitHub, GitLab, Gitea, Forgejo or Jira, its number on the project's remote, or its key
    on the only tracker of the configuration. Its present text is the task; that of -p comes before it.

    With --each, a line is the prompt as a JSON string, or an object with prompt and optionally budget,
    persona, maxRounds and cwd, which override the options. If a line is invalid, no thread is started.
    """
    from uwf_git.api.start import Start

    if each is not None:
        if any(item is not None for item in (prompt, prompt_file, issue)):
            raise Usage("--each excludes -p, --prompt-file and ISSUE", "give one of them")
        option = workspace_option(workspace, include_changes)
        what = Start("", budget, folder(cwd), max_rounds=max_rounds, workspace=option)
        _start_each(invocation, workflow, each, what, persona)
        return
    task, where = resolve.task_for(invocation, workflow, prompt, prompt_file, issue), folder(cwd)
    option = workspace_option(workspace, include_changes)
    what = Start(task, budget, where, max_rounds=max_rounds, workspace=option)
    begun = begin(invocation, workflow, what, persona=persona, issue=issue)
    invocation.emit(begun.value(), _STARTED, shown=begun._asdict())


_THREAD = ("thread", "{thread:bold}")
_STARTED = Record(_THREAD, ("workflow", "{name}  {workflow}"), ("next", "uwf thread run {thread}"))


def _start_each(invocation: Invocation, workflow: str, file: str, what: Start, persona: str | None) -> None:
    """Start a thread per task of a file and print them in order. `what` has the defaults for tasks."""
    from uwf_cli.tasks import naming, read_tasks
    from uwf_git.api.start import Version, clean_prompt, start_all
    from uwf_git.api.workflows import speaker_of, version_of
    from uwf_git.format.kinds import Start as StartNode

    lines = read_tasks(file)
    definition = startable(invocation, workflow, what.max_rounds is not None)
    instance = invocation.instance
    starts: list[StartNode] = []
    folders: list[Path | None] = []
    for line in lines:
        with naming(line.where):
            if line.max_rounds is not None:
                require_code(definition, "maxRounds")
            starts.append(
                StartNode(
                    definition.hash,
                    clean_prompt(instance, line.prompt, f"the prompt of {line.where}"),
                    {**what.budget, **line.budget},
                    line.max_rounds or what.max_rounds,
                    speaker_of(definition, line.persona or persona),
                )
            )
            folders.append(folder(line.cwd) if line.cwd is not None else what.cwd)
    version = Version(version_of(instance, definition), definition.hash, definition.workflow)
    started = start_all(instance, version, starts, folders, what._replace(place=Path.cwd()))
    begun = [
        StartedThread(item.thread, definition.hash, definition.workflow.name, item.workspace)
        for item in started
    ]
    for note in dict.fromkeys(thread.workspace.told() for thread in begun if thread.workspace is not None):
        if note:
            invocation.note(note)
    rows = [
        {"thread": thread.thread, "task": one_line(start.prompt, 200)}
        for thread, start in zip(begun, starts, strict=True)
    ]
    view = Table(("", "thread"), ("", "task"), free=1)
    invocation.emit([thread.value() for thread in begun], view, shown=rows)


@command(
    'uwf run solve-issue -p "Fix the login bug"',
    "uwf run ./review.yaml --prompt-file task.md --max-cost 2.50",
    "uwf run solve-issue https://github.com/acme/shop/issues/42",
    "uwf run solve-issue 42 --agent claude-code     of the project's remote",
)
@click.argument("workflow", shell_complete=complete_workflow)
@click.argument("issue", required=False)
@PROMPT
@PROMPT_FILE
@AS
@budget(PAUSES)
@MAX_ROUNDS
@MAX_STEPS
@AGENT
@CWD
@WORKSPACE
@INCLUDE_CHANGES
@WAIT
@REMOTE
@DETACH
@QUIET
def start_and_run(
    invocation: Invocation,
    workflow: str,
    issue: str | None,
    prompt: str | None,
    prompt_file: str | None,
    persona: str | None,
    max_rounds: int | None,
    max_steps: int,
    agent: AgentOptions | None,
    cwd: Path | None,
    workspace: str | None,
    include_changes: bool,
    wait: bool,
    remote: str | None,
    detach: bool,
    quiet: bool,
    budget: dict[str, float],
) -> None:
    """Start a thread and run it. Prints the thread's id first.

    WORKFLOW and ISSUE are those of `uwf thread start`.

    Combines `uwf thread start` and `uwf thread run` and takes the options of both; --max-steps is that of
    `run`.
    """
    from uwf_git.api.preflight import REHEARSAL, require_ready, usual
    from uwf_git.api.run import Options
    from uwf_git.api.start import Start

    where = folder(cwd)
    if agent is not None:
        require_agent(invocation, agent)
    option = workspace_option(workspace, include_changes)
    task = resolve.task_for(invocation, workflow, prompt, prompt_file, issue)
    what = Start(task, budget, where, agent, max_rounds, workspace=option)

    def is_ready(cast: Cast) -> None:
        parts = require_ready(invocation.instance, cast, agent, folder=where or Path.cwd())
        is_rehearsal = all(part.kind == REHEARSAL for part in parts)
        if not (quiet or is_rehearsal) and invocation.format == "text" and terminal.is_terminal(sys.stderr):
            sys.stderr.write(_plan_text(parts, usual(invocation.instance, cast.workflow.name)))

    begun = begin(invocation, workflow, what, persona=persona, to_run=True, is_ready=is_ready, issue=issue)
    value = begun.value()
    if not detach:
        invocation.emit(value, Record(_THREAD), compact=True)
    shared, thread = exchanged(invocation, begun.thread, remote)
    options = Options(agent, where, exchange=shared, patience=patience(wait))
    run_one(invocation, thread, options, max_steps, quiet, value if detach else None)


def _plan_text(parts: Sequence[Part], past: Usual | None) -> str:
    """Format who plays which role, and what that usually takes."""
    from uwf_git.base.text import duration

    rows = [(f"  {part.role}", terminal.style(part.agent, "dim")) for part in parts]
    if past is None:
        return terminal.table(rows)
    spent = [counted(past.steps, "step"), duration(past.seconds)]
    spent += [f"{past.tokens:,} tokens"] if past.tokens is not None else []
    spent += [dollars(past.cost)] if past.cost is not None else []
    return f"{terminal.table(rows)}usually {', '.join(spent)} ({counted(past.threads, 'thread')} before)\n"


@command(
    "uwf thread fork 8FWKR3TN5V1QA                  from a step",
    "uwf thread fork 01JK7M                         from a thread's head",
    "uwf thread fork 01JK7M --at 2                  after its second step",
    "uwf thread fork 01JK7M --from-role reviewer    so that the reviewer goes again",
    "uwf thread fork 01JK7M --with review.js        edited code, earlier answers",
)
@click.argument("origin", metavar="STEP|ID", shell_complete=complete_thread)
@click.option("--at", type=click.IntRange(min=0), metavar="N", help="Fork after step N; 0 is the start.")
@click.option("--from-role", metavar="ROLE", help="Fork before the last step of this role.")
@click.option("--with", "code", metavar="WORKFLOW", help="Code workflows: begin anew with other code.")
def fork(
    invocation: Invocation, origin: str, at: int | None, from_role: str | None, code: str | None
) -> None:
    """Fork a thread. The fork shares its steps with the original, and nothing is copied."""
    from uwf_git.api.find import find_thread_or_step
    from uwf_git.api.fork import fork_step, fork_thread, fork_with

    if sum(item is not None for item in (at, from_role, code)) > 1:
        raise Usage("--at, --from-role and --with exclude each other", "give one of them")
    instance = invocation.instance
    origin_id = find_thread_or_step(instance, origin)
    if is_thread_id(origin_id) and code is not None:
        from uwf_git.api.start import Version
        from uwf_git.api.workflows import version_of

        edited = startable(invocation, code, False)
        version = Version(version_of(instance, edited), edited.hash, edited.workflow)
        forked = fork_with(instance, ThreadId(origin_id), version)
    elif is_thread_id(origin_id):
        forked = fork_thread(instance, ThreadId(origin_id), at, from_role)
    elif at is not None or from_role is not None or code is not None:
        raise Usage(
            f"{origin_id} is a step, so --at, --from-role and --with mean nothing", "give a thread's id"
        )
    else:
        forked = fork_step(instance, Hash(origin_id))
    if forked.warning:
        invocation.warn(forked.warning)
    invocation.emit(
        {"thread": forked.thread, "forkedFrom": {"step": forked.step, "thread": forked.source}},
        Record(_THREAD, ("forked from", "{forkedFrom[step]}")),
    )


@command(
    "uwf thread kill 01JK7M",
    'uwf thread kill 01JK7M 01JK9Q --reason "superseded"',
    "uwf thread kill --status failed --workflow solve-issue --yes",
)
@threads
@click.option("--reason", default="", metavar="TEXT", help="The reason, recorded with the thread.")
@click.option("--yes", is_flag=True, help="Confirm, if filters select the threads.")
def kill(invocation: Invocation, chosen: Selection, reason: str, yes: bool) -> None:
    """Kill threads and their running agents. Killed threads stay readable."""
    from uwf_git.api.control import kill as end

    instance = invocation.instance
    why = instance.without_secrets(reason, "the reason")

    def do(thread: ThreadId) -> dict[str, Any]:
        return {"thread": end(instance, thread, why).thread, "archived": True}

    killed = "killed {thread}; it can still be read and forked"
    on_each(invocation, chosen, do, killed, ACTIVE, "" if yes else "killed")


@command(
    "uwf thread rm 01JK7M --yes",
    "uwf thread rm 01JK7M --remote origin --yes       on origin too",
    "uwf thread rm --status killed --since 7d --yes",
    "uwf thread rm --ended --older-than 90d        lists them; --yes removes them",
)
@threads
@options.remote(help="Also remove them from this remote.", metavar="R")
@click.option("--yes", is_flag=True, help="Confirm.")
def rm(invocation: Invocation, chosen: Selection, remote: str | None, yes: bool) -> None:
    """Remove threads, their failed attempts and the branches of their fan-outs. Forks keep the steps they share.

    Copies on remotes stay, unless --remote is given, and are not pulled again. uwf thread restore works for a
    month; uwf gc --prune deletes the threads at once.
    """
    from uwf_git.api.removal import delete_there, find_here_or_removed, remotes_with, remove

    instance = invocation.instance
    there = instance.remotes.get(remote) if remote is not None else None

    def do(thread: ThreadId) -> dict[str, Any]:
        elsewhere = remotes_with(instance, thread)
        if not yes:
            stays = f" here; it would stay on {' and '.join(elsewhere)}" if elsewhere and not remote else ""
            also = f" --remote {elsewhere[0]}" if elsewhere and not remote else ""
            hint = f"uwf thread rm {thread}{f' --remote {remote}' if remote else ''} --yes"
            hint += f", or with{also} there too" if also else ""
            raise Usage(f"thread {thread} would be removed{stays}", hint)
        if instance.threads.exists(thread):
            waiting = _waiting_for(instance, thread)
            if branches := remove(instance, thread):
                number = f"{len(branches)} branches" if len(branches) > 1 else "1 branch"
                invocation.note(f"{number} of {thread} went along")
            if waiting:
                invocation.note(waiting)
        return {"thread": thread, "archived": False, "removed": True, "remotes": elsewhere}

    def first(threads: list[ThreadId]) -> None:
        if there is not None and yes:
            delete_there(exchange_for(instance, there), threads)

    unasked = "" if yes or chosen.ids else "removed"
    find = partial(find_here_or_removed, instance) if there is not None else None
    on_each(invocation, chosen, do, _removed_text, unasked=unasked, find=find, first=first)


def _waiting_for(instance: Instance, thread: ThreadId) -> str:
    from uwf_git.api.removal import waiting_for

    try:
        return waiting_for(instance, thread)
    except UwfError:  # a damaged thread can be removed too
        return ""


def _removed_text(value: Any) -> str:
    thread = value["thread"]
    if not value["remotes"]:
        return f"removed {thread}; uwf thread restore {thread} brings it back"
    where = " and ".join(value["remotes"])
    return f"removed {thread} here; it is still on {where}: uwf thread rm {thread} --remote {value['remotes'][0]} --yes"


@command(
    "uwf thread restore 01JK7M",
    "uwf thread restore            what was removed here",
    "uwf thread restore --all      all of that",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Restore every thread that was removed here.")
def restore(invocation: Invocation, ids: tuple[str, ...], every: bool) -> None:
    """Restore threads that were removed here. Without an id, list them.

    If the objects are gone, the next pull from a remote that has the thread brings it back.
    """
    from uwf_git.api.removal import removed
    from uwf_git.api.removal import restore as bring

    if ids and every:
        raise Usage("ids and --all exclude each other", "give one of them")
    instance = invocation.instance
    rows = [] if ids else removed(instance)
    if not ids and not every:
        invocation.emit(rows, _REMOVALS)
        return
    do = partial(bring, instance)
    if not every:
        on_each(
            invocation, Selection(ids, Filters()), do, _restored_text, find=partial(_find_removed, instance)
        )
        return
    restored = Listing(_restored_text, empty="nothing was removed here")
    invocation.emit([do(row["thread"]) for row in rows], restored)


def _find_removed(instance: Instance, text: str) -> ThreadId:
    from uwf_git.api.removal import find_removed

    if text.strip().startswith("@"):
        raise Usage(
            f"{text} counts the threads that are here, not those that were removed",
            "give the id, or so much of its end as tells it from others: uwf thread restore lists them",
        )
    return find_removed(instance, text)


_REMOVALS = Table(
    *("thread", ("workflow", "name"), ("removed", "at")),
    ("by", lambda removal: removal["by"].partition(" <")[0]),
    ("task", lambda removal: removal["title"] if removal["kept"] else "only by a pull"),
    empty="nothing was removed here",
)


def _restored_text(value: Any) -> str:
    if value["restored"]:
        return f"restored {value['thread']}, which is {terminal.status(value['status'])}"
    return f"{value['thread']} is gone here; uwf pull brings it back from a remote that has it"
