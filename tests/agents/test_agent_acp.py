"""uwf-acp against a scripted agent: a real process that speaks the protocol."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_steps import AGENT, Came, Scripted, Steps
from commands import begin, wait_until_gone

from uwf_git.base.errors import Usage
from uwf_git.base.extras import install_hint
from uwf_git.ext.agents.acp import agent
from uwf_git.ext.agents.acp.agent import Options, parse_args, until_later
from uwf_git.ext.agents.acp.frames import Frames
from uwf_git.format.kinds import parse_step
from uwf_git.store.instance import Instance


@pytest.fixture
def storage(instance: Instance) -> Path:
    """The storage root, with a store in it."""
    return instance.location.root


def test_what_an_agent_does_on_its_way_becomes_turns(storage: Path) -> None:
    steps = Scripted(storage, "work")
    came = steps.step()
    assert came.output == {"summary": "It is done."}
    # A word after the deliverable doesn't hide it.
    assert came.said == ["I look first.", "---\nsummary: It is done.\n---\n\nAll of it.\n ", "That was all."]
    assert came.detail["extraction"] == "frontmatter"
    order = [turn.get("tool") or turn["role"] for turn in came.turns]
    assert order == [
        "thought",
        "assistant",
        "read",
        "edit",
        "assistant",
        "thought",
        "assistant",
        "execute",
        "plan",
    ]
    read, edit, pending = came.tools("read")[0], came.tools("edit")[0], came.tools("execute")[0]
    assert (read["text"], read["call"], read["arguments"]) == ("Reading a.txt", "call-1", {"path": "a.txt"})
    assert (read["result"], read.get("failed", False)) == ({"status": "completed", "text": "hello"}, False)
    assert edit["result"]["diffs"] == [{"path": "/x/b.txt", "old": "old", "new": "new"}]
    assert edit["failed"] and pending["result"]["status"] == "pending"
    assert len(came.tools("thought")[0]["text"]) < 2200
    assert came.tools("plan")[0]["result"][0] == {"content": "look", "status": "completed"}
    # Tokens: 100, and beside them 40 read from the cache and 5 written to it. Cost: of this prompt alone.
    assert came.detail["usage"] == {"input": 145, "output": 20, "cached": 40, "written": 5}
    assert (came.detail["cost"], came.detail["model"]) == (0.25, "small")


def test_a_correction_goes_on_in_the_live_session_and_costs_what_it_costs(storage: Path) -> None:
    steps = Scripted(storage, "say:no fields here", "answer")
    came = steps.step()
    assert came.detail["extraction"] == "correction"
    assert [len(steps.noted(what)) for what in ("new", "load", "prompt", "close")] == [1, 0, 2, 1]
    assert came.detail["cost"] == 0.5
    assert came.detail["usage"]["input"] == 290


def test_the_next_step_of_the_role_takes_its_session_up_again(storage: Path) -> None:
    steps = Scripted(storage, "answer")
    first, second = steps.step(), steps.step()
    assert steps.noted("load") == [first.detail["session"]]
    assert second.detail["session"] == first.detail["session"]
    assert "notes" not in second.detail
    # What the agent says that the session has cost may include the steps before.
    assert "cost" not in second.detail


@pytest.mark.parametrize(
    ("flags", "why"),
    [((), "Resource not found"), (("empty",), "it is empty"), (("--no-load",), "cannot take")],
)
def test_a_session_that_cannot_be_taken_up_again_is_noticed_and_everything_told_anew(
    storage: Path, flags: tuple[str, ...], why: str
) -> None:
    steps = Scripted(storage, "say:no fields")
    failed = steps.step()
    assert "3 answers without a valid output" in failed.error
    kept = storage / f"{failed.detail['session']}.jsonl"
    kept.write_text("") if flags == ("empty",) else kept.unlink()
    steps.now("answer", flags=[*steps._flags, *[flag for flag in flags if flag.startswith("--")]])
    came = steps.step()
    assert came.output == {"summary": "It is done."}
    assert why in came.detail["notes"][0]
    told = steps.noted("prompt")[-1]
    assert "# Deliverable format" in told and "An earlier attempt at this step did not count" in told


def test_what_a_loaded_session_replays_late_is_no_turn_of_the_step(storage: Path) -> None:
    steps = Scripted(storage, "answer", flags=["--late"])
    first, second = steps.step(), steps.step()
    assert second.detail["session"] == first.detail["session"]
    assert "notes" not in second.detail
    assert second.said == first.said and "Said before." not in second.said


def test_an_agent_that_only_resumes_is_resumed(storage: Path) -> None:
    steps = Scripted(storage, "answer", flags=["--no-load", "--resume"])
    first = steps.step()
    assert steps.step().detail["session"] == first.detail["session"]
    assert steps.noted("resume") == [first.detail["session"]]


def test_a_step_bears_the_name_of_the_agent_that_did_it_and_sessions_are_that_agents_own(
    storage: Path,
) -> None:
    steps = Scripted(storage, "answer")
    steps.step()
    head = steps.instance.threads.active_head(steps.thread)
    made = parse_step(steps.instance.store.get(head.node).payload)
    assert made.agent == f"uwf-acp/{Path(sys.executable).name}"
    for command, name in (
        (["/opt/bin/opencode", "acp"], "opencode"),
        (["npx", "-y", "@agentclientprotocol/codex-acp@2.6.0"], "codex-acp"),
        (["an agent"], "an-agent"),
    ):
        assert agent.agent.called(command) == f"uwf-acp/{name}"
    (storage / "other").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (storage / "other").chmod(0o755)
    steps.now("answer", command=str(storage / "other"))
    steps.step()
    assert (len(steps.noted("new")), steps.noted("load")) == (2, [])


def test_mode_and_model_are_chosen_among_what_is_offered(storage: Path) -> None:
    steps = Scripted(storage, "answer", options=["--mode", "Plan", "--model=large"])
    assert steps.step().detail["model"] == "large"
    assert (steps.noted("mode"), steps.noted("option")) == (["plan"], [["engine", "large"]])


def test_permissions_are_granted_by_policy_and_else_denied_and_recorded(
    storage: Path, hermetic: Path
) -> None:
    asked = (
        "read=a.txt|read=/etc/passwd|edit=src/a.py|edit=doc/a.md|execute=make test"
        "|execute=make test; rm -r .|fetch=http://x|execute=git push"
    )
    policy = 'tools: {permissions: [read, "edit:src/*", "execute:make *", "fetch"], deny: [fetch_url]}\n'
    steps = Scripted(storage, f"ask:{asked}", more=policy, role_tools="{deny: [apply_patch]}")
    came = steps.step()
    outcomes = [outcome for _, outcome in steps.noted("permission")]
    granted, denied = "allow_once", "reject_once"
    assert outcomes == [granted, denied, granted, denied, granted, denied, denied, denied]
    turns = came.tools("permission")
    assert [turn["result"]["by"] for turn in turns] == [
        *("policy", "nobody", "policy", "nobody", "policy", "nobody", "policy", "nobody"),
    ]
    assert turns[-1]["failed"] and turns[-1]["text"] == "execute: git push: denied, nobody to ask"
    assert len(came.detail["notes"]) == 5
    assert "permission denied, by the configuration: fetch: fetch http://x" not in came.detail["notes"][0]


def test_a_command_in_the_title_alone_is_granted_no_more_than_it_says(storage: Path) -> None:
    policy = 'tools: {permissions: ["execute:make *"]}\n'
    steps = Scripted(
        storage, "ask:title=make test|title=make test; rm -r .|title=make $(rm -r .)", more=policy
    )
    steps.step()
    assert [outcome for _, outcome in steps.noted("permission")] == [
        "allow_once",
        "reject_once",
        "reject_once",
    ]


def test_at_a_terminal_a_person_is_asked(storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test|execute=make\x1b[31m clean|edit=a.txt")
    terminal, inner = pty.openpty()
    command = [sys.executable, "-m", "uwf_cli.main", "thread", "step", steps.thread]
    engine = subprocess.Popen(command, stdin=inner, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(inner)
    screen = b""
    for line in (b"1\n", b"3\n", b"2\n", b"Y\n"):
        while not screen.endswith(b"Which? "):
            screen += os.read(terminal, 4096)
        assert b"\x1b" not in screen and b"always" not in screen
        os.write(terminal, line)
        screen = b""
    assert engine.wait() == 0
    os.close(terminal)
    outcomes = [outcome for _, outcome in steps.noted("permission")]
    assert outcomes == ["allow_once", "reject_once", "allow_once"]


def test_a_role_can_only_take_permissions_away(storage: Path) -> None:
    more = "tools: {permissions: [edit, execute]}\n"
    steps = Scripted(
        storage, "ask:edit=a.txt|execute=ls", more=more, role_tools="{deny: [write_file], runCommand: false}"
    )
    steps.step()
    assert [outcome for _, outcome in steps.noted("permission")] == ["reject_once", "reject_once"]


def test_files_are_those_of_the_working_directory(storage: Path, hermetic: Path) -> None:
    work = hermetic / "work"
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    (work / "out").symlink_to("/etc")
    (hermetic / "secret").write_text("x")
    tried = [
        f"read {work}/a.txt",
        f"lines {work}/a.txt",
        f"many {work}/a.txt",
        f"write {work}/new/b.txt",
        f"read {work}/none",
        f"read {work}/../secret",
        f"read {work}/out/passwd",
        f"write {work}/out/x",
        f"write {work}/.git/hooks/pre-commit",
        "read /etc/passwd",
        "read a.txt",
    ]
    steps = Scripted(storage, "files:" + "|".join(tried))
    came = steps.step()
    results = [result for _, result in steps.noted("file")]
    assert results == ["one\ntwo\nthree\n", "two\n", "three\n", "ok", -32002, *[-32602] * 6, -32601]
    assert (work / "new/b.txt").read_text() == "written\n"
    assert steps.noted("initialize")[0]["fs"] == {"readTextFile": True, "writeTextFile": True}
    assert len(came.detail["notes"]) == 6
    steps.now(f"files:write {work}/c.txt", more="tools: {allow: [read_file]}\n")
    steps.step()
    assert steps.noted("file")[-2] == [f"write {work}/c.txt", -32602]
    assert not (work / "c.txt").exists()


def test_an_agent_out_of_time_is_cancelled_and_what_it_said_is_kept(storage: Path) -> None:
    steps = Scripted(storage, "hang", more="")
    config = storage / "config.yaml"
    config.write_text(config.read_text().replace("args:", "timeout: 8s, args:"))
    steps.instance = Instance.open()
    came = steps.step()
    assert "ran out of time after " in came.error and "timeout" in came.hint
    assert "silent for the last " in came.error and "last seen: Half of it." in came.error
    assert came.said == ["Half of it. And cancelled."]
    assert len(steps.noted("cancel")) == 1


def test_an_agent_that_falls_silent_is_ended(storage: Path) -> None:
    steps = Scripted(storage, "hang", more="")
    config = storage / "config.yaml"
    config.write_text(config.read_text().replace("args:", "silence: 2s, args:"))
    steps.instance = Instance.open()
    came = steps.step()
    assert "was ended, for it said nothing after " in came.error and "agents.<name>.silence" in came.hint


def test_a_flood_of_calls_is_ended_before_it_has_to_be_written_down(storage: Path) -> None:
    came = Scripted(storage, "flood:pending").step()
    assert "has more than 256 tool calls under way at once" in came.error
    assert len(came.turns) == 256


def test_a_deadline_has_its_turn_while_there_is_more_to_read() -> None:
    async def read() -> int:
        reader, heard = asyncio.StreamReader(), 0
        reader.feed_data(b'{"method": "x"}\n' * 1000)
        reader.feed_eof()

        def notified(_method: str, _params: object) -> None:
            nonlocal heard
            heard += 1

        receiving = asyncio.ensure_future(Frames(reader.read, lambda _data: None, notified).receive())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        so_far = heard
        await receiving
        return so_far

    assert asyncio.run(read()) < 10


def test_an_agent_that_names_sessions_by_the_minute_is_given_the_next_one(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert until_later(59.0, 60.0, 60.0) == 0.0
    assert until_later(61.0, 110.0, 60.0) == pytest.approx(10.2)
    assert until_later(130.0, 110.0, 60.0) == pytest.approx(10.2)  # by another machine's clock
    monkeypatch.setattr(agent, "MINUTE", 4.0)
    steps = Scripted(storage, "answer", flags=["--name", "gemini-cli"])
    begun = time.time()
    steps.step()
    came = steps.step()
    assert len(steps.noted("load")) == 1 and came.detail.get("notes", []) == []
    assert time.time() // 4 > begun // 4


def test_interrupted_it_takes_everything_it_started_along(storage: Path, uwf: Callable[..., Any]) -> None:
    steps = Scripted(storage, "hang:deaf")
    engine = begin("thread", "step", steps.thread)
    while len(steps.noted("child")) < 3:
        time.sleep(0.02)
    engine.send_signal(signal.SIGINT)
    engine.communicate()
    assert engine.returncode == 130
    for pid in steps.noted("child"):
        wait_until_gone(pid)
    attempts = uwf("thread", "attempts", steps.thread).out
    assert "Half of it." in attempts or "interrupted" in attempts


@pytest.mark.parametrize(
    ("scenario", "error", "said"),
    [
        (
            'explain:{"error": {"message": "no credit left"}}',
            "python failed: no credit left",
            ['Warning: something is odd.\n\n{"error": {"message": "no credit left"}}'],
        ),
        ("die", "python exited with 4 in the middle of its turn: Error: the model is gone", ["Half of it."]),
        ("fail:no credit", "python refused session/prompt: Internal error: no credit", ["Half of it."]),
        ("stop:refusal=I won't.", "python refused to go on", ["I won't."]),
        ("stop:max_tokens=", "python did not finish: the answer was cut off", []),
        ("stop:paused=I go.", "python did not finish: it named 'paused' as the end of its turn", ["I go."]),
        ("endless", "python said more than 8 million characters in one turn", None),
    ],
)
def test_a_turn_that_fails_is_one_line_with_all_that_was_said(
    storage: Path, scenario: str, error: str, said: list[str] | None
) -> None:
    name = "@agentclientprotocol/codex-acp" if scenario.startswith("explain") else "scripted"
    steps = Scripted(storage, scenario, flags=["--name", name])
    came = steps.step()
    assert len(steps.noted("prompt")) == 1
    assert came.error.replace(Path(sys.executable).name, "python").startswith(error)
    assert "\n" not in came.error + came.hint and came.hint
    assert "uwf thread" not in came.hint or came.hint.endswith(steps.thread)
    assert said is None or came.said == said


@pytest.mark.parametrize(
    ("how", "error", "hint"),
    [
        ("version", "speaks version 7 of the Agent Client Protocol, not 1", "install"),
        (
            "login",
            "is not logged in: Authentication required",
            "--auth one of: browser (Log in); key (Needs AGENT_KEY)",
        ),
        ("nothing", "did not answer initialize in time, and printed 'usage: agent [--chat]'", "such as acp"),
        (
            "exit",
            "exited with 3 before it said anything of the protocol: fatal error: no such model",
            "such as acp",
        ),
        ("echo", "doesn't know initialize", "Agent Client Protocol"),
        ("shout", "printed what is not a frame of the protocol: 'Welcome!'", "kept"),
        ("huge-frame", "sent a frame of more than 32 MiB", "kept"),
        ("odd-frames", "refused initialize: Internal [31m error: no disk", "by hand"),
    ],
)
def test_an_agent_that_does_not_speak_the_protocol_is_told_in_one_line(
    storage: Path, how: str, error: str, hint: str
) -> None:
    steps = Steps(storage, ["--", sys.executable, str(AGENT), how])
    if how == "nothing":
        config = storage / "config.yaml"
        config.write_text(config.read_text().replace("args:", "timeout: 2s, args:"))
        steps.instance = Instance.open()
    came = steps.step()
    name = Path(sys.executable).name
    assert came.error.replace("\ufffd", " ").replace("  ", " ") == f"{name} {error}"
    assert hint in came.hint


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["no-such-agent", "acp"], "command 'no-such-agent' is not on PATH"),
        (["--mode", "yolo", "--", sys.executable, str(AGENT), "answer"], "has no mode 'yolo'"),
        (
            ["--auth", "sms", "--", sys.executable, str(AGENT), "login"],
            "no way to log in that is called 'sms'",
        ),
        (["--auth", "key", "--", sys.executable, str(AGENT), "login"], "refused authenticate: wrong key"),
    ],
)
def test_what_cannot_be_started_as_wanted_says_what_there_is(
    storage: Path, command: list[str], error: str
) -> None:
    came: Came = Steps(storage, command).step()
    assert error in came.error
    assert came.hint


def test_the_agent_gets_no_secret_that_it_does_not_name_and_its_error_is_stored_without_any(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")  # an agent that started uwf has no say in the one that uwf starts
    monkeypatch.setenv("SHELL_PASSWORD", "very-secret-value-123456")
    (storage / ".env").write_text("AGENT_KEY=another-secret-value\n")
    words = "'error:', e['SHELL_PASSWORD'], 'AGENT_KEY' in e, 'of', e['UWF_ROLE'], 'CLAUDECODE' in e"
    program = f"import os, sys; e = os.environ; print({words}, file=sys.stderr); sys.exit(1)"
    steps = Steps(storage, ["--", sys.executable, "-c", program])
    steps.step()
    error = steps.instance.attempts.all(steps.thread)[-1].error
    assert "False of worker False" in error
    assert "very-secret-value" not in error


def test_without_the_sdk_it_says_what_to_install(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    came = Scripted(storage, "answer").step()
    assert (came.error, came.hint) == (
        "uwf-acp needs the Python package agent-client-protocol",
        install_hint("acp"),
    )


def test_arguments_are_read_strictly() -> None:
    assert parse_args(["opencode", "acp"]) == Options(("opencode", "acp"))
    assert parse_args(["--mode=plan", "--model", "x", "--", "-odd"]) == Options(("-odd",), "plan", "x")
    assert parse_args(["--no-files", "gemini", "--acp"]) == Options(("gemini", "--acp"), files=False)
    for bad in ([], ["--"], ["--what", "x"], ["--mode"]):
        with pytest.raises(Usage):
            parse_args(bad)


def test_as_a_command_it_ends_with_its_agent_when_it_is_terminated(storage: Path) -> None:
    steps = Scripted(storage, "hang:deaf")
    command = [
        sys.executable,
        "-m",
        "uwf_git.ext.agents.acp.agent",
        "--",
        sys.executable,
        str(AGENT),
        *steps._flags,
    ]
    process = subprocess.Popen([*command, "hang:deaf", steps.thread, "worker"], env=os.environ)
    while len(steps.noted("child")) < 3:
        time.sleep(0.02)
    process.terminate()
    assert process.wait() == 130
    for pid in steps.noted("child"):
        wait_until_gone(pid)
