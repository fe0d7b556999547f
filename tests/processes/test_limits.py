"""A command is ended at its limits, by the kernel where it has a control group and by a watch elsewhere, with all that
it started and nothing else; and what ended it is named. The commands here stop by themselves not far above."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import alive, begin, wait_for, wait_until_gone
from one_role import start

from uwf_git.config.policy import ToolPolicy
from uwf_git.ext.builtin.environment import standard_tools
from uwf_git.sandbox import limits
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.quota import Exceeded, Quota
from uwf_git.store.instance import Instance

# Takes 400 MB in pieces and writes them.
HOG = "held = []\nfor _ in range(80): held.append(b'x' * 5_000_000); time.sleep(0.01)\ntime.sleep(30)"
# Has 150 children.
BOMB = """
for _ in range(150):
    try:
        if not os.fork(): time.sleep(60); os._exit(0)
    except OSError: time.sleep(0.02)
time.sleep(60)
"""
BUSY = "until = time.monotonic() + 60\nwhile time.monotonic() < until: pass"
WRITER = """
for number in range(80):
    with open(f"file-{number}", "wb") as file: file.write(b"x" * 1_000_000)
    time.sleep(0.02)
time.sleep(60)
"""
CASES = {
    "memory": (HOG, Quota(memory=200e6)),
    "processes": (BOMB, Quota(processes=50)),
    "cpu": (BUSY, Quota(cpu=0.5)),
    "disk": (WRITER, Quota(disk=20e6)),
}


STATUS = {
    "type": "object",
    "properties": {"status": {"enum": ["passed", "failed"]}, "report": {"type": "string"}},
    "required": ["status"],
}


def python(text: str) -> list[str]:
    return [sys.executable, "-c", f"import os, sys, time\n{text}"]


@pytest.fixture(params=["group", "watch"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How limits are held: in a control group, where this machine has one to divide, or by a watch."""
    if request.param == "watch":
        monkeypatch.setattr(limits, "GROUPS", ())
    elif not limits.enforcement().startswith("bounded by the kernel"):
        pytest.skip(limits.enforcement())
    return str(request.param)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder whose files are counted as written to a disk: those of a memory file system aren't."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_what_exceeds_a_limit_is_ended_with_all_it_started_and_the_limit_is_named(
    on_disk: Path, kind: str, name: str
) -> None:
    program, quota = CASES[name]
    # It works in a grandchild that has left its parent's group, while the parent waits.
    text = f"if os.fork() == 0:\n os.setsid()\n open('pid', 'w').write(str(os.getpid()))\n exec({program!r})\nos.wait()"
    done = run_command(python(text), cwd=on_disk, quota=quota, timeout=50)
    assert not done.timed_out
    assert done.exceeded is not None and (done.exceeded.limit, done.exceeded.allowed) == (
        name,
        max(filter(None, quota)),
    )
    assert f"(tools.limits.{name})" in done.exceeded.told("tools.limits")
    assert not alive((on_disk / "pid").read_text())
    if name == "disk":
        assert sum(each.stat().st_size for each in on_disk.iterdir()) < 80_000_000
    assert not list(Path("/sys/fs/cgroup").glob(f"**/uwf-{os.getpid()}-*"))


@pytest.mark.parametrize("refused", ["signal", "error"])
def test_a_single_file_that_reaches_the_limit_of_disk_is_no_success(on_disk: Path, refused: str) -> None:
    """The writer ends by itself as soon as it is refused more, and so does the command, with status 0."""
    handled = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_%s)" % (
        "DFL" if refused == "signal" else "IGN"
    )
    writer = f"{handled}\nfile = open('one', 'wb', 0)\nfor _ in range(400): file.write(b'x' * 100_000)"
    (on_disk / "writer.py").write_text(writer)
    command = ["/bin/sh", "-c", f"{sys.executable} writer.py 2>err; true"]
    done = run_command(command, cwd=on_disk, quota=Quota(disk=5e6), timeout=50)
    assert done.exceeded is not None and done.exceeded.limit == "disk"
    assert (on_disk / "one").stat().st_size < 7_000_000
    done = run_command(command, cwd=on_disk, quota=Quota(disk=100e6), timeout=50)
    assert (done.returncode, done.exceeded) == (0, None)


def test_who_ends_well_after_the_kernel_has_killed_its_child_has_exceeded_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not limits.enforcement().startswith("bounded by the kernel"):
        pytest.skip(limits.enforcement())
    for name in ("_SOONEST", "_LATEST"):  # nobody looks meanwhile
        monkeypatch.setattr(limits, name, 60.0)
    child = shlex.join(python("held = b'x' * 400_000_000"))
    quota = Quota(memory=200e6)
    done = run_command(["/bin/sh", "-c", f"{child}; echo on"], cwd=tmp_path, quota=quota, timeout=50)
    assert done.exceeded == Exceeded("memory", 200e6)


def test_below_its_limits_a_command_is_left_alone_and_others_are_not_counted(
    tmp_path: Path, kind: str
) -> None:
    quota = Quota(memory=300e6, processes=20, cpu=30, disk=20e6)
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        text = "held = b'x' * 50_000_000; open(sys.argv[1], 'wb').write(b'x' * 5_000_000); time.sleep(0.5); sys.exit(3)"
        results[number] = run_command([*python(text), str(number)], cwd=tmp_path, quota=quota, timeout=60)

    mine = b"x" * 100_000_000  # this process's own
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert [(results[n].returncode, results[n].exceeded) for n in range(4)] == [(3, None)] * 4
    assert len(mine)


