"""What makes verification quick changes none of its outcomes."""

from __future__ import annotations

from typing import Any

import pytest
from forged import WORKFLOW
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from uwf_git.base.errors import Invalid
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import DIALECT, Hash
from uwf_git.format.kinds import Start, StepContext
from uwf_git.format.quick_schema import OBJECT_ID, PRINTABLE_ASCII, plain_check
from uwf_git.format.schema import Schema, check_schema
from uwf_git.workflow.compile import compile_source
from uwf_git.workflow.expression import Frozen, evaluate
from uwf_git.workflow.moderator import Replay, decide
from uwf_git.workflow.source import parse_source

HISTORY: dict[str, Any] = {
    "start": {"workflow": "0", "prompt": "tides"},
    "steps": [
        {"role": "w", "output": {"n": 1, "tags": [], "note": None, "deep": {"a": [[1], [2, 3]]}}},
        {"role": "c", "output": {"approved": False, "n": 2, "tags": ["x", "y"]}},
        {"role": "w", "output": {"n": 3, "tags": [None, True]}},
    ],
}
EXPRESSIONS = [
    "steps[-1].output.n",
    "$count(steps[role = 'w'])",
    "steps.output.tags{$: 1}",
    "steps[0].output.tags{'a': 1}",
    "steps[0].output.tags.{'a': $count($$.steps[0].output.tags)}",
    "$append(steps[0].output.tags, 'more')",
    "($append(steps[1].output.tags, 'more'); steps[1].output.tags)",
    "$sort(steps, function($a, $b){ $a.output.n < $b.output.n }).output.n",
    "$reverse(steps).role",
    "steps ~> |$|{'role': 'changed'}|",
    "steps ~> |output|{'n': n + 1}, ['tags']|",
    "$merge(steps.output)",
    "$spread(steps[0].output)",
    "steps.output.deep.a",
    "steps^(>output.n).output.n",
    "steps[0].output.note",
    "steps[0].output.deep = {'a': [[1], [2, 3]]}",
    "$string(steps)",
    "$zip(steps.role, steps.output.n)",
    "$each(steps[1].output, function($v, $k){ $k })",
    "**.n",
    "steps[1].output.tags[0] & start.prompt",
    "$distinct(steps.role)",
    "$map(steps, function($s){ $type($s.output.tags) })",
    "$exists(steps[0].output.note) and steps[0].output.tags{'a': 1} = {}",
    "$error('no')",
    "steps[",
]


def outcome(expression: str, context: Any) -> Any:
    try:
        return evaluate(expression, context)
    except Invalid as error:
        return error.message


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_comes_to_the_same_over_a_history_that_is_kept(expression: str) -> None:
    frozen = Frozen()
    frozen.value = frozen.freeze(HISTORY)
    expected = outcome(expression, HISTORY)
    for _ in range(2):  # nothing it does may be seen by the next
        assert outcome(expression, frozen) == expected
    assert outcome("$string($)", frozen) == outcome("$string($)", HISTORY)


def test_the_decisions_of_a_growing_history_are_those_of_each_history_alone() -> None:
    workflow = compile_source(parse_source(WORKFLOW.encode(), "pair.yaml")).workflow
    start = Start(Hash("0" * 13), "tides")
    steps: list[StepContext] = []
    replay = Replay(workflow, start, steps)
    for number in range(12):
        role, output = (
            ("writer", {"title": f"T{number}"}) if number % 2 == 0 else ("critic", {"approved": number > 8})
        )
        steps.append(StepContext(Hash("0" * 13), role, output, Hash("0" * 13), "a"))
        assert decide(workflow, start, steps, replay) == decide(workflow, start, list(steps))


NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(-2, 2),
    st.sampled_from(["", "a", "B" * 13, "0" * 13, "0" * 40, "0" * 40 + "\n", "a b"]),
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=3), max_leaves=8
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])


def schemas() -> st.SearchStrategy[Any]:
    leaf = st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "const": SCALARS,
            "format": st.sampled_from(["cas_ref", "date"]),
            **{name: st.integers(-2, 2) | st.just(0.5) for name in _BOUNDS},
            **{name: st.integers(0, 2) for name in ("minLength", "maxLength", "minItems", "maxItems")},
            "pattern": st.sampled_from(("a", OBJECT_ID, PRINTABLE_ASCII)),
            "title": st.just("T"),
        },
    )
    return st.recursive(
        leaf | st.booleans(),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": TYPES,
                "properties": st.dictionaries(NAMES, inner, max_size=3),
                "required": st.lists(NAMES, max_size=2, unique=True),
                "additionalProperties": inner,
                "items": inner,
                "anyOf": st.lists(inner, min_size=1, max_size=2),
            },
        ),
        max_leaves=6,
    )


@settings(max_examples=300)
@given(schemas(), VALUES)
def test_what_the_quick_check_says_obeys_a_schema_obeys_it(schema: Any, value: Any) -> None:
    check = plain_check(schema)
    if check is not None and check(value):
        assert not isinstance(schema, dict) or Schema(schema).validator().is_valid(value)


KEYWORDS = st.sampled_from(
    (
        *(
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "anyOf",
            "allOf",
            "oneOf",
            "not",
        ),
        *("enum", "const", "default", "examples", "title", "format", "minimum", "exclusiveMaximum"),
        *("minLength", "maxItems", "$comment", "$ref", "pattern"),
    )
)


@settings(max_examples=500)
@given(
    st.recursive(VALUES | schemas(), lambda inner: st.dictionaries(KEYWORDS, inner, max_size=4), max_leaves=5)
)
def test_what_the_quick_check_says_is_a_schema_is_one(payload: Any) -> None:
    if plain_check(payload) is not None:
        assert Draft202012Validator(Draft202012Validator.META_SCHEMA).is_valid(payload)


def test_a_common_output_schema_is_quickly_seen_to_be_one() -> None:
    text = {"type": "string", "minLength": 1, "description": "Why."}
    either = {"anyOf": [{"type": "null"}, {"type": "array", "items": text, "maxItems": 3}]}
    schema = {
        "title": "Review",
        "type": "object",
        "properties": {"status": {"enum": ["ok", "no"]}, "note": text, "more": either},
        "required": ["status"],
        "additionalProperties": False,
    }
    assert plain_check(schema) is not None
    for broken in (
        {"type": "text"},
        {"type": []},
        {"required": ["a", "a"]},
        {"minLength": -1},
        {"minLength": True},
        {"anyOf": []},
        {"title": 1},
        {"properties": {"a": 1}},
        {"$ref": 1},
    ):
        assert plain_check({**schema, **broken}) is None, broken
        assert check_schema({**schema, **broken}), broken


def test_the_built_in_types_are_plain_so_that_their_nodes_are_checked_quickly() -> None:
    plain = [BUILTIN[node]["title"] for node in BUILTIN if plain_check(BUILTIN[node]) is not None]
    quick = {
        *("Workflow", "Bundle", "StartNode", "StepNode", "Detail", "Turn", "Attempt"),
        *("Session", "Text", "Answer", "Remark", "Approval", "Revocation"),
    }
    assert quick <= set(plain)
    assert BUILTIN[META]["$ref"] == DIALECT and plain_check(BUILTIN[META]) is None
