"""A paused thread is not stepped until it is resumed. A step in progress ends by itself, or is ended and kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ASKS, write
from commands import alive, begin, git, wait_for, wait_until
from conftest import Uwf
from steering_agents import TALKER

from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance
from uwf_git.store.layout import PAUSED


@pytest.fixture
def talker(script: Callable[[str, str], Path]) -> Path:
    return script("talker", TALKER)


def finish(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]], dict[str, str]]:
    """The exit status of a command, the lines it printed, and the error it ended with."""
    out, err = process.communicate(timeout=60)
    error = json.loads(err.splitlines()[-1])["error"] if err else {}
    return process.returncode, [json.loads(line) for line in out.splitlines()], error


def is_shown(thread: str, line: bytes) -> bool:
    return line in Instance.open().runs.printed(ThreadId(thread))[1]


def pauses(root: Path) -> str:
    return git("--git-dir", root / "store.git", "for-each-ref", "--format=%(refname)", PAUSED)


def test_a_paused_thread_is_not_stepped_until_it_is_resumed(uwf: Uwf, thread: str) -> None:
    paused = uwf("thread", "pause", thread, "-m", "mend the tests first").json
    assert (paused["thread"], paused["status"]) == (thread, "paused")
    assert paused["paused"]["by"] == "Ada Example <ada@example.invalid>"
    assert paused["paused"]["reason"] == "mend the tests first"
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["paused"], shown["next"]) == ("paused", paused["paused"], "writer")
    assert [each["status"] for each in uwf("thread", "list", "--status", "paused").json] == ["paused"]
    for command in ("step", "run"):
        refused = uwf("thread", command, thread, check=5).error
        assert refused["code"] == "paused" and refused["hint"] == f"uwf thread resume {thread}"
        assert "by Ada Example: mend the tests first" in refused["message"]
    again = uwf("thread", "pause", thread, "-m", "another reason").json
    assert again == paused
    assert uwf("thread", "resume", thread).json == {"thread": thread, "status": "idle", "resumed": True}
    assert uwf("thread", "resume", thread).json["resumed"] is False
    assert "paused" not in uwf("thread", "show", thread).json
    assert uwf("thread", "step", thread).json["role"] == "writer"
    assert uwf("verify").json["findings"] == []


def test_a_run_in_progress_ends_its_step_and_stops_there(uwf: Uwf, thread: str, talker: Path) -> None:
    running = begin("thread", "run", thread, "--agent", talker, as_fork=True)
    wait_for(Path("started"))
    assert uwf("thread", "pause", thread).json["status"] == "running"
    shown = uwf("thread", "show", thread).json
    assert shown["status"] == "running" and shown["paused"]["reason"] == ""
    Path("go").touch()
    code, lines, error = finish(running)
    assert (code, error["code"]) == (5, "paused")
    assert [(line["role"], line["status"]) for line in lines] == [("writer", "paused")]
    assert [step["output"] for step in uwf("thread", "steps", thread).json] == [{"text": "done"}]
    assert uwf("thread", "show", thread).json["status"] == "paused"
    assert uwf("thread", "attempts", thread).json == []


def test_a_step_that_is_ended_by_a_pause_goes_on_in_its_session(uwf: Uwf, thread: str, talker: Path) -> None:
    running = begin("thread", "run", thread, "--agent", talker, as_fork=True)
    agent = wait_for(Path("started"))
    assert uwf("thread", "pause", thread, "--now").json["status"] == "paused"
    assert not alive(agent)
    code, lines, error = finish(running)
    assert (code, lines, error["code"]) == (5, [], "paused") and "is kept" in error["message"]
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == "broken off by a pause"
    assert uwf("thread", "show", thread).json["status"] == "paused"
    assert [turn["text"] for turn in uwf("thread", "turns", thread).json] == ["I look."]
    assert uwf("thread", "resume", thread).json["status"] == "idle"
    uwf("thread", "run", "--all", "--max-steps", "1", "--agent", talker, check=11)
    (step,) = uwf("thread", "steps", thread).json
    assert step["output"] == {"text": "went on in s-1"}


def test_a_step_of_an_agent_within_the_engine_is_ended_and_kept_too(uwf: Uwf, thread: str) -> None:
    running = begin(
        "thread", "step", thread, "--agent", "uwf-exec -- sh -c 'echo half; echo $$ > started; sleep 600'"
    )
    command = wait_for(Path("started"))
    uwf("thread", "pause", thread, "--now")
    code, _, error = finish(running)
    assert (code, error["code"]) == (5, "paused")
    assert not alive(command)
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == "broken off by a pause"


@pytest.mark.parametrize("way", ["pause --now", "stop", "kill", "ctrl-c"])
def test_what_a_command_had_printed_is_kept_if_it_is_interrupted(
    uwf: Uwf, thread: str, way: str, config: Callable[[str], Path]
) -> None:
    loop = "i=0; while :; do i=$((i+1)); echo tick $i; echo warned $i >&2; sleep 0.05; done"
    config(f"agents: {{ t: {{ command: uwf-exec, args: [sh, -c, {json.dumps(loop)}] }} }}\ndefaultAgent: t\n")
    running = begin("thread", "run", thread, as_fork=True)
    wait_until(lambda: is_shown(thread, b"warned"), "those who watch have the lines")
    if way == "ctrl-c":
        running.send_signal(signal.SIGINT)
    else:
        command, *options = way.split()
        uwf("thread", command, thread, *options)
    running.communicate(timeout=60)
    (attempt,) = uwf("thread", "attempts", thread).json
    printed = attempt["answer"] + attempt["stdout"]
    assert "tick 1\n" in printed and "warned 1\n" in printed
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("command", ["attempts", "step"])
def test_what_a_command_had_printed_is_kept_if_its_engine_is_killed(
    uwf: Uwf, thread: str, command: str, config: Callable[[str], Path]
) -> None:
    loop = "echo tick; echo warned >&2; while :; do echo tock; sleep 0.05; done"
    config(f"agents: {{ t: {{ command: uwf-exec, args: [sh, -c, {json.dumps(loop)}] }} }}\ndefaultAgent: t\n")
    running = begin("thread", "step", thread)
    wait_until(lambda: is_shown(thread, b"warned"), "those who watch have the lines")
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: not Instance.open().locks.is_held(ThreadId(thread)), "the command is gone")
    if command == "step":
        config("agents: { t: { command: uwf-exec, args: [sh, -c, exit 3] } }\ndefaultAgent: t\n")
        uwf("thread", "step", thread)
    attempts = uwf("thread", "attempts", thread).json
    assert attempts == uwf("thread", "attempts", thread).json, "it is recorded once"
    assert [item["error"] for item in attempts] == ["the step was interrupted"]
    assert "tick\n" in attempts[0]["stdout"] and "warned\n" in attempts[0]["stdout"]
    assert len(attempts) == 1
    assert uwf("verify").json["findings"] == []


@pytest.mark.parametrize("within", [False, True])
def test_a_run_whose_thread_is_killed_meanwhile_says_so_and_not_that_it_goes_on(
    uwf: Uwf, root: Path, thread: str, talker: Path, within: bool
) -> None:
    command = "uwf-exec -- sh -c 'echo half; echo $$ > started; sleep 600'"
    running = begin("thread", "run", thread, "--agent", command if within else talker, as_fork=True)
    agent = wait_for(Path("started"))
    uwf("thread", "kill", thread, "--reason", "enough")
    code, lines, error = finish(running)
    assert (code, lines, error["code"]) == (1, [], "invalid")
    assert error["message"] == f"thread {thread} was killed; what its agent did so far is kept"
    assert error["hint"] == f"go on from it with: uwf thread fork {thread}"
    assert not alive(agent)
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == "broken off, the thread was killed"
    assert not list((root / "store.git/uwf/runs").glob("*.off"))


def test_ctrl_c_is_no_pause_though_the_thread_is_paused(uwf: Uwf, thread: str, talker: Path) -> None:
    running = begin("thread", "run", thread, "--agent", talker)
    wait_for(Path("started"))
    uwf("thread", "pause", thread)
    running.send_signal(signal.SIGINT)
    code, _, error = finish(running)
    assert (code, error["code"]) == (130, "interrupted")
    assert uwf("thread", "attempts", thread).json[0]["error"] == "interrupted"


def test_a_paused_thread_can_be_answered_and_stays_paused(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", f"uwf-rehearse --script {write('asks.yaml', ASKS)}")
    uwf("thread", "pause", thread)
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["asks"], shown["options"]) == ("paused", "writer", ["red", "blue"])
    assert uwf("thread", "answer", thread, "-m", "red").json["status"] == "paused"
    uwf("thread", "step", thread, check=5)
    uwf("thread", "resume", thread)
    assert uwf("thread", "step", thread, "--agent", "uwf-rehearse").json["role"] == "writer"


def test_a_fork_is_not_paused_and_what_ends_a_thread_ends_its_pause(
    uwf: Uwf, thread: str, root: Path
) -> None:
    uwf("thread", "pause", thread)
    fork = uwf("thread", "fork", thread).json["thread"]
    uwf("thread", "run", fork)
    assert pauses(root) == PAUSED + thread
    uwf("thread", "kill", thread)
    assert pauses(root) == ""
    assert uwf("thread", "show", thread).json["status"] == "killed"
    for command, status in (("pause", 1), ("resume", 2)):
        assert "killed" in uwf("thread", command, thread, check=status).error["message"]
    other = uwf("thread", "fork", thread).json["thread"]
    uwf("thread", "pause", other)
    uwf("thread", "rm", other, "--yes")
    assert pauses(root) == ""


def test_the_last_step_of_a_thread_ends_its_pause(uwf: Uwf, thread: str, talker: Path, root: Path) -> None:
    uwf("thread", "step", thread)
    wait = "echo $$ > started; while ! test -e go; do sleep 0.01; done"
    critic = f'uwf-exec -- sh -c \'{wait}; echo "{{\\"approved\\": true}}"\''
    running = begin("thread", "run", thread, "--agent", critic, as_fork=True)
    wait_for(Path("started"))
    uwf("thread", "pause", thread)
    Path("go").touch()
    code, lines, _ = finish(running)
    assert code == 0 and lines[0]["status"] == "completed"
    assert uwf("thread", "show", thread).json["status"] == "completed"
    assert pauses(root) == ""


def test_several_threads_are_paused_and_resumed_by_filters(uwf: Uwf, thread: str) -> None:
    other = uwf("thread", "fork", thread).json["thread"]
    ended = uwf("thread", "fork", thread).json["thread"]
    uwf("thread", "kill", ended)
    paused = uwf("thread", "pause", "--workflow", "pair", "-m", "all of them").json
    assert {each["thread"] for each in paused} == {thread, other}
    uwf("thread", "resume", other)
    assert [each["thread"] for each in uwf("thread", "list", "--status", "paused").json] == [thread]
    (resumed,) = uwf("thread", "resume", "--all").json
    assert resumed == {"thread": thread, "status": "idle", "resumed": True}


def test_what_is_left_of_a_pause_is_found_and_removed(uwf: Uwf, thread: str, root: Path) -> None:
    uwf("thread", "pause", thread)
    store = root / "store.git"
    tag = git("--git-dir", store, "rev-parse", PAUSED + thread)
    uwf("gc")
    assert uwf("thread", "show", thread).json["status"] == "paused"
    uwf("thread", "kill", thread)
    git("--git-dir", store, "update-ref", PAUSED + thread, tag)
    assert uwf("thread", "show", thread).json["status"] == "killed"
    found = [each for each in uwf("doctor", "--quick").json if PAUSED in each["message"]]
    assert [(each["status"], each["hint"]) for each in found] == [("warning", "uwf doctor --fix")]
    uwf("doctor", "--quick", "--fix")
    assert pauses(root) == ""


def test_a_sub_workflow_whose_child_is_paused_fails_and_goes_on_with_it_afterwards(
    uwf: Uwf, thread: str, talker: Path, config: Callable[[str], Path]
) -> None:
    inner = write(
        "inner.yaml",
        "name: inner\ndescription: Inside.\nroles:\n  w: {description: W, systemPrompt: W, outputSchema: {type: object,"
        " properties: {text: {type: string}}, required: [text]}}\ngraph: {$START: [{role: w}], w: [{role: $END}]}\n",
    )
    uwf("workflow", "put", inner)
    config(f"agentOverrides: {{inner: {{w: talker}}}}\nagents: {{talker: {{command: {talker}}}}}\n")
    running = begin("thread", "step", thread, "--agent", "uwf-workflow inner", as_fork=True)
    wait_for(Path("started"))
    (child,) = [each["thread"] for each in uwf("thread", "list").json if each["name"] == "inner"]
    uwf("thread", "pause", child, "--now")
    code, _, error = finish(running)
    assert code == 6 and f"thread {child} was paused by Ada Example" in error["message"]
    uwf("thread", "resume", child)
    assert uwf("thread", "step", thread, "--agent", "uwf-workflow inner").json["role"] == "writer"
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "went on in s-1"}


@pytest.mark.parametrize("call", [("kill",), ("pause", "--now")], ids=["kill", "pause now"])
def test_who_holds_a_thread_for_anything_but_a_step_is_let_come_to_its_end(
    uwf: Uwf, thread: str, root: Path, tmp_path: Path, call: tuple[str, ...]
) -> None:
    holds = (
        "import sys, time\nfrom pathlib import Path\nfrom uwf_git.store.instance import Instance\n"
        "with Instance.open(sys.argv[1]).locks.hold(sys.argv[2]):\n"
        "    Path(sys.argv[3]).write_text('held')\n    time.sleep(1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", holds, root, thread, tmp_path / "held"]) as holder:
        wait_for(tmp_path / "held")
        uwf("thread", call[0], thread, *call[1:])
    assert holder.returncode == 0
