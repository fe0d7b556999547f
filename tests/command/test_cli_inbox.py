"""What waits for a person stands in the inbox, with the command that ends the waiting."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from cli_samples import WRITES, on_terminal, scripted
from conftest import Uwf

QUESTION = (
    "Which colour is it to be, of all those that are on the list which the customer has sent us last week?"
)
ASKS = f"""\
- {{ role: writer, output: {{ status: needs_input, question: "{QUESTION}", options: [red, "2", blue] }} }}
"""

Config = Callable[[str], Path]


def test_an_inbox_has_questions_budgets_and_roles_of_humans_and_the_command_for_each(
    uwf: Uwf, thread: str, config: Config
) -> None:
    assert uwf("inbox").json == []
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    spent = uwf("thread", "start", "pair", "-p", "Cheap", "--max-steps", "1").json["thread"]
    uwf("thread", "step", spent)
    mine = uwf("thread", "start", "pair", "-p", "Mine").json["thread"]
    uwf("thread", "step", mine)
    for done_with in ("kill", "pause"):
        other = uwf("thread", "start", "pair", "-p", "No more").json["thread"]
        uwf("thread", "step", other, "--agent", scripted(ASKS))
        uwf("thread", done_with, other)
    config("agentOverrides: {pair: {critic: human}}")

    found = {each["thread"]: each for each in uwf("inbox").json}
    assert {each: (value["kind"], value["role"]) for each, value in found.items()} == {
        thread: ("question", "writer"),
        spent: ("budget", "critic"),
        mine: ("role", "critic"),
    }
    asked = found[thread]
    assert (asked["question"], asked["options"]) == (QUESTION, ["red", "2", "blue"])
    assert (asked["name"], asked["title"]) == ("pair", "Do it")
    assert asked["command"] == f"uwf thread answer {thread} -m TEXT"
    assert "1 of 1 step" in found[spent]["reason"]
    assert found[mine]["command"] == f"uwf thread answer {mine} -m CHOICE"
    assert found[mine]["question"] == "Says whether the text will do."
    refused = uwf("thread", "answer", mine, "-m", "go", check=2).error
    assert refused["message"].endswith("approved: 'go' is none of yes, no")
    refused = uwf("thread", "answer", spent, "-m", "go", check=1).error
    assert refused["message"] == f"thread {spent} is not waiting for an answer"
    assert refused["hint"].endswith(found[spent]["command"])

    uwf(*shlex.split(asked["command"].replace("TEXT", "red"))[1:])
    uwf(*shlex.split(found[spent]["command"])[1:])
    assert {each["thread"]: each["kind"] for each in uwf("inbox").json} == {spent: "role", mine: "role"}


def test_an_inbox_fits_a_terminal_and_cuts_nothing(uwf: Uwf, thread: str) -> None:
    uwf("thread", "step", thread, "--agent", scripted(ASKS))
    status, shown = on_terminal("inbox", env={"NO_COLOR": "1"}, columns=80)
    assert status == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.startswith(f"{thread}  ")
    assert QUESTION in " ".join(shown.split())
    assert "\n    1  red\n    2  2\n    3  blue\n" in shown
    assert shown.endswith(f"  uwf thread answer {thread} -m TEXT\n")
    uwf("thread", "kill", thread)
    assert on_terminal("inbox")[1] == "nothing waits for a person here\n"


def test_an_inbox_that_is_too_long_for_a_terminal_keeps_its_head_and_some_of_each_group(
    uwf: Uwf, thread: str
) -> None:
    asks = scripted(ASKS)
    fails = scripted("- {role: writer, exit: 1}\n", "fails.yaml")
    uwf("thread", "step", thread, "--agent", asks)
    failed = [uwf("thread", "start", "pair", "-p", f"Task {number}").json["thread"] for number in range(26)]
    uwf("thread", "run", *failed, "-j", "4", "--agent", fails, check=6)
    size = {"columns": 80, "lines": 24}
    shown = on_terminal("inbox", env={"NO_COLOR": "1"}, **size)[1].splitlines()
    assert shown[0] == "asks you (1) · failed (26)"
    assert len(shown) < 24 and max(map(len, shown)) <= 80
    assert [line.split()[1] for line in shown[2:4]] == ["asks", "failed"]
    assert shown[3].split()[0] == failed[-1][-6:], "the newest failure is first"
    assert shown[-1] == "7 more: uwf inbox --group failed has all of its group"
    every = on_terminal("inbox", "--group", "failed", env={"NO_COLOR": "1"}, **size)[1].splitlines()
    assert sum("failed" in line for line in every[1:]) == 26
    assert len({item["thread"] for item in uwf("inbox", "--group", "failed").json}) == 26
    assert "known: asks, budget, failed, land" in uwf("inbox", "--group", "odd", check=2).error["hint"]


def test_a_failed_end_leaves_the_inbox_once_it_was_forked_or_after_a_week(
    uwf: Uwf, gated: str, tmp_path: Path
) -> None:
    uwf("thread", "answer", gated, "-f", "decision=drop", check=10)
    (failed,) = uwf("inbox").json
    assert (failed["group"], failed["kind"], failed["thread"]) == ("failed", "failed", gated)
    assert failed["line"] == failed["question"] == "It was dropped."
    shown = uwf("inbox", "--format", "text").out
    assert "gate failed: It was dropped." in shown and f"uwf thread retry {gated}" in shown
    uwf("thread", "fork", gated, "--at", "1")
    assert [item["group"] for item in uwf("inbox").json] == ["asks"]


def test_an_answer_is_one_of_the_options_unless_other_is_said(uwf: Uwf, thread: str) -> None:
    def answered(*more: str) -> str:
        fork = uwf("thread", "fork", thread).json["thread"]
        uwf("thread", "answer", fork, *more)
        return str(uwf("thread", "steps", fork).json[-1]["output"]["answer"])

    head = uwf("thread", "step", thread, "--agent", scripted(ASKS)).json["head"]
    refused = uwf("thread", "answer", thread, "-m", "green", check=2).error
    assert refused["message"].endswith(f"none of the options of thread {thread}: red, 2, blue")
    assert "--other" in refused["hint"]
    assert uwf("thread", "show", thread).json["head"] == head

    assert answered("-m", "2") == "2"
    assert answered("-m", " Blue\n") == "blue"
    assert answered("-m", "3") == "blue"
    assert answered("--other", "-m", "green") == "green"
    typed = [("> ", "4"), ("choose one of these", "3")]
    assert on_terminal("thread", "answer", thread, typed=typed)[0] == 0
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"answer": "blue"}


def test_options_are_one_line_each_and_none_passes_for_another(uwf: Uwf, thread: str) -> None:
    spoof = r"keep\n  2  delete"
    asks = """\
