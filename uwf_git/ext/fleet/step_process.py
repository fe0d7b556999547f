"""A step process: makes a worker's steps one at a time in its main thread, since limits and the current
folder are per process, and keeps the store open.

Started as `python -P -m uwf_git.ext.fleet.step_process ORDERS`; one request and one answer per line. SIGINT
interrupts the step and keeps its turns; the end of input ends the process likewise.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from uwf_git import __version__
from uwf_git.ext.fleet.admission import cost_of, used_by
from uwf_git.ext.fleet.limits import impatient, next_queue
from uwf_git.ext.fleet.messages import (
    BY_PROJECT,
    BY_ROLE,
    BY_WORKFLOW,
    QUEUE,
    ThreadReport,
    parse_step,
)
from uwf_git.ext.fleet.pace import Pace, Turn
from uwf_git.ext.fleet.queue_states import rests
from uwf_git.ext.fleet.retry_policy import NEWER, UNKEPT, Fault
from uwf_git.plugin import (
    Busy,
    Instance,
    Invalid,
    NotFound,
    RemoteFailed,
    ThreadId,
    ThreadState,
    UnknownWord,
    UwfError,
    Waiting,
    agent_command,
    assign_worktree,
    avoid_programs,
    begin_log,
    branch_states,
    branches_of,
    ended_state,
    failure_of,
    lifetime,
    locate_store,
    log,
    parse_thread_id,
    parse_workspace_option,
    push_code,
    redactor_at,
    signature,
    thread_outlook,
    thread_state,
    wanted_log,
)

if TYPE_CHECKING:
    from uwf_git.plugin import AgentOptions, Head, Outcome, Redactor

LARGEST = 120 << 20  # bytes of memory with which it is replaced by another after a step
_ANSWER, _BRANCHES = "an answer", "its branches"
_BROKEN_OFF = Fault("interrupted", 130, "the step was interrupted")


class WorkerOptions(NamedTuple):
    """A worker's orders: values of --agent, agents' folder, remote, threads' workspace and its project's
    remote."""

    agents: Sequence[str] = ()
    cwd: str | None = None
    remote: str | None = None
    workspace: str | None = None
    workspace_remote: str = ""

    @property
    def agent(self) -> AgentOptions | None:
        from uwf_git.plugin import agent_options

        return agent_options(self.agents)

    def argument(self) -> str:
        return json.dumps(self._asdict())


class WorkspaceNotKept(RemoteFailed):
    """A step was made, but what it left could not be pushed."""

    code = UNKEPT


class StepRunner:
    """A store, reopened after configuration changes."""

    def __init__(self, orders: WorkerOptions, tell: Callable[[Mapping[str, Any]], None]) -> None:
        self._orders = orders
        if orders.cwd:
            avoid_programs(Path(orders.cwd))  # don't run programs from the agents' folder
        self._notify = tell
        self._location = locate_store(None, os.environ, Path.cwd())
        self._seen: object = None
        self._opened: Instance | None = None
        self._pace = Pace()

    @property
    def instance(self) -> Instance:
        root = self._location.root
        seen = [signature(root / name) for name in ("config.yaml", ".env")]
        if self._opened is None or seen != self._seen:
            opened = Instance(self._location)
            opened.warn = lambda text: self._notify({"warning": text})
            try:
                opened.config = impatient(opened.config)
            except Invalid as error:  # it was valid when the worker started: it is being edited
                raise Busy(error.message, error.hint) from None
            self._seen, self._opened = seen, opened
        return self._opened

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request: `step` a thread, for so many `seconds` as long as it is quick (`stand`, `fault` or both;
        `quick` if its next step probably is), `look` without a step, `gather` or `share` threads (`problems` by
        thread)."""
        do = request["do"]
        try:
            try:
                if do in ("gather", "share"):
                    return {
                        "problems": self._exchange(do, [parse_thread_id(item) for item in request["threads"]])
                    }
                thread, head = parse_step(request["thread"], request["head"])
            except Exception as error:
                fault = self._fault(error)
                if (travels := fault.without_words()) != fault:
                    self._notify({"warning": fault.message})
                return {"fault": travels.as_json()}
            try:
                if do == "step":
                    stand, quick = self._sequence(thread, head, request.get("seconds", 0.0))
                else:
                    stand, quick = self._stand(thread), False
                return {**self._answer(self._counted(stand, request)), "quick": quick}
            except Exception as error:  # of a plug-in's code anything may come
                return self._failed(thread, request, error)
        except KeyboardInterrupt:
            return {"fault": _BROKEN_OFF.as_json()}

    def _exchange(self, do: str, threads: list[ThreadId]) -> dict[str, Any]:
        from uwf_git.plugin import GIT_PATIENCE, Exchange, Git, gather_all, share_all

        instance = self.instance
        assert self._orders.remote is not None
        remote, repository = instance.remotes.get(self._orders.remote), instance.store.repository
        git = Git(repository.path, bounds=repository.config.bounds, patience=GIT_PATIENCE)
        exchange = Exchange(instance, remote, git)
        problems = share_all(exchange, threads) if do == "share" else gather_all(exchange, threads)
        return {
            thread: None if problem is None else self._describe(self._fault(_gone(problem)), thread).as_json()
            for thread, problem in problems.items()
        }

    def _describe(self, fault: Fault, thread: ThreadId, role: str | None = None) -> Fault:
        travels = fault.without_words(thread, role)
        if travels != fault:
            self._notify({"thread": thread, "fault": fault.as_json()})
        return travels

    def _counted(self, stand: ThreadReport, request: Mapping[str, Any]) -> ThreadReport:
        if request.get("counts"):
            stand = stand._replace(used=used_by(self.instance, ThreadId(stand.thread)))
        return stand._replace(cost=cost_of(self.instance, ThreadId(stand.thread)))

    def _failed(self, thread: ThreadId, request: Mapping[str, Any], error: Exception) -> dict[str, Any]:
        report: ThreadReport | None = None
        if not isinstance(error, WorkspaceNotKept):
            with contextlib.suppress(Exception):
                report = self._counted(self._stand(thread), request)
        if type(error) is Waiting and report is not None and _why(report.state):
            return self._answer(report)
        fault = self._fault(error)
        self._notify({"thread": thread, "fault": fault.as_json()})
        travels = fault.without_words(thread, report.next if report else None)
        return {"fault": travels.as_json(), "stand": report.as_json() if report else None}

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, UnknownWord):
            known = f"this worker is uwf {__version__}, too old for the thread"
            return Fault(NEWER, error.exit_status, f"{known}: {error.message}", error.hint)
        failure, clean = failure_of(error), self._redactor().text
        throttled = failure.throttled or (None, None)
        return Fault(
            failure.code, failure.status, clean(failure.message)[0], clean(failure.hint)[0], *throttled
        )

    def _answer(self, stand: ThreadReport) -> dict[str, Any]:
        """Return a thread's state. If it waits for branches, add those to queue: the first that can go on, as many as
        may run at the same time. The others follow as these end or rest."""
        if stand.state is not ThreadState.JOINING:
            return {"stand": stand.as_json()}
        branches = branches_to_queue(self.instance, ThreadId(stand.thread), self._orders.agent)
        return {"stand": stand.as_json(), "branches": branches}

    def _gather_branches(self, head: Head) -> None:
        """Fetch the branches of a thread that waits for them. A remote that doesn't answer is asked the next time."""
        if self._orders.remote is not None and (branches := branches_of(self.instance, head)) is not None:
            self._exchange("gather", [state.thread for state in branches.open])

    def _redactor(self) -> Redactor:
        if self._opened is not None:
            with contextlib.suppress(Exception):
                return self._opened.redactor
        return redactor_at(self._location)

    def _sequence(self, thread: ThreadId, head: str, seconds: float) -> tuple[ThreadReport, bool]:
        """Return as `_step`, after a step and the quick ones that begin within so many seconds and ask no
        provider."""
        until = time.monotonic() + seconds
        stand, quick = self._step(thread, head)
        while quick and stand.queue == QUEUE and time.monotonic() < until:
            stand, quick = self._step(thread, stand.head)
        return stand, quick

    def _step(self, thread: ThreadId, head: str) -> tuple[ThreadReport, bool]:
        """Return a thread's state after a step, and whether its next step will probably be quick."""
        from uwf_git.plugin import RunOptions, step_once

        instance, began = self.instance, time.monotonic()
        head_now = instance.threads.head(thread)
        if head_now.archive is not None or head_now.node != head:
            log.info("3VZQ8T5N", "has moved on from {head}", head=head, thread=thread, now=head_now.node)
            if head_now.archive is not None:
                with instance.locks.hold(thread):  # who ended it may have been killed in the midst of that
                    instance.threads.archive(head_now, head_now.archive.status)
            self._share_code(thread)
            return self._stand(thread), False
        self._gather_branches(head_now)
        cwd = Path(self._orders.cwd) if self._orders.cwd else None
        if self._orders.workspace is not None:
            option = parse_workspace_option(self._orders.workspace, self._orders.workspace_remote)
            assign_worktree(instance, thread, option, Path.cwd())
        outcome = step_once(instance, thread, RunOptions(self._orders.agent, cwd, patience=0.0))
        self._notify({"step": outcome.as_json(), "told": outcome.told()})
        code = self._share_code(thread)
        why = outcome.standing.reason if outcome.standing else ""
        following = outcome.outlook
        report = ThreadReport(
            thread,
            outcome.head,
            outcome.state,
            outcome.done,
            following.next,
            next_queue(instance, outcome.position.head, following.next, self._orders.agent),
            problem=_problem(following.problem, thread),
            why=why or _why(outcome.state) or _failures(outcome.position.head),
            depth=outcome.position.head.row.number,
        )
        if outcome.role is not None:
            self._pace.note(self._turn(outcome, outcome.role), time.monotonic() - began)
        if code or report.done or report.problem or rests(report.state) or following.next is None:
            return report, False
        return report, self._pace.is_quick(self._turn(outcome, following.next))

    def _turn(self, outcome: Outcome, role: str) -> Turn:
        command = agent_command(self.instance, outcome.position.head, role, self._orders.agent)
        return Turn(outcome.workflow, role, command)

    def _share_code(self, thread: ThreadId) -> bool:
        """Push what the thread's steps left, so that any machine can go on; return whether there was anything."""
        try:
            return bool(push_code(self.instance, [thread], strict=True))
        except RemoteFailed as error:
            raise WorkspaceNotKept(error.message, error.hint) from None

    def _stand(self, thread: ThreadId) -> ThreadReport:
        return standing(self.instance, thread, self._orders.agent)


