"""Branches in a fleet: its workers come by them as by other threads, and who waits for them is looked at when they
end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import Begin, Uwf
from fan_outs import audit
from fleets import HAND, kill, parent, processes, some, until

from uwf_git.ext.fleet.step_process import branches_to_queue
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

# Names five files as a planner. As a fixer it writes its number into `fixing`, and waits for a file `go` that is there
# once and for all; one whose task has the text in `bad` fails.
PLAYER = """\
import json, os, time
from pathlib import Path
from uwf_git.base.errors import AgentFailed
from uwf_git.kit import Reply, create_agent

def run(ctx):
    role, task = ctx.role.name, ctx.history.start.prompt
    if role == "planner":
        output = {"files": list("abcde")}
    else:
        if role == "fixer":
            with open("fixing", "a") as file:
                file.write(f"{os.getpid()} {task}\\n")
            while not Path("go").exists():
                time.sleep(0.02)
            if Path("bad").exists() and Path("bad").read_text() in task:
                raise AgentFailed("no luck")
        output = {"text": f"{role}: {task}"}
    return Reply(json.dumps(output), output=output)

create_agent("uwf-player", run).main()
"""


@pytest.fixture
def player(uwf: Uwf) -> list[str]:
    """The options of an agent that plays a workflow whose branches are fixed two at a time."""
    Path("audit.yaml").write_text(audit(policy="atOnce: 2"))
    uwf("workflow", "put", "audit.yaml")
    Path("player.py").write_text(PLAYER)
    return ["--cwd", str(Path.cwd()), "--agent", f"{sys.executable} {Path('player.py').absolute()}"]


def start(uwf: Uwf) -> str:
    return str(uwf("thread", "start", "audit", "-p", "Audit it").json["thread"])


def fixing() -> list[str]:
    path = Path("fixing")
    return path.read_text().splitlines() if path.exists() else []


def test_a_fleet_runs_the_branches_of_its_threads_and_no_more_at_once_than_the_edge_says(
    uwf: Uwf, begin: Begin, player: list[str]
) -> None:
    thread = start(uwf)
    running = begin("fleet", "run", thread, "-j", "5", *player)
    until(lambda: len(fixing()) == 2, "two branches")
    queue = until(lambda: _queue(uwf, 3), "three threads in the queue")
    assert queue == {thread: "joining", **dict.fromkeys(queue.keys() - {thread}, "running")}
    assert len(fixing()) == 2
    Path("go").touch()
    running.communicate()
    assert running.returncode == 0
    assert sorted(Counter(line.split(" ", 1)[1] for line in fixing()).items()) == [
        (f"Fix {file} ({number})", 1) for number, file in enumerate("abcde")
    ]
    assert uwf("thread", "show", thread).json["status"] == "completed"


def _queue(uwf: Uwf, many: int) -> dict[str, str] | None:
    found = uwf("fleet", "status", check=None)
    rows = {each["thread"]: each["state"] for each in found.json} if found.code == 0 else {}
    return rows if len(rows) == many and "queued" not in rows.values() else None


def test_a_branch_that_is_given_up_keeps_no_other_from_its_end_and_fails_the_fleet(
    uwf: Uwf, player: list[str]
) -> None:
    thread = start(uwf)
    Path("go").touch()
    Path("bad").write_text("Fix b")
    done = uwf("fleet", "run", thread, "-j", "2", "--tries", "1", *player, check=6, timeout=100)
    errors = [json.loads(line)["error"] for line in done.err.splitlines() if line.startswith("{")]
    assert {each["code"] for each in errors} == {"agent_failed", "waiting"}
    branches = uwf("thread", "show", thread).json["branches"]
    assert branches["counts"] == {"completed": 4, "failed": 1}
    Path("bad").unlink()
    uwf("fleet", "run", thread, *player, timeout=100)
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert Counter(line.split(" ", 1)[1] for line in fixing())["Fix a (0)"] == 1


def test_a_machine_that_dies_over_a_branch_leaves_it_to_others(
    uwf: Uwf, begin: Begin, player: list[str], root: Path
) -> None:
    thread = start(uwf)
    running = begin("fleet", "run", thread, "-j", "2", "--heartbeat", "2", *player)
    first = until(lambda: fixing()[:1], "a branch")[0]
    hand = parent(int(first.split()[0]))
    assert hand in some(HAND, root)
    for pid in (hand, int(first.split()[0])):
        kill(pid)
    Path("go").touch()
    running.communicate()
    assert running.returncode == 0
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert not processes("uwf_git.ext.fleet", root)


def test_the_branches_to_queue_are_the_first_that_can_go_on(uwf: Uwf, player: list[str], root: Path) -> None:
    thread = start(uwf)
    for _ in range(2):
        uwf("thread", "step", thread, *player)
    branches = [each["thread"] for each in uwf("thread", "show", thread).json["branches"]["each"]]
    uwf("thread", "pause", branches[0])
    uwf("thread", "kill", branches[2])
    instance = Instance(locate(None, {"UWF_STORAGE_ROOT": str(root)}, Path.cwd()))
    found = branches_to_queue(instance, ThreadId(thread))
    assert [each[0] for each in found] == [branches[1], branches[3]]
