"""Reporting how a fleet's threads ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from uwf_cli.failures import print_error

from uwf_git.base import thread_states
from uwf_git.base.errors import Failure, Waiting, failure_of
from uwf_git.base.text import counted
from uwf_git.engine.census import FAILURES
from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.client import ENDED_FAILED

if TYPE_CHECKING:
    from uwf_cli.invocation import Invocation

    from uwf_git.base.thread_states import ThreadState
    from uwf_git.ext.fleet.admission import FleetSpending
    from uwf_git.ext.fleet.client import Row
    from uwf_git.ext.fleet.endpoint import Endpoint
    from uwf_git.ext.fleet.retry_policy import Fault

_ENDS = {
    thread_states.WITH_FAILURES.word: thread_states.WITH_FAILURES,
    ENDED_FAILED: thread_states.FAILED,
    thread_states.KILLED.word: thread_states.KILLED,
}
"""The ends of a thread in the queue that are not green."""


def report_ends(
    invocation: Invocation,
    give_up: Callable[[str, Failure], None],
    rows: list[Row],
    faults: Mapping[str, Fault | None],
    at: Endpoint | None,
    used: FleetSpending,
    left: int,
) -> int:
    """Report the ends of threads: given up ones by `give_up`, others one line per reason. Return the exit
    status, of which waiting counts least. `at` is a shared server, `used` the budget's use, `left` the number
    of threads not begun."""
    gave_up = [row for row in rows if row.state == "gave up"]
    cancelled = [row for row in rows if row.state == "cancelled"]
    waits = [row for row in rows if row.open]
    failed = len(gave_up) + len(cancelled)
    ended = [(row, _ENDS[row.state]) for row in rows if row.state in _ENDS]
    partial = sum(state is thread_states.WITH_FAILURES for _, state in ended)
    parts = [
        f"{len(rows) - failed - len(waits) - len(ended)} done",
        f"{partial} {thread_states.WITH_FAILURES.label}",
        f"{len(waits)} waiting",
        f"{failed + len(ended) - partial} failed",
    ]
    summary = ", ".join(part for part in parts if not part.startswith("0 "))
    invocation.note(f"{counted(len(rows), 'thread')}: {summary}")
    worst = 1 if cancelled else 0
    for row, state in ended:
        assert state.error is not None
        worst = max(worst, state.exit_status)
        failure = state.error(_end_text(row, state), f"see: uwf thread show {row.thread}")
        print_error(invocation, failure_of(failure), thread=row.thread)
    for row in gave_up:
        fault = faults.get(row.thread)
        status = fault.status if fault else 1
        worst = max(worst, status)
        code, hint = (fault.code, fault.hint) if fault else ("failure", "")
        message = (fault.message if fault else row.why) or "the queue gave it up"
        give_up(row.thread, Failure(code, status, message, hint or f"see: uwf thread show {row.thread}"))
    if cancelled:
        goes_on = f"uwf fleet run {_which(cancelled)}{_options(at)} goes on"
        print_error(invocation, Failure("failure", 1, f"{_such(cancelled)}: taken out of the queue", goes_on))
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in waits:
        if used.reached is None or row.state != "held" or row.is_paused:
            groups[row.state, row.why].append(row)
    for found in groups.values():
        print_error(invocation, _rest(found, at))
    is_short = used.reached is not None and (left or any(row.state == "held" for row in waits))
    if is_short:
        print_error(invocation, Failure("waiting", 5, f"the fleet waits: {used.reason()}", used.hint()))
    return worst or (Waiting.exit_status if waits or is_short else 0)


def _end_text(row: Row, state: ThreadState) -> str:
    if state is thread_states.WITH_FAILURES:
        return f"thread {row.thread} is completed {row.why or FAILURES}"
    verb = "has failed" if state is thread_states.FAILED else "was killed"
    return f"thread {row.thread} {verb}" + (f": {row.why}" if row.why else "")


def _rest(rows: list[Row], at: Endpoint | None) -> Failure:
    first, which = rows[0], _which(rows)
    why, hint = f"it is {first.state}", "see: uwf inbox"
    if first.is_paused:
        command = "resume" if at else "run"  # of a server of its own the queue is gone
        why, hint = "held by uwf fleet pause", f"uwf fleet {command} {which}{_options(at)} lets it go on"
    elif first.state == "held":
        why, hint = first.why, f"uwf fleet run {which}{_options(at)} goes on, with a budget of its own"
    elif first.state == messages.JOINING:
        why, hint = "its branches cannot go on", f"see: uwf thread show {first.thread}"
    elif first.state == "paused":
        why, hint = "paused", f"uwf thread resume {first.thread} lets it go on"
    elif first.why:
        why = "waits for an answer" if first.why == "an answer" else first.why
    return Failure("paused" if first.state == "paused" else "waiting", 5, f"{_such(rows)}: {why}", hint)


def _such(rows: list[Row]) -> str:
    first = rows[0].thread
    return f"thread {first}" if len(rows) == 1 else f"{counted(len(rows), 'thread')}, such as {first}"


def _which(rows: list[Row]) -> str:
    return rows[0].thread if len(rows) == 1 else "--all"


def _options(at: Endpoint | None) -> str:
    from uwf_git.ext.fleet.endpoint import NAMESPACE

    if at is None:
        return ""
    return f" --address {at.address}" + ("" if at.namespace == NAMESPACE else f" --namespace {at.namespace}")
