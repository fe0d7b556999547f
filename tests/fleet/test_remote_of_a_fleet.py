"""A remote or a server that says nothing, or refuses: a fleet says so, and ends when it is told to."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import pty
import select
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_samples import write
from commands import alive, git, wait_for, wait_until_gone
from complete import examine
from conftest import Begin, Uwf
from fleets import FIVE, HAND, LIMIT, PATIENT, SERVER, STEPS, WORKER, hurry, kill, processes, some, until
from two_machines import Machine

from uwf_git.ext.fleet.server import Server

_NUMBERS = itertools.count()
_ALONE = "pace.QUICK = -1.0"  # each step is pushed before the next one begins
_SOON = 20  # seconds, of which a loaded machine needs some
# What stands for ssh: a command on this machine, unless the folder says that it hangs or refuses. It has a child, as a
# proxy that ssh starts is one.
_SSH = """\
#!/bin/sh
cd {0}
test -e refuses && { echo 0 >> asked; echo 'ssh: it wants nobody' >&2; exit 255; }
test -e hangs && { sleep 600 & echo $$ $! >> asked; wait; }
shift
exec sh -c "$*"
"""


class Line:
    """The way to a remote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def goes(self, how: str) -> None:
        """From now on it `hangs` or `refuses`; "" for neither."""
        for each in ("hangs", "refuses"):
            (self.folder / each).unlink(missing_ok=True)
        if how:
            (self.folder / how).touch()

    def asked(self) -> list[str]:
        """Who has asked in vain, once somebody has."""
        return wait_for(self.folder / "asked").split()


