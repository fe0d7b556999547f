"""Filters of threads as words: one form for the command, a page's filter line and saved views."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import scripted
from conftest import Uwf
from workflows import opened

from uwf_git.api.filters import VIEWS, parse_filters, views
from uwf_git.api.listing import Filters
from uwf_git.base.errors import Usage
from uwf_git.base.thread_states import states_of
from uwf_git.store.instance import Instance


@pytest.fixture
def instance(uwf: Uwf) -> Instance:
    uwf("init")
    return opened()


def test_a_line_has_the_options_of_the_list_and_its_other_words_are_searched_for(
    instance: Instance,
) -> None:
    assert parse_filters(instance, "") == Filters()
    parsed = parse_filters(
        instance,
        "--status failed,idle --workflow=solve 'csv export' quotes --all --sort cost --since 12h",
    )
    assert parsed.states == {*states_of("failed"), *states_of("idle")}
    assert (parsed.workflow, parsed.search, parsed.sort, parsed.ended) == (
        "solve",
        "csv export quotes",
        "cost",
        True,
    )
    assert parsed.since == pytest.approx(time.time() - 12 * 3600, abs=60)
    assert parse_filters(instance, ["--search", "a b", "c"]).search == "a b c"
    assert (
        parse_filters(instance, "--until 2026-01-31").until
        == parse_filters(instance, "--older-than 2026-01-31").until
    )


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("--stauts failed", "no filter '--stauts'", "--status"),
        ("--status odd", "no status 'odd'", "idle"),
        ("--since", "--since has no value", "--since 12h"),
        ("--since then", "--since 'then' is neither a day nor a duration", "30d"),
        ("--view", "--view has no value", "--view last-night"),
        ("--sort size", "--sort 'size' is no order", "created"),
        ("--ended --status idle", "--ended and --status exclude each other", "one of them"),
        ("--workflow ''", "--workflow is empty", "omit it"),
        ("'open", "the filter cannot be read", "quotes"),
        ("--" + "x" * 10_000, "no filter '--xxx", "--all"),
        ("--\x1b[2J", "no filter '--", ""),
    ],
)
def test_what_a_line_has_wrong_is_said_in_one_line(
    instance: Instance, line: str, message: str, hint: str
) -> None:
    with pytest.raises(Usage) as raised:
        parse_filters(instance, line)
    assert raised.value.message.startswith(message) and hint in raised.value.hint
    assert len(raised.value.message) < 200 and raised.value.message.isprintable()


def test_views_are_saved_in_the_configuration_and_options_typed_go_before_theirs(
    uwf: Uwf, thread: str, config: Callable[[str], Path]
) -> None:
    config(
        'views: {night: "--status failed --since 12h", mine: "--author nobody", wrong: "--odd", '
        'odd: "--status odd", own: --view mine, dear: --sort cost}'
    )
    assert views(opened()) == {
        "night": "--status failed --since 12h",
        "mine": "--author nobody",
        "wrong": "--odd",
        "odd": "--status odd",
        "own": "--view mine",
        "dear": "--sort cost",
        **{name: words for name, words in VIEWS.items() if name != "mine"},
    }

    def listed(*words: str) -> list[str]:
        return [item["thread"] for item in uwf("thread", "list", *words).json]

    other = uwf("thread", "start", "pair", "-p", "Other").json["thread"]
    assert listed("--view", "night") == listed("--view", "mine") == []
    uwf("thread", "step", other, "--agent", scripted("- {role: writer, exit: 1}"), check=6)
    assert listed("--view", "night") == [other]
    assert listed("--view", "night", "--status", "idle") == [thread]
    assert listed("--view", "mine", "--author", "ada") == [other, thread]
    uwf("thread", "kill", thread)
    assert listed("--view", "last-night") == [other] == listed()
    assert set(listed("--view", "last-night", "--status", "failed,killed")) == {other, thread}
    assert "known: " in uwf("thread", "list", "--view", "day", check=3).error["hint"]
    for view, problem in {
        "wrong": "no filter '--odd'",
        "odd": "no status 'odd'",
        "own": "a view has no --view",
    }.items():
        wrong = uwf("thread", "list", "--view", view, check=2).error
        assert wrong["message"] == f"view {view}: {problem}"
    assert "no thread was named" in uwf("thread", "pause", "--view", "dear", check=2).error["message"]
    parsed = parse_filters(opened(), "--view=night csv")
    assert (parsed.states, parsed.search) == ({*states_of("failed")}, "csv")
    tried = uwf("thread", "retry", "--view", "night", "--agent", "uwf-rehearse")
    assert [item["thread"] for item in uwf("thread", "list", "--status", "completed").json] == [other], tried


def test_mine_are_threads_of_gits_identity(uwf: Uwf, thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "James")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "James")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "james@example.invalid")
    james = uwf("thread", "start", "pair", "-p", "His").json["thread"]
    assert [item["thread"] for item in uwf("thread", "list", "--view", "mine").json] == [james]
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.invalid")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada Example")
    assert [item["thread"] for item in uwf("thread", "list", "--author", "me").json] == [thread]
