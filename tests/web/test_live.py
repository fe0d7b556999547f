"""What is live: pages that are asked for again, the stream of a thread, and both in a browser."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import one_role
import pytest
from cli_samples import ASKS, REJECTS_ONCE, scripted, write
from commands import begin
from conftest import Uwf
from one_role import SPEAKER, tell
from playwright.sync_api import Page, Route, expect
from site_serving import Serve, keep_picture
from starlette.requests import Request

from uwf_git.engine import watching
from uwf_git.engine.watching import Event as Happening
from uwf_git.engine.watching import LinesPrinted, TurnFeed
from uwf_git.ext.web import events as page_events
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.extended

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
def spoken(instance: Instance, script: Callable[[str, str], Path]) -> Iterator[str]:
    """A thread whose step is made by a speaker, who waits to be told."""
    thread = one_role.start(instance, SCHEMA)
    process = begin("thread", "step", thread, "--agent", script("speaker", SPEAKER))
    while not instance.locks.is_held(thread):
        assert process.poll() is None
    yield thread
    process.terminate()  # killed it would leave its agent behind
    process.communicate()


class Event(NamedTuple):
    kind: str
    id: str
    data: dict[str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream; the empty one at its beginning is left out."""
    said: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            said[name] = value
        elif "event" in said:
            yield Event(said["event"], said.get("id", ""), json.loads(said["data"]))
            said = {}


