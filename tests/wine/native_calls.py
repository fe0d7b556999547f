"""What `uwf_git.base.system` does on Windows, run there. Each function is a claim; its name is printed if it holds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from uwf_git.base import system
from uwf_git.sandbox.child import run_command
from uwf_git.sandbox.descendants import Descendants
from uwf_git.sandbox.process_table import parents_of

WRITES = os.O_RDWR | os.O_CREAT | system.O_CLOEXEC
SLEEPS = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
)


def refused(act) -> bool:
    try:
        act()
    except BlockingIOError:
        return True
    return False


def a_lock_is_of_one_open_file_and_ends_with_it(folder: Path) -> None:
    one, other = (system.open_file(folder / "lock", WRITES) for _ in range(2))
    system.lock(one)
    assert refused(lambda: system.lock(other)) and refused(lambda: system.lock(other, shared=True))
    os.write(other, b"read by all")
    assert (folder / "lock").read_bytes() == b"read by all"
    system.lock(one, shared=True)
    system.lock(other, shared=True)
    os.close(other)
    system.lock(one)
    os.close(one)


def an_address_is_of_one_server(folder: Path) -> None:
    with socket.socket() as one, socket.socket() as other:
        assert system.bind(one, ("127.0.0.1", 0))
        one.listen()
        assert not system.bind(other, one.getsockname())


def who_waits_for_a_lock_gets_it(folder: Path) -> None:
    one, other = (system.open_file(folder / "wait", WRITES) for _ in range(2))
    system.lock(one)
    threading.Timer(0.2, lambda: os.close(one)).start()
    system.lock(other, wait=True)
    os.close(other)


def a_killed_process_holds_no_lock(folder: Path) -> None:
    code = (
        "import os, sys, time; from uwf_git.base import system; "
        f"system.lock(system.open_file(sys.argv[1], {WRITES})); print('held', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(folder / "killed")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        child.stdout.readline()
        mine = system.open_file(folder / "killed", WRITES)
        assert refused(lambda: system.lock(mine))
        child.kill()
    system.lock(mine, wait=True)
    os.close(mine)


def a_folder_is_held_by_one(folder: Path) -> None:
    held = system.lock_folder(folder)
    assert refused(lambda: system.lock_folder(folder))
    os.close(held)
    os.close(system.lock_folder(folder))


def an_open_file_can_be_renamed_and_removed(folder: Path) -> None:
    descriptor = system.open_file(folder / "open", WRITES)
    os.write(descriptor, b"one\r\ntwo\n")
    system.replace(folder / "open", folder / "renamed")
    assert system.read_at(descriptor, 99, 0) == b"one\r\ntwo\n"
    system.remove_held(folder / "renamed", descriptor)
    assert not (folder / "renamed").exists()


def a_file_is_opened_as_the_flags_say(folder: Path) -> None:
    (folder / "file").write_bytes(b"content")
    for flags, error in ((os.O_EXCL | WRITES, FileExistsError), (system.O_DIRECTORY, NotADirectoryError)):
        try:
            os.close(system.open_file(folder / "file", flags))
        except error:
            continue
        raise AssertionError(error)
    inside = system.open_file(folder, system.O_DIRECTORY)
    descriptor = system.open_file("file", os.O_RDONLY, dir_fd=inside)
    assert os.read(descriptor, 99) == b"content"
    os.close(descriptor)
    os.close(inside)
    os.close(system.open_file(folder / "file", os.O_TRUNC | WRITES))
    assert (folder / "file").read_bytes() == b""


def a_command_ends_with_all_that_it_started(folder: Path) -> None:
    env = dict(os.environ)
    descendants = Descendants(env)
    from uwf_git.sandbox.child import start

    argv = [sys.executable, "-c", f"{SLEEPS} print('up', flush=True); time.sleep(60)"]
    child = start(argv, descendants, stdin=subprocess.DEVNULL, cwd=folder, pass_fds=())
    child.stdout.readline()
    members = descendants.members(child.pid)
    assert {os.getpid()} < {*parents_of(members[-1].pid), os.getpid()} and len(members) >= 2, members
    descendants.end(child, 0.1)
    assert not any(system.is_there(member) for member in members)


def a_command_ends_when_its_time_is_up(folder: Path) -> None:
    done = run_command(
        [sys.executable, "-c", f"print('seen', flush=True); {SLEEPS} time.sleep(60)"], timeout=3.0, cwd=folder
    )
    assert done.timed_out and done.stdout_tail.strip() == b"seen", done


def a_command_ends_with_its_starter(folder: Path) -> None:
    starts = (
        "import os, subprocess, sys; from uwf_git.sandbox.child import start; "
        "from uwf_git.sandbox.descendants import Descendants; "
        "child = start([sys.executable, '-c', 'import time; time.sleep(60)'], Descendants(dict(os.environ)), "
        "stdin=subprocess.DEVNULL, cwd=None, pass_fds=()); print(child.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", starts], capture_output=True, stdin=subprocess.DEVNULL, check=True
    )
    deadline = time.monotonic() + 10
    while [*system.processes([int(done.stdout)])] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [*system.processes([int(done.stdout)])]


def the_machine_is_described(folder: Path) -> None:
    me = next(system.processes([os.getpid()]))
    assert abs(system.seconds_of(me) - time.time()) < 600 and me.resident > 1 << 20 and me.threads > 0
    assert min(system.own_memory()) > 1 << 20
    assert 0 < system.booted_at() < time.time()
    assert system.file_system(folder)
    assert abs(system.made_at(folder) - time.time()) < 600


if __name__ == "__main__":
    import traceback

    failed = False
    claims = [item for name, item in [*globals().items()] if name.startswith(("a_", "an_", "the_", "who_"))]
    for claim in claims:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            try:
                claim(Path(name))
                print(claim.__name__, flush=True)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                failed = True
    sys.exit(failed)
