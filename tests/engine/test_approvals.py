"""A role with approvers waits until enough of them agree, each by an approval of their own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from approvers import APPROVERS, BUILDS, Colleague, at_gate, at_gate_after_branches, release
from cli_samples import GATE, PAIR, on_terminal, write
from conftest import Uwf
from signers import Signer
from workflows import opened

import uwf_git
from uwf_git.api.states import Waiting
from uwf_git.approvals.records import authors_of
from uwf_git.approvals.shown import canonical, decision, shown
from uwf_git.base.errors import RequirementUnmet
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Revision
from uwf_git.git.repository import Oid
from uwf_git.store.index import CommitRow, commit_row
from uwf_git.store.private import EngineOrder


def approvals(uwf: Uwf, thread: str) -> dict[str, Any]:
    return dict(uwf("thread", "show", thread).json["approvals"])


@pytest.fixture
def people(uwf: Uwf) -> dict[str, Colleague]:
    return {name: Colleague(uwf, name) for name in ("ann", "bob", "carol", "dora", "eve")}


def test_the_step_is_made_once_a_quorum_agrees_and_refers_to_its_approvals(
    uwf: Uwf, people: dict[str, Colleague]
) -> None:
    thread = at_gate(uwf)
    head = uwf("thread", "show", thread).json["head"]
    first = people["ann"](
        "thread", "answer", thread, "-f", "decision=ship", "-f", "note=Fine", "-m", "I read it."
    )
    assert (first.json["status"], first.json["role"], first.json["head"]) == ("waiting", None, head)
    assert (first.json["approvals"]["missing"], len(first.json["approvals"]["given"])) == (1, 1)
    stand = approvals(uwf, thread)
    assert stand["of"] == ["bob@example.invalid", "carol@example.invalid"]
    (given,) = stand["given"]
    assert given["by"] == {"name": "ann", "email": "ann@example.invalid"}
    assert (given["decision"], given["reason"]) == ("decision: ship", "I read it.")
    assert given["signature"] == {"state": "none", "signer": "", "key": ""} and given["counts"]
    assert given["digest"] == stand["shown"]["digest"]
    assert uwf("verify").json["findings"] == []
    second = people["bob"].approves(thread)
    assert (second.json["status"], second.json["role"], second.json["agent"]) == (
        "completed",
        "gate",
        "uwf-human",
    )
    step = uwf("thread", "steps", thread).json[-1]
    assert step["output"] == {"decision": "ship", "note": "Fine"}  # the first of those who agree
    detail = uwf("cas", "get", step["detail"]).json["payload"]
    nodes = [uwf("cas", "get", each).json["payload"] for each in detail["approvals"]]
    assert [each["by"]["name"] for each in nodes] == ["ann", "bob"]
    assert uwf("verify").json["findings"] == []


def test_a_step_says_which_of_its_approvals_are_unsigned(
    uwf: Uwf, people: dict[str, Colleague], client: httpx.Client, tmp_path: Path
) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    uwf("thread", "answer", thread, "-f", "decision=ship", env=Signer(tmp_path, "bob").environment)
    text = uwf("thread", "read", thread, "--format", "text").out
    unsigned = [", unsigned" in line for line in text.splitlines() if line.startswith("Answered by")]
    step = uwf("thread", "read", thread, "--format", "json").json["steps"][-1]
    assert unsigned == [True, False] == [not given["signed"] for given in step["approvals"]]
    assert (
        uwf("thread", "step-details", step["step"], "--format", "json").json["approvals"] == step["approvals"]
    )
    page = client.get(f"/thread/{thread}/step/2").text
    assert page.count("(unsigned)") == 1 and "ann@example.invalid&gt; (unsigned)" in page


def test_who_is_no_approver_is_refused_and_told_who_may(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    refused = people["eve"].approves(thread, check=14).error
    assert refused["code"] == "requirement_unmet"
    assert refused["message"] == f"eve <eve@example.invalid> may not answer as gate of thread {thread}"
    assert refused["hint"] == "who may: ann@example.invalid, bob@example.invalid, carol@example.invalid"
    assert approvals(uwf, thread)["given"] == []


def test_a_name_may_be_that_in_git_or_a_name_with_an_address(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf, release("[ann, 'bob <bob@example.invalid>']"))
    people["ann"].approves(thread)
    forged = {"GIT_COMMITTER_EMAIL": "bob@elsewhere.invalid"}
    assert "may not answer" in people["bob"].approves(thread, env=forged, check=14).error["message"]
    assert people["bob"].approves(thread).json["status"] == "completed"


def test_one_person_counts_once_and_the_newest_answer_counts(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    people["ann"].approves(thread)
    assert approvals(uwf, thread)["missing"] == 1
    people["ann"].approves(thread, "stop")
    stand = approvals(uwf, thread)
    assert [each["counts"] for each in stand["given"]] == [False, False, True]
    people["bob"].approves(thread, "stop")
    assert uwf("thread", "steps", thread).json[-1]["output"]["decision"] == "stop"
    assert uwf("verify").json["findings"] == []


def test_people_who_disagree_wait_for_one_more(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    people["bob"].approves(thread, "stop")
    assert (approvals(uwf, thread)["missing"], approvals(uwf, thread)["of"]) == (1, ["carol@example.invalid"])
    people["carol"].approves(thread)
    step = uwf("thread", "steps", thread).json[-1]
    named = uwf("cas", "get", step["detail"]).json["payload"]["approvals"]
    assert len(named) == 2 and step["output"] == {"decision": "ship"}
    assert uwf("verify").json["findings"] == []


def test_text_fields_may_differ_between_those_who_agree() -> None:
    schema = {
        "type": "object",
        "properties": {
            "decision": {"enum": ["a", "b"]},
            "sure": {"type": "boolean"},
            "note": {"type": "string"},
        },
    }
    one = {"decision": "a", "sure": True, "note": "x"}
    assert decision(schema, one) == decision(schema, {**one, "note": "y"})
    assert decision(schema, one) != decision(schema, {**one, "sure": False})
    assert decision(schema, one) != decision(schema, {**one, "decision": "b"})
    assert decision({"type": "object"}, {"note": "x"}) != decision({"type": "object"}, {"note": "y"})


def test_an_approval_is_taken_back_until_the_step_is_made(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    assert (
        "has no approval" in people["bob"]("thread", "answer", thread, "--revoke", check=1).error["message"]
    )
    taken = people["ann"]("thread", "answer", thread, "--revoke", "-m", "Wait.").json
    assert (taken["thread"], taken["approvals"]["missing"]) == (thread, 2)
    people["bob"].approves(thread)
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    assert uwf("verify").json["findings"] == []
    people["ann"].approves(thread)
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert people["ann"]("thread", "answer", thread, "--revoke", check=1).error["code"] == "invalid"
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("first", ["ship", "stop"])
def test_no_revocation_brings_an_earlier_answer_back(
    uwf: Uwf, people: dict[str, Colleague], first: str
) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread, first)
    people["ann"].approves(thread, "stop")
    people["ann"]("thread", "answer", thread, "--revoke")
    stand = approvals(uwf, thread)
    assert stand["missing"] == 2 and not any(each["counts"] for each in stand["given"])
    assert people["bob"].approves(thread, first).json["status"] == "waiting"
    assert uwf("verify").json["findings"] == []


def test_one_name_under_two_addresses_is_one_approver(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf, release("[ann, bob]"))
    people["ann"].approves(thread)
    elsewhere = {f"GIT_{who}_EMAIL": "ann@home.invalid" for who in ("AUTHOR", "COMMITTER")}
    assert people["ann"].approves(thread, env=elsewhere).json["status"] == "waiting"
    assert (approvals(uwf, thread)["missing"], approvals(uwf, thread)["of"]) == (1, ["bob"])
    assert uwf("verify").json["findings"] == []


def test_whoever_made_what_is_judged_does_not_approve_it(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf, release(APPROVERS.replace("carol", "dora"), notAuthor=True))
    refused = people["dora"].approves(thread, check=14).error
    assert refused["message"].startswith("dora <dora@example.invalid> made what gate of thread")
    assert refused["hint"] == "who may: ann@example.invalid, bob@example.invalid"
    people["ann"].approves(thread)
    people["bob"].approves(thread)
    assert uwf("verify").json["findings"] == []


def test_a_gate_that_nobody_can_pass_any_more_says_so(uwf: Uwf, people: dict[str, Colleague]) -> None:
    approvers = "[ann@example.invalid, dora@example.invalid]"
    thread = at_gate(uwf, release(approvers, notAuthor=True))
    people["ann"].approves(thread)
    text = "1 more, which nobody may give: 1 may approve, of 2"
    for words in (["thread", "show", thread], ["inbox", "--group", "asks"]):
        out = " ".join(uwf("--format", "text", *words).out.split())
        assert text in out and f"start it anew; uwf thread kill {thread} ends it" in out, words
        assert "uwf thread answer" not in out, words
    error = uwf("thread", "step", thread, check=5).error
    assert error["message"] == f"thread {thread} cannot pass 'gate': approvals needed are {text}"
    assert f"uwf thread kill {thread}" in error["hint"]
    assert approvals(uwf, thread)["reachable"] is False


def test_a_start_that_leaves_too_few_approvers_is_warned_of(uwf: Uwf, people: dict[str, Colleague]) -> None:
    write("release.yaml", release("[ann@example.invalid, dora@example.invalid]", notAuthor=True))
    text = "nobody can pass 'gate': whoever starts a thread may not approve it, which leaves 1 of the 2"
    begun = people["dora"]("thread", "start", "release.yaml", "-p", "v1")
    assert text in begun.err and text in begun.json["warnings"][0]
    assert "nobody can pass" not in people["carol"]("thread", "start", "release.yaml", "-p", "v1").err


def test_whoever_ran_a_step_is_an_author_too(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf, release(notAuthor=True))
    people["ann"].approves(thread, "stop")
    people["bob"].approves(thread, "stop")
    people["carol"]("thread", "step", thread, "--agent", BUILDS)
    assert "made what gate" in people["carol"].approves(thread, check=14).error["message"]
    people["ann"].approves(thread)  # who approved or refused before has made nothing


RESUMES = """\
import os
from uwf_git.base.errors import AgentFailed
from uwf_git.kit import Reply, create_agent

