"""Steps as commands make them: with a remote, a live line, their outcome in a line, and hints that go on with the same
options."""

from __future__ import annotations

import codecs
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uwf_cli import exchange, terminal
from uwf_cli.invocation import Invocation, find_thread, going_on_by
from uwf_cli.output import approvals_line, whose
from uwf_git.base.errors import Absent, AgentFailed, HeadMoved, UwfError, Waiting
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


_MIN_OUTPUT_WIDTH = 8  # minimum columns of an output, however narrow the terminal is


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
    remote = options.exchange.remote.name if options.exchange else None
    repeats = repeated(options.agent, options.cwd, remote)
    invocation.going_on = going_on_by(f"uwf thread run {thread}{repeats}")
    with invocation.instance.locks.run(thread):
        is_shared = options.exchange is not None and not invocation.instance.threads.has_ended(thread)
        try:
            _run_one(invocation, thread, options, most, quiet, repeats)
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


def _run_one(
    invocation: Invocation, thread: ThreadId, options: Options, most: int, quiet: bool, repeats: str
) -> None:
    from uwf_git.api.outcome import raise_as_ended
    from uwf_git.api.run import run as steps

    command = f"uwf thread run {thread}"
    again = command + repeats
    lines = live_line(invocation, again, thread, quiet)
    with repeating(command, repeats, is_run=True), lines or nullcontext():
        options = options._replace(on_stderr=live_stderr(invocation, lines))
        branches = side_by_side(invocation, options, most, again, lines)
        for outcome in steps(invocation.instance, thread, lambda: options, most, branches=branches):
            with lines.hidden() if lines else nullcontext():
                emit_outcome(invocation, outcome, compact=True)
            raise_as_ended(invocation.instance, outcome.position.head)
            if outcome.done:
                return
            error = stopped(invocation, outcome)
            if error is not None and not isinstance(error, Absent):  # of whom the next step asks
                raise error
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
        from uwf_cli.detached import run_words
        from uwf_cli.watching.side_by_side import SideBySide
        from uwf_git.api.fan_out import Lookout, at_once

        remote = options.exchange.remote.name if options.exchange else None
        words = run_words(most, options, remote)
        siblings = [state.thread for state in branches.each]
        is_taken = Lookout(instance, options.exchange, thread, chosen).is_taken
        side = SideBySide(invocation, chosen, words, at_once(branches), again, siblings, is_taken)
        with lines.hidden() if lines else nullcontext():
            side.run(quiet=lines is None)

    return run_branches


def repeated(agent: object, where: Path | None, remote: str | None) -> str:
    """Return the options to repeat in a command that continues, quoted for a shell, each after a space."""
    from uwf_git.config.resolve import AgentOptions

    words = agent.words if isinstance(agent, AgentOptions) else () if agent is None else (agent,)
    options = [*(("--agent", word) for word in words), ("--cwd", where), ("--remote", remote)]
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in options if value is not None)


@contextmanager
def repeating(command: str, options: str, is_run: bool = False) -> Iterator[None]:
    """Add the options of a call to the command in hints of its errors that continues the thread: without them another
    agent would play the next step. The hint of a run that failed or waits names that command in any case."""
    try:
        yield
    except UwfError as error:
        if options:
            bare = re.compile(re.escape(command) + "(?![^ ,;:)]| --)")
            hint = bare.sub(lambda _: command + options, error.hint)
            is_repeated = isinstance(error, Waiting) or (
                isinstance(error, AgentFailed) and not error.is_final
            )
            if is_run and hint == error.hint and is_repeated:
                word = "then" if isinstance(error, Waiting) else "again"
                hint += f"{'; ' if hint else ''}{word}: {command}{options}"
            error.hint = hint
        raise


def stopped(invocation: Invocation, outcome: Outcome) -> Waiting | None:
    if outcome.state.request is None:
        return None
    from uwf_git.api.outcome import waiting_for

    return waiting_for(invocation.instance, outcome, is_shown=invocation.format == "text")


def emit_outcome(invocation: Invocation, outcome: Outcome, compact: bool = False) -> None:
    """Print a step's outcome, for people one line plus a question with options, then run the hooks."""
    value, shown = outcome_value(invocation, outcome)
    code = None
    if outcome.done:
        from uwf_git.api.outcome import code_left

        code = code_left(invocation.instance, outcome.position)
    if code is not None:
        value["code"] = {"commit": code.commit, **code.as_json()}
    invocation.emit(value, outcome_line, shown, compact)
    if code is not None:
        from uwf_git.api.outcome import code_line

        invocation.note(code_line(invocation.instance, outcome.position.head, code))
    invocation.afterwards()


def outcome_value(invocation: Invocation, outcome: Outcome) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an outcome as JSON and for `outcome_line`. Warns of removed secrets."""
    value = outcome.as_json()
    if outcome.may_warn:
        from uwf_git.api.outcome import warnings_of

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
    is_asking = value["status"] == ThreadState.ASKING.word
    below = [f"      {line}" for line in (*question, *options)] if is_asking else []
    return "\n".join([f"{begin}: {verdict}{end}" if verdict else begin + end, *below])


def live_line(invocation: Invocation, again: str, thread: ThreadId, quiet: bool) -> Lines | None:
    invocation.going_on = going_on_by(again)
    if quiet or not invocation.draws:
        return None
    from uwf_cli.watching.lines import of_step

    return of_step(invocation.instance, thread)


def exchanged(invocation: Invocation, thread: str, remote: str | None) -> tuple[Exchange | None, ThreadId]:
    """Return the exchange for a thread's steps, None without remote, and its id. A full id may exist only on
    the remote, and is pulled then."""
    if remote is None:
        return None, find_thread(invocation, thread)
    from uwf_git.api.exchange import bring

    there = exchange.exchange_for(invocation.instance, remote)
    bring(there, thread)
    return there, find_thread(invocation, thread)


def live_stderr(invocation: Invocation, lines: Lines | None) -> Callable[[bytes], None] | None:
    if lines or not terminal.is_terminal(sys.stderr) or invocation.format != "text":
        return None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        text = decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
        sys.stderr.write(terminal.escape(text))
        sys.stderr.flush()

    return show


def warn_of_agent(invocation: Invocation, thread: ThreadId, agent: str | AgentOptions | None) -> None:
    """Warn if a thread with a cost limit gets an agent with unknown cost."""
    if agent is not None:
        from uwf_git.api.run import warn_of_agent

        warn_of_agent(invocation.instance, thread, agent)


def place(invocation: Invocation, thread: ThreadId, workspace: str | None, where: Path | None) -> None:
    """Give a thread the workspace of --workspace, if any."""
    if workspace is not None:
        from uwf_git.workspaces.choice import reassign
        from uwf_git.workspaces.options import parse_option

        reassign(invocation.instance, thread, parse_option(workspace), where or Path.cwd())
