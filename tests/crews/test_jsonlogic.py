"""Conditions in JSONLogic decide the same once they are JSONata: compared with an evaluator of its own. Scalars count
and compare as in JavaScript, texts as numbers if they are decimal; lists and objects equal nothing."""

from __future__ import annotations

import math
import re
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import LimitExceeded
from uwf_git.ext.crews.jsonlogic import STATE_NAMES, Untranslatable, translated
from uwf_git.workflow.expression import evaluate

UNDEFINED = object()
"""JavaScript's, which isn't its null."""


def decide(rule: Any, data: Any) -> bool:
    """What JSONLogic's own JavaScript decides."""
    return truthy(apply(rule, data))


def apply(rule: Any, data: Any) -> Any:
    if isinstance(rule, list):
        return [apply(item, data) for item in rule]
    if not isinstance(rule, dict) or len(rule) != 1:
        return rule
    [(operator, arguments)] = rule.items()
    if not isinstance(arguments, list):
        arguments = [arguments]
    if operator in ("if", "and", "or"):
        return _lazily(operator, arguments, data)
    values = [apply(item, data) for item in arguments]
    first, second, *_ = [*values, UNDEFINED, UNDEFINED]
    match operator:
        case "var":
            return look_up(first, None if second is UNDEFINED else second, data)
        case "missing":
            names = first if isinstance(first, list) else values
            return [name for name in names if look_up(name, None, data) in (None, "") or _nothing(name, data)]
        case "!":
            return not truthy(first)
        case "!!":
            return truthy(first)
        case "==":
            return loose(first, second)
        case "!=":
            return not loose(first, second)
        case "===":
            return strict(first, second)
        case "!==":
            return not strict(first, second)
        case "in":
            return within(first, second)
        case "<" | "<=":
            pairs = pairwise(values)
            return all(ordered(one, other, operator) for one, other in pairs)
        case ">" | ">=":
            return ordered(second, first, operator.replace(">", "<"))
    raise AssertionError(operator)


def _nothing(name: Any, data: Any) -> bool:
    return look_up(name, None, data) is UNDEFINED


def _lazily(operator: str, arguments: list[Any], data: Any) -> Any:
    if operator == "if":
        at = 0
        while at < len(arguments) - 1:
            if truthy(apply(arguments[at], data)):
                return apply(arguments[at + 1], data)
            at += 2
        return apply(arguments[at], data) if at < len(arguments) else None
    for item in arguments:
        value = apply(item, data)
        if truthy(value) == (operator == "or"):
            return value
    return value


def look_up(name: Any, otherwise: Any, data: Any) -> Any:
    if name is None or name == "":
        return data
    for part in str(name).split("."):
        if data is None:
            return otherwise
        data = member(data, part)
        if data is UNDEFINED:
            return otherwise
    return data


def member(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key, UNDEFINED)
    if isinstance(value, list):
        if key == "length":
            return len(value)
        if key.isdecimal() and str(int(key)) == key and int(key) < len(value):
            return value[int(key)]
    return UNDEFINED


def truthy(value: Any) -> bool:
    if isinstance(value, dict):
        return True
    if value is UNDEFINED or value is None:
        return False
    return len(value) > 0 if isinstance(value, list | str) else value != 0


def kind(value: Any) -> str:
    if value is None or value is UNDEFINED:
        return "nothing"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string" if isinstance(value, str) else "object"


def strict(one: Any, other: Any) -> bool:
    if kind(one) != kind(other) or kind(one) == "object":
        return False
    return kind(one) == "nothing" or one == other


def loose(one: Any, other: Any) -> bool:
    if kind(one) == kind(other) or "nothing" in (kind(one), kind(other)):
        return strict(one, other)
    return number(one) == number(other)


def ordered(one: Any, other: Any, sign: str) -> bool:
    if kind(one) != "string" or kind(other) != "string":
        one, other = number(one), number(other)
    return bool(one < other if sign == "<" else one <= other)


def within(one: Any, among: Any) -> bool:
    if isinstance(among, str):
        return among != "" and isinstance(one, str) and one in among
    return isinstance(among, list) and any(strict(one, item) for item in among)


