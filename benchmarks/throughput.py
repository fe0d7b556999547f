"""How many steps a second go to a remote, as its refs become more: what a worker of a fleet pulls and pushes, one
thread at a time or twenty together, by path and by ssh on loopback. A worker keeps its store open, so no process is
started but git's; it has its own threads alone, whatever else the remote has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from exchange import Shared, packed
from measure import fastest
from rows import Point, Row, Size, compared, cost

from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.git.program import Git
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.pull import gather
from uwf_git.sync.shared_step import share_all

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "doubles"))
import git_servers

TOGETHER = 20


def of_a_worker(folder: Path, size: Size) -> Iterator[Row | Point]:
    """Threads that are fetched before a step and pushed after; by ssh where sshd is installed."""
    ssh = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    for transport, way, more in (
        ("path", "by path", ""),
        ("ssh", "by ssh", ""),
        (
            "ssh",
            "by ssh, one connection",
            "-o ControlMaster=auto -o ControlPersist=5 -o ControlPath={folder}/%C",
        ),
    ):
        if transport == "ssh" and ssh is None:
            continue
        with git_servers.serve(transport) as server:
            home = server.folder.parent
            config = server.config.replace("ssh -F", f"ssh {more.format(folder=home)} -F")
            with configured(home / "client.gitconfig", config):
                yield from _among(folder / way, size, server, way)


def _among(folder: Path, size: Size, server: git_servers.Server, way: str) -> Iterator[Row | Point]:
    """The same as the remote's refs become more."""
    first: float | None = None
    for count in size.refs:
        worker = _Worker(folder / str(count), server, count)
        alone, together = fastest(size.few_turns, worker.one, worker.several)
        yield Point("throughput", f"{way}, one at a time", count, 1 / alone)
        yield Point("throughput", f"{way}, {TOGETHER} together", count, TOGETHER / together)
        yield cost(f"a step of {TOGETHER} to a remote of {count:,} refs, {way}", together / TOGETHER, 0.15)
        first = first or together
    what = f"{TOGETHER} steps to a remote of {size.refs[-1]:,} refs, {way} / of {size.refs[0]:,}"
    yield compared(what, together, first or together, 5)


@contextlib.contextmanager
def configured(path: Path, config: str) -> Iterator[None]:
    """What the user's git is told meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config)
    before = os.environ.get("GIT_CONFIG_GLOBAL")
    os.environ["GIT_CONFIG_GLOBAL"] = str(path)
    try:
        yield
    finally:
        os.environ.pop("GIT_CONFIG_GLOBAL")
        if before is not None:
            os.environ["GIT_CONFIG_GLOBAL"] = before


class _Worker:
    """A store with some threads, on whose remote there are so many besides."""

    def __init__(self, folder: Path, server: git_servers.Server, count: int) -> None:
        bare = git_servers.bare(server.folder / f"{count}.git")
        shared = Shared(folder, TOGETHER, 1, bare, server.url(bare))
        self._lab, self._threads = shared.lab, shared.ids
        self._instance = shared.lab.instance
        git = Git(shared.lab.git_dir, bounds=self._instance.store.repository.config.bounds)
        self._exchange = Exchange(self._instance, self._instance.remotes.get("origin"), git)
        self._share(self._threads)
        tip = str(self._instance.store.repository.ref(f"refs/uwf/threads/{self._threads[0]}"))
        packed(bare, {f"refs/uwf/threads/{new_thread_id()}": tip for _ in range(count - TOGETHER)})

    def one(self) -> float:
        """The seconds that the exchange of one thread takes."""
        return self._exchanged(self._threads[:1])

    def several(self) -> float:
        """The seconds that the exchange of all takes."""
        return self._exchanged(self._threads)

    def _exchanged(self, threads: list[ThreadId]) -> float:
        began = time.perf_counter()
        gather(self._exchange, threads)
        seconds = time.perf_counter() - began
        for each in threads:
            self._lab.grow(each, 1)
        began = time.perf_counter()
        self._share(threads)
        return seconds + time.perf_counter() - began

    def _share(self, threads: list[ThreadId]) -> None:
        failed = [each for each in share_all(self._exchange, threads).values() if each]
        if failed:
            raise failed[0]
