"""Workers as versions of a deployment: Temporal says which one makes the steps, also of threads in flight."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cli_samples import write
from conftest import Begin, Uwf
from fleets import FIVE, until

from uwf_git.ext.fleet.server import Server, find_program


def current(server: Server, build: str) -> bool:
    """Whether steps go to a version from now on."""
    words = ["worker", "deployment", "set-current-version", "--deployment-name", "uwf", "--build-id", build]
    done = subprocess.run(
        [find_program(), *words, "--yes", "--address", server.address], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", [("--build-id", "one"), ()])
def test_a_thread_in_flight_goes_on_under_the_version_that_is_made_current(
    first: tuple[str, ...], uwf: Uwf, begin: Begin, tmp_path: Path
) -> None:
    uwf("workflow", "put", write("five.yaml", FIVE))
    thread = uwf("thread", "start", "five", "-p", "Go.").json["thread"]

    def agent(text: str) -> str:
        program = tmp_path / text
        waits = f"touch {tmp_path}/began-{text}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; sleep 1"
        program.write_text(f"{waits}\necho {json.dumps(json.dumps({'text': text}))}\n")
        return f"uwf-exec sh {program}"

    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        begin("fleet", "worker", *at, *first, "--agent", agent("one"))
        if first:
            until(lambda: current(server, "one"), "first version")
        uwf("fleet", "start", thread, *at)
        until((tmp_path / "began-one").exists, "first step")
        begin("fleet", "worker", *at, "--build-id", "two", "--agent", agent("two"))
        until(lambda: current(server, "two"), "second version")
        (tmp_path / "go").touch()
        until(lambda: uwf("thread", "show", thread).json["status"] == "completed", "end")
    steps = uwf("thread", "steps", thread).json
    texts = [step["output"]["text"] for step in steps if step.get("role")]
    # The server tells its queues after it has answered, so a step or two may come before.
    assert (texts[0], texts[-1]) == ("one", "two") and texts == sorted(texts)
