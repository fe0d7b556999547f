"""A thread with many branches on three machines that share a remote, and somebody who kills their processes all the
time; then git alone says whether each branch was joined exactly once, and a log of the agent what was asked.

    python tests/fan_out/killing_branches.py --branches 200 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "doubles")]

from commands import UWF, git

WORKFLOW = """\
name: many
description: Does each of many things.
roles:
  lister:
    description: Lists them.
    systemPrompt: List them.
    outputSchema: {type: object, properties: {things: {type: array, items: {type: integer}}}, required: [things]}
  doer:
    description: Does one.
    systemPrompt: Do it.
    outputSchema: {type: object, properties: {done: {type: integer}}, required: [done]}
  adder:
    description: Adds them up.
    systemPrompt: Add them up.
    outputSchema: {type: object, properties: {total: {type: integer}}, required: [total]}
graph:
  $START: [{role: lister}]
  lister: [{each: $last().things, role: doer, prompt: "{{ item }}", max: 10000, join: adder}]
  adder: [{role: $END}]
"""

AGENT = """\
import json, os, sys, time
from uwf_git.kit import Reply, create_agent


def note(*words):
    descriptor = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (" ".join(map(str, words)) + "\\n").encode())
    os.close(descriptor)


def run(ctx):
    task = ctx.history.start.prompt.strip()
    note("asked", ctx.role.name, task, time.time())
    if ctx.role.name == "lister":
        output = {{"things": list(range({branches}))}}
    elif ctx.role.name == "doer":
        time.sleep(0.05)
        output = {{"done": int(task)}}
    else:
        output = {{"total": 0}}
    return Reply(json.dumps(output), output=output)


create_agent("uwf-counted", run, lambda ctx, session, message: run(ctx)).main()
"""


class Soaked(NamedTuple):
    """What became of a run: how many joins the fork has, the branches that are `lost`, those that were asked for more
    often than kills explain (`again`), calls in all, kills, and what verification says (its exit status)."""

    joins: int
    lost: list[int]
    again: list[int]
    asked: int
    kills: int
    verified: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        return self.joins == 1 and not self.lost and not self.again and self.verified == 0


class _Machine:
    """A store of its own, and the processes that work in it. What it does is its share of the branches."""

    def __init__(self, folder: Path, name: str, agent: str) -> None:
        self.root = folder / name
        self.env = {**os.environ, "UWF_STORAGE_ROOT": str(self.root)}
        self.agent = agent
        self.process: subprocess.Popen[bytes] | None = None

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*UWF, *words], env=self.env, text=True, capture_output=True, check=check, timeout=300
        )

    def begin(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*UWF, *words],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> bool:
        """Kill what it runs, with all its children; return whether there was anything."""
        if self.process is None or self.process.poll() is not None:
            return False
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

    def ended(self, branches: list[str]) -> set[str]:
        """The branches that have ended here, as plain git has them."""
        listed = git(
            "--git-dir", self.root / "store.git", "for-each-ref", "--format=%(refname)", "refs/uwf/archive/"
        )
        return {line.rpartition("/")[2] for line in listed.splitlines()} & {*branches}


def soak(folder: Path, branches: int, seed: int, between: float = 1.0, at_once: int = 4) -> Soaked:
    """Run a thread with so many branches on three machines, and kill all that one of them runs about every so many
    seconds."""
    chance, began = random.Random(seed), time.monotonic()
    log, remote, workflow = folder / "log", folder / "remote.git", folder / "many.yaml"
    workflow.write_text(WORKFLOW)
    program = folder / "agent.py"
    program.write_text(AGENT.format(log=str(log), branches=branches))
    git("init", "-q", "--bare", remote)
    agent = f"{sys.executable} {program}"
    first, *others = (_Machine(folder, name, agent) for name in ("ada", "bob", "eve"))
    first.call("init")
    first.call("remote", "add", "origin", str(remote))
    first.call("workflow", "put", str(workflow))
    thread = json.loads(first.call("thread", "start", "many", "-p", "Do them").stdout)["thread"]
    for _ in range(2):
        first.call("thread", "step", thread, "--agent", agent)
    first.call("push")
    for other in others:
        other.call("clone", str(remote))
    shown = json.loads(first.call("thread", "show", thread).stdout)
    ids = [each["thread"] for each in shown["branches"]["each"]]
    machines = [first, *others]
    shares = {machine: ids[number::3] for number, machine in enumerate(machines)}
    kills = 0
    while busy := [each for each in machines if {*shares[each]} - each.ended(ids)]:
        for machine in busy:
            if machine.process is None or machine.process.poll() is not None:
                left = sorted({*shares[machine]} - machine.ended(ids))
                words = ["-j", str(at_once), "--agent", agent, "--remote", "origin", "-q"]
                machine.begin("thread", "run", *left[: 4 * at_once], *words)
        time.sleep(chance.uniform(0.3, 1.7) * between)
        kills += chance.choice(machines).kill()
    for machine in machines:
        machine.call("pull", check=False)
        machine.call("push", check=False)
    first.call("pull")
    first.call("thread", "run", thread, "--agent", agent)
    first.call("push")
    return _examined(first, thread, ids, log, kills, at_once, time.monotonic() - began)


def _examined(
    machine: _Machine, thread: str, ids: list[str], log: Path, kills: int, at_once: int, seconds: float
) -> Soaked:
    store = machine.root / "store.git"
    head = git("--git-dir", store, "rev-parse", f"refs/uwf/archive/{thread}^{{commit}}")
    subjects = git("--git-dir", store, "log", "--format=%H %s", "--first-parent", head).splitlines()
    joins = [line.split()[0] for line in subjects if " $JOIN" in line]
    made = collections.Counter(
        line.split(" ", 2)[2] for line in log.read_text().splitlines() if line.startswith("asked doer")
    )
    tasks = collections.Counter(task.split()[0] for task in made.elements())
    joined = (
        git("--git-dir", store, "rev-list", "--parents", "-n", "1", joins[0]).split()[2:] if joins else []
    )
    tips = [git("--git-dir", store, "rev-parse", f"refs/uwf/archive/{each}^{{commit}}") for each in ids]
    lost = [number for number, tip in enumerate(tips) if tip not in joined]
    # Each kill may waste the calls that were under way, and no others are made twice.
    wasted = sum(tasks.values()) - len(tasks)
    again = [int(task) for task, count in tasks.items() if count > 1] if wasted > kills * at_once else []
    verified = machine.call("verify", check=False).returncode
    return Soaked(len(joins), lost, again, sum(tasks.values()), kills, verified, seconds)


def main() -> None:
    """Exits with 1 if a branch was lost, joined twice or asked again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--branches", type=int, default=200, help="how many (200)")
    parser.add_argument("--between", type=float, default=2, help="seconds between two kills, about (2)")
    parser.add_argument("--seed", type=int, default=0, help="what the choices follow from")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = soak(Path(folder), options.branches, options.seed, options.between)
    print(
        f"{options.branches} branches, {done.joins} join, {len(done.lost)} lost;"
        f" {done.asked} calls with {done.kills} kills, {len(done.again)} asked too often;"
        f" verify {done.verified}; {done.seconds:.0f} s"
    )
    sys.exit(0 if done.is_sound else 1)


if __name__ == "__main__":
    main()
