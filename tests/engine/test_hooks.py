"""A hook hears of what a thread has come to, and nothing that it does changes that."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_samples import ASKS, PAIR, scripted, write
from commands import UWF, alive
from conftest import Uwf

Config = Callable[[str], Path]
Script = Callable[[str, str], Path]
DONE = "- {role: writer, output: {text: done}}\n- {role: critic, output: {approved: true}}\n"
EVENTS = ("waiting", "budget", "failed", "completed", "killed", "paused")


@pytest.fixture
def heard(config: Config, script: Script, tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What the hooks for all events were told since it was asked last, each with what its environment said."""
    log = tmp_path / "heard"
    hook = script(
        "hook",
        "import json, os, sys\n"
        "told = json.load(sys.stdin)\n"
        "told['env'] = list(map(os.environ.get, ['UWF_EVENT', 'UWF_THREAD', 'PWD', 'HOOK_URL']))\n"
        f"open({str(log)!r}, 'a').write(json.dumps(told) + '\\n')\n"
        "print('never shown')\n",
    )
    config("hooks:\n" + "".join(f"  {event}: {hook}\n" for event in EVENTS))

    def since() -> list[dict[str, Any]]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return [json.loads(line) for line in lines]

    return since


def test_each_event_is_told_once_with_the_threads_state(
    uwf: Uwf, thread: str, heard: Callable[[], list[dict[str, Any]]], root: Path
) -> None:
    (root / ".env").write_text("HOOK_URL=https://chat.example.invalid/hook\n")
    (root / ".env").chmod(0o600)
    fork = uwf("thread", "fork", thread).json["thread"]
    other = uwf("thread", "start", "pair", "-p", "Cheap", "--max-steps", "1").json["thread"]
    done = uwf("thread", "step", thread, "--agent", scripted(ASKS))
    assert "never shown" not in done.out + done.err
    [told] = heard()
    shown = uwf("thread", "show", thread).json
    assert {key: told[key] for key in shown} == shown
    assert (told["event"], told["title"], told["name"]) == ("waiting", "Do it", "pair")
    assert told["question"].startswith("Which") and told["agent"] == "uwf-rehearse"
    assert told["env"] == ["waiting", thread, str(root), "https://chat.example.invalid/hook"]

    uwf("thread", "run", thread, check=5)  # it waits as before
    uwf("thread", "answer", thread, "-m", "red")
    assert heard() == []
    uwf("thread", "pause", thread)
    uwf("thread", "kill", thread, "--reason", "enough")
    assert [(each["event"], each["status"]) for each in heard()] == [
        ("paused", "paused"),
        ("killed", "killed"),
    ]
    uwf("thread", "step", fork, "--agent", "sh -c 'echo no >&2; exit 3'", check=6)
    [told] = heard()
    assert (told["event"], told["failed"]) == ("failed", {"role": "writer", "agent": "sh"})
    assert "exited with 3" in told["error"]
    uwf("thread", "run", fork, "--agent", "uwf-rehearse")
    uwf("thread", "run", other, check=5)
    assert [(each["event"], each["thread"]) for each in heard()] == [("completed", fork), ("budget", other)]


