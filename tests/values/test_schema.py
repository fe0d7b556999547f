"""Schemas decide what a payload may be and where its references stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.format import kinds
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.kinds import parse_start, parse_step
from uwf_git.format.schema import Schema, check_schema
from uwf_git.format.types import STARTNODE, STEPNODE

A, B, C = "0000000000001", "0000000000002", "0000000000003"
REF = {"type": "string", "format": "cas_ref"}

PLACES: dict[str, tuple[dict[str, Any], Any]] = {
    "properties": ({"properties": {"a": REF}}, {"a": A, "b": B}),
    "items": ({"items": REF}, [A]),
    "prefixItems": ({"prefixItems": [{}, REF]}, [B, A, C]),
    "items after prefixItems": ({"prefixItems": [{}], "items": REF}, [B, A]),
    "additionalProperties": ({"properties": {"b": {}}, "additionalProperties": REF}, {"a": A, "b": B}),
    "patternProperties": ({"patternProperties": {"^a": REF}}, {"aa": A, "b": B}),
    "anyOf": ({"anyOf": [REF, {"type": "null"}]}, A),
    "oneOf": ({"oneOf": [{"type": "object"}, REF]}, A),
    "allOf": ({"allOf": [{"type": "string"}, REF]}, A),
    "then": ({"if": {"type": "string"}, "then": REF, "else": {}}, A),
    "else": ({"if": {"type": "null"}, "then": {}, "else": REF}, A),
    "$ref": ({"$ref": "#/$defs/r", "$defs": {"r": REF}}, A),
    "$ref to itself": (
        {"$defs": {"t": {"properties": {"r": REF, "next": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"},
        {"next": {"next": {"r": A}}},
    ),
    "$anchor": ({"$ref": "#here", "$defs": {"r": {"$anchor": "here", **REF}}}, A),
    "nullable": ({"type": ["string", "null"], "format": "cas_ref"}, A),
    "dependentSchemas": ({"dependentSchemas": {"k": {"properties": {"a": REF}}}}, {"k": 1, "a": A}),
    "unevaluatedProperties": ({"unevaluatedProperties": REF}, {"a": A}),
    "contains": ({"contains": REF}, [1, A]),
    "ocas_ref": ({"type": "string", "format": "ocas_ref"}, A),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_reference_is_found_in(place: str) -> None:
    payload, value = PLACES[place]
    schema = Schema(payload)
    assert schema.problems(value) == []
    assert schema.references(value) == [A]


def test_a_string_that_only_looks_like_a_reference_is_none() -> None:
    assert Schema({"properties": {"a": {"type": "string"}, "b": REF}}).references({"a": A}) == []


def test_a_reference_in_a_branch_that_does_not_hold_is_none() -> None:
    schema = Schema(
        {"oneOf": [
            {"properties": {"kind": {"const": "link"}, "to": REF}, "required": ["kind"]},
            {"properties": {"kind": {"const": "text"}, "to": {"type": "string"}}, "required": ["kind"]},
        ]}
    )  # fmt: skip
    assert schema.references({"kind": "text", "to": A}) == []
    assert schema.references({"kind": "link", "to": A}) == [A]


def test_a_reference_must_have_the_form_of_a_hash() -> None:
    assert [p.path for p in Schema({"properties": {"a": REF}}).problems({"a": "nonsense"})] == ["/a"]


def test_a_problem_of_a_union_is_told_of_the_branch_that_was_meant() -> None:
    schema = Schema(
        {"oneOf": [
            {"properties": {"s": {"const": "done"}, "n": {"type": "integer"}}, "required": ["s", "n"]},
            {"properties": {"s": {"const": "failed"}, "why": {"type": "string"}}, "required": ["s", "why"]},
        ]}
    )  # fmt: skip
    assert [str(p) for p in schema.problems({"s": "failed"})] == [
        "(whole value): 'why' is a required property"
    ]


def test_every_builtin_schema_is_a_schema() -> None:
    assert [check_schema(schema) for schema in BUILTIN.values()] == [[]] * len(BUILTIN)


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "strin"},
        {"properties": []},
        {"required": "a"},
        7,
        {"$schema": "http://json-schema.org/draft-04/schema"},
    ],
)
def test_what_is_no_schema_is_told(payload: Any) -> None:
    assert check_schema(payload)


def test_a_schema_never_reaches_for_the_network() -> None:
    with pytest.raises(Invalid, match="does not hold"):
        Schema({"$ref": "http://127.0.0.1:9/schema.json"}).problems({})


@pytest.mark.parametrize(
    "payload", [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}]
)
def test_a_schema_that_refers_to_itself_alone_ends(payload: Any) -> None:
    with pytest.raises(Invalid, match="without end"):
        Schema(payload).problems({})


def test_a_pattern_that_backtracks_for_ever_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uwf_git.format.schema.SECONDS", 0.2)
    with pytest.raises(Invalid, match=r"over 0\.2 s"):
        Schema({"pattern": "^(a+)+$"}).problems("a" * 60 + "b")


_hashlike = st.sampled_from([A, B, "nonsense", None, 7])
_payloads = st.dictionaries(
    st.sampled_from(["start", "prev", "role", "output", "detail", "agent", "workflow", "prompt", "more"]),
    _hashlike | st.text(max_size=3),
)
_whole = st.fixed_dictionaries(
    {
        "start": _hashlike,
        "prev": _hashlike,
        "role": _hashlike,
        "output": _hashlike,
        "detail": _hashlike,
        "agent": _hashlike,
    }
)


@given(_payloads | _whole)
def test_parsing_a_step_agrees_with_its_schema(payload: Any) -> None:
    assert _parses(parse_step, payload) == Schema(BUILTIN[STEPNODE]).is_valid(payload)


@given(_payloads | st.fixed_dictionaries({"workflow": _hashlike, "prompt": _hashlike}))
def test_parsing_a_start_agrees_with_its_schema(payload: Any) -> None:
    assert _parses(parse_start, payload) == Schema(BUILTIN[STARTNODE]).is_valid(payload)


def _parses(parse: Any, payload: Any) -> bool:
    try:
        parse(payload)
    except Invalid:
        return False
    return True


def test_a_step_with_every_reference_names_them_all() -> None:
    step = kinds.Step(A, B, "r", C, A, "x")  # type: ignore[arg-type]
    assert Schema(BUILTIN[STEPNODE]).references(step.payload()) == [A, B, C]


@pytest.mark.parametrize(
    ("factor", "value", "valid"),
    [
        (0.1, 0.3, True),
        (0.1, 1.1, True),
        (0.01, 19.99, True),
        (0.1, 0.35, False),
        (7, 14, True),
        (7, 15, False),
        (0.1, 1e300, True),
        (1e-300, 1e300, True),
        (2, 1e-05, False),
    ],
)
def test_a_multiple_is_one_as_it_is_written(factor: float, value: float, valid: bool) -> None:
    assert Schema({"type": "number", "multipleOf": factor}).is_valid(value) is valid
