"""The inbox shows what would land and where, and why it did not."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from commands import git
from conftest import Uwf
from landing_forge import LandingForge, one_forge
from landing_shop import WORKFLOW, Shop
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


@pytest.fixture
def ending(shop: Shop) -> Shop:
    """The project, with a workflow that ends for good: no thread goes on with one of its."""
    (shop.folder / "mend.yaml").write_text(WORKFLOW.replace(", resume: fixer", ""))
    return shop


def queued(uwf: Uwf) -> list[dict[str, Any]]:
    return list(uwf("inbox", "--group", "land").json)


def item_of(client: httpx.Client, thread: str) -> str:
    return html.unescape(client.get(f"/?at={thread}").text)


def fields_of(page: str, thread: str) -> dict[str, str]:
    """The hidden fields of the form that lands a thread."""
    form = page.partition(f'action="/thread/{thread}/land"')[2].partition("</form>")[0]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


def appears(client: httpx.Client, address: str, text: str) -> str:
    deadline = time.monotonic() + 60
    while text not in (page := html.unescape(client.get(address).text)):
        assert time.monotonic() < deadline, page
        time.sleep(0.05)
    return page


def conflicting(shop: Shop) -> str:
    """An accepted thread whose work conflicts with main."""
    thread = shop.accepted()
    shop.moves("sum.txt", "one\nthree\n")
    return thread


def test_an_item_shows_the_code_that_lands_and_where(uwf: Uwf, shop: Shop, running: httpx.Client) -> None:
    thread = shop.accepted()
    page = item_of(running, thread)
    assert "Branch main moves to it, as one commit" in page
    assert 'class="file"' in page and 'data-whole="' in page and "<code>sum.txt</code>" in page
    (plan,) = [item["plan"] for item in queued(uwf)]
    assert (plan["target"], plan["how"], plan["files"]) == ("main", "move", 1)
    assert fields_of(page, thread)["code"] == f"{plan['commit']} main"
    assert git("-C", shop.project, "show", f"{plan['commit']}:sum.txt") == "one\ntwo"
    assert fields_of(running.get(f"/thread/{thread}").text, thread)["code"] == f"{plan['commit']} main"


def test_the_remotes_branch_is_named(uwf: Uwf, shop: Shop) -> None:
    shop.with_remote()
    shop.accepted()
    shop.configured("land: { onto: next }\n")
    (plan,) = [item["plan"] for item in queued(uwf)]
    assert (plan["target"], plan["how"]) == ("origin/next", "push")


@one_forge
def test_the_request_is_named(uwf: Uwf, forge: LandingForge, running: httpx.Client) -> None:
    thread = forge.shop.accepted()
    (plan,) = [item["plan"] for item in queued(uwf)]
    assert plan["how"] == "request" and "A request to merge it into" in plan["text"]
    assert plan["text"] in item_of(running, thread)


def test_what_would_land_elsewhere_than_shown_is_refused(uwf: Uwf, shop: Shop, running: httpx.Client) -> None:
    thread = shop.accepted()
    form = fields_of(item_of(running, thread), thread)
    git("-C", shop.project, "branch", "other")
    uwf("config", "set", "land.onto", "other")
    answer = running.post(f"/thread/{thread}/land", data=form)
    assert answer.status_code == 409 and "other now, and was about" in answer.text
    assert git("-C", shop.project, "rev-list", "--count", "other") == "1"


def test_why_work_did_not_land_stands_wherever_the_thread_does(
    uwf: Uwf, ending: Shop, running: httpx.Client
) -> None:
    thread, why = conflicting(ending), "did not land: it conflicts with main in sum.txt"
    running.post(f"/thread/{thread}/land", data=fields_of(item_of(running, thread), thread))
    page = appears(running, f"/?at={thread}", why)
    row, _, item = page.partition('<article class="item"')
    assert f"{why}</span>" in row and f"{why}</p>" in item
    assert f">{why}</span>" in html.unescape(running.get("/threads").text)
    assert [item["line"] for item in queued(uwf)] == [why]
    assert why in uwf("inbox", "--format", "text").out
    assert uwf("thread", "show", thread).json["work"]["problem"] == "it conflicts with main in sum.txt"


def test_a_reason_goes_once_the_work_landed_or_was_merged(uwf: Uwf, ending: Shop) -> None:
    thread = conflicting(ending)
    assert uwf("land", thread, check=None).code
    assert uwf("thread", "show", thread).json["work"]["text"] == "did not land"
    git("-C", ending.project, "reset", "-q", "--hard", "HEAD~1")
    uwf("land", thread)
    assert uwf("thread", "show", thread).json["work"] == {
        "state": "landed",
        "text": "landed on main",
        "url": None,
    }
    assert queued(uwf) == []


def test_a_reason_goes_with_a_merge_by_hand(uwf: Uwf, ending: Shop) -> None:
    thread = conflicting(ending)
    uwf("land", thread, check=None)
    commit = queued(uwf)[0]["plan"]["commit"]
    git("-C", ending.project, "merge", "-q", "-X", "ours", commit)
    assert queued(uwf) == [] and "work" not in uwf("thread", "show", thread).json


def test_what_is_in_its_branch_already_is_not_ready(uwf: Uwf, ending: Shop) -> None:
    thread = ending.accepted()
    ending.moves("sum.txt", "one\ntwo\n")
    assert [item["thread"] for item in queued(uwf)] == [thread]
    assert "is in main already" in uwf("land", thread, check=None).err
    assert queued(uwf) == []
    assert uwf("thread", "show", thread).json["work"]["text"] == "in main already"


def test_a_list_lands_no_thread_again_and_says_why(uwf: Uwf, ending: Shop, running: httpx.Client) -> None:
    landed = ending.accepted()
    uwf("land", landed)
    ending.adds("three")
    waits = ending.at_gate("Wait")
    heads = {thread: uwf("thread", "show", thread).json["head"] for thread in (landed, waits)}
    answer = running.post("/threads/land", data={"thread": [f"{key} {head}" for key, head in heads.items()]})
    page = html.unescape(running.get(answer.headers["location"]).text)
    assert "Land: 0 of 2 started" in page
    assert "has nothing to land: landed on main" in page and "has not ended" in page


@pytest.mark.extended
def test_a_key_lands_what_was_shown_and_nothing_before(
    uwf: Uwf, shop: Shop, serve: Serve, browser_page: Page
) -> None:
    from playwright.sync_api import expect

    thread = shop.accepted("Add *two*\n" + "Long words. " * 40)
    serving = serve("--write", "--run")
    browser_page.set_viewport_size({"width": 1280, "height": 160})
    browser_page.goto(serving.launch)
    expect(browser_page.get_by_role("button", name="Land")).to_be_visible()
    browser_page.keyboard.press("1")
    expect(browser_page.get_by_text("See the changes first.")).to_be_visible()
    assert git("-C", shop.project, "rev-list", "--count", "main") == "1"
    browser_page.set_viewport_size({"width": 1280, "height": 900})
    expect(browser_page.locator("table.diff")).to_contain_text("two")
    expect(browser_page.locator("[data-whole]")).to_be_in_viewport()
    browser_page.keyboard.press("1")
    expect(browser_page.get_by_text("All done.")).to_be_visible(timeout=30_000)
    assert git("-C", shop.project, "rev-list", "--count", "main") == "2"
    assert uwf("thread", "show", thread).json["work"]["text"] == "landed on main"
