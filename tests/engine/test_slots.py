"""`maxAgents` of config.yaml: a bound on the agents at work on a machine, whoever started them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE, write
from conftest import Begin, Uwf

AGENT = """
import os, pathlib, sys, time
here = pathlib.Path('here')
here.mkdir(exist_ok=True)
own = here / str(os.getpid())
own.touch()
most = looked = 0
while looked < 30:
    most = max(most, len(list(here.iterdir())))
    looked += pathlib.Path('go').exists()
    time.sleep(0.01)
own.unlink()
print('{"n": %d}' % most)
"""


@pytest.fixture
def works(uwf: Uwf, script: Callable[[str, str], Path]) -> str:
    """An agent that works until there is a file `go`, and answers how many it saw at work beside it."""
    uwf("workflow", "put", write("one.yaml", ONE))
    return f"uwf-exec {script('works', AGENT)}"


def wait_for_agents(number: int) -> None:
    """Returns once that many agents are at work."""
    deadline = time.monotonic() + 60
    while not (Path("here").is_dir() and sum(1 for _ in Path("here").iterdir()) >= number):
        assert time.monotonic() < deadline, f"{number} agents do not begin"
        time.sleep(0.01)


def begun(uwf: Uwf) -> str:
    return str(uwf("thread", "start", "one", "-p", "x").json["thread"])


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_agents_work_at_once_than_maxagents_allows(
    uwf: Uwf, begin: Begin, works: str, most: int
) -> None:
    uwf("config", "set", "maxAgents", str(most))
    threads = [begun(uwf) for _ in range(3)]
    steps = [begin("thread", "step", thread, "--agent", works, as_fork=True) for thread in threads]
    wait_for_agents(most)
    while len(uwf("thread", "list", "--status", "running").json) < 3:
        time.sleep(0.05)
    Path("go").touch()
    told = [step.communicate(timeout=60) for step in steps]
    assert [step.returncode for step in steps] == [0] * 3
    assert max(uwf("thread", "steps", thread).json[-1]["output"]["n"] for thread in threads) == most
    assert sum("maxAgents" in err for _, err in told) <= 3 - most


def test_the_slot_of_a_killed_process_is_free_again(uwf: Uwf, begin: Begin, works: str) -> None:
    uwf("config", "set", "maxAgents", "1")
    first = begin("thread", "step", begun(uwf), "--agent", works)
    wait_for_agents(1)
    first.kill()
    first.wait()
    Path("go").touch()
    uwf("thread", "step", begun(uwf), "--agent", works)


def test_an_agent_within_an_agent_shares_its_slot(uwf: Uwf, works: str) -> None:
    uwf("config", "set", "maxAgents", "1")
    Path("go").touch()
    inner = begun(uwf)
    Path("outer.sh").write_text(f"uwf thread step {inner} --agent '{works}' >&2 && echo '{{\"n\": 7}}'")
    uwf("thread", "step", begun(uwf), "--agent", "uwf-exec sh outer.sh")
    assert uwf("thread", "show", inner).json["status"] == "completed"


def test_a_bound_that_is_no_number_is_refused(uwf: Uwf) -> None:
    for value in ("0", "none", "1.5", "true"):
        assert "from 1 to 1000" in uwf("config", "set", "maxAgents", value, check=1).error["message"]
