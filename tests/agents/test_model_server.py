"""The scripted model server speaks as the providers do: their own clients understand it, whole and streamed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
from late_import import imported_late
from model_server import (
    Asked,
    Call,
    Drop,
    Endless,
    Fail,
    Garbage,
    Hang,
    Huge,
    ModelServer,
    Say,
    Several,
    Tokens,
    by_prompt,
    serving,
)

if TYPE_CHECKING:
    import anthropic
    import openai
    from google import genai
else:
    anthropic, openai, genai = map(imported_late, ("anthropic", "openai", "google.genai"))

KEY = "sk-loopback"
WEATHER = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}


class Heard(NamedTuple):
    """What a client made of an answer; calls are (name, arguments). Tokens as the client counts them, `input`
    with what came from the cache."""

    text: str
    calls: list[tuple[str, Any]]
    usage: Tokens
    finish: str


class Client(NamedTuple):
    """A provider's own client: `ask` sends a conversation of (role, text) with the tool `weather` offered."""

    ask: Callable[[ModelServer, list[tuple[str, str]], bool], Heard]
    failure: Callable[[], type[Exception]]
    status: Callable[[Any], int]


def _openai(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.openai_url, api_key=KEY, max_retries=0, timeout=60)


def by_chat(server: ModelServer, said: list[tuple[str, str]], stream: bool) -> Heard:
    function = {"name": "weather", "parameters": WEATHER}
    request: Any = {
        "model": "small",
        "messages": [{"role": role, "content": text} for role, text in said],
        "tools": [{"type": "function", "function": function}],
    }
    completions = _openai(server).chat.completions
    if stream:
        try:
            with completions.stream(**request, stream_options={"include_usage": True}) as events:
                done: Any = events.get_final_completion()
        except openai.LengthFinishReasonError as cut:
            done = cut.completion
    else:
        done = completions.create(**request)
    choice, usage = done.choices[0], done.usage
    cached = usage.prompt_tokens_details.cached_tokens
    return Heard(
        choice.message.content or "",
        [(each.function.name, each.function.arguments) for each in choice.message.tool_calls or ()],
        Tokens(usage.prompt_tokens, usage.completion_tokens, cached),
        choice.finish_reason,
    )


def by_responses(server: ModelServer, said: list[tuple[str, str]], stream: bool) -> Heard:
    request: Any = {
        "model": "small",
        "input": [{"role": role, "content": text} for role, text in said],
        "tools": [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}],
    }
    responses = _openai(server).responses
    if stream:
        events: list[Any] = list(responses.create(**request, stream=True))
        done = events[-1].response
        told = [each.delta for each in events if each.type == "response.output_text.delta"]
        assert "".join(told) == done.output_text
        assert [each.sequence_number for each in events] == list(range(len(events)))
    else:
        done = responses.create(**request)
    usage = done.usage
    return Heard(
        done.output_text,
        [(item.name, item.arguments) for item in done.output if item.type == "function_call"],
        Tokens(usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens),
        done.incomplete_details.reason if done.status == "incomplete" else done.status,
    )


def by_messages(server: ModelServer, said: list[tuple[str, str]], stream: bool) -> Heard:
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=60)
    request: Any = {
        "model": "small",
        "max_tokens": 100,
        "system": "\n".join(text for role, text in said if role == "system"),
        "messages": [{"role": role, "content": text} for role, text in said if role != "system"],
        "tools": [{"name": "weather", "input_schema": WEATHER}],
    }
    if stream:
        with client.messages.stream(**request) as events:
            done: Any = events.get_final_message()
    else:
        done = client.messages.create(**request)
    usage = done.usage
    cached = usage.cache_read_input_tokens
    return Heard(
        "".join(block.text for block in done.content if block.type == "text"),
        [(block.name, block.input) for block in done.content if block.type == "tool_use"],
        Tokens(usage.input_tokens + cached, usage.output_tokens, cached),
        done.stop_reason,
    )


def by_gemini(server: ModelServer, said: list[tuple[str, str]], stream: bool) -> Heard:
    options: Any = {"base_url": server.url, "timeout": 60_000, "retry_options": {"attempts": 1}}
    client = genai.Client(api_key=KEY, http_options=options)
    models = client.models
    roles = {"user": "user", "assistant": "model"}
    function = {"name": "weather", "description": "", "parameters_json_schema": WEATHER}
    request: Any = {
        "model": "small",
        "contents": [
            {"role": roles[role], "parts": [{"text": text}]} for role, text in said if role in roles
        ],
        "config": {
            "system_instruction": "\n".join(text for role, text in said if role == "system"),
            "tools": [{"function_declarations": [function]}],
        },
    }
    if stream:
        parts = list(models.generate_content_stream(**request))
    else:
        parts = [models.generate_content(**request)]
    found = [part for each in parts for part in each.candidates[0].content.parts or ()]  # type: ignore
    usage: Any = parts[-1].usage_metadata
    calls = [part.function_call for part in found if part.function_call]
    return Heard(
        "".join(part.text or "" for part in found),
        [(call.name, call.args) for call in calls],
        Tokens(usage.prompt_token_count, usage.candidates_token_count, usage.cached_content_token_count),
        parts[-1].candidates[0].finish_reason.name,  # type: ignore
    )


