"""A thread's page as a workbench: one step in place by tabs, what can be done at the top, keys, diffs by lines."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import spent_threads as spent
from cli_samples import ASKS, PAIR, REJECTS_ONCE, scripted, write
from commands import git
from conftest import Uwf
from lived_in import LivedIn
from playwright.sync_api import Page, expect
from site_serving import Serve, keep_picture

from uwf_git.ext.web import assets
from uwf_git.store.instance import Instance

TABS = ("result", "turns", "prompt", "record")
ROLES = [f"role{number}" for number in range(12)]
_DEFINED = [
    f"  {name}: {{description: d, systemPrompt: s, outputSchema: {{type: object}}}}" for name in ROLES
]
_EDGES = [f"  {a}: [{{role: {b}}}]" for a, b in zip(ROLES, [*ROLES[1:], "$END"], strict=True)]
MANY = "\n".join(
    (
        "name: many",
        "description: Many roles.",
        "roles:",
        *_DEFINED,
        "graph:",
        "  $START: [{role: role0}]",
        *_EDGES,
    )
)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_a_step_stands_in_its_threads_page_by_tabs(lived_in: LivedIn, client: httpx.Client) -> None:
    address = f"/thread/{lived_in.completed}/step/2"
    marks = {
        "result": 'aria-labelledby="output"',
        "turns": "How it came about",
        "prompt": "# Your role: developer",
        "record": "git --git-dir",
    }
    for tab in TABS:
        page = client.get(f"{address}?tab={tab}").text
        assert f'href="{address}?tab={tab}" aria-current="page"' in page
        assert [name for name in TABS if marks[name] in page] == [tab]
    assert all(mark in client.get(f"{address}?tab=all").text for mark in marks.values())
    assert marks["result"] in client.get(f"{address}?tab=nothing").text
    assert 'href="/threads" aria-current="page"' in page
    (task,) = re.findall(r"<h1><a [^>]*>(.*)</a></h1>", page)
    assert re.search(rf"<title>(?:\(\d\) )?Step 2, developer · {re.escape(task)} · uwf</title>", page)
    assert "How it came about" in client.get(f"{address}?turns=2").text


def test_a_threads_page_is_light_with_all_styles_and_scripts(lived_in: LivedIn, client: httpx.Client) -> None:
    names = [name for name in assets.files() if name.endswith((".css", ".js", ".svg"))]
    addresses = [assets.address(f"/static/{name}") for name in names]
    received = 0
    for address in (f"/thread/{lived_in.completed}", *addresses):
        answer = client.get(address)
        assert answer.headers.get("content-encoding") == "gzip" or len(answer.content) < 1000, address
        received += answer.num_bytes_downloaded
    assert len(addresses) > 10 and received <= 150_000


def test_the_top_says_cost_of_budget_and_time_and_each_step_its_own(
    lived_in: LivedIn, client: httpx.Client
) -> None:
    page = client.get(f"/thread/{lived_in.over}").text
    said = text_of(page)
    assert "cost $0.2025 of $0.10" in said and "at work 3m 24s" in said and "<meter" in page
    assert re.search(r'id="step-2".*?\$0\.1300.*?2 min 43 s.*?</li>', page, re.DOTALL)
    step = text_of(client.get(f"/thread/{lived_in.completed}/step/4").text)
    assert "72,580 tokens · $0.1124 · 1 min 14 s" in step


@pytest.mark.parametrize(
    ("does", "button", "key"),
    [
        ([], "Run", "r"),
        (["step", "ID", "--agent", "false"], "Retry", "r"),
        (["step", "ID", "--agent", "ASKS"], "Answer", "a"),
        (["pause", "ID"], "Resume", "r"),
    ],
)
def test_one_action_stands_at_the_top_with_its_key(
    serve: Serve, uwf: Uwf, thread: str, does: list[str], button: str, key: str, browser_page: Page
) -> None:
    if does:
        words = {"ID": thread, "ASKS": scripted(ASKS)}
        uwf("thread", *(words.get(word, word) for word in does), check=None)
    browser_page.goto(serve(thread, "--write", "--run").launch)
    main = browser_page.locator(".run > .do > .main, .press .main")
    expect(main).to_have_text(button)
    expect(main).to_have_attribute("data-key", key)


def test_a_step_is_a_row_of_one_line_and_the_chosen_one_says_more(
    serve: Serve, browser_page: Page, lived_in: LivedIn
) -> None:
    serving = serve(lived_in.completed)
    browser_page.goto(serving.launch)
    *others, chosen = browser_page.locator("#timeline > li").all()
    details = chosen.locator(".by").bounding_box()
    assert details and details["height"] > 15 and len(others) == 4
    for row in others:
        box, details = row.bounding_box(), row.locator(".by").bounding_box()
        assert box and details and box["height"] <= 33 and details["height"] == 1


def test_keys_go_through_the_steps_and_open_one_in_place(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    browser_page.goto(serve(thread, "--write").launch)
    expect(browser_page.get_by_role("heading", name="Step 4: critic")).to_be_visible()
    browser_page.evaluate("window.stays = true")
    for _ in range(2):
        browser_page.keyboard.press("j")
    expect(browser_page.get_by_role("heading", name="Step 2: critic")).to_be_visible()
    expect(browser_page.locator("#step-2 a:focus")).to_be_visible()
    expect(browser_page.locator("#step-2 .badge").first).to_have_class("badge yellow")
    expect(browser_page.locator("#step-4 .badge").first).to_have_class("badge")
    browser_page.keyboard.press("k")
    expect(browser_page.get_by_role("heading", name="Step 1: writer")).to_be_visible()
    expect(browser_page.locator("#step-1 [aria-current=step]")).to_be_visible()
    browser_page.keyboard.press("f")
    expect(browser_page.locator("#step-1")).to_be_attached()
    expect(browser_page.locator("#step-2")).to_have_count(0)
    assert browser_page.evaluate("window.stays")
    assert len(uwf("thread", "list", "--all").json) == 2


def test_a_step_of_long_ago_stands_beside_those_around_it(instance: Instance, client: httpx.Client) -> None:
    thread = spent.start(instance)
    for _ in range(120):
        spent.step(instance, thread)
    page = client.get(f"/thread/{thread}/step/31").text
    assert 'id="step-31"' in page and page.count('<li id="step-') == 50
    assert f'href="/thread/{thread}/step/31" aria-current="step"' in page
    assert "Newer: 50 steps" in page and "Older: 20 steps" in page


def test_a_graph_of_many_roles_is_legible_and_goes_from_left_to_right_where_it_is_wide(
    serve: Serve, browser_page: Page, uwf: Uwf
) -> None:
    thread = uwf("thread", "start", write("many.yaml", MANY), "-p", "x").json["thread"]
    browser_page.set_viewport_size({"width": 1440, "height": 900})
    browser_page.goto(serve(thread).launch)
    boxes = browser_page.locator("#graph svg.laid rect.node")
    expect(boxes).to_have_count(len(ROLES) + 2)
    assert float(browser_page.locator("#graph").get_attribute("data-scale") or 0) >= 0.8
    expect(boxes.nth(1)).to_be_in_viewport()  # whose turn it is
    first, last = boxes.nth(0).bounding_box(), boxes.nth(-1).bounding_box()
    assert first and last and abs(first["x"] - last["x"]) < first["width"] < last["y"] - first["y"]
    browser_page.get_by_role("button", name="Enlarge").click()
    expect(browser_page.get_by_role("button", name="Close")).to_be_focused()
    first, last = boxes.nth(0).bounding_box(), boxes.nth(-1).bounding_box()
    assert first and last and abs(first["y"] - last["y"]) < first["height"] < last["x"] - first["x"]
    keep_picture(browser_page, "graph-large")
    browser_page.keyboard.press("Escape")
    expect(browser_page.get_by_role("button", name="Enlarge")).to_be_visible()


def test_names_and_outputs_of_any_length_leave_the_page_in_its_window(
    serve: Serve, browser_page: Page, uwf: Uwf
) -> None:
    name = "r" * 60
    long = f"""\