def run(ctx):
    ctx.in_session("s-1")
    if "FAILS" in os.environ:
        raise AgentFailed("no luck")
    return Reply("---\\ntext: done\\n---\\n", session="s-2")

def continue_(ctx, session, message):
    return Reply("---\\ntext: done\\n---\\n", session=session)

create_agent("uwf-resumes", run, continue_).main()
"""


def test_whoever_ran_the_attempt_that_a_step_went_on_from_is_an_author(
    uwf: Uwf, people: dict[str, Colleague]
) -> None:
    Path("agent.py").write_text(RESUMES)
    Path("release.yaml").write_text(release(notAuthor=True))
    people["dora"]("workflow", "put", "release.yaml")
    thread = str(people["dora"]("thread", "start", "release", "-p", "v1").json["thread"])
    agent = f"{sys.executable} {Path('agent.py').absolute()}"
    people["ann"]("thread", "step", thread, "--agent", agent, env={"FAILS": "1"}, check=6)
    people["bob"]("thread", "step", thread, "--agent", "false", check=6)  # of which nothing is left
    people["dora"]("thread", "step", thread, "--agent", agent)
    refused = people["ann"].approves(thread, check=14).error
    assert "made what gate" in refused["message"]
    assert refused["hint"] == "who may: bob@example.invalid, carol@example.invalid"
    people["bob"].approves(thread)
    people["carol"].approves(thread)
    assert uwf("verify").json["findings"] == []


def test_whoever_worked_in_a_branch_is_an_author_of_what_joins_it(
    uwf: Uwf, people: dict[str, Colleague]
) -> None:
    thread = at_gate_after_branches(uwf, "carol", "bob", "eve")
    for name in ("carol", "bob"):
        assert "made what gate" in people[name].approves(thread, check=14).error["message"]
    assert approvals(uwf, thread)["of"] == ["ann@example.invalid"]
    people["ann"].approves(thread)
    assert uwf("verify").json["findings"] == []


def _row(oid: int, kind: str, **more: Any) -> CommitRow:
    row = commit_row(Oid(raw=bytes([oid] * 20)), kind, Hash("N"), (), 0)
    return row._replace(workflow=Hash("W"), agent="uwf-exec", role="builder", **more)


def test_authors_are_those_of_everything_that_a_head_stands_on() -> None:
    kinds = {
        1: ("workflow", ()), 2: ("start", (1,)), 3: ("step", (2,)),  # a thread
        4: ("start", (1, 3)), 5: ("step", (4,)), 6: ("start", (1, 5)), 7: ("step", (6,)),  # a call, and one of its own
        8: ("step", (5, 7)), 9: ("part", (8,)), 10: ("step", (3, 9)),
        11: ("approval", (10,)), 12: ("step", (10, 11)),
    }  # fmt: skip
    gates = {12}
    rows = {bytes([n] * 20): _row(n, kind) for n, (kind, _) in kinds.items()}
    for n in gates:
        rows[bytes([n] * 20)] = rows[bytes([n] * 20)]._replace(agent="uwf-human", role="gate")

    def commit(oid: Oid) -> SimpleNamespace:
        number = oid.raw[0]
        return SimpleNamespace(
            parents=[Oid(raw=bytes([n] * 20)) for n in kinds[number][1]], committer=f"p{number}"
        )

    authors = authors_of(rows[bytes([12] * 20)], rows.get, commit, lambda _, role: role == "gate")
    assert {by for _, by in authors} == {f"p{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10)}


def test_a_remark_after_an_approval_makes_it_stale(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    uwf("thread", "say", thread, "-m", "Read the notes first.")
    stand = approvals(uwf, thread)
    assert (stand["missing"], stand["given"][0]["problem"]) == (2, "approval-stale")
    people["bob"].approves(thread)
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    assert uwf("verify").json["findings"] == []


def test_an_approval_counts_for_its_own_turn_alone(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    for name in ("ann", "bob"):
        people[name].approves(thread, "stop")
    people["dora"]("thread", "step", thread, "--agent", BUILDS)
    assert approvals(uwf, thread)["given"] == []
    people["ann"].approves(thread)
    assert people["bob"].approves(thread).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []


def test_agents_and_mcp_do_not_approve(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    says = {"UWF_NO_APPROVALS": "an agent cannot approve", "UWF_NONCE": "this command runs within a step"}
    for name, beginning in says.items():
        refused = people["ann"].approves(thread, env={name: "1"}, check=14).error
        assert refused["message"].startswith(beginning)
    before = people["ann"]("thread", "start", "release", "-p", "2").json["thread"]
    inner = f"uwf thread answer {thread} -m ship"
    people["ann"]("thread", "step", before, "--agent", f"uwf-exec sh -c '{inner} >ran 2>&1'", check=None)
    assert "an agent cannot approve" in Path("ran").read_text()
    assert approvals(uwf, thread)["given"] == []


def test_an_agent_cannot_play_the_role_or_bring_approvals(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    assert uwf("thread", "step", thread, "--agent", 'uwf-exec echo \'{"decision": "ship"}\'', check=5)
    refused = uwf("thread", "step", thread, check=5).error
    assert refused["message"].startswith(f"thread {thread} waits for 2 approvals at 'gate', of ann@")


def test_a_rehearsal_plays_the_gate_in_a_rehearsal_only(uwf: Uwf) -> None:
    write("release.yaml", release())
    uwf("workflow", "put", "release.yaml")
    uwf("run", "release", "-p", "Try it", "--agent", "uwf-rehearse")
    assert uwf("verify").json["findings"] == []
    real = at_gate(uwf)
    uwf("thread", "step", real, "--agent", "uwf-rehearse", check=2)


def test_two_last_approvals_at_once_make_one_step(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    with ThreadPoolExecutor(2) as both:
        done = list(both.map(lambda name: people[name].approves(thread, check=None), ("bob", "carol")))
    assert sorted(each.code for each in done)[0] == 0
    assert {each.code for each in done} <= {0, 1, 4}
    assert len(uwf("thread", "steps", thread).json) == 2
    assert uwf("verify").json["findings"] == []


def test_a_revocation_and_the_last_approval_at_once_leave_a_thread_that_verifies(
    uwf: Uwf, people: dict[str, Colleague]
) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    with ThreadPoolExecutor(2) as both:
        taken = both.submit(lambda: people["ann"]("thread", "answer", thread, "--revoke", check=None))
        given = both.submit(lambda: people["bob"].approves(thread, check=None))
        codes = taken.result().code, given.result().code
    is_done = uwf("thread", "show", thread).json["status"] == "completed"
    if is_done:
        assert codes[0] != 0
    elif codes == (0, 0):
        assert [each["by"]["name"] for each in approvals(uwf, thread)["given"] if each["counts"]] == ["bob"]
    assert uwf("verify").json["findings"] == []


def test_a_kill_between_the_last_approval_and_the_step_leaves_it_to_the_next_command(
    uwf: Uwf, people: dict[str, Colleague], monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = at_gate(uwf)
    people["ann"].approves(thread)
    child = os.fork()
    if child == 0:
        from uwf_git.engine import step

        os.environ.update(people["bob"].environment)
        step.record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        uwf_git.open().thread(thread).answer(decision="ship")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    shown_now = uwf("thread", "show", thread).json
    assert (shown_now["status"], shown_now["next"]) == ("idle", "gate")
    assert uwf("inbox").json == []
    assert people["dora"]("thread", "step", thread).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []


def test_the_inbox_of_a_person_has_what_they_may_do(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf, release(APPROVERS.replace("carol", "dora"), notAuthor=True))

    def waits(name: str, whom: str = "me") -> bool:
        return [each["thread"] for each in people[name]("inbox", "--for", whom).json] == [thread]

    assert waits("ann") and waits("eve", "bob@example.invalid")
    assert not waits("eve") and not waits("dora")
    people["ann"].approves(thread)
    assert not waits("ann") and waits("bob")
    (listed,) = uwf("thread", "list").json
    assert listed["approvals"]["of"] == ["bob@example.invalid"]  # dora has made it


def test_from_python_it_is_answered_and_taken_back(
    uwf: Uwf, people: dict[str, Colleague], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = at_gate(uwf)
    thread = uwf_git.open().thread(made)
    with pytest.raises(RequirementUnmet):
        thread.answer(decision="ship")
    for name, value in people["ann"].environment.items():
        monkeypatch.setenv(name, value)
    thread = uwf_git.open().thread(thread.id)
    thread.answer(decision="ship")
    state = thread.state
    assert isinstance(state, Waiting)
    assert (state.missing, state.of) == (1, ("bob@example.invalid", "carol@example.invalid"))
    thread.revoke("Not yet.")
    assert isinstance(thread.state, Waiting) and thread.state.missing == 2


def test_on_a_terminal_the_person_is_asked_and_approves(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    code, seen = on_terminal(
        "thread",
        "answer",
        thread,
        typed=[("decision", "ship"), ("note", ""), ("report", "It reads well.\n.")],
        env=people["ann"].environment,
    )
    assert code == 0 and "1 of 2 approvals" in seen
    assert approvals(uwf, thread)["given"][0]["reason"] == "It reads well."
    code, seen = on_terminal("thread", "answer", thread, env=people["eve"].environment)
    assert code == 14 and "may not answer" in seen


def test_the_answer_to_a_question_says_who_and_what_was_shown(uwf: Uwf, people: dict[str, Colleague]) -> None:
    write("pair.yaml", PAIR)
    uwf("workflow", "put", "pair.yaml")
    thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    asks = json.dumps({"status": "needs_input", "question": "Which?"})
    uwf("thread", "step", thread, "--agent", f"uwf-exec echo '{asks}'")
    people["ann"]("thread", "answer", thread, "-m", "That one.")
    step = uwf("thread", "steps", thread).json[-1]
    detail = uwf("cas", "get", step["detail"]).json["payload"]
    (node,) = detail["approvals"]
    said = uwf("cas", "get", node).json["payload"]
    assert said["by"] == {"name": "ann", "email": "ann@example.invalid"}
    assert (said["role"], said["output"], said["prev"]) == (
        "$USER",
        step["output"] and said["output"],
        said["prev"],
    )
    expected = shown("Do it", ("question", "Which?"), {"status": "needs_input", "question": "Which?"}, None)
    assert said["shown"] == expected.payload()
    assert uwf("verify").json["findings"] == []


def test_the_digest_is_that_of_the_rule_in_the_format() -> None:
    code = Revision("c" * 40, "d" * 40, "b" * 40)
    made = shown("Do it", ("instruction", "Ship ä?"), {"b": [1.5, True], "a": "x"}, code, b"raw")
    parts = {
        "task": b"Do it",
        "output": b'{"a":"x","b":[1.5,true]}',
        "instruction": "Ship ä?".encode(),
        "code": b"c" * 40,
        "diff": b"raw",
    }
    lines = "".join(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in parts.items())
    assert made.digest == hashlib.sha256(lines.encode()).hexdigest()
    assert made.payload()["of"][3] == {"name": "code", "sha256": made.parts[3].sha256, "commit": "c" * 40}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-7, "1e-7"),
        (1.5e21, "1.5e+21"),
        (0.000123, "0.000123"),
        (12345678901234567890.5, "12345678901234567000"),
        (-2.5, "-2.5"),
        ({"é": 1, "\U0001f600": 2, "ﬀ": 3, "a": None}, '{"a":null,"é":1,"\U0001f600":2,"ﬀ":3}'),
    ],
)
def test_an_output_is_canonical_as_rfc_8785_has_it(value: Any, text: str) -> None:
    assert canonical(value).decode() == text


def _answering(uwf: Uwf, person: Colleague, thread: str, **more: Any) -> Any:
    """What somebody's approval comes to that begins while another process holds the thread."""
    instance = opened()
    with ThreadPoolExecutor(1) as pool, instance.locks.hold(ThreadId(thread)):
        answer = pool.submit(person.approves, thread, **more)
        wait([answer], timeout=3.0)
        if more:
            return answer.result()
    return answer.result()


