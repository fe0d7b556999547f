"""A command that is stopped at any instant leaves the old state or the new one, and the next command finishes the job.

By default a sample of the instants is tried; UWF_TEST_FAULTS=all tries every one, which is what `make faults` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from conftest import Uwf
from crash_scenarios import SCENARIOS, Run
from disk_states import cut, killed
from programs import program

ALL = os.environ.get("UWF_TEST_FAULTS") == "all"
SAMPLE = 2  # of the instants of a command, where not all are tried
CUTS = 3  # what a power cut may leave at one instant is drawn so often
POOLED = ("thread run -j", "thread run of a fan-out", "thread run of a script")
Tell = Callable[[str, object], None]


_runs: dict[str, Run] = {}


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    uwf: Uwf,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """The traced run of a scenario, which its tests share. The user's state is in its world: a stop finds it as old as
    the store."""
    program("strace")
    name = request.param
    folder = _runs[name].world.folder.parent if name in _runs else tmp_path_factory.mktemp("run")
    world = folder / "world"
    monkeypatch.setenv("XDG_STATE_HOME", str(world / "state"))
    if name not in _runs:
        run = Run(SCENARIOS[name], folder, uwf)
        unlike = killed(run.before, run.calls, len(run.calls)).differs(run.world.folder)
        assert not unlike, f"the calls that were seen don't explain {unlike}"
        _runs[name] = run
    _runs[name].world = _runs[name].world._replace(uwf=uwf)
    return _runs[name]


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", SCENARIOS, indirect=True)
def test_a_kill_at_any_instant_leaves_the_old_state_or_the_new(run: Run, record_property: Tell) -> None:
    violations = []
    for at in _chosen(run):
        killed(run.before, run.calls, at).make(run.world.folder)
        violations += [f"{run.where(at)}: {each}" for each in run.wrong()]
    _report(record_property, "kill", run, len(_chosen(run)), violations)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", SCENARIOS, indirect=True)
def test_a_power_cut_at_any_instant_leaves_the_old_state_or_the_new(run: Run, record_property: Tell) -> None:
    violations, tried = [], 0
    for at in _chosen(run):
        for seed in range(CUTS if ALL else 1):
            chance = Random(f"{run.scenario.name} {at} {seed}")
            cut(run.before, run.calls, at, chance).make(run.world.folder, chance)
            _started_anew(run.world.folder)
            violations += [f"{run.where(at)}, seed {seed}: {each}" for each in run.wrong(is_cut=True)]
            tried += 1
    _report(record_property, "power cut", run, tried, violations)


def _started_anew(folder: Path) -> None:
    """A power cut ends with a start of the machine, which here has none: what was there before is made as old."""
    for path in folder.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)


def _chosen(run: Run) -> list[int]:
    every = run.instants()
    return every if ALL else sorted(Random(run.scenario.name).sample(every, min(SAMPLE, len(every))))


def _report(record_property: Tell, how: str, run: Run, tried: int, violations: list[str]) -> None:
    record_property("fault", [run.scenario.name, how, tried, len(violations)])
    assert not violations, f"{len(violations)} violations:\n" + "\n".join(violations[:40])


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", SCENARIOS, indirect=True)
def test_one_process_that_is_killed_within_a_call_leaves_the_old_state_or_the_new(
    run: Run, record_property: Tell
) -> None:
    """As above with the kernel's own SIGKILL: its parents and children go on, and find out."""
    numbers = [(kind, number) for kind, number, _ in run.numbered() if not kind.startswith("open")]
    chosen = numbers if ALL else Random(run.scenario.name).sample(numbers, 1)
    violations = []
    for kind, number in chosen:
        done = run.again("-e", f"trace={kind}", "-e", f"inject={kind}:signal=KILL:when={number}")
        if "Traceback" in done.stderr:
            violations.append(f"{kind} {number}: {done.stderr[-300:]}")
        violations += [f"{kind} {number}: {each}" for each in run.wrong_otherwise()]
    _report(record_property, "kill of one process", run, len(chosen), violations)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", ["push", "pull", "gc"], indirect=True)
def test_a_git_that_is_killed_within_a_call_leaves_the_old_state_or_the_new(
    run: Run, record_property: Tell
) -> None:
    """As above with the gits that a command starts, and what these start: `uwf` goes on, and finds out."""
    every = run.of_git()
    chosen = every if ALL else Random(run.scenario.name).sample(every, 1)
    violations = []
    for number, kind, which in chosen:
        done = run.again_without_git(number, kind, which)
        if "Traceback" in done.stderr:
            violations.append(f"git {number}, {kind} {which}: {done.stderr[-300:]}")
        violations += [f"git {number}, {kind} {which}: {each}" for each in run.wrong_otherwise()]
    _report(record_property, "kill of a git", run, len(chosen), violations)


@pytest.mark.timeout(7200 if ALL else 300)
@pytest.mark.parametrize("run", POOLED, indirect=True)
def test_a_warm_process_that_is_killed_within_a_call_leaves_the_old_state_or_the_new(
    run: Run, record_property: Tell
) -> None:
    """As above with the processes that a command has forked off another and gives one call after the other."""
    every = run.of_pool()
    # Which process comes to how many calls is chance, so some instants are there in one run alone.
    chosen = every if ALL else Random(run.scenario.name).sample(every, min(len(every), 10 * SAMPLE))
    violations, killed = [], 0
    for kind, which in chosen:
        if not ALL and killed == SAMPLE:
            break
        done, was_killed = run.again_without_warm(kind, which)
        killed += was_killed
        if "Traceback" in done.stderr:
            violations.append(f"warm {kind} {which}: {done.stderr[-300:]}")
        violations += [f"warm {kind} {which}: {each}" for each in run.wrong_otherwise()]
    assert killed >= (len(chosen) // 2 if ALL else SAMPLE), f"{killed} of {len(chosen)} were killed"
    _report(record_property, "kill of a warm process", run, killed, violations)
