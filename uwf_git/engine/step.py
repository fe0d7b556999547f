"""One step of one thread, then the process may exit: everything it knows is in the store.

    lock → head → history → moderator → agent → its StepNode, checked → commit, compare-and-swap
         → moderator again → archive where it says $END → unlock

Whatever fails leaves the head where it was and what the agent produced under refs/uwf/attempts/.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.engine import budget
from uwf_git.engine.acceptance import accept
from uwf_git.engine.embedded import embedded
from uwf_git.engine.status import (
    COMPLETED,
    KILLED,
    Outlook,
    outlook,
    raise_if_stuck,
    status_of,
    workflow_of,
)
from uwf_git.errors import AgentFailed, Busy, HeadMoved, Invalid, NotFound, SigningFailed, UwfError, Waiting
from uwf_git.git.repository import Oid, StoreUnwritable
from uwf_git.store.maintenance import maintain
from uwf_git.store.opened import Instance
from uwf_git.store.private import Order, Report
from uwf_git.store.threads import Head, History, Outrun
from uwf_git.values.ids import Hash, ThreadId, fork_id, is_hash
from uwf_git.values.kinds import Attempt, Step, StepContext
from uwf_git.values.types import ANSWER, DETAIL, END, STEPNODE, USER, is_kind

if TYPE_CHECKING:
    from uwf_git.config.settings import AgentConfig
    from uwf_git.kit import Agent
    from uwf_git.processes import Finished

SHOWN = 4000  # characters of an agent's stdout and stderr kept with a failed attempt


class Outcome(NamedTuple):
    """Where a thread is after a step. `role` did it; None where there was nothing left to do."""

    workflow: Hash
    thread: ThreadId
    head: Hash
    done: bool
    status: str
    role: str | None
    problem: str | None = None


class Made(NamedTuple):
    """What an agent left: the StepNode, or what went wrong and the detail that was kept. `agent` is the
    name it goes by, its program's where it doesn't say."""

    step: Hash | None
    error: AgentFailed | None = None
    detail: Hash | None = None
    agent: str = ""
    stdout: str = ""
    stderr: str = ""


def step(
    instance: Instance,
    thread: ThreadId,
    agent: str | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
) -> Outcome:
    """Does the thread's next step. `agent` is an alias or a command that goes before the configuration;
    `cwd` the agent's working directory, remembered for the steps to come. Moves
    `refs/uwf/threads/<ULID>`, or `refs/uwf/attempts/<ULID>` where the step failed. Raises Busy, Waiting,
    AgentFailed, HeadMoved, NoTransition, Invalid for a thread that has ended."""
    with instance.locks.hold(thread) as lock:
        outcome = _step(instance, thread, agent, cwd, on_stderr, lock)
    maintain(instance.store.repository, shared=instance.location.here)
    return outcome


def _step(
    instance: Instance,
    thread: ThreadId,
    agent: str | None,
    cwd: Path | None,
    on_stderr: Callable[[bytes], None] | None,
    lock: int,
) -> Outcome:
    head = instance.threads.active_head(thread)
    history = instance.threads.history(head)
    found = outlook(instance, head, history)
    raise_if_stuck(found, thread)
    if found.next == END:
        return _outcome(instance, instance.threads.archive(head, COMPLETED), found, None)
    if found.next == USER:
        raise Waiting(
            f"thread {thread} waits for an answer: {found.question}", f"uwf thread answer {thread} -m TEXT"
        )
    budget.raise_if_used_up(instance, head)
    after, appended = _Run(instance, head, history, found, on_stderr).do(agent, cwd, lock)
    found = outlook(instance, after, appended)
    if found.next == END:
        after = instance.threads.archive(after, COMPLETED)
    return _outcome(instance, after, found, appended.steps[-1].role)


def answer(instance: Instance, thread: ThreadId, text: str, asked_by: Hash | None = None) -> Outcome:
    """Answers a waiting thread by a step of role `$USER`. `asked_by` is the step the answer is meant
    for. Raises Invalid when nothing is asked, or a later step asks by now."""
    with instance.locks.hold(thread):
        head = instance.threads.active_head(thread)
        if not head.row.asks:
            raise Invalid(f"thread {thread} asks nothing", f"see: uwf thread show {thread}")
        if asked_by is not None and asked_by != head.node:
            raise Invalid(
                f"thread {thread} now asks in step {head.node}, not {asked_by}", "read the new question first"
            )
        if not text.strip():
            raise Invalid(f"the answer to thread {thread} is empty", "give one with -m TEXT")
        history = instance.threads.history(head)
        store = instance.store
        text, secrets = instance.redactor.text(text)
        payload: dict[str, Any] = {
            "answer": text,
            "turns": [],
            "session": None,
            "model": None,
            "usage": None,
            "durationMs": 0,
            "instruction": None,
            "context": head.node,
            "extraction": "native",
        }
        if secrets:
            payload["redactions"] = [{"where": "answer", "count": secrets}]
        if raised := budget.pending(instance, thread):
            payload["budget"] = raised
        with store.index.transaction():
            output = store.put(ANSWER, {"answer": text})
            detail = store.put(DETAIL, payload)
            made = Step(history.start_hash, history.prev, USER, output, detail, "human")
            node = store.put(STEPNODE, made.payload())
        after, appended = _append(instance, head, history, node, made)
        return _outcome(instance, after, outlook(instance, after, appended), USER)


def kill(instance: Instance, thread: ThreadId, reason: str = "") -> Head:
    """Ends a thread for good, its running agent first. Makes `refs/uwf/archive/<ULID>`. Raises Invalid
    for a thread that has ended."""
    instance.threads.active_head(thread)
    if instance.locks.is_held(thread):
        instance.locks.end(thread)
    with instance.locks.hold(thread, wait=5.0):
        head = instance.threads.active_head(thread)
        return instance.threads.archive(head, KILLED, reason)


def _outcome(instance: Instance, head: Head, found: Outlook, role: str | None) -> Outcome:
    running: set[ThreadId] = set()  # the lock is ours, and gone when this is read
    return Outcome(
        workflow_of(head.row),
        head.thread,
        head.node,
        head.archive is not None,
        status_of(instance, head, running),
        role,
        found.problem,
    )


def _append(
    instance: Instance, head: Head, history: History, node: Hash, made: Step, merge: Oid | None = None
) -> tuple[Head, History]:
    """Commits a checked StepNode; returns the new head and the history with it. Where a push from elsewhere
    has moved the thread meanwhile, the step becomes a thread of its own, and HeadMoved says which."""
    store = instance.store
    output = store.get(made.output).payload
    detail = store.get(made.detail)
    extraction = detail.payload["extraction"] if is_kind(detail.type, "detail") else ""
    known = [past.hash for past in history.steps]
    try:
        after = instance.threads.append(head, node, known, merge, extraction)
    except Outrun as outrun:
        fork = fork_id(head.thread, node)
        instance.threads.part(head.thread, fork, head.commit, outrun.commit)
        raise HeadMoved(
            f"thread {head.thread} moved on while its step was made; that is kept as thread {fork}",
            f"uwf thread show {fork}",
        ) from None
    if is_kind(detail.type, "detail"):
        budget.settle(instance, head.thread, detail.payload.get("budget"))
    context = StepContext(node, made.role, output, made.detail, made.agent)
    return after, history._replace(head=node, steps=(*history.steps, context))


class _Run:
    """The part of a step that involves an agent."""

    def __init__(
        self,
        instance: Instance,
        head: Head,
        history: History,
        found: Outlook,
        on_stderr: Callable[[bytes], None] | None,
    ) -> None:
        assert found.next is not None
        self._instance = instance
        self._head = head
        self._history = history
        self._role = found.next
        self._found = found
        self._on_stderr = on_stderr

    def do(self, agent: str | None, cwd: Path | None, lock: int) -> tuple[Head, History]:
        """Runs the agent, checks and commits what it made; keeps it as an attempt where that fails."""
        instance, thread = self._instance, self._head.thread
        made = self._left_behind()
        if made is None:
            config = self._resolve(agent)
            folder = self._folder(cwd)
            raised = budget.pending(instance, thread) or None
            asked = self._found.instruction
            order = Order(self._head.node, self._role, config.alias, asked, config.timeout, raised)
            instance.runs.order(thread, order)
            made = self._perform(config, order, folder, lock)
        try:
            if made.error is not None:
                raise made.error
            assert made.step is not None
            step, merge = accept(instance, self._head, self._history, self._role, made.step)
            result = _append(instance, self._head, self._history, made.step, step, merge)
        except AgentFailed as error:
            self._keep(made, error)
            instance.runs.clear(thread)
            # What is said of it ends up in logs, as what is kept ends up on forges.
            redact = instance.redactor.text
            error.message, error.hint = redact(error.message)[0], redact(error.hint)[0]
            raise
        except NotFound as error:
            failure = AgentFailed(
                f"{made.agent}: {error.message}", "an agent must store all that it refers to"
            )
            self._keep(made, failure)
            instance.runs.clear(thread)
            raise failure from None
        except (Busy, SigningFailed, StoreUnwritable):
            self._leave_behind(made)
            raise
        except BaseException:
            instance.runs.clear(thread)
            raise
        instance.runs.clear(thread)
        return result

    def _resolve(self, override: str | None) -> AgentConfig:
        from uwf_git.config.read import resolve_agent

        return resolve_agent(
            self._instance.config, self._history.workflow.name, self._role, override=override
        )

    def _folder(self, cwd: Path | None) -> Path:
        """The edge's location, else the one given, else the one remembered, else the current one."""
        folders, thread = self._instance.folders, self._head.thread
        if cwd is not None:
            folders.remember(thread, cwd.absolute())
        base = cwd or folders.recall(thread) or _current_folder()
        folder = base / self._found.location if self._found.location else base
        if not folder.is_dir():
            raise Invalid(
                f"the working directory of {self._role!r}, {folder}, is no folder", "create it first"
            )
        return folder.absolute()

    def _left_behind(self) -> Made | None:
        """The finished work of an agent whose engine was killed meanwhile. What it failed at becomes an
        attempt, which the agent that is asked now can carry on from."""
        report = self._instance.runs.read_report(self._head.thread)
        if report is None or (report.head, report.role) != (self._head.node, self._role):
            self._broken_off()
            return None
        made = self._from_report(report)
        if made.error is not None:
            self._keep(made, made.error)
            return None
        return made

    def _broken_off(self) -> None:
        """Keeps the turns of an agent that was ended together with its engine."""
        thread = self._head.thread
        order = self._instance.runs.read_order(thread)
        if order is None or (order.head, order.role) != (self._head.node, self._role):
            return
        from uwf_git.kit.record import salvage

        if (found := salvage(self._instance, self._head, order)) is not None:
            agent, detail = found
            self._keep(Made(None, None, detail, agent), AgentFailed("the step was broken off"))

    def _leave_behind(self, made: Made) -> None:
        """Finished work that could not be committed, a full disk or no key to sign with, is reported as that
        of an agent without its engine: the next step takes it over instead of doing it again."""
        assert made.step is not None
        store = self._instance.store
        stop = frozenset(past.hash for past in self._history.steps) | {self._history.start_hash}
        with contextlib.suppress(UwfError):
            nodes = {node: str(store.blob_of(node)) for node, _ in store.walk(made.step, stop)}
            report = Report(self._head.node, self._role, made.agent, made.step, made.detail, "", "", nodes)
            self._instance.runs.report(self._head.thread, report)

    def _from_report(self, report: Report) -> Made:
        store = self._instance.store
        for node, blob in report.nodes.items():
            oid = Oid(hex=blob)
            if store.index.node(node) is None and store.repository.has(oid):
                store.adopt(Hash(node), oid)
        error = None if report.step else AgentFailed(report.error, report.hint)
        return Made(report.step, error, report.detail, report.agent)

    def _perform(self, config: AgentConfig, order: Order, folder: Path, lock: int) -> Made:
        agent = embedded(config.command)
        if agent is None:
            return self._in_child(config, folder, lock)
        here = os.open(".", os.O_RDONLY)  # gone, it can still be gone back to
        try:
            os.chdir(folder)
            node = agent.perform(self._instance, self._head, order, config.args, cwd=folder)
            return Made(node, agent=agent.called(config.args))
        except UwfError as error:
            failure = error if isinstance(error, AgentFailed) else AgentFailed(error.message, error.hint)
            return Made(None, failure, getattr(error, "detail", None), _called(agent, config))
        except KeyboardInterrupt:
            self._keep(Made(None, agent=_called(agent, config)), AgentFailed("interrupted"))
            self._instance.runs.clear(self._head.thread)
            raise
        finally:
            os.fchdir(here)
            os.close(here)

    def _in_child(self, config: AgentConfig, folder: Path, lock: int) -> Made:
        from uwf_git.processes import run_command

        instance, thread = self._instance, self._head.thread
        env = {
            **instance.secrets,
            **os.environ,
            **instance.location.environment(),
            "UWF_THREAD": thread,
            "UWF_ROLE": self._role,
        }
        log = instance.runs.log(thread)
        try:
            done = run_command(
                [config.command, *config.args, thread, self._role],
                cwd=folder,
                env=env,
                timeout=config.timeout,
                pass_fds=(lock,),
                stderr_to=log,
                on_stderr=self._on_stderr,
            )
        except AgentFailed as error:
            return Made(None, error, agent=Path(config.command).name)
        except KeyboardInterrupt:
            self._keep(Made(None, agent=Path(config.command).name), AgentFailed("interrupted"))
            instance.runs.clear(thread)
            raise
        return self._made(config, done)

    def _made(self, config: AgentConfig, done: Finished) -> Made:
        """What a finished child comes to: the hash in its last line, or a failure in one line."""
        stdout = done.stdout_tail.decode("utf-8", "replace")
        stderr = done.stderr_tail.decode("utf-8", "replace")
        last = stdout.rstrip().rpartition("\n")[2].strip()
        report = self._instance.runs.read_report(self._head.thread)
        detail, agent = None, Path(config.command).name
        if report is not None and (report.head, report.role) == (self._head.node, self._role):
            detail, agent = self._from_report(report).detail, report.agent
        tails = (agent, stdout[-SHOWN:], stderr[-SHOWN:])
        name = config.command
        complaint = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
        if done.timed_out:
            error = AgentFailed(
                f"{name} ran out of time after {config.timeout:g} s", "raise agents.<name>.timeout"
            )
        elif done.returncode < 0:
            error = AgentFailed(f"{name} was killed by signal {-done.returncode}", complaint)
        elif done.returncode > 0 and report is not None and report.error:
            error = AgentFailed(report.error, report.hint)
        elif done.returncode > 0:
            error = AgentFailed(
                f"{name} exited with {done.returncode}" + (f": {complaint}" if complaint else "")
            )
        elif not last:
            error = AgentFailed(f"{name} printed nothing", "its last line must be the hash of its StepNode")
        elif not is_hash(last.upper()):
            error = AgentFailed(
                f"{name} printed {last[:60]!r}, which is no hash",
                "its last line must be that of its StepNode",
            )
        else:
            return Made(Hash(last.upper()), None, detail, *tails)
        return Made(None, error, detail, *tails)

    def _keep(self, made: Made, error: AgentFailed) -> None:
        """Records a failed attempt with all there is of it."""
        from uwf_git.kit.record import salvage

        order = self._instance.runs.read_order(self._head.thread)
        found = salvage(self._instance, self._head, order) if order and not made.detail else None
        if found is not None:
            made = made._replace(agent=found[0], detail=found[1])
        redact = self._instance.redactor.text
        attempt = Attempt(
            self._history.start_hash,
            self._history.prev,
            self._role,
            made.agent,
            error=redact(_sound(error.message))[0],
            detail=made.detail,
            stdout=redact(_sound(made.stdout))[0],
            stderr=redact(_sound(made.stderr))[0],
        )
        self._instance.attempts.record(self._head, attempt)


def _called(agent: Agent, config: AgentConfig) -> str:
    """The name of an agent that failed, maybe at its own arguments."""
    with contextlib.suppress(UwfError):
        return agent.called(config.args)
    return agent.name


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise Invalid("the current folder is gone", "cd to one that exists, or give one with --cwd") from None


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
