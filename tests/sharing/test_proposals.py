"""Proposed versions of a workflow, and what forges make of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import commands
import pytest
from cli_samples import PAIR, write
from conftest import Uwf
from git_servers import bare

from uwf_git.base.errors import Invalid, StoreDamaged
from uwf_git.store.instance import Instance
from uwf_git.store.location import init, locate
from uwf_git.sync.proposals import take_merged

SHORTER = PAIR.replace("One writes, one reviews.", "A shorter one.")
LONGER = PAIR.replace("One writes, one reviews.", "A longer one.")
HOSTILE = PAIR.replace("name: pair", "name: other")
FORGE = {
    "GIT_AUTHOR_NAME": "Bob Example",
    "GIT_AUTHOR_EMAIL": "bob@example.invalid",
    "GIT_COMMITTER_NAME": "Forge",
    "GIT_COMMITTER_EMAIL": "noreply@forge.example.invalid",
}


def git(folder: Path, *args: str, **more: Any) -> str:
    """The git program on a bare repository, used by the forge."""
    environ = {**FORGE, **more.pop("env", {})}
    return commands.git(f"--git-dir={folder}", *args, env=environ, **more).strip()


WORDS = "Let the reviewer see the diff\n\nIt asked for it in every second run.\nUwf-Workflow: none"


class Shared:
    """A store with a remote, a bare repository by path, in which a forge's clicks are done with git."""

    def __init__(self, uwf: Uwf, root: Path, folder: Path, kept: Path | None = None) -> None:
        """Make them, or copy those of the folder `kept`."""
        self.uwf, self.store, self.remote = uwf, root / "store.git", folder
        if kept is None:
            init(locate(None, os.environ, Path.cwd()))
            bare(folder)
            uwf("remote", "add", "origin", folder)
        else:
            shutil.copytree(kept / "root", root)
            shutil.copytree(kept / "forge.git", folder)
            git(self.store, "config", "remote.origin.url", str(folder))

    @property
    def instance(self) -> Instance:
        return Instance(locate(None, os.environ, Path.cwd()))

    def put(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = self.uwf("workflow", "put", write("pair.yaml", text)).json
        return found

    def propose(self, text: str, *more: str, check: int = 0) -> Any:
        done = self.uwf(
            "workflow", "propose", write("proposed.yaml", text), "--branch", "change", *more, check=check
        )
        return done.json if check == 0 else done.error

    def accept(self, *more: str, check: int = 0) -> Any:
        done = self.uwf("workflow", "accept", "change", *more, check=check)
        return done.json if check == 0 else done.error

    def registered(self) -> dict[str, Any]:
        shown = self.uwf("workflow", "show", "pair").json
        return {key: shown[key] for key in ("name", "hash", "commit", "description")}

    def pull(self) -> list[Any]:
        """What a pull brings of published workflows."""
        git(self.store, "fetch", "-q", "origin")
        return take_merged(self.instance, "origin")

    # What somebody does on the forge

    def branch(self, name: str) -> str:
        return git(self.remote, "rev-parse", f"refs/heads/{name}")

    def commit(self, tree: str, parents: list[str], message: str, branch: str) -> str:
        """A commit made on the forge, at the end of a branch."""
        flags = [flag for parent in parents for flag in ("-p", parent)]
        made = git(self.remote, "commit-tree", tree, *flags, "-F", "-", data=message)
        git(self.remote, "update-ref", f"refs/heads/{branch}", made)
        return made

    def merge(self, source: str, into: str) -> str:
        """The button for a merge commit."""
        ours, theirs = self.branch(into), self.branch(source)
        tree = git(self.remote, "rev-parse", f"{theirs}^{{tree}}")
        return self.commit(tree, [ours, theirs], f"Merge pull request #1 from {source}\n", into)

    def squash(self, source: str, into: str) -> str:
        """The button for a squashed commit, which keeps the message of the only commit there is."""
        theirs = self.branch(source)
        tree = git(self.remote, "rev-parse", f"{theirs}^{{tree}}")
        subject, _, rest = git(self.remote, "log", "-1", "--format=%B", theirs).partition("\n")
        return self.commit(tree, [self.branch(into)], f"{subject} (#1)\n{rest}\n", into)

    def edit(self, branch: str, files: Mapping[str, str], mode: str = "100644") -> str:
        """Files changed in the forge's editor."""
        index = {"GIT_INDEX_FILE": str(self.remote / "an-index")}
        head = self.branch(branch)
        git(self.remote, "read-tree", head, env=index)
        for name, text in files.items():
            blob = git(self.remote, "hash-object", "-w", "--stdin", data=text)
            git(self.remote, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}", env=index)
        tree = git(self.remote, "write-tree", env=index)
        return self.commit(tree, [head], f"Update {next(iter(files))}\n", branch)


@pytest.fixture
def shared(uwf: Uwf, root: Path, tmp_path: Path) -> Shared:
    return Shared(uwf, root, tmp_path / "forge.git")


@pytest.fixture
def published(uwf: Uwf, root: Path, tmp_path: Path, lasting: Path) -> Shared:
    """A registered workflow, published. It is made once, and copied."""
    folder, kept = tmp_path / "forge.git", lasting / "published-workflow"
    if kept.exists():
        return Shared(uwf, root, folder, kept)
    shared = Shared(uwf, root, folder)
    shared.put(PAIR)
    uwf("publish", "workflow", "pair")
    shutil.copytree(root, kept / "root")
    shutil.copytree(folder, kept / "forge.git")
    return shared


# On one machine


def test_a_proposal_is_called_what_its_author_says(uwf: Uwf, shared: Shared) -> None:
    shared.put(PAIR)
    made = shared.propose(SHORTER, "--remote", "origin", "-m", WORDS)
    branch = shared.branch("uwf/proposals/change")
    assert branch == made["commit"]
    said = git(shared.remote, "log", "-1", "--format=%B", branch)
    assert said == f"{WORDS}\n\nUwf-Workflow: {made['hash']}"
    assert shared.accept()["case"] == "fast-forward"
    assert uwf("verify", "--all").code == 0
    uwf("push")
    uwf("clone", shared.remote, "--root", "other")
    assert uwf("workflow", "show", "pair", "--root", "other").json["commit"] == branch
    assert uwf("verify", "--all", "--root", "other").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (" \n", "is empty"),
        ("x" * 101, "first line"),
        ("red\n\n\x1b[31m", "control"),
        ("a\n" + "b" * 10_000, "10000"),
    ],
)
def test_words_that_no_commit_should_have_are_refused(shared: Shared, words: str, said: str) -> None:
    shared.put(PAIR)
    assert said in shared.propose(SHORTER, "-m", words, check=1)["message"]
    assert "refs/uwf/proposals" not in git(shared.store, "for-each-ref")


