"""A fleet on this machine: how fast steps are handed out, and the memory of its processes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from measure import run
from rows import Row, Size, cost
from stores import UWF, Lab
from throughput import configured

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "doubles"))
import git_servers

_STEPS = ("one", "two", "three", "four", "five")
_ROLE = "description: Says something.\n    systemPrompt: Say it.\n    outputSchema: {type: object, required: [text]}\n"
FIVE = (
    "name: five\ndescription: Five say something, one after the other.\nroles:\n"
    + "".join(f"  {name}:\n    {_ROLE}" for name in _STEPS)
    + "graph:\n"
    + "".join(
        f"  {name}: [{{role: {after}}}]\n"
        for name, after in zip(("$START", *_STEPS), (*_STEPS, "$END"), strict=True)
    )
)
WORKERS = 2
RUN = f"uwf fleet run --workers {WORKERS}"
KINDS = {
    "the server": "server start-dev",
    "a worker": "uwf_git.ext.fleet.worker",
    "a hand": "uwf_git.ext.fleet.step_process",
}
MOST = {"the server": 250, "a worker": 150, "a hand": 150}
_POLL = 0.2
# By ssh as docs/guides/fleet.md advises.
_KEPT = "-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={folder}/%C"


def dispatching(folder: Path, size: Size) -> Iterator[Row]:
    """Threads of five steps by an agent that answers at once. What a fleet takes to begin and to end is left out: a
    large one is compared with a small one."""
    peaks: dict[str, int] = {}

    def seconds(threads: int) -> float:
        lab = _threads(folder / str(threads), threads)
        with _peaks(lab.root, peaks):
            return _seconds(lab)

    yield _a_step(f"a step of {RUN}", size, seconds, 1 / 120)
    for kind, most in MOST.items():
        yield Row(f"memory of {kind}, at most", peaks.get(kind, 0) / 1e6, "MB", None, most)


def sharing(folder: Path, size: Size) -> Iterator[Row]:
    """The same through a remote: by path, and by ssh that keeps its connection, where sshd is installed."""
    ssh = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    for transport in ("path", "ssh") if ssh else ("path",):
        with git_servers.serve(transport) as server:
            kept = _KEPT.format(folder=server.folder.parent)
            config = server.config.replace("ssh -F", f"ssh {kept} -F")
            with configured(server.folder.parent / "client.gitconfig", config):

                def seconds(threads: int, server: git_servers.Server = server) -> float:
                    lab = _threads(folder / server.transport / str(threads), threads)
                    bare = git_servers.bare(server.folder / f"{threads}.git")
                    lab.instance.remotes.add("origin", server.url(bare))
                    lab.environ["GIT_CONFIG_GLOBAL"] = os.environ["GIT_CONFIG_GLOBAL"]
                    run([UWF, "push", "origin", "--all"], lab.environ)
                    return _seconds(lab, "--remote", "origin")

                yield _a_step(f"the same with --remote, by {transport}", size, seconds, 1 / 50)


def _threads(folder: Path, count: int) -> Lab:
    lab = Lab(folder, FIVE.encode())
    for _ in range(count):
        lab.start()
    return lab


def _seconds(lab: Lab, *options: str) -> float:
    return run([UWF, "fleet", "run", "--all", "--workers", str(WORKERS), *options], lab.environ)


def _a_step(what: str, size: Size, seconds: Callable[[int], float], limit: float) -> Row:
    few, many = size.batch, 4 * size.batch
    small, large = seconds(few), seconds(many)
    steps = (many - few) * len(_STEPS)
    return cost(f"{what}, of {steps}", (large - small) / steps, limit)


@contextmanager
def _peaks(root: Path, peaks: dict[str, int]) -> Iterator[None]:
    """Notes the most memory that a process of each kind had during the block, of those of a store."""
    over = threading.Event()
    mark = f"UWF_STORAGE_ROOT={root}".encode()

    def look() -> None:
        while not over.wait(_POLL):
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit():
                    continue
                with suppress(OSError):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    kind = next((kind for kind, sign in KINDS.items() if sign in words), None)
                    if kind is None or mark not in (entry / "environ").read_bytes().split(b"\0"):
                        continue
                    status = (entry / "status").read_text()
                    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
                    peaks[kind] = max(peaks.get(kind, 0), peak)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