name: long
description: Long names.
roles:
  {name}: {{description: d, systemPrompt: s, outputSchema: {{type: object}}}}
graph: {{$START: [{{role: {name}}}], {name}: [{{role: $END}}]}}
"""
    thread = uwf("thread", "start", write("long.yaml", long), "-p", "y" * 10_000).json["thread"]
    write("said.py", "import json\nprint(json.dumps({'x' * 10000: 'z' * 10000}))\n")
    uwf("thread", "step", thread, "--agent", "uwf-exec python3 said.py", check=None)
    serving = serve(thread, "--write", "--run")
    browser_page.goto(serving.launch)
    for width in (375, 1000, 1440, 2560):
        browser_page.set_viewport_size({"width": width, "height": 800})
        browser_page.reload()
        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
        header = browser_page.locator(".run").bounding_box()
        assert header and (header["height"] <= 64 or width < 960)


WRITES_A_FILE = """\
from pathlib import Path
from uwf_git.kit import Reply, create_agent

def run(ctx):
    number = len(list(Path().glob("part-*.txt"))) + 1
    Path(f"part-{number}.txt").write_text(f"written by step {number}\\n")
    output = {"text": "done"} if number % 2 else {"approved": number == 4}
    return Reply("", output=output, session="none", cost=number / 4)

create_agent("writes", run).main()
"""


def test_what_step_4_changed_and_cost_is_said_after_two_keys(
    serve: Serve, browser_page: Page, uwf: Uwf, script: Callable[[str, str], Path]
) -> None:
    git("init", "-q", ".")
    git("commit", "-q", "--allow-empty", "-m", "first")
    start = ("thread", "start", write("pair.yaml", PAIR), "-p", "Do it", "--workspace", "worktree")
    thread = uwf(*start).json["thread"]
    uwf("thread", "run", thread, "--agent", script("writes", WRITES_A_FILE))
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/threads")
    keys, step = browser_page.keyboard, browser_page.locator("article.chosen")
    keys.press("j")
    keys.press("Enter")
    expect(step.get_by_role("heading", name="Step 4: critic")).to_be_visible()
    expect(step).to_contain_text("$1.00")
    expect(step).to_contain_text("1 file changed, +1 -0")
    keys.press("d")
    expect(step.get_by_text("written by step 4")).to_be_visible()
