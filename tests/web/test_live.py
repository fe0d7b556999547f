"""What is live: pages that are asked for again, the stream of a thread, and both in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import one_role
import pytest
from commands import begin
from conftest import Uwf
from one_role import SPEAKER, tell

from uwf_git.store.opened import Instance

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
def spoken(instance: Instance, script: Callable[[str, str], Path]) -> Iterator[str]:
    """A thread whose step is made by a speaker, who waits to be told."""
    thread = one_role.start(instance, SCHEMA)
    process = begin("thread", "step", thread, "--agent", script("speaker", SPEAKER))
    while not instance.locks.is_held(thread):
        assert process.poll() is None
    yield thread
    process.kill()
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
    for path in ("/", "/?tab=done", f"/thread/{thread}"):
        tag = ""
        # What changed a moment ago may do so again unseen, so the tag rests only then.
        while tag != (tag := client.get(path).headers["etag"]):
            pass
        known = {"If-None-Match": tag}
        assert client.get(path, headers=known).status_code == 304
        assert client.get(path, headers={**known, "Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert client.get("/?tab=all", headers=known).status_code == 200
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
