"""Runs in the background: who has them, how they are stopped, and what a killed one leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import one_role
import pytest
from cli_samples import ASKS, PAIR, scripted, write
from commands import alive, wait_for, wait_until_gone
from conftest import Begin, Uwf

from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

SCHEMA = {"type": "object", "properties": {"status": {"enum": ["passed", "failed"]}}, "required": ["status"]}

# Says that it is at work, and works until it may end.
WORK = """\
import os, sys, time
from pathlib import Path
print("at work", flush=True)
Path(f"at-work-{os.environ['UWF_THREAD']}").write_text(f"{os.getpid()} {os.getppid()}")
while not Path("go").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def thread(instance: Instance) -> ThreadId:
    return ThreadId(one_role.start(instance, SCHEMA, "a task"))


@pytest.fixture
def agent(script: Callable[[str, str], Path]) -> str:
    return f"uwf-exec {script('work', WORK)}"


def at_work(thread: str) -> tuple[int, int]:
    """The processes of the agent and of its engine, once it works."""
    agent, engine = wait_for(Path(f"at-work-{thread}")).split()
    return int(agent), int(engine)


def test_a_step_cannot_start_a_run_in_the_background(uwf: Uwf, thread: ThreadId) -> None:
    other = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    inner = f"{sys.executable} -m uwf_cli.main thread run {other} --detach"
    uwf("thread", "step", thread, "--agent", f"uwf-exec sh -c '{inner} 2>said; echo done'")
    assert "a step or hook cannot start a run in the background" in Path("said").read_text()
    assert uwf("ps").json == []


def test_a_persons_role_is_told_at_once_whatever_the_agent(uwf: Uwf, gated: str) -> None:
    uwf("thread", "run", gated, "--detach", "--agent", "uwf-exec true", check=5)


def test_a_detached_run_outlives_its_command_in_a_session_of_its_own(
    uwf: Uwf, thread: ThreadId, agent: str
) -> None:
    value = uwf("thread", "run", thread, "--detach", "--agent", agent).json
    assert (value["thread"], value["detached"]) == (thread, True)
    _, engine = at_work(thread)
    assert os.getsid(engine) == engine != os.getsid(0)
    Path("go").touch()
    assert uwf("thread", "wait", thread).json["status"] == "completed"
    assert "worker (uwf-exec): passed" in Path(value["log"]).read_text()
    wait_until_gone(engine)


def test_a_started_thread_is_told_in_one_value_and_is_run_before_the_command_returns(
    uwf: Uwf, instance: Instance, agent: str
) -> None:
    write("pair.yaml", PAIR)
    value = uwf("run", "./pair.yaml", "-p", "a task", "--detach", "--agent", agent).json
    assert instance.locks.is_run(value["thread"]) and value["workflow"]
    text = uwf("thread", "show", value["thread"], "--format", "text").out
    assert f"by a process here; uwf thread stop {value['thread']}" in text
    uwf("thread", "stop", value["thread"])


def test_a_thread_that_is_run_is_refused_to_others_and_its_output_stays(
    uwf: Uwf, thread: ThreadId, agent: str
) -> None:
    log = uwf("thread", "run", thread, "--detach", "--agent", agent).json["log"]
    _, engine = at_work(thread)
    for again in ([], ["--detach"]):
        error = uwf("thread", "run", thread, *again, check=4).error
        assert error["code"] == "busy" and f"uwf thread stop {thread}" in error["hint"]
    assert alive(engine)
    Path("go").touch()
    uwf("thread", "wait", thread)
    assert "passed" in Path(log).read_text()


def test_a_run_shows_between_two_steps_too_and_filters_leave_it_out(
    uwf: Uwf, instance: Instance, thread: ThreadId
) -> None:
    assert uwf("ps").json == [] and "run" not in uwf("thread", "show", thread).json
    with instance.locks.run(thread):
        assert [each["thread"] for each in uwf("ps").json] == [thread]
        assert "between two steps" in uwf("ps", "--format", "text").out
        (listed,) = uwf("thread", "list").json
        assert (listed["status"], listed["run"]) == ("idle", True)
        assert "idle (run)" in uwf("thread", "list", "--format", "text").out
        assert uwf("thread", "show", thread).json["run"] is True
        assert uwf("thread", "run", "--all").out == ""
        assert uwf("thread", "wait", thread, "--timeout", "0", check=124).error["code"] == "timed_out"


