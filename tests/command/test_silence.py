"""docs/guides/data.md names the commands that talk to nobody. Each is called with a model, a forge and remotes in the
configuration; a look-up of a name, or a connection of Python's or git's, fails it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import EXAMPLES, REPOSITORY

pytestmark = [pytest.mark.extended, pytest.mark.timeout(300)]

WATCH = """\
import os, sys

def watch(event, args):
    if event.startswith("socket.get") or event == "socket.sendto" or (
        event == "socket.connect" and not isinstance(args[1], (str, bytes))
    ):
        with open(os.environ["CALLS_TO_OTHERS"], "a") as file:
            print(event, args[1:] if event in ("socket.connect", "socket.sendto") else args, sys.argv, file=file)
        raise OSError("nobody may be called")

sys.addaudithook(watch)
"""
CONFIG = """\
providers: {other: {baseUrl: https://model.invalid/v1, apiKeyEnv: OTHER_KEY}}
models: {m: {provider: other, name: m-1}, extract: {provider: other, name: m-1}}
defaultModel: m
"""


class Silent:
    def __init__(self, folder: Path) -> None:
        self.calls, self.called = folder / "calls", set[str]()
        (folder / "watch").mkdir()
        (folder / "watch/sitecustomize.py").write_text(WATCH)
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(folder / "watch"),
            "CALLS_TO_OTHERS": str(self.calls),
            "GIT_ALLOW_PROTOCOL": "file",
            "HTTPS_PROXY": "http://proxy.invalid:1",
            "OTHER_KEY": "k" * 20,
            "UWF_FORMAT": "json",
        }

    def __call__(self, command: str, *args: str | Path, statuses: tuple[int, ...] = (0,)) -> Any:
        self.called.add(command)
        uwf = str(Path(sys.executable).with_name("uwf"))
        done = subprocess.run(
            [uwf, *command.split(), *map(str, args)], env=self._environ, capture_output=True, text=True
        )
        assert done.returncode in statuses, f"{command}: {done.stdout}{done.stderr}"
        assert not self.calls.exists(), f"{command}: {self.calls.read_text()}"
        try:
            return json.loads(done.stdout)
        except ValueError:
            return done.stdout


def test_the_watch_sees_a_call(tmp_path: Path, root: Path, hermetic: Path) -> None:
    silent = Silent(tmp_path)
    root.mkdir()
    (root / "config.yaml").write_text(CONFIG)
    with pytest.raises(AssertionError, match=r"model\.invalid|proxy\.invalid"):
        silent("run", EXAMPLES / "solve-issue.yaml", "-p", "x", "--agent", "uwf-builtin", statuses=(0, 6))


def test_commands_that_are_said_to_be_silent_are(tmp_path: Path, root: Path, hermetic: Path) -> None:
    silent = Silent(tmp_path)
    project = tmp_path / "project"
    git("init", "-q", project)
    git("-C", project, "remote", "add", "origin", "https://forge.invalid/team/shop.git")
    os.chdir(project)
    silent("init")
    (root / "config.yaml").write_text(CONFIG)
    store = ("--git-dir", root / "store.git")
    git(*store, "remote", "add", "hub", "https://forge.invalid/team/threads.git")
    git(*store, "config", "remote.hub.uwf", "true")
    silent("workflow put", EXAMPLES / "solve-issue.yaml")
    for words in ("show", "history", "stats", "graph", "rehearse"):
        silent(f"workflow {words}", "solve-issue")
    silent("workflow validate", EXAMPLES / "solve-issue.yaml")

    def start() -> str:
        return str(silent("thread start", "solve-issue", "-p", "Quote commas.")["thread"])

    done, failed, asked, paused = start(), start(), start(), start()
    silent("thread run", done, "--agent", "uwf-rehearse")
    silent("thread step", failed, "--agent", "uwf-exec false", statuses=(6,))
    (project / "question.json").write_text('{"$status": "$SUSPEND", "question": "Red?"}')
    silent("thread step", asked, "--agent", "uwf-exec cat question.json", statuses=(0, 5))
    silent("inbox")
    silent("thread answer", asked, "-m", "yes")
    silent("thread say", asked, "-m", "Soon.")
    silent("thread budget", asked)
    for words in ("show", "steps", "timeline", "read", "log", "attempts"):
        silent(f"thread {words}", failed if words == "attempts" else done)
    step = silent("thread steps", done)[0]["step"]
    silent("thread step-details", step)
    silent("thread turns", done)
    silent("thread prompt", f"{done}@5")
    fork = str(silent("thread fork", done, "--at", "2")["thread"])
    silent("thread diff", done, fork)
    silent("thread pause", paused)
    silent("thread resume", paused)
    silent("thread kill", paused)
    silent("thread rm", fork, "--yes")
    silent("thread restore", fork)
    silent("export", done, "--html", "run.html")
    silent("bundle", done, "-o", "threads.bundle")
    silent("unbundle", "threads.bundle")
    silent("crew import", EXAMPLES / "crew/press")
    silent("crew menu", "press")
    node = silent("cas put", "Text", '"kept"')
    node = node if isinstance(node, str) else node["hash"]
    for words in ("get", "has", "refs", "walk"):
        silent(f"cas {words}", node.strip())
    silent("cas hash", "Text", '"kept"')
    silent("config set", "defaultAgent", "uwf-rehearse")
    silent("config get", "defaultAgent")
    silent("config unset", "defaultAgent")
    silent("completion", "bash")
    silent("guide", "workflows")
    silent("grep", "commas")
    silent("effect list", done)
    silent("trust show", statuses=(0, 3))
    silent("doctor", statuses=(0, 1, 7))
    silent("workflow rm", "solve-issue", "--yes")
    for words in (
        *(
            "workflow list",
            "thread list",
            "ps",
            "stats",
            "verify",
            "gc",
            "debug",
            "cas reindex",
            "cas schema list",
        ),
        *("config list", "agent list", "remote list", "templates", "help", "crew list", "eval list"),
        *("workspace list", "clean", "expire"),
    ):
        silent(words)
    page = (REPOSITORY / "docs/guides/data.md").read_text(encoding="utf-8")
    listed = re.search(r"<!-- silent -->\n```text\n(.*?)```", page, re.DOTALL)
    assert listed is not None
    names = {name.strip() for name in re.split(r" {2,}|\n", listed[1])} - {""}
    assert names <= silent.called, names - silent.called
