"""Steps of a thread whose only role speaks to an ACP agent, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workflows import start_thread

from uwf_git.base.errors import AgentFailed
from uwf_git.engine.step import step
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import parse_step
from uwf_git.store.instance import Instance

AGENT = Path(__file__).parent / "acp_agent.py"

WORKFLOW = """\
name: again
description: One role, again and again
roles:
  worker:
    description: Does the work.
    systemPrompt: Work.
    outputSchema: {type: object, properties: {summary: {type: string}}, required: [summary]}
    tools: %s
graph:
  $START: [{role: worker}]
  worker: [{role: $END, condition: over}, {role: worker}]
conditions:
  over: {description: Never, expression: "$count(steps) > 99"}
"""


class Came(NamedTuple):
    """What came of a step: the detail, its turns, and the error's text and hint where it failed."""

    detail: dict[str, Any]
    turns: list[dict[str, Any]]
    output: Any = None
    error: str = ""
    hint: str = ""

    @property
    def said(self) -> list[str]:
        return [turn["text"] for turn in self.turns if turn["role"] == "assistant"]

    def tools(self, name: str) -> list[dict[str, Any]]:
        return [turn for turn in self.turns if turn.get("tool") == name]


class Steps:
    """A thread, and an agent's command in config.yaml."""

    def __init__(
        self,
        root: Path,
        command: Sequence[str],
        more: str = "",
        role_tools: str = "{}",
        begin: Callable[[Instance], ThreadId] | None = None,
    ) -> None:
        args = json.dumps([*command])
        (root / "config.yaml").write_text(
            f"agents:\n  acp: {{command: uwf-acp, args: {args}}}\ndefaultAgent: acp\n{more}"
        )
        self.instance = Instance.open()
        self.thread = begin(self.instance) if begin else start_thread(self.instance, WORKFLOW % role_tools)

    def step(self) -> Came:
        """Does a step; what a failed one kept is there as well."""
        instance = self.instance
        try:
            step(instance, self.thread)
        except AgentFailed as failure:
            attempt = instance.attempts.all(self.thread)[-1]
            if attempt.detail is None:
                return Came({}, [], None, failure.message, failure.hint)
            return self._came(attempt.detail, None, failure)
        made = parse_step(instance.store.get(instance.threads.active_head(self.thread).node).payload)
        return self._came(made.detail, instance.store.get(made.output).payload)

    def _came(self, node: Hash, output: Any, failure: AgentFailed | None = None) -> Came:
        store = self.instance.store
        detail = store.get(node).payload
        turns = [store.get(Hash(turn)).payload for turn in detail["turns"]]
        return Came(
            detail, turns, output, failure.message if failure else "", failure.hint if failure else ""
        )


class Scripted(Steps):
    """The same with the scripted agent, which keeps its sessions and a log."""

    def __init__(
        self,
        root: Path,
        *scenarios: str,
        more: str = "",
        role_tools: str = "{}",
        options: Sequence[str] = (),
        flags: Sequence[str] = (),
        begin: Callable[[Instance], ThreadId] | None = None,
    ) -> None:
        self.log = root / "agent.log"
        self._flags = ["--log", str(self.log), "--sessions", str(root), *flags]
        command = [*options, "--", sys.executable, "-S", str(AGENT), *self._flags, *scenarios]
        super().__init__(root, command, more, role_tools, begin)

    def noted(self, what: str) -> list[Any]:
        """What the agent has written down of that."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [value for name, value in map(json.loads, lines) if name == what]

    def now(
        self,
        *scenarios: str,
        more: str = "",
        flags: Sequence[str] | None = None,
        command: str = sys.executable,
    ) -> None:
        """Lets the agent behave differently from the next step on."""
        words = [command, "-S", str(AGENT), *(self._flags if flags is None else flags), *scenarios]
        config = self.instance.location.root / "config.yaml"
        config.write_text(
            f"agents:\n  acp: {{command: uwf-acp, args: {json.dumps(['--', *words])}}}\ndefaultAgent: acp\n{more}"
        )
        self.instance = Instance.open()
