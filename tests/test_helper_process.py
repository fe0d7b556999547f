"""What a workflow brings is bounded in every thread: what can't be ended there is evaluated in a helper process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from uwf_git.base import helper_process
from uwf_git.base.errors import Invalid, LimitExceeded
from uwf_git.base.timelimit import Budget, BudgetExceeded, MemoryExceeded
from uwf_git.format.schema import Problem, Schema
from uwf_git.workflow import expression, template

ENDLESS = "($f := function($x){ $f($x + 1) }; $f(1))"
SLOW_PATTERN = "$contains(a, /(x+x+)+y/)"


def in_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_an_endless_expression_is_ended_in_another_thread() -> None:
    with pytest.raises(LimitExceeded, match="takes longer than 2 s"):
        in_thread(lambda: expression.evaluate(ENDLESS, {}))


def test_a_pattern_that_backtracks_is_ended_there_and_other_threads_go_on() -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(expression.evaluate, SLOW_PATTERN, {"a": "x" * 40})
        turns = 0
        while not waiting.done():
            time.sleep(0.01)
            turns += 1
        with pytest.raises(LimitExceeded):
            waiting.result()
    assert turns > 5  # with the pattern in this process they would stand still all the time


def test_a_text_that_is_too_large_is_refused_there() -> None:
    with pytest.raises(LimitExceeded, match="takes more than 256 MB"):
        in_thread(lambda: expression.evaluate("$pad('x', 10000000000)", {}))


def test_templates_and_schemas_are_bounded_there() -> None:
    with pytest.raises(Invalid, match="turns of a loop"):
        in_thread(lambda: template.render("{% for i in (1..99999) %}{{ i }}{% endfor %}", {}))
    with pytest.raises(Invalid, match="takes over 5 s"):
        in_thread(lambda: Schema({"pattern": "^(x+x+)+y$"}).problems("x" * 40))


def test_the_answers_are_those_of_the_main_thread() -> None:
    context = {"steps": [{"output": {"n": [1, 2.5, None]}}], "é": "\ud800"}
    questions: list[Callable[[], Any]] = [
        lambda: expression.evaluate("steps[-1].output", context),
        lambda: expression.evaluate("$sum(steps.output.n[$ != null])", context),
        lambda: expression.evaluate("nothing", context),
        lambda: expression.holds("$count(steps) = 1 and é != 'x'", context),
        lambda: expression.check_expression("$flor(1)"),
        lambda: expression.check_expression("$floor(1)"),
        lambda: template.render("{{ steps | size }}", context),
        lambda: Schema({"type": "object", "patternProperties": {"^s": {"maxItems": 0}}}).problems(context),
    ]
    for question in questions:
        assert in_thread(question) == question()
    assert in_thread(lambda: Schema({"pattern": "^a"}).problems("b")) == [
        Problem("", "'b' does not match '^a'")
    ]


def test_an_error_keeps_its_class_message_and_hint() -> None:
    def asked() -> Invalid:
        with pytest.raises(Invalid) as caught:
            expression.evaluate("1 / 0", {})
        return caught.value

    there, here = in_thread(asked), asked()
    assert (type(there), there.message, there.hint) == (type(here), here.message, here.hint)


def test_a_helper_is_kept_for_the_next_call_and_replaced_where_it_died() -> None:
    one = helper_process.call("os:getpid")
    assert helper_process.call("os:getpid") == one != os.getpid()
    with pytest.raises(MemoryExceeded):
        helper_process.call("os:abort")
    assert helper_process.call("os:getpid") != one


def test_threads_that_evaluate_at_once_get_the_answers_to_their_own_questions() -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: expression.evaluate("n * 2", {"n": n}), range(60)))
    assert found == [n * 2 for n in range(60)]
    assert threading.active_count() < 20


def test_what_a_helper_computes_counts_for_the_budget_of_a_block() -> None:
    def work() -> None:
        with pytest.raises(BudgetExceeded), Budget(0.01).spend(), pytest.raises(LimitExceeded):
            expression.evaluate(SLOW_PATTERN, {"a": "x" * 40})

    in_thread(work)
