"""Which beginnings of a request are marked for a provider's cache, and what becomes of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from model_server import ModelServer, says, serving, status

from uwf_git.base.errors import AgentFailed
from uwf_git.engine.kit.cache_marks import mark_for, marked
from uwf_git.engine.kit.chat import Chat, Endpoint, Limits

ANTHROPIC = {"cache_control": {"type": "ephemeral"}}
OPENAI = {"prompt_cache_breakpoint": {"mode": "explicit"}}
PROMPT = (
    "# How you answer\n\nBriefly.\n\n# The task\n\nDo it.\n\n# What happened so far\n\n## Step 1: a, by b\n\nOne.\n\n"
    "# Your role: worker\n\nWork.\n"
)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You work."},
    {"role": "user", "content": PROMPT},
    {"role": "assistant", "content": "I look.", "tool_calls": []},
    {"role": "tool", "tool_call_id": "c", "content": "a line"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "tool_call_id": "d", "content": "another"},
    {"role": "tool", "tool_call_id": "e", "content": "a third"},
]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving() as running:
        yield running


def places(messages: list[Any]) -> list[tuple[int, int]]:
    return [
        (place, number)
        for place, message in enumerate(messages)
        if isinstance(message["content"], list)
        for number, part in enumerate(message["content"])
        if "cache_control" in part
    ]


def plain(messages: list[Any]) -> list[Any]:
    """The messages with their parts joined again."""
    return [
        {**message, "content": "".join(part["text"] for part in message["content"])}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


@pytest.mark.parametrize(
    ("url", "model", "mark"),
    [
        ("https://openrouter.ai/api/v1/chat/completions", "anthropic/claude-sonnet-5", ANTHROPIC),
        ("http://localhost:4000/chat/completions", "Claude-Opus-5", ANTHROPIC),
        ("https://api.openai.com/v1/chat/completions", "gpt-5.6-sol", OPENAI),
        ("https://api.openai.com/v1/chat/completions", "gpt-6", OPENAI),
        ("https://api.openai.com/v1/chat/completions", "gpt-5.5", {}),
        ("https://api.openai.com/v1/chat/completions", "gpt-4o-2024-08-06", {}),
        ("https://api.example.com/v1/chat/completions", "gpt-5.6", {}),
        ("https://api.deepseek.com/chat/completions", "deepseek-v4", {}),
    ],
)
def test_a_model_is_marked_for_as_its_provider_wants(url: str, model: str, mark: Any) -> None:
    assert mark_for(None, url, model) == mark
    assert mark_for("none", url, model) == {}
    assert mark_for("anthropic", url, model) == ANTHROPIC
    assert mark_for("openai", url, model) == OPENAI


def test_a_conversation_is_marked_where_the_last_request_ended_and_where_it_ends() -> None:
    messages = marked(TALK, ANTHROPIC)
    assert places(messages) == [(0, 0), (3, 0), (6, 0)]
    assert messages[0]["content"] == [{"type": "text", "text": "You work.", **ANTHROPIC}]
    assert (messages[2], messages[4], messages[5]) == (TALK[2], TALK[4], TALK[5])
    assert plain(messages) == TALK
    assert places(marked(TALK[:2], ANTHROPIC, has_tools=True)) == [(0, 0), (1, 2), (1, 3)]
    assert places(marked(TALK[:2], ANTHROPIC)) == [(0, 0)], "no further request is in sight"
    before = marked(TALK[:4], ANTHROPIC)
    assert places(before) == [(0, 0), (1, 3), (3, 0)] and plain(before) == TALK[:4]
    assert [part["text"] for part in before[1]["content"]] == [
        part["text"] for part in messages[1]["content"]
    ]


def test_a_single_prompt_is_marked_where_the_next_one_of_its_thread_differs() -> None:
    (message,) = marked([TALK[1]], OPENAI)
    texts = [part["text"] for part in message["content"]]
    assert texts[0] == "# How you answer\n\nBriefly.\n\n# The task\n\nDo it.\n\n"
    assert texts[1:] == [
        "# What happened so far\n\n",
        "## Step 1: a, by b\n\nOne.\n\n",
        "# Your role: worker\n\nWork.\n",
    ]
    assert [OPENAI.items() <= part.items() for part in message["content"]] == [False, False, True, False]
    other = [{"role": "user", "content": "Read this."}]
    assert marked(other, ANTHROPIC) == other, "nothing will begin with it again"


def test_without_marks_a_request_is_as_it_was() -> None:
    assert marked(TALK, {}) == TALK


@pytest.mark.parametrize(
    "refusal",
    [
        '{"error": {"message": "messages.0.content.0.cache_control: Extra inputs are not permitted"}}',
        '{"error": {"message": "Unknown parameter: \'prompt_cache_key\'."}}',
        '{"detail": [{"loc": ["body", "messages", 0, "content"], "msg": "Input should be a valid string"}]}',
    ],
)
@pytest.mark.parametrize("marks", ["anthropic", "openai"])
def test_a_provider_that_refuses_marks_is_asked_without_them(
    server: ModelServer, marks: Any, refusal: str
) -> None:
    endpoint = Endpoint("local", server.chat_url, "small", "", marks=marks)
    server.play([status(400, refusal), says("first"), says("second")])
    for answer in ("first", "second"):
        with Chat(endpoint, Limits(attempts=1), cache_key="t") as chat:
            assert chat.complete(TALK).text == answer
    bodies = [asked.body for asked in server.asked]
    assert isinstance(bodies[0]["messages"][0]["content"], list)
    assert bodies[1] == bodies[2] == {"model": "small", "messages": TALK}


def test_a_refusal_of_something_else_is_not_asked_again(server: ModelServer) -> None:
    endpoint = Endpoint("local", server.chat_url, "other", "", marks="anthropic")
    server.play([status(400, '{"error": {"message": "temperature is out of range"}}')])
    with Chat(endpoint, Limits(attempts=1)) as chat, pytest.raises(AgentFailed, match="out of range"):
        chat.complete(TALK)
