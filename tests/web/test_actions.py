"""What a page may do with --write and --run. A step is a command of its own, which ends without the page."""

from __future__ import annotations

import html
import re
import shlex
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from cli_samples import ASKS, PAIR, REJECTS_ONCE, scripted, write
from conftest import Uwf
from playwright.sync_api import Page, expect
from site_serving import Serve, entered, keep_picture

Config = Callable[[str], Path]

AGENT = "defaultAgent: scripted\nagents: {{ scripted: {{ command: {command} }} }}\n"


@pytest.fixture
def asking(uwf: Uwf, thread: str) -> str:
    """A thread that asks for a colour."""
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    return thread


def _head(uwf: Uwf, thread: str) -> str:
    return str(uwf("thread", "show", thread).json["head"])


def test_an_answer_lets_the_thread_go_on_and_one_to_an_old_question_is_refused(
    changing: httpx.Client, uwf: Uwf, asking: str
) -> None:
    assert "colour" in changing.get("/").text
    form = {"head": _head(uwf, asking), "option": "2"}
    old = {"head": _head(uwf, asking), "answer": "Rather\n<green>"}
    assert changing.get(f"/thread/{asking}/answer").status_code == 405
    done = changing.post(f"/thread/{asking}/answer", data=form)
    assert (done.status_code, done.headers["location"]) == (303, f"/thread/{asking}")
    assert uwf("thread", "steps", asking).json[-1]["output"] == {"answer": "blue"}
    listed = changing.get("/threads").text
    assert "blue" in listed and "$USER" not in listed and "Which" not in listed
    assert "Which" not in changing.get("/").text
    again = changing.post(f"/thread/{asking}/answer", data=form)
    assert again.status_code == 409 and " answered blue <time" in again.text
    assert "\nRather\n&lt;green&gt;</textarea>" in changing.post(f"/thread/{asking}/answer", data=old).text
    assert len(uwf("thread", "steps", asking).json) == 2


