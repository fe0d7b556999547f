"""A command that is stopped at any instant leaves the old state or the new one, and the next command finishes the job.

By default a sample of the instants is tried; UWF_TEST_FAULTS=all tries every one, which is what `make faults` does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from commands import UWF
from conftest import Uwf
from crash_scenarios import SCENARIOS, Scenario, made, wrong_with
from disk_states import CHANGING, cut, killed, trace
from git_servers import program

ALL = os.environ.get("UWF_TEST_FAULTS") == "all"
SAMPLE = 4  # of the instants of a command, where not all are tried
CUTS = 3  # what a power cut may leave at one instant is drawn so often
Tell = Callable[[str, object], None]


class Run:
    """A command that was traced once in the world of its scenario: the folder before, its calls, the refs it made."""

    def __init__(self, scenario: Scenario, folder: Path, uwf: Uwf) -> None:
        self.scenario = scenario
        self.world = made(scenario, folder / "world", uwf)
        self.before = folder / "before"
        shutil.copytree(self.world.folder, self.before, symlinks=True)
        self.old = self.world.refs()
        root = self.world.folder / scenario.root
        command = [*UWF, "--root", str(root), *scenario.command(self.world)]
        self.calls = trace(command, self.world.folder, folder / "strace.log")
        self.new = self.world.refs()
        assert self.new != self.old or scenario.name in ("gc", "cas reindex")

    def instants(self) -> list[int]:
        """The numbers of calls that change something, and the end; of these a few where not all are wanted."""
        every = [n for n, call in enumerate(self.calls) if call.kind != "sync"] + [len(self.calls)]
        if ALL:
            return every
        chance = Random(self.scenario.name)
        return sorted(chance.sample(every, min(SAMPLE, len(every))))

    def wrong(self) -> list[str]:
        """What isn't as it should be in the world as it is now."""
        return wrong_with(self.world, self.scenario, self.old, self.new)

    def where(self, at: int) -> str:
        return f"before {at}: {self.calls[at]}" if at < len(self.calls) else "at the end"


@pytest.fixture
def run(request: pytest.FixtureRequest, uwf: Uwf, tmp_path: Path) -> Run:
    """The traced run of a scenario."""
    program("strace", "strace")
    return Run(SCENARIOS[request.param], tmp_path, uwf)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", SCENARIOS, indirect=True)
def test_a_kill_at_any_instant_leaves_the_old_state_or_the_new(run: Run, record_property: Tell) -> None:
    unlike = killed(run.before, run.calls, len(run.calls)).differs(run.world.folder)
    assert not unlike, f"the calls that were seen don't explain {unlike}"
    violations = []
    for at in run.instants():
        killed(run.before, run.calls, at).make(run.world.folder)
        violations += [f"{run.where(at)}: {each}" for each in run.wrong()]
    _report(record_property, "kill", run, len(run.instants()), violations)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", SCENARIOS, indirect=True)
def test_a_power_cut_at_any_instant_leaves_the_old_state_or_the_new(run: Run, record_property: Tell) -> None:
    violations, tried = [], 0
    for at in run.instants():
        for seed in range(CUTS if ALL else 1):
            chance = Random(f"{run.scenario.name} {at} {seed}")
            cut(run.before, run.calls, at, chance).make(run.world.folder, chance)
            violations += [f"{run.where(at)}, seed {seed}: {each}" for each in run.wrong()]
            tried += 1
    _report(record_property, "power cut", run, tried, violations)


def _report(record_property: Tell, how: str, run: Run, tried: int, violations: list[str]) -> None:
    record_property("fault", [run.scenario.name, how, tried, len(violations)])
    assert not violations, f"{len(violations)} violations:\n" + "\n".join(violations[:40])


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_process_that_is_killed_within_a_call_leaves_the_old_state_or_the_new(
    name: str, uwf: Uwf, tmp_path: Path, record_property: Tell
) -> None:
    """As above with the kernel's own SIGKILL: its parents and children go on, and find out."""
    run = Run(SCENARIOS[name], tmp_path, uwf)
    numbers = [
        (kind, n) for kind, count in _counts(tmp_path / "strace.log").items() for n in range(1, count + 1)
    ]
    chosen = numbers if ALL else Random(name).sample(numbers, 1)
    violations = []
    for kind, number in chosen:
        shutil.rmtree(run.world.folder)
        shutil.copytree(run.before, run.world.folder, symlinks=True)
        stop = f"inject={kind}:signal=KILL:when={number}"
        strace = [
            program("strace", "strace"),
            "-f",
            "-qq",
            "-o",
            str(tmp_path / "log"),
            "-e",
            f"trace={kind}",
            "-e",
            stop,
        ]
        command = [
            *UWF,
            "--root",
            str(run.world.folder / run.scenario.root),
            *run.scenario.command(run.world),
        ]
        done = subprocess.run([*strace, *command], capture_output=True, text=True, check=False, timeout=120)
        if "Traceback" in done.stderr:
            violations.append(f"{kind} {number}: {done.stderr[-300:]}")
        # What this run makes has other times than the traced one, and so other ids.
        clean, run.new = run.new, run.world.refs()
        run.new |= {name: oid for name, oid in run.old.items() if name in clean and name not in run.new}
        violations += [f"{kind} {number}: {each}" for each in run.wrong()]
        run.new = clean
    _report(record_property, "kill of one process", run, len(chosen), violations)


def _counts(log: Path) -> dict[str, int]:
    """How often the command's own process made each call that changes something."""
    lines = log.read_text(errors="replace").splitlines()
    first = lines[0].partition(" ")[0]
    counts = dict.fromkeys(CHANGING.split(","), 0)
    for line in lines:
        process, _, rest = line.partition(" ")
        if process == first and (kind := rest.strip().partition("(")[0]) in counts and "O_RDONLY" not in rest:
            counts[kind] += 1
    return {kind: count for kind, count in counts.items() if kind not in ("open", "openat")}
