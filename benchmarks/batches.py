"""Many steps by one command, whose agents answer at once: what is left is the engine's own, its processes included."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from fan_out import FanOutLab
from fleet import FIVE
from measure import used
from rows import Row, Size, compared, cost
from stores import UWF, Lab

from uwf_git.api.run import Options, run
from uwf_git.sandbox.warm import WarmPool

_MANY = """\
export const meta = { name: "many", description: "Asks many agents." };
const items = Array.from({ length: %d }, (_, index) => index);
return (await parallel(items.map((item) => () => agent(`Item ${item}`)))).length;
"""
_AT_ONCE = 4
_CALL = 0.04  # CPU-seconds of a call
_SCRIPT, _FORK = 6.0, 60.0  # seconds
_STEP = 1 / 120
_STEPS = 1000  # of a process
_SETTLED = 200  # of these, after which its memory is compared
_LARGEST = 120  # megabytes
_TURNS = 20


def script(folder: Path, size: Size) -> Iterator[Row]:
    """A script of many calls at once, where node is installed."""
    if shutil.which("node") is None:
        return
    lab, count = Lab(folder), size.calls
    (folder / "many.js").write_text(_MANY % count)
    used([UWF, "workflow", "put", str(folder / "many.js")], lab.environ)
    turns = [used([UWF, "run", "many", "-p", str(turn)], lab.environ) for turn in range(size.few_turns + 1)]
    cpu, seconds = (min(turn[at] for turn in turns[1:]) for at in (1, 0))
    yield cost(f"uwf run, a script of {count} agents, CPU a call", cpu / count, _CALL)
    yield compared("the same / a thread of one step in the library", cpu / count, _alone(folder / "alone"), 4)
    yield cost(f"uwf run, a script of {count} agents", seconds, _SCRIPT)


def fork(folder: Path, size: Size) -> Iterator[Row]:
    """A fan-out with many branches, from its fork to its end."""
    lab = FanOutLab(folder, size.threads)
    rehearsed = "{fixer: uwf-rehearse, reviewer: uwf-rehearse}"
    (folder / "config.yaml").write_text(f"agentOverrides: {{audit: {rehearsed}}}\n")
    seconds, cpu = used([UWF, "thread", "run", lab.planned(), "--quiet"], lab.environ)
    yield cost(f"uwf thread run, a fork of {size.threads:,} branches to its end", seconds, _FORK)
    yield compared(
        "a branch of it / a thread of one step, CPU", cpu / size.threads, _alone(folder / "alone"), 5
    )


def threads(folder: Path, size: Size) -> Iterator[Row]:
    """Threads of five steps, several at once, beside the same steps one after the other in the library."""
    lab, count = Lab(folder / "many", FIVE.encode()), 2 * size.batch
    for _ in range(count):
        lab.start()
    seconds, cpu = used([UWF, "thread", "run", "--all", "-j", str(_AT_ONCE), "--quiet"], lab.environ)
    steps = count * 5
    yield cost(f"uwf thread run --all -j {_AT_ONCE}, {count} threads, a step", seconds / steps, _STEP)
    yield compared(
        "the same / a step in the library, CPU", cpu / steps, _alone(folder / "alone", FIVE) / 5, 3
    )


def memory(folder: Path, size: Size) -> Iterator[Row]:
    """The memory of one process that runs thread after thread."""
    lab = Lab(folder, FIVE.encode())
    pool = WarmPool("uwf_cli.main:run", {**os.environ, **lab.environ})
    settled = 0
    for count in range(1, _STEPS // 5 + 1 if size.threads >= _STEPS else size.few):
        process = pool.spawn(["thread", "run", lab.start(), "--quiet", "--format", "json"])
        assert process.stdout is not None
        process.stdout.read()
        process.wait()
        if count * 5 <= _SETTLED:
            settled = _memory(process.pid)
    yield Row("memory of a warm process, 1,000 steps", _memory(process.pid) / 1e6, "MB", None, _LARGEST)
    yield Row("the same / after 200", _memory(process.pid) / 1e6, "MB", settled / 1e6, 1.1)
    pool.close()


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _alone(folder: Path, definition: str | None = None) -> float:
    """CPU-seconds of a thread's run in the library, of a workflow with one step by default."""
    one = FIVE.partition("  two:\n")[0] + "graph:\n  $START: [{role: one}]\n  one: [{role: $END}]\n"
    lab = Lab(folder, (definition or one).encode())
    options = Options(None, folder)

    def turn() -> float:
        thread, began = lab.start(), time.process_time()
        for _ in run(lab.instance, thread, lambda: options):
            pass
        return time.process_time() - began

    return min(turn() for _ in range(_TURNS))
