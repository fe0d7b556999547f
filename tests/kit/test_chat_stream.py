"""Streamed completions: every way that endpoints write them comes to the same, and what breaks off is asked
for again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from model_server import (
    Drop,
    Endless,
    Garbage,
    ModelServer,
    Say,
    Turn,
    dripping,
    repeating,
    says,
    status,
)

from uwf_git.base.errors import AgentFailed
from uwf_git.engine.kit.chat import Chat, Completion, ContextTooLong, Endpoint, Limits
from uwf_git.engine.kit.chat_stream import Stream, StreamProblem
from uwf_git.format.kinds import Usage

MESSAGES = [{"role": "user", "content": "Hello"}]
FAST = Limits(pause=0.001, attempts=3, bytes=2_000_000, text=100_000)
USAGE = {"prompt_tokens": 120, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 100}}


def ask(server: ModelServer, *turns: Turn, limits: Limits = FAST, **more: Any) -> Completion:
    server.play(repeating(*turns))
    with Chat(Endpoint("local", server.chat_url, "small", ""), limits) as chat:
        return chat.complete(MESSAGES, stream=True, **more)


def asked(server: ModelServer) -> list[Mapping[str, Any]]:
    return [each.body for each in server.asked]


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "small-2", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: Any = "", **more: Any) -> dict[str, Any]:
    """A piece of a tool call; `name`, `id` and `index` may be there."""
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return chunk(tool_calls=[{**more, "function": function}])


def text_of(*events: Any, end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end


def streams(text: str | bytes) -> Turn:
    return status(200, text, "text/event-stream; charset=utf-8")


GOOD = text_of(
    chunk(role="assistant", content=""),
    chunk(content="Hé"),
    chunk(content="llo"),
    chunk("stop"),
    {"choices": [], "usage": USAGE},
)


def spelt(text: str | bytes, size: int = 0) -> dict[str, Any]:
    """The message that a stream spells, fed in pieces of that many bytes (0: at random)."""
    data = text.encode() if isinstance(text, str) else text
    stream = Stream(1_000_000)
    cut = random.Random(len(data))
    while data:
        count = size or cut.randint(1, 40)
        stream.feed(data[:count])
        data = data[count:]
    stream.close()
    assert stream.ended
    message: dict[str, Any] = stream.value()["choices"][0]["message"]
    return message


def test_a_streamed_completion_is_the_one_that_comes_whole(server: ModelServer) -> None:
    done = ask(server, streams(GOOD), extra={"max_tokens": 5})
    assert (done.text, done.model, done.finish, done.usage) == (
        "Héllo",
        "small-2",
        "stop",
        Usage(120, 7, 100),
    )
    assert asked(server)[0]["stream"] is True
    assert asked(server)[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n\n", "\n"),  # without blank lines
        ": waiting\n\n: waiting\n" + GOOD.replace("data: ", "event: x\nid: 1\nretry: 5\ndata:"),
        GOOD.removesuffix("data: [DONE]\n\n"),
        GOOD.replace('"finish_reason": "stop"', '"finish_reason": null'),  # the end mark alone
        "data:\n\n" + GOOD.replace('"delta"', '"message"').rstrip("\n"),
        text_of({**chunk(), "choices": [{"index": 1, "delta": {"content": "B"}}]}, end="") + GOOD,
    ],
)
def test_the_same_answer_in_the_spelling_of_any_endpoint(text: str) -> None:
    for size in (0, 1, len(text) * 2):
        assert spelt(text, size)["content"] == "Héllo"


READ = {"name": "read_file", "arguments": '{"path": "a b"}'}
LIST = {"name": "list_dir", "arguments": "{}"}


@pytest.mark.parametrize(
    "events",
    [
        [  # as OpenAI streams them
            call(index=0, id="a", name="read_file"),
            call('{"path":', index=0),
            call(' "a b"}', index=0),
            call(index=1, id="b", name="list_dir"),
            call("{}", index=1),
        ],
        [  # interleaved
            call('{"path":', index=0, id="a", name="read_file"),
            call("{", index=1, id="b", name="list_dir"),
            call(' "a b"}', index=0),
            call("}", index=1),
        ],
        [  # id and name in every piece
            call('{"path":', index=0, id="a", name="read_file"),
            call(' "a b"}', index=0, id="a", name="read_file"),
            call("{}", index=1, id="b", name="list_dir"),
        ],
        [  # every call is number 0
            call('{"path":', index=0, id="a", name="read_file"),
            call(' "a b"}', index=0),
            call("{}", index=0, id="b", name="list_dir"),
        ],
        [  # no index
            call('{"path":', id="a", name="read_file"),
            call(' "a b"}'),
            call("{}", id="b", name="list_dir"),
        ],
        [  # neither index nor id, arguments as a value
            call({"path": "a b"}, name="read_file"),
            call({}, name="list_dir"),
        ],
        [
            call('{"path":', index=0, name="read_"),
            call(' "a b"}', index=0),
            call("{}", index=1, name="list_dir"),
        ],
    ],
)
def test_tool_calls_are_told_apart_however_they_are_numbered(events: list[Any]) -> None:
    calls = spelt(text_of(*events, chunk("tool_calls")))["tool_calls"]
    found = [{**each["function"]} for each in calls]
    expected = [READ, LIST] if "read_file" in str(events) else [{**READ, "name": "read_"}, LIST]
    assert found == expected


def test_two_calls_of_one_tool_without_ids_are_two() -> None:
    events = [call('{"path": "a"}', name="read_file"), call('{"path": "b"}', name="read_file")]
    calls = spelt(text_of(*events, chunk("tool_calls")))["tool_calls"]
    assert [each["function"]["arguments"] for each in calls] == ['{"path": "a"}', '{"path": "b"}']
    events = [call(index=0, id=id, name="list_dir") for id in ("a", "b")]
    calls = spelt(text_of(*events, chunk("tool_calls")))["tool_calls"]
    assert [each["id"] for each in calls] == ["a", "b"]


def test_what_a_model_thinks_is_kept_apart_from_what_it_says() -> None:
    message = spelt(text_of(chunk(reasoning_content="Hm"), chunk(content="Yes"), chunk("stop")))
    assert (message["content"], message["reasoning_content"]) == ("Yes", "Hm")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("data: {nonsense\n\n", "streamed what is not JSON: {nonsense"),
        ("data: []\n\n", "streamed what is not JSON: []"),
        ("\x00\x01 garbage\n", "streamed what is not an event: garbage"),
        (text_of({"error": {"code": 400, "message": "no"}}), "answered an error: no"),
        (text_of({"error": "overloaded"}), "answered an error: overloaded (3 attempts)"),
        (
            text_of(*[call("{}", index=n, id=f"c{n}", name="x") for n in range(129)]),
            "called more than 128 tools",
        ),
        ("data: " + "x" * 1_900_000, "streamed what is not JSON: xxx"),
        ("", "answered nothing (3 attempts)"),
        (": only comments\n\n" * 3, "answered nothing (3 attempts)"),
    ],
)
def test_what_is_no_stream_is_told_in_one_line(server: ModelServer, text: str, problem: str) -> None:
    with pytest.raises(AgentFailed) as caught:
        ask(server, streams(text))
    assert problem in caught.value.message
    assert caught.value.message.isprintable()


def test_the_next_answer_comes_on_the_same_connection(server: ModelServer) -> None:
    server.play([streams(GOOD + ": what comes after the end\n\n" * 9)] * 3)
    with Chat(Endpoint("local", server.chat_url, "small", ""), FAST) as chat:
        for _ in range(3):
            assert chat.complete(MESSAGES, stream=True).text == "Héllo"
    assert server.connections == 1


def test_an_event_without_end_is_refused() -> None:
    stream = Stream(100)
    with pytest.raises(StreamProblem, match="event without end"):
        for _ in range(20):
            stream.feed(b"x" * 1_000_000)


def test_a_stream_that_breaks_off_is_asked_for_again_as_a_whole(server: ModelServer) -> None:
    done = ask(server, Drop(400, Say("Too long to be heard.")), Drop(0), Say("All of it."))
    assert done.text == "All of it."
    assert len(server.asked) == 3
    assert (done.usage and done.usage.input) == server.asked[-1].usage.input


def test_a_stream_that_just_ends_is_asked_for_again_in_the_end_without_streaming(server: ModelServer) -> None:
    half = text_of(chunk(content="Hel"), end="")
    assert ask(server, streams(half), streams(half), says("Hello")).text == "Hello"
    assert ["stream" in each for each in asked(server)] == [True, True, False]


def test_a_stream_dropped_after_its_end_is_whole(server: ModelServer) -> None:
    text = text_of(chunk(content="Hello"), chunk("stop"), end="")
    assert ask(server, Drop(len(text), streams(text + "x" * 1000))).text == "Hello"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("refusals", "sent"),
    [
        (["streaming is not supported"], [(True, True), (False, False)]),
        (["extra fields: stream_options"], [(True, True), (True, False)]),
        (["unknown: stream_options", "stream must be false"], [(True, True), (True, False), (False, False)]),
    ],
)
def test_an_endpoint_that_refuses_to_stream_is_asked_without(
    server: ModelServer, refusals: list[str], sent: list[tuple[bool, bool]]
) -> None:
    refused = [status(400, json.dumps({"error": {"message": text}})) for text in refusals]
    server.play(repeating(*refused, says("Hello")))
    with Chat(Endpoint("local", server.chat_url, "small", ""), FAST._replace(attempts=1)) as chat:
        assert chat.complete(MESSAGES, stream=True).text == "Hello"
        assert chat.complete(MESSAGES, stream=True).text == "Hello"
    found = [("stream" in body, "stream_options" in body) for body in asked(server)]
    assert found == [*sent, sent[-1]]  # what it refused once, it isn't asked again


def test_the_newer_name_of_a_limit_is_used_where_the_older_is_refused(server: ModelServer) -> None:
    refused = status(400, '{"error": {"message": "use \'max_completion_tokens\' instead"}}')
    assert ask(server, refused, streams(GOOD), extra={"max_tokens": 9}).text == "Héllo"
    assert asked(server)[1]["max_completion_tokens"] == 9
    assert "max_tokens" not in asked(server)[1]


def test_an_answer_in_one_piece_is_taken_as_it_is(server: ModelServer) -> None:
    for turn, text in ((says("whole"), "whole"), (status(200, GOOD, "text/plain"), "Héllo")):
        assert ask(server, turn).text == text
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("turn", "problem", "hint"),
    [(Garbage(), "answered a web page", ""), (Endless(), "answered more than", "ask for less")],
)
def test_a_web_page_and_an_answer_without_end_are_refused(
    server: ModelServer, turn: Turn, problem: str, hint: str
) -> None:
    with pytest.raises(AgentFailed, match=problem) as caught:
        ask(server, turn)
    assert hint in caught.value.hint
    assert len(server.asked) == 1


def test_comments_keep_a_connection_alive_but_not_for_ever(server: ModelServer) -> None:
    drip = dripping(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b": waiting\n\n")
    for limits, seconds in ((FAST._replace(whole=0.3), 100), (FAST, 0.3)):
        with pytest.raises(AgentFailed, match="still answering when the time was up"):
            ask(server, drip, limits=limits, deadline=time.monotonic() + seconds)


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        '{"code": "context_length_exceeded"}',
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ],
)
def test_too_long_a_conversation_is_told_from_other_refusals(server: ModelServer, said: str) -> None:
    with pytest.raises(ContextTooLong, match="answered 400"):
        ask(server, status(400, json.dumps({"error": {"message": said}})))
    with pytest.raises(AgentFailed) as caught:
        ask(server, status(400, json.dumps({"error": {"message": "tools: too many functions"}})))
    assert not isinstance(caught.value, ContextTooLong)
