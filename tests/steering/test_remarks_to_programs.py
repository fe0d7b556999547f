"""A remark to a program that reads messages while it works, as claude does with its stream input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import agent_programs
import pytest
from acp_steps import Steps
from commands import begin, wait_for
from conftest import Uwf
from loop_thread import start_loop
from model_script import Asked, Turn
from model_server import Call, Hang, Say, aside

from uwf_git.store.instance import Instance

TEXT = "Keep the old flag working."
ROW = """\
agentClis:
  mycli:
    program: mycli
    first: ["--first"]
    prompt: messages
    inputEnd: {type: [result, failed]}
    output: lines
    text: {path: .text, when: {type: result}}
    turns:
      - {when: {type: said}, text: .text}
    errors: {path: .error, when: {type: failed}}
"""
# It says something, waits for a further message, answers, and reads to the end of its input.
READER = """\
import json, sys
from pathlib import Path

def message():
    return "".join(part["text"] for part in json.loads(sys.stdin.readline())["message"]["content"])

def tell(**value):
    print(json.dumps(value), flush=True)

Path("prompt").write_text(message())
tell(type="said", text="I look.")
Path("started").write_text("yes")
heard = message()
Path("heard").write_text(heard)
tell(type="said", text="Heard it.")
"""
ANSWERS = """\
tell(type="said", text="---\\ntext: done\\n---\\n")
tell(type="result", text="---\\ntext: done\\n---\\n")
Path("rest").write_text(repr(sys.stdin.read()))
"""
READS_FIRST = """\
import json, sys
sys.stdin.read()
print(json.dumps({"type": "result", "text": "---\\ntext: done\\n---\\n"}))
"""
FAILS = """\
import time
while not Path("go").exists():
    time.sleep(0.01)
