"""Code is reviewed where it is asked about: comments on lines become the reason of an answer, one of several forks is
kept."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import GATE, WRITES, scripted, write
from conftest import Uwf
from playwright.sync_api import Browser, Locator, Page, expect
from site_serving import Serve, entered, keep_picture

from uwf_git.ext.web.code import comment_path

EXPORT = "export/csv.py"
ASKED_AGAIN = 30_000
"""Milliseconds in which a page has asked for itself again, which it does every 5 seconds, and has got an answer."""


@pytest.fixture
def reviewed(uwf: Uwf, hermetic: Path) -> Callable[..., str]:
    """Makes a thread whose gate is next, after a writer who worked in a worktree by these commands."""
    subprocess.run(["git", "init", "-q"], check=True)
    write("kept.txt", "one\ntwo\nthree\n")
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "first"], check=True)
    uwf("workflow", "put", write("../gated.yaml", GATE))

    def make(shell: str) -> str:
        thread = uwf("thread", "start", "gated", "-p", "Export it", "--workspace", "worktree").json["thread"]
        said = json.dumps({"text": "done"})
        script = write(f"../{thread}.sh", f"cat >/dev/null\n{shell}\necho '{said}'\n").resolve()
        uwf("thread", "step", thread, "--agent", f"uwf-exec sh {script}")
        return str(thread)

    return make


WRITES_CODE = "mkdir -p export; seq 30 | sed 's/^/row = /' >export/csv.py; sed -i 2d kept.txt"


_IS_UNCOVERED = """node => {
  const { x, y, width, height } = node.getBoundingClientRect();
  return document.elementFromPoint(x + width / 2, y + height / 2) === node;
}"""


def _decided(uwf: Uwf, thread: str) -> object:
    return uwf("thread", "steps", thread).json[-1]["output"]


def _review(serve: Serve, browser_page: Page, reviewed: Callable[..., str], at: str) -> str:
    """Open a page at which a thread's code is judged, and return the thread."""
    thread = reviewed(WRITES_CODE)
    serving = serve("--write")
    browser_page.goto(serving.launch)
    browser_page.goto(serving.address + at.format(thread))
    return thread


@pytest.mark.parametrize("at", ["/", "/thread/{}"])
def test_lines_are_commented_on_and_the_answer_is_sent_by_keys_alone(
    serve: Serve, browser_page: Page, uwf: Uwf, reviewed: Callable[..., str], at: str
) -> None:
    thread = _review(serve, browser_page, reviewed, at)
    keys, focus, listed = (
        browser_page.keyboard,
        browser_page.locator(":focus"),
        browser_page.locator(".comments li"),
    )
    box = browser_page.get_by_role("dialog")
    expect(browser_page.get_by_role("button", name="Comment on a line")).to_be_visible()
    for key in "123ec":
        expect(browser_page.locator(".answer-bar kbd").get_by_text(key, exact=True)).to_be_visible()
    keys.press("c")
    expect(focus).to_have_text("1")
    for _ in range(4):
        keys.press("j")
    expect(focus).to_have_text("5")
    assert focus.evaluate(_IS_UNCOVERED)
    keys.press("c")
    expect(box).to_contain_text(f"{EXPORT}:5")
    keys.type("a field with a line end isn't quoted")
    keep_picture(browser_page, f"review-{'thread' if thread in at.format(thread) else 'inbox'}")
    keys.press("Enter")
    expect(box).to_be_hidden()
    expect(focus).to_have_text("5")
    keys.press("ArrowUp")
    keys.press("Enter")
    keys.type("of no use")
    keys.press("Enter")
    expect(listed).to_have_count(2)
    keys.press("c")
    keys.type("not sent")
    keys.press("Escape")
    expect(listed).to_have_count(2)
    keys.press("e")
    keys.type("See the lines.")
    keep_picture(browser_page, f"review-listed-{len(at)}")
    browser_page.locator("#content").evaluate("node => document.activeElement.blur()")
    keys.press("2")
    expect(browser_page.get_by_role("button", name="Comment on a line")).to_have_count(0, timeout=ASKED_AGAIN)
    assert _decided(uwf, thread) == {
        "decision": "change",
        "note": f"See the lines.\n\n{EXPORT}:5: a field with a line end isn't quoted\n{EXPORT}:4: of no use",
    }


