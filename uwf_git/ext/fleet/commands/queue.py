"""`uwf fleet` start, status, pause, resume, cancel and sync."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uwf_git.ext.fleet.commands.options import (
    EntryOptions,
    ServerOptions,
    mark_remote,
    pace,
    server,
    share,
    to_step,
    warn_of_attributes,
)
from uwf_git.ext.fleet.queue_states import WORDS, QueueState, word_of
from uwf_git.plugin import (
    AMOUNT_LIMITS,
    Failures,
    Invocation,
    NotFound,
    ThreadFilters,
    ThreadSelection,
    ThreadState,
    Usage,
    UwfError,
    adopt_news,
    command,
    completers,
    counted,
    exchange_for,
    find_thread,
    is_thread_id,
    iso,
    left_out_line,
    parse_thread_id,
    short_ids,
    terminal,
    time_ago,
)
from uwf_git.plugin import selected_threads as threads

if TYPE_CHECKING:
    from uwf_git.ext.fleet.client import Queue, Row
    from uwf_git.ext.fleet.endpoint import Endpoint
    from uwf_git.plugin import View

_T = TypeVar("_T")
_PAUSE = 1.0  # seconds between two looks at the queue
_USED = dict(
    zip((*AMOUNT_LIMITS, "unpriced"), ("steps", "tokens", "cost", "seconds", "unpriced"), strict=True)
)
"""What of a budget is used, as JSON names it."""
_IN_TURN = (QueueState.QUEUED.value, ThreadState.RUNNING.in_queue)


@command(
    "uwf fleet start --all",
    "uwf fleet start --all --remote origin --address temporal.example:7233",
)
@threads
@pace
@click.option(
    "--remote",
    metavar="R",
    help="Push the threads to this remote first, for workers on other machines.",
    shell_complete=completers.complete_remote,
)
@server
def start(
    invocation: Invocation,
    chosen: ThreadSelection,
    pace: EntryOptions,
    remote: str | None,
    server: ServerOptions,
) -> None:
    """Queue threads for a fleet, whose workers run them to their ends.

    Filters select idle threads; --status failed selects failed ones.
    """
    failures = Failures(invocation)
    wanted = to_step(invocation, chosen, failures)
    shared = wanted if remote is None else share(invocation, remote, wanted, failures)
    begun = pace.entries(invocation.instance, shared)
    at = server.find(invocation)
    warn_of_attributes(invocation, at)
    mark_remote(invocation, remote, at)
    started = _ask(at, lambda queue: queue.start(begun))
    values = [{"thread": thread, "started": row is None} for thread, row in started.items()]
    _emit(invocation, chosen.ids, values, _started_text)
    if not wanted and not chosen.ids:
        invocation.note("no such threads are idle; uwf thread list shows what they are")
    held = sum(row is not None and row.is_paused for row in started.values())
    if held:
        invocation.warn(
            f"{counted(held, 'thread')} held by uwf fleet pause — uwf fleet resume lets them go on"
        )
    failures.end()


def _started_text(value: Any) -> str:
    return f"{value['thread']} is in the queue" + ("" if value["started"] else " already")


@command(
    "uwf fleet status",
    "uwf fleet status --all",
    "uwf fleet status --watch",
)
@click.option("--all", "ended", is_flag=True, help="Also list threads that have left the queue.")
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C. With --json, print one line per change.")
@server
def status(invocation: Invocation, ended: bool, watch: bool, server: ServerOptions) -> None:
    """List the project's threads in a fleet's queue, oldest first: state, reason for waiting, worker."""
    at, short = server.find(invocation), short_ids(invocation.instance)
    if watch:
        _watch(invocation, at, ended, short)
        return
    every = _with_pauses(invocation, _ask(at, lambda queue: queue.rows(ended)))
    rows = _of_project(invocation, every)
    if len(rows) < len(every):
        invocation.note(left_out_line(len(every) - len(rows)))
    invocation.emit(list(map(_value, rows)), lambda listed: "\n".join(_table(listed, short)))


def _watch(invocation: Invocation, at: Endpoint, ended: bool, short: Callable[[str], str]) -> None:
    from uwf_git.plugin import step_lines

    drawn = invocation.draws
    shown: list[str] = []
    before: list[Row] = []

    async def look(queue: Queue) -> None:
        nonlocal shown, before
        while True:
            rows = _of_project(invocation, _with_pauses(invocation, await queue.rows(ended)))
            values = list(map(_value, rows))
            if drawn:
                shown = _table(terminal.escape_value(values), short)
            elif rows != before or not before:
                before = rows
                invocation.emit(values, lambda listed: "\n".join(_table(listed, short)), compact=True)
            await asyncio.sleep(_PAUSE)

    with suppress(KeyboardInterrupt), step_lines.Lines(lambda: shown) if drawn else nullcontext():
        _ask(at, look)


def _with_pauses(invocation: Invocation, rows: list[Row]) -> list[Row]:
    from uwf_git.plugin import paused_threads

    paused = paused_threads(invocation.instance)
    return [
        row._replace(state=ThreadState.PAUSED)
        if row.state is QueueState.QUEUED and row.thread in paused
        else row
        for row in rows
    ]


def _of_project(invocation: Invocation, rows: list[Row]) -> list[Row]:
    """Return the rows of the project's threads, and of those that are not here."""
    threads = invocation.instance.threads

    def is_meant(thread: str) -> bool:
        try:
            return threads.is_meant(threads.head(parse_thread_id(thread)))
        except UwfError:
            return True

    return [row for row in rows if is_meant(row.thread)]


