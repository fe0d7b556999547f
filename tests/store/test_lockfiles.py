"""A lock of somebody who was killed is removed, and that is said; one of another git is named with its age."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_samples import ONE
from commands import UWF
from conftest import Uwf

from uwf_git.git.lockfiles import Lockfiles

HOUR = 3600
traced = pytest.mark.needs("strace")


@pytest.fixture
def store(root: Path) -> Path:
    return root / "store.git"


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def test_a_record_that_comes_to_be_within_another_block_takes_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "uwf").mkdir()
    folder = tmp_path / "uwf" / "locking"
    folder.touch()  # as unusable as one whose disk fails for a moment
    lockfiles = Lockfiles(tmp_path)
    with lockfiles.locking("refs/uwf/threads/A"):
        folder.unlink()
        folder.mkdir()
        with lockfiles.locking("packed-refs"):
            assert [path.read_bytes() for path in folder.iterdir()] != []
    with lockfiles.locking("refs/uwf/threads/B"):
        pass


def test_a_live_lock_that_a_clock_makes_older_than_the_boot_stays(tmp_path: Path) -> None:
    (tmp_path / "uwf").mkdir()
    lock = tmp_path / "packed-refs.lock"
    with Lockfiles(tmp_path).locking("packed-refs"):
        lock.touch()
        os.utime(lock, (1, 1))
        assert Lockfiles(tmp_path).remove_stale(thorough=True) == []
        assert [each.is_left for each in Lockfiles(tmp_path).locks()] == [False]
    assert Lockfiles(tmp_path).remove_stale(thorough=True) == [lock]


def killed_holding(lock: Path, *command: str | Path) -> None:
    """Runs a command of which the process that holds a lock is killed as it puts the new file in place."""
    calls = "rename,renameat,renameat2,link,unlink"
    tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(lock), "-e", f"trace={calls}"]
    subprocess.run(
        [*tracer, "-e", f"inject={calls}:signal=SIGKILL:error=EIO", *UWF, *map(str, command)],
        capture_output=True,
        check=False,
    )
    assert lock.exists()


def packed_meanwhile(
    store: Path, lock: Path, is_taken: bool, *command: str
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command, and lets git pack all refs just before it takes a lock, or just after it has renamed it."""
    log = store.parent / "calls.log"
    calls = "openat" if is_taken else "rename"
    tracer = ["strace", "-f", "-qq", "-o", str(log), "-P", str(lock), "-e", f"trace={calls}"]
    inject = ["-e", f"inject={calls}:delay_{'enter' if is_taken else 'exit'}=4000000:when=1"]
    with subprocess.Popen(
        [*tracer, *inject, *UWF, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        while not (log.exists() and str(lock) in log.read_text()) or lock.exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.02)
        subprocess.run(["git", "--git-dir", store, "pack-refs", "--all"], check=True)
        assert is_taken or not lock.parent.exists()
        out, err = running.communicate()
    return subprocess.CompletedProcess(command, running.returncode, out, err)


@traced
def test_what_git_packs_while_another_ref_is_deleted_stays(uwf: Uwf, store: Path, thread: str) -> None:
    uwf("gc")
    new = uwf("thread", "start", "one", "-p", "Do it too").json["thread"]
    done = packed_meanwhile(store, store / "packed-refs.lock", True, "thread", "kill", thread)
    assert done.returncode == 0, done.stderr
    assert not (store / f"refs/uwf/threads/{new}").exists()
    states = {each["thread"]: each["status"] for each in uwf("thread", "list", "--all").json}
    assert states == {thread: "killed", new: "idle"}
    assert uwf("thread", "show", new).json["status"] == "idle"


@traced
def test_a_step_is_reported_as_done_though_git_packs_its_ref_and_removes_the_folder(
    uwf: Uwf, store: Path, thread: str
) -> None:
    lock = store / f"refs/uwf/threads/{thread}.lock"
    done = packed_meanwhile(store, lock, False, "thread", "step", thread)
    assert done.returncode == 0, done.stderr
    assert uwf("thread", "show", thread).json["done"]


def locks(uwf: Uwf, *options: str) -> list[dict[str, str]]:
    """What doctor says of locks; a pack that the killed one kept stays until packs are joined."""
    found = [each for each in uwf("doctor", "--quick", *options).json if each["check"] == "locks"]
    return [each for each in found if ".keep, " not in each["message"]]


@traced
@pytest.mark.parametrize("what", ["refs", "packed-refs", "config", "commit-graph"])
def test_the_lock_of_who_was_killed_is_removed_by_the_next_who_writes(
    uwf: Uwf, store: Path, thread: str, what: str
) -> None:
    command: tuple[str | Path, ...] = ("thread", "step", thread)
    lock = store / f"refs/uwf/threads/{thread}.lock"
    if what == "packed-refs":
        uwf("gc")
        command, lock = ("thread", "kill", thread), store / "packed-refs.lock"
    elif what == "config":
        command, lock = ("remote", "add", "origin", store.parent / "nowhere.git"), store / "config.lock"
    elif what == "commit-graph":
        command, lock = ("gc",), store / "objects/info/commit-graph.lock"
    killed_holding(lock, *command)
    left = locks(uwf)
    assert any(str(lock) in each["message"] for each in left)
    assert all("gone" in each["message"] and each["hint"] == "uwf doctor --fix" for each in left)
    if what == "packed-refs":
        assert uwf("thread", "show", thread).json["status"] == "killed"
        command = ("workflow", "rm", "one", "--yes")
    done = uwf(*command)
    assert "removed " in done.err and str(lock) in done.err and not lock.exists()
    assert locks(uwf) == [] and uwf(*command, check=None).err.count("removed") == 0


@traced
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_who_is_interrupted_as_a_lock_is_made_leaves_none(
    uwf: Uwf, store: Path, thread: str, signal: str
) -> None:
    lock = store / f"refs/uwf/threads/{thread}.lock"
    inject = ["-e", "trace=openat", "-e", f"inject=openat:signal={signal}:when=1"]
    tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(lock), *inject]
    done = subprocess.run([*tracer, *UWF, "thread", "step", thread], capture_output=True, check=False)
    assert done.returncode in (130, 143), done
    assert locks(uwf) == []
    assert uwf("thread", "step", thread).json["done"]


