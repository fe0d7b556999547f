"""Conditions in JSONLogic decide the same once they are JSONata: compared with an evaluator that follows JavaScript,
which has its own ideas of truth and equality."""

from __future__ import annotations

import math
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid, LimitExceeded
from uwf_git.ext.crews.jsonlogic import STATE_NAMES, Untranslatable, translated
from uwf_git.workflow.expression import evaluate

UNDEFINED = object()
"""JavaScript's, which isn't its null."""


class Inexact(Exception):
    """A text that JSONata can't tell as JavaScript would: the translation fails there too."""


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
    if isinstance(value, list | str):
        if key == "length":
            return len(value) if isinstance(value, list) else len(value.encode("utf-16-le")) // 2
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
    if kind(one) != kind(other):
        return False
    return one is other if kind(one) == "object" else kind(one) == "nothing" or one == other


def loose(one: Any, other: Any) -> bool:
    if kind(one) == kind(other):
        return strict(one, other)
    if "nothing" in (kind(one), kind(other)):
        return False
    one, other = primitive(one), primitive(other)
    if kind(one) == kind(other) == "string":
        return bool(one == other)
    return number(one) == number(other)


def ordered(one: Any, other: Any, sign: str) -> bool:
    one, other = primitive(one), primitive(other)
    if kind(one) != "string" or kind(other) != "string":
        one, other = number(one), number(other)
    return bool(one < other if sign == "<" else one <= other)


def within(one: Any, among: Any) -> bool:
    if isinstance(among, str):
        return among != "" and text(one) in among
    return isinstance(among, list) and any(strict(one, item) for item in among)


def primitive(value: Any) -> Any:
    return text(value) if kind(value) == "object" else value


def number(value: Any) -> float:
    match kind(value):
        case "nothing":
            return 0
        case "string":
            return parsed(value)
    return float(value)


def parsed(said: str) -> float:
    said = said.strip(
        "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
        + "".join(map(chr, range(0x2000, 0x200B)))
    )
    if not said:
        return 0
    if said.lstrip("+-") == "Infinity" and said.count("+") + said.count("-") <= 1:
        raise Inexact
    for prefix, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if said[:2].lower() == prefix:
            digits = said[2:].lower()
            known = "0123456789abcdef"[:base]
            return float(int(digits, base)) if digits and set(digits) <= set(known) else math.nan
    if not set(said) <= set("0123456789+-.eE"):
        return math.nan
    try:
        return float(said)
    except ValueError:
        return math.nan


def text(value: Any) -> str:
    if isinstance(value, dict):
        return "[object Object]"
    if isinstance(value, list):
        return ",".join("" if kind(item) == "nothing" else text(item) for item in value)
    if kind(value) == "nothing":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    digits = f"{value:.15g}"
    if float(digits) != value or abs(value) >= 1e15 or abs(value) < 1e-6:
        raise Inexact
    return digits


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
        "decisionLog": [],
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
    data = {**state["variables"], **state}
    try:
        wanted: Any = decide(rule, data)
    except Inexact:
        wanted = Inexact
    try:
        found = as_jsonata(rule, state)
    except (Untranslatable, LimitExceeded):
        assume(False)
    except Invalid as error:
        assert "too many digits" in error.message or "too large" in error.message
        return
    # What isn't looked at can't fail, and which operand is looked at first is not said.
    assert found is wanted or wanted is Inexact, translated(rule)


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
        ({"var": "constructor"}, "var", ()),
        ({"missing": [{"var": "names"}]}, "missing", ()),
        ({"==": [1]}, "==", ()),
        ({">": [3, 2, 1]}, ">", ()),
        ({"and": []}, "and", ()),
        ({"!!": [1, 2]}, "!!", ()),
        ({"==": [{"var": ["a", {"var": "b"}]}, {"var": "b"}]}, "==", ()),
        ({"in": [{"var": "a.0"}, {"var": "a"}]}, "in", ()),
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


def test_a_number_that_no_text_tells_exactly_fails_instead_of_deciding() -> None:
    state = {**dict.fromkeys(STATE_NAMES), "variables": {"a": [0.1 + 0.2], "b": "0.3"}}
    with pytest.raises(Invalid, match="too many digits"):
        as_jsonata({"==": [{"var": "a"}, {"var": "b"}]}, state)


def test_a_common_condition_stays_short_enough_to_be_read() -> None:
    assert translated({"==": [{"var": "mode"}, "fast"]}).endswith(
        '; $is($lookup($variables, "mode"), "fast"))'
    )
    assert translated(True) == "true"
