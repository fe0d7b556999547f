"""Temporal's own pages and commands find threads by what they are, with a server that knows the attributes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from cli_samples import ASKS, PAIR, scripted, write
from commands import git
from conftest import Begin, Uwf
from fleets import until

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.server import Server, find_program


def listed(server: Server, query: str) -> list[str]:
    """The threads that `temporal workflow list` finds."""
    done = subprocess.run(
        [
            find_program(),
            "workflow",
            "list",
            "--address",
            server.address,
            "--query",
            query,
            "--output",
            "json",
        ],
        capture_output=True,
        check=True,
    )
    return [each["execution"]["workflowId"] for each in json.loads(done.stdout)]


def test_threads_are_found_by_workflow_role_project_status_and_cost(
    uwf: Uwf, begin: Begin, tmp_path: Path
) -> None:
    git("init", "-q", "shop")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", str(Path("pair.yaml").resolve()), "-p", "Hush.", cwd="shop").json[
        "thread"
    ]
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        working = begin("fleet", "worker", *at, "--agent", scripted(ASKS))
        assert "search attributes" not in uwf("fleet", "start", thread, *at).err
        asked = "UwfWorkflow = 'pair' AND UwfProject = 'shop' AND UwfStatus = 'waiting' AND UwfRole = '$USER'"
        until(lambda: listed(server, asked) == [thread], "thread that waits")
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0
        uwf("thread", "kill", thread)
        begin("fleet", "worker", *at)
        uwf("fleet", "sync", *at)
        until(lambda: listed(server, "UwfStatus = 'killed'") == [thread], "thread that has ended")
        assert listed(server, "UwfCost > 1") == []


def test_a_server_without_the_attributes_is_named_with_the_command_and_works(
    uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Go.").json["thread"]
    with monkeypatch.context() as patched:
        patched.setattr(messages, "ATTRIBUTES", ())
        server = Server(tmp_path / "server").__enter__()
    try:
        done = uwf("fleet", "run", thread, "--address", server.address, timeout=100)
    finally:
        server.__exit__(None, None, None)
    (warning,) = done.err.splitlines()
    create = f"temporal operator search-attribute create --address {server.address} --namespace default"
    assert f"{create} --name UwfWorkflow --type Keyword" in warning
    assert uwf("thread", "show", thread).json["status"] == "completed"
