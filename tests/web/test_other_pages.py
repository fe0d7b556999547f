"""The pages beside those of threads: two threads side by side, workflows, crews, spending, search."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path

import httpx
import pytest
from bundle_files import DEBATE
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import git, loosen
from conftest import EXAMPLES, Uwf
from judged_suites import case_of
from lived_in import LivedIn
from playwright.sync_api import Page, expect
from site_serving import Serve, entered, keep_picture
from suite_bench import Bench
from workflows import opened

from uwf_git.ext.evaluation.suite import Additions, Suites
from uwf_git.ext.web.stats import axis_text
from uwf_git.plugin import charts


@pytest.fixture
def forks(uwf: Uwf, thread: str) -> tuple[str, str]:
    """Two threads that part after their first step, with the same role's outputs that differ."""
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    # By another agent: by the same in the same milliseconds it would be the same step.
    uwf("thread", "step", fork, "--agent", """uwf-exec echo '{"approved": false}'""")
    rest = REJECTS_ONCE.replace("second", "third")
    uwf("thread", "run", fork, "--agent", scripted(rest, "rest.yaml"))
    return thread, fork


def test_two_threads_stand_side_by_side_from_where_they_part(
    serve: Serve, browser_page: Page, uwf: Uwf, forks: tuple[str, str]
) -> None:
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/diff/{forks[0]}/{forks[1]}")
    expect(browser_page.get_by_text("1 step in common, the last is step 1.")).to_be_visible()
    heads = browser_page.locator(".sides section")
    expect(heads.nth(0).get_by_role("heading")).to_contain_text("A: the original, critic = ")
    expect(heads.nth(1).get_by_role("heading")).to_contain_text(
        re.compile("^B: forked at step 1, by .+, critic = uwf-exec")
    )
    expect(heads.nth(1)).to_contain_text(re.compile(r"steps · .*cost .*verdicts.*critic approved", re.DOTALL))
    row = browser_page.locator("#step-3")
    expect(row.get_by_text("differs")).to_have_count(2)
    expect(row.get_by_role("cell", name="second")).to_be_visible()
    expect(row.get_by_role("cell", name="third")).to_be_visible()
    expect(browser_page.locator("#step-2").get_by_text("the same output")).to_be_visible()
    keep_picture(browser_page, "comparison")
    browser_page.set_viewport_size({"width": 360, "height": 800})
    left, right = (row.locator(".side").nth(side).bounding_box() for side in (0, 1))
    assert left and right and right["y"] >= left["y"] + left["height"]
    assert browser_page.evaluate("document.documentElement.scrollWidth") == 360
    other = uwf("thread", "start", "pair", "-p", "Something else").json["thread"]
    browser_page.reload()
    browser_page.get_by_label("Compare the first with").select_option(other)
    browser_page.get_by_role("button", name="Compare").click()
    expect(browser_page.get_by_text("different prompts: no step is shared")).to_be_visible()