def test_a_proposal_stands_on_the_registered_version_and_the_registry_stays(shared: Shared) -> None:
    first = shared.put(PAIR)
    made = shared.propose(SHORTER)
    assert made.keys() == {"branch", "name", "hash", "commit", "base", "changed"}
    assert (made["name"], made["branch"], made["base"], made["changed"]) == (
        "pair",
        "change",
        first["commit"],
        True,
    )
    assert shared.registered()["commit"] == first["commit"]
    assert git(shared.store, "rev-parse", f"{made['commit']}^") == first["commit"]
    assert git(shared.store, "rev-parse", "refs/uwf/proposals/change") == made["commit"]
    assert git(shared.remote, "for-each-ref") == ""
    changed = git(shared.store, "diff", "--name-only", first["commit"], made["commit"], "--", ":!*/nodes/*")
    assert changed.splitlines() == ["workflow.yaml", "workflow/README.md"]


def test_proposing_again_adds_a_version_and_unchanged_content_none(shared: Shared) -> None:
    shared.put(PAIR)
    first = shared.propose(SHORTER)
    again = shared.propose(SHORTER)
    assert again == {**first, "changed": False}
    second = shared.propose(LONGER)
    assert second["changed"]
    assert git(shared.store, "rev-parse", f"{second['commit']}^") == first["commit"]
    nothing = shared.uwf("workflow", "propose", "pair.yaml", "--branch", "empty").json
    assert (nothing["changed"], nothing["commit"]) == (False, nothing["base"])
    assert "empty" not in git(shared.store, "for-each-ref")


