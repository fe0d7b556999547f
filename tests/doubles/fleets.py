"""Fleets at work: the processes that they consist of, found and killed, and agents that take their time."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import wait_until_gone

_ROLE = """\
  {0}:
    description: Says something.
    systemPrompt: Say it.
    outputSchema: {{type: object, properties: {{text: {{type: string}}}}, required: [text]}}
"""
_NAMES = ("one", "two", "three", "four", "five")
STEPS = len(_NAMES)
# One role after the other says something, so that whoever does it can say what must come out.
FIVE = (
    "name: five\ndescription: Five say something, one after the other.\nroles:\n"
    + "".join(_ROLE.format(name) for name in _NAMES)
    + "graph:\n"
    + "".join(
        f"  {name}: [{{role: {after}}}]\n"
        for name, after in zip(("$START", *_NAMES), (*_NAMES, "$END"), strict=True)
    )
)

# A command for uwf-exec that writes its number into a file of its folder, waits until there is a file `go`, and says
# something; where there is a file with the name of the thread, what it says is of no use.
PATIENT = """\
import os, sys, time
from pathlib import Path

with open("began", "a") as file:
    file.write(f"{os.getpid()}\\n")
if Path(os.environ["UWF_THREAD"]).exists():
    sys.exit(print('{"text": ["of no use"]}'))
while not Path("go").exists():
    time.sleep(0.02)
print('{"text": "said"}')
"""

SERVER, WORKER, HAND = "server start-dev", "uwf_git.ext.fleet.worker", "uwf_git.ext.fleet.step_process"
LIMIT = 60.0


def processes(kind: str, root: Path) -> list[int]:
    """The numbers of a store's processes of a kind: SERVER, WORKER, HAND, or any text of a command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if kind in words and f"UWF_STORAGE_ROOT={root}".encode() in environment:
                found.append(int(entry.name))
    return sorted(found)


def some(kind: str, root: Path, at_least: int = 1) -> list[int]:
    """The same, once there are so many."""
    return until(lambda: found if len(found := processes(kind, root)) >= at_least else None, kind)


def kill(pid: int) -> None:
    """Kills a process, and waits until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)


def parent(pid: int) -> int:
    """The number of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(look: Callable[[], Any], what: str) -> Any:
    """What there is to see, once there is."""
    deadline = time.monotonic() + LIMIT
    while not (found := look()):
        assert time.monotonic() < deadline, f"no {what} within {LIMIT} s"
        time.sleep(0.02)
    return found


def hurry(folder: Path, *settings: str) -> dict[str, str]:
    """An environment in which a fleet's processes use other constants, as in `retry_policy._FIRST_BACKOFF = 1.0`, so
    that minutes of backoff take seconds."""
    names = sorted({each.partition(".")[0] for each in settings})
    lines = [*(f"from uwf_git.ext.fleet import {name}" for name in names), *settings]
    body = "".join(f"    {line}\n" for line in lines)
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(f"import sys\nif sys.argv[0] != '-c':\n{body}")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def steps_told(out: str) -> list[dict[str, Any]]:
    """The steps that a fleet has printed as JSON."""
    return [json.loads(line) for line in out.splitlines()]
