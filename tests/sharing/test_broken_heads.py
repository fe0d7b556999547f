"""A head that leads to no record is refused by the push itself, which sends the rest; one that got to a remote all the
same has a way out that each of the hints names."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import PAIR
from commands import git, loosen
from conftest import Uwf
from two_machines import Machine

from uwf_git.store import layout

MISSING = "1" * 40


class Shared:
    """A machine with two threads, of which one breaks, and a remote."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        self.machine = Machine(uwf, folder / "ada")
        self.machine.registers(PAIR)
        self.broken = self.machine.starts("Break", "pair")
        self.whole = self.machine.starts("Stay", "pair")
        self.machine("thread", "step", self.broken)
        self.remote = folder / "hub.git"
        git("init", "--quiet", "--bare", "--object-format=sha1", self.remote)
        self.machine("remote", "add", "origin", self.remote)
        self.head = self.git("rev-parse", self.ref)

    @property
    def ref(self) -> str:
        return layout.THREADS + self.broken

    def git(self, *args: str) -> str:
        return git("--git-dir", self.machine.store, *args)

    def there(self) -> set[str]:
        return set(git("--git-dir", self.remote, "for-each-ref", "--format=%(refname)").split())

    def leads_to(self, text: str) -> str:
        (self.machine.store / self.ref).write_text(f"{text}\n")
        return text

    def to_the_tree(self) -> str:
        return self.leads_to(self.git("rev-parse", f"{self.head}^{{tree}}"))

    def to_no_record(self) -> str:
        return self.leads_to(self.git("commit-tree", f"{self.head}^{{tree}}", "-p", self.head, "-m", "hi"))

    def to_what_is_missing(self) -> str:
        return self.leads_to(MISSING)

    def to_nothing(self) -> str:
        self.leads_to("nothing")
        return "no object id"

    def to_what_lacks_a_blob(self) -> str:
        loosen(self.machine.store)
        blob = self.git("rev-parse", f"{self.head}:steps/0001-writer/README.md")
        (self.machine.store / "objects" / blob[:2] / blob[2:]).unlink()
        return blob


@pytest.fixture
def shared(uwf: Uwf, tmp_path: Path) -> Shared:
    return Shared(uwf, tmp_path)


WAYS: dict[str, Callable[[Shared], str]] = {
    "a tree": Shared.to_the_tree,
    "no record": Shared.to_no_record,
    "a missing object": Shared.to_what_is_missing,
    "nothing": Shared.to_nothing,
    "a missing blob": Shared.to_what_lacks_a_blob,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_push_leaves_a_broken_head_here_and_sends_the_rest(shared: Shared, way: str) -> None:
    named = WAYS[way](shared)
    pushed = shared.machine("push", check=7)
    assert shared.there() == {"refs/uwf/workflows/pair", layout.THREADS + shared.whole}
    (refused,) = pushed.json["refused"]
    assert refused["ref"] == shared.ref and named in refused["reason"]
    assert shared.broken in pushed.error["message"] and "uwf doctor" in pushed.error["hint"]
    assert [item["ref"] for item in shared.machine("push", check=7).json["refused"]] == [shared.ref]
    if way != "a missing blob":
        shared.leads_to(shared.head)
        assert shared.machine("push").json["steps"] == 1


def test_a_broken_head_that_is_given_up_is_no_hindrance(shared: Shared) -> None:
    shared.to_no_record()
    hint = shared.machine("push", check=7).error["hint"]
    (removal,) = re.findall(r"uwf (thread rm \S+ --yes)", hint)
    shared.machine(*shlex.split(removal))
    shared.machine("push")


def test_a_project_is_told_of_a_broken_head_too(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "--quiet", tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    shared.to_no_record()
    (refused,) = shared.machine("push", check=7).json["refused"]
    assert refused["ref"] == shared.ref


@pytest.mark.parametrize("seen", [False, True], ids=["never seen", "seen before"])
@pytest.mark.parametrize("command", ["push", "pull"])
def test_the_hint_for_a_head_that_is_broken_on_a_remote_leads_out(
    shared: Shared, command: str, seen: bool
) -> None:
    if seen:
        shared.machine("push")
    made = shared.git("commit-tree", f"{shared.head}^{{tree}}", "-p", shared.head, "-m", "hi")
    subprocess.run(
        ["git", "--git-dir", shared.machine.store, "push", "-q", shared.remote, f"{made}:{shared.ref}"],
        check=True,
    )
    shared.machine("thread", "step", shared.broken)
    error = shared.machine(command, check=4 if command == "push" else 7).error
    assert made in error["message"] and "yours is kept" in error["hint"]
    ways = re.findall(
        r"uwf ((?:push origin|remote reject-rewrite) \S+?(?: --delete)?)(?:,| pushes)", error["hint"]
    )
    assert ways
    for way in ways:
        shared.machine(*shlex.split(way))
    shared.machine("push")
    assert shared.machine("pull").json["refused"] == []
    assert git("--git-dir", shared.remote, "rev-parse", shared.ref) == shared.git("rev-parse", shared.ref)