@pytest.mark.parametrize(
    ("before", "status", "code"),
    [
        (["thread", "kill"], 1, "invalid"),
        (["thread", "pause"], 5, "paused"),
        (["thread", "step", "--agent", "script"], 5, "waiting"),
    ],
)
def test_a_thread_with_nothing_to_run_is_told_by_the_command_itself(
    uwf: Uwf, thread: ThreadId, root: Path, before: list[str], status: int, code: str
) -> None:
    asks = scripted(ASKS.replace("role: writer", "role: worker"))
    uwf(*before[:2], thread, *[asks if each == "script" else each for each in before[2:]])
    assert uwf("thread", "run", thread, "--detach", check=status).error["code"] == code
    assert not list((root / "store.git" / "uwf" / "runs").glob("*.detached"))


def test_a_started_thread_that_waits_for_a_person_at_once_is_told_and_found_waiting(
    uwf: Uwf, config: Callable[[str], Path]
) -> None:
    config("agentOverrides: { pair: { writer: human } }\n")
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("run", "pair", "-p", "a text", "--detach").json["thread"]
    assert uwf("thread", "wait", thread, check=5).error["code"] == "waiting"
    assert uwf("thread", "run", thread, "--detach", check=5).error["code"] == "waiting"
    assert [each["thread"] for each in uwf("inbox").json] == [thread]


def test_a_call_that_cannot_be_carried_out_is_refused_at_once(uwf: Uwf, thread: ThreadId) -> None:
    assert uwf("thread", "run", "zzzz0000", "--detach", check=3).error["code"] == "not_found"
    unknown = uwf("thread", "run", thread, "--detach", "--agent", "no-such-agent", check=2)
    assert "no-such-agent" in unknown.error["message"]
    for several in ([thread, thread], ["--all"], []):
        assert "one thread" in uwf("thread", "run", *several, "--detach", check=2).error["message"]


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_run(
    uwf: Uwf, instance: Instance, thread: ThreadId
) -> None:
    path = instance.runs.detached_output(thread)
    path.mkdir(parents=True)
    error = uwf("thread", "run", thread, "--detach", check=1).error
    assert error["code"] == "store_unwritable" and str(path) in error["message"]
    assert not instance.locks.is_at_work(thread)


def test_a_stopped_run_keeps_its_agents_work_and_goes_on_later(
    uwf: Uwf, instance: Instance, thread: ThreadId, agent: str
) -> None:
    uwf("thread", "run", thread, "--detach", "--agent", agent)
    worker, engine = at_work(thread)
    stopped = uwf("thread", "stop", thread).json
    assert stopped == {"thread": thread, "stopped": True, "done": False, "status": "idle"}
    assert not alive(worker)
    wait_until_gone(engine)
    assert [each["error"] for each in uwf("thread", "attempts", thread).json] == ["interrupted"]
    assert uwf("thread", "wait", thread, check=11).error["code"] == "not_running"
    assert uwf("thread", "stop", thread).json["stopped"] is False
    Path("go").touch()
    assert uwf("thread", "run", thread, "--agent", agent).json["status"] == "completed"
    assert uwf("thread", "stop", thread).json == {
        **stopped,
        "stopped": False,
        "done": True,
        "status": "completed",
    }


def test_a_stopped_run_of_a_terminal_ends_as_by_a_signal(
    uwf: Uwf, begin: Begin, thread: ThreadId, agent: str
) -> None:
    running = begin("thread", "run", thread, "--agent", agent)
    worker, _ = at_work(thread)
    uwf("thread", "stop", thread)
    assert "uwf thread run" in running.communicate(timeout=30)[1]
    assert running.returncode == 128 + signal.SIGTERM and not alive(worker)