def test_a_hook_that_fails_hangs_or_isnt_there_fails_no_step(
    uwf: Uwf, thread: str, config: Config, script: Script, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    hangs = script(
        "hangs", f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    for command, said in (
        ("sh -c 'echo so it is >&2; exit 7'", "uwf: the hook for waiting exited with 7: so it is\n"),
        (
            "no-such-program",
            "uwf: the hook for waiting doesn't start: command 'no-such-program' is not on PATH\n",
        ),
        (str(hangs), "uwf: the hook for waiting was ended after 0.5 s; hooks.timeout gives it longer\n"),
    ):
        config(f"hooks:\n  waiting: {json.dumps(command)}\n  timeout: 0.5\n")
        fork = uwf("thread", "fork", thread).json["thread"]
        done = uwf("thread", "step", fork, "--agent", scripted(ASKS))
        assert (done.json["status"], done.err) == ("waiting", said)
    assert not alive(pid.read_text())


def test_a_hook_may_call_uwf_and_is_found_beside_the_configuration(
    uwf: Uwf, thread: str, config: Config, root: Path
) -> None:
    config("hooks: {waiting: [bin/answers, blue]}")
    (root / "bin").mkdir()
    (root / "bin/answers").write_text('#!/bin/sh\nuwf thread answer "$UWF_THREAD" -m "$1"\n')
    (root / "bin/answers").chmod(0o755)
    assert uwf("thread", "step", thread, "--agent", scripted(ASKS)).err == ""
    assert uwf("thread", "steps", thread).json[-1]["output"] == {"answer": "blue"}


def test_hooks_are_set_listed_and_checked_like_the_rest_of_the_configuration(
    uwf: Uwf, config: Config, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uwf("config", "set", "hooks.waiting", "notify-me --urgent 'it: waits'")
    uwf("config", "set", "hooks.completed", '["sh", "-c", "true | true"]')
    uwf("config", "set", "hooks.timeout", "30s")
    assert uwf("config", "list").json == {
        "hooks.waiting": "notify-me --urgent 'it: waits'",
        "hooks.completed": ["sh", "-c", "true | true"],
        "hooks.timeout": "30s",
    }
    checks = [each for each in uwf("doctor", check=None).json if each["check"] == "hooks"]
    assert [each["status"] for each in checks] == ["warning", "ok"]
    assert "notify-me" in checks[0]["message"]

    for text, where, said in (
        ("hooks:\n  waitng: x\n", "2:3", 'unknown key "waitng" in hooks'),
        ("hooks:\n  waiting: x | y\n", "2:12", "needs a shell"),
        ("hooks:\n  waiting: 5\n", "2:12", "waiting must be text"),
        ("hooks:\n  timeout: soon\n", "2:12", "timeout soon is not a duration"),
    ):
        config(text)
        refused = uwf("agent", "list", check=1).error
        assert f"config.yaml:{where}: " in refused["message"] and said in refused["message"]
    assert os.environ["UWF_STORAGE_ROOT"] == str(root)


def test_a_role_of_a_human_who_isnt_there_waits_and_the_hook_calls_once(
    uwf: Uwf, thread: str, heard: Callable[[], list[dict[str, Any]]], root: Path
) -> None:
    heard()
    with (root / "config.yaml").open("a") as file:
        file.write("agentOverrides: {pair: {critic: human}}\n")
    ran = uwf("thread", "run", thread, check=5)
    assert [line["role"] for line in ran.lines] == ["writer"]
    assert ran.error == {
        "code": "waiting",
        "message": f"thread {thread} waits for a person to play role 'critic'",
        "hint": f"uwf thread answer {thread} -m CHOICE",
    }
    [told] = heard()
    assert (told["event"], told["next"]) == ("waiting", "critic")
    assert told["question"] == "Says whether the text will do."
    assert told["command"] == f"uwf thread answer {thread} -m CHOICE"
    uwf("thread", "run", "--all")  # as cron does again and again
    uwf("thread", "run", thread, check=5)
    assert heard() == []
    assert uwf("thread", "attempts", thread).json == []
    assert uwf("thread", "show", thread).json["status"] == "waiting"
    assert [each["kind"] for each in uwf("inbox").json] == ["role"]
    assert uwf("ps").json == []


def test_a_human_who_isnt_there_in_a_sub_workflow_makes_its_parent_ask(
    uwf: Uwf, thread: str, heard: Callable[[], list[dict[str, Any]]], root: Path
) -> None:
    outer = PAIR.replace("name: pair", "name: outer")
    uwf("workflow", "put", write("outer.yaml", outer))
    with (root / "config.yaml").open("a") as file:
        file.write(
            "agents:\n"
            '  sub: {command: uwf-workflow, args: [--output, \'{"text": "x"}\', pair]}\n'
            "agentOverrides: {outer: {writer: sub}, pair: {writer: human, critic: human}}\n"
        )
    uwf("thread", "kill", thread)
    heard()
    parent = uwf("thread", "start", "outer", "-p", "All of it").json["thread"]
    assert uwf("thread", "step", parent).json["status"] == "waiting"
    [told] = heard()
    assert (told["event"], told["thread"]) == ("waiting", parent)
    assert told["question"] == "Writes a text."
    assert told["reason"].startswith("a person plays writer in thread ")
    uwf("thread", "answer", parent, "-m", "Once upon a time")
    assert uwf("thread", "step", parent).json["status"] == "waiting"
    assert uwf("thread", "show", parent).json["options"] == ["yes", "no"]
    uwf("thread", "answer", parent, "-m", "yes")
    assert uwf("thread", "step", parent).json["status"] == "idle"
    child = uwf("thread", "show", parent).json["child"]
    assert [(each["agent"], each["output"]) for each in uwf("thread", "steps", child).json] == [
        ("uwf-human", {"text": "Once upon a time"}),
        ("uwf-human", {"approved": True}),
    ]


def test_the_result_is_printed_before_its_hook_is_run(uwf: Uwf, thread: str, config: Config) -> None:
    config(
        "hooks:\n"
        + "".join(f"  {event}: sh -c 'echo the hook >&2; exit 1'\n" for event in EVENTS)
        + "agentOverrides: {pair: {critic: human}}\n"
    )

    def printed(*args: str) -> list[str]:
        done = subprocess.run(
            [*UWF, "--format", "text", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return [
            "hook" if "the hook for" in line else line.split(":")[0].strip()
            for line in done.stdout.splitlines()
        ]

    fork, other = (uwf("thread", "fork", thread).json["thread"] for _ in range(2))
    by = "1  writer (uwf-rehearse)"
    asked = printed("thread", "step", thread, "--agent", scripted(ASKS))
    assert (asked[0], asked[-2:]) == (by, ["hook", "uwf"])
    assert printed("thread", "step", fork, "--agent", "sh -c 'exit 3'") == ["uwf", "hook"]
    question = ["Says whether the text will do.", "1  yes", "2  no"]
    assert printed("thread", "run", other) == [by, *question, "hook", "uwf"]
    assert printed("thread", "pause", fork)[-1] == "hook"
    assert printed("thread", "kill", fork)[-1] == "hook"
