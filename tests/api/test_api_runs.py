"""Threads are run in any thread of a program, several at once, and leave the process as it was. What ends a run in the
ordinary way is a state, and what fails an exception."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from one_role import WORKFLOW
from workflows import opened

import uwf_git as uwf
from uwf_git.base.errors import NoTransition
from uwf_git.kit import Reply, Usage

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
LOOP = {
    "name": "loop",
    "description": "A role until a condition holds",
    "roles": {
        "worker": {
            "description": "Counts.",
            "systemPrompt": "Count.",
            "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        }
    },
    "conditions": {"enough": {"description": "It is.", "expression": "$sum(steps.output.n) >= 6"}},
    "graph": {
        "$START": [{"role": "worker"}],
        "worker": [{"role": "$END", "condition": "enough"}, {"role": "worker"}],
    },
}
OF_SEVEN = "$length($string(steps[-1].output.n)) = 7"  # so that the rehearsal doesn't meet it
ENDLESS = {
    **LOOP,
    "name": "endless",
    "conditions": {
        "enough": {"description": "", "expression": f"{OF_SEVEN} ? ($f := function($x){{$f($x)}}; $f(1))"}
    },
}


@pytest.fixture
def store() -> uwf.Store:
    return uwf.init()


@pytest.fixture
def loop(store: uwf.Store) -> uwf.Workflow:
    return store.workflows.put(LOOP)


def count(turn: uwf.Turn) -> dict[str, int]:
    return {"n": turn.inputs.get("worker", {"n": 0})["n"] + 1}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_several_threads_of_a_program_run_threads_at_once(
    store: uwf.Store, loop: uwf.Workflow, pool: ThreadPoolExecutor
) -> None:
    together = threading.Barrier(4, timeout=60)

    def agent(turn: uwf.Turn) -> dict[str, int]:
        if not turn.inputs:
            together.wait()  # all are in the midst of their first step
        return count(turn)

    def work(number: int) -> list[int]:
        thread = store.start(loop, f"Count {number}.")
        outputs = [step.output["n"] for step in thread.run(agent)]
        assert thread.state == uwf.Completed()
        return outputs

    assert list(pool.map(work, range(4))) == [[1, 2, 3]] * 4
    assert store.verify() == []
    assert len(store.threads(ended=True)) == 4


def test_an_endless_condition_is_ended_in_another_thread(store: uwf.Store, pool: ThreadPoolExecutor) -> None:
    thread = store.start(store.workflows.put(ENDLESS), "Go.")

    def work() -> Any:
        with pytest.raises(NoTransition, match="takes longer than 2 s"):
            list(thread.run(lambda _turn: {"n": 1_234_567}))
        return thread.state

    state = pool.submit(work).result()
    assert isinstance(state, uwf.Stuck) and "takes longer than 2 s" in state.problem


def test_what_a_rehearsal_meets_is_a_warning(store: uwf.Store) -> None:
    broken = {**LOOP, "conditions": {"enough": {"description": "", "expression": "1 / 0"}}}
    with pytest.warns(UserWarning, match="enough"):
        store.workflows.put(broken)


def test_a_step_changes_neither_the_current_folder_nor_the_process(tmp_path: Path) -> None:
    program = f"""
import os, resource, signal, threading
import uwf_git as uwf

def process():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return os.getcwd(), handlers, signal.getitimer(0), resource.getrlimit(resource.RLIMIT_AS), dict(os.environ)

def agent(turn):
    assert process() == before and str(turn.cwd) == {str(tmp_path)!r}
    return {{"n": 6}}

before = process()
store = uwf.init()
thread = store.start(store.workflows.put({LOOP!r}), "Go.")
print(thread.step(agent, cwd={str(tmp_path)!r}).output, thread.state)
assert process() == before
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "{'n': 6} Completed(failures='', status='completed')\n"), (
        done.stderr
    )


def test_a_thread_that_cannot_be_stepped_yields_nothing_and_its_state_says_why(
    store: uwf.Store, loop: uwf.Workflow
) -> None:
    thread = store.start(loop, "Go.")
    thread.pause("later")
    assert list(thread.run(count)) == []
    assert isinstance(thread.state, uwf.Paused) and thread.state.reason == "later"
    thread.resume()
    thread.kill("no more")
    assert thread.step(count) is None and thread.state == uwf.Killed("no more")


def test_a_step_of_a_thread_that_is_ended_meanwhile_is_kept_in_a_fork(
    store: uwf.Store, loop: uwf.Workflow
) -> None:
    thread = store.start(loop, "Go.")

    def killed(turn: uwf.Turn) -> dict[str, int]:
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: opened().threads.archive(opened().threads.head(thread._id), "killed", "now"))
        return {"n": 1}

    (lost,) = thread.run(killed)
    assert thread.state == uwf.Killed("now") and thread.steps == []
    assert lost.fork is not None and lost.fork.state == uwf.Idle("worker")