def test_two_answers_at_once_are_one(changing: httpx.Client, uwf: Uwf, asking: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    form = {"head": _head(uwf, asking), "option": "1"}
    with ThreadPoolExecutor(2) as both:
        found = list(both.map(lambda _: changing.post(f"/thread/{asking}/answer", data=form), range(2)))
    assert {each.status_code for each in found} <= {303, 409} and 303 in {each.status_code for each in found}
    assert len(uwf("thread", "steps", asking).json) == 2


def test_a_text_that_is_none_of_the_options_is_taken_as_it_stands(
    changing: httpx.Client, uwf: Uwf, asking: str
) -> None:
    text = "--agent=/bin/sh\n2\n$(touch x) 'quoted' <b>"
    form = {"head": _head(uwf, asking), "answer": text.replace("\n", "\r\n"), "agent": "uwf-exec"}
    assert changing.post(f"/thread/{asking}/answer", data=form).status_code == 303
    assert uwf("thread", "steps", asking).json[-1]["output"] == {"answer": text}
    assert not Path("x").exists()


def test_a_thread_is_started_forked_paused_and_killed(changing: httpx.Client, uwf: Uwf, thread: str) -> None:
    task = "--cwd=/\n-- second line"
    begun = changing.post("/start", data={"workflow": "pair", "prompt": task, "maxSteps": "1"})
    assert begun.status_code == 303
    made = begun.headers["location"].removeprefix("/thread/")
    assert uwf("thread", "read", made, "--format", "json").json["prompt"] == task
    assert uwf("thread", "budget", made).json["budget"][0]["most"] == 1
    assert changing.post(f"/thread/{made}/budget", data={"maxSteps": "+4"}).status_code == 303
    assert uwf("thread", "budget", made).json["budget"][0]["most"] == 5
    assert changing.post(f"/thread/{made}/budget", data={"maxSteps": " 2"}).status_code == 303
    assert uwf("thread", "budget", made).json["budget"][0]["most"] == 7
    forked = changing.post(f"/thread/{made}/fork", data={"at": "0"})
    assert forked.status_code == 303 and made not in forked.headers["location"]
    assert changing.post(f"/thread/{made}/pause", data={"reason": "--now"}).status_code == 303
    paused = uwf("thread", "show", made).json
    assert paused["status"] == "paused" and paused["paused"]["reason"] == "--now"
    assert changing.post(f"/thread/{made}/resume", data={"head": _head(uwf, made)}).status_code == 303
    assert uwf("thread", "show", made).json["status"] == "idle"
    unsure = changing.post(f"/thread/{made}/kill", data={"reason": "over"})
    assert unsure.status_code == 400 and "check the box" in unsure.text
    assert changing.post(f"/thread/{made}/kill", data={"sure": "yes", "reason": "over"}).status_code == 303
    assert uwf("thread", "show", made).json["status"] == "killed"


def test_a_used_up_budget_is_raised_on_the_page(
    changing: httpx.Client, uwf: Uwf, root: Path, thread: str
) -> None:
    small = uwf("thread", "start", "pair", "-p", "Little by little", "--max-steps", "1").json["thread"]
    uwf("thread", "step", small, "--agent", scripted(REJECTS_ONCE))
    index = (root / "store.git/uwf/index.db").stat().st_ino
    for address in ("/", "/threads?tab=waiting"):
        assert "maxSteps is used up, 1 of 1 step" in html.unescape(changing.get(address).text)
    page = changing.get(f"/thread/{small}").text
    assert re.search(rf'id="question">(?:(?!</section>).)*action="/thread/{small}/budget"', page, re.DOTALL)
    assert "<summary>Raise" not in changing.get(f"/thread/{thread}").text
    assert f'action="/thread/{small}/budget"' in page and 'name="maxSteps"' in page
    assert (root / "store.git/uwf/index.db").stat().st_ino == index
    raised = changing.post(f"/thread/{small}/budget", data={"head": _head(uwf, small), "maxSteps": "+2"})
    assert raised.status_code == 303
    assert uwf("thread", "show", small).json["status"] == "idle"


def test_what_a_command_says_against_it_is_shown_with_the_command(
    changing: httpx.Client, uwf: Uwf, thread: str
) -> None:
    refused = changing.post(
        f"/thread/{thread}/answer", data={"head": _head(uwf, thread), "answer": "It's $me"}
    )
    assert refused.status_code == 409 and "is not waiting for an answer" in refused.text
    said = "It's $me"
    refused = changing.post(f"/thread/{thread}/budget", data={"maxCost": said})
    assert refused.status_code == 400
    typed = f"uwf thread budget {shlex.quote(f'--max-cost={said}')} {thread}"
    assert typed in html.unescape(refused.text)
    assert changing.post("/thread/01ARZ3NDEKTSV4RRFFQ69G5FAV/pause", data={"reason": "so"}).status_code == 404
    assert changing.post(f"/thread/{thread}/pause", data={"reason": "a\0b"}).status_code == 400
    assert changing.post(f"/thread/{thread}/pause", json={}).status_code == 400


def test_a_form_with_a_next_item_of_any_length_is_refused_before_anything_is_done(
    changing: httpx.Client, uwf: Uwf, thread: str
) -> None:
    refused = changing.post(f"/thread/{thread}/pause", data={"then": "x" * 2000})
    assert refused.status_code == 400
    assert uwf("thread", "show", thread).json["status"] == "idle"


def test_an_action_that_takes_long_keeps_no_page_waiting(
    changing: httpx.Client,
    uwf: Uwf,
    thread: str,
    script: Callable[[str, str], Path],
    config: Config,
    tmp_path: Path,
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    begun, gate = tmp_path / "begun", tmp_path / "gate"
    hook = script("hook", SLOW.format(gate=str(gate), begun=str(begun)))
    config(f"hooks: {{ paused: {hook} }}\n")
    with ThreadPoolExecutor(1) as other:
        paused = other.submit(changing.post, f"/thread/{thread}/pause", data={"reason": "so"})
        _until(begun.exists)
        assert "paused" in changing.get(f"/thread/{thread}").text
        assert not paused.done()
        gate.touch()
        assert paused.result().status_code == 303


def test_only_what_runs_agents_starts_a_command(
    serve: Serve, uwf: Uwf, thread: str, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    config(AGENT.format(command=scripted(REJECTS_ONCE)))
    write(
        "seen/sitecustomize.py",
        f"import sys\nprint(*sys.orig_argv, file=open({str(Path('started').absolute())!r}, 'a'))\n",
    )
    head, started = {"head": _head(uwf, thread)}, Path("started").absolute()
    monkeypatch.setenv("PYTHONPATH", str(Path("seen").absolute()))
    serving = serve("--run")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        started.write_text("")
        for name in ("pause", "resume", "fork"):
            assert client.post(f"/thread/{thread}/{name}", data=head).status_code == 303
        assert "uwf_cli.main" not in started.read_text()
        assert client.post(f"/thread/{thread}/step", data=head).status_code == 303
        assert "uwf_cli.main:run" in started.read_text()


def test_only_what_is_offered_can_be_started(changing: httpx.Client, uwf: Uwf, thread: str) -> None:
    write("other.yaml", PAIR.replace("pair", "other"))
    write(".uwf/workflows/--help.yaml", PAIR.replace("pair", "other"))
    for name in ("./other.yaml", "other", "--help", "../pair.yaml", "pair~1", ""):
        answer = changing.post("/start", data={"workflow": name, "prompt": "Do it"})
        assert answer.status_code == 404, name
    assert len(uwf("thread", "list", "--all").json) == 1


def _changing_routes(*arguments: str) -> set[tuple[str, str]]:
    """The routes of a server with these flags that take more than a GET."""
    from starlette.routing import Route

    from uwf_git.ext.web.site import Site, application
    from uwf_git.store.location import locate

    location = locate(None, {"HOME": str(Path.home())}, Path.cwd())
    made = application(Site(location, "--write" in arguments, "--run" in arguments))
    return {
        (method, route.path)
        for route in made.routes
        if isinstance(route, Route)
        for method in route.methods or {"ANY"}
        if method not in ("GET", "HEAD")
    }


def test_each_route_that_changes_something_needs_its_flag(
    serve: Serve, changing: httpx.Client, thread: str, uwf: Uwf
) -> None:
    """Walks the routes of a server that may do all, at servers that may not."""
    everything = _changing_routes("--write", "--run")
    writing = _changing_routes("--write")
    assert not _changing_routes()
    assert {path.rpartition("/")[2] for _, path in everything - writing} == {
        "step",
        "run",
        "retry",
        "land",
        "sync",
    }
    before = uwf("thread", "list", "--all").json
    for reading in entered(serve()):
        for method, path in everything:
            own = {"Origin": str(reading.base_url).rstrip("/")}
            answer = reading.request(
                method, path.replace("{thread}", thread), headers=own, data={"sure": "yes"}
            )
            assert answer.status_code in (404, 405), path
        assert reading.get("/start").status_code == 404
    for method, path in everything - writing:
        assert changing.request(method, path.replace("{thread}", thread)).status_code == 404
    assert uwf("thread", "list", "--all").json == before


SLOW = """
import sys, time, pathlib
sys.stdin.read()
gate = pathlib.Path({gate!r})
pathlib.Path({begun!r}).touch()
while not gate.exists():
    time.sleep(0.05)
print('---\\ntext: made\\n---\\n')
"""


@pytest.fixture
def slow_agent(script: Callable[[str, str], Path], config: Config, tmp_path: Path) -> tuple[Path, Path]:
    """An agent that has begun when the first file is there, and ends when somebody makes the second."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    program = script("slow", SLOW.format(gate=str(gate), begun=str(begun)))
    config(AGENT.format(command=f"uwf-exec {program}"))
    return begun, gate


def _until(holds: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_step_outlives_the_server_that_has_begun_it(
    serve: Serve, uwf: Uwf, thread: str, slow_agent: tuple[Path, Path]
) -> None:
    begun, gate = slow_agent
    serving = serve("--run", is_cold=True)
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        form = {"head": _head(uwf, thread)}
        assert client.post(f"/thread/{thread}/step", data=form).status_code == 303
        again = client.post(f"/thread/{thread}/step", data=form)
        assert again.status_code == 409 and "is working" in again.text
    _until(begun.exists)
    serving.process.kill()
    serving.process.wait()
    gate.touch()
    _until(lambda: uwf("thread", "show", thread).json["status"] == "idle")
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"text": "made"}


def test_a_run_goes_on_to_the_end_and_a_second_click_does_no_second_step(
    serve: Serve, uwf: Uwf, thread: str, config: Config
) -> None:
    config(AGENT.format(command=scripted(REJECTS_ONCE)))
    serving = serve("--run")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        form = {"head": _head(uwf, thread)}
        assert client.post(f"/thread/{thread}/run", data=form).status_code == 303
        _until(lambda: uwf("thread", "show", thread).json["status"] == "completed")
        assert client.post(f"/thread/{thread}/step", data=form).status_code == 409
    assert len(uwf("thread", "steps", thread).json) == 4


def test_why_no_agent_could_work_stands_on_the_page_until_one_has(
    serve: Serve, browser_page: Page, uwf: Uwf, asking: str, config: Config
) -> None:
    """Nothing is configured here, and what somebody has answered nobody goes on with by made-up words."""
    serving = serve("--write", "--run")
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/thread/{asking}")
    browser_page.get_by_role("button", name="blue").click()
    expect(browser_page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    for button, command in (("Run", "run"), ("Do one step", "step")):
        said = uwf("thread", command, asking, check=2).error
        if command == "step":
            browser_page.locator("#menu > summary").click()
        browser_page.get_by_role("button", name=button, exact=True).click()
        notice = browser_page.get_by_role("alert").filter(has_text="It could not go on:")
        expect(notice).to_contain_text(said["message"])
        expect(notice).to_contain_text(said["hint"])
        expect(browser_page.get_by_role("heading", name="At work")).to_have_count(0)
    keep_picture(browser_page, "refused")
    uwf("thread", "step", asking, "--agent", scripted(AFTERWARDS))
    browser_page.reload()
    expect(browser_page.get_by_text("It could not go on:")).to_have_count(0)


def test_a_menu_closes_once_its_form_is_sent(serve: Serve, browser_page: Page, uwf: Uwf, thread: str) -> None:
    browser_page.goto(serve(thread, "--write").launch)
    menu = browser_page.locator("#menu")
    menu.locator("> summary").click()
    menu.locator("summary", has_text="Say something").click()
    menu.locator("[name=remark]").fill("Shorter")
    menu.get_by_role("button", name="Say", exact=True).click()
    expect(browser_page.locator("#step-1")).to_contain_text("Shorter")
    expect(menu.locator("[name=remark]")).to_be_hidden()
    expect(menu).not_to_have_attribute("open", "")


def test_a_run_that_cannot_end_is_refused_before_its_first_step(
    serve: Serve, uwf: Uwf, thread: str, root: Path, slow_agent: tuple[Path, Path]
) -> None:
    begun, _gate = slow_agent
    with (root / "config.yaml").open("a") as file:
        file.write("agentOverrides: { pair: { critic: no-such-agent } }\n")
    serving = serve("--run")
    for client in entered(serving):
        client.headers["Origin"] = serving.address
        client.post(f"/thread/{thread}/run", data={"head": _head(uwf, thread)})
        seen = [client.get(f"/thread/{thread}")]
        _until(partial(_is_seen, client, thread, "It could not go on:", seen))
        assert "no-such-agent" in seen[-1].text and "At work" not in seen[-1].text
    assert not begun.exists() and uwf("thread", "steps", thread).json == []


def _is_seen(client: httpx.Client, thread: str, text: str, seen: list[httpx.Response]) -> bool:
    found = client.get(f"/thread/{thread}", headers={"if-none-match": seen[-1].headers["etag"]})
    if found.status_code == 200:
        seen.append(found)
    return text in seen[-1].text


def _has_steps(uwf: Uwf, thread: str, number: int) -> bool:
    return len(uwf("thread", "steps", thread).json) >= number


def test_of_a_step_and_a_run_at_once_one_is_told_that_the_other_works(
    serve: Serve, uwf: Uwf, thread: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    serving, form = serve("--write", "--run"), {"head": _head(uwf, thread)}

    def ask(client: httpx.Client, name: str) -> int:
        return client.post(f"/thread/{thread}/{name}", data=form).status_code

    for client in entered(serving):
        client.headers["Origin"] = serving.address
        with ThreadPoolExecutor(2) as both:
            step, run = both.map(ask, (client, client), ("step", "run"))
        assert sorted((step, run)) == [303, 409]
        made = 1 if step == 303 else 2
        _until(partial(_has_steps, uwf, thread, made))


def test_a_thread_is_started_in_the_page(serve: Serve, browser_page: Page, uwf: Uwf, thread: str) -> None:
    serving = serve("--write")
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/start?workflow=pair")
    expect(browser_page.get_by_text("uwf thread start pair -p TEXT")).to_be_visible()
    browser_page.get_by_label("Task").fill("Say <b>it</b>")
    keep_picture(browser_page, "start")
    browser_page.get_by_role("button", name="Start").click()
    browser_page.wait_for_url("**/thread/*")
    made = browser_page.url.rpartition("/")[2]
    assert uwf("thread", "show", made).json["status"] == "idle"


def test_a_thread_is_started_from_a_file_and_shows_its_workflow(
    serve: Serve, browser_page: Page, uwf: Uwf, config: Config
) -> None:
    write(".uwf/workflows/bugfix.yaml", PAIR.replace("name: pair", "name: bugfix"))
    write("elsewhere/review.yaml", PAIR.replace("name: pair", "name: review"))
    config("workflowPaths: [elsewhere]\n".replace("elsewhere", str(Path("elsewhere").absolute())))
    serving = serve("--write")
    browser_page.goto(serving.launch)
    browser_page.get_by_role("link", name="Start a thread").click()
    choice = browser_page.locator("select[name=workflow]")
    expect(choice).to_be_visible()
    assert choice.locator("optgroup[label='In files'] option").all_inner_texts() == ["bugfix", "review"]
    choice.select_option("bugfix")
    browser_page.get_by_label("Task").fill("Mend it")
    browser_page.get_by_role("button", name="Start").click()
    browser_page.wait_for_url("**/thread/*")
    write(
        ".uwf/workflows/bugfix.yaml", PAIR.replace("name: pair", "name: bugfix").replace("critic", "tester")
    )
    link = browser_page.get_by_role("link", name="bugfix", exact=True)
    for address in (browser_page.url, f"{serving.address}/threads", f"{serving.address}/workflows"):
        browser_page.goto(address)
        link.click()
        expect(browser_page.get_by_role("heading", level=1)).to_have_text("bugfix")
        expect(browser_page.get_by_role("cell", name="critic", exact=True).first).to_be_visible()
    # An address that names it, as those of Spending do, shows the version of the newest thread.
    browser_page.goto(f"{serving.address}/workflow/bugfix")
    expect(browser_page.get_by_role("cell", name="critic", exact=True).first).to_be_visible()
    uwf("workflow", "put", ".uwf/workflows/bugfix.yaml")
    browser_page.goto(f"{serving.address}/workflow/bugfix")
    expect(browser_page.get_by_role("cell", name="tester", exact=True).first).to_be_visible()


AFTERWARDS = """\
- { role: writer, output: { text: asked } }
- { role: writer, output: { text: blue } }
- { role: critic, output: { approved: true } }
"""


def test_a_question_is_answered_in_the_page_and_the_thread_goes_on(
    serve: Serve, browser_page: Page, uwf: Uwf, asking: str, config: Config
) -> None:
    config(AGENT.format(command=scripted(AFTERWARDS)))
    serving = serve("--run")
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/thread/{asking}")
    keep_picture(browser_page, "answer")
    browser_page.get_by_role("button", name="blue").click()
    expect(browser_page.get_by_role("button", name="blue")).to_have_count(0)
    assert {"answer": "blue"} in [step["output"] for step in uwf("thread", "steps", asking).json]
    keep_picture(browser_page, "answered")
    _until(lambda: uwf("thread", "show", asking).json["status"] == "completed")
    browser_page.goto(f"{serving.address}/thread/{asking}/step/1")
    browser_page.get_by_role("button", name="Fork after this step").click()
    expect(browser_page.get_by_text("Choose one")).to_be_visible()
    assert browser_page.url != f"{serving.address}/thread/{asking}"
    browser_page.locator("#menu > summary").click()
    browser_page.get_by_text("Kill", exact=True).first.click()
    browser_page.get_by_label("End it for good").check()
    keep_picture(browser_page, "actions")
    browser_page.get_by_role("button", name="Kill").click()
    expect(browser_page.get_by_text("It was ended")).to_be_visible()


FAILS = """\
name: fails
roles: { writer: { description: Writes., systemPrompt: Write., outputSchema: { type: object, properties: {} } } }
graph: { $START: [{ role: writer }], writer: [{ role: $FAIL }] }
"""


@pytest.fixture
def running(serve: Serve) -> Iterator[httpx.Client]:
    """A client that was let in, at a server that may run agents."""
    for client in entered(serve("--run")):
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        yield client


def _noticed(answer: httpx.Response) -> str:
    """What the notice of a refused form says."""
    text = answer.text.partition('aria-label="What was done">')[2].partition("</div>")[0]
    return " ".join(re.sub("<[^>]+>", "", re.sub("<time.*?</time>", "then", html.unescape(text))).split())


def test_whose_target_has_moved_on_is_told_by_whom_on_the_page_of_the_form(
    running: httpx.Client, uwf: Uwf, asking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uwf("workflow", "put", write("fails.yaml", FAILS))
    failed = uwf("thread", "start", "fails", "-p", "It fails").json["thread"]
    uwf("thread", "step", failed, "--agent", "uwf-exec echo {}", check=None)
    ended = uwf("thread", "fork", asking).json["thread"]
    other = uwf("thread", "fork", asking, "--at", "0").json["thread"]
    head = {each: _head(uwf, each) for each in (asking, failed, other, ended)}
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ann")
    uwf("thread", "answer", asking, "-m", "2")
    fork = uwf("thread", "fork", failed, "--at", "0").json["thread"]
    uwf("thread", "step", other, "--agent", scripted(REJECTS_ONCE))
    uwf("thread", "kill", ended)
    hint = "look at it again before you say it again"

    def post(thread: str, action: str, **fields: str) -> str:
        form = {"head": head[thread], **fields}
        refused = running.post(f"/thread/{thread}/{action}", data=form)
        again = running.get(refused.headers["hx-replace-url"])
        assert (refused.status_code, again.status_code) == (409, 200)
        assert _noticed(again).startswith(_noticed(refused)[:40])
        assert re.search(r'data-tag="[^"]', refused.text)
        return _noticed(refused)

    assert post(asking, "answer", option="1", then="-") == (
        f"Do it: Ann answered blue then; nothing was sent. {hint}"
    )
    assert "answered blue then; nothing was done" in post(asking, "run")
    assert f"It fails: Ann forked it then: {fork}; nothing was done." in post(failed, "retry", then="-")
    assert "Do it: writer made step 1: " in post(other, "run", then="-")
    for action in (
        {"action": "say", "remark": "Wait"},
        {"action": "pause"},
        {"action": "kill", "sure": "yes"},
    ):
        assert "Do it: It ended: killed then; nothing was" in post(ended, **action)
    refused = running.post(f"/thread/{ended}/say", data={"remark": "So\nbe it"})
    assert "\nSo\nbe it</textarea>" in refused.text
    assert "<textarea class" not in running.get(refused.headers["hx-replace-url"]).text
    script = running.post(f"/thread/{ended}/say", data={"remark": "So"}, headers={"HX-Request": "true"})
    assert "<textarea class" not in script.text  # it keeps what was typed
    boxes = {"thread": f"{asking} {head[asking]}"}
    listed = running.get(running.post("/threads/retry", data=boxes).headers["location"]).text
    assert "Ann answered blue" in listed and "nothing was done" in listed


def test_a_retry_from_the_inbox_tells_what_goes_on(
    running: httpx.Client, uwf: Uwf, script: Callable[[str, str], Path]
) -> None:
    uwf("workflow", "put", write("fails.yaml", FAILS))
    uwf("config", "set", "defaultAgent", "uwf-exec echo {}")
    failed = uwf("thread", "start", "fails", "-p", "It fails").json["thread"]
    uwf("thread", "step", failed, check=None)
    other = uwf("thread", "start", "fails", "-p", "It broke").json["thread"]
    breaks = script("breaks", "import sys\nsys.exit('it broke')\n")
    uwf("thread", "step", other, "--agent", breaks, check=6)
    form = {"head": _head(uwf, failed), "then": other}
    address = running.post(f"/thread/{failed}/retry", data=form).headers["location"]
    assert re.fullmatch(rf"/\?at={other}&done=\w+", address)
    page = running.get(address).text
    fork = next(
        item["thread"]
        for item in uwf("thread", "list", "--all").json
        if item["thread"] not in (failed, other)
    )
    assert f'Retry started:</strong> <a href="/thread/{failed}">It fails</a>' in page
    assert f'as the fork <a href="/thread/{fork}">' in page
    assert "done=" not in page.partition("<main")[2]
    form = {"head": _head(uwf, other), "then": "-"}
    shown = running.get(running.post(f"/thread/{other}/retry", data=form).headers["location"]).text
    assert f'Retry started:</strong> <a href="/thread/{other}">It broke</a></p>' in shown