- role: writer
  output: {status: needs_input, question: "Which?\\n  2  no", options: ["SPOOF", " yes ", "4", "LONG", e, f, g]}
"""
    script = scripted(asks.replace("SPOOF", spoof).replace("LONG", "long " * 60))
    stepped = uwf("thread", "step", thread, "--agent", script, "--format", "text").out
    menu = ["1  keep 2 delete", "2  yes", "3  4"]
    asked = on_terminal("thread", "answer", thread, typed=[("> ", "")])[1]
    for shown in (stepped, asked, uwf("inbox", "--format", "text").out):
        lines = shown.splitlines()
        first = next(number for number, line in enumerate(lines) if line.strip().startswith("1  keep"))
        indent = lines[first][: lines[first].index("1")]
        assert lines[first : first + 3] == [indent + each for each in menu]
        assert sum(line.startswith(f"{indent}2  ") for line in lines) == 1
        assert lines[first + 3].endswith("long…") and len(lines[first + 3]) < 120
    shown = uwf("thread", "show", thread, "--format", "text").out
    assert [line.split()[-4:] for line in shown.splitlines() if "keep" in line] == [
        ["-", "keep", "2", "delete"]
    ]

    for number in ("00000000199", "9" * 30, "0", "-1"):
        refused = uwf("thread", "answer", thread, "-m", number, check=2).error["message"]
        assert "is none of the options" in refused and "keep 2 delete, yes, 4, long long" in refused
        assert len(refused) < 300
    refused = uwf("thread", "answer", thread, "-m", "4", check=2).error
    assert (
        "'4' is an option of thread" in refused["message"]
        and "number of another, 'long" in refused["message"]
    )
    assert "--other" in refused["hint"]
    uwf("thread", "answer", thread, "-m", "yes")
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"answer": " yes "}


def test_the_question_of_a_sub_workflow_stands_once_and_its_answer_may_be_any(
    uwf: Uwf, thread: str, config: Config
) -> None:
    from cli_samples import PAIR, write

    outer = PAIR.replace("name: pair", "name: outer")
    uwf("workflow", "put", write("outer.yaml", outer))
    asks = scripted(
        ASKS + "- {role: writer, output: {text: done}}\n- {role: critic, output: {approved: true}}\n"
    )
    words = shlex.split(asks)
    config(
        "agents:\n"
        '  sub: {command: uwf-workflow, args: [--output, \'{"text": "x"}\', pair]}\n'
        f"  inside: {{command: {words[0]}, args: {words[1:]}}}\n"
        "defaultAgent: inside\nagentOverrides: {outer: {writer: sub}}\n"
    )
    parent = uwf("thread", "start", "outer", "-p", "All of it").json["thread"]
    uwf("thread", "step", parent)
    assert [each["thread"] for each in uwf("inbox").json] == [parent]
    uwf("thread", "answer", parent, "--other", "-m", "green")
    assert uwf("thread", "step", parent).json["status"] == "idle"


def test_three_questions_are_answered_by_one_command_and_three_lines(uwf: Uwf, thread: str) -> None:
    others = [uwf("thread", "start", "pair", "-p", f"Task {number}").json["thread"] for number in range(2)]
    for asking in (thread, *others):
        uwf("thread", "step", asking, "--agent", scripted(ASKS))
    typed = [("> ", "1"), ("> ", ""), ("> ", "blue")]
    status, shown = on_terminal("thread", "answer", typed=typed, env={"NO_COLOR": "1"})
    assert status == 0, shown
    assert "1 of 3  pair: Do it" in shown and "3 of 3  pair: Task 1" in shown
    assert [item["thread"] for item in uwf("inbox").json] == [others[0]], "an empty line leaves one for later"
    answers = {asked: uwf("thread", "steps", asked).json[-1]["output"] for asked in (thread, others[1])}
    assert answers == {thread: {"answer": "red"}, others[1]: {"answer": "blue"}}
    assert "give the ids" in uwf("thread", "answer", "-m", "red", check=2).error["hint"]
    assert "-m TEXT" in uwf("thread", "answer", check=2).error["hint"]


def test_the_same_answer_goes_to_each_thread_that_is_named_and_takes_it(uwf: Uwf, gated: str) -> None:
    other = uwf("thread", "start", "gated", "-p", "Announce more").json["thread"]
    uwf("thread", "step", other, "--agent", scripted(WRITES))
    idle = uwf("thread", "start", "gated", "-p", "Later").json["thread"]
    done = uwf("thread", "answer", gated, idle, other, "-f", "decision=send", check=None)
    assert [json.loads(line)["status"] for line in done.out.splitlines()] == ["completed", "completed"]
    assert done.code == 1 and f"thread {idle} is not waiting for an answer" in done.err
    for option in ("--for", "--code"):
        refused = uwf("thread", "answer", gated, other, option, "ABCD", "-m", "x", check=2).error
        assert refused["message"] == "--for, --code and --revoke are for one thread"
