"""A project in which a coder and a reviewer write, each by a model of its own, and people merge it as forges do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commands import git
from conftest import Uwf

DONE = "{ type: object, properties: { change: { type: string } }, required: [change] }"
WORKFLOW = f"""\
name: build
description: Code it, and review it.
roles:
  coder: {{ description: c, systemPrompt: c, outputSchema: {DONE} }}
  reviewer: {{ description: r, systemPrompt: r, outputSchema: {DONE} }}
graph:
  $START: {{ new: coder, resume: coder }}
  coder: {{ _: reviewer }}
  reviewer: {{ _: $END }}
"""
AGENT = """\
import json, subprocess
from pathlib import Path
from uwf_git.kit import Context, Reply, create_agent

def answer(context: Context) -> Reply:
    script = Path(FOLDER, context.role.name)
    if script.exists():
        subprocess.run(["sh", "-e", str(script)], check=True)
    return Reply(json.dumps({"change": "done"}), model=f"{context.role.name}-model")

create_agent("writes", answer).main()
"""
SHOP = "def total(prices):\n    return sum(prices)\n"
TAXED = "\n\ndef taxed(prices, rate):\n    before = total(prices)\n    return before + before * rate\n"
ROUNDED = "\n\ndef rounded(prices, rate):\n    exact = taxed(prices, rate)\n    return round(exact, 2)\n"

Writer = tuple[str, int, str, str]
"""A thread's id, the number of a step, its role and its model."""


class WrittenProject:
    """The project, in whose folder commands are called."""

    def __init__(self, uwf: Uwf, folder: Path, config: Callable[[str], Path]) -> None:
        self.uwf, self.folder, self._config = uwf, folder, config
        self.path = folder / "shop"
        git("init", "-q", "-b", "main", self.path)
        self.commits("shop.py", SHOP, "Add a shop")
        (folder / "build.yaml").write_text(WORKFLOW)
        (folder / "agent.py").write_text(AGENT.replace("FOLDER", repr(str(folder))))
        self.configured()

    def configured(self, workspace: str = "") -> None:
        command = f"{{ command: {sys.executable}, args: [{self.folder / 'agent.py'}] }}"
        self._config(
            f"workspace: {{ kind: worktree{workspace} }}\nagents: {{ writes: {command} }}\ndefaultAgent: writes\n"
        )

    def git(self, *args: object) -> str:
        return git("-C", self.path, *args)

    def tried(self, *args: object) -> str:
        """What git says when it fails, or stops for a person."""
        done = subprocess.run(
            ["git", *map(str, args)], cwd=self.path, capture_output=True, text=True, check=False
        )
        assert done.returncode
        return done.stdout + done.stderr

    def commits(self, name: str, text: str, message: str = "Write it") -> str:
        """A person commits a file; return the commit."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def thread(self, coder: str, reviewer: str = "true") -> str:
        """Run a thread whose roles call these scripts in their worktree; return its id."""
        for role, script in (("coder", coder), ("reviewer", reviewer)):
            (self.folder / role).write_text(script)
        self.uwf("workflow", "put", self.folder / "build.yaml")
        thread = str(self.uwf("thread", "start", "build", "-p", "Write it").json["thread"])
        self.uwf("thread", "run", thread)
        return thread

    def taxed_and_rounded(self) -> str:
        """Run a thread whose coder appends TAXED to shop.py, and its reviewer ROUNDED."""
        texts = {"taxed": TAXED, "rounded": ROUNDED}
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        appending = (f"cat {self.folder / name} >> shop.py" for name in texts)
        return self.thread(*appending)

    def squashed(self, thread: str, message: str = "Tax and round (#1)") -> str:
        """Merge a thread's work as a forge squashes it; return the commit."""
        self.git("merge", "-q", "--squash", f"uwf/work/{thread}")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def blamed(self, file: str = "shop.py", *words: str) -> list[tuple[str, Writer | str]]:
        """Return the lines of a file, each with its writer: of a thread's step, or the name of a person."""
        lines = self.uwf("blame", file, *words).json["lines"]
        return [(line["text"], _writer(line)) for line in lines]

    def merged(self, branch: str = "main", check: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.uwf("verify", "--merged", branch, check=check).out))


def _writer(line: dict[str, Any]) -> Writer | str:
    if line["thread"] is None:
        return str(line["author"])
    return line["thread"], line["step"], line["role"], line["model"]
