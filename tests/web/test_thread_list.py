"""The list of threads in a browser, and what is done to several of them at once."""

from __future__ import annotations

import html
import re
import shlex
import time

import httpx
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from conftest import Uwf
from fan_outs import audit
from playwright.sync_api import Browser, Page, expect
from site_serving import Serve, entered, keep_picture
from workflows import opened

from uwf_git.format.kinds import Start
from uwf_git.git.repository import Oid


def _start(uwf: Uwf, task: str) -> str:
    return str(uwf("thread", "start", "pair", "-p", task).json["thread"])


def _open(serve: Serve, browser_page: Page, *flags: str, query: str = "") -> None:
    """Open the list of threads of a server with these flags."""
    serving = serve(*flags)
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/threads{query}")


def _fail(uwf: Uwf, task: str) -> str:
    thread = _start(uwf, task)
    uwf("thread", "step", thread, "--agent", "false", check=None)
    assert uwf("thread", "show", thread).json["status"] == "failed"
    return thread


def test_threads_stand_in_the_tab_of_what_they_want(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    done = _start(uwf, "Say <b>it</b>")
    uwf("thread", "run", done)
    browser_page.goto(serve().launch)
    browser_page.get_by_role("link", name="Threads", exact=True).click()
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()
    browser_page.get_by_role("link", name="done").click()
    expect(browser_page.get_by_role("link", name="Say <b>it</b>")).to_be_visible()
    expect(browser_page.get_by_role("row", name="completed")).to_have_count(1)
    expect(browser_page.get_by_role("link", name="Do it")).to_have_count(0)
    keep_picture(browser_page, "threads")


def test_the_filter_line_takes_the_words_of_the_command_and_stays_in_the_address(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    _start(uwf, "Something else")
    _fail(uwf, "Something failed")
    _open(serve, browser_page)
    field = browser_page.get_by_label("Filter", exact=True)
    for line, tasks in {
        "else": ["Something else"],
        "--status failed --since 2d": ["Something failed"],
        "--status idle Something": ["Something else"],
        "--sort steps --workflow pair": ["Something failed", "Something else", "Do it"],
    }.items():
        field.fill(line)
        field.press("Enter")
        expect(browser_page.locator(".board .task > a")).to_have_text(tasks)
        expect(field).to_have_value(line)
    field.fill("else")
    field.press("Enter")
    browser_page.get_by_role("link", name="done").click()
    expect(browser_page.get_by_text("No thread like that")).to_be_visible()
    assert "q=else" in browser_page.url


def test_an_address_of_the_list_of_before_leads_to_the_same_threads(
    client: httpx.Client, uwf: Uwf, thread: str
) -> None:
    _start(uwf, "Something else")
    moved = client.get("/?tab=running&search=else&workflow=pair")
    assert moved.status_code == 303
    listed = client.get(moved.headers["location"]).text
    assert "Something else" in listed and "Do it" not in listed
    assert "--workflow pair else" in listed
    assert "no status" in client.get("/threads?status=asleep").text


def test_a_filter_that_is_none_is_refused_beside_the_form(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    _open(serve, browser_page)
    field = browser_page.get_by_label("Filter", exact=True)
    alert = browser_page.get_by_role("alert")
    for line, words in {
        "Do --workflow pear": "no workflow 'pear'",
        "--since never": "neither a day nor a duration",
        "--status asleep": "no status 'asleep'",
        "--colour red": "no filter '--colour'",
        "--since": "--since has no value",
    }.items():
        field.fill(line)
        field.press("Enter")
        expect(alert).to_contain_text(words)
        expect(field).to_have_value(line)
    field.fill("'Do it' --since 2d")
    field.press("Enter")
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()


def test_a_role_that_a_human_plays_waits_on_the_pages_as_in_the_inbox(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("config", "set", "agentOverrides.pair.writer", "uwf-human")
    (waits,) = uwf("inbox").json
    assert (waits["kind"], waits["thread"]) == ("role", thread)
    serving = serve("--write", "--run")
    browser_page.goto(serving.launch)
    expect(browser_page).to_have_title(re.compile(r"^\(1\) Inbox"))
    expect(browser_page.get_by_role("link", name="Inbox 1 waiting")).to_be_visible()
    browser_page.goto(f"{serving.address}/threads?tab=waiting")
    expect(browser_page.get_by_role("row", name="waiting")).to_contain_text(waits["question"])
    browser_page.get_by_role("link", name="Do it").click()
    expect(browser_page.get_by_role("heading", name="writer is for you")).to_be_visible()
    expect(browser_page.get_by_label("text")).to_be_visible()
    expect(browser_page.get_by_text(waits["command"], exact=True)).to_be_visible()
    expect(browser_page.get_by_text("No agent is working")).to_have_count(0)
    expect(browser_page.get_by_role("button", name="Do one step")).to_have_count(0)
    keep_picture(browser_page, "for-you")


def test_a_filter_says_how_it_is_saved_as_a_view(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    line = "--status idle --since 2d"
    page = client.get("/threads", params={"q": line}).text
    command = html.unescape(
        page.partition("Save this view: ")[2].partition('<code class="command">')[2].partition("</code>")[0]
    )
    uwf(*shlex.split(command.replace("NAME", "mine-too"))[1:])
    page = client.get("/threads", params={"q": line}).text
    assert ">mine-too</a>" in page and "Save this view" not in page
    assert "Save this view" not in client.get("/threads").text


def test_a_fan_out_is_one_row_that_opens(serve: Serve, browser_page: Page, uwf: Uwf) -> None:
    uwf("workflow", "put", write("audit.yaml", audit()))
    thread = uwf("thread", "start", "audit", "-p", "Audit it, " + "and look twice " * 9).json["thread"]
    uwf("thread", "step", thread, "--agent", scripted("- { role: planner, output: { files: [a, b, c] } }\n"))
    uwf("thread", "step", thread)
    _open(serve, browser_page)
    rows = browser_page.locator(".board tbody tr")
    expect(rows).to_have_count(1)
    bar = browser_page.get_by_role("link", name="0 of 3 have ended")
    for width in (1280, 768, 390):
        browser_page.set_viewport_size({"width": width, "height": 800})
        box = bar.bounding_box()
        assert box and box["x"] + box["width"] < width
        assert browser_page.evaluate("document.scrollingElement.scrollWidth") == width
    expect(bar).to_have_attribute("aria-expanded", "false")
    bar.click()
    expect(rows).to_have_count(4)
    expect(bar).to_have_attribute("aria-expanded", "true")
    browser_page.get_by_role("link", name="b", exact=True).click()
    expect(browser_page.get_by_text(re.compile("It is branch 1 of"))).to_be_visible()


def test_checked_threads_are_paused_and_killed_each_at_the_head_that_was_shown(
    serve: Serve, browser_page: Page, uwf: Uwf
) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    one, other, left = (_start(uwf, task) for task in ("One", "Other", "Left"))
    _open(serve, browser_page, "--write")
    bar = browser_page.locator("#bulk")
    expect(bar).to_be_hidden()
    browser_page.get_by_role("checkbox", name="One").check()
    browser_page.get_by_role("checkbox", name="Other").check()
    expect(bar.get_by_role("button", name="Retry")).to_have_count(0)
    keep_picture(browser_page, "checked")
    bar.get_by_role("button", name="Pause").click()
    expect(browser_page.get_by_role("status", name="What was done")).to_contain_text("Pause: 2 of 2 done")
    assert [uwf("thread", "show", each).json["status"] for each in (one, other, left)] == ["paused"] * 2 + [
        "idle"
    ]
    browser_page.get_by_role("checkbox", name="One").check()
    browser_page.get_by_role("checkbox", name="Left").check()
    bar.get_by_role("button", name="Kill").click()
    assert uwf("thread", "show", left).json["status"] == "idle"
    browser_page.get_by_label("Why").fill("over")
    browser_page.get_by_role("button", name="for good").click()
    expect(browser_page.get_by_role("status", name="What was done")).to_contain_text("Kill: 2 of 2 done")
    assert [uwf("thread", "show", each).json["status"] for each in (one, other, left)] == [
        "killed",
        "paused",
        "killed",
    ]


def test_what_cannot_be_done_to_one_of_several_is_told_and_the_others_are_done(
    changing: httpx.Client, uwf: Uwf, thread: str
) -> None:
    other, heads = _start(uwf, "<b>Other</b>"), {}
    for each in (thread, other):
        heads[each] = uwf("thread", "show", each).json["head"]
    uwf("thread", "kill", other)
    form = {"thread": [f"{each} {head}" for each, head in heads.items()], "list": "tab=all&done=9&q=%3Cx%3E"}
    done = changing.post("/threads/pause", data=form)
    assert done.status_code == 303
    assert re.fullmatch(r"/threads\?tab=all&q=%3Cx%3E&done=\w+", done.headers["location"])
    told = changing.get(done.headers["location"]).text
    assert "Pause: 1 of 2 done" in told and "&lt;b&gt;Other&lt;/b&gt;" in told and "<b>Other" not in told
    assert uwf("thread", "show", thread).json["status"] == "paused"
    assert changing.post("/threads/pause", data={}).status_code == 400
    unsure = changing.post("/threads/kill", data={"thread": form["thread"][:1]})
    assert uwf("thread", "show", thread).json["status"] == "paused"
    assert "check the box" in changing.get(unsure.headers["location"]).text
    assert changing.post("/threads/retry", data=form).status_code == 404


def test_why_many_were_refused_is_one_line_that_opens(changing: httpx.Client, uwf: Uwf, thread: str) -> None:
    threads = [thread, *(_start(uwf, f"Task {number}") for number in range(3))]
    boxes = [f"{each} {uwf('thread', 'show', each).json['head']}" for each in threads]
    uwf("thread", "kill", *threads[1:])
    many = changing.get(changing.post("/threads/pause", data={"thread": boxes}).headers["location"]).text
    assert "Pause: 1 of 4 done" in many
    assert re.search(r"<details>\s*<summary>Why 3 were not</summary>", many)
    one = changing.get(changing.post("/threads/pause", data={"thread": boxes[1:2]}).headers["location"]).text
    assert re.search(r"<details open>\s*<summary>Why 1 was not</summary>", one)


def test_failed_threads_are_tried_again_at_once(serve: Serve, uwf: Uwf, thread: str, root: object) -> None:
    failed = [_fail(uwf, task) for task in ("One", "Other")]
    before = "- { role: writer, output: { text: before } }\n"
    uwf("config", "set", "defaultAgent", scripted(before + REJECTS_ONCE))
    serving = serve("--run")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        heads = {each: uwf("thread", "show", each).json["head"] for each in failed}
        form = {"thread": [f"{each} {head}" for each, head in heads.items()]}
        assert client.post("/threads/retry", data=form).status_code == 303
    for each in failed:
        uwf("thread", "wait", each)
        assert uwf("thread", "show", each).json["status"] == "completed"


def test_failed_threads_are_found_checked_and_tried_again_by_keys_alone(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    failed = [_fail(uwf, task) for task in ("One", "Other")]
    before = "- { role: writer, output: { text: before } }\n"
    uwf("config", "set", "defaultAgent", scripted(before + REJECTS_ONCE))
    _open(serve, browser_page, "--run", query="?tab=failed")
    for key in "jxjx":
        browser_page.keyboard.press(key)
    expect(browser_page.locator(".board tbody input:checked")).to_have_count(2)
    keep_picture(browser_page, "checked-by-keys")
    browser_page.keyboard.press("r")
    expect(browser_page.get_by_role("status", name="What was done")).to_contain_text("Retry: 2 of 2 started")
    for each in failed:
        uwf("thread", "wait", each)


def test_what_failed_last_night_is_tried_again_by_three_keys(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    failed = [_fail(uwf, task) for task in ("One", "Other", "Third")]
    uwf("config", "set", "defaultAgent", scripted("- { role: writer, output: { text: x } }\n" + REJECTS_ONCE))
    _open(serve, browser_page, "--run")
    browser_page.keyboard.press("n")
    browser_page.wait_for_url("**/threads?*")
    expect(browser_page.locator(".board tbody tr")).to_have_count(len(failed))
    browser_page.keyboard.press("*")
    expect(browser_page.locator(".board tbody input:checked")).to_have_count(len(failed))
    everything = browser_page.get_by_role("checkbox", name="all shown threads")
    expect(everything).to_be_checked()
    expect(browser_page.locator(".bulk .number-checked").first).to_be_visible()
    browser_page.keyboard.press("r")
    expect(browser_page.get_by_role("status", name="What was done")).to_contain_text("Retry: 3 of 3 started")
    for each in failed:
        uwf("thread", "wait", each)


def _many(number: int) -> None:
    instance = opened()
    version = instance.registry.current("pair")
    for each in range(number):
        instance.threads.start(Oid(hex=version.commit), Start(version.hash, f"Number {each}", None))


def test_older_threads_are_loaded_when_one_scrolls_to_the_end(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    _many(250)
    _open(serve, browser_page)
    rows = browser_page.locator(".board tbody tr")
    expect(rows).to_have_count(100)
    rows.last.scroll_into_view_if_needed()
    expect(rows).to_have_count(200)
    rows.last.scroll_into_view_if_needed()
    expect(rows).to_have_count(251)
    expect(browser_page.get_by_role("link", name="Older")).to_have_count(0)


def test_what_has_moved_since_it_was_opened_is_marked(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    _open(serve, browser_page)
    marked = browser_page.locator(".board .unread")
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()
    expect(marked).to_have_count(0)
    time.sleep(1.1)  # times are in seconds
    uwf("thread", "step", thread, "--agent", scripted(REJECTS_ONCE))
    expect(marked).to_have_count(1, timeout=15_000)
    time.sleep(1.1)
    browser_page.get_by_role("link", name="Do it").click()
    expect(browser_page.get_by_role("heading", name="Do it")).to_be_visible()
    browser_page.get_by_role("link", name="Threads", exact=True).click()
    expect(browser_page.get_by_role("link", name="Do it")).to_be_visible()
    expect(marked).to_have_count(0)


def test_older_threads_are_reached_by_a_link_without_javascript(
    browser: Browser, serve: Serve, uwf: Uwf, thread: str
) -> None:
    _many(150)
    serving = serve()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(serving.launch)
    page.goto(f"{serving.address}/threads")
    rows = page.locator(".board tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("link", name="Older: 51 threads").click()
    expect(rows).to_have_count(51)
    expect(page.get_by_role("link", name="Do it")).to_be_visible()
    context.close()


def test_a_failed_thread_is_dated_by_its_newest_attempt_which_has_a_number(
    serve: Serve, uwf: Uwf, thread: str
) -> None:
    for _ in range(2):
        uwf("thread", "step", thread, "--agent", "false", check=None)
    (item,) = uwf("thread", "list").json
    assert item["attempt"]["number"] == 2 and item["attempt"]["at"] >= item["updated"]
    for client in entered(serve()):
        for address in ("/threads", "/"):
            shown = client.get(address).text
            assert "attempt 2" in shown and f'datetime="{item["attempt"]["at"]}"' in shown
