"""What a terminal shows of a step while it is made, and what others see of it meanwhile."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import one_role
import pytest
from cli_samples import ASKS, GATE, PAIR, REJECTS_ONCE, on_terminal, resize, scripted, write
from commands import begin
from conftest import Uwf
from one_role import TALKER, WORKFLOW
from screen import Screen

from uwf_git.store.instance import Instance

SCHEMA = {"type": "object", "properties": {"status": {"enum": ["passed", "failed"]}}, "required": ["status"]}

# Prints lines, one of which steers terminals and is far too long, until it is let go on.
PRINTER = """\
import sys, time
from pathlib import Path
print("one line")
print("wide \\u4e16\\u754c\\u4e16\\u754c \\x1b[2J\\x1b]0;owned\\x07 \\u202e and on and on" + " and on" * 40, flush=True)
while not Path("go").exists():
    time.sleep(0.02)
print("Almost there.", file=sys.stderr, flush=True)
while not Path("end").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def printer(script: Callable[[str, str], Path]) -> str:
    return f"uwf-exec {script('printer', PRINTER)}"


@pytest.fixture
def thread(instance: Instance) -> str:
    return one_role.start(instance, SCHEMA)


def touch(name: str) -> Callable[[int, int], object]:
    return lambda _child, _terminal: Path(name).touch()


def test_one_line_shows_a_step_while_it_is_made_and_nothing_of_it_is_left(
    uwf: Uwf, thread: str, printer: str
) -> None:
    def narrower(_child: int, terminal: int) -> None:
        resize(terminal, 40)
        Path("go").touch()

    typed = [("wide", narrower), ("Almost", touch("end"))]
    status, shown = on_terminal("thread", "run", thread, "--agent", printer, typed=typed, columns=80)
    assert status == 0
    screen = Screen(80, shown)
    assert not screen.wrapped
    assert screen.text == "   1  worker (uwf-exec): passed  → completed"
    live = [line for line in screen.ever if "wide" in line]
    assert re.match(r"   1  worker \(uwf-exec\) · \d+s · wide 世界世界 .*and on and.*…$", live[0])
    narrow = [line for line in screen.ever if "Almost" in line]
    assert narrow and len(narrow[-1]) < 40, "the terminal was made narrower"