def test_accepting_moves_the_registry_to_the_proposal(shared: Shared) -> None:
    first = shared.put(PAIR)
    made = shared.propose(SHORTER)
    accepted = shared.accept()
    assert accepted == {
        "name": "pair",
        "hash": made["hash"],
        "commit": made["commit"],
        "case": "fast-forward",
        "before": first["commit"],
        "source": made["commit"],
    }
    assert shared.registered()["description"] == "A shorter one."
    assert [each["hash"] for each in shared.uwf("workflow", "history", "pair").json] == [
        made["hash"],
        first["hash"],
    ]
    assert shared.accept(check=3)["code"] == "not_found"  # it was taken


def test_a_new_workflow_can_be_proposed(shared: Shared) -> None:
    made = shared.propose(PAIR)
    assert made["base"] is None
    assert shared.uwf("workflow", "list").json == []
    assert shared.accept()["before"] is None
    assert shared.registered()["commit"] == made["commit"]


def test_a_version_registered_since_is_never_overwritten(shared: Shared) -> None:
    shared.put(PAIR)
    shared.propose(SHORTER)
    now = shared.put(LONGER)
    refused = shared.accept(check=4)
    assert refused["code"] == "head_moved"
    assert "uwf workflow propose FILE --branch change" in refused["hint"]
    assert shared.registered()["commit"] == now["commit"]
    both = shared.propose(PAIR.replace("One writes, one reviews.", "Shorter and longer."))
    parents = git(shared.store, "log", "-1", "--format=%P", both["commit"]).split()
    assert parents[0] == now["commit"]
    assert len(parents) == 2
    assert shared.accept()["case"] == "fast-forward"
    assert shared.registered()["description"] == "Shorter and longer."


def test_a_proposal_outlives_a_version_that_came_and_went(shared: Shared) -> None:
    first = shared.put(PAIR)
    made = shared.propose(SHORTER)
    shared.put(LONGER)
    back = shared.uwf("workflow", "rollback", "pair").json
    assert back["hash"] == first["hash"]
    accepted = shared.accept()
    assert (accepted["case"], accepted["hash"], accepted["before"]) == (
        "merged",
        made["hash"],
        back["commit"],
    )
    assert git(shared.store, "log", "-1", "--format=%P", accepted["commit"]).split() == [
        back["commit"],
        made["commit"],
    ]


@pytest.mark.parametrize(
    "name", ["", "-x", "a..b", "a b", "x.lock", "a//b", "HEAD", "a\x1b[31m", "~x", "x" * 300]
)
def test_a_name_that_is_no_branch_is_refused(shared: Shared, name: str) -> None:
    file = write("proposed.yaml", PAIR)
    refused = shared.uwf("workflow", "propose", file, f"--branch={name}", check=1)
    assert refused.error["code"] == "invalid"
    assert git(shared.store, "for-each-ref", "refs/uwf/proposals") == ""


def test_a_proposal_keeps_to_one_workflow_and_one_place(shared: Shared) -> None:
    shared.propose(PAIR)
    other = shared.propose(HOSTILE, check=1)
    assert "'pair'" in other["message"]
    nested = shared.uwf("workflow", "propose", "proposed.yaml", "--branch", "change/more", check=2)
    assert "'change'" in nested.error["message"]


# On a remote


def test_a_proposal_is_pushed_beside_what_it_is_to_be_merged_into(shared: Shared) -> None:
    first = shared.put(PAIR)
    made = shared.propose(SHORTER, "--remote", "origin")
    assert made["remote"] == "origin"
    assert made["published"] == {
        "branch": "uwf/proposals/change",
        "commit": made["commit"],
        "base": first["commit"],
        "baseBranch": "uwf/workflows/pair",
        "pages": None,
    }
    assert shared.branch("uwf/proposals/change") == made["commit"]
    assert shared.branch("uwf/workflows/pair") == first["commit"]
    assert shared.propose(LONGER, "--remote", "origin")["published"]["commit"] == shared.branch(
        "uwf/proposals/change"
    )