def test_a_long_comparison_loads_on(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    endless = PAIR.replace("steps[-1].output.approved = false", "$count(steps) < 60")
    uwf("workflow", "put", write("endless.yaml", endless.replace("name: pair", "name: endless")))
    long = uwf("thread", "start", "endless", "-p", "On and on").json["thread"]
    uwf("thread", "run", long, "--agent", "uwf-rehearse", "--max-steps", "60")
    first = client.get(f"/diff/{thread}/{long}").text
    assert first.count('id="step-') == 50 and "different workflows" in first
    assert 'id="step-51"' in client.get(f"/diff/{thread}/{long}?from=50").text
    assert client.get(f"/diff/{thread}/{long}?from=x").status_code == 400


def test_a_comparison_of_large_outputs_is_bounded(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    free = PAIR.replace("text: { type: string }", "text: {}")
    uwf("workflow", "put", write("free.yaml", free.replace("name: pair", "name: free")))
    output = {"text": {f"key {number}": "x" * 1000 for number in range(500)}}
    large = scripted(json.dumps([{"role": "writer", "output": output}]))
    large_ones = [uwf("thread", "start", "free", "-p", each).json["thread"] for each in ("One", "Other")]
    for each in large_ones:
        uwf("thread", "step", each, "--agent", large)
    shown = client.get("/diff/{}/{}".format(*large_ones))
    assert shown.status_code == 200 and "key 1" in shown.text and len(shown.content) < 100_000


def test_a_workflow_shows_its_versions_what_changed_and_which_ways_are_taken(
    serve: Serve, browser_page: Page, uwf: Uwf, forks: tuple[str, str]
) -> None:
    never = PAIR.replace("steps[-1].output.approved = false", "steps[-1].output.approved = 1").replace(
        "Writes a text.", "Writes."
    )
    uwf("workflow", "put", write("pair.yaml", never))
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.get_by_role("link", name="Workflows").click()
    expect(browser_page.get_by_role("row", name=re.compile("^pair .* 2 threads 2 completed"))).to_be_visible()
    keep_picture(browser_page, "workflows")
    browser_page.get_by_role("link", name="pair", exact=True).click()
    expect(browser_page.locator("#graph svg")).to_be_visible()
    browser_page.get_by_role("link", name="Rehearse it").click()
    way = browser_page.get_by_role("row", name="critic writer rejected")
    expect(way.get_by_text("never")).to_be_visible()
    keep_picture(browser_page, "workflow")
    browser_page.get_by_role("link", name="Versions").click()
    expect(browser_page.locator("ins", has_text="Writes.")).to_be_visible()
    browser_page.get_by_role("link", name="what it changed").click()
    expect(browser_page.get_by_text("condition rejected changed: expression")).to_be_visible()
    expect(browser_page.locator("ins", has_text="Writes.")).to_be_visible()
    browser_page.get_by_role("link", name="2 threads").click()
    expect(browser_page.get_by_text("completed")).to_have_count(2)


@pytest.mark.needs("bwrap", "node")
def test_a_bundle_is_text_and_says_whether_it_is_trusted(client: httpx.Client, uwf: Uwf) -> None:
    uwf("workflow", "put", write("code.esm.js", DEBATE + "\n// <script>alert(1)</script>\n"))
    name = uwf("workflow", "list").json[0]["name"]
    page = client.get(f"/workflow/{name}").text
    assert "trusted here" in page and "javascript" in page
    page = client.get(f"/workflow/{name}?tab=code").text
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    uwf("workflow", "untrust", name)
    assert "not trusted here" in client.get(f"/workflow/{name}").text


def test_crews_are_named_only_where_there_are_some(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    assert "/crews" not in client.get("/workflows").text
    uwf("crew", "import", EXAMPLES / "crew" / "press")
    for path in ("/workflows", "/workflow/none", "/nothing/here", "/search?q=x&workflow=none"):
        assert 'href="/crews"' in client.get(path).text
    page = client.get("/crew/press").text
    assert "Nora" in page and "Shorten what was written last" in page and "/workflow/press/notes" in page
    assert client.get("/workflow/press/notes").status_code == 200
    assert client.get("/crew/nobody").status_code == 404


def test_lists_have_rows_of_one_line(serve: Serve, browser_page: Page, lived_in: LivedIn) -> None:
    serving = serve()
    browser_page.goto(serving.launch)
    for name in ("workflows", "crews", "evals"):
        browser_page.goto(f"{serving.address}/{name}")
        rows = browser_page.locator(".board tbody tr").all()
        assert rows and all((row.bounding_box() or {})["height"] <= 33 for row in rows)


def test_spending_says_what_is_unknown(client: httpx.Client, uwf: Uwf, forks: tuple[str, str]) -> None:
    for by in ("workflow", "agent", "role", "model", "day"):
        page = client.get("/stats", params={"by": by}).text
        assert '<svg xmlns="http://www.w3.org/2000/svg" class="chart wide"' in page
        assert "style=" not in page and "<style" not in page
    told = uwf("stats", "--by", "role").json["groups"]
    page = client.get("/stats?by=role").text
    for each in told:
        assert re.search(rf"{each['role']}</th><td>{each['steps']}</td>", page)
    assert (
        page.count("unknown") - page.count('<abbr title="unknown">–</abbr>') == 1
        and "the cost is unknown" in page
    )
    (command,) = re.findall(r"uwf (config set models[.].*?)</code>", page)
    uwf(*shlex.split(html.unescape(command.replace("NAME", "large"))))
    assert "Nothing was spent there" in client.get("/stats?until=2001-01-01&since=2000-01-01").text
    for name in ("since", "until"):
        wrong = client.get("/stats", params={"by": "role", name: "never"})
        assert wrong.status_code == 400 and "neither a day nor a duration" in wrong.text
        assert 'value="never"' in wrong.text and "Nothing was spent" not in wrong.text
    assert client.get("/stats?by=moon").status_code == 400


@pytest.mark.parametrize("highest", [0.00003, 0.0002, 0.04, 0.7, 3, 8, 9_000, 400_000])
@pytest.mark.parametrize("unit", ["cost", "seconds", "tokens"])
def test_marks_of_the_chart_are_told_apart(highest: float, unit: str) -> None:
    total = {"cost": highest if unit == "cost" else None, "input": 1 if unit == "tokens" else None}
    chart = charts.stacks_drawing("spent", [charts.Stack("monday", [highest], "")], axis_text(total))
    wide, _ = chart.split("</svg>\n")
    marks = re.findall(r'text-anchor="end">([^<]+)<', wide)
    assert len(marks) == len(set(marks)) == 5


@pytest.mark.parametrize(
    "path", ["/workflow/none", "/workflow/..%2f..%2fetc", "/diff/x/y", "/workflow/pair~9"]
)
def test_what_there_is_none_of_is_not_found(client: httpx.Client, thread: str, path: str) -> None:
    found = client.get(path)
    assert found.status_code == 404 and "Not found" in found.text


def test_what_was_said_is_found_and_marked(
    serve: Serve, browser_page: Page, uwf: Uwf, forks: tuple[str, str]
) -> None:
    uwf("thread", "start", "pair", "-p", "Quote a[0] and <b>this</b>")
    browser_page.goto(serve().launch)
    browser_page.get_by_role("link", name="Search").click()
    browser_page.get_by_label("What was said").fill("a[0] and <b>")
    browser_page.get_by_role("button", name="Search").click()
    expect(browser_page.locator("mark")).to_have_text("a[0] and <b>")
    browser_page.get_by_label("What was said").fill("SECOND")
    browser_page.get_by_label("match case").check()
    browser_page.get_by_role("button", name="Search").click()
    expect(browser_page.get_by_text("No matches")).to_be_visible()
    browser_page.get_by_label("match case").uncheck()
    browser_page.get_by_label("Role").fill("writer")
    browser_page.get_by_label("Started by").fill("nobody")
    browser_page.get_by_role("button", name="Search").click()
    expect(browser_page.get_by_text("No matches")).to_be_visible()
    browser_page.get_by_label("Started by").fill("ada")
    browser_page.get_by_role("button", name="Search").click()
    expect(browser_page.locator("mark").first).to_have_text("second")
    keep_picture(browser_page, "search")
    # A thread's task is told once, above all that was found in it.
    expect(browser_page.get_by_role("heading", level=2).filter(has_text="Do it")).to_have_count(1)
    expect(browser_page.locator(".hits").get_by_text(forks[0])).to_have_count(1)
    browser_page.get_by_role("link", name="Step 3, writer").first.click()
    expect(browser_page).to_have_url(re.compile(r"/step/3$"))


def test_what_was_found_stands_between_the_lines_around_it(
    client: httpx.Client, uwf: Uwf, thread: str
) -> None:
    task = "Sort the <i>list</i>\nby NAME and date\nby name alone\nand keep the rest"
    uwf("thread", "start", "pair", "-p", task)
    page = client.get("/search?q=name").text
    (first, second) = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    above, below = (
        f'<span class="around">{text}</span>'
        for text in ("Sort the &lt;i&gt;list&lt;/i&gt;", "and keep the rest")
    )
    assert first == f"{above}by <mark>NAME</mark> and date"  # and each line once
    assert second == f"by <mark>name</mark> alone{below}"


def test_a_hit_in_an_output_is_its_own_text_escaped_once(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    said = "cannot reach the registry <b>x</b> \\u202e evil"
    uwf("thread", "step", thread, "--agent", scripted(f'- {{ role: writer, output: {{ text: "{said}" }} }}'))
    for path in ("/search?q=cannot+reach&kind=text", "/search?q=cannot.reach&kind=E"):
        (hit,) = re.findall(r"<pre>(.*?)</pre>", client.get(path).text, re.DOTALL)
        text = html.unescape(re.sub("<[^>]*>", "", hit))
        assert text == "text: cannot reach the registry <b>x</b> \\u202e evil"


def test_keys_go_through_what_was_found(
    serve: Serve, browser_page: Page, uwf: Uwf, forks: tuple[str, str]
) -> None:
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.goto(f"{serving.address}/search?q=s")
    links = browser_page.locator(".hits h2 a, .hits li a")
    expect(browser_page.locator(".hits").first.locator("li")).not_to_have_count(1)
    for number in range(links.count()):
        browser_page.keyboard.press("j")
        expect(links.nth(number)).to_be_focused()
    browser_page.keyboard.press("k")
    expect(links.nth(links.count() - 2)).to_be_focused()


def test_a_search_that_can_t_be_done_says_why(client: httpx.Client, thread: str) -> None:
    assert "No matches" in client.get("/search?q=nothing-like-this").text
    found = client.get("/search?q=(&kind=E")
    assert found.status_code == 400 and "git cannot search for" in found.text
    assert 'value="("' in found.text
    none = client.get("/search?q=x&workflow=none&author=ada")
    assert none.status_code == 404 and "no workflow &#39;none&#39;" in none.text
    assert 'value="none"' in none.text and 'value="ada"' in none.text and "No matches" not in none.text
    assert "No matches" in client.get("/search", params={"q": "--output=x"}).text


def test_of_a_thread_with_damage_the_rest_and_the_others_are_searched_and_it_is_named(
    client: httpx.Client, uwf: Uwf, forks: tuple[str, str], root: Path
) -> None:
    """Its newest commit is gone, and the text of another can't be read."""
    store = root / "store.git"
    lost = uwf("thread", "fork", forks[0], "--at", "2").json["thread"]
    again = scripted(REJECTS_ONCE.replace("second", "third"), "again.yaml")
    uwf("thread", "step", lost, "--agent", again)
    head = git("--git-dir", store, "rev-parse", f"refs/uwf/threads/{lost}")
    other = uwf("thread", "start", "pair", "-p", "Say second").json["thread"]
    garbled = git("--git-dir", store, "rev-parse", f"refs/uwf/threads/{other}:start/README.md")
    loosen(store)
    (store / "objects" / head[:2] / head[2:]).unlink()
    path = store / "objects" / garbled[:2] / garbled[2:]
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    for pattern in (("-F", "second"), ("sec.nd",)):
        found = uwf("grep", *pattern, check=7)
        assert {(each["thread"], each["number"]) for each in found.json} == {(forks[0], 3)}
        lines = sorted(found.err.splitlines())
        assert [line.split()[2] for line in lines] == sorted([lost, other])
        assert head in found.err and garbled in found.err and found.err.count("uwf doctor --fix") == 2
    assert "git cannot search for" in uwf("grep", "-E", "(", check=2).error["message"]
    page = client.get("/search?q=second")
    assert page.status_code == 200 and "<mark>second</mark>" in page.text
    assert page.text.count("cannot be searched whole") == 2 and lost in page.text
    nothing = client.get("/search?q=nothing-like-this").text
    assert "No matches" in nothing and "cannot be searched whole" in nothing


def test_a_search_that_takes_too_long_is_ended_with_its_git(
    serve: Serve, uwf: Uwf, thread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching = tmp_path / "searching"
    slow = write(
        str(tmp_path / "slow/git"),
        f"""#!/bin/sh
        case " $* " in *" grep "*) echo $$ > {searching}; exec sleep 60;; esac
        PATH=${{PATH#*:}} exec git "$@"
        """,
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    for client in entered(serve()):
        found = client.get("/search?q=anything")
        assert found.status_code == 400 and "the search took more than 5 seconds" in found.text
        assert not Path("/proc", searching.read_text().strip()).exists()


def test_a_suite_shows_case_by_case_what_changed(
    serve: Serve, browser_page: Page, uwf: Uwf, lived_in: LivedIn
) -> None:
    uwf("eval", "baseline", "set", "solve-issue", "claude-code")
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.get_by_role("link", name="Suites").click()
    expect(browser_page.get_by_role("row", name="solve-issue 3 cases 2 runs")).to_be_visible()
    browser_page.get_by_role("link", name="solve-issue").click()
    expect(browser_page.locator(".outcome")).to_contain_text("1 better, 1 worse, 1 the same")
    rows = browser_page.locator("table.numbers tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("csv-quoting")
    expect(rows.first).to_contain_text("worse")
    expect(browser_page.get_by_role("img")).to_have_count(1)
    expect(browser_page.get_by_text("50% is done").first).to_be_visible()
    keep_picture(browser_page, "suite")
    newest = uwf("eval", "compare", "baseline", "codex").json["b"]["run"]
    browser_page.get_by_label("This run").select_option(newest)
    browser_page.get_by_label("with").select_option("baseline")
    browser_page.get_by_role("button", name="Compare").click()
    expect(rows.first).to_contain_text("time-zones")
    assert "a=" in browser_page.url and "b=baseline" in browser_page.url


def test_a_report_in_one_file_shows_one_chart_of_the_changes_in_two_colours(
    browser_page: Page, uwf: Uwf, lived_in: LivedIn, tmp_path: Path
) -> None:
    uwf("eval", "baseline", "set", "solve-issue", "claude-code")
    uwf("eval", "report", "solve-issue", "--html", tmp_path / "report.html")
    browser_page.goto((tmp_path / "report.html").as_uri())
    for width, shown, hidden in ((1200, "wide", "narrow"), (360, "narrow", "wide")):
        browser_page.set_viewport_size({"width": width, "height": 800})
        expect(browser_page.locator(f"svg.{shown}")).to_be_visible()
        expect(browser_page.locator(f"svg.{hidden}")).to_be_hidden()
    style = "(each, name) => getComputedStyle(each)[name]"
    before, after, axis = (
        browser_page.locator(f"svg.wide .{each}").first for each in ("before", "after", "axis")
    )
    assert before.evaluate(style, "fill") == "none"
    assert after.evaluate(style, "fill") not in ("none", "rgb(0, 0, 0)")
    assert "none" not in (before.evaluate(style, "stroke"), axis.evaluate(style, "stroke"))


def test_a_suite_that_was_never_run_and_one_that_is_not_there_say_so(client: httpx.Client, uwf: Uwf) -> None:
    Suites(opened().store).add("empty", Additions(cases=[case_of("csv")]))
    assert "It was not run yet" in client.get("/eval/empty").text
    assert client.get("/eval/emtpy").status_code == 404
    assert client.get("/eval/empty?b=4KNM2PXR3B1QW").status_code == 404


def test_runs_of_a_suite_that_other_judges_judged_say_so(
    client: httpx.Client, uwf: Uwf, bench: Bench
) -> None:
    bench.imports([{"name": "one", "prompt": "say a"}])
    first, other, last = (
        bench.run("--judge", judge, "--label", label).json["run"]
        for judge, label in (("x=jsonata:1", "1"), ("y=jsonata:0.5", "2"), ("x=jsonata:1", "3"))
    )
    page = client.get("/eval/bugs").text
    assert f"uwf eval compare {first} {last}" in page and "may not mean the same" not in page
    bench.run("--judge", "exact:answer", "--label", "4", check=6)
    newest = bench.run("--judge", "x=jsonata:1", "--label", "5").json["run"]
    assert f"uwf eval compare {last} {newest}" in client.get("/eval/bugs").text
    told = "The scores may not mean the same: those of the first are by y, those of the second by x."
    assert told in client.get(f"/eval/bugs?a={other}&b={last}").text
