"""An agent is asked once: what it answered is on the disk before it is stored, and the next step takes it over."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from acp_steps import AGENT
from cli_samples import ONE
from commands import UWF, begin
from conftest import Uwf
from faults import on_a_small_disk

BIN = Path(sys.executable).parent
_ROW = {"program": "sh", "first": ["{args}"], "prompt": "stdin", "output": "text"}


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


@pytest.fixture
def agent(request: pytest.FixtureRequest, hermetic: Path) -> str:
    """The command of an agent that notes that it was asked, fills the disk of its store, `/mnt`, and answers then. The
    answer fits into the space that is kept free for it, and what it becomes in the store doesn't fit into the rest."""
    script = hermetic / "agent.sh"
    size = 66_000 if request.param == "a CLI" else 110_000  # its turn has the answer too
    script.write_text(
        f"echo asked >>{hermetic}/asked\n"
        "dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null\n"
        "printf -- '---\\nn: 7\\n---\\nDone, and paid for.\\n'\n"
        f"head -c {size} /dev/urandom | base64\n"
    )
    return {
        "in this process": f"uwf-exec -- sh {script}",
        "as a process": f"{BIN}/uwf-exec -- sh {script}",
        "a CLI": f"uwf-cli shell {script}",
    }[request.param]


@on_a_small_disk
@pytest.mark.parametrize("agent", ["in this process", "as a process", "a CLI"], indirect=True)
def test_what_an_agent_answers_on_a_full_disk_is_taken_over_by_the_next_step(
    root: Path, thread: str, hermetic: Path, agent: str
) -> None:
    (root / "config.yaml").write_text(json.dumps({"agentClis": {"shell": _ROW}}))
    uwf = " ".join(UWF) + " --root /mnt"
    program = f"""
mount -t tmpfs -o size=8m none /mnt && cp -a {root}/. /mnt/ || exit 99
{uwf} thread step {thread} --agent '{agent}'; echo "exit $?"
dd if=/dev/zero of=/mnt/more bs=1k 2>/dev/null
{uwf} thread step {thread} --agent '{agent}'; echo "exit $?"
{uwf} verify | tr -d ' \\n'; echo
rm /mnt/ballast /mnt/more
{uwf} thread step {thread} --agent false >/dev/null; echo "exit $?"
{uwf} thread read {thread} | grep paid
{uwf} thread attempts {thread}
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    statuses = [line for line in done.stdout.splitlines() if line.startswith("exit ")]
    assert statuses == ["exit 1", "exit 1", "exit 0"], done.stdout + done.stderr
    first, second = [json.loads(line)["error"] for line in done.stderr.splitlines() if line.startswith("{")]
    for error in (first, second):
        assert error["code"] == "store_unwritable" and "No space left" in error["message"]
    assert "what" in first["hint"] and "is kept" in first["hint"], first
    assert '"findings":[]' in done.stdout
    assert "Done, and paid for." in done.stdout and done.stdout.rstrip().endswith("[]"), done.stdout
    assert (hermetic / "asked").read_text() == "asked\n"


def test_no_agent_is_asked_whose_answer_could_not_be_kept(root: Path, thread: str, hermetic: Path) -> None:
    uwf = " ".join(UWF) + " --root /mnt"
    program = f"""
mount -t tmpfs -o size=8m none /mnt && cp -a {root}/. /mnt/ || exit 99
dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null; truncate -s -128k /mnt/ballast
{uwf} thread step {thread} --agent 'uwf-exec -- touch {hermetic}/asked'; echo "exit $?"
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    assert "exit 1" in done.stdout and "no agent was started" in done.stderr, done.stderr
    assert not (hermetic / "asked").exists()


def test_what_a_command_answered_is_judged_by_the_next_step_where_its_engine_was_killed_before(
    uwf: Uwf, root: Path, thread: str, hermetic: Path
) -> None:
    # What it leaves running holds its engine up, before the answer is looked at.
    left = "trap '' TERM; while :; do sleep 0.1; done"
    (hermetic / "answer.sh").write_text(
        f'echo asked >>{hermetic}/asked\n(setsid sh -c "{left}" >/dev/null 2>&1 &)\nsleep 0.2\n'
        "printf -- '---\\nn: 7\\n---\\nPaid.\\n'\n"
    )
    asked = ("thread", "step", thread, "--agent", f"uwf-exec -- sh {hermetic}/answer.sh")
    runs = root / "store.git/uwf/runs"
    answer = runs / f"{thread}.answer"
    engine = begin(*asked)
    while not (answer.exists() and answer.stat().st_size):
        assert engine.poll() is None
        time.sleep(0.005)
    engine.kill()
    engine.communicate()
    assert not (runs / f"{thread}.result").exists() and uwf("thread", "steps", thread).json == []
    assert uwf(*asked).json["done"]
    assert (hermetic / "asked").read_text() == "asked\n"
    assert "Paid." in uwf("thread", "read", thread).out and uwf("thread", "attempts", thread).json == []
    assert not list(runs.iterdir()) and uwf("verify").json["findings"] == []