@pytest.mark.parametrize("at", ["/", "/thread/{}"])
def test_comments_are_changed_and_removed_and_stay_while_the_page_changes(
    serve: Serve, browser_page: Page, uwf: Uwf, reviewed: Callable[..., str], at: str
) -> None:
    thread = _review(serve, browser_page, reviewed, at)
    listed = browser_page.locator(".comments li")
    words = browser_page.get_by_role("dialog").get_by_role("textbox")
    for path, row, text in ((EXPORT, "3", "first"), (EXPORT, "7", "second"), ("kept.txt", "2", "why?")):
        file = browser_page.locator("details.file", has_text=path)
        file.get_by_role("link", name=row, exact=True).last.click()
        words.fill(text)
        browser_page.get_by_role("dialog").get_by_role("button", name="Comment").click()
    expect(listed).to_have_count(3)
    expect(listed.last).to_contain_text("kept.txt:2 – why?")
    browser_page.get_by_role("button", name=f"Edit the comment on {EXPORT}:3").click()
    words.fill("better <b>words</b>")
    words.press("Enter")
    browser_page.get_by_role("button", name=f"Remove the comment on {EXPORT}:7").click()
    expect(listed).to_have_count(2)
    other = reviewed("true")
    expect(browser_page).to_have_title(re.compile(r"^\(2\) "), timeout=ASKED_AGAIN)
    expect(listed.first).to_contain_text(f"{EXPORT}:3 – better <b>words</b>")
    expect(browser_page.locator("tr[data-commented]")).to_have_count(2)
    expect(browser_page.get_by_role("button", name="show")).to_have_count(0)
    expect(browser_page.get_by_role("button", name="send")).to_be_enabled()
    uwf("thread", "answer", thread, "-f", "decision=send")
    expect(browser_page.get_by_role("heading", name="This was answered")).to_be_visible(timeout=ASKED_AGAIN)
    expect(listed).to_have_count(2)
    expect(listed.first.get_by_role("button", name="Edit")).to_be_disabled()
    browser_page.get_by_role("button", name="show").click()
    if at == "/":
        expect(browser_page.locator(f"#item-{other}")).to_be_visible()
    kept = browser_page.get_by_label("What you had typed")
    expect(kept).to_have_value(f"{EXPORT}:3: better <b>words</b>\nkept.txt:2: why?")
    expect(listed).to_have_count(0)


