"""Made-up values: valid, different where it matters, the same every time, and a clear word where not."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.format.ids import Hash
from uwf_git.format.kinds import parse_workflow
from uwf_git.format.schema import Schema
from uwf_git.workflow.pattern import matching
from uwf_git.workflow.sample_outputs import Hints, hints_of, variants

HASH = Hash("0000000000000")

SCHEMAS: dict[str, dict[str, Any]] = {
    "plain": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
        "required": ["text", "n", "ok"],
        "additionalProperties": False,
    },
    "everything is allowed": {},
    "no type": {"properties": {"a": {"minLength": 3}}, "required": ["a", "b"]},
    "numbers": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 7, "maximum": 9},
            "b": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "c": {"type": "integer", "multipleOf": 7, "minimum": 10},
            "d": {"type": "number", "maximum": -3.5},
            "e": {"type": "number", "multipleOf": 0.01, "minimum": 0.005},
            "f": {"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6},
        },
        "required": list("abcdef"),
    },
    "texts": {
        "type": "object",
        "properties": {
            "short": {"type": "string", "maxLength": 3},
            "long": {"type": "string", "minLength": 200},
            "exact": {"type": "string", "minLength": 5, "maxLength": 5},
            "version": {"type": "string", "pattern": r"^v?\d+\.\d+\.\d+(-[a-z]+)?$"},
            "sha": {"type": "string", "pattern": "^[0-9a-f]{40}$"},
            "mail": {"type": "string", "format": "email", "pattern": r"^\S+@\S+\.\w{2,}$"},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["short", "long", "exact", "version", "sha", "mail", "day"],
    },
    "arrays": {
        "type": "object",
        "properties": {
            "some": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 4},
            "unique": {
                "type": "array",
                "items": {"enum": ["x", "y", "z"]},
                "uniqueItems": True,
                "minItems": 2,
            },
            "tuple": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "items": False,
                "minItems": 2,
            },
            "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 50}},
        },
        "required": ["some", "unique", "tuple", "contains"],
    },
    "references": {
        "$defs": {
            "point": {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"]},
            "n": {"type": "integer", "minimum": 5},
        },
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/point"}, "q": {"$ref": "#/$defs/point", "title": "beside"}},
        "required": ["p", "q"],
    },
    "a tree": {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["name", "children", "next"],
            }
        },
        "$ref": "#/$defs/tree",
    },
    "merged": {
        "type": "object",
        "allOf": [
            {"properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
            {"properties": {"a": {"maximum": 4}, "b": {"enum": [1, 2]}}, "required": ["b"]},
            {"properties": {"b": {"enum": [2, 3]}}},
        ],
    },
    "one of": {
        "oneOf": [
            {
                "properties": {"status": {"const": "done"}, "url": {"type": "string"}},
                "required": ["status", "url"],
                "additionalProperties": False,
            },
            {
                "properties": {"status": {"const": "failed"}, "error": {"type": "string"}},
                "required": ["status", "error"],
                "additionalProperties": False,
            },
        ]
    },
    "if then else": {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}},
        "required": ["approved"],
        "if": {"properties": {"approved": {"const": False}}},
        "then": {"required": ["why"]},
        "else": {"properties": {"why": False}},
    },
    "not": {
        "type": "object",
        "properties": {"s": {"enum": ["a", "b"]}},
        "required": ["s"],
        "not": {"properties": {"s": {"const": "a"}}},
    },
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "dependent": {
        "properties": {"a": {"type": "integer"}},
        "dependentRequired": {"a": ["b"]},
        "type": "object",
    },
    "a bare status": {"enum": ["yes", "no"]},
    "a list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
    "nullable": {"type": "object", "properties": {"x": {"type": ["null", "string"]}}, "required": ["x"]},
    "examples": {
        "type": "object",
        "properties": {"x": {"type": "string", "examples": ["src/a.py"]}},
        "required": ["x"],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("thorough", [False, True])
def test_values_are_valid_and_distinct(name: str, thorough: bool) -> None:
    schema = Schema(SCHEMAS[name])
    found = list(variants(schema, thorough=thorough))
    assert found
    assert [value for value in found if schema.problems(value)] == []
    assert len({json.dumps(value, sort_keys=True) for value in found}) == len(found)
    assert found == list(variants(schema, thorough=thorough))


def values(name: str, key: str, **options: Any) -> list[Any]:
    return [value.get(key) for value in variants(Schema(SCHEMAS[name]), **options)]


def test_every_status_boolean_and_branch_has_its_turn() -> None:
    assert values("one of", "status") == ["done", "failed"]
    assert set(values("plain", "ok")) == {True, False}
    assert set(values("if then else", "approved")) == {True, False}
    assert values("not", "s") == ["b"]
    assert [*variants(Schema(SCHEMAS["a bare status"]))] == ["yes", "no"]
    assert set(values("nullable", "x")) == {"Rehearsed x", None}
    schema = Schema(
        {
            "properties": {"status": {"enum": ["a", "b"]}, "deep": {"type": "boolean"}},
            "required": ["deep", "status"],
        }
    )
    pairs = [(value["status"], value["deep"]) for value in variants(schema)]
    assert pairs == [("a", True), ("b", True), ("a", False), ("b", False)]


def test_turns_have_the_same_variants_in_other_texts() -> None:
    schema = Schema(SCHEMAS["plain"])
    made = [list(variants(schema, turn)) for turn in range(4)]
    assert all([value["ok"] for value in turn] == [True, False] for turn in made)
    assert len({turn[0]["text"] for turn in made}) == 4
    assert made == [list(variants(schema, turn)) for turn in range(4)]


def test_thorough_variants_leave_out_what_is_optional_and_vary_sizes() -> None:
    schema = Schema({"properties": {"a": {"type": "string"}, "l": {"type": "array"}}, "required": ["l"]})
    found = list(variants(schema, thorough=True))
    assert {"a" in value for value in found} == {True, False}
    assert {len(value["l"]) for value in found} == {0, 2}
    assert all("a" in value for value in variants(schema))


def test_what_conditions_compare_with_is_tried() -> None:
    workflow = parse_workflow(
        {
            "name": "w",
            "description": "",
            "roles": {"a": {"description": "", "systemPrompt": "", "outputSchema": HASH}},
            "conditions": {
                "c": {
                    "description": "",
                    "expression": """$contains(steps[role='a'][-1].output.t, "LGTM 5") and $x1 > 42 or 0.5 < 3""",
                }
            },
            "graph": {"a": {"done": {"role": "$END"}, "_": {"role": "a"}}},
        }
    )
    hints = hints_of(workflow, "a")
    assert hints == Hints(("done",), ("LGTM 5",), (1, 42, 0.5, 3))
    schema = Schema(
        {
            "properties": {
                "t": {"type": "string"},
                "n": {"type": "integer"},
                "l": {"type": "array"},
                "status": {"type": "string"},
            },
            "required": ["t", "n", "l", "status"],
        }
    )
    found = list(variants(schema, hints=hints, thorough=True))
    assert "LGTM 5" in [value["t"] for value in found]
    assert {41, 42, 43} <= {value["n"] for value in found}
    assert {4, 43} <= {len(value["l"]) for value in found}
    assert any(len(value["t"]) > 42 for value in found)
    assert [value["status"] for value in variants(schema, hints=hints)] == ["done"]
    assert any(value["status"] != "done" for value in found)


def test_a_reference_is_the_one_given_and_else_named_as_missing() -> None:
    schema = Schema({"properties": {"of": {"type": "string", "format": "cas_ref"}}, "required": ["of"]})
    assert next(variants(schema, reference=HASH)) == {"of": HASH}
    with pytest.raises(Invalid, match=r"at /of: it wants the hash of a node"):
        next(variants(schema))


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"minLength": 5, "maxLength": 2}}, "required": ["a"]}, "/a"),
        ({"properties": {"a": False}, "required": ["a"]}, "/a"),
        ({"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 4}}, "required": ["a"]}, "/a"),
        ({"properties": {"a": {"pattern": "(?=b)a"}}, "required": ["a"]}, "/a"),
        ({"properties": {"a": {"enum": []}}, "required": ["a"]}, "/a"),
        ({"$ref": "#"}, "generated"),
        (
            {
                "$defs": {"x": {"properties": {"x": {"$ref": "#/$defs/x"}}, "required": ["x"]}},
                "$ref": "#/$defs/x",
            },
            "without end",
        ),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "nothing is allowed"),
        ({"not": {}}, "generated"),
        ({"type": "object", "minProperties": 1, "additionalProperties": False}, "/key1"),
        ({"type": "string", "minLength": 10**9}, "characters"),
        ({"type": "array", "minItems": 10**9}, "items"),
        ({"properties": {"a": {"pattern": "^(a+)+(?!a)(?=b)$"}}, "required": ["a"]}, "/a"),
    ],
)
def test_what_can_not_be_made_is_told_with_its_place(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(Invalid, match="no valid value could be generated") as caught:
        next(variants(Schema(schema)))
    assert place in caught.value.message
    assert "script" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("^(feat|fix)(\\(.+\\))?: .{5,}$", 20, 60),
        ("x", 5, 5),
        ("^(\\w)\\1$", 2, 2),
        ("[^\\x00-\\x7f]", 1, 9),
        ("^\\S+\\s\\D\\W$", 4, 9),
        ("(?i)^ABC$", 3, 3),
        ("^$", 0, 0),
        ("^(?:[A-Z][a-z]*){3}$", 12, 40),
    ],
)
def test_a_text_is_found_for_usual_patterns(pattern: str, least: int, most: int) -> None:
    import re

    text = matching(pattern, least, most)
    assert text is not None and re.search(pattern, text) and least <= len(text) <= most


schemas = st.recursive(
    st.one_of(
        st.sampled_from([{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {}, True]),
        st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": st.integers(-9, 9)}),
        st.lists(st.text(max_size=3), min_size=1, max_size=3, unique=True).map(lambda each: {"enum": each}),
        st.integers(0, 9).map(lambda n: {"type": "string", "minLength": n}),
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda each: {"type": "object", "properties": each, "required": sorted(each)[:2]}
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each}),
        inner.map(lambda each: {"type": "array", "items": each}),
        st.tuples(inner, inner).map(lambda each: {"allOf": list(each)}),
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(schemas)
def test_whatever_is_made_obeys_its_schema(payload: Any) -> None:
    schema = Schema(payload)
    try:
        found = list(islice(variants(schema, thorough=True), 8))
    except Invalid:
        assume("allOf" in json.dumps(payload))  # two parts of it may contradict each other
        return
    assert [value for value in found if schema.problems(value)] == []