def _value(row: Row) -> dict[str, Any]:
    used = None if row.used is None else {name: row.used.get(key, 0) for key, name in _USED.items()}
    since = None if row.since is None else iso(row.since)
    return {**row._asdict(), "state": word_of(row.state), "since": since, "used": used}


def _table(values: Any, short: Callable[[str], str]) -> list[str]:
    if not values:
        return ["the queue is empty"]
    rows = [
        (short(value["thread"]), value["state"], _since(value["since"]), value["worker"], _why(value))
        for value in values
    ]
    counts = Counter(value["state"] for value in values)
    summary = ", ".join(f"{counts[state]} {state}" for state in WORDS if counts[state])
    return [*terminal.table(rows).splitlines(), f"{counted(len(values), 'thread')}: {summary}"]


def _why(value: Any) -> str:
    again = value["tries"] > 1 and value["state"] in _IN_TURN
    return ": ".join(filter(None, [f"try {value['tries']}" if again else "", value["why"]]))


def _since(text: str | None) -> str:
    return time_ago(datetime.fromisoformat(text).timestamp()) if text else ""


def _of_queue(function: Any) -> Any:
    ids = click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=completers.complete_thread)
    return ids(
        click.option("--all", "every", is_flag=True, help="Every thread in the queue.")(server(function))
    )


@command("uwf fleet pause --all", "uwf fleet pause 01JK7M")
@_of_queue
def pause(invocation: Invocation, ids: tuple[str, ...], every: bool, server: ServerOptions) -> None:
    """Pause threads for this fleet only. uwf thread pause pauses them everywhere.

    Steps in progress finish.
    """
    _signal(invocation, ids, every, server.find(invocation), "hold", "paused")


@command("uwf fleet resume --all", "uwf fleet resume 01JK7M")
@_of_queue
def resume(invocation: Invocation, ids: tuple[str, ...], every: bool, server: ServerOptions) -> None:
    """Resume threads that were paused for this fleet."""
    _signal(invocation, ids, every, server.find(invocation), "let", "resumed")


@command("uwf fleet cancel --all", "uwf fleet cancel 01JK7M")
@_of_queue
def cancel(invocation: Invocation, ids: tuple[str, ...], every: bool, server: ServerOptions) -> None:
    """Remove threads from the queue. They are not changed and can be queued again.

    Waits until a step in progress has been interrupted; its output is kept as an attempt.
    """
    _signal(invocation, ids, every, server.find(invocation), "", "cancelled")


