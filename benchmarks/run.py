"""How fast and how small, against yardsticks measured in the same run. Prints a table; `--quick` uses small
stores and few turns, and shows only that everything runs; `--page` writes docs/reference/benchmarks.md and its plots,
or the same into a folder that is there.

What users start is measured as processes of a real install; what the library does, in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import agents
import batches
import caching
import chats
import crews
import evaluation
import exchange
import fan_out
import fleet
import growth
import integrity
import landing
import page
import pages
import peers
import pygit2
import sessions
import startup
import steps
import throughput
import top
import worktrees
from rows import FULL, HEADER, QUICK, Point, Row, Size

Group = Callable[[Path, Size], Iterator[Row | Point]]

GROUPS: tuple[Group, ...] = (
    startup.start_up,
    startup.on_many_threads,
    startup.running,
    startup.listing,
    startup.memory,
    steps.appending,
    steps.growing,
    steps.talking_long,
    steps.walking,
    steps.sizes,
    peers.beside_peers,
    agents.stepping,
    agents.side_by_side,
    caching.looping,
    crews.importing,
    crews.routing,
    crews.stepping,
    chats.talking,
    pages.first_page,
    pages.a_long_thread,
    pages.live,
    pages.answered,
    top.on_many_threads,
    exchange.pushing,
    exchange.pulling,
    exchange.exchanging_a_step,
    exchange.some_of_many,
    exchange.verifying,
    exchange.verifying_signatures,
    exchange.crowded,
    throughput.of_a_worker,
    worktrees.setting_up,
    worktrees.recording,
    worktrees.unchanged,
    worktrees.side_by_side,
    sessions.going_on,
    sessions.keeping,
    fan_out.forking,
    fan_out.stepping,
    fan_out.joining,
    fan_out.looking,
    batches.script,
    batches.fork,
    batches.threads,
    batches.memory,
    fleet.dispatching,
    fleet.sharing,
    landing.from_issue,
    integrity.editing,
    evaluation.known,
    growth.on_many_threads,
    growth.on_many_nodes,
    growth.verifying,
)
"""What is measured, in the order of the table. A group gets a folder that isn't there yet."""

_PATIENCE, _QUICK_PATIENCE = 7200, 240  # seconds for a group


def main() -> None:
    """Measures everything and prints a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small stores, few turns")
    parser.add_argument("--only", metavar="TEXT", default="", help="the groups with this in module.function")
    parser.add_argument(
        "--page", type=Path, nargs="?", const=page.DOCS, metavar="FOLDER", help="write benchmarks.md"
    )
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    found: dict[str, list[Row | Point]] = {}
    with tempfile.TemporaryDirectory(prefix="uwf-bench-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        machine = _machine(Path(name))
        print(machine, HEADER, sep="\n")
        with contextlib.chdir(name):  # within a repository uwf would mean the threads of that project
            for group in GROUPS:
                called = f"{group.__module__}.{group.__name__}"
                if options.only in called:
                    found[called] = list(_measured(group, Path(name) / called, size, not options.quick))
    over = sum(isinstance(each, Row) and not each.holds for group in found.values() for each in group)
    if options.quick:
        print("a quick run: the figures mean nothing")
    elif over:
        print(f"{over} over the limit")
    if options.page and options.only:
        page.renew(options.page, found)
    elif options.page:
        page.write(options.page, machine, found)


def _measured(group: Group, folder: Path, size: Size, judged: bool) -> Iterator[Row | Point]:
    with _bounded(folder.name, _PATIENCE if judged else _QUICK_PATIENCE):
        for each in group(folder, size):
            if isinstance(each, Row):
                print(each.line(judged).rstrip(), flush=True)
            yield each
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _bounded(name: str, seconds: int) -> Iterator[None]:
    """End what waits for something that never comes, with the servers that it started. Raises TimeoutError."""

    def end(_number: int, _frame: object) -> None:
        raise TimeoutError(f"{name} still ran after {seconds} seconds")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


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
