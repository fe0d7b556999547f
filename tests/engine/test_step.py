"""Every fault an agent can have leaves the head where it was, the work kept, and one line that says so."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import alive, begin, git, wait_for
from conftest import Uwf
from warm import command as quick_uwf

from uwf_git.format.ids import is_hash

Script = Callable[[str, str], Path]


def head(uwf: Uwf, thread: str) -> str:
    return str(uwf("thread", "show", thread).json["head"])


def replies(hermetic: Path, *entries: dict[str, Any]) -> str:
    path = hermetic / "replies.json"  # JSON is YAML
    path.write_text(json.dumps(entries))
    return f"uwf-rehearse --script {path}"


def test_a_script_that_names_another_role_fails_and_leaves_the_head(
    uwf: Uwf, thread: str, hermetic: Path
) -> None:
    before = head(uwf, thread)
    failed = uwf(
        "thread", "step", thread, "--agent", replies(hermetic, {"role": "critic", "output": {}}), check=6
    )
    assert "writer" in failed.error["message"] and "critic" in failed.error["message"]
    assert head(uwf, thread) == before


def test_a_command_that_is_no_agent_is_told_how_to_be_one(
    uwf: Uwf, thread: str, script: Callable[[str, str], Path]
) -> None:
    tests = script("run-tests", "import sys; print('all passed'); sys.exit(len(sys.argv) > 4)")
    told = uwf("thread", "step", thread, "--agent", str(tests), check=6).error["hint"]
    assert "uwf agent put-step" in told and f'"uwf-exec {tests} …"' in told
    told = uwf("thread", "step", thread, "--agent", f"{tests} one two", check=6).error["hint"]
    assert f"uwf thread attempts {thread}" in told and f'"uwf-exec {tests} …"' in told


AGENTS = {
    "prints nothing": "",
    "prints garbage": "print('I am done, thank you')",
    "exits non-zero": "import sys; print('half an answer'); print('the reason', file=sys.stderr); sys.exit(3)",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "prints an unknown hash": "print('0000000000001')",
    "prints bytes that are no text": "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00\\x1b[2J')",
    "writes 100 MB and no hash": "import sys\nfor _ in range(1600): sys.stdout.write('x' * 65536)",
}


@pytest.mark.parametrize("fault", AGENTS)
def test_an_agent_that(fault: str, uwf: Uwf, thread: str, script: Script) -> None:
    before = head(uwf, thread)
    agent = script("agent", AGENTS[fault])
    failed = uwf("thread", "step", thread, "--agent", agent, check=6)
    assert (failed.out, failed.err.count("\n"), failed.error["code"]) == ("", 1, "agent_failed")
    shown = uwf("thread", "show", thread).json
    assert (shown["head"], shown["status"], shown["next"]) == (before, "failed", "writer")
    assert shown["role"] is None and shown["error"]
    assert [each["thread"] for each in uwf("thread", "list", "--status", "failed").json] == [thread]
    kept = uwf("thread", "attempts", thread).json
    assert [(a["role"], a["agent"], a["prev"], a["number"]) for a in kept] == [("writer", "agent", None, 1)]
    assert is_hash(kept[0]["attempt"])
    if fault == "exits non-zero":
        assert "the reason" in failed.error["message"] and "half an answer" in json.dumps(kept)
    assert uwf("thread", "step", thread, "--agent", "uwf-rehearse").json["status"] == "idle"


def test_an_agent_that_is_not_on_the_path_is_named_with_a_remedy(uwf: Uwf, thread: str) -> None:
    failed = uwf("thread", "step", thread, "--agent", "no-such-agent --fast", check=2)
    assert "no-such-agent" in failed.error["message"] and "PATH" in failed.error["message"]
    assert failed.error["hint"]


FOREIGN = """
import json, subprocess, sys
def uwf(*args):
    done = subprocess.run([*{uwf!r}, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
thread, role = sys.argv[-2:]
workflow = uwf("workflow", "show", "pair")
steps = uwf("thread", "steps", thread)
start = uwf("cas", "get", uwf("thread", "show", thread)["head"])
first = uwf("thread", "show", thread)["head"] if not steps else None
"""

PUT_STEP = (
    FOREIGN
    + """
node = uwf("cas", "get", uwf("thread", "show", thread)["workflow"])["payload"]
output = uwf("cas", "put", node["roles"][{output_role!r}]["outputSchema"], {output!r})["hash"]
detail = uwf("cas", "put", "Text", json.dumps("by hand"))["hash"]
payload = dict(start=first, prev=None, role=role, output=output, detail=detail, agent="by-hand")
payload.update({changes!r})
print("working on it")
for _ in range({lines}): print("x" * 1000)
print(uwf("cas", "put", {type!r}, json.dumps(payload))["hash"].lower())
"""
)


def by_hand(**changes: Any) -> str:
    values = {
        "output": '{"text": "five"}',
        "output_role": "writer",
        "changes": {},
        "lines": 0,
        "type": "StepNode",
        "uwf": quick_uwf(),
        **changes,
    }
    body = PUT_STEP
    for name, value in values.items():
        body = body.replace("{" + name + "!r}", repr(value)).replace("{" + name + "}", str(value))
    return body


def test_an_agent_of_any_make_needs_only_the_cas_commands(uwf: Uwf, thread: str, script: Script) -> None:
    done = uwf("thread", "step", thread, "--agent", script("agent", by_hand(lines=3000))).json
    assert (done["role"], done["status"]) == ("writer", "idle")
    step = uwf("thread", "steps", thread).json[0]
    assert (step["agent"], step["output"], step["step"]) == ("by-hand", {"text": "five"}, done["head"])


def test_a_step_keeps_the_nodes_of_its_agent_and_no_pin_but_those_made_before_it(
    uwf: Uwf, thread: str, script: Script, hermetic: Path
) -> None:
    def pinned() -> set[str]:
        names = git(
            "--git-dir", hermetic / "root/store.git", "for-each-ref", "--format=%(refname)", "refs/uwf/nodes"
        )
        return {name.rpartition("/")[2] for name in names.split()}

    mine = uwf("cas", "put", "Text", '"by hand"').json["hash"]  # which the agent's detail is, too
    beside = "uwf('cas', 'put', 'Text', '\"a note\"')\n"
    body = by_hand().replace("output = uwf", beside + "output = uwf", 1)
    uwf("thread", "step", thread, "--agent", script("agent", body))
    note = uwf("cas", "hash", "Text", '"a note"').json["hash"]
    assert pinned() == {mine, note}
    uwf("cas", "reindex")
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "five"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"changes": {"role": "critic"}}, "role critic"),
        ({"output_role": "critic", "output": '{"approved": true}'}, "not an output of role"),
    ],
)
def test_a_step_that_is_not_the_one_asked_for_is_refused(
    uwf: Uwf, thread: str, script: Script, changes: dict[str, Any], complaint: str
) -> None:
    before = head(uwf, thread)
    failed = uwf("thread", "step", thread, "--agent", script("agent", by_hand(**changes)), check=6)
    assert complaint in failed.error["message"]
    assert head(uwf, thread) == before


def test_the_hash_of_an_old_step_does_not_roll_the_thread_back(uwf: Uwf, thread: str, script: Script) -> None:
    first = uwf("thread", "step", thread).json["head"]
    second = uwf("thread", "step", thread).json["head"]
    uwf("thread", "step", thread, check=None)
    before = head(uwf, thread)
    for old in (first, second, before):
        failed = uwf("thread", "step", thread, "--agent", script("agent", f"print({old!r})"), check=None)
        if failed.code == 1:  # the second step may have ended the thread
            return
        assert failed.code == 6 and "already" in failed.error["message"]
    assert head(uwf, thread) == before


def test_a_step_of_another_thread_is_refused(uwf: Uwf, thread: str, script: Script) -> None:
    other = uwf("thread", "start", "pair", "-p", "Something else").json["thread"]
    foreign = uwf("thread", "step", other).json["head"]
    failed = uwf("thread", "step", thread, "--agent", script("agent", f"print({foreign!r})"), check=6)
    assert "has start" in failed.error["message"]


def test_three_invalid_answers_keep_every_answer_and_the_next_step_goes_on(
    uwf: Uwf, thread: str, hermetic: Path
) -> None:
    before = head(uwf, thread)
    garbage = replies(hermetic, {"role": "writer", "garbage": "I forgot the frontmatter \x1b[31m"})
    failed = uwf("thread", "step", thread, "--agent", garbage, check=6)
    assert "writer" in failed.error["message"]
    shown = uwf("thread", "show", thread).json
    assert (shown["head"], shown["status"]) == (before, "failed")
    (attempt,) = uwf("thread", "attempts", thread).json
    details = uwf("thread", "step-details", attempt["attempt"]).out
    assert details.count("I forgot the frontmatter") >= 3
    log = git("--git-dir", hermetic / "root/store.git", "log", "--format=%s", f"refs/uwf/attempts/{thread}")
    assert log.startswith("attempt 0001 writer")
    assert uwf("thread", "step", thread).json["role"] == "writer"
    assert uwf("thread", "show", thread).json["status"] == "idle"


def test_a_hanging_agent_dies_with_its_children_when_its_time_is_up(
    uwf: Uwf, thread: str, script: Script, config: Callable[[str], Path], hermetic: Path
) -> None:
    pids = hermetic / "pids"
    agent = script(
        "agent",
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n",
    )
    config(f"agents:\n  slow:\n    command: {agent}\n    timeout: 1\ndefaultAgent: slow\n")
    failed = uwf("thread", "step", thread, check=6)
    assert re.search(r" ran out of time after \d+s, silent for the last \d+s$", failed.error["message"])
    assert not any(alive(int(pid)) for pid in pids.read_text().split())
    assert uwf("thread", "show", thread).json["status"] == "failed"


SLOW = """
import os, sys, time
open({started!r}, "w").write(str(os.getpid()))
while not os.path.exists({go!r}): time.sleep(0.01)
sys.argv[0] = "uwf-rehearse"
from uwf_git.ext.agents.rehearse import main
main()
"""


class Slow:
    """A step in progress: its engine's process and its agent's."""

    def __init__(self, hermetic: Path, script: Script, thread: str, *arguments: str) -> None:
        self.started, self.go = hermetic / "started", hermetic / "go"
        body = SLOW.replace("{started!r}", repr(str(self.started))).replace("{go!r}", repr(str(self.go)))
        self.command = " ".join([str(script("slow-agent", body)), *arguments])
        self.engine = begin("thread", "step", thread, "--agent", self.command)
        self.agent = int(wait_for(self.started))


@pytest.fixture
def slow(hermetic: Path, script: Script, thread: str) -> Any:
    step = Slow(hermetic, script, thread)
    yield step
    step.go.touch()
    step.engine.kill()
    step.engine.communicate()
    if alive(step.agent):
        os.kill(step.agent, signal.SIGKILL)


def test_two_steps_at_once_make_one_step_and_one_busy(uwf: Uwf, thread: str, slow: Slow) -> None:
    assert uwf("thread", "show", thread).json["status"] == "running"
    assert uwf("thread", "list").json[0]["status"] == "running"
    assert uwf("thread", "step", thread, check=4).error["code"] == "busy"
    assert uwf("thread", "rm", thread, "--yes", check=4).error["code"] == "busy"
    slow.go.touch()
    assert slow.engine.wait(timeout=30) == 0
    assert len(uwf("thread", "steps", thread).json) == 1


def test_an_agent_that_outlives_its_engine_counts_as_running_and_its_work_is_not_lost(
    uwf: Uwf, thread: str, slow: Slow
) -> None:
    slow.engine.kill()
    slow.engine.communicate()
    assert uwf("thread", "show", thread).json["status"] == "running"
    uwf("thread", "step", thread, check=4)
    slow.go.touch()
    deadline = time.monotonic() + 30
    while uwf("thread", "show", thread).json["status"] == "running":
        time.sleep(0.02)
        assert time.monotonic() < deadline
    assert uwf("thread", "show", thread).json["status"] == "idle"
    assert uwf("thread", "attempts", thread).json == []
    done = uwf("thread", "step", thread, "--agent", "no-such-agent").json
    assert done["role"] == "writer"
    (step,) = uwf("thread", "steps", thread).json
    assert step["agent"] == "uwf-rehearse"


def test_what_an_agent_failed_at_after_its_engine_was_gone_is_kept_too(
    uwf: Uwf, thread: str, hermetic: Path, script: Script
) -> None:
    garbage = replies(hermetic, {"role": "writer", "garbage": "all that work"})
    orphan = Slow(hermetic, script, thread, *garbage.split()[1:])
    orphan.engine.kill()
    orphan.engine.communicate()
    orphan.go.touch()
    deadline = time.monotonic() + 30
    while uwf("thread", "show", thread).json["status"] == "running":
        time.sleep(0.02)
        assert time.monotonic() < deadline
    shown = uwf("thread", "show", thread).json
    assert shown["status"] == "failed"
    assert uwf("thread", "step", thread).json["role"] == "writer"
    (attempt,) = uwf("thread", "attempts", thread).json
    assert attempt["error"] == shown["error"]
    assert "all that work" in uwf("thread", "step-details", attempt["attempt"]).out


def test_killing_a_running_thread_ends_its_agent_first(uwf: Uwf, thread: str, slow: Slow) -> None:
    assert uwf("thread", "kill", thread, "--reason", "enough").json == {"thread": thread, "archived": True}
    assert not alive(slow.agent)
    assert slow.engine.wait(timeout=30) in (1, 6)
    assert uwf("thread", "show", thread).json["status"] == "killed"


def test_killing_a_thread_whose_engine_is_gone_ends_the_agent_that_is_left(
    uwf: Uwf, thread: str, slow: Slow
) -> None:
    slow.engine.kill()
    slow.engine.communicate()
    uwf("thread", "kill", thread)
    assert not alive(slow.agent)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_agent_and_keeps_the_attempt(
    uwf: Uwf, thread: str, slow: Slow, number: int, status: int
) -> None:
    slow.engine.send_signal(number)
    out, err = slow.engine.communicate(timeout=30)
    assert (slow.engine.returncode, out) == (status, "")
    assert json.loads(err.splitlines()[-1])["error"]["code"] == "interrupted"
    assert not alive(slow.agent)
    shown = uwf("thread", "show", thread).json
    assert (shown["status"], shown["role"], "error" in shown) == ("idle", None, False)
    assert uwf("thread", "attempts", thread).json[0]["error"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_an_agent_answered_before_an_interrupt_is_judged_by_the_next_step(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, number: int
) -> None:
    # What it leaves running holds its engine up, before the answer is looked at.
    left = "trap '' TERM; while :; do sleep 0.1; done"
    (hermetic / "answer.sh").write_text(
        f'echo asked >>asked\n(setsid sh -c "{left}" >/dev/null 2>&1 &)\nsleep 0.2\n'
        "printf -- '---\\ntext: seven\\n---\\n'\n"
    )
    asked = ("thread", "step", thread, "--agent", f"uwf-exec -- sh {hermetic}/answer.sh")
    engine = begin(*asked)
    wait_for(root / f"store.git/uwf/runs/{thread}.answer")
    engine.send_signal(number)
    _, err = engine.communicate(timeout=30)
    assert json.loads(err.splitlines()[-1])["error"]["code"] == "interrupted"
    assert uwf("thread", "steps", thread).json == uwf("thread", "attempts", thread).json == []
    assert uwf(*asked).json["role"] == "writer"
    assert Path("asked").read_text() == "asked\n"
    assert uwf("thread", "steps", thread).json[0]["output"] == {"text": "seven"}


def test_something_an_agent_leaves_running_does_not_hold_the_thread(
    uwf: Uwf, thread: str, script: Script
) -> None:
    body = (
        "import subprocess, sys\nsubprocess.Popen(['sleep', '600'], close_fds=False)\n"
        "from uwf_git.ext.agents.rehearse import main\nmain()\n"
    )
    assert uwf("thread", "step", thread, "--agent", script("leaver", body)).json["status"] == "idle"
    assert uwf("thread", "show", thread).json["status"] == "idle"
