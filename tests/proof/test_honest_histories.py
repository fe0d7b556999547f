"""Histories that look like forgeries and are honest: nobody is told anything, with the policy in force, neither by a
pull nor by a verification, and one who comes fresh gets the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Uwf
from proof_world import GATE, RULES, ProofWorld, works
from signers import Signer, trust_file

History = Callable[[ProofWorld], None]


def answers(who: object, thread: str, status: str) -> None:
    who("thread", "answer", thread, "-f", f"status={status}")  # type: ignore[operator]


def nothing(world: ProofWorld) -> None:
    """What is there stays as it is."""


def a_step_made_twice_at_once(world: ProofWorld) -> None:
    works(world.ann, world.other, "by ann")
    works(world.bob, world.other, "by bob")
    world.ann("push")


def an_end_while_another_went_on(world: ProofWorld) -> None:
    works(world.ann, world.other, "by ann")
    world.bob("thread", "kill", world.other, "--reason", "enough")
    world.ann("push")


def two_ends(world: ProofWorld) -> None:
    world.ann("thread", "kill", world.other, "--reason", "too long")
    world.bob("thread", "kill", world.other, "--reason", "enough")
    world.ann("push")


def a_fork_by_hand(world: ProofWorld) -> None:
    world.ann("thread", "fork", world.thread, "--at", "2")
    world.ann("push")


def a_pause_that_was_lifted_and_made_anew(world: ProofWorld) -> None:
    for who in (world.ann, world.bob):
        who("thread", "pause", world.other)
        who("push")
        world.ann("pull")
        who("thread", "resume", world.other)
        who("push")
        world.bob("pull")


def failed_attempts_on_both_sides(world: ProofWorld) -> None:
    for who in (world.ann, world.bob):
        who("thread", "step", world.other, "--agent", "false", check=6)
    world.ann("push")


def a_remark_and_a_step(world: ProofWorld) -> None:
    world.bob("thread", "say", world.other, "-m", "mind the gap")
    works(world.bob, world.other, "minded")


def exchanged_by_plain_git(world: ProofWorld) -> None:
    works(world.ann, world.other, "by ann")
    world.git("push", "-q", "origin", at=world.ann.store)
    world.git("fetch", "-q", "origin", at=world.bob.store)


def exchanged_by_a_bundle_and_the_remote(world: ProofWorld) -> None:
    works(world.ann, world.other, "by ann")
    bundle = world.folder / "thread.bundle"
    world.ann("bundle", world.other, "-o", bundle)
    world.bob("unbundle", bundle)
    world.bob("push")


def ends_folded_on_both_machines(world: ProofWorld) -> None:
    for who in (world.ann, world.bob):
        who("gc", "--fold-before", "2100-01-01")
    world.ann("push")


def deleted_and_brought_back(world: ProofWorld) -> None:
    world.ann("push", "origin", world.other, "--delete")
    world.bob("pull")
    works(world.bob, world.other, "by bob")
    world.bob("push", "origin", world.other)


def removed_here_and_restored(world: ProofWorld) -> None:
    world.bob("thread", "rm", world.thread, "--yes")
    world.bob("pull")
    world.bob("thread", "restore", world.thread)


def a_new_version_of_the_workflow(world: ProofWorld) -> None:
    world.ann.registers(GATE.replace("One works", "Somebody works"))
    world.ann("push")


def a_proposal_that_is_accepted(world: ProofWorld) -> None:
    path = world.folder / "proposed.yaml"
    path.write_text(GATE.replace("One works", "Somebody works"))
    world.bob("workflow", "propose", path, "--branch", "somebody", "--remote", "origin")
    world.ann("workflow", "accept", "somebody", "--remote", "origin")
    world.ann("push")


def published_again_after_more_steps(world: ProofWorld) -> None:
    world.ann("publish", "thread", world.other)
    works(world.ann, world.other, "by ann")
    world.ann("push")
    world.ann("publish", "thread", world.other)


def a_key_that_is_replaced(world: ProofWorld) -> None:
    new = Signer(world.folder / "new", "bob")
    text = trust_file({"ann": world.ann.signer, "bob": world.bob.signer}, rules=RULES)
    text = text.replace(f"[{world.bob.signer.public}]", f"[{world.bob.signer.public}, {new.public}]")
    path = world.folder / "trust.yaml"
    path.write_text(text)
    world.ann("trust", "set", path)
    world.ann("push")
    world.bob("pull")
    world.bob.signer.signs(key=new.key)
    works(world.bob, world.other, "by the new key")


def somebody_who_joins(world: ProofWorld) -> None:
    carol = world.machine("dave")
    path = world.folder / "trust.yaml"
    people = {"ann": world.ann.signer, "bob": world.bob.signer, "dave": carol.signer}
    path.write_text(trust_file(people, rules=RULES))
    world.ann("trust", "set", path)
    world.ann("push")
    carol("clone", world.shared)
    works(carol, world.other, "by dave")
    carol("push")


def a_server_that_was_copied(world: ProofWorld) -> None:
    copy = world.folder / "copy.git"
    subprocess.run(["git", "clone", "-q", "--mirror", world.shared, copy], check=True)
    world.shared.rename(world.folder / "old.git")
    copy.rename(world.shared)
    works(world.bob, world.other, "by bob")


def a_server_that_was_packed(world: ProofWorld) -> None:
    world.git("gc", "-q", "--prune=now")
    world.git("repack", "-qadf")


def a_store_that_was_packed_and_indexed_anew(world: ProofWorld) -> None:
    world.bob("gc")
    world.bob("cas", "reindex")
    works(world.bob, world.other, "by bob")


def two_machines_of_one_person(world: ProofWorld) -> None:
    second = world.machine("bob")
    second.root = world.folder / "bob-at-home"
    second("clone", world.shared)
    works(second, world.other, "at home")
    works(world.bob, world.other, "at work")
    second("push")


def a_file_of_what_was_seen_that_was_lost(world: ProofWorld) -> None:
    for path in (world.bob.store / "uwf" / "seen").iterdir():
        path.unlink()
    works(world.ann, world.other, "by ann")
    world.ann("push")


HISTORIES: tuple[History, ...] = (
    *(nothing, a_step_made_twice_at_once, an_end_while_another_went_on, two_ends, a_fork_by_hand),
    *(a_pause_that_was_lifted_and_made_anew, failed_attempts_on_both_sides, a_remark_and_a_step),
    *(exchanged_by_plain_git, exchanged_by_a_bundle_and_the_remote, ends_folded_on_both_machines),
    *(deleted_and_brought_back, removed_here_and_restored, a_new_version_of_the_workflow),
    *(a_proposal_that_is_accepted, published_again_after_more_steps, a_key_that_is_replaced),
    *(somebody_who_joins, a_server_that_was_copied, a_server_that_was_packed),
    *(a_store_that_was_packed_and_indexed_anew, two_machines_of_one_person),
    a_file_of_what_was_seen_that_was_lost,
)


@pytest.fixture
def world(uwf: Uwf, tmp_path: Path, lasting: Path) -> ProofWorld:
    return ProofWorld(uwf, tmp_path, lasting / "proof")


def test_there_are_twenty_of_them() -> None:
    assert len({*HISTORIES}) >= 20


@pytest.mark.sample(6)
@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__.replace("_", "-"))
def test_nobody_is_told_of_a_forgery(world: ProofWorld, history: History) -> None:
    history(world)
    for who in (world.bob, world.ann, world.bob, world.ann):
        pulled = who("pull")
        assert not {"rewritten", "rolledBack"} & pulled.json.keys()
        assert pulled.json["refused"] == []
        who("push")
    world.bob("pull")
    assert world.ann.heads() == world.bob.heads()
    fresh = world.machine("carol")
    fresh("clone", world.shared)
    # All three hold the same by now, but each has seen something else there.
    assert world.bob("verify", "--all").json["findings"] == []
    for who in (world.ann, world.bob, fresh):
        assert who("verify", "--remote", "origin").json["findings"] == []
    assert fresh.heads() == world.bob.heads()
