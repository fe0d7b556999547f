"""Versions of bundles on a remote: published, proposed, accepted, pulled, and not run for any of it."""

from __future__ import annotations

from pathlib import Path

import git_servers
import pytest
from bundle_files import DEBATE
from cli_samples import write
from commands import loose
from conftest import Uwf
from forged import Forger
from two_machines import Machine

pytestmark = pytest.mark.needs("bwrap", "node")

SHORTER = DEBATE.replace("round < 4", "round < 2")


@pytest.fixture
def hub(hermetic: Path) -> Path:
    """An empty repository that two machines share."""
    return git_servers.bare(hermetic / "hub.git")


@pytest.fixture
def ada(uwf: Uwf, hermetic: Path, hub: Path) -> Machine:
    """The author's machine, with the bundle put and published."""
    ada = Machine(uwf, hermetic / "ada")
    ada("workflow", "put", write("debate.esm.js", DEBATE))
    ada("remote", "add", "origin", hub)
    ada("push")
    ada("publish", "workflow", "debate")
    return ada


@pytest.fixture
def ben(uwf: Uwf, ada: Machine, hermetic: Path, hub: Path) -> Machine:
    """Another machine that has cloned it."""
    ben = Machine(uwf, hermetic / "ben")
    ben("clone", hub)
    return ben


def proposed(ada: Machine) -> str:
    """The hash of a proposal on the remote, made by the author of the bundle."""
    file = write("shorter.esm.js", SHORTER)
    return str(ada("workflow", "propose", file, "--branch", "shorter", "--remote", "origin").json["hash"])


def test_a_proposed_bundle_is_accepted_as_it_is_and_not_trusted(ada: Machine, ben: Machine) -> None:
    wanted = proposed(ada)
    accepted = ben("workflow", "accept", "shorter", "--remote", "origin").json
    assert (accepted["hash"], accepted["case"]) == (wanted, "fast-forward")
    shown = ben("workflow", "show", "debate").json
    assert (shown["hash"], shown["trusted"]) == (wanted, False)
    ben("verify", "--strict")


def test_a_proposal_that_a_forge_has_squashed_is_accepted_without_running_it(
    ada: Machine, ben: Machine, hub: Path
) -> None:
    wanted = proposed(ada)
    forge = Forger(hub)
    tree = forge("rev-parse", "refs/heads/uwf/proposals/shorter^{tree}")
    base = forge("rev-parse", "refs/heads/uwf/workflows/debate")
    forge.point("refs/heads/uwf/workflows/debate", forge.commit(tree, [base], "shorter (#1)\n"))
    ben("pull")
    history = ben("workflow", "history", "debate").json
    assert history[0]["hash"] == wanted and len(history) == 2
    assert history[0]["trusted"] is False
    ben("verify", "--strict")


def test_code_that_was_edited_on_a_forge_is_not_taken_over(ada: Machine, ben: Machine, hub: Path) -> None:
    proposed(ada)
    forge = Forger(hub)
    root = forge.folder("refs/heads/uwf/proposals/shorter")
    root["workflow.esm.js"] = forge.blob(SHORTER.replace("round < 2", "round < 3").encode())
    head = forge("rev-parse", "refs/heads/uwf/proposals/shorter")
    edited = forge.commit(forge.tree(root), [head], "Three rounds\n")
    forge.point("refs/heads/uwf/proposals/shorter", edited)
    before = ben("workflow", "show", "debate").json["hash"]
    error = ben("workflow", "accept", "shorter", "--remote", "origin", check=1).error
    assert "workflow.esm.js was changed there" in error["message"]
    assert "uwf workflow propose FILE" in error["hint"]
    assert ben("workflow", "show", "debate").json["hash"] == before


@pytest.mark.parametrize("moved", [True, False])
def test_a_definition_that_a_version_would_not_hold_is_refused_with_its_name(
    ada: Machine, ben: Machine, hub: Path, moved: bool
) -> None:
    forge = Forger(hub)
    branch = "refs/heads/uwf/workflows/debate"
    root = forge.folder(branch)
    name = "workflow.py" if moved else "workflow.yaml"
    root[name] = root.pop("workflow.esm.js") if moved else forge.blob(b"name: debate\n")
    forge.point(branch, forge.commit(forge.tree(root), [forge("rev-parse", branch)], "Another form\n"))
    before = ben("workflow", "history", "debate").json
    error = ben("workflow", "accept", "uwf/workflows/debate", "--remote", "origin", check=1).error
    assert name in error["message"] and error["hint"]
    assert ben("workflow", "history", "debate").json == before


def test_a_pull_of_code_that_was_edited_on_a_forge_says_how_to_change_it(
    ada: Machine, ben: Machine, hub: Path
) -> None:
    forge = Forger(hub)
    branch = "refs/heads/uwf/workflows/debate"
    root = forge.folder(branch)
    root["workflow.esm.js"] = forge.blob(SHORTER.encode())
    forge.point(branch, forge.commit(forge.tree(root), [forge("rev-parse", branch)], "Two rounds\n"))
    said = ben("pull", "--format", "text", check=7)
    told = said.out + said.err
    assert "uwf workflow propose FILE --remote origin" in told
    assert "correct it on the branch" not in told


def test_a_lost_tree_of_a_bundle_is_made_again_from_its_nodes(ada: Machine, hub: Path) -> None:
    forge = Forger(ada.store)
    tree = forge("rev-parse", "refs/uwf/workflows/debate:workflow")
    ada("remote", "rm", "origin")
    path = loose(ada.store, tree)
    path.chmod(0o644)
    path.write_bytes(b"")
    ada("doctor", "--fix", check=None)
    ada.is_sound()
    assert ada("workflow", "show", "debate", "--source", "--format", "text").out == DEBATE
