"""`uwf thread step`, `uwf thread run` and `uwf ps`."""

from __future__ import annotations

import codecs
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uwf_cli import exchange, terminal
from uwf_cli.command import command
from uwf_cli.detached import DETACH, run_words
from uwf_cli.exchange import find_thread
from uwf_cli.failures import Failures
from uwf_cli.invocation import Invocation
from uwf_cli.options import (
    AGENT,
    AT_ONCE,
    CWD,
    FILES,
    MAX_STEPS,
    QUIET,
    REMOTE,
    STEP_AGENT,
    THREAD,
    WAIT,
    WORKSPACE,
    folder,
    patience,
)
from uwf_cli.output import approvals_line, branches_text, whose
from uwf_cli.selection import Selection, chosen_threads, threads
from uwf_git.api.listing import TO_STEP
from uwf_git.base.errors import Absent, AgentFailed, HeadMoved, Usage, UwfError, Waiting
from uwf_git.base.text import counted, numbered
from uwf_git.base.thread_states import Group, ThreadState, words_in
from uwf_git.format.types import next_name, role_name

if TYPE_CHECKING:
    from uwf_cli.watching.lines import Lines
    from uwf_git.api.exchange import Exchange
    from uwf_git.api.fan_out import Branches, RunBranches
    from uwf_git.api.run import Options, Outcome
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

_PAUSE = 0.5  # seconds between two looks at what runs
_MIN_OUTPUT_WIDTH = 8  # minimum columns of an output, however narrow the terminal is


