"""Several threads land one on top of the other; what doesn't fit leaves, and is told why."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import git
from conftest import Uwf
from landing_shop import Shop


@pytest.fixture
def shop(uwf: Uwf, tmp_path: Path, config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A project whose fixer runs what it is told, and whose check is that no `strict` file is beside `first`."""
    shop = Shop(uwf, tmp_path, config)
    shop.configured(fixes="sh $WHAT; ")
    (shop.project / "tests.sh").write_text("test ! -e strict || test ! -e first\n")
    shop.commit("another check")
    shop.with_remote()
    monkeypatch.chdir(shop.project)
    return shop


def writes(shop: Shop, name: str, text: str = "x") -> str:
    shop.adds(f"echo {text} > {name}")
    return shop.accepted(f"Write {name} {text}")


@pytest.mark.parametrize(
    ("apart", "conflicts", "red"),
    [(2, 1, 1), pytest.param(14, 3, 2, marks=pytest.mark.extended)],
    ids=["5 threads", "20 threads"],
)
def test_a_train_lands_what_fits_and_the_sum_is_green_at_every_commit(
    uwf: Uwf, shop: Shop, apart: int, conflicts: int, red: int
) -> None:
    shop.adds("echo x > first")
    fitting = [shop.accepted("Write first")]
    fitting += [writes(shop, f"file-{number}") for number in range(apart - 1)]
    fitting.append(writes(shop, "same", "one"))
    left = [writes(shop, "same", f"other-{number}") for number in range(conflicts)]
    shop.configured(fixes="cat $WHAT > script; sh script; rm script; ")
    left += [writes(shop, "strict", f"{number}") for number in range(red)]
    done = uwf("land", "--train", check=None)
    assert done.code in (1, 6)
    assert [item["thread"] for item in done.json] == fitting
    assert [item["base"] for item in done.json[1:]] == [item["commit"] for item in done.json[:-1]]
    for thread in left:
        assert any(thread in line and "does not land" in line for line in done.err.splitlines())
    git("-C", shop.project, "fetch", "-q", "origin")
    for commit in shop.at_remote("rev-list", f"-{len(fitting)}", "main").split():
        git("-C", shop.project, "checkout", "-q", commit)
        subprocess.run(["sh", "tests.sh"], cwd=shop.project, check=True)


def test_a_second_train_takes_only_what_is_new(uwf: Uwf, shop: Shop) -> None:
    first = writes(shop, "one")
    assert [item["thread"] for item in uwf("land", "--train").json] == [first]
    second = writes(shop, "two")
    assert [item["thread"] for item in uwf("land", "--train").json] == [second]
    assert uwf("land", "--train").json == []


def test_work_that_is_ready_to_land_is_in_the_inbox_until_it_has_landed(uwf: Uwf, shop: Shop) -> None:
    first, second = writes(shop, "one"), writes(shop, "two")
    ready = uwf("inbox", "--group", "land").json
    assert [item["thread"] for item in ready] == [second, first]
    assert ready[0]["command"] == f"uwf land {second}" and ready[0]["kind"] == "land"
    assert "ready to land: " in uwf("inbox", "--format", "text").out
    uwf("land", first)
    assert [item["thread"] for item in uwf("inbox", "--group", "land").json] == [second]


def test_a_train_says_which_work_is_in_the_branch_already(uwf: Uwf, shop: Shop) -> None:
    there, other = writes(shop, "one"), writes(shop, "two")
    shop.moves("one", "x\n")
    done = uwf("land", "--train", "--format", "text")
    assert other in done.out and there not in done.out
    assert f"nothing is left to land: the work of thread {there} is in main already" in done.err


def test_a_train_of_named_threads_goes_in_the_order_given(uwf: Uwf, shop: Shop) -> None:
    threads = [writes(shop, name) for name in ("one", "two", "three")]
    order = [threads[2], threads[0]]
    assert [item["thread"] for item in uwf("land", "--train", *order).json] == order
    assert shop.at_remote("log", "-2", "--format=%s", "main").splitlines() == ["Write one x", "Write three x"]


def test_a_train_without_a_remote_moves_the_branch_here(uwf: Uwf, shop: Shop) -> None:
    git("-C", shop.project, "remote", "remove", "origin")
    threads = [writes(shop, name) for name in ("one", "two")]
    assert [item["thread"] for item in uwf("land", "--train").json] == threads
    assert uwf("land", "--train").json == []
    assert (shop.project / "two").read_text() == "x\n"
