"""A thread's page lands its work, and gives the thread what reviewers said."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import git
from conftest import Uwf
from landing_forge import LandingForge, one_forge
from landing_shop import Shop
from site_serving import Serve, entered

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Page


@pytest.fixture
def running(serve: Serve) -> Iterator[httpx.Client]:
    serving = serve("--write", "--run")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        yield client


def click(uwf: Uwf, client: httpx.Client, thread: str, name: str) -> httpx.Response:
    form = {"head": str(uwf("thread", "show", thread).json["head"])}
    return client.post(f"/thread/{thread}/{name}", data=form)


def page(client: httpx.Client, thread: str) -> str:
    return html.unescape(client.get(f"/thread/{thread}").text)


def appears(client: httpx.Client, thread: str, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in page(client, thread):
        assert time.monotonic() < deadline, page(client, thread)
        time.sleep(0.05)


def offers(client: httpx.Client, thread: str) -> list[str]:
    text = page(client, thread)
    return [name for name in ("land", "sync") if f'action="/thread/{thread}/{name}"' in text]


def test_work_lands_by_a_button_that_goes_once_it_has(uwf: Uwf, shop: Shop, running: httpx.Client) -> None:
    thread = shop.at_gate()
    assert offers(running, thread) == []
    uwf("thread", "answer", thread, "-m", "merge")
    assert offers(running, thread) == ["land"] and f"uwf land {thread}" in page(running, thread)
    answer = click(uwf, running, thread, "land")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/thread/{thread}")
    appears(running, thread, "Done:")
    assert "1 commit landed on main, which is" in page(running, thread)
    assert offers(running, thread) == []
    assert (shop.project / "sum.txt").read_text() == "one\ntwo\n"


def test_why_work_does_not_land_is_shown_with_the_thread_that_was_told(
    uwf: Uwf, shop: Shop, running: httpx.Client
) -> None:
    thread = shop.accepted()
    shop.moves("sum.txt", "one\n<b>three</b>\n")
    git("-C", shop.project, "mv", "sum.txt", "<i>&.txt")
    shop.commit("move it")
    click(uwf, running, thread, "land")
    appears(running, thread, "Not done:")
    onward = uwf("thread", "list").json[0]["thread"]
    assert f"it was told: uwf thread run {onward}" in page(running, thread)
    assert "<i>" not in running.get(f"/thread/{thread}").text
    assert offers(running, thread) == [], "it goes on in the other"
    above = html.unescape(running.get("/").text).partition("could not go on")[2].partition("</details>")[0]
    assert f"it was told: uwf thread run {onward}" in above


@one_forge
def test_a_request_is_opened_synced_and_merged_from_the_page(
    uwf: Uwf, forge: LandingForge, running: httpx.Client
) -> None:
    thread = forge.shop.accepted()
    click(uwf, running, thread, "land")
    appears(running, thread, f"/pulls/{forge.number} was opened")
    assert offers(running, thread) == ["land", "sync"]
    click(uwf, running, thread, "land")
    appears(running, thread, f"/pulls/{forge.number} was up to date")
    click(uwf, running, thread, "sync")
    appears(running, thread, "is open, nothing new")
    forge.server.has(forge.number, ("ann", "And three?"))
    click(uwf, running, thread, "sync")
    appears(running, thread, "1 item of ")
    onward = uwf("thread", "list").json[0]["thread"]
    assert f"given to thread {onward}" in page(running, thread)
    forge.server.merge(forge.number)
    click(uwf, running, thread, "sync")
    appears(running, thread, f"merged #{forge.number}")
    assert offers(running, thread) == []


def test_a_landing_at_work_is_shown_and_not_begun_twice(
    uwf: Uwf, shop: Shop, running: httpx.Client, tmp_path: Path
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    thread, gate = shop.accepted(), tmp_path / "gate"
    shop.configured(f"land: {{ checks: [sh -c 'while ! test -e {gate}; do sleep 0.05; done'] }}\n")
    with ThreadPoolExecutor(1) as other:
        first = other.submit(click, uwf, running, thread, "land")
        appears(running, thread, "At work:")
        assert offers(running, thread) == []
        again = running.post(
            f"/thread/{thread}/land", data={"head": uwf("thread", "show", thread).json["head"], "x": "1"}
        )
        assert again.status_code == 409 and "is at work" in again.text
        gate.touch()
        assert first.result().status_code == 303
    appears(running, thread, "Done:")
    assert git("-C", shop.project, "rev-list", "--count", "main") == "2"


def test_a_server_without_run_lands_nothing(uwf: Uwf, shop: Shop, serve: Serve) -> None:
    thread = shop.accepted()
    serving = serve("--write")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        assert offers(client, thread) == [] and click(uwf, client, thread, "land").status_code == 404
    assert "work" not in uwf("thread", "show", thread).json


@one_forge
def test_a_page_that_is_behind_its_thread_lands_nothing(
    uwf: Uwf, forge: LandingForge, running: httpx.Client
) -> None:
    thread = forge.shop.at_gate()
    shown = uwf("thread", "show", thread).json["head"]
    uwf("thread", "answer", thread, "-m", "merge")
    answer = running.post(f"/thread/{thread}/land", data={"head": shown})
    assert answer.status_code == 409
    assert re.search("answered merge.*; nothing was done", answer.text)
    assert forge.server.changes == {}


@one_forge
@pytest.mark.extended
def test_a_person_clicks_and_sees_where_the_work_went(
    uwf: Uwf, forge: LandingForge, serve: Serve, browser_page: Page
) -> None:
    from playwright.sync_api import expect

    thread = forge.shop.accepted()
    serving = serve("--write", "--run")
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/thread/{thread}")
    browser_page.get_by_role("button", name="Land").click()
    expect(browser_page.get_by_text("was opened")).to_be_visible(timeout=30_000)
    link = browser_page.get_by_role("link", name=f"pull #{forge.number} open")
    expect(link).to_have_attribute("href", f"{forge.server.web}/pulls/{forge.number}")
    forge.server.merge(forge.number)
    browser_page.locator("#menu > summary").click()
    browser_page.get_by_role("button", name="Sync with reviews").click()
    expect(browser_page.get_by_role("link", name=f"merged #{forge.number}")).to_be_visible(timeout=30_000)
    expect(browser_page.get_by_role("button", name="Land")).to_have_count(0)
