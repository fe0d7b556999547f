"""An agent that notes what it is asked, for tests of what is asked again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from cli_samples import write

Asked = Callable[[], list[str]]

# Notes each prompt that it is given; fails one that the file `broken` names, hangs on one that `slow` names.
SCRIPTED = """\
import json, os, pathlib, sys, time
prompt = sys.stdin.read().strip().splitlines()[-1]
with open("asked", "a") as log:
    log.write(prompt + "\\n")
def told(name):
    return pathlib.Path(name).exists() and prompt in pathlib.Path(name).read_text().split("|")
if told("broken"):
    sys.exit("no luck today")
if told("slow"):
    pathlib.Path("waits").write_text(str(os.getpid()))
    time.sleep(600)
print(json.dumps({"said": prompt.upper()}))
"""


def noting(config: Callable[[str], Path], more: str = "") -> Asked:
    """Configures the agent `scripted`, with `more` of the configuration; returns what it was asked so far, sorted."""
    write("scripted.py", SCRIPTED)
    command = f"{{command: uwf-exec, args: [--stdin, prompt, {sys.executable}, -S, scripted.py]}}"
    config(f"agents:\n  scripted: {command}\n{more}")
    return lambda: sorted(Path("asked").read_text().splitlines()) if Path("asked").exists() else []