@pytest.mark.parametrize(
    ("options", "environ"),
    [((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--quiet",), {})],
    ids=["NO_COLOR", "dumb", "quiet"],
)
def test_plain_lines_are_all_where_nobody_wants_more(
    uwf: Uwf, thread: str, printer: str, options: tuple[str, ...], environ: dict[str, str]
) -> None:
    Path("go").touch()
    Path("end").touch()
    arguments = ("thread", "run", thread, "--agent", printer, *options)
    status, shown = on_terminal(*arguments, env=environ, columns=80)
    assert status == 0
    assert re.sub("\x1b\\[[0-9;]*m", "", shown) == "   1  worker (uwf-exec): passed  → completed\n"


def test_an_interrupted_run_says_that_nothing_is_lost_and_keeps_the_attempt(
    uwf: Uwf, thread: str, printer: str
) -> None:
    interrupt: Callable[[int, int], object] = lambda child, _: os.kill(child, signal.SIGINT)  # noqa: E731
    status, shown = on_terminal(
        "thread", "run", thread, "--agent", printer, typed=[("wide", interrupt)], columns=80
    )
    assert status == 130
    going_on = f"uwf thread run {thread} --agent {shlex.quote(printer)} goes on"
    assert Screen(400, shown).text == f"uwf: interrupted — nothing is lost, {going_on}"
    assert [each["error"] for each in uwf("thread", "attempts", thread).json] == ["interrupted"]
    running = begin("thread", "run", thread, "--agent", printer)
    while not uwf("ps").json:
        assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _out, err = running.communicate(timeout=30)
    assert json.loads(err)["error"]["hint"] == f"nothing is lost, {going_on}"


def test_the_command_that_goes_on_after_the_last_step_has_the_options_that_were_given(uwf: Uwf) -> None:
    uwf("workflow", "put", write("pair.yaml", PAIR))
    thread = uwf("thread", "start", "pair", "-p", "Go").json["thread"]
    (work := Path("my work")).mkdir()
    agent = scripted(REJECTS_ONCE)
    stopping = ("thread", "run", thread, "--max-steps", "1", "--agent", agent, "--cwd", work)
    ran = uwf("--format", "text", *stopping, check=11)
    said = re.fullmatch(
        r"uwf: thread \S+ is not at its end: stopped after 1 step — uwf (.*) goes on\n", ran.err
    )
    assert said
    again = shlex.split(said[1])
    assert again == ["thread", "run", thread, "--agent", agent, "--cwd", str(work.absolute())]
    assert uwf(*again).lines[-1]["status"] == "completed"


def test_the_hint_after_a_failure_or_at_a_gate_names_the_agent_that_played(uwf: Uwf) -> None:
    agent = scripted("- { role: writer, output: { text: a } }\n- { role: critic, exit: 3 }\n")
    ran = uwf("run", f"./{write('pair.yaml', PAIR)}", "-p", "x", "--agent", agent, check=6)
    thread = ran.lines[0]["thread"]
    option = f" --agent {shlex.quote(agent)}"
    assert ran.error["hint"].endswith(f"uwf thread run {thread}{option}")
    agent = 'uwf-exec echo \'{"text": "a"}\''
    gated = uwf("run", f"./{write('gated.yaml', GATE)}", "-p", "x", "--agent", agent, check=5)
    thread = gated.lines[0]["thread"]
    hint = gated.error["hint"]
    assert f"uwf thread answer {thread}" in hint
    assert hint.endswith(f"; then: uwf thread run {thread} --agent {shlex.quote(agent)}")


@pytest.mark.parametrize("command", ["run", "step"])
def test_a_question_is_put_once_with_its_options_and_the_command_that_answers(
    uwf: Uwf, instance: Instance, command: str
) -> None:
    thread = one_role.start(instance, SCHEMA)
    asks = scripted(ASKS.replace("role: writer", "role: worker"))
    done = uwf("thread", command, thread, "--agent", asks, "--format", "text", check=None)
    assert done.code == (5 if command == "run" else 0)
    assert done.out.splitlines() == [
        "   1  worker (uwf-rehearse): asks: Which [31mcolour ?  → waiting",
        "      Which \\x1b[31mcolour\\u202e?",
        "        1  red",
        "        2  blue",
    ]
    answer = f"uwf thread answer {thread} -m TEXT"
    if command == "run":
        answer += f"; then: uwf thread run {thread} --agent {shlex.quote(asks)}"
    assert done.err == f"uwf: thread {thread} waits for an answer — {answer}\n"


def test_nothing_is_drawn_over_the_questions_to_a_person(uwf: Uwf, thread: str) -> None:
    slow = [("status [1-2]: ", lambda _c, terminal: _types_slowly(terminal, "1"))]
    status, shown = on_terminal(
        "thread", "step", thread, "--agent", "uwf-human", typed=[*slow, ("ends it.", ".")], columns=80
    )
    assert status == 0, shown
    assert "worker (uwf-human) ·" not in shown[: shown.index("ends it.")]
    assert "worker (uwf-human): passed" in Screen(200, shown).text


def _types_slowly(terminal: int, line: str) -> None:
    import time

    time.sleep(0.6)  # for as long as several looks at the step take
    os.write(terminal, f"{line}\n".encode())


def test_others_see_who_is_at_work_and_what_was_said_last(
    uwf: Uwf, script: Callable[[str, str], Path], instance: Instance
) -> None:
    thread = one_role.start(instance, {"type": "object", "properties": {"text": {"type": "string"}}})
    assert uwf("ps").json == []
    running = begin("thread", "step", thread, "--agent", script("talker", TALKER))
    while not instance.runs.notes(thread)[1:]:
        assert running.poll() is None
    [seen] = uwf("ps").json
    assert (seen["thread"], seen["name"], seen["parent"]) == (thread, "one-role", None)
    assert (seen["step"], seen["role"], seen["agent"]) == (1, "worker", "uwf-talker")
    assert (seen["model"], seen["turns"], seen["tokens"], seen["last"]) == ("m", 1, 12, "I look.")
    shown = uwf("thread", "show", thread).json
    assert shown["status"] == "running"
    assert {key: value for key, value in shown["running"].items() if key != "seconds"} == {
        key: value
        for key, value in seen.items()
        if key not in ("thread", "workflow", "name", "parent", "seconds")
    }
    assert "worker (uwf-talker), since" in uwf("thread", "show", thread, "--format", "text").out

    watching = begin("ps", "--watch")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())[0]["last"] == "I look."
    stop: Callable[[int, int], object] = lambda child, _: os.kill(child, signal.SIGINT)  # noqa: E731
    status, drawn = on_terminal("ps", "--watch", typed=[("I look.", stop)], columns=80)
    assert (status, Screen(80, drawn).text, Screen(80, drawn).wrapped) == (0, "", False)
    Path("go").touch()
    assert running.wait(30) == 0
    while json.loads(watching.stdout.readline()):  # what was said meanwhile
        assert watching.poll() is None
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 0
    assert "running" not in uwf("thread", "show", thread).json


def test_an_agent_of_the_kit_has_its_own_name_before_it_says_anything(uwf: Uwf, instance: Instance) -> None:
    Path("quiet.py").write_text(
        "import time\nfrom pathlib import Path\nfrom uwf_git.kit import create_agent\n"
        "def run(ctx):\n    Path('asked').touch()\n"
        "    for _ in range(3000):  # not for ever if the test fails\n"
        "        if Path('go').exists(): break\n"
        "        time.sleep(0.02)\n"
        "    return '---\\ntext: done\\n---'\n"
        "create_agent('quiet', run).main()\n"
    )
    thread = one_role.start(instance, {"type": "object", "properties": {"text": {"type": "string"}}})
    watcher = begin("watch", thread)
    running = begin("thread", "step", thread, "--agent", f"{sys.executable} quiet.py")
    while not Path("asked").exists():
        assert running.poll() is None
    assert uwf("ps").json[0]["agent"] == "uwf-quiet"
    assert watcher.stdout is not None
    told = (json.loads(line) for line in watcher.stdout)
    assert next(each["agent"] for each in told if "agent" in each) in ("quiet.py", "uwf-quiet")
    Path("go").touch()
    assert running.wait(60) == 0
    assert watcher.wait(60) == 0  # the thread has come to its end


# Prints half of a secret, and the rest of it with the end of the line once it is let go on, on both its outputs.
HALVES = """\
import sys, time
from pathlib import Path
for out in sys.stderr, sys.stdout:
    print("whole hunter-2-is-too-short-a-key", file=out)
    print("half hunter-2-is", end="", file=out, flush=True)
Path("half").touch()
while not Path("go").exists():
    time.sleep(0.02)
for out in sys.stderr, sys.stdout:
    print("-too-short-a-key done", file=out, flush=True)
while not Path("end").exists():
    time.sleep(0.02)
"""


@pytest.mark.parametrize("wrapped", [True, False], ids=["embedded", "program"])
def test_no_half_of_a_secret_is_shown_while_its_line_is_printed(
    uwf: Uwf, thread: str, root: Path, script: Callable[[str, str], Path], instance: Instance, wrapped: bool
) -> None:
    (root / ".env").write_text("API_KEY=hunter-2-is-too-short-a-key\n")
    made = script("halves", HALVES)
    running = begin("thread", "step", thread, "--agent", f"uwf-exec {made}" if wrapped else str(made))
    folder = instance.store.repository.private / "runs"

    def seen() -> str:
        assert running.poll() is None
        return "".join(each["last"] or "" for each in uwf("ps").json)

    while "whole" not in seen() or not Path("half").exists():
        pass
    assert seen() == "whole [redacted:API_KEY]"
    assert all("hunter" not in path.read_text() for path in folder.iterdir() if path.suffix != ".log")
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir() if path.is_file()} == {0o600}
    Path("go").touch()
    while "done" not in seen():
        pass
    assert seen() == "half [redacted:API_KEY] done"
    Path("end").touch()
    running.wait(30)


def test_a_sub_workflow_is_shown_below_the_thread_that_it_is_for(
    uwf: Uwf, config: Callable[[str], Path], printer: str, hermetic: Path
) -> None:
    for name in ("outer", "inner"):
        text = WORKFLOW.format(schema=json.dumps(SCHEMA)).replace("one-role", name)
        (hermetic / f"{name}.yaml").write_text(text)
        uwf("workflow", "put", hermetic / f"{name}.yaml")
    config(
        "agents: {solve: {command: uwf-workflow, args: [inner]}, print: {command: uwf-exec, args: ["
        f"{printer.split()[1]}]}}}}\nagentOverrides: {{outer: {{worker: solve}}, inner: {{worker: print}}}}\n"
    )
    thread = uwf("thread", "start", "outer", "-p", "x").json["thread"]
    running = begin("thread", "step", thread)
    while len(found := uwf("ps").json) < 2 or "wide" not in (found[1]["last"] or ""):
        assert running.poll() is None
    outer, inner = found
    assert [(outer["thread"], outer["role"]), (inner["parent"], inner["role"])] == [
        (thread, "worker"),
        (thread, "worker"),
    ]
    text = uwf("ps", "--format", "text").out.splitlines()
    assert text[2].startswith(f"  {inner['thread']}  inner  step 1")
    assert uwf("thread", "show", thread).json["running"]["child"]["thread"] == inner["thread"]
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