@command(
    "uwf thread step 01JK7M",
    "uwf thread step 01JK7M --agent uwf-human",
    'uwf thread step 01JK7M --agent "my-agent --fast" --cwd ~/project',
)
@THREAD
@STEP_AGENT
@CWD
@WORKSPACE
@FILES
@REMOTE
@QUIET
def step(
    invocation: Invocation,
    thread: str,
    agent: str | None,
    cwd: Path | None,
    workspace: str | None,
    files: str | None,
    remote: str | None,
    quiet: bool,
) -> None:
    """Run one step of a thread: the next role's agent runs, and its output becomes the new head."""
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.api.preflight import warn_unless_ready
    from uwf_git.api.run import Options
    from uwf_git.api.run import step as make

    shared, found = exchanged(invocation, thread, remote)
    if agent is None:
        warn_unless_ready(invocation.instance, found)
    where = folder(cwd)
    place(invocation, found, workspace, where)
    _warn_of_agent(invocation, found, agent)
    command, repeats = f"uwf thread step {found}", repeated(agent, where, remote)
    lines = _lines(invocation, command + repeats, found, quiet)
    with _repeating(command, repeats), lines or nullcontext():
        options = Options(agent, where, _live_stderr(invocation, lines), shared, files=files or "")
        outcome = make(invocation.instance, found, options)
    emit_outcome(invocation, outcome)
    raise_as_ended(invocation.instance, outcome.position.head)
    stopped = _stopped(invocation, outcome)
    if stopped is not None:
        invocation.note(f"{stopped.message} — {stopped.hint}")


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

    Filters select idle threads; --status failed selects failed ones. Threads run one after another, or with
    -j in parallel, one process each. --detach takes one thread.
    """
    from uwf_git.api.preflight import require_ready_thread
    from uwf_git.api.run import Options

    if detach and len(chosen.ids) != 1:
        raise Usage("--detach takes one thread", "repeat for each: uwf thread run ID --detach")
    where = folder(cwd)
    options = Options(agent, where, files=files or "", patience=patience(wait))
    if len(chosen.ids) == 1:
        shared, found = exchanged(invocation, chosen.ids[0], remote)
        require_ready_thread(invocation.instance, found, agent)
        place(invocation, found, workspace, where)
        _warn_of_agent(invocation, found, agent)
        run_one(
            invocation,
            found,
            options._replace(exchange=shared),
            max_steps,
            quiet,
            {} if detach else None,
        )
        return
    failures = Failures(invocation)
    found_all = chosen_threads(invocation, chosen, failures, chosen.filters.states or TO_STEP, to_step=True)
    if found_all:
        from uwf_cli.watching.side_by_side import SideBySide

        for each in found_all:
            place(invocation, each, workspace, where)
        words = run_words(max_steps, options, remote)
        oldest_first = found_all if chosen.ids else found_all[::-1]
        again = repeated(agent, where, remote)
        failures.note(SideBySide(invocation, oldest_first, words, jobs, again).run(quiet))
    elif not chosen.ids:
        invocation.note("no such threads are idle; uwf thread list shows what they are")
        invocation.note_left_out()
    failures.end()


def _warn_of_agent(invocation: Invocation, thread: ThreadId, agent: str | AgentOptions | None) -> None:
    if agent is not None:
        from uwf_git.api.start import warn_of_agent

        warn_of_agent(invocation.instance, thread, agent)


def run_one(
    invocation: Invocation,
    thread: ThreadId,
    options: Options,
    most: int,
    quiet: bool,
    detached: Mapping[str, Any] | None = None,
) -> None:
    """Run a thread until it ends, waits, fails or made `most` steps. If `detached` is given, do so in another
    process, and print it with how to follow that. Raises Waiting, and Busy if another process runs it."""
    if detached is not None:
        from uwf_cli.detached import detach

        detach(invocation, thread, options, most, detached)
        return
    with invocation.instance.locks.run(thread):
        is_shared = options.exchange is not None and not invocation.instance.threads.has_ended(thread)
        try:
            _run_one(invocation, thread, options, most, quiet)
        except UwfError as error:
            if not is_shared or not _ended_elsewhere(invocation, thread, error):
                raise


def _ended_elsewhere(invocation: Invocation, thread: ThreadId, error: UwfError) -> bool:
    """Say that a thread ended on another machine while it ran here, if that is what an error comes from. Raises
    WorkflowFailed if it failed."""
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.api.run import ended_elsewhere

    outcome = ended_elsewhere(invocation.instance, thread, error)
    if outcome is None:
        return False
    fork = error.fork if isinstance(error, HeadMoved) else ""
    kept = f"; the step made here is kept as thread {fork}" if fork else ""
    invocation.note(f"thread {thread} ended on another machine meanwhile, and is {outcome.state.word}{kept}")
    raise_as_ended(invocation.instance, outcome.position.head)
    return True


def _run_one(invocation: Invocation, thread: ThreadId, options: Options, most: int, quiet: bool) -> None:
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.api.run import run as steps

    remote = options.exchange.remote.name if options.exchange else None
    command, repeats = f"uwf thread run {thread}", repeated(options.agent, options.cwd, remote)
    again = command + repeats
    lines = _lines(invocation, again, thread, quiet)
    with _repeating(command, repeats, is_run=True), lines or nullcontext():
        options = options._replace(on_stderr=_live_stderr(invocation, lines))
        branches = side_by_side(invocation, options, most, again, lines)
        for outcome in steps(invocation.instance, thread, lambda: options, most, branches=branches):
            with lines.hidden() if lines else nullcontext():
                emit_outcome(invocation, outcome, compact=True)
            raise_as_ended(invocation.instance, outcome.position.head)
            if outcome.done:
                return
            stopped = _stopped(invocation, outcome)
            if stopped is not None and not isinstance(stopped, Absent):  # of whom the next step asks
                raise stopped
    from uwf_git.api.waiting import raise_unless_completed

    head = invocation.instance.threads.head(thread)
    raise_unless_completed(
        invocation.instance, head, f": stopped after {counted(most, 'step')}", f"{again} goes on"
    )


def side_by_side(
    invocation: Invocation, options: Options, most: int, again: str, lines: Lines | None
) -> RunBranches:
    """Return what runs the branches of a thread in parallel, one process each."""

    def run_branches(
        instance: Instance, thread: ThreadId, branches: Branches, chosen: Sequence[ThreadId]
    ) -> None:
        from uwf_cli.watching.side_by_side import SideBySide
        from uwf_git.api.fan_out import Lookout, at_once

        remote = options.exchange.remote.name if options.exchange else None
        words = run_words(most, options, remote)
        siblings = [each.thread for each in branches.each]
        is_taken = Lookout(instance, options.exchange, thread, chosen).is_taken
        side = SideBySide(invocation, chosen, words, at_once(branches), again, siblings, is_taken)
        with lines.hidden() if lines else nullcontext():
            side.run(quiet=lines is None)

    return run_branches


def repeated(agent: object, where: Path | None, remote: str | None) -> str:
    """Return the options to repeat in a command that continues, quoted for a shell, each after a space."""
    from uwf_git.config.resolve import AgentOptions

    words = agent.words if isinstance(agent, AgentOptions) else () if agent is None else (agent,)
    given = [*(("--agent", word) for word in words), ("--cwd", where), ("--remote", remote)]
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given if value is not None)


@contextmanager
def _repeating(command: str, options: str, is_run: bool = False) -> Iterator[None]:
    """Add the options of a call to the command in hints of its errors that continues the thread: without them another
    agent would play the next step. The hint of a run that failed or waits names that command in any case."""
    try:
        yield
    except UwfError as error:
        if options:
            bare = re.compile(re.escape(command) + "(?![^ ,;:)]| --)")
            hint = bare.sub(lambda _: command + options, error.hint)
            if is_run and hint == error.hint and isinstance(error, AgentFailed | Waiting):
                word = "then" if isinstance(error, Waiting) else "again"
                hint += f"{'; ' if hint else ''}{word}: {command}{options}"
            error.hint = hint
        raise


def _stopped(invocation: Invocation, outcome: Outcome) -> Waiting | None:
    from uwf_git.api.outcome import waiting_for

    return waiting_for(invocation.instance, outcome, is_shown=invocation.format == "text")


def emit_outcome(invocation: Invocation, outcome: Outcome, compact: bool = False) -> None:
    """Print a step's outcome, for people one line plus a question with options, then run the hooks."""
    from uwf_git.api.outcome import code_left

    value, shown = outcome_value(invocation, outcome)
    if (left := code_left(invocation.instance, outcome.position)) is not None:
        value["code"] = {"commit": left.commit, **left.as_json()}
    invocation.emit(value, outcome_line, shown, compact)
    if left is not None:
        invocation.note(left.text)
    invocation.afterwards()


