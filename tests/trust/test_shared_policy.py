"""A policy travels with the store, and says what a pull takes over. What it refuses stays on the remote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
from forged import Forger
from signers import SigningMachine, team_of_ann, trust_file

from uwf_git.store import layout

SIGNED = "[{threads: '*', require: signed}]"


class Team:
    """Ann, Bob and Eve with a store each, and a bare repository in common. Ann's has the policy."""

    def __init__(self, uwf: Callable[..., Any], folder: Path, kept: Path) -> None:
        self._uwf = uwf
        self.folder = folder
        self.people = team_of_ann(uwf, folder, kept)
        self.server = folder / "shared.git"
        self.ann = SigningMachine(uwf, folder / "at-ann", self.people["ann"])

    def sets(
        self, rules: str = SIGNED, people: str = "ann bob", maintainers: str = "ann", more: str = ""
    ) -> str:
        """Ann's new policy; its commit."""
        file = self.folder / "trust.yaml"
        chosen = {name: self.people[name] for name in people.split()}
        file.write_text(trust_file(chosen, maintainers, rules, more))
        return str(self.ann("trust", "set", file).json["commit"])

    def clones(self, name: str, check: int = 0) -> SigningMachine:
        machine = SigningMachine(self._uwf, self.folder / f"at-{name}", self.people[name])
        machine("clone", self.server, check=check)
        return machine

    @property
    def there(self) -> Forger:
        return Forger(self.server)


@pytest.fixture
def team(uwf: Any, hermetic: Path, lasting: Path) -> Team:
    return Team(uwf, hermetic, lasting / "ann")


def policy_of(machine: SigningMachine) -> str:
    return str(machine("trust", "show").json["commit"])


def test_a_clone_trusts_the_first_policy_and_says_which(team: Team) -> None:
    first = team.sets()
    second = team.sets(people="ann bob eve")
    team.ann("push")
    machine = SigningMachine(team._uwf, team.folder / "at-bob", team.people["bob"])
    told = machine("clone", team.server, "--format", "text")
    assert first in told.err and "uwf trust show" in told.err
    shown = machine("trust", "show").json
    assert (shown["first"], shown["commit"], shown["signer"], shown["you"]) == (first, second, "ann", "bob")
    assert [each["commit"] for each in machine("trust", "log").json] == [second, first]
    assert (
        machine("trust", "show", "--file", "--format", "text").out == team.ann("trust", "show", "--file").out
    )
    machine.is_sound()


def test_a_clone_that_names_a_policy_takes_nothing_under_another(team: Team) -> None:
    first = team.sets()
    second = team.sets(people="ann bob eve")
    team.ann("push")
    clones = iter(range(9))

    def clone(commit: str, check: int = 0) -> SigningMachine:
        machine = SigningMachine(team._uwf, team.folder / f"pinned-{next(clones)}", team.people["bob"])
        machine("clone", team.server, "--policy", commit, check=check)
        return machine

    for commit in (first, second):
        assert clone(commit)("trust", "show").json["commit"] == second
    assert not (clone("f" * 40, check=14).root / "store.git").exists()
    clone("123", check=2)
    subprocess.run(["git", "--git-dir", team.server, "update-ref", "-d", "refs/uwf/trust/policy"], check=True)
    assert not (clone(first, check=14).root / "store.git").exists()


def test_a_change_is_pulled_and_a_stranger_s_is_refused(team: Team) -> None:
    first = team.sets()
    team.ann("push")
    bob = team.clones("bob")
    second = team.sets(people="ann bob eve")
    team.ann("push")
    bob("pull")
    assert policy_of(bob) == second
    forged = team.there("commit-tree", f"{second}^{{tree}}", "-p", second, "-m", "policy")
    team.there.point(layout.POLICY, forged)
    refused = bob("pull", check=14)
    assert refused.error["code"] == "requirement_unmet"
    assert [each["ref"] for each in refused.json["refused"]] == [layout.POLICY]
    assert refused.json["refused"][0]["findings"][0]["code"] == "policy-not-signed"
    assert policy_of(bob) == second
    assert bob("verify", "--remote", "origin", check=14).json["findings"][0]["code"] == "policy-not-signed"
    team.there.point(layout.POLICY, first)
    rolled = bob("pull", check=14).json["refused"][0]["findings"][0]
    assert rolled["code"] == "policy-replaced" and "rolled back" in rolled["message"]
    assert policy_of(bob) == second
    bob("verify")
    team.there.point(layout.POLICY, second)
    bob("pull")


