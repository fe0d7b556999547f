"""`uwf fleet run` and `uwf fleet worker`."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uwf_git.ext.fleet.commands.options import (
    MONITOR,
    EntryOptions,
    LimitOptions,
    ServerOptions,
    WorkOptions,
    limited,
    mark_remote,
    pace,
    server,
    share,
    to_step,
    unmark_remote,
    warn_of_attributes,
    work,
)
from uwf_git.ext.fleet.monitor import monitored
from uwf_git.ext.fleet.queue_states import QueueState
from uwf_git.plugin import (
    Busy,
    Failure,
    Failures,
    Invocation,
    OutputFailed,
    ThreadFilters,
    ThreadSelection,
    Throttled,
    Usage,
    UwfError,
    Waiting,
    command,
    extensions,
    options,
    outcome_line,
    print_error,
    short_ids,
    streams,
    system,
    terminal,
)
from uwf_git.plugin import selected_threads as threads

if TYPE_CHECKING:
    from uwf_git.ext.fleet.endpoint import Endpoint
    from uwf_git.ext.fleet.monitor import Address
    from uwf_git.ext.fleet.retry_policy import Fault
    from uwf_git.plugin import AgentOptions, Location, ThreadId

_T = TypeVar("_T")

JOBS = click.option(
    "-j",
    "--jobs",
    type=options.AT_ONCE,
    default=1,
    show_default=True,
    metavar="N",
    help="Steps that each worker runs in parallel.",
)


@command(
    "uwf fleet run --workers 4",
    "uwf fleet run --workflow triage --workers 2 -j 4",
    "uwf fleet run --all --address temporal.example:7233 --namespace triage",
)
@threads
@click.option(
    "--workers",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Local workers to start. 0 is allowed with --address.",
)
@JOBS
@pace
@work
@limited
@server
@MONITOR
@click.option("--stay", is_flag=True, help="Keep running while threads wait for an answer.")
@options.QUIET
def run(
    invocation: Invocation,
    chosen: ThreadSelection,
    workers: int,
    jobs: int,
    pace: EntryOptions,
    work: WorkOptions,
    bounds: LimitOptions,
    server: ServerOptions,
    monitor: Address | None,
    stay: bool,
    quiet: bool,
) -> None:
    """Run threads to their ends with workers on this machine. Failures don't stop the others. Prints one line
    per step.

    Default: all idle threads. Starts a local Temporal server unless --address is given, and ends when every
    thread has ended, waits or was given up. Filters select idle threads; --status failed selects failed ones.
    """
    from uwf_git.ext.fleet import client
    from uwf_git.ext.fleet.admission import Admission, FleetLimits
    from uwf_git.ext.fleet.commands.summary import report_ends
    from uwf_git.ext.fleet.commands.table import Table
    from uwf_git.ext.fleet.endpoint import find, fleet_membership
    from uwf_git.ext.fleet.run import Fleet, up
    from uwf_git.ext.fleet.worker import WorkerSettings

    client.require()
    token = extensions.take_monitor_token()
    if not workers and server.address is None:
        raise Usage(
            "a fleet without workers makes no step", "give --workers, or the --address that others work for"
        )
    if server.namespace is not None and server.address is None:
        raise Usage(
            "a fleet with a server of its own has no namespaces", "give the --address of the one that has"
        )
    orders = work.orders(invocation)
    failures = Failures(invocation)
    if not chosen.ids and chosen.filters == ThreadFilters():
        chosen = ThreadSelection((), ThreadFilters(ended=True))  # as --all says
    threads = to_step(invocation, chosen, failures)
    if not threads:
        if not chosen.ids:
            private = invocation.instance.store.repository.private
            shows = "uwf fleet status" if find(private) else "uwf thread list"
            with fleet_membership(private, alone=server.address is None):
                invocation.note(f"no such threads are idle; {shows} shows what they are")
        failures.end()
        return
    invocation.going_on = "nothing is lost, the same command goes on"
    instance = invocation.instance
    if server.address is None:  # else workers elsewhere may have other agents
        threads = [thread for thread in threads if _is_ready(invocation, thread, work.agent, failures)]
    if work.remote is not None and server.address is not None:
        threads = share(invocation, work.remote, threads, failures)
    if not threads:
        failures.end()
        return
    wanted = pace.entries(instance, threads, work.agent, counts=bool(bounds.budget))
    allowed = FleetLimits(bounds.open_, bounds.budget, instance.config.stops_unpriced).at_most(workers * jobs)
    admission = Admission(wanted, allowed)
    printer = EventPrinter(invocation)
    table = Table(instance, admission, len(wanted), printer)
    with up(instance, server.named()) as (at, own_server), table.drawn(invocation, quiet):
        warn_of_attributes(invocation, at)
        known = mark_remote(invocation, work.remote, at)
        fleet = Fleet(instance, own_server, WorkerSettings(at, jobs, orders), workers, table, table.seen)
        running = _watched(instance.location, monitor, token, fleet.run(admission, stay))
        rows = _run_interruptibly(running, fleet.abandon)
        if at.own:
            unmark_remote(invocation, work.remote, known)
        faults = asyncio.run(
            _faults(at, [row.thread for row in rows.values() if row.state is QueueState.GAVE_UP])
        )
    ours = {begin.thread for begin in wanted}
    ended = [rows[begin.thread] for begin in wanted if begin.thread in rows]
    ended += [row for row in rows.values() if row.state is QueueState.GAVE_UP and row.thread not in ours]
    failures.note(
        report_ends(
            invocation,
            printer.give_up,
            ended,
            faults,
            server.named(),
            admission.used(),
            admission.left,
        )
    )
    failures.end()


async def _watched(
    location: Location, monitor: Address | None, token: str, running: Coroutine[Any, Any, _T]
) -> _T:
    try:
        async with monitored(location, monitor, token):
            return await running
    finally:
        running.close()  # if it cannot be served


def _is_ready(
    invocation: Invocation, thread: ThreadId, agent: AgentOptions | None, failures: Failures
) -> bool:
    """Return whether a thread can reach its end with the agents of this machine; report why not."""
    from uwf_git.plugin import require_ready_thread

    try:
        require_ready_thread(invocation.instance, thread, agent)
    except UwfError as error:
        error.message = f"thread {thread}: {error.message}"
        failures.add(error)
        return False
    return True


def _run_interruptibly(running: Coroutine[Any, Any, _T], abandon: Callable[[], None]) -> _T:
    """Run to the end. A signal stops it at its next wait, since exceptions inside the event loop could be
    lost. A second signal abandons it."""
    came: list[int] = []
    before = {
        number: handler
        for number in (signal.SIGINT, *system.END_SIGNALS)
        if callable(handler := signal.getsignal(number))
    }

    async def run() -> _T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        # None of the loop's own, which are called by the loop: a write may hold that up.
        def hear(number: int, _frame: object) -> None:
            if not came:
                streams.end_unheard(128 + number)
            end = abandon if came else task.cancel
            came.append(number)
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(end)

        for number in before:
            signal.signal(number, hear)
        return await running

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            before[signal.Signals(came[0])](came[0], None)
    raise AssertionError("a signal ends the command")


async def _faults(at: Endpoint, threads: Collection[str]) -> Mapping[str, Fault | None]:
    from uwf_git.ext.fleet.client import Queue, connect

    if not threads:
        return {}
    queue = Queue(await connect(at))
    return {thread: await queue.fault(thread) for thread in threads}


_BUSY = 3
"""Times that a thread is busy, one after the other, after which that is told: somebody may only be answering."""


class EventPrinter:
    """Prints events, one line per step; errors go to standard error with their thread."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._short = short_ids(invocation.instance)
        self._troubles: set[str] = set()
        self._failed: set[str] = set()
        self._busy: Counter[str] = Counter()

    def __call__(self, value: Mapping[str, Any]) -> None:
        """Print an event. Unprintable output doesn't stop the work; the command reports it at its end."""
        with suppress(OSError, OutputFailed):
            self._notify(value)

    def _notify(self, value: Mapping[str, Any]) -> None:
        from uwf_git.ext.fleet.retry_policy import NEWER, UNWRITABLE

        invocation = self._invocation
        if "step" in value:
            step = value["step"]
            label, shown = self._label(step["thread"]), {**step, **value["told"]}
            del self._busy[step["thread"]]
            invocation.emit(step, lambda row: f"{label}  {outcome_line(row)}", shown, compact=True)
        elif "fault" in value:
            fault, thread = value["fault"], value["thread"]
            if fault["code"] == Busy.code:
                self._busy[thread] += 1
            if (
                fault["code"] not in ("head_moved", UNWRITABLE)
                and fault["status"] != Waiting.exit_status
                and (fault["code"] != Busy.code or self._busy[thread] == _BUSY)
                and (fault["code"] != NEWER or thread not in self._failed)
            ):
                throttled = None if fault["by"] is None else Throttled(fault["by"], fault["after"])
                self._fail(
                    thread,
                    Failure(
                        fault["code"], fault["status"], fault["message"], fault["hint"], throttled=throttled
                    ),
                )
        elif "trouble" in value:
            self._tell_trouble(value)
        elif "warning" in value:
            invocation.warn(value["warning"])
        elif "restarted" in value:
            invocation.note(f"the {value['restarted']} has ended, and is started again")

    def _fail(self, thread: str, failure: Failure) -> None:
        self._failed.add(thread)
        print_error(self._invocation, failure, thread=thread, label=f"{self._label(thread)}  ")

    def give_up(self, thread: str, failure: Failure) -> None:
        """Print why a thread was given up, unless already reported."""
        if thread not in self._failed:
            self._fail(thread, failure)

    def _tell_trouble(self, value: Mapping[str, Any]) -> None:
        """Report an outage of a remote, server or store once for all workers, and its end."""
        of, fault = value["of"], value["trouble"]
        before = of in self._troubles
        if fault is None:
            self._troubles.discard(of)
            if before:
                self._invocation.warn(f"{of} {value.get('again', 'answers again')}")
        elif not before:
            self._troubles.add(of)
            meanwhile = value.get("meanwhile", "it is asked again and again")
            hint = f"{meanwhile}; {fault['hint']}" if fault["hint"] else meanwhile
            print_error(self._invocation, Failure(fault["code"], fault["status"], fault["message"], hint))

    def _label(self, thread: str) -> str:
        return terminal.style(self._short(thread), "cyan")