def test_a_proposal_is_accepted_from_a_remote_by_somebody_else(shared: Shared, tmp_path: Path) -> None:
    first = shared.put(PAIR)
    made = shared.propose(SHORTER, "--remote", "origin")
    shared.uwf("workflow", "rm", "pair")
    git(shared.store, "update-ref", "-d", "refs/uwf/proposals/change")
    git(shared.store, "update-ref", "refs/uwf/workflows/pair", first["commit"])
    accepted = shared.accept("--remote", "origin")
    assert (accepted["case"], accepted["commit"]) == ("fast-forward", made["commit"])
    assert shared.accept("--remote", "origin")["case"] == "unchanged"
    missing = shared.uwf("workflow", "accept", "chnage", "--remote", "origin", check=3)
    assert "uwf/proposals/change" in missing.error["hint"]


@pytest.mark.parametrize("button", ["merge", "squash"])
def test_what_a_forge_merged_moves_the_registry_after_a_pull(published: Shared, button: str) -> None:
    first = published.registered()
    made = published.propose(SHORTER, "--remote", "origin")
    merged = getattr(published, button)("uwf/proposals/change", "uwf/workflows/pair")
    (taken,) = published.pull()
    assert (taken.name, taken.source, taken.problem) == ("pair", merged, None)
    assert taken.accepted.case == "merged"
    now = published.registered()
    assert (now["hash"], now["description"]) == (made["hash"], "A shorter one.")
    parents = git(published.store, "log", "-1", "--format=%P", now["commit"]).split()
    assert parents == [first["commit"], merged]
    assert "Forge" in git(published.store, "log", "--format=%cn", now["commit"])
    assert published.pull() == []
    assert [each["hash"] for each in published.uwf("workflow", "history", "pair").json] == [
        made["hash"],
        first["hash"],
    ]
    published.uwf("publish", "workflow", "pair")  # goes forward
    assert published.branch("uwf/workflows/pair") == now["commit"]


def test_a_fast_forward_on_the_forge_is_one_here(published: Shared) -> None:
    made = published.propose(SHORTER, "--remote", "origin")
    git(published.remote, "update-ref", "refs/heads/uwf/workflows/pair", made["commit"])
    (taken,) = published.pull()
    assert taken.accepted.case == "fast-forward"
    assert published.registered()["commit"] == made["commit"]


def test_a_definition_edited_on_the_forge_is_compiled_anew(published: Shared) -> None:
    edited = published.edit("uwf/workflows/pair", {"workflow.yaml": LONGER})
    (taken,) = published.pull()
    assert (taken.source, taken.accepted.case) == (edited, "merged")
    now = published.registered()
    assert now["description"] == "A longer one."
    page = git(published.store, "show", f"{now['commit']}:workflow/README.md")
    assert "A longer one\\." in page or "A longer one." in page
    assert published.put(LONGER)["commit"] == now["commit"]