@pytest.fixture
def line(uwf: Uwf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The way to a bare repository, which is `origin` of a store with a thread."""
    ssh = tmp_path / "ssh"
    ssh.write_text(_SSH.replace("{0}", str(tmp_path)))
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    monkeypatch.setenv("GIT_SSH_VARIANT", "simple")
    git("init", "-q", "--bare", tmp_path / "bare.git")
    uwf("workflow", "put", write("five.yaml", FIVE))
    uwf("remote", "add", "origin", f"ssh://there{tmp_path}/bare.git")
    made = Line(tmp_path)
    yield made
    made.goes("")
    with contextlib.suppress(FileNotFoundError):
        for pid in (tmp_path / "asked").read_text().split():
            if pid != "0" and alive(pid):
                os.kill(int(pid), signal.SIGKILL)


def new(uwf: Uwf) -> str:
    """A thread that asks for something else than others: the same steps at the same time are the same commits."""
    return str(uwf("thread", "start", "five", "-p", f"Say {next(_NUMBERS)}").json["thread"])


def end(running: subprocess.Popen[str], root: Path, line: Line, number: int) -> str:
    """Ends a command, and sees that nothing is left of it; what it said."""
    running.send_signal(number)
    _, err = running.communicate(timeout=_SOON)
    for pid in line.asked():
        wait_until_gone(pid)
    until(lambda: not left(root), "end of what is left")
    return err


def left(root: Path) -> list[int]:
    """The processes of a fleet that are there."""
    return processes("uwf_git.ext.fleet", root) + processes(SERVER, root)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["run", "start", "worker", "sync"])
def test_ctrl_c_ends_a_command_whose_remote_says_nothing_with_all_that_asks_it(
    uwf: Uwf, root: Path, line: Line, command: str, number: int, begin: Begin
) -> None:
    which = () if command == "worker" else ("--all",)
    where = () if command == "run" else ("--address", "127.0.0.1:1")
    new(uwf)
    line.goes("hangs")
    running = begin("fleet", command, *which, "--remote", "origin", *where)
    line.asked()
    err = end(running, root, line, number)
    assert running.returncode == 128 + number and '"code":"interrupted"' in err


@pytest.mark.parametrize("phase", ["step", "push"])
def test_ctrl_c_ends_a_fleet_whose_remote_says_nothing_any_more(
    uwf: Uwf,
    root: Path,
    line: Line,
    tmp_path: Path,
    script: Callable[[str, str], Path],
    phase: str,
    begin: Begin,
) -> None:
    new(uwf), new(uwf)
    agent = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    running = begin("fleet", "run", "--all", "-j", "2", "--remote", "origin", *agent)
    until(lambda: (tmp_path / "began").exists(), "agent")
    until(lambda: len((tmp_path / "began").read_text().split()) == 2, "other agent")
    line.goes("hangs")
    if phase == "push":
        (tmp_path / "go").touch()
        line.asked()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=_SOON)
    assert running.returncode == 130, err
    until(lambda: not left(root), "end of what is left")


@pytest.mark.parametrize("who", ["command", "hand"])
def test_a_signal_is_heard_that_comes_right_before_a_wait_for_git(
    uwf: Uwf, root: Path, line: Line, tmp_path: Path, begin: Begin, who: str
) -> None:
    """Another thread gets it, so that it doesn't disturb the call of the kernel in which the main one waits."""
    threads = new(uwf), new(uwf)
    if who == "hand":
        uwf("push", "origin")
        with Server(tmp_path / "server") as server:
            at = ("--address", server.address)
            begin("fleet", "worker", "--remote", "origin", *at)
            uwf("fleet", "start", threads[0], *at)
            until(lambda: uwf("thread", "show", threads[0]).json["status"] == "completed", "end")
            line.goes("hangs")
            uwf("fleet", "start", threads[1], *at)
            asking = line.asked()
            for hand in processes(HAND, root):  # one of them asks
                tell_another_thread(hand, signal.SIGINT)
            for pid in asking:
                wait_until_gone(pid)
    else:
        line.goes("hangs")
        asked = begin("pull", "origin")
        asking = line.asked()
        tell_another_thread(asked.pid, signal.SIGTERM)
        assert asked.wait(_SOON) == 143
        for pid in asking:
            wait_until_gone(pid)


def test_a_remote_that_says_nothing_keeps_nobody_from_what_is_here(
    uwf: Uwf, root: Path, line: Line, begin: Begin
) -> None:
    thread = new(uwf)
    uwf("push", "origin")
    # The next command sees to what looks as if git had changed it by itself.
    git("-C", root / "store.git", "update-ref", "-d", f"refs/uwf/remotes/origin/threads/{thread}")
    line.goes("hangs")
    begin("pull", "origin")
    line.asked()
    assert thread in uwf("thread", "list", timeout=30).out


def tell_another_thread(pid: int, number: int) -> None:
    """Sends a signal to a thread of a process that isn't the main one."""
    others = (int(each.name) for each in Path(f"/proc/{pid}/task").iterdir())
    other = next(each for each in others if each != pid)
    assert ctypes.CDLL(None).tgkill(pid, other, number) == 0


def test_a_second_ctrl_c_waits_for_nothing_and_what_is_left_ends_by_itself(
    uwf: Uwf, root: Path, line: Line, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    new(uwf)
    agent = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    running = begin("fleet", "run", "--all", "--remote", "origin", *agent)
    until(lambda: (tmp_path / "began").exists(), "agent")
    worker = some(WORKER, root)[0]
    os.kill(worker, signal.SIGSTOP)
    line.goes("hangs")
    (tmp_path / "go").touch()
    running.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(1)
    running.send_signal(signal.SIGINT)
    assert running.wait(_SOON) == 130
    until(lambda: not left(root), "end of what is left")


@pytest.mark.parametrize("command", ["run", "start", "worker"])
@pytest.mark.parametrize("how", ["refuses", "is elsewhere"])
def test_a_remote_that_refuses_is_told_as_by_a_pull_before_a_fleet_begins(
    uwf: Uwf, root: Path, line: Line, command: str, how: str
) -> None:
    new(uwf)
    if how == "refuses":
        line.goes(how)
    else:
        (line.folder / "bare.git").rename(line.folder / "moved.git")
    which = () if command == "worker" else ("--all",)
    where = () if command == "run" else ("--address", "127.0.0.1:1")
    refused = uwf("fleet", command, *which, "--remote", "origin", *where, check=8)
    pulled = uwf("pull", "origin", check=8)
    of_fetch = pulled.err.replace("git ls-remote failed", "git fetch failed")
    assert refused.err == (of_fetch if command == "start" else pulled.err)
    assert not (root / "store.git/uwf/fleet/server.log").exists()


def test_a_remote_that_fails_meanwhile_is_told_once_and_when_it_answers_and_delays_its_threads(
    uwf: Uwf, line: Line, tmp_path: Path, begin: Begin
) -> None:
    threads = sorted(new(uwf) for _ in range(3))
    uwf("push", "origin")
    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)

        def states() -> set[tuple[str, str, str]]:
            rows = uwf("fleet", "status", "--all", *at).json
            return {(each["thread"], each["state"], each["why"]) for each in rows}

        working = begin("fleet", "worker", "-j", "2", "--remote", "origin", *at)
        uwf("fleet", "start", threads[0], *at)
        until(lambda: (threads[0], "completed", "") in states(), "end")
        line.goes("refuses")
        uwf("fleet", "start", *threads[1:], *at)
        why = "git fetch failed: ssh: it wants nobody"
        # A step that is tried later waits in the queue then, from which this worker takes none.
        until(
            lambda: {(each, why) for each in threads[1:]} & {(each, said) for each, _, said in states()},
            "delay",
        )
        until(lambda: len(line.asked()) > 1, "second try")
        line.goes("")
        until(lambda: {state for _, state, _ in states()} == {"completed"}, "ends")
        working.send_signal(signal.SIGTERM)
        _, err = working.communicate(timeout=_SOON)
    fails, answers = err.splitlines()
    told = json.loads(fails)["error"]
    assert (told["code"], told["message"]) == ("remote", f"remote origin: {why}")
    assert "asked again" in told["hint"] and answers == "uwf: remote origin answers again"
    assert examine(tmp_path / "bare.git", STEPS) == ({}, dict.fromkeys(threads, STEPS))


@pytest.mark.parametrize("remote", ["of the store", "of the project"])
def test_a_remote_that_hangs_is_told_and_asked_again_and_what_hung_is_ended(
    uwf: Uwf, line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: str, begin: Begin
) -> None:
    write("fault/sitecustomize.py", "import uwf_git.git.program as program\nprogram.PATIENCE = 2.0\n")
    first, second = new(uwf), new(uwf)
    project = tmp_path / "project"
    bare = f"ssh://there{tmp_path}/bare.git"
    git("init", "-q", project)
    git("-C", project, "commit", "-q", "--allow-empty", "-m", "begun")
    git("-C", project, "remote", "add", "origin", bare)
    uwf("push", "origin")
    agent = """uwf-exec sh -c 'echo "$UWF_ROLE" >> said; echo "{\\"text\\": \\"said\\"}"'"""
    space = ("--workspace", f"worktree:{project}", "--workspace-remote", "origin")
    what, where = {
        "of the store": ("fetch", ("--remote", "origin")),
        "of the project": ("push", (*space, "--agent", agent)),
    }[remote]
    monkeypatch.setenv("PYTHONPATH", str(Path("fault").absolute()), prepend=os.pathsep)

    def ends(*threads: str) -> None:
        def states() -> set[tuple[str, str]]:
            rows = uwf("fleet", "status", "--all", *at).json
            return {(each["thread"], each["state"]) for each in rows}

        until(lambda: states() == {(each, "completed") for each in threads}, "end")

    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)
        working = begin("fleet", "worker", *where, *at, "--format", "text")
        uwf("fleet", "start", first, *at)
        ends(first)
        line.goes("hangs")
        uwf("fleet", "start", second, *at)
        hung = line.asked()
        said = line_from(working)
        assert f"git {what} failed: it took more than 2 s and was ended" in said, said
        for pid in hung:
            wait_until_gone(pid)
        line.goes("")
        ends(first, second)
        working.send_signal(signal.SIGTERM)
        working.communicate(timeout=_SOON)


