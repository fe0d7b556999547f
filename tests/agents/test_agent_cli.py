"""Agent CLIs that misbehave, played by small programs: each ends in one line that says what is wrong."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_programs import PINS
from cli_samples import write
from commands import alive
from conftest import REPOSITORY, Uwf
from loop_thread import AGAIN, DONE, TASK, WORKFLOW, detail, start_loop

from uwf_git.base.errors import AgentFailed
from uwf_git.base.errors import Usage as BadUsage
from uwf_git.config.policy import ToolPolicy, parse_policy
from uwf_git.engine.progress import Progress, Watch
from uwf_git.ext.agents.cli.calls import extra_for
from uwf_git.ext.agents.cli.output import Output
from uwf_git.ext.agents.cli.row import AgentRow, parse_row
from uwf_git.ext.agents.cli.rows import OBSERVED, shipped_names, shipped_row, shipped_value
from uwf_git.format.kinds import TurnRecord, Usage
from uwf_git.format.yaml12 import load
from uwf_git.store.instance import Instance

ROW = """\
agentClis:
  mycli:
    program: mycli
    install: get mycli
    version: {args: [--version], least: "1.2.0"}
    first: [run, "{args}"]
    resume: [run, --resume, "{session}", "{args}"]
    output: lines
    session: .id
    text: {path: .text, when: {type: result}}
    usage: {when: {type: result}, input: .in, output: .out, cost: .usd}
    turns:
      - {when: {type: said}, text: .text}
      - {when: {type: call}, call: .call, tool: .tool, arguments: .with}
      - {when: {type: came}, call: .call, result: .result}
    errors: {path: .error, when: {type: failed}}
    trouble:
      - {when: {type: retry}, say: "{.why}, attempt {.nth}"}
      - {from: stderr, match: "^Retry: (.*)"}
    denied: {path: .denied}
    login: please log in
    signIn: "run: mycli login"
    lost: no such session
"""

# What every stand-in begins with. Each call is noted, with what it was told.
HEAD = """\
import json, os, sys, time
from pathlib import Path
args = sys.argv[1:]
if args == ["--version"]:
    print(f"mycli {VERSION} (stand-in)"); sys.exit()
def message(): return "".join(part["text"] for part in json.loads(sys.stdin.readline())["message"]["content"])
prompt = "" if "-q" in args else message() if "--input-format" in args else sys.stdin.read()
resumed = args[args.index("--resume") + 1] if "--resume" in args else None
calls = Path(NOTES, "calls.jsonl")
before = len(calls.read_text().splitlines()) if calls.exists() else 0
with calls.open("a") as notes:
    print(json.dumps({"args": args, "prompt": prompt, "env": dict(os.environ)}), file=notes)
def tell(**value):
    print(json.dumps(value), flush=True)
def answer(text, **more):
    tell(type="result", text=text, **{"in": 100, "out": 7, "usd": 0.5, **more})