def standing(instance: Instance, thread: ThreadId, agent: AgentOptions | None = None) -> ThreadReport:
    """Return a thread's state. `agent` overrides the configuration. Raises what reading it raises."""
    from uwf_git.plugin import budget_reached

    head = instance.threads.head(thread)
    state = thread_state(instance, head)
    if head.archive is not None:
        return ThreadReport(thread, head.node, state, done=True, why=_failures(head), depth=head.row.number)
    following = thread_outlook(instance, head)
    why = budget_reached(instance, head) if state is ThreadState.OVER_BUDGET else _why(state)
    queue = next_queue(instance, head, following.next, agent)
    problem = _problem(following.problem, thread)
    return ThreadReport(
        thread, head.node, state, False, following.next, queue, problem, why, depth=head.row.number
    )


def _why(state: ThreadState) -> str:
    if state is ThreadState.JOINING:
        return _BRANCHES
    return _ANSWER if state.request is not None else ""


def branches_to_queue(
    instance: Instance, thread: ThreadId, agent: AgentOptions | None = None
) -> list[tuple[str, str, str, int, dict[str, str]]]:
    """Return the branches that a thread waits for and that are to be in the queue, each with its head, the queue of
    its next step, its depth, and what is shown of it."""
    parent = instance.threads.head(thread)
    branches = branches_of(instance, parent)
    if branches is None:
        return []
    most = branches.fork.at_once or branches.fork.size
    states = list(zip(branches.each, branch_states(instance, branches), strict=True))
    able = [
        branch.head
        for branch, state in states
        if branch.head is not None and state is not None and state.goes_on
    ]
    able.sort(key=lambda head: -head.row.number)
    failed = [
        branch.head
        for branch, state in states
        if branch.head is not None and state is not None and state.is_failing
    ][:most]

    def entry(head: Head) -> tuple[str, str, str, int, dict[str, str]]:
        role = thread_outlook(instance, head).next
        queue, depth = next_queue(instance, head, role, agent), parent.row.number + head.row.number
        return head.thread, head.node, queue, depth, about(instance, head, role)

    return list(map(entry, (*able[:most], *failed)))


