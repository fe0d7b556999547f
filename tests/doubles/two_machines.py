"""Two users with a store each, on what stands for two machines, and what can be said about both."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers

from uwf_git.store import layout

# Two steps and no choice: whoever does them, in whatever order, can say what must come out.
RELAY = """\
name: relay
description: One writes, the other reads.
roles:
  writer:
    description: Writes.
    systemPrompt: Write.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
  reader:
    description: Reads.
    systemPrompt: Read.
    outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}
graph:
  $START: [{role: writer}]
  writer: [{role: reader}]
  reader: [{role: $END}]
"""


class Machine:
    """A user's storage root, and the real `uwf` at work in it: a call is `uwf` with these arguments."""

    def __init__(self, uwf: Callable[..., Any], root: Path) -> None:
        self._uwf = uwf
        self.root = root

    def __call__(self, *args: str | Path, env: dict[str, str] | None = None, **more: Any) -> Any:
        return self._uwf(*args, env={**self.environment, **(env or {})}, **more)

    @property
    def environment(self) -> dict[str, str]:
        """What leads a process to this machine's store."""
        return {"UWF_STORAGE_ROOT": str(self.root)}

    @property
    def store(self) -> Path:
        """The store's git directory."""
        return self.root / "store.git"

    def registers(self, text: str = RELAY) -> str:
        """Puts a workflow; its name."""
        path = self.root.with_name(f"{self.root.name}.yaml")
        path.write_text(text, encoding="utf-8")
        return str(self("workflow", "put", path).json["name"])

    def starts(self, prompt: str = "Do it", workflow: str = "relay") -> str:
        """A new thread's id."""
        return str(self("thread", "start", workflow, "-p", prompt).json["thread"])

    def steps(self, thread: str, text: str = "made up") -> str:
        """The head after a step whose output is this text. The step's agent is scripted."""
        script = self.root.with_name(f"{self.root.name}.replies.yaml")
        script.write_text(
            "".join(f"- {{role: {role}, output: {{text: {text!r}}}}}\n" for role in ("writer", "reader"))
        )
        return str(self("thread", "step", thread, "--agent", f"uwf-rehearse --script {script}").json["head"])

    def status(self, thread: str) -> str:
        """What a thread is doing, as `thread show` says."""
        return str(self("thread", "show", thread).json["status"])

    def statuses(self) -> dict[str, str]:
        """What every thread is doing, archived ones included."""
        return {row["thread"]: row["status"] for row in self("thread", "list", "--all").json}

    def refs(self) -> dict[str, str]:
        """The refs that travel, as plain git lists them: name to object id."""
        listed = git_servers.git(
            "--git-dir", self.store, "for-each-ref", "--format=%(refname) %(objectname)", layout.NAMESPACE
        )
        found = dict(line.split(" ") for line in listed.splitlines())
        return {name: oid for name, oid in found.items() if layout.is_shared_ref(name)}

    def heads(self) -> dict[str, str]:
        """Every thread by its id, archived ones included, and the commit it stands at."""
        listed = self("thread", "list", "--all").json
        return {row["thread"]: row["head"] for row in listed}

    def verifies(self) -> None:
        """Neither git nor verification finds anything wrong."""
        done = subprocess.run(
            ["git", "--git-dir", str(self.store), "fsck", "--strict", "--no-dangling"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
        verified = self("verify", "--all", check=None)
        assert verified.code == 0 or self._is_empty(verified), verified.out + verified.err

    def _is_empty(self, verified: Any) -> bool:
        return verified.code == 13 and not self.refs()

    def is_sound(self) -> None:
        """It verifies, and doctor finds nothing wrong."""
        self.verifies()
        checks = self("doctor", check=None)
        assert checks.code == 0, checks.out


def begun(folder: Path, kept: Path, begin: Callable[[], str]) -> str:
    """Return what `begin` says, which makes the machines `ada` and `bob` and their remote `shared.git` in a folder.
    The first result is kept and copied from then on, by tests with the same git configuration."""
    configuration = Path(os.environ["GIT_CONFIG_GLOBAL"]).read_bytes()
    kept = kept.with_name(f"{kept.name}-{hashlib.sha256(configuration).hexdigest()[:8]}")
    said = kept / "said"
    parts = ("ada", "bob", "shared.git")
    if not said.exists():
        words = begin()
        for part in parts:
            shutil.copytree(folder / part, kept / part)
        said.write_text(words)
        return words
    for part in parts:
        shutil.copytree(kept / part, folder / part)
    for root in ("ada", "bob"):
        store = folder / root / "store.git"
        git_servers.git("--git-dir", store, "config", "remote.origin.url", folder / "shared.git")
    return said.read_text()