"""


@pytest.fixture
def stand_in(
    tmp_path: Path,
    script: Callable[[str, str], Path],
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Callable[[], list[dict[str, Any]]]]:
    """Makes a program that is called `name` and does what `body` says. Returns what tells its calls so far."""

    def make(body: str, name: str = "mycli", version: str = "1.3", row: str = ROW) -> Callable[[], Any]:
        path = script(name, f"VERSION, NOTES = {version!r}, {str(tmp_path)!r}\n{HEAD}{body}")
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        config(row)
        notes = tmp_path / "calls.jsonl"
        return lambda: [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    return make


def refused(instance: Instance, agent: str = "mycli", **more: Any) -> AgentFailed:
    """How a step by that agent fails."""
    with pytest.raises(AgentFailed) as caught:
        start_loop(instance, **more)(agent)
    assert "\n" not in caught.value.message
    return caught.value


FAILURES = {
    "says why": (
        'tell(id="s1"); tell(type="failed", error="quota is used\\nup"); sys.exit(1)',
        "mycli failed: quota is used up",
        "the quota of the account is used up",
    ),
    "says why on stderr": (
        'print("Loading…\\nError: disk on fire\\nbye", file=sys.stderr); sys.exit(145)',
        "mycli exited with 145: Error: disk on fire",
        "attempts",
    ),
    "prints an error of its service as it came": (
        'why = json.dumps({"error": {"message": "slow down", "status": "TOO_MANY"}})\n'
        'tell(type="failed", error="[API Error: " + json.dumps({"error": {"code": 429, "message": why}}) + "]")\n'
        "sys.exit(1)",
        "mycli failed: API Error: slow down (TOO_MANY)",
        "less often",
    ),
    "needs another Node": (
        'print("SyntaxError: Invalid flags\\n    at f (node:internal)", file=sys.stderr); sys.exit(1)',
        "mycli exited with 1: SyntaxError: Invalid flags",
        "a newer Node",
    ),
    "stumbles over an answer": (
        "print(\"Error: 'str' object has no attribute 'usage'\", file=sys.stderr); sys.exit(1)",
        "mycli exited with 1: the service's answer cannot be read: Error: 'str' object has no attribute 'usage'",
        "address",
    ),
    "has no room": (
        'tell(id="s1"); tell(type="failed", error="Prompt is too long"); sys.exit(1)',
        "mycli failed: Prompt is too long",
        "a new session",
    ),
    "is refused": (
        'tell(type="failed", error="Incomplete response returned, reason: content_filter"); sys.exit(1)',
        "mycli failed: Incomplete response returned, reason: content_filter",
        "rephrase the task",
    ),
    "gives up": (
        'tell(type="retry", why="busy", nth=1); tell(type="retry", why="on fire", nth=2); sys.exit(1)',
        "mycli exited with 1: on fire, attempt 2",
        "attempts",
    ),
    "dies": ("os.kill(os.getpid(), 9)", "mycli was ended by signal 9 and didn't say why", "attempts"),
    "isn't logged in": (
        'print("Oh: please log in first", file=sys.stderr); sys.exit(1)',
        "mycli is not logged in, or its key is refused: Oh: please log in first",
        "run: mycli login",
    ),
    "prints something else": (
        'print("<html>\\n<body>Hello!</body>\\x1b[2J")',
        "mycli printed what the row 'mycli' does not fit (nothing it looks for is there, output: lines): "
        "<html> ⏎ <body>Hello!</body>�[2J",
        "agentClis.mycli",
    ),
    "has renamed a field": (
        'tell(id="s1"); tell(type="result", answer="x")',
        "mycli printed what the row 'mycli' does not fit (no text): "
        '{"id": "s1"} ⏎ {"type": "result", "answer": "x"}',
        "agentClis.mycli",
    ),
    "prints nothing": ("", "mycli exited with 0 and printed nothing", "mycli --help"),
    "says nothing": ('tell(id="s1"); answer(" ")', "mycli gave an empty answer", "another model"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_cli_that_fails_is_told_in_one_line(
    what: str, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    body, message, hint = FAILURES[what]
    stand_in(body)
    failure = refused(instance)
    assert failure.message == message
    assert hint in failure.hint and "attempts ID" not in failure.hint


def test_a_stream_that_breaks_off_in_opencode_is_told(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(type="step_finish", sessionID="s1", part={"reason": "unknown", "tokens": {"output": 0}})\n'
        "sys.exit(1)",
        name="opencode",
        version="99.0",
    )
    failure = refused(instance, "uwf-opencode")
    assert failure.message == "opencode exited with 1: the model's answer broke off, or cannot be read"


def test_an_answer_of_opencode_in_which_nothing_is_said_is_told(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(type="step_finish", sessionID="s1", part={"reason": "stop", "tokens": {"output": 7}})',
        name="opencode",
        version="99.0",
    )
    assert refused(instance, "uwf-opencode").message == "opencode gave an empty answer"


def test_a_cli_that_is_missing_or_too_old_is_named_with_how_to_get_it(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in('print("unknown option: run", file=sys.stderr); sys.exit(2)', version="1.1.9")
    old = refused(instance)
    assert old.message == "mycli 1.1.9 is too old, at least 1.2.0 is needed: unknown option: run"
    assert old.hint == "bring it up to date: get mycli"
    missing = refused(instance, "uwf-codex")
    assert missing.message == "codex is not installed, or not on PATH"
    assert missing.hint == "install it: npm install -g @openai/codex"
    with pytest.raises(AgentFailed, match="no agent CLI called 'mycly'") as caught:
        start_loop(instance)("uwf-cli mycly")
    assert caught.value.hint == 'did you mean "mycli"?'


def test_a_resume_that_opens_another_session_is_stopped_and_begun_anew(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    calls = stand_in(
        'tell(id=f"s{before}"); tell(type="said", text="I begin.")\n'
        f'if resumed: time.sleep(60); Path({str(tmp_path)!r}, "went-on").touch()\n'
        f"answer({AGAIN!r} if before < 2 else {DONE!r})"
    )
    work = start_loop(instance)
    first, _ = detail(instance, work("mycli"))
    assert first["session"] == "s0"
    second, turns = detail(instance, work("mycli"))
    assert [call["args"][1:] for call in calls()] == [[], ["--resume", "s0"], []]
    resumed, anew = (call["prompt"] for call in calls()[1:])
    assert "Not yet." not in resumed
    assert "Not yet." in anew and TASK in anew
    assert second["session"] == "s2"
    assert second["notes"] == [
        "session s0 of mycli could not be resumed: it opened s1 instead; begun anew with the whole context"
    ]
    assert not (tmp_path / "went-on").exists()
    assert [turn["text"] for turn in turns] == ["I begin."]
    assert (second["usage"], second["cost"]) == ({"input": 100, "output": 7, "cached": 0}, 0.5)


def test_what_gemini_says_of_a_blocked_answer_is_told(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(type="init", session_id="s1", model="gemini-2.5-flash")\n'
        'tell(type="error", severity="error", message="The model response was blocked due to safety settings.")\n'
        'tell(type="result", status="error", stats={})',
        name="gemini",
        version="0.61.0",
        row="{}",
    )
    failure = refused(instance, "uwf-gemini")
    assert "The model response was blocked due to safety settings" in failure.message
    assert "does not fit" not in failure.message


OPENCODE = """\
tell(type="text", sessionID="ses_1", part={"text": ANSWER, "messageID": "m1"})
tokens = {"input": 1000, "output": 100, "reasoning": 0, "cache": {"read": 0, "write": 0}}
tell(type="step_finish", sessionID="ses_1", part={"reason": "stop", "cost": 0, "tokens": tokens, "messageID": "m1"})
"""


def test_a_limit_in_money_binds_opencode_by_the_model_that_it_is_told(
    uwf: Uwf, stand_in: Callable[..., Any]
) -> None:
    price = (
        "models:\n  m: {provider: p, name: the-model, price: {input: 2, output: 10}}\nproviders:\n  p: {}\n"
    )
    stand_in(OPENCODE.replace("ANSWER", repr(AGAIN)), name="opencode", version="1.18.0", row=price)
    uwf("workflow", "put", write("loop.yaml", WORKFLOW.replace("TOOLS\n", "")))
    agent = "uwf-opencode -m gateway/the-model"
    thread = uwf("thread", "start", "loop", "-p", "x", "--max-cost", "0.005").json["thread"]
    done = uwf("thread", "run", thread, "--agent", agent, check=5)
    assert "price" not in done.err
    steps = uwf("thread", "steps", thread).json
    assert len(steps) == 2
    assert uwf("thread", "budget", thread).json["budget"][0]["used"] == pytest.approx(0.006)
    other = uwf("thread", "start", "loop", "-p", "x", "--max-cost", "0.005").json["thread"]
    warned = uwf("thread", "step", other, "--agent", "uwf-opencode").err
    assert "opencode says 0 of a model whose price it doesn't know" in warned


FULL = (
    "prompt is too long: 210000 tokens > 200000 maximum",
    "context_length_exceeded: This model's maximum context length is 128000 tokens",
    "Codex ran out of room in the model's context window. Start a new conversation or clear earlier history",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)",
    "API Error: unable to respond to this request. Start a new session to continue.",
)


@pytest.mark.parametrize("error", FULL)
def test_a_session_that_is_full_is_left_at_once(
    error: str, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    calls = stand_in(
        f"if resumed:\n    tell(id=resumed); tell(type='failed', error={error!r}); sys.exit(1)\n"
        f"tell(id=f's{{before}}'); answer({AGAIN!r} if before < 1 else {DONE!r})"
    )
    work = start_loop(instance)
    work("mycli")
    with pytest.raises(AgentFailed):
        work("mycli")
    made, _ = detail(instance, work("mycli"))
    assert [call["args"][1:] for call in calls()] == [[], ["--resume", "s0"], []]
    assert made["session"] == "s2" and "Not yet." in calls()[-1]["prompt"]


def test_after_three_failures_in_a_session_a_step_begins_another(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    calls = stand_in(
        "if resumed:\n    tell(id=resumed); tell(type='failed', error='I am confused'); sys.exit(1)\n"
        f"tell(id=f's{{before}}'); answer({AGAIN!r} if before < 1 else {DONE!r})"
    )
    work = start_loop(instance)
    work("mycli")
    for _ in range(3):
        with pytest.raises(AgentFailed):
            work("mycli")
    assert work("mycli").done
    assert [call["args"][1:] for call in calls()] == [[], *[["--resume", "s0"]] * 3, []]


LOST = 'print("no such session: it is gone", file=sys.stderr); sys.exit(4)'


@pytest.mark.parametrize(
    ("failing", "starts", "words"),
    [
        (LOST, 3, "session s0 of mycli could not be resumed: no such session: it is gone"),
        ('print("bad flag", file=sys.stderr); sys.exit(2)', 3, "could not be resumed: bad flag"),
        ('tell(type="failed", error="429 slow down"); sys.exit(1)', 2, ""),
        ('print("please log in", file=sys.stderr); sys.exit(1)', 2, ""),
    ],
)
def test_only_a_session_that_is_lost_makes_a_role_begin_anew(
    failing: str, starts: int, words: str, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    body = f"if resumed:\n    {failing}\ntell(id=f's{{before}}'); answer({AGAIN!r})"
    calls = stand_in(body)
    work = start_loop(instance)
    work("mycli")
    if words:
        note, *_ = detail(instance, work("mycli"))[0]["notes"]
        assert words in note
    else:
        with pytest.raises(AgentFailed):
            work("mycli")
    assert len(calls()) == starts


def test_a_correction_in_a_lost_session_tells_the_whole_context_and_the_last_answer(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    body = f"if resumed:\n    {LOST}\ntell(id=f's{{before}}'); answer({DONE!r} if before else 'All is done!')"
    calls = stand_in(body)
    made, _ = detail(instance, start_loop(instance)("mycli"))
    assert made["extraction"] == "correction"
    correction, anew = (call["prompt"] for call in calls()[1:])
    assert correction.startswith("Your answer can't be taken yet:")
    assert TASK in anew and "All is done!" in anew and "Your answer can't be taken yet:" in anew


# Rows of programs without sessions, and of one that is given the id of its session and never prints it.
MUTE = ROW.replace('    resume: [run, --resume, "{session}", "{args}"]\n', "").replace(
    "    session: .id\n", ""
)
GIVEN = ROW.replace('first: [run, "{args}"]', 'first: [run, --id, "{new}", "{args}"]').replace(
    "    session: .id\n", ""
)


def test_a_program_without_sessions_is_corrected_by_telling_it_all_again(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    calls = stand_in(f"answer(['Done, I think.', 'It is.', {DONE!r}][before])", row=MUTE)
    made, turns = detail(instance, start_loop(instance)("mycli"))
    assert (made["extraction"], made["usage"]) == ("correction", {"input": 300, "output": 21, "cached": 0})
    assert made["session"] is None
    assert made["notes"][-1] == "mycli cannot continue in a session: it is told all again"
    task, first, second = (call["prompt"] for call in calls())
    assert TASK in task and first.startswith(task) and second.startswith(task)
    assert "Done, I think." in first and "Your answer can't be taken yet:" in first
    assert "It is." in second and "Done, I think." not in second
    assert [turn["role"] for turn in turns] == ["assistant", "user"] * 2 + ["assistant"]


def test_a_session_whose_id_was_given_is_gone_on_with(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    calls = stand_in(f"answer({AGAIN!r} if before else 'Done, I think.')", row=GIVEN)
    work = start_loop(instance)
    made, _ = detail(instance, work("mycli"))
    work("mycli")
    first, correction, second = (call["args"] for call in calls())
    assert first[:2] == ["run", "--id"] and first[2] == made["session"]
    assert correction == second == ["run", "--resume", made["session"]]
    assert TASK not in calls()[1]["prompt"]
    assert made["notes"] == ["mycli printed no turns where its row looks for them"]


def test_two_rows_on_one_role_do_not_share_sessions(instance: Instance, stand_in: Callable[..., Any]) -> None:
    row = ROW + ROW.removeprefix("agentClis:\n").replace("  mycli:\n", "  other:\n", 1)
    calls = stand_in(f"tell(id='s'); answer({AGAIN!r})", row=row)
    work = start_loop(instance)
    work("mycli")
    work("uwf-cli other --fast")
    assert [call["args"] for call in calls()] == [["run"], ["run", "--fast"]]
    assert "Not yet." in calls()[1]["prompt"]


def test_turns_of_any_size_are_kept_in_their_order(instance: Instance, stand_in: Callable[..., Any]) -> None:
    stand_in(
        'tell(id="s1", denied="Shell"); tell(type="said", text="Two calls.")\n'
        'sys.stdout.buffer.write(b"\\xff no JSON {\\n{broken\\n"); sys.stdout.flush()\n'
        'tell(type="call", call="a", tool="read", **{"with": {"path": "a.txt"}})\n'
        'tell(type="call", call="b", tool="read", **{"with": {"path": "b.txt"}})\n'
        'tell(type="came", call="b", result="x" * 10_000_000); tell(type="came", call="a", result=["short"])\n'
        f'tell(type="call", call="c", tool="read"); tell(type="said", text={DONE!r}); answer({DONE!r})'
    )
    made, turns = detail(instance, start_loop(instance)("mycli"))
    assert [(turn["role"], turn.get("tool"), turn.get("call")) for turn in turns] == [
        ("assistant", None, None),
        *(("tool", "read", call) for call in "ab"),
        ("assistant", None, None),
        ("tool", "read", "c"),
    ]
    assert (turns[1]["arguments"], turns[1]["result"]) == ({"path": "a.txt"}, ["short"])
    assert turns[2]["result"].endswith("\n[… 9800000 more characters are left out …]")
    assert turns[4]["failed"] is True  # nothing came of it
    assert made["notes"] == ["mycli was not allowed: Shell"]


def test_whatever_a_tool_was_given_the_answer_is_kept(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(id={"odd": 1}); tell(type="said", text=["x"]); tell(type="call", call={}, tool=[])\n'
        'print(\'{"type": "call", "call": "a", "tool": "t", "with": {"deep": %s, "n": 1e999, "i": %s}}\''
        ' % ("[" * 5000 + "]" * 5000, "9" * 5000)); tell(type="came", call="a", result=float("nan"))\n'
        f"answer({DONE!r})"
    )
    made, turns = detail(instance, start_loop(instance)("mycli"))
    assert made["answer"] == DONE
    given = turns[-1]["arguments"]
    while isinstance(given["deep"], list):
        (given["deep"],) = given["deep"]
    assert given["deep"].startswith("[[[[") and given["n"] == "1e999" and given["i"] == "9" * 5000
    assert turns[-1]["result"] == "NaN"


def test_a_row_whose_paths_lead_nowhere_is_noted_and_a_broken_one_stops_only_its_users(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        f"answer({DONE!r})",
        row=ROW.replace("session: .id", "session: .sid") + "  bad: {frist: [], program: x}\n",
    )
    outcome = start_loop(instance)("mycli")
    assert instance.store.get(outcome.head).payload["agent"] == "uwf-cli/mycli"
    made, _ = detail(instance, outcome)
    assert [note.split(" where")[0] for note in made["notes"]] == [
        "mycli printed no session id",
        "mycli printed no turns",
    ]
    with pytest.raises(AgentFailed, match=r"unknown key 'frist'.*; first is missing"):
        start_loop(instance)("bad")


def test_a_turn_is_told_as_soon_as_it_is_whole() -> None:
    told: list[TurnRecord] = []
    output = Output(row_of("gemini"), told.append)
    for value in (
        {"type": "message", "role": "assistant", "content": "I lo", "delta": True},
        {"type": "message", "role": "assistant", "content": "ok.", "delta": True},
        {"type": "tool_use", "tool_name": "read_file", "tool_id": "t", "parameters": {}},
    ):
        assert told == []
        output.feed(json.dumps(value).encode() + b"\n")
    assert [turn.text for turn in told] == ["I look."]
    output.feed(b'{"type":"tool_result","tool_id":"t","status":"error","output":"no')
    assert len(told) == 1
    output.feed(b' such file"}\n')
    assert (told[1].tool, told[1].result, told[1].failed) == ("read_file", "no such file", True)
    assert output.end().turns == tuple(told)


def test_a_command_of_codex_that_never_ends_is_a_turn() -> None:
    item = {"id": "item_1", "type": "command_execution", "command": "sleep 999", "aggregated_output": ""}
    said = {"id": "item_2", "type": "agent_message", "text": "It runs."}
    output = Output(row_of("codex"))
    for value in (
        {"type": "item.started", "item": {**item, "id": "item_0", "command": "ls", "status": "in_progress"}},
        {"type": "item.completed", "item": {**item, "id": "item_0", "command": "ls", "status": "completed"}},
        {"type": "item.started", "item": {**item, "status": "in_progress"}},
        {"type": "item.completed", "item": said},
    ):
        output.feed(json.dumps(value).encode() + b"\n")
    turns = output.end().turns
    calls = [(turn.arguments, turn.failed, turn.result) for turn in turns if turn.role == "tool"]
    assert calls == [("ls", False, ""), ("sleep 999", True, None)]
    assert [turn.text for turn in turns if turn.text] == ["It runs."]


def test_what_runs_out_of_time_is_kept_with_the_attempt(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    limit = "agents:\n  slow: {command: uwf-cli, args: [mycli], timeout: 3s}\n"
    calls = stand_in(
        f'tell(id="s9"); tell(type="said", text="So far."); tell(type="said", text="…")\n'
        f"if resumed: answer({DONE!r}); sys.exit()\n"
        "time.sleep(120)",
        row=limit + ROW,
    )
    work = start_loop(instance)
    with pytest.raises(
        AgentFailed,
        match=r"mycli ran out of time after .*s, silent for the last \d.*s; it waited for the model; last seen: …",
    ) as caught:
        work("slow")
    assert caught.value.hint.startswith("does the model's service answer? If it is only slow, raise agents.")
    made = work("slow")
    assert made.done
    assert calls()[1]["args"] == ["run", "--resume", "s9"]
    assert "ran out of time" in calls()[1]["prompt"]
    (attempt,) = instance.attempts.all(made.thread)
    kept = instance.store.get(attempt.detail).payload
    assert [instance.store.get(turn).payload["text"] for turn in kept["turns"]] == ["So far.", "…"]


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (
            "row",
            "mycli was ended, for it printed nothing after 2s, silent for the last 2s; last seen: call of look",
        ),
        (
            "exec",
            "quiet was ended, for it printed nothing after 2s, silent for the last 2s; it said last: begun",
        ),
        (
            "command",
            "quiet was ended, for it printed nothing after 2s, silent for the last 2s; it said last: begun",
        ),
    ],
)
def test_a_program_that_falls_silent_is_ended_and_told_with_what_was_seen_last(
    agent: str,
    told: str,
    instance: Instance,
    stand_in: Callable[..., Any],
    script: Callable[[str, str], Path],
) -> None:
    quiet = script(
        "quiet", "import sys, time\nprint('begun', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    stand_in(
        'tell(id="s1"); tell(type="said", text="I look."); tell(type="call", call="c", tool="look")\n'
        "time.sleep(600)",
        row="agents:\n"
        "  row: {command: uwf-cli, args: [mycli], silence: 2s}\n"
        f"  exec: {{command: uwf-exec, args: [{quiet}], silence: 2s}}\n"
        f"  command: {{command: {quiet}, silence: 2s}}\n" + ROW,
    )
    with pytest.raises(AgentFailed) as caught:
        start_loop(instance)(agent)
    said = re.sub(r"^\S*quiet\S*|^/\S+", "quiet", caught.value.message)
    assert re.sub(r"\b[2-9]s\b", "2s", said) == told
    assert "silence" in caught.value.hint


def test_trouble_that_a_program_got_over_is_not_why_it_was_ended(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(type="retry", why="429", nth=1); tell(type="said", text="On with it.")\n'
        'tell(type="said", text="More."); time.sleep(600)',
        row="agents: {row: {command: uwf-cli, args: [mycli], timeout: 2s}}\n" + ROW,
    )
    assert "ran out of time" in refused(instance, "row").message


def test_a_program_that_goes_on_printing_is_not_silent(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        f"for n in range(8): tell(type='said', text=str(n)); time.sleep(0.5)\nanswer({DONE!r})",
        row="agents: {row: {command: uwf-cli, args: [mycli], silence: 2s}}\n" + ROW,
    )
    assert start_loop(instance)("row").done


def test_what_a_cli_has_trouble_with_is_shown_while_it_tries_and_kept_when_its_time_is_up(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    limit = "agents:\n  slow: {command: uwf-cli, args: [mycli], timeout: 6s}\n"
    stand_in(
        'tell(id="s9"); tell(type="said", text="So far.", id="s9")\n'
        'tell(type="retry", why="busy", nth=1)\n'
        'for _ in range(2): print(\'Retry: {"error": {"message": "busy", "code": 429}}\', file=sys.stderr,'
        " flush=True)\n"
        'print("at f (x.js:1)", file=sys.stderr, flush=True)\n'
        f'Path({str(tmp_path)!r}, "told").touch()\n'
        'tell(type="result", **{"in": 60, "out": 5, "usd": 0.25})\n'
        "time.sleep(120)",
        row=limit + ROW,
    )
    work = start_loop(instance)
    (thread,) = instance.threads.ids()
    seen: list[str] = []

    def look() -> None:
        while not (tmp_path / "told").exists():
            time.sleep(0.05)
        while not (seen and seen[-1]) and not over.wait(0.05):
            seen.append(now.line if (now := instance.runs.now(thread)) else "")

    over = threading.Event()
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with pytest.raises(AgentFailed) as caught:
            work("slow")
    finally:
        over.set()
        watcher.join()
    trouble = "mycli failed: busy (429) (2 times); it was still trying when it was ended after "
    assert caught.value.message.startswith(trouble)
    assert caught.value.hint == "wait, or ask the service less often"
    assert seen[-1] == "mycli: busy (429)"
    (attempt,) = instance.attempts.all(thread)
    assert '"why": "busy"' in attempt.stdout and "at f (x.js:1)" in attempt.stderr
    kept = instance.store.detail(attempt.detail)
    assert kept.notes == ("mycli: busy, attempt 1", "mycli: busy (429) (2 times)")
    assert (kept.usage, kept.cost, kept.session) == (Usage(60, 5), 0.25, "s9")
    (turn,) = instance.store.turns(kept)
    assert turn.text == "So far."


@pytest.mark.parametrize(
    ("why", "ends"),
    [
        ("You exceeded your current quota, please check your plan and billing details.", True),
        ("Quota exceeded for requests per minute, retry in 2s", False),
    ],
)
def test_a_cli_whose_quota_is_used_up_is_ended_before_its_time_is_up(
    why: str, ends: bool, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    body = f'tell(id="s1")\nfor n in range(3): tell(type="retry", why={why!r}, nth=n); time.sleep(0.1)\n'
    limit = "agents:\n  slow: {command: uwf-cli, args: [mycli], timeout: 300s}\n"
    stand_in(f"{body}time.sleep(600) if {ends} else answer({DONE!r})", row=limit + ROW)
    work = start_loop(instance)
    if not ends:
        assert work("slow").done
        return
    with pytest.raises(AgentFailed) as caught:
        work("slow")
    assert caught.value.message == f"mycli failed: {why}, attempt 1"
    assert caught.value.hint.startswith("the quota of the account is used up")


def test_the_model_and_tokens_that_a_cli_tells_of_are_seen_while_it_works(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    metered = ROW.replace("    usage: {when: {type: result}", "    model: .model\n    usage: {total: sum")
    go = tmp_path / "go"
    stand_in(
        'tell(id="s1", model="m-1"); tell(**{"in": 90, "out": 10})\n'
        'if not resumed: answer("No fields.", **{"in": 5, "out": 1}); sys.exit()\n'
        f"while not Path({str(go)!r}).exists(): time.sleep(0.05)\nanswer({DONE!r})",
        row=metered,
    )
    work = start_loop(instance)
    (thread,) = instance.threads.ids()
    seen: list[Progress] = []

    def look() -> None:
        watch = Watch(instance)
        while not over.wait(0.05):
            now = watch.step(thread)
            if now and now.tokens >= 206:  # of the first answer and of its correction
                seen.append(now)
                break
        go.touch()

    over = threading.Event()
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        work("mycli")
    finally:
        over.set()
        watcher.join()
    assert [(now.model, now.tokens) for now in seen] == [("m-1", 206)]


def test_what_was_spent_until_somebody_interrupted_it_counts(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in(
        'tell(id="s9"); tell(type="said", text="So far."); tell(type="result", **{"in": 60, "out": 5})\n'
        "time.sleep(0.5); os.kill(os.getppid(), 2); time.sleep(60)"
    )
    work = start_loop(instance)
    with pytest.raises(KeyboardInterrupt):
        work("mycli")
    (attempt,) = instance.attempts.all(*instance.threads.ids())
    kept = instance.store.detail(attempt.detail)
    assert (kept.answer, kept.usage, kept.session) == ("So far.", Usage(60, 5), "s9")


def test_a_key_that_is_refused_twice_ends_the_attempt_and_one_that_was_renewed_does_not(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    refusal = 'tell(id="s1", type="retry", why="please log in", nth=1)'
    stand_in(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        f"Path({str(tmp_path)!r}, 'child').write_text(str(child.pid))\n"
        f"if before: {refusal}; tell(type='said', text={DONE!r}); answer({DONE!r}); sys.exit()\n"
        f"{refusal}\n{refusal}\ntime.sleep(300)"
    )
    failure = refused(instance)
    assert failure.message == "mycli is not logged in, or its key is refused: please log in, attempt 1"
    assert failure.hint == "run: mycli login"
    assert not alive((tmp_path / "child").read_text())
    made, _ = detail(instance, start_loop(instance)("mycli"))
    assert made["answer"] == DONE
    assert made["notes"] == ["mycli had trouble 1 time: please log in, attempt 1"]


def test_a_key_that_is_refused_in_mid_work_keeps_what_was_said_and_spent(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    refusal = 'tell(id="s1", type="retry", why="please log in", nth=1)'
    stand_in(
        'tell(id="s1"); tell(type="call", call="c1", tool="read"); tell(type="came", call="c1", result="it")\n'
        'tell(type="said", text="Much is done."); tell(type="result", **{"in": 60, "out": 5, "usd": 0.25})\n'
        f"{refusal}\n{refusal}\ntime.sleep(300)"
    )
    failure = refused(instance)
    assert failure.message == "mycli is not logged in, or its key is refused: please log in, attempt 1"
    assert (failure.hint, failure.exit_status) == ("run: mycli login", 6)
    (attempt,) = instance.attempts.all(*instance.threads.ids())
    kept = instance.store.detail(attempt.detail)
    assert (kept.usage, kept.cost, kept.session) == (Usage(60, 5), 0.25, "s1")
    assert [turn.text for turn in instance.store.turns(kept)] == ["", "it", "Much is done."]


def test_model_tokens_and_cost_come_from_wherever_the_program_says_them(
    instance: Instance, stand_in: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROW.replace(
        "    usage: {when: {type: result}, input: .in, output: .out, cost: .usd}\n",
        "    log: [$NOT_SET/x.jsonl, '$MY_LOGS/*/{session:3}-{session}.jsonl']\n"
        "    model: [{from: log, path: .model, when: {kind: turn}}, .model]\n"
        "    usage:\n"
        "    - {when: {type: result}, input: .in, output: .out, total: sum}\n"
        "    - {when: {type: result}, each: '.by[]', cost: .usd, guess: {basis: guess}}\n"
        "    - {when: {type: result, by: null}, cost: .usd}\n"
        "    - {from: log, when: {kind: turn}, input: .in, output: .out, by: .id, total: sum}\n",
    )
    monkeypatch.setenv("MY_LOGS", str(tmp_path / "[logs]"))
    logged = (
        f"log = Path({str(tmp_path)!r}, '[logs]', 'a', 'ses-session1.jsonl')\n"
        "log.parent.mkdir(parents=True, exist_ok=True)\n"
        "def note(**value):\n"
        "    with log.open('a') as file: print(json.dumps(dict(kind='turn', **value)), file=file)\n"
        "tell(id='session1', model='auto')\n"
        "note(id=1, model='small', **{'in': 1, 'out': 1}); note(id=1, model='small', **{'in': 10, 'out': 2})\n"
        "note(id=2, model='large', **{'in': 20, 'out': 3})\n"
    )

    def kept(rest: str) -> tuple[Any, ...]:
        stand_in(logged + rest, row=row)
        made, _ = detail(instance, start_loop(instance)("mycli"))
        return made["model"], made["usage"]["input"], made["usage"]["output"], made.get("cost")

    assert kept(f"answer({DONE!r})") == ("large", 100, 7, 0.5)
    assert kept(f"answer({DONE!r}, by=[dict(usd=0.1), dict(usd=0.2)])")[3] == pytest.approx(0.3)
    assert kept(f"answer({DONE!r}, by=[dict(usd=0.1), dict(usd=0.2, basis='guess')])")[3] is None
    assert kept(f"answer({DONE!r}, usd=0)")[3] is None
    assert kept(f"tell(type='result', text={DONE!r})")[:3] == ("large", 30, 5)


def test_tokens_are_read_as_people_write_them(instance: Instance, stand_in: Callable[..., Any]) -> None:
    row = """\
