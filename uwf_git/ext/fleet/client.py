"""The queue seen from outside: adding, listing, holding and removing threads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.endpoint import Endpoint, is_broken_off, unreachable
from uwf_git.ext.fleet.messages import ThreadEntry
from uwf_git.ext.fleet.process_pool import Tell
from uwf_git.ext.fleet.queue_states import QueueState, RowState, is_over, rests
from uwf_git.ext.fleet.queue_states import parse as parse_state
from uwf_git.ext.fleet.retry_policy import Fault, fault_of, parse_fault
from uwf_git.plugin import RemoteFailed, ThreadState, UwfError, install_hint, thread_states

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
    from temporalio.common import WorkflowIDReusePolicy
    from temporalio.service import RPCError

_AT_ONCE = 32  # calls that are under way
_WAIT = timedelta(seconds=20)
_RETRY_FOR = 10.0  # seconds for which a call that fails for the moment is made again
_LETS_GO = 30.0  # seconds for a step that is broken off
_POLL_INTERVAL = 5.0  # seconds between two looks whether a server is there
_UNHEARD = 100  # events of a thread that no worker has seen yet, of which the newest signals are looked for
_TICK = 0.2  # seconds between two looks whether a step is broken off
_DECIDES = timedelta(seconds=2)  # for a worker to say what is next, after which another one is asked
_OPEN = f"WorkflowType = '{messages.WORKFLOW}' AND ExecutionStatus = 'Running'"
_ALL = f"WorkflowType = '{messages.WORKFLOW}'"

_T = TypeVar("_T")


def attribute_types() -> list[tuple[str, str]]:
    """Return the search attributes, and what the server calls their types."""
    return [(name, "Double" if name == messages.BY_COST else "Keyword") for name in messages.ATTRIBUTES]


def require() -> None:
    """Raise UwfError if temporalio isn't installed, with the command that installs it."""
    from importlib.util import find_spec

    if find_spec("temporalio") is None:
        raise UwfError("uwf fleet needs the package temporalio", install_hint("fleet"))


class Row(NamedTuple):
    """A thread in the queue. `why` is the reason for its state; `worker` has its step, or had the failed one; `since`
    is in Unix seconds; `used` is spending if counted; `queue` is its task queue."""

    thread: str
    state: RowState
    why: str = ""
    head: str = ""
    worker: str = ""
    tries: int = 0
    since: float | None = None
    used: Mapping[str, float] | None = None
    queue: str = ""

    @property
    def open(self) -> bool:
        return not is_over(self.state)

    @property
    def is_paused(self) -> bool:
        return self.state is QueueState.HELD and not self.why

    @property
    def resting(self) -> bool:
        """Whether it needs an outside event to continue."""
        return rests(self.state)


@cache
def _silence() -> None:
    from temporalio.runtime import Runtime, TelemetryConfig

    if os.environ.get("UWF_DEBUG") == "1":
        return
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    with contextlib.suppress(RuntimeError):  # there is one already
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)), error_if_already_set=True)


async def connect(place: Endpoint) -> Client:
    """Connect to a server. TLS and API keys come from Temporal's environment variables and configuration
    file. Raises RemoteFailed."""
    from temporalio.client import Client
    from temporalio.envconfig import ClientConfig
    from temporalio.service import RetryConfig, RPCError

    _silence()
    settings: dict[str, Any] = {}
    try:
        if not place.own:
            settings = dict(ClientConfig.load_client_connect_config())
        settings |= {"target_host": place.address, "namespace": place.namespace}
        settings["retry_config"] = RetryConfig(max_elapsed_time_millis=int(_RETRY_FOR * 1000))
        # Python 3.11's wait_for loses a cancellation if the result arrives at the same time.
        async with asyncio.timeout(_WAIT.total_seconds()):
            return await Client.connect(**settings)
    except (RPCError, RuntimeError, ValueError, OSError) as error:
        raise _unanswered(place.address, error) from None


