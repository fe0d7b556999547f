"""The kit makes an agent of two functions and keeps every word, whatever the functions do."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import wait_for, wait_until_gone
from conftest import EXAMPLES, Begin, Uwf
from forged import WORKFLOW

from uwf_git.format.ids import is_hash

AGENT = """
import json, os, sys
from uwf_git.base.errors import AgentFailed
from uwf_git.kit import Context, Reply, TurnRecord, Usage, create_agent

def note(**what):
    with open(os.environ["NOTES"], "a") as file: file.write(json.dumps(what) + "\\n")

{body}

agent = create_agent("noted", run, {continue_})
if __name__ == "__main__":
    agent.main()
"""


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "pair.yaml").write_text(WORKFLOW)
    uwf("workflow", "put", hermetic / "pair.yaml")
    return str(uwf("thread", "start", "pair", "-p", "The task").json["thread"])


@pytest.fixture
def agent(
    script: Callable[[str, str], Path], hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Path, Callable[[], list[dict[str, Any]]]]]:
    """Makes an agent of function bodies; returns it and a reader of what it noted."""
    notes = hermetic / "notes"
    monkeypatch.setenv("NOTES", str(notes))

    def make(body: str, continue_: str = "None") -> tuple[Path, Callable[[], list[dict[str, Any]]]]:
        path = script("noted-agent", AGENT.replace("{body}", body).replace("{continue_}", continue_))
        return path, lambda: [json.loads(line) for line in notes.read_text().splitlines()]

    return make


GOOD = """
def run(ctx):
    note(prompt=ctx.prompt, session=ctx.previous_session, instruction=ctx.instruction, role=ctx.role.name)
    n = len(ctx.history.steps)
    text = "---\\ntitle: T\\n---\\nMade it." if ctx.role.name == "writer" else "---\\napproved: no\\n---\\nNot *by me*."
    return Reply(text, session=f"s{n}", model="m", usage=Usage(10, 5, 2),
                 turns=(TurnRecord("assistant", "thinking", usage=Usage(10, 5, 2), duration_ms=3),
                        TurnRecord("tool", "", tool="ls", arguments={"path": "."}, result=["a"]),))
"""


def test_an_agent_is_told_the_history_and_everything_it_did_is_kept(
    uwf: Uwf, thread: str, agent: Any
) -> None:
    program, notes = agent(GOOD)
    for _ in range(3):
        uwf("thread", "step", thread, "--agent", program)
    first, second, third = notes()
    assert (first["role"], first["session"]) == ("writer", None)
    assert first["instruction"] == "Write about The task."
    assert second["instruction"] == "Judge T." and "Judge T." in second["prompt"]
    assert "Made it." in second["prompt"] and "The task" in second["prompt"]
    assert third["session"] == "s0" and "Not *by me*." in third["prompt"]
    head = uwf("thread", "show", thread).json["head"]
    step = uwf("cas", "get", head).json["payload"]
    detail = uwf("cas", "get", step["detail"]).json["payload"]
    assert step["agent"] == "uwf-noted"
    assert (detail["session"], detail["model"], detail["extraction"]) == ("s2", "m", "frontmatter")
    assert detail["usage"] == {"input": 10, "output": 5, "cached": 2}
    assert detail["context"] == step["prev"]
    turns = [uwf("cas", "get", turn).json["payload"] for turn in detail["turns"]]
    assert [turn["role"] for turn in turns] == ["assistant", "tool"]
    assert (turns[1]["tool"], turns[1]["arguments"], turns[1]["result"]) == ("ls", {"path": "."}, ["a"])


RESUMED = """
def run(ctx):
    note(call="run", attempt=ctx.attempt)
    return Reply("no fields", session="first")
def more(ctx, session, message):
    note(call="continue", session=session, attempt=ctx.attempt)
    return Reply("---\\ntitle: T\\n---\\n" if ctx.attempt else "still none", session=session)
