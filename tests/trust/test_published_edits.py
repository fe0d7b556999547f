"""Edits of published definitions under a rule: nobody's signature is put under what they have not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Uwf
from proof_world import GATE, ProofWorld

BRANCH = "refs/heads/uwf/workflows/gate"
REGISTERED = "refs/uwf/workflows/gate"
IDENTITY = "ann <ann@example.invalid> 1764000000 +0000"


@pytest.fixture
def world(uwf: Uwf, tmp_path: Path, lasting: Path) -> ProofWorld:
    return ProofWorld(uwf, tmp_path, lasting / "proof")


def committed(world: ProofWorld, tree: str, *parents: str) -> str:
    rows = "".join(f"parent {parent}\n" for parent in parents)
    return world.written(f"tree {tree}\n{rows}author {IDENTITY}\ncommitter {IDENTITY}\n\nMerge\n")


def edited(world: ProofWorld) -> str:
    """Edit the published workflow on the remote, unsigned; the commit."""
    tip = world.ref(BRANCH)
    text = world.read(tip, "workflow.yaml").replace("systemPrompt: Work.", "systemPrompt: Leak.")
    tree = world.tree_with(f"{tip}^{{tree}}", ["workflow.yaml"], text.encode(), "100644")
    commit = committed(world, tree, tip)
    world.put(BRANCH, commit)
    return commit


def registered(world: ProofWorld) -> str:
    return str(world.ann("workflow", "show", "gate").json["commit"])


def proposed(world: ProofWorld, text: str) -> str:
    """Ann's signed proposal on the remote; its commit."""
    file = world.folder / "changed.yaml"
    file.write_text(text)
    proposal = world.ann("workflow", "propose", file, "--branch", "change", "--remote", "origin").json
    return str(proposal["commit"])


def test_a_pull_signs_no_edit_that_does_not_meet_the_rule(world: ProofWorld) -> None:
    before, edit = registered(world), edited(world)
    for _ in range(2):
        refused = world.ann("pull", check=14).error
        assert refused["code"] == "requirement_unmet"
        assert "uwf workflow accept uwf/workflows/gate --remote origin" in refused["hint"]
        assert registered(world) == before
    world.ann("push")
    assert world.ref(REGISTERED) == before
    accepted = world.ann("workflow", "accept", "uwf/workflows/gate", "--remote", "origin").json
    assert (accepted["source"], accepted["case"]) == (edit, "merged")
    world.ann("pull")
    assert registered(world) == accepted["commit"] != before
    world.ann("verify")


def test_a_pull_says_to_others_whose_signature_is_missing(world: ProofWorld) -> None:
    edited(world)
    refused = world.bob("pull", check=14).error
    assert "signed by ann" in refused["message"] and "ann" in refused["hint"]


def test_a_pull_takes_a_forges_merge_of_a_version_that_meets_the_rule(world: ProofWorld) -> None:
    proposal = proposed(world, GATE.replace("Works.", "Works hard."))
    tip = world.ref(BRANCH)
    world.put(BRANCH, committed(world, world.git("rev-parse", f"{proposal}^{{tree}}"), tip, proposal))
    before = registered(world)
    world.ann("pull")
    assert registered(world) != before
    world.ann("verify")


def test_a_pull_signs_no_earlier_version_put_back(world: ProofWorld) -> None:
    first = registered(world)
    file = world.folder / "second.yaml"
    file.write_text(GATE.replace("Works.", "Works hard."))
    world.ann("workflow", "put", file)
    world.ann("publish", "workflow", "gate")
    tip, second = world.ref(BRANCH), registered(world)
    world.put(BRANCH, committed(world, world.git("rev-parse", f"{first}^{{tree}}"), tip, first))
    assert world.ann("pull", check=14).error["code"] == "requirement_unmet"
    assert registered(world) == second
