"""A workflow script with real agent programs against a scripted model: killed in the middle, and run to its end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import agent_programs
import pytest
from cli_samples import write
from commands import begin, git
from conftest import Uwf
from model_script import Asked, Call, Hang, Say, Turn
from model_server import ModelServer, serving
from process_tree import killed

pytestmark = [pytest.mark.extended, pytest.mark.timeout(300), pytest.mark.needs("bwrap", "node")]

SCRIPT = """\
export const meta = { name: "look", description: "Looks at files, doubts what it sees, and changes one of them." };
const SIGHT = { type: "object", properties: { sight: { type: "string", minLength: 3 } }, required: ["sight"] };
const DOUBT = {
  type: "object",
  properties: { real: { type: "boolean" }, why: { enum: ["seen", "guessed"] } },
  required: ["real", "why"],
};

phase("Look");
const looks = await pipeline(
  args,
  (file) => agent(`Look at ${file}.`, { label: file, schema: SIGHT }),
  (look, file) => agent(`Doubt ${file}: ${look.sight}`, { schema: DOUBT }).then((doubt) => ({ ...look, ...doubt })),
);

phase("Change");
const [change, word] = await parallel([
  () => agent("Change note.txt.", { isolation: "worktree" }),
  () => agent("Say it in a word."),
]);
return { looks, change, word };
"""
TASK = re.compile(r"Look at \w\.txt\.|Doubt \w\.txt|Change note\.txt|Say it in a word")
CHANGE = "echo new > note.txt"
PROGRAMS = {
    "claude": ("uwf-claude-code", "[]", Call("Bash", {"command": CHANGE, "description": "changes"})),
    "codex": (
        "uwf-codex",
        "[--sandbox, danger-full-access]",
        Call("exec_command", {"cmd": CHANGE}),
    ),
}
"""The agent of each program, its arguments, and how its model runs a command."""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with serving(key=agent_programs.KEY) as running:
        yield running


def tasks(asked: Asked) -> list[str]:
    """The tasks that the model has heard of in a conversation."""
    return list(
        dict.fromkeys(TASK.findall("\n".join(each.text for each in asked.messages if each.role == "user")))
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_script_asks_no_answered_call_again_and_mixes_no_sessions(
    program: str,
    uwf: Uwf,
    server: ModelServer,
    config: Callable[[str], Path],
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent_programs.program(program)
    home = tmp_path / "agent-home"
    for name, value in agent_programs.environment(program, server, home).items():
        monkeypatch.setenv(name, value)
    command, arguments, change = PROGRAMS[program]
    config(f"agents: {{it: {{command: {command}, args: {arguments}}}}}\ndefaultAgent: it\n")
    git("init", "-q", ".")
    write("note.txt", "old\n")
    git("add", "note.txt")
    git("commit", "-qm", "first")
    is_killed = False

    def answer(asked: Asked) -> Turn:
        (task,) = tasks(asked)
        if task == "Look at c.txt." and not is_killed:
            return Hang(100)
        if task.startswith("Look"):
            # The first answer to one of them does not fit.
            is_new = all(each.role == "user" for each in asked.messages)
            return Say(
                "I see nothing." if task == "Look at b.txt." and is_new else "---\nsight: a mistake\n---\n"
            )
        if task.startswith("Doubt"):
            return Say("---\nreal: true\nwhy: seen\n---\n\nI have looked.")
        if task.startswith("Change"):
            return Say("It is new.") if asked.results else change
        return Say("Fine")

    server.play(answer)
    uwf("workflow", "put", write("look.js", SCRIPT))
    thread = uwf("thread", "start", "look", "-p", json.dumps(["a.txt", "b.txt", "c.txt"])).json["thread"]

    def answered() -> list[str]:
        return git("--git-dir", root / "store.git", "for-each-ref", "refs/uwf/archive/").splitlines()

    def is_in_the_middle() -> bool:
        return len(answered()) == 4 and any("Look at c.txt." in tasks(each) for each in server.asked)

    with killed(home, is_in_the_middle):
        begin("thread", "run", thread).communicate()
    is_killed = True
    before = len(server.asked)
    uwf("thread", "run", thread, timeout=200)

    sight = {"sight": "a mistake", "real": True, "why": "seen"}
    assert uwf("thread", "steps", thread).json[-1]["output"] == {
        "looks": [sight] * 3,
        "change": "It is new.",
        "word": "Fine",
    }
    assert Counter(tasks(each)[0] for each in server.asked[before:]) == {
        "Look at c.txt.": 1,
        "Doubt c.txt": 1,
        "Change note.txt": 2,
        "Say it in a word": 1,
    }
    assert Path("note.txt").read_text() == "old\n"
    branches = git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/uwf/work/").split()
    assert {each == thread: git("show", f"uwf/work/{each}:note.txt") for each in branches} == {
        True: "old",
        False: "new",
    }
    assert server.strays == []
    uwf("verify", "--strict")