def test_an_include_edited_on_the_forge_is_part_of_the_version(shared: Shared) -> None:
    write("prompt.md", "Write.")
    text = PAIR.replace("systemPrompt: Write.", "systemPrompt: !include prompt.md")
    shared.put(text)
    shared.uwf("publish", "workflow", "pair")
    shared.edit("uwf/workflows/pair", {"workflow/include/prompt.md": "Write well."})
    (taken,) = shared.pull()
    assert taken.problem is None
    shown = shared.uwf("workflow", "show", "pair").json
    assert shown["roles"]["writer"]["systemPrompt"] == "Write well."


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"workflow.yaml": HOSTILE}, "defines workflow 'other'"),
        ({"workflow.yaml": "name: [oops"}, "workflow.yaml:2:1"),
        ({"workflow.yaml": PAIR.replace("{ role: critic }", "{ role: nobody }")}, "nobody"),
        ({"workflow.yaml": PAIR.replace("Write.", "!include ../../secret")}, "leads outside"),
        ({"workflow.yaml": PAIR.replace("Write.", "!include nothing.md")}, "has no"),
        ({"workflow.yaml": "a: &a [1, 2]\n" + "b: &b [*a, *a]\n" * 3}, "workflow.yaml"),
        ({"workflow.yaml": "x" * (2 << 20)}, "over the limit"),
        ({"workflow.yaml": ""}, "workflow.yaml"),
    ],
)
@pytest.mark.sample(4)
def test_a_definition_that_is_not_sound_is_named_and_moves_nothing(
    published: Shared, files: Mapping[str, str], reason: str
) -> None:
    before = published.registered()
    published.edit("uwf/workflows/pair", files)
    (taken,) = published.pull()
    assert taken.accepted is None
    assert reason in taken.problem.message
    assert "uwf/workflows/pair of origin" in taken.problem.message
    assert isinstance(taken.problem, Invalid | StoreDamaged)
    assert "uwf publish workflow pair --remote origin" in taken.problem.hint
    assert published.registered() == before


def test_a_link_in_the_place_of_a_definition_is_not_followed(published: Shared) -> None:
    published.edit("uwf/workflows/pair", {"workflow.yaml": "/etc/passwd"}, mode="120000")
    (taken,) = published.pull()
    assert "is not a file" in taken.problem.message


def test_a_merge_of_what_was_changed_here_meanwhile_is_refused_until_both_are_one(published: Shared) -> None:
    published.propose(SHORTER, "--remote", "origin")
    published.merge("uwf/proposals/change", "uwf/workflows/pair")
    here = published.put(LONGER)
    (taken,) = published.pull()
    assert taken.problem.code == "head_moved"
    assert published.registered()["commit"] == here["commit"]
    assert "uwf workflow put FILE && uwf unpublish pair --remote origin --force" in taken.problem.hint
    refused = published.uwf("publish", "workflow", "pair", check=4)
    assert "uwf workflow accept uwf/workflows/pair --remote origin" in refused.error["hint"]
    assert "uwf publish workflow pair --as BRANCH --remote origin" in refused.error["hint"]
    assert (
        "uwf workflow put FILE"
        in published.uwf("workflow", "accept", "uwf/workflows/pair", "--remote", "origin", check=4).error[
            "hint"
        ]
    )
    published.uwf("unpublish", "pair", "--force")
    published.uwf("publish", "workflow", "pair")
    assert published.pull() == []


def test_nodes_that_lie_in_a_merged_tree_reach_nothing(published: Shared) -> None:
    shown = published.registered()
    node = f"workflow/nodes/{shown['hash']}.json"
    published.edit(
        "uwf/workflows/pair", {"workflow.yaml": SHORTER, node: '{"type": "x", "payload": 1, "timestamp": 0}'}
    )
    (taken,) = published.pull()
    assert taken.accepted.case == "merged"
    git(published.store, "fsck", "--strict")
    assert (
        published.uwf("cas", "get", shown["hash"]).json["payload"]["description"]
        == "One writes, one reviews."
    )
    assert published.uwf("cas", "reindex").code == 0
    assert published.registered()["description"] == "A shorter one."


# Two machines


def test_a_merge_that_two_machines_take_over_ends_as_one_version(published: Shared, hermetic: Path) -> None:
    published.uwf("push")
    other = {"UWF_STORAGE_ROOT": str(hermetic / "other")}
    published.uwf("clone", published.remote, env=other)
    made = published.propose(SHORTER, "--remote", "origin")
    merged = published.merge("uwf/proposals/change", "uwf/workflows/pair")
    for env in ({}, other):
        pulled = published.uwf("pull", env=env).json
        assert [each["accepted"]["hash"] for each in pulled["merged"]] == [made["hash"]]
        assert pulled["merged"][0]["accepted"]["source"] == merged
    here, there = (published.uwf("workflow", "show", "pair", env=env).json for env in ({}, other))
    assert here["commit"] == there["commit"]
    published.uwf("push")
    published.uwf("push", env=other)  # no race to lose
    cases = [each["case"] for each in published.uwf("pull", env=other).json["adopted"]]
    assert "two-histories" not in cases
    assert git(hermetic / "other" / "store.git", "for-each-ref", "refs/uwf/proposals") == ""
    for env in ({}, other):
        assert published.uwf("verify", "--all", env=env).json["findings"] == []


