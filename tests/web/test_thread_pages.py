"""The pages of a thread, a step and a failed attempt: what each state says, and that text stays text."""

from __future__ import annotations

import html
import re

import httpx
import pytest
from cli_samples import ASKS, REJECTS_ONCE, scripted
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, keep_picture


def text_of(answer: httpx.Response) -> str:
    """What a page says, without its tags."""
    assert answer.status_code == 200, answer.text
    shown = re.sub(r"<(style|title|desc).*?</\1>|<[^>]+>", " ", answer.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(shown))


@pytest.fixture
def finished(uwf: Uwf, thread: str) -> str:
    """A thread whose critic wanted another text."""
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    return thread


def test_a_thread_shows_its_graph_its_steps_and_what_they_took(
    serve: Serve, browser_page: Page, finished: str
) -> None:
    serving = serve(finished)
    browser_page.goto(serving.launch)
    expect(browser_page.get_by_role("heading", level=1)).to_have_text("Do it")
    expect(browser_page.get_by_role("img", name="The graph of pair")).to_be_visible()
    rows = browser_page.locator("#timeline tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("not approved")
    browser_page.get_by_text("transitions as a list").click()
    expect(browser_page.get_by_role("row", name="critic rejected writer 1 time")).to_be_visible()
    keep_picture(browser_page, "thread")
    rows.nth(2).get_by_role("link").first.click()
    expect(browser_page.get_by_role("heading", level=1)).to_contain_text("Step 3: writer")
    keep_picture(browser_page, "step")
    browser_page.get_by_role("link", name="Step 4").click()
    expect(browser_page.get_by_role("heading", level=1)).to_contain_text("Step 4: critic")


def test_a_step_shows_what_its_agent_was_told(client: httpx.Client, finished: str) -> None:
    said = text_of(client.get(f"/thread/{finished}/step/2"))
    assert "# Your role: critic" in said and "Step 1: writer" in said
    assert f"uwf thread fork {finished} --at 2" in said and "git --git-dir" in said


def test_an_id_may_be_shortened_and_what_is_not_there_is_said(client: httpx.Client, finished: str) -> None:
    assert finished in client.get(f"/thread/{finished[-6:]}").text
    for path in (
        f"/thread/{finished}/step/9",
        f"/thread/{finished}/step/x",
        "/thread/01JK7M",
        f"/thread/{finished}/attempt/0000",
    ):
        assert client.get(path).status_code == 404


def test_a_question_stands_above_everything_with_its_options_and_the_command(
    uwf: Uwf, client: httpx.Client, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS), check=None)
    page = client.get(f"/thread/{thread}")
    said = text_of(page)
    assert "writer asks Which \\x1b[31mcolour\\u202e?" in said and "red blue" in said
    assert f"uwf thread answer {thread} 1" in said