async def identity(place: Endpoint) -> str:
    """Return a namespace's id, or one derived from address and name. Raises RemoteFailed."""
    from hashlib import sha256

    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.service import RPCError

    client = await connect(place)
    wanted = DescribeNamespaceRequest(namespace=place.namespace)
    try:
        described = await client.workflow_service.describe_namespace(wanted, retry=False, timeout=_WAIT)
    except RPCError:
        return sha256(f"{place.address} {place.namespace}".encode()).hexdigest()[:32]
    namespace: str = described.namespace_info.id
    return "".join(character for character in namespace if character.isalnum() or character == "-")


async def watch(client: Client, tell: Tell) -> None:
    """Check periodically that the server and namespace exist, since Temporal's workers retry silently. Report
    an outage and its end once each. A server without the namespace counts as an outage."""
    server = f"the Temporal server at {_address(client)}"
    faults: dict[str, Fault] = {}
    while True:
        await asyncio.sleep(_POLL_INTERVAL)
        trouble = await _trouble(client)
        if trouble is None:
            for of in faults:
                again = {"again": "is there again"} if of != server else {}
                tell({"of": of, "trouble": None, **again})
            faults.clear()
            continue
        is_gone, fault = trouble
        of = server if is_gone else f"namespace {client.namespace} of {server}"
        if of not in faults:
            faults[of] = fault
            meanwhile = {} if is_gone else {"meanwhile": "no step can be made"}
            tell({"of": of, "trouble": fault.as_json(), **meanwhile})


async def missing_attributes(client: Client) -> list[str]:
    """Return the search attributes that a namespace lacks; all if the server doesn't tell."""
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
    from temporalio.service import RPCError

    request = ListSearchAttributesRequest(namespace=client.namespace)
    known: Collection[str] = ()
    with contextlib.suppress(RPCError):
        answer = await client.operator_service.list_search_attributes(request, timeout=_WAIT)
        known = answer.custom_attributes
    return [name for name in messages.ATTRIBUTES if name not in known]


async def attributes_warning(place: Endpoint) -> str:
    """Return why a server's pages don't find threads by their attributes, "" if they do. Raises RemoteFailed."""
    client = await connect(place)
    if not (missing := await missing_attributes(client)):
        return ""
    named = " ".join(f"--name {name} --type {kind}" for name, kind in attribute_types() if name in missing)
    at = f"--address {place.address} --namespace {place.namespace}"
    lack = f"the Temporal server at {place.address} lacks the search attributes {', '.join(missing)}"
    create = f"temporal operator search-attribute create {at} {named}"
    return f"{lack}, so it finds no threads by them — {create}"


async def trouble(place: Endpoint) -> str:
    """Return why a server or its namespace doesn't answer, "" if it does."""
    try:
        problem = await _trouble(await connect(place))
    except RemoteFailed as error:
        return error.message
    return problem[1].message if problem is not None else ""


async def _trouble(client: Client) -> tuple[bool, Fault] | None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.service import RPCError, RPCStatusCode

    wanted = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        await client.workflow_service.describe_namespace(wanted, retry=False, timeout=_WAIT)
    except RPCError as error:
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            return None  # it answers, and tells others about its namespaces
        if error.status == RPCStatusCode.NOT_FOUND:
            return False, fault_of(_no_namespace(client))
        return True, fault_of(_failed(client, error))
    return None


def _no_namespace(client: Client) -> RemoteFailed:
    name, address = client.namespace, _address(client)
    make = f"temporal operator namespace create --namespace {name} --address {address}"
    return RemoteFailed(
        f"the Temporal server at {address} has no namespace {name}",
        f"make it: {make}; the queue is made again by: uwf fleet sync --all",
    )


def _address(client: Client) -> str:
    return client.service_client.config.target_host


def _unanswered(address: str, error: Exception, hint: str = "") -> RemoteFailed:
    reason, usual = unreachable(error, _WAIT.total_seconds())
    return RemoteFailed(f"no Temporal server answers at {address}: {reason}", hint or usual)


