"""Whatever kills a command that sends something, and whenever: it arrives once, and none is forgotten."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from random import Random

import pytest
from conftest import Uwf
from crash_scenarios import SCENARIOS, Run
from disk_states import cut, killed
from programs import program

pytestmark = [pytest.mark.extended, pytest.mark.timeout(3600)]

ALL = os.environ.get("UWF_TEST_FAULTS") == "all"
CUTS = 9 if ALL else 1
"""How many disks are drawn for each instant of a power cut."""


@pytest.fixture
def run(uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    program("strace")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "world" / "state"))
    return Run(SCENARIOS["effect run"], tmp_path, uwf)


def test_a_kill_at_any_instant_doubles_and_forgets_nothing(run: Run) -> None:
    instants, arrived, violations = run.instants(), set(), []
    for at in instants:
        killed(run.before, run.calls, at).make(run.world.folder)
        arrived.add((run.world.folder / "sent").exists())
        violations += [f"{run.where(at)}: {item}" for item in run.wrong()]
    assert len(instants) >= 60 and arrived == {False, True}
    assert not violations, f"{len(violations)} of {len(instants)}:\n" + "\n".join(violations[:20])


def test_a_power_cut_at_any_instant_doubles_and_forgets_nothing(run: Run) -> None:
    violations = []
    for at, seed in product(run.instants(), range(CUTS)):
        chance = Random(f"effect {at} {seed}")
        cut(run.before, run.calls, at, chance).make(run.world.folder, chance)
        for path in run.world.folder.rglob("*"):  # the machine was started anew
            os.utime(path, (0, 0), follow_symlinks=False)
        violations += [f"{run.where(at)}, seed {seed}: {item}" for item in run.wrong(is_cut=True)]
    assert not violations, f"{len(violations)}:\n" + "\n".join(violations[:20])


def test_a_kill_of_the_command_alone_doubles_and_forgets_nothing(run: Run) -> None:
    """The command that it runs dies with it, so nothing arrives after somebody has looked."""
    violations, numbers = [], run.numbered()
    if not ALL:
        numbers = numbers[::2]
    for kind, number, _ in numbers:
        run.again("-e", f"trace={kind}", "-e", f"inject={kind}:signal=KILL:when={number}")
        violations += [f"{kind} {number}: {item}" for item in run.wrong_otherwise()]
    assert not violations, f"{len(violations)} of {len(numbers)}:\n" + "\n".join(violations[:20])
