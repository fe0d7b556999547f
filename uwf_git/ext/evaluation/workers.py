"""Parallel trials, one process each, since a step needs the main thread and the current folder. Processes are
reused. Tasks and results are JSON lines; new nodes are returned by content and stored by the recorder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from uwf_git.ext.evaluation.records import (
    Score,
    Trial,
    identified,
    parse_case,
    parse_judge,
    parse_score,
    parse_spending,
    parse_trial,
)
from uwf_git.ext.evaluation.stepping import Limits
from uwf_git.ext.evaluation.trials import PlannedTrial, TrialOptions, TrialResult, Version, conduct, plan
from uwf_git.plugin import (
    AgentFailed,
    Hash,
    Instance,
    Oid,
    StoreUnwritable,
    UwfError,
    errors,
    heed_signals,
    own_processes,
    processes,
    signals_deferred,
)

_T = TypeVar("_T")
_PATIENCE = 20.0  # seconds that a process has to end its agent and to keep what that said
_PIECE = 1 << 16
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Task(NamedTuple):
    """A trial to make or judge, with what is known."""

    planned: PlannedTrial
    known: Trial | None
    scores: Mapping[Hash, Score]


def in_turn(instance: Instance, tasks: Iterator[Task]) -> Iterator[tuple[Task, TrialResult | UwfError]]:
    """Yield the results of tasks, one after another in this process."""
    for task in tasks:
        yield task, _done(instance, task)


def _done(instance: Instance, task: Task) -> TrialResult | UwfError:
    try:
        return conduct(instance, task.planned, task.known, task.scores)
    except UwfError as error:
        return error
    except OSError as error:
        message = errors.failure_of(error).message
        if error.errno in _OF_THE_DISK:
            return StoreUnwritable(message, "check free space")
        return UwfError(message, "check what its agents did to its folder")


def side_by_side(
    instance: Instance, tasks: Iterator[Task], options: TrialOptions, at_once: int
) -> Iterator[tuple[Task, TrialResult | UwfError]]:
    """Yield results of up to `at_once` parallel tasks. When the caller stops, running agents' turns are kept."""
    crew = _WorkerPool(instance, options, at_once)
    try:
        while True:
            while crew.has_room and (task := next(tasks, None)) is not None:
                crew.give(task)
            if not crew.is_busy:
                return
            yield from crew.wait()
    finally:
        crew.close()


class _Worker:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.task: Task | None = None
        self.rest = b""

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout


class _WorkerPool:
    """The worker processes."""

    def __init__(self, instance: Instance, asked: TrialOptions, at_once: int) -> None:
        self._instance = instance
        self._asked = asked
        self._at_once = at_once
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    @property
    def has_room(self) -> bool:
        return len(self._workers) < self._at_once or any(worker.task is None for worker in self._workers)

    @property
    def is_busy(self) -> bool:
        return any(worker.task is not None for worker in self._workers)

    def give(self, task: Task) -> None:
        worker = next((worker for worker in self._workers if worker.task is None), None) or self._start()
        worker.task = task
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # its output ends when it exits
            worker.process.stdin.write(_line(_written(task, self._asked)))
            worker.process.stdin.flush()

    def wait(self) -> Iterator[tuple[Task, TrialResult | UwfError]]:
        for key, _ in self._selector.select():
            worker: _Worker = key.data
            data = os.read(worker.out.fileno(), _PIECE)
            *lines, worker.rest = (worker.rest + data).split(b"\n")
            for line in lines:
                if (task := worker.task) is not None:
                    worker.task = None
                    yield task, _read(json.loads(line), task)
            if not data:
                self._selector.unregister(worker.out)
                self._workers.remove(worker)
                status = worker.process.wait()
                if worker.task is not None:
                    failed = AgentFailed(f"the process of a trial ended with {status}", "run it again")
                    yield worker.task, failed

    def _start(self) -> _Worker:
        place = self._instance.location.environment()
        argv = [sys.executable, "-P", "-m", "uwf_git.ext.evaluation.workers"]
        with signals_deferred():
            process = processes.spawn(argv, stderr=subprocess.DEVNULL, cwd=None, env={**os.environ, **place})
            worker = _Worker(process)
            self._workers.append(worker)
        self._selector.register(worker.out, selectors.EVENT_READ, worker)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        deadline = time.monotonic() + _PATIENCE
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.out.close()
        self._workers.clear()
        self._selector.close()