def test_the_lock_of_who_is_killed_while_others_wait_for_it_is_removed_by_them(
    uwf: Uwf, store: Path, thread: str
) -> None:
    uwf("gc")
    lock, kill = store / "packed-refs.lock", [*UWF, "thread", "kill", thread]
    with holding(lock) as holder, subprocess.Popen(kill, stderr=subprocess.PIPE) as waiting:
        while len(list((store / "uwf/locking").iterdir())) < 2:
            assert waiting.poll() is None
        holder.kill()
        told = waiting.communicate()[1].decode()
    assert waiting.returncode == 0, told
    assert f"removed {lock}" in told and locks(uwf) == []
    assert uwf("thread", "show", thread).json["status"] == "killed"


@traced
def test_doctor_removes_what_those_who_are_gone_have_left(uwf: Uwf, store: Path, thread: str) -> None:
    lock = store / f"refs/uwf/threads/{thread}.lock"
    killed_holding(lock, "thread", "step", thread)
    assert f"removed {lock}" in locks(uwf, "--fix")[0]["message"] and not lock.exists()
    old = store / "HEAD.lock"
    old.touch()
    os.utime(old, (1, 1))  # before this machine was started
    assert "gone" in locks(uwf)[0]["message"]
    locks(uwf, "--fix")
    assert not old.exists() and locks(uwf) == []