def test_a_step_that_lost_the_race_is_yielded_with_the_thread_that_keeps_it(
    store: uwf.Store, loop: uwf.Workflow
) -> None:
    thread, ahead = store.start(loop, "Go."), None

    def overtaken(turn: uwf.Turn) -> dict[str, int]:
        nonlocal ahead
        instance = opened()
        head = instance.threads.head(thread._id)
        ahead = thread.fork()
        ahead.step(lambda turn: {"n": 5})
        moved = instance.threads.head(ahead._id)
        name = f"refs/uwf/threads/{thread.id}"
        instance.store.repository.move_ref(name, head.commit, moved.commit)
        return {"n": 1}

    (lost,) = thread.run(overtaken)
    assert lost.fork is not None and lost.fork != thread and lost.output == {"n": 1}
    assert lost.fork.steps == [lost._replace(fork=None)]
    assert [step.output for step in thread.steps] == [{"n": 5}]


def test_a_thread_that_somebody_steps_is_busy(store: uwf.Store, loop: uwf.Workflow) -> None:
    thread = store.start(loop, "Go.")

    def agent(turn: uwf.Turn) -> dict[str, int]:
        assert thread.state == uwf.Running()
        with ThreadPoolExecutor(1) as other, pytest.raises(uwf.Busy):
            other.submit(thread.step, count).result()
        return {"n": 6}

    assert [step.output for step in thread.run(agent)] == [{"n": 6}]


def test_an_answer_that_breaks_the_schema_fails_and_is_kept(store: uwf.Store, loop: uwf.Workflow) -> None:
    thread = store.start(loop, "Go.")
    for answer in ({"n": "one"}, "no fields", None, object()):
        with pytest.raises(uwf.AgentFailed):
            thread.step(lambda turn, answer=answer: answer)
    assert thread.steps == [] and isinstance(thread.state, uwf.Failed)
    seen: list[int] = []
    thread.step(lambda turn: seen.append(turn.attempt) or {"n": 1})
    assert seen == [4] and thread.state == uwf.Idle("worker")


def test_a_function_that_ends_the_process_fails_and_the_program_goes_on(
    store: uwf.Store, loop: uwf.Workflow
) -> None:
    thread = store.start(loop, "Go.")
    with pytest.raises(uwf.AgentFailed, match="ended the process: exit 0"):
        thread.step(lambda turn: sys.exit())
    assert thread.steps == [] and isinstance(thread.state, uwf.Failed)


def test_a_reply_is_stored_with_what_it_says_of_tokens(store: uwf.Store, loop: uwf.Workflow) -> None:
    thread = store.start(loop, "Go.", budget=uwf.Budget(tokens=100))
    reply = Reply("---\nn: 1\n---\n", usage=Usage(90, 20), model="m")
    assert [step.output for step in thread.run(lambda turn: reply)] == [{"n": 1}]
    assert isinstance(thread.state, uwf.OverBudget)


def test_a_command_is_an_agent_as_for_the_command(store: uwf.Store, loop: uwf.Workflow) -> None:
    thread = store.start(loop, "Go.")
    with pytest.raises(uwf.UwfError, match="no-such-agent"):
        thread.step("no-such-agent")
    step = thread.step("uwf-rehearse")
    assert step is not None and step.agent == "uwf-rehearse"


def test_an_ended_thread_is_gone_on_with_in_another(store: uwf.Store) -> None:
    graph = {**LOOP["graph"], "$START": {"new": "worker", "resume": "worker"}}  # type: ignore[dict-item]
    thread = store.start(store.workflows.put({**LOOP, "graph": graph}), "Go.")
    list(thread.run(lambda turn: {"n": 6}))
    again = thread.resume("Once more.")
    assert again != thread and again.state == uwf.Idle("worker")


def test_a_budget_that_is_none_is_refused(store: uwf.Store, loop: uwf.Workflow) -> None:
    with pytest.raises(uwf.Invalid, match=r"Budget\(usd=-1\)"):
        store.start(loop, "Go.", budget=uwf.Budget(usd=-1))
    with pytest.raises(uwf.Invalid, match="has no maxCost"):
        store.start(loop, "Go.").budget = uwf.Budget(usd=1)


def test_an_invalid_workflow_says_all_that_is_wrong(store: uwf.Store, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(WORKFLOW.format(schema=SCHEMA).replace("role: $END", "role: nobody"))
    with pytest.raises(uwf.Invalid) as caught:
        store.workflows.put(file)
    assert any("nobody" in finding.message for finding in caught.value.findings)  # type: ignore[attr-defined]


def test_the_store_of_a_project_is_opened_by_its_folder(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    with pytest.raises(uwf.NotFound):
        uwf.open(tmp_path / "project")
    env = {name: value for name, value in os.environ.items() if name != "UWF_STORAGE_ROOT"}
    subprocess.run(
        [sys.executable, "-m", "uwf_cli.main", "init", "--here"],
        cwd=tmp_path / "project",
        env=env,
        check=True,
        capture_output=True,
    )
    store = uwf.open(tmp_path / "project")
    assert store.path == tmp_path / "project" / ".git"
    assert list(store.start(store.workflows.put(LOOP), "Go.").run(lambda turn: {"n": 6}))