def test_a_clone_takes_over_a_version_that_was_merged_and_accepted_before(
    published: Shared, hermetic: Path
) -> None:
    published.propose(SHORTER, "--remote", "origin")
    published.squash("uwf/proposals/change", "uwf/workflows/pair")
    published.uwf("pull")
    published.uwf("push")
    other = {"UWF_STORAGE_ROOT": str(hermetic / "other")}
    pulled = published.uwf("clone", published.remote, env=other).json
    assert pulled.get("refused", []) == []
    there = published.uwf("workflow", "show", "pair", env=other).json
    assert there["commit"] == published.registered()["commit"]


def test_a_refused_merge_says_at_every_pull_what_to_do(published: Shared) -> None:
    published.edit("uwf/workflows/pair", {"workflow.yaml": "name: [oops"})
    for _ in range(2):
        (merged,) = published.uwf("pull", check=None).json["merged"]
        assert merged["accepted"] is None
        assert "workflow.yaml:2:1" in merged["problem"]
        assert merged["hint"]


@pytest.mark.parametrize("extra", ["README.md", "workflow/nodes/0000000000000.json", "workflow/README.md"])
def test_a_commit_that_only_claims_to_be_a_version_is_compiled_anew(published: Shared, extra: str) -> None:
    made = published.propose(SHORTER, "--remote", "origin")
    claim = git(published.remote, "log", "-1", "--format=%B", made["commit"])
    edited = published.edit("uwf/proposals/change", {extra: "Not what uwf wrote.\n"})
    tree = git(published.remote, "rev-parse", f"{edited}^{{tree}}")
    forged = published.commit(tree, [published.registered()["commit"]], claim + "\n", "uwf/workflows/pair")
    (taken,) = published.pull()
    assert (taken.source, taken.accepted.case) == (forged, "merged")
    now = published.registered()
    assert now["hash"] == made["hash"]
    assert git(published.store, "diff", "--name-only", now["commit"], made["commit"]) == ""


def test_a_merge_that_was_registered_and_pushed_by_somebody_makes_no_version(
    published: Shared, hermetic: Path
) -> None:
    published.uwf("push")
    other = {"UWF_STORAGE_ROOT": str(hermetic / "other")}
    published.uwf("clone", published.remote, env=other)
    published.propose(SHORTER, "--remote", "origin")
    published.merge("uwf/proposals/change", "uwf/workflows/pair")
    published.uwf("pull")
    published.uwf("push")
    now = published.registered()["commit"]
    # Both the shared ref and the published branch have moved since.
    for _ in range(2):
        assert published.uwf("pull", env=other).json.get("merged", []) == []
        assert published.uwf("workflow", "show", "pair", env=other).json["commit"] == now


# Commits that break the format

OCTOPUS = ("octopus", "time", "encoding", "all")


