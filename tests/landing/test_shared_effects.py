"""Machines that share a thread, and its forks, send what it sends once; each has all records, wherever it goes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import UWF, git, loose
from conftest import Uwf
from signers import SigningMachine, team_of_ann, trust_file
from two_machines import Machine, begun

from uwf_git.ext.landing import EFFECTS
from uwf_git.store import archives
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

SENDS = (
    'echo "$UWF_EFFECT_KEY" >>arrived; if test -e crash; then rm crash; kill -9 $PPID; fi; '
    "echo https://forge.invalid/$(wc -l <arrived)"
)
CHECK = ("--check", 'cat arrived 2>/dev/null | grep -x "$UWF_EFFECT_KEY"')


class Pair:
    """Ada and Bob, who share a thread, and an outside that both reach."""

    def __init__(self, ada: Machine, bob: Machine, thread: str) -> None:
        self.ada = ada
        self.bob = bob
        self.thread = thread

    def exchange(self) -> None:
        for machine in (self.ada, self.bob, self.ada):
            machine("pull", "origin")
            machine("push", "origin")


@pytest.fixture
def pair(uwf: Uwf, tmp_path: Path, lasting: Path) -> Pair:
    ada, bob = (Machine(uwf, tmp_path / name) for name in ("ada", "bob"))

    def begin() -> str:
        git("init", "-q", "--bare", tmp_path / "shared.git")
        for machine in (ada, bob):
            machine("init")
            machine("remote", "add", "origin", tmp_path / "shared.git")
        ada.registers()
        thread = ada.starts()
        ada("push", "origin")
        bob("pull", "origin")
        return thread

    thread = begun(tmp_path, lasting / "effects", begin)
    return Pair(ada, bob, thread)


def sends(
    machine: Machine, thread: str, name: str = "x", check: Sequence[str] = CHECK, status: int = 0
) -> Any:
    words = ("effect", "run", "--thread", thread, "--key", name, *check, "--", "sh", "-c", SENDS)
    done = machine(*words, check=status)
    return done.json if status == 0 else done.error


def crashes(machine: Machine, thread: str) -> None:
    """Has the `uwf` killed that runs a command, after that has sent."""
    Path("crash").touch()
    words = ["effect", "run", "--thread", thread, "--key", "x", "--", "sh", "-c", SENDS]
    done = subprocess.run([*UWF, *words], env={**os.environ, **machine.environment}, check=False)
    assert done.returncode == -9


def listed(machine: Machine, thread: str) -> list[tuple[str, str]]:
    return [(item["name"], item["outcome"]) for item in machine("effect", "list", thread).json]


def arrived() -> list[str]:
    return Path("arrived").read_text().split()


def test_two_machines_that_do_the_same_send_it_once_and_keep_both_records(pair: Pair) -> None:
    assert sends(pair.ada, pair.thread)["outcome"] == "done"
    assert sends(pair.bob, pair.thread)["outcome"] == "found"
    pair.exchange()
    assert len(arrived()) == 1
    refs = [machine.refs() for machine in (pair.ada, pair.bob)]
    assert refs[0] == refs[1] and EFFECTS.prefix + pair.thread in refs[0]
    for machine in (pair.ada, pair.bob):
        machine.is_sound()
        assert listed(machine, pair.thread) == [("x", "done")]


def test_different_effects_of_two_machines_are_united(pair: Pair) -> None:
    sends(pair.ada, pair.thread, "a")
    sends(pair.bob, pair.thread, "b")
    pair.exchange()
    for machine in (pair.ada, pair.bob):
        machine.is_sound()
        assert sorted(listed(machine, pair.thread)) == [("a", "done"), ("b", "done")]
    for name in "ab":
        assert sends(pair.ada, pair.thread, name) == sends(pair.bob, pair.thread, name)
    assert len(arrived()) == 2


def test_what_the_other_machine_has_recorded_needs_no_look_up(pair: Pair) -> None:
    first = sends(pair.ada, pair.thread)
    pair.exchange()
    assert sends(pair.bob, pair.thread, check=()) == first
    assert len(arrived()) == 1


def test_another_machine_settles_what_one_has_begun(pair: Pair) -> None:
    crashes(pair.ada, pair.thread)
    pair.exchange()
    assert listed(pair.bob, pair.thread) == [("x", "open")]
    assert sends(pair.bob, pair.thread, check=(), status=125)["code"] == "undecided"
    assert sends(pair.bob, pair.thread)["outcome"] == "found"
    pair.exchange()
    assert listed(pair.ada, pair.thread) == [("x", "found")]
    assert sends(pair.ada, pair.thread, check=())["reference"] == arrived()[0]
    assert len(arrived()) == 1
    pair.ada.is_sound()


def test_both_machines_settle_what_one_has_begun(pair: Pair) -> None:
    crashes(pair.ada, pair.thread)
    pair.exchange()
    for machine in (pair.ada, pair.bob):
        sends(machine, pair.thread)
    pair.exchange()
    assert len(arrived()) == 1
    for machine in (pair.ada, pair.bob):
        machine.is_sound()
        assert listed(machine, pair.thread) == [("x", "found")]


def test_sides_that_diverge_send_once_and_the_fork_knows(pair: Pair) -> None:
    pair.ada.steps(pair.thread, "ada's")
    sends(pair.ada, pair.thread)
    pair.bob.steps(pair.thread, "bob's")
    sends(pair.bob, pair.thread)
    pair.exchange()
    (fork,) = pair.bob.heads().keys() - {pair.thread}
    assert len(arrived()) == 1
    for thread in (pair.thread, fork):
        assert sends(pair.bob, thread, check=())["reference"]
    assert len(arrived()) == 1
    for machine in (pair.ada, pair.bob):
        machine.is_sound()


def test_a_fork_repeats_nothing_and_has_no_effects_of_its_own(pair: Pair) -> None:
    first = sends(pair.ada, pair.thread)
    fork = pair.ada("thread", "fork", pair.thread).json["thread"]
    assert listed(pair.ada, fork) == []
    assert sends(pair.ada, fork, check=()) == first
    assert sends(pair.ada, fork, "of its own")["outcome"] == "done"
    assert listed(pair.ada, fork) == [("of its own", "done")]
    assert listed(pair.ada, pair.thread) == [("x", "done")]
    assert len(arrived()) == 2
    pair.ada.is_sound()


def test_a_fork_looks_up_what_its_origin_has_begun(pair: Pair) -> None:
    crashes(pair.ada, pair.thread)
    fork = pair.ada("thread", "fork", pair.thread).json["thread"]
    assert sends(pair.ada, fork, check=(), status=125)["code"] == "undecided"
    assert listed(pair.ada, fork) == [], "nothing was begun there"
    assert sends(pair.ada, fork)["outcome"] == "found"
    assert sends(pair.ada, pair.thread, check=())["outcome"] == "found"
    assert len(arrived()) == 1
    pair.ada.is_sound()


def test_effects_go_with_their_thread_through_bundles_and_clones(pair: Pair, tmp_path: Path) -> None:
    sends(pair.ada, pair.thread)
    bundle = tmp_path / "thread.bundle"
    pair.ada("bundle", pair.thread, "-o", bundle)
    pair.bob("unbundle", bundle)
    pair.ada("push", "origin")
    carol = Machine(pair.ada._uwf, tmp_path / "carol")
    carol("clone", tmp_path / "shared.git")
    for machine in (pair.bob, carol):
        assert listed(machine, pair.thread) == [("x", "done")]
        assert sends(machine, pair.thread, check=())["outcome"] == "done"
        machine.is_sound()
    assert len(arrived()) == 1


def test_a_push_of_one_thread_takes_its_effects_along(pair: Pair) -> None:
    other = pair.ada.starts("Another")
    sends(pair.ada, pair.thread)
    sends(pair.ada, other)
    pair.ada("push", "origin", pair.thread)
    pair.bob("pull", "origin")
    assert listed(pair.bob, pair.thread) == [("x", "done")]
    assert EFFECTS.prefix + other not in pair.bob.refs()


def test_a_thread_that_is_removed_takes_its_effects_along_and_brings_them_back(pair: Pair) -> None:
    sends(pair.ada, pair.thread)
    pair.ada("thread", "rm", pair.thread, "--yes")
    assert EFFECTS.prefix + pair.thread not in pair.ada.refs()
    pair.ada.is_sound()
    pair.ada("thread", "restore", pair.thread)
    assert listed(pair.ada, pair.thread) == [("x", "done")]
    assert sends(pair.ada, pair.thread, check=())["outcome"] == "done"
    assert len(arrived()) == 1
    pair.ada.is_sound()


def test_the_effects_of_a_thread_that_has_ended_outlast_packing_and_folds(pair: Pair) -> None:
    pair.ada.steps(pair.thread)
    sends(pair.ada, pair.thread, "while it ran")
    pair.ada.steps(pair.thread)
    instance = Instance(locate(str(pair.ada.root), os.environ, Path.cwd()))
    assert archives.fold_before(instance.store.repository, 1 << 40)
    pair.ada("gc")
    git("--git-dir", pair.ada.store, "gc", "--prune=now", "--quiet")
    sends(pair.ada, pair.thread, "afterwards")
    assert listed(pair.ada, pair.thread) == [("while it ran", "done"), ("afterwards", "done")]
    assert sends(pair.ada, pair.thread, "while it ran", check=())["outcome"] == "done"
    pair.exchange()
    assert listed(pair.bob, pair.thread) == listed(pair.ada, pair.thread)
    for machine in (pair.ada, pair.bob):
        machine.is_sound()


def test_a_step_within_another_store_takes_effects_over(pair: Pair, tmp_path: Path) -> None:
    """They are nobody's answers: within a step, a pull takes them as it takes steps."""
    sends(pair.ada, pair.thread)
    pair.ada("push", "origin")
    within = {"UWF_NONCE": "x", "UWF_THREAD": pair.thread}
    pair.bob("pull", "origin", env=within)
    assert listed(pair.bob, pair.thread) == [("x", "done")]