def test_what_is_not_signed_as_required_stays_on_the_remote(team: Team) -> None:
    team.sets()
    thread, other = team.ann.starts(), team.ann.starts()
    team.ann("push")
    bob = team.clones("bob")
    head = team.ann.steps(thread)
    team.ann("push")
    tip = team.there("rev-parse", f"{layout.THREADS}{thread}")
    raw = team.there("cat-file", "commit", tip).encode() + b"\n"
    begin, end = raw.index(b"\ngpgsig"), raw.index(b"-----END SSH SIGNATURE-----") + 27
    team.there.point(f"{layout.THREADS}{thread}", team.there.write("commit", raw[:begin] + raw[end:]))
    team.ann.steps(other)
    team.ann("push", other)
    refused = bob("pull", check=14)
    assert refused.error["code"] == "requirement_unmet"
    (left,) = refused.json["refused"]
    assert left["ref"] == f"{layout.THREADS}{thread}"
    assert (left["findings"][0]["code"], left["findings"][0]["step"]) == ("requirement-unmet", head)
    assert bob.status(thread) == "idle" and len(bob("thread", "steps", thread).json) == 0
    assert len(bob("thread", "steps", other).json) == 1  # everything else is taken over
    assert bob("pull", check=14).json["refused"]  # also the second time
    assert bob("pull", thread, check=14).json["refused"]
    assert "requirement-unmet" in bob("verify", "--remote", "origin", check=14).out
    bob("verify")


