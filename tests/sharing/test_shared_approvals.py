"""Approvals of several machines, each with its own key: all of them count, and no others."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from approvers import BUILDS, ForgedApprovals, release
from commands import git
from conftest import Uwf
from signers import Signer, SigningMachine, trust_file

from uwf_git.store.instance import Instance
from uwf_git.store.location import locate

NAMES = ("ann", "bob", "carol", "dora")


class Team:
    """Four people with a machine and a key each, and one remote."""

    thread: str
    """A thread at its gate, which all have."""

    def __init__(self, uwf: Uwf, folder: Path, kept: Path | None = None) -> None:
        """Make a team, or copy the one in the folder `kept`."""
        self.hub = folder / "hub.git"
        if kept is None:
            git("init", "-q", "--bare", self.hub)
        else:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        self.machines = {name: SigningMachine(uwf, folder / name, Signer(folder, name)) for name in NAMES}
        for machine in self.machines.values():
            if kept is None:
                machine("init")
                machine("remote", "add", "hub", self.hub)
            else:
                git("--git-dir", machine.store, "config", "remote.hub.url", self.hub)

    def begins(self, text: str) -> None:
        """A thread of a workflow comes to its gate."""
        dora = self.machines["dora"]
        self.thread = dora.starts("v1", dora.registers(text))
        dora("thread", "step", self.thread, "--agent", BUILDS)
        self.share("dora", *NAMES)

    def __getattr__(self, name: str) -> SigningMachine:
        try:
            return self.machines[name]
        except KeyError:
            raise AttributeError(name) from None

    def share(self, pushes: str, *pulls: str) -> None:
        """Pushes from one machine, and pulls on others."""
        self.machines[pushes]("push", "hub", check=None)
        for name in pulls:
            if name != pushes:
                self.machines[name]("pull", "hub")

    def approves(self, name: str, decision: str = "ship", **more: Any) -> Any:
        return self.machines[name]("thread", "answer", self.thread, "-f", f"decision={decision}", **more)

    def shown(self, name: str) -> dict[str, Any]:
        return dict(self.machines[name]("thread", "show", self.thread).json)


Begun = Callable[[str], Team]


@pytest.fixture
def begun(uwf: Uwf, tmp_path: Path, lasting: Path) -> Begun:
    """Returns a copy of a team that is made once, with a thread of a workflow."""

    def begin(text: str) -> Team:
        kept = lasting / "approvers"
        if not kept.exists():
            Team(uwf, kept)
        team = Team(uwf, tmp_path / "team", kept)
        team.begins(text)
        return team

    return begin


@pytest.fixture
def team(uwf: Uwf, tmp_path: Path, lasting: Path, begun: Begun) -> Team:
    """As `begun` with the workflow `release`, made once with its thread."""
    folder, kept = tmp_path / "team", lasting / "approvers-at-a-gate"
    if not kept.exists():
        first = begun(release())
        shutil.copytree(folder, kept)
        (kept / "thread").write_text(first.thread)
        return first
    team = Team(uwf, folder, kept)
    team.thread = (kept / "thread").read_text()
    return team


def test_two_people_who_approve_at_once_on_two_machines_both_count(team: Team) -> None:
    team.approves("ann")
    team.approves("bob")
    team.share("ann")
    team.bob("pull", "hub")
    shown = team.shown("bob")
    assert (shown["status"], shown["next"]) == ("idle", "gate")
    team.share("bob", "carol")
    done = team.carol("thread", "step", team.thread).json
    assert (done["status"], done["role"]) == ("completed", "gate")
    team.share("carol", "ann")
    for name in ("ann", "carol"):
        assert team.machines[name]("verify").json["findings"] == []
        assert team.shown(name)["status"] == "completed"
    signed = team.ann("verify", "--signatures").json["signatures"]
    states = [each["state"] for each in signed if each["kind"] == "approval"]
    assert sorted(state != "none" for state in states) == [False, True, True]  # and what unites them


def test_both_machines_make_the_same_step_of_the_same_approvals(team: Team) -> None:
    team.approves("ann")
    team.approves("bob")
    team.share("ann", "bob")
    team.share("bob", "ann", "carol")
    heads = {team.machines[name]("thread", "step", team.thread).json["head"] for name in ("ann", "carol")}
    assert len(heads) == 1
    team.share("ann")
    team.carol("pull", "hub", check=None)
    assert team.carol("thread", "list", "--all").json[0]["status"] == "completed"
    assert len(team.carol("thread", "list", "--all").json) == 1


def test_two_last_approvals_on_two_machines_leave_one_step_under_the_id(team: Team) -> None:
    team.approves("ann")
    team.share("ann", "bob", "carol")
    team.approves("bob")
    team.approves("carol")
    team.share("bob")
    team.carol("pull", "hub", check=None)
    team.share("carol")
    team.bob("pull", "hub", check=None)
    heads = {team.shown(name)["head"] for name in ("bob", "carol")}
    assert len(heads) == 1
    for name in ("bob", "carol"):
        assert team.machines[name]("verify").json["findings"] == []


def test_a_revocation_reaches_the_others(team: Team) -> None:
    team.approves("ann")
    team.share("ann", "bob")
    team.ann("thread", "answer", team.thread, "--revoke", "-m", "Not yet.")
    team.share("ann", "bob")
    assert team.approves("bob").json["status"] == "waiting"
    given = team.shown("bob")["approvals"]["given"]
    assert [each["counts"] for each in given] == [False, True]


def test_a_revocation_that_came_too_late_changes_nothing(team: Team) -> None:
    team.approves("ann")
    team.share("ann", "bob")
    team.ann("thread", "answer", team.thread, "--revoke")
    assert team.approves("bob").json["status"] == "completed"  # it is not known there
    team.share("bob", "ann")
    team.share("ann", "bob")
    for name in ("ann", "bob"):
        assert team.shown(name)["status"] == "completed"
        assert team.machines[name]("verify").json["findings"] == []


def test_a_fork_and_a_copy_have_what_was_approved_and_nothing_pending(team: Team, tmp_path: Path) -> None:
    team.approves("ann")
    fork = team.ann("thread", "fork", team.thread).json["thread"]
    assert team.ann("thread", "show", fork).json["approvals"]["given"] == []
    team.share("ann", "bob")
    team.approves("bob")
    after = team.bob("thread", "fork", team.thread).json["thread"]
    team.bob("bundle", after, "-o", tmp_path / "fork.bundle")
    team.carol("unbundle", tmp_path / "fork.bundle")
    assert team.carol("verify").json["findings"] == []
    team.bob("push", "hub", "--all")
    team.bob("publish", "thread", team.thread, "--remote", "hub")
    team.bob("unpublish", team.thread, "--remote", "hub")


def test_a_checkout_of_a_published_thread_is_verified_with_its_approvals(
    team: Team, uwf: Uwf, tmp_path: Path
) -> None:
    team.approves("ann")
    team.share("ann", "bob")
    team.approves("bob")
    team.bob("publish", "thread", team.thread, "--remote", "hub")
    branch = f"uwf/threads/{team.thread}"
    git("clone", "-q", "-b", branch, team.hub, tmp_path / "whole")
    assert uwf("verify", ".", cwd=tmp_path / "whole").json["findings"] == []
    git("init", "-q", tmp_path / "squashed")
    git("-C", tmp_path / "squashed", "commit", "-q", "--allow-empty", "-m", "first")
    git("-C", tmp_path / "squashed", "fetch", "-q", team.hub, branch)
    git("-C", tmp_path / "squashed", "read-tree", "-u", "--reset", "FETCH_HEAD")
    git("-C", tmp_path / "squashed", "commit", "-q", "-m", "a thread")
    assert uwf("verify", ".", cwd=tmp_path / "squashed").json["findings"] == []


def test_a_removed_thread_takes_its_approvals_along_and_back(team: Team) -> None:
    team.approves("ann")
    ref = f"refs/uwf/approvals/{team.thread}"
    team.ann("thread", "rm", team.thread, "--yes")
    assert git("--git-dir", team.ann.store, "for-each-ref", ref).strip() == ""
    team.ann("thread", "restore", team.thread)
    assert len(team.shown("ann")["approvals"]["given"]) == 1
    assert team.ann("verify").json["findings"] == []


def test_folds_gc_and_doctor_leave_approvals_whole(team: Team) -> None:
    team.approves("ann")
    team.share("ann", "bob")
    team.approves("bob")
    team.bob("gc", "--fold-before", "2100-01-01")
    team.bob("gc", "--prune")
    assert team.bob("verify").json["findings"] == []
    assert all(each["status"] != "error" for each in team.bob("doctor", check=None).json)
    team.share("bob", "ann")
    assert team.ann("verify").json["findings"] == []
    assert team.shown("ann")["status"] == "completed"


def test_a_pulled_approval_by_somebody_else_is_refused_by_name(team: Team, uwf: Uwf) -> None:
    mallory = team.dora
    forged = ForgedApprovals(_opened(mallory), team.thread)
    forged.commit(forged.honest("bob"), committer="mallory")
    git("--git-dir", mallory.store, "push", "-q", team.hub, f"refs/uwf/approvals/{team.thread}")
    pulled = team.ann("pull", "hub", check=7)
    assert "approval" in pulled.err and "mallory" in pulled.err
    assert team.shown("ann")["approvals"]["given"] == []
    team.approves("ann")
    assert team.shown("ann")["status"] == "waiting"


def test_with_a_policy_only_a_persons_own_key_approves(begun: Begun) -> None:
    team = begun(release("[reviewers]", signed=True))
    people = {name: team.machines[name].signer for name in NAMES}
    text = trust_file(people, more="groups: {reviewers: [ann, bob]}\n")
    _trusts(team.ann, text)
    team.share("ann", "bob", "carol")
    assert "may not answer" in team.approves("carol", check=14).error["message"]
    team.bob.signer.signs(commits=False)
    assert "must be signed" in team.approves("bob", check=14).error["message"]
    team.bob.signer.signs(key=team.carol.signer.key)
    assert "signed by carol" in team.approves("bob", check=14).error["message"]
    team.bob.signer.signs()
    assert team.shown("bob")["approvals"]["given"] == []
    assert [each["thread"] for each in team.bob("inbox", "--for", "me").json] == [team.thread]
    assert team.carol("inbox", "--for", "me").json == []
    team.approves("bob")
    given = team.shown("bob")["approvals"]["given"][0]
    assert (given["person"], given["signature"]["state"]) == ("bob", "good")
    team.share("bob", "ann")
    assert team.approves("ann").json["status"] == "completed"
    team.share("ann", "dora")
    assert team.dora("verify").json["findings"] == []


def test_an_approval_stays_one_when_its_person_leaves_and_not_if_the_key_was_stolen(begun: Begun) -> None:
    team = begun(release("[reviewers]", quorum=1, signed=True))
    people = {name: team.machines[name].signer for name in NAMES}
    _trusts(team.ann, trust_file(people, more="groups: {reviewers: [ann, bob]}\n"))
    team.share("ann", "bob")
    team.approves("bob")
    team.share("bob", "ann")
    without = {name: people[name] for name in ("ann", "carol", "dora")}
    _later(team.ann)
    _trusts(team.ann, trust_file(without, more="groups: {reviewers: [ann]}\n"))
    assert team.ann("verify").json["findings"] == []
    stolen = trust_file(people, more="groups: {reviewers: [ann, bob]}\n").replace(
        people["bob"].public, f"{{ssh: {people['bob'].public}, revoked: 2020-01-01}}"
    )
    _trusts(team.ann, stolen)
    found = team.ann("verify", check=7).json["findings"]
    assert {each["code"] for each in found} == {"approval-forged", "approval-missing"}
    assert "the key of bob did not count" in found[0]["message"]


def test_the_approval_of_somebody_who_was_removed_counts_for_no_open_gate(begun: Begun) -> None:
    team = begun(release("[reviewers]", signed=True))
    people = {name: team.machines[name].signer for name in NAMES}
    _trusts(team.ann, trust_file(people, more="groups: {reviewers: [ann, bob, carol]}\n"))
    team.share("ann", "bob")
    team.approves("bob")
    team.share("bob", "ann")
    _later(team.ann)
    _trusts(team.ann, trust_file(people, more="groups: {reviewers: [ann, carol]}\n"))
    assert team.approves("ann").json["status"] == "waiting"
    team.share("ann", "carol")
    assert team.approves("carol").json["status"] == "completed"
    assert team.carol("verify").json["findings"] == []


def test_an_author_is_who_signed_under_whatever_address(begun: Begun) -> None:
    team = begun(release("[bob, carol]", quorum=1, notAuthor=True))
    _trusts(team.ann, trust_file({name: team.machines[name].signer for name in NAMES}))
    team.share("ann", "bob")
    config = team.bob.signer.config
    honest = config.read_text()
    config.write_text(honest.replace("bob@example.invalid", "robert@example.invalid"))
    thread = team.bob.starts("v2", "release")
    team.bob("thread", "step", thread, "--agent", BUILDS)
    config.write_text(honest)
    refused = team.bob("thread", "answer", thread, "-f", "decision=ship", check=14).error["message"]
    assert "made what gate" in refused


def test_with_a_policy_an_unsigned_approval_of_somebody_with_a_key_counts_for_nothing(begun: Begun) -> None:
    team = begun(release("[ann, bob]"))
    _trusts(team.ann, trust_file({name: team.machines[name].signer for name in NAMES}))
    team.share("ann", "bob", "carol")
    _later(team.ann)
    team.bob.signer.signs(commits=False)
    assert "must be signed" in team.approves("bob", check=14).error["message"]
    forged = ForgedApprovals(_opened(team.carol), team.thread)
    at = int(time.time())
    for name in ("ann", "bob"):
        forged.commit(forged.honest(name)._replace(at=at), name)
    assert not any(each["counts"] for each in team.shown("carol")["approvals"]["given"])
    found = team.carol("verify", check=7).json["findings"]
    assert {each["code"] for each in found} == {"approval-forged"}


def test_approvals_from_before_a_rule_are_accepted_with_the_rest(team: Team, tmp_path: Path) -> None:
    team.bob.signer.signs(commits=False)
    team.approves("bob")
    team.share("bob", "ann")
    team.approves("ann")
    team.share("ann", "bob")
    _later(team.ann)
    people = {name: team.machines[name].signer for name in NAMES}
    file = tmp_path / "trust.yaml"
    file.write_text(trust_file(people, rules='[{threads: "*", require: signed}]'))
    team.ann("trust", "set", file, "--accept-existing")
    assert team.ann("verify").json["findings"] == []
    team.share("ann", "bob")
    assert team.bob("verify").json["findings"] == []


@pytest.mark.parametrize(
    "principal", ["joann@example.invalid", pytest.param("ann", marks=pytest.mark.extended)]
)
def test_a_signer_counts_for_exactly_their_address(begun: Begun, tmp_path: Path, principal: str) -> None:
    team = begun(release("[ann@example.invalid]", quorum=1, signed=True))
    signer = team.dora.signer
    allowed = tmp_path / "allowed"
    allowed.write_text(f"{principal} {signer.public}\n")
    signer.config.write_text(
        signer.config.read_text().replace("= dora", "= ann")
        + f'[gpg "ssh"]\n\tallowedSignersFile = {allowed}\n'
    )
    assert f"signed by {principal}" in team.approves("dora", check=14).error["message"]
    allowed.write_text(f"ann@example.invalid {signer.public}\n")
    assert team.approves("dora").json["status"] == "completed"


def _later(machine: SigningMachine) -> None:
    """Waits for the next second, so that a version of the policy is later than what was approved under the last."""
    began = int(time.time())
    while int(time.time()) <= began:
        time.sleep(0.05)


def _opened(machine: SigningMachine) -> Instance:
    return Instance(locate(str(machine.root), os.environ, Path.cwd()))


def _trusts(machine: SigningMachine, text: str) -> None:
    from uwf_git.trust.policies import write

    with pytest.MonkeyPatch.context() as patched:
        for name, value in machine.environment.items():
            patched.setenv(name, value)
        write(_opened(machine), text.encode())