# Messages


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _written(task: Task, options: TrialOptions) -> dict[str, Any]:
    planned, version = task.planned, task.planned.version
    judges = None if options.judges is None else [judge.payload() for judge in options.judges]
    scores = [
        score.hash for score in task.scores.values() if task.known and score.key.trial == task.known.hash
    ]
    return {
        "name": planned.name,
        "case": planned.case.hash,
        "version": [version.hash, str(version.commit), version.speaker],
        "asked": [options.agent, options.label, judges, options.limits._asdict(), str(options.cwd)],
        "repeat": planned.key.repeat,
        "known": task.known.hash if task.known else None,
        "scores": scores,
    }


def _task(instance: Instance, message: Mapping[str, Any]) -> Task:
    store = instance.store
    store.sync()

    def read(parse: Callable[[Hash, Any], _T], node: Hash) -> _T:
        return parse(node, store.get(node).payload)

    agent, label, judges, limits, cwd = message["asked"]
    given = None if judges is None else tuple(map(parse_judge, judges))
    options = TrialOptions(agent, label, given, Limits(**limits), Path(cwd))
    workflow, commit, speaker = message["version"]
    version = Version(workflow, Oid(hex=commit), instance.registry.workflow(workflow), speaker)
    case = read(parse_case, message["case"])
    planned = plan(instance, message["name"], case, version, options, message["repeat"])[-1]
    scores = [read(parse_score, node) for node in message["scores"]]
    known = read(parse_trial, message["known"]) if message["known"] else None
    return Task(planned, known, {score.key.hash: score for score in scores})


def _describe(done: TrialResult | UwfError) -> dict[str, Any]:
    if isinstance(done, UwfError):
        return {"error": [type(done).__name__, done.message, done.hint]}
    return {
        "trial": done.trial.payload(),
        "scores": [score.payload() for score in done.scores],
        "errors": done.errors,
        "commits": list(map(str, done.commits)),
        "files": done.files,
        "isNew": done.is_new,
        "thread": done.thread,
        "lost": done.lost.payload(),
    }


def _read(said: Mapping[str, Any], task: Task) -> TrialResult | UwfError:
    if "error" in said:
        name, message, hint = said["error"]
        kind = getattr(errors, name, UwfError)
        return kind(message, hint) if issubclass(kind, UwfError) else UwfError(message, hint)
    trial = task.known or identified(parse_trial(Hash(""), said["trial"]))
    return TrialResult(
        trial,
        tuple(identified(parse_score(Hash(""), payload)) for payload in said["scores"]),
        tuple(said["errors"]),
        tuple(Oid(hex=commit) for commit in said["commits"]),
        tuple(said["files"]),
        said["isNew"],
        said["thread"],
        parse_spending(said["lost"]),
    )


# The other side


def _listen(tasks: queue.Queue[bytes | None], busy: threading.Event) -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    tasks.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def main(_argv: Sequence[str] = ()) -> None:
    """Run tasks until the input ends."""
    own_processes()
    heed_signals()
    instance = Instance.open()
    tasks: queue.Queue[bytes | None] = queue.Queue()
    busy = threading.Event()
    out = os.dup(1)
    os.dup2(2, 1)  # output of an agent in this process is not a result
    threading.Thread(target=_listen, args=(tasks, busy), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while (line := tasks.get()) is not None:
            busy.set()
            try:
                done: TrialResult | UwfError = _done(instance, _task(instance, json.loads(line)))
            except UwfError as error:
                done = error
            busy.clear()
            os.write(out, _line(_describe(done)))


if __name__ == "__main__":
    main()