def test_a_shared_step_and_a_fleet_s_worker_refuse_it_too(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uwf_git.ext.fleet.step_process import StepRunner, WorkerOptions

    team.sets()
    thread, other = team.ann.starts(), team.ann.starts()
    team.ann("push")
    bob = team.clones("bob")
    team.ann.steps(thread)
    tip = team.ann.heads()[thread]
    assert tip
    raw = Forger(team.ann.store)("cat-file", "commit", f"{layout.THREADS}{thread}").encode() + b"\n"
    begin, end = raw.index(b"\ngpgsig"), raw.index(b"-----END SSH SIGNATURE-----") + 27
    git = Forger(team.ann.store)
    git.point(f"{layout.THREADS}{thread}", git.write("commit", raw[:begin] + raw[end:]))
    team.ann("push")
    refused = bob("thread", "step", thread, "--remote", "origin", check=14).error
    assert "is not signed" in refused["message"]
    assert bob("thread", "steps", thread).json == []
    for name, value in bob.environment.items():
        monkeypatch.setenv(name, value)
    runner = StepRunner(WorkerOptions(remote="origin"), lambda told: None)
    problems = runner.answer({"do": "gather", "threads": [thread, other]})["problems"]
    assert problems[thread]["code"] == "requirement_unmet" and "is not signed" in problems[thread]["message"]
    assert problems[other] is None
    team.people["bob"].signs(commits=False)
    head = team.ann.heads()[other]
    failed = StepRunner(WorkerOptions(remote="origin"), lambda told: None).answer(
        {"do": "step", "thread": other, "head": bob("thread", "show", other).json["head"]}
    )
    assert failed["fault"]["code"] == "requirement_unmet" and "you don't sign" in failed["fault"]["message"]
    assert team.ann.heads()[other] == head


def test_a_stranger_s_key_counts_no_more_than_none(team: Team) -> None:
    team.sets("[{threads: '*', signed-by: [bob]}]")
    team.ann("push")
    bob, eve = team.clones("bob"), team.clones("eve")
    refused = eve("thread", "start", "relay", "-p", "Do it", check=14).error
    assert refused["code"] == "requirement_unmet" and "is not in it" in refused["message"]
    assert "you are ann" in team.ann("thread", "start", "relay", "-p", "Do it", check=14).error["message"]
    thread = bob.starts()
    bob("push")
    team.ann("pull")
    team.ann("thread", "kill", thread, check=14)
    assert "you are ann" in team.ann("thread", "step", thread, check=14).error["message"]


def test_a_store_that_loses_its_policy_s_ref_follows_it_still(team: Team) -> None:
    commit = team.sets()
    Forger(team.ann.store)("update-ref", "-d", layout.POLICY)
    assert policy_of(team.ann) == commit
    assert "problem" in team.ann("trust", "show").json
    found = team.ann("verify", check=7).json["findings"]
    assert [each["code"] for each in found] == ["missing-ref"]
    team.ann("doctor", "--fix", check=None)
    assert "problem" not in team.ann("trust", "show").json
    team.ann("verify")


def test_nothing_is_taken_from_a_remote_whose_first_policy_is_forged(team: Team) -> None:
    commit = team.sets()
    thread = team.ann.starts()
    team.ann("push")
    forged = team.there("commit-tree", f"{commit}^{{tree}}", "-m", "policy")
    team.there.point(layout.POLICY, forged)
    bob = team.clones("bob", check=14)
    assert thread not in bob("thread", "list", "--all").out
    assert bob("workflow", "list").json == []
    assert bob("trust", "show", check=3).error["code"] == "not_found"


def test_two_maintainers_who_change_it_at_once_agree_on_the_remote_s(team: Team) -> None:
    team.sets(maintainers="ann, bob")
    team.ann("push")
    bob = team.clones("bob")
    file = team.folder / "bob.yaml"
    file.write_text(trust_file({name: team.people[name] for name in ("ann", "bob", "eve")}, "ann, bob"))
    mine = bob("trust", "set", file).json["commit"]
    theirs = team.sets(maintainers="ann, bob", rules="[]")
    team.ann("push")
    bob("push", layout.POLICY, check=None)
    assert bob("pull").json["adopted"][0]["case"] == "two-histories"
    assert policy_of(bob) == theirs != mine
    assert bob("trust", "set", file).json["signer"] == "bob"
    bob("push")
    team.ann("pull")
    assert policy_of(team.ann) == policy_of(bob)


def test_a_rule_about_workflows_is_kept_by_start_accept_and_pull(team: Team) -> None:
    team.sets("[{workflows: '*', signed-by: [ann]}]")
    team.ann("push")
    bob = team.clones("bob")
    changed = team.folder / "changed.yaml"
    changed.write_text(team.ann.root.with_name("at-ann.yaml").read_text().replace("One writes", "Bob writes"))
    assert bob("workflow", "put", changed, check=14).error["code"] == "requirement_unmet"
    assert bob("thread", "start", changed, "-p", "Do it", check=14).error["code"] == "requirement_unmet"
    bob("workflow", "propose", changed, "--branch", "bobs", "--remote", "origin")
    assert bob("workflow", "accept", "bobs", check=14).error["code"] == "requirement_unmet"
    before = team.ann("workflow", "list").json[0]["commit"]
    accepted = team.ann("workflow", "accept", "bobs", "--remote", "origin").json
    assert accepted["commit"] != before
    team.ann("verify")
    team.ann("push")
    bob("pull")
    bob("verify")
    bob.starts()
    stolen = team.there("commit-tree", f"{accepted['commit']}^{{tree}}", "-p", accepted["commit"], "-F", "-",
                        data=team.there("log", "-1", "--format=%B", accepted["commit"]).encode() + b"\n")  # fmt: skip
    team.there.point("refs/uwf/workflows/relay", stolen)
    (left,) = bob("pull", check=14).json["refused"]
    assert left["ref"] == "refs/uwf/workflows/relay"


def test_a_step_that_could_not_be_signed_is_refused_before_its_agent_runs(team: Team) -> None:
    team.sets()
    thread = team.ann.starts()
    team.people["ann"].signs(commits=False)
    agent = f"sh -c 'echo ran >>{team.folder}/ran; exec uwf-rehearse \"$@\"' --"
    refused = team.ann("thread", "step", thread, "--agent", agent, check=14).error
    assert "you don't sign" in refused["message"] and "commit.gpgSign" in refused["hint"]
    team.people["ann"].signs(key=team.people["eve"].key)
    assert "is not in it" in team.ann("thread", "step", thread, "--agent", agent, check=14).error["message"]
    team.people["ann"].signs(key=team.folder / "none")
    assert team.ann("thread", "step", thread, "--agent", agent, check=14).error["code"] == "requirement_unmet"
    assert not (team.folder / "ran").exists()
    team.people["ann"].signs()
    team.ann("thread", "step", thread, "--agent", agent)
    assert (team.folder / "ran").exists()


def test_an_end_that_another_must_sign_is_left_to_them(team: Team) -> None:
    team.sets("[{threads: '*', of: ends, signed-by: [bob]}]")
    thread = team.ann.starts()
    team.ann.steps(thread)
    script = team.folder / "at-ann.replies.yaml"
    refused = team.ann("thread", "step", thread, "--agent", f"uwf-rehearse --script {script}", check=14)
    assert "signed by bob, and you are ann" in refused.error["message"]
    assert len(team.ann("thread", "steps", thread).json) == 2
    team.ann("push")
    bob = team.clones("bob")
    bob("thread", "step", thread)
    assert bob.status(thread) == "completed"
    bob("push")
    team.ann("pull")
    assert team.ann.status(thread) == "completed"
    team.ann("verify")


def test_a_divergence_that_the_user_may_not_end_is_left_and_named(team: Team) -> None:
    thread = team.ann.starts()
    team.ann("push")
    bob = team.clones("bob")
    team.ann.steps(thread, "by ann")
    team.ann("thread", "kill", thread)
    bob.steps(thread, "by bob")
    bob("thread", "kill", thread)
    bob("push")
    team.sets("[{threads: '*', of: ends, signed-by: [bob]}]")
    told = team.ann("pull", check=14)
    assert [each["ref"] for each in told.json["refused"]] == [f"{layout.ARCHIVE}{thread}"]
    assert "you are ann" in told.error["message"]
    assert sorted(team.ann.statuses().values()) == [
        "idle",
        "killed",
    ]  # her side is a thread of its own, not ended
    assert team.ann("pull").json["adopted"][0]["case"] == "ended-twice"
    assert team.ann.statuses()[thread] == "killed"
    team.ann.verifies()


def test_verify_names_what_is_unmet_and_requires_what_it_is_told(team: Team) -> None:
    thread = team.ann.starts()
    team.people["ann"].signs(commits=False)
    team.ann.steps(thread)
    team.people["ann"].signs()
    team.ann("verify")
    team.ann("verify", "--require", "signed", check=14)  # git trusts nobody here
    (team.folder / "allowed").write_text(f"ann@example.invalid {team.people['ann'].public}\n")
    with team.people["ann"].config.open("a") as file:
        file.write(f'[gpg "ssh"]\n\tallowedSignersFile = {team.folder}/allowed\n')
    found = team.ann("verify", "--require", "signed", check=14).json["findings"]
    assert [(each["code"], each["thread"]) for each in found] == [("requirement-unmet", thread)]
    assert found[0]["message"].endswith("is not signed")
    reasons = team.ann("verify", "--require", "signed-by=bob@example.invalid", check=14).json["findings"]
    assert len(reasons) == 3 and "signed by ann@example.invalid" in reasons[0]["message"]
    assert (
        len(team.ann("verify", "--require", "signed-by=ann@example.invalid", check=14).json["findings"]) == 1
    )
    for wrong in ("", "unsigned", "signed-by", "signed-by=", "signed-by=,"):
        assert team.ann("verify", "--require", wrong, check=2).error["code"] == "usage"
    team.sets()
    assert [each["code"] for each in team.ann("verify", check=14).json["findings"]] == ["requirement-unmet"]
    assert len(team.ann("verify", thread, "--require", "signed-by=bob", check=14).json["findings"]) == 3
    assert team.ann("verify", "--require", "signed-by=carol", check=2).error["code"] == "usage"
    shown = team.ann("verify", "--signatures", check=14).json["signatures"]
    assert {each["signer"] for each in shown if each["state"] == "good"} == {"ann"}


def test_a_published_branch_is_held_to_the_policy(team: Team) -> None:
    thread = team.ann.starts()
    team.people["ann"].signs(commits=False)
    head = team.ann.steps(thread)
    team.people["ann"].signs()
    team.ann("push")
    team.ann("publish", "thread", thread)
    branch = f"uwf/threads/{thread}"
    git_servers.git(
        "--git-dir", team.ann.store, "fetch", "-q", "origin", f"refs/heads/{branch}:refs/heads/{branch}"
    )
    team.ann("verify", branch)
    team.sets()
    found = team.ann("verify", branch, check=14).json["findings"]
    assert [(each["code"], each["thread"], each["step"]) for each in found] == [
        ("requirement-unmet", thread, head)
    ]
    merge = Forger(team.ann.store)(
        "commit-tree", f"{branch}^{{tree}}", "-p", branch, "-m", "Merge pull request 1"
    )
    Forger(team.ann.store)("update-ref", "refs/heads/main", merge)
    assert head in [each["step"] for each in team.ann("verify", "main", check=None).json["findings"]]


def test_history_from_before_a_policy_goes_on_where_it_is(team: Team) -> None:
    team.people["ann"].signs(commits=False)
    thread = team.ann.starts()
    team.ann("push")
    bob = team.clones("bob")
    team.people["ann"].signs()
    team.sets()
    team.ann.steps(thread)
    team.ann("push")
    bob("pull")  # what it has is not judged again
    assert len(bob("thread", "steps", thread).json) == 1
    bob("verify", check=14)
    team.clones("eve", check=14)


def test_history_from_before_a_policy_can_be_accepted_as_it_is(team: Team) -> None:
    team.people["ann"].signs(commits=False)
    thread, ended = team.ann.starts(), team.ann.starts()
    team.ann.steps(thread)
    team.ann("thread", "kill", ended)
    team.people["ann"].signs()
    file = team.folder / "trust.yaml"
    file.write_text(trust_file({name: team.people[name] for name in ("ann", "bob")}, rules=SIGNED))
    team.ann("trust", "set", file, "--accept-existing")
    assert team.ann("trust", "show").json["accepted"] == 2
    team.ann("verify")
    fork = team.ann("thread", "fork", thread).json["thread"]
    team.ann.steps(thread)
    team.ann("push")
    bob = team.clones("bob")
    assert {thread, ended, fork} <= bob.statuses().keys()
    bob.is_sound()
    assert team.ann("trust", "set", file).json["changed"]
    assert team.ann("verify", check=14).json["findings"]
    team.ann("trust", "set", file, "--accept-existing")
    team.ann("verify")
    file.write_text(team.ann("trust", "show", "--file", "--format", "text").out)
    assert team.ann("trust", "set", file, "--accept-existing").json["changed"] is False
    team.people["ann"].signs(commits=False)
    late = team.ann("thread", "start", "relay", "-p", "Do it", check=14).error
    assert late["code"] == "requirement_unmet"


_LISTING_MODULES = """
import sys
from uwf_cli import main
status = main.run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


def test_a_store_without_a_policy_reads_nothing_of_signatures(team: Team) -> None:
    thread = team.ann.starts()
    for words in (("thread", "step", thread), ("verify",), ("push",), ("pull",)):
        done = subprocess.run(
            [sys.executable, "-c", _LISTING_MODULES, *words],
            env={**os.environ, **team.ann.environment}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        loaded = set(re.findall(r"uwf_git\.trust\.(\w+)", done.stderr))
        assert "permission" in loaded
        assert not loaded & {"records", "judgement", "policies"}, words
    assert not (team.ann.store / "uwf" / "signatures.db").exists()
