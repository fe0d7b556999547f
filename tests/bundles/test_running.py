"""Threads of bundles: what a step hands to the code and takes from it, what a run keeps, and how they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from bundle_files import TURNS
from cli_samples import ONE, write
from commands import alive, begin
from conftest import Uwf

from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.needs("bwrap", "node")


@pytest.fixture
def turns(uwf: Uwf) -> str:
    """A fresh thread of the bundle `turns`."""
    uwf("workflow", "put", write("turns.esm.js", TURNS))
    return start(uwf)


def start(uwf: Uwf, task: str = "Do it", *more: str) -> str:
    return str(uwf("thread", "start", "turns", "-p", task, *more).json["thread"])


def told(uwf: Uwf, thread: str) -> list[dict[str, Any]]:
    """What the steps of roles say that they were given, oldest first."""
    steps = uwf("thread", "steps", thread).json
    made = [uwf("cas", "get", each["detail"]).json for each in steps if each["role"] in ("maker", "judge")]
    return [json.loads(each["payload"]["answer"]) for each in made]


def test_a_step_is_one_yield_and_hands_the_code_the_whole_history(uwf: Uwf, turns: str) -> None:
    first = uwf("thread", "step", turns).json
    assert (first["role"], first["agent"], first["done"], first["status"]) == (
        "maker",
        "uwf-bundle",
        False,
        "idle",
    )
    assert uwf("thread", "show", turns).json["next"] == "$BUNDLE"
    assert uwf("thread", "step", turns).json["role"] == "judge"

    one, two = told(uwf, turns)
    assert (one["threadId"], one["heard"], one["maxRounds"]) == (turns, [], "Infinity")
    (heard,) = two["heard"]
    steps = uwf("thread", "steps", turns).json
    assert (heard["role"], heard["meta"], json.loads(heard["content"])) == ("maker", {"n": 0}, one)
    assert steps[0]["time"].startswith(_iso(heard["timestamp"]))
    assert two["process_"] != one["process_"]
    uwf("verify", "--strict")


def test_a_run_keeps_the_process_and_the_result_is_the_last_output(uwf: Uwf, turns: str) -> None:
    uwf("thread", "step", turns)
    lines = uwf("thread", "run", turns).lines
    assert [(each["role"], each["status"]) for each in lines] == [
        ("judge", "idle"),
        ("maker", "idle"),
        ("judge", "idle"),
        ("$END", "completed"),
    ]
    processes = [each["process_"] for each in told(uwf, turns)]
    assert len(set(processes)) == 2 and len(set(processes[1:])) == 1
    assert uwf("thread", "steps", turns).json[-1]["output"] == {"summary": "4 steps", "answers": []}
    shown = uwf("--format", "text", "thread", "show", turns).out
    assert "result (uwf-bundle)" in shown and "$END" not in shown
    _, _, hint = uwf("thread", "resume", turns, "-m", "More", check=None).error["hint"].partition("uwf ")
    forked = uwf(*hint.partition(", then: ")[0].split()).json["thread"]
    assert uwf("thread", "step", forked).json["role"] == "$END"
    uwf("verify", "--strict")


def test_a_fork_goes_on_from_a_shorter_history(uwf: Uwf, turns: str) -> None:
    uwf("thread", "run", turns)
    fork = uwf("thread", "fork", turns, "--at", "2").json["thread"]
    uwf("thread", "run", fork)
    shared, own = told(uwf, fork)[:2], told(uwf, fork)[2:]
    assert shared == told(uwf, turns)[:2]
    assert [len(each["heard"]) for each in own] == [2, 2] and {each["threadId"] for each in own} == {fork}


def test_a_question_waits_for_an_answer_that_the_code_is_then_given(uwf: Uwf, turns: str) -> None:
    thread = start(uwf, "ask")
    assert uwf("thread", "run", thread, check=5).error["code"] == "waiting"
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["asks"], shown["question"]) == ("waiting", "judge", "Go on?")
    uwf("thread", "answer", thread, "-m", "Yes, do")
    uwf("thread", "run", thread)
    assert uwf("thread", "steps", thread).json[-1]["output"]["answers"] == ["Yes, do"]
    uwf("verify", "--strict")


def test_a_thread_that_would_go_on_after_its_last_round_ends_without_a_result(uwf: Uwf, turns: str) -> None:
    thread = start(uwf, "Do it", "--max-rounds", "2")
    error = uwf("thread", "run", thread, check=1).error
    assert error["code"] == "out_of_rounds" and "maxRounds: 2 rounds are done" in error["message"]
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["reason"]) == ("killed", "maxRounds: 2 rounds are done")
    assert [each["maxRounds"] for each in told(uwf, thread)] == ["2", "2"]
    assert uwf("thread", "attempts", thread).json == []

    more = uwf("thread", "start", "turns", "-p", "x", "--max-rounds", "1000001", check=2).error
    assert "1000000" in more["message"]
    enough = start(uwf, "Do it", "--max-rounds", "4")
    assert uwf("thread", "run", enough).lines[-1]["status"] == "completed"
    uwf("verify", "--strict")


SLOW = """
export const descriptor = {
  name: "slow",
  description: "Waits.",
  roles: { a: { description: "waits", schema: { type: "object", properties: { n: { type: "integer" } } } } },
};
export async function* run(input) {
  yield { role: "a", content: "first", meta: { n: 1 } };
  console.log("now it waits");
  await new Promise((go) => setTimeout(go, 9e7));
}
"""


@pytest.mark.parametrize("how", ["ctrl-c", "pause", "killed"])
def test_a_run_that_is_broken_off_ends_the_process_and_the_next_step_tries_again(uwf: Uwf, how: str) -> None:
    uwf("workflow", "put", write("slow.esm.js", SLOW))
    thread = str(uwf("thread", "start", "slow", "-p", "Wait").json["thread"])
    running = begin("thread", "run", thread)
    while not (shown := uwf("thread", "show", thread).json.get("running") or {}).get("last"):
        time.sleep(0.1)
    assert (shown["role"], shown["agent"], shown["last"]) == ("$BUNDLE", "uwf-bundle", "now it waits")
    (harness,) = harnesses()
    if how == "pause":
        uwf("thread", "pause", thread, "--now")
        assert running.wait(30) == 5
        uwf("thread", "resume", thread)
    elif how == "killed":
        os.kill(harness, signal.SIGKILL)
        error = json.loads(running.communicate(timeout=30)[1].splitlines()[-1])["error"]
        assert (error["code"], running.returncode) == ("agent_failed", 6) and "step again" in error["hint"]
    else:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
    assert not alive(harness) and len(uwf("thread", "steps", thread).json) == 1
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["role"] == "$BUNDLE"
    uwf("verify", "--strict")


def harnesses() -> list[int]:
    """The processes in which code of bundles runs now, as this test has started them."""
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (each / "cmdline").read_bytes().split(b"\0")
            if (
                b"/run/harness/harness.mjs" in words
                and words[0].endswith(b"node")
                and _within(int(each.name))
            ):
                found.append(int(each.name))
    return found


def _within(pid: int) -> bool:
    """Whether this process is among those that started another."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == os.getpid():
            return True
    return False


