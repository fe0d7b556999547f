"""How much a fleet has open at a time and uses altogether, and what a terminal shows of it meanwhile."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

from cli_samples import on_terminal, write
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, PATIENT, STEPS, steps_told, until
from screen import Screen
from temporalio.client import Client

from uwf_git.ext.fleet import messages
from uwf_git.ext.fleet.admission import UNPRICED, Admission, FleetLimits
from uwf_git.ext.fleet.server import Server


def start(uwf: Uwf, many: int) -> list[str]:
    uwf("workflow", "put", write("five.yaml", FIVE))
    return [str(uwf("thread", "start", "five", "-p", f"Say {each}").json["thread"]) for each in range(many)]


def test_only_so_many_threads_are_open_and_a_terminal_shows_what_they_are_at(
    uwf: Uwf, root: Path, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    threads = start(uwf, 3)
    begun = tmp_path / "began"

    def go(_child: int, _terminal: int) -> None:
        until(lambda: begun.exists() and begun.read_text().count("\n") == 2, "two steps")
        assert {each["thread"] for each in uwf("fleet", "status").json} == set(threads[:2])
        assert uwf("fleet", "status", "--format", "text").out.splitlines()[-1] == "2 threads: 2 running"
        watching = begin("fleet", "status", "--watch")
        assert watching.stdout is not None
        (first, _) = json.loads(watching.stdout.readline())
        used = {"steps": 0, "tokens": 0, "cost": 0, "seconds": 0, "unpriced": 0}
        assert first["used"] in (None, used)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
        (tmp_path / "go").touch()

    patient = ["--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path)]
    shown = "0 of 3 threads done · 2 at work · 1 not begun"
    status, out = on_terminal(
        *("fleet", "run", "--all", "--open", "2", "-j", "3", "--max-steps", "99", *patient),
        typed=[(shown, go)],
        columns=120,
    )
    screen = Screen(120, out)
    assert (status, screen.wrapped) == (0, False), screen.text
    *lines, summary = screen.text.splitlines()
    assert summary == "uwf: 3 threads: 3 done" and len(lines) == 3 * STEPS
    ends = [each[:6] for each in lines if each.endswith("→ completed")]
    assert sorted(ends) == sorted(each[-6:] for each in threads)
    later = [each[:6] for each in lines].index(threads[2][-6:])
    assert any("completed" in each for each in lines[:later])
    assert any(line.startswith(f"{threads[0][-6:]}     1  one (uwf-exec) · ") for line in screen.ever)
    assert any("of 99 steps" in line for line in screen.ever)
    assert examine(root / "store.git", STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))


def test_a_budget_of_the_fleet_holds_all_of_it_and_what_is_left_goes_on_later(uwf: Uwf, root: Path) -> None:
    threads = start(uwf, 4)
    bounds = ("--workers", "2", "-j", "3", "--open", "3", "--max-steps", "7")
    held = uwf("fleet", "run", "--all", *bounds, check=5, timeout=100)
    assert "the fleet waits: its budget is used up, 7 of 7 steps" in held.error["message"]
    assert len(steps_told(held.out)) == 7 and held.error["code"] == "waiting"
    uwf("fleet", "run", "--all", "--max-steps", str(4 * STEPS - 7), timeout=100)  # which is just enough
    assert examine(root / "store.git", STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))


def test_without_workers_of_its_own_it_begins_and_holds_threads_that_others_step(
    uwf: Uwf, root: Path, tmp_path: Path, begin: Begin
) -> None:
    threads = start(uwf, 3)
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        working = begin("fleet", "worker", *at)
        held = uwf("fleet", "run", "--all", "--workers", "0", "--max-steps", "4", *at, check=5, timeout=100)
        assert held.out == "" and "its budget is used up" in held.error["message"]
        rows = uwf("fleet", "status", "--all", *at).json
        assert {each["state"] for each in rows} <= {"held", "completed"} and len(rows) == 3
        assert sum(each["used"]["steps"] for each in rows if each["used"]) == 4
        uwf("fleet", "resume", "--all", *at)
        until(lambda: not uwf("fleet", "status", *at).json, "end of the queue")
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0
    assert examine(root / "store.git", STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))
    assert "makes no step" in uwf("fleet", "run", "--all", "--workers", "0", check=2).error["message"]


def test_what_a_budget_holds_on_a_shared_server_goes_on_by_that_of_the_next_call_and_what_was_paused_stays(
    uwf: Uwf, root: Path, tmp_path: Path, begin: Begin
) -> None:
    threads = start(uwf, 4)
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        run = ("fleet", "run", "--all", *at)
        for steps in (6, 5):
            held = uwf(*run, "--max-steps", str(steps), check=5, timeout=100)
            assert len(steps_told(held.out)) == steps and f"{steps} of {steps} steps" in held.error["message"]
        working = begin("fleet", "worker", *at)

        def whys() -> set[str]:
            return {each["why"] for each in uwf("fleet", "status", *at).json}

        until(lambda: whys() == {messages.USED_UP}, "a thread that a budget holds")
        (paused,) = (each["thread"] for each in uwf("fleet", "status", *at).json)
        uwf("fleet", "pause", paused, *at)
        until(lambda: "" in whys(), "a thread that is paused")
        again = uwf("fleet", "start", "--all", *at)
        assert "1 thread held by uwf fleet pause" in again.err
        started = {each["thread"]: each["started"] for each in again.json}
        left = set(started) - {paused}
        assert started == {paused: False, **dict.fromkeys(left, True)} and left
        until(lambda: [each["thread"] for each in uwf("fleet", "status", *at).json] == [paused], "the rest")
        stays = uwf("fleet", "run", paused, *at, check=5, timeout=100).error
        assert stays["hint"] == f"uwf fleet resume {paused} --address {server.address} lets it go on"
        uwf("fleet", "resume", paused, *at)
        until(lambda: not uwf("fleet", "status", *at).json, "end of the queue")
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0
    assert examine(root / "store.git", STEPS) == ({}, dict.fromkeys(sorted(threads), STEPS))


def test_no_more_steps_are_allowed_than_there_are_and_who_rests_leaves_its_own_to_others() -> None:
    begins = [messages.ThreadEntry(f"{each}", "head", used={}) for each in range(5)]
    admission = Admission(begins, FleetLimits(None, {"maxSteps": 4}))
    assert [(each.thread, each.most) for each in admission.next(0)] == [(f"{each}", 1) for each in range(4)]
    assert admission.allow(["0"], [], []) == {} and admission.next(4) == []
    admission.note("0", {"maxSteps": 1})
    assert admission.allow(["0"], [], []) == {}
    # One is blocked before its step, and another has left the queue without one.
    assert admission.allow(["0"], ["1"], ["2"]) == {"1": 0, "0": 2}
    assert admission.is_about("0") and not admission.is_about("1")
    assert [each.thread for each in admission.next(2)] == ["4"]
    again = admission.again(begins[0])
    assert (again.most, again.made) == (2, 1)
    for thread in ("3", "4"):
        admission.note(thread, {"maxSteps": 1})
    admission.note("0", {"maxSteps": 2})
    assert admission.used().reason() == "its budget is used up, 4 of 4 steps"


def test_a_budget_counts_what_threads_use_from_their_beginning_on() -> None:
    begins = [messages.ThreadEntry(f"{each}", "head", used={}) for each in range(5)]
    admission = Admission(begins, FleetLimits(2, {"maxSteps": 10, "maxCost": 1.0}))
    assert [each.thread for each in admission.next(0)] == ["0", "1"]
    assert admission.next(2) == [] and admission.left == 3
    admission.note("0", {"maxSteps": 4, "maxTokens": 9, "maxCost": 0.25, UNPRICED: 0})
    admission.note("1", {"maxSteps": 5, "maxTokens": 9, "maxCost": 0.25, UNPRICED: 7})
    assert admission.used().told() == "9 of 10 steps, ≥ $0.5000 of $1.00"
    assert [each.thread for each in admission.next(1)] == ["2"]
    admission.note("0", {"maxSteps": 5, "maxCost": 0.25})
    assert admission.used().reason() == "its budget is used up, 10 of 10 steps"
    assert admission.next(0) == []
    strict = Admission(begins, FleetLimits(None, {"maxCost": 1.0}, stops_unpriced=True))
    assert len(strict.next(0)) == 5
    strict.note("0", {"maxCost": 0.5, UNPRICED: 7})
    assert strict.used().reason() == "cannot enforce its budget: 7 tokens have no known price"


def taken_over(address: str, threads: list[str]) -> int:
    """How many threads were told, while a step of them is made, that they belong to another budget."""

    async def count() -> int:
        client = await Client.connect(address)
        found = 0
        for thread in threads:
            history = await client.get_workflow_handle(thread).fetch_history()
            told = (each.workflow_execution_signaled_event_attributes.signal_name for each in history.events)
            found += messages.TAKE in told
        return found

    return asyncio.run(count())


def test_a_budget_also_bounds_threads_that_were_put_into_the_queue_before(
    uwf: Uwf, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    before, at_work = start(uwf, 4), start(uwf, 4)
    with Server(tmp_path / "server") as server:
        at = ["--address", server.address]
        uwf("fleet", "start", *before, *at)
        held = uwf("fleet", "run", *before, "--max-steps", "2", *at, check=5, timeout=100)
        assert len(steps_told(held.out)) == 2 and "2 of 2 steps" in held.error["message"]
        uwf("fleet", "cancel", "--all", *at)
        uwf("fleet", "start", *at_work, *at)
        patient = ["--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path)]
        working = begin("fleet", "worker", "-j", "2", *at, *patient)
        begun = tmp_path / "began"
        until(lambda: begun.exists() and begun.read_text().count("\n") == 2, "two steps")
        running = begin("fleet", "run", *at_work, "--workers", "0", "--max-steps", "3", *at)
        until(lambda: "held" in uwf("fleet", "status", *at, "--format", "text").out, "a held thread")
        until(lambda: taken_over(server.address, at_work) == 2, "threads that belong to the budget")
        (tmp_path / "go").touch()
        _, err = running.communicate(timeout=60)
        assert running.returncode == 5 and "3 of 3 steps" in err
        rows = uwf(
            "fleet", "status", *at
        ).json  # what was cancelled may be there until its worker is known to be gone
        assert sum(row["used"]["steps"] for row in rows if row["thread"] in at_work and row["used"]) == 3
        working.send_signal(signal.SIGINT)
        assert working.wait(60) == 0
    assert len(begun.read_text().split()) == 3
