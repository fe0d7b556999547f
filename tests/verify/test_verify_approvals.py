"""Every approval that is forged, stale, one's own or missing is found, whoever wrote it; honest ones are not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from approvers import APPROVERS, BUILDS, Colleague, ForgedApprovals, at_gate, at_gate_after_branches, release
from cli_samples import write
from commands import git
from conftest import Uwf

from uwf_git.approvals import gate as approving
from uwf_git.format.approvals import Approval, Part, Shown
from uwf_git.format.kinds import Identity
from uwf_git.store.instance import Instance
from uwf_git.store.location import locate
from uwf_git.store.ref_kinds import APPROVALS


def codes(uwf: Uwf) -> set[str]:
    return {each["code"] for each in uwf("verify", check=None).json["findings"]}


def messages(uwf: Uwf) -> str:
    return "\n".join(each["message"] for each in uwf("verify", check=None).json["findings"])


@pytest.fixture
def forged(uwf: Uwf) -> ForgedApprovals:
    thread = at_gate(uwf)
    return ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)


def _other_digest(said: Approval) -> Approval:
    return said._replace(shown=Shown((Part("task", "0" * 64), *said.shown.parts[1:])))


def _by(name: str, email: str) -> Callable[[Approval], Approval]:
    return lambda said: said._replace(by=Identity(name, f"{email}@example.invalid"))


def _same(said: Approval) -> Approval:
    return said


_SHOWN = {"digest": "0" * 64, "of": [{"name": "task", "sha256": "0" * 64}]}

FIELDS: dict[str, tuple[Callable[[Approval], Approval], dict[str, Any], str]] = {
    "by-name": (_by("ann", "ann"), {"committer": "eve"}, "is committed by"),
    "by-address": (_by("ann", "bob"), {"committer": "ann"}, "is committed by"),
    "no-approver": (_by("eve", "eve"), {}, "none of the approvers"),
    "time": (_same, {"when": 1_780_000_000}, "is committed at"),
    "early": (lambda said: said._replace(at=said.at - 1), {}, "and the head that it is of is of"),
    "shown": (_other_digest, {}, "was shown something else"),
    "digest": (_same, {"payload": {"shown": _SHOWN}}, "digest"),
}


@pytest.mark.parametrize("field", FIELDS)
def test_an_approval_forged_in_one_field_is_found(uwf: Uwf, forged: ForgedApprovals, field: str) -> None:
    change, more, said = FIELDS[field]
    forged.commit(change(forged.honest("ann")), **more)
    assert codes(uwf) - {"wrong-author"} == {"approval-forged"}
    assert said in messages(uwf)


def test_the_double_writes_what_is_valid_where_nothing_is_forged(uwf: Uwf, forged: ForgedApprovals) -> None:
    first, second = forged.honest("ann"), forged.honest("bob")
    nodes = [forged.node_of(forged.commit(said)) for said in (first, second)]
    assert codes(uwf) == set()
    forged.step(nodes, first.output)
    assert codes(uwf) == set()


def test_an_approval_of_another_head_or_role_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    said = forged.honest("ann")
    forged.commit(said, payload={"prev": None})
    assert "wrong-chain" in codes(uwf)


def test_an_approval_of_another_role_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    forged.commit(forged.honest("ann"), payload={"role": "builder"})
    assert codes(uwf) == {"wrong-role"}


def test_a_step_with_too_few_approvals_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    said = forged.honest("ann")
    node = forged.node_of(forged.commit(said))
    forged.step([node, node], said.output)
    assert codes(uwf) == {"approval-missing"}
    assert "needs 2 approvals, and 1 count" in messages(uwf)


def test_a_step_without_any_approval_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    said = forged.honest("ann")
    forged.commit(said)
    forged.step([], said.output, merge=False)
    assert codes(uwf) == {"approval-missing", "approval-forged"}


def test_a_step_that_names_approvals_it_does_not_stand_on_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    first, second = forged.honest("ann"), forged.honest("bob")
    nodes = [forged.node_of(forged.commit(said)) for said in (first, second)]
    forged.step(nodes, first.output, merge=False)
    assert {"approval-missing", "approval-forged", "wrong-parent"} <= codes(uwf)


def test_a_step_with_another_output_than_was_approved_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    first, second, other = forged.honest("ann"), forged.honest("bob"), forged.honest("ann", "stop")
    nodes = [forged.node_of(forged.commit(said)) for said in (first, second)]
    forged.step(nodes, other.output)
    assert codes(uwf) == {"approval-missing", "approval-forged"}


def test_one_person_under_two_decisions_is_not_two(uwf: Uwf, forged: ForgedApprovals) -> None:
    first = forged.honest("ann")
    again = first._replace(at=first.at + 10)
    nodes = [forged.node_of(forged.commit(said)) for said in (first, again)]
    forged.step(nodes, first.output)
    assert codes(uwf) == {"approval-stale", "approval-missing"}


def test_a_step_on_an_approval_that_was_taken_back_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    first, second = forged.honest("ann"), forged.honest("bob")
    nodes = [forged.node_of(forged.commit(said)) for said in (first, second)]
    forged.revoke(nodes[0], "ann")
    forged.step(nodes, first.output)
    assert codes(uwf) == {"approval-stale", "approval-missing"}
    assert "took it back" in messages(uwf)


def test_taking_anothers_approval_back_is_found_and_does_nothing(uwf: Uwf, forged: ForgedApprovals) -> None:
    node = forged.node_of(forged.commit(forged.honest("ann")))
    forged.revoke(node, "bob")
    assert codes(uwf) == {"approval-forged"}
    (given,) = uwf("thread", "show", forged.thread).json["approvals"]["given"]
    assert given["counts"]


def test_an_authors_own_approval_is_found(uwf: Uwf) -> None:
    thread = at_gate(uwf, release("[dora@example.invalid, ann@example.invalid]", quorum=1, notAuthor=True))
    forged = ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)
    said = forged.honest("dora")
    forged.step([forged.node_of(forged.commit(said))], said.output)
    assert codes(uwf) == {"approval-self", "approval-missing"}


def test_an_approval_by_who_worked_in_a_branch_is_found(uwf: Uwf) -> None:
    thread = at_gate_after_branches(uwf, "bob", "eve")
    forged = ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)
    said = forged.honest("bob")
    forged.step([forged.node_of(forged.commit(said))], said.output)
    assert codes(uwf) == {"approval-self", "approval-missing"}


def test_an_approval_of_an_earlier_head_does_not_count_for_a_later_one(
    uwf: Uwf, forged: ForgedApprovals
) -> None:
    said = [forged.honest(name) for name in ("ann", "bob")]
    nodes = [forged.node_of(forged.commit(each)) for each in said]
    uwf("thread", "say", forged.thread, "-m", "Something changed.")
    assert codes(uwf) == set()  # they were honest once
    forged.step(nodes, said[0].output)
    assert codes(uwf) == {"approval-stale", "approval-missing"}


def test_an_approval_of_another_thread_with_the_same_start_counts_for_nothing(uwf: Uwf) -> None:
    text = release(quorum=1).replace("$START: [{ role: builder }]", "$START: [{ role: gate }]")
    text = text.replace("    - { role: $END }", "    - { role: builder }")
    text = text.replace('builder: [{ role: gate, prompt: "Ship {{ text }}?" }]', "builder: [{ role: $END }]")
    uwf("workflow", "put", write("release.yaml", text))
    first = str(uwf("thread", "start", "release", "-p", "v1").json["thread"])
    began = int(time.time())
    while int(time.time()) <= began:  # starts of the same second may be one commit
        time.sleep(0.05)
    second = str(uwf("thread", "start", "release", "-p", "v1").json["thread"])
    Colleague(uwf, "ann").approves(first)
    instance = Instance(locate(None, os.environ, Path.cwd()))
    tip = instance.store.repository.ref(APPROVALS.prefix + first)
    assert tip is not None
    instance.store.repository.put_ref(APPROVALS.prefix + second, None, tip)
    uwf("thread", "step", second, "--agent", BUILDS, check=None)
    assert uwf("thread", "steps", second).json == []
    forged = ForgedApprovals(instance, second)
    forged.step([forged.node_of(tip)], forged.honest("ann").output)
    assert "approved at another commit" in messages(uwf)
    assert {"approval-stale", "approval-missing"} <= codes(uwf)


def test_made_up_approvals_are_found_in_a_thread_that_is_no_rehearsal(
    uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = at_gate(uwf)
    from uwf_git.engine import default_agent, step
    from uwf_git.format.ids import ThreadId

    monkeypatch.setattr("uwf_git.engine.turn.gate.is_rehearsed", lambda _: True)
    for name in ("refuse_to_make_up", "refuse_generated_step"):
        monkeypatch.setattr(default_agent, name, lambda *_: None)
    instance = Instance(locate(None, os.environ, Path.cwd()))
    step.step(instance, ThreadId(thread), "uwf-rehearse")
    assert codes(uwf) == {"approval-missing"}


def test_the_answer_of_a_persons_role_names_its_committer_and_no_one_else(
    uwf: Uwf, gated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(approving, "me", lambda _: Identity("Boss", "boss@example.invalid"))
        from uwf_git.engine.inbox import answer_role
        from uwf_git.format.ids import ThreadId

        answer_role(Instance(locate(None, os.environ, Path.cwd())), ThreadId(gated), {"decision": ["change"]})
    assert codes(uwf) == {"approval-forged"}
    assert "says Boss <boss@example.invalid>, and the step is committed by" in messages(uwf)


def test_an_answer_to_something_else_than_was_shown_is_stale(
    uwf: Uwf, gated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        real = approving.shown_at
        patched.setattr(approving, "shown_at", lambda *given, **more: Shown(real(*given, **more).parts[1:]))
        from uwf_git.engine.inbox import answer_role
        from uwf_git.format.ids import ThreadId

        answer_role(Instance(locate(None, os.environ, Path.cwd())), ThreadId(gated), {"decision": ["change"]})
    assert codes(uwf) == {"approval-stale"}


def test_answers_of_before_there_were_approvals_stay_valid(
    uwf: Uwf, gated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uwf_git.engine.inbox import answer_role
    from uwf_git.engine.turn.parts import PersonsAnswer
    from uwf_git.format.ids import ThreadId

    with monkeypatch.context() as patched:
        patched.setattr(PersonsAnswer, "complete", lambda _self, _work, new: new)
        answer_role(Instance(locate(None, os.environ, Path.cwd())), ThreadId(gated), {"decision": ["change"]})
    assert codes(uwf) == set()
    detail = uwf("cas", "get", uwf("thread", "steps", gated).json[-1]["detail"]).json
    assert "approvals" not in detail["payload"]


def test_a_merge_of_approvals_with_something_else_in_it_is_found(uwf: Uwf, forged: ForgedApprovals) -> None:
    store = forged.instance.location.git_dir
    first = forged.commit(forged.honest("ann"))
    ref = f"refs/uwf/approvals/{forged.thread}"
    git("--git-dir", store, "update-ref", "-d", ref)
    second = forged.commit(forged.honest("bob"))
    tree = git("--git-dir", store, "rev-parse", f"{first}^{{tree}}")
    text = f"approvals: two sides\n\nUwf-Approval: {forged.node_of(first)}\n"
    nobody = {f"GIT_{who}_{what}": said for who in ("AUTHOR", "COMMITTER")
              for what, said in (("NAME", "uwf"), ("EMAIL", "uwf@localhost"))}  # fmt: skip
    merge = git("--git-dir", store, "commit-tree", tree, "-p", first, "-p", second, data=text, env=nobody)
    git("--git-dir", store, "update-ref", ref, merge)
    assert codes(uwf) == {"changed-file"}


def test_a_group_without_a_policy_is_told_as_not_judged(uwf: Uwf) -> None:
    thread = at_gate(uwf, release("[reviewers]", quorum=1))
    refused = Colleague(uwf, "ann").approves(thread, check=14).error
    assert "reviewers may be a group, which needs a trust policy" in refused["hint"]
    forged = ForgedApprovals(Instance(locate(None, os.environ, Path.cwd())), thread)
    said = forged.honest("ann")
    forged.step([forged.node_of(forged.commit(said))], said.output)
    report = uwf("verify").json
    assert [each["code"] for each in report["notes"]] == ["approval-unjudged"]


def test_workflow_validate_finds_gates_that_nobody_can_pass(uwf: Uwf) -> None:
    def found(text: str) -> list[tuple[str, int, str]]:
        report = uwf("workflow", "validate", write("gate.yaml", text), check=None).json
        return [(each["severity"], each["line"], each["message"]) for each in report["findings"]]

    lines = release().splitlines()
    quorum = lines.index("    quorum: 2") + 1
    assert found(release(quorum=4)) == [
        ("error", quorum, 'role "gate": quorum is 4, and there are 3 approvers')
    ]
    assert found(release("[]"))[0][2] == 'role "gate" has no approvers, so nobody may answer'
    assert found(release("[a@x.org, A@x.org]"))[0][2] == 'role "gate": A@x.org is named twice'
    (warned,) = found(release("[a@x.org, b@x.org]", notAuthor=True))
    assert warned[0] == "warning" and "all of its approvers are needed" in warned[2]
    of_agent = release().replace("human: true", "systemPrompt: Judge.").replace("    quorum: 2\n", "")
    (agent,) = found(of_agent)
    assert agent[2] == "role \"gate\" has approvers, but isn't a human's"
    (alone,) = found(release().replace(f"    approvers: {APPROVERS}\n", ""))
    assert alone[2] == 'role "gate" has a quorum, and no approvers'
    (group, other) = found(release("[ann, reviewers]"))
    assert "as there is no trust policy" in group[2] and "reviewers" in other[2]