def test_comments_are_there_again_after_other_items_and_a_reload(
    serve: Serve, browser_page: Page, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread, other = _review(serve, browser_page, reviewed, "/"), reviewed("true")
    keys, listed = browser_page.keyboard, browser_page.locator(".comments li")
    words = browser_page.get_by_role("dialog").get_by_role("textbox")
    number = (
        browser_page.locator("details.file", has_text=EXPORT).get_by_role("link", name="3", exact=True).last
    )
    for text in ("first", "second"):
        number.click()
        words.fill(text)
        words.press("Enter")
    number.click()
    words.fill("half of a th")
    browser_page.reload()
    expect(listed).to_have_text([f"{EXPORT}:3 – {text} Edit Remove" for text in ("first", "second")])
    number.click()
    expect(words).to_have_value("half of a th")
    words.press("Escape")
    keys.press("Escape")
    browser_page.locator("#content").evaluate("node => document.activeElement.blur()")
    keys.press("j")
    expect(browser_page.locator(f"#item-{other}")).to_be_visible()
    expect(listed).to_have_count(0)
    keys.press("k")
    expect(browser_page.locator(f"#item-{thread}")).to_be_visible()
    expect(listed).to_have_count(2)
    expect(browser_page.locator("tr[data-commented]")).to_have_count(1)
    number.click()
    expect(words).to_have_value("")
    words.press("Escape")
    # The next question is about other code.
    uwf("thread", "answer", thread, "-f", "decision=change")
    uwf("thread", "step", thread, "--agent", scripted(WRITES))
    browser_page.reload()
    browser_page.locator(f"#q-{thread} a").click()
    expect(browser_page.get_by_label("What you had typed")).to_have_value(
        f"{EXPORT}:3: first\n{EXPORT}:3: second"
    )
    expect(listed).to_have_count(0)


def test_without_javascript_the_words_take_comments_in_the_same_form(
    browser: Browser, serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(serve("--write").launch)
    field = page.get_by_label("Comment for the record and the next role")
    expect(field).to_have_attribute("placeholder", "path:line: a comment on a line")
    expect(page.get_by_role("button", name="Comment on a line")).to_have_count(0)
    field.fill(f"{EXPORT}:5: of no use")
    page.get_by_role("button", name="change").click()
    expect(page.get_by_text("All done.")).to_be_visible()
    assert _decided(uwf, thread) == {"decision": "change", "note": f"{EXPORT}:5: of no use"}
    context.close()


def test_a_refused_answer_gives_its_comments_back(
    serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    for client in entered(serve("--write")):
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        head = uwf("thread", "show", thread).json["head"]
        uwf("thread", "answer", thread, "-f", "decision=send")
        data = {"head": head, "pick1": "1", "comments": f"{EXPORT}:5: of no use"}
        refused = client.post(f"/thread/{thread}/answer", data=data)
        assert refused.status_code == 409 and f"{EXPORT}:5: of no use" in refused.text


def test_a_long_report_in_colours_leaves_the_answer_in_view(
    serve: Serve, browser_page: Page, reviewed: Callable[..., str]
) -> None:
    thread = reviewed("printf '\\033[32m214 passed\\033[0m\\n'; seq 500")
    serving = serve("--write")
    browser_page.goto(serving.launch)
    for address in (f"/?at={thread}", f"/thread/{thread}"):
        browser_page.goto(serving.address + address)
        expect(browser_page.locator("section:has(> #judged) pre .f2")).to_have_text("214 passed")
        for width, height in ((390, 844), (1440, 900)):
            browser_page.set_viewport_size({"width": width, "height": height})
            expect(browser_page.get_by_role("button", name="send")).to_be_in_viewport(ratio=1)


def test_changes_by_hand_that_an_answer_takes_along_are_shown_wherever_it_is_given(
    serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    Path(uwf("workspace", "path", thread).out.strip(), "kept.txt").write_text("by hand\n")
    for client in entered(serve("--write")):
        for address in ("/", f"/thread/{thread}"):
            assert "<ins>+by hand</ins>" in client.get(address).text


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("export/csv.py", "export/csv.py"),
        ("a.py:1: fine, ship it", '"a.py:1: fine, ship it"'),
        ('say "yes"', '"say \\"yes\\""'),
        ("a\nb.py:2: x", '"a b.py:2: x"'),
    ],
)
def test_a_path_in_a_comment_is_taken_for_nothing_else(path: str, name: str) -> None:
    assert comment_path(path) == name


def test_a_path_in_a_comment_is_bounded_and_has_no_invisible_characters() -> None:
    assert len(comment_path("x/" * 5000)) <= 300
    assert comment_path("a\N{RIGHT-TO-LEFT OVERRIDE}b").isascii()


def test_hostile_paths_are_commented_on_as_text(
    serve: Serve, browser_page: Page, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    evil = "a:1: <img src=x onerror=hit=1>\N{RIGHT-TO-LEFT OVERRIDE}.py"
    thread = reviewed(f"echo x >'{evil}'")
    browser_page.goto(serve("--write").launch)
    expect(browser_page.get_by_role("button", name="Comment on a line")).to_be_visible()
    browser_page.keyboard.press("c")
    browser_page.keyboard.press("Enter")
    browser_page.keyboard.type('odd: "name"')
    browser_page.keyboard.press("Enter")
    expect(browser_page.locator(".comments li")).to_contain_text("odd:")
    assert browser_page.evaluate("window.hit") is None
    browser_page.locator("body").evaluate("node => document.activeElement.blur()")
    browser_page.keyboard.press("1")
    expect(browser_page.get_by_role("button", name="Comment on a line")).to_have_count(0)
    (line,) = uwf("thread", "steps", thread).json[-1]["output"]["note"].split("\n")
    assert line.startswith('"a:1: <img src=x onerror=hit=1>') and line.endswith('.py":1: odd: "name"')
    assert line.isascii()


def _forks(uwf: Uwf, thread: str) -> tuple[str, str]:
    return uwf("thread", "fork", thread).json["thread"], uwf("thread", "fork", thread).json["thread"]


def _statuses(uwf: Uwf, *threads: str) -> list[str]:
    return [uwf("thread", "show", thread).json["status"] for thread in threads]


def test_one_of_three_forks_is_kept_by_keys_alone(
    serve: Serve, browser_page: Page, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    other, third = _forks(uwf, thread)
    serving = serve("--write")
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/diff/{thread}/{other}")
    keep = browser_page.locator(f"#keep-{other}")
    expect(keep.locator("summary")).to_be_visible()
    keys, focus = browser_page.keyboard, browser_page.locator(":focus")

    def tab_to(what: Locator) -> None:
        for _ in range(80):
            keys.press("Tab")
            if what.evaluate("node => node === document.activeElement"):
                return
        raise AssertionError(f"no way to {what} by Tab")

    tab_to(keep.locator("summary"))
    keys.press("Enter")
    expect(keep.get_by_text(f"another fork was kept: {other}")).to_be_visible()
    keep_picture(browser_page, "keep")
    expect(keep.get_by_text(f"{thread} ends for good, its agent first.")).to_be_visible()
    tab_to(keep.get_by_role("checkbox", name=third))
    keys.press("Space")
    tab_to(keep.get_by_role("button", name="Keep this one"))
    expect(focus).to_be_enabled()
    keys.press("Enter")
    expect(browser_page.get_by_role("status", name="What was done")).to_contain_text("Kill: 2 of 2 done")
    keep_picture(browser_page, "kept")
    assert _statuses(uwf, thread, other, third) == ["killed", "waiting", "killed"]
    assert uwf("thread", "show", thread).json["reason"] == f"another fork was kept: {other}"


def test_one_of_two_forks_is_kept_without_javascript_by_a_button_and_its_confirmation(
    browser: Browser, serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    other, third = _forks(uwf, thread)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    serving = serve("--write")
    page.goto(serving.launch)
    page.goto(f"{serving.address}/diff/{thread}/{other}")
    keep = page.locator(f"#keep-{thread}")
    expect(keep.get_by_role("button", name="Keep this one, and kill the other")).to_be_hidden()
    keep.locator("summary").click()
    expect(keep.get_by_text(f"{other} ends for good")).to_be_visible()
    assert _statuses(uwf, other) == ["waiting"]
    keep.get_by_role("button", name="Keep this one").click()
    expect(page.get_by_text("Kill: 1 of 1 done")).to_be_visible()
    assert _statuses(uwf, thread, other, third) == ["waiting", "killed", "waiting"]
    page.goto(f"{serving.address}/diff/{thread}/{other}")
    expect(page.get_by_text("Keep this one")).to_have_count(0)  # the other has ended
    context.close()


def test_a_fork_that_has_moved_on_since_it_was_shown_is_not_dropped(
    serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    other, _ = _forks(uwf, thread)
    for client in entered(serve("--write")):
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        page = client.get(f"/diff/{thread}/{other}").text
        shown = f"{other} {uwf('thread', 'show', other).json['head']}"
        assert f'name="thread" value="{shown}"' in page and 'name="unmoved"' in page
        uwf("thread", "answer", other, "-f", "decision=change")
        data = {"thread": shown, "sure": "yes", "unmoved": "yes", "reason": "another fork was kept"}
        done = client.post("/threads/kill", data=data)
        told = client.get(done.headers["location"]).text
        assert "Kill: 0 of 1 done" in told and " answered change " in told
    assert _statuses(uwf, other) != ["killed"]


def test_only_forks_are_offered_to_be_kept_and_only_where_it_can_be_done(
    serve: Serve, uwf: Uwf, reviewed: Callable[..., str]
) -> None:
    thread = reviewed(WRITES_CODE)
    other, _ = _forks(uwf, thread)
    unlike = uwf("thread", "start", "gated", "-p", "Another").json["thread"]
    for client in entered(serve("--write")):
        assert "Keep this one" in client.get(f"/diff/{thread}/{other}").text
        assert "Keep this one" not in client.get(f"/diff/{thread}/{unlike}").text
        assert "Keep this one" not in client.get(f"/diff/{thread}/{thread}").text
    for client in entered(serve()):
        assert "Keep this one" not in client.get(f"/diff/{thread}/{other}").text
