"""What a step of an agent in the engine's process asks of the disk: counted by strace, not timed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from programs import program

from uwf_git.git.fsync import keeps_order
from uwf_git.git.packing import MANY

pytestmark = pytest.mark.needs("strace")

LOOP = """\
name: loop
description: One role, again and again.
roles:
  r: {description: R, systemPrompt: Do., outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}}
graph:
  $START: [{role: r}]
  r: [{role: r, condition: again}, {role: $END}]
conditions:
  again: {description: It goes on., expression: 'steps[-1].output.n > 0'}
"""
STEPS = """
import sys
from pathlib import Path
from uwf_git.api.run import Options, step
from uwf_git.base.errors import UwfError
from uwf_git.kit import Reply, TurnRecord, create_agent
from uwf_git.store.instance import Instance

thread, steps, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def run(ctx):
    past = len(ctx.history.steps)
    thoughts = tuple(TurnRecord("assistant", f"I think of {number} at step {past}.") for number in range(turns))
    for thought in thoughts:
        ctx.record(thought)
    left = steps - past - 1
    return Reply(f"---\\nn: {left}\\n---\\nDone with {left}.", turns=thoughts)

agent, instance = create_agent("thinker", run), Instance.open()
for number in range(steps):
    print("STEP", file=sys.stderr, flush=True)
    try:
        step(instance, thread, Options(agent, Path.cwd()))
    except UwfError as error:
        sys.exit(error.code)
print("STEP", file=sys.stderr, flush=True)
"""


def traced(hermetic: Path, thread: str, steps: int, turns: int) -> tuple[str, list[str]]:
    """What went wrong in the steps of a thread, if anything, and their calls that wait for the disk, open, write or
    remove files."""
    log = hermetic / "strace.log"
    kinds = "write,fsync,fdatasync,sync_file_range,syncfs,sync,msync,openat,unlink"
    command = [program("strace"), "-f", "-qq", "-y", "-o", str(log), "-e", f"trace={kinds}", "-s", "8"]
    command += [sys.executable, "-c", STEPS, thread, str(steps), str(turns)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr.replace("STEP\n", ""), log.read_text(errors="replace").splitlines()


def started(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "loop.yaml").write_text(LOOP)
    return str(uwf("thread", "start", hermetic / "loop.yaml", "-p", "Do it").json["thread"])


def calls_of_steps(uwf: Uwf, hermetic: Path, steps: int, turns: int) -> list[Counter[str]]:
    """The calls of each step of a thread, which ends with the last."""
    thread = started(uwf, hermetic)
    problem, lines = traced(hermetic, thread, steps, turns)
    assert not problem
    counts: list[Counter[str]] = []
    for line in lines:
        if re.search(r'write\(2<[^>]*>, "STEP', line):
            counts.append(Counter())
        elif counts and (call := re.match(r"\d+ +(\w+)\(", line)):
            counts[-1][call[1]] += 1
    assert uwf("thread", "show", thread).json["status"] == "completed"
    return counts[:-1]


def waits(calls: Counter[str]) -> int:
    return sum(number for kind, number in calls.items() if "sync" in kind)


@pytest.mark.parametrize("turns", [0, 3])
def test_a_step_waits_for_its_pack_and_its_ref_alone(
    uwf: Uwf, hermetic: Path, root: Path, turns: int
) -> None:
    first, *steps, last = calls_of_steps(uwf, hermetic, 2 * MANY, turns)
    git = root / "store.git"
    # The pack, its index and the ref's file, together; the names of the pack, then that of the ref.
    once = 4 if keeps_order(git / "objects/pack", git / "refs/uwf/threads") else 5
    joining = 3  # another pack, its index, their names
    assert waits(first) <= once + 2  # the folders of its notes and of locks
    counts = Counter(map(waits, steps))
    assert counts.keys() <= {once, once + joining} and counts[once] > len(steps) * 3 // 4, counts
    assert waits(last) <= once + 3 + joining, last  # the end's ref, and the removal of the active one


def test_a_step_opens_and_removes_as_many_files_late_as_early(uwf: Uwf, hermetic: Path) -> None:
    _, *steps, _ = calls_of_steps(uwf, hermetic, 3 * MANY, 1)
    for kind, most in (("openat", 76), ("unlink", 36)):
        early, late = ([calls[kind] for calls in some] for some in (steps[:MANY], steps[-MANY:]))
        assert sorted(early)[MANY // 2] <= most, early
        assert sorted(late)[MANY // 2] <= most, late


@pytest.mark.parametrize(("why", "code"), [("its signature", "signing_failed"), ("a lock", "busy")])
def test_an_answer_that_waits_for_its_commit_is_on_the_disk_before(
    uwf: Uwf, hermetic: Path, root: Path, why: str, code: str
) -> None:
    thread = started(uwf, hermetic)
    lock = root / f"store.git/refs/uwf/threads/{thread}.lock"
    if why == "a lock":
        lock.touch()
    else:
        git("config", "--global", "gpg.program", "false")
        git("config", "--global", "commit.gpgSign", "true")
    problem, lines = traced(hermetic, thread, 1, 2)
    assert problem.strip() == code
    report = root / f"store.git/uwf/runs/{thread}.result"
    assert report.is_file() and any(f"<{report}>" in line and "fsync(" in line for line in lines)
    lock.unlink(missing_ok=True)
    git("config", "--global", "commit.gpgSign", "false")
    report.with_suffix(".contents").unlink()  # which nothing waited for
    asked = uwf("thread", "step", thread, "--agent", "false").json
    assert asked["role"] == "r" and len(uwf("thread", "turns", thread).json) == 2
