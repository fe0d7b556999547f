"""Two sides of a suite compared: what is counted, what is averaged, and what may be chance; and the JUnit XML of it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.junit import ERROR, FAILED, SKIPPED, CaseOutcome, junit
from uwf_git.ext.evaluation.comparison import (
    LOSS,
    TIE,
    WIN,
    ScoredRun,
    average,
    chance,
    compare,
    drop,
    overall,
)

RUNS = st.lists(
    st.builds(
        ScoredRun,
        st.sampled_from("abcdef"),
        st.floats(0, 1).map(lambda score: round(score, 3)),
        st.floats(0, 100),
        st.none() | st.floats(0, 5),
    ),
    max_size=20,
)


@settings(max_examples=40)
@given(RUNS, RUNS, st.randoms())
def test_a_comparison_counts_each_case_once_and_does_not_depend_on_the_order_of_runs(a, b, random) -> None:
    found = compare(a, b)
    shuffled = [random.sample(runs, len(runs)) for runs in (a, b)]
    again = compare(*shuffled)
    assert [(each.case, each.outcome) for each in again.cases] == [
        (each.case, each.outcome) for each in found.cases
    ]
    names = sorted({run.case for run in a} & {run.case for run in b})
    assert sorted(each.case for each in found.cases) == names
    assert found.count(WIN) + found.count(LOSS) + found.count(TIE) == len(names)
    mirrored = compare(b, a)
    assert (mirrored.count(WIN), mirrored.count(LOSS)) == (found.count(LOSS), found.count(WIN))
    if found.difference is None:
        assert not names and found.a is None
    else:
        assert found.a is not None and found.b is not None and mirrored.difference is not None
        assert found.difference.low <= found.difference.mean <= found.difference.high
        assert found.difference.mean == pytest.approx(found.b.score - found.a.score)
        assert mirrored.difference.mean == pytest.approx(-found.difference.mean)
        assert again.difference == pytest.approx(found.difference)


def test_the_worst_loss_stands_first_and_what_only_one_side_has_counts_for_nothing() -> None:
    a = [
        ScoredRun("same", 1),
        ScoredRun("lost", 1),
        ScoredRun("lower", 0.5),
        ScoredRun("won", 0),
        ScoredRun("gone", 1),
    ]
    b = [
        ScoredRun("same", 1),
        ScoredRun("lost", 0),
        ScoredRun("lower", 0.4),
        ScoredRun("won", 1),
        ScoredRun("new", 1),
    ]
    found = compare(a, b)
    assert [each.case for each in found.cases] == ["lost", "lower", "won", "same"]
    assert (found.only_a, found.only_b) == (("gone",), ("new",))


def test_a_case_without_a_score_leaves_a_drop_undecided_only_where_it_could_change_it() -> None:
    before = [ScoredRun("a", 1), ScoredRun("b", 0.5), ScoredRun("c", 0.5), ScoredRun("d", 1)]
    fallen = drop(
        before, [ScoredRun("a", 0.6), ScoredRun("b", 0.5), ScoredRun("c", 0.5), ScoredRun("d", 1)], 0.05
    )
    assert fallen.is_too_much and fallen.is_decided and fallen.least == fallen.most == pytest.approx(0.1)
    assert [each.case for each in fallen.lost] == ["a"]
    assert not drop(before, before, 0).is_too_much and drop(before, before, 0).is_decided
    unsure = drop(before, [ScoredRun("a", 1), ScoredRun("b", 0.5), ScoredRun("d", 1)], 0.1)
    assert not unsure.is_decided and unsure.missing == ("c",)
    assert (unsure.least, unsure.most) == pytest.approx((-0.125, 0.125))
    assert drop(before, [ScoredRun("a", 1), ScoredRun("b", 0.5), ScoredRun("d", 1)], 0.125).is_decided
    assert not drop(before, [ScoredRun("new", 1)], 1).is_decided and not drop([], before, 1).is_decided
    lost = drop(before, [ScoredRun("a", 0), ScoredRun("d", 0)], 0.1)
    assert lost.is_too_much and lost.is_decided and lost.missing == ("b", "c")


def test_a_case_that_was_repeated_often_weighs_as_much_as_any_other() -> None:
    often = [ScoredRun("often", 0, seconds=3, cost=2.0) for _ in range(9)]
    once = [ScoredRun("once", 1, seconds=1, unpriced=7)]
    found = overall([often, once])
    assert found is not None and (found.runs, found.score, found.seconds, found.cost) == (10, 0.5, 2, 2.0)
    assert (found.least, found.most, found.unpriced) == (0, 1, 7)
    assert overall([]) is None and average(once).cost is None


def test_one_lucky_run_makes_no_difference_that_is_certain() -> None:
    before = [ScoredRun("a", score) for score in (0, 1, 0, 1)] + [ScoredRun("b", 0.5) for _ in range(4)]
    after = [ScoredRun("a", score) for score in (1, 1, 0, 1)] + [ScoredRun("b", 0.5) for _ in range(4)]
    unsure = compare(before, after).difference
    assert unsure is not None and unsure.low <= 0 < unsure.mean < unsure.high
    certain = compare([ScoredRun(str(n), 0.2) for n in range(9)], [ScoredRun(str(n), 0.9) for n in range(9)])
    assert certain.difference == pytest.approx((0.7, 0.7, 0.7)) and certain.chance < 0.005


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (3, 3, 1.0), (9, 1, 22 / 1024), (600, 600, 1.0)],
)
def test_the_chance_of_wins_and_losses_is_that_of_a_coin(wins: int, losses: int, expected: float) -> None:
    assert chance(wins, losses) == pytest.approx(expected)
    assert chance(losses, wins) == chance(wins, losses)


TEXT = st.text(st.characters(), max_size=30)


@settings(max_examples=60)
@given(TEXT, st.lists(st.tuples(TEXT, st.sampled_from(["", FAILED, ERROR, SKIPPED]), TEXT), max_size=4))
def test_any_text_makes_a_junit_file_that_counts_right(suite: str, cases: list[tuple[str, str, str]]) -> None:
    made = [CaseOutcome(name, 1.5, wrong, said, said) for name, wrong, said in cases]
    root = ElementTree.fromstring(junit(suite, made, [(suite, suite)]).encode("utf-8"))
    (inner,) = root
    found = inner.findall("testcase")
    assert len(found) == int(root.get("tests", "")) == int(inner.get("tests", "")) == len(cases)
    for kind, wrong in (("failures", FAILED), ("errors", ERROR), ("skipped", SKIPPED)):
        assert (
            int(inner.get(kind, ""))
            == len(inner.findall(f"testcase/{wrong}"))
            == sum(each.wrong == wrong for each in made)
        )
    assert float(inner.get("time", "")) == 1.5 * len(cases)
    assert all("\x00" not in each.get("name", "") for each in found)
