"""Records histories of threads' Temporal workflows, for test_replay.py: what threads in flight have behind them when a
newer version takes over.

    python tests/fleet/recorded_histories.py SCENARIO[=FILE] ...

Those that are there stay: a change of the workflow's code has to replay all of them, so that threads that were begun by
an earlier version go on. A scenario that is new gets a recording of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "doubles")]

from fan_outs import ANSWER, FAN
from fleets import FIVE

from uwf_git.ext.fleet.client import connect
from uwf_git.ext.fleet.endpoint import Endpoint
from uwf_git.ext.fleet.server import Server

HISTORIES = Path(__file__).parent / "histories"
# The identities of workers, which histories have, name no machine.
_NAMELESS = "import socket\nsocket.gethostname = lambda: 'machine'\n"
_ASKS = "- {role: one, output: {status: needs_input, question: Which?}}\n"


class Fleet:
    """A store with a thread, and a server."""

    def __init__(self, folder: Path, workflow: str, server: Server) -> None:
        self.folder, self.server = folder, server
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(_NAMELESS)
        self.env = {**os.environ, "UWF_STORAGE_ROOT": str(folder / "root"), "UWF_FORMAT": "json"}
        (folder / "asks.yaml").write_text(_ASKS)
        (folder / "workflow.yaml").write_text(workflow)
        self.thread = json.loads(self.uwf("thread", "start", "workflow.yaml", "-p", "Say it."))["thread"]

    def uwf(self, *arguments: str) -> str:
        paths = [str(self.folder / "site"), os.environ.get("PYTHONPATH", "")]
        env = {**self.env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "uwf_cli.main", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=env, stdout=subprocess.PIPE, check=False)
        return done.stdout.decode()

    def fleet(self, command: str, *arguments: str) -> None:
        self.uwf("fleet", command, *arguments, "--address", self.server.address)

    def run(self, *arguments: str) -> None:
        self.fleet("run", self.thread, *arguments)


def steps(fleet: Fleet) -> None:
    """Each step is an activity, as with a budget, in which the server counts."""
    fleet.run("--max-time", "1h")


def question(fleet: Fleet) -> None:
    fleet.run("--agent", f"uwf-rehearse --script {fleet.folder}/asks.yaml")
    fleet.uwf("thread", "answer", fleet.thread, "-m", "this")
    fleet.fleet("sync")
    fleet.run("--agent", "uwf-rehearse")


def failures(fleet: Fleet) -> None:
    fleet.run("--tries", "2", "--agent", "sh -c 'exit 3'")


def budgets(fleet: Fleet) -> None:
    """Held by a budget, then by a person, and let go on."""
    fleet.run("--max-steps", "2")
    fleet.fleet("pause", fleet.thread)
    fleet.run("--max-steps", "1")
    fleet.fleet("resume", fleet.thread)
    fleet.run("--max-steps", "9")


def branches(fleet: Fleet) -> None:
    fleet.run("--agent", "uwf-rehearse", "--agent", f"lister={ANSWER}")


SCENARIOS: dict[str, tuple[str, Callable[[Fleet], None]]] = {
    "steps": (FIVE, steps),
    "question": (FIVE, question),
    "failures": (FIVE, failures),
    "budgets": (FIVE, budgets),
    "branches": (FAN, branches),
}


def _without_paths(part: dict[str, Any]) -> dict[str, Any]:
    """Leave out what names the folders of a machine, and no replay reads."""
    return {name: value for name, value in part.items() if name != "stackTrace"}


async def histories(address: str) -> list[Any]:
    """Return the histories of all runs of all threads that a server has, oldest first."""
    client = await connect(Endpoint(address))
    runs = [execution async for execution in client.list_workflows()]
    runs.sort(key=lambda run: run.start_time)
    return [
        json.loads(
            (await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()).to_json(),
            object_hook=_without_paths,
        )
        | {"workflow": run.id}
        for run in runs
    ]


def record(scenario: str, name: str) -> None:
    workflow, play = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "server") as server:
        play(Fleet(Path(folder), workflow, server))
        value = asyncio.run(histories(server.address))
    HISTORIES.mkdir(exist_ok=True)
    (HISTORIES / f"{name}.json").write_text(json.dumps(value, separators=(",", ":")) + "\n")
    print(name, [len(item["events"]) for item in value])


if __name__ == "__main__":
    for word in sys.argv[1:] or SCENARIOS:
        scenario, _, file = word.partition("=")
        record(scenario, file or scenario)
