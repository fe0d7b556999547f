"""The chat client against real servers on loopback, well-behaved and otherwise."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from model_server import Drop, Hang, ModelServer, Turn, dripping, repeating, says, status

from uwf_git.base.errors import AgentFailed, Invalid, Throttled
from uwf_git.config.settings import Provider, Rates
from uwf_git.engine.kit.chat import Chat, Completion, Endpoint, Limits, resolve_endpoint
from uwf_git.format.kinds import TurnRecord, Usage

KEY = "sk-secret-0123456789"
MESSAGES = [{"role": "user", "content": "Hello"}]
FAST = Limits(pause=0.001, attempts=3, bytes=200_000)


def ask(
    server: ModelServer, *turns: Turn, limits: Limits = FAST, wait: float = 60.0, **more: Any
) -> Completion:
    server.play(repeating(*turns))
    with Chat(Endpoint("local", server.chat_url, "small", KEY, wait), limits) as chat:
        return chat.complete(MESSAGES, **more)


def test_a_completion_is_read_with_its_usage(server: ModelServer) -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 100}}
    done = ask(server, says("Hi — there", usage=usage), extra={"temperature": 0})
    assert (done.text, done.model, done.finish) == ("Hi — there", "small-2024", "stop")
    assert done.usage == Usage(120, 7, 100)
    assert done.message == {"role": "assistant", "content": "Hi — there"}
    assert server.asked[0].body == {"model": "small", "messages": MESSAGES, "temperature": 0}
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    reply = done.reply("s")
    assert (reply.text, reply.session, reply.model, reply.usage) == (
        "Hi — there",
        "s",
        "small-2024",
        done.usage,
    )
    assert reply.turns == (
        TurnRecord("assistant", "Hi — there", usage=done.usage, duration_ms=done.duration_ms),
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "ab"),
        (None, ""),
        ("half a \ud83d pair", "half a \ufffd pair"),
    ],
)
def test_content_is_text_in_whatever_form_it_comes(server: ModelServer, content: Any, text: str) -> None:
    assert ask(server, says(content)).text == text


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": "many"}, None),
        ({"prompt_tokens": 3, "completion_tokens": 0, "prompt_cache_hit_tokens": 2}, Usage(3, 0, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": None}, Usage(3, 0, 0)),
    ],
)
def test_usage_that_is_missing_is_unknown_not_zero(
    server: ModelServer, usage: Any, read: Usage | None
) -> None:
    assert ask(server, says("x", usage=usage)).usage == read


def test_what_may_pass_is_tried_again(server: ModelServer) -> None:
    assert ask(server, status(500, "oops"), status(429), says("third")).text == "third"
    assert len(server.asked) == 3
    assert all(each.body == server.asked[0].body for each in server.asked)


def test_attempts_are_counted_and_the_last_problem_is_told(server: ModelServer) -> None:
    with pytest.raises(AgentFailed) as caught:
        ask(server, status(500, "one"), status(502, "two"), status(503, '{"error": "three"}'))
    assert caught.value.message == (
        f'local ({server.chat_url}) answered 503 Service Unavailable: {{"error": "three"}} (3 attempts)'
    )
    assert len(server.asked) == 3


@pytest.mark.parametrize("number", [400, 401, 403, 404, 422])
def test_what_cannot_pass_is_not_tried_again(server: ModelServer, number: int) -> None:
    with pytest.raises(AgentFailed, match=f"answered {number} ") as caught:
        ask(server, status(number, '{"error": {"message": "no"}}'))
    assert len(server.asked) == 1
    assert caught.value.hint or number in (400, 422)


def test_an_account_without_credit_is_not_tried_again(server: ModelServer) -> None:
    with pytest.raises(AgentFailed, match="insufficient_quota"):
        ask(server, status(429, '{"error": {"code": "insufficient_quota"}}'))
    assert len(server.asked) == 1


def test_the_key_never_stands_in_an_error(server: ModelServer) -> None:
    for behaviour in (
        status(401, f"bad key {KEY}"),
        status(401, "x" * 190 + KEY),
        says("", error={"message": f"{KEY} is wrong"}),
        status(302, "", Location=f"/?key={KEY}"),
    ):
        with pytest.raises(AgentFailed) as caught:
            ask(server, behaviour)
        assert KEY[:8] not in caught.value.message
        assert "\n" not in caught.value.message
    assert KEY not in repr(Endpoint("a", "b", "c", KEY))


def test_retry_after_is_obeyed_within_limits(server: ModelServer) -> None:
    assert ask(server, status(429, Retry_After="0"), says("ok")).text == "ok"
    assert ask(server, status(429, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"), says("ok")).text == "ok"
    assert ask(server, status(503, Retry_After="soon"), says("ok")).text == "ok"
    with pytest.raises(AgentFailed, match="it asks to wait 3600 s") as caught:
        ask(server, status(429, Retry_After="3600"), says("never"))
    assert caught.value.throttled == Throttled("local", 3600)
    with pytest.raises(AgentFailed, match="no time is left for another attempt") as caught:
        ask(server, status(429, Retry_After="50"), says("never"), deadline=time.monotonic() + 20)
    assert caught.value.throttled == Throttled("local", 50)
    with pytest.raises(AgentFailed, match="it asks to wait 5 s"):
        ask(server, status(429, Retry_After="5"), says("never"), wait=2.0)
    assert len(server.asked) == 1
    for answer, throttled in ((status(429), Throttled("local")), (status(500), None), (status(400), None)):
        with pytest.raises(AgentFailed) as caught:
            ask(server, answer, answer, answer)
        assert caught.value.throttled == throttled


def test_a_server_that_hangs_is_left_at_the_deadline(server: ModelServer) -> None:
    with pytest.raises(AgentFailed, match=r"no answer within 0\.\d+ s") as caught:
        ask(server, Hang(600), deadline=time.monotonic() + 0.9)
    assert caught.value.hint == "raise the agent's timeout in config.yaml"
    assert len(server.asked) == 1
    with pytest.raises(AgentFailed, match="no time left to ask"):
        ask(server, says("x"), deadline=time.monotonic() - 1)


@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "), (b"", b"H")],
    ids=["its body", "its headers"],
)
def test_a_server_that_drips_is_left_at_the_deadline(server: ModelServer, head: bytes, piece: bytes) -> None:
    with pytest.raises(AgentFailed, match="still answering when the time was up"):
        ask(server, dripping(head, piece), deadline=time.monotonic() + 1.5)


def test_a_dropped_connection_is_tried_again(server: ModelServer) -> None:
    assert ask(server, Hang(0), Drop(10, says("never")), says("here")).text == "here"
    with pytest.raises(AgentFailed, match=r"dropped the connection: .* \(3 attempts\)"):
        ask(server, Hang(0))


def test_nobody_there_is_told_as_such() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/chat/completions"
        with Chat(Endpoint("local", url, "small", ""), FAST) as chat, pytest.raises(AgentFailed) as caught:
            chat.complete(MESSAGES)
    assert caught.value.message.startswith(f"local ({url}) cannot be reached: ")
    assert caught.value.hint == "is the address right, and is the server up?"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<!doctype html><p>Hello", "answered a web page, not JSON: <!doctype html><p>Hello"),
        ("\x00\x1b[31m garbage", "answered what is not JSON: [31m garbage"),
        ("[" * 100_000, "answered what is not JSON: [[["),
        ("[]", r"answered without choices: []"),
        ('{"choices": []}', "answered without choices"),
        ('{"choices": [{"text": "old"}]}', "answered without choices"),
        ('{"error": "overloaded"}', "answered an error: overloaded"),
        ("", "answered nothing (3 attempts)"),
        ("9" * 300_000, "answered more than 1 MB"),
    ],
)
def test_what_is_no_completion_is_told_in_one_line(server: ModelServer, body: str, problem: str) -> None:
    with pytest.raises(AgentFailed) as caught:
        ask(server, status(200, body))
    assert f"local ({server.chat_url}) {problem}" in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_an_endless_body_is_cut_off(server: ModelServer) -> None:
    with pytest.raises(AgentFailed, match="answered more than") as caught:
        ask(server, dripping(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" " * 65536, pause=0))
    assert "ask for less" in caught.value.hint


@pytest.mark.parametrize("url", ["ftp://x/y", "nonsense", "http://", "http://[::1", ""])
def test_an_unusable_address_is_named(url: str) -> None:
    with pytest.raises(Invalid, match="provider local has no usable baseUrl"):
        Chat(Endpoint("local", url, "m", ""))


def test_credentials_in_the_address_are_not_shown() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://me:hidden@127.0.0.1:{free.getsockname()[1]}/v1?token=hidden"
        with Chat(Endpoint("local", url, "m", ""), FAST) as chat, pytest.raises(AgentFailed) as caught:
            chat.complete(MESSAGES)
    assert "hidden" not in caught.value.message


def test_an_endpoint_is_put_together_from_the_configuration(tmp_path: Any) -> None:
    config: Any = SimpleNamespace(
        providers={
            "router": Provider("router", "https://r.example/v1/", "R_KEY"),
            "home": Provider("home", "http://localhost:1", "", Rates(wait=2)),
        },
        models={
            "big": SimpleNamespace(alias="big", provider="router", name="vendor/big-4"),
            "own": SimpleNamespace(alias="own", provider="home", name="own"),
            "lost": SimpleNamespace(alias="lost", provider="gone", name="x"),
        },
        path=tmp_path / "config.yaml",
    )
    assert resolve_endpoint(config, "big", {"R_KEY": KEY}) == Endpoint(
        "router", "https://r.example/v1/chat/completions", "vendor/big-4", KEY
    )
    own = resolve_endpoint(config, "own", {})
    assert (own.key, own.wait) == ("", 2)
    with pytest.raises(AgentFailed, match="R_KEY, the key of provider router, is not set"):
        resolve_endpoint(config, "big", {})
    with pytest.raises(Invalid, match="model 'small' is not configured"):
        resolve_endpoint(config, "small", {})
    with pytest.raises(Invalid, match="names the provider 'gone'"):
        resolve_endpoint(config, "lost", {})
