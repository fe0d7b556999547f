"""What workers do: operations chosen at random, the call that each of them is, and the record of how it went.

An operation names its thread by the operation that brought it into the world, and the place among the threads that
this one told of, since ids are new in each run: so what was done can be done again, and with something left out.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from world import KILLED, World

_ULID = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")

# How often each is done. Those of the second kind need a remote.
WEIGHTS = {
    "start": 6,
    "step": 30,
    "answer": 6,
    "fork": 5,
    "kill": 2,
    "pause": 2,
    "resume": 3,
    "go-on": 3,
    "fold": 1,
    "gc": 1,
    "prune": 0.4,
    "rm": 1.5,
    "restore": 2,
    "put": 2,
    "reindex": 0.7,
    "steps": 5,
    "list": 2,
    "verify": 0.3,
}
SHARED = {"push": 7, "push-one": 3, "pull": 9, "step-shared": 5}
OF_A_THREAD = {"step", "answer", "fork", "kill", "pause", "resume", "go-on", "rm", "restore", "steps"}
OF_A_THREAD |= {"push-one", "step-shared"}
# The states that a thread is in where an operation can be done to it; any other is for those that are idle.
SUITS = {
    "answer": ("waiting",),
    "resume": ("paused",),
    "go-on": ("ended", "waiting"),
    "restore": ("removed",),
    "steps": ("idle", "ended", "waiting"),
    "push-one": ("idle", "ended", "waiting", "paused"),
    "fork": ("idle", "ended", "paused"),
    "rm": ("idle", "ended", "paused"),
}


class Ref(NamedTuple):
    """A thread: the `place`-th that operation `number` told of."""

    number: int
    place: int


class Operation(NamedTuple):
    """Something that a worker does. `thread` is what it is done to, `choice` decides what the operation leaves open,
    and after `kill_after` seconds, if there are any, the process is killed."""

    number: int
    worker: int
    machine: int
    name: str
    thread: Ref | None = None
    choice: float = 0.0
    kill_after: float | None = None

    @property
    def text(self) -> str:
        """What it says, and nothing else does."""
        return f"said by {self.number}"

    def line(self) -> dict[str, Any]:
        """As JSON."""
        return {**self._asdict(), "thread": self.thread and list(self.thread)}


def parse(line: Mapping[str, Any]) -> Operation:
    """What `Operation.line` gave, in whatever else there is."""
    fields = {name: line[name] for name in Operation._fields}
    return Operation(**{**fields, "thread": fields["thread"] and Ref(*fields["thread"])})


class Event(NamedTuple):
    """An operation that was done. `thread` is the id of what it was done to; it took place some time between `began`
    and `ended`, in nanoseconds of one clock. `code` is the exit status, KILLED where the process was killed. `result`
    is what it printed, `error` what it complained of, `told` the ids in both that weren't in the call."""

    operation: Operation
    thread: str | None
    began: int
    ended: int
    code: int
    result: Any = None
    error: Mapping[str, Any] = {}
    told: tuple[str, ...] = ()
    call: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.operation.name

    @property
    def machine(self) -> int:
        return self.operation.machine

    @property
    def done(self) -> bool:
        """Whether it was reported as done."""
        return self.code == 0

    def line(self) -> str:
        """As JSON."""
        rest = {name: value for name, value in self._asdict().items() if name != "operation"}
        return json.dumps(
            {**self.operation.line(), **rest, "id": rest["thread"], "thread": self.operation.line()["thread"]}
        )


def chosen(
    chance: random.Random,
    number: int,
    worker: int,
    machine: int,
    shared: bool,
    threads: Sequence[tuple[Ref, str]],
    kills: float,
) -> Operation:
    """An operation at random. `threads` are the threads with the state that each was last reported in there: mostly
    one is taken whose state suits, and mostly one of the last few. `kills` is how likely it is to be killed."""
    weights = {**WEIGHTS, **(SHARED if shared else {})}
    if not threads:
        weights = {"start": 1}
    (name,) = chance.choices(list(weights), list(weights.values()))
    thread = None
    if name in OF_A_THREAD:
        suits = [ref for ref, state in threads if state in SUITS.get(name, ("idle",))]
        among = suits if suits and chance.random() < 0.85 else [ref for ref, _ in threads]
        thread = chance.choice(among[-5:] if chance.random() < 0.8 else among)
    after = round(chance.uniform(0.005, 0.25), 4) if chance.random() < kills else None
    return Operation(number, worker, machine, name, thread, round(chance.random(), 4), after)


