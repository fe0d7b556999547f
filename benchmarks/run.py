"""How fast and how small, against yardsticks measured in the same run. Prints a table; `--quick` uses small
stores and few turns, and shows only that everything runs.

What users start is measured as processes of a real install; what the library does, in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import agents
import chats as chat
import crews as crew
import exchange
import pygit2
from measure import Turn, disk, fastest, peak, process, run, timed
from stores import BY_CONDITION, BY_STATUS, PAYLOAD, Lab

from uwf_git.store.opened import Instance

MEGABYTE = 1_000_000
BIN = Path(sys.executable).parent
UWF = str(BIN / "uwf")
EMPTY = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}


class Size(NamedTuple):
    """How much is built and how often it is measured."""

    turns: int
    threads: int
    many: int
    few: int
    long: int
    batch: int
    disk: int
    shared: int
    archived: tuple[int, ...]
    package: int
    menu: int


FULL = Size(
    turns=15,
    threads=1000,
    many=5000,
    few=50,
    long=1000,
    batch=50,
    disk=500,
    shared=200,
    archived=(100, 5000, 50_000),
    package=500,
    menu=200,
)
QUICK = Size(
    turns=2,
    threads=20,
    many=60,
    few=10,
    long=40,
    batch=5,
    disk=20,
    shared=5,
    archived=(5, 20),
    package=20,
    menu=20,
)


class Row(NamedTuple):
    """A line of the table: what was measured, against what, and what is allowed. Without `against` the
    figure itself is compared."""

    what: str
    figure: float
    unit: str
    against: float | None
    limit: float

    @property
    def ratio(self) -> float | None:
        return None if self.against is None else self.figure / self.against

    @property
    def holds(self) -> bool:
        return (self.figure if self.ratio is None else self.ratio) <= self.limit

    def line(self, judged: bool) -> str:
        """The row as text, with the verdict where it means something."""
        verdict = ("PASS" if self.holds else "OVER") if judged else ""
        if self.ratio is None:
            figures = f"{self.figure:9.2f} {self.unit}{'':23}"
            return f"{self.what:<66}{figures}{self.limit:8.0f} {self.unit:<4}{verdict}"
        figures = f"{self.figure:9.2f} {self.unit}{self.against:11.2f} {self.unit}{self.ratio:8.2f} ×"
        return f"{self.what:<66}{figures}{self.limit:8.1f} ×   {verdict}"


HEADER = f"{'':<66}{'measured':>12}{'yardstick':>14}{'ratio':>10}{'at most':>10}"


def main() -> None:
    """Measures everything and prints a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small stores, few turns")
    parser.add_argument("--only", metavar="TEXT", default="", help="the groups whose name contains this")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="uwf-bench-") as name:
        folder = Path(name)
        print(_machine(folder), HEADER, sep="\n")
        over = 0
        for group in (*ALONE, *SHARING):
            if options.only not in group.__name__:
                continue
            lab = folder / group.__name__
            for row in group(lab, size):
                print(row.line(judged=not options.quick).rstrip(), flush=True)
                over += not row.holds
            shutil.rmtree(lab, ignore_errors=True)
    if options.quick:
        print("a quick run: the figures mean nothing")
    elif over:
        print(f"{over} over the limit")


def start_up(folder: Path, size: Size) -> Iterator[Row]:
    """What the command costs before it does anything."""
    version, click = fastest(size.turns, process([UWF, "--version"], EMPTY), _python("import click"))
    yield _milliseconds("uwf --version / import click", version, click, 1.6)