def test_a_page_is_not_made_again_until_something_has_changed(
    client: httpx.Client, uwf: Uwf, thread: str
) -> None:
    for path in ("/", "/threads?tab=done", f"/thread/{thread}"):
        tag = ""
        # What changed a moment ago may do so again unseen, so the tag rests only then.
        while tag != (tag := client.get(path).headers["etag"]):
            pass
        known = {"If-None-Match": tag}
        assert client.get(path, headers=known).status_code == 304
        assert client.get(path, headers={**known, "Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert client.get("/threads?tab=all", headers=known).status_code == 200
        uwf("thread", "pause", thread)
        assert client.get(path, headers=known).status_code == 200
        uwf("thread", "resume", thread)


def test_a_stream_tells_what_happens_and_goes_on_where_it_was(client: httpx.Client, spoken: str) -> None:
    address = f"/thread/{spoken}/events"
    with client.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        heard = events(answer.iter_lines())
        began = next(heard)
        assert (began.kind, began.data["role"], began.data["step"]) == ("began", "worker", 1)
        tell(1, "words", "I lo")
        assert next(heard).data["text"] == "I lo"
        tell(2, "words", "ok <b>.")
        assert next(heard).data["text"] == "ok <b>."
        tell(3, "turn")
        turned = next(heard)
        assert (turned.kind, turned.id) == ("turn", "1.1") and "I look &lt;b&gt;." in turned.data["html"]
    tell(4, "turn", "a tool")
    with client.stream("GET", address, headers={"Last-Event-ID": "1.1"}) as answer:
        heard = events(answer.iter_lines())
        assert [next(heard).kind, next(heard).id] == ["began", "1.2"]
        tell(5, "words", "No")
        assert next(heard).data["text"] == "No"
        tell(6, "drop")
        assert next(heard).kind == "dropped"
        tell(7, "end")
        assert [(each.kind, each.id) for each in heard] == [("step", "2.0"), ("rest", "")]
    for last in ("2.0", ""):
        assert client.get(address, headers={"Last-Event-ID": last}).status_code == 204
    # Who was away at the end is told of it.
    with client.stream("GET", address, headers={"Last-Event-ID": "1.1"}) as answer:
        assert [each.id for each in events(answer.iter_lines())] == ["1.2", "2.0", ""]
    assert client.get("/thread/01ZZZZZZZZZZZZZZZZZZZZZZZZ/events").status_code == 404


def test_there_is_an_end_to_the_number_of_streams(client: httpx.Client, spoken: str) -> None:
    with httpx.Client(base_url=client.base_url, cookies=client.cookies, trust_env=False) as other:
        from contextlib import ExitStack

        with ExitStack() as stack:
            for _ in range(32):
                answer = stack.enter_context(client.stream("GET", f"/thread/{spoken}/events"))
                assert answer.status_code == 200
            refused = other.get(f"/thread/{spoken}/events")
            assert refused.status_code == 503 and refused.headers["retry-after"]
        # Those that were closed make room.
        while other.get("/").status_code == 200:
            with other.stream("GET", f"/thread/{spoken}/events") as answer:
                if answer.status_code == 200:
                    break


def test_turns_come_into_an_open_page_and_what_is_read_stays_where_it_is(
    serve: Serve, browser_page: Page, spoken: str
) -> None:
    browser_page.set_viewport_size({"width": 900, "height": 400})
    browser_page.goto(serve(spoken).launch)
    turns = browser_page.get_by_label("Turns of the step that is being made")
    expect(browser_page.get_by_role("group", name="The graph")).to_be_attached()
    tell(1, "words", "I lo")
    expect(turns).to_contain_text("I lo")
    tell(2, "words", "ok <b>at</b> it.")
    expect(turns).to_contain_text("I look <b>at</b> it.")
    tell(3, "turn")
    expect(turns.locator("[data-turn='1.1']")).to_contain_text("I look")
    expect(turns.locator("li")).to_have_count(1)
    tell(4, "words", "No, no.")
    expect(turns).to_contain_text("No, no.")
    tell(5, "drop")
    expect(turns).not_to_contain_text("No, no.")
    tell(6, "turn", "a tool")
    expect(turns.locator("[data-turn='1.2']")).to_be_visible()
    keep_picture(browser_page, "live")
    steps = browser_page.get_by_role("heading", name="Steps", exact=True)
    steps.scroll_into_view_if_needed()
    place = steps.bounding_box()
    tell(7, "end")
    expect(browser_page.locator("[aria-live]")).to_have_text("Step 1 is finished")
    expect(browser_page.locator("#step-1")).to_contain_text("worker")
    expect(turns.locator("li").last).to_have_text("Step 1 is finished: done")
    news = browser_page.get_by_role("button", name="It is done — show")
    expect(news).to_be_visible()
    expect(browser_page.locator("[data-status] .badge")).to_have_text("completed")
    now = steps.bounding_box()
    assert now and place and abs(now["y"] - place["y"]) < 1
    news.focus()
    browser_page.keyboard.press("Enter")
    expect(browser_page.locator("main")).to_be_focused()
    expect(browser_page.locator("#step-1")).to_have_count(1)
    expect(news).to_be_hidden()
    expect(turns).to_have_count(0)


PRINTS = """\
import time
from pathlib import Path
def wait(name):
    while not Path(name).exists():
        time.sleep(0.02)
print("\\x1b[32mcollected\\x1b[0m 2 items, key is s3cr3t-value-0815", flush=True)
wait("more")
print("progress 1 %\\rprogress 100 %\\n\\x1b[31mtest_b FAILED\\x1b[0m\\nhalf a li", end="", flush=True)
wait("end")
raise SystemExit(1)
"""


@pytest.fixture
def printing(instance: Instance, root: Path) -> Iterator[str]:
    """A thread whose step is made by a command that prints, and waits for the files `more` and `end`."""
    (root / ".env").write_text("THEIR_KEY=s3cr3t-value-0815\n")
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    thread = one_role.start(instance, schema)
    write("prints.py", PRINTS)
    process = begin("thread", "step", thread, "--agent", f"uwf-exec {sys.executable} prints.py")
    while not instance.locks.is_held(thread):
        assert process.poll() is None
    yield thread
    process.terminate()
    process.communicate()


def test_a_stream_tells_what_a_command_prints_without_secrets(client: httpx.Client, printing: str) -> None:
    address = f"/thread/{printing}/events"
    with client.stream("GET", address) as answer:
        heard = events(answer.iter_lines())
        assert next(heard).kind == "began"
        first = next(heard)
        assert (first.kind, first.data["made"]) == ("printed", 1)
        assert first.data["text"] == "collected 2 items, key is [redacted:THEIR_KEY]\n"
        write("more", "")
        more = next(heard).data
        assert more["text"] == "progress 100 %\ntest_b FAILED\n"
        assert more["html"] == 'progress 100 %\n<span class="f1">test_b FAILED</span>\n'
    with client.stream("GET", address) as answer:
        heard = events(answer.iter_lines())
        assert [next(heard).kind, next(heard).data["text"].count("\n")] == ["began", 3]
        write("end", "")
        assert [each.kind for each in heard] == ["turn", "step", "rest"]


def test_what_is_printed_while_a_page_is_told_of_the_lines_before_is_not_waited_for(
    instance: Instance, printing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_events, "_TICK", 3600.0)
    lines = instance.store.repository.private / "runs" / f"{printing}.printed"

    class Feed(TurnFeed):
        def news(self) -> list[Happening]:
            news = super().news()
            if any(isinstance(event, LinesPrinted) for event in news) and not Path("more").exists():
                write("more", "")
                while b"FAILED" not in lines.read_bytes():
                    time.sleep(0.01)
            return news

    async def read() -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if b"FAILED" in message.get("body", b""):
                gone.set()

        own = Instance(instance.location)
        monkeypatch.setattr(watching, "TurnFeed", Feed)
        watcher = page_events.Watcher(own, ThreadId(printing), own.store.index.close)
        feed = watcher.follow(None, stack := ExitStack())
        stream = page_events._Stream(watcher.end, watcher, feed, await page_events._begin(feed))
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 60)
        assert gone.is_set()
        stack.close()

    with ThreadPoolExecutor(1) as beside:  # a browser's loop may run here
        beside.submit(lambda: asyncio.run(read())).result()


def test_streams_of_a_thread_share_one_watcher_which_ends_with_the_last(
    instance: Instance, printing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[watching.TurnFeed]()

    class Feed(TurnFeed):
        def news(self) -> list[Happening]:
            read.append(self)
            return super().news()

    monkeypatch.setattr(watching, "TurnFeed", Feed)
    closed, texts = list[bool](), dict[int, str]()

    @contextmanager
    def opened() -> Iterator[Instance]:
        own = Instance(instance.location)
        yield own
        own.store.index.close()
        closed.append(True)

    async def listen(streams: page_events.Streams, number: int, gone: asyncio.Event) -> None:
        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            texts[number] = texts.get(number, "") + message.get("body", b"").decode()

        scope = {"type": "http", "path_params": {"id": printing}, "query_string": b"", "headers": []}
        await (await streams.answer(Request(scope)))(scope, receive, send)

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.02)

    async def read_all() -> None:
        streams, gone = page_events.Streams(opened), [asyncio.Event() for _ in range(3)]
        listening = [asyncio.create_task(listen(streams, n, event)) for n, event in enumerate(gone)]
        await until(lambda: sum("collected" in text for text in texts.values()) == 3)
        (watcher,) = streams._watchers.values()
        assert (watcher.streams, len(closed)) == (3, 2)  # two stores were opened to find the thread
        looks, look = list[int](), watcher._signature

        def looked(threads: Iterable[ThreadId]) -> object:
            looks.append(len(read))
            return look(threads)

        monkeypatch.setattr(watcher, "_signature", looked)
        await until(
            lambda: len(looks) > 5 and looks[-5] == looks[-1]
        )  # in silence it looks, and none of them reads
        gone[0].set()
        await listening[0]
        write("more", "")
        await until(lambda: all("FAILED" in texts[number] for number in (1, 2)))
        assert "FAILED" not in texts[0] and watcher.streams == 2 and len(closed) == 2
        for event in gone[1:]:
            event.set()
        await asyncio.gather(*listening)
        assert not streams._watchers and len(closed) == 3
        await until(watcher._looking.done)

    with ThreadPoolExecutor(1) as beside:  # a browser's loop may run here
        beside.submit(lambda: asyncio.run(read_all())).result()


def test_of_a_long_output_a_stream_tells_the_end(
    instance: Instance, client: httpx.Client, root: Path
) -> None:
    key = "\n".join(
        [
            "-----BEGIN PRIVATE KEY-----",
            *("S3CR3T" + "k" * 58 for _ in range(20)),
            "-----END PRIVATE KEY-----",
        ]
    )
    write("prints.py", f"for n in range(2000): print('a rather long line', n, {key!r}, sep='\\n')\n")
    thread = one_role.start(instance, {"type": "object"})
    wait = f"{sys.executable} prints.py; touch all; until [ -e end ]; do sleep 0.02; done"
    process = begin("thread", "step", thread, "--agent", f"uwf-exec --stdin none sh -c '{wait}'")
    try:
        while not Path("all").exists():
            assert process.poll() is None
        said = ""
        while "\n1999\n" not in said:
            with client.stream("GET", f"/thread/{thread}/events") as answer:
                heard = events(answer.iter_lines())
                said = next(each for each in heard if each.kind == "printed").data["text"]
        assert said.startswith("[…]\n") and "\n1990\n" in said and "\n100\n" not in said
        assert "S3CR3T" not in said
        write("end", "")
        assert process.wait(60) == 0
    finally:
        process.terminate()
        process.communicate()


def test_an_agent_that_says_nothing_for_minutes_is_seen_to_be_silent(
    serve: Serve, browser_page: Page, spoken: str
) -> None:
    browser_page.clock.install()
    browser_page.goto(serve(spoken).launch)
    turns = browser_page.get_by_label("Turns of the step that is being made")
    tell(1, "words", "I lo")
    expect(turns).to_contain_text("I lo")
    stall = browser_page.locator(".stall")
    expect(stall).to_be_hidden()
    browser_page.clock.fast_forward("03:10")
    expect(stall).to_have_text("silent for 3 min, waits for the model")
    expect(browser_page.get_by_role("button", name="show")).to_have_count(0)
    tell(2, "words", "ok at it.")
    expect(stall).to_be_hidden()
    tell(3, "turn")
    expect(turns.locator("[data-turn='1.1']")).to_be_attached()
    browser_page.clock.fast_forward("01:10:10")
    expect(stall).to_have_text("silent for 1 h 10 min, waits for a tool or the model")
    tell(4, "turn", "a tool")
    expect(turns.locator("[data-turn='1.2']")).to_be_attached()
    browser_page.clock.fast_forward("01:10")
    expect(stall).to_have_text("silent for 1 min, waits for the model")


def test_what_a_command_prints_comes_into_an_open_page_with_its_verdict(
    serve: Serve, browser_page: Page, printing: str
) -> None:
    browser_page.goto(serve(printing).launch)
    box = browser_page.get_by_label("Turns of the step that is being made")
    lines = box.locator("pre").first
    expect(lines).to_contain_text("collected 2 items")
    write("more", "")
    expect(lines.locator(".f1")).to_have_text("test_b FAILED")
    place = lines.bounding_box()
    write("end", "")
    expect(box.locator(".came .badge")).to_have_text("not approved")
    expect(browser_page.locator("[aria-live]")).to_have_text("Step 1 is finished: not approved")
    now = lines.bounding_box()
    assert now and place and abs(now["y"] - place["y"]) < 1 and now["height"] == place["height"]
    expect(browser_page.locator("#step-1 .badge")).to_have_text("not approved")
    expect(browser_page.get_by_role("region", name="Steps").get_by_role("listitem")).to_have_count(1)
    keep_picture(browser_page, "printed")


def test_new_steps_come_below_the_others_and_what_stands_below_them_holds_still(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    browser_page.set_viewport_size({"width": 900, "height": 320})
    serving = serve(thread, "--write", "--run")
    browser_page.goto(serving.launch)
    expect(browser_page.locator(".frame")).to_be_attached()
    below = browser_page.get_by_role("heading", name="The same in a terminal")
    script = scripted(REJECTS_ONCE)
    rows = browser_page.locator("#timeline > li")
    for number in (1, 2):
        below.evaluate("each => each.scrollIntoView()")
        place = below.bounding_box()
        assert place and place["y"] < 160
        uwf("thread", "step", thread, "--agent", script)
        expect(rows).to_have_count(number)
        now = below.bounding_box()
        assert now and abs(now["y"] - place["y"]) < 1
    uwf("thread", "step", thread, "--agent", "false", check=None)
    expect(rows.nth(2)).to_contain_text("failed attempt:")
    graph = browser_page.get_by_role("heading", name="Graph", exact=True)
    graph.scroll_into_view_if_needed()
    place = graph.bounding_box()
    again = scripted("- { role: writer, output: { text: second } }\n" * 4, "again.yaml")
    uwf("thread", "step", thread, "--agent", again)
    expect(rows.nth(3)).to_contain_text("writer")
    now = graph.bounding_box()
    assert now and place and abs(now["y"] - place["y"]) < 1
    expect(rows.nth(3)).to_have_class(re.compile("fresh"))
    # What the page does now goes on from the step that it shows.
    fork = browser_page.locator("form[action$='/fork']")
    browser_page.locator("#menu > summary").click()
    browser_page.locator("summary", has_text="Fork").click()
    expect(fork.get_by_label("After step")).to_have_value("3")
    head = browser_page.locator("form[action$='/run'] input[name=head]")
    expect(head).to_have_value(uwf("thread", "show", thread).json["head"])


def test_a_hidden_page_asks_for_nothing_and_goes_on_once_it_is_seen(
    serve: Serve, browser_page: Page, spoken: str
) -> None:
    asked: list[str] = []
    ended: list[str] = []
    browser_page.on("request", lambda request: asked.append(request.url))
    for kind in ("requestfinished", "requestfailed"):
        browser_page.on(kind, lambda request: ended.append(request.url))
    browser_page.add_init_script(
        "Object.defineProperty(document, 'hidden', {get: () => window.isHidden ?? false});"
        "window.hide = (hidden) => { window.isHidden = hidden;"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    browser_page.goto(serve(spoken).launch)
    turns = browser_page.get_by_label("Turns of the step that is being made")
    tell(1, "words", "One.")
    tell(2, "turn")
    expect(turns.locator('[data-turn="1.1"]')).to_have_count(1)
    # The graph loads what lays it out by itself.
    expect(browser_page.locator("#graph button").first).to_be_visible()
    with browser_page.expect_event("requestfailed", lambda request: "/events" in request.url):
        browser_page.evaluate("hide(true)")
    before = len(asked)
    tell(3, "words", "Two.")
    tell(4, "turn")
    tell(5, "words", "Three")
    browser_page.wait_for_timeout(2500)
    assert asked[before:] == []
    expect(turns).not_to_contain_text("Two.")
    browser_page.evaluate("hide(false)")
    expect(turns).to_contain_text("Three")
    assert [each.partition("?")[2] for each in asked[before:] if "/events" in each] == ["after=1.1"]
    assert turns.locator("li").all_inner_texts()[1:] == ["assistant\n\nTwo.", "assistant\n\nThree"]


def test_new_threads_are_counted_and_what_was_opened_and_typed_stays(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    browser_page.goto(serve().launch.replace("/?", "/threads?tab=all&"))
    browser_page.get_by_label("Filter").fill("something")
    first = browser_page.get_by_role("link", name="Do it")
    place = first.bounding_box()
    uwf("thread", "start", "pair", "-p", "Another")
    news = browser_page.get_by_role("button", name="1 new thread — show")
    expect(news).to_be_visible()
    expect(browser_page.locator(".tabs a[aria-current] .count")).to_have_text("2")
    assert first.bounding_box() == place
    expect(browser_page.get_by_role("link", name="Another")).to_have_count(0)
    news.click()
    expect(browser_page.get_by_role("link", name="Another")).to_be_visible()
    expect(browser_page.get_by_label("Filter")).to_have_value("something")


def test_rows_that_were_loaded_on_stay_when_the_list_changes(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    write("tasks", "".join(f'"Task {number}"\n' for number in range(130)))
    uwf("thread", "start", "pair", "--each", "tasks")
    browser_page.goto(serve().launch.replace("/?", "/threads?tab=all&"))
    rows = browser_page.locator("tbody[data-rows] > tr")
    expect(rows).to_have_count(100)
    browser_page.get_by_role("link", name="Older").scroll_into_view_if_needed()
    expect(rows).to_have_count(131)
    expect(browser_page.get_by_role("link", name="Older")).to_be_hidden()
    last = rows.last.get_attribute("id")
    uwf("thread", "start", "pair", "-p", "Another")
    browser_page.evaluate("scrollTo(0, 0)")
    browser_page.get_by_role("button", name="1 new thread — show").click()
    expect(browser_page.get_by_role("link", name="Another")).to_be_visible()
    expect(browser_page.locator(f"#{last}")).to_have_count(1)
    expect(browser_page.get_by_role("link", name="Older")).to_be_hidden()


def test_the_graph_is_drawn_with_what_was_taken(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "run", thread)
    browser_page.goto(serve(thread).launch)
    graph = browser_page.get_by_role("group", name="The graph of pair")
    graph.scroll_into_view_if_needed()
    steps = uwf("thread", "steps", thread).json
    for role in {step["role"] for step in steps}:
        times = sum(step["role"] == role for step in steps)
        node = graph.get_by_role("link", name=f"{role}: {times}×")
        expect(node).to_be_visible()
    assert graph.locator(".way.was").count() >= 2
    width = int(graph.get_attribute("width") or 0)
    browser_page.get_by_role("button", name="Larger").click()
    assert int(graph.get_attribute("width") or 0) > width
    browser_page.get_by_role("region", name="Graph; plus").press("-")
    assert int(graph.get_attribute("width") or 0) == width
    keep_picture(browser_page, "graph")
    node.press("Enter")
    expect(browser_page).to_have_url(re.compile(r"/step/\d+$"))


def _chain(roles: int) -> str:
    """A workflow of roles one after another, and a way back from the last to the first."""
    names = [f"role{number}" for number in range(roles)]
    after = [
        *([{"role": each}] for each in names[1:]),
        [{"role": names[0], "condition": "back"}, {"role": "$END"}],
    ]
    role = {"description": "One.", "systemPrompt": "Do.", "outputSchema": {"type": "object"}}
    source = {
        "name": f"chain-{roles}",
        "description": "One after another.",
        "roles": dict.fromkeys(names, role),
        "conditions": {"back": {"description": "Back", "expression": "$count(steps) > 9000"}},
        "graph": {"$START": [{"role": names[0]}], **dict(zip(names, after, strict=True))},
    }
    return json.dumps(source)


_FITS = """frame => frame.scrollHeight <= frame.clientHeight && frame.scrollWidth <= frame.clientWidth
  && [...frame.querySelectorAll('.node')].every(node => {
    const inside = node.getBoundingClientRect(), around = frame.getBoundingClientRect();
    return inside.top >= around.top && inside.bottom <= around.bottom;
  })"""


@pytest.mark.parametrize(("roles", "width", "height"), [(2, 1280, 800), (8, 1280, 800), (6, 375, 700)])
def test_the_graph_is_drawn_into_the_room_that_is_kept_for_it_and_fits_there(
    serve: Serve, browser_page: Page, uwf: Uwf, roles: int, width: int, height: int
) -> None:
    uwf("workflow", "put", write("chain.yaml", _chain(roles)))
    thread = uwf("thread", "start", f"chain-{roles}", "-p", "Do it").json["thread"]
    browser_page.set_viewport_size({"width": width, "height": height})
    held: list[Route] = []
    browser_page.route("**/static/*/graph.js", lambda route: held.append(route))
    with browser_page.expect_request("**/static/*/graph.js"):
        browser_page.goto(serve(thread).launch)
    below = browser_page.get_by_role("heading", name="Steps", exact=True)
    place = below.bounding_box()
    held[0].continue_()
    frame = browser_page.get_by_role("region", name="Graph; plus")
    expect(frame).to_be_attached()
    assert below.bounding_box() == place
    assert frame.evaluate(_FITS)
    for _ in range(4):
        browser_page.get_by_role("button", name="Larger").click()
    assert not frame.evaluate(_FITS)
    browser_page.get_by_role("button", name="Fit").click()
    assert frame.evaluate(_FITS)


def test_a_role_is_next_in_the_graph_until_it_is_at_work(
    serve: Serve, browser_page: Page, spoken: str, uwf: Uwf
) -> None:
    fork = uwf("thread", "fork", spoken).json["thread"]
    serving = serve(fork)
    browser_page.goto(serving.launch)
    graph = browser_page.get_by_role("group", name="The graph")
    expect(graph.locator(".under")).to_have_text("next")
    browser_page.get_by_text("transitions as a list").click()
    expect(browser_page.get_by_role("row", name="start worker")).to_contain_text("(next)")
    browser_page.goto(f"{serving.address}/thread/{spoken}")
    expect(graph.locator(".under")).to_have_text("now")
    tell(1, "end")
    expect(browser_page.locator("[data-status] .badge")).to_have_text("completed")
    expect(graph.locator(".under")).to_have_text("1×")


def test_a_page_answers_while_a_graph_of_200_roles_is_laid_out(
    serve: Serve, browser_page: Page, uwf: Uwf
) -> None:
    names = [f"r{number}" for number in range(200)]
    source = {
        "name": "wide",
        "description": "Many.",
        "roles": {
            each: {"description": "One.", "systemPrompt": "Do.", "outputSchema": {"type": "object"}}
            for each in names
        },
        "conditions": {"back": {"description": "Back", "expression": "$count(steps) > 9000"}},
        "graph": {
            "$START": [{"role": "r0"}],
            **{
                each: [{"role": names[number // 2], "condition": "back"}, {"role": after}]
                for number, (each, after) in enumerate(zip(names, [*names[1:], "$END"], strict=True))
            },
        },
    }
    uwf("workflow", "put", write("wide.yaml", json.dumps(source)))
    thread = uwf("thread", "start", "wide", "-p", "Do it").json["thread"]
    site = serve(thread)
    with browser_page.expect_worker():
        browser_page.goto(site.launch)
    browser_page.get_by_text("transitions as a list").click()
    expect(browser_page.get_by_role("row", name="r199 back r99")).to_be_hidden()
    graph = browser_page.get_by_role("group", name="The graph of wide")
    expect(graph.locator(".node")).to_have_count(202, timeout=60_000)
    browser_page.get_by_role("region", name="Graph; plus").scroll_into_view_if_needed()
    expect(graph.locator(".node.now")).to_be_in_viewport()


def test_the_box_holds_still_where_it_is_read_while_words_become_a_turn(
    serve: Serve, browser_page: Page, spoken: str
) -> None:
    browser_page.goto(serve(spoken).launch)
    turns = browser_page.get_by_label("Turns of the step that is being made")
    tell(
        1,
        "words",
        "---\ntext: so\n---\n" + "\n\n".join(f"Paragraph {number} of many." for number in range(60)),
    )
    expect(turns).to_contain_text("Paragraph 59")
    for place, number in ((0, 2), (400, 4)):
        turns.evaluate("(box, place) => { box.scrollTop = place; }", place)
        tell(number, "turn")
        expect(turns.locator("[data-turn]")).to_have_count(number // 2)
        assert turns.evaluate("box => box.scrollTop") == place
        tell(number + 1, "words", "And so on. " * 2000)
        expect(turns.locator(".saying")).to_contain_text("And so on.")
        assert turns.evaluate("box => box.scrollTop") == place
    expect(browser_page.get_by_role("button", name="2 new turns")).to_be_visible()
    # Its fields aren't a heading.
    expect(turns.locator("[data-turn='1.1'] pre")).to_have_text("text: so")
    expect(turns.get_by_role("heading")).to_have_count(0)


def test_a_page_says_that_nothing_new_can_come_and_why(
    serve: Serve, page: Page, uwf: Uwf, spoken: str
) -> None:
    with socket.socket() as free:  # not the usual port, which the server of another test may take meanwhile
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    serving = serve(spoken, "--port", port)
    page.goto(serving.launch)  # which says in its console that it can't connect
    said = page.get_by_role("status")
    since = page.locator("[data-place=doing] [data-since]")
    expect(since).to_be_visible()
    expect(said).to_be_empty()
    serving.process.terminate()
    serving.process.wait()
    expect(said).to_contain_text("No connection since", timeout=20_000)
    stood = since.text_content()
    page.wait_for_timeout(2500)
    assert since.text_content() == stood
    anew = serve(spoken, "--port", port)
    expect(said).to_contain_text("started anew", timeout=20_000)
    other = page.context.new_page()
    other.goto(anew.launch)
    expect(said).to_be_empty(timeout=20_000)
    tell(1, "words", "Still there.")
    expect(page.get_by_label("Turns of the step")).to_contain_text("Still there.")
    tell(2, "end")
    expect(page.locator("[data-status] .badge")).to_have_text("completed")
    uwf("thread", "rm", spoken, "--yes")
    expect(said).to_have_text("This thread was removed.", timeout=20_000)


def test_the_top_of_a_page_says_what_its_badge_says(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str, script: Callable[[str, str], Path]
) -> None:
    browser_page.goto(serve(thread, "--write", "--run").launch)
    top = browser_page.locator("[data-status]")
    begin_it = browser_page.get_by_role("button", name="Run", exact=True)
    expect(browser_page.get_by_text("No agent is working on it.")).to_be_visible()
    expect(begin_it).to_be_enabled()
    process = begin("thread", "step", thread, "--agent", script("speaker", SPEAKER))
    try:
        expect(top.locator(".badge")).to_have_text("running")
        expect(browser_page.get_by_text("No agent is working on it.")).to_have_count(0)
        expect(browser_page.locator("[data-place=doing]")).to_contain_text("writer, step 1")
        expect(begin_it).to_be_disabled()
        browser_page.get_by_role("button", name="An agent is working on it — show").click()
        expect(browser_page.get_by_role("heading", name="At work", exact=True)).to_be_visible()
        tell(1, "end")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    expect(top.locator(".badge")).to_have_text("idle")
    expect(top).to_contain_text("1 step ")
    expect(browser_page.get_by_role("heading", name="Was at work")).to_be_visible()
    expect(browser_page.locator(".now [data-place=doing]")).to_contain_text("No agent is working on it")
    expect(browser_page.get_by_text("Nothing was stepped yet.")).to_have_count(0)
    expect(browser_page.locator("#step-1")).to_contain_text("writer")
    expect(browser_page.get_by_role("button", name="No agent is working on it — show")).to_be_visible()


def test_a_thread_that_leaves_its_tab_says_where_it_is(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "pause", thread)
    browser_page.goto(serve().launch.replace("/?", "/threads?tab=waiting&"))
    row = browser_page.locator(f"#t-{thread}")
    expect(row.locator(".state")).to_have_text("paused")
    uwf("thread", "kill", thread)
    expect(row.locator(".state")).to_have_text("killed")
    expect(browser_page.locator(".tabs a[aria-current] .count")).to_have_text("0")


def test_a_question_of_the_inbox_that_is_answered_elsewhere_says_so(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    other = uwf("thread", "fork", thread).json["thread"]
    browser_page.goto(serve("--write").launch.replace("/?", f"/?at={thread}&"))
    field = browser_page.get_by_label("Or say something else")
    field.fill("Rather a green one")
    uwf("thread", "answer", thread, "-m", "1")
    expect(browser_page.get_by_role("heading", name="This was answered")).to_be_visible()
    expect(field).to_have_value("Rather a green one")
    expect(browser_page.locator(".item button[type=submit], .item button:not([type])").first).to_be_disabled()
    browser_page.get_by_role("button", name="show").click()
    expect(browser_page.get_by_label("What you had typed")).to_have_value("Rather a green one")
    expect(browser_page.locator(f"#item-{other}")).to_be_visible()
    expect(field).to_have_value("")


def test_what_was_typed_is_neither_lost_nor_moved_into_another_field(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    browser_page.goto(serve(thread, "--write").launch)
    browser_page.get_by_label("Or say something else").fill("Rather a green one")
    browser_page.locator("#menu > summary").click()
    for name in ("Pause", "Kill"):
        browser_page.locator("summary", has_text=name).click()
    pause, kill = (
        browser_page.locator(f"form[action$='/{name}']").get_by_label("Why") for name in ("pause", "kill")
    )
    pause.fill("Lunch")
    kill.fill("Enough")
    uwf("thread", "answer", thread, "-m", "1")
    expect(browser_page.get_by_role("heading", name="This was answered")).to_be_visible()
    expect(browser_page.locator("#step-2")).to_contain_text("red")
    browser_page.get_by_role("button", name="No agent is working on it — show").click()
    expect(pause).to_have_value("Lunch")
    expect(kill).to_have_value("Enough")
    copy = browser_page.get_by_label("What you had typed")
    expect(copy).to_have_value("Rather a green one")
    uwf("thread", "pause", thread)
    browser_page.get_by_role("button", name="It is paused — show").click()
    expect(copy).to_have_count(2)
    browser_page.get_by_role("button", name="Let go of it").click()
    expect(copy).to_have_count(0)


def test_links_change_the_page_in_place_and_going_back_brings_what_was_typed(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "run", thread)
    browser_page.goto(serve(thread, "--write", "--run").launch)
    expect(browser_page.locator(".frame")).to_be_attached()
    address = browser_page.url
    browser_page.evaluate("window.stays = true")
    browser_page.locator("#menu > summary").click()
    browser_page.locator("summary", has_text="Fork").click()
    number = browser_page.get_by_label("After step")
    number.fill("1")
    browser_page.locator("#step-1").get_by_role("link").first.click()
    expect(browser_page).to_have_url(f"{address}/step/1")
    expect(browser_page).to_have_title(re.compile("^Step 1"))
    expect(browser_page.get_by_role("heading", name="Step 1")).to_be_visible()
    browser_page.get_by_role("link", name="Workflows").click()
    expect(browser_page).to_have_url(re.compile("/workflows$"))
    expect(browser_page.locator("main")).to_be_focused()
    browser_page.go_back()
    expect(browser_page.get_by_role("heading", name="Step 1")).to_be_visible()
    browser_page.go_back()
    expect(browser_page).to_have_url(address)
    expect(browser_page.locator(".frame")).to_be_attached()
    expect(number).to_have_value("1")
    assert browser_page.evaluate("window.stays")
    # What is shown is asked for again.
    uwf("workflow", "put", write("chain.yaml", _chain(2)))
    browser_page.get_by_role("link", name="Workflows").click()
    expect(browser_page.get_by_role("link", name="chain-2")).to_be_visible()
    uwf("workflow", "put", write("chain.yaml", _chain(3)))
    expect(browser_page.get_by_role("link", name="chain-3")).to_be_visible()
    assert browser_page.evaluate("window.stays")


def test_the_step_that_is_read_stays_when_a_newer_one_comes(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    script = scripted(REJECTS_ONCE)
    uwf("thread", "step", thread, "--agent", script)
    browser_page.goto(serve(thread).launch)
    chosen = browser_page.get_by_role("heading", name="Step 1: writer")
    expect(chosen).to_be_visible()
    place = chosen.bounding_box()
    uwf("thread", "step", thread, "--agent", script)
    expect(browser_page.locator("#step-2")).to_be_attached()
    expect(chosen).to_be_visible()
    expect(browser_page.locator("article.chosen")).to_have_count(1)
    assert chosen.bounding_box() == place
    browser_page.get_by_role("button", name="show").click()
    expect(browser_page.get_by_role("heading", name="Step 2: critic")).to_be_visible()
    expect(chosen).to_have_count(0)


def test_what_was_sent_is_not_kept_as_typed_and_a_second_click_sends_nothing(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    browser_page.goto(serve(thread, "--write").launch)
    sent: list[str] = []
    browser_page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    field = browser_page.get_by_label("Or say something else")
    field.fill("Rather a green one")
    field.evaluate("field => { field.form.requestSubmit(); field.form.requestSubmit(); }")
    expect(browser_page.locator("#step-2")).to_contain_text("Rather a green one")
    expect(browser_page.get_by_label("What you had typed")).to_have_count(0)
    assert len(sent) == 1


def test_keys_that_a_page_declares_press_what_has_them_also_after_it_changed(
    serve: Serve, browser_page: Page, uwf: Uwf, thread: str
) -> None:
    declare = """() => {
      const add = (html) => document.getElementById("content").insertAdjacentHTML("beforeend", html);
      add('<ul data-rows data-live-own id="list"><li><input type="checkbox"> <a href="#a">One</a></li>'
        + '<li><input type="checkbox"> <a href="#b">Two</a></li></ul>');
      add('<form id="form" data-live-own><textarea aria-label="Words"></textarea><button type="button" data-key="r"'
        + ' data-key-label="retry" id="retry">Again</button><button>Less</button>'
        + '<button class="main">Send</button></form>');
      window.pressed = [];
      document.getElementById("retry").addEventListener("click", () => window.pressed.push("retry"));
      document.getElementById("form").addEventListener("submit", (event) => {
        event.preventDefault();
        event.stopPropagation();
        window.pressed.push(event.submitter.textContent);
      });
    }"""
    browser_page.goto(serve(thread).launch)
    keys = browser_page.keyboard
    browser_page.evaluate(declare)
    for _ in range(2):
        keys.press("r")
        assert browser_page.evaluate("window.pressed") == ["retry"]
        keys.press("Alt+r")
        browser_page.get_by_label("Words").focus()
        keys.type("r")
        keys.press("Control+Enter")
        assert browser_page.evaluate("window.pressed") == ["retry", "Send"]
        browser_page.locator("#list a").first.focus()
        keys.press("j")
        expect(browser_page.get_by_role("link", name="Two")).to_be_focused()
        keys.press("x")
        expect(browser_page.locator("#list input").nth(1)).to_be_checked()
        keys.press("?")
        dialog = browser_page.get_by_role("dialog", name="Keys")
        expect(dialog.get_by_text("retry")).to_be_visible()
        expect(dialog.get_by_text("check the row")).to_be_visible()
        keys.press("Escape")
        # Another page, and this one again.
        browser_page.get_by_role("link", name="Workflows").click()
        expect(browser_page).to_have_url(re.compile("/workflows$"))
        browser_page.go_back()
        expect(browser_page.locator("[data-status]")).to_be_visible()
        browser_page.evaluate(declare)
