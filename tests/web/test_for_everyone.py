"""Pages for everyone: by keyboard, with a screen reader, on a telephone, in the dark, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from agent_programs import program
from lived_in import LivedIn
from playwright.sync_api import Browser, Page, expect
from site_serving import Serve, Serving, keep_picture

from uwf_git.ext.web.site import FORMS, PAGES

pytestmark = pytest.mark.extended

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
        yield f"/thread/{known.completed}/step/2?tab=all"
    yield from (f"/workflow/solve-issue?tab={tab}" for tab in ("runs", "versions", "roles", "code"))
    yield from ("/stats?by=day&since=90d", "/search?q=Export")
    yield from (pattern for pattern, _ in FORMS)
    yield f"/thread/{known.completed}/step/2/output/raw"
    yield f"/thread/{known.failed}/attempt/{known.attempt}/output/error"
    yield from (f"/?at={each}" for each in (known.waiting, known.failed, known.over))
    yield from ("/threads?tab=waiting", "/threads?q=export", "/nothing/here")


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


@pytest.mark.parametrize(
    ("path", "what"),
    [("/search?q=export", ".hits"), ("/stats", ".chart.narrow")],
)
def test_on_a_telephone_the_content_is_on_the_first_screen_and_filters_are_folded(
    browser_page: Page, site: Serving, lived_in: LivedIn, path: str, what: str
) -> None:
    browser_page.goto(site.launch)
    looks(browser_page, 360, "light")
    browser_page.goto(site.address + path)
    summary = browser_page.locator(".fold > summary")
    field = browser_page.locator(".fold label:not(.checks label)").first
    expect(field).to_be_hidden()
    place = browser_page.locator(what).first.bounding_box()
    assert place and place["y"] < 400, place
    keep_picture(browser_page, f"telephone-{what.strip('.')[:5]}")
    summary.click()
    expect(field).to_be_visible()
    looks(browser_page, 1280, "light")
    browser_page.goto(site.address + path)
    expect(field).to_be_visible()
    expect(summary).to_be_hidden()


@pytest.mark.parametrize("path", ["/stats", "/stats?by=day", "/eval/solve-issue"])
def test_on_a_telephone_charts_are_whole(
    browser_page: Page, site: Serving, lived_in: LivedIn, path: str
) -> None:
    browser_page.goto(site.launch)
    looks(browser_page, 360, "light")
    browser_page.goto(site.address + path)
    chart = browser_page.locator(".chart.narrow")
    expect(chart).to_be_visible()
    expect(browser_page.locator(".chart.wide")).to_be_hidden()
    cut = """chart => [...chart.querySelectorAll('text, rect, circle')].filter(each => {
        const inside = each.getBoundingClientRect(), around = chart.getBoundingClientRect();
        return inside.left < around.left - 1 || inside.right > Math.min(around.right + 1, innerWidth);
      }).map(each => each.outerHTML)"""
    assert chart.evaluate(cut) == []


def test_keys_lead_to_the_search_and_through_the_rows_unless_somebody_types(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    browser_page.goto(site.launch)
    browser_page.goto(f"{site.address}/threads")
    focused = browser_page.locator("main a:focus")
    titles = browser_page.locator(".board .task > a:first-child").all_inner_texts()
    keys = browser_page.keyboard
    for key, number in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        keys.press(key)
        expect(focused).to_have_text(titles[number])
    keys.press("/")
    field = browser_page.get_by_label("Filter", exact=True)
    expect(field).to_be_focused()
    keys.type("j/k?")
    expect(field).to_have_value("j/k?")
    browser_page.goto(f"{site.address}/thread/{lived_in.completed}")
    keys.press("j")
    expect(browser_page.locator("#step-1 a:focus")).to_be_visible()
    keys.press("Control+j")
    keys.press("j")
    keys.press("Enter")
    expect(browser_page).to_have_url(re.compile("/step/2$"))
    expect(browser_page.get_by_role("button", name="Keys")).to_be_visible()
    keys.press("/")
    expect(browser_page).to_have_url(f"{site.address}/search")
    expect(browser_page.get_by_label("What was said")).to_be_focused()
    browser_page.goto(f"{site.address}/threads")
    keys.press("?")
    dialog = browser_page.get_by_role("dialog", name="Keys")
    expect(dialog.get_by_text("to the next row")).to_be_visible()
    browser_page.evaluate(program("axe-core").read_text(encoding="utf-8"))
    found = browser_page.evaluate("rules => axe.run(document, {runOnly: rules})", _RULES)
    assert [each["id"] for each in found["violations"]] == []
    dialog.get_by_label("Use these keys").uncheck()
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    keys.press("j")
    expect(focused).to_have_count(0)
    browser_page.reload()
    keys.press("/")
    expect(field).not_to_be_focused()
    browser_page.get_by_role("button", name="Keys").press("Enter")
    dialog.get_by_label("Use these keys").check()
    dialog.get_by_role("button", name="Close").click()
    keys.press("/")
    expect(field).to_be_focused()


def test_all_is_there_without_javascript(browser: Browser, site: Serving, lived_in: LivedIn) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.launch)
    page.get_by_role("link", name="Dates in the export", exact=False).last.click()
    asks = page.get_by_role("region", name="planner asks")
    expect(asks).to_contain_text("Which of them should the export have?")
    answer = page.get_by_role("region", name="Answer")
    expect(answer.get_by_role("button", name="UTC, with a Z at the end")).to_be_visible()
    page.goto(f"{site.address}/thread/{lived_in.completed}")
    expect(page.get_by_role("region", name="Task")).to_contain_text("An address such as")
    expect(page.get_by_role("img", name="The graph of solve-issue")).to_be_visible()
    page.get_by_text("The 5 transitions as a list").click()
    expect(page.get_by_role("row", name="reviewer notApproved developer 1 time")).to_be_visible()
    expect(page.locator("#timeline > li")).to_have_count(5)
    page.locator("#step-2").get_by_role("link").click()
    expect(page.get_by_role("region", name="Output").get_by_role("cell").first).to_contain_text("csv.py")
    page.get_by_role("link", name="Prompt").click()
    expect(page.get_by_text("# Your role: developer")).to_be_visible()
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_role("region", name="How it came about").get_by_role("listitem")).to_have_count(9)
    page.goto(f"{site.address}/workflow/solve-issue")
    expect(page.get_by_role("img", name="The graph of solve-issue")).to_be_visible()
    expect(page.get_by_role("row", name="reviewer developer notApproved")).to_be_visible()
    page.goto(site.address)
    page.get_by_role("button", name="UTC, with a Z at the end").click()
    expect(page.get_by_role("article")).to_contain_text("The failed attempt")
    page.goto(f"{site.address}/thread/{lived_in.waiting}")
    expect(page.locator("#step-2")).to_contain_text("UTC, with a Z at the end")
    context.close()


def test_a_screen_reader_finds_its_way_through_the_inbox_and_the_threads(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    browser_page.goto(site.launch)
    expect(browser_page.locator("body")).to_match_aria_snapshot("""
        - link "To the content"
        - banner:
          - navigation "Pages":
            - link "Inbox 3 waiting"
            - link "Threads"
        - main:
          - region "Inbox":
            - heading "Inbox" [level=1]
            - heading "asks you 1" [level=2]
            - list:
              - listitem:
                - link /waiting Dates in the export have no time zone/
            - heading "failed 1" [level=2]
          - article "Dates in the export have no time zone.":
            - region "planner asks"
            - region "Answer":
              - group "Choose one":
                - button "UTC, with a Z at the end"
              - textbox "Or say something else"
              - paragraph:
                - button "Answer"
                - checkbox "and go on" [checked]
    """)
    browser_page.goto(f"{site.address}/threads?tab=waiting")
    expect(browser_page.locator("main")).to_match_aria_snapshot("""
        - main:
          - heading "Threads" [level=1]
          - navigation "Threads by what they want":
            - link /waiting 2/
            - link /running/
            - link /failed 1/
          - search:
            - combobox "Filter"
            - button "Filter"
          - table:
            - rowgroup:
              - row /task workflow role and last line steps/
            - rowgroup:
              - row /waiting Dates in the export have no time zone/
    """)


def test_a_screen_reader_finds_its_way_through_a_thread_and_a_step(
    browser_page: Page, site: Serving, lived_in: LivedIn
) -> None:
    browser_page.goto(site.launch)
    browser_page.goto(f"{site.address}/thread/{lived_in.completed}")
    browser_page.wait_for_function(_DRAWN)
    expect(browser_page.locator("main")).to_match_aria_snapshot("""
        - main:
          - heading "The CSV export does not quote commas." [level=1]
          - term: cost
          - definition: /\\$/
          - group: More
          - 'article "Step 5: reviewer approved"':
            - 'heading "Step 5: reviewer approved" [level=2]'
            - navigation "Parts of the step":
              - link "Result"
              - link /Turns/
              - link "Prompt"
              - link "Record"
            - region "Output"
          - region "About the thread"
          - region "Task":
            - heading "Task" [level=2]
          - region "The same in a terminal"
          - region "Threads around it":
            - list:
              - listitem:
                - text: completed
                - strong: this thread
                - list:
                  - listitem:
                    - text: idle
                    - link "The CSV export does not quote commas."
                    - text: /forked after step 2/
                    - link "compare"
          - region "Steps":
            - heading "Steps" [level=2]
            - list:
              - listitem:
                - link /1 planner .* 41\\.0 s/
          - group:
            - heading "Graph" [level=2]
            - button "Enlarge"
            - button "Smaller"
            - button "Larger"
            - region /plus and minus/:
              - group "The graph of solve-issue"
    """)
    browser_page.goto(f"{site.address}/thread/{lived_in.completed}/step/2")
    expect(browser_page.locator("main")).to_match_aria_snapshot("""
        - main:
          - heading "The CSV export does not quote commas." [level=1]:
            - link "The CSV export does not quote commas."
          - 'article "Step 2: developer"':
            - navigation "Steps beside":
              - link /Step 1/
              - text: 2 of 5
              - link /Step 3/
            - 'heading "Step 2: developer" [level=2]'
            - region "Output":
              - table:
                - rowgroup:
                  - row /filesChanged/:
                    - rowheader "filesChanged"
            - region "Answer"
          - region "Steps":
            - list
    """)
    browser_page.goto(f"{site.address}/thread/{lived_in.completed}/step/2?tab=all")
    expect(browser_page.locator("main")).to_match_aria_snapshot("""
        - main:
          - 'article "Step 2: developer"':
            - region "What it was told"
            - region "How it came about":
              - list
            - region "Record"
    """)
