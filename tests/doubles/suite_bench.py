"""A suite's bench: a workflow of two, an agent that notes what it is asked, and runs of what a test imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Uwf

# One solves, the other checks: whoever fails the check solves once more.
SOLVE = """\
name: solve
description: One solves, the other checks.
roles:
  solver:
    description: Solves.
    systemPrompt: Solve it.
    outputSchema: {type: object, properties: {answer: {type: string}}, required: [answer]}
  checker:
    description: Checks.
    systemPrompt: Check it.
    outputSchema: {type: object, properties: {approved: {type: boolean}}, required: [approved]}
conditions:
  approved: {description: It is right., expression: 'steps[-1].output.approved = true'}
graph:
  $START: [{role: solver}]
  solver: [{role: checker}]
  checker: [{role: $END, condition: approved}, {role: solver}]
"""

# Notes each call; solves in capitals, edits notes.txt where that is, and approves of capitals.
AGENT = """
import json, os, pathlib, sys
context = json.load(sys.stdin)
with open(os.environ["CALLS"], "a") as calls:
    calls.write(context["role"] + " " + context["start"]["prompt"] + "\\n")
if context["role"] == "solver":
    notes = pathlib.Path("notes.txt")
    if notes.exists():
        notes.write_text(notes.read_text().upper())
        pathlib.Path("ignored.log").write_text("x")
        if "leak" in context["start"]["prompt"]:
            pathlib.Path("key.txt").write_text(os.environ["LEAKED_API_KEY"])
    print(json.dumps({"answer": context["start"]["prompt"].upper()}))
else:
    answer = context["steps"][-1]["output"]["answer"]
    print(json.dumps({"approved": answer == answer.upper()}))
"""


class Bench:
    """A store with the workflow, and an agent that notes what it is asked."""

    def __init__(self, uwf: Uwf, agent: Path, calls: Path) -> None:
        self.uwf = uwf
        self.agent = f"uwf-exec {agent}"
        self._calls = calls
        calls.touch()
        Path("solve.yaml").write_text(SOLVE)
        uwf("workflow", "put", "solve.yaml")

    @property
    def calls(self) -> int:
        """How often the agent was asked."""
        return len(self._calls.read_text().splitlines())

    def imports(self, cases: list[dict[str, Any]], suite: str = "bugs") -> Any:
        Path("cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
        return self.uwf("eval", "import", "cases.jsonl", "--to", suite, "--workflow", "solve").json

    def run(self, *args: str, suite: str = "bugs", check: int | None = 0) -> Any:
        return self.uwf("eval", "run", suite, "--agent", self.agent, *args, check=check)

    def results(self, *args: str, suite: str = "bugs") -> list[tuple[str, str, float | None]]:
        found = self.run(*args, suite=suite, check=None).json["results"]
        return [(each["case"], each["state"], each["score"]) for each in found]


@pytest.fixture
def bench(
    uwf: Uwf, script: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return Bench(uwf, script("solves", AGENT), tmp_path / "calls")


def held(agent: str) -> str:
    """An agent that waits until it may go on."""
    return agent.replace(
        "context = json.load(sys.stdin)",
        "context = json.load(sys.stdin)\n"
        "pathlib.Path(os.environ['CALLS'] + '.now').write_text(str(os.getpid()))\n"
        "import time\nwhile not pathlib.Path(os.environ['CALLS'] + '.go').exists(): time.sleep(0.05)",
    )