@pytest.mark.parametrize("how", ["terminal closed", "terminal full", "pipe full"])
def test_a_fleet_ends_when_it_is_told_to_also_where_nobody_reads_what_it_prints(
    uwf: Uwf,
    root: Path,
    line: Line,
    tmp_path: Path,
    script: Callable[[str, str], Path],
    how: str,
    begin: Begin,
) -> None:
    new(uwf)
    command = (
        "fleet",
        "run",
        "--all",
        "--agent",
        f"uwf-exec {script('patient', PATIENT)}",
        "--cwd",
        tmp_path,
    )
    reads, prints = os.pipe() if how == "pipe full" else pty.openpty()
    if how != "terminal closed":
        fill(prints)

    def owns_it() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    own = {} if how == "pipe full" else {"stdin": prints, "preexec_fn": owns_it, "start_new_session": True}
    running = begin(*command, **{"stdout": prints, "stderr": prints, **own})
    os.close(prints)
    wait_for(tmp_path / "began")
    if how == "terminal closed":
        os.close(reads)
    else:
        running.send_signal(signal.SIGHUP)
    assert running.wait(_SOON) == 128 + signal.SIGHUP
    until(
        lambda: not processes("uwf_git.ext.fleet", root) and not processes(SERVER, root),
        "end of its children",
    )
    with contextlib.suppress(OSError):
        os.close(reads)


