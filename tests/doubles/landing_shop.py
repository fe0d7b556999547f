"""A project whose threads land: a fixer that appends a line, tests that no line comes twice, and a gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import git

if TYPE_CHECKING:
    from conftest import Uwf

DONE = "{ type: object, properties: { change: { type: string } }, required: [change] }"
PASSED = "{ type: object, properties: { status: { enum: [passed, failed] } }, required: [status] }"
DECISION = "{ type: object, properties: { status: { enum: [merge, drop] } }, required: [status] }"
WORKFLOW = f"""\
name: mend
description: Mend it, test it, and have a person decide.
roles:
  fixer: {{ description: f, systemPrompt: f, outputSchema: {DONE} }}
  tests: {{ description: t, systemPrompt: t, outputSchema: {PASSED} }}
  gate: {{ description: g, human: true, outputSchema: {DECISION} }}
graph:
  $START: {{ new: fixer, resume: fixer }}
  fixer: {{ _: tests }}
  tests: {{ passed: gate, failed: fixer }}
  gate: {{ merge: $END, drop: {{ end: failed, reason: dropped }} }}
"""
LANDED = """{ type: object, required: [status], oneOf: [
      { properties: { status: { const: landed }, url: { type: string } }, required: [url] },
      { properties: { status: { enum: [conflict, failed] }, reason: { type: string } }, required: [reason] } ] }"""
"""Of the role `land`, to which `with_landing_role` gives what the gate has accepted."""
CONFIG = """\
workspace: { kind: worktree }
agents:
  fixes:
    command: uwf-exec
    args: [sh, -c, 'cat $WHAT >> sum.txt; echo "{\\"change\\": \\"added it\\"}"']
  tries: { command: uwf-exec, args: [sh, tests.sh] }
agentOverrides:
  mend: { fixer: fixes, tests: tries }
"""


class Shop:
    """The project, in the current folder, and its bare remote, which `with_remote` makes."""

    def __init__(self, uwf: Uwf, folder: Path, config: Callable[[str], Path]) -> None:
        self.uwf, self.folder, self._config = uwf, folder, config
        self.project, self.remote = folder / "shop", folder / "shop.git"
        self._lander = ""
        self.adds("two")
        git("init", "-q", "-b", "main", self.project)
        (self.project / "sum.txt").write_text("one\n")
        (self.project / "tests.sh").write_text('echo tried; test "$(sort sum.txt | uniq -d)" = ""\n')
        self.commit("first")
        (folder / "mend.yaml").write_text(WORKFLOW)

    def configured(self, more: str = "", fixes: str = "", workspace: str = "") -> None:
        """Write config.yaml with further sections, settings of the workspace, or other words for the fixer's."""
        text = CONFIG.replace("kind: worktree", f"kind: worktree{workspace}")
        text = text.replace(
            "tests: tries", f"tests: tries, land: {self._lander}" if self._lander else "tests: tries"
        )
        text = text.replace("cat $WHAT >> sum.txt; ", fixes or "cat $WHAT >> sum.txt; ")
        self._config(text.replace("$WHAT", str(self.folder / "what")) + more)

    def with_landing_role(self, agent: str = "uwf-land") -> None:
        """Let the workflow land by itself, and its fixer get what comes of that."""
        text = WORKFLOW.replace(
            "graph:", f"  land: {{ description: l, systemPrompt: l, outputSchema: {LANDED} }}\ngraph:"
        )
        text = text.replace("merge: $END", "merge: land")
        text += "  land: { landed: $END, conflict: { role: fixer, prompt: '{{ reason }}' }, failed: fixer }\n"
        (self.folder / "mend.yaml").write_text(text)
        self._lander = agent

    def with_remote(self, url: str = "") -> None:
        """Make the remote; `url` is what the project calls it, if that isn't its path."""
        git("clone", "-q", "--bare", self.project, self.remote)
        git("-C", self.project, "remote", "add", "origin", url or self.remote)
        if url:
            git("-C", self.project, "config", f"url.{self.remote}.insteadOf", url)

    def adds(self, line: str) -> None:
        """Let the fixer append this line."""
        (self.folder / "what").write_text(f"{line}\n")

    def at_gate(self, prompt: str = "Add *two*\nIt is missing.") -> str:
        self.uwf("workflow", "put", self.folder / "mend.yaml")
        thread = str(self.uwf("thread", "start", "mend", "-p", prompt).json["thread"])
        self.uwf("thread", "run", thread, check=5)
        return thread

    def accepted(self, prompt: str = "Add *two*\nIt is missing.") -> str:
        thread = self.at_gate(prompt)
        self.uwf("thread", "answer", thread, "-m", "merge")
        return thread

    def goes_on(self, thread: str, line: str = "three") -> str:
        """The thread that goes on with an accepted one, accepted with one more line."""
        self.adds(line)
        onward = str(self.uwf("thread", "resume", thread, "-m", f"And {line}.").json["thread"])
        self.uwf("thread", "run", onward, check=5)
        self.uwf("thread", "answer", onward, "-m", "merge")
        return onward

    def commit(self, message: str) -> None:
        git("-C", self.project, "add", ".")
        git("-C", self.project, "commit", "-q", "-m", message)

    def moves(self, name: str, text: str) -> None:
        """The branch that is checked out gets a commit, and the remote, if there is one."""
        (self.project / name).write_text(text)
        self.commit(f"write {name}")
        if self.remote.exists():
            git("-C", self.project, "push", "-q", "origin", "main")

    def at_remote(self, *args: str) -> str:
        """What git prints in the remote."""
        return git("--git-dir", self.remote, *args)


@pytest.fixture
def bare_shop(uwf: Uwf, tmp_path: Path, config: Callable[[str], Path]) -> Shop:
    """The project, without settings."""
    return Shop(uwf, tmp_path, config)


@pytest.fixture
def shop(bare_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The current folder, without a remote."""
    bare_shop.configured()
    monkeypatch.chdir(bare_shop.project)
    return bare_shop
