"""What anybody who reaches a fleet's server can do: ask for no step of what is no thread, and end none."""

from __future__ import annotations

import asyncio
import http.client
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import write
from commands import wait_for
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, PATIENT, SERVER, STEPS, processes, steps_told

from uwf_git.ext.fleet import endpoint, messages
from uwf_git.ext.fleet.client import connect

STRANGE = [
    {"thread": "EVIL\n+refs/heads/x", "head": "0000000000000"},
    {"thread": "../../x", "head": "0000000000000"},
    {"thread": 5, "heartbeat": "a"},
    {"thread": "01M835AMH5X0R3M88W7QK2NAD0", "head": "0000000000000", "heartbeat": "a"},
    "nothing",
]
"""What is no thread to be stepped."""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def thread(uwf: Uwf) -> str:
    uwf("workflow", "put", write("five.yaml", FIVE))
    return str(uwf("thread", "start", "five", "-p", "Say it").json["thread"])


@pytest.fixture
def running(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], tmp_path: Path, go: Path, begin: Begin
) -> subprocess.Popen[str]:
    """A fleet at the first step of a thread, which is made once there is a file `go`."""
    fleet = begin(
        *("fleet", "run", thread, "-j", "2", "--agent", f"uwf-exec {script('patient', PATIENT)}"),
        *("--cwd", str(tmp_path)),
    )
    wait_for(tmp_path / "began")
    return fleet


def ask(root: Path, do: Callable[[Any], Any]) -> Any:
    """What a stranger gets from the server of a store's fleet."""

    async def asking() -> Any:
        there = endpoint.find(root / "store.git" / "uwf")
        assert there is not None
        return await asyncio.wait_for(do(await connect(there)), 40)

    return asyncio.run(asking())


def ports(pid: int) -> set[int]:
    """Where a process listens."""
    links = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {found[1] for each in links if (found := re.fullmatch(r"socket:\[(\d+)\]", each))}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_what_is_no_thread_fails_at_once_and_keeps_no_fleet_up(
    root: Path, go: Path, running: subprocess.Popen[str]
) -> None:
    async def strange(client: Any) -> list[str]:
        handles = [
            await client.start_workflow(
                messages.WORKFLOW, each, id=f"strange-{number}", task_queue=messages.QUEUE
            )
            for number, each in enumerate(STRANGE)
        ]
        await client.start_workflow(messages.WORKFLOW, {}, id="never", task_queue="nobody's")
        ends = await asyncio.gather(*(each.result() for each in handles), return_exceptions=True)
        return [type(each).__name__ for each in ends]

    assert ask(root, strange) == ["WorkflowFailureError"] * len(STRANGE)
    go.touch()
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err, len(steps_told(out))) == (0, "", STEPS)


def test_a_step_that_a_stranger_says_was_made_is_made_all_the_same(
    uwf: Uwf, root: Path, thread: str, go: Path, running: subprocess.Popen[str]
) -> None:
    head = str(uwf("thread", "show", thread).json["head"])

    async def forge(client: Any) -> None:
        said = {"thread": thread, "head": head, "status": "completed", "done": True}
        step = client.get_async_activity_handle(
            workflow_id=thread, run_id=None, activity_id=messages.activity_id(thread, head)
        )
        await step.complete(said)
        await client.get_workflow_handle(thread, run_id=None).result()

    ask(root, forge)
    go.touch()
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "which it hasn't" in err
    assert examine(root / "store.git", STEPS).steps == {thread: STEPS}
    assert len(steps_told(out)) == STEPS


def test_a_step_that_leaves_its_thread_where_it_was_is_asked_again_only_after_a_while(
    uwf: Uwf, root: Path, thread: str, go: Path, running: subprocess.Popen[str]
) -> None:
    head = str(uwf("thread", "show", thread).json["head"])

    async def forge(client: Any) -> str:
        step = client.get_async_activity_handle(
            workflow_id=thread, run_id=None, activity_id=messages.activity_id(thread, head)
        )
        await step.complete({"thread": thread, "head": head, "status": "idle", "done": False})
        while True:
            memo = await (await client.get_workflow_handle(thread).describe()).memo()
            if memo.get("state") == "delayed":
                return str(memo["why"])

    assert "is where it was" in ask(root, forge)
    go.touch()
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err, len(steps_told(out))) == (0, "", STEPS)


def test_the_server_answers_no_web_page(root: Path, go: Path, running: subprocess.Popen[str]) -> None:
    (server,) = processes(SERVER, root)
    statuses = []
    for port in ports(server):
        page = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            page.request("GET", "/api/v1/namespaces/default/workflows", headers={"Host": "a.example"})
            statuses.append(page.getresponse().status)
        except (OSError, http.client.HTTPException):  # another protocol
            continue
        finally:
            page.close()
    assert 403 in statuses and 200 not in statuses
