"""Bundles as people write them: by hand in both languages, and in TypeScript with what esbuild makes of it. They do the
same steps as the graph that they stand for, and come along to another machine, where nothing of them runs by itself.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_programs import ROOT, program
from conftest import REPOSITORY, Uwf
from model_server import Asked, ModelServer, Say, Turn, by_prompt, serving
from two_machines import Machine

pytestmark = [pytest.mark.extended, pytest.mark.needs("bwrap", "node")]

TEMPLATES = REPOSITORY / "examples" / "templates"
PROJECT = Path(__file__).parent / "typescript"

PHASES = [{"id": name, "title": f"Phase {name}", "details": "Do it."} for name in ("p1", "p2")]
CHANGED = {"filesChanged": ["a.py"], "summary": "Done."}
ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("planner", {"phases": PHASES}),
    ("coder", {"completedPhase": "p1", **CHANGED}),
    ("coder", {"completedPhase": "p2", **CHANGED}),
    ("reviewer", {"status": "rejected", "issues": ["a.py:3 is wrong"]}),
    ("coder", {"completedPhase": "p2", **CHANGED}),
    ("reviewer", {"status": "approved", "issues": []}),
    ("tester", {"status": "failed", "report": "one fails"}),
    ("coder", {"completedPhase": "p2", **CHANGED}),
    ("reviewer", {"status": "approved", "issues": []}),
    ("tester", {"status": "passed", "report": "all pass"}),
    ("committer", {"status": "committed", "branch": "fix", "commitSha": "abc"}),
]
"""Every edge of the workflow is taken, one answer a step."""


def steps_of(machine: Uwf | Machine, thread: str) -> list[tuple[str, Any]]:
    """Roles and outputs of a thread's steps, without the result that a bundle ends with."""
    steps = machine("thread", "steps", thread).json
    return [(each["role"], each["output"]) for each in steps if each["role"] != "$END"]


def test_a_bundle_does_the_steps_of_the_graph_that_it_stands_for(uwf: Uwf, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps([{"role": role, "output": output} for role, output in ANSWERS]))
    answers = {}
    for name in ("develop.yaml", "develop.esm.js", "develop.py"):
        put = uwf("workflow", "put", TEMPLATES / name).json
        thread = uwf("thread", "start", put["hash"], "-p", "Mend the export").json["thread"]
        uwf("thread", "run", thread, "--agent", f"uwf-rehearse --script {script}")
        assert uwf("thread", "show", thread).json["status"] == "completed"
        assert steps_of(uwf, thread) == ANSWERS, name
        told = uwf("thread", "steps", thread).json
        answers[name] = [(each["agent"], each["output"]) for each in told if each["role"] != "$END"]
    assert answers["develop.yaml"] == answers["develop.esm.js"] == answers["develop.py"]
    uwf("verify", "--all")


CRITICS = {
    "as a lawyer": [(4, "sound"), (5, "sound"), (5, "sound")],
    "as a newcomer": [(1, "too long"), (3, "clear"), (4, "clear")],
    "as an editor": [(3, "flat"), (3, "better"), (3, "better")],
}
DRAFTS = [
    "I forgot the fields.",
    "---\ntext: One.\n---\n",
    "---\ntext: Two.\n---\n",
    "---\ntext: Other.\n---\n",
]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """A model that a writer asks, and three critics, who are answered once all of them have asked."""
    opinions = {
        view: [Say(f"---\nscore: {score}\nreason: {reason}\n---\n") for score, reason in said]
        for view, said in CRITICS.items()
    }
    told = by_prompt({**opinions, "You write": [Say(text) for text in DRAFTS]})
    together = threading.Barrier(3)

    def decide(asked: Asked) -> Turn:
        if "Read this as" in asked.text:
            together.wait(60)
        return told(asked)

    with serving() as running:
        running.play(decide)
        yield running


