"""Histories: operations done by several workers at once for a time, or done again, in turn or at once."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from claims import Violation, violations
from operations import Event, Operation, Ref, chosen, do, finished, parse, states_after
from world import Snapshot, World


class Plan(NamedTuple):
    """What a run is: so many machines with so many workers each, for so many seconds, and how likely it is that an
    operation is killed. The same seed leads each worker to the same choices, as long as threads appear alike."""

    machines: int = 1
    workers: int = 4
    seconds: float = 20
    kills: float = 0.0
    seed: int = 0


class History(NamedTuple):
    """What was done, in the order in which it ended, and what was there in the end."""

    plan: Plan
    events: tuple[Event, ...]
    snapshots: tuple[Snapshot, ...]

    def violations(self) -> list[Violation]:
        """How it breaks what is promised."""
        return violations(self.events, self.snapshots)

    def save(self, path: Path) -> None:
        """Writes the plan and the events, a line each."""
        lines = [json.dumps(self.plan._asdict()), *(event.line() for event in self.events)]
        path.write_text("\n".join(lines) + "\n")


def load(path: Path) -> tuple[Plan, list[Operation]]:
    """The plan and the operations of a history that was saved."""
    first, *rest = path.read_text().splitlines()
    operations = [parse(json.loads(line)) for line in rest]
    return Plan(**json.loads(first)), [each for each in operations if each.worker >= 0]


class _Recorder:
    """The events so far, and the threads that they told of, for all workers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self.events: list[Event] = []
        self.ids: dict[Ref, str] = {}
        self._states: dict[tuple[int, str], str] = {}
        self.problems: list[BaseException] = []

    def threads(self, machine: int) -> list[tuple[Ref, str]]:
        """The threads with the state that each was last reported in on a machine, "" where it wasn't."""
        with self._lock:
            return [(ref, self._states.get((machine, thread), "")) for ref, thread in self.ids.items()]

    def do(self, operation: Operation) -> None:
        """Does an operation, unless it is done to a thread that isn't there."""
        thread = None
        if operation.thread is not None and (thread := self.ids.get(operation.thread)) is None:
            return
        event = do(self._world, operation, thread, time.monotonic_ns)
        with self._lock:
            self.events.append(event)
            for found, state in states_after(event):
                self._states[operation.machine, found] = state
            known = set(self.ids.values())
            for place, found in enumerate(event.told):
                if found not in known:
                    self.ids[Ref(operation.number, place)] = found

    def at_once(self, works: Iterable[Iterable[Operation]]) -> None:
        def work(operations: Iterable[Operation]) -> None:
            try:
                for operation in operations:
                    self.do(operation)
            except BaseException as problem:
                self.problems.append(problem)

        threads = [threading.Thread(target=work, args=(each,)) for each in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise self.problems[0]


@contextmanager
def _recording(machines: int) -> Iterator[tuple[World, _Recorder]]:
    folder = Path(tempfile.mkdtemp(prefix="uwf-history-"))
    try:
        world = World(folder / "world", machines)
        world.build()
        yield world, _Recorder(world)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(plan: Plan) -> History:
    """Random operations, at once."""
    numbers = itertools.count(1)
    with _recording(plan.machines) as (world, recorder):
        until = time.monotonic() + plan.seconds

        def operations(worker: int) -> Iterator[Operation]:
            chance = random.Random(f"{plan.seed}/{worker}")
            while time.monotonic() < until and not recorder.problems:
                yield chosen(
                    chance,
                    next(numbers),
                    worker,
                    worker % plan.machines,
                    plan.machines > 1,
                    recorder.threads(worker % plan.machines),
                    plan.kills,
                )

        recorder.at_once([operations(worker) for worker in range(plan.machines * plan.workers)])
        return _finished(world, plan, recorder)


def again(plan: Plan, operations: Sequence[Operation], at_once: bool = False) -> History:
    """The same operations in turn, or each worker's in turn."""
    with _recording(plan.machines) as (world, recorder):
        if at_once:
            workers = sorted({each.worker for each in operations})
            recorder.at_once([[each for each in operations if each.worker == one] for one in workers])
        else:
            for operation in operations:
                recorder.do(operation)
        return _finished(world, plan, recorder)


def _finished(world: World, plan: Plan, recorder: _Recorder) -> History:
    """Everybody exchanges everything, and what was removed comes back."""
    numbers = itertools.count(-1, -1)

    def finally_(machine: int, name: str, *args: str) -> None:
        operation = Operation(next(numbers), -1, machine, name)
        began = time.monotonic_ns()
        done = world.call(machine, *args)
        recorder.events.append(finished(operation, None, began, time.monotonic_ns(), args, done))

    for machine in range(plan.machines):
        finally_(machine, "restore-all", "thread", "restore", "--all")
    if plan.machines > 1:
        for _ in range(2):
            for machine in range(plan.machines):
                finally_(machine, "pull", "pull")
                finally_(machine, "push", "push")
        for machine in range(plan.machines):
            finally_(machine, "pull", "pull")
    snapshots = [world.snapshot(machine) for machine in range(plan.machines)]
    if plan.machines > 1:
        snapshots.append(world.snapshot_of_remote())
    return History(plan, tuple(recorder.events), tuple(snapshots))
