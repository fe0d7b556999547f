"""A suite's newest runs side by side, in JSON, on a terminal and as a page."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Uwf
from judged_suites import run, version
from site_serving import Serve, entered
from suite_bench import Bench

from uwf_git.ext.evaluation.grid import RUNS
from uwf_git.store.instance import Instance


@pytest.fixture
def three(instance: Instance) -> None:
    """Three runs: `up` gets better, `down` worse, `odd` is flaky in the last one, `gone` is in the first alone, and
    `broken` has an agent that failed in the last."""
    node = version(instance, "Writes.")
    run(instance, "bugs", node, {"up": [0.5], "down": [1], "odd": [1], "gone": [1], "broken": [1]}, "one")
    run(instance, "bugs", node, {"up": [0.75], "down": [1], "odd": [1], "broken": [1]}, "two")
    last = {"up": [1, 1], "down": [0.5, 0.5], "odd": [1, 0], "broken": [None, None]}
    run(instance, "bugs", node, last, "three")


def _cells(uwf: Uwf) -> dict[str, list[Any]]:
    return {row["case"]: row["cells"] for row in uwf("eval", "show", "bugs").json["grid"]["cases"]}


@pytest.mark.usefixtures("three")
def test_a_grid_says_of_each_case_what_got_better_worse_or_is_flaky(uwf: Uwf) -> None:
    value = uwf("eval", "show", "bugs").json["grid"]
    assert [column["agent"] for column in value["runs"]] == ["one", "two", "three"]
    cells = _cells(uwf)
    assert [cell["change"] for cell in cells["up"]] == [None, "win", "win"]
    assert [cell["change"] for cell in cells["down"]] == [None, "tie", "loss"]
    assert [cell["flaky"] for cell in cells["odd"]] == [False, False, True]
    assert cells["gone"][0]["score"] == 1 and cells["gone"][1:] == [None, None]
    assert cells["broken"][2]["score"] is None and cells["broken"][2]["unknown"]
    # What needs a look is first.
    assert list(cells)[:3] == ["down", "odd", "up"]


@pytest.mark.usefixtures("three")
def test_the_terminal_and_the_page_show_it(uwf: Uwf, serve: Serve) -> None:
    shown = uwf("eval", "show", "bugs", "--format", "text").out
    line = next(line for line in shown.splitlines() if line.startswith("down") and "▼" in line)
    assert line.split()[-2:] == ["▼", "0.50"]
    for client in entered(serve()):
        page = client.get("/eval/bugs").text
        assert page.count('class="cell win"') == 2 and page.count('class="cell loss"') >= 1
        assert ">flaky<" in page and '<td class="cell"></td>' in page
        for column in uwf("eval", "show", "bugs").json["grid"]["runs"]:
            assert f'href="/eval/bugs?b={column["run"]}"' in page


def test_scores_by_other_judges_are_no_change(uwf: Uwf, bench: Bench) -> None:
    bench.imports([{"name": "one", "prompt": "say a"}])
    for judge, label in (("x=jsonata:1", "1"), ("x=jsonata:0.5", "2"), ("x=jsonata:0.5", "3")):
        bench.run("--judge", judge, "--label", label, check=None)
    cells = _cells(uwf)["one"]
    assert [cell["change"] for cell in cells] == [None, None, "tie"]
    assert cells[-1]["thread"]


def test_only_the_newest_runs_stand_side_by_side(uwf: Uwf, instance: Instance) -> None:
    node = version(instance, "Writes.")
    for number in range(RUNS + 2):
        run(instance, "bugs", node, {"one": [(number + 1) / 20]}, f"agent-{number}")
    columns = uwf("eval", "show", "bugs").json["grid"]["runs"]
    assert [column["agent"] for column in columns] == [f"agent-{number}" for number in range(2, RUNS + 2)]
