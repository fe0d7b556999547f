"""The list of threads in a browser."""

from __future__ import annotations

from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, keep_picture


def test_threads_stand_in_the_tab_of_what_they_want(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    done = uwf("thread", "start", "pair", "-p", "Say <b>it</b>").json["thread"]
    uwf("thread", "run", done)
    browser_page.goto(serve().launch)
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()
    browser_page.get_by_role("link", name="done").click()
    expect(browser_page.get_by_role("link", name="Say <b>it</b>")).to_be_visible()
    expect(browser_page.get_by_text("completed")).to_be_visible()
    expect(browser_page.get_by_role("link", name="Do it")).to_have_count(0)
    keep_picture(browser_page, "threads")


def test_the_filters_are_those_of_the_list_and_stay_in_the_address(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "start", "pair", "-p", "Something else")
    browser_page.goto(serve().launch)
    browser_page.get_by_label("Task has").fill("else")
    browser_page.get_by_role("button", name="Filter").click()
    expect(browser_page.get_by_role("link", name="Something else")).to_be_visible()
    expect(browser_page.get_by_role("link", name="Do it")).to_have_count(0)
    assert "search=else" in browser_page.url
    browser_page.get_by_role("link", name="all").click()
    assert "search=else" in browser_page.url


def test_a_filter_that_is_none_is_refused_beside_the_form(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    browser_page.goto(serve().launch)
    browser_page.get_by_label("Task has").fill("Do")
    browser_page.get_by_label("Workflow").fill("pear")
    expect(browser_page.locator("datalist option[value=pair]")).to_have_count(1)
    browser_page.get_by_role("button", name="Filter").click()
    expect(browser_page.get_by_role("alert")).to_contain_text("no workflow 'pear'")
    expect(browser_page.get_by_role("alert")).to_contain_text("pair")
    expect(browser_page.get_by_label("Task has")).to_have_value("Do")
    browser_page.get_by_label("Workflow").fill("pair")
    browser_page.get_by_label("Since").fill("never")
    browser_page.get_by_role("button", name="Filter").click()
    expect(browser_page.get_by_role("alert")).to_contain_text("neither a day nor a duration")
    browser_page.get_by_label("Since").fill("2d")
    browser_page.get_by_role("button", name="Filter").click()
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()


def test_a_role_that_a_human_plays_waits_on_the_pages_as_in_the_inbox(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("config", "set", "agentOverrides.pair.writer", "uwf-human")
    (waits,) = uwf("inbox").json
    assert (waits["kind"], waits["thread"]) == ("role", thread)
    serving = serve("--write", "--run")
    browser_page.goto(serving.launch)
    expect(browser_page.get_by_role("link", name="waiting 1")).to_have_attribute("aria-current", "page")
    expect(browser_page.get_by_text(waits["question"], exact=True)).to_be_visible()
    browser_page.get_by_role("link", name="Do it").click()
    expect(browser_page.get_by_role("heading", name="writer is for you")).to_be_visible()
    expect(browser_page.get_by_label("text")).to_be_visible()
    expect(browser_page.get_by_text(waits["command"], exact=True)).to_be_visible()
    expect(browser_page.get_by_text("No agent is working")).to_have_count(0)
    expect(browser_page.get_by_role("button", name="Do one step")).to_have_count(0)
    keep_picture(browser_page, "for-you")