def number(value: Any) -> float:
    match kind(value):
        case "nothing":
            return 0
        case "object":
            return math.nan
        case "string":
            text = value.strip(" \t\n\r")
            return (
                float(text or 0) if re.fullmatch(r"(-?(0|[1-9]\d*)(\.\d+)?)?", text, re.ASCII) else math.nan
            )
    return float(value)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, 1.5, -0.25, 1e21, 100000, 2**53 - 1]),
    st.sampled_from(
        ["", "a", "ab", "b", "0", "1", "1.0", " 1 ", "01", ".5", "5.", "1e1", "0x1F", "0b11", "-", "true"]
    ),
    st.sampled_from(
        [
            "null",
            "1,2",
            ",",
            "[object Object]",
            "NaN",
            "Infinity",
            "\u00a01",
            "é",
            "😀",
            'say "x"',
            "a\\b",
            "$variables",
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=5,
)
NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "d e",
        "a.a",
        "a.0",
        "a.1.b",
        "b.length",
        "zz",
        "zz.a",
        "variables.a",
        "artifacts",
        "artifacts.0",
        "currentNodeId",
        "stepsCompleted.length",
        "",
    ]
)
PLAIN = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


def operations(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def of(operator: str, least: int, most: int) -> st.SearchStrategy[Any]:
        return st.lists(inner, min_size=least, max_size=most).map(lambda values: {operator: values})

    return st.one_of(
        *(of(operator, 2, 2) for operator in ("==", "!=", "===", "!==", ">", ">=", "in")),
        *(of(operator, 2, 3) for operator in ("<", "<=")),
        *(of(operator, 1, 3) for operator in ("and", "or")),
        *(of(operator, 1, 1) for operator in ("!", "!!")),
        of("if", 1, 5),
        st.tuples(inner, st.lists(inner, max_size=3)).map(lambda pair: {"in": list(pair)}),
        st.tuples(NAMES, inner).map(lambda pair: {"var": list(pair)}),
        st.lists(NAMES, max_size=3).map(lambda names: {"missing": names}),
        st.lists(NAMES, max_size=3).map(lambda names: {"missing": [names]}),
    )


RULES = st.recursive(PLAIN | NAMES.map(lambda name: {"var": name}), operations, max_leaves=6)
STATES = st.fixed_dictionaries(
    {},
    optional={
        "variables": st.dictionaries(st.sampled_from(["a", "b", "c", "d e"]), VALUES, max_size=4),
        "currentNodeId": st.sampled_from(["one", "two"]),
        "stepsCompleted": st.lists(st.sampled_from(["one", "two"]), max_size=3),
        "artifacts": st.lists(st.sampled_from(["a", "artifacts/x.md"]), max_size=2),
    },
).map(
    lambda given: {
        "variables": {},
        "currentNodeId": "one",
        "stepsCompleted": [],
        "artifacts": [],
        **given,
    }
)


def as_jsonata(rule: Any, state: dict[str, Any]) -> Any:
    """What the translation comes to, evaluated as a condition is."""
    names = "".join(f"${name} := state.{name}; " for name in STATE_NAMES)
    return evaluate(f"({names}{translated(rule)})", {"state": state})


@settings(max_examples=200)
@given(RULES, STATES)
@example({"==": [{"var": "a"}, 1]}, {**dict.fromkeys(STATE_NAMES), "variables": {"a": [[1]]}})
def test_a_translated_rule_decides_as_json_logic_does(rule: Any, state: dict[str, Any]) -> None:
    try:
        decision = as_jsonata(rule, state)
    except (Untranslatable, LimitExceeded):
        assume(False)
    assert decision is decide(rule, {**state["variables"], **state}), translated(rule)


CONSTANTS: list[Any] = [None, True, 0, 2.5, "", "1.", "a", "true", [], [1]]
MANY: list[Any] = [
    *CONSTANTS,
    *(
        False,
        1,
        " 1\n",
        "0x1",
        ".25e1",
        "1,2",
        ["a"],
        [None],
        [True],
        [["2.5"]],
        [1, 2],
        {},
        "[object Object]",
    ),
]


@pytest.mark.parametrize(
    ("operator", "constants"), [("==", CONSTANTS), ("<", CONSTANTS), ("<=", []), ("===", []), ("in", [])]
)
def test_any_two_values_compare_as_in_javascript(operator: str, constants: list[Any]) -> None:
    first, second = {"var": "a"}, {"var": "b"}
    for one in MANY:
        pairs = [{"a": one, "b": deepcopy(other)} for other in MANY]
        forward = [decide({operator: [first, second]}, pair) for pair in pairs]
        assert _of_each({operator: [first, second]}, pairs) == forward, one
        if one in constants:
            backward = [decide({operator: [second, first]}, pair) for pair in pairs]
            assert _of_each({operator: [one, second]}, pairs) == forward, one
            assert _of_each({operator: [second, one]}, pairs) == backward, one


@pytest.mark.parametrize(
    "rule",
    [
        {"var": "a"},
        {"!": {"var": "a"}},
        {"===": [{"var": ["a.b", "d"]}, "d"]},
        {"===": [{"var": ["a.0", "d"]}, "d"]},
        {"===": [{"var": ["a.length", 0]}, {"if": [{"missing": "a"}, 0, 2]}]},
        {"===": [{"or": [{"var": "a"}, "d"]}, "d"]},
        {"===": [{"and": [{"var": "a"}, "d"]}, "d"]},
        {"missing": ["a"]},
        {"in": [{"var": "a"}, "0.5,1,2.5 null true [object Object]"]},
        {"in": [{"var": "a"}, [None, 1, "a"]]},
    ],
    ids=str,
)
def test_any_value_counts_as_in_javascript(rule: Any) -> None:
    values = [*MANY, {"b": None}, {"b": 0}, {"0": 1, "length": 2}, "ab", "\U0001f600"]
    states = [{}, *({"a": value} for value in values)]
    assert _of_each(rule, states) == [decide(rule, state) for state in states]


def _of_each(rule: Any, variables: list[dict[str, Any]]) -> Any:
    """What a translated rule comes to for each of several objects of variables."""
    return evaluate(f"each.($variables := $; {translated(rule)})", {"each": variables})


@pytest.mark.parametrize(
    ("rule", "operator", "path"),
    [
        ({"and": [True, {"+": [1, 2]}]}, "+", ("and", 1, "+")),
        ({"missing_some": [1, ["a"]]}, "missing_some", ("missing_some",)),
        ({"=": [1, 2]}, "=", ("=",)),
        ({"var": {"var": "name"}}, "var", ()),
        ({"var": "decisionLog.0.label"}, "var", ()),
        ({"missing": [{"var": "names"}]}, "var", ()),
        ({"==": [1]}, "==", ()),
        ({">": [3, 2, 1]}, ">", ()),
        ({"and": []}, "and", ()),
        ({"!!": [1, 2]}, "!!", ()),
        ({"if": [True, {"a": 1, "b": 2}]}, "", ("if", 1)),
        ({"==": [[{"var": "a"}], "x"]}, "", ("==", 0, 0)),
    ],
)
def test_what_would_be_decided_otherwise_is_refused_with_its_operator(
    rule: Any, operator: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(Untranslatable) as caught:
        translated(rule)
    assert (caught.value.operator, caught.value.path) == (operator, path)
    assert caught.value.message


def test_a_rule_is_bounded() -> None:
    deep: Any = {"var": "a"}
    for _ in range(50):
        deep = {"!": [deep]}
    with pytest.raises(Untranslatable, match="deeper"):
        translated(deep)
    with pytest.raises(Untranslatable, match="longer"):
        translated({"or": [{"==": [{"var": "a"}, "x" * 100]}] * 200})


def test_a_common_condition_stays_short_enough_to_be_read() -> None:
    assert translated({"==": [{"var": "mode"}, "fast"]}) == '($lookup($variables, "mode") = "fast")'
    assert translated(True) == "true"