@command(
    "uwf fleet worker --address temporal.example:7233 --remote origin",
    "uwf fleet worker --address temporal.example:7233 -j 8 --remote origin",
)
@JOBS
@work
@server
@MONITOR
@click.option(
    "--build-id",
    "build",
    metavar="ID",
    default="",
    help="Make steps only while Temporal sends them to this version of the deployment uwf.",
)
def worker(
    invocation: Invocation,
    jobs: int,
    work: WorkOptions,
    server: ServerOptions,
    monitor: Address | None,
    build: str,
) -> None:
    """Run steps of a fleet until Ctrl-C. Prints one line per step.

    uwf fleet start on any machine queues threads. Steps in progress are interrupted at the end; another
    worker continues.
    """
    from uwf_git.ext.fleet import client
    from uwf_git.ext.fleet.endpoint import announce, fleet_membership
    from uwf_git.ext.fleet.worker import WorkerSettings, make_steps

    client.require()
    token = extensions.take_monitor_token()
    orders, printer = work.orders(invocation), EventPrinter(invocation)
    instance = invocation.instance
    at = server.find(invocation)
    duty = WorkerSettings(at, jobs, orders, build)
    mark_remote(invocation, work.remote, at)

    async def until_ended() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, *system.END_SIGNALS):
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, over.set)
        await _watched(
            instance.location, monitor, token, make_steps(instance.location, duty, printer, over, alone=True)
        )

    if at.own:
        asyncio.run(until_ended())
        return
    with fleet_membership(instance.store.repository.private, alone=False) as private:
        announce(private, at)
        asyncio.run(until_ended())