def about(instance: Instance, head: Head, role: str | None) -> dict[str, str]:
    """Return what a server shows of a thread whose next `role` is known: names, and nothing that was said."""
    project = instance.threads.projects.of(head)
    values = {BY_WORKFLOW: head.row.name, BY_ROLE: role, BY_PROJECT: project.name if project else None}
    return {key: text for key, text in values.items() if text}


def _failures(head: Head) -> str:
    """Return the failures with which a thread is completed, "" for none. They quote no agent."""
    archive = head.archive
    return archive.reason if archive is not None and ended_state(archive) is ThreadState.WITH_FAILURES else ""


def _problem(role: str | None, thread: ThreadId) -> str | None:
    return None if role is None else f"no role can go next; see: uwf thread show {thread}"


def _gone(problem: UwfError) -> UwfError:
    from uwf_git.plugin import DeletedThere

    return NotFound(problem.message, problem.hint) if isinstance(problem, DeletedThere) else problem


def _unforeseen(error: Exception) -> Fault:
    kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
    raised = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[:-13:-1]]
    log.error("K7QW2M9C", "an answer fails with {kind}", kind=kind, raised=raised)
    return Fault("internal", 1, f"internal error: {kind}", "UWF_LOG=error shows where")


class _Ended(KeyboardInterrupt):
    """SIGTERM: interrupt the step and stop."""


