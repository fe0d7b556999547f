"""A gate on a thread's page: who has approved, who is missing, and as whom an answer there is given."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from approvers import Colleague, at_gate, release
from conftest import Uwf
from site_serving import Serve, entered
from workflows import opened

from uwf_git.format.ids import ThreadId


def test_the_page_names_approvals_with_markup_in_them_as_text(client: httpx.Client, uwf: Uwf) -> None:
    thread = at_gate(uwf)
    reason = "<script>alert(1)</script> & fine"
    Colleague(uwf, "ann")("thread", "answer", thread, "-f", "decision=ship", "-f", "note=x", "-m", reason)
    digest = uwf("thread", "show", thread).json["approvals"]["shown"]["digest"]
    for address in (f"/thread/{thread}", f"/?at={thread}"):
        page = client.get(address).text
        assert "gate needs 1 more of bob@example.invalid, carol@example.invalid" in page
        assert "ann &lt;ann@example.invalid&gt; (unsigned): decision: ship" in page
        assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
        assert digest in page


def test_the_server_answers_as_its_own_identity_and_says_so(
    serve: Serve, uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = at_gate(uwf)
    for name, value in Colleague(uwf, "bob").environment.items():
        monkeypatch.setenv(name, value)
    for changing in entered(serve("--write")):
        changing.headers["Origin"] = str(changing.base_url).rstrip("/")
        page = changing.get(f"/thread/{thread}").text
        assert "as bob &lt;bob@example.invalid&gt;, the git identity of this server" in page
        head = uwf("thread", "show", thread).json["head"]
        assert changing.post(f"/thread/{thread}/answer", data={"head": head, "pick1": "1"}).status_code == 303
    (given,) = uwf("thread", "show", thread).json["approvals"]["given"]
    assert given["by"]["name"] == "bob"


def test_a_server_whose_identity_is_no_approver_is_refused(changing: httpx.Client, uwf: Uwf) -> None:
    thread = at_gate(uwf, release("[ann@example.invalid]", quorum=1))
    head = uwf("thread", "show", thread).json["head"]
    refused = changing.post(f"/thread/{thread}/answer", data={"head": head, "pick1": "1"})
    assert refused.status_code >= 400 and "may not answer as gate" in refused.text
    assert uwf("thread", "show", thread).json["approvals"]["given"] == []


def test_approvals_on_a_page_and_by_a_command_at_once_both_count(
    serve: Serve, uwf: Uwf, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = at_gate(uwf)
    head = uwf("thread", "show", thread).json["head"]
    carol = Colleague(uwf, "carol")
    for name, value in Colleague(uwf, "bob").environment.items():
        monkeypatch.setenv(name, value)
    for changing in entered(serve("--write")):
        changing.headers["Origin"] = str(changing.base_url).rstrip("/")
        data = {"head": head, "pick1": "1"}
        with ThreadPoolExecutor(2) as both:
            with opened().locks.hold(ThreadId(thread)):  # somebody else's approval is being signed
                page = both.submit(changing.post, f"/thread/{thread}/answer", data=data)
                command = both.submit(carol.approves, thread, check=None)
                time.sleep(1)
            assert (page.result().status_code, command.result().code) == (303, 0)
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert uwf("verify").json["findings"] == []
