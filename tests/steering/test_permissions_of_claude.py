"""Claude Code asks leave over its stream of JSON, and waits for a person who finds that in the inbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agent_programs
import asking_claude
import pytest
from cli_samples import on_terminal
from commands import begin, wait_until
from conftest import Uwf
from loop_thread import start_loop
from model_server import Call, Say

from uwf_git.api.cockpit.inbox import inbox
from uwf_git.store.instance import Instance

WAIT = "permissionWait: 1h\n"
ADA = "Ada Example <ada@example.invalid>"
Asks = Callable[..., None]


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": command, "description": "It is harmless.", **more}


@pytest.fixture
def asks(
    script: Callable[[str, str], Path], config: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Asks:
    """Makes claude ask leave for calls."""

    def make(*calls: tuple[str, dict[str, Any]], settings: str = WAIT) -> None:
        doubles = str(Path(asking_claude.__file__).parent)
        body = f"import sys\nsys.path.insert(0, {doubles!r})\nimport asking_claude\n"
        path = script("claude", f"{body}asking_claude.play({json.dumps(calls)!r})\n")
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        monkeypatch.setenv("ANTHROPIC_API_KEY", agent_programs.KEY)
        config(settings)

    return make


def started(thread: str) -> subprocess.Popen[str]:
    return begin("thread", "step", thread, "--agent", "uwf-claude-code", as_fork=True)


def ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def requests(uwf: Uwf, thread: str) -> list[dict[str, Any]]:
    return list(uwf("thread", "show", thread).json.get("permissions", []))


def asked(uwf: Uwf, thread: str, **wanted: Any) -> dict[str, Any]:
    """The one request that is open, once it is the wanted one."""

    def is_there() -> bool:
        return [{key: item[key] for key in wanted} for item in requests(uwf, thread)] == [wanted]

    wait_until(is_there, f"a request for {wanted} is open")
    return requests(uwf, thread)[0]


def permit(uwf: Uwf, request: dict[str, Any], decision: str) -> None:
    uwf(*request["commands"][decision].split()[1:])


def decisions(uwf: Uwf, thread: str) -> list[tuple[str, str]]:
    """The recorded decisions, and what was shown with them."""
    turns = uwf("thread", "turns", thread).json
    texts = [turn["text"] for turn in turns if turn.get("tool") == "permission"]
    return [(text.rpartition(": ")[2], text.rpartition(": ")[0]) for text in texts]


def allowed() -> list[dict[str, Any]]:
    path = Path("allowed")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_person_allows_one_call_and_denies_another(uwf: Uwf, thread: str, asks: Asks) -> None:
    asks(bash("make test"), bash("rm -r build"), ("Write", {"file_path": "/etc/x", "content": "x"}))
    process = started(thread)
    request = asked(uwf, thread, command="make test")
    assert (request["kind"], request["role"], request["agent"]) == ("execute", "writer", "uwf-claude-code")
    (item,) = inbox(Instance.open())
    assert (item["group"], item["options"]) == ("permission", ["allow", "deny", "always"])
    assert uwf("thread", "show", thread).json["running"]["last"] == "asks for leave to execute: make test"
    permit(uwf, request, "allow")
    permit(uwf, asked(uwf, thread, command="rm -r build"), "deny")
    permit(uwf, asked(uwf, thread, kind="edit", paths=["/etc/x"]), "deny")
    ended(process)
    assert allowed() == [bash("make test")[1]]
    assert decisions(uwf, thread) == [
        (f"granted, by {ADA}", "execute: make test"),
        (f"denied, by {ADA}", "execute: rm -r build"),
        (f"denied, by {ADA}", "edit: Write /etc/x"),
    ]
    results = [turn["result"] for turn in uwf("thread", "turns", thread).json if turn.get("tool") == "Bash"]
    assert results == ["done", "The user denied it."]
    assert requests(uwf, thread) == [] and uwf("verify", "--all").json["findings"] == []


def test_always_holds_for_the_same_command_and_not_for_one_with_more_to_it(
    uwf: Uwf, thread: str, asks: Asks
) -> None:
    beside = bash("make test", dangerouslyDisableSandbox=True)
    asks(bash("make test"), bash("make test"), beside)
    process = started(thread)
    permit(uwf, asked(uwf, thread, command="make test"), "always")
    request = asked(uwf, thread, input=json.dumps(beside[1]))
    assert "dangerouslyDisableSandbox" in request["line"] and "always" not in request["commands"]
    permit(uwf, request, "deny")
    ended(process)
    assert allowed() == [bash("make test")[1]] * 2
    assert [outcome for outcome, _ in decisions(uwf, thread)] == [
        f"granted, by {ADA}, always",
        f"granted, by {ADA}, always",
        f"denied, by {ADA}",
    ]


def test_what_an_edit_writes_is_shown_whole_and_never_allowed_for_always(
    uwf: Uwf, thread: str, asks: Asks
) -> None:
    path = str(Path("src/b.txt").absolute())
    content = "first line\nsecond \u200bline\n" + "x" * 5000
    edit = {"file_path": path, "old_string": "old text", "new_string": "new\rtext"}
    asks(
        ("Write", {"file_path": path, "content": content}), ("Edit", edit), ("Read", {"file_path": "/etc/x"})
    )
    process = started(thread)
    request = asked(uwf, thread, title=f"Write {path}")
    assert json.loads(request["input"])["content"] == content and "always" not in request["commands"]
    status, shown = on_terminal("thread", "permit", thread, typed=[("y, n? ", "n")])
    assert status == 0 and f"path: {path}" in shown and "x" * 5000 in shown
    assert "content: first line\n      second \\u200bline\n" in shown
    request = asked(uwf, thread, title=f"Edit {path}")
    assert json.loads(request["input"]) == edit and "always" not in request["commands"]
    status, shown = on_terminal("thread", "permit", thread, typed=[("y, n? ", "n")])
    assert status == 0 and "old_string: old text" in shown and "new_string: new\\x0dtext" in shown
    permit(uwf, asked(uwf, thread, kind="read", input=None), "always")
    ended(process)
    assert [outcome for outcome, _ in decisions(uwf, thread)] == [
        *[f"denied, by {ADA}"] * 2,
        f"granted, by {ADA}, always",
    ]


def test_without_the_setting_nobody_is_asked(uwf: Uwf, thread: str, asks: Asks) -> None:
    asks(bash("make test"), settings="")
    ended(started(thread))
    assert "--permission-prompt-tool" not in json.loads(Path("arguments").read_text())
    assert allowed() == [] and decisions(uwf, thread) == []


def test_the_configuration_decides_first_and_nobody_in_time_is_a_denial(
    uwf: Uwf, thread: str, asks: Asks
) -> None:
    tools = "tools: {permissions: ['execute:make *']}\n"
    asks(bash("make all"), bash("make all; rm x"), settings=f"permissionWait: 0.3\n{tools}")
    ended(started(thread))
    assert allowed() == [bash("make all")[1]]
    assert decisions(uwf, thread) == [
        ("granted, by the configuration", "execute: make all"),
        ("denied, nobody to ask", "execute: make all; rm x"),
    ]


def test_a_denied_tool_is_refused_without_asking(uwf: Uwf, thread: str, asks: Asks) -> None:
    asks(bash("make all"), settings=f"{WAIT}tools: {{deny: [run_command]}}\n")
    ended(started(thread))
    assert allowed() == [] and decisions(uwf, thread)[0][0] == "denied, by the configuration"


@pytest.mark.parametrize("victim", ["agent", "engine"])
def test_a_request_goes_with_the_process_that_asked(
    uwf: Uwf, thread: str, asks: Asks, victim: str, root: Path
) -> None:
    asks(bash("make test"))
    process = started(thread)
    request = asked(uwf, thread, command="make test")["request"]
    os.kill(int(Path("pid").read_text()) if victim == "agent" else process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_until(lambda: not Instance.open().locks.is_held(thread), "the agent is gone")  # type: ignore[arg-type]
    assert requests(uwf, thread) == []
    assert "no open request" in uwf("thread", "permit", thread, request, check=3).error["message"]
    if victim == "agent":
        assert not (root / "store.git/uwf/permissions" / thread).exists()


@pytest.mark.parametrize("way", ["answers first", "closes its input", "reads no input"])
def test_a_request_of_a_program_that_can_hear_no_answer_does_not_hold_its_step_up(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path], asks: Asks, way: str
) -> None:
    asks(settings="permissionWait: 3s\nagents: { c: { command: uwf-claude-code, silence: 2s } }\n")
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make test"}}
    body = f"""import json, os, sys, time