CLIENTS = {
    "chat": Client(by_chat, lambda: openai.APIError, lambda error: int(error.status_code)),
    "responses": Client(by_responses, lambda: openai.APIError, lambda error: int(error.status_code)),
    "messages": Client(by_messages, lambda: anthropic.APIError, lambda error: int(error.status_code)),
    "gemini": Client(by_gemini, lambda: genai.errors.APIError, lambda error: int(error.code)),
}
FINISH = {  # an answer, one cut off, one that calls, one that is refused
    "chat": ("stop", "length", "tool_calls", "content_filter"),
    "responses": ("completed", "max_output_tokens", "completed", "content_filter"),
    "messages": ("end_turn", "max_tokens", "tool_use", "refusal"),
    "gemini": ("STOP", "MAX_TOKENS", "STOP", "SAFETY"),
}
SAID = [("system", "You are brief."), ("user", "Hi."), ("assistant", "Hello."), ("user", "How is it?")]


@pytest.mark.extended
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", CLIENTS)
class TestEveryProvidersOwnClient:
    def test_hears_texts_calls_and_usage(self, wire: str, stream: bool, server: ModelServer) -> None:
        said = "Grüße – how are you? 🌍"
        calls = (Call("weather", {"town": "Zürich"}), Call("weather", {"town": 'a "b"\n'}))
        server.play([Say(said), Say("Half a", "length"), Several(calls, "I look.")])
        ask = CLIENTS[wire].ask
        plain, cut, calling = (ask(server, SAID, stream) for _ in range(3))
        usage = Tokens(130, 7, 20)
        stop, length, tools, _ = FINISH[wire]
        assert plain == Heard(said, [], usage, stop)
        assert cut == Heard("Half a", [], usage, length)
        assert calling.text == "I look." and calling.finish == tools
        parsed = [(name, _parsed(arguments)) for name, arguments in calling.calls]
        assert parsed == [(call.name, call.arguments) for call in calls]
        assert server.usage == usage + usage + usage
        assert server.left == 0 and not server.asides and not server.strays

    def test_is_heard_in_the_same_words_whatever_the_wire(
        self, wire: str, stream: bool, server: ModelServer
    ) -> None:
        server.play([Say("ok")])
        CLIENTS[wire].ask(server, SAID, stream)
        (asked,) = server.asked
        assert (asked.wire, asked.model, asked.system) == (wire, "small", "You are brief.")
        assert [(each.role, each.text) for each in asked.messages] == SAID[1:]
        assert (asked.tools, asked.stream, asked.prompt) == (("weather",), stream, "How is it?")
        assert asked.usage == Tokens(130, 7, 20)

    def test_is_told_that_an_answer_is_refused(self, wire: str, stream: bool, server: ModelServer) -> None:
        server.play([Say("", "refusal")])
        if wire == "chat" and stream:
            with pytest.raises(openai.ContentFilterFinishReasonError):
                CLIENTS[wire].ask(server, SAID, stream)
        else:
            refused = CLIENTS[wire].ask(server, SAID, stream)
            assert (refused.text, refused.finish) == ("", FINISH[wire][-1])

    def test_is_told_of_failures_by_their_status(self, wire: str, stream: bool, server: ModelServer) -> None:
        ask, failure, status = CLIENTS[wire]
        for number in (400, 401, 429, 500):
            server.play([Fail(number, "not today", retry_after=1)])
            with pytest.raises(failure(), match="not today") as failed:
                ask(server, SAID, stream)
            assert status(failed.value) == number

    def test_does_not_take_half_an_answer_for_one(self, wire: str, stream: bool, server: ModelServer) -> None:
        long = Say("word " * 1000)
        for turn in (Drop(300, long), Drop(0, long), Hang(0)):
            server.play([turn])
            with pytest.raises(Exception):  # noqa: B017 - each client has its own, and httpx's
                CLIENTS[wire].ask(server, SAID, stream)
            assert server.usage == Tokens(0, 0, 0)


def _parsed(arguments: Any) -> Any:
    import json

    return json.loads(arguments) if isinstance(arguments, str) else arguments


