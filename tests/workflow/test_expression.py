"""JSONata over a history: what conditions mean, and what they can't do."""

from __future__ import annotations

import copy
import gc
import resource
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.workflow.expression import Frozen, check_expression, evaluate, holds


def step(role: str, **output: Any) -> dict[str, Any]:
    return {"role": role, "output": output, "detail": "0000000000000", "agent": "uwf-rehearse"}


def history(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"start": {"workflow": "0000000000000", "prompt": "go"}, "steps": list(steps)}


def test_a_rejection_is_seen_in_the_last_output() -> None:
    expression = "steps[-1].output.approved = false"
    assert holds(expression, history(step("reviewer", approved=False)))
    assert not holds(expression, history(step("reviewer", approved=True)))
    assert not holds(expression, history(step("reviewer")))
    assert not holds(expression, history())
    assert holds(expression, history(step("a", approved=True), step("b", approved=False)))


def test_exists_sees_a_field_even_when_it_is_null_or_false() -> None:
    expression = "$exists(steps[-1].output.needsClarification)"
    assert holds(expression, history(step("planner", needsClarification="which?")))
    assert holds(expression, history(step("planner", needsClarification=False)))
    assert holds(expression, history(step("planner", needsClarification=None)))
    assert not holds(expression, history(step("planner", plan="x")))


@pytest.mark.parametrize("matches", [0, 1, 2, 3, 7])
def test_counting_a_filter_is_right_for_no_match_one_match_and_many(matches: int) -> None:
    steps = [step("con")] + [step("pro") for _ in range(matches)]
    assert evaluate('$count(steps[role="pro"])', history(*steps)) == matches
    assert holds('$count(steps[role="pro"]) >= 3', history(*steps)) is (matches >= 3)


def test_a_history_of_one_step_is_still_a_list() -> None:
    one = history(step("pro", score=4))
    assert evaluate("$count(steps)", one) == 1
    assert evaluate("steps[-1].role", one) == "pro"
    assert evaluate("steps[-2].role", one) is None
    assert evaluate('steps[role="pro"][-1].output.score', one) == 4
    assert evaluate("$sum(steps.output.score)", one) == 4
    assert evaluate("steps.output.score", one) == 4


def test_null_is_null_inside_arrays_and_objects_too() -> None:
    context = history(step("a", x=None, list=[1, None, 2], inner={"y": None}))
    assert holds("steps[-1].output.x = null", context)
    assert holds("steps[-1].output.inner = {'y': null}", context)
    assert evaluate("$count(steps[-1].output.list)", context) == 3
    assert evaluate("steps[-1].output.list", context) == [1, None, 2]
    assert not holds("steps[-1].output.missing = null", context)


def test_truth_is_that_of_boolean() -> None:
    falses = ["0", '""', "[]", "{}", "null", "[0, false]", "missing", "function($x){$x}", "$sum"]
    trues = ["1", '"a"', "[1]", '{"a": null}', "[0, 1]", "-1"]
    assert [text for text in falses if holds(text, {})] == []
    assert [text for text in trues if not holds(text, {})] == []


@pytest.mark.parametrize(
    "expression",
    [
        'steps[0].output.empty{"a": 1}',
        '$ ~> |steps|{"role": "changed"}|',
        "$sort(steps[0].output.numbers)",
        "$append(steps, steps)",
        "$reverse(steps[0].output.numbers)",
        "($steps := steps; $steps[0])",
    ],
)
def test_the_context_is_as_it_was_before(expression: str) -> None:
    context = history(step("a", empty=[], numbers=[3, 1, 2]))
    before = copy.deepcopy(context)
    evaluate(expression, context)
    assert context == before


def test_variables_of_one_run_are_gone_in_the_next() -> None:
    assert evaluate("$x := 5", {}) == 5
    assert evaluate("$x", {}) is None
    expression = "($exists($seen) ? 'again' : ($seen := 1; 'first'))"
    assert [evaluate(expression, {}) for _ in range(3)] == ["first"] * 3


def test_an_expression_parsed_long_ago_still_has_its_full_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert holds("$count(steps) = 1", history(step("a")))
    import time

    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    assert holds("$count(steps) = 1", history(step("a")))


