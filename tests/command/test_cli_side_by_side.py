"""Several threads run by one command, and a thread that is started and run by one."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import one_role
import pytest
from cli_samples import ASKS, on_terminal, scripted
from commands import begin, git, parent_of, wait_for, wait_until_gone
from conftest import Uwf
from screen import Screen

from uwf_git.store.instance import Instance

SCHEMA = {"type": "object", "properties": {"status": {"enum": ["passed", "failed"]}}, "required": ["status"]}

# Comes to its end only while as many others are at it as its argument says.
MEETING = """\
import os, sys, time
from pathlib import Path
print("at work for", os.environ["UWF_THREAD"], flush=True)
Path("here-" + os.environ["UWF_THREAD"]).write_text(str(os.getpid()))
while len(list(Path().glob("here-*"))) < int(sys.argv[1]) or Path("hold").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def threads(instance: Instance) -> list[str]:
    return [one_role.start(instance, SCHEMA, f"task {number}") for number in range(3)]


@pytest.fixture
def meeting(script: Callable[[str, str], Path]) -> str:
    return f"uwf-exec {script('meeting', MEETING)}"


def test_threads_run_at_the_same_time_and_their_lines_are_told_apart(
    uwf: Uwf, threads: list[str], meeting: str
) -> None:
    done = uwf("thread", "run", *threads, "-j", "3", "--agent", f"{meeting} 3", "--format", "text")
    assert sorted(done.out.splitlines()) == sorted(
        f"{thread[-6:]}     1  worker (uwf-exec): passed  → completed" for thread in threads
    )
    assert done.err == "uwf: 3 threads: 3 done\n"


def test_filters_run_what_is_idle_and_the_highest_status_counts_but_waiting_least(
    uwf: Uwf, threads: list[str]
) -> None:
    asks, works, fails = threads
    script = scripted(ASKS.replace("role: writer", "role: worker"))
    waiting = uwf("thread", "run", asks, works, "--agent", script, check=5)
    assert [line["thread"] for line in waiting.lines] == [asks, works]
    errors = [json.loads(line)["error"] for line in waiting.err.splitlines()]
    assert [(each["thread"], each["code"]) for each in errors] == [(asks, "waiting"), (works, "waiting")]

    uwf("thread", "answer", works, "-m", "red")
    done = uwf("thread", "run", "--all", "--agent", "uwf-exec sh -c 'test $UWF_THREAD = " + works + "'")
    assert {line["thread"]: line["status"] for line in done.lines} == {works: "completed", fails: "completed"}
    more = [uwf("thread", "fork", works, "--at", "0").json["thread"] for _ in range(2)]
    fails_always = scripted("- { role: worker, exit: 3 }\n", "fails.yaml")
    assert uwf("thread", "run", *more, asks, "--agent", fails_always, check=6).out == ""
    assert uwf("thread", "run", "--all").out == "", "what failed is left alone unless it is asked for"
    again = uwf("thread", "run", "--status", "failed", "--agent", "uwf-exec true")
    assert [line["thread"] for line in again.lines] == sorted(more)
    assert uwf("thread", "run", check=2).error["code"] == "usage"
    assert uwf("thread", "run", more[0], "0000000000ABC", check=3).lines == []