def on_many_threads(folder: Path, size: Size) -> Iterator[Row]:
    """`show` and `step` in a store of 1,000 threads of two steps each."""
    yardstick = _python("import pygit2, click")
    lab = Lab(folder / "by-status", BY_STATUS)
    thread = lab.threads(size.threads, 2)[size.threads // 2]
    where = f"{size.threads:,} threads"
    show, bare = fastest(size.turns, _uwf(lab, "show", thread), yardstick)
    yield _milliseconds(f"uwf thread show, {where} / import pygit2, click", show, bare, 1.6)
    step, bare = fastest(size.turns, _uwf(lab, "step", thread), yardstick)
    yield _milliseconds("uwf thread step, routed by status / the same", step, bare, 2.5)
    lab = Lab(folder / "by-condition", BY_CONDITION)
    step, bare = fastest(size.turns, _uwf(lab, "step", lab.threads(1, 2)[0]), yardstick)
    yield _milliseconds("uwf thread step, routed by a condition / the same", step, bare, 2.5)


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
    yield _milliseconds(f"uwf thread list, {size.many:,} threads / {size.few}", many, few, 3)


def appending(folder: Path, size: Size) -> Iterator[Row]:
    """A step in the library: against its bare objects, and late against early. fsync is on for both."""
    lab = Lab(folder / "store")
    bare = pygit2.init_repository(str(folder / "bare.git"), bare=True)
    thread = lab.start()
    written: list[tuple[int, bytes]] = []

    def append() -> float:
        before = lab.instance.threads.head(thread)
        known = [step.hash for step in lab.instance.threads.history(before).steps]
        lab.prepare(size.batch)
        seconds = timed(lambda: list(lab.growing(before, known, size.batch)))()
        written[:] = _objects(lab, f"{before.commit}..{lab.instance.threads.head(thread).commit}")
        return seconds / size.batch

    def write() -> float:
        return timed(lambda: [bare.write(kind, data) for kind, data in written])() / size.batch

    ours, theirs = fastest(max(size.turns // 2, 2), append, write)
    objects = len(written) / size.batch
    yield _milliseconds(f"append a step, fsync on / its {objects:.1f} objects by pygit2", ours, theirs, 2.5)

    lab.grow(thread, max(0, size.long - lab.instance.threads.head(thread).row.number))
    head = lab.instance.threads.head(thread)
    steps = lab.instance.threads.history(head).steps

    def ten_more(after: int) -> Turn:
        commit = lab.instance.threads.commit_of(steps[after - 1].hash)

        def turn() -> float:
            fork = lab.instance.threads.head(lab.instance.threads.fork(commit))
            known = [step.hash for step in steps[:after]]
            lab.prepare(10)
            return timed(lambda: list(lab.growing(fork, known, 10)))() / 10

        return turn

    late, early = fastest(size.turns, ten_more(size.long), ten_more(10))
    yield _milliseconds(f"append a step, after step {size.long:,} / after step 10", late, early, 2)


def walking(folder: Path, size: Size) -> Iterator[Row]:
    """A long chain with its outputs, from a store just opened."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    history = lab.instance.threads.history(lab.instance.threads.head(thread))
    store = lab.instance.store
    blobs = [store.blob_of(history.start_hash), store.blob_of(history.workflow_hash)]
    for step in history.steps:
        blobs += [store.blob_of(step.hash), store.blob_of(store.get(step.hash).payload["output"])]

    def ours() -> float:
        instance = Instance(lab.location, {})
        head = instance.threads.head(thread)
        return timed(lambda: instance.threads.history(head))()

    def bare() -> float:
        repository = pygit2.Repository(str(lab.git_dir))
        return timed(lambda: [json.loads(repository.read(oid)[1]) for oid in blobs])()

    walk, read = fastest(size.turns, ours, bare)
    yield _milliseconds(f"walk {size.long:,} steps with outputs / the blobs by pygit2", walk, read, 4)


def sizes(folder: Path, size: Size) -> Iterator[Row]:
    """The disk that steps take: as files, as blocks, packed."""
    lab = Lab(folder)
    before, before_allocated = disk(lab.git_dir / "objects")
    lab.threads(1, size.disk)
    apparent, allocated = disk(lab.git_dir / "objects")
    payload = size.disk * PAYLOAD / MEGABYTE
    what = f"{size.disk} steps of {PAYLOAD / 1000:.1f} KB, loose"
    yield Row(f"{what}, bytes in files", (apparent - before) / MEGABYTE, "MB", None, 20)
    yield Row(f"{what}, blocks on this disk", (allocated - before_allocated) / MEGABYTE, "MB", None, 20)
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    _, packed = disk(lab.git_dir)
    yield Row("the same packed, whole store with its index / payload", packed / MEGABYTE, "MB", payload, 2)


def memory(folder: Path, size: Size) -> Iterator[Row]:
    """The most memory that a command has on a long thread."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    for command in ("show", "step", "read"):
        argv = [UWF, "thread", command, thread, *_options(command)]
        most = max(peak(argv, lab.environ) for _ in range(3))
        what = f"memory of uwf thread {command}, {size.long:,} steps"
        yield Row(what, most / MEGABYTE, "MB", None, 100)


def pushing(folder: Path, size: Size) -> Iterator[Row]:
    """A push against plain git's, of everything and of one step."""
    yield from _compared(exchange.pushing(folder, size.shared, 5, _few(size)))


def pulling(folder: Path, size: Size) -> Iterator[Row]:
    """A pull among many known threads against plain git's fetch."""
    yield from _compared(exchange.pulling(folder, size.many, 1, _few(size)))


def verifying(folder: Path, size: Size) -> Iterator[Row]:
    """How long a thousand nodes take."""
    for each in exchange.verifying(folder, size.long, _few(size)):
        yield Row(each.what, each.seconds * 1000, "ms", None, each.limit * 1000)


def importing(folder: Path, size: Size) -> Iterator[Row]:
    """An import against the export that it reads."""
    yield from _compared(exchange.importing(folder, size.shared, 20, _few(size)))


def archived(folder: Path, size: Size) -> Iterator[Row]:
    """A push to a remote that holds more and more that has ended."""
    yield from _compared(exchange.crowded(folder, size.archived, _few(size)))


def agents_with_tools(folder: Path, size: Size) -> Iterator[Row]:
    """Steps of the built-in agent, and several of them at once."""
    yield from _of(agents.stepping(folder / "one", size.turns))
    yield from _of(agents.side_by_side(folder / "ten", _few(size)))


def crews(folder: Path, size: Size) -> Iterator[Row]:
    """A package taken in, its menu, and a step of its workflow."""
    yield from _of(crew.importing(folder / "import", size.package, _few(size)))
    yield from _of(crew.routing(size.menu, size.turns))
    yield from _of(crew.stepping(folder / "step", size.turns))


def chats(folder: Path, size: Size) -> Iterator[Row]:
    """A session of a person who talks."""
    yield from _of(chat.talking(folder, size.turns))


def _of(found: Iterator[agents.Compared | agents.Cost]) -> Iterator[Row]:
    for each in found:
        if isinstance(each, agents.Compared):
            yield _milliseconds(each.what, each.seconds, each.yardstick, each.limit)
        else:
            yield Row(each.what, each.seconds * 1000, "ms", None, each.limit * 1000)


ALONE = (
    start_up,
    on_many_threads,
    running,
    listing,
    appending,
    walking,
    sizes,
    memory,
    agents_with_tools,
    crews,
    chats,
)
SHARING = (pushing, pulling, verifying, importing, archived)


def _few(size: Size) -> int:
    """Turns for what takes seconds each."""
    return max(size.turns // 3, 1)


def _compared(found: Iterator[exchange.Compared]) -> Iterator[Row]:
    for each in found:
        yield _milliseconds(each.what, each.seconds, each.yardstick, each.limit)


def _uwf(lab: Lab, command: str, thread: str) -> Turn:
    return process([UWF, "thread", command, thread, *_options(command)], lab.environ)


def _options(command: str) -> list[str]:
    """A step is made up in the engine's process, which has to be asked for: another agent began the thread."""
    return ["--agent", "uwf-rehearse"] if command == "step" else []


def _python(code: str) -> Turn:
    return process([sys.executable, "-c", code], EMPTY)


def _milliseconds(what: str, figure: float, against: float, limit: float) -> Row:
    return Row(what, figure * 1000, "ms", against * 1000, limit)


def _objects(lab: Lab, commits: str) -> list[tuple[int, bytes]]:
    """Kind and content of every object that a range of commits brought."""
    listed = subprocess.run(
        ["git", "--git-dir", lab.git_dir, "rev-list", "--objects", "--no-object-names", commits],
        check=True,
        capture_output=True,
        text=True,
        env=lab.environ,
    ).stdout.split()
    return [lab.instance.store.repository.read(pygit2.Oid(hex=oid)) for oid in listed]


def _machine(folder: Path) -> str:
    system = subprocess.run(
        ["stat", "--file-system", "--format", "%T", folder], capture_output=True, text=True, check=False
    ).stdout.strip()
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return (
        f"Python {platform.python_version()}, pygit2 {pygit2.__version__}, libgit2 {pygit2.LIBGIT2_VERSION}, "
        f"git {git}, {os.cpu_count()} CPUs, {system or 'unknown file system'}; "
        "of each the fastest turn counts"
    )


if __name__ == "__main__":
    main()