class _RequestLoop:
    """Requests and answers; signals only interrupt the step."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source, self._sink = source, sink
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._over = self._busy = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heard)

    def write(self, value: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._sink.write(json.dumps(value).encode() + b"\n")
            self._sink.flush()

    def serve(self, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        while not self._over and (line := self._next()):
            value: Mapping[str, Any] = {"fault": _BROKEN_OFF.as_json()}
            try:
                self._busy = True
                value = answer(json.loads(line))
            except KeyboardInterrupt:
                pass
            except Exception as error:
                value = {"fault": _unforeseen(error).as_json()}
            finally:
                self._busy = False
            self._over = self._over or lifetime.memory() > LARGEST
            self.write({"answer": value, "last": self._over})

    def _next(self) -> bytes:
        try:
            return self._requests.get()
        except KeyboardInterrupt:
            return b""

    def _read(self) -> None:
        for line in self._source:
            self._requests.put(line)
        self._requests.put(b"")
        if self._busy:
            os.kill(os.getpid(), signal.SIGTERM)

    def _heard(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM:
            self._over = True
            raise _Ended
        if self._busy:
            raise KeyboardInterrupt


def main() -> None:
    lifetime.begin()
    lifetime.heed_signals()
    # Agents in this process may print; the worker reads only answers.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    status = 0
    try:
        desk = _RequestLoop(sys.stdin.buffer, sink)
        hand = StepRunner(WorkerOptions(**json.loads(sys.argv[1])), desk.write)
        if level := wanted_log(os.environ):
            begin_log(locate_store(None, os.environ, Path.cwd()), level)
        desk.serve(hand.answer)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        failure = failure_of(error)
        print(failure.message, file=sys.stderr)
        status = failure.status
    lifetime.end(status)  # an interpreter that is taken down while another thread reads is aborted


if __name__ == "__main__":
    main()