def malformed(shared: Shared, kind: str) -> str:
    """Puts a proposed version on the published branch in a commit that looks right, but for its headers."""
    made = shared.propose(SHORTER, "--remote", "origin")
    first = shared.registered()["commit"]
    raw = git(shared.remote, "cat-file", "commit", made["commit"]) + "\n"
    head, _, message = raw.partition("\n\n")
    lines = head.split("\n")
    if kind in ("octopus", "all"):
        more = [git(shared.remote, "commit-tree", f"{first}^{{tree}}", "-m", text) for text in ("a", "b")]
        lines[2:2] = [f"parent {oid}" for oid in more]
    if kind in ("time", "all"):
        lines = [
            re.sub(r"> \d+ ", "> 99999999999999999 ", line)
            if line.startswith(("author", "committer"))
            else line
            for line in lines
        ]
    if kind in ("encoding", "all"):
        lines.append("encoding ISO-8859-1")
    text = "\n".join(lines) + "\n\n" + message
    oid = git(shared.remote, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", data=text)
    git(shared.remote, "update-ref", "refs/heads/uwf/workflows/pair", oid)
    return oid


@pytest.mark.parametrize(
    ("by", "kind"),
    [
        pytest.param(by, kind, marks=() if by == "pull" or kind == "all" else pytest.mark.extended)
        for by in ("pull", "accept", "accept-new")
        for kind in OCTOPUS
    ],
)
def test_a_version_that_others_would_refuse_is_not_moved_to(
    published: Shared, hermetic: Path, kind: str, by: str
) -> None:
    bad = malformed(published, kind)
    if by == "pull":
        (merged,) = published.uwf("pull").json["merged"]
        assert (merged["accepted"]["case"], merged["accepted"]["source"]) == ("merged", bad)
    else:
        if by == "accept-new":
            published.uwf("workflow", "rm", "pair")
        accepted = published.uwf("workflow", "accept", "uwf/workflows/pair", "--remote", "origin").json
        assert (accepted["case"], accepted["source"]) == ("merged", bad)
    now = published.registered()
    assert now["commit"] != bad
    assert now["description"] == "A shorter one."
    assert published.uwf("verify", "--all").json["findings"] == []
    assert published.uwf("doctor", check=None).code != 7
    # It is taken over once, and what stands on it goes to others.
    assert published.uwf("pull").json.get("merged", []) == []
    published.uwf("publish", "workflow", "pair")
    published.uwf("thread", "start", "pair", "-p", "Write it")
    published.uwf("push")
    other = {"UWF_STORAGE_ROOT": str(hermetic / "other")}
    pulled = published.uwf("clone", published.remote, env=other).json
    assert pulled.get("refused", []) == []
    assert published.uwf("verify", "--all", env=other).json["findings"] == []
    assert published.uwf("cas", "reindex", env=other).code == 0
    assert published.uwf("workflow", "show", "pair", env=other).json["commit"] == now["commit"]


def test_a_forge_s_people_and_times_are_those_of_the_version(published: Shared) -> None:
    merged = published.edit("uwf/workflows/pair", {"workflow.yaml": LONGER})
    published.pull()
    form = "--format=%an <%ae> %ad / %cn <%ce> %cd"
    now = published.registered()["commit"]
    assert git(published.store, "log", "-1", form, now) == git(published.remote, "log", "-1", form, merged)


# Unpublishing what somebody went on with


@pytest.mark.parametrize("fetched", [True, False])
def test_an_edit_that_was_not_taken_over_is_not_deleted_without_force(
    published: Shared, fetched: bool
) -> None:
    edited = published.edit("uwf/workflows/pair", {"workflow.yaml": LONGER})
    if fetched:
        git(published.store, "fetch", "-q", "origin")
    refused = published.uwf("unpublish", "pair", check=4).error
    assert refused["code"] == "head_moved"
    assert edited in refused["message"]
    assert f"show {edited}" in refused["hint"]
    assert "uwf workflow accept uwf/workflows/pair --remote origin" in refused["hint"]
    assert "uwf unpublish pair --remote origin --force" in refused["hint"]
    assert published.branch("uwf/workflows/pair") == edited
    look = refused["hint"].partition("look at it: ")[2].partition(";")[0]
    shown = subprocess.run(look, shell=True, capture_output=True, text=True, check=True)
    assert "A longer one." in shown.stdout
    done = published.uwf("unpublish", "pair", "--force").json
    assert done["unpublished"] == [{"branch": "uwf/workflows/pair", "commit": edited}]
    assert git(published.remote, "for-each-ref", "refs/heads") == ""


def test_an_edit_that_was_taken_over_is_deleted_without_more(published: Shared) -> None:
    edited = published.edit("uwf/workflows/pair", {"workflow.yaml": LONGER})
    published.uwf("pull")
    said = published.uwf("unpublish", "pair", "--format", "text").out
    assert edited in said
    assert git(published.remote, "for-each-ref", "refs/heads") == ""