def fill(output: int) -> None:
    """Writes to a pipe or a terminal that isn't read until it takes no more."""
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(output, b"x")
    os.set_blocking(output, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_fleet_whose_output_is_full_goes_on_and_looks_after_its_workers(
    uwf: Uwf, root: Path, line: Line, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    thread = new(uwf)
    patient = PATIENT.replace('Path("go").exists()', "Path(os.environ['UWF_ROLE']).exists()")
    agent = ("--agent", f"uwf-exec {script('patient', patient)}", "--cwd", tmp_path)
    (tmp_path / "one").touch()
    with open("/dev/full", "w") as full:
        running = begin("fleet", "run", "--all", "--heartbeat", 2, *agent, stdout=full)
    until(lambda: len(wait_for(tmp_path / "began").split()) == 2, "second step")
    kill(*some(WORKER, root))
    for role in ("two", "three", "four", "five"):
        (tmp_path / role).touch()
    assert running.wait(LIMIT) == 9
    assert examine(root / "store.git", STEPS).steps == {thread: STEPS}


def test_an_interrupted_fleet_names_no_other_command_as_the_one_that_goes_on(
    uwf: Uwf, line: Line, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    new(uwf)
    agent = (
        "--agent",
        f"uwf-exec {script('patient', PATIENT)}",
        "--workspace",
        f"folder:{tmp_path}",
        "--open",
        "1",
    )
    running = begin("fleet", "run", "--all", *agent)
    until(lambda: list(tmp_path.glob("*/began")), "agent")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=_SOON)
    assert running.returncode == 130 and "the same command goes on" in err and "uwf fleet" not in err


def test_a_namespace_that_no_server_was_named_for_is_refused(uwf: Uwf) -> None:
    assert "--address" in uwf("fleet", "run", "--all", "--namespace", "triage", check=2).error["hint"]


def kill_server(root: Path) -> None:
    for pid in processes(SERVER, root):
        kill(pid)


def line_from(running: subprocess.Popen[str]) -> str:
    """The next line that a command says on standard error."""
    assert running.stderr is not None
    assert select.select([running.stderr], [], [], LIMIT)[0], "nothing is said"
    return running.stderr.readline()


def test_a_worker_says_that_its_server_is_gone_and_goes_on_when_that_is_there_again(
    uwf: Uwf, root: Path, line: Line, tmp_path: Path, begin: Begin
) -> None:
    first, second = new(uwf), new(uwf)

    def goes(*threads: str) -> None:
        uwf("fleet", "start", threads[-1], "--address", server.address)
        ends = dict.fromkeys(threads, STEPS)
        until(lambda: examine(root / "store.git", STEPS).steps == ends, "end")

    with Server(tmp_path / "server") as server:
        hurried = hurry(tmp_path / "hurried", "client._POLL_INTERVAL = 0.5", "client._RETRY_FOR = 1.0")
        working = begin("fleet", "worker", "--address", server.address, "--format", "text", env=hurried)
        goes(first)
        kill_server(root)
        gone = f"no Temporal server answers at {server.address}: it "  # can't be reached, or has broken a call off
        assert gone in (said := line_from(working)) and "asked again and again" in said
        until(server.mend, "end of the server")
        assert f"the Temporal server at {server.address} answers again" in line_from(working)
        goes(first, second)
        working.send_signal(signal.SIGTERM)
        assert working.communicate(timeout=_SOON)[1] == ""
    assert working.returncode == 0


def test_a_worker_whose_server_says_nothing_ends_soon_and_keeps_what_its_agent_did(
    uwf: Uwf, root: Path, line: Line, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin
) -> None:
    thread = new(uwf)
    agent = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    with Server(tmp_path / "server") as server:
        at = ("--address", server.address)
        working = begin("fleet", "worker", *at, *agent)
        uwf("fleet", "start", thread, *at)
        wait_for(tmp_path / "began")
        for pid in processes(SERVER, root):
            os.kill(pid, signal.SIGSTOP)
        working.send_signal(signal.SIGTERM)
        working.communicate(timeout=_SOON)
    assert working.returncode == 0
    assert [each["error"] for each in uwf("thread", "attempts", thread).json] == ["interrupted"]


@pytest.mark.parametrize("command", [["run", "--all"], ["status", "--watch"]])
def test_a_command_whose_server_is_gone_meanwhile_ends_with_a_line_that_says_so(
    uwf: Uwf,
    root: Path,
    line: Line,
    tmp_path: Path,
    script: Callable[[str, str], Path],
    begin: Begin,
    command: list[str],
) -> None:
    new(uwf)
    agent = ("--agent", f"uwf-exec {script('patient', PATIENT)}", "--cwd", str(tmp_path))
    hurried = hurry(tmp_path / "hurried", "client._RETRY_FOR = 1.0")
    with Server(tmp_path / "server") as server:
        if command[0] == "run":
            running = begin("fleet", *command, "--address", server.address, *agent, env=hurried)
            wait_for(tmp_path / "began")
        else:
            running = begin("fleet", *command, "--address", server.address, env=hurried)
            assert running.stdout is not None and running.stdout.readline() == "[]\n"
        kill_server(root)
        _, err = running.communicate(timeout=2 * _SOON)
    assert running.returncode == 8
    (told,) = [json.loads(each)["error"] for each in err.splitlines()]
    gone = f"no Temporal server answers at {server.address}: it cannot be reached"
    assert (told["code"], told["message"]) == ("remote", gone)


def test_a_thread_that_the_remote_declines_is_told_once_and_given_up_while_others_go_on(
    uwf: Uwf, line: Line
) -> None:
    bad, good = new(uwf), new(uwf)
    refuses = line.folder / "bare.git" / "hooks" / "update"
    refuses.write_text(f'#!/bin/sh\ncase $1 in *{bad}*) echo "not that one" >&2; exit 1;; esac\n')
    refuses.chmod(0o755)
    hurried = hurry(line.folder / "hurried", "retry_policy._MAX_BACKOFF[retry_policy.LATER] = 0.2")
    done = uwf("fleet", "run", "--remote", "origin", "--tries", "1", check=8, timeout=100, env=hurried)
    errors = [json.loads(each)["error"] for each in done.err.splitlines()]
    assert [(each["code"], each["thread"]) for each in errors] == [("declined", bad)]
    assert examine(line.folder / "bare.git").steps == {good: STEPS}


@pytest.mark.parametrize("when", ["before a fetch", "before a push", "before the last push", "by rm"])
def test_a_thread_that_is_deleted_on_the_remote_is_given_up_and_told_while_others_go_on(
    uwf: Uwf, line: Line, tmp_path: Path, script: Callable[[str, str], Path], begin: Begin, when: str
) -> None:
    gone, good = new(uwf), new(uwf)
    bare = tmp_path / "bare.git"
    deletes = f"git --git-dir {bare} update-ref -d refs/uwf/threads/{gone}"
    if when == "before a fetch":
        hook = bare / "hooks/post-update"
        hook.write_text(f"#!/bin/sh\n{deletes}\n")
        hook.chmod(0o755)
    patient = script("patient", PATIENT)
    role = "five" if when == "before the last push" else "two"
    agent = tmp_path / "agent"
    agent.write_text(
        f"#!/bin/sh\nif [ $UWF_THREAD = {gone} ] && [ $UWF_ROLE = {role} ]; then\n"
        + {"before a fetch": "true", "by rm": f"exec {patient}"}.get(when, f"env -u GIT_DIR {deletes}")
        + '\nfi\necho \'{"text": "said"}\'\n'
    )
    agent.chmod(0o755)
    command = ("--all", "--remote", "origin", "--agent", f"uwf-exec {agent}", "--cwd", tmp_path)
    running = begin("fleet", "run", *command, env=hurry(tmp_path / "hurried", _ALONE))
    if when == "by rm":
        wait_for(tmp_path / "began")
        other = Machine(uwf, tmp_path / "other")
        other("init")
        other("remote", "add", "origin", f"ssh://there{bare}")
        other("pull", "origin")
        other("thread", "rm", gone, "--yes", "--remote", "origin")
        (tmp_path / "go").touch()
    _, err = running.communicate(timeout=LIMIT)
    # Who looks whether the push has landed may find that it hasn't, and says so of the remote.
    said = [json.loads(each)["error"] for each in err.splitlines() if each.startswith("{")]
    told = [error for error in said if "thread" in error]
    assert [(each["code"], each["thread"]) for each in told] == [("not_found", gone)]
    assert f"thread {gone} was deleted on origin" in told[0]["message"] and "brings" in told[0]["hint"]
    assert running.returncode == 3
    assert examine(bare).steps == {good: STEPS}


def test_a_thread_that_the_remote_has_rewritten_is_given_up_and_told_while_others_go_on(
    uwf: Uwf, line: Line, tmp_path: Path, begin: Begin
) -> None:
    bad, good = new(uwf), new(uwf)
    bare = tmp_path / "bare.git"
    ref = f"refs/uwf/threads/{bad}"
    git = f"env -u GIT_DIR git --git-dir {bare}"
    agent = tmp_path / "agent"
    agent.write_text(
        f"#!/bin/sh\nif [ $UWF_THREAD = {bad} ] && [ $UWF_ROLE = three ]; then\n"
        f"{git} cat-file commit {ref} | sed 's/^committer .* </committer The Boss </' > {tmp_path}/forged\n"
        f"{git} update-ref {ref} $({git} hash-object -t commit -w {tmp_path}/forged)\n"
        'fi\necho \'{"text": "said"}\'\n'
    )
    agent.chmod(0o755)
    command = ("--all", "--remote", "origin", "--agent", f"uwf-exec {agent}", "--cwd", tmp_path)
    running = begin("fleet", "run", *command, env=hurry(tmp_path / "hurried", _ALONE))
    _, err = running.communicate(timeout=LIMIT)
    said = [json.loads(each)["error"] for each in err.splitlines() if each.startswith("{")]
    told = [error for error in said if error["code"] == "rewritten"]
    assert told and f"thread {bad} was rewritten on origin" in told[0]["message"], err
    assert "reject-rewrite" in told[0]["hint"]
    assert running.returncode == 12
    assert examine(bare).steps == {good: STEPS}