def test_an_interruption_ends_all_of_them_and_names_those_that_go_on(
    uwf: Uwf, threads: list[str], meeting: str
) -> None:
    Path("hold").touch()
    running = begin("thread", "run", *threads, "-j", "2", "--agent", f"{meeting} 2")
    pids = [wait_for(Path(f"here-{thread}")) for thread in threads[:2]]
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (130, "")
    going_on = f"nothing is lost, uwf thread run {' '.join(threads)} -j 2 --agent '{meeting} 2' goes on"
    assert json.loads(err)["error"] == {"code": "interrupted", "message": "interrupted", "hint": going_on}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    attempts = [[each["error"] for each in uwf("thread", "attempts", thread).json] for thread in threads]
    assert attempts == [["interrupted"], ["interrupted"], []]
    assert {each["status"] for each in uwf("thread", "list").json} == {"idle"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_message_that_all_threads_have_is_told_once_with_their_number(
    uwf: Uwf, instance: Instance, threads: list[str], form: str
) -> None:
    lost = one_role.start(instance, SCHEMA, "lost")
    git("--git-dir", instance.location.git_dir, "update-ref", "-d", f"refs/uwf/threads/{lost}")
    options = ("--agent", "uwf-exec sh -c 'echo at work >&2'", "--format", form)
    lines = uwf("thread", "run", *threads, "-j", "3", *options).err.splitlines()
    told = [line for line in lines if "older than it was" in line]
    assert len(told) == 2 and told[0] != told[1]
    assert "uwf: the store is older" in told[0] and lost in told[0]
    assert (
        told[1].startswith("uwf: 2 more threads had the same message: the store is older") and lost in told[1]
    )


def test_each_thread_has_a_live_line_and_only_the_finished_ones_stay(
    uwf: Uwf, threads: list[str], meeting: str
) -> None:
    Path("hold").touch()
    let_go: Callable[[int, int], object] = lambda _c, _t: Path("hold").unlink()  # noqa: E731
    wait: Callable[[int, int], object] = lambda _c, _t: None  # noqa: E731
    # The last thread's turn comes after the others', so that it is announced until then.
    command = ("thread", "run", *threads, "-j", "2", "--agent", f"{meeting} 2")
    each = [("1 more to come", wait), (threads[0][-6:], wait), (threads[1][-6:], let_go)]
    status, shown = on_terminal(*command, typed=each, columns=80)
    screen = Screen(80, shown)
    assert (status, screen.wrapped) == (0, False)
    *lines, summary = screen.text.splitlines()
    assert summary == "uwf: 3 threads: 3 done"
    assert sorted(lines) == sorted(
        f"{thread[-6:]}     1  worker (uwf-exec): passed  → completed" for thread in threads
    )
    for thread in threads[:2]:
        assert any(line.startswith(f"{thread[-6:]}     1  worker (uwf-exec) · ") for line in screen.ever)
    assert "1 more to come" in screen.ever


def test_one_command_starts_a_thread_and_runs_it(uwf: Uwf, hermetic: Path) -> None:
    (hermetic / "one.yaml").write_text(one_role.WORKFLOW.format(schema=json.dumps(SCHEMA)))
    begun, *steps = uwf("run", hermetic / "one.yaml", "-p", "x", "--agent", "uwf-exec true").lines
    assert begun.keys() == {"workflow", "thread"}
    assert [(step["thread"], step["agent"], step["status"]) for step in steps] == [
        (begun["thread"], "uwf-exec", "completed")
    ]
    text = uwf("run", hermetic / "one.yaml", "-p", "x", "--format", "text").out.splitlines()
    assert text[0].startswith("thread  01") and len(text) == 2
    limited = uwf("run", hermetic / "one.yaml", "-p", "x", "--max-cost", "2", "--max-steps", "1").lines
    budget = uwf("thread", "budget", limited[0]["thread"]).json
    assert "maxCost" in json.dumps(budget) and "maxSteps" not in json.dumps(budget)
    assert uwf("run", hermetic / "one.yaml", check=2).error["hint"].startswith("give one with -p")
    environ = {**os.environ, "UWF_FORMAT": "yaml"}
    assert uwf("run", hermetic / "one.yaml", "-p", "x", env=environ).out.count("---\n") == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_thread_whose_process_was_killed_is_named_and_goes_on(
    uwf: Uwf, threads: list[str], meeting: str, form: str
) -> None:
    Path("hold").touch()
    killed, other = threads[:2]
    agent = f"{meeting} 2"
    running = begin("thread", "run", killed, other, "-j", "2", "--agent", agent, "--format", form)
    at_work = int(wait_for(Path(f"here-{killed}")))
    wait_for(Path(f"here-{other}"))
    os.kill(parent_of(at_work), signal.SIGKILL)
    wait_until_gone(at_work)
    Path("hold").unlink()
    out, err = running.communicate(timeout=30)
    assert running.returncode == 1 and len(out.splitlines()) == 1
    hint = f"nothing is lost, uwf thread run {killed} --agent {shlex.quote(agent)} goes on"
    line = next(line for line in err.splitlines() if killed in line)
    assert line.endswith(f"was ended by signal 9 — {hint}") or json.loads(line)["error"]["hint"] == hint
    assert uwf("thread", "run", killed, "--agent", agent).lines[-1]["done"]