def configured(machine: Machine, models: ModelServer) -> Machine:
    machine.root.mkdir(parents=True, exist_ok=True)
    (machine.root / "config.yaml").write_text(
        f"providers: {{local: {{baseUrl: '{models.openai_url}', apiKeyEnv: LOCAL_KEY}}}}\n"
        "models: {small: {provider: local, name: tiny}}\ndefaultModel: small\n"
        "agents: {critic: {command: uwf-llm, args: [--temperature, '1']}}\ndefaultAgent: uwf-llm\n"
    )
    (machine.root / ".env").write_text("LOCAL_KEY=sk-secret-0123456789\n")
    return machine


def test_what_esbuild_makes_of_typescript_runs_is_forked_and_goes_on_elsewhere_once_trusted(
    uwf: Uwf, hermetic: Path, models: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    esbuild = program("esbuild")
    bundle = hermetic / "panel.esm.js"
    monkeypatch.setenv("NODE_PATH", str(ROOT / "bundler" / "node_modules"))
    options = ("--bundle", "--format=esm", "--platform=node", f"--outfile={bundle}", "--log-level=error")
    subprocess.run([esbuild, PROJECT / "panel.ts", *options], check=True)

    ada = configured(Machine(uwf, hermetic / "ada"), models)
    ada("workflow", "put", bundle)
    thread = ada("thread", "start", "panel", "-p", "Praise of git").json["thread"]
    ada("thread", "run", thread)
    assert ada("thread", "show", thread).json["status"] == "completed"
    told = ada("thread", "steps", thread).json
    assert [each["role"] for each in told] == ["writer", "panel", "writer", "panel", "$END"]
    assert [each["output"].get("approved") for each in told[1:4:2]] == [False, True]
    assert [each["score"] for each in told[1]["output"]["opinions"]] == [4, 1, 3]
    assert told[-1]["output"] == {"drafts": 2}

    # The first draft was corrected in its own session; the panel's three conversations are one step.
    first, second = (
        ada("thread", "step-details", each["step"], "--format", "json").json["detail"]["value"]["turns"]
        for each in told[:2]
    )
    assert [turn["role"] for turn in first] == ["assistant", "user", "assistant"]
    assert [turn["role"] for turn in second] == ["user", "assistant"] * 3
    total = ada("stats", thread).json["total"]
    assert (total["input"], total["output"]) == models.usage[:2]

    fork = ada("thread", "fork", thread, "--at", "2").json["thread"]
    origin = hermetic / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", str(origin)], check=True)
    ada("remote", "add", "origin", origin)
    ada("push", "origin", "--all")

    bob = configured(Machine(uwf, hermetic / "bob"), models)
    bob("init")
    bob("remote", "add", "origin", origin)
    bob("pull", "origin")
    bob("verify", "--all")
    assert steps_of(bob, thread) == steps_of(ada, thread)
    asked = len(models.asked)
    assert bob("thread", "run", fork, check=None).error["code"] == "untrusted"
    assert len(models.asked) == asked
    bob("workflow", "trust", "panel", "--yes")
    bob("thread", "run", fork)
    assert [each[1].get("text") for each in steps_of(bob, fork)] == ["One.", None, "Other.", None]
    bob.verifies()


@pytest.mark.parametrize("name", ["develop.yaml", "develop.esm.js"])
def test_a_graph_hands_a_role_on_to_a_graph_or_to_a_bundle(uwf: Uwf, root: Path, name: str) -> None:
    page = (REPOSITORY / "examples" / "README.md").read_text(encoding="utf-8")
    root.mkdir(exist_ok=True)
    (root / "config.yaml").write_text(next(each for each in page.split("```") if "uwf-workflow" in each)[5:])
    uwf("workflow", "put", TEMPLATES / name)
    uwf("workflow", "put", TEMPLATES / "solve-issue.yaml")
    thread = uwf("thread", "start", "solve-issue", "-p", "The export is wrong").json["thread"]
    uwf("thread", "run", thread)
    (_, developer, _) = uwf("thread", "steps", thread).json
    assert developer["agent"] == "uwf-workflow" and developer["output"].keys() == {
        "branch",
        "commitSha",
        "filesChanged",
        "summary",
    }
    (child,) = [row for row in uwf("thread", "list", "--all").json if row["parent"] == thread]
    assert child["status"] == "completed"
    assert "The repository is Rehearsed repo path" in uwf("thread", "read", child["thread"]).out