RUNAWAYS = {
    "recursion": ("($f := function($n){ 1 + $f($n + 1) }; $f(0))", "deeper"),
    "recursion in an array": ("($f := function($n){ [1, 1 + $f($n + 1)] }; $f(0))", "deeper"),
    "recursion behind and": ("($f := function($n){ true and $f($n + 1) }; $f(0))", "deeper"),
    "recursion through eval": ('($f := function($n){ 1 + $eval("$f(1)") }; $f(0))', "deeper"),
    "recursion through map": ("($f := function($n){ 1 + $map([$n], $f) }; $f(0))", "deeper"),
    "recursion through sort": (
        "($f := function($n){ 1 + $sort([$n, 2], function($a, $b){ $f($a) > $b })[0] }; $f(0))",
        "deeper",
    ),
    "limits assigned away": (
        "($__evaluate_entry := missing; $f := function($n){ 1 + $f($n + 1) }; $f(0))",
        "deeper",
    ),
    "nesting": ("(" * 5000, "deeper"),
    "a result that contains itself": ('$ ~> |$|{"self": $}|', "deeper"),
    "padding": ('$pad("", 10000000000)', "64 MB"),
    "doubling": (
        "($d := function($s, $n){ $n = 0 ? $s : $d($s & $s, $n - 1) }; $d('xxxxxxxxxx', 40))",
        "64 MB",
    ),
    "many strings": ('$map([1..100000], function($x){ $base64encode($pad("", 100000)) })', "64 MB"),
    "a range": ("[1..10000000]", "range"),
    "length": ("a" * 30_000, "longer"),
}


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Without collection: the finalisers of earlier tests' objects would fail at the bottom of a recursion."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_runaway_ends_with_its_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uwf_git.workflow.expression.MEMORY", 64 * 1024**2)
    monkeypatch.setattr("uwf_git.workflow.expression.SECONDS", 30)  # time is not what these run out of
    expression, reason = RUNAWAYS[name]
    with pytest.raises(Invalid) as caught:
        evaluate(expression, {"a": 1})
    assert reason in caught.value.message
    assert expression[:20] in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "expression",
    [
        "($f := function($n){ $f($n + 1) }; $f(0))",
        '$contains("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", /(a+)+$/) or true',
    ],
)
def test_what_never_ends_is_ended(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uwf_git.workflow.expression.SECONDS", 0.2)
    with pytest.raises(Invalid, match="takes longer than"):
        evaluate(expression, {})


def test_a_runaway_outside_the_main_thread_is_ended_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uwf_git.workflow.expression.SECONDS", 0.2)
    caught: list[str] = []

    def run() -> None:
        try:
            evaluate("($f := function($n){ $f($n + 1) }; $f(0))", {})
        except Invalid as error:
            caught.append(error.message)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "takes longer than" in caught[0]


def test_limits_of_the_process_are_as_before_a_runaway() -> None:
    before = (sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_AS))
    with pytest.raises(Invalid):
        evaluate(RUNAWAYS["padding"][0], {})
    with pytest.raises(Invalid):
        evaluate(RUNAWAYS["recursion"][0], {})
    assert (sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_AS)) == before


@pytest.mark.parametrize("name", ["now", "millis", "random", "shuffle"])
def test_neither_clock_nor_chance_can_be_asked(name: str) -> None:
    assert f"${name} is not available" in str(check_expression(f"${name}(steps)"))
    with pytest.raises(Invalid, match=f"{name} is not available"):
        evaluate(f'$eval("${name}(steps)")', history())


def test_a_function_that_does_not_exist_is_found_without_running() -> None:
    assert check_expression("$cuont(steps) > 1") == 'there is no function $cuont; did you mean "$count"?'
    assert "$" in str(check_expression("count(steps)"))
    assert check_expression("($f := function($a){ $g($a) }; $g := $sum; $f(steps))") is None
    assert check_expression("steps@$s.$f($s)") == "there is no function $f"
    assert check_expression('$filter(steps, function($s){ $s.role = "a" })') is None


@pytest.mark.parametrize(
    "expression",
    ["", "  ", "steps[", "1 +", "/* x", '"abc', "1 ! 2", "/a(/", "$~>", "a b", "steps[-1]..x", "\ud800("],
)
def test_what_is_no_expression_is_told_in_one_line(expression: str) -> None:
    reason = check_expression(expression)
    assert reason and "\n" not in reason
    with pytest.raises(Invalid):
        evaluate(expression, {})


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0", "divides by zero"),
        ('1 < "a"', "same data type"),
        ('"abc"(1)', "not a function"),
        ('$error("boom")', "boom"),
        ('$number("abc")', "abc"),
        ("1 + true", "must evaluate to a number"),
    ],
)
def test_a_failure_names_the_expression_and_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(Invalid) as caught:
        evaluate(expression, {})
    assert expression in caught.value.message
    assert reason in caught.value.message


def test_nothing_is_printed_by_a_failing_call(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid):
        evaluate('"abc"(1)', {})
    assert capfd.readouterr() == ("", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), json_values, max_size=4))
def test_the_context_itself_comes_back_equal_and_untouched(context: dict[str, Any]) -> None:
    before = copy.deepcopy(context)
    assert evaluate("$", context) == before
    assert context == before


@given(st.text(max_size=30) | st.text("()[]{}$.\"'=<>&|~^*/?:,-1a ", max_size=30))
def test_any_text_is_an_expression_or_told_not_to_be(text: str) -> None:
    try:
        evaluate(text, {"a": [1, {"b": "c"}]})
    except Invalid as error:
        assert error.message
    assert check_expression(text) is None or check_expression(text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "good", "$x", "null"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["next", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("frozen", [False, True])
@settings(max_examples=300)
@given(
    outputs=st.lists(JSON_VALUES, max_size=3),
    names=st.lists(st.sampled_from(["next", "a", "b"]), min_size=1, max_size=3),
)
def test_whether_a_field_of_the_last_output_is_a_text_is_told_as_jsonata_tells_it(
    frozen: bool, outputs: list[Any], names: list[str]
) -> None:
    context: Any = {"steps": [{"role": "one", "output": each} for each in outputs]}
    if frozen:
        held = Frozen()
        held.value = held.freeze(context)
        context = held
    question = f'steps[-1].output.{".".join(names)} = "good"'
    # In brackets it is the same question, and not of the form that is told without the library.
    assert holds(question, context) is holds(f"({question})", context)
