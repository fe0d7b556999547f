"""Pages count what ran, show each thing once, and keep long outputs readable."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cli_samples import PAIR, write
from conftest import Uwf
from fan_outs import ANSWER, FAN
from playwright.sync_api import Page
from site_serving import Serve, entered

from uwf_git.ext.web.page.step import turn
from uwf_git.format.kinds import TurnRecord

LOOPS = """\
name: loops
description: Steps.
roles: { a: { description: a, systemPrompt: x, outputSchema: { type: object } } }
conditions: { last: { description: Enough., expression: '$count(steps) > 2' } }
graph: { $START: [{ role: a }], a: [{ role: $END, condition: last }, { role: a }] }
"""


@pytest.fixture
def fanned(uwf: Uwf) -> str:
    """A completed thread with three branches."""
    uwf("run", write("fan.yaml", FAN), "-p", "Fan out", "--agent", ANSWER)
    threads = uwf("thread", "list", "--all").json
    return str(next(each["thread"] for each in threads if not each["parent"]))


def graph_of(client: httpx.Client, thread: str) -> dict[str, int]:
    """How often a thread's page says that each node was passed."""
    page = client.get(f"/thread/{thread}").text
    data = re.search(r'data-graph="([^"]*)"', page)
    assert data is not None
    return {each["id"]: each["times"] for each in json.loads(html.unescape(data[1]))["nodes"]}


def test_a_graph_counts_what_the_branches_ran(client: httpx.Client, fanned: str) -> None:
    times = graph_of(client, fanned)
    assert (times["lister"], times["worker"], times["adder"]) == (1, 3, 1)


def test_a_joined_thread_keeps_its_branches_in_its_state(uwf: Uwf, fanned: str) -> None:
    branches = uwf("thread", "show", fanned).json["branches"]
    assert branches["counts"] == {"completed": 3} and branches["fork"] == 2
    assert [(each["index"], each["item"]) for each in branches["each"]] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
    ]
    shown = uwf("thread", "show", fanned, "--format", "text").out
    assert all(each["thread"] in shown for each in branches["each"])


def test_a_fork_is_summed_up_by_its_branches(client: httpx.Client, fanned: str) -> None:
    assert "3 branches" in client.get(f"/thread/{fanned}").text


def test_the_number_of_threads_is_that_of_the_list_behind_it(client: httpx.Client, fanned: str) -> None:
    assert re.search(r'workflow=fan">1 thread<', client.get("/workflows").text)
    assert client.get("/threads?tab=all&workflow=fan").text.count('<tr id="t-') == 1


def test_children_stand_below_their_parents(client: httpx.Client, uwf: Uwf, fanned: str) -> None:
    uwf("run", "fan.yaml", "-p", "Again", "--agent", ANSWER)
    page = client.get("/threads?tab=all&status=completed").text
    listed = re.findall(r'<tr id="t-(\w+)"( class="below")?', page)
    threads = {each["thread"]: each["parent"] for each in uwf("thread", "list", "--all").json}
    assert len(listed) == 8
    above = ""
    for thread, below in listed:
        assert bool(below) is bool(threads[thread])
        if below:
            assert threads[thread] == above
        else:
            above = thread


def test_a_way_to_its_own_node_is_a_loop_at_its_side(serve: Serve, browser_page: Page, uwf: Uwf) -> None:
    uwf("run", write("loops.yaml", LOOPS), "-p", "x", "--agent", ANSWER)
    thread = uwf("thread", "list", "--all").json[0]["thread"]
    browser_page.goto(serve(thread).launch)
    browser_page.locator("svg.laid").wait_for()
    (loop,) = browser_page.locator("svg.laid path.way").evaluate_all(
        "paths => paths.map(path => path.getAttribute('d')).filter(d => d.includes('C'))"
    )
    box = (
        browser_page.locator("svg.laid rect.node")
        .nth(1)
        .evaluate("node => ['x', 'y', 'width', 'height'].map(name => Number(node.getAttribute(name)))")
    )
    x, y, width, height = box
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", loop)]
    for at_x, at_y in (numbers[:2], numbers[-2:]):
        assert abs(at_x - (x + width)) < 1 and y <= at_y <= y + height
    assert numbers[2] > x + width


@pytest.mark.parametrize(
    ("result", "text", "shown"),
    [
        ("two lines\nof a file", "two lines\nof a file", 1),
        ({"output": "two lines\nof a file", "exit": 0}, "two lines\nof a file", 1),
        ("other", "two lines\nof a file", 1),
    ],
)
def test_the_result_of_a_tool_is_shown_once(result: object, text: str, shown: int) -> None:
    page = turn(TurnRecord("tool", text, "Read", {"path": "a"}, result))
    assert page.count("of a file") == shown


def test_a_long_report_is_text_and_without_colours(client: httpx.Client, uwf: Uwf) -> None:
    agent = write(
        "long.py",
        "import json\n"
        "lines = [f'\\x1b[32mline\\x1b[0m {number}' for number in range(5000)]\n"
        "print(json.dumps({'report': '\\n'.join(lines), 'passed': True}))\n",
    )
    uwf("thread", "start", write("loops.yaml", LOOPS), "-p", "x")
    thread = uwf("thread", "list").json[0]["thread"]
    uwf("thread", "step", thread, "--agent", f"uwf-exec {sys.executable} {agent.resolve()}")
    page = client.get(f"/thread/{thread}/step/1").text
    assert "line 17\nline 18\n" in page and "characters are left out here" in page
    assert "\\nline 18" not in page[: page.index("The answer as it came")]


def test_the_fork_of_an_end_begins_before_its_last_step(client: httpx.Client, serve: Serve, uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("run", "pair", "-p", "x", "--agent", "uwf-rehearse")
    (thread,) = uwf("thread", "list", "--all").json
    for changing in entered(serve("--write")):
        page = changing.get(f"/thread/{thread['thread']}").text
        assert f'max="{thread["steps"]}" value="{thread["steps"] - 1}"' in page


def test_a_comparison_shows_equal_outputs_once_and_no_time_of_nothing(client: httpx.Client, uwf: Uwf) -> None:
    threads = []
    for prompt in ("one", "two"):
        thread = uwf("thread", "start", write("loops.yaml", LOOPS), "-p", prompt).json["thread"]
        uwf("thread", "step", thread, "--agent", 'uwf-exec echo \'{"text": "a rare word"}\'')
        threads.append(thread)
    page = client.get(f"/diff/{threads[0]}/{threads[1]}").text
    assert page.count("a rare word") == 5  # as summaries in heads and rows, and once as output
    assert "As on the left." in page and "0.0 s" not in page


def test_a_clock_before_1970_is_one_line(uwf: Uwf, tmp_path: Path) -> None:
    uwf("init")
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.time = lambda: -100000.0\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "uwf_cli.main",
        "thread",
        "start",
        "-p",
        "x",
        str(write("l.yaml", LOOPS)),
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the clock of this machine is before 1970" in done.stderr
    assert done.stderr.count("\n") == 1