def test_an_approval_waits_while_another_is_recorded(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    assert _answering(uwf, people["ann"], thread).json["approvals"]["missing"] == 1
    assert people["bob"].approves(thread).json["status"] == "completed"


def test_an_approval_waits_for_no_agent_at_work(uwf: Uwf, people: dict[str, Colleague]) -> None:
    thread = at_gate(uwf)
    head = uwf("thread", "show", thread).json["head"]
    opened().runs.order(ThreadId(thread), EngineOrder(head, "gate", "a", None, None, command=("uwf-exec",)))
    error = _answering(uwf, people["ann"], thread, check=4).error
    assert error["code"] == "busy" and "is running" in error["message"]


def test_an_answer_from_standard_input_that_is_not_recorded_is_kept(uwf: Uwf) -> None:
    uwf("workflow", "put", write("gated.yaml", GATE))
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", BUILDS)
    opened().runs.order(ThreadId(thread), EngineOrder(thread, "gate", "a", None, None, command=("uwf-exec",)))
    words = "A reason that took long to type.\n" * 20
    with opened().locks.hold(ThreadId(thread)):
        answer = ("thread", "answer", thread, "-f", "decision=send", "-m", "-")
        error = uwf(*answer, input=words, check=4).error
    assert "not recorded" in error["hint"]
    uwf("thread", "show", thread)
    opened().runs.clear(ThreadId(thread))
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("UWF_")}
    repeats = error["hint"].partition("to repeat it: ")[2]
    subprocess.run(repeats, shell=True, check=True, env=elsewhere)
    step = uwf("thread", "steps", thread).json[-1]
    assert step["output"]["decision"] == "send" and step["output"]["note"] == words