def test_a_command_of_a_model_is_told_what_ended_it_and_the_next_one_runs(tmp_path: Path, kind: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "hog.py").write_text(f"import time\nprint('begun', flush=True)\n{HOG}\n")
    policy = ToolPolicy(run_command=True, allow_unconfined=True, limits=Quota(memory=200e6))
    with standard_tools(project, policy) as box:
        result = box.call("run_command", {"command": "python3 hog.py; sleep 20; echo on"}).value
        assert result["ok"], result
        assert result["exceeded"] == "memory" and result["exitCode"] is None
        assert result["note"].startswith("ended, with all that it had started: it ")
        assert (
            result["note"].endswith("of memory, the limit is 200 MB (tools.limits.memory)") or kind == "group"
        )
        assert "begun" in result["output"] and "on\n" not in result["output"]
        assert box.call("run_command", {"command": "echo fine"}).value["output"] == "fine\n"


def test_limits_are_there_for_the_commands_of_models_and_for_agents_where_they_are_set(
    instance: Instance, uwf: Callable[..., Any], config: Callable[[str], Path]
) -> None:
    assert None not in Quota().given(limits.of_commands())
    assert Quota().given() == Quota() == Quota(memory=float("inf")).given(Quota(memory=5))
    agent = json.dumps([*python(BOMB)])
    config(
        f"agents: {{bomb: {{command: uwf-exec, args: {agent}, limits: {{processes: 50}}}}}}\ndefaultAgent: bomb\n"
    )
    thread = start(instance, STATUS)
    failed = uwf("thread", "step", thread, check=6)
    assert "was ended: it " in failed.err and "the limit is 50 (agents.bomb.limits.processes)" in failed.err
    assert "raise the limit in config.yaml" in failed.err
    wrong = uwf("config", "set", "agents.bomb.limits.memory", "much", check=1)
    assert "memory is not a size" in wrong.err and "2GB" in wrong.err
    assert uwf("config", "set", "agents.bomb.limits.memory", "1.5GiB").code == 0
    assert uwf("config", "set", "tools.limits", "{cpu: 10m, disk: none}").code == 0


def test_a_limit_in_words() -> None:
    for limit, said in (
        (Exceeded("memory", 2e9, 2.1e9), "it used 2.1 GB of memory, the limit is 2 GB (tools.limits.memory)"),
        (Exceeded("memory", 2e8), "it needed more memory, the limit is 200 MB (tools.limits.memory)"),
        (
            Exceeded("processes", 50, 60),
            "it had 60 processes and threads, the limit is 50 (tools.limits.processes)",
        ),
        (Exceeded("cpu", 600, 601), "it used 601 s of processor time, the limit is 600 s (tools.limits.cpu)"),
    ):
        assert limit.told("tools.limits") == said


# Agents that misbehave

STUBBORN = {
    "ignores SIGTERM": "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
    "stops itself": "import signal; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)",
    "is a daemon": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); {note}; time.sleep(600)",
    "floods": "while True: os.write(1, b'x' * 65536)",
    "leaves its stdout open": "{note}; os.fork() and os._exit(0); {note}; time.sleep(600)",
}


@pytest.mark.parametrize("how", STUBBORN)
def test_whatever_a_command_does_nothing_of_it_outlives_its_time(tmp_path: Path, how: str) -> None:
    note = "os.write(os.open('pids', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b'%d ' % os.getpid())"
    text = STUBBORN[how].replace("{note}", note)
    done = run_command(
        python(f"{note}; {text}" if "while" not in text else f"{note}\n{text}"), cwd=tmp_path, timeout=1.5
    )
    assert done.timed_out == (how not in ("is a daemon", "leaves its stdout open"))
    assert not any(map(alive, (tmp_path / "pids").read_text().split()))
    assert len(done.stdout_tail) <= 256 * 1024 and (done.stdout_size > 1_000_000) == (how == "floods")


def test_what_drops_its_environment_its_parents_and_its_group_is_ended_with_its_control_group(
    tmp_path: Path,
) -> None:
    if not limits.enforcement().startswith("bounded by the kernel"):
        pytest.skip(limits.enforcement())
    note = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    leave = "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)"
    text = (
        f"if os.fork() == 0:\n {leave}; os.execve({sys.executable!r}, ['x', '-c', {note!r}], {{}})\n"
        "while not (os.path.exists('pid') and os.path.getsize('pid')): time.sleep(0.01)"
    )
    done = run_command(python(text), cwd=tmp_path, quota=Quota(processes=50), timeout=50)
    assert done.returncode == 0 and not done.timed_out
    wait_until_gone((tmp_path / "pid").read_text())


@pytest.mark.parametrize("how", ["daemon", "group"])
def test_a_command_and_what_it_started_end_with_an_engine_that_is_killed(
    instance: Instance, uwf: Callable[..., Any], config: Callable[[str], Path], tmp_path: Path, how: str
) -> None:
    thread, pids = start(instance, STATUS), tmp_path / "pids"
    leave = "setsid " if how == "daemon" else ""
    script = (
        f"{leave}sh -c 'echo $$ >> {pids}; exec sleep 600' & sleep 0.5; echo $$ >> {pids}; exec sleep 600"
    )
    args = json.dumps(["--", "sh", "-c", script])
    config(f"agents: {{sleeper: {{command: uwf-exec, args: {args}}}}}\ndefaultAgent: sleeper\n")
    engine = begin("thread", "step", thread)
    wait_for(pids)
    for _ in range(1000):
        if len(pids.read_text().split()) == 2:
            break
        time.sleep(0.01)
    engine.send_signal(signal.SIGKILL)
    engine.communicate()
    for pid in pids.read_text().split():
        wait_until_gone(pid)
    assert uwf("thread", "show", thread).json["status"] == "failed"
