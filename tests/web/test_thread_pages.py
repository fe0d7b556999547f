"""The pages of a thread, a step and a failed attempt: what each state says, and that text stays text."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import spent_threads as spent
from cli_samples import ASKS, ONE, REJECTS_ONCE, scripted, write
from commands import begin, loose, wait_for
from conftest import Uwf
from crew_histories import begin as begin_crew
from playwright.sync_api import Page, expect
from site_serving import Serve, keep_picture
from workflows import opened

from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.format.kinds import Attempt, Step
from uwf_git.format.types import STEPNODE, TURN
from uwf_git.git.repository import Oid
from uwf_git.store.history import ancestry
from uwf_git.store.instance import Instance

OUTER = """\
name: outer
description: Two.
roles:
  a: {description: A, systemPrompt: Do., outputSchema: {type: object}}
  b: {description: B, systemPrompt: Do., outputSchema: {type: object}}
graph:
  $START: [{role: a}]
  a: [{role: b}]
  b: [{role: $END}]
"""


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
    expect(browser_page.get_by_role("group", name="The graph of pair")).to_be_visible()
    rows = browser_page.locator("#timeline > li")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("not approved")
    browser_page.get_by_text("transitions as a list").click()
    expect(browser_page.get_by_role("row", name="critic rejected writer 1 time")).to_be_visible()
    keep_picture(browser_page, "thread")
    rows.nth(2).get_by_role("link").first.click()
    expect(browser_page.get_by_role("heading", level=2, name="Step 3: writer")).to_be_visible()
    expect(browser_page.locator("#step-3 [aria-current=step]")).to_be_visible()
    keep_picture(browser_page, "step")
    browser_page.get_by_role("link", name="Step 4 →").click()
    expect(browser_page.get_by_role("heading", level=2, name="Step 4: critic")).to_be_visible()


def test_a_step_shows_what_its_agent_was_told(finished: str, client: httpx.Client) -> None:
    said = text_of(client.get(f"/thread/{finished}/step/2?tab=prompt"))
    assert "# Your role: critic" in said and "Step 1: writer" in said
    said = text_of(client.get(f"/thread/{finished}/step/2?tab=record"))
    assert f"uwf thread fork {finished} --at 2" in said and "git --git-dir" in said


def test_an_id_may_be_shortened_and_what_is_not_there_is_said(finished: str, client: httpx.Client) -> None:
    assert finished in client.get(f"/thread/{finished[-6:]}").text
    for path in (
        f"/thread/{finished}/step/9",
        f"/thread/{finished}/step/x",
        "/thread/01JK7M",
        f"/thread/{finished}/attempt/0000",
    ):
        assert client.get(path).status_code == 404


def test_a_question_stands_above_everything_with_its_options_and_the_command(
    uwf: Uwf, thread: str, client: httpx.Client
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS), check=None)
    page = client.get(f"/thread/{thread}")
    said = text_of(page)
    assert "writer asks Which \\x1b[31mcolour\\u202e?" in said and "red blue" in said
    assert f"uwf thread answer {thread} -m 1" in said


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ([], ["idle", "writer is next", "Nothing was stepped yet", "uwf thread step ID"]),
        ([("step", "ID")], ["All of this is made up: 1 step by uwf-rehearse"]),
        (
            [("run", "ID", "--agent", "SCRIPT"), ("budget", "ID", "--max-steps", "2")],
            ["completed", "It is done", "uwf thread fork ID --from-role critic"],
        ),
        (
            [("pause", "ID", "-m", "<b>Lunch</b>")],
            ["Paused by Ada Example", "<b>Lunch</b>", "uwf thread resume ID"],
        ),
        (
            [("kill", "ID", "--reason", "superseded")],
            ["killed", "It was ended", "superseded", "uwf thread fork ID"],
        ),
        (
            [("step", "ID", "--agent", "false")],
            ["failed", "Its last attempt failed", "uwf thread step ID", "failed attempt"],
        ),
    ],
)
def test_each_state_says_what_is_the_case_and_what_to_do(
    uwf: Uwf, thread: str, client: httpx.Client, does: list[tuple[str, ...]], said: list[str]
) -> None:
    script = scripted(REJECTS_ONCE)
    for words in does:
        uwf("thread", *(word.replace("ID", thread).replace("SCRIPT", script) for word in words), check=None)
    shown = text_of(client.get(f"/thread/{thread}"))
    for each in said:
        assert each.replace("ID", thread) in shown


def test_a_budget_that_is_used_up_says_how_to_raise_it(uwf: Uwf, thread: str, client: httpx.Client) -> None:
    limited = uwf("thread", "start", "pair", "-p", "Do it", "--max-steps", "1").json["thread"]
    uwf("thread", "run", limited, "--agent", scripted(REJECTS_ONCE), check=None)
    shown = text_of(client.get(f"/thread/{limited}"))
    assert "It waits for you: maxSteps is used up, 1 of 1 step" in shown
    assert f"uwf thread budget {limited} --max-steps +1" in shown


def test_what_failed_stands_apart_from_steps_at_its_place(
    uwf: Uwf, thread: str, serve: Serve, browser_page: Page
) -> None:
    script = scripted(REJECTS_ONCE)
    uwf("thread", "step", thread, "--agent", script)
    uwf("thread", "step", thread, "--agent", "sh -c 'echo half; echo broken >&2; exit 3'", check=None)
    uwf("thread", "step", thread, "--agent", """uwf-exec echo '{"approved": true}'""")
    serving = serve(thread)
    browser_page.goto(serving.launch)
    rows = browser_page.locator("#timeline > li")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("failed attempt:")
    rows.nth(1).get_by_role("link").first.click()
    expect(browser_page.get_by_role("heading", level=2, name="Failed attempt 1: critic")).to_be_visible()
    expect(browser_page.get_by_role("region", name="The end of stderr")).to_contain_text("broken")
    browser_page.goto(f"{serving.address}/thread/{thread}/step/2")
    expect(
        browser_page.get_by_role("region", name="Failed attempts before it").get_by_role("link")
    ).to_have_count(1)


def test_a_damaged_thread_has_a_page(uwf: Uwf, finished: str, client: httpx.Client, root: Path) -> None:
    loose(root / "store.git", f"refs/uwf/archive/{finished}^{{commit}}").unlink()
    (root / "store.git" / "uwf" / "index.db").unlink()
    shown = text_of(client.get(f"/thread/{finished}"))
    assert "corrupt" in shown and "It cannot be read" in shown and "uwf doctor --fix" in shown


def test_what_can_be_read_of_a_damaged_thread_is_shown(
    uwf: Uwf, finished: str, client: httpx.Client, root: Path
) -> None:
    instance = opened()
    history = instance.threads.history(instance.threads.head(ThreadId(finished)))
    lost = instance.store.get(history.steps[1].hash).payload["output"]
    loose(root / "store.git", str(instance.store.blob_of(lost))).unlink()
    shown = text_of(client.get(f"/thread/{finished}"))
    assert "Part of it cannot be read" in shown and "second" in shown and "uwf doctor --fix" in shown


def test_a_folded_thread_reads_as_any_other(uwf: Uwf, finished: str, client: httpx.Client) -> None:
    uwf("gc", "--fold-before", "9999-01-01")
    shown = text_of(client.get(f"/thread/{finished}"))
    assert "folded into refs/uwf/folded/" in shown and "not approved" in shown
    assert "Step 3" in text_of(client.get(f"/thread/{finished}/step/3"))


def test_forks_children_and_other_sides_stand_in_a_tree(
    uwf: Uwf, finished: str, client: httpx.Client
) -> None:
    fork = uwf("thread", "fork", finished, "--at", "2").json["thread"]
    again = uwf("thread", "fork", fork, "--at", "1").json["thread"]
    instance = opened()
    rows = {
        row.number: row for row in ancestry(instance.store, instance.threads.head(ThreadId(finished)).commit)
    }
    side = new_thread_id()
    instance.threads.part(ThreadId(finished), side, Oid(raw=rows[3].oid), Oid(raw=rows[4].oid))
    for each in (finished, fork, again, side):
        page = client.get(f"/thread/{each}")
        shown = text_of(page)
        tree = shown[shown.index("Threads around it") :]
        assert tree.index("forked after step 2") < tree.index("forked after step 1") and "this thread" in tree
        others = {finished, fork, again, side} - {each}
        assert all(f"/diff/{each}/{other}" in page.text for other in others)
    assert f"the other side of a divergence from {finished}" in text_of(client.get(f"/thread/{side}"))
    assert f"The other side: {side}" in text_of(client.get(f"/thread/{finished}"))


def test_a_text_of_several_lines_is_set_as_a_machine_prints_it_and_fits_a_telephone(
    uwf: Uwf, thread: str, serve: Serve, browser_page: Page
) -> None:
    trace = "Traceback (most recent call last):\n" + '  File "calc.py", line 7, in total\n' * 9 + "x" * 200
    uwf(
        "thread",
        "step",
        thread,
        "--agent",
        scripted(f"- {json.dumps({'role': 'writer', 'output': {'text': trace}})}"),
    )
    serving = serve(thread)
    browser_page.set_viewport_size({"width": 375, "height": 700})
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/thread/{thread}/step/1")
    text = browser_page.get_by_role("region", name="Output").get_by_text("Traceback")
    style = "e => [getComputedStyle(e).fontFamily, e.getBoundingClientRect().width, e.scrollWidth - e.clientWidth]"
    family, width, hidden = text.evaluate(style)
    assert "monospace" in family and width > 300 and hidden <= 0
    keep_picture(browser_page, "trace")


def test_a_sub_workflow_is_linked_both_ways(uwf: Uwf, client: httpx.Client) -> None:
    uwf("workflow", "put", write("one.yaml", ONE))
    thread = uwf("thread", "start", write("outer.yaml", OUTER), "-p", "Do it").json["thread"]
    uwf("thread", "step", thread, "--agent", "uwf-workflow one")
    child = next(each["thread"] for each in uwf("thread", "list", "--all").json if each["thread"] != thread)
    above, below = client.get(f"/thread/{thread}"), client.get(f"/thread/{child}")
    assert "did step 1" in text_of(above) and f"/thread/{child}" in above.text
    assert f"It does a step of {thread}" in text_of(below)
    assert f"A sub-workflow did it: thread {child}" in text_of(client.get(f"/thread/{thread}/step/1"))


def test_a_running_thread_says_who_is_at_work(
    uwf: Uwf, thread: str, client: httpx.Client, tmp_path: Path
) -> None:
    mark = tmp_path / "began"
    agent = f"uwf-exec sh -c 'echo looking around >&2; echo yes >{mark}; sleep 60'"
    running = begin("thread", "step", thread, "--agent", agent)
    try:
        wait_for(mark)
        deadline = time.monotonic() + 20
        while "looking around" not in (page := client.get(f"/thread/{thread}")).text:
            assert time.monotonic() < deadline
        assert "writer , step 1, uwf-exec" in text_of(page).replace("writer,", "writer ,")
        assert f'data-events="/thread/{thread}/events"' in page.text
    finally:
        running.terminate()
        running.communicate(timeout=20)


def test_a_crews_run_shows_what_it_has_reached(instance: Instance, client: httpx.Client) -> None:
    thread = begin_crew(instance)
    shown = text_of(client.get(f"/thread/{thread}"))
    assert "What the run has reached" in shown and "currentNodeId" in shown


def test_a_long_thread_shows_its_newest_steps_and_older_ones_by_a_link(
    instance: Instance, client: httpx.Client
) -> None:
    thread = spent.start(instance)
    for _ in range(53):
        spent.step(instance, thread)
    page = client.get(f"/thread/{thread}")
    assert 'id="step-53"' in page.text and 'id="step-4"' in page.text and 'id="step-3"' not in page.text
    older = client.get(f"/thread/{thread}?before=4")
    assert 'id="step-3"' in older.text and 'id="step-4"' not in older.text and "Newer: 50 steps" in older.text
    assert f'/thread/{thread}?before=4"' in page.text
    assert client.get(f"/thread/{thread}?before=x").status_code == 400


EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m![x](http://evil.example/x.png)"


def forged(instance: Instance, texts: str, many: int = 1) -> ThreadId:
    """A thread every field of which holds a text, and whose steps have `many` turns."""
    thread = spent.start(instance)
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    deep: Any = texts
    for _ in range(60):
        deep = {texts[:20]: [deep]}
    turn = instance.store.put(
        TURN,
        {"role": "tool", "text": texts, "tool": texts, "arguments": deep, "result": texts, "failed": True},
    )
    how = spent.detail(
        instance,
        answer=texts,
        session=texts,
        model=texts,
        instruction=texts,
        notes=[texts],
        extraction=f"model:{texts}",
    )
    how = instance.store.put(
        instance.store.get(how).type, {**instance.store.get(how).payload, "turns": [turn] * many}
    )
    output = instance.store.put(history.workflow.roles["writer"].schema, {"text": texts, texts[:50]: deep})
    made = Step(history.start_hash, None, "writer", output, how, texts)
    instance.threads.append(head, instance.store.put(STEPNODE, made.payload()), set(), (), "native")
    failed = Attempt(history.start_hash, None, "writer", texts, texts, how, texts, texts)
    instance.attempts.record(instance.threads.head(thread), failed)
    return thread


def test_text_of_others_is_text_in_every_field(instance: Instance, serve: Serve, browser_page: Page) -> None:
    thread = forged(instance, EVIL)
    attempt = instance.attempts.all(thread)[0].hash
    serving = serve()
    browser_page.goto(serving.launch)
    asked: list[str] = []
    browser_page.on("request", lambda request: asked.append(request.url))
    browser_page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    for path in ("", "/step/1?tab=all", f"/attempt/{attempt}?tab=all"):
        browser_page.goto(f"{serving.address}/thread/{thread}{path}")
        browser_page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        expect(browser_page.get_by_text("<script>alert(1)</script>").first).to_be_visible()
        content = browser_page.content()
        assert "\u202e" not in content and "\x1b" not in content
        assert browser_page.locator("main script, main img, main [onerror]").count() == 0
    assert all(url.startswith(serving.address) for url in asked)


@pytest.mark.extended
def test_a_thread_of_any_size_is_shown_in_part(instance: Instance, client: httpx.Client) -> None:
    thread = forged(instance, "word " * 450_000, 450)
    attempt = instance.attempts.all(thread)[0].hash
    for path in (
        "",
        "/step/1?tab=all",
        "/step/1?turns=200",
        "/step/1?whole=raw",
        f"/attempt/{attempt}?tab=all",
    ):
        shown = client.get(f"/thread/{thread}{path}")
        assert shown.status_code == 200 and len(shown.content) < 3_000_000
    assert "Show more of it" in text_of(client.get(f"/thread/{thread}/step/1"))
