"""Fan-outs of several machines with one remote: their branches and joins come to the same, whoever made them."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import Uwf
from fan_outs import World, audit, failing, refused

from uwf_git.api import run as api_run
from uwf_git.api.exchange import Exchange
from uwf_git.api.fan_out import Lookout, in_own_order
from uwf_git.api.waiting import wait
from uwf_git.base.errors import Invalid, NotRunning, UwfError
from uwf_git.engine import step as engine
from uwf_git.engine.forks import branches_at
from uwf_git.engine.lineage import parent_of_branch
from uwf_git.engine.turn import table
from uwf_git.format.endings import COMPLETED, FAILED, JOINED_WITHOUT
from uwf_git.format.ids import Hash, ThreadId, branch_id, fork_id
from uwf_git.format.kinds import Start
from uwf_git.format.origins import CALL, ThreadOrigin
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.history import parted_from
from uwf_git.store.instance import Instance
from uwf_git.store.location import Location, init
from uwf_git.store.threads import Threads
from uwf_git.sync import shared_step as shared_steps
from uwf_git.sync.branches import lost_forks, settle_lost_forks
from uwf_git.sync.bundle import bundle, unbundle
from uwf_git.sync.pull import Pulled, pull
from uwf_git.sync.push import plan, push, refs_of
from uwf_git.sync.reconcile import Case
from uwf_git.sync.removal import remove, removed_threads
from uwf_git.sync.shared_step import shared_step
from uwf_git.verify.whole import local_refs, verify_refs


class Machine:
    """A store of its own, made unless it is there, with the shared remote."""

    def __init__(self, folder: Path, name: str) -> None:
        location = Location(folder / name, folder / name / "store.git")
        if location.git_dir.exists():
            git("--git-dir", location.git_dir, "config", "remote.origin.url", folder / "shared.git")
            self.instance = Instance(location, {})
        else:
            init(location)
            (folder / name / "work").mkdir()
            self.instance = Instance(location, {})
            self.instance.remotes.add("origin", str(folder / "shared.git"))
        self.world = World(self.instance, folder / name / "work", {"planner": {"files": ["a", "b", "c"]}}, [])
        program = Git(self.instance.store.repository.path)
        self.exchange = Exchange(self.instance, self.instance.remotes.get("origin"), program)

    def pull(self) -> Pulled:
        pulled = pull(self.exchange)
        assert pulled.refused == () and pulled.rewrites == ()
        return pulled

    def push(self, *threads: ThreadId, alone: bool = False) -> None:
        """Push all or some threads; `alone`: without their branches."""
        only = refs_of(self.instance, threads, branches=not alone) if threads else None
        report = push(self.exchange, plan(self.instance, self.exchange.remote, only))
        assert all(each.lost for each in report.rejected), report.rejected

    def shared(self, thread: ThreadId) -> engine.Outcome:
        return shared_step(self.exchange, thread, self.world.agent(), self.world.folder)

    def refs(self) -> dict[str, Oid]:
        refs = self.instance.store.repository.refs(without=layout.REMOTES)
        return {name: oid for name, oid in refs.items() if layout.is_shared_ref(name)}

    def verifies(self) -> None:
        repository = Repository(self.instance.location.git_dir)
        assert verify_refs(repository, local_refs(repository)).findings == ()


class Machines:
    """Makes machines in a folder. Those with a thread at its fork are made once in `lasting`, and copied."""

    def __init__(self, folder: Path, lasting: Path) -> None:
        self._folder, self._lasting = folder, lasting

    def __call__(self, number: int = 2, policy: str = "") -> list[Machine]:
        """Return machines, of which the first has a workflow that all have pulled."""
        shared = self._folder / "shared.git"
        subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", str(shared)], check=True)
        machines = [Machine(self._folder, f"machine-{place}") for place in range(number)]
        machines[0].world.put(audit(policy=policy))
        machines[0].push()
        for machine in machines[1:]:
            machine.pull()
        return machines

    def forked(self, policy: str, alone: bool) -> tuple[Machine, Machine, ThreadId]:
        """As `forked_by_the_first`, without the branches."""
        kept = self._lasting / f"forked {policy} {alone}"
        parts = ("machine-0", "machine-1", "shared.git")
        if not kept.exists():
            first, second = self(policy=policy)
            thread = first.world.start()
            first.world.forked(thread)
            first.push(*[thread] if alone else [], alone=alone)
            second.pull()
            for part in parts:
                shutil.copytree(self._folder / part, kept / part)
            (kept / "thread").write_text(thread)
            return first, second, thread
        for part in parts:
            shutil.copytree(kept / part, self._folder / part)
        first, second = (Machine(self._folder, name) for name in parts[:2])
        first.world.asked.append(("planner", "Audit it"))
        return first, second, ThreadId((kept / "thread").read_text())


@pytest.fixture
def machines(tmp_path: Path, lasting: Path) -> Machines:
    return Machines(tmp_path, lasting)


def forked_by_the_first(
    machines: Machines, policy: str = "", alone: bool = False
) -> tuple[Machine, Machine, ThreadId, list[ThreadId]]:
    """Two machines with a thread that the first stepped to its fork and shared, and its branches; `alone`: the second
    machine does not have these."""
    first, second, thread = machines.forked(policy, alone)
    fork = branches_at(first.instance, first.world.head(thread))
    return first, second, thread, [branch.thread for branch in fork.each]


def settled(*machines: Machine) -> None:
    """All machines come to the same refs, and verify."""
    for _ in range(3):
        for each in machines:
            each.pull()
            each.push()
        if is_settled := all(each.refs() == machines[0].refs() for each in machines):
            break
    assert is_settled
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
    ada, bob, thread, branches = forked_by_the_first(machines, alone=True)
    assert not bob.instance.threads.exists(branches[0])
    table.settle_thread(bob.instance, thread)
    bob.world.step(branches[0])
    ada.world.step(branches[1])
    bob.push()
    settled(ada, bob)
    assert ada.world.run(thread)[-1] == COMPLETED
    assert [role for role, _ in ada.world.asked] == ["planner", "fixer", "fixer", "reviewer"]
    settled(ada, bob)
    assert ada.instance.threads.ids() == {thread, *branches}


def test_a_branch_begins_at_the_time_of_its_fork_whoever_begins_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines, alone=True)
    monkeypatch.setattr("time.time", lambda: 2_000_000_000)
    table.settle_thread(bob.instance, thread)
    assert [bob.world.head(each).commit for each in branches] == [
        ada.world.head(each).commit for each in branches
    ]
    assert {bob.world.head(each).row.time for each in branches} == {ada.world.head(thread).row.time}


@pytest.mark.forges
def test_a_call_begins_at_the_time_of_the_step_it_follows_whoever_begins_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, thread, _ = forked_by_the_first(machines, alone=True)
    fork = ada.world.head(thread)
    version = ada.instance.registry.current("audit")
    node = Start(version.hash, "Look", call=ThreadOrigin(fork.node, 0, CALL, None)).typed_payload()
    called = branch_id(str(fork.commit), fork.row.time, 7)
    for number, machine in enumerate((ada, bob)):
        monkeypatch.setattr("time.time_ns", lambda later=number: (2_000_000_000 + later) * 10**9)
        monkeypatch.setattr("time.time", lambda later=number: 2_000_000_000 + later)
        machine.instance.threads.begin_at(called, Oid(hex=version.commit), fork.commit, node)
    assert bob.world.head(called).commit == ada.world.head(called).commit


@pytest.mark.forges
def test_branches_with_a_time_of_their_own_are_noted_and_no_finding(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bob, thread, _ = forked_by_the_first(machines, alone=True)
    monkeypatch.setattr("time.time", lambda: 2_000_000_000)
    monkeypatch.setattr(Threads, "_stamp_after", lambda *_: None)  # as earlier versions did
    table.settle_thread(bob.instance, thread)
    repository = bob.instance.store.repository
    report = verify_refs(repository, local_refs(repository))
    assert report.findings == () and [each.code for each in report.notes] == ["own-time"]


@pytest.mark.parametrize("by", ["pull", "wait", "step", "step of a branch"])
@pytest.mark.parametrize("ended", [0, 1])
@pytest.mark.sample(4)
def test_a_fork_that_was_lost_is_settled_by_whatever_comes_after_a_kill(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, ended: int, by: str
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
    bob.world.step(ours[2])
    ada.push()

    def killed(instance: Instance, *_: Oid) -> None:
        for branch in ours[:ended]:
            table.stop(instance, branch, JOINED_WITHOUT)

    with monkeypatch.context() as patch:  # the process is killed as it ends the branches
        patch.setattr("uwf_git.sync.reconcile.move_branches", killed)
        patch.setattr("uwf_git.sync.pull.settle_lost_forks", lambda _: None)
        bob.pull()
    (lost,) = lost_forks(bob.instance)
    assert lost.branches and not bob.instance.threads.has_ended(ours[1])
    if by == "pull":
        bob.pull()
    elif by == "wait":
        with pytest.raises(NotRunning):
            wait(bob.instance, thread)
    else:
        with suppress(UwfError):  # that it waits for its branches, or has ended
            api_run.step(bob.instance, thread if by == "step" else ours[1], api_run.Options())
    assert all(map(bob.instance.threads.has_ended, ours)) and not lost_forks(bob.instance)
    assert bob.world.head(theirs[2]).row.number == 1  # what was done is kept
    settled(ada, bob)


def test_branches_of_a_killed_parent_end_after_a_kill_of_that(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ada,) = machines(1)
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    with monkeypatch.context() as patch:
        patch.setattr(table, "settle", lambda *_: None)
        engine.kill(ada.instance, thread)
    assert not any(map(ada.instance.threads.has_ended, branches))
    with pytest.raises(Invalid, match="is killed"):
        api_run.step(ada.instance, thread, api_run.Options())
    assert all(map(ada.instance.threads.has_ended, branches)) and not settle_lost_forks(ada.instance)


def test_branches_whose_parent_is_not_here_are_not_lost(machines: Machines) -> None:
    ada, bob = machines()
    branches = ada.world.forked(ada.world.start())
    ada.push(branches[0])
    bob.pull()
    assert not lost_forks(bob.instance) and not bob.instance.threads.has_ended(branches[0])


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
    ada, bob, thread, branches = forked_by_the_first(machines)
    for each in branches:
        ada.world.step(each)
    bob.world.roles["fixer"] = {"text": "otherwise"}
    bob.world.step(branches[0])
    ada.push()
    settled(bob, ada)
    assert "otherwise" not in str(bob.world.joined(thread))
    assert len(bob.instance.threads.ids()) == 1 + 3 + 1  # and the other side of the branch


@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.extended)])
@pytest.mark.parametrize("signs", [False, pytest.param(True, marks=pytest.mark.forges)])
def test_a_join_raced_by_machines_is_one_step_and_what_came_after_it_is_kept(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, signs: bool, count: int
) -> None:
    first, *others = machines(count)
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
    assert len(heads) == (count if signs else 1)
    others[0].world.step(thread)  # the reviewer
    for each in (first, *others[::-1]):
        each.pull()
        each.push()
    settled(first, *others)
    assert first.world.head(thread).archive is not None
    assert first.instance.threads.ids() == {thread, *branches}


def other_sides(machine: Machine) -> set[ThreadId]:
    """The threads that hold a side of a divergence."""
    store = machine.instance.store
    return {each for each in machine.instance.threads.ids() if parted_from(store, each) is not None}


def answered_twice(machines: Machines) -> tuple[Machine, Machine, ThreadId, list[ThreadId]]:
    """Two machines that asked the branches of a thread and joined them, each its own answers; the first has pushed."""
    ada, bob, thread, branches = forked_by_the_first(machines)
    for each in (ada, bob):
        each.world.roles["fixer"] = {"text": each.instance.location.root.name}
        for branch in branches:
            each.world.step(branch)
        assert each.world.head(thread).row.role == "$JOIN"
    assert ada.world.head(thread).node != bob.world.head(thread).node
    ada.push()
    return ada, bob, thread, branches


def test_of_two_joins_of_other_answers_the_first_counts_and_the_second_leaves_no_thread(
    machines: Machines,
) -> None:
    ada, bob, thread, branches = answered_twice(machines)
    assert Case.JOINED_TWICE in {each.case for each in bob.pull().adopted if each.thread == thread}
    settled(bob, ada)
    assert bob.world.head(thread).commit == ada.world.head(thread).commit
    assert {each["output"]["text"] for each in bob.world.joined(thread)} == {"machine-0"}
    sides = other_sides(ada)
    assert len(sides) == 3 and all(ada.instance.threads.has_ended(each) for each in sides)
    assert ada.instance.threads.ids() == {thread, *branches, *sides}
    assert ada.world.run(thread) == ["reviewer", COMPLETED]
    settled(ada, bob)


def test_a_join_that_steps_followed_becomes_another_thread_which_is_no_parent(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(thread: ThreadId, node: Hash) -> ThreadId:
        return ThreadId(thread[:10] + "000" + fork_id(thread, node)[13:])

    monkeypatch.setattr("uwf_git.sync.reconcile.fork_id", older)
    ada, bob, thread, branches = answered_twice(machines)
    for each in (ada, bob):
        each.world.step(thread)  # the reviewer
    ada.push()
    settled(bob, ada)
    (side,) = (each for each in other_sides(bob) if bob.world.head(each).row.role == "reviewer")
    assert {each["output"]["text"] for each in bob.world.joined(side)} == {"machine-1"}
    parents = [parent_of_branch(bob.instance, bob.world.head(each)) for each in branches]
    assert parents == [thread] * 3
    answers = other_sides(bob) - {side}
    assert len(answers) == 3 and not any(
        bob.instance.threads.fork_of(bob.world.head(each)) for each in answers
    )


def test_a_join_that_was_there_first_asks_nobody_if_the_thread_has_ended_here_after_another(
    machines: Machines,
) -> None:
    ada, bob, thread, _ = answered_twice(machines)
    bob.world.step(thread)  # the reviewer
    settled(bob, ada)
    assert {each["output"]["text"] for each in ada.world.joined(thread)} == {"machine-1"}
    assert all(ada.instance.threads.has_ended(each) for each in ada.instance.threads.ids())


def test_a_shared_join_that_lost_its_race_goes_on_with_the_other(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines)
    with monkeypatch.context() as patch:
        unjoined(patch)
        for each in (ada, bob):
            each.world.roles["fixer"] = {"text": each.instance.location.root.name}
            for branch in branches:
                each.world.step(branch)
    ada.world.step(thread)
    made = shared_steps.step

    def raced(*args: Any) -> engine.Outcome:
        outcome = made(*args)
        ada.push()
        return outcome

    monkeypatch.setattr(shared_steps, "step", raced)
    outcome = bob.shared(thread)
    assert (outcome.role, outcome.position.head.commit) == ("$JOIN", ada.world.head(thread).commit)
    settled(ada, bob)


def test_a_machine_leaves_a_branch_for_last_that_another_has_advanced(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines)
    monkeypatch.setattr("uwf_git.api.fan_out._LOOK_SECONDS", 0)
    lookout = Lookout(ada.instance, ada.exchange, thread, branches)
    assert not lookout.is_taken(branches[0])
    bob.shared(branches[1])
    assert [lookout.is_taken(branches[1]) for _ in range(2)] == [True, False]
    assert ada.instance.threads.has_ended(branches[1]) and not lookout.is_taken(branches[2])


def test_machines_take_branches_in_orders_of_their_own_and_ask_none_that_has_ended(
    machines: Machines,
) -> None:
    ada, bob = machines()
    ada.world.roles["planner"] = {"files": [*"abcdefgh"]}
    thread = ada.world.start()
    branches = ada.world.forked(thread)
    ada.push()
    bob.pull()
    assert in_own_order(ada.instance, branches) != in_own_order(bob.instance, branches)
    order = iter(in_own_order(bob.instance, branches))

    def fixes(_ctx: object) -> object:
        for branch in order:
            bob.pull()
            if not bob.instance.threads.has_ended(branch) and branch not in begun:
                bob.shared(branch)
                break
        return {"text": "fixed"}

    begun = {in_own_order(ada.instance, branches)[0]}
    ada.world.roles["fixer"] = fixes
    options = ada.world.options()._replace(exchange=ada.exchange)
    assert [each.role for each in api_run.run(ada.instance, thread, lambda: options)] == ["$JOIN", "reviewer"]
    asked = [task for each in (ada, bob) for role, task in each.world.asked if role == "fixer"]
    assert bob.world.asked and len(set(asked)) == 8


def test_a_run_of_a_thread_that_ended_elsewhere_meanwhile_says_so_and_ends_as_it_did(
    machines: Machines, uwf: Uwf
) -> None:
    ada, bob = machines()
    ada.world.put(audit().replace("reviewer: [{role: $END}]", "reviewer: [{role: $FAIL}]"))
    fails = ada.world.start()
    ada.world.put(audit())
    completes = ada.world.start()
    ada.push()
    bob.pull()
    for each in (fails, completes):
        ada.world.run(each)
    ada.push()
    root = ("--root", bob.instance.location.root)
    for thread, status in ((completes, 0), (fails, 10)):
        said = uwf(
            *root, "thread", "run", thread, "--remote", "origin", check=status, env={"UWF_FORMAT": "text"}
        )
        assert f"thread {thread} ended on another machine meanwhile" in said.err


def test_an_end_that_followed_from_a_join_which_is_dropped_is_dropped_too(machines: Machines) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines, policy="need: 2, onFailure: drop")
    for each in branches:
        ada.world.step(each) if each != branches[2] else None
    bob.world.roles["fixer"] = failing()
    for each in branches[:2]:
        refused(lambda branch=each: bob.world.step(branch))  # type: ignore[misc]
    head = bob.world.head(thread)
    assert head.row.role == "$JOIN" and head.archive is not None and head.archive.status == FAILED
    ada.push()
    settled(bob, ada)
    assert bob.world.run(thread) == ["reviewer", COMPLETED]
    settled(bob, ada)


def test_of_joins_of_the_first_branch_that_completed_the_first_counts(machines: Machines) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines, policy="need: first")
    ada.world.step(branches[0])
    bob.world.step(branches[2])
    ada.push()
    settled(bob, ada)
    assert [each["status"] for each in bob.world.joined(thread)].index(COMPLETED) == 0
    assert not {each for each in other_sides(bob) if bob.world.head(each).row.role == "$JOIN"}


def test_a_late_branch_on_another_machine_asks_nothing_and_ends_as_joined_without(machines: Machines) -> None:
    ada, bob, _, branches = forked_by_the_first(machines, policy="need: first")
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
    bundle(ada.instance, ada.exchange.git, [thread], path)
    unbundle(bob.instance, bob.exchange.git, path)
    assert bob.instance.threads.ids() == {thread, *branches}
    bob.verifies()
    assert bob.world.run(thread)[-1] == COMPLETED


def test_a_thread_under_the_id_of_a_branch_is_refused_and_all_else_taken(machines: Machines) -> None:
    ada, bob, thread, branches = forked_by_the_first(machines, alone=True)
    other = ada.world.start(prompt="Another")
    fine = ada.world.start(prompt="A third")
    shared = Repository(Path(ada.instance.remotes.get("origin").url))
    ada.push(other, fine)
    shared.create_ref(layout.THREADS + branches[0], ada.world.head(other).commit)
    pulled = pull(bob.exchange)
    assert [each.findings[0].code for each in pulled.refused] == ["wrong-name"]
    assert pulled.refused[0].ref.endswith(branches[0])
    assert bob.instance.threads.exists(fine) and not bob.instance.threads.exists(branches[0])
    assert bob.world.run(thread)[-1] == COMPLETED
    bob.verifies()


def test_a_thread_that_had_the_id_of_a_branch_first_is_removed_and_the_branch_begins(
    machines: Machines,
) -> None:
    _, bob, thread, branches = forked_by_the_first(machines, alone=True)
    own = bob.instance.store.repository
    own.create_ref(layout.THREADS + branches[0], bob.world.head(bob.world.start()).commit)
    error = refused(lambda: bob.world.step(thread))
    assert branches[0] in error.message and f"uwf thread rm {branches[0]} --yes" in error.hint
    remove(bob.instance, branches[0])
    assert bob.world.run(thread)[-1] == COMPLETED
    assert removed_threads(bob.instance) == set()
    bob.verifies()