VALID, WRONG = "---\nn: 7\n---\nPaid.", "no fields"
_SAYS = """\
import json, sys
asked, *answers = sys.argv[1:]
with open(asked, "a") as file:
    file.write("asked\\n")
print(json.dumps({"id": "s1", "text": answers[len(open(asked).readlines()) - 1], "in": 100, "out": 20}))
"""
_LINES = {
    "program": sys.executable,
    "first": ["{args}"],
    "resume": ["{args}", "{session}"],
    "output": "lines",
    "prompt": "stdin",
    "session": ".id",
    "text": ".text",
    "turns": [{"text": ".text"}],
    "usage": {"input": ".in", "output": ".out"},
}


def _asking(kind: str, folder: Path, answers: list[str]) -> str:
    """The command of an agent that answers so, one after the other, and notes each in `asked`."""
    (folder / "says.py").write_text(_SAYS)
    asked, words = folder / "asked", shlex.join(answers)
    if kind == "a command":
        return f"uwf-exec -- sh -c {shlex.quote(f'echo asked >>{asked}; echo {shlex.quote(answers[0])}')}"
    if kind == "a CLI":
        return f"uwf-cli says {folder}/says.py {asked} {words}"
    if kind == "over ACP":
        said = shlex.join(f"say:{each}" for each in answers)
        return f"uwf-acp -- {sys.executable} {AGENT} --log {asked} --sessions {folder} {said}"
    (folder / "script.yaml").write_text(json.dumps([{"role": "r", "answer": answers[0]}]))
    return f"uwf-rehearse --script {folder}/script.yaml"


@pytest.mark.needs("strace")
@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("a command", [VALID]),
        ("a CLI", [VALID]),
        ("a CLI", [WRONG, VALID]),
        ("over ACP", [VALID]),
        ("over ACP", [WRONG, VALID]),
        ("of the kit", [VALID]),
    ],
)
def test_an_answer_is_judged_by_the_next_step_where_its_engine_was_killed_before_it_looked(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, kind: str, answers: list[str]
) -> None:
    (root / "config.yaml").write_text(json.dumps({"agentClis": {"says": _LINES}}))
    runs, asked = root / "store.git/uwf/runs", hermetic / "asked"
    step = ("thread", "step", thread, "--agent", _asking(kind, hermetic, answers))
    inject = f"inject=close:signal=KILL:when={len(answers)}"
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(runs / f"{thread}.answer"), "-e", inject]
    killed = subprocess.run([*strace, *UWF, *step], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert not (runs / f"{thread}.result").exists() and uwf("thread", "steps", thread).json == []
    before = asked.read_text() if asked.exists() else ""
    (hermetic / "script.yaml").unlink(missing_ok=True)
    if kind == "of the kit":  # its script is gone, and would be asked for
        (hermetic / "script.yaml").write_text("[]")
    assert uwf(*step).json["done"]
    assert (asked.read_text() if asked.exists() else "") == before
    assert "Paid." in uwf("thread", "read", thread).out and uwf("thread", "attempts", thread).json == []
    detail = uwf(
        "thread", "step-details", "--format", "json", uwf("thread", "steps", thread).json[0]["step"]
    ).json["detail"]["value"]
    assert detail["extraction"] == ("correction" if WRONG in answers else detail["extraction"])
    assert [
        turn["text"] for turn in detail["turns"] if turn["text"] in answers
    ] == answers or kind == "a command"
    if kind in ("a CLI", "over ACP"):
        assert detail["usage"]["output"] == 20 * len(answers)
    assert not list(runs.iterdir()) and uwf("verify").json["findings"] == []


def _killed_with(answers: int, root: Path, thread: str, command: str) -> None:
    """Has a step that has 2.5 GB of memory killed the moment after so many answers were kept."""
    answer = root / f"store.git/uwf/runs/{thread}.answer"
    inject = f"inject=fsync:signal=KILL:when={answers}"
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(answer), "-e", inject]
    step = ["sh", "-c", 'ulimit -v 2500000; exec "$@"', "sh", *UWF, "thread", "step", thread]
    done = subprocess.run([*strace, *step, "--agent", command], capture_output=True, text=True, check=False)
    assert answer.is_file() and answer.stat().st_size < 1 << 20, done.stderr


