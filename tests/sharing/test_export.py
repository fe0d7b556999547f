"""`uwf export --html`: a thread as one file that holds all of it, runs nothing and fetches nothing, looked at in a real
browser.

Pictures of the page are kept in the folder that UWF_TEST_ARTEFACTS names, else in the test's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_samples import scripted, write
from conftest import EXAMPLES, Uwf
from web_pages import Browser

# The hermetic fixture takes it out of the environment before a test runs.
_ARTEFACTS = os.environ.get("UWF_TEST_ARTEFACTS")

PROMPT = """\
Fix the <b>login</b> bug

<script>document.title = "run"</script><img src=x onerror="document.title = 'run'">

![a picture](https://tracker.invalid/pixel.png) [here](javascript:document.title='run') \
[there](https://example.invalid/a "t") <https://example.invalid/b> [file](file:///etc/passwd)
"""
SCRIPT = """\
- role: planner
  output: { plan: "first", steps: [] }
- role: planner
  output: { plan: "</td></table><script>document.title = 'run'</script>", steps: ["Keep\\nit \\u202edesrever"] }
- role: developer
  output: { filesChanged: [form.py], summary: The name is kept }
- role: reviewer
  answer: |
    ---
    approved: false
    comments: A test is missing.
    ---

    ## Not yet

    There is **no test** for it.

    ```python
    def a_line_that_is_longer_than_any_narrow_screen_is_wide(argument_one, argument_two, argument_three): pass
    ```
    <style>body { display: none }</style>
- role: developer
  output: { filesChanged: [form.py, test_form.py], summary: With a test }
- role: reviewer
  output: { approved: true, comments: Good. }
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    running = Browser(tmp_path / "profile")
    running.watch()
    yield running
    running.close()


@pytest.fixture
def finished(uwf: Uwf) -> str:
    """A thread with a failed attempt, a rejection and an end."""
    thread = str(uwf("thread", "start", EXAMPLES / "solve-issue.yaml", "-p", PROMPT).json["thread"])
    uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'echo nothing usable'", check=6)
    uwf("thread", "run", thread, "--agent", scripted(SCRIPT))
    return thread


def test_a_page_shows_all_of_a_thread_and_neither_runs_nor_fetches_anything(
    uwf: Uwf, finished: str, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "thread.html"
    said = uwf("export", finished, "--html", file).json
    assert said == {"thread": finished, "file": str(file), "bytes": file.stat().st_size}
    shown = browser.open(file.as_uri())
    assert browser.requests() == [file.as_uri()]
    assert browser.complaints() == []
    assert browser.evaluate("document.title") == "Fix the <b>login</b> bug"
    assert browser.evaluate("document.scripts.length + document.images.length") == 0
    assert set(browser.evaluate("[...document.links].map(a => a.protocol)")) <= {"file:", "https:"}
    targets = browser.evaluate("[...document.links].map(a => a.getAttribute('href'))")
    assert all(re.fullmatch(r"#step-[1-5]|https://(example|tracker)\.invalid/\S*", each) for each in targets)
    assert "(https://tracker.invalid/pixel.png)" in shown and "(https://example.invalid/a)" in shown
    assert "\\u202e" in shown and "\u202e" not in shown

    head = uwf("thread", "show", finished).json
    for part in (
        "completed",
        "solve-issue",
        "Ada Example",
        "All of this is made up",
        head["head"],
        head["workflow"],
    ):
        assert part in shown, part
    assert [each.split()[1] for each in browser.texts("article h3")] == [
        "planner",
        "developer",
        "reviewer",
        "developer",
        "reviewer",
    ]
    assert browser.texts("article .badge:not(.made-up)") == ["not approved", "approved"]
    assert "Not yet" in browser.texts("article .prose h4")
    assert "no test" in browser.texts("article .prose strong")
    # An answer that is the output isn't said again, and front matter is in the table alone.
    assert browser.texts("#step-3 .values th") == ["approved", "comments"]
    assert "approved: false" not in shown and shown.count("A test is missing.") == 1
    assert "failed attempt of planner" in shown
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert "nothing usable" in browser.evaluate("document.body.innerText")
    # The graph is drawn, and told to who can't see it.
    assert "reviewer to developer" in browser.evaluate("document.querySelector('svg desc').textContent")
    assert "reviewer · 2×" in browser.evaluate("document.querySelector('svg').textContent")
    assert uwf("export", finished, "--html", "-").out == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "dark"), [(1000, False), (1000, True), (380, False)])
def test_a_page_fits_narrow_screens_and_dark_ones(
    uwf: Uwf, finished: str, browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    file = tmp_path / "thread.html"
    uwf("export", finished, "--html", file)
    browser.looks(width, 2400, dark)
    browser.open(file.as_uri())
    pictures = Path(_ARTEFACTS or tmp_path / "pictures")
    pictures.mkdir(parents=True, exist_ok=True)
    browser.shoot(pictures / f"export-{width}{'-dark' if dark else ''}.png")
    # What is wider than the screen scrolls within itself, not the page.
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("[...document.querySelectorAll('pre')].some(e => e.scrollWidth > e.clientWidth)")
    sum_of = "getComputedStyle(document.body).{}.match(/[0-9]+/g).reduce((a, b) => a + +b, 0)"
    ground, text = (browser.evaluate(sum_of.format(each)) for each in ("backgroundColor", "color"))
    assert (ground < text) == dark and abs(ground - text) > 400


OUTER = """\
name: outer
description: Has another workflow do a part, then asks.
roles:
  a: {description: A, systemPrompt: Do., outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}}
  b: {description: B, systemPrompt: Do., outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}}
graph:
  $START: [{role: a}]
  a: [{role: b}]
  b: [{role: $END}]
"""
INNER = """\
name: inner
description: One step.
roles:
  r: {description: R, systemPrompt: Do., outputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}}
graph:
  $START: [{role: r}]
  r: [{role: $END}]
"""


def test_a_page_has_sub_workflows_answers_of_people_and_the_question_that_waits(
    uwf: Uwf, browser: Browser, tmp_path: Path
) -> None:
    uwf("workflow", "put", write("inner.yaml", INNER))
    thread = uwf("thread", "start", write("outer.yaml", OUTER), "-p", "Do it").json["thread"]
    asks = """uwf-exec echo '{"status": "needs_input", "question": "Which *one*?", "options": ["red", "blue"]}'"""
    uwf("thread", "step", thread, "--agent", asks)
    uwf("thread", "answer", thread, "-m", "red")
    uwf("config", "set", "agentOverrides.inner.r", "uwf-rehearse")
    uwf("thread", "step", thread, "--agent", "uwf-workflow inner")
    uwf("thread", "step", thread, "--agent", asks)
    child = next(each["thread"] for each in uwf("thread", "list", "--all").json if each["thread"] != thread)
    file = tmp_path / "thread.html"
    uwf("export", thread[-8:], "--html", file)
    shown = browser.open(file.as_uri())
    assert "b asks:" in shown and browser.texts(".notice em") == ["one"]
    assert browser.texts(".notice li") == ["red", "blue"]
    assert browser.texts("#step-2 h3") == ["2 answer of Ada Example"]
    assert child in browser.texts("#step-3 summary")[0]
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.texts("#step-3 article h3") == ["1 r"]


def test_a_page_keeps_the_lines_of_a_task_and_a_question_and_lists_what_was_asked_and_when(uwf: Uwf) -> None:
    thread = uwf("thread", "start", write("outer.yaml", OUTER), "-p", "Do it:\nfirst this\nthen that").json[
        "thread"
    ]
    asked = '{"status": "needs_input", "question": "Ship it?\\nReally?"}'
    uwf("thread", "step", thread, "--agent", f"uwf-exec echo '{asked}'")
    page = uwf("export", thread, "--html", "-").out
    assert re.search(r"Do it:<br ?/?>\s*first this<br ?/?>\s*then that", page)
    assert re.search(r"Ship it\?<br ?/?>\s*Really\?", page)
    [listed] = re.findall(r'<ol class="steps">(.*?)</ol>', page, re.DOTALL)
    assert "<span>asks: Ship it? Really?</span>" in listed and "needs_input" not in listed
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", listed)


def test_a_file_is_written_over_only_where_that_is_meant(uwf: Uwf, finished: str, tmp_path: Path) -> None:
    file = tmp_path / "thread.html"
    file.write_text("mine")
    refused = uwf("export", finished, "--html", file, check=1)
    assert "--force" in refused.error["hint"] and file.read_text() == "mine"
    uwf("export", finished, "--html", file, "--force")
    assert file.read_text().startswith("<!doctype html>")
    assert (
        "cannot write"
        in uwf("export", finished, "--html", tmp_path / "no" / "x.html", check=1).error["message"]
    )
    assert sorted(each.name for each in tmp_path.glob("*thread.html*")) == ["thread.html"]
