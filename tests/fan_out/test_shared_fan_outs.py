"""Fan-outs of several machines with one remote: their branches and joins come to the same, whoever made them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fan_outs import World, audit, refused

from uwf_git.engine import step as engine
from uwf_git.engine.status import COMPLETED
from uwf_git.format.fan_out import JOINED_WITHOUT
from uwf_git.format.ids import ThreadId
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.store.threads import Threads
from uwf_git.sync.bundle import bundle, unbundle
from uwf_git.sync.pull import Pulled, pull
from uwf_git.sync.push import plan, push, refs_of
from uwf_git.sync.removal import remove, removed_threads
from uwf_git.sync.shared_step import shared_step
from uwf_git.verify.whole import local_refs, verify_refs


class Machine:
    """A store of its own with the shared remote."""

    def __init__(self, folder: Path, name: str) -> None:
        location = Location(folder / name, folder / name / "store.git")
        init(location)
        (folder / name / "work").mkdir()
        self.instance = Instance(location, {})
        self.instance.remotes.add("origin", str(folder / "shared.git"))
        self.world = World(self.instance, folder / name / "work", {"planner": {"files": ["a", "b", "c"]}}, [])
        self.git = Git(self.instance.store.repository.path)

    def pull(self) -> Pulled:
        pulled = pull(self.instance, self.git, self.instance.remotes.get("origin"))
        assert pulled.refused == () and pulled.rewrites == ()
        return pulled

    def push(self, *threads: ThreadId, alone: bool = False) -> None:
        """Push all or some threads; `alone`: without their branches."""
        remote = self.instance.remotes.get("origin")
        only = refs_of(self.instance, threads, branches=not alone) if threads else None
        report = push(self.instance, self.git, remote, plan(self.instance, remote, only))
        assert all(each.lost for each in report.rejected), report.rejected

    def shared(self, thread: ThreadId) -> engine.Outcome:
        remote = self.instance.remotes.get("origin")
        return shared_step(self.instance, self.git, remote, thread, self.world.agent(), self.world.folder)

    def refs(self) -> dict[str, Oid]:
        refs = self.instance.store.repository.refs(without=layout.REMOTES)
        return {name: oid for name, oid in refs.items() if layout.is_shared_ref(name)}

    def verifies(self) -> None:
        repository = Repository(self.instance.location.git_dir)
        assert verify_refs(repository, local_refs(repository)).findings == ()


Machines = Callable[..., list[Machine]]


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    """Machines, of which the first has a workflow that all have pulled."""

    def made(number: int = 2, policy: str = "") -> list[Machine]:
        shared = tmp_path / "shared.git"
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(shared)], check=True)
        every = [Machine(tmp_path, f"machine-{each}") for each in range(number)]
        every[0].world.put(audit(policy=policy))
        every[0].push()
        for each in every[1:]:
            each.pull()
        return every

    return made


def settled(*machines: Machine) -> None:
    """All machines come to the same refs, and verify."""
    for _ in range(3):
        for each in machines:
            each.pull()
            each.push()
    assert all(each.refs() == machines[0].refs() for each in machines)
    for each in machines:
        each.verifies()


def unjoined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process ends a branch and is killed before it joins."""
    monkeypatch.setattr(engine, "tell_parents", lambda *_: None)


def test_branches_go_along_with_their_parent_and_may_be_run_on_another_machine(machines: Machines) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push(thread)
    bob.pull()
    assert bob.world.run(thread)[-1] == COMPLETED
    bob.push(thread)
    ada.world.asked.clear()
    ada.pull()
    assert ada.world.head(thread) == bob.world.head(thread) and not ada.world.asked
    assert [ada.world.head(each) for each in branches] == [bob.world.head(each) for each in branches]
    settled(ada, bob)


def test_a_branch_that_is_pulled_without_its_parent_is_run_and_joined_by_the_machine_that_has_it(
    machines: Machines,
) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push(branches[0])
    bob.pull()
    assert bob.instance.threads.ids() == {branches[0]}
    bob.world.step(branches[0])
    bob.verifies()
    bob.push()
    ada.pull()
    ada.world.asked.clear()
    assert ada.world.run(thread)[-1] == COMPLETED
    assert [prompt for role, prompt in ada.world.asked if role == "fixer"] == ["Fix b (1)", "Fix c (2)"]
    settled(ada, bob)


def test_branches_that_two_machines_begin_are_the_same_threads(machines: Machines) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push(thread, alone=True)
    bob.pull()
    assert not bob.instance.threads.exists(branches[0])
    engine.begin_branches(bob.instance, thread)
    bob.world.step(branches[0])
    ada.world.step(branches[1])
    bob.push()
    settled(ada, bob)
    assert ada.world.run(thread)[-1] == COMPLETED
    assert [role for role, _ in ada.world.asked] == ["planner", "fixer", "fixer", "reviewer"]
    settled(ada, bob)
    assert ada.instance.threads.ids() == {thread, *branches}


def test_a_fork_that_two_machines_make_at_once_is_one_and_what_was_done_in_its_branches_counts(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    ada.world.step(thread)
    ada.push()
    bob.pull()
    theirs = ada.world.forked(thread)
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: 2_000_000_000)
        ours = bob.world.forked(thread)
    assert not {*ours} & {*theirs}
    bob.world.step(ours[0])
    ada.world.step(theirs[1])
    ada.push()
    settled(bob, ada)
    assert bob.world.head(thread).commit == ada.world.head(thread).commit
    assert [bool(bob.world.head(each).archive) for each in theirs] == [True, True, False]
    left = [bob.world.head(each).archive for each in ours[1:]]
    assert [each and each.reason for each in left] == [JOINED_WITHOUT] * 2
    bob.world.asked.clear()
    assert bob.world.run(thread)[-1] == COMPLETED
    assert bob.world.asked == [("fixer", "Fix c (2)"), ("reviewer", "Audit it")]
    settled(ada, bob)


