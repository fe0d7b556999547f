"""A clock that goes backwards breaks no thread, nor what is listed, traced, counted, shared or packed of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli_samples import PAIR, write
from commands import git
from conftest import Uwf

LATER = """
import sys, time
late = int(sys.argv.pop(1))
now, now_ns = time.time, time.time_ns
time.time = lambda: now() + late
time.time_ns = lambda: now_ns() + late * 10**9
from uwf_cli.main import main
main()
"""
DAY = 86_400  # seconds


def at(seconds: int, *args: str | Path) -> Any:
    """What `uwf` prints where the clock is so many seconds ahead."""
    command = [sys.executable, "-c", LATER, str(seconds), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_clock_that_goes_backwards_breaks_no_thread_and_nothing_that_is_made_of_it(
    uwf: Uwf, tmp_path: Path
) -> None:
    at(DAY, "workflow", "put", write("pair.yaml", PAIR))
    thread = at(DAY, "thread", "start", "pair", "-p", "Do it", "--max-time", "1h")["thread"]
    at(DAY, "thread", "step", thread)
    at(0, "thread", "step", thread)
    second = at(0, "thread", "start", "pair", "-p", "Do it")["thread"]
    at(0, "thread", "step", second)
    assert second < thread  # ids are of when they were made, as far as the clock knew
    assert {each["thread"] for each in at(0, "thread", "list", "--all")} == {thread, second}
    steps = at(0, "thread", "steps", thread)
    assert [each["role"] for each in steps] == ["writer", "critic"]
    for each in steps:
        made = at(0, "thread", "step-details", each["step"], "--format", "json")
        assert 0 <= made["detail"]["value"]["durationMs"] < DAY
    [spans] = at(0, "trace", "export", thread)["resourceSpans"][0]["scopeSpans"]
    times = [(int(each["startTimeUnixNano"]), int(each["endTimeUnixNano"])) for each in spans["spans"]]
    assert len(times) >= 3 and all(begin <= end for begin, end in times)
    root, *rest = times
    assert all(root[0] <= begin and end <= root[1] for begin, end in rest)
    for command in ("read", "show", "budget"):
        at(0, "thread", command, thread, "--format", "json")
    at(0, "stats")
    at(0, "inbox")
    # A budget by time counts what steps took, whatever the clock said between them.
    third = at(0, "thread", "start", "pair", "-p", "Do it", "--max-time", "1h")["thread"]
    at(0, "thread", "step", third)
    at(30 * DAY, "thread", "step", third)
    for ahead, each in ((0, thread), (-DAY, thread), (60 * DAY, third)):
        [limit] = at(ahead, "thread", "budget", each)["budget"]
        assert (limit["limit"], limit["most"]) == ("maxWallTime", 3600) and 0 <= limit["used"] < 3600
    at(-DAY, "thread", "kill", second)
    at(-DAY, "gc")
    assert at(-DAY, "verify", "--all")["findings"] == []
    remote = tmp_path / "remote.git"
    git("init", "-q", "--bare", remote)
    at(-DAY, "remote", "add", "origin", remote)
    at(-DAY, "push", "origin")
    at(-2 * DAY, "--root", tmp_path / "other", "clone", remote)
    there = at(-2 * DAY, "--root", tmp_path / "other", "thread", "list", "--all")
    assert {each["thread"] for each in there} == {thread, second, third}
    assert at(-2 * DAY, "--root", tmp_path / "other", "verify", "--all")["findings"] == []
