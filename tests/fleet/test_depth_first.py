"""A thread that is begun is stepped to its end before another one is begun, so that a budget leaves whole threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from cli_samples import write
from complete import examine
from conftest import Uwf
from fleets import FIVE, STEPS, steps_told
from workflows import start_thread

from uwf_git.api.listing import depth_first
from uwf_git.api.run import Options, step
from uwf_git.ext.fleet.client import connect
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.messages import priority_of
from uwf_git.ext.fleet.server import Server
from uwf_git.store.instance import Instance

DEAR = """\
from uwf_git.kit import Reply, Usage, create_agent

def answer(context):
    return Reply("---\\ntext: said\\n---\\n", "session", model="acme", usage=Usage(10, 2), cost=0.25)

create_agent("dear", answer).main()
"""


def start(uwf: Uwf, many: int) -> list[str]:
    uwf("workflow", "put", write("five.yaml", FIVE))
    return [str(uwf("thread", "start", "five", "-p", f"Say {each}").json["thread"]) for each in range(many)]


def test_money_for_half_of_the_work_leaves_whole_threads(
    uwf: Uwf, root: Path, script: Callable[[str, str], Path]
) -> None:
    threads = start(uwf, 4)
    dear = ["--agent", str(script("dear", DEAR)), "--max-cost", str(2 * STEPS * 0.25)]
    held = uwf("fleet", "run", "--all", *dear, check=5, timeout=100)
    ended = [each["thread"] for each in steps_told(held.out) if each["done"]]
    assert ended == threads[:2] and "its budget is used up, $2.50 of $2.50" in held.error["message"]
    assert examine(root / "store.git").steps.items() >= dict.fromkeys(ended, STEPS).items()
    begun = {each["thread"]: each["steps"] for each in uwf("thread", "list").json}
    assert sum(map(bool, begun.values())) <= 1, begun


def test_the_server_hears_how_far_along_the_thread_of_a_step_is(uwf: Uwf, tmp_path: Path) -> None:
    (thread,) = start(uwf, 1)
    with Server(tmp_path / "server") as server:
        # With a budget each step is an activity of its own, here one that suffices.
        uwf("fleet", "run", thread, "--max-time", "1h", "--address", server.address, timeout=100)

        async def priorities() -> list[int]:
            client = await connect(Endpoint(server.address))
            return [
                event.activity_task_scheduled_event_attributes.priority.priority_key
                async for event in client.get_workflow_handle(thread).fetch_history_events()
                if event.HasField("activity_task_scheduled_event_attributes")
            ]

        assert asyncio.run(priorities()) == [5, 4, 3, 3, 2]


def test_priorities_rise_with_the_steps_and_stay_within_those_of_a_server() -> None:
    assert [priority_of(depth) for depth in (0, 1, 2, 3, 4, 7, 8, 5000)] == [5, 4, 3, 3, 2, 2, 1, 1]


def test_threads_of_a_filter_run_those_furthest_along_first(uwf: Uwf, instance: Instance) -> None:
    old, middle, begun = (start_thread(instance, FIVE) for _ in range(3))
    step(instance, begun, Options())
    assert depth_first(instance, [old, middle, begun]) == [begun, old, middle]
    run = uwf("thread", "run", "--all").out.split()
    assert run.index(begun) < run.index(old) < run.index(middle) if begun in run else run
