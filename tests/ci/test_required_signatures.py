"""A published branch is held to the trust policy of its repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from conftest import EXAMPLES, Uwf
from forge_jobs import Forge, Ran
from signers import Signer, SigningMachine, trust_file

PRINTED = (EXAMPLES / "ci" / "github.yml").read_text(encoding="utf-8")


class Team(Forge):
    """Ann, who maintains a policy, and Mallory, whom it doesn't name; both may push."""

    def __init__(self, uwf: Uwf, folder: Path) -> None:
        super().__init__(folder)
        self.signers = {name: Signer(folder, name) for name in ("ann", "mallory")}
        machines = {name: SigningMachine(uwf, folder / name, who) for name, who in self.signers.items()}
        self.ann, self.mallory = machines["ann"], machines["mallory"]
        self.ann("init")
        self.ann("remote", "add", "origin", self.remote)
        self.ann("workflow", "put", write("pair.yaml", PAIR))
        rules = '[{threads: "*", require: signed}, {workflows: "*", signed-by: [ann]}]'
        file = folder / "trust.yaml"
        file.write_text(trust_file({"ann": self.signers["ann"]}, rules=rules), encoding="utf-8")
        self.ann("trust", "set", file, "--accept-existing")
        self.ann("push", "origin")

    def published(self, machine: SigningMachine) -> str:
        thread = str(machine("thread", "start", "pair", "-p", "Do it").json["thread"])
        machine("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
        machine("publish", "thread", thread)
        return thread

    def checked(self, thread: str) -> Ran:
        return self.pull_request(PRINTED, f"uwf/threads/{thread}", f"uwf/base/{thread}")


@pytest.fixture
def team(uwf: Uwf, tmp_path: Path) -> Team:
    return Team(uwf, tmp_path / "forge")


def codes(ran: Ran) -> set[str]:
    return {
        each["code"]
        for check in ran.result["checks"]
        for each in check["problems"]
        if each["level"] == "error"
    }


def test_a_thread_that_its_people_signed_passes(team: Team) -> None:
    ran = team.checked(team.published(team.ann))
    assert ran.code == 0, ran.log


def test_a_thread_that_nobody_of_the_policy_signed_fails_with_a_status_of_its_own(
    team: Team, uwf: Uwf
) -> None:
    # A store without the policy makes what the policy forbids.
    team.mallory("init")
    team.mallory("remote", "add", "origin", team.remote)
    team.mallory("workflow", "put", write("pair.yaml", PAIR))
    for signs in (True, False):
        team.signers["mallory"].signs(signs)
        ran = team.checked(team.published(team.mallory))
        assert ran.code == 14, ran.log
        assert codes(ran) == {"requirement-unmet"}
        assert "**Verified**" not in ran.summary
        assert "**Not signed as the trust policy requires**" in ran.summary


def test_a_workflows_branch_is_held_to_its_rule_and_a_proposal_is_not(team: Team) -> None:
    team.mallory("init")
    team.mallory("remote", "add", "origin", team.remote)
    team.mallory("workflow", "put", write("pair.yaml", PAIR.replace("One writes", "Somebody writes")))
    team.mallory("workflow", "put", write("other.yaml", PAIR.replace("name: pair", "name: other")))
    team.mallory("publish", "workflow", "other")
    changed = write("other.yaml", PAIR.replace("name: pair", "name: other").replace("One writes", "Somebody"))
    team.mallory("workflow", "propose", changed, "--branch", "mine", "--remote", "origin")
    ran = team.dispatched(PRINTED)
    statuses = {each["name"]: each["status"] for each in ran.result["checks"] if each["kind"] == "branch"}
    assert statuses == {"uwf/proposals/mine": 0, "uwf/workflows/other": 14}, ran.log


def test_a_policy_that_its_maintainers_did_not_sign_is_not_followed(team: Team) -> None:
    thread = team.published(team.ann)
    policy = team.git("rev-parse", "refs/uwf/trust/policy")
    forged = team.git("commit-tree", f"{policy}^{{tree}}", "-p", policy, "-m", "trust policy")
    team.git("update-ref", "refs/uwf/trust/policy", forged)
    ran = team.checked(thread)
    assert ran.code in (7, 14), ran.log
    assert "policy-not-signed" in codes(ran)


def test_another_name_for_the_branch_is_no_way_around_the_policy(team: Team) -> None:
    team.mallory("init")
    team.mallory("remote", "add", "origin", team.remote)
    team.mallory("workflow", "put", write("pair.yaml", PAIR))
    thread = str(team.mallory("thread", "start", "pair", "-p", "Do it").json["thread"])
    team.mallory("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    published = team.mallory("publish", "thread", thread, "--as", "release-7").json
    ran = team.pull_request(PRINTED, published["branch"], published["baseBranch"])
    assert ran.code == 14, ran.log
    signed = str(team.ann("thread", "start", "pair", "-p", "Do it").json["thread"])
    team.ann("thread", "run", signed, "--agent", scripted(REJECTS_ONCE))
    published = team.ann("publish", "thread", signed, "--as", "release-8").json
    ran = team.pull_request(PRINTED, published["branch"], published["baseBranch"], number=8)
    assert ran.code == 0, ran.log


def test_a_merge_or_a_squash_of_a_thread_is_no_way_around_the_policy(team: Team) -> None:
    team.mallory("init")
    team.mallory("remote", "add", "origin", team.remote)
    team.mallory("workflow", "put", write("pair.yaml", PAIR))
    thread = team.published(team.mallory)
    head, base = (team.git("rev-parse", f"refs/heads/uwf/{kind}/{thread}") for kind in ("threads", "base"))
    merge = team.git("commit-tree", f"{head}^{{tree}}", "-p", base, "-p", head, "-m", "Merge")
    squash = team.git("commit-tree", f"{head}^{{tree}}", "-p", base, "-m", "Squash")
    for number, commit in enumerate((merge, squash), 20):
        team.git("update-ref", f"refs/heads/topic{number}", commit)
        ran = team.pull_request(PRINTED, f"topic{number}", f"uwf/base/{thread}", number=number)
        assert ran.code == 14, ran.log
        assert "requirement-unmet" in codes(ran)