def test_a_branch_that_diverged_is_joined_as_the_machine_had_it_that_joined_first(machines: Machines) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push()
    bob.pull()
    for each in branches:
        ada.world.step(each)
    bob.world.roles["fixer"] = {"text": "otherwise"}
    bob.world.step(branches[0])
    ada.push()
    settled(bob, ada)
    assert "otherwise" not in str(bob.world.joined(thread))
    assert len(bob.instance.threads.ids()) == 1 + 3 + 1  # and the other side of the branch


@pytest.mark.parametrize("signs", [False, True])
def test_a_join_raced_by_ten_machines_is_one_step_and_what_came_after_it_is_kept(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, signs: bool
) -> None:
    first, *others = machines(10)
    thread = first.world.start()
    branches = first.world.forked(thread)
    with monkeypatch.context() as patch:
        unjoined(patch)
        for branch in branches:
            first.world.step(branch)
    first.push()
    for number, each in enumerate((first, *others)):
        each.pull()
        with monkeypatch.context() as patch:
            patch.setattr("time.time", lambda later=number: 2_000_000_000 + later)
            if signs:  # then each commit is its user's own
                patch.setattr(Threads, "_stamp_after", lambda *_: None)
            assert each.world.step(thread).role == "$JOIN"
    heads = {each.world.head(thread).commit for each in (first, *others)}
    assert len(heads) == (10 if signs else 1)
    others[0].world.step(thread)  # the reviewer
    for each in (first, *others[::-1]):
        each.pull()
        each.push()
    settled(first, *others)
    assert first.world.head(thread).archive is not None
    assert first.instance.threads.ids() == {thread, *branches}


def test_other_joins_of_one_fork_diverge_as_any_step_does(machines: Machines) -> None:
    ada, bob = machines(policy="need: first")
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push()
    bob.pull()
    ada.world.step(branches[0])
    bob.world.step(branches[2])
    ada.push()
    settled(bob, ada)
    joins = sorted(
        [each["status"] for each in bob.world.joined(ThreadId(one))].index(COMPLETED)
        for one in bob.instance.threads.ids()
        if bob.world.head(one).row.role == "$JOIN"
    )
    assert joins == [0, 2]


def test_a_late_branch_on_another_machine_asks_nothing_and_ends_as_joined_without(machines: Machines) -> None:
    ada, bob = machines(policy="need: first")
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push()
    bob.pull()
    ada.shared(branches[0])
    assert "is killed" in refused(lambda: bob.shared(branches[1])).message
    assert bob.world.asked == []
    archive = bob.world.head(branches[1]).archive
    assert archive is not None and archive.reason == JOINED_WITHOUT
    settled(ada, bob)


def test_a_shared_step_that_ends_the_last_branch_shares_the_join(machines: Machines) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    ada.push()
    ada.shared(thread)
    ada.shared(thread)
    bob.pull()
    branches = [each for each in bob.instance.threads.ids() if each != thread]
    assert len(branches) == 3
    for each in branches:
        bob.shared(each)
    ada.pull()
    assert ada.world.head(thread).row.role == "$JOIN"
    settled(ada, bob)


def test_a_bundle_of_a_thread_has_its_branches(machines: Machines, tmp_path: Path) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    path = tmp_path / "threads.bundle"
    bundle(ada.instance, ada.git, [thread], path)
    unbundle(bob.instance, bob.git, path)
    assert bob.instance.threads.ids() == {thread, *branches}
    bob.verifies()
    assert bob.world.run(thread)[-1] == COMPLETED


def test_a_thread_under_the_id_of_a_branch_is_refused_and_all_else_taken(machines: Machines) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push(thread, alone=True)
    bob.pull()
    other = ada.world.start(prompt="Another")
    fine = ada.world.start(prompt="A third")
    shared = Repository(Path(ada.instance.remotes.get("origin").url))
    ada.push(other, fine)
    shared.create_ref(layout.THREADS + branches[0], ada.world.head(other).commit)
    remote = bob.instance.remotes.get("origin")
    pulled = pull(bob.instance, bob.git, remote)
    assert [each.findings[0].code for each in pulled.refused] == ["wrong-branch"]
    assert branches[0] in pulled.refused[0].reason
    assert bob.instance.threads.exists(fine) and not bob.instance.threads.exists(branches[0])
    assert bob.world.run(thread)[-1] == COMPLETED
    bob.verifies()


def test_a_thread_that_had_the_id_of_a_branch_first_is_removed_and_the_branch_begins(
    machines: Machines,
) -> None:
    ada, bob = machines()
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push(thread, alone=True)
    bob.pull()
    own = bob.instance.store.repository
    own.create_ref(layout.THREADS + branches[0], bob.world.head(bob.world.start()).commit)
    error = refused(lambda: bob.world.step(thread))
    assert branches[0] in error.message and f"uwf thread rm {branches[0]} --yes" in error.hint
    remove(bob.instance, branches[0])
    assert bob.world.run(thread)[-1] == COMPLETED
    assert removed_threads(bob.instance) == set()
    bob.verifies()
