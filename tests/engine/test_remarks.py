"""A person says something to a thread that asks nothing: the next prompt has it, and no decision sees it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from cli_samples import ASKS, REJECTS_ONCE, on_terminal, scripted, write
from commands import begin, git, wait_for, wait_until_gone
from conftest import Uwf
from steering_agents import TALKER

# Whether the critic goes next follows from how many steps there are, and from the last one.
COUNTS = """\
version: 1
name: counts
description: A condition over all steps decides.
roles:
  writer: &role
    description: Writes.
    systemPrompt: Write.
    outputSchema: { type: object, properties: { text: { type: string } }, required: [text] }
  critic: *role
conditions:
  second: { description: It was the first step., expression: "$count(steps) = 1 and steps[-1].role = 'writer'" }
graph:
  $START: [{ role: writer }]
  writer: [{ role: critic, condition: second, prompt: "Judge {{ text }}." }, { role: $END }]
  critic: [{ role: writer }]
"""


def prompt(uwf: Uwf, thread: str) -> str:
    return uwf("thread", "prompt", thread, "--format", "text").out


def instruction(text: str) -> str:
    return text.rpartition("# Your instruction now\n\n")[2]


def is_sound(uwf: Uwf) -> None:
    assert uwf("verify", "--all").json["findings"] == []


def test_a_remark_reaches_the_next_prompt_and_changes_no_decision(uwf: Uwf, root: Path) -> None:
    uwf("workflow", "put", write("counts.yaml", COUNTS))
    thread = uwf("thread", "start", "counts", "-p", "Do it").json["thread"]
    agent = "uwf-exec sh -c 'echo --- >&1; echo text: hello; echo ---'"
    uwf("thread", "step", thread, "--agent", agent)
    before = uwf("thread", "show", thread).json
    said = uwf("thread", "say", thread, "-m", "Mind the commas.").json
    assert (said["role"], said["status"], said["done"]) == ("$USER", "idle", False)
    uwf("thread", "say", thread, "-m", "-", input="And the quotes.\n")
    shown = uwf("thread", "show", thread).json
    assert (before["next"], shown["next"]) == ("critic", "critic")
    (listed,) = uwf("thread", "list").json
    assert listed["title"] == "Do it"

    told = prompt(uwf, thread)
    assert "## Step 2: the user remarks\n\nMind the commas." in told
    assert "## Step 3: the user remarks\n\nAnd the quotes." in told
    assert instruction(told).startswith(
        "Judge hello.\n\nThe user remarks:\n\nMind the commas.\n\nAnd the quotes.\n\n"
    )
    uwf("thread", "step", thread, "--agent", agent)
    later = prompt(uwf, thread)
    assert "the user remarks\n\nMind the commas." in later and "remarks" not in instruction(later)
    assert uwf("thread", "prompt", f"{thread}@4", "--format", "text").out.count("Mind the commas.") == 2

    steps = uwf("thread", "steps", thread).json
    assert [each["role"] for each in steps] == ["writer", "$USER", "$USER", "critic"]
    assert steps[1]["output"] == {"remark": "Mind the commas."}
    assert "Mind the commas." in uwf("thread", "read", thread).out
    subjects = git("--git-dir", root / "store.git", "log", "--format=%an: %s", f"refs/uwf/threads/{thread}")
    assert "Ada Example: 0002 $USER: Mind the commas." in subjects.splitlines()
    page = git("--git-dir", root / "store.git", "show", f"refs/uwf/threads/{thread}:README.md")
    assert "2 remark](steps/0002-user/README.md) | Mind the commas. |" in page
    is_sound(uwf)


def test_a_fork_counts_remarks_as_steps(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(REJECTS_ONCE))
    uwf("thread", "say", thread, "-m", "One")
    uwf("thread", "say", thread, "-m", "Two")
    fork = uwf("thread", "fork", thread, "--at", "2").json["thread"]
    told = instruction(prompt(uwf, fork))
    assert "One" in told and "Two" not in told
    uwf("thread", "run", fork, "--agent", scripted(REJECTS_ONCE))
    assert uwf("thread", "show", fork).json["status"] == "completed"
    uwf("thread", "say", thread, "-m", "Three")
    assert uwf("thread", "run", thread, "--agent", scripted(REJECTS_ONCE)).lines[-1]["status"] == "completed"
    is_sound(uwf)


def test_a_thread_can_be_told_something_before_its_first_step(uwf: Uwf, thread: str) -> None:
    uwf("thread", "say", thread, "-m", "In English, please.")
    told = prompt(uwf, thread)
    assert "Inputs: the task, the user's remark (step 1)." in told
    assert instruction(told).startswith(
        "Do your role's part of the task now.\n\nThe user remarks:\n\nIn English, please.\n\n"
    )
    assert uwf("thread", "step", thread).json["role"] == "writer", "uwf-rehearse may still try it"
    is_sound(uwf)


def test_a_remark_to_a_thread_that_can_take_none_is_refused_in_a_line(uwf: Uwf, thread: str) -> None:
    asks = scripted(ASKS, "asks.yaml")
    uwf("thread", "step", thread, "--agent", asks)
    refused = uwf("thread", "say", thread, "-m", "Red", check=5).error
    assert refused["message"] == f"thread {thread} waits for an answer"
    assert refused["hint"] == f"uwf thread answer {thread} -m TEXT"
    uwf("thread", "kill", thread)
    refused = uwf("thread", "say", thread, "-m", "Red", check=1).error
    assert refused["message"] == f"thread {thread} is killed" and "uwf thread fork" in refused["hint"]

    other = uwf("thread", "start", "pair", "-p", "Do it").json["thread"]
    assert uwf("thread", "say", other, "-m", "  ", check=2).error["code"] == "usage"
    limited = uwf("thread", "start", "pair", "-p", "Do it", "--max-steps", "1").json["thread"]
    uwf("thread", "step", limited)
    refused = uwf("thread", "say", limited, "-m", "Red", check=5).error
    assert "uwf thread budget" in refused["hint"]
    is_sound(uwf)


def test_a_thread_that_goes_on_from_its_end_names_the_command_for_that(uwf: Uwf) -> None:
    flow = COUNTS.replace(
        "$START: [{ role: writer }]", "$START: { new: { role: writer }, resume: { role: critic } }"
    )
    uwf("workflow", "put", write("counts.yaml", flow))
    thread = uwf("thread", "start", "counts", "-p", "Do it").json["thread"]
    uwf("thread", "kill", thread)
    refused = uwf("thread", "say", thread, "-m", "More", check=1).error
    assert refused["hint"] == f"go on from it with: uwf thread resume {thread} -m TEXT"


def test_a_step_that_a_pause_has_ended_goes_on_in_its_session_and_is_told_the_remark(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path]
) -> None:
    talker = script(
        "talker",
        TALKER.replace("text: went on in {session}", "text: went on in {session}, {'Mind' in message}"),
    )
    running = begin("thread", "run", thread, "--agent", talker, as_fork=True)
    wait_for(Path("started"))
    uwf("thread", "pause", thread, "--now")
    running.communicate(timeout=60)
    assert uwf("thread", "say", thread, "-m", "Mind the commas.").json["status"] == "paused"
    uwf("thread", "resume", thread)
    uwf("thread", "step", thread, "--agent", talker)
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"text": "went on in s-1, True"}
    is_sound(uwf)


def test_an_answer_that_a_remark_follows_still_goes_to_the_role_that_asked(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS, "asks.yaml"))
    uwf("thread", "answer", thread, "-m", "red")
    uwf("thread", "say", thread, "-m", "A dark one.")
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["next"]) == ("idle", "writer")
    assert instruction(prompt(uwf, thread)).startswith("red\n\nThe user remarks:\n\nA dark one.\n\n")
    is_sound(uwf)


def test_a_remark_to_a_failed_thread_is_told_to_the_next_attempt(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", "false", check=6)
    assert uwf("thread", "say", thread, "-m", "Try it by hand.").json["status"] == "idle"
    assert "Try it by hand." in instruction(prompt(uwf, thread))
    uwf("thread", "step", thread, "--agent", scripted("- { exit: 1, role: writer }\n" + REJECTS_ONCE))
    is_sound(uwf)


def test_pages_and_traces_call_it_a_remark(uwf: Uwf, thread: str) -> None:
    uwf("thread", "say", thread, "-m", "Mind the commas.")
    uwf("thread", "step", thread)
    page = uwf("export", thread, "--html", "-").out
    assert "remark of Ada Example" in page and "answer of Ada" not in page
    assert "uwf.remark" in uwf("trace", "export", thread).out


def test_a_person_who_plays_the_role_reads_the_remark(uwf: Uwf, thread: str) -> None:
    uwf("thread", "say", thread, "-m", "Mind the commas.")
    typed = [("text", "Hello"), ("> ", "."), ("> ", ".")]
    _, shown = on_terminal("thread", "step", thread, "--agent", "uwf-human", typed=typed)
    assert "The user remarks:\nMind the commas." in shown


def test_a_remark_is_asked_for_on_a_terminal(uwf: Uwf, thread: str) -> None:
    status, shown = on_terminal("thread", "say", thread, typed=[("> ", "Mind the commas.")])
    assert status == 0, shown
    assert "1  $USER (human): Mind the commas.  → writer" in re.sub("\x1b\\[[0-9;]*m", "", shown)
    assert [each["output"] for each in uwf("thread", "steps", thread).json] == [
        {"remark": "Mind the commas."}
    ]


def test_what_a_killed_engine_left_is_an_attempt_that_is_carried_on_after_a_remark(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path]
) -> None:
    talker = script("talker", TALKER)
    running = begin("thread", "step", thread, "--agent", talker)
    agent = wait_for(Path("started"))
    running.kill()
    os.kill(int(agent), signal.SIGKILL)
    running.communicate(timeout=60)
    wait_until_gone(agent)
    uwf("thread", "say", thread, "-m", "Mind the commas.")
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == "the step was interrupted"
    uwf("thread", "step", thread, "--agent", talker)
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"text": "went on in s-1"}
    is_sound(uwf)
