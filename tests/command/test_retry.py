"""`uwf thread retry` runs a thread that failed, or a fork of one that ended at $FAIL."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from acp_steps import Scripted
from cli_samples import scripted
from commands import wait_until
from conftest import Begin, Uwf
from workflows import opened

from uwf_git.api.cockpit.retry import fork_to_retry, plan_retry
from uwf_git.base.errors import Invalid
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

FAILS = "- {role: writer, exit: 1}\n"
DONE = "- {role: writer, output: {text: a}}\n- {role: critic, output: {approved: true}}\n"


def commands(thread: str) -> tuple[str, ...]:
    instance = opened()
    return plan_retry(instance, instance.threads.head(ThreadId(thread))).commands


def test_a_thread_whose_attempt_failed_is_run_again(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(FAILS), check=6)
    assert commands(thread) == (f"uwf thread run {thread}",)
    done = uwf("thread", "retry", thread, "--agent", scripted(FAILS + DONE), "--format", "text")
    assert "completed" in done.out
    assert [item["thread"] for item in uwf("thread", "list", "--all").json] == [thread]
    refused = uwf("thread", "retry", thread, check=1).error
    assert refused["message"] == f"thread {thread} is completed" and "uwf thread fork" in refused["hint"]


def test_an_end_at_fail_is_forked_before_the_step_that_led_there(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    assert commands(gated) == (f"uwf thread fork {gated} --at 1", "uwf thread run FORK")
    tried = uwf("thread", "retry", gated, check=5)
    (fork,) = (item for item in uwf("thread", "list").json if item["thread"] != gated)
    assert fork["forkedFrom"]["thread"] == gated and (fork["steps"], fork["now"]) == (1, "gate")
    forked = {"thread": fork["thread"], "forkedFrom": {"step": fork["head"], "thread": gated}, "at": 1}
    assert json.loads(tried.out) == forked
    assert uwf("thread", "show", gated).json["status"] == "failed"
    waits = uwf("thread", "retry", fork["thread"], check=1).error
    assert waits["message"] == f"thread {fork['thread']} waits for a person"


def test_an_ended_thread_is_retried_once_and_the_second_is_told_by_which_fork(
    uwf: Uwf, begin: Begin, gated: str
) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    both = [begin("thread", "retry", gated, stderr=subprocess.PIPE) for _ in range(2)]
    ends = [(*process.communicate(timeout=60), process.returncode) for process in both]
    assert sorted(code for _, _, code in ends) == [1, 5]
    (fork,) = (item["thread"] for item in uwf("thread", "list").json)
    refused = uwf("thread", "retry", gated, check=1).error
    assert refused["message"] == f"thread {gated} is retried by {fork} already"
    assert refused["hint"] == f"see: uwf thread show {fork}; for one more: uwf thread fork {gated} --at 1"
    assert any(refused["message"] in err for _, err, _ in ends)
    uwf("thread", "fork", gated, "--at", "1")
    assert len(uwf("thread", "list").json) == 2


def test_several_that_are_retried_at_once_are_forked_once_each(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    with ThreadPoolExecutor() as pool:
        for error in pool.map(lambda _: _fork_error(gated), range(8)):
            assert error in (
                "",
                f"thread {gated} is retried by {uwf('thread', 'list').json[0]['thread']} already",
            )
    assert len(uwf("thread", "list").json) == 1


def _fork_error(thread: str) -> str:
    try:
        fork_to_retry(opened(), ThreadId(thread))
    except Invalid as error:
        return error.message
    return ""


def test_a_fork_of_before_its_end_is_no_retry(uwf: Uwf, gated: str) -> None:
    uwf("thread", "fork", gated, "--at", "1")
    time.sleep(1.1)  # times are in seconds
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    assert commands(gated)[0] == f"uwf thread fork {gated} --at 1"
    assert [item["thread"] for item in uwf("inbox", "--group", "failed").json] == [gated]
    uwf("thread", "retry", "--status", "failed", check=5)
    assert uwf("inbox", "--group", "failed").json == []


def test_what_was_retried_is_not_in_the_view_of_last_night(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    assert [item["thread"] for item in uwf("thread", "list", "--view", "last-night").json] == [gated]
    uwf("thread", "retry", gated, check=5)
    assert uwf("thread", "list", "--view", "last-night").json == []
    assert [item["thread"] for item in uwf("thread", "list", "--status", "failed").json] == [gated]


def test_a_retry_in_the_background_runs_on_after_the_command(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(FAILS), check=6)
    tried = uwf("thread", "retry", thread, "--detach", "--agent", scripted(FAILS + DONE)).json
    assert (tried["thread"], tried["detached"]) == (thread, True)
    uwf("thread", "wait", thread)
    assert uwf("thread", "show", thread).json["status"] == "completed"
    refused = uwf("thread", "retry", "--since", "1h", "--detach", check=2).error
    assert refused["hint"] == "repeat for each: uwf thread retry ID --detach"


def test_a_fork_that_runs_in_the_background_is_in_the_one_value_that_is_printed(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    tried = uwf("thread", "retry", gated, "--detach").json
    assert (tried["forkedFrom"]["thread"], tried["at"], tried["detached"]) == (gated, 1, True)
    uwf("thread", "wait", tried["thread"], check=5)
    uwf("thread", "answer", tried["thread"], "-f", "decision=drop", check=10)
    lines = uwf("thread", "retry", tried["thread"], "--detach", "--format", "text").out.splitlines()
    assert lines[1].split(maxsplit=2) == ["fork", "of", f"{tried['thread']}, after step 1"]
    fork = lines[0].split()[1]
    assert fork not in (gated, tried["thread"])
    uwf("thread", "wait", fork, check=5)


def test_a_thread_whose_agent_asks_leave_names_the_command_that_allows_it(
    uwf: Uwf, instance: Instance, begin: Begin
) -> None:
    steps = Scripted(instance.location.root, "ask:execute=make test", more="permissionWait: 1h\n")
    step = begin("thread", "step", steps.thread)
    wait_until(lambda: uwf("thread", "show", steps.thread).json["status"] == "waiting", "it asks")
    refused = uwf("thread", "retry", steps.thread, check=4).error
    assert refused["message"] == f"the agent of thread {steps.thread} asks leave: execute: make test"
    uwf(*refused["hint"].split()[1:])
    assert step.wait(timeout=60) == 0


def test_filters_try_what_failed_once_and_leave_the_others_alone(uwf: Uwf, gated: str) -> None:
    from cli_samples import PAIR, write

    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    idle = uwf("thread", "start", "pair", "-p", "Idle").json["thread"]
    failing = [uwf("thread", "start", "pair", "-p", f"Task {number}").json["thread"] for number in range(2)]
    uwf("thread", "run", *failing, "--agent", scripted(FAILS), check=6)
    assert "give ids" in uwf("thread", "retry", check=2).error["hint"]
    uwf("thread", "retry", "--workflow", "pair", "-j", "2", "--agent", scripted(FAILS + DONE))
    uwf("thread", "retry", "--since", "1h", check=5)  # the fork waits for its person
    states = {item["thread"]: item["status"] for item in uwf("thread", "list", "--all").json}
    assert [states[thread] for thread in (*failing, idle, gated)] == [
        "completed",
        "completed",
        "idle",
        "failed",
    ]
    assert len(states) == 5
    again = uwf("thread", "retry", "--since", "1h", "--format", "text")
    assert "no such threads need a retry" in again.err
    assert uwf("inbox", "--group", "failed").json == []


def test_several_ids_are_tried_and_those_that_cannot_be_are_named(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(FAILS), check=6)
    other = uwf("thread", "start", "pair", "-p", "Done").json["thread"]
    uwf("thread", "kill", other)
    tried = uwf("thread", "retry", thread, other, "--agent", scripted(FAILS + DONE), check=None)
    assert tried.code == 1 and f"thread {other} is killed" in tried.err
    assert uwf("thread", "show", thread).json["status"] == "completed"