if "--version" in sys.argv:
    print("2.1.330 (Claude Code)")
    sys.exit()
sys.stdin.readline()
def tell(**value):
    print(json.dumps(value), flush=True)
def ask(number, size=0):
    request = {request!r}
    if size:
        request["input"] = {{"command": "rm " + "x" * size}}
    tell(type="control_request", request_id=f"r-{{number}}", request=request)
tell(type="system", subtype="init", session_id="s-1", model="scripted", tools=[])
if {way!r} == "closes its input":
    os.close(0)
if {way!r} == "reads no input":
    for number in range(1000):
        ask(number, 5000)
ask("last")
if {way!r} == "answers first":
    tell(type="result", subtype="success", is_error=False, result="---\\ntext: done\\n---\\n", session_id="s-1")
    ask("later")
time.sleep(600)
"""
    script("claude", body)
    process = begin("thread", "step", thread, "--agent", "c", as_fork=True)
    out, err = process.communicate(timeout=50)
    assert process.returncode == 6 and "silent" in err, out + err
    assert requests(uwf, thread) == []


def test_a_request_that_claude_takes_back_is_gone(uwf: Uwf, thread: str, asks: Asks) -> None:
    asks(bash("make test", cancelled=True), bash("make all"))
    process = started(thread)
    asked(uwf, thread, command="make test")
    Path("cancel").touch()
    permit(uwf, asked(uwf, thread, command="make all"), "allow")
    ended(process)
    assert allowed() == [bash("make all")[1]]


def test_hostile_requests_are_shown_as_text_or_denied(uwf: Uwf, thread: str, asks: Asks) -> None:
    evil = "printf '\x1b[31m\u202e<b>'\nrm -r ."
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    lines = [
        '{"type": "control_request"}',
        '{"type": "control_request", "request_id": ["x"], "request": {"subtype": "can_use_tool"}}',
        '{"type": "control_request", "request_id": "x", "request": {"subtype": "hook_callback"}}',
        '{"type": "control_request", "request_id": "y", "request": "can_use_tool"}',
        '{"type": "control_cancel_request", "request_id": "z"}',
        '{"type": "control_request", "request_id"' + "[" * 100_000,
    ]
    asks(
        *(("$PRINT", {"line": line}) for line in lines),
        bash("x" * 10_000),
        ("mcp__a__b", {"deep": deep}),
        ("mcp__a__b", {"text": "y" * 5000}),
        bash(evil),
    )
    process = started(thread)
    request = asked(uwf, thread, command=evil)
    shown = uwf("thread", "show", thread, "--format", "text").out
    assert "\x1b" not in shown and "\u202e" not in shown and "rm -r ." in shown
    permit(uwf, request, "allow")
    ended(process)
    assert allowed() == [bash(evil)[1]]
    assert [outcome for outcome, _ in decisions(uwf, thread)] == [
        "denied, nobody to ask",
        "denied, nobody to ask",
        f"granted, by {ADA}",
    ]
    assert uwf("verify", "--all").json["findings"] == []


def test_a_remark_reaches_claude_beside_an_answer(uwf: Uwf, thread: str, asks: Asks) -> None:
    asks(bash("make test"))
    process = started(thread)
    request = asked(uwf, thread, command="make test")
    uwf("thread", "say", thread, "-m", "Keep the old flag.")
    wait_until(lambda: uwf("thread", "show", thread).json["remarks"][0]["state"] == "taken", "it is taken")
    permit(uwf, request, "allow")
    ended(process)
    assert "Keep the old flag." in Path("heard").read_text() and len(allowed()) == 1


@pytest.mark.extended
@pytest.mark.timeout(120)
def test_the_real_claude_asks_and_does_what_is_allowed(
    uwf: Uwf,
    instance: Instance,
    tmp_path: Path,
    config: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with agent_programs.played("claude", tmp_path / "home", monkeypatch) as server:
        config(WAIT)
        start_loop(Instance.open())
        (thread,) = [item["thread"] for item in uwf("thread", "list").json]
        commands = ['python3 -c \'open("one", "w")\'', 'python3 -c \'open("two", "w")\'']
        calls = [Call("Bash", {"command": command, "description": "It writes."}) for command in commands]
        server.play([*calls, Say("---\nstatus: done\n---\n\nThat is all.\n")])
        process = started(thread)
        permit(uwf, asked(uwf, thread, command=commands[0]), "allow")
        permit(uwf, asked(uwf, thread, command=commands[1]), "deny")
        ended(process)
    assert Path("one").exists() and not Path("two").exists()
    assert [outcome for outcome, _ in decisions(uwf, thread)] == [f"granted, by {ADA}", f"denied, by {ADA}"]
    assert uwf("verify", "--all").json["findings"] == []