def _failed(client: Client, error: RPCError) -> RemoteFailed:
    if _is_gone(error):
        return _unanswered(_address(client), error, "see that it is up")
    return _refused(_address(client), (error.message or error.status.name).partition("\n")[0])


def _is_gone(error: RPCError) -> bool:
    from temporalio.service import RPCStatusCode

    gone = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
    return error.status in gone or is_broken_off(error)


def refusal_reason(place: Endpoint, error: Exception) -> RemoteFailed:
    """Why a server doesn't take a worker."""
    match = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(error))
    return _refused(place.address, match[1] if match else str(error).partition("\n")[0])


def _refused(address: str, why: str) -> RemoteFailed:
    return RemoteFailed(
        f"the Temporal server at {address} refuses: {why}", "see that it is up and the namespace is right"
    )


class Queue:
    """The threads of a namespace."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._shows: bool | None = None
        self._over: set[str] = set()  # restarted runs, which may still be listed for a while

    async def start(
        self, begins: Iterable[ThreadEntry], over: Collection[str] = (messages.USED_UP,)
    ) -> dict[str, Row | None]:
        """Add threads; return the rows of existing ones. One held for a reason in `over` is begun anew, as is
        a removed one once its step was interrupted. Raises RemoteFailed."""
        from temporalio.exceptions import WorkflowAlreadyStartedError

        begins = await self._shown(begins)
        deadline = time.monotonic() + _LETS_GO

        async def put(begin: ThreadEntry) -> Row | None:
            try:
                await self._begin(begin)
                return None
            except WorkflowAlreadyStartedError:
                described = await self._describe(begin.thread)
            if not _is_cancelled(described):
                return await self._take(begin, described, over)
            await self._lets_go(begin.thread, deadline)
            await self._begin_anew(begin, described)
            return None

        return await self._each(begins, put)

    async def start_branches(self, begins: Iterable[ThreadEntry]) -> None:
        """Add branches that this server never had: of one that was given up or cancelled, that was the end."""
        from temporalio.common import WorkflowIDReusePolicy as Policy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        begins = await self._shown(begins)

        async def put(begin: ThreadEntry) -> None:
            with contextlib.suppress(WorkflowAlreadyStartedError):
                await self._begin(begin, reuse=Policy.REJECT_DUPLICATE)

        await self._each(begins, put)

    async def _shown(self, begins: Iterable[ThreadEntry]) -> list[ThreadEntry]:
        """Return threads so that the server shows them by their attributes, if it knows these: else it takes none."""
        entries = list(begins)
        if self._shows is None and entries:
            self._shows = not await missing_attributes(self.client)
        return [entry._replace(is_shown=bool(self._shows)) for entry in entries]

    async def take(self, begins: Iterable[ThreadEntry]) -> dict[str, Row | None]:
        """Put queued threads under a budget; return their rows, None if missing. Raises RemoteFailed."""

        async def take(begin: ThreadEntry) -> Row | None:
            described = await self._open(begin.thread)
            if described is None or _is_cancelled(described):
                return None
            return await self._take(begin, described, ()) or Row(begin.thread, QueueState.HELD, begin.held)

        return await self._each(begins, take)

    async def _describe(self, thread: str, run: str | None = None) -> WorkflowExecutionDescription:
        return await self.client.get_workflow_handle(thread, run_id=run).describe(rpc_timeout=_WAIT)

    async def _open(self, thread: str, run: str | None = None) -> WorkflowExecutionDescription | None:
        described = await _unless_gone(self._describe(thread, run))
        return described if described is not None and _is_running(described) else None

    async def _take(
        self, begin: ThreadEntry, described: WorkflowExecutionDescription, over: Collection[str]
    ) -> Row | None:
        """Begin a queued thread anew if no worker has its step and it is held for a reason in `over` or gets
        a budget; otherwise signal it. Return its row unless begun anew."""
        memo = await described.memo()
        state = memo.get("state")
        held = await self._held(described, str(memo.get(messages.HELD) or ""))
        is_made = _is_made(described)
        if (held or memo.get("why")) in over and not is_made:
            await self._begin_anew(begin, described)
            return None
        if begin.used is not None:
            if held != messages.PAUSED and state in (None, messages.HELD) and not is_made:
                await self._begin_anew(begin, described)
                return None
            handle = self.client.get_workflow_handle(begin.thread)
            await _is_heard(handle.signal(messages.TAKE, begin.as_json(), rpc_timeout=_WAIT))
        return await self._row(described)

    async def _begin_anew(self, begin: ThreadEntry, described: WorkflowExecutionDescription) -> None:
        self._over.add(described.run_id)
        await self._begin(begin, anew=True)

    async def _begin(
        self, begin: ThreadEntry, anew: bool = False, reuse: WorkflowIDReusePolicy | None = None
    ) -> None:
        from temporalio.common import (
            SearchAttributeKey,
            SearchAttributePair,
            TypedSearchAttributes,
            WorkflowIDReusePolicy,
        )
        from temporalio.common import WorkflowIDConflictPolicy as Policy

        shown = [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), text)
            for name, text in begin.about.items()
        ]
        await self.client.start_workflow(
            messages.WORKFLOW,
            begin.as_json(),
            id=begin.thread,
            task_queue=messages.QUEUE,
            id_conflict_policy=Policy.TERMINATE_EXISTING if anew else Policy.FAIL,
            id_reuse_policy=reuse or WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo={messages.HELD: begin.held} if begin.held else None,
            search_attributes=TypedSearchAttributes(shown) if begin.is_shown else None,
            task_timeout=_DECIDES,
            rpc_timeout=_WAIT,
        )

    async def signal(self, threads: Collection[str], name: str, *said: str) -> dict[str, bool]:
        """Signal threads to look, hold or let; return whether each is queued."""

        async def tell(thread: str) -> bool:
            handle = self.client.get_workflow_handle(thread)
            return await _is_heard(handle.signal(name, args=said, rpc_timeout=_WAIT))

        return await self._each(threads, tell)

    async def wants(self, thread: str, run: str | None) -> bool:
        """Return whether a thread's run should get its next step: neither held nor removed. True if unknown."""
        from temporalio.service import RPCError

        try:
            described = await self._open(thread, run)
        except RPCError:
            return True
        if described is None or _is_cancelled(described):
            return False
        return not (await described.memo()).get(messages.HELD)

    async def allow(self, most: Mapping[str, int | None]) -> None:
        """Set threads' step allowances, None for no limit."""

        async def tell(thread: str) -> bool:
            handle = self.client.get_workflow_handle(thread)
            return await _is_heard(handle.signal(messages.ALLOW, most[thread], rpc_timeout=_WAIT))

        await self._each(most, tell)

    async def cancel(self, threads: Collection[str]) -> dict[str, bool]:
        """Remove threads. Steps in progress are interrupted and kept as attempts. Return whether each was
        queued."""

        async def drop(thread: str) -> bool:
            if await self._open(thread) is None:  # cancelling a finished run is not an error
                return False
            return await _is_heard(self.client.get_workflow_handle(thread).cancel(rpc_timeout=_WAIT))

        return await self._each(threads, drop)

    async def let_go(
        self, threads: Collection[str], has_ended: Callable[[], bool] | None = None
    ) -> list[str]:
        """Wait until removed threads' steps are interrupted; return those that take over half a minute. A
        server that is gone once the fleet `has_ended` runs none; otherwise raises RemoteFailed."""
        from temporalio.service import RPCError

        deadline = time.monotonic() + _LETS_GO

        async def wait(thread: str) -> bool:
            while True:
                try:
                    return await self._lets_go(thread, deadline)
                except RPCError as error:
                    if has_ended is None or not _is_gone(error):
                        raise
                    if has_ended():
                        return True
                    if time.monotonic() >= deadline:
                        raise
                await asyncio.sleep(_TICK)

        return [thread for thread, ended in (await self._each(threads, wait)).items() if not ended]

    async def _lets_go(self, thread: str, deadline: float) -> bool:
        while True:
            described = await self._describe(thread)
            # A run restarted since then has waited too.
            if not _is_cancelled(described) or not _is_made(described):
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_TICK)

    async def glance(self) -> list[Row]:
        """Return the queued threads as queued, one call per thousand; very recent ones may be missing."""
        with _reported(self.client):
            rows = []
            async for execution in self.client.list_workflows(_OPEN, rpc_timeout=_WAIT):
                if execution.run_id in self._over:
                    continue
                memo = await execution.memo()
                state, why = memo.get("state") or QueueState.QUEUED.value, memo.get("why") or ""
                rows.append(Row(execution.id, parse_state(str(state)), str(why), used=memo.get("used")))
            return rows

    async def row(self, thread: str) -> Row | None:
        """Return a thread's row, also after it left; None if unknown."""
        with _reported(self.client):
            return await _unless_gone(self._newest(thread))

    async def _newest(self, thread: str) -> Row:
        return await self._row(await self._describe(thread))

    async def fault(self, thread: str) -> Fault | None:
        """Return why a thread was given up."""
        from temporalio.client import WorkflowFailureError
        from temporalio.exceptions import ApplicationError

        with _reported(self.client):
            try:
                await self.client.get_workflow_handle(thread).result(follow_runs=False)
            except WorkflowFailureError as error:
                cause = error.cause
                if isinstance(cause, ApplicationError) and cause.details:
                    return parse_fault(cause.details[0])
        return None

    async def rows(self, ended: bool = False) -> list[Row]:
        """Return all rows, oldest first; with `ended` also past ones. One call per thread with a possible
        step."""
        with _reported(self.client):
            listed = [
                execution
                async for execution in self.client.list_workflows(_ALL if ended else _OPEN, rpc_timeout=_WAIT)
            ]
        newest = {execution.id: execution for execution in sorted(listed, key=lambda item: item.start_time)}
        rows = await self._each(newest, lambda thread: self._row(newest[thread]))
        names = {row.queue for row in rows.values() if row.state is QueueState.QUEUED and row.queue}
        served = await self._each(names, self._is_served)
        return [
            row._replace(why=f"no worker serves the queue {row.queue}")
            if served.get(row.queue) is False
            else row
            for row in rows.values()
        ]

    async def _row(self, listed: WorkflowExecution) -> Row:
        from temporalio.client import WorkflowExecutionStatus

        memo = await listed.memo()
        state, why, used = str(memo.get("state") or ""), str(memo.get("why") or ""), memo.get("used")
        tries = tries_value if type(tries_value := memo.get("tries")) is int else 0
        worker = str(memo.get("worker") or "")
        status = listed.status
        if status == WorkflowExecutionStatus.COMPLETED:
            result = await self.client.get_workflow_handle(listed.id, run_id=listed.run_id).result()
            tries_value = result if isinstance(result, Mapping) else {}
            ended = thread_states.parse(tries_value.get("status"), True) or ThreadState.COMPLETED
            return Row(
                listed.id,
                ended,
                str(tries_value.get("why") or ""),
                head=str(tries_value.get("head", "")),
                used=used,
            )
        if status in (WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.TERMINATED):
            return Row(listed.id, QueueState.CANCELLED, used=used)
        if status != WorkflowExecutionStatus.RUNNING or state not in ("", messages.HELD):
            state = state or QueueState.GAVE_UP.value
            return Row(listed.id, parse_state(state), why, worker=worker, tries=tries, used=used)
        row = await self._at_work(listed.id)
        if row.state is QueueState.HELD:
            return row._replace(used=used)
        tries = max(row.tries, 1) + tries - 1 if tries else row.tries
        return row._replace(why=row.why or why, worker=row.worker or worker, tries=tries, used=used)

    async def _at_work(self, thread: str) -> Row:
        described = await self._describe(thread)
        pending = described.raw_description.pending_activities
        started = any(step.state == 2 for step in pending)  # PENDING_ACTIVITY_STATE_STARTED
        if not started:
            memo = await described.memo()
            if held := await self._held(described, str(memo.get(messages.HELD) or "")):
                return Row(thread, QueueState.HELD, "" if held == messages.PAUSED else held)
            if memo.get("state") == messages.HELD and memo.get("why") == messages.MADE_ALL:
                return Row(thread, QueueState.HELD, messages.MADE_ALL)
        if not pending:
            return Row(thread, QueueState.QUEUED)
        step = pending[0]
        return Row(
            thread,
            ThreadState.RUNNING if started else QueueState.QUEUED,
            step.last_failure.message if step.HasField("last_failure") else "",
            step.activity_id.partition("@")[2],
            step.last_worker_identity if started else "",
            step.attempt,
            step.last_started_time.ToDatetime().timestamp() if started else None,
            queue=step.activity_options.task_queue.name,
        )

    async def _held(self, described: WorkflowExecutionDescription, held: str) -> str:
        from temporalio.api.common.v1 import WorkflowExecution as Execution
        from temporalio.api.enums.v1 import EventType
        from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest

        if not described.raw_description.HasField("pending_workflow_task"):
            return held
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.client.namespace,
            execution=Execution(workflow_id=described.id, run_id=described.run_id),
            maximum_page_size=_UNHEARD,
        )
        answer = await self.client.workflow_service.get_workflow_execution_history_reverse(
            request, timeout=_WAIT
        )
        unheard = itertools.takewhile(
            lambda event: event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
            answer.history.events,
        )
        for event in reversed(list(unheard)):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                arguments = await self.client.data_converter.decode(signal.input.payloads)
                held = messages.hold_reason(held, signal.signal_name, *arguments[:1])
        return held

    async def _is_served(self, queue: str) -> bool:
        from temporalio.api.enums.v1 import TaskQueueType
        from temporalio.api.taskqueue.v1 import TaskQueue
        from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

        wanted = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        return bool((await self.client.workflow_service.describe_task_queue(wanted, timeout=_WAIT)).pollers)

    async def _each(self, given: Iterable[Any], do: Callable[[Any], Awaitable[_T]]) -> dict[str, _T]:
        """Return what calls come to by the threads of entries, or by names."""
        names = {item if isinstance(item, str) else item.thread: item for item in given}
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(value: Any) -> _T:
            async with places:
                return await do(value)

        with _reported(self.client):
            done = await asyncio.gather(*map(one, names.values()))
        return dict(zip(names, done, strict=True))


def _is_made(described: WorkflowExecutionDescription) -> bool:
    scheduled = 1  # PENDING_ACTIVITY_STATE_SCHEDULED
    return any(step.state != scheduled for step in described.raw_description.pending_activities)


def _is_cancelled(described: WorkflowExecutionDescription) -> bool:
    return bool(described.raw_description.workflow_extended_info.cancel_requested)


def _is_running(described: WorkflowExecutionDescription) -> bool:
    from temporalio.client import WorkflowExecutionStatus

    return described.status == WorkflowExecutionStatus.RUNNING


async def _unless_gone(call: Awaitable[_T]) -> _T | None:
    from temporalio.service import RPCError, RPCStatusCode

    try:
        return await call
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _is_heard(call: Awaitable[object]) -> bool:
    async def heard() -> bool:
        await call
        return True

    return await _unless_gone(heard()) is not None


@contextlib.contextmanager
def _reported(client: Client) -> Any:
    from temporalio.service import RPCError

    try:
        yield
    except RPCError as error:
        raise _failed(client, error) from None