def test_a_process_that_is_kept_is_no_more_than_a_cache(uwf: Uwf, turns: str) -> None:
    instance = Instance.open()
    with instance.keeping():
        step(instance, ThreadId(turns))
        step(instance, ThreadId(turns))
        uwf("thread", "step", turns)  # somebody else goes on
        step(instance, ThreadId(turns))
        assert len(harnesses()) == 1
    assert not harnesses()
    first, second, _, fourth = told(uwf, turns)
    assert first["process_"] == second["process_"] != fourth["process_"]
    assert [len(each["heard"]) for each in (first, second, fourth)] == [0, 0, 3]


def test_a_budget_holds_a_bundle_as_any_thread(uwf: Uwf, turns: str) -> None:
    thread = start(uwf, "Do it", "--max-steps", "2")
    assert "maxSteps is used up" in uwf("thread", "run", thread, check=5).error["message"]
    uwf("thread", "budget", thread, "--max-steps", "+3")
    assert uwf("thread", "run", thread).lines[-1]["status"] == "completed"
    uwf("verify", "--strict")


def test_a_bundle_does_the_role_of_another_workflow(uwf: Uwf, turns: str) -> None:
    uwf(
        "workflow",
        "put",
        write(
            "one.yaml",
            ONE.replace("n: {type: integer}", "summary: {type: string}").replace("[n]", "[summary]"),
        ),
    )
    uwf("config", "set", "agents.turns", "{command: uwf-workflow, args: [turns]}")
    thread = uwf("run", "one", "-p", "Do it", "--agent", "turns").lines[0]["thread"]
    (made,) = uwf("thread", "steps", thread).json
    assert made["output"]["summary"] == "4 steps" and not harnesses()
    uwf("verify", "--strict")


