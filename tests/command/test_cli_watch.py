"""What `uwf watch` tells of threads that other processes run."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import one_role
import pytest
from cli_samples import ASKS, PAIR, on_terminal, scripted, write
from commands import begin
from conftest import Uwf
from one_role import TALKER

from uwf_git.store.instance import Instance

Watching = Callable[..., "Watcher"]


class Watcher:
    """A process that watches, and is read from line by line."""

    def __init__(self, *arguments: object) -> None:
        self.process = begin("watch", *arguments)

    def until(self, event: str) -> list[dict[str, Any]]:
        """The events up to the next of that name, it included."""
        found: list[dict[str, Any]] = []
        assert self.process.stdout is not None
        while not found or found[-1]["event"] != event:
            line = self.process.stdout.readline()
            assert line, (found, self.process.communicate())
            found.append(json.loads(line))
        return found

    def end(self) -> tuple[int, list[str]]:
        """The exit status, and the names of the events that nobody has read, once it has ended by itself."""
        out, err = self.process.communicate(timeout=60)
        assert "Traceback" not in err
        return self.process.returncode, [json.loads(line)["event"] for line in out.splitlines()]


@pytest.fixture
def watching() -> Iterator[Watching]:
    """Starts watching; returns once that sees what begins."""
    started: list[Watcher] = []

    def start(*arguments: object) -> Watcher:
        started.append(watcher := Watcher(*arguments))
        return watcher

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def seen(uwf: Uwf, watcher: Watcher) -> str:
    """A thread that the watcher has told of, so that it looks by now."""
    while True:
        thread = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
        assert watcher.process.stdout is not None
        if select.select([watcher.process.stdout], [], [], 1)[0]:
            assert watcher.until("started")[-1]["name"] == "pair"
            return str(thread)


def test_every_event_of_a_step_of_another_process_is_told_as_it_happens(
    uwf: Uwf, watching: Watching, script: Callable[[str, str], Path], instance: Instance
) -> None:
    thread = one_role.start(instance, {"type": "object", "properties": {"text": {"type": "string"}}})
    running = begin("thread", "step", thread, "--agent", script("talker", TALKER))
    watcher = watching()
    step, turn = watcher.until("turn")
    assert (step["event"], step["step"], step["role"]) == ("step", 1, "worker")
    assert "talker" in step["agent"]
    assert (turn["step"], turn["by"], turn["role"], turn["text"]) == (1, "worker", "assistant", "I look.")
    assert running.poll() is None, "it was told while the step was made"
    Path("go").touch()
    rest = watcher.until("ended")
    assert [each["event"] for each in rest] == ["tool", "finished", "ended"]
    assert {each["thread"] for each in (step, turn, *rest)} == {thread}
    assert (rest[0]["tool"], rest[0]["arguments"], rest[0]["failed"]) == ("read_file", {"path": "a"}, False)
    assert (rest[1]["step"], rest[1]["next"], rest[1]["hash"]) == (1, "$END", rest[1]["hash"])
    assert (rest[2]["status"], running.wait(30)) == ("completed", 0)


def test_what_happens_to_a_thread_as_a_whole_is_told_once(uwf: Uwf, watching: Watching) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    watcher = watching()
    thread = seen(uwf, watcher)
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    asks = watcher.until("waiting")
    assert [each["event"] for each in asks if each["thread"] == thread and each["event"] != "step"] == [
        "turn",
        "finished",
        "waiting",
    ]
    assert (asks[-1]["role"], asks[-1]["options"]) == ("writer", ["red", "blue"])
    assert asks[-1]["command"] == f"uwf thread answer {thread} -m TEXT"
    uwf("thread", "answer", thread, "-m", "red")
    answered = watcher.until("rests")
    assert [(each["event"], each.get("role")) for each in answered[:-1]] == [("finished", "$USER")]
    assert (answered[-1]["status"], answered[-1]["next"]) == ("idle", "writer")
    uwf("thread", "pause", thread, "-m", "later")
    assert watcher.until("paused")[-1]["reason"] == "later"
    uwf("thread", "resume", thread)
    watcher.until("resumed")
    fork = uwf("thread", "fork", thread, "--at", "1").json["thread"]
    forked = watcher.until("started")[-1]
    assert (forked["thread"], forked["title"]) == (fork, "Do it")
    uwf("thread", "kill", fork, "--reason", "not needed")
    ended = watcher.until("ended")[-1]
    assert (ended["thread"], ended["status"], ended["reason"]) == (fork, "killed", "not needed")
    uwf("thread", "rm", thread, "--yes")
    assert watcher.until("removed")[-1]["thread"] == thread
    watcher.process.send_signal(signal.SIGINT)
    assert watcher.end() == (0, [])


@pytest.mark.parametrize(
    ("agent", "status", "last"),
    [
        (
            "- { role: writer, output: { text: x } }\n- { role: critic, output: { approved: true } }",
            0,
            "ended",
        ),
        (ASKS, 5, "waiting"),
        ("- { role: writer, exit: 3 }", 6, "rests"),
    ],
    ids=["completed", "waits", "failed"],
)
def test_one_thread_is_watched_until_it_rests_and_ends_as_its_run_does(
    uwf: Uwf, thread: str, watching: Watching, agent: str, status: int, last: str
) -> None:
    watcher = watching(thread)
    assert watcher.until("rests")[-1]["next"] == "writer"
    uwf("thread", "start", "pair", "-p", "Another")
    assert uwf("thread", "run", thread, "--agent", scripted(agent), check=None).code == status
    code, events = watcher.end()
    assert (code, events[-1]) == (status, last)
    assert "started" not in events
    again = uwf("watch", thread, check=None, timeout=30) if status != 6 else None
    assert again is None or (again.code, again.lines[-1]["event"]) == (status, last)


def test_a_terminal_gets_a_line_for_each_event_and_nothing_is_drawn_over(thread: str) -> None:
    def work(_child: int, _terminal: int) -> None:
        running.append(begin("thread", "run", thread, "--agent", scripted(ASKS)))

    running: list[subprocess.Popen[str]] = []
    status, shown = on_terminal("watch", thread, typed=[("next writer", work)], columns=60)
    assert status == 5
    assert "\x1b" not in re.sub("\x1b\\[[0-9;]*m", "", shown) and "\r" not in shown
    lines = shown.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d  |          |uwf: ", line) for line in lines), shown
    told = " ".join(lines)
    assert "waiting: writer asks: Which \\x1b[31mcolour\\u202e?" in told
    assert "1  red" in told and f"uwf thread answer {thread} -m TEXT" in told
    assert running[0].wait(30) == 5


def test_a_terminal_cuts_long_lines_and_breaks_no_word_of_a_question(thread: str) -> None:
    question = "Which colour is it to be, of all those that the customer has sent us last week?"
    asks = f"""\
- {{ role: writer, output: {{ text: "{"word " * 60}" }} }}
- {{ role: critic, output: {{ status: needs_input, question: "{question}" }} }}
"""

    def work(_child: int, _terminal: int) -> None:
        running.append(begin("thread", "run", thread, "--agent", scripted(asks)))

    running: list[subprocess.Popen[str]] = []
    env = {"NO_COLOR": "1"}
    status, shown = on_terminal("watch", thread, typed=[("next writer", work)], env=env, columns=60)
    assert status == 5 and running[0].wait(30) == 5
    lines = [line for line in shown.splitlines() if f"uwf thread answer {thread}" not in line]
    told = [line for line in lines if not line.startswith("uwf: ")]
    assert max(map(len, told)) <= 60 and any(line.endswith("…") for line in told)
    assert set(question.split()) <= {word for line in told for word in line.split()}
