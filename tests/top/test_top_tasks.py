"""`uwf top` on a terminal, with real keys: what one opens it for takes as many keys as promised."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from cli_samples import ONE, WRITES, scripted, write
from commands import git, wait_until
from conftest import Uwf
from full_screen import full_screen
from landing_shop import Shop

from uwf_git.base.extras import install_hint

pytest.importorskip("textual", reason="pip install '.[top]'")

SIZES = pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50)])

RELAY = """\
name: relay
description: Two in turn.
roles:
  first: &role
    description: Writes.
    systemPrompt: Write.
    outputSchema: { type: object, properties: { note: { type: string } }, required: [note] }
  second: *role
conditions: { enough: { description: Five steps., expression: $count(steps) >= 5 } }
graph:
  $START: [{ role: first }]
  first: [{ role: $END, condition: enough }, { role: second }]
  second: [{ role: first }]
"""
WRITER = """\
from pathlib import Path
from uwf_git.kit import Reply, create_agent

def run(ctx):
    number = len(list(Path().glob("*.txt")))
    Path(f"{number}.txt").write_text(f"text {number}\\n")
    return Reply(f"---\\nnote: wrote {number}\\n---\\n", session="none", cost=(number + 1) / 4)

create_agent("writer", run, lambda ctx, session, message: run(ctx)).main()
"""


def statuses(uwf: Uwf) -> list[str]:
    return [item["status"] for item in uwf("thread", "list", "--all").json]


@SIZES
def test_three_threads_that_failed_last_night_are_retried_by_three_keys(
    uwf: Uwf, config: Callable[[str], Path], columns: int, rows: int, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    program = f"""test -e {mended} && echo '{{"n": 1}}'"""
    config(
        f"agents: {{ r: {{ command: uwf-exec, args: [sh, -c, {json.dumps(program)}] }} }}\ndefaultAgent: r\n"
    )
    uwf("workflow", "put", write("one.yaml", ONE))
    for number in range(4):
        thread = uwf("thread", "start", "one", "-p", f"Task {number}").json["thread"]
        if number:
            uwf("thread", "run", thread, check=6)
    mended.touch()
    with full_screen("top", columns=columns, rows=rows) as screen:
        screen.wait(lambda text: "3 failed" in text and "1 idle" in text)
        screen.press("n")
        screen.wait(lambda text: "Task 0" not in text and "Task 3" in text)
        screen.press("*")
        screen.wait(lambda text: text.count("*!") == 3)
        screen.press("r")
        wait_until(lambda: statuses(uwf).count("completed") == 3, "the three have run to their ends")
        screen.wait("no such threads")
        screen.press("q")
        assert screen.end() == 0
    assert statuses(uwf).count("idle") == 1


def test_marked_threads_that_were_retried_already_are_not_run_again(uwf: Uwf, gated: str) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    other = uwf("thread", "start", "gated", "-p", "Another").json["thread"]
    uwf("thread", "step", other, "--agent", scripted(WRITES))
    uwf("thread", "answer", other, "-f", "decision=drop", check=10)
    with full_screen("top", columns=160, rows=50) as screen:
        screen.press("n")
        screen.wait("2 failed")
        uwf("thread", "retry", gated, check=5)
        screen.wait(lambda text: "1 failed" in text and "Announce it" not in text)
        screen.press("/")
        screen.wait("filter")
        for key in "--status failed":
            screen.press(key)
        screen.press("\r")
        screen.wait("2 failed")
        screen.press("*")
        screen.wait(lambda text: text.count("*!") == 2)
        screen.press("r")
        wait_until(lambda: statuses(uwf).count("waiting") == 2, "the fork of the other waits")
        screen.press("q")
        assert screen.end() == 0
    assert statuses(uwf).count("failed") == 2 and len(statuses(uwf)) == 4


def test_three_gates_are_answered_by_three_keys(uwf: Uwf, shop: Shop) -> None:
    for line in ("two", "three", "four"):
        shop.adds(line)
        shop.at_gate(f"Add {line}")
    with full_screen("top", columns=160, rows=50) as screen:
        for line in ("two", "three", "four"):
            screen.wait(lambda text, line=line: "gate asks you" in text and f"+{line}" in text)
            assert "1  merge" in screen.text
            screen.press("1")
        wait_until(lambda: statuses(uwf) == ["completed"] * 3, "all are answered")
        screen.press("q")
        assert screen.end() == 0


def test_on_a_small_terminal_a_gate_shows_what_it_gates_before_a_key_answers(uwf: Uwf, shop: Shop) -> None:
    thread = shop.at_gate("Add *two*")
    with full_screen("top", columns=80, rows=24) as screen:
        screen.wait("1 ask you")
        assert "gate asks you" not in screen.text
        screen.press("1")
        screen.wait(lambda text: "gate asks you" in text and "+two" in text)
        assert uwf("thread", "show", thread).json["status"] == "waiting"
        screen.press("2")
        wait_until(lambda: statuses(uwf) == ["failed"], "it is dropped")


@SIZES
def test_in_an_opened_thread_that_asks_a_digit_shows_a_step_and_answers_nothing(
    uwf: Uwf, shop: Shop, columns: int, rows: int
) -> None:
    thread = shop.at_gate()
    with full_screen("top", columns=columns, rows=rows) as screen:
        screen.wait("1 ask you")
        screen.press("\r", "1")
        screen.wait("diff 1")
        screen.press("\t", "\t")
        screen.wait("gate asks you")
        screen.press("1")
        screen.wait(lambda text: "step 1 ·" in text)
        assert uwf("thread", "show", thread).json["status"] == "waiting"
        screen.press("q")
        assert screen.end() == 0
    assert uwf("thread", "show", thread).json["status"] == "waiting"


def test_digits_that_come_before_their_question_is_shown_are_told_and_answer_nothing(
    uwf: Uwf, shop: Shop
) -> None:
    for line in ("two", "three", "four"):
        shop.adds(line)
        shop.at_gate(f"Add {line}")
    with full_screen("top", columns=160, rows=50) as screen:
        screen.wait(lambda text: "gate asks you" in text and "+two" in text)
        screen.press("111")
        screen.wait("answered: Add two — ignored: ")
        screen.wait(lambda text: "2 ask you" in text and "+three" in text)
        for line in ("three", "four"):
            screen.wait(lambda text, line=line: "gate asks you" in text and f"+{line}" in text)
            screen.press("1")
        wait_until(lambda: statuses(uwf) == ["completed"] * 3, "all are answered")
        screen.press("q")
        assert screen.end() == 0


@SIZES
def test_what_step_4_changed_and_cost_is_one_key_from_the_opened_thread(
    uwf: Uwf, script: Callable[[str, str], Path], tmp_path: Path, columns: int, rows: int
) -> None:
    project = tmp_path / "project"
    git("init", "-q", "-b", "main", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "first")
    uwf("workflow", "put", write("relay.yaml", RELAY))
    place = ("--workspace", f"worktree:{project}")
    thread = uwf("thread", "start", "relay", "-p", "Write five", *place, cwd=project).json["thread"]
    uwf("thread", "run", thread, "--agent", script("writer", WRITER), cwd=project)
    with full_screen("top", "--all", "--all-projects", columns=columns, rows=rows) as screen:
        screen.wait("1 ready to land")
        screen.press("\r")
        screen.wait("live  steps  diff  prompt")
        screen.press("4")
        screen.wait(lambda text: "+text 3" in text and "1 file changed, +1 -0" in text)
        assert "$1.00" in screen.line_with("step 4")


def test_the_worktree_of_a_thread_is_a_key_away_and_so_is_any_command(uwf: Uwf, shop: Shop) -> None:
    shop.at_gate()
    shell = shop.folder / "shell"
    shell.write_text("#!/bin/sh\nprintf '\\033[2J\\033[H'\ncat sum.txt\nread line\n")
    shell.chmod(0o755)
    with full_screen("top", columns=160, rows=50, env={"SHELL": str(shell)}) as screen:
        screen.wait("gate asks you")
        screen.press("w")
        screen.wait(lambda text: "two" in text.splitlines())
        screen.press("\r")
        screen.wait("gate asks you")
        screen.press(":")
        screen.wait("% is the thread")
        screen.press("thread pause % -m 'not today'\r")
        screen.wait("[Enter]")
        assert "paused" in screen.text
        screen.press("\r")
        screen.wait("1 paused")


def test_a_line_is_typed_in_sight_from_its_first_key_on(uwf: Uwf, gated: str) -> None:
    with full_screen("top", columns=80, rows=24) as screen:
        screen.wait("1 ask you")
        screen.press("/--workflow gated no such text")
        screen.wait("--workflow gated no such text")
        assert screen.lines[-1].strip() == "--workflow gated no such text"
        screen.press("\r")
        screen.wait("no such threads")
        screen.press("\x1b")
        screen.wait("1 ask you")
        screen.press("a")
        screen.wait("decision: 1 send 2 change 3 drop")
        screen.press("9\r")
        screen.wait("decision is one of send, change, drop — decision: 1 send")
        screen.press("\x1b")
    assert uwf("thread", "show", gated).json["status"] == "waiting"


def test_a_terminal_that_gets_smaller_and_wider_is_laid_out_again(uwf: Uwf, gated: str) -> None:
    with full_screen("top", columns=160, rows=50) as screen:
        screen.wait("gate asks you")
        screen.resize(80, 24)
        screen.wait(lambda text: "gate asks you" not in text and "1 ask you" in text)
        screen.resize(120, 30)
        screen.wait("gate asks you")


def test_an_interrupt_ends_the_command_and_not_the_screen(uwf: Uwf, thread: str) -> None:
    with full_screen("top", columns=80, rows=24) as screen:
        screen.wait("1 idle")
        screen.press(":")
        screen.wait("% is the thread")
        screen.press("watch\r")
        titles = (f"Task {number}" for number in count())
        while "started: pair, Task" not in screen.text:  # once it watches
            uwf("thread", "start", "pair", "-p", next(titles))
            screen.wait(lambda text: True)
        screen.press("\x03")
        screen.wait("[Enter]")
        screen.press("\r")
        screen.wait(lambda text: "Task 0" in text and "idle  agents" in text.splitlines()[0])
        screen.press("\x03")
        assert screen.end() == 0


def test_accepted_work_is_landed_by_a_key(uwf: Uwf, shop: Shop) -> None:
    shop.accepted()
    with full_screen("top", columns=160, rows=50) as screen:
        screen.wait(lambda text: "+ 1 ready to land" in text and "Add *two*" in text)
        screen.press("l")
        wait_until(
            lambda: "two" in git("-C", shop.project, "show", "main:sum.txt"), "its line is on the branch"
        )
        screen.wait("no such threads")


def test_without_a_terminal_it_says_so(uwf: Uwf, thread: str) -> None:
    assert uwf("top", check=2).error["message"] == "uwf top needs a terminal"


def test_a_terminal_that_hangs_up_and_a_kill_end_it(uwf: Uwf, thread: str) -> None:
    for number in (signal.SIGHUP, signal.SIGTERM):
        with full_screen("top", columns=80, rows=24) as screen:
            screen.wait("1 idle")
            os.kill(screen.pid, number)
            screen.end()
            assert screen.written.rstrip().endswith(b"\x1b[?1049l") or b"\x1b[?1049l" in screen.written


def test_keys_work_with_the_terminals_own_colours_and_with_none(uwf: Uwf, gated: str) -> None:
    with full_screen("top", columns=160, rows=50) as screen:
        screen.wait("gate asks you")
        assert screen.colours == {"default", "brown"}  # as the third of the 16 is called there
    with full_screen("top", columns=160, rows=50, env={"NO_COLOR": "1"}) as screen:
        screen.wait("gate asks you")
        assert screen.colours == {"default"}
        screen.press("1")
        wait_until(lambda: statuses(uwf) == ["completed"], "the first option was chosen")


def test_without_the_package_one_line_says_what_to_install(uwf: Uwf, monkeypatch: pytest.MonkeyPatch) -> None:
    write("hidden/sitecustomize.py", "import sys\nsys.modules['textual'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(Path("hidden").absolute()))
    result = uwf("top", check=1, env={"UWF_FORMAT": "text"})
    assert result.err == f"uwf: uwf top needs the package textual — {install_hint('top')}\n"
