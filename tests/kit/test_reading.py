"""A model that reads data out of a text: what it is asked for, what it is shown, and what a server refuses."""

from __future__ import annotations

from typing import Any

import pytest
from model_script import Fail, Say, Turn
from model_server import ModelServer

from uwf_git.engine.kit.chat import Chat, Endpoint
from uwf_git.engine.kit.reading import SHOWN, messages_for
from uwf_git.engine.kit.response_format import JSON_OBJECT, response_format

STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["good", "bad"]},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 1},
        "by": {"$ref": "#/$defs/person"},
        "score": {"oneOf": [{"type": "integer", "minimum": 1}, {"const": None}], "description": "of ten"},
    },
    "required": ["status", "by"],
    "$defs": {"person": {"type": "object", "title": "P", "properties": {"name": {}}, "required": ["name"]}},
}


def test_a_schema_becomes_one_that_a_strict_mode_takes() -> None:
    person = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    wanted = response_format({**STRICT, "$defs": {"person": {**person, "title": "P"}}})
    assert wanted is not None
    assert wanted["json_schema"]["strict"] is True
    null = {"type": "null"}
    score = {"description": "of ten", "anyOf": [{"type": "integer"}, {"enum": [None]}]}
    assert wanted["json_schema"]["schema"] == {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["good", "bad"]},
            "notes": {"anyOf": [{"type": "array", "items": {"type": "string"}}, null]},
            "by": {"$ref": "#/$defs/person"},
            "score": {"anyOf": [score, null]},
        },
        "required": ["status", "notes", "by", "score"],
        "additionalProperties": False,
        "$defs": {"person": {**person, "additionalProperties": False}},
    }


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "object"},
        STRICT,  # a field that may be anything
        {"type": "object", "oneOf": [{"properties": {"a": {"type": "string"}}}]},
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        },
        {"type": "object", "properties": {"a": {"type": "string"}}, "if": {"required": ["a"]}, "then": {}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/a"}}},
    ],
)
def test_what_a_strict_mode_cannot_say_is_asked_for_as_json(payload: Any) -> None:
    assert response_format(payload) == JSON_OBJECT


def test_what_is_no_object_is_asked_for_in_words_alone() -> None:
    assert response_format({"type": "array", "items": {"type": "string"}}) is None
    [system, _] = messages_for({"type": "array"}, ["text"])
    assert "Return one JSON value" in system["content"]


@pytest.mark.parametrize(
    ("refusals", "sent"),
    [
        ([], ["json_schema"]),
        (["Invalid schema for response_format 'output'"], ["json_schema", "json_object"]),
        (
            ["this model knows no json_schema", "response format is not supported"],
            ["json_schema", "json_object", None],
        ),
    ],
)
def test_a_form_that_is_refused_is_not_asked_for_again(
    server: ModelServer, refusals: list[str], sent: list[str | None]
) -> None:
    turns: list[Turn] = [Fail(400, text) for text in refusals]
    server.play([*turns, Say("{}"), Say("{}")])
    wanted = response_format({"type": "object", "properties": {"a": {"type": "string"}}})
    endpoint = Endpoint("local", server.chat_url, "small", "")
    for _ in range(2):
        with Chat(endpoint) as chat:
            assert (
                chat.complete([{"role": "user", "content": "x"}], extra={"response_format": wanted}).text
                == "{}"
            )
    found = [each.body.get("response_format", {}).get("type") for each in server.asked]
    assert found == [*sent, sent[-1]]


def test_another_refusal_is_no_reason_to_ask_for_less(server: ModelServer) -> None:
    server.play([Fail(400, "no such model")])
    with (
        Chat(Endpoint("local", server.chat_url, "small", "")) as chat,
        pytest.raises(Exception, match="no such model"),
    ):
        chat.complete([{"role": "user", "content": "x"}], extra={"response_format": JSON_OBJECT})
    assert len(server.asked) == 1


def test_the_first_answer_is_shown_whole_and_the_newest_before_those_between() -> None:
    first, middle, last = "work " * (SHOWN // 20), "m" * SHOWN, "l" * (SHOWN // 2) + "end"
    [system, user] = messages_for({"type": "object"}, [first, middle, last], "the verdict alone")
    assert "What to look for:\nthe verdict alone\n" in system["content"]
    said = user["content"]
    assert f"Answer 1:\n\n{first}\n\nAnswer 2:\n\nmm" in said and said.endswith(f"Answer 3:\n\n{last}")
    assert "m\n[… " in said and len(said) < SHOWN + 300
    [_, alone] = messages_for({"type": "object"}, ["a" * SHOWN + "b" * SHOWN])
    assert alone["content"].startswith("aaa") and alone["content"].endswith("bbb")
