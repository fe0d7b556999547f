"""What the engine makes of fan-outs verifies: in its store, as received by another, on a branch, and made again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Uwf
from fan_outs import TEXT, World, audit, audit_in_parts, failing, refused
from signers import Signer, SigningMachine, trust_file

from uwf_git.base.errors import AgentFailed, Invalid, StoreDamaged, Waiting
from uwf_git.base.thread_states import ThreadState
from uwf_git.engine import step as engine
from uwf_git.engine.forks import branches_at
from uwf_git.engine.inbox import continue_finished, remark
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.git.foreign import ForeignRepository
from uwf_git.git.repository import Repository
from uwf_git.store import layout
from uwf_git.store.index import Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.sync.object_sources import RegeneratedObjects
from uwf_git.verify.branch_names import Branch
from uwf_git.verify.published import verify_branch
from uwf_git.verify.whole import ReceivedRefsVerifier, local_refs, verify_refs

OTHER = f"""
name: other
description: Another.
roles:
  worker: {{description: Works., systemPrompt: Work., outputSchema: {TEXT}}}
graph:
  $START: [{{role: worker}}]
  worker: [{{role: $FAIL, prompt: "It is {{{{ text }}}}"}}]
"""


@pytest.fixture
def world(instance: Instance, tmp_path: Path) -> World:
    made = World(instance, tmp_path, {"planner": {"files": ["a", "b", "c"]}}, [])
    made.put(audit())
    return made


def verifies(world: World) -> None:
    """All of the store verifies, as its own and as received from elsewhere."""
    repository = Repository(world.instance.location.git_dir)
    refs = local_refs(repository)
    assert verify_refs(repository, refs).findings == ()
    received = ReceivedRefsVerifier(Store(repository, Overlay()))
    found = [
        received.findings(name, oid) for name, oid in sorted(refs.items(), reverse=True) if oid is not None
    ]
    received.close()
    assert not any(found), found


def test_branches_that_go_on_by_the_graph_and_fork_again_verify(world: World) -> None:
    world.put(audit_in_parts("[1, {a: 2.0}]"))
    thread = world.start(budget={"maxTokens": 1_000_000})
    assert world.run(thread)[-1] == COMPLETED
    world.roles["planner"] = {"files": []}
    assert world.run(world.start())[-1] == COMPLETED
    verifies(world)


def test_fixed_branches_of_roles_and_workflows_verify_though_the_workflow_has_a_newer_version(
    world: World,
) -> None:
    world.put(OTHER)
    text = audit().replace("each: $last().files", "each: [{role: fixer}, {workflow: other, prompt: Do it}]")
    world.put(text.replace("role: fixer, prompt", "prompt"))
    thread = world.start()
    branches = world.forked(thread)
    world.put(OTHER.replace("Another.", "Yet another."))
    assert world.run(thread)[-1] == ThreadState.WITH_FAILURES.word
    assert [each["status"] for each in world.joined(thread)] == [COMPLETED, FAILED]
    assert world.head(branches[1]).archive.reason == "It is worker: Do it"  # type: ignore[union-attr]
    verifies(world)


@pytest.mark.parametrize("policy", ["need: first", "onFailure: drop", "onFailure: fail", 'need: "67%"'])
def test_branches_that_were_left_dropped_or_killed_verify(world: World, policy: str) -> None:
    world.put(audit(policy=policy))
    thread = world.start()
    branches = world.forked(thread)
    verifies(world)
    engine.kill(world.instance, branches[2], "not needed")
    if world.head(thread).archive is None:
        world.roles["fixer"] = failing("no luck: none")
        assert isinstance(refused(lambda: world.step(branches[1])), AgentFailed)
        del world.roles["fixer"]
    if world.head(thread).archive is None:
        world.run(thread)
    assert {world.head(each).archive.status for each in branches} & {FAILED, KILLED}  # type: ignore[union-attr]
    verifies(world)


def test_a_branch_that_was_forked_by_hand_verifies(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    world.step(branches[0])
    other = world.instance.threads.fork(world.head(branches[1]).commit, branches[1])
    world.step(other)
    assert world.run(thread)[-1] == COMPLETED
    verifies(world)


@pytest.mark.forges
def test_branches_that_are_gathered_in_parts_verify_and_parts_of_other_sizes_do_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def most(number: int) -> None:
        for room in ("store.threads", "verify.fan_outs", "verify.refs"):
            monkeypatch.setattr(f"uwf_git.{room}.MOST_PARENTS", number)

    most(2)
    world.roles["planner"] = {"files": list("abcde")}
    thread = world.start()
    assert world.run(thread)[-1] == COMPLETED
    verifies(world)
    most(3)
    found = verify_refs(world.instance.store.repository, local_refs(world.instance.store.repository)).findings
    assert {(each.code, each.thread) for each in found} == {("wrong-parent", thread)}


def test_a_published_branch_has_the_branches_of_its_thread_and_verifies_whole_squashed_and_shallow(
    world: World,
) -> None:
    thread = world.start()
    world.run(thread)
    repository, commit = world.instance.store.repository, world.head(thread).commit
    name = f"uwf/threads/{thread}"
    branch = Branch(name, f"refs/heads/{name}")
    whole = verify_branch(repository, commit, branch, {thread: [commit]}).verified
    assert (whole.findings, whole.warnings, whole.steps) == ((), (), 7)
    squash = repository.write_commit(repository.root(commit), [], repository.user, "Squashed\n")
    squashed = verify_branch(repository, squash, Branch("main", "refs/heads/main"), {}).verified
    assert (squashed.findings, {each.code for each in squashed.warnings}) == ((), {"squashed"})
    repository.put_ref(f"refs/heads/{name}", None, commit)
    for depth in (1, 2, 3, 4):
        clone = world.folder / f"clone-{depth}"
        git = ["git", "clone", "-q", "--bare", "--depth", str(depth), "--branch", name]
        subprocess.run([*git, f"file://{repository.path}", str(clone)], check=True)
        shallow = verify_branch(ForeignRepository(clone), commit, branch, {}).verified
        assert (shallow.findings, {each.code for each in shallow.warnings}) == ((), {"shallow"})


def test_lost_commits_of_branches_and_joins_are_made_again_by_the_rest_of_the_store(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    starts = [world.head(branch).commit for branch in branches]
    world.run(thread)
    repository = world.instance.store.repository
    join = repository.commit(world.head(thread).commit).parents[0]
    source = RegeneratedObjects(world.instance.store, [world.head(thread).commit.raw])
    source._tips = [world.head(each).commit.raw for each in (thread, *branches)]
    source.prepare([])
    for commit in (join, *starts):
        assert source.read(commit) == repository.read(commit)


def test_nothing_is_said_between_a_fork_and_its_join(world: World) -> None:
    thread = world.start()
    world.step(thread)
    assert isinstance(refused(lambda: remark(world.instance, thread, "Look.")), Waiting | Invalid)
    world.step(thread)
    assert isinstance(refused(lambda: remark(world.instance, thread, "Look.")), Waiting | Invalid)
    engine.kill(world.instance, thread)
    assert isinstance(refused(lambda: continue_finished(world.instance, thread, "Go on")), Invalid)


def test_a_thread_that_only_has_the_id_of_a_branch_is_not_joined_as_one(world: World) -> None:
    thread = world.start()
    branches = world.forked(thread)
    repository = world.instance.store.repository
    ref = layout.THREADS + branches[0]
    repository.put_ref(ref, repository.ref(ref), world.head(branches[1]).commit)
    error = refused(lambda: branches_at(world.instance, world.head(thread)))
    assert isinstance(error, StoreDamaged) and branches[0] in error.message


def test_signed_forks_branches_and_joins_meet_a_trust_policy_on_another_machine(
    uwf: Uwf, tmp_path: Path
) -> None:
    shared = tmp_path / "shared.git"
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha1", shared], check=True)
    ann, bob = (SigningMachine(uwf, tmp_path / name, Signer(tmp_path, name)) for name in ("ann", "bob"))
    ann("init")
    trust = tmp_path / "trust.yaml"
    rules = '[{threads: "*", require: signed}]'
    trust.write_text(trust_file({"ann": ann.signer, "bob": bob.signer}, rules=rules))
    ann("trust", "set", trust)
    ann.registers(audit().replace("each: $last().files", "each: [a, b]"))
    ann("remote", "add", "origin", shared)
    thread = ann.starts("Audit", workflow="audit")
    for _ in range(2):
        ann("thread", "step", thread, "--agent", "uwf-rehearse")
    ann("push")
    bob("clone", shared)
    bob("thread", "run", thread, "--agent", "uwf-rehearse")
    bob("push")
    ann("pull")
    assert ann.status(thread) == COMPLETED
    ann("verify", "--all")
    git = ["git", "--git-dir", ann.store, "log", "-1", "--format=%ce %s", f"refs/uwf/archive/{thread}^"]
    join = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    assert "$JOIN" in join and join.startswith(bob.signer.email)
