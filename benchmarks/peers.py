"""A durable step beside the same step of LangGraph, DBOS and Burr, each with SQLite as its documentation sets it up.

A step stores 4.2 KB of an agent's words so that they survive a power cut: SQLite syncs each transaction, which is its
default and which none of the three changes, and so does the store. A step of theirs waits for the disk twice
(LangGraph, whose journal is a log that is written ahead) or four times (DBOS, Burr); one of the store twice where the
file system has a journal, and else three times. What a program keeps for one run grows by that payload each step, as
messages do. Each program is a process of its own, in which nothing else runs; they take their steps in turns, twenty at
a time, so that what disturbs the machine hits all alike.
"""

from __future__ import annotations

import operator
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Annotated, Any

from measure import disk
from rows import Point, Row, Size
from stores import MEGABYTE, PAYLOAD, Lab, prose

BATCH = 20  # steps, of which the mean counts
ROUNDS = 3  # runs of each, of which the fastest counts
PEERS = {"LangGraph": "langgraph", "DBOS": "dbos", "Burr": "apache-burr"}
OURS = "uwf-git"
SAVER = "LangGraph on uwf-git"
"""LangGraph with our saver in place of its own."""
SLOWER = 5
"""As many times as long our saver may take while a state is small: its step is two commits with pages."""
Stepping = Iterator[object]
"""Each `next` of it is a durable step."""


def beside_peers(folder: Path, size: Size) -> Iterator[Row | Point]:
    """A step early and late in a run, and the disk of all of them."""
    folder.mkdir()
    runs = [_run(folder / str(number), size.disk) for number in range(ROUNDS if size.turns > 5 else 1)]
    best = {
        name: [min(each) for each in zip(*(seconds[name] for seconds, _ in runs), strict=True)]
        for name in runs[0][0]
    }
    for name, seconds in best.items():
        for number, each in enumerate(seconds):
            yield Point("step", name, (number + 1) * BATCH, each * 1000)
    early = min(100, size.disk) // BATCH - 1
    synced = f"synchronous={_synchronous()}"
    for place, limits in ((early, {}), (-1, {"LangGraph": 0.2, "Burr": 0.2})):
        at = (place % len(best[OURS]) + 1) * BATCH
        for name, package in PEERS.items():
            what = f"step {at} of {PAYLOAD / 1000:.1f} KB, durable / {name} {version(package)}, {synced}"
            limit = limits.get(name, 1)
            yield Row(what, best[OURS][place] * 1000, "ms", best[name][place] * 1000, limit)
        what = f"step {at} of a LangGraph graph with UwfSaver, durable / with its SqliteSaver"
        yield Row(what, best[SAVER][place] * 1000, "ms", best["LangGraph"][place] * 1000, SLOWER)
    sizes = runs[0][1]
    what = f"disk of {size.disk} such steps with UwfSaver, packed / with its SqliteSaver"
    yield Row(what, sizes[SAVER] / MEGABYTE, "MB", sizes["LangGraph"] / MEGABYTE, 0.05)
    for name in PEERS:
        limit = 1 if name == "DBOS" else 0.01
        what = f"disk of {size.disk} such steps, packed / {name}"
        yield Row(what, sizes[OURS] / MEGABYTE, "MB", sizes[name] / MEGABYTE, limit)
    yield from (Point("disk", name, 0, each / MEGABYTE) for name, each in sizes.items())


def _synchronous() -> str:
    """What SQLite does for durability where nobody tells it otherwise."""
    with closing(sqlite3.connect(":memory:")) as db:
        return ("OFF", "NORMAL", "FULL", "EXTRA")[db.execute("PRAGMA synchronous").fetchone()[0]]