tell(type="failed", error="quota is used up")
sys.exit(1)
"""


@pytest.fixture
def mycli(
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    thread: str,
) -> Callable[[str], str]:
    """Makes the program end with something, and returns a thread for it."""

    def make(end: str) -> str:
        path = script("mycli", READER + end)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        config(ROW)
        return thread

    return make


def roles(uwf: Uwf, thread: str) -> list[str]:
    return [step["role"] for step in uwf("thread", "steps", thread).json]


def test_it_gets_the_remark_on_its_input_and_the_record_has_it_before_what_it_says_to_it(
    uwf: Uwf, mycli: Callable[[str], str]
) -> None:
    thread = mycli(ANSWERS)
    process = begin("thread", "step", thread, "--agent", "mycli", as_fork=True)
    wait_for(Path("started"))
    said = uwf("thread", "say", thread, "-m", TEXT).json["remark"]
    assert said["agent"] == "uwf-cli/mycli"
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert "# Your instruction now" in Path("prompt").read_text()
    assert Path("heard").read_text().startswith(f"{TEXT}\n\nHeed this")
    assert Path("rest").read_text() == "''"
    turns = uwf("thread", "turns", thread).json
    texts = [turn["text"] for turn in turns]
    assert sorted(texts) == sorted([TEXT, "I look.", "Heard it.", "---\ntext: done\n---\n"])
    assert texts.index(TEXT) < texts.index("Heard it.")
    (remark,) = [turn for turn in turns if "remark" in turn]
    assert (remark["role"], remark["remark"]["id"]) == ("user", said["id"])
    assert roles(uwf, thread) == ["writer"]
    assert "remarks" not in uwf("thread", "show", thread).json
    assert uwf("verify", "--all").json["findings"] == []


def test_a_program_that_reads_its_input_to_the_end_first_gets_that_end(
    uwf: Uwf, mycli: Callable[[str], str], script: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = mycli("")
    script("mycli", READS_FIRST)
    monkeypatch.setattr("uwf_git.ext.agents.cli.agent._READS_ON", 0.2)
    uwf("thread", "step", thread, "--agent", "mycli")
    assert roles(uwf, thread) == ["writer"]


def test_a_remark_that_a_failing_run_took_is_told_to_the_next_one(
    uwf: Uwf, mycli: Callable[[str], str]
) -> None:
    thread = mycli(FAILS)
    process = begin("thread", "step", thread, "--agent", "mycli", as_fork=True)
    wait_for(Path("started"))
    uwf("thread", "say", thread, "-m", TEXT)
    wait_for(Path("heard"))
    Path("go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 6
    (remark,) = uwf("thread", "show", thread).json["remarks"]
    assert (remark["state"], remark["agent"]) == ("pending", None)
    uwf("thread", "step", thread, "--agent", "uwf-exec sh -c 'echo ---; echo text: hello; echo ---'")
    assert roles(uwf, thread) == ["$USER", "writer"]
    assert "remarks" not in uwf("thread", "show", thread).json
    assert uwf("verify", "--all").json["findings"] == []


def test_a_prompt_of_any_size_arrives_whole(uwf: Uwf, mycli: Callable[[str], str], root: Path) -> None:
    mycli(ANSWERS)
    task = "x" * 300_000
    thread = uwf("thread", "start", "pair", "-p", "-", input=task).json["thread"]
    process = begin("thread", "step", thread, "--agent", "mycli", as_fork=True)
    wait_for(Path("started"))
    uwf("thread", "say", thread, "-m", TEXT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert task in Path("prompt").read_text()


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        ("inputEnd: {type: [result, failed]}", "", "inputEnd and output: lines are needed"),
        ("prompt: messages", "options: {if: asking, args: [--ask]}", "prompt: messages is needed"),
    ],
)
def test_a_row_for_messages_says_when_its_input_ends_and_one_that_asks_for_leave_needs_messages(
    config: Callable[[str], Path], uwf: Uwf, thread: str, line: str, instead: str, problem: str
) -> None:
    config(ROW.replace(f"    {line}\n", f"    {instead}\n"))
    refused = uwf("thread", "step", thread, "--agent", "mycli", check=6).error
    assert problem in refused["message"]


# The real programs


def interrupting(uwf: Uwf, thread: str, then: Turn) -> Callable[[Asked], Turn]:
    def play(_: Asked) -> Turn:
        uwf("thread", "say", thread, "-m", TEXT)
        return then

    return play


def beside(asked: Asked) -> Turn | None:
    """What is asked without tools is no part of the work, such as a title for the session."""
    return aside(asked) or (None if asked.tools else Say("A task"))


@pytest.mark.extended
@pytest.mark.timeout(120)
def test_claude_takes_a_remark_with_the_next_result_of_a_tool(
    uwf: Uwf,
    instance: Instance,
    tmp_path: Path,
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with agent_programs.played("claude", tmp_path / "home", monkeypatch) as server:
        config("tools: {runCommand: true}\n")
        work = start_loop(Instance.open())
        (thread,) = [item["thread"] for item in uwf("thread", "list").json]
        done = "---\nstatus: done\n---\n\nThat is all.\n"
        look = Call(
            "Bash", {"command": "while ! [ -e go ]; do sleep 0.1; done", "description": "waits"}, "I look."
        )
        server.play([interrupting(uwf, thread, look), Say(done), Say(done)])
        Path("go").touch()
        outcome = work("uwf-claude-code")
    turns = uwf("thread", "turns", thread).json
    assert [turn["text"] for turn in turns if "remark" in turn] == [TEXT]
    assert any(TEXT in json.dumps(asked.body) for asked in server.asked)
    assert outcome.role == "worker" and "$USER" not in roles(uwf, thread)
    assert uwf("verify", "--all").json["findings"] == []


@pytest.mark.extended
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "options", "call"),
    [
        ("claude-agent-acp", (), Call("Bash", {"command": "true", "description": "does nothing"})),
        # Its own sandbox can hide the tests' folder, and its helpers in it.
        ("codex-acp", ("--mode", "agent-full-access"), Call("exec_command", {"cmd": "true"})),
    ],
)
def test_a_real_acp_agent_goes_on_with_the_remark(
    uwf: Uwf,
    instance: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    options: tuple[str, ...],
    call: Call,
) -> None:
    with agent_programs.played(program, tmp_path / "home", monkeypatch, aside=beside) as server:
        command = [*options, "--", str(agent_programs.program(program))]
        steps = Steps(instance.location.root, command, "tools: {permissions: ['*']}\n")
        done = Say("---\nsummary: It is done.\n---\n\nAll of it.\n")
        # It says nothing before its turn is cancelled.
        server.play([call, interrupting(uwf, steps.thread, Hang(60)), done, done])
        came = steps.step()
    assert came.output == {"summary": "It is done."}, came.error
    assert [turn["text"] for turn in came.turns if turn["role"] == "user"] == [TEXT]
    assert TEXT in server.asked[-1].prompt
    assert [made.name for made in server.asked[-1].calls] == [call.name], "it is the same session"
    assert roles(uwf, steps.thread) == ["worker"]


@pytest.mark.extended
@pytest.mark.timeout(120)
def test_a_remark_to_codex_exec_is_said_to_come_with_the_next_prompt_and_does(
    uwf: Uwf,
    instance: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with agent_programs.played("codex", tmp_path / "home", monkeypatch, aside=beside) as server:
        work = start_loop(Instance.open())
        (thread,) = [item["thread"] for item in uwf("thread", "list").json]
        shown = []

        def play(_: Asked) -> Turn:
            shown.append(uwf("thread", "say", thread, "-m", TEXT, "--format", "text").out)
            return Call("exec_command", {"cmd": "true"})

        server.play([play, Say("---\nstatus: again\n---\n"), Say("---\nstatus: done\n---\n")])
        work("uwf-codex --sandbox danger-full-access")
        assert shown == ["the remark waits: at the next prompt\n"]
        assert not any(TEXT in json.dumps(asked.body) for asked in server.asked)
        work("uwf-codex --sandbox danger-full-access")
    assert f"The user remarks:\n\n{TEXT}" in server.asked[-1].prompt
    assert roles(uwf, thread) == ["worker", "$USER", "worker"]