def outcome_value(invocation: Invocation, outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an outcome as JSON and for `outcome_line`. Warns of removed secrets."""
    from uwf_git.api.outcome import warnings_of

    value = outcome.as_json()
    for warning in warnings_of(invocation.instance, outcome):
        invocation.warn(warning)
    return value, {**value, **outcome.told()}


def outcome_line(value: dict[str, Any]) -> str:
    """Format an outcome as one line, with a question and its options."""
    from uwf_git.engine.census import census_text

    arrow = "  → "
    if value["done"] or value["status"] in words_in(Group.WAITING):
        census = f" · {census_text(value['census'])}" if "census" in value else ""
        end = arrow + terminal.status(value["status"]) + census
    elif value.get("problem"):
        end = f"{arrow}{terminal.style('stuck', 'red')}: {value['problem']}"
    else:
        end = arrow + str(value["next"] and next_name(value["next"]))
    if value["role"] is None and "approvals" in value:
        return f"{approvals_line(value['approvals'])}{end}"
    if value["role"] is None:
        return f"{'no round is left' if value['status'] == ThreadState.KILLED.word else 'nothing left to do'}{end}"
    agent = terminal.style(whose(value), "dim")
    begin = f"{value['number']:4d}  {terminal.style(role_name(value['role']), 'bold')} {agent}"
    verdict = value["verdict"]
    if verdict and (width := terminal.width()) is not None:
        verdict = terminal.cut(verdict, max(width - terminal.columns(f"{begin}: {end}"), _MIN_OUTPUT_WIDTH))
    question = [text for line in value["question"].splitlines() if (text := line.strip())]
    options = [f"  {option}" for option in numbered(value["options"])]
    below = (
        [f"      {line}" for line in (*question, *options)]
        if value["status"] == ThreadState.ASKING.word
        else []
    )
    return "\n".join([f"{begin}: {verdict}{end}" if verdict else begin + end, *below])


def _lines(invocation: Invocation, again: str, thread: ThreadId, quiet: bool) -> Lines | None:
    invocation.going_on = f"nothing is lost, {again} goes on"
    if quiet or not invocation.draws:
        return None
    from uwf_cli.watching.lines import of_step

    return of_step(invocation.instance, thread)


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
            found = running()
            if drawn:
                shown = _rows(terminal.escape_value(found))
            elif (now := [(each["thread"], each["turns"], each["last"]) for each in found]) != before:
                before = now
                invocation.emit(found, lambda value: "\n".join(_rows(value)), compact=True)
            time.sleep(_PAUSE)


def _rows(found: Sequence[dict[str, Any]]) -> list[str]:
    from uwf_cli.watching.lines import lasted, spent
    from uwf_git.api.listing import nested

    room = terminal.width()
    lines = []
    for depth, each in nested(found):
        since = "" if each["role"] is None else f"  step {each['step']}  {lasted(each['seconds'])}"
        head = f"{terminal.style(each['thread'], 'bold')}  {each['name'] or ''}{since}"
        who = "between two steps" if each["role"] is None else f"{role_name(each['role'])} {whose(each)}"
        if "branches" in each:
            who = f"branches: {branches_text(each['branches'])}"
        lines += [f"{'  ' * depth}{head}", f"{'  ' * depth}  {' · '.join([who, *spent(each)])}"]
    lines = lines or ["nothing runs here"]
    return [line if room is None else terminal.cut(line, room) for line in lines]


def exchanged(invocation: Invocation, thread: str, remote: str | None) -> tuple[Exchange | None, ThreadId]:
    """Return the exchange for a thread's steps, None without remote, and its id. A full id may exist only on
    the remote, and is pulled then."""
    if remote is None:
        return None, find_thread(invocation, thread)
    from uwf_git.api.exchange import bring

    there = exchange.exchange_for(invocation.instance, remote)
    bring(there, thread)
    return there, find_thread(invocation, thread)


def _live_stderr(invocation: Invocation, lines: Lines | None) -> Callable[[bytes], None] | None:
    if lines or not terminal.is_terminal(sys.stderr) or invocation.format != "text":
        return None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        text = decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
        sys.stderr.write(terminal.escape(text))
        sys.stderr.flush()

    return show


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
        shared, found = exchanged(invocation, thread, remote)
    else:
        shared, found = None, _pulled(invocation, thread)
    options = Options(agent, where, exchange=shared)
    require_ready_thread(invocation.instance, found, agent)
    run_one(invocation, found, options, max_steps, quiet, {} if detach else None)


def _pulled(invocation: Invocation, thread: str) -> ThreadId:
    """Return a thread's id after pulling it from the default remote, if there is one that has it."""
    from uwf_git.api.exchange import bring, fetch, fetch_branches, raise_if_incomplete, threads_there

    instance = invocation.instance
    if not instance.remotes.all():
        return find_thread(invocation, thread)
    there = exchange.exchange_for(instance, None)
    (found,) = threads_there(there, [thread])
    if instance.threads.exists(found):
        raise_if_incomplete(fetch(there, [found]))
    else:
        bring(there, found)
    if instance.threads.exists(found):
        fetch_branches(there, found)
    return find_thread(invocation, found)


def place(invocation: Invocation, thread: ThreadId, workspace: str | None, where: Path | None) -> None:
    """Give a thread the workspace of --workspace, if any."""
    if workspace is not None:
        from uwf_git.workspaces.choice import reassign
        from uwf_git.workspaces.options import parse_option

        reassign(invocation.instance, thread, parse_option(workspace), where or Path.cwd())
