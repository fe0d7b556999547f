"""What several processes do at once keeps all that was promised; a history that doesn't is found out and made small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from claims import CLAIMS, violations
from operations import Event, Operation, Ref
from runs import Plan, again, load, run
from shrinking import shrunk, smallest
from soak import KINDS, failure
from world import KILLED, REMOTE, Snapshot, Step, Thread

SECONDS = float(os.environ.get("UWF_TEST_HISTORY_SECONDS", "3"))
SEED = 1  # what chance finds is for `make soak`


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", KINDS, ids=["one", "shared", "one-killed", "shared-killed"])
def test_what_several_processes_do_at_once_keeps_what_was_promised(kind: Plan, tmp_path: Path) -> None:
    plan = kind._replace(seconds=SECONDS, seed=SEED)
    history = run(plan)
    found = history.violations()
    assert not found, failure(history, found, Path("history.jsonl").absolute(), seconds=120)
    assert any(event.done and event.name == "step" for event in history.events)


# A sound history by hand, and one for each claim in which something is wrong

A, B, F = "01ARZ3NDEKTSV4RRFFQ69G5FA0", "01ARZ3NDEKTSV4RRFFQ69G5FB0", "01ARZ3NDEKTSV4RRFFQ69G5FF0"
FIRST, SECOND = Step("N1", 1, None, "said by 2"), Step("N2", 2, "N1", "said by 3")
OTHER = Step("N3", 2, "N1", "said by 6")


def event(number: int, name: str, thread: str | None = None, code: int = 0, result: object = None) -> Event:
    """One after the other, on machine 0."""
    began = 10 * number
    told = () if name != "start" else (str(thread),)
    target = None if name == "start" else thread
    return Event(Operation(number, 0, 0, name), target, began, began + 5, code, result, {}, told)


def made(number: int, thread: str, node: str) -> Event:
    return event(number, "step", thread, result={"thread": thread, "head": node, "status": "idle"})


def thread(name: str, *chain: Step, **more: str) -> Thread:
    return Thread(name, f"c-{chain[-1].node}" if chain else "c-0", chain, **more)  # type: ignore[arg-type]


EVENTS = (
    event(1, "start", A, result={"thread": A}),
    made(2, A, "N1"),
    made(3, A, "N2"),
    event(4, "fork", A, result={"thread": F, "forkedFrom": {"step": "N1"}})._replace(told=(F,)),
    event(5, "pause", F, result={"thread": F, "status": "paused"}),
    event(6, "resume", F, result={"thread": F, "status": "idle"}),
    event(7, "put", result={"hash": "V1"}),
    event(8, "kill", A, result={"thread": A, "archived": True}),
    event(9, "push", result={"pushed": [{"ref": f"refs/uwf/archive/{A}", "object": "t"}], "refused": []}),
    event(10, "steps", A, result=[{"step": "N1"}, {"step": "N2"}]),
    event(11, "list", result=[{"thread": A, "status": "killed"}, {"thread": F, "status": "idle"}]),
    event(12, "step", A, code=1)._replace(error={"code": "invalid", "message": f"thread {A} is killed"}),
)
THREADS = {A: thread(A, FIRST, SECOND, status="killed", tag="t"), F: thread(F, FIRST)}
LISTED = {A: ("N2", "killed"), F: ("N1", "idle")}
HERE = Snapshot("machine 0", THREADS, frozenset({"V1"}), (), LISTED)
THERE = Snapshot(REMOTE, THREADS, frozenset({"V1"}))


def broken(claim: str) -> tuple[tuple[Event, ...], tuple[Snapshot, ...]]:
    """The history with something that speaks against one claim."""

    def here(**threads: Thread) -> tuple[Snapshot, ...]:
        changed = {**THREADS, **{{"a": A, "b": B, "f": F}[key]: value for key, value in threads.items()}}
        return HERE._replace(threads=changed, listed=None), THERE._replace(threads=changed)

    def instead(*events: Event) -> tuple[Event, ...]:
        numbers = {each.operation.number: each for each in events}
        old = [numbers.pop(each.operation.number, each) for each in EVENTS]
        return (*old, *numbers.values())

    killed = thread(A, FIRST, SECOND, status="killed")
    fork_of_second = EVENTS[3]._replace(result={"thread": F, "forkedFrom": {"step": "N2"}})
    refused = EVENTS[11]._replace(operation=Operation(3, 0, 0, "step"))
    return {
        "acknowledged steps are kept": (EVENTS, here(a=thread(A, FIRST, status="killed"))),
        "steps are in one chain": (EVENTS, here(b=thread(B, FIRST, SECOND))),
        "chains are whole": (EVENTS, here(a=thread(A, FIRST, SECOND._replace(number=3), status="killed"))),
        "threads have one state": (EVENTS, here(a=killed._replace(both=(FIRST,)))),
        "lists agree with refs": (EVENTS, (HERE._replace(listed={A: LISTED[A]}), THERE)),
        "forks have their parent": (instead(fork_of_second), (HERE, THERE)),
        "killed threads stay killed": (EVENTS, here(a=thread(A, FIRST, SECOND))),
        "ids mean the same": (
            EVENTS,
            (HERE, THERE._replace(threads={**THREADS, F: thread(F, FIRST, OTHER)})),
        ),
        "what was pushed is there": (EVENTS, (HERE, THERE._replace(threads={F: THREADS[F]}))),
        "refusals change nothing": (instead(refused), (HERE, THERE)),
        "statuses are explained": (instead(event(13, "step", A, code=7)), (HERE, THERE)),
        "reads are current": (instead(EVENTS[9]._replace(result=[{"step": "N1"}])), (HERE, THERE)),
        "paused threads stay put": (
            (*(e for e in EVENTS if e.name != "resume"), made(6, F, "N3")),
            here(f=thread(F, FIRST, OTHER)),
        ),
        "versions are kept": (
            EVENTS,
            (HERE._replace(versions=frozenset()), THERE._replace(versions=frozenset())),
        ),
        "stores verify": (EVENTS, (HERE._replace(findings=("git fsck: missing blob",)), THERE)),
    }[claim]


def test_a_sound_history_breaks_no_claim() -> None:
    assert violations(EVENTS, (HERE, THERE)) == []


@pytest.mark.parametrize("claim", [claim.__name__.replace("_", " ") for claim in CLAIMS])
def test_a_history_that_breaks_a_claim_is_found_out(claim: str) -> None:
    assert claim in {each.claim for each in violations(*broken(claim))}


def test_what_was_killed_may_have_been_done_or_not() -> None:
    killed = made(13, F, "N3")._replace(code=KILLED, result=None)
    done = HERE._replace(threads={**THREADS, F: thread(F, FIRST, OTHER)}, listed=None)
    assert violations((*EVENTS, killed), (HERE, THERE)) == []
    assert violations((*EVENTS, killed), (done, THERE._replace(threads=done.threads))) == []


def test_two_sides_share_steps_only_where_one_is_of_an_end_that_was_outdone() -> None:
    ended_elsewhere = thread(A, OTHER._replace(number=1, prev=None), status="completed")
    side = thread(B, FIRST, status="killed", origin=A, parted="")
    of_the_old_end = thread(F, FIRST, SECOND, origin=A, parted="N1")
    of_the_side = thread("S", FIRST, SECOND, origin=B, parted="N1")

    def shared(ended: Thread) -> bool:
        threads = {each.thread: each for each in (ended, side, of_the_old_end, of_the_side)}
        found = violations((), (HERE._replace(threads=threads, listed=None),))
        return "steps are in one chain" in {each.claim for each in found}

    assert not shared(ended_elsewhere)
    assert shared(ended_elsewhere._replace(status="active"))
    assert shared(thread(A, FIRST, status="killed"))


# A counterexample is made small


def test_of_what_fails_together_nothing_is_left_that_can_go() -> None:
    def fails(some: list[int]) -> bool:
        return {3, 17, 18} <= set(some)

    assert smallest(range(40), fails) == [3, 17, 18]


@pytest.mark.timeout(300)
def test_a_lost_step_is_found_shrunk_and_replayed_from_its_file(tmp_path: Path) -> None:
    thread, fork = Ref(1, 0), Ref(4, 0)
    done = [
        Operation(1, 0, 0, "start"),
        Operation(3, 0, 0, "step", thread, 0.31),
        Operation(4, 1, 0, "fork", thread),
        Operation(5, 0, 0, "step", fork, 0.31),
        Operation(6, 0, 0, "lose", thread),
    ]
    plan = Plan()
    history = again(plan, done)
    assert [event.code for event in history.events if event.operation.worker >= 0] == [0] * 5
    found = history.violations()
    assert found[0].claim == "acknowledged steps are kept"
    small = shrunk(history, found[0], 200)
    assert small is not None
    assert not small.at_once
    assert [event.name for event in small.history.events if event.operation.worker >= 0] == [
        "start",
        "step",
        "lose",
    ]
    small.history.save(tmp_path / "small.jsonl")
    replayed = [each for each in load(tmp_path / "small.jsonl")[1] if each.worker >= 0]
    assert [each.number for each in replayed] == [1, 3, 6]
    command = [sys.executable, Path(__file__).parent / "soak.py", "--replay", tmp_path / "small.jsonl"]
    again_ = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again_.returncode == 1, again_.stderr
    assert "acknowledged steps are kept" in again_.stdout
