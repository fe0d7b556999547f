"""A fan-out as a matrix of branches by roles: in JSON, on a terminal and as a page."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from conftest import Uwf
from fan_outs import World, audit, failing, refused
from site_serving import Serve, entered

from uwf_git.api.cockpit.matrix import SHOWN, matrix
from uwf_git.base.errors import AgentFailed, NotFound
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

CHECKED = audit(
    more="  checker: {description: c, systemPrompt: C., outputSchema: "
    "{type: object, properties: {text: {type: string}}, required: [text]}}",
    edges="  fixer: [{role: checker}]\n  checker: [{role: reviewer}]",
)
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture
def world(instance: Instance, tmp_path: Path) -> World:
    made = World(instance, tmp_path, {"planner": {"files": ["a.py", HOSTILE, "c.py", "d" * 10_000]}}, [])
    made.put(CHECKED)
    return made


@pytest.fixture
def parted(world: World) -> ThreadId:
    """A thread whose first branch has ended, its second has failed, its third has a step and its fourth none."""
    thread = world.start()
    one, two, three, _ = world.forked(thread)
    world.run(one)
    world.step(three)
    world.roles["fixer"] = failing("no luck " + HOSTILE)
    assert isinstance(refused(lambda: world.step(two)), AgentFailed)
    return thread


def test_a_matrix_has_a_row_a_branch_and_a_column_a_role(world: World, parted: ThreadId) -> None:
    value = matrix(world.instance, world.head(parted))
    assert value["roles"] == ["fixer", "checker"] and value["total"] == 4 and value["fork"] == 2
    assert value["joined"] is None and value["more"] == 0
    states = [{role: cell["state"] for role, cell in row["cells"].items()} for row in value["rows"]]
    assert states == [
        {"fixer": "done", "checker": "done"},
        {"fixer": "failed"},
        {"fixer": "done", "checker": "next"},
        {"fixer": "next"},
    ]
    assert [row["status"] for row in value["rows"]] == ["completed", "failed", "idle", "idle"]
    first = value["rows"][0]["cells"]
    assert first["fixer"]["verdict"].startswith("fixer: Fix a.py") and first["checker"]["number"] == 2
    assert "no luck" in value["rows"][1]["cells"]["fixer"]["verdict"]
    assert all(len(row["item"]) < 200 for row in value["rows"])


def test_a_joined_fan_out_stays_a_matrix(world: World) -> None:
    thread = world.start()
    world.run(thread)
    value = matrix(world.instance, world.head(thread))
    assert value["joined"] == 3 and value["counts"] == {"completed": 4}
    assert all(set(row["cells"]) == {"fixer", "checker"} for row in value["rows"])
    assert matrix(world.instance, world.head(thread), fork=2)["rows"] == value["rows"]


def test_a_thread_without_that_fan_out_says_so(world: World, parted: ThreadId) -> None:
    error = refused(lambda: matrix(world.instance, world.head(parted), fork=7))
    assert isinstance(error, NotFound) and "steps 2" in error.hint
    alone = world.start(prompt="Not yet")
    assert isinstance(refused(lambda: matrix(world.instance, world.head(alone))), NotFound)


def test_more_branches_than_are_shown_follow(world: World) -> None:
    world.put(audit(policy=f"max: {SHOWN + 3}"))
    world.roles["planner"] = {"files": [f"{number}.py" for number in range(SHOWN + 3)]}
    thread = world.start()
    world.forked(thread)
    value = matrix(world.instance, world.head(thread))
    assert len(value["rows"]) == SHOWN and value["more"] == 3
    rest = matrix(world.instance, world.head(thread), first=SHOWN)
    assert [row["index"] for row in rest["rows"]] == [SHOWN, SHOWN + 1, SHOWN + 2] and rest["more"] == 0


def test_the_page_and_the_terminal_show_it_harmless(serve: Serve, uwf: Uwf, parted: ThreadId) -> None:
    shown = uwf("thread", "branches", parted, "--format", "text").out
    assert "\x1b[31m" not in shown and "\u202e" not in shown and "failed no luck" in shown
    assert uwf("thread", "branches", parted).json["roles"] == ["fixer", "checker"]
    for client in entered(serve()):
        page = _page(client, parted)
        assert "<script>alert" not in page and "\u202e" not in page and "\x1b" not in page
        assert page.count('class="cell at-done"') == 3 and page.count('class="cell at-failed"') == 1
        assert f"/thread/{parted}/matrix" in client.get(f"/thread/{parted}").text
        assert client.get(f"/thread/{parted}/matrix?fork=9").status_code == 404
        assert client.get(f"/thread/{parted}/matrix?from=x").status_code == 400


def _page(client: httpx.Client, thread: ThreadId) -> str:
    page = client.get(f"/thread/{thread}/matrix")
    assert page.status_code == 200
    return page.text
