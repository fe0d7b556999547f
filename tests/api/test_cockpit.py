"""What pages, `uwf top`, JSON and MCP show of a store: the board, the inbox, and how failed threads are tried again."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from cli_samples import ASKS, scripted
from conftest import Uwf
from lived_in import LivedIn
from workflows import opened

from uwf_git.api.cockpit.board import board
from uwf_git.api.cockpit.inbox import inbox
from uwf_git.api.cockpit.weight import LARGEST_IN_A_LINE
from uwf_git.api.listing import Filters
from uwf_git.base.thread_states import Group
from uwf_git.format.ids import ThreadId


def items() -> dict[str, dict[str, Any]]:
    shown = board(opened(), Filters(ended=True))
    return {item["thread"]: item for item in shown["items"]}


def test_each_thread_of_a_board_says_in_a_line_what_it_is_about(lived_in: LivedIn) -> None:
    shown = items()
    expected = {
        lived_in.completed: (None, "verdict"),
        lived_in.waiting: ("planner", "question"),
        lived_in.failed: ("developer", "reason"),
        lived_in.over: ("reviewer", "reason"),
        lived_in.killed: (None, "reason"),
    }
    found = {thread: (shown[thread]["now"], shown[thread]["lineKind"]) for thread in expected}
    assert found == expected
    assert shown[lived_in.idle]["lineKind"] == "verdict" and shown[lived_in.idle]["now"]
    lines = {item["thread"]: item["line"] for item in shown.values() if item["steps"]}
    assert [thread for thread, line in lines.items() if not line] == []
    assert all(len(line) <= 200 and "\n" not in line for line in lines.values())
    assert shown[lived_in.completed]["seconds"] > 0
    assert {item["silent"] for item in shown.values()} == {None}
    assert {item["started"][10] for item in shown.values()} == {"T"}


def test_a_board_counts_all_that_match_and_has_a_page_of_them(lived_in: LivedIn) -> None:
    every = board(opened(), Filters(ended=True))
    assert sum(every["counts"].values()) == every["total"] == len(every["items"])
    page = board(opened(), Filters(ended=True), first=2, most=3)
    assert (page["counts"], page["items"]) == (every["counts"], every["items"][2:5])
    words = [item["status"] for item in every["items"]]
    assert every["counts"]["idle"] == words.count("idle") > 0 and every["counts"]["running"] == 0
    failed = board(opened(), Filters(ended=True), Group.FAILED)
    assert failed["counts"] == every["counts"] and failed["total"] == every["counts"]["failed"]
    assert lived_in.failed in {item["thread"] for item in failed["items"]}
    dear = [item["cost"] or 0 for item in board(opened(), Filters(ended=True, sort="cost"))["items"]]
    assert dear == sorted(dear, reverse=True) and dear[0] > 0


def test_what_was_spent_today_counts_each_step_once_and_nothing_of_yesterday(
    uwf: Uwf, lived_in: LivedIn
) -> None:
    def today() -> Any:
        return board(opened(), Filters(ended=True))["today"]

    hours = today()["steps"]
    thread = uwf("thread", "start", "solve-issue", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", "uwf-rehearse")
    uwf("thread", "fork", thread)
    assert today()["steps"] == hours + 1
    assert hours < sum(item["steps"] for item in items().values())


def test_the_line_of_a_huge_output_is_its_size(uwf: Uwf, thread: str) -> None:
    quotes = LARGEST_IN_A_LINE // 2 + 1  # a node has two bytes for each
    printing = f"print('---', 'text: |', '  ' + chr(34) * {quotes}, '---', sep='\\n')"
    uwf("thread", "step", thread, "--agent", shlex.join(["uwf-exec", sys.executable, "-c", printing]))
    instance = opened()
    assert board(instance, Filters())["items"][0]["line"] == "1.0 MB"
    head = instance.threads.head(ThreadId(thread))
    assert instance.store.index.verdicts_at([head.node]) == {head.node: "1.0 MB"}


def test_an_inbox_has_what_asks_what_failed_and_budgets_in_this_order(uwf: Uwf, lived_in: LivedIn) -> None:
    found = [(item["group"], item["thread"]) for item in inbox(opened())]
    assert found == [("asks", lived_in.waiting), ("failed", lived_in.failed), ("budget", lived_in.over)]
    values = {item["group"]: item for item in inbox(opened())}
    assert (
        values["asks"]["command"]
        == values["asks"]["commands"][0]
        == f"uwf thread answer {lived_in.waiting} -m TEXT"
    )
    assert values["failed"]["command"] == f"uwf thread retry {lived_in.failed}"
    assert values["failed"]["kind"] == "failed" and values["failed"]["reason"] == values["failed"]["line"]
    assert all(item["head"] == item["step"] and item["cost"] is not None for item in values.values())
    assert [item["group"] for item in inbox(opened(), only=["failed"])] == ["failed"]


def test_an_inbox_for_somebody_has_what_failed_of_their_own_threads_alone(uwf: Uwf, thread: str) -> None:
    agent = scripted(f"- {{role: writer, exit: 1}}\n{ASKS}")
    uwf("thread", "step", thread, "--agent", agent, check=6)
    assert [item["thread"] for item in inbox(opened(), "me")] == [thread]
    assert inbox(opened(), "eve@example.invalid") == []
    uwf("thread", "step", thread, "--agent", agent)
    assert [item["group"] for item in inbox(opened())] == ["asks"]
