"""Pages for everyone: by keyboard, with a screen reader, on a telephone, in the dark, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from agent_programs import program
from lived_in import LivedIn
from playwright.sync_api import Browser, Page, expect
from site_serving import Serve, Serving
from uwf_cli.web.site import FORMS, PAGES

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

# What a key can reach and a hand can click, as it is seen.
_REACHABLE = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.getClientRects().length)
  .filter(e => e.type !== 'radio' || !e.name || e === [...document.getElementsByName(e.name)]
    .find((each, _, all) => all.some(one => one.checked) ? each.checked : true))
  .map((e, number) => (e.dataset.reached = number, number))"""
_DRAWN = "() => [...document.querySelectorAll('#graph[data-graph]')].every(e => e.querySelector('.frame'))"
_FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none';
  return [e.dataset.reached === undefined ? -1 : Number(e.dataset.reached), seen, e.outerHTML.slice(0, 120)];
}"""


@pytest.fixture
def site(lived_in: LivedIn, serve: Serve) -> Serving:
    """A server that shows all that pages can have."""
    return serve("--write", "--run")


def addresses(known: LivedIn) -> Iterator[str]:
    """An address of each page, and of each state that a page of a thread can be in."""
    parts = {
        "thread": known.completed,
        "id": known.completed,
        "number": "2",
        "n": "2",
        "hash": known.attempt,
        "node": known.attempt,
        "a": known.completed,
        "b": known.parted,
        "crew": "press",
        "name": "solve-issue",
    }
    for pattern, _ in PAGES:
        at = {**parts, "id": known.failed, "thread": known.failed} if "attempt" in pattern else parts
        at = {**at, "name": "press"} if "crew" in pattern else at
        yield re.sub(r"\{(\w+)(:\w+)?\}", lambda found: at[found[1]], pattern)  # noqa: B023
    if any(pattern.startswith("/thread/") for pattern, _ in PAGES):
        yield from (f"/thread/{each}" for each in known[1:-1])
    yield from (pattern for pattern, _ in FORMS)
    yield from ("/?tab=waiting", "/?tab=all&search=export", "/nothing/here")


def looks(page: Page, width: int, theme: Any) -> None:
    """How wide the window is, and whether its user prefers dark pages."""
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")


@pytest.mark.timeout(300)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    axe = program("axe-core").read_text(encoding="utf-8")
    found: list[str] = []
    browser_page.goto(site.launch)
    for width, theme in (
        (1280, "light"),
        (360, "dark"),
    ):  # colours and widths have nothing to do with each other
        looks(browser_page, width, theme)
        for address in addresses(lived_in):
            browser_page.goto(site.address + address)
            browser_page.evaluate(axe)
            said = browser_page.evaluate(
                "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", _RULES
            )
            where = f"{address} at {width} px, {theme}"
            found += [
                f"{where}: {each['id']} ({each['impact']}), {node['html'][:160]} {node['failureSummary']}"
                for each in said["violations"]
                for node in each["nodes"][:3]
            ]
            wide = browser_page.evaluate("() => document.scrollingElement.scrollWidth")
            if wide > width:
                found.append(f"{where}: the page is {wide} px wide")
    assert not found, "\n".join(found)


@pytest.mark.timeout(300)
def test_the_tab_key_reaches_everything_and_one_sees_where_it_is(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    browser_page.goto(site.launch)
    looks(browser_page, 1280, "light")
    found: list[str] = []
    for address in addresses(lived_in):
        browser_page.goto(site.address + address)
        browser_page.wait_for_function(_DRAWN)
        waiting = set(browser_page.evaluate(_REACHABLE))
        for _ in range(len(waiting) + 10):
            if not waiting:
                break
            browser_page.keyboard.press("Tab")
            number, is_seen, html = browser_page.evaluate(_FOCUSED)
            waiting.discard(number)
            if number >= 0 and not is_seen:
                found.append(f"{address}: the focus isn't seen on {html}")
        left = browser_page.evaluate(
            "numbers => numbers.map(n => document.querySelector(`[data-reached='${n}']`).outerHTML.slice(0, 120))",
            sorted(waiting),
        )
        found += [f"{address}: no key reaches {html}" for html in left]
    assert not found, "\n".join(found)


def test_all_is_there_without_javascript(browser: Browser, site: Serving, lived_in: LivedIn) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.launch)
    expect(page.get_by_role("link", name="Dates in the export")).to_be_visible()
    context.close()


def test_a_screen_reader_finds_its_way_through_the_threads(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    browser_page.goto(site.launch)
    expect(browser_page.locator("body")).to_match_aria_snapshot("""
        - link "To the content"
        - banner:
          - navigation "Pages":
            - link "Threads"
        - main:
          - heading "Threads" [level=1]
          - navigation "Threads by what they want":
            - link /waiting 2/
            - link /running/
            - link /failed 1/
          - search:
            - searchbox "Task has"
            - button "Filter"
          - list:
            - listitem:
              - text: waiting
              - link "Dates in the export have no time zone."
    """)
