"""`uwf thread run` and `retry`, `uwf continue` and `uwf ps`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, terminal
from uwf_cli.command import command
from uwf_cli.detached import DETACH, run_words
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation, find_thread
from uwf_cli.options import (
    AGENT,
    AT_ONCE,
    CWD,
    FILES,
    MAX_STEPS,
    QUIET,
    REMOTE,
    THREAD,
    WAIT,
    WORKSPACE,
    folder,
    patience,
)
from uwf_cli.output import branches_text, whose
from uwf_cli.selection import Selection, chosen_threads, threads
from uwf_cli.stepping import (
    exchanged,
    place,
    repeated,
    run_one,
    warn_of_agent,
)
from uwf_git.api.listing import TO_STEP, Filters, depth_first
from uwf_git.base.errors import Usage, UwfError
from uwf_git.base.thread_states import Group, ThreadState
from uwf_git.format.types import role_name

if TYPE_CHECKING:
    from uwf_git.api.cockpit.retry import RetryPlan
    from uwf_git.api.run import Options
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.format.ids import ThreadId

FAILED = frozenset(state for state in ThreadState if state.group is Group.FAILED) - {ThreadState.CORRUPT}
"""The states of threads that are tried again."""
_RETRIED = "{forkedFrom[thread]} has ended; {thread:bold} is its fork after step {at}"
_PAUSE = 0.5  # seconds between two looks at what runs


@command(
    "uwf thread run 01JK7M",
    "uwf thread run 01JK7M --max-steps 5",
    "uwf thread run @ @2 @3 -j 3                   three at once",
    "uwf thread run --all --workflow triage -j 4   all that are idle",
    "uwf thread run --status failed                those that failed, once more",
)
@threads
@click.option("-j", "--jobs", type=AT_ONCE, default=1, metavar="N", help="Run up to N threads in parallel.")
@MAX_STEPS
@AGENT
@CWD
@WORKSPACE
@FILES
@WAIT
@REMOTE
@DETACH
@QUIET
def run(
    invocation: Invocation,
    chosen: Selection,
    jobs: int,
    max_steps: int,
    agent: AgentOptions | None,
    cwd: Path | None,
    workspace: str | None,
    files: str | None,
    wait: bool,
    remote: str | None,
    detach: bool,
    quiet: bool,
) -> None:
    """Run a thread until it ends, waits for an answer or fails. Prints one line per step.

    Filters select idle threads; --status failed selects failed ones. Threads run one after another, those with
    the most steps first, or with -j in parallel, one process each. --detach takes one thread.
    """
    from uwf_git.api.preflight import require_ready_thread
    from uwf_git.api.run import Options

    _require_one(chosen, detach, "run")
    where = folder(cwd)
    options = Options(agent, where, files=files or "", patience=patience(wait))
    if len(chosen.ids) == 1:
        shared, thread_id = exchanged(invocation, chosen.ids[0], remote)
        require_ready_thread(invocation.instance, thread_id, agent)
        place(invocation, thread_id, workspace, where)
        warn_of_agent(invocation, thread_id, agent)
        run_one(
            invocation,
            thread_id,
            options._replace(exchange=shared),
            max_steps,
            quiet,
            {} if detach else None,
        )
        return
    failures = Failures(invocation)
    found_all = chosen_threads(invocation, chosen, failures, chosen.filters.states or TO_STEP, to_step=True)
    if found_all:
        for thread in found_all:
            place(invocation, thread, workspace, where)
        in_turn = found_all if chosen.ids else depth_first(invocation.instance, found_all[::-1])
        _run_side_by_side(invocation, failures, in_turn, options, max_steps, jobs, remote, quiet)
    elif not chosen.ids:
        invocation.note("no such threads are idle; uwf thread list shows what they are")
        invocation.note_left_out()
    failures.end()


def _require_one(chosen: Selection, detach: bool, command: str) -> None:
    if detach and len(chosen.ids) != 1:
        raise Usage("--detach takes one thread", f"repeat for each: uwf thread {command} ID --detach")


def _run_side_by_side(
    invocation: Invocation,
    failures: Failures,
    threads: Sequence[ThreadId],
    options: Options,
    most: int,
    jobs: int,
    remote: str | None,
    quiet: bool,
) -> None:
    from uwf_cli.watching.side_by_side import SideBySide

    words = run_words(most, options, remote)
    again = repeated(options.agent, options.cwd, remote)
    failures.note(SideBySide(invocation, threads, words, jobs, again).run(quiet))


def _plans(invocation: Invocation, chosen: Selection, failures: Failures) -> list[RetryPlan]:
    """Return how to try the selected threads again, depth first if filters select them. Why others are not tried is
    reported to `failures`, or raised for a single id."""
    from uwf_git.api.cockpit.retry import plan_retry, to_retry

    instance = invocation.instance
    if chosen.ids or chosen.filters == Filters():
        ids = chosen_threads(invocation, chosen, failures)
    else:
        filters = chosen.filters._replace(states=chosen.filters.states or FAILED)
        failed = chosen_threads(invocation, chosen._replace(filters=filters), failures, FAILED)
        ids = to_retry(instance, depth_first(instance, failed[::-1]))
    plans = []
    for thread in ids:
        try:
            plans.append(plan_retry(instance, instance.threads.head(thread)))
        except UwfError as error:
            if len(chosen.ids) == 1:
                raise
            failures.add(error)
    return plans


@command(
    "uwf thread retry 01JK7M",
    "uwf thread retry --since 16h -j 4              all that failed since",
    "uwf thread retry --workflow triage --agent llm by another agent",
)
@threads
@click.option("-j", "--jobs", type=AT_ONCE, default=1, metavar="N", help="Run up to N threads in parallel.")
@MAX_STEPS
@AGENT
@WAIT
@DETACH
@QUIET
def retry(
    invocation: Invocation,
    chosen: Selection,
    jobs: int,
    max_steps: int,
    agent: AgentOptions | None,
    wait: bool,
    detach: bool,
    quiet: bool,
) -> None:
    """Try failed threads again, and run them until they end, wait for an answer or fail.

    A thread whose last attempt failed is run. One that ended at $FAIL stays as it is: it is forked before the step that
    led there, before its fan-out if that was the join, and the fork is run, once: `uwf thread fork` makes others.
    Filters select failed threads, without those that were forked since. --detach takes one thread.
    """
    from uwf_git.api.cockpit.retry import fork_to_retry
    from uwf_git.api.preflight import require_ready_thread
    from uwf_git.api.run import Options

    _require_one(chosen, detach, "retry")
    instance, failures = invocation.instance, Failures(invocation)
    plans = _plans(invocation, chosen, failures)
    options, threads = Options(agent, patience=patience(wait)), []
    value: dict[str, Any] = {}
    for plan in plans:
        thread = plan.thread
        if plan.at is not None:
            try:
                thread, step, source, _ = fork_to_retry(instance, thread)
            except UwfError as error:
                if len(chosen.ids) == 1:
                    raise
                failures.add(error)
                continue
            value = {"thread": thread, "forkedFrom": {"step": step, "thread": source}, "at": plan.at}
            if not detach:
                invocation.emit(value, _RETRIED, compact=True)
        threads.append(thread)
    if len(threads) == 1 and len(chosen.ids) == 1:
        require_ready_thread(instance, threads[0], agent)
        warn_of_agent(invocation, threads[0], agent)
        run_one(invocation, threads[0], options, max_steps, quiet, value if detach else None)
        return
    if threads:
        _run_side_by_side(invocation, failures, threads, options, max_steps, jobs, None, quiet)
    elif not chosen.ids:
        invocation.note("no such threads need a retry")
        invocation.note_left_out()
    failures.end()


@command(
    "uwf ps",
    "uwf ps --watch",
)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C. With --json, print one line per change.")
def ps(invocation: Invocation, watch: bool) -> None:
    """List running steps on this machine: role, agent, time and latest output."""
    from uwf_git.api.progress import progress

    running = progress(invocation.instance)
    if watch:
        _watch(invocation, running)
        return
    invocation.emit(running(), lambda rows: "\n".join(_rows(rows)))


def _watch(invocation: Invocation, running: Callable[[], list[dict[str, Any]]]) -> None:
    from uwf_cli.watching.lines import Lines

    shown: list[str] = []
    before: list[Any] = []
    drawn = invocation.draws
    with suppress(KeyboardInterrupt), Lines(lambda: shown) if drawn else nullcontext():
        while True:
            rows = running()
            if drawn:
                shown = _rows(terminal.escape_value(rows))
            elif (now := [(row["thread"], row["turns"], row["last"]) for row in rows]) != before:
                before = now
                invocation.emit(rows, lambda value: "\n".join(_rows(value)), compact=True)
            time.sleep(_PAUSE)


def _rows(runs: Sequence[dict[str, Any]]) -> list[str]:
    from uwf_cli.watching.lines import lasted, spent
    from uwf_git.api.listing import nested

    room = terminal.width()
    lines = []
    for depth, item in nested(runs):
        since = "" if item["role"] is None else f"  step {item['step']}  {lasted(item['seconds'])}"
        head = f"{terminal.style(item['thread'], 'bold')}  {item['name'] or ''}{since}"
        who = "between two steps" if item["role"] is None else f"{role_name(item['role'])} {whose(item)}"
        if "branches" in item:
            who = f"branches: {branches_text(item['branches'], item['branchesEnded'])}"
        lines += [f"{'  ' * depth}{head}", f"{'  ' * depth}  {' · '.join([who, *spent(item)])}"]
    lines = lines or ["nothing runs here"]
    return [line if room is None else terminal.cut(line, room) for line in lines]


@command(
    "uwf continue 01JK7M                  in a clone of the project",
    "uwf continue 01JK7M --remote origin  and share each step",
)
@THREAD
@MAX_STEPS
@AGENT
@CWD
@REMOTE
@DETACH
@QUIET
def continue_(
    invocation: Invocation,
    thread: str,
    max_steps: int,
    agent: AgentOptions | None,
    cwd: Path | None,
    remote: str | None,
    detach: bool,
    quiet: bool,
) -> None:
    """Continue a thread that was worked on elsewhere: pull it, make its worktree, run it.

    It is pulled from origin or the only remote, if there is one. Its code is fetched from the project's remote
    into the repository of this folder, or of --cwd.
    """
    from uwf_git.api.preflight import require_ready_thread
    from uwf_git.api.run import Options

    where = folder(cwd)
    if remote is not None:
        shared, thread_id = exchanged(invocation, thread, remote)
    else:
        shared, thread_id = None, _pulled(invocation, thread)
    options = Options(agent, where, exchange=shared)
    require_ready_thread(invocation.instance, thread_id, agent)
    run_one(invocation, thread_id, options, max_steps, quiet, {} if detach else None)


def _pulled(invocation: Invocation, thread: str) -> ThreadId:
    """Return a thread's id after pulling it from the default remote, if there is one that has it."""
    from uwf_git.api.exchange import bring, fetch, fetch_branches, threads_there
    from uwf_git.sync.pull import raise_if_incomplete

    instance = invocation.instance
    if not instance.remotes.all():
        return find_thread(invocation, thread)
    there = exchange.exchange_for(instance, None)
    (thread_id,) = threads_there(there, [thread])
    if instance.threads.exists(thread_id):
        raise_if_incomplete(fetch(there, [thread_id]))
    else:
        bring(there, thread_id)
    if instance.threads.exists(thread_id):
        fetch_branches(there, thread_id)
    return find_thread(invocation, thread_id)
