"""A step, an attempt or a version by its hash: its address leads to its place."""

from __future__ import annotations

import httpx
import pytest
from cli_samples import REJECTS_ONCE, scripted
from conftest import Uwf
from workflows import opened

from uwf_git.format.ids import Hash
from uwf_git.store.node_rows import NodeRow


@pytest.fixture
def done(uwf: Uwf, thread: str) -> str:
    uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE))
    return thread


def _leads(client: httpx.Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 303, response.text
    return response.headers["location"]


@pytest.mark.parametrize("kind", ["step", "node"])
def test_a_step_by_its_hash_leads_to_its_place(client: httpx.Client, uwf: Uwf, done: str, kind: str) -> None:
    steps = uwf("thread", "steps", done).json
    for step in steps:
        assert _leads(client, f"/{kind}/{step['step']}") == f"/thread/{done}/step/{step['number']}"
    assert _leads(client, f"/{kind}/{steps[1]['step'][:11].lower()}") == f"/thread/{done}/step/2"


def test_a_shared_step_leads_to_the_oldest_thread(client: httpx.Client, uwf: Uwf, done: str) -> None:
    uwf("thread", "fork", done, "--at", "2")
    step = uwf("thread", "steps", done).json[0]["step"]
    assert _leads(client, f"/step/{step}") == f"/thread/{done}/step/1"


def test_a_failed_attempt_and_a_version_have_places_too(client: httpx.Client, uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", "false", check=None)
    attempt = uwf("thread", "attempts", thread).json[0]["attempt"]
    assert _leads(client, f"/step/{attempt}") == f"/thread/{thread}/attempt/{attempt}"
    version = uwf("workflow", "list").json[0]["hash"]
    assert _leads(client, f"/node/{version}") == f"/workflow/{version}"


def test_a_beginning_of_several_lists_them(client: httpx.Client, uwf: Uwf, done: str) -> None:
    step = uwf("thread", "steps", done).json[0]["step"]
    index = opened().store.index
    other = Hash(step[:12] + ("0" if step[12] != "0" else "1"))
    kind, blob = index.node(step) or (Hash(""), b"")
    version = index.commits_of(uwf("workflow", "list").json[0]["hash"])[0]
    with index.transaction():  # no other hash begins like that by itself
        index.add_nodes([NodeRow(other, kind, blob, "")])
        index.add_commit(version._replace(node=other, oid=b"x" * 20))
    page = client.get(f"/step/{step[:12]}")
    assert page.status_code == 200
    assert f'href="/thread/{done}/step/1"' in page.text and f'href="/workflow/{other}"' in page.text


@pytest.mark.parametrize(
    ("text", "status"),
    [("0000000000000", 404), ("ZZZZ", 404), ("abc", 400), ("U" * 13, 400), ("x" * 9000, 400)],
)
def test_what_is_no_hash_of_a_step_says_so(client: httpx.Client, done: str, text: str, status: int) -> None:
    page = client.get(f"/step/{text}")
    assert page.status_code == status and len(page.content) < 10_000


def test_a_node_that_is_not_a_step_says_so(client: httpx.Client, uwf: Uwf, done: str) -> None:
    output = uwf("cas", "put", "Text", '"hello"').json["hash"]
    page = client.get(f"/node/{output}")
    assert page.status_code == 404 and "is not a step" in page.text