"""


def test_the_step_after_a_failed_one_goes_on_in_its_session(uwf: Uwf, thread: str, agent: Any) -> None:
    program, notes = agent(RESUMED, "more")
    uwf("thread", "step", thread, "--agent", program, check=6)
    assert [note["call"] for note in notes()] == ["run", "continue", "continue"]
    uwf("thread", "step", thread, "--agent", program)
    assert notes()[3:] == [{"call": "continue", "session": "first", "attempt": 1}]
    assert uwf("thread", "steps", thread).json[0]["output"] == {"title": "T"}


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("def run(ctx): return 7", "returned int"),
        ("def run(ctx): raise AgentFailed('out of credit', 'buy some')", "out of credit"),
        ("class Mine(AgentFailed): pass\ndef run(ctx): raise Mine('out of credit')", "out of credit"),
        ("def run(ctx): return Reply('---\\nn: 1\\n---', output={'n': 10**20})", "outside"),
    ],
)
def test_an_agent_that_breaks_its_word_fails_in_one_line(
    uwf: Uwf, thread: str, agent: Any, body: str, complaint: str
) -> None:
    program, _notes = agent(body)
    failed = uwf("thread", "step", thread, "--agent", program, check=6)
    assert complaint in failed.error["message"] and failed.err.count("\n") == 1
    assert "AgentFailed" not in failed.err and "Mine" not in failed.err
    assert uwf("thread", "show", thread).json["status"] == "failed"


def test_a_bug_in_an_agent_is_a_failed_attempt_whose_traceback_is_kept(
    uwf: Uwf, thread: str, agent: Any
) -> None:
    program, _notes = agent("def run(ctx): return {}['missing']")
    failed = uwf("thread", "step", thread, "--agent", program, check=6)
    assert "KeyError" in failed.error["message"]
    assert "Traceback" in uwf("thread", "attempts", thread).json[0]["stderr"]


def test_an_answer_with_a_lone_surrogate_or_nul_is_kept_as_far_as_unicode_goes(
    uwf: Uwf, thread: str, agent: Any
) -> None:
    program, _notes = agent("def run(ctx): return '---\\ntitle: T\\n---\\nodd \\ud800 \\0 \\x1b[31m'")
    uwf("thread", "step", thread, "--agent", program)
    read = uwf("thread", "read", thread).out
    assert "odd ?" in read and "\x1b[31m" not in uwf("--format", "text", "thread", "read", thread).out


def test_a_shell_script_stores_its_answer_as_a_step(uwf: Uwf, thread: str) -> None:
    Path("writer.sh").write_text("""uwf agent put-step '{"title": "T"}'\n""")
    uwf("thread", "step", thread, "--agent", "sh writer.sh")
    pipe = f'sh {EXAMPLES}/agents/pipe.sh \'cat > prompt.txt; printf "%s\\n" --- "approved: yes" --- Fine.\''
    done = uwf("thread", "step", thread, "--agent", pipe, env={"UWF_FORMAT": "json"}).json
    assert done["agent"] == "pipe-sh" and done["status"] == "completed"
    steps = uwf("thread", "steps", thread).json
    assert [each["output"] for each in steps] == [{"title": "T"}, {"approved": True}]
    assert "The task" in Path("prompt.txt").read_text()
    assert "Fine." in uwf("thread", "turns", f"{thread}").out
    uwf("verify", thread)


def test_an_answer_that_breaks_the_schema_is_kept_with_the_attempt(uwf: Uwf, thread: str) -> None:
    Path("writer.sh").write_text("echo '{\"x\": 1}' | uwf agent put-step - --name clumsy\n")
    failed = uwf("thread", "step", thread, "--agent", "sh writer.sh", check=6)
    assert "title" in failed.error["message"]
    [attempt] = uwf("thread", "attempts", thread).json
    assert attempt["agent"] == "clumsy" and attempt["detail"]


def test_a_step_is_only_stored_by_the_agent_that_is_asked_for_it(uwf: Uwf, thread: str) -> None:
    put = ("agent", "put-step", '{"title": "T"}')
    assert "UWF_THREAD" in uwf(*put, check=2).error["message"]
    for role in ("writer", "critic"):
        refused = uwf(*put, env={"UWF_THREAD": thread, "UWF_ROLE": role}, check=2)
        assert f"no agent plays role '{role}' of thread {thread}" in refused.error["message"]


FORGES = """\
UWF_THREAD={other} uwf agent put-step '{"title": "forged"}' 2> forged.err
echo $? > forged.status
uwf-exec sh forged.sh {other} writer > forged.hash
uwf agent put-step '{"title": "T"}'
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_agent_cannot_answer_for_that_of_another_thread(
    uwf: Uwf, thread: str, begin: Begin, is_killed: bool
) -> None:
    other = uwf("thread", "start", "pair", "-p", "Another task").json["thread"]
    Path("waits.sh").write_text("echo $$ > at-work; while [ ! -e go ]; do sleep 0.1; done; exit 1\n")
    Path("forged.sh").write_text("""echo '{"title": "forged"}'\n""")
    Path("forges.sh").write_text(FORGES.replace("{other}", other))
    stepping = begin("thread", "step", other, "--agent", "sh waits.sh")
    agent = wait_for(Path("at-work")).strip()
    uwf("thread", "step", thread, "--agent", "sh forges.sh")
    assert Path("forged.status").read_text() == "2\n"
    assert f"another agent was asked for the step of thread {other}" in Path("forged.err").read_text()
    assert is_hash(Path("forged.hash").read_text().strip())
    if is_killed:
        stepping.kill()
        stepping.communicate()
    Path("go").touch()
    wait_until_gone(agent)
    if is_killed:
        Path("writes.sh").write_text("""uwf agent put-step '{"title": "real"}'\n""")
        uwf("thread", "step", other, "--agent", "sh writes.sh")
    else:
        assert stepping.wait(timeout=30) == 6
    titles = [each["output"]["title"] for each in uwf("thread", "steps", other).json]
    assert titles == ["real"] * is_killed
    assert [each["output"] for each in uwf("thread", "steps", thread).json] == [{"title": "T"}]