def test_damage_to_the_records_is_told_and_nothing_is_sent(pair: Pair) -> None:
    sends(pair.ada, pair.thread)
    commit = git("--git-dir", pair.ada.store, "rev-parse", EFFECTS.prefix + pair.thread)
    path = loose(pair.ada.store, commit)
    path.chmod(0o600)
    path.write_bytes(b"torn")
    assert sends(pair.ada, pair.thread, "y", status=7)["code"] == "store_damaged"
    assert len(arrived()) == 1


@pytest.fixture
def signing(uwf: Uwf, tmp_path: Path, lasting: Path) -> tuple[SigningMachine, SigningMachine, str]:
    """Ann, whose policy wants steps to be signed by her, and Bob, with a thread that both have."""
    people = team_of_ann(uwf, tmp_path / "team", lasting / "ann")
    ann, bob = (
        SigningMachine(uwf, tmp_path / "team" / f"at-{name}", people[name]) for name in ("ann", "bob")
    )
    file = tmp_path / "trust.yaml"
    file.write_text(trust_file(people, "ann", "[{threads: '*', of: [steps], signed-by: [ann]}]"))
    ann("trust", "set", file)
    thread = ann.starts()
    ann("push")
    bob("clone", tmp_path / "team" / "shared.git")
    return ann, bob, thread