def states_after(event: Event) -> Iterator[tuple[str, str]]:
    """The threads that an operation told of or was done to, and the state that each is in as far as one can tell."""
    result = event.result if isinstance(event.result, dict) else {}
    if event.name == "pull":
        ended = ("ended-there", "ended-there-behind", "ended-there-ahead")
        for entry in adopted(result):
            for thread in filter(None, (entry.get("thread"), entry.get("fork", {}).get("thread"))):
                yield thread, "ended" if entry["case"] in ended else "idle"
    for thread in event.told:
        yield thread, "idle"
    if event.thread is None:
        return
    status = result.get("status") if event.done else event.error.get("code")
    if "removed here" in str(event.error.get("message")) or (event.name == "rm" and event.done):
        yield event.thread, "removed"
    elif (event.name == "kill" and event.done) or status in ("completed", "killed"):
        yield event.thread, "ended"
    elif status in ("idle", "waiting", "paused"):
        yield event.thread, status
    elif status == "not_found":
        yield event.thread, ""


def adopted(result: Any) -> list[dict[str, Any]]:
    """What a pull, or a step that pulled, says that it took over."""
    results = result if isinstance(result, list) else [result]
    return [entry for each in results if isinstance(each, dict) for entry in each.get("adopted", ())]


def do(world: World, operation: Operation, thread: str | None, clock: Any) -> Event:
    """Does it; `thread` is the id of its thread."""
    call = _call(world, operation, thread or "")
    began = clock()
    done = world.call(operation.machine, *call, kill_after=operation.kill_after)
    return finished(operation, thread, began, clock(), call, done)


def finished(
    operation: Operation,
    thread: str | None,
    began: int,
    ended: int,
    call: Sequence[str],
    done: subprocess.CompletedProcess[bytes],
) -> Event:
    """The record of a call that has ended."""
    printed, complaint = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in complaint, f"{call}: {complaint}"
    error = _error(complaint)
    # A lock that a killed process has left may be that of a thread which never came to be.
    said = "".join(line for line in complaint.splitlines() if not line.startswith("uwf: removed "))
    told = [found for found in _ULID.findall(printed + said) if found not in call]
    if operation.name in ("list", "steps", "verify", "push", "push-one"):  # others have told of these
        told = []
    code = KILLED if done.returncode < 0 else done.returncode
    result = _result(printed)
    return Event(
        operation, thread, began, ended, code, result, error, tuple(dict.fromkeys(told)), tuple(call)
    )


def _call(world: World, operation: Operation, thread: str) -> list[str]:
    name, choice, text = operation.name, operation.choice, operation.text
    match name:
        case "start":
            return ["thread", "start", "loop", "-p", text]
        case "step":
            return ["thread", "step", thread, "--agent", _agent(world, operation)]
        case "step-shared":
            return ["thread", "step", thread, "--agent", _agent(world, operation), "--remote", "origin"]
        case "answer":
            return ["thread", "answer", thread, "-m", text]
        case "fork":
            at = [] if choice < 0.5 else ["--at", str(int(choice * 10) - 5)]
            return ["thread", "fork", thread, *at]
        case "kill":
            return ["thread", "kill", thread, "--reason", text]
        case "pause":
            return ["thread", "pause", thread, "-m", text, *(["--now"] if choice < 0.3 else [])]
        case "resume":
            return ["thread", "resume", thread]
        case "go-on":
            return ["thread", "resume", thread, "-m", text]
        case "fold":
            return ["gc", "--fold-before", "2100-01-01"]
        case "gc":
            return ["gc"]
        case "prune":
            return ["gc", "--prune"]
        case "rm":
            return ["thread", "rm", thread, "--yes"]
        case "restore":
            return ["thread", "restore", thread]
        case "put":
            return ["workflow", "put", str(world.source(operation.number))]
        case "reindex":
            return ["cas", "reindex"]
        case "steps":
            return ["thread", "steps", thread]
        case "list":
            return ["thread", "list", "--all"]
        case "verify":
            return ["verify"]
        case "push":
            return ["push"]
        case "push-one":
            return ["push", "origin", thread]
        case "pull":
            return ["pull"]
        case "lose":  # what never happens by itself: it shows that a lost step is found out
            ref = f"refs/uwf/threads/{thread}"
            return ["git", "update-ref", ref, f"{ref}~1"]
    raise AssertionError(name)


def _agent(world: World, operation: Operation) -> str:
    """Most steps are scripted in the engine's process, some are made by a process of their own."""
    choice = operation.choice
    output = {"status": "more" if choice < 0.8 else "needs_input" if choice < 0.93 else "done"}
    output["text"] = operation.text
    if output["status"] == "needs_input":
        output["question"] = "Which way?"
    if choice * 10 % 1 < 0.2:
        return f"uwf-exec echo '{json.dumps(output)}'"
    script = world.folder / f"script-{operation.number}.json"
    script.write_text(json.dumps([{"role": "worker", "output": output}] * 200))
    return f"uwf-rehearse --script {script}"


def _result(printed: str) -> Any:
    try:
        return json.loads(printed)
    except ValueError:
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            return None


def _error(complaint: str) -> Mapping[str, Any]:
    for line in reversed(complaint.splitlines()):
        try:
            return dict(json.loads(line)["error"])
        except (ValueError, KeyError, TypeError):
            continue
    return {"message": complaint.strip()} if complaint.strip() else {}
