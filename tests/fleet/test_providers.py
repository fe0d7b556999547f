"""Steps that ask a provider: as many at a time as it allows, later where it wants that, and no other's in their way."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

from cli_samples import ASKS, PAIR, scripted, write
from commands import git
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, STEPS, steps_told, until

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.client import Queue, connect
from uwf_git.ext.fleet.endpoint import find
from uwf_git.store.instance import Instance

# An agent that says when it begins and ends. It waits for a file `go`, and refuses where there is a file `refuse`,
# which it removes.
TIMED = """\
import os, time
from pathlib import Path
from uwf_git.base.errors import AgentFailed, Throttled
from uwf_git.kit import Reply, create_agent

def note(ctx, what):
    with open("log", "a") as file:
        file.write(f"{time.time()} {ctx.alias} {what}\\n")

def run(ctx):
    note(ctx, "begins")
    try:
        if ctx.alias == "east":
            os.unlink("refuse")
            note(ctx, "refuses")
            error = AgentFailed("not so fast")
            error.throttled = Throttled("east", 2.5)
            raise error
    except FileNotFoundError:
        pass
    while not Path("go").exists():
        time.sleep(0.02)
    note(ctx, "ends")
    return Reply("---\\ntext: said\\n---\\n")

create_agent("timed", run).main()
"""


def started(
    uwf: Uwf, script: Callable[[str, str], Path], config: Callable[[str], Path], limits: str, many: int = 3
) -> None:
    """Threads whose first role asks `east`, and whose other roles ask `west`."""
    agent = script("timed", TIMED)
    config(
        f"providers:\n  east: {{limits: {limits}}}\n  west: {{limits: {{concurrentSteps: 4}}}}\n"
        f"agents:\n  east: {{command: {agent}}}\n  west: {{command: {agent}}}\n"
        "defaultAgent: west\nagentOverrides: {five: {one: east, four: east}}\n"
    )
    uwf("workflow", "put", write("five.yaml", FIVE))
    for each in range(many):
        uwf("thread", "start", "five", "-p", f"Say {each}")


def noted(folder: Path) -> list[tuple[float, str, str]]:
    """What the agents said of themselves: when, who, what."""
    path = folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(when), who, what) for when, who, what in map(str.split, lines)]


def test_so_many_steps_of_a_provider_at_a_time_however_many_workers_there_are(
    uwf: Uwf,
    root: Path,
    tmp_path: Path,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    begin: Begin,
) -> None:
    started(uwf, script, config, "{concurrentSteps: 2, stepsPerSecond: 20}")
    running = begin("fleet", "run", "--all", "--workers", "2", "-j", "3", "--cwd", str(tmp_path))
    until(lambda: len(noted(tmp_path)) == 2, "two steps")
    (tmp_path / "go").touch()
    out, err = running.communicate(timeout=100)
    assert (running.returncode, err) == (0, "")
    at_once, most = 0, 0
    for _, _, what in (each for each in noted(tmp_path) if each[1] == "east"):
        at_once += 1 if what == "begins" else -1
        most = max(most, at_once)
    assert most == 2
    assert len(steps_told(out)) == 3 * STEPS and examine(root / "store.git").wrong == {}


def test_a_provider_that_refuses_is_asked_later_and_that_is_no_failure(
    uwf: Uwf,
    root: Path,
    tmp_path: Path,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
) -> None:
    started(uwf, script, config, "{concurrentSteps: 1}", many=2)
    for name in ("go", "refuse"):
        (tmp_path / name).touch()
    done = uwf("fleet", "run", "--all", "--tries", "1", "--workers", "2", "--cwd", tmp_path, timeout=100)
    (error,) = [json.loads(line)["error"] for line in done.err.splitlines()]
    assert (error["code"], error["throttled"]) == ("agent_failed", {"by": "east", "after": 2.5})
    log = noted(tmp_path)
    refused = next(when for when, _, what in log if what == "refuses")
    assert min(when for when, who, what in log if who == "east" and when > refused) - refused >= 2.5
    assert len(steps_told(done.out)) == 2 * STEPS and examine(root / "store.git").wrong == {}


def test_each_thread_of_a_fleet_has_a_worktree_of_its_own_which_its_branch_outlives(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "begin")
    uwf("workflow", "put", write("five.yaml", FIVE))
    threads = [uwf("thread", "start", "five", "-p", f"Say {each}").json["thread"] for each in range(3)]
    agent = """uwf-exec sh -c 'echo "$UWF_ROLE" >> said; echo "{\\"text\\": \\"said\\"}"'"""
    wanted = ["--workspace", f"worktree:{project}"]
    uwf("fleet", "run", "--all", "--workers", "2", "--agent", agent, *wanted, timeout=100)
    assert examine(root / "store.git").wrong == {}
    for thread in threads:
        branch = f"uwf/work/{thread}"
        assert git("-C", project, "show", f"{branch}:said").split() == ["one", "two", "three", "four", "five"]
        assert git("-C", project, "rev-list", "--count", f"main..{branch}") == str(STEPS)
    assert list((root / "workspaces").iterdir()) == []
    assert git("-C", project, "worktree", "list").count("\n") == 0
    error = uwf("fleet", "run", "--all", *wanted, "--cwd", tmp_path, check=2).error
    assert "exclude each other" in error["message"]


def test_a_provider_that_is_added_is_served_and_steps_that_nobody_serves_are_told(
    uwf: Uwf,
    instance: Instance,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    begin: Begin,
) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    asks, goes, lost = (
        uwf("thread", "start", "pair", "-p", f"Do {each}").json["thread"] for each in range(3)
    )
    running = begin("fleet", "run", asks, "--stay", "--agent", scripted(ASKS))
    until(lambda: '"waiting"' in uwf("fleet", "status", check=None).out, "question")
    agent = script("north", "print('{}')")
    config(f"providers: {{north: {{}}}}\nagents: {{north: {{command: {agent}}}}}\ndefaultAgent: north\n")
    assert uwf("fleet", "start", goes).json["started"]
    until(lambda: uwf("thread", "show", goes).json["status"] == "waiting", "step")

    place = find(instance.store.repository.private)
    assert place is not None

    async def put() -> None:
        await Queue(await connect(place)).start(
            [messages.ThreadEntry(lost, instance.threads.head(lost).node, "uwf.nowhere")]
        )

    asyncio.run(put())
    (row,) = [each for each in uwf("fleet", "status").json if each["thread"] == lost]
    assert (row["state"], row["why"]) == ("queued", "no worker serves the queue uwf.nowhere")
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