def _run(folder: Path, steps: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """The seconds a step of each program, a batch after another, and the bytes on disk at the end."""
    seconds: dict[str, list[float]] = {name: [] for name in (OURS, SAVER, *PEERS)}
    with ExitStack() as stack:
        started = {}
        for name in seconds:
            (folder / name).mkdir(parents=True)
            command = [sys.executable, __file__, name, str(folder / name)]
            with open(folder / f"{name}.log", "wb") as log:
                process = stack.enter_context(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        bufsize=1,
                    )
                )
            started[name] = process
            _describe(process)  # that it is ready
        for _ in range(steps // BATCH):
            for name, process in started.items():
                print(BATCH, file=process.stdin)
                seconds[name].append(float(_describe(process)) / BATCH)
        for process in started.values():
            print(0, file=process.stdin)
            _describe(process)  # that it has tidied up
    return seconds, {name: disk(folder / name)[1] for name in seconds}


def _describe(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args} ended early with {process.wait()}")
    return line


def _answers() -> Iterator[str]:
    """What an agent says, another text each time."""
    words = random.Random(1)
    while True:
        yield prose(words)


def _uwf(folder: Path) -> Stepping:
    lab = Lab(folder)
    thread = lab.start()
    lab.prepare(1000)
    steps = lab.growing(lab.instance.threads.head(thread), [], 10**6)
    yield from steps


def _packed(folder: Path) -> None:
    subprocess.run(["git", "--git-dir", str(folder / "store.git"), "gc", "--quiet"], check=True)


def _langgraph(folder: Path) -> Stepping:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(folder / "state.db")) as saver:
        yield from _graph(saver)


def _langgraph_here(folder: Path) -> Stepping:
    from uwf_git.ext.langgraph import UwfSaver

    with UwfSaver(folder) as saver:
        yield from _graph(saver)


def _graph(saver: Any) -> Stepping:
    from langgraph.graph import START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict):
        messages: Annotated[list[str], operator.add]

    answers = _answers()
    graph: Any = StateGraph(State)
    graph.add_node("work", lambda state: {"messages": [next(answers)]})
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work", ["work"])
    app = graph.compile(checkpointer=saver)
    configured = {"configurable": {"thread_id": "1"}, "recursion_limit": 10**6}
    yield from app.stream({"messages": []}, configured, stream_mode="updates", durability="sync")


def _burr(folder: Path) -> Stepping:
    from burr.core import ApplicationBuilder, State, action
    from burr.core.persistence import SQLitePersister

    answers = _answers()

    @action(reads=["messages"], writes=["messages"])
    def work(state: State) -> State:
        return state.append(messages=next(answers))

    persister = SQLitePersister(str(folder / "state.db"))
    persister.initialize()
    app = (
        ApplicationBuilder()
        .with_actions(work)
        .with_transitions(("work", "work"))
        .with_state(messages=[])
        .with_entrypoint("work")
        .with_state_persister(persister)
        .build()
    )
    while True:
        yield app.step()


def _dbos(folder: Path, ask: Callable[[Stepping], None]) -> None:
    """Steps can only be taken inside of a workflow, so that is where the orders are read."""
    from dbos import DBOS, DBOSConfig

    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{folder / 'state.db'}",
        "run_admin_server": False,
    }
    DBOS(config=config)
    answers = _answers()

    @DBOS.step()
    def work() -> str:
        return next(answers)

    @DBOS.workflow()
    def bench() -> None:
        ask(work() for _ in count())

    DBOS.launch()
    bench()
    DBOS.destroy()


def _obey(steps: Stepping) -> None:
    """Takes as many steps as each line of standard input says, and tells how long they took; 0 ends it."""
    print("ready", file=_ANSWERS, flush=True)
    for line in iter(sys.stdin.readline, "0\n"):
        began = time.perf_counter()
        for _ in range(int(line)):
            next(steps)
        print(time.perf_counter() - began, file=_ANSWERS, flush=True)


def _drive(name: str, folder: Path) -> None:
    """One program in this process, driven through its standard input."""
    if name == "DBOS":
        _dbos(folder, _obey)
    else:
        steps = {OURS: _uwf, SAVER: _langgraph_here, "LangGraph": _langgraph, "Burr": _burr}
        _obey(steps[name](folder))
        if name in (OURS, SAVER):
            _packed(folder)
    print("done", file=_ANSWERS, flush=True)


if __name__ == "__main__":
    # What the programs print themselves goes to the log.
    import os

    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _drive(sys.argv[1], Path(sys.argv[2]))
