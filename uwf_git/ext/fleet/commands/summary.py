"""Reporting how a fleet's threads ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from uwf_git.ext.fleet.queue_states import QueueState, RowState, word_of
from uwf_git.plugin import (
    CENSUS_FAILURES,
    Failure,
    Paused,
    ThreadState,
    UwfError,
    Waiting,
    counted,
    failure_of,
    print_error,
)

if TYPE_CHECKING:
    from uwf_git.ext.fleet.admission import FleetSpending
    from uwf_git.ext.fleet.client import Row
    from uwf_git.ext.fleet.endpoint import Endpoint
    from uwf_git.ext.fleet.retry_policy import Fault
    from uwf_git.plugin import Invocation


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
    gave_up = [row for row in rows if row.state is QueueState.GAVE_UP]
    cancelled = [row for row in rows if row.state is QueueState.CANCELLED]
    waits = [row for row in rows if row.open]
    failed = len(gave_up) + len(cancelled)
    ended = [(row, error) for row in rows if (error := _error_of(row)) is not None]
    partial = sum(row.state is ThreadState.WITH_FAILURES for row, _ in ended)
    parts = [
        f"{len(rows) - failed - len(waits) - len(ended)} done",
        f"{partial} {ThreadState.WITH_FAILURES.label}",
        f"{len(waits)} waiting",
        f"{failed + len(ended) - partial} failed",
    ]
    summary = ", ".join(part for part in parts if not part.startswith("0 "))
    invocation.note(f"{counted(len(rows), 'thread')}: {summary}")
    worst = 1 if cancelled else 0
    for row, error in ended:
        worst = max(worst, error.exit_status)
        print_error(invocation, failure_of(error), thread=row.thread)
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
    groups: dict[tuple[RowState, str], list[Row]] = defaultdict(list)
    for row in waits:
        if used.standing.reached is None or row.state is not QueueState.HELD or row.is_paused:
            groups[row.state, row.why].append(row)
    for rows_here in groups.values():
        print_error(invocation, _rest(rows_here, at))
    is_short = used.standing.reached is not None and (
        left or any(row.state is QueueState.HELD for row in waits)
    )
    if is_short:
        print_error(
            invocation,
            Failure(Waiting.code, Waiting.exit_status, f"the fleet waits: {used.reason()}", used.hint()),
        )
    return worst or (Waiting.exit_status if waits or is_short else 0)


def _error_of(row: Row) -> UwfError | None:
    """Return the error of a thread that ended otherwise than it was to."""
    if not isinstance(row.state, ThreadState) or not row.state.is_ended or row.state.value.error is None:
        return None
    why = f": {row.why}" if row.why else ""
    if row.state is ThreadState.WITH_FAILURES:
        text = f"is completed {row.why or CENSUS_FAILURES}"
    else:
        text = f"{'has failed' if row.state is ThreadState.FAILED else 'was killed'}{why}"
    return row.state.value.error(f"thread {row.thread} {text}", f"see: uwf thread show {row.thread}")


def _rest(rows: list[Row], at: Endpoint | None) -> Failure:
    first, which = rows[0], _which(rows)
    why, hint = f"it is {word_of(first.state)}", "see: uwf inbox"
    if first.is_paused:
        command = "resume" if at else "run"  # of a server of its own the queue is gone
        why, hint = "held by uwf fleet pause", f"uwf fleet {command} {which}{_options(at)} lets it go on"
    elif first.state is QueueState.HELD:
        why, hint = first.why, f"uwf fleet run {which}{_options(at)} goes on, with a budget of its own"
    elif first.state is ThreadState.JOINING:
        why, hint = "its branches cannot go on", f"see: uwf thread show {first.thread}"
    elif first.state is ThreadState.PAUSED:
        why, hint = first.state.word, f"uwf thread resume {first.thread} lets it go on"
    elif first.why:
        why = "waits for an answer" if first.why == "an answer" else first.why
    error = Paused if first.state is ThreadState.PAUSED else Waiting
    return Failure(error.code, error.exit_status, f"{_such(rows)}: {why}", hint)


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
