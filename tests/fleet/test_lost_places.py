"""A worker whose remote fails, and a server that is back without its namespace: who it is, and what to do, is said."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import git
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, LIMIT, SERVER, STEPS, hurry, kill, processes, until
from two_machines import Machine

from uwf_git.ext.fleet.server import Server, find_program


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server") as running:
        yield running


class Fleet:
    """Two machines. The second reaches the repository between them by a link of its own."""

    def __init__(self, uwf: Uwf, folder: Path, address: str) -> None:
        self.address, self.bare, self.link = address, folder / "bare.git", folder / "link.git"
        git("init", "-q", "--bare", self.bare)
        self.link.symlink_to(self.bare)
        self.one, self.other = (Machine(uwf, folder / name) for name in ("one", "other"))
        for machine, remote in ((self.one, self.bare), (self.other, self.link)):
            machine("init")
            machine("remote", "add", "origin", remote)
        self.one.registers(FIVE)

    def start(self, prompt: str) -> str:
        thread = self.one.starts(prompt, "five")
        self.one("fleet", "start", thread, "--remote", "origin", "--address", self.address)
        return thread

    def row(self, thread: str) -> dict[str, Any]:
        rows = self.one("fleet", "status", "--all", "--address", self.address).json
        return next((row for row in rows if row["thread"] == thread), {"state": ""})

    def ends(self, thread: str) -> None:
        until(lambda: self.row(thread)["state"] == "completed", f"end of {thread}")

    def failures(self, thread: str) -> int:
        """How many tries of its steps the server has seen to fail."""

        async def count() -> int:
            from temporalio.api.enums.v1 import EventType
            from temporalio.client import Client

            handle = (await Client.connect(self.address)).get_workflow_handle(thread)
            history = await handle.fetch_history()
            failed = EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED
            return sum(event.event_type == failed for event in history.events)

        return asyncio.run(count())


def line_from(running: subprocess.Popen[str]) -> str:
    """The next line on standard error."""
    assert running.stderr is not None
    assert select.select([running.stderr], [], [], LIMIT)[0], "nothing is said"
    return running.stderr.readline()


def test_a_worker_without_its_remote_is_named_and_takes_no_step_until_that_answers(
    uwf: Uwf, tmp_path: Path, server: Server, begin: Begin
) -> None:
    fleet = Fleet(uwf, tmp_path, server.address)
    where = ("--address", server.address, "--remote", "origin", "--format", "text")
    hurried = hurry(tmp_path / "hurried", "retry_policy._MAX_BACKOFF[retry_policy.LATER] = 1.0")
    other = begin("fleet", "worker", *where, env={**fleet.other.environment, **hurried})
    fleet.ends(fleet.start("before"))
    fleet.link.unlink()
    delayed = fleet.start("lost")
    assert "remote origin: git fetch failed" in line_from(other)
    row = until(lambda: row if (row := fleet.row(delayed))["why"] else None, "reason")
    assert "git fetch failed" in row["why"]
    assert row["worker"] == f"{other.pid}@{socket.gethostname()}", row
    threads = [delayed, *(fleet.start(f"later {number}") for number in range(2))]
    one = begin("fleet", "worker", *where, env=fleet.one.environment)
    for thread in threads:
        fleet.ends(thread)
    assert [fleet.failures(thread) for thread in threads[1:]] == [0, 0]
    one.send_signal(signal.SIGTERM)
    one.communicate(timeout=LIMIT)
    fleet.link.symlink_to(fleet.bare)
    assert "remote origin answers again" in line_from(other)
    fleet.ends(fleet.start("after"))
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=LIMIT)
    assert examine(fleet.bare).wrong == {}


def test_a_server_that_is_back_without_the_namespace_does_not_answer_again(
    uwf: Uwf, root: Path, tmp_path: Path, server: Server, begin: Begin
) -> None:
    def create() -> None:
        made = (find_program(), "operator", "namespace", "create", "--namespace", "triage")
        subprocess.run([*made, "--address", server.address], check=True, capture_output=True)

    def is_there() -> bool:
        return uwf("fleet", "status", *where, check=None).code == 0

    where = ("--address", server.address, "--namespace", "triage")
    (tmp_path / "five.yaml").write_text(FIVE)
    first, second = (
        uwf("thread", "start", tmp_path / "five.yaml", "-p", f"Say {number}").json["thread"]
        for number in range(2)
    )
    create()
    until(is_there, "namespace")
    hurried = hurry(tmp_path / "hurried", "client._POLL_INTERVAL = 0.5", "client._RETRY_FOR = 1.0")
    working = begin("fleet", "worker", *where, env=hurried)
    uwf("fleet", "start", first, *where)
    until(lambda: examine(root / "store.git", STEPS).steps == {first: STEPS}, "end")
    for pid in processes(SERVER, root):
        kill(pid)
    gone = json.loads(line_from(working))["error"]
    assert "no Temporal server answers" in gone["message"]
    (tmp_path / "server" / "temporal.db").unlink()
    until(server.mend, "end of the server")
    lost = json.loads(line_from(working))["error"]
    assert lost["message"] == f"the Temporal server at {server.address} has no namespace triage"
    assert "temporal operator namespace create --namespace triage" in lost["hint"]
    assert "uwf fleet sync --all" in lost["hint"]
    create()
    assert working.stderr is not None
    said = {line_from(working).strip(), working.stderr.readline().strip()}  # both at once
    assert said == {
        f"uwf: the Temporal server at {server.address} answers again",
        f"uwf: namespace triage of the Temporal server at {server.address} is there again",
    }
    until(is_there, "namespace")
    uwf("fleet", "sync", "--all", *where)
    until(lambda: examine(root / "store.git", STEPS).steps == {first: STEPS, second: STEPS}, "end")
    os.kill(working.pid, signal.SIGTERM)
    working.communicate(timeout=LIMIT)
