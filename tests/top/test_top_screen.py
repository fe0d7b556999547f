"""The screen of `uwf top`: what it shows, in this process."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from acp_steps import Scripted
from cli_samples import ASKS, GATE, ONE, PAIR, WRITES, scripted, write
from commands import begin as begin_quietly
from conftest import Begin, Uwf
from fan_outs import ANSWER, FAN
from one_role import TALKER, WORKFLOW
from top_pilot import Player, play

from uwf_git.ext.top.board import ASKS as ASKING
from uwf_git.store.instance import Instance

pytest.importorskip("textual", reason="pip install '.[top]'")

EVIL = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe \u200b[bold red]bold[/] [link=x]l[/link]\r\ttab\x9b31m 漢字"


def is_harmless(text: str) -> bool:
    return all(unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class Look(NamedTuple):
    thread: str
    step: subprocess.Popen[str]


@pytest.fixture
def look(uwf: Uwf, begin: Begin) -> Callable[[object], Look]:
    """Starts a thread, and a step of it by this agent."""

    def started(agent: object) -> Look:
        schema = "{ type: object, properties: { text: { type: string } }, required: [text] }"
        uwf("workflow", "put", write("one-role.yaml", WORKFLOW.format(schema=schema)))
        thread = uwf("thread", "start", "one-role", "-p", "Look").json["thread"]
        return Look(thread, begin("thread", "step", thread, "--agent", agent))

    return started


@pytest.mark.parametrize(("columns", "rows"), [(160, 50), (80, 24)])
def test_text_of_agents_and_people_is_written_out_cut_and_no_markup(
    uwf: Uwf, columns: int, rows: int
) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    answer = "\n".join([EVIL, "x" * 10_000, "漢" * 500])
    replies = write("replies.json", f"- {{ role: writer, output: {{ text: {json.dumps(answer)} }} }}\n")
    for prompt in (EVIL, "y" * 10_000):
        thread = uwf("thread", "start", "pair", "-p", prompt).json["thread"]
        uwf("thread", "step", thread, "--agent", f"uwf-rehearse --script {replies.absolute()}")

    async def script(player: Player) -> None:
        await player.wait("2 idle")
        for _ in range(2):
            await player.press("enter")
            for _tab in range(4):
                await player.wait("live  steps  diff  prompt")
                await asyncio.sleep(0.3)
                assert all(is_harmless(line) for line in player.lines), player.text
                assert len(player.lines) == rows
                await player.press("tab")
            await player.press("escape", "j")
        await player.press("k", "enter")
        await player.wait(lambda text: "[bold red]bold[/]" in text and "\\u202e" in text)

    play(script, columns=columns, rows=rows)


def test_a_damaged_thread_is_a_row_that_says_why(uwf: Uwf, root: Path, thread: str) -> None:
    other = uwf("thread", "start", "pair", "-p", "Sound").json["thread"]
    (root / "store.git/refs/uwf/threads").mkdir(parents=True, exist_ok=True)
    (root / "store.git/refs/uwf/threads" / thread).write_text("nonsense")

    async def script(player: Player) -> None:
        await player.wait(lambda text: "1 failed" in text and "Sound" in text)
        row = next(line for line in player.lines if thread[-6:] in line)
        assert "!" in row
        await player.press("enter")
        await player.wait(lambda text: thread in text and "live  steps" in text)
        for key in ("r", "s", "p", "f", "a", "l", "1", "d", "tab"):
            await player.press(key)
        assert player.app._exception is None

    play(script)
    assert uwf("thread", "show", other).json["status"] == "idle"


def test_why_a_thread_failed_stands_there_once_with_its_cause(uwf: Uwf) -> None:
    uwf("workflow", "put", write("one.yaml", ONE))
    thread = uwf("thread", "start", "one", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'echo no such plan >&2; exit 3'", check=6)

    async def script(player: Player) -> None:
        await player.wait("exited with 3 (no such plan)")
        assert player.text.count("exited with 3 (no such plan)") == 1

    play(script, columns=200)


def test_what_a_failed_attempt_had_printed_is_read_where_it_failed_and_among_its_steps(uwf: Uwf) -> None:
    uwf("workflow", "put", write("one.yaml", ONE))
    thread = uwf("thread", "start", "one", "-p", "x").json["thread"]
    for number in range(2):
        write("log.txt", f"\x1b[31mthe\x1b[0m database {number} is down")
        uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'cat log.txt; kill -9 $$'", check=6)
    answers = [attempt["answer"] for attempt in uwf("thread", "attempts", thread).json]
    assert ["database 0 is down" in answers[0], "database 1 is down" in answers[1]] == [True, True]

    async def script(player: Player) -> None:
        await player.wait("the database 1 is down")
        await player.press("enter", "tab", "j")
        await player.wait(lambda text: text.count("was ended by signal 9") == 2)
        await player.press("enter")
        await player.wait("the database 0 is down")
        await player.press("escape", "j", "enter")
        await player.wait("the database 1 is down")

    play(script, columns=200)


def test_an_answer_that_comes_second_is_one_line_and_records_nothing(uwf: Uwf, gated: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("gate asks you")
        row, question = player.app._row, player.app._guard.question
        assert row is not None and question is not None
        uwf("thread", "answer", gated, "-f", "decision=send")
        answer = question.choose(3)
        assert answer is not None
        player.app._begin(player.app._answer(row, answer))
        await player.wait(lambda text: gated in text.splitlines()[-1])

    play(script)
    assert [step["output"] for step in uwf("thread", "steps", gated).json][1:] == [{"decision": "send"}]


def test_the_cursor_stays_on_a_question_whose_answer_cannot_be_written(uwf: Uwf, gated: str) -> None:
    other = uwf("thread", "start", "gated", "-p", "Tell them").json["thread"]
    uwf("thread", "step", other, "--agent", scripted(WRITES))

    async def script(player: Player) -> None:
        await player.wait(lambda text: "2 ask you" in text and "gate asks you" in text)
        with full_disk():
            await player.press("1")
            await player.wait(lambda text: "cannot write" in text.splitlines()[-1])
        assert player.app._row is not None and player.app._row.thread == gated
        await player.press("1")
        await player.wait(lambda text: "1 ask you" in text and "answered: Announce it" in text)
        assert player.app._row is not None and player.app._row.thread == other

    play(script)
    assert uwf("thread", "steps", gated).json[1]["output"] == {"decision": "send"}


def test_a_form_is_filled_in_field_by_field(uwf: Uwf, gated: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("gate asks you")
        await player.press("a")
        await player.wait("decision: 1 send 2 change 3 drop")
        await player.type("")
        await player.wait("decision: 1 send")
        await player.type("3")
        await player.wait("note (optional)")
        await player.type("not [bold]now[/]")
        await player.wait("readers (optional)")
        await player.type("ann; bob")
        await player.wait("answered")

    play(script)
    output = uwf("thread", "steps", gated).json[-1]["output"]
    assert output == {"decision": "drop", "note": "not [bold]now[/]", "readers": ["ann", "bob"]}


def test_what_was_typed_for_an_answer_that_came_too_late_begins_the_next_one(uwf: Uwf, gated: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("gate asks you")
        await player.press("a")
        await player.wait("decision: 1 send")
        await player.type("1")
        await player.wait("note (optional)")
        await player.type("a long reason")
        await player.wait("readers (optional)")
        uwf("thread", "answer", gated, "-f", "decision=change")
        uwf("thread", "step", gated, "--agent", scripted(WRITES))
        await player.type("")
        await player.wait("Send second?")
        await player.press("a")
        await player.wait("decision: 1 send")
        await player.type("1")
        await player.wait("a long reason")
        await player.press("enter")
        await player.wait("readers (optional)")
        await player.press("enter")
        await player.wait("answered")

    play(script)
    assert uwf("thread", "steps", gated).json[-1]["output"] == {"decision": "send", "note": "a long reason"}


def test_a_question_is_answered_by_an_option_of_it_or_by_words(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    threads = [uwf("thread", "start", "pair", "-p", f"Task {n}").json["thread"] for n in range(2)]
    for thread in threads:
        uwf("thread", "step", thread, "--agent", scripted(ASKS))

    async def script(player: Player) -> None:
        await player.wait(lambda text: "writer asks you" in text and "1  red" in text)
        await player.press("2")
        await player.wait(lambda text: "Task 1" in text.splitlines()[1] and "writer asks you" in text)
        await player.press("a")
        await player.wait("answer, or the number of an option")
        await player.type("green")
        await player.wait(lambda text: "ask you" not in text.splitlines()[0])

    play(script)
    answers = [uwf("thread", "steps", thread).json[1]["output"] for thread in threads]
    assert answers == [{"answer": "blue"}, {"answer": "green"}]


def test_marked_threads_are_paused_and_resumed_together(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    for number in range(3):
        uwf("thread", "start", "pair", "-p", f"Task {number}")

    async def script(player: Player) -> None:
        await player.wait("3 idle")
        await player.press("space", "space", "p")
        await player.wait(lambda text: "1 idle" in text and "2 paused" in text)
        await player.press("*", "p")
        await player.wait(lambda text: "2 idle" in text and "1 paused" in text)

    play(script)
    states = {item["title"]: item["status"] for item in uwf("thread", "list").json}
    assert states == {"Task 0": "paused", "Task 1": "idle", "Task 2": "idle"}


def test_a_filter_takes_the_words_of_thread_list_and_a_wrong_one_is_told(uwf: Uwf, thread: str) -> None:
    uwf("thread", "start", "pair", "-p", "Another csv")

    async def script(player: Player) -> None:
        await player.wait("2 idle")
        await player.press("/")
        await player.type("--workflow pair csv")
        await player.wait(lambda text: "1 idle" in text and "/ --workflow pair csv" in text)
        await player.press("/")
        await player.type("--status soon")
        await player.wait(lambda text: "soon" in text.splitlines()[-1])
        assert "1 idle" in player.text
        await player.press("escape")
        await player.wait("2 idle")

    play(script)


def test_what_a_running_agent_says_is_followed_until_its_step_is_made(
    look: Callable[[object], Look], script: Callable[[str, str], Path]
) -> None:
    _, step = look(script("talker", TALKER))

    async def played(player: Player) -> None:
        await player.wait(lambda text: "1 running" in text and "agents 1" in text and "│ I look." in text)
        row = next(line for line in player.lines if line.startswith(" > "))
        assert "worker" in row
        Path("go").touch()
        await player.wait("no such threads")

    play(played)
    assert step.wait() == 0


def test_what_a_running_agent_asks_leave_for_is_allowed_and_denied_by_digits(
    uwf: Uwf, instance: Instance
) -> None:
    steps = Scripted(
        instance.location.root, "ask:execute=make test|execute=rm -r [b]x[/b]", more="permissionWait: 1h\n"
    )
    process = begin_quietly("thread", "step", steps.thread)

    async def script(player: Player) -> None:
        await player.wait(lambda text: "1 ask you" in text and "make test" in text and "1  allow" in text)
        await player.press("1")
        await player.wait(lambda text: "rm -r [b]x[/b]" in text and "2  deny" in text)
        await player.press("2")
        await player.wait(lambda text: "ask you" not in text)

    play(script)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert [value for _, value in steps.noted("permission")] == ["allow_once", "reject_once"]


def test_a_pause_that_waits_for_the_end_of_a_step_is_shown_and_lifted_by_the_same_key(
    uwf: Uwf, look: Callable[[object], Look], script: Callable[[str, str], Path]
) -> None:
    _, step = look(script("talker", TALKER))

    async def played(player: Player) -> None:
        await player.wait(lambda text: "1 running" in text and "│ I look." in text)
        await player.press("p")
        await player.wait("running, pauses after this step")
        assert next(line for line in player.lines if line.startswith(" >")).startswith(" > pausing: Look")
        (item,) = uwf("thread", "list").json
        assert item["status"] == "running" and item["paused"]["by"]
        assert "running (pausing)" in uwf("thread", "list", "--format", "text").out
        await player.press("p")
        await player.wait(lambda text: "resumed: Look" in text and "pauses" not in text)
        await player.press("p")
        await player.wait("pausing: Look")
        Path("go").touch()

    play(played)
    assert step.wait() == 0


def test_what_an_agent_asks_leave_for_is_before_an_older_gate_in_the_inbox_as_in_the_list(
    uwf: Uwf, instance: Instance, gated: str
) -> None:
    steps = Scripted(instance.location.root, "ask:execute=make test", more="permissionWait: 1h\n")
    process = begin_quietly("thread", "step", steps.thread)

    async def script(player: Player) -> None:
        await player.wait("2 ask you")
        await player.press("home")
        await player.wait(lambda text: "make test" in text and "1  allow" in text)
        asking = [row.thread for row in player.app._list.rows if row.group == ASKING]
        assert asking == [steps.thread, gated] == [item["thread"] for item in uwf("inbox").json]
        text = uwf("inbox", "--format", "text").out
        assert text.index(steps.thread) < text.index(gated)
        await player.press("1")
        await player.wait(lambda text: "1 ask you" in text)

    play(script)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def test_a_remark_to_a_running_agent_is_kept(
    uwf: Uwf, look: Callable[[object], Look], script: Callable[[str, str], Path]
) -> None:
    thread, step = look(script("talker", TALKER))

    async def played(player: Player) -> None:
        await player.wait(lambda text: "1 running" in text and "│ I look." in text)
        await player.press("a")
        await player.wait("a remark to the agent")
        await player.type("Look twice")
        await player.wait("at the next prompt: Look twice")

    play(played)
    assert "Look twice" in uwf("thread", "show", thread).out
    Path("go").touch()
    assert step.wait() == 0


def test_the_cursor_stays_on_its_thread_when_others_come(uwf: Uwf, thread: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("1 idle")
        for number in range(3):
            uwf("thread", "start", "pair", "-p", f"Newer {number}")
        await player.wait("4 idle")
        assert player.app._row is not None and player.app._row.thread == thread
        uwf("thread", "rm", thread, "--yes")
        await player.wait("3 idle")
        assert player.app._row is not None

    play(script)


def test_long_lines_are_cut_and_their_rest_is_a_key_away(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    uwf("thread", "start", "pair", "-p", "start " + "x" * 100 + " middle " + "y" * 100)

    async def script(player: Player) -> None:
        await player.wait("1 idle")
        await player.press("enter")
        await player.wait(lambda text: "start xxx" in text and "…" in text and "middle" not in text)
        await player.press("right", "right", "right", "right")
        await player.wait("middle")

    play(script, columns=80, rows=24)


def test_of_a_flood_of_output_the_end_is_shown(
    look: Callable[[object], Look], script: Callable[[str, str], Path]
) -> None:
    go = Path("go").absolute()
    flood = script(
        "flood",
        "import sys, time\nfrom pathlib import Path\n"
        "for number in range(100_000): print('line', number, '\\x1b[31mred\\x1b[0m \\x1b[2J' + 'x' * 40)\n"
        "print('the last line', flush=True)\n"
        f"while not Path('{go}').exists(): time.sleep(0.02)\n"
        'print(\'{"text": "done"}\')\n',
    )
    _, step = look(f"uwf-exec {flood}")

    async def played(player: Player) -> None:
        await player.wait(lambda text: "1 running" in text and "│ the last line" in text)
        assert "line 99999 red xxx" in player.text and is_harmless(player.text.replace("\n", ""))
        assert len(player.app._pane.lines) <= 6_000
        go.touch()
        await player.wait("no such threads")

    play(played)
    assert step.wait() == 0


def test_a_store_that_goes_away_is_told_and_comes_back(uwf: Uwf, root: Path, thread: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("1 idle")
        root.rename(root.with_name("away"))
        await player.wait(lambda text: "no store at " in text.splitlines()[1])
        await player.press("j", "enter", "tab", "r", "escape")
        root.with_name("away").rename(root)
        await player.wait("1 idle")

    play(script)


def test_the_help_has_every_key(uwf: Uwf, thread: str) -> None:
    from uwf_git.ext.top.keys import KEYS

    async def script(player: Player) -> None:
        await player.wait("1 idle")
        await player.press("?")
        await player.wait("these keys")
        assert all(key.words in player.text for key in KEYS)
        assert "land" in player.text
        await player.press("?")
        await player.wait(lambda text: "these keys" not in text)

    play(script)


def test_a_long_list_is_scrolled_with_the_cursor_in_sight(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    prompts = "".join(f'"Task {number}"\n' for number in range(60))
    uwf("thread", "start", "pair", "--each", "-", input=prompts)

    async def script(player: Player) -> None:
        await player.wait("60 idle")
        await player.press("G")
        await player.wait("Task 0 ")
        await player.press("pageup", "g")
        await player.wait("Task 59")

    play(script, columns=80, rows=24)


def test_a_thread_that_needs_a_form_is_not_answered_by_a_digit(uwf: Uwf) -> None:
    uwf(
        "workflow",
        "put",
        write("gated.yaml", GATE.replace("required: [decision]", "required: [decision, note]")),
    )
    thread = uwf("thread", "start", "gated", "-p", "x").json["thread"]
    uwf("thread", "step", thread, "--agent", scripted("- { role: writer, output: { text: first } }\n"))

    async def script(player: Player) -> None:
        await player.wait("gate asks you")
        await player.press("1")
        await player.wait("there is no option 1")

    play(script)
    assert uwf("thread", "show", thread).json["status"] == "waiting"


def test_a_fan_out_says_how_many_of_its_branches_ask(uwf: Uwf) -> None:
    uwf("workflow", "put", write("fan.yaml", FAN))
    thread = uwf("thread", "start", "fan", "-p", "Fan out").json["thread"]
    for _ in range(2):
        uwf("thread", "step", thread, "--agent", ANSWER, check=None)
    branch = next(item["thread"] for item in uwf("thread", "list").json if item["thread"] != thread)
    uwf(
        "thread",
        "step",
        branch,
        "--agent",
        """uwf-exec echo '{"status": "needs_input", "question": "Which?"}'""",
    )

    async def played(player: Player) -> None:
        await player.wait("(0 of 3, 1 asks you) Fan out")

    play(played)


def test_a_message_that_is_longer_than_its_line_names_threads_in_short(uwf: Uwf, gated: str) -> None:
    async def script(player: Player) -> None:
        await player.wait("1 ask you")
        for text, named in (
            ("no open request", gated),
            ("no open request of a running agent", f"…{gated[-6:]}"),
        ):
            player.app._foot.tell(f"{text} — see: uwf thread show {gated}", True)
            await player.wait(lambda shown, end=f"thread show {named}": shown.splitlines()[-1].endswith(end))

    play(script, columns=80, rows=24)
