"""A role's schema as a form, and outputs made of texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.errors import Usage
from uwf_git.engine.kit.form import FormField, fields_of, fill, options_of
from uwf_git.format.schema import Schema

PLAIN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["merge", "reject"]},
        "reason": {"type": "string"},
        "score": {"type": "integer", "minimum": 1},
        "urgent": {"type": "boolean"},
        "files": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
    "required": ["verdict"],
    "additionalProperties": False,
}
STATUSES: dict[str, Any] = {
    "type": "object",
    "oneOf": [
        {"properties": {"$status": {"const": "approved"}}, "required": ["$status"]},
        {
            "properties": {"$status": {"const": "rejected"}, "reason": {"type": "string"}},
            "required": ["$status", "reason"],
        },
    ],
}


def test_the_fields_say_what_they_take() -> None:
    assert [(each.name, each.kind, each.required) for each in fields_of(PLAIN)] == [
        ("verdict", "choice", True),
        ("reason", "text", False),
        ("score", "integer, at least 1", False),
        ("urgent", "choice", False),
        ("files", "list", False),
        ("where", "object", False),
    ]
    assert options_of(fields_of(PLAIN)) == ("merge", "reject")


def test_variants_are_one_form_and_a_choice_selects_among_them() -> None:
    status, reason = fields_of(STATUSES)
    assert status == FormField("$status", "choice", True, ("approved", "rejected"))
    assert not reason.required
    assert fill(Schema(STATUSES), {}, "approved").output == {"$status": "approved"}
    with pytest.raises(Usage, match="must be filled in: reason: text") as raised:
        fill(Schema(STATUSES), {"status": ["rejected"]})
    assert raised.value.hint == "-f reason=VALUE"
    made = fill(Schema(STATUSES), {"status": ["rejected"]}, "It is wrong")
    assert made.output == {"$status": "rejected", "reason": "It is wrong"}


@pytest.mark.parametrize(
    ("texts", "words", "output", "rest"),
    [
        ({}, "merge", {"verdict": "merge"}, ""),
        ({}, "MERGE", {"verdict": "merge"}, ""),
        ({}, "2", {"verdict": "reject"}, ""),
        ({"verdict": ["merge"]}, "fine", {"verdict": "merge", "reason": "fine"}, ""),
        ({"verdict": ["merge"], "reason": ["x"]}, "fine", {"verdict": "merge", "reason": "x"}, "fine"),
        ({"verdict": ["merge"], "reason": ["007"]}, "", {"verdict": "merge", "reason": "007"}, ""),
        ({"verdict": ["merge"], "score": ["3"]}, "", {"verdict": "merge", "score": 3}, ""),
        ({"verdict": ["merge"], "urgent": ["yes"]}, "", {"verdict": "merge", "urgent": True}, ""),
        ({"verdict": ["merge"], "urgent": ["false"]}, "", {"verdict": "merge", "urgent": False}, ""),
        ({"verdict": ["merge"], "files": ["1", "b"]}, "", {"verdict": "merge", "files": ["1", "b"]}, ""),
        ({"verdict": ["merge"], "files": ['["x"]']}, "", {"verdict": "merge", "files": ["x"]}, ""),
        ({"verdict": ["merge"], "where": ['{"x": 1}']}, "", {"verdict": "merge", "where": {"x": 1}}, ""),
    ],
)
def test_texts_become_what_the_schema_wants(
    texts: dict[str, list[str]], words: str, output: dict[str, Any], rest: str
) -> None:
    assert fill(Schema(PLAIN), texts, words) == (output, rest)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({}, "this must be filled in: verdict: merge or reject"),
        ({"verdict": ["mrege"]}, "verdict: 'mrege' is none of merge, reject"),
        ({"verdict": ["merge"], "score": ["0"]}, "0 is less than the minimum of 1"),
        ({"verdict": ["merge"], "score": ["x"]}, "'x' is not of type 'integer'"),
        ({"verdict": ["merge"], "reasn": ["x"]}, "there is no field 'reasn'"),
        ({"verdict": ["merge", "reject"]}, "field verdict is given 2 times"),
    ],
)
def test_what_does_not_fit_is_named(texts: dict[str, list[str]], said: str) -> None:
    with pytest.raises(Usage) as refused:
        fill(Schema(PLAIN), texts)
    assert said in refused.value.message


def test_a_number_that_is_also_another_choice_is_refused_where_either_could_be_meant() -> None:
    schema = Schema({"type": "object", "properties": {"n": {"enum": [3, 1, 2]}}, "required": ["n"]})
    with pytest.raises(Usage, match="1 is a choice, and the number of another, '3'"):
        fill(schema, {}, "1")
    assert fill(schema, {"n": ["1"]}).output == {"n": 1}
    with pytest.raises(Usage, match="'2' is none of"):
        fill(Schema(PLAIN), {"verdict": ["2"]})


def test_a_list_of_numbers_takes_one_a_text() -> None:
    items = {"type": "array", "items": {"type": "integer"}}
    schema = Schema({"type": "object", "properties": {"n": items}, "required": ["n"]})
    (field,) = fields_of(schema.payload)
    assert (field.kind, field.is_list) == ("list of integers", True)
    assert fill(schema, {"n": ["1", "2"]}).output == {"n": [1, 2]}
    assert fill(schema, {"n": ["[1, 2]"]}).output == {"n": [1, 2]}


def test_a_schema_without_fields_takes_any() -> None:
    assert fill(Schema({"type": "object"}), {"a": ["1"]}).output == {"a": 1}


@given(
    st.dictionaries(st.sampled_from(list(PLAIN["properties"])), st.lists(st.text(), min_size=1)), st.text()
)
def test_an_output_is_always_valid_or_refused(texts: dict[str, list[str]], words: str) -> None:
    try:
        made = fill(Schema(PLAIN), texts, words)
    except Usage:
        return
    assert not Schema(PLAIN).problems(made.output)
