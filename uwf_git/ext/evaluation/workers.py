"""Parallel trials, each in a process of its own while it runs, since a step needs the main thread and the current
folder. A task is its input, a result its output, in JSON; new nodes are returned by content and stored by the
recorder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
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
    WarmPool,
    WarmProcess,
    error_of,
    failure_of,
    open_here,
    signals_deferred,
)

_T = TypeVar("_T")
_PATIENCE = 20.0  # seconds that a process has to end its agent and to keep what that said
_PIECE = 1 << 16
_PROGRAM = "uwf_git.ext.evaluation.workers:main"
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
        message = failure_of(error).message
        if error.errno in _OF_THE_DISK:
            return StoreUnwritable(message, "check free space")
        return UwfError(message, "check what its agents did to its folder")


def side_by_side(
    instance: Instance, tasks: Iterator[Task], options: TrialOptions, at_once: int
) -> Iterator[tuple[Task, TrialResult | UwfError]]:
    """Yield results of up to `at_once` parallel tasks. When the caller stops, running agents' turns are kept."""
    trials = _Trials(instance, options, at_once)
    try:
        while True:
            while trials.has_room and (task := next(tasks, None)) is not None:
                trials.begin(task)
            if not trials.is_busy:
                return
            yield from trials.wait()
    finally:
        trials.close()


class _Running(NamedTuple):
    """A task, its process, and what that has printed."""

    task: Task
    process: WarmProcess
    printed: bytearray

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def let_go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()


class _Trials:
    """The tasks that are carried out."""

    def __init__(self, instance: Instance, asked: TrialOptions, at_once: int) -> None:
        self._asked = asked
        self._at_once = at_once
        self._pool = WarmPool(_PROGRAM, {**os.environ, **instance.location.environment()})
        self._running: dict[IO[bytes], _Running] = {}
        self._selector = selectors.DefaultSelector()

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._at_once

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def begin(self, task: Task) -> None:
        with signals_deferred():
            process = self._pool.spawn([], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
            running = _Running(task, process, bytearray())
            self._running[running.out] = running
        self._selector.register(running.out, selectors.EVENT_READ)
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # its output ends when it exits
            process.stdin.write(_line(_written(task, self._asked)))
            process.stdin.flush()

    def wait(self) -> Iterator[tuple[Task, TrialResult | UwfError]]:
        for key, _ in self._selector.select():
            running = self._running[key.fileobj]  # type: ignore[index]
            data = os.read(key.fd, _PIECE)
            running.printed.extend(data)
            if data.endswith(b"\n"):
                running.let_go()
            if not data:
                self._selector.unregister(running.out)
                del self._running[running.out]
                running.let_go()
                running.out.close()
                status = running.process.wait()
                if running.printed.endswith(b"\n"):
                    yield running.task, _read(json.loads(running.printed), running.task)
                else:
                    failed = AgentFailed(f"the process of a trial ended with {status}", "run it again")
                    yield running.task, failed

    def close(self) -> None:
        for running in self._running.values():
            running.let_go()
        deadline = time.monotonic() + _PATIENCE
        for running in self._running.values():
            try:
                running.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
            running.out.close()
        self._running.clear()
        self._selector.close()
        self._pool.close()


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
        return error_of(*said["error"])
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


def main(_argv: Sequence[str] = ()) -> int:
    """Carry out the task in the first line of the input, whose end ends that, and return the exit status of the
    process."""
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of an agent in this process is not a result
    over = threading.Event()

    def listen() -> None:
        source.read()
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    with source, out:
        task = source.readline()
        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        try:
            instance = open_here()
            done: TrialResult | UwfError = _done(instance, _task(instance, json.loads(task)))
        except UwfError as error:
            done = error
        over.set()
        out.write(_line(_describe(done)))
        out.flush()
        listening.join()
    return 0
