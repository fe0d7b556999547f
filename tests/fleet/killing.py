"""Many threads, a fleet, and somebody who kills its workers, their hands and its server all the time; then git alone
says of each thread whether it is complete exactly once.

    python tests/fleet/killing.py --threads 1000 --workers 4 --jobs 2 --remote
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "doubles")]

from commands import UWF, git
from complete import Found, examine
from fleets import FIVE, HAND, SERVER, STEPS, WORKER, processes
from workflows import opened, register

from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid
from uwf_git.store.location import init, locate

KINDS = (WORKER, WORKER, HAND, HAND, SERVER)
"""What is killed, the likelier the oftener it stands here."""
GAVE_UP = ("the workers of the fleet end as soon as they begin", "no Temporal server answers at ")
"""What a fleet ends with if its workers, or the server before these have met it, were killed five times as they began,
as on a machine that is busy; then it is begun again."""


class Soaked(NamedTuple):
    """What became of a run: what git says of the threads, how many of each kind were killed, the steps that workers
    told of, the seconds it took, the exit status, and what was said on standard error."""

    found: Found
    killed: dict[str, int]
    told: int
    seconds: float
    status: int
    said: str


def soak(
    root: Path, threads: int, workers: int, jobs: int, between: float, seed: int, remote: bool = False
) -> Soaked:
    """Runs a fleet of so many threads in a new store at `root`, and kills something about every so many seconds. With
    `remote` they are shared through a bare repository beside it, which is what is looked at in the end."""
    os.environ["UWF_STORAGE_ROOT"] = str(root)
    init(locate(None, os.environ, Path.cwd()))
    instance = opened()
    version = register(instance, FIVE)
    for number in range(threads):
        instance.threads.start(Oid(hex=version.commit), Start(version.hash, f"Say {number}"))
    store, options = root / "store.git", ["--workers", str(workers), "-j", str(jobs)]
    if remote:
        store = root.parent / "bare.git"
        git("init", "-q", "--bare", store)
        instance.remotes.add("origin", str(store))
        subprocess.run([*UWF, "push", "origin", "--all"], stdout=subprocess.DEVNULL, check=True)
        options += ["--remote", "origin"]
    chance, killed, began = random.Random(seed), collections.Counter[str](), time.monotonic()
    with open(root / "told", "wb") as out, open(root / "said", "wb") as said:
        options += ["--heartbeat", "3", "--tries", "10"]
        command = [*UWF, "fleet", "run", "--all", *options]
        fleet = subprocess.Popen(command, stdout=out, stderr=said)
        try:
            while not _ended(fleet, chance.uniform(0.3, 1.7) * between) or _gave_up(fleet, root / "said"):
                if fleet.returncode is not None:
                    fleet = subprocess.Popen(command, stdout=out, stderr=said)
                kind = chance.choice(KINDS)
                if found := processes(kind, root):
                    try:
                        os.kill(chance.choice(found), 9)
                    except ProcessLookupError:
                        continue
                    killed[kind] += 1
        finally:
            fleet.kill()
            fleet.wait()
    took = time.monotonic() - began
    told = (root / "told").read_text().splitlines()
    assert all(json.loads(line)["head"] for line in told)
    return Soaked(
        examine(store, STEPS),
        dict(killed),
        len(told),
        took,
        fleet.returncode,
        (root / "said").read_text(),
    )


def _gave_up(fleet: subprocess.Popen[bytes], said: Path) -> bool:
    lines = said.read_text().splitlines()
    return bool(fleet.returncode and lines and any(text in lines[-1] for text in GAVE_UP))


def _ended(process: subprocess.Popen[bytes], within: float) -> bool:
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> None:
    """Exits with 1 where a thread isn't complete exactly once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1000, help="how many, of five steps each (1000)")
    parser.add_argument("--workers", type=int, default=2, help="how many (2)")
    parser.add_argument("--jobs", type=int, default=2, help="steps of each at once (2)")
    parser.add_argument("--between", type=float, default=3, help="seconds between two kills, about (3)")
    parser.add_argument("--seed", type=int, default=0, help="what the choices follow from")
    parser.add_argument("--remote", action="store_true", help="share the threads through a repository")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = soak(
            Path(folder) / "root",
            options.threads,
            options.workers,
            options.jobs,
            options.between,
            options.seed,
            options.remote,
        )
    for thread, problems in list(done.found.wrong.items())[:20]:
        print(f"{thread}: {'; '.join(problems)}")
    steps = sum(done.found.steps.values())
    kills = ", ".join(f"{many} × {kind}" for kind, many in sorted(done.killed.items()))
    print(
        f"{len(done.found.steps)} threads complete, with {steps} steps; {len(done.found.wrong)} not;"
        f" {done.found.lost} steps lost, {done.found.doubled} doubled"
    )
    pace = f"{done.seconds:.0f} s, {steps / done.seconds:.1f} steps a second"
    print(f"{pace}, killed: {kills or 'nothing'}; exit {done.status}")
    if done.status or done.found.wrong:
        print(done.said[-3000:])
    sys.exit(1 if done.found.wrong or done.status else 0)


if __name__ == "__main__":
    main()