@pytest.mark.needs("strace")
@pytest.mark.parametrize(
    ("kind", "answers", "agent"),
    [("a CLI", [WRONG, VALID], "uwf-cli/says"), ("a command", [VALID], "uwf-exec")],
)
@pytest.mark.parametrize("then", ["another is asked", "its thread is killed"])
def test_what_an_agent_answered_is_a_failed_attempt_with_what_it_used_where_it_is_not_asked_again(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, kind: str, answers: list[str], agent: str, then: str
) -> None:
    (root / "config.yaml").write_text(json.dumps({"agentClis": {"says": _LINES}}))
    _killed_with(len(answers), root, thread, _asking(kind, hermetic, answers))
    if then == "another is asked":
        uwf("thread", "step", thread, "--agent", "false", check=6)
    else:
        uwf("thread", "kill", thread)
    first, *others = uwf("thread", "attempts", thread).json
    assert first["agent"] == agent
    assert [each["agent"] for each in others] == ["false"] * (then == "another is asked")
    detail = uwf("thread", "step-details", "--format", "json", first["attempt"]).json["detail"]["value"]
    assert detail["answer"].strip() == VALID
    assert [turn["text"].strip() for turn in detail["turns"] if turn["text"].strip() in answers] == answers
    if kind == "a CLI":
        assert (detail["usage"]["input"], detail["usage"]["output"]) == (200, 40)
        assert uwf("stats", thread).json["total"]["output"] == 40
    assert not list((root / "store.git/uwf/runs").iterdir()) and uwf("verify").json["findings"] == []


def test_gc_drops_what_a_run_has_left_of_a_thread_that_ended(uwf: Uwf, root: Path, thread: str) -> None:
    runs = root / "store.git/uwf/runs"
    other = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    uwf("thread", "kill", thread)
    runs.mkdir(exist_ok=True)
    for each in (thread, other):
        for suffix in ("answer", "json", "room", "turns"):
            (runs / f"{each}.{suffix}").write_text("{}\n")
    uwf("gc")
    assert {path.name.partition(".")[0] for path in runs.iterdir()} == {other}
    assert len(list(runs.iterdir())) == 4


@pytest.mark.needs("strace")
@pytest.mark.parametrize("what", ["a huge file", "a folder"])
def test_what_is_no_answer_goes_out_of_the_way_of_one(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, what: str
) -> None:
    answer = root / f"store.git/uwf/runs/{thread}.answer"
    answer.parent.mkdir(exist_ok=True)
    if what == "a folder":
        (answer / "of somebody").mkdir(parents=True)
    else:
        answer.touch()
        os.truncate(answer, 3 << 30)
    command = _asking("a CLI", hermetic, [VALID])
    (root / "config.yaml").write_text(json.dumps({"agentClis": {"says": _LINES}}))
    _killed_with(1, root, thread, command)
    assert VALID.encode() in answer.read_bytes().replace(b"\\n", b"\n")
    assert uwf("thread", "step", thread, "--agent", command).json["done"]
    assert (hermetic / "asked").read_text() == "asked\n"
    assert [path.is_dir() for path in answer.parent.iterdir()] == [True] * (what == "a folder")


@pytest.mark.needs("strace")
@pytest.mark.parametrize("answer", ["n: 7", "m: 7"], ids=["a valid one", "a wrong one"])
def test_an_answer_outlives_a_kill_the_moment_after_it_was_kept(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, answer: str
) -> None:
    command = (
        f"uwf-exec -- sh -c 'echo asked >>{hermetic}/asked; printf -- \"---\\n{answer}\\n---\\nPaid.\\n\"'"
    )
    runs = root / "store.git/uwf/runs"
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(runs), "-e", "inject=fsync:signal=KILL"]
    killed = subprocess.run(
        [*strace, *UWF, "thread", "step", thread, "--agent", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    assert (runs / f"{thread}.result").exists() and uwf("thread", "steps", thread).json == []
    # The index goes too, so that nothing of the answer is known to anybody but its report.
    for file in (root / "store.git/uwf").glob("index.db*"):
        file.unlink()
    if answer == "n: 7":
        assert uwf("thread", "step", thread, "--agent", "false").json["done"]
        assert "Paid." in uwf("thread", "read", thread).out
        assert (hermetic / "asked").read_text() == "asked\n"
    else:
        uwf("thread", "step", thread, "--agent", "false", check=6)
        kept = uwf("thread", "attempts", thread).json
        assert [each["agent"] for each in kept] == ["uwf-exec", "false"]
        assert "Paid." in uwf("cas", "get", kept[0]["detail"]).out
    assert uwf("verify").json["findings"] == []
