"""The commands as processes of a real install: what starting one costs, and what it needs of memory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import Turn, fastest, peak, process, run
from rows import Row, Size, compared
from stores import BY_CONDITION, BY_STATUS, EMPTY, MEGABYTE, NOT_AT_ITS_END, UWF, Lab

YARDSTICK = "import pygit2, click"


AGENT = """
from uwf_git.kit import Reply, create_agent

def run(ctx):
    return Reply("---\\nstatus: done\\nnote: it is done\\n---\\n\\nAll of it.\\n")

create_agent("bench", run, lambda ctx, session, message: run(ctx)).main()
"""
"""An agent of the kit, which answers at once."""


def start_up(folder: Path, size: Size) -> Iterator[Row]:
    """What the command costs before it does anything."""
    version, click = fastest(size.turns, process([UWF, "--version"], EMPTY), _python("import click"))
    yield compared("uwf --version / import click", version, click, 1.6)
    help_, bare = fastest(size.turns, process([UWF, "--help"], EMPTY), _python(YARDSTICK))
    yield compared(f"uwf --help / {YARDSTICK}", help_, bare, 0.8)


def on_many_threads(folder: Path, size: Size) -> Iterator[Row]:
    """`show`, `list` and `step` in a store of 1,000 threads of two steps each, and a step by a process of its own."""
    yardstick = _python(YARDSTICK)
    lab = Lab(folder / "by-status", BY_STATUS)
    thread = lab.threads(size.threads, 2)[size.threads // 2]
    where = f"{size.threads:,} threads"
    show, bare = fastest(size.turns, _uwf(lab, "show", thread), yardstick)
    yield compared(f"uwf thread show, {where} / {YARDSTICK}", show, bare, 1.2)
    step, bare = fastest(size.turns, _uwf(lab, "step", thread), yardstick)
    yield compared("uwf thread step, routed by status / the same", step, bare, 1.2)
    lab = Lab(folder / "by-condition", BY_CONDITION)
    thread = lab.threads(size.few, 2)[0]
    step, bare = fastest(size.turns, _uwf(lab, "step", thread), yardstick)
    yield compared("uwf thread step, routed by a condition / the same", step, bare, 1.2)
    listed, bare = fastest(size.turns, process([UWF, "thread", "list"], lab.environ), yardstick)
    yield compared(f"uwf thread list, {size.few} threads / the same", listed, bare, 1.2)
    agent = folder / "agent.py"
    agent.write_text(AGENT)
    by = ["--agent", f"{sys.executable} {agent}"]
    step, bare = fastest(
        size.turns, process([UWF, "thread", "step", lab.start(), *by], lab.environ), yardstick
    )
    yield compared("uwf thread step, an agent of the kit as a process / two of these", step, 2 * bare, 2)


def running(folder: Path, size: Size) -> Iterator[Row]:
    """Ten steps by one process, each of them a command."""
    lab = Lab(folder)
    answer = '{"status": "done", "note": "it is done"}'
    options = ["--max-steps", "10", "--agent", f"uwf-exec echo '{answer}'"]

    def ten() -> float:
        return run([UWF, "thread", "run", lab.start(), *options], lab.environ, NOT_AT_ITS_END)

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
    # Of the little one nearly all is the start of a process: the quicker that becomes, the larger this ratio.
    yield compared(f"uwf thread list, {size.many:,} threads / {size.few}", many, few, 5)


def memory(folder: Path, size: Size) -> Iterator[Row]:
    """The most memory that a command has on a long thread."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    commands = [
        ["thread", each, thread, *_options(each)] for each in ("show", "steps", "read", "step", "fork")
    ]
    commands.append(["trace", "export", thread])
    for command in (*commands, ["thread", "list"], ["stats"], ["verify"], ["gc"], ["thread", "kill", thread]):
        turns = 1 if "kill" in command else 3
        most = max(peak([UWF, *command], lab.environ) for _ in range(turns))
        what = (
            f"memory of uwf {' '.join(word for word in command[:2] if word != thread)}, {size.long:,} steps"
        )
        yield Row(what, most / MEGABYTE, "MB", None, 120)


def _uwf(lab: Lab, command: str, thread: str) -> Turn:
    return process([UWF, "thread", command, thread, *_options(command)], lab.environ)


def _options(command: str) -> list[str]:
    """A step is made up in the engine's process, which has to be asked for: another agent began the thread."""
    return ["--agent", "uwf-rehearse"] if command == "step" else []


def _python(code: str) -> Turn:
    return process([sys.executable, "-c", code], EMPTY)
