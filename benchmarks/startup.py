"""The commands as processes of a real install: what starting one costs, and what it needs of memory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import Turn, fastest, peak, process, run
from rows import Row, Size, compared
from stores import BY_CONDITION, BY_STATUS, EMPTY, MEGABYTE, UWF, Lab


def start_up(folder: Path, size: Size) -> Iterator[Row]:
    """What the command costs before it does anything."""
    version, click = fastest(size.turns, process([UWF, "--version"], EMPTY), _python("import click"))
    yield compared("uwf --version / import click", version, click, 1.6)


def on_many_threads(folder: Path, size: Size) -> Iterator[Row]:
    """`show` and `step` in a store of 1,000 threads of two steps each."""
    yardstick = _python("import pygit2, click")
    lab = Lab(folder / "by-status", BY_STATUS)
    thread = lab.threads(size.threads, 2)[size.threads // 2]
    where = f"{size.threads:,} threads"
    show, bare = fastest(size.turns, _uwf(lab, "show", thread), yardstick)
    yield compared(f"uwf thread show, {where} / import pygit2, click", show, bare, 1.6)
    step, bare = fastest(size.turns, _uwf(lab, "step", thread), yardstick)
    yield compared("uwf thread step, routed by status / the same", step, bare, 2.5)
    lab = Lab(folder / "by-condition", BY_CONDITION)
    step, bare = fastest(size.turns, _uwf(lab, "step", lab.threads(1, 2)[0]), yardstick)
    yield compared("uwf thread step, routed by a condition / the same", step, bare, 2.5)


def running(folder: Path, size: Size) -> Iterator[Row]:
    """Ten steps by one process, each of them a command."""
    lab = Lab(folder)
    answer = '{"status": "done", "note": "it is done"}'
    options = ["--max-steps", "10", "--agent", f"uwf-exec echo '{answer}'"]

    def ten() -> float:
        return run([UWF, "thread", "run", lab.start(), *options], lab.environ)

    steps, bare = fastest(
        size.turns, ten, process([shutil.which("echo") or "/bin/echo", answer], lab.environ)
    )
    beyond = (steps / 10 - bare) * 1000
    yield Row("uwf thread run, ten steps, each beyond its command", beyond, "ms", None, 60)


def listing(folder: Path, size: Size) -> Iterator[Row]:
    """`list` of many threads against few, each with a step whose cost is known."""
    turns = []
    for count in (size.many, size.few):
        lab = Lab(folder / str(count))
        lab.threads(count, 1)
        turns.append(process([UWF, "thread", "list"], lab.environ))
    many, few = fastest(size.turns, *turns)
    yield compared(f"uwf thread list, {size.many:,} threads / {size.few}", many, few, 3)


def memory(folder: Path, size: Size) -> Iterator[Row]:
    """The most memory that a command has on a long thread."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    for command in ("show", "step", "read"):
        argv = [UWF, "thread", command, thread, *_options(command)]
        most = max(peak(argv, lab.environ) for _ in range(3))
        what = f"memory of uwf thread {command}, {size.long:,} steps"
        yield Row(what, most / MEGABYTE, "MB", None, 100)


def _uwf(lab: Lab, command: str, thread: str) -> Turn:
    return process([UWF, "thread", command, thread, *_options(command)], lab.environ)


def _options(command: str) -> list[str]:
    """A step is made up in the engine's process, which has to be asked for: another agent began the thread."""
    return ["--agent", "uwf-rehearse"] if command == "step" else []


def _python(code: str) -> Turn:
    return process([sys.executable, "-c", code], EMPTY)
