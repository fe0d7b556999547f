"""A baseline that others are held against is shared, proposed, reviewed and accepted as workflows are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import commands
import pytest
from conftest import Uwf
from git_servers import bare
from judged_suites import run, version
from two_machines import Machine

from uwf_git.ext.evaluation.suite import Suites
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate

FORGE = {
    name: value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in ((f"GIT_{role}_NAME", "Forge"), (f"GIT_{role}_EMAIL", "forge@example.invalid"))
}


class Reviewed:
    """Two machines and a remote; on the first a baseline of the suite `issues` and a proposed one, pushed."""

    def __init__(self, uwf: Uwf, home: Path) -> None:
        self.one, self.other = Machine(uwf, home / "one"), Machine(uwf, home / "other")
        self.remote = bare(home / "remote.git")
        for machine in (self.one, self.other):
            init(locate(str(machine.root), os.environ, Path.cwd()))
            machine("remote", "add", "origin", self.remote)
        instance = Instance(locate(str(self.one.root), os.environ, Path.cwd()))
        first = run(instance, "issues", version(instance, "Writes."), {"csv": [1], "slug": [0.5]})
        self.better = run(instance, "issues", version(instance, "Writes well."), {"csv": [1], "slug": [1, 0]})
        self.set = self.one("eval", "baseline", "set", "issues", first).json
        proposing = ("eval", "baseline", "propose", "issues", self.better, "--branch", "change")
        self.proposed: dict[str, Any] = self.one(*proposing, "--remote", "origin").json
        # What nobody can pull without the threads that it is of stays where it is.
        Suites(instance.store).remove("issues")
        self.one("push", "origin")
        self.other("pull", "origin")

    def shown(self, machine: Machine) -> str:
        """The run that a machine's baseline is of."""
        return str(machine("eval", "baseline", "show", "issues").json["run"])

    def on_the_forge(self, tree: str, *parents: str, branch: str = "baselines/issues") -> str:
        """A commit that somebody made on the forge, on a branch."""
        options = [word for parent in parents for word in ("-p", parent)]
        made = commands.git(
            "--git-dir", self.remote, "commit-tree", tree, *options, "-m", "Merged", env=FORGE
        )
        commands.git("--git-dir", self.remote, "update-ref", f"refs/heads/uwf/{branch}", made)
        return made


@pytest.fixture
def reviewed(uwf: Uwf, hermetic: Path) -> Reviewed:
    return Reviewed(uwf, hermetic)


def test_a_proposed_baseline_is_accepted_on_another_machine_and_shows_what_it_changes(
    reviewed: Reviewed,
) -> None:
    assert reviewed.shown(reviewed.other) == reviewed.set["run"]
    reviewed.other.verifies()
    diff = commands.git("--git-dir", reviewed.remote, "diff", reviewed.set["commit"], "uwf/proposals/change")
    assert "-| slug | 0.50 |  | 1 |" in diff and "+| slug | 0.50 | 0.00 to 1.00 | 2 |" in diff
    accepted = reviewed.other("eval", "baseline", "accept", "change", "--remote", "origin").json
    assert (accepted["case"], accepted["run"]) == ("fast-forward", reviewed.better)
    reviewed.other("push", "origin")
    reviewed.one("pull", "origin")
    assert reviewed.shown(reviewed.one) == reviewed.better
    reviewed.one.verifies()


def test_a_baseline_that_was_merged_on_a_forge_is_taken_over_by_a_pull(reviewed: Reviewed) -> None:
    tree = commands.git("--git-dir", reviewed.remote, "rev-parse", "uwf/proposals/change^{tree}")
    squashed = reviewed.on_the_forge(tree, reviewed.set["commit"])
    (merged,) = reviewed.other("pull", "origin").json["merged"]
    assert (merged["baseline"], merged["accepted"]["case"]) == ("issues", "merged")
    newest = reviewed.other("eval", "baseline", "history", "issues").json[0]
    assert (newest["run"], newest["takenFrom"]) == (reviewed.better, squashed)
    reviewed.other.verifies()


def test_of_two_baselines_the_one_that_was_shared_first_counts_and_ours_is_kept(reviewed: Reviewed) -> None:
    reviewed.other("eval", "baseline", "accept", "change", "--remote", "origin")
    reviewed.other("push", "origin")
    older = commands.git("--git-dir", reviewed.one.store, "rev-parse", "refs/uwf/baselines/issues")
    ours = commands.git(
        *("--git-dir", reviewed.one.store, "commit-tree", f"{reviewed.proposed['commit']}^{{tree}}"),
        *("-p", older, "-F", "-"),
        data=commands.git(
            "--git-dir", reviewed.one.store, "log", "-1", "--format=%B", reviewed.proposed["commit"]
        ),
        env=FORGE,
    )
    commands.git("--git-dir", reviewed.one.store, "update-ref", "refs/uwf/baselines/issues", ours)
    reviewed.one("pull", "origin")
    theirs = commands.git("--git-dir", reviewed.remote, "rev-parse", "refs/uwf/baselines/issues")
    assert commands.git("--git-dir", reviewed.one.store, "rev-parse", "refs/uwf/baselines/issues") == theirs
    reviewed.one.verifies()


@pytest.mark.parametrize(("said", "instead"), [('"score": 1', '"score": 2'), ("issues", "../x")])
def test_a_baseline_that_breaks_the_format_is_refused(reviewed: Reviewed, said: str, instead: str) -> None:
    store = reviewed.remote
    path = f"baseline/nodes/{reviewed.proposed['hash']}.json"
    text = commands.git("--git-dir", store, "show", f"uwf/proposals/change:{path}")
    assert said in text
    blob = commands.git("--git-dir", store, "hash-object", "-w", "--stdin", data=text.replace(said, instead))
    index = {"GIT_INDEX_FILE": str(store / "edit.index")}
    commands.git("--git-dir", store, "read-tree", "uwf/proposals/change", env=index)
    commands.git("--git-dir", store, "update-index", "--cacheinfo", f"100644,{blob},{path}", env=index)
    tree = commands.git("--git-dir", store, "write-tree", env=index)
    reviewed.on_the_forge(tree, reviewed.set["commit"], branch="proposals/change")
    refused = reviewed.other("eval", "baseline", "accept", "change", "--remote", "origin", check=None)
    assert refused.code in (1, 7) and reviewed.shown(reviewed.other) == reviewed.set["run"]