agentClis:
  mycli:
    program: mycli
    first: []
    text: {match: '(?s)(---.*?)\\nTokens:'}
    usage:
      input: {match: 'Tokens: ([0-9.,]+[kM]?) sent'}
      output: {match: '([0-9.,]+[kM]?) received'}
      cost: {match: '\\$([0-9.]+) message'}
"""
    stand_in(
        "for said in ('1.5k sent, 1,024 received', '20 sent, lots received'):\n"
        f"    print({DONE!r} + 'Tokens: ' + said + '. Cost: $0.02 message, $0.30 session.')",
        row=row,
    )
    made, _ = detail(instance, start_loop(instance)("mycli"))
    assert (made["usage"], made["cost"]) == ({"input": 1520, "output": 1024, "cached": 0}, 0.04)


def test_the_environment_is_the_users_without_other_sessions(
    instance: Instance, stand_in: Callable[..., Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROW + "    env: {MYCLI_UPDATES: 'off', MYCLI_COLOUR: 'no'}\n    unset: [MYCLI_NESTED]\n"
    row += "    keys: [SOME_KEY]\n"
    calls = stand_in(f"tell(id='s'); answer({DONE!r})", row=row)
    (root / ".env").write_text("SOME_KEY=from-dot-env\nOTHER_KEY=not-for-it\n")
    for name in ("CLAUDECODE", "CODEX_SANDBOX", "MYCLI_NESTED"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MYCLI_COLOUR", "the user's")
    start_loop(Instance.open())("mycli")
    (call,) = calls()
    env = call["env"]
    assert {"CLAUDECODE", "CODEX_SANDBOX", "MYCLI_NESTED", "OTHER_KEY"}.isdisjoint(env)
    assert (env["MYCLI_UPDATES"], env["MYCLI_COLOUR"]) == ("off", "the user's")
    assert (env["SOME_KEY"], env["UWF_ROLE"]) == ("from-dot-env", "worker")
    assert env["UWF_STORE"] == str(root / "store.git")


def test_a_prompt_too_long_for_an_argument_is_in_a_file(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    row = ROW.replace('first: [run, "{args}"]', 'first: [run, -q, "{prompt}"]').replace(
        "output: lines", "prompt: argument\n    output: lines"
    )
    row = row.replace('"{session}", "{args}"]', '"{session}", -q, "{prompt}"]')
    body = (
        "import re; said = args[args.index('-q') + 1]\n"
        "path = re.search(r'in the file (\\S+)\\.', said)\n"
        f"read = path and 'x' * 300_000 in open(path[1]).read()\n"
        f"tell(id='s'); answer({DONE!r} if read else 'no file: ' + said[:200])"
    )
    calls = stand_in(body, row=row)
    assert start_loop(instance, task="x" * 300_000)("mycli").done
    assert len(calls()) == 1


def test_cursors_documented_output_is_understood(instance: Instance, stand_in: Callable[..., Any]) -> None:
    init = {"type": "system", "subtype": "init", "session_id": "c-1", "model": "Some Model"}
    call: dict[str, Any] = {"type": "tool_call", "call_id": "t1", "session_id": "c-1"}
    asked = {**call, "subtype": "started", "tool_call": {"readToolCall": {"args": {"path": "a"}}}}
    came = {"readToolCall": {"args": {"path": "a"}, "result": {"success": {"content": "x"}}}}
    lines = [
        init,
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "…"}]}},
        *({"type": "assistant", "message": {"content": [{"type": "text", "text": "I look."}]}},),
        asked,
        {**call, "subtype": "completed", "tool_call": came},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": DONE}]}},
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": f"I look.{DONE}",
            "session_id": "c-1",
        },
    ]
    calls = stand_in(f"for value in json.loads({json.dumps(lines)!r}): tell(**value)", name="cursor-agent")
    made, turns = detail(instance, start_loop(instance)("uwf-cursor --model x"))
    args = calls()[0]["args"]
    assert args[:6] == ["-p", "--output-format", "stream-json", "--force", "--model", "x"]
    assert TASK in args[6]
    assert (made["answer"].strip(), made["session"], made["model"]) == (DONE.strip(), "c-1", "Some Model")
    assert [(turn["role"], turn.get("tool")) for turn in turns] == [
        ("assistant", None),
        ("tool", "readToolCall"),
        ("assistant", None),
    ]
    assert turns[1]["result"] == {"success": {"content": "x"}}


REMARK = f"I expect to say:\n{DONE}\nFirst I look."


def _said(name: str, text: str) -> dict[str, Any]:
    return {
        "type": name,
        "message": {"id": text[:9], "content": [{"type": "text", "text": text}]},
        "session_id": "s1",
    }


def _called(name: str) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    return [
        {"type": name, "message": {"id": "m2", "content": [use]}, "session_id": "s1"},
        {"type": "user", "message": {"content": [result]}, "session_id": "s1"},
    ]


_INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "m"}
_RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": DONE, "session_id": "s1"}
_CLAUDE = [_INIT, _said("assistant", REMARK), *_called("assistant"), _said("assistant", DONE), _RESULT]
_PART = {"messageID": "m1", "callID": "c1", "tool": "bash"}
STREAMS: dict[str, list[dict[str, Any]]] = {
    "claude-code": [*_CLAUDE[:-1], {**_RESULT, "stop_reason": "end_turn", "terminal_reason": "completed"}],
    "qwen": _CLAUDE,
    "cursor": [
        _INIT,
        _said("assistant", REMARK),
        {"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": {"read": {"args": {}}}},
        {"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": {"read": {"result": {}}}},
        _said("assistant", DONE),
        _RESULT,
    ],
    "codex": [
        {"type": "thread.started", "thread_id": "s1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i0", "type": "agent_message", "text": REMARK}},
        {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "make"}},
        {"type": "item.completed", "item": {"id": "i1", "type": "command_execution", "command": "make"}},
        {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": DONE}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ],
    "gemini": [
        {"type": "init", "session_id": "s1", "model": "m"},
        {"type": "message", "role": "assistant", "content": REMARK, "delta": True},
        {"type": "tool_use", "tool_id": "t", "tool_name": "sh", "parameters": {}},
        {"type": "tool_result", "tool_id": "t", "output": "ok", "status": "success"},
        {"type": "message", "role": "assistant", "content": DONE, "delta": True},
        {"type": "result", "status": "success", "stats": {}},
    ],
    "opencode": [
        {"type": "text", "sessionID": "s1", "part": {**_PART, "text": REMARK}},
        {"type": "tool_use", "sessionID": "s1", "part": {**_PART, "state": {"status": "completed", "output": "ok"}}},
        {"type": "step_finish", "sessionID": "s1", "part": {"reason": "tool-calls"}},
        {"type": "text", "sessionID": "s1", "part": {"messageID": "m2", "text": DONE}},
        {"type": "step_finish", "sessionID": "s1", "part": {"reason": "stop"}},
    ],
    "copilot": [
        {"type": "assistant.message", "data": {"content": REMARK}},
        {"type": "tool.execution_start", "data": {"toolCallId": "t", "toolName": "bash", "arguments": {}}},
        {"type": "tool.execution_complete", "data": {"toolCallId": "t", "success": True, "result": {"content": "ok"}}},
        {"type": "assistant.message", "data": {"content": DONE}},
        {"type": "assistant.turn_end", "data": {}},
        {"type": "result", "sessionId": "s1", "exitCode": 0},
    ],
}  # fmt: skip


def test_each_row_whose_output_has_an_end_says_which() -> None:
    assert all(row_of(name).complete for name in shipped_names())
    assert STREAMS.keys() == {name for name in shipped_names() if row_of(name).output == "lines"}
    assert {name for name in shipped_names() if row_of(name).aside is None} == {
        "hermes"
    }  # it prints an answer alone


@pytest.mark.parametrize("name", STREAMS)
def test_of_a_stream_that_is_cut_only_the_whole_one_makes_a_step(
    name: str, instance: Instance, stand_in: Callable[..., Any], tmp_path: Path
) -> None:
    size = tmp_path / "size"
    row = row_of(name)
    stand_in(
        f"for value in json.loads({json.dumps(STREAMS[name])!r})[:int(Path({str(size)!r}).read_text())]: tell(**value)",
        name=row.program,
        version=row.least + ".0",
        row="{}",
    )
    work = start_loop(instance)
    for cut in range(len(STREAMS[name])):
        size.write_text(str(cut))
        with pytest.raises(AgentFailed):
            work(f"uwf-{name}")
    (thread,) = instance.threads.ids()
    kept = instance.attempts.all(thread)
    assert len(kept) == len(STREAMS[name])
    assert REMARK in str(
        next(turn.text for turn in instance.store.turns(instance.store.detail(kept[-1].detail)))
    )
    size.write_text(str(len(STREAMS[name])))
    made, _ = detail(instance, work(f"uwf-{name}"))
    assert made["answer"].strip() == DONE.strip()


@pytest.mark.parametrize("name", STREAMS)
def test_what_was_said_before_the_last_call_of_a_tool_is_no_answer(
    name: str, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    row = row_of(name)
    lines = [line for line in STREAMS[name] if DONE not in _texts_of(line)]
    assert len(lines) < len(STREAMS[name]) and any(REMARK in _texts_of(line) for line in lines)
    if name in ("claude-code", "qwen", "cursor"):
        lines.append({**STREAMS[name][-1], "result": ""})
    stand_in(
        f"for value in json.loads({json.dumps(lines)!r}): tell(**value)",
        name=row.program,
        version=row.least + ".0",
        row="{}",
    )
    assert "it ended at a call of a tool" in refused(instance, f"uwf-{name}").message


def _texts_of(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [
            text
            for each in (value.values() if isinstance(value, dict) else value)
            for text in _texts_of(each)
        ]
    return [value] if isinstance(value, str) else []


OTHER_ENDS = {
    "codex": {"type": "turn.failed", "error": {"message": "no"}},
    "gemini": {"type": "result", "status": "error", "error": {"message": "no"}},
    "opencode": {"type": "step_finish", "sessionID": "s1", "part": {"reason": "length"}},
    "copilot": {"type": "result", "sessionId": "s1", "exitCode": 1},
    "qwen": {**_RESULT, "subtype": "error_max_turns"},
    "cursor": {**_RESULT, "is_error": True},
}


@pytest.mark.parametrize("name", OTHER_ENDS)
def test_an_end_that_is_none_of_the_rows_makes_no_step(
    name: str, instance: Instance, stand_in: Callable[..., Any]
) -> None:
    row = row_of(name)
    lines = [*STREAMS[name][:-1], OTHER_ENDS[name]]
    stand_in(
        f"for value in json.loads({json.dumps(lines)!r}): tell(**value)",
        name=row.program,
        version=row.least + ".0",
        row="{}",
    )
    message = refused(instance, f"uwf-{name}").message
    assert "did not finish" in message or "failed" in message or "no complete end" in message


def _item(state: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"item.{state}", "item": {"id": "i9", "type": kind, **more}}


def _block(**more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m9", "content": [more]}, "session_id": "s1"}


def _of_message(stream: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """The stream with that in its last message."""
    *before, said, end = stream
    return [*before, {**said, "message": {**said["message"], **more}}, end]


def _ended(name: str, *after: dict[str, Any]) -> list[dict[str, Any]]:
    """The stream of that row with values between the last message and the end."""
    *before, end = STREAMS[name]
    return [*before, *after, end]


_TOOL = {"type": "tool_use", "id": "t9", "name": "Bash", "input": {}}
_TEXT = {"type": "text", "text": DONE}
_PLAIN = [*_CLAUDE[:-1], {**_RESULT, "stop_reason": "end_turn"}]
_NO = "---\nstatus: again\n---\n"
_STEP = {"type": "step_finish", "sessionID": "s1", "part": {"reason": "length"}}
UNFINISHED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    **{
        f"claude's result: {next(iter(more.values()))}": ("claude-code", [*_CLAUDE[:-1], {**_RESULT, **more}])
        for more in (
            {"subtype": "error_max_turns"},
            {"subtype": "error_new_kind"},
            {"subtype": "error_during_execution", "is_error": True},
            {"stop_reason": "max_tokens"},
            {"stop_reason": "refusal"},
            {"stop_reason": "new_kind"},
            {"terminal_reason": "aborted_streaming"},
            {"errors": ["it broke"]},
            {"is_error": True},
            {"structured_output": {"status": "again"}},
            {"result": _NO},
            {"result": ""},
        )
    },
    "claude's message: max_tokens": ("claude-code", _of_message(_CLAUDE, stop_reason="max_tokens")),
    "claude's message: refusal": ("claude-code", _of_message(_PLAIN, stop_reason="refusal")),
    "claude's message: tool_use": ("claude-code", _of_message(_CLAUDE, stop_reason="tool_use")),
    "claude's message: an error": ("claude-code", [*_CLAUDE[:-2], {**_CLAUDE[-2], "error": "rate_limit"}, _RESULT]),
    "claude's message: another answer": ("claude-code", [*_CLAUDE[:-2], _said("assistant", _NO), _RESULT]),
    "claude: text, stripped, then a call": (
        "claude-code",
        _of_message(_CLAUDE, content=[{**_TEXT, "text": f"{DONE}\n\n"}, _TOOL]),
    ),
    "claude: two texts, then a call": (
        "claude-code",
        _of_message(_CLAUDE, content=[{**_TEXT, "text": "I look."}, _TEXT, _TOOL]),
    ),
    "claude: text, then a call of its server": (
        "claude-code",
        _of_message(_CLAUDE, content=[_TEXT, {**_TOOL, "type": "server_tool_use"}]),
    ),
    "claude: a call after the answer": ("claude-code", _ended("claude-code", _block(**_TOOL))),
    "claude: a call after the answer, with an object": (
        "claude-code",
        [*_CLAUDE[:-1], _block(**_TOOL), {**_RESULT, "stop_reason": "tool_use", "structured_output": {"a": 1}}],
    ),
    "claude: an empty message after the answer": (
        "claude-code",
        [*_CLAUDE[:-1], _block(type="text", text=""), {**_RESULT, "result": ""}],
    ),
    "claude: a thought after the answer": (
        "claude-code",
        [*_CLAUDE[:-1], _block(type="thinking", thinking="no"), {**_RESULT, "result": ""}],
    ),
    "claude: an unknown event after the answer": ("claude-code", _ended("claude-code", {"type": "new_kind"})),
    "claude: a second result, max_tokens": ("claude-code", [*_PLAIN, {**_RESULT, "stop_reason": "max_tokens"}]),
    "claude: a second result, unknown": ("claude-code", [*_PLAIN, {**_RESULT, "subtype": "error_new_kind"}]),
    "claude: a second turn, cut": ("claude-code", [*_PLAIN, _INIT]),
    "codex: an error item": ("codex", _ended("codex", _item("completed", "error", message="turn limit reached"))),
    "codex: an open call": ("codex", _ended("codex", _item("started", "collab_tool_call", status="in_progress"))),
    "codex: an open call of a new kind": ("codex", _ended("codex", _item("started", "new_kind"))),
    "codex: an open message": ("codex", _ended("codex", _item("updated", "agent_message", text="No: I"))),
    "codex: a thought": ("codex", _ended("codex", _item("completed", "reasoning", text="no, I reject"))),
    "codex: a failed edit": ("codex", _ended("codex", _item("completed", "file_change", status="failed"))),
    "codex: an error": ("codex", _ended("codex", {"type": "error", "message": "stream disconnected"})),
    "codex: a second turn, cut": ("codex", [*STREAMS["codex"], {"type": "turn.started"}]),
    "codex: a second turn without a message": (
        "codex",
        [*STREAMS["codex"], {"type": "turn.started"}, {"type": "turn.completed"}],
    ),
    "codex: a second turn, failed": ("codex", [*STREAMS["codex"], {"type": "turn.failed", "error": {}}]),
    "gemini: its limit of turns": (
        "gemini",
        _ended("gemini", {"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}),
    ),
    "gemini: a loop": (
        "gemini",
        _ended("gemini", {"type": "error", "severity": "warning", "message": "Loop detected"}),
    ),
    "gemini: a call": ("gemini", _ended("gemini", {"type": "tool_use", "tool_id": "t9", "tool_name": "sh"})),
    "qwen's result: max_tokens": ("qwen", [*_CLAUDE[:-1], {**_RESULT, "stop_reason": "max_tokens"}]),
    "qwen's message: max_tokens": ("qwen", _of_message(_CLAUDE, stop_reason="max_tokens")),
    "qwen: a call": ("qwen", _of_message(_CLAUDE, content=[{**_TEXT, "text": f"{DONE}\n"}, _TOOL])),
    "copilot: an abort": ("copilot", _ended("copilot", {"type": "abort", "data": {"reason": "user initiated"}})),
    "copilot: a failed call": (
        "copilot",
        _ended("copilot", {"type": "model.call_failure", "data": {"statusCode": 500, "errorMessage": "x"}}),
    ),
    "copilot: a requested tool": (
        "copilot",
        [
            *STREAMS["copilot"][:-3],
            {"type": "assistant.message", "data": {"content": DONE, "toolRequests": [{"toolCallId": "t9"}]}},
            STREAMS["copilot"][-1],
        ],
    ),
    "copilot: a second turn": ("copilot", _ended("copilot", {"type": "assistant.turn_start", "data": {}})),
    "cursor: a call": (
        "cursor",
        _ended("cursor", {"type": "tool_call", "subtype": "started", "call_id": "d", "tool_call": {"sh": {}}}),
    ),
    "opencode: a second step, cut": ("opencode", [*STREAMS["opencode"], {"type": "step_start", "sessionID": "s1"}]),
    "opencode: a second step, its limit of tokens": ("opencode", [*STREAMS["opencode"], _STEP]),
    "opencode: a running tool": (
        "opencode",
        _ended("opencode", {"type": "tool_use", "part": {**_PART, "state": {"status": "running"}}}),
    ),
}  # fmt: skip


@pytest.mark.sample(26)
@pytest.mark.parametrize(("name", "lines"), UNFINISHED.values(), ids=UNFINISHED)
def test_a_stream_that_does_not_end_well_right_after_its_last_message_makes_no_step(
    name: str, lines: list[dict[str, Any]], instance: Instance, stand_in: Callable[..., Any]
) -> None:
    row = row_of(name)
    stand_in(
        f"for value in json.loads({json.dumps(lines)!r}): tell(**value)",
        name=row.program,
        version=row.least + ".0",
        row="{}",
    )
    failure = refused(instance, f"uwf-{name}")
    assert "did not finish" in failure.message or "failed" in failure.message
    (thread,) = instance.threads.ids()
    (attempt,) = instance.attempts.all(thread)
    assert REMARK in [turn.text for turn in instance.store.turns(instance.store.detail(attempt.detail))]


_NO_SIGN: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "claude's tasks and limits": (
        "claude-code",
        [
            *_ended("claude-code", {"type": "rate_limit_event"}, {"type": "system", "subtype": "task_notification"}),
            {"type": "system", "subtype": "session_state_changed"},
        ],
    ),
    "claude's subagent": ("claude-code", _ended("claude-code", {**_block(**_TOOL), "parent_tool_use_id": "t1"})),
    "claude's second turn": (
        "claude-code",
        [*_CLAUDE[:-2], _said("assistant", "I wait."), {**_RESULT, "result": "I wait."}, *_PLAIN[-2:]],
    ),
    "claude's result after a call": (
        "claude-code",
        [*_CLAUDE[:-2], _said("assistant", "I look."), _block(**_TOOL), *_PLAIN[-1:]],
    ),
    "claude's answer by a schema": (
        "claude-code",
        [
            *_CLAUDE[:-2],
            _block(**{**_TOOL, "name": "StructuredOutput", "input": {"status": "done"}}),
            {**_RESULT, "result": "", "stop_reason": "tool_use", "structured_output": {"status": "done"}},
        ],
    ),
    "codex's tasks": ("codex", _ended("codex", _item("completed", "todo_list", items=[{"completed": False}]))),
    "codex's recovered stream": (
        "codex",
        [
            *STREAMS["codex"][:-2],
            {"type": "error", "message": "Reconnecting... 1/5"},
            _item("completed", "error", message="a model without metadata"),
            *STREAMS["codex"][-2:],
        ],
    ),
    "gemini's last piece": (
        "gemini",
        _ended("gemini", {"type": "message", "role": "assistant", "content": "", "delta": True}),
    ),
    "copilot's idle session": ("copilot", _ended("copilot", {"type": "session.idle", "data": {}})),
}  # fmt: skip


@pytest.mark.parametrize(("name", "lines"), _NO_SIGN.values(), ids=_NO_SIGN)
def test_a_value_without_significance_after_the_answer_does_not_matter(
    name: str, lines: list[dict[str, Any]]
) -> None:
    output = Output(row_of(name))
    output.feed("".join(f"{json.dumps(line)}\n" for line in lines).encode())
    said = output.end()
    assert (said.unfinished, said.errors) == ("", ())
    assert said.text in (DONE, '{"status": "done"}')


_FINISHES = {
    "choices": [
        ("stop", ""),
        ("length", "no"),
        ("content_filter", "no"),
        ("refusal", "no"),
        ("new_kind", "no"),
    ],
    "flat": [("stop", ""), ("content_filter", "no"), ("length", "no")],
    "anthropic": [("end_turn", ""), ("max_tokens", "no"), ("refusal", "no")],
    "gemini": [("STOP", ""), ("SAFETY", "no"), ("MAX_TOKENS", "no")],
}


@pytest.mark.parametrize(
    ("kind", "finish", "why"), [(k, *each) for k, of in _FINISHES.items() for each in of]
)
def test_an_answer_of_llm_that_its_provider_ended_is_none(kind: str, finish: str, why: str) -> None:
    response = {
        "choices": {"choices": [{"finish_reason": finish, "message": {}}]},
        "flat": {"finish_reason": finish},
        "anthropic": {"stop_reason": finish},
        "gemini": {"candidates": [{"finishReason": finish}]},
    }[kind]
    output = Output(row_of("llm-cli"))
    output.feed(json.dumps([{"response": DONE, "response_json": response}]).encode())
    assert bool(output.end().unfinished) == bool(why)


@pytest.mark.parametrize(
    ("printed", "whole"),
    [
        (DONE, True),
        (f"\n⚠ Auxiliary title failed: x\n\n{DONE}", True),
        (f"{DONE}\n⚠ is a sign\nof something", True),
        (f"⚠️  Reached maximum iterations (90). Requesting summary...\n\n{DONE}", False),
        (f"\n⚠️  Iteration budget exhausted (90/90)\n{DONE}", False),
        (f"⚠ Auxiliary title failed: x\n⚠ Reached the maximum number of iterations\n{DONE}", False),
        (f"{DONE}\n⚠ Response truncated: max tokens reached\n", False),
    ],
)
def test_a_warning_of_hermes_about_its_answer_makes_it_none(printed: str, whole: bool) -> None:
    output = Output(row_of("hermes"))
    output.feed(printed.encode())
    assert bool(output.end().unfinished) != whole


ARGS: list[tuple[str, dict[str, Any], str, str]] = [
    ("claude-code", {}, "", "--permission-mode acceptEdits"),
    ("claude-code", {"runCommand": True}, "--model opus",
     "--permission-mode acceptEdits --allowedTools Bash --model opus"),
    ("claude-code", {}, "--permission-mode plan", "--permission-mode plan"),
    ("claude-code", {"runCommand": False, "deny": ["edit_file", "fetch_url"]}, "",
     "--disallowedTools Edit,Write,NotebookEdit --disallowedTools Bash,Monitor --disallowedTools WebFetch,WebSearch"),
    ("codex", {}, "", "-c analytics.enabled=false --sandbox workspace-write"),
    ("codex", {}, "-sread-only", "-c analytics.enabled=false -sread-only"),
    ("codex", {"deny": ["write_file"], "runCommand": False}, "",
     "-c analytics.enabled=false --sandbox read-only -c features.shell_tool=false"),
    ("gemini", {"permissions": ["edit", "execute"]}, "", "--approval-mode auto_edit --allowed-tools run_shell_command"),
    ("gemini", {"permissions": ["read"]}, "", ""),
    ("llm-cli", {"deny": ["*"]}, "-m gpt", "-m gpt"),
]  # fmt: skip


def row_of(name: str) -> AgentRow:
    row = shipped_row(name)
    assert row is not None
    return row


def policy(value: dict[str, Any]) -> ToolPolicy:
    parsed, problems = parse_policy(value)
    assert not problems
    return parsed


@pytest.mark.parametrize(("name", "tools", "given", "expected"), ARGS)
def test_the_policy_becomes_the_clis_own_flags(
    name: str, tools: dict[str, Any], given: str, expected: str
) -> None:
    assert " ".join(extra_for(row_of(name), policy(tools), given.split()).args) == expected


def test_a_policy_that_a_cli_cannot_be_told_is_refused(
    instance: Instance, stand_in: Callable[..., Any]
) -> None:
    stand_in("", name="codex")
    strict = {"tools": "{allow: [read_file]}"}
    failure = refused(instance, "uwf-codex --sandbox=danger-full-access", **strict)
    assert failure.message == "codex may not write files here, and --sandbox in its arguments lets it"
    assert refused(instance, "uwf-hermes", **strict).message == (
        "the tool policy says that hermes may not write files, and there is no way to tell it so"
    )
    # Files can allow what is forbidden too: here those of an administrator, which win over what the row says.
    option = {"if": "nofetch", "args": ["--admin-policy", "x"], "unless": [f"{Path.cwd()}/*.toml"]}
    offline, _ = parse_row(
        {"program": "codex", "first": [], "options": [option, {"if": "readonly"}, {"if": "norun"}]}
    )
    forbidden = policy({"allow": ["read_file"]})
    assert extra_for(offline, forbidden, ()).args == ("--admin-policy", "x")
    Path("loose.toml").touch()
    with pytest.raises(
        AgentFailed, match=r"may not read from the web here, and .*/\*\.toml on this machine lets it"
    ):
        extra_for(offline, forbidden, ())
    both = extra_for(row_of("opencode"), policy({"runCommand": False, "deny": ["fetch_url"]}), ())
    assert json.loads(both.env["OPENCODE_PERMISSION"]) == {
        "bash": "deny",
        "webfetch": "deny",
        "websearch": "deny",
    }


@pytest.mark.parametrize(
    ("agent", "tools", "told"),
    [
        ("claude-code", "{}", True),
        ("claude-code", "{runCommand: false}", False),
        ("claude-code", "{allow: [read_file]}", False),
        ("uwf-acp opencode acp", "{}", True),
        ("uwf-acp opencode acp", "{deny: [run_command]}", False),
        ("llm-cli", "{}", False),
        ("uwf-builtin", "{runCommand: true}", False),
        ("uwf-exec true", "{}", False),
    ],
)
def test_an_agent_that_may_run_commands_is_told_by_which_it_can_read_its_thread(
    uwf: Uwf, thread: str, config: Callable[[str], Path], agent: str, tools: str, told: bool
) -> None:
    config(f"defaultAgent: {agent}\ntools: {tools}\n")
    assert (f"`uwf thread read {thread}`" in uwf("thread", "prompt", thread).out) is told


def test_every_shipped_row_is_whole() -> None:
    for name in shipped_names():
        row, problems = parse_row(shipped_value(name), name)
        assert not problems
        assert (
            row.resume
            and (row.session or "{new}" in row.first)
            and row.login
            and row.sign_in
            and row.lost
            and row.least
            and row.install
        )


def documented(name: str) -> AgentRow:
    """The row of that name in docs/guides/agent-clis.md."""
    text = (REPOSITORY / "docs" / "guides" / "agent-clis.md").read_text(encoding="utf-8")
    block = re.search(rf"(?ms)^```yaml file={name}.yaml\n(.*?)^```$", text)
    assert block is not None
    row, problems = parse_row(load(block[1], "agent-clis.md").data["agentClis"][name], name)
    assert not problems
    return row


def test_the_rows_in_the_documents_read_what_those_programs_print() -> None:
    aider = Output(documented("aider"))
    aider.feed(
        b"Aider v0.86.2\nModel: openai/m with whole edit format\nGit repo: none\nRepo-map: disabled\n\n"
        b"---\n\nstatus: done\n\n---\n\nThat is all.\n\nTokens: 1.0k sent, 7 received.\n"
    )
    said = aider.end()
    assert said.text is not None and said.text.strip().startswith("---\n\nstatus: done")
    assert said.text.endswith("That is all.\n")
    assert said.spent is not None and said.spent.usage == Usage(1000, 7)

    cline = Output(documented("cline"))
    tool = {"contentType": "tool", "toolName": "run_commands", "toolCallId": "c-1"}
    used = {"inputTokens": 240, "outputTokens": 14, "cacheReadTokens": 20, "totalCost": 0.5}
    for value in (
        {"type": "agent_event", "event": {**tool, "type": "content_start", "input": {"commands": ["pwd"]}}},
        {"type": "agent_event", "event": {**tool, "type": "content_end", "output": ["/"]}},
        {"type": "agent_event", "event": {"type": "content_end", "contentType": "text", "text": "Done."}},
        {"type": "run_result", "text": "Done.", "usage": used, "model": {"id": "m"}},
    ):
        cline.feed(json.dumps(value).encode() + b"\n")
    said = cline.end(b'{"ts":"x","type":"error","message":"scripted failure"}\n')
    assert (said.text, said.model, said.complaints) == ("Done.", "m", ("scripted failure",))
    assert said.spent is not None and said.spent[:2] == (Usage(240, 14, 20), 0.5)
    assert [turn.result for turn in said.turns if turn.role == "tool"] == [["/"]]

    vibe = Output(documented("vibe"))
    call = {
        "type": "effect",
        "id": "effect-1",
        "detail": {"toolName": "file_system.bash", "input": {"command": "ls"}},
    }
    denied = {"status": "failed", "error": {"message": "denied by policy", "code": "tool_denied"}}
    for value in (
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "Do."}], "sessionId": "s-1"},
        {**call, "state": denied},
        {**call, "id": "effect-2", "state": {"status": "completed", "output": {"stdout": "a"}}},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "That is all."}]},
    ):
        vibe.feed(json.dumps(value).encode() + b"\n")
    said = vibe.end()
    assert (said.session, said.text, said.denied) == ("s-1", "That is all.", ("file_system.bash",))
    assert [turn.failed for turn in said.turns if turn.role == "tool"] == [True, False]


def test_the_documented_versions_are_those_that_are_tested() -> None:
    pins = [path.read_text() for path in PINS.rglob("*") if path.suffix in (".json", ".txt")]
    table = (REPOSITORY / "docs" / "reference" / "agents.md").read_text(encoding="utf-8")
    for name in shipped_names():
        version = OBSERVED.get(name, "its documentation")
        assert f"| `uwf-{name}` | `{row_of(name).program}` | {version} |" in table
        assert name not in OBSERVED or any(version in text for text in pins)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"frist": []}, "unknown key 'frist' in an agent CLI: did you mean \"first\"?"),
        ({"program": None}, "program is missing"),
        ({"first": ["{promt}"]}, 'unknown placeholder {promt}: did you mean "prompt"?'),
        ({"prompt": "argument"}, "first needs {prompt}"),
        ({"resume": ["-r"]}, "resume needs {session}"),
        ({"output": "xml"}, "output is one of lines, json, text"),
        ({"sessions": {"folder": ["~/.my"]}}, "sessions needs folder and files with {session}"),
        ({"sessions": {"folder": ["~/.my"], "files": ["chat.jsonl"]}}, "files with {session}"),
        ({"sessions": {"folder": ["~/.my"], "files": ["../{session}"]}}, "files with {session}"),
        ({"sessions": {"folder": ["my"], "files": ["{session}"]}}, "files with {session}"),
        ({"sessions": {"export": ["export", "{session}"]}}, "or export, import and each: .NAME[]"),
        ({"sessions": {"export": ["e"], "import": ["i"], "each": ".a.b"}}, "export, import and each"),
        ({"text": "result"}, "text: 'result' is not a path"),
        ({"login": "("}, "login is not a regular expression"),
        ({"version": {"least": 1.2}}, "version.least must be a version in quotes"),
        ({"options": [{"if": "sometimes"}]}, "unknown condition 'sometimes'"),
        ({"usage": {"input": {"match": "("}}}, "usage.input.match is not a regular expression"),
        ({"turns": [{"when": {"type": "x"}}]}, "turns[0] needs text, tool or result"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_its_key(change: dict[str, Any], problem: str) -> None:
    value = {"program": "x", "first": [], "session": ".id", **change}
    _, problems = parse_row({key: each for key, each in value.items() if each is not None}, "x")
    assert any(problem in each.text for each in problems), problems


def test_uwf_cli_needs_a_name(instance: Instance) -> None:
    with pytest.raises((AgentFailed, BadUsage), match="needs the name of a row"):
        start_loop(instance)("uwf-cli")


COUNTED: dict[str, dict[str, Any]] = {
    "claude-code": {
        "type": "result",
        "subtype": "success",
        "result": "Done.",
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 1500,
            "cache_read_input_tokens": 3000,
            "output_tokens": 10,
        },
    },
    "claude-code, ended early": {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "content": [{"type": "text", "text": "Done."}],
            "usage": {
                "input_tokens": 4,
                "cache_creation_input_tokens": 1500,
                "cache_read_input_tokens": 3000,
                "output_tokens": 10,
            },
        },
    },
    "opencode": {
        "type": "step_finish",
        "part": {
            "cost": 0.01,
            "tokens": {"input": 4, "output": 8, "reasoning": 2, "cache": {"read": 3000, "write": 1500}},
        },
    },
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_a_program_says_went_into_a_cache_is_counted(name: str) -> None:
    output = Output(row_of(name.partition(",")[0]))
    output.feed(json.dumps(COUNTED[name]).encode() + b"\n")
    said = output.end()
    assert said.spent is not None and said.spent.usage == Usage(4504, 10, 3000, 1500)
