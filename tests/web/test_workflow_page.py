"""How a workflow does: by version, by edge, in JSON, on a terminal and as a page."""

from __future__ import annotations

import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from conftest import Uwf
from fan_outs import World, audit
from playwright.sync_api import Page, expect
from site_serving import Serve, entered

from uwf_git.store.instance import Instance

APPROVES = "- { role: writer, output: { text: a } }\n- { role: critic, output: { approved: true } }\n"
OTHER = PAIR.replace("Writes a text.", "Writes.")


@pytest.fixture
def runs(uwf: Uwf) -> tuple[str, str]:
    """Two versions: of the first one run that was rejected once and one that failed, of the second none."""
    uwf("workflow", "put", write("pair.yaml", PAIR))
    done = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    uwf("thread", "run", done, "--agent", scripted(REJECTS_ONCE))
    failed = uwf("thread", "start", "pair", "-p", "Do <b>that</b>").json["thread"]
    uwf("thread", "step", failed, "--agent", "false", check=None)
    uwf("workflow", "put", write("pair.yaml", OTHER))
    return done, failed


def test_stats_count_runs_by_version_and_edges_by_runs(uwf: Uwf, runs: tuple[str, str]) -> None:
    value = uwf("workflow", "stats", "pair").json
    assert value["runs"] == 2 and value["states"] == {"failed": 1, "completed": 1}
    assert (value["ended"], value["failed"], value["failing"]) == (2, 1, 1) and value[
        "medianSeconds"
    ] is not None
    second, first = value["versions"]
    assert second["current"] and second["runs"] == 0 and second["medianCost"] is None
    assert first["runs"] == 2 and not first["current"] and first["registered"]
    ways = {(way["source"], way["target"]): way["times"] for way in value["graph"]["ways"]}
    # A run that passed a way twice counts once; the failed one passed none but the first.
    assert value["counted"] == 2 and ways["writer", "critic"] == 1 and ways["critic", "writer"] == 1
    nodes = {node["id"]: node["times"] for node in value["graph"]["nodes"]}
    assert nodes["writer"] == 2 and nodes["critic"] == 2
    shown = uwf("workflow", "stats", "pair", "--format", "text").out
    assert "2 runs: " in shown and first["hash"] in shown and "50%" in shown
    assert uwf("workflow", "stats", "pear", check=3).error["message"] == "no workflow 'pear'"


def test_a_way_counts_once_a_run_stands_at_its_end(serve: Serve, uwf: Uwf, runs: tuple[str, str]) -> None:
    thread = uwf("thread", "start", "pair", "-p", "Do more").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted(APPROVES))
    graph = uwf("workflow", "stats", "pair").json["graph"]
    ways = {(way["source"], way["target"]): way["times"] for way in graph["ways"]}
    assert ways["writer", "critic"] == 2 and ways["$START", "writer"] == 3
    nodes = {node["id"]: node["times"] for node in graph["nodes"]}
    assert (nodes["writer"], nodes["critic"]) == (3, 2)
    for client in entered(serve()):
        assert "of 2 that ended or failed; 1 can be tried again" in client.get("/workflow/pair").text


def test_the_tabs_of_a_workflow_show_its_parts(serve: Serve, uwf: Uwf, runs: tuple[str, str]) -> None:
    uwf("workflow", "put", write("pair.yaml", OTHER.replace("Writes.", "<i>Writes</i>.")))
    for client in entered(serve()):
        overview = client.get("/workflow/pair").text
        assert "of the newest 2 runs" in overview and "Transitions" in overview
        listed = client.get("/workflow/pair?tab=runs").text
        assert all(f"/thread/{thread}" in listed for thread in runs) and "<b>that</b>" not in listed
        versions = client.get("/workflow/pair?tab=versions").text
        assert versions.count("what it changed") == 2 and "&lt;i&gt;Writes" in versions
        assert "<i>Writes" not in client.get("/workflow/pair?tab=roles").text
        assert "&lt;i&gt;Writes" in client.get("/workflow/pair?tab=code").text
        assert client.get("/workflow/pair?tab=moon").status_code == 400
        assert client.get("/workflow/pair?tab=runs&thread=" + runs[0]).text.count("/thread/") == 1


def test_branches_are_parts_of_runs_and_no_runs(instance: Instance, uwf: Uwf, world: World) -> None:
    thread = world.start()
    world.run(thread)
    value = uwf("workflow", "stats", "audit").json
    assert value["runs"] == 1
    ways = {(way["source"], way["target"]): way["times"] for way in value["graph"]["ways"]}
    assert ways["planner", "fixer"] == 1
    assert next(node["times"] for node in value["graph"]["nodes"] if node["id"] == "fixer") == 2


@pytest.fixture
def world(instance: Instance, tmp_path) -> World:  # type: ignore[no-untyped-def]
    made = World(instance, tmp_path, {"planner": {"files": ["a.py", "b.py"]}}, [])
    made.put(audit())
    return made


def test_the_graph_of_a_workflow_is_as_high_as_it_needs(
    serve: Serve, browser_page: Page, runs: tuple[str, str]
) -> None:
    serving = serve()
    browser_page.goto(serving.launch)
    browser_page.set_viewport_size({"width": 1440, "height": 900})
    browser_page.goto(f"{serving.address}/workflow/pair")
    frame, picture = browser_page.locator("#graph .frame"), browser_page.locator("#graph svg.laid")
    expect(picture).to_be_visible()
    outer, inner = frame.bounding_box(), picture.bounding_box()
    assert outer and inner and outer["height"] - inner["height"] < 20
