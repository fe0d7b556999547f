"""Cases of steps that left code have the files that these began with."""

from __future__ import annotations

import json
from pathlib import Path

from commands import git
from conftest import Uwf
from two_machines import RELAY


def test_a_case_of_a_step_with_code_has_the_files_that_the_step_began_with(uwf: Uwf, tmp_path: Path) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    (project / "one.txt").write_text("one")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-q", "-m", "first")
    (tmp_path / "relay.yaml").write_text(RELAY)
    writes = """uwf-exec sh -c 'echo "$UWF_ROLE" >> made.txt; echo "{\\"text\\": \\"done\\"}"'"""
    place = ("--workspace", "worktree", "--cwd", project)
    begun = uwf("run", tmp_path / "relay.yaml", "-p", "Do it", "--agent", writes, *place)
    thread = json.loads(begun.out.splitlines()[0])["thread"]
    uwf("eval", "add", f"{thread}@2", "--to", "bugs", "--name", "step")
    uwf("eval", "add", thread, "--to", "bugs", "--name", "whole")
    shown = {each["case"]: each["fixture"] for each in uwf("eval", "show", "bugs").json["cases"]}
    store = uwf("init").json["store"]
    listed = {
        name: git("--git-dir", store, "ls-tree", "--name-only", tree).split() for name, tree in shown.items()
    }
    assert listed == {"step": ["made.txt", "one.txt"], "whole": ["one.txt"]}
    git("-C", project, "update-ref", "-d", f"refs/uwf/work/{thread}")
    git("-C", project, "reflog", "expire", "--expire=now", "--all")
    git("-C", project, "gc", "-q", "--prune=now")
    said = uwf("eval", "add", f"{thread}@2", "--to", "bugs", "--name", "gone").err
    assert "is not here; give them with --fixture" in said