GRANTED = """
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
export const descriptor = {
  name: "granted",
  description: "Looks.",
  roles: { a: { description: "looks", schema: { type: "object" } } },
};
export async function* run({ prompt }) {
  const [read, write, port] = JSON.parse(prompt);
  const attempts = [read, write].flatMap((folder) => {
    return [`${folder}/new`, `${folder}/.git/config`].map((file) => {
      try { writeFileSync(file, "x"); return "written"; } catch (error) { return error.code; }
    });
  });
  const net = await new Promise((go) => {
    connect(port, "127.0.0.1").on("connect", () => go("connected")).on("error", go);
  });
  yield { role: "a", content: readFileSync(`${read}/key`, "utf8"), meta: { attempts, net } };
}
"""


def test_the_configuration_grants_what_code_reaches_and_secrets_are_taken_out_of_what_it_says(
    uwf: Uwf, tmp_path: Path, root: Path
) -> None:
    read, write_ = tmp_path / "read", tmp_path / "write"
    for folder in (read, write_):
        subprocess.run(["git", "init", "-q", folder], check=True)
    (read / "key").write_text("it is tok-en-1234567890")
    uwf("workflow", "put", write("granted.esm.js", GRANTED))
    uwf("config", "set", "secrets", "[DEPLOY_TOKEN]")
    granted = {"network": True, "read": [str(read)], "write": [str(write_)]}
    uwf("config", "set", "bundles.granted", json.dumps(granted))
    with socket.create_server(("127.0.0.1", 0)) as server:
        task = json.dumps([str(read), str(write_), server.getsockname()[1]])
        thread = uwf("thread", "start", "granted", "-p", task).json["thread"]
        uwf("thread", "step", thread, env={"DEPLOY_TOKEN": "tok-en-1234567890"})
    (made,) = uwf("thread", "steps", thread).json
    assert made["output"] == {"attempts": ["EROFS", "EROFS", "written", "EROFS"], "net": "connected"}
    assert uwf("cas", "get", made["detail"]).json["payload"]["answer"] == "it is [redacted:DEPLOY_TOKEN]"
    assert (write_ / "new").read_text() == "x"

    for named, said in ((str(tmp_path / "none"), "does not exist"), (str(root), "keeps its configuration")):
        uwf("config", "set", "bundles.granted.read", json.dumps([named]))
        error = uwf(
            "thread", "step", uwf("thread", "fork", thread, "--at", "0").json["thread"], check=6
        ).error
        assert said in error["message"]
    assert (
        "not an absolute path"
        in uwf("config", "set", "bundles.granted.read", "[here]", check=1).error["message"]
    )


def test_without_a_sandbox_code_runs_only_where_the_configuration_says_so(
    uwf: Uwf, turns: str, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    broken.chmod(0o755)
    env = {"PATH": f"{broken.parent}:{os.environ['PATH']}"}
    error = uwf("thread", "step", turns, env=env, check=6).error
    assert "cannot be confined: bwrap does not work here: no namespaces here" in error["message"]
    assert "allowUnconfined" in error["hint"]
    uwf("config", "set", "tools.allowUnconfined", "true")
    uwf("thread", "run", turns, env=env)
    first = uwf("cas", "get", uwf("thread", "steps", turns).json[0]["detail"]).json["payload"]
    assert first["notes"] == ["the code ran without a sandbox: it could reach whatever the user can"]


def _iso(milliseconds: int) -> str:
    from uwf_git.base.text import iso

    return iso(milliseconds // 1000).removesuffix("Z")


@pytest.mark.parametrize(
    ("returned", "status", "reason"),
    [
        ('{"$status": "$FAIL", "reason": "No tests."}', "failed", "No tests."),
        ('{"$status": "$FAIL"}', "failed", ""),
        ('{"status": "failed", "reason": "No tests."}', "completed", None),
    ],
)
def test_a_result_decides_whether_the_thread_has_failed(
    uwf: Uwf, returned: str, status: str, reason: str | None
) -> None:
    role = '"one": {"description": "One.", "schema": {"type": "object"}}'
    code = (
        f'descriptor = {{"name": "ends", "description": "Ends.", "roles": {{{role}}}}}\n\n\n'
        f"async def run(input, options):\n    options.finish({returned})\n    return\n    yield\n"
    )
    put = uwf("workflow", "put", write("ends.py", code)).json
    thread = uwf("thread", "start", put["hash"], "-p", "Do it").json["thread"]
    uwf("thread", "run", thread, check=10 if status == "failed" else 0)
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown.get("reason")) == (status, reason)
    assert uwf("verify").json["findings"] == []
