"""A thread whose engine was killed in the midst of a step: it has failed, everywhere, until a step tries again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import scripted
from commands import begin, git, wait_for, wait_until
from conftest import Uwf

from uwf_git.api.listing import Filters, listed
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

WORKS = "echo tick; echo $$ > started; while :; do sleep 0.05; done"


def agent(config: Callable[[str], Path], script: str) -> None:
    config(
        f"agents: {{ t: {{ command: uwf-exec, args: [sh, -c, {json.dumps(script)}] }} }}\ndefaultAgent: t\n"
    )


def is_shown(thread: str) -> bool:
    return b"tick" in Instance.open().runs.printed(ThreadId(thread))[1]


def kill_engine(thread: str, command: str = "step") -> None:
    """Kill the engine of a step alone, and wait until its agent is gone."""
    running = begin("thread", command, thread)
    wait_until(lambda: is_shown(thread), "those who watch have the lines")
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: not Instance.open().locks.is_held(ThreadId(thread)), "the command is gone")


def refs(root: Path) -> str:
    return git("--git-dir", root / "store.git", "for-each-ref")


def test_a_step_whose_engine_was_killed_has_failed_wherever_one_looks(
    uwf: Uwf, root: Path, thread: str, config: Callable[[str], Path]
) -> None:
    agent(config, WORKS)
    kill_engine(thread)
    before = refs(root)
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["error"]) == ("failed", "the step was interrupted")
    (listed,) = uwf("thread", "list", "--status", "failed").json
    assert listed["thread"] == thread
    assert uwf("thread", "list", "--status", "idle").json == []
    assert (listed["line"], listed["attempt"]["number"]) == ("the step was interrupted", 1)
    (item,) = uwf("inbox", "--group", "failed").json
    assert item["thread"] == thread and "the step was interrupted" in json.dumps(item)
    assert uwf("thread", "list", "--view", "last-night").json == [listed]
    assert uwf("thread", "wait", thread, check=6).error["code"] == "agent_failed"
    (tried,) = uwf("thread", "attempts", thread).json
    assert (tried["attempt"], tried["error"]) == (None, "the step was interrupted")
    assert "tick\n" in tried["stdout"]
    assert refs(root) == before, "who looks moves nothing"
    agent(config, "printf '%s\\n' '---' 'text: again' '---'")
    uwf("thread", "retry", thread, check=None)
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "again"}
    assert uwf("thread", "show", thread).json["status"] != "failed"
    (kept,) = uwf("thread", "attempts", thread).json
    assert kept["attempt"] is not None and kept["stdout"] == tried["stdout"]
    assert uwf("verify").json["findings"] == []


def test_all_that_can_go_on_go_on_after_the_machine_went_down(
    uwf: Uwf, thread: str, config: Callable[[str], Path]
) -> None:
    agent(config, WORKS)
    kill_engine(thread, "run")
    agent(config, "printf '%s\\n' '---' 'text: again' '---'")
    uwf("thread", "run", "--all", "--max-steps", "1", check=None)
    assert [step["output"] for step in uwf("thread", "steps", thread).json] == [{"text": "again"}]


@pytest.mark.parametrize("way", ["ctrl-c", "stop", "pause --now"])
def test_what_a_user_ended_has_not_failed(
    uwf: Uwf, thread: str, way: str, config: Callable[[str], Path]
) -> None:
    agent(config, WORKS)
    running = begin("thread", "run", thread, as_fork=True)
    wait_for(Path("started"))
    if way == "ctrl-c":
        os.kill(running.pid, signal.SIGINT)
    else:
        command, *options = way.split()
        uwf("thread", command, thread, *options)
    running.communicate(timeout=60)
    if way.startswith("pause"):
        uwf("thread", "resume", thread)
    assert uwf("thread", "show", thread).json["status"] == "idle"
    assert uwf("inbox").json == []


def test_a_try_that_failed_or_was_cut_off_is_when_a_thread_changed_last(
    uwf: Uwf, thread: str, config: Callable[[str], Path]
) -> None:
    other = uwf("thread", "fork", thread).json["thread"]
    time.sleep(1.1)
    since = int(time.time())

    def changed(**when: float) -> set[str]:
        return {item.thread for item in listed(Instance.open(), Filters(**when))}

    assert changed(since=since) == set() and changed(until=since) == {thread, other}
    uwf("thread", "step", thread, "--agent", scripted("- {role: writer, exit: 1}"), check=6)
    agent(config, WORKS)
    kill_engine(other)
    assert changed(since=since) == {thread, other} and changed(until=since) == set()
