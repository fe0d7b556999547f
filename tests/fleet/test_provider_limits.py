"""How often a provider is asked: whom a step asks, so many at a time, and later where that is wanted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR
from workflows import start_thread

from uwf_git.base.errors import Throttled
from uwf_git.config.read import check_config, load_config
from uwf_git.config.settings import Rates
from uwf_git.ext.fleet.limits import Gate, impatient, next_queue, queues
from uwf_git.store.instance import Instance

PROVIDERS = """\
providers:
  east: { baseUrl: "http://localhost:1/v1", limits: { stepsPerSecond: 0.5, concurrentSteps: 2 } }
  west: { baseUrl: "http://localhost:2/v1" }
  claude-code: { limits: { concurrentSteps: 3, wait: 500ms } }
  "a b/../c": { limits: { concurrentSteps: 1 } }
models:
  large: { provider: east, name: l }
  small: { provider: west, name: s }
defaultModel: large
agents:
  careful: { command: claude, args: [--model, opus] }
  odd: { command: sh, args: [-c, "true"] }
  "a b/../c": { command: sh }
"""


@pytest.mark.parametrize(
    ("agent", "queue"),
    [
        ("uwf-llm", "uwf.east"),
        ("uwf-llm --model small", "uwf.west"),
        ("uwf-builtin --model small", "uwf.west"),
        ("uwf-llm --model none-such", "uwf"),
        ("claude-code", "uwf.claude-code"),
        ("careful", "uwf.claude-code"),
        ("codex", "uwf"),
        ("odd", "uwf"),
        ("a b/../c", "uwf.a b/../c"),
        ("uwf-rehearse", "uwf"),
        ("none-such", "uwf"),
    ],
)
def test_a_step_goes_to_the_queue_of_the_provider_that_its_agent_asks(
    agent: str, queue: str, instance: Instance, config: Callable[[str], Path]
) -> None:
    config(PROVIDERS)
    head = instance.threads.head(start_thread(instance, PAIR))
    assert next_queue(instance, head, "writer", agent) == queue
    assert queue in queues(instance.config)


def test_the_limits_are_those_of_the_configuration_and_agents_of_a_fleet_dont_wait_long(
    config: Callable[[str], Path], root: Path
) -> None:
    config(PROVIDERS)
    known = load_config(root)
    assert check_config(root) == []
    assert queues(known) == {
        "uwf": Rates(),
        "uwf.east": Rates(0.5, 2),
        "uwf.west": Rates(),
        "uwf.claude-code": Rates(None, 3, 0.5),
        "uwf.a b/../c": Rates(None, 1),
    }
    assert {each.limits.wait for each in impatient(known).providers.values()} == {2.0, 0.5}


HOLD = """\
import asyncio, sys
from pathlib import Path
from uwf_git.config.settings import Rates
from uwf_git.ext.fleet.limits import Gate

async def hold():
    async with Gate(Path(sys.argv[1]), "east", Rates(None, 2)).turn():
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


def test_so_many_steps_at_a_time_whichever_worker_makes_them_and_a_killed_one_holds_none(
    instance: Instance,
) -> None:
    private = instance.store.repository.private
    private.mkdir(parents=True, exist_ok=True)
    gate = Gate(private, "east", Rates(None, 2))
    other = subprocess.Popen([sys.executable, "-c", HOLD, private], stdout=subprocess.PIPE, text=True)

    async def many() -> list[int]:
        at_once, most = 0, [0]

        async def step() -> None:
            nonlocal at_once
            async with gate.turn():
                at_once += 1
                most.append(at_once)
                await asyncio.sleep(0.01)
                at_once -= 1

        await asyncio.gather(*(step() for _ in range(6)))
        return most

    try:
        assert other.stdout and other.stdout.readline() == "held\n"
        assert max(asyncio.run(many())) == 1
    finally:
        other.kill()
        other.wait()
    assert max(asyncio.run(many())) == 2


def test_a_provider_that_refuses_is_left_alone_by_all_and_others_are_not(instance: Instance) -> None:
    private = instance.store.repository.private
    here, there = Gate(private, "east"), Gate(private, "east", Rates(None, 5))
    assert here.open_at() == 0
    until = here.back_off(Throttled("east", 0.5))
    assert there.open_at() == until and Gate(private, "west").open_at() == 0
    assert there.back_off(Throttled("east", 0.1)) == until, "a shorter wish doesn't open it earlier"

    async def ask() -> float:
        async with there.turn():
            return time.time()

    assert asyncio.run(ask()) >= until


def test_one_that_doesnt_say_when_is_left_alone_longer_each_time(instance: Instance) -> None:
    gate = Gate(instance.store.repository.private, "east")
    first = gate.back_off(Throttled("east"))
    assert gate.back_off(Throttled("east")) - time.time() <= 1, "all who were refused at once are one refusal"
    (instance.store.repository.private / "fleet" / "providers" / "east.later").write_text(
        f"[{time.time() - 1}, {8.0}]"
    )
    assert gate.back_off(Throttled("east")) - time.time() > 15
    assert first < gate.open_at()
    for broken in ("", "[", '{"a": 1}', "[null, 2]"):
        (instance.store.repository.private / "fleet" / "providers" / "east.later").write_text(broken)
        assert gate.open_at() == 0
