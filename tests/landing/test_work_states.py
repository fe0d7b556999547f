"""What became of a thread's work is shown where threads are: in lists, by `thread show`, and on the pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from commands import git
from conftest import Uwf
from landing_forge import LandingForge, one_forge
from landing_shop import Shop
from site_serving import Serve, entered


def listed(uwf: Uwf) -> dict[str, Any]:
    """The work of the threads that a list shows any of."""
    return {item["thread"]: item["work"] for item in uwf("thread", "list", "--all").json if "work" in item}


def test_a_list_has_no_column_for_work_before_any_has_landed(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    assert listed(uwf) == {} and "work" not in uwf("thread", "show", thread).json
    assert "  work  " not in uwf("thread", "list", "--all", "--format", "text").out


def test_what_has_landed_names_the_branch_and_the_rest_of_the_list_stays_empty(uwf: Uwf, shop: Shop) -> None:
    shop.with_remote()
    thread, other = shop.accepted(), shop.at_gate("Wait")
    uwf("land", thread)
    assert listed(uwf) == {thread: {"state": "landed", "text": "landed on main", "url": None}}
    text = uwf("thread", "list", "--all", "--format", "text").out
    assert re.search(rf"{thread} .*landed on main *Add \*two\*", text)
    assert "landed" not in next(line for line in text.splitlines() if other in line)
    shown = uwf("thread", "show", thread, "--format", "text").out
    assert re.search(r"^work +landed on main$", shown, re.MULTILINE)
    assert "uwf land" not in shown and "git merge" not in shown


def test_what_goes_on_with_landed_work_has_not_landed(uwf: Uwf, shop: Shop) -> None:
    thread = shop.accepted()
    uwf("land", thread)
    uwf("thread", "resume", thread, "-m", "And three.")
    assert [*listed(uwf)] == [thread]


def test_a_request_is_shown_with_its_page_until_it_is_merged(uwf: Uwf, forge: LandingForge) -> None:
    thread = forge.shop.accepted()
    pull = uwf("land", thread).json["pull"]
    number, url = pull["number"], pull["url"]
    assert listed(uwf) == {thread: {"state": "open", "text": f"pull #{number} open", "url": url}}
    assert uwf("thread", "show", thread).json["work"]["url"] == url
    forge.server.merge(forge.number)
    uwf("land", thread, "--sync")
    assert listed(uwf)[thread] == {"state": "merged", "text": f"merged #{number}", "url": url}


@one_forge
def test_the_request_of_a_thread_at_work_is_a_draft(uwf: Uwf, forge: LandingForge) -> None:
    thread = forge.shop.at_gate()
    number = uwf("land", thread).json["pull"]["number"]
    assert uwf("thread", "list").json[0]["work"]["text"] == f"pull #{number} draft"
    ended = uwf("thread", "answer", thread, "-m", "merge", "--format", "text").err
    assert f"uwf land {thread}" in ended, "it is a draft until then"
    uwf("land", thread)
    assert listed(uwf)[thread]["state"] == "open"


@one_forge
def test_a_request_that_was_closed_is_open_again_once_that_is_known(uwf: Uwf, forge: LandingForge) -> None:
    thread, states = forge.shop.accepted(), []
    number = uwf("land", thread).json["pull"]["number"]
    for state in ("closed", "open", "closed"):
        forge.request["state"] = state
        uwf("land", thread, "--sync")
        states.append(listed(uwf)[thread]["text"])
    assert states == [f"closed #{number}", f"pull #{number} open", f"closed #{number}"]
    assert uwf("land", "--train").json == [], "what was turned down is not ready"


@one_forge
def test_a_thread_that_goes_on_with_a_request_shows_it_and_a_fork_beside_it_does_not(
    uwf: Uwf, forge: LandingForge
) -> None:
    thread = forge.shop.accepted()
    number = uwf("land", thread).json["pull"]["number"]
    forge.server.has(number, ("ann", "And three?"))
    onward = uwf("land", thread, "--sync").json["told"]
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    work = listed(uwf)
    assert work[onward]["text"] == work[thread]["text"] == f"pull #{number} open" and fork not in work
    forge.shop.adds("three")
    uwf("thread", "run", onward, check=5)
    uwf("thread", "answer", onward, "-m", "merge")
    uwf("land", onward)
    forge.server.merge(forge.number)
    uwf("land", onward, "--sync")
    assert {state["text"] for state in listed(uwf).values()} == {f"merged #{number}"}
    later = uwf("thread", "resume", onward, "-m", "And four.").json["thread"]
    assert later not in listed(uwf)


@one_forge
def test_a_branch_without_a_request_is_no_landing(uwf: Uwf, forge: LandingForge) -> None:
    from forge_server import Failing

    thread = forge.shop.accepted()
    forge.server.failing["POST"] = [Failing(422, {"message": "no"})]
    uwf("land", thread, check=8)
    assert listed(uwf)[thread]["state"] == "failed"


@one_forge
def test_another_machine_shows_it_too_with_a_page_if_it_knows_the_forge(
    uwf: Uwf, forge: LandingForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = forge.shop.accepted()
    number = uwf("land", thread).json["pull"]["number"]
    git("init", "-q", "--bare", tmp_path / "hub.git")
    uwf("remote", "add", "hub", tmp_path / "hub.git")
    uwf("push", "hub")
    monkeypatch.setenv("UWF_STORAGE_ROOT", str(tmp_path / "there"))
    uwf("clone", tmp_path / "hub.git")
    (item,) = uwf("thread", "list", "--all", "--all-projects").json
    assert item["thread"] == thread
    assert item["work"] == {"state": "open", "text": f"pull #{number} open", "url": None}, "no known forge"


def test_the_pages_show_it_and_lead_to_the_request(uwf: Uwf, forge: LandingForge, serve: Serve) -> None:
    thread = forge.shop.accepted()
    pull = uwf("land", thread).json["pull"]
    link = f'<a href="{pull["url"]}" rel="noreferrer noopener">pull #{pull["number"]} open</a>'
    for client in entered(serve()):
        pages = client.get("/threads?tab=all").text, client.get(f"/thread/{thread}").text
        assert [page.count(link) for page in pages] == [1, 1]