def test_two_that_stop_a_run_do_not_disturb_its_end(
    uwf: Uwf, begin: Begin, thread: ThreadId, agent: str
) -> None:
    uwf("thread", "run", thread, "--detach", "--agent", agent)
    at_work(thread)
    both = [begin("thread", "stop", thread) for _ in range(2)]
    said = sorted('"stopped": true' in each.communicate(timeout=30)[0] for each in both)
    assert said == [False, True] and [each.returncode for each in both] == [0, 0]
    assert len(uwf("thread", "attempts", thread).json) == 1


def test_a_single_step_is_not_stopped_but_the_way_to_end_it_is_told(
    uwf: Uwf, begin: Begin, thread: ThreadId, agent: str
) -> None:
    stepping = begin("thread", "step", thread, "--agent", agent)
    worker, _ = at_work(thread)
    error = uwf("thread", "stop", thread, check=4).error
    assert f"uwf thread pause {thread} --now" in error["hint"] and alive(worker)
    Path("go").touch()
    stepping.communicate(timeout=30)
    assert stepping.returncode == 0


def test_a_process_that_only_has_the_lock_file_open_is_not_stopped(
    uwf: Uwf, instance: Instance, thread: ThreadId, agent: str
) -> None:
    uwf("thread", "run", thread, "--detach", "--agent", agent)
    at_work(thread)
    path = instance.store.repository.private / "locks" / f"run-{thread}"
    with path.open() as file:
        reader = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(file.fileno(),)
        )
    assert uwf("thread", "stop", thread).json["stopped"]
    assert reader.poll() is None
    reader.communicate(b"\n")
    assert reader.returncode == 0


def test_a_killed_run_leaves_no_lock_and_the_next_one_goes_on(
    uwf: Uwf, instance: Instance, thread: ThreadId, agent: str
) -> None:
    uwf("thread", "run", thread, "--detach", "--agent", agent)
    worker, engine = at_work(thread)
    os.kill(engine, signal.SIGKILL)
    wait_until_gone(engine)
    wait_until_gone(worker)
    assert not instance.locks.is_run(thread)
    error = uwf("thread", "wait", thread, check=6).error
    assert "its step was interrupted" in error["message"]
    assert f"uwf thread run {thread}" in error["hint"] and f"{thread}.detached" in error["hint"]
    assert uwf("thread", "run", thread, "--agent", "uwf-exec true").json["status"] == "completed"


def test_a_lock_file_that_a_restart_left_means_no_run(uwf: Uwf, instance: Instance, thread: ThreadId) -> None:
    path = instance.store.repository.private / "locks" / f"run-{thread}"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert uwf("thread", "wait", thread, check=11).error["code"] == "not_running"
    assert uwf("thread", "stop", thread).json["stopped"] is False
    uwf("thread", "run", thread, "--agent", "uwf-exec true")
    assert not path.exists()


def test_a_store_that_cannot_be_written_is_told_and_its_threads_can_be_waited_for(
    uwf: Uwf, instance: Instance, thread: ThreadId
) -> None:
    locks = instance.store.repository.private / "locks"
    shutil.rmtree(locks, ignore_errors=True)
    locks.touch()
    error = uwf("thread", "run", thread, "--detach", check=1).error
    assert error["code"] == "store_unwritable" and str(locks) in error["message"]
    assert uwf("thread", "wait", thread, check=11).error["code"] == "not_running"
    assert uwf("thread", "stop", thread).json["stopped"] is False


def test_agents_do_not_hold_the_run_of_their_thread(
    uwf: Uwf, instance: Instance, thread: ThreadId, agent: str
) -> None:
    uwf("thread", "run", thread, "--detach", "--agent", agent)
    worker, engine = at_work(thread)
    held = {
        pid: any(link.readlink().name == f"run-{thread}" for link in Path(f"/proc/{pid}/fd").iterdir())
        for pid in (worker, engine)
    }
    assert held == {worker: False, engine: True}
    uwf("thread", "stop", thread)