def _signal(
    invocation: Invocation, ids: tuple[str, ...], every: bool, at: Endpoint, name: str, done: str
) -> None:
    from uwf_git.ext.fleet.endpoint import find

    if every == bool(ids):
        raise Usage("which threads?", "give ids, or --all for all that the queue has")
    named = [_id(invocation, item) for item in ids]
    private = invocation.instance.store.repository.private

    async def tell(queue: Queue) -> tuple[dict[str, bool], list[str]]:
        chosen = named or [row.thread for row in await queue.glance()]
        if name:
            return await queue.signal(chosen, name), []
        told = await queue.cancel(chosen)
        had = [thread for thread, was_there in told.items() if was_there]
        return told, await queue.let_go(had, (lambda: find(private) is None) if at.own else None)

    answers, still = _ask(at, tell)
    failures = Failures(invocation)
    for thread, had in answers.items():
        if not had and ids:
            failures.add(
                NotFound(f"thread {thread} is not in the queue", f"uwf fleet start {thread} puts it in")
            )
    values = [{"thread": thread, done: True} for thread, had in answers.items() if had]
    _emit(invocation, ids, values, f"{done} {{thread}}")
    if still:
        invocation.warn(
            f"{counted(len(still), 'step')} still being interrupted, such as of thread {still[0]}"
            " — uwf fleet status --all shows when none is"
        )
    failures.end()


def _id(invocation: Invocation, text: str) -> str:
    return text.upper() if is_thread_id(text.upper()) else find_thread(invocation, text)


@command(
    "uwf fleet sync               tells the fleet of answers that came by a pull",
    "uwf fleet sync --all         and puts in all that is idle",
    "uwf fleet sync --remote origin",
)
@threads
@pace
@click.option(
    "--remote", metavar="R", help="Pull from this remote first.", shell_complete=completers.complete_remote
)
@server
def sync(
    invocation: Invocation,
    chosen: ThreadSelection,
    pace: EntryOptions,
    remote: str | None,
    server: ServerOptions,
) -> None:
    """Update a fleet's queue from the refs.

    Threads that were answered, resumed or ended are continued or removed. Selected idle threads that are
    missing are queued, which also restores the queue of a server that lost its data.
    """
    from uwf_git.ext.fleet import messages
    from uwf_git.ext.fleet.queue_sync import outdated

    failures = Failures(invocation)
    instance, wanted = invocation.instance, []
    if remote is not None:
        from uwf_git.plugin import pull_refs, raise_if_refused

        raise_if_refused(pull_refs(exchange_for(instance, remote)))
    if chosen.ids or chosen.filters != ThreadFilters():
        wanted = to_step(invocation, chosen, failures)
    else:
        adopt_news(invocation)
    begun = pace.entries(invocation.instance, wanted)

    async def bring(queue: Queue) -> dict[str, list[str]]:
        states = {row.thread: row.state for row in await queue.glance()}
        blocked = [thread for thread, state in states.items() if state is QueueState.BLOCKED]
        threads_told = [*outdated(instance, states), *blocked]
        await queue.signal(threads_told, messages.LOOK)
        started = await queue.start(entry for entry in begun if entry.thread not in states)
        return {"told": threads_told, "started": [thread for thread, row in started.items() if row is None]}

    value = _ask(server.find(invocation), bring)
    invocation.emit(value, _synced_text)
    failures.end()


def _synced_text(value: Any) -> str:
    count, started = len(value["told"]), len(value["started"])
    return f"{counted(count, 'thread')} told of news, {counted(started, 'thread')} put in"


def _ask(at: Endpoint, do: Callable[[Queue], Awaitable[_T]]) -> _T:
    from uwf_git.ext.fleet.client import Queue, connect, require

    require()

    async def ask() -> _T:
        return await do(Queue(await connect(at)))

    return asyncio.run(ask())


def _emit(invocation: Invocation, ids: Sequence[str], values: list[dict[str, Any]], view: View) -> None:
    if len(ids) == 1 and values:
        invocation.emit(values[0], view)
    else:
        invocation.emit_each(values, view)