def test_results_of_tools_come_back_by_the_calls_id(server: ModelServer) -> None:
    chat: Any = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "X"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]  # fmt: skip
    items: Any = [
        {"role": "user", "content": "Go."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"town": "X"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    ]
    blocks: Any = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"town": "X"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]},
    ]  # fmt: skip
    contents: Any = [
        {"role": "user", "parts": [{"text": "Go."}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"town": "X"}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "rain"}}}]},
    ]  # fmt: skip
    server.play([Say("Rain.")] * 4)
    with httpx.Client(base_url=server.url) as client:
        for path, body in (
            ("/v1/chat/completions", {"model": "m", "messages": chat}),
            ("/v1/responses", {"model": "m", "input": items}),
            ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": blocks}),
            ("/v1beta/models/m:generateContent", {"contents": contents}),
        ):
            assert "Rain." in client.post(path, json=body).raise_for_status().text
    assert [each.wire for each in server.asked] == ["chat", "responses", "messages", "gemini"]
    for asked in server.asked:
        assert [(call.id, call.name, call.arguments) for call in asked.calls] == [
            ("c1", "weather", {"town": "X"})
        ]
        assert [(result.id, result.text) for result in asked.results] == [("c1", "rain")]


def test_one_server_plays_several_roles_at_once(server: ModelServer) -> None:
    def count(asked: Asked) -> Say:
        return Say(f"{len(asked.messages)} messages")

    server.play(by_prompt({"planner": [Say("plan 1"), Say("plan 2")], "counter": count}))
    heard = [
        by_chat(server, [("system", f"Your role: {role}"), ("user", "Go.")], True).text
        for role in ("planner", "counter", "planner")
    ]
    assert heard == ["plan 1", "1 messages", "plan 2"]
    with pytest.raises(openai.BadRequestError, match="no script for this prompt"):
        by_chat(server, [("user", "Who am I?")], False)


def test_a_script_that_is_over_is_said_to_be(server: ModelServer) -> None:
    server.play([Say("last")])
    by_messages(server, SAID, True)
    with pytest.raises(anthropic.BadRequestError, match="the script is over: it had 1 turns"):
        by_messages(server, SAID, True)


def test_what_clients_ask_on_their_own_account_costs_no_turn_and_no_tokens(server: ModelServer) -> None:
    server.play([Say("for the user")])
    client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)
    quota = client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "quota"}])
    assert quota.stop_reason == "end_turn" and quota.usage.input_tokens == 0
    counted = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x" * 400}])
    assert counted.input_tokens >= 100
    title = _openai(server).responses.create(
        model="m", instructions="You are a title generator.", input="Say hello"
    )
    assert title.output_text == '{"title": "A task"}'
    assert [each.id for each in _openai(server).models.list()] == ["scripted"]
    assert (server.asked, len(server.asides), server.strays, server.left) == ([], 2, [], 1)
    assert server.usage == Tokens(0, 0, 0)
    assert by_chat(server, SAID, False).text == "for the user"


def test_a_key_is_asked_for_in_each_providers_own_place() -> None:
    with serving(Say("in"), key=KEY) as server:
        for client in CLIENTS.values():
            assert client.ask(server, SAID, False).text == "in"
        body = {"model": "m", "messages": []}
        refused = httpx.post(f"{server.openai_url}/chat/completions", json=body)
        assert refused.status_code == 401 and len(server.asked) == len(CLIENTS)


def test_garbage_huge_and_endless_answers_and_arguments_that_are_no_json(server: ModelServer) -> None:
    server.play([Garbage(), Huge(3_000_000), Call("weather", "{not json"), Endless("on ", 3_000_000)])
    body: Any = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}
    url = f"{server.openai_url}/chat/completions"
    page = httpx.post(url, json=body)
    assert page.status_code == 200 and page.headers["content-type"] == "text/html"
    assert len(httpx.post(url, json=body).json()["choices"][0]["message"]["content"]) == 3_000_000
    assert by_chat(server, SAID, False).calls == [("weather", "{not json")]
    received = 0
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", url, json={**body, "stream": True}) as response,
    ):
        for chunk in response.iter_bytes():
            received += len(chunk)
    assert received > 3_000_000


def test_what_no_protocol_knows_and_what_is_meant_for_other_hosts_is_refused_and_noted(
    server: ModelServer,
) -> None:
    assert httpx.get(f"{server.url}/telemetry").status_code == 404
    with pytest.raises(httpx.ProxyError):
        httpx.get("https://example.invalid/", proxy=server.url)
    assert server.strays == ["GET /telemetry", "CONNECT example.invalid:443"]


def test_a_server_that_ends_lets_go_of_those_it_kept_waiting() -> None:
    before = threading.active_count()
    with serving(Hang(600)) as server:
        waiting = threading.Thread(target=lambda: _swallow(server))
        waiting.start()
        while not server.asked:
            pass
    waiting.join(20)
    assert not waiting.is_alive() and threading.active_count() <= before + 1


def _swallow(server: ModelServer) -> None:
    with pytest.raises(httpx.HTTPError):
        body = {"model": "m", "messages": []}
        httpx.post(f"{server.openai_url}/chat/completions", json=body, timeout=None)
