"""Runs of a suite beside each other, and what of them is accepted as good."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Uwf
from judged_suites import run, version
from suite_bench import Bench

from uwf_git.ext.evaluation.commands.result_output import summary
from uwf_git.store.instance import Instance

BEFORE = {"csv": [1, 1], "slug": [0.5, 0.75], "median": [0.25, 0.25]}
AFTER = {"csv": [0, 0], "slug": [1, 1], "median": [0.25, 0.25]}


@pytest.fixture
def runs(instance: Instance) -> tuple[str, str]:
    """Two runs of the suite `issues`, with two versions of the workflow `pair`."""
    first = run(instance, "issues", version(instance, "Writes."), BEFORE, cost=0.5)
    second = run(instance, "issues", version(instance, "Writes well."), AFTER, cost=0.25)
    return first, second


def test_a_comparison_names_what_got_worse_before_it_averages(uwf: Uwf, runs: tuple[str, str]) -> None:
    found = uwf("eval", "compare", "pair~1", "pair").json
    assert (found["suite"], found["a"]["run"], found["b"]["run"]) == ("issues", *runs)
    assert [(each["case"], each["outcome"]) for each in found["cases"]] == [
        ("csv", "loss"),
        ("slug", "win"),
        ("median", "tie"),
    ]
    assert (found["wins"], found["losses"], found["ties"], found["chance"]) == (1, 1, 1, 1.0)
    slug = found["cases"][1]
    assert (slug["a"]["least"], slug["a"]["most"], slug["a"]["runs"]) == (0.5, 0.75, 2)
    assert (found["average"]["a"]["cost"], found["average"]["b"]["cost"]) == (0.5, 0.25)
    assert found["score"]["low"] < found["score"]["mean"] < found["score"]["high"]
    assert uwf("eval", "compare", "pair~1", "pair").json == found
    text = uwf("eval", "compare", runs[0][:6], runs[1], "--format", "text").out
    assert text.index("csv") < text.index("slug") < text.index("1 better, 1 worse") < text.index("$0.5000")
    assert "0.62 (0.50–0.75)" in text


def test_what_a_word_of_a_comparison_means_is_said_where_it_means_nothing(
    uwf: Uwf, instance: Instance, runs: tuple[str, str]
) -> None:
    other = run(instance, "issues", version(instance, "Writes well."), {"csv": [1]}, agent="careful")
    found = uwf("eval", "compare", "pair", "careful", "--workflow", "pair").json
    assert found["b"]["run"] == other == found["a"]["run"]  # the newest of that version
    assert uwf("eval", "compare", "pair", "carefull", check=3).error["hint"] == 'did you mean "careful"?'
    never = version(instance, "Never.")
    missing = uwf("eval", "compare", never, "pair~1", check=3).error
    assert missing["hint"] == f"uwf eval run issues --workflow {never}"
    assert "baseline" in uwf("eval", "compare", "baseline", "pair~1", check=3).error["message"]
    first = version(instance, "Writes.")
    run(instance, "others", first, BEFORE)
    several = uwf("eval", "compare", first, "pair", check=2).error
    assert "issues, others" in several["message"] and "--suite" in several["hint"]
    uwf("eval", "compare", first, "pair", "--suite", "others")
    none = uwf("eval", "compare", "nobody", "pair", check=3).error
    assert none["message"] == "no suite has runs of nobody and pair" and "issues, others" in none["hint"]


def test_cases_that_only_one_side_has_and_agents_that_failed_count_for_nothing(
    uwf: Uwf, instance: Instance
) -> None:
    first = version(instance, "Writes.")
    run(instance, "issues", first, {"both": [1], "gone": [1], "broken": [1]}, agent="one")
    run(instance, "issues", first, {"both": [1], "new": [1], "broken": [None]}, agent="other")
    found = uwf("eval", "compare", "one", "other").json
    assert [each["case"] for each in found["cases"]] == ["both"]
    assert (found["onlyA"], found["onlyB"]) == (["broken", "gone"], ["new"])
    assert found["b"]["unknown"] == {"broken": "it broke"}
    assert "broken: it broke" in uwf("eval", "compare", "one", "other", "--format", "text").out


def test_a_plot_has_a_row_for_each_case(uwf: Uwf, runs: tuple[str, str]) -> None:
    uwf("eval", "compare", "pair~1", "pair", "--plot", "scores.svg")
    drawn = Path("scores.svg").read_text(encoding="utf-8")
    assert drawn.count('class="before"') == drawn.count('class="after"') == 3
    assert "0.62 → 1.00" in drawn and drawn.count('class="spread"') == 6


def test_a_baseline_is_set_once_and_keeps_its_history(uwf: Uwf, runs: tuple[str, str]) -> None:
    first = uwf("eval", "baseline", "set", "issues", "pair~1").json
    assert (first["run"], first["changed"]) == (runs[0], True)
    assert first["score"] == pytest.approx((1 + 0.625 + 0.25) / 3, abs=1e-6)
    assert uwf("eval", "baseline", "set", "issues", runs[0]).json["changed"] is False
    assert uwf("eval", "baseline", "set", "issues").json["run"] == runs[1]
    past = uwf("eval", "baseline", "history", "issues").json
    assert [each["run"] for each in past] == [runs[1], runs[0]]
    assert [each["current"] for each in past] == [True, False]
    assert uwf("eval", "baseline", "show", "issues~1").json["cases"] == first["cases"]
    (listed,) = uwf("eval", "baseline", "list").json
    assert (listed["suite"], listed["run"]) == ("issues", runs[1])
    assert uwf("eval", "compare", "baseline~1", "baseline").json["losses"] == 1
    unset = uwf("eval", "baseline", "show", "tiny", check=3).error
    assert unset["hint"] == "set one: uwf eval baseline set tiny"
    uwf("eval", "baseline", "rm", "issues")
    uwf("eval", "baseline", "show", "issues", check=3)


def test_a_run_with_a_case_that_nobody_can_judge_makes_no_baseline(uwf: Uwf, instance: Instance) -> None:
    run(instance, "issues", version(instance, "Writes."), {"a": [1], "b": [1, None]})
    refused = uwf("eval", "baseline", "set", "issues", check=2).error["message"]
    assert "no score of 1 of 2 cases, such as b: it broke" in refused


def test_a_case_of_which_one_run_is_an_error_is_compared_by_nobody(uwf: Uwf, instance: Instance) -> None:
    first = version(instance, "Writes.")
    run(instance, "issues", first, {"a": [1, 1], "b": [1, 1]}, agent="one")
    run(instance, "issues", first, {"a": [1, 1], "b": [0, None]}, agent="other")
    found = uwf("eval", "compare", "one", "other").json
    assert [each["case"] for each in found["cases"]] == ["a"]
    assert (found["onlyA"], found["b"]["unknown"]) == (["b"], {"b": "it broke"})


def test_runs_that_the_same_judges_judged_are_compared_where_there_are_any(uwf: Uwf, bench: Bench) -> None:
    bench.imports([{"name": "one", "prompt": "say a"}])
    judged: dict[str, str] = {}
    for agent, judges in (("old", "ab"), ("new", "abc")):
        for judge in judges:
            by = ("--judge", f"jsonata:{ {'a': 0.25, 'b': 0.5, 'c': 0.75}[judge] }")
            judged[agent + judge] = bench.run("--label", agent, *by).json["run"]
    # The newest of "new" was judged as none of "old" was, and all of these judges have one name.
    found = uwf("eval", "compare", "old", "new")
    assert (found.json["a"]["run"], found.json["b"]["run"]) == (judged["oldb"], judged["newb"])
    assert found.err == ""
    assert uwf("eval", "compare", "old", judged["newa"]).json["a"]["run"] == judged["olda"]
    uwf("eval", "baseline", "set", "bugs", judged["newc"])
    bench.run("--label", "new", "--judge", "nobody=jsonata:1")
    assert uwf("eval", "compare", "baseline", "new").json["b"]["run"] == judged["newc"]
    other = uwf("eval", "compare", "old", judged["newc"])
    assert other.json["a"]["run"] == judged["oldb"]
    assert "no runs were judged alike" in other.err and "jsonata is not the same judge" in other.err
    check = ("--judge", "jsonata:0.25", "--against", "old")
    checked = uwf("eval", "check", "bugs", "--agent", bench.agent, "--label", "new", *check)
    assert (checked.json["a"]["run"], checked.err) == (judged["olda"], "")


def test_a_run_without_a_score_is_compared_only_where_there_is_no_other(uwf: Uwf, bench: Bench) -> None:
    bench.imports([{"name": "one", "prompt": "say a"}])
    first, second = (bench.run("--label", x, "--judge", "jsonata:0.5").json["run"] for x in ("old", "new"))
    for label in ("old", "new"):
        bench.run("--label", label, "--judge", "exact:answer", check=6)
    found = uwf("eval", "compare", "old", "new").json
    assert (found["a"]["run"], found["b"]["run"], len(found["cases"])) == (first, second, 1)
    alike = ("--judge", "jsonata:0.5", "--against", "old")
    checked = uwf("eval", "check", "bugs", "--agent", bench.agent, "--label", "new", *alike)
    assert (checked.json["a"]["run"], checked.json["verdict"]) == (first, "passed")
    otherwise = uwf("eval", "compare", "old", bench.run("--judge", "other=jsonata:0.25").json["run"])
    assert otherwise.json["a"]["run"] == first and "no runs were judged alike" in otherwise.err


def test_flaky_cases_are_listed_with_how_often_they_passed(uwf: Uwf, instance: Instance) -> None:
    first = version(instance, "Writes.")
    steady = {"csv": [1, 0.75, 1], "slug": [0, 0.25, 0]}
    run(instance, "issues", first, {**steady, "median": [1, 1, 1]}, agent="one")
    run(instance, "issues", first, {**steady, "median": [1, 0, 1]}, agent="other")
    found = uwf("eval", "compare", "one", "other").json
    flaky = [{"case": "median", "passed": 2, "runs": 3}]
    assert (found["a"]["flaky"], found["b"]["flaky"]) == ([], flaky)
    assert (
        "flaky in b  median (2 of 3 passed)" in uwf("eval", "compare", "one", "other", "--format", "text").out
    )
    assert uwf("eval", "show", "issues").json["runs"][-1]["flaky"] == flaky
    assert "flaky  median (2 of 3 passed)" in uwf("eval", "show", "issues", "--format", "text").out


def test_a_small_chance_is_not_shown_as_none(uwf: Uwf, instance: Instance) -> None:
    first = version(instance, "Writes.")
    run(instance, "issues", first, {str(case): [0] for case in range(10)}, agent="one")
    run(instance, "issues", first, {str(case): [1] for case in range(10)}, agent="other")
    text = uwf("eval", "compare", "one", "other", "--format", "text").out
    assert "10 better, 0 worse, 0 the same; a coin parts them so in 0.2 % of all tries" in text


def test_a_run_says_what_passed_means_and_whose_cost_is_unknown(uwf: Uwf, bench: Bench) -> None:
    bench.imports([{"name": "one", "prompt": "say a"}])
    assert "1 trial passed (no judge: each completed); score 1.00" in bench.run("--format", "text").out
    judged = bench.run("--judge", "jsonata:0.75", "--format", "text").out
    assert "1 trial passed (each judge gave 0.5 or more); score 0.75" in judged
    unknown = {"unpriced": 5, "cost": None, "seconds": 1.0, "thresholds": [0.5, 0.8]}
    counts = {"passed": 2, "failed": 0, "errors": 0, "missing": 0, "score": 0.75}
    said = summary({**counts, **unknown, "judging": unknown})
    assert said.startswith("2 trials passed (each judge gave its threshold or more); score 0.75; 1.0 s")
    assert said.endswith("of agents' time, cost unknown, judges' cost unknown")