def test_who_may_not_make_steps_sends_nothing(signing: tuple[SigningMachine, SigningMachine, str]) -> None:
    ann, bob, thread = signing
    assert "signed by ann" in sends(bob, thread, status=14)["message"]
    assert not Path("arrived").exists()
    assert sends(ann, thread)["outcome"] == "done"
    ann("push")
    bob("pull")
    assert sends(bob, thread, check=(), status=14)
    assert listed(bob, thread) == [("x", "done")]
    ann.is_sound()


def test_a_record_that_is_not_signed_as_steps_have_to_be_is_refused(
    signing: tuple[SigningMachine, SigningMachine, str], tmp_path: Path
) -> None:
    ann, bob, thread = signing
    sends(ann, thread)
    ref = EFFECTS.prefix + thread
    unsigned = git("--git-dir", ann.store, "cat-file", "commit", ref)
    head, _, rest = unsigned.partition("gpgsig ")
    text = head + "\n" + rest.partition("\n\n")[2] + "\n"
    oid = git("--git-dir", ann.store, "hash-object", "-t", "commit", "-w", "--stdin", data=text)
    git("--git-dir", ann.store, "push", "-q", tmp_path / "team" / "shared.git", f"{oid}:{ref}")
    refused = bob("pull", check=None)
    assert ref in refused.out and ref not in bob.refs()
