"""The form of a person's role on a thread's page: a box a field, a button for each choice."""

from __future__ import annotations

import httpx
from cli_samples import GATE, write
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, Serving, keep_picture


def _open(page: Page, serving: Serving, thread: str) -> None:
    page.goto(serving.launch)
    page.goto(f"{serving.address}/thread/{thread}")


def test_the_prompt_stands_above_the_form_and_a_button_decides(
    serve: Serve, browser_page: Page, uwf: Uwf, gated: str
) -> None:
    _open(browser_page, serve("--write"), gated)
    expect(browser_page.get_by_role("heading", name="gate is for Ada")).to_be_visible()
    question = browser_page.get_by_text("Send first?", exact=True)
    button = browser_page.get_by_role("button", name="change", exact=True)
    above, below = question.bounding_box(), button.bounding_box()
    assert above is not None and below is not None and above["y"] < below["y"]
    browser_page.get_by_text("2 more fields").click()
    browser_page.get_by_label("note").fill("Shorter <b>please</b>")
    browser_page.get_by_label("readers").fill("Ada\n\nBob\n")
    keep_picture(browser_page, "persons-role")
    button.click()
    expect(browser_page.get_by_role("heading", name="gate is for Ada")).to_have_count(0)
    expect(browser_page.locator("#step-2")).to_be_attached()
    assert uwf("thread", "steps", gated).json[-1]["output"] == {
        "decision": "change",
        "note": "Shorter <b>please</b>",
        "readers": ["Ada", "Bob"],
    }


def test_the_enter_key_decides_nothing(serve: Serve, browser_page: Page, uwf: Uwf, gated: str) -> None:
    _open(browser_page, serve("--write"), gated)
    browser_page.get_by_text("2 more fields").click()
    browser_page.get_by_label("note").press("Enter")
    browser_page.get_by_label("note").press("Control+Enter")
    assert len(uwf("thread", "steps", gated).json) == 1


def test_what_the_schema_refuses_is_said_and_an_old_page_is_refused(
    changing: httpx.Client, uwf: Uwf, gated: str
) -> None:
    head = uwf("thread", "show", gated).json["head"]
    for wrong in ({"field1": "--other"}, {"pick1": "4"}, {"field2": "x"}):
        refused = changing.post(f"/thread/{gated}/answer", data={"head": head, **wrong})
        assert refused.status_code == 400 and "send" in refused.text
    given = {"head": head, "pick1": "1", "field2": "--agent=/bin/sh\r\n$(touch x)"}
    assert changing.post(f"/thread/{gated}/answer", data=given).status_code == 303
    assert uwf("thread", "steps", gated).json[-1]["output"]["note"] == "--agent=/bin/sh\n$(touch x)"
    assert changing.post(f"/thread/{gated}/answer", data=given).status_code == 409


def test_a_choice_of_any_characters_can_be_pressed(serve: Serve, browser_page: Page, uwf: Uwf) -> None:
    odd = GATE.replace("[send, change, drop]", r'["a\e[31mb", "\u202egpj", "c"]')
    uwf("workflow", "put", write("odd.yaml", odd))
    thread = uwf("thread", "start", "gated", "-p", "Announce it").json["thread"]
    uwf("thread", "step", thread)
    _open(browser_page, serve("--write"), thread)
    browser_page.locator("button.option").nth(1).click()
    expect(browser_page.get_by_role("heading", name="gate is for Ada")).to_have_count(0)
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"decision": "\u202egpj"}


def test_without_write_the_page_has_the_command_and_no_form(
    serve: Serve, browser_page: Page, uwf: Uwf, gated: str
) -> None:
    _open(browser_page, serve(), gated)
    expect(browser_page.get_by_text(f"uwf thread answer {gated} -m CHOICE")).to_be_visible()
    expect(browser_page.get_by_role("button", name="send")).to_have_count(0)
