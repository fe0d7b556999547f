"""A fleet on this machine: how fast steps are handed out, and the memory of its processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from measure import run
from rows import Row, Size, cost
from stores import UWF, Lab

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
KINDS = {
    "the server": "server start-dev",
    "a worker": "uwf_git.ext.fleet.worker",
    "a hand": "uwf_git.ext.fleet.step_process",
}
MOST = {"the server": 250, "a worker": 150, "a hand": 150}
_POLL = 0.2


def dispatching(folder: Path, size: Size) -> Iterator[Row]:
    """Threads of five steps by an agent that answers at once. What a fleet takes to begin and to end is left out: a
    large one is compared with a small one."""
    found: dict[str, int] = {}

    def seconds(threads: int) -> float:
        lab = Lab(folder / str(threads), FIVE.encode())
        for _ in range(threads):
            lab.start()
        with _peaks(lab.root, found):
            return run([UWF, "fleet", "run", "--all", "--workers", str(WORKERS)], lab.environ)

    few, many = size.batch, 4 * size.batch
    small, large = seconds(few), seconds(many)
    steps = (many - few) * len(_STEPS)
    yield cost(f"a step of uwf fleet run --workers {WORKERS}, of {steps}", (large - small) / steps, 1 / 15)
    for kind, most in MOST.items():
        yield Row(f"memory of {kind}, at most", found.get(kind, 0) / 1e6, "MB", None, most)


@contextmanager
def _peaks(root: Path, found: dict[str, int]) -> Iterator[None]:
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
                    found[kind] = max(found.get(kind, 0), peak)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