def test_the_first_to_lock_anything_after_a_power_cut_removes_what_it_left(
    uwf: Uwf, store: Path, thread: str
) -> None:
    lock = store / "config.lock"
    lock.touch()
    for path in (lock, store / "uwf/locking"):
        os.utime(path, (1, 1))  # before this machine was started
    assert "gone" in locks(uwf)[0]["message"]
    assert f"removed {lock}" in uwf("remote", "add", "origin", store.parent / "nowhere.git").err
    assert locks(uwf) == []


def test_many_locks_that_were_left_are_told_in_one_line(uwf: Uwf, store: Path, thread: str) -> None:
    left = [store / f"refs/uwf/threads/01M7YG01TDW8Q1A6N4C9X2K7H{end}.lock" for end in "ABCDE"]
    for path in left:
        path.touch()
    for path in (*left, store / "uwf/locking"):
        os.utime(path, (1, 1))  # before this machine was started
    said = uwf("remote", "add", "origin", store.parent / "nowhere.git").err
    assert said.count("removed ") == 1 and "and 2 more locks: who made them was killed" in said
    assert locks(uwf) == []


@pytest.mark.parametrize(
    "name",
    [
        "refs/uwf/threads/{}.lock",
        "packed-refs.lock",
        "config.lock",
        "objects/info/commit-graph.lock",
        "HEAD.lock",
    ],
)
def test_the_lock_of_another_git_stays_and_is_named_with_its_age(
    uwf: Uwf, store: Path, thread: str, name: str
) -> None:
    uwf("gc")
    lock = store / name.format(thread)
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    booted = float(Path("/proc/stat").read_text().partition("btime ")[2].split()[0])
    then = max(time.time() - 3 * HOUR, booted + 5)
    os.utime(lock, (then, then))
    for options in ([], ["--fix"]):
        (said,) = locks(uwf, *options)
        assert str(lock) in said["message"] and " old, is another git's" in said["message"]
        assert f"rm {lock}" in said["hint"] and lock.exists()
    if name.startswith("refs"):
        assert uwf("thread", "show", thread).json["status"] == "idle"
        busy = uwf("thread", "step", thread, check=4).error
        assert f"{lock}, " in busy["message"] and " old" in busy["message"] and f"rm {lock}" in busy["hint"]
    if name == "config.lock":
        busy = uwf("remote", "add", "origin", store, check=4).error
        assert f"{lock}, " in busy["message"] and " old" in busy["message"] and f"rm {lock}" in busy["hint"]
    assert lock.exists()


@contextlib.contextmanager
def holding(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of packed-refs or of a ref, until its standard input ends."""
    store = next(each for each in lock.parents if each.name == "store.git")
    code = """
import sys
from pathlib import Path
from uwf_git.git.lockfiles import Lockfiles
store, lock = map(Path, sys.argv[1:])
with Lockfiles(store).locking(str(lock.relative_to(store).with_suffix(""))):
    lock.touch()
    print("locked", flush=True)
    sys.stdin.readline()
    lock.unlink()
"""
    with subprocess.Popen(
        [UWF[0], "-c", code, store, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        child.stdout.readline()
        yield child


def test_who_is_alive_keeps_its_locks_and_who_ended_leaves_nothing(
    uwf: Uwf, store: Path, thread: str
) -> None:
    lock = store / "refs/uwf/threads/x.lock"
    with holding(lock):
        assert "another git's" in locks(uwf, "--fix")[0]["message"] and lock.exists()
        assert uwf("thread", "step", thread).err == ""
    assert locks(uwf) == [] and not list((store / "uwf/locking").iterdir())


def test_a_store_that_is_no_longer_used_leaves_neither_record_nor_open_file(tmp_path: Path) -> None:
    (tmp_path / "uwf").mkdir()
    lockfiles = Lockfiles(tmp_path)
    with lockfiles.locking("refs/uwf/x"):
        (record,) = (tmp_path / "uwf" / "locking").iterdir()
        assert [each for each in _open_files() if each == record]
    del lockfiles
    assert not record.exists()
    assert not [each for each in _open_files() if each.name.startswith(record.name)]


def _open_files() -> list[Path]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(each.readlink())
    return found