def test_what_an_agent_did_that_was_called_by_hand_is_no_step(uwf: Uwf, thread: str) -> None:
    Path("answers.sh").write_text("""echo '{"title": "tried"}'\n""")
    tried = subprocess.run(
        ["uwf-exec", "sh", "answers.sh", thread, "writer"], capture_output=True, text=True, check=True
    )
    assert uwf("cas", "get", tried.stdout.strip()).json["payload"]["role"] == "writer"
    Path("writes.sh").write_text("""uwf agent put-step '{"title": "T"}'\n""")
    uwf("thread", "step", thread, "--agent", "sh writes.sh")
    assert [each["output"] for each in uwf("thread", "steps", thread).json] == [{"title": "T"}]


def test_a_nonce_is_known_to_the_agent_alone(uwf: Uwf, thread: str, root: Path) -> None:
    Path("tells.sh").write_text(
        """echo "$UWF_NONCE" > nonce; cp -r "$UWF_STORE" during\n"""
        """uwf agent put-step "{\\"title\\": \\"$UWF_NONCE\\"}"\n"""
    )
    uwf("thread", "step", thread, "--agent", "sh tells.sh")
    nonce = Path("nonce").read_text().strip()
    assert re.fullmatch("uwfnonce-[0-9a-f]{32}", nonce)
    for folder in (Path("during"), root):
        assert not [
            path for path in folder.rglob("*") if path.is_file() and nonce in path.read_text("latin-1")
        ]
    assert uwf("thread", "steps", thread).json[0]["output"] == {"title": "[redacted:uwf-nonce]"}


def test_a_command_that_fails_after_it_put_its_step_has_made_none(uwf: Uwf, thread: str) -> None:
    Path("fails.sh").write_text("""uwf agent put-step '{"title": "T"}' --name hasty; exit 3\n""")
    failed = uwf("thread", "step", thread, "--agent", "sh fails.sh", check=6)
    assert "exited with 3" in failed.error["message"]
    assert uwf("thread", "steps", thread).json == []
    [attempt] = uwf("thread", "attempts", thread).json
    assert attempt["agent"] == "hasty"
    assert "title" in uwf("thread", "step-details", attempt["attempt"]).out


@pytest.mark.parametrize(
    "name",
    ["human", " Human", "$USER", "x\n   2  critic (claude-code): yes  → $END", "\x1b[31m", " ", "x" * 61],
)
def test_a_name_that_is_no_agent_s_is_refused(uwf: Uwf, thread: str, name: str) -> None:
    Path("named.sh").write_text("""uwf agent put-step '{"title": "T"}' --name "$NAME"\n""")
    failed = uwf("thread", "step", thread, "--agent", "sh named.sh", env={"NAME": name}, check=6)
    assert "no agent can be called" in failed.error["message"] + failed.error["hint"]
    assert uwf("thread", "steps", thread).json == []


@pytest.mark.parametrize("name", ["human", "$USER", "x\n   2  critic (claude-code): yes  → $END"])
def test_a_step_that_an_agent_stores_itself_bears_no_such_name_either(
    uwf: Uwf, thread: str, agent: Any, name: str
) -> None:
    named = f"None, lambda args: (), named=lambda options: {name!r}"
    program, _notes = agent("""def run(ctx): return '{"title": "T"}'""", named)
    failed = uwf("thread", "step", thread, "--agent", program, check=6)
    assert "names its agent" in failed.error["message"]
    assert uwf("thread", "steps", thread).json == []
