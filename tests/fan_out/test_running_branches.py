"""Branches are run side by side, by whoever comes, and nothing is asked twice."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import Begin, Uwf
from fan_outs import World, audit, failing, refused
from fleets import kill, parent, until

from uwf_git.api import run as api_run
from uwf_git.api.fan_out import at_once, branches_of
from uwf_git.base.errors import AgentFailed, NotRunning
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine.thread_state import thread_state
from uwf_git.format.endings import COMPLETED
from uwf_git.store.instance import Instance

FILES = ["a", "b", "c"]

# Says what each role says, once there is a file `go` for a fixer; appends to `asked` what it was asked, how many fixers
# are at work then, and its number.
PLAYER = """\
import json, os, time
from pathlib import Path
from uwf_git.kit import Reply, create_agent

def run(ctx):
    role, task = ctx.role.name, ctx.history.start.prompt
    here = Path("at-work", str(os.getpid()))
    if role == "fixer":
        here.touch()
    with open("asked", "a") as file:
        file.write(f"{role} {task} {len(list(here.parent.iterdir()))} {os.getpid()}\\n")
    while role == "fixer" and not Path("go").exists():
        time.sleep(0.02)
    here.unlink(missing_ok=True)
    output = {"files": ["a", "b", "c"]} if role == "planner" else {"text": f"{role}: {task}"}
    return Reply(json.dumps(output), output=output)

create_agent("uwf-player", run).main()
"""


@pytest.fixture
def world(instance: Instance, tmp_path: Path) -> World:
    made = World(instance, tmp_path, {"planner": {"files": FILES}}, [])
    made.put(audit(policy="atOnce: 2"))
    return made


class Processes:
    """A folder in which processes play the roles of a thread."""

    def __init__(self) -> None:
        Path("player.py").write_text(PLAYER)
        Path("at-work").mkdir()
        self.options = ("--cwd", ".", "--agent", f"{sys.executable} {Path('player.py').absolute()}")

    def asked(self) -> list[list[str]]:
        path = Path("asked")
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def fixers(self, many: int) -> list[list[str]]:
        """What fixers were asked, once there are so many."""

        def look() -> list[list[str]] | None:
            found = [each for each in self.asked() if each[0] == "fixer"]
            return found if len(found) >= many else None

        return until(look, f"{many} fixers")  # type: ignore[no-any-return]

    def let_go(self) -> None:
        Path("go").touch()


@pytest.fixture
def processes() -> Processes:
    return Processes()


def test_as_many_branches_run_at_the_same_time_as_the_edge_says(
    world: World, processes: Processes, uwf: Uwf, begin: Begin
) -> None:
    thread = world.start()
    running = begin("thread", "run", thread, *processes.options)
    assert len(processes.fixers(2)) == 2
    found = uwf("ps").json
    assert [each["parent"] for each in found] == [None, thread, thread]
    assert found[0]["branches"] == {"running": 2, "idle": 1}
    processes.let_go()
    running.communicate()
    assert running.returncode == 0
    assert sorted(each[0] for each in processes.asked()) == ["fixer"] * 3 + ["planner", "reviewer"]


def test_a_run_that_is_killed_leaves_its_branches_running_and_the_next_run_waits_for_them(
    world: World, processes: Processes, begin: Begin
) -> None:
    thread = world.start()
    first = begin("thread", "run", thread, *processes.options)
    processes.fixers(2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = begin("thread", "run", thread, *processes.options)
    until(lambda: world.instance.locks.is_run(thread), "second run")
    time.sleep(1)  # in which it would begin the third, if it didn't count those of the first run
    processes.let_go()
    _, err = second.communicate()
    assert second.returncode == 0, err
    assert sorted(each[-2] for each in processes.fixers(3))[-1] == "2"
    assert thread_state(world.instance, world.head(thread)) is ThreadState.COMPLETED


@pytest.mark.parametrize("reason", [pytest.param("", marks=pytest.mark.extended), "not needed any more"])
def test_a_run_whose_thread_is_killed_at_its_branches_says_so_and_how_to_go_on(
    world: World, processes: Processes, begin: Begin, uwf: Uwf, reason: str
) -> None:
    thread = world.start()
    running = begin("--format", "text", "thread", "run", thread, *processes.options)
    processes.fixers(2)
    uwf("thread", "kill", thread, "--reason", reason)
    _, err = running.communicate()
    assert running.returncode == 1
    why = f": {reason}" if reason else ""
    begun = f"uwf thread fork {thread} --at 1"
    said = f"uwf: thread {thread} was killed{why} — begin its branches anew with: {begun}"
    assert err.splitlines()[-1] == said
    uwf(*begun.split()[1:])


def test_what_a_killed_process_did_not_finish_is_done_by_the_next_run_and_nothing_else(
    world: World, processes: Processes, begin: Begin, uwf: Uwf
) -> None:
    thread = world.start()
    branches = world.forked(thread)
    for branch in branches[:2]:
        world.step(branch)
    running = begin("thread", "run", thread, *processes.options)
    (asked,) = processes.fixers(1)
    agent = int(asked[-1])
    for pid in (parent(agent), agent):
        kill(pid)
    running.communicate()
    # Whether its agent is seen to end before the run looks is left to chance.
    assert running.returncode in (AgentFailed.exit_status, NotRunning.exit_status)
    processes.let_go()
    uwf("thread", "run", thread, *processes.options)
    assert [each[1:3] for each in processes.fixers(2)] == [["Fix", "c"]] * 2
    assert thread_state(world.instance, world.head(thread)) is ThreadState.COMPLETED


def test_a_run_starts_no_branch_that_the_join_was_made_without(
    world: World, processes: Processes, uwf: Uwf
) -> None:
    world.put(audit(policy="need: first, atOnce: 1"))
    processes.let_go()
    thread = world.start()
    done = uwf("thread", "run", thread, *processes.options)
    assert not done.err
    assert len(processes.fixers(1)) == 1
    assert [each["status"] for each in world.joined(thread)] == [COMPLETED, "left", "left"]


def test_a_branch_that_fails_keeps_no_other_from_its_end(world: World) -> None:
    world.roles["fixer"] = failing()
    thread = world.start()
    error = refused(lambda: world.run(thread))
    assert isinstance(error, AgentFailed) and "3 branches" in error.message
    assert len([each for each in world.asked if each[0] == "fixer"]) == 3


def test_a_limit_of_a_caller_ends_the_run_of_branches_too(world: World) -> None:
    thread = world.start()
    world.forked(thread)

    def following() -> api_run.Options | None:
        if len(world.asked) > 2:
            raise AgentFailed("ran out of time")
        return world.options()

    def run() -> None:
        for _ in api_run.run(world.instance, thread, following):
            pass

    error = refused(run)
    assert error.message == "ran out of time"
    assert len(world.asked) == 3


def test_an_edge_without_a_number_lets_eight_branches_run_at_once(world: World) -> None:
    world.put(audit())
    thread = world.start()
    world.forked(thread)
    branches = branches_of(world.instance, world.head(thread))
    assert branches is not None and at_once(branches) == 8
