"""A worktree of a thread that a program starts."""

from __future__ import annotations

from pathlib import Path

from commands import git
from two_machines import RELAY

import uwf_git


def test_a_function_works_in_the_worktree_of_its_thread(hermetic: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "relay.yaml").write_text(RELAY)
    store = uwf_git.init()
    workflow = store.workflows.put(tmp_path / "relay.yaml")
    thread = store.start(workflow, "Do it", cwd=project, workspace="worktree")

    def write(turn: uwf_git.Turn) -> dict[str, str]:
        (turn.cwd / f"{turn.role}.txt").write_text("made")
        return {"text": "done"}

    steps = [step.role for step in thread.run(write)]
    assert steps == ["writer", "reader"]
    listed = git("-C", project, "ls-tree", "--name-only", f"uwf/work/{thread.id}").split()
    assert listed == ["reader.txt", "writer.txt"]
    assert git("-C", project, "status", "--short") == ""
    plain = store.start(workflow, "Do it", cwd=project)
    next(iter(plain.run(write, max_steps=1)))
    assert git("-C", project, "status", "--short") == "?? writer.txt"
