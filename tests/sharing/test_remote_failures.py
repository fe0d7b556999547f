"""What a remote, a network or a disk can do to a push and a pull: they end in the middle, or never should have
begun. Afterwards both stores are sound, and a repeat finishes the job.

The moment of a fault is a number of bytes on the wire, counted first in a run that nothing disturbs, so that
every phase of the exchange is met.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import git_servers
import pytest
from commands import begin
from conftest import Uwf
from faults import DRIVER
from git_servers import Server, Wire
from two_machines import Machine

pytestmark = pytest.mark.extended

MOMENTS = 9 if os.environ.get("UWF_TEST_FAULTS") == "all" else 3


@pytest.fixture(scope="module")
def daemon() -> Iterator[Server]:
    """A running `git daemon`."""
    with git_servers.serve("daemon") as server:
        yield server


class Scene(NamedTuple):
    """A store and a remote, as they are before the command that goes wrong; `command` is that one."""

    machine: Machine
    remote: Path
    url: str
    command: str

    def through(self, port: int) -> None:
        """The remote's address from now on: the same repository at another port."""
        address = f"git://127.0.0.1:{port}/{self.remote.name}"
        git_servers.git("--git-dir", self.machine.store, "config", "remote.origin.url", address)

    def copy(self, uwf: Uwf, number: int) -> Scene:
        """The same again, to be spoilt."""
        root = self.machine.root.with_name(f"copy{number}")
        remote = self.remote.with_name(f"{self.remote.stem}-{number}.git")
        shutil.copytree(self.machine.root, root)
        shutil.copytree(self.remote, remote)
        return Scene(Machine(uwf, root), remote, self.url, self.command)

    def ends_well(self, port: int) -> None:
        """Both sides verify, and a repeat brings them to the same heads."""
        self.machine.verifies()
        _sound(self.remote)
        self.through(port)
        self.machine(self.command)
        if self.command == "pull":
            self.machine("push")
        assert self.machine.refs().items() <= git_servers.refs(self.remote).items()


def _sound(repository: Path) -> None:
    git_servers.git("--git-dir", repository, "fsck", "--strict", "--no-dangling")


@pytest.fixture(params=["push", "pull"])
def scene(request: pytest.FixtureRequest, uwf: Uwf, hermetic: Path, daemon: Server) -> Scene:
    """`push`: threads the remote doesn't have, and one that it has an older state of. `pull`: the other way
    around, with a thread that has diverged."""
    remote = git_servers.bare(daemon.folder / f"{hermetic.parent.name}.git")
    url = daemon.url(remote)
    ada, bob = Machine(uwf, hermetic / "ada"), Machine(uwf, hermetic / "bob")
    ada.registers()
    grows, ends, splits = (ada.starts(prompt) for prompt in ("Grows", "Ends", "Splits"))
    ada("remote", "add", "origin", url)
    ada("push")
    bob("clone", url)
    ada.steps(grows)
    ada("thread", "kill", ends)
    ada.starts("New " + "and long " * 500)
    if request.param == "push":
        return Scene(ada, remote, url, "push")
    ada.steps(splits, "by Ada")
    ada("push")
    bob.steps(splits, "by Bob")
    return Scene(bob, remote, url, "pull")


def _cut(command: subprocess.Popen[str], server: int) -> None:
    """Nothing but the cut itself."""


def _kill_uwf(command: subprocess.Popen[str], server: int) -> None:
    command.kill()


def _kill_git(command: subprocess.Popen[str], server: int) -> None:
    for pid in git_servers.children(command.pid):
        _kill(pid)


def _kill_server(command: subprocess.Popen[str], server: int) -> None:
    for connection in git_servers.children(server):
        for pid in (*git_servers.children(connection), connection):
            _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", [_cut, _kill_uwf, _kill_git, _kill_server])
def test_whoever_vanishes_at_whatever_byte_a_repeat_finishes_the_job(
    uwf: Uwf, scene: Scene, daemon: Server, fault: Callable[[subprocess.Popen[str], int], None]
) -> None:
    assert daemon.pid is not None
    undisturbed = scene.copy(uwf, 0)
    with Wire(daemon.port) as wire:
        undisturbed.through(wire.port)
        undisturbed.machine(undisturbed.command)
        total = wire.passed
    failed = 0
    for number in range(1, MOMENTS + 1):
        each = scene.copy(uwf, number)
        code, err = _disturbed(each, daemon, total * number // (MOMENTS + 1), fault)
        assert "Traceback" not in err
        if code != 0:
            failed += 1
            assert code == (-signal.SIGKILL if fault is _kill_uwf else 8), err
            assert code < 0 or len(err.splitlines()) == 1, err
        each.ends_well(daemon.port)
    each.machine.is_sound()
    assert failed > MOMENTS / 2, "the faults must hit"


def _disturbed(
    scene: Scene, daemon: Server, limit: int, fault: Callable[[subprocess.Popen[str], int], None]
) -> tuple[int, str]:
    """Exit status and complaints of the command when the fault happens after so many bytes."""
    started = threading.Event()
    command: list[subprocess.Popen[str]] = []

    def at_limit() -> None:
        started.wait()
        fault(command[0], daemon.pid or 0)

    with Wire(daemon.port, limit, at_limit) as wire:
        scene.through(wire.port)
        command.append(begin(scene.command, env=scene.machine.environment, start_new_session=True))
        started.set()
        _, err = command[0].communicate(timeout=60)
    # Nobody is still writing when the stores are looked at.
    _until(lambda: not _group(command[0].pid))
    _until(lambda: not git_servers.children(daemon.pid or 0))
    return command[0].returncode, err


def _group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _until(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not met():
        assert time.monotonic() < give_up, "it never ends"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pull_from_a_remote_that_says_nothing(
    victim: tuple[Machine, Path], number: signal.Signals
) -> None:
    ada, _ = victim
    before = _every_ref(ada)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/silent.git"
        git_servers.git("--git-dir", ada.store, "config", "remote.origin.url", url)
        pull = begin("pull", env=ada.environment, start_new_session=True)
        connection, _ = silent.accept()
        with connection:
            pull.send_signal(number)
            _, err = pull.communicate(timeout=30)
            assert pull.returncode in (128 + number, -number), err
            assert "Traceback" not in err
            _until(lambda: not _group(pull.pid))
    assert _every_ref(ada) == before


def _sharing(uwf: Uwf, hermetic: Path, *prompts: str) -> tuple[Machine, Machine, list[str]]:
    """Two machines, a remote that both have, and the threads with these prompts on all of them."""
    remote = git_servers.bare(hermetic / "remote.git")
    ada, bob = Machine(uwf, hermetic / "ada"), Machine(uwf, hermetic / "bob")
    ada.registers()
    threads = [ada.starts(prompt) for prompt in prompts]
    ada("remote", "add", "origin", str(remote))
    ada("push")
    bob("clone", str(remote))
    return ada, bob, threads


@pytest.mark.timeout(300)
def test_a_pull_that_is_killed_at_any_of_its_own_writes_is_finished_by_a_repeat(
    uwf: Uwf, hermetic: Path
) -> None:
    ada, bob, (splits, ends) = _sharing(uwf, hermetic, "Splits", "Ends")
    theirs = ada.steps(splits, "by Ada")
    ada("thread", "kill", ends)
    ada("push")
    ours = bob.steps(splits, "by Bob")
    copy = Machine(uwf, hermetic / "copy")
    stop = kills = 0
    while True:
        shutil.rmtree(copy.root, ignore_errors=True)
        shutil.copytree(bob.root, copy.root)
        stop += 1
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, str(stop), ("before", "after")[kills % 2], "pull"],
            env={**os.environ, **copy.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
        assert ours in copy.heads().values(), "a step was lost"
        copy("pull")
        heads = copy.heads()
        assert heads[splits] == theirs
        assert sorted(heads.values()) == sorted({*heads.values()}), "a repeat made another fork"
        assert len(heads) == 3 and ours in heads.values()
    assert kills > 5, "the driver must reach past the first writes"
    assert copy.status(ends) == "killed"
    copy.is_sound()


def test_two_pulls_at_the_same_time_come_to_what_one_does(uwf: Uwf, hermetic: Path) -> None:
    ada, bob, (splits,) = _sharing(uwf, hermetic, "Splits")
    for number in range(5):
        ada.steps(ada.starts(f"New {number}"))
    ada.steps(splits, "by Ada")
    ada("push")
    bob.steps(splits, "by Bob")
    pulls = [begin("pull", env=bob.environment) for _ in range(3)]
    for pull in pulls:
        _, err = pull.communicate(timeout=60)
        assert pull.returncode in (0, 4), err
        assert "Traceback" not in err
    bob("pull")
    bob("push")
    ada("pull")
    assert len(bob.heads()) == 7
    assert ada.heads() == bob.heads()
    for each in (ada, bob):
        each.is_sound()


# A full disk


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Callable[[int], None]]:
    """Mounts a disk; what it gives sets its size, in bytes. Skips where that isn't allowed."""
    folder.mkdir()
    mount = shutil.which("mount", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    mounted = mount and subprocess.run(
        [mount, "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")

    def size(count: int) -> None:
        option = f"remount,size={count}"
        subprocess.run([str(mount), "-o", option, str(folder)], capture_output=True, check=True)

    try:
        yield size
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)


def _used(folder: Path) -> int:
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.mark.timeout(300)
def test_a_disk_that_is_full_at_any_page_stops_a_pull_and_loses_nothing(
    uwf: Uwf, hermetic: Path, tmp_path: Path
) -> None:
    ada, bob, (splits,) = _sharing(uwf, hermetic, "Splits")
    for number in range(3):
        ada.starts(f"New {number} " + os.urandom(3000).hex())
    ada.steps(splits, "by Ada")
    ada("push")
    bob.steps(splits, "by Bob")
    before = bob.heads()
    failed = 0
    for number, pages in enumerate((0, 2, 8, 16, 24, 32, 64)):
        with _small_disk(tmp_path / f"disk{number}") as size:
            full = Machine(uwf, tmp_path / f"disk{number}" / "bob")
            shutil.copytree(bob.root, full.root)
            size(_used(full.root) + pages * os.sysconf("SC_PAGESIZE"))
            result = full("pull", check=None)
            failed += result.code != 0
            assert result.code in (0, 1, 8), result.err
            assert len(result.err.splitlines()) <= 1 or result.code == 0, result.err
            size(64 << 20)
            full.verifies()
            assert set(before.values()) <= set(full.heads().values())
            full("pull")
            assert set(full.heads().values()) == set(ada.heads().values()) | set(before.values())
            full.is_sound()
    assert failed >= 3, "the disk must have been too small"


def test_a_limit_on_the_size_of_files_stops_a_pull_and_loses_nothing(uwf: Uwf, hermetic: Path) -> None:
    ada, bob, _ = _sharing(uwf, hermetic)
    ada.starts("Long " + os.urandom(60_000).hex())
    ada("push")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    pull = begin("pull", env=bob.environment, preexec_fn=limited)
    _, err = pull.communicate(timeout=60)
    assert pull.returncode in (1, 8), err
    assert len(err.splitlines()) == 1
    assert bob.heads() == {}
    bob.is_sound()
    bob("pull")
    assert bob.heads() == ada.heads()


# Remotes that are not what they should be


@pytest.fixture
def victim(uwf: Uwf, hermetic: Path) -> tuple[Machine, Path]:
    """A machine with a thread, and the remote that it shares it with."""
    remote = git_servers.bare(hermetic / "remote.git")
    ada = Machine(uwf, hermetic / "ada")
    ada.registers()
    ada.starts("Of Ada")
    ada("remote", "add", "origin", str(remote))
    ada("push")
    return ada, remote


def _every_ref(machine: Machine) -> str:
    return git_servers.git("--git-dir", machine.store, "for-each-ref")


@pytest.mark.timeout(300)
def test_a_million_refs_are_refused_by_name(victim: tuple[Machine, Path]) -> None:
    ada, remote = victim
    oid = next(iter(git_servers.refs(remote).values()))
    with open(remote / "packed-refs", "w") as packed:
        packed.write("# pack-refs with: peeled fully-peeled sorted \n")
        packed.writelines(f"{oid} refs/uwf/threads/{_thread_id(number)}\n" for number in range(1_000_000))
    before = _every_ref(ada)
    said, status, memory = _measured("pull", ada)
    assert status == 8, said
    assert len(said.splitlines()) == 1 and "origin" in said and "refs" in said
    assert _every_ref(ada) == before
    # Most of it is what git itself needs for such a list.
    assert memory < 700_000, "kilobytes"


def _thread_id(number: int) -> str:
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "01J" + "".join(digits[number >> shift & 31] for shift in (15, 10, 5, 0)).rjust(23, "0")


def _advertises(refs: list[tuple[str, bytes]]) -> int:
    """A server of git's protocol that lists these refs to whoever connects, and nothing else: its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def line(text: bytes) -> bytes:
        return b"%04x" % (len(text) + 4) + text

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                for number, (oid, name) in enumerate(refs):
                    can = b"\0ofs-delta side-band-64k" if number == 0 else b""
                    connection.sendall(line(oid.encode() + b" " + name + can + b"\n"))
                connection.sendall(b"0000")
                connection.recv(1 << 16)

    threading.Thread(target=answer, daemon=True).start()
    return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    "name",
    [
        b"refs/uwf/threads/\x1b[31m01JK7MZZZZZZZZZZZZZZZZZZZZ",
        b"refs/uwf/threads/01JK7MZZZZZZZZZZZZZZZZZZZZ\r\x1b[2K",
        b"refs/uwf/threads/../../heads/main",
        b"refs/uwf/threads/\xff\xfe",
        "refs/uwf/threads/\u202e01JK7M".encode(),
        b"refs/uwf/workflows/--upload-pack=touch",
        b"refs/uwf/threads/01JK7MZZZZZZZZZZZZZZZZZZZZ\n0000\trefs/uwf/threads/01JK7MZZZZZZZZZZZZZZZZZZZZ",
    ],
)
def test_ref_names_with_control_characters_reach_neither_the_store_nor_the_terminal(
    victim: tuple[Machine, Path], name: bytes
) -> None:
    ada, remote = victim
    there = [(oid, known.encode()) for known, oid in git_servers.refs(remote).items()]
    before = _every_ref(ada)
    port = _advertises([*there, (there[0][0], name)])
    git_servers.git(
        "--git-dir", ada.store, "config", "remote.origin.url", f"git://127.0.0.1:{port}/hostile.git"
    )
    result = ada("pull", check=None)
    # A name with a line break passes for another ref, which then can't be fetched.
    assert result.code == (8 if b"\n" in name else 7), result.out + result.err
    assert "refs/uwf/" in result.err and len(result.warnings) == 1
    assert _every_ref(ada) == before
    shown = result.out + result.err
    assert not any(not (each.isprintable() or each in "\n\t") for each in shown), repr(shown)


def _forged(remote: Path, name: str, head: str, path: str, blob: str) -> None:
    """A step by nobody on a head: its tree, with this blob at a path besides."""
    git_dir = ("--git-dir", str(remote))
    index = {"GIT_INDEX_FILE": str(remote / "forged")}
    git_servers.git(*git_dir, "read-tree", head, env=index)
    git_servers.git(*git_dir, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index)
    tree = git_servers.git(*git_dir, "write-tree", env=index)
    message = "0001 writer: large\n\nUwf-Step: 4KNM2PXR3B1QW\nUwf-Role: writer\n"
    commit = git_servers.git(*git_dir, "commit-tree", tree, "-p", head, "-m", message)
    git_servers.git(*git_dir, "update-ref", name, commit)


def _gigabyte(repository: Path) -> str:
    """Puts a blob of 2^30 zero bytes into a repository, as git would, without compressing all of it; its
    id."""
    header, chunk, chunks = b"blob %d\0" % (1 << 30), bytes(1 << 20), 1 << 10
    digest, check = hashlib.sha1(header), zlib.adler32(header)
    for _ in range(chunks):
        digest.update(chunk)
        check = zlib.adler32(chunk, check)
    # After a full flush a compressor knows nothing of what came before, so each chunk comes out the same.
    deflate = zlib.compressobj(1, wbits=-15)
    begin = deflate.compress(header) + deflate.flush(zlib.Z_FULL_FLUSH)
    once = deflate.compress(chunk) + deflate.flush(zlib.Z_FULL_FLUSH)
    oid = digest.hexdigest()
    path = repository / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x78\x01" + begin + once * chunks + deflate.flush() + check.to_bytes(4, "big"))
    return oid


@pytest.mark.timeout(300)
def test_a_blob_of_a_gigabyte_is_refused(victim: tuple[Machine, Path]) -> None:
    ada, remote = victim
    known = ada.starts("As a node"), ada.starts("Beside the nodes")
    ada("push")
    blob = _gigabyte(remote)
    for thread, path in zip(known, ("steps/0001-writer/nodes/4KNM2PXR3B1QW.json", "large.bin"), strict=True):
        name = f"refs/uwf/threads/{thread}"
        _forged(remote, name, git_servers.refs(remote)[name], path, blob)
    before = ada.refs()
    said, status, memory = _measured("pull", ada)
    assert status in (7, 8), said
    assert all(thread in said for thread in known) or status == 8, said
    # A quarter of it is usual; git itself holds more where its other side is faster.
    assert memory < 900_000, "kilobytes"
    assert ada.refs() == before
    assert [ada.status(thread) for thread in known] == ["idle", "idle"]


def test_more_than_the_configured_size_is_not_fetched(victim: tuple[Machine, Path], hermetic: Path) -> None:
    ada, remote = victim
    name = f"refs/uwf/threads/{next(iter(ada.heads()))}"
    (hermetic / "large").write_bytes(os.urandom(3 << 20))
    blob = git_servers.git("--git-dir", remote, "hash-object", "-w", "--no-filters", hermetic / "large")
    _forged(remote, name, git_servers.refs(remote)[name], "large.bin", blob)
    git_servers.git("--git-dir", ada.store, "config", "uwf.maxFetch", "1m")
    before = ada.refs()
    refused = ada("pull", check=8)
    assert "uwf.maxFetch" in refused.err and len(refused.warnings) == 1
    assert ada.refs() == before
    assert list((ada.store / "objects" / "pack").glob("tmp_*")) == []
    ada.is_sound()


def test_a_remote_with_another_kind_of_object_ids_is_refused(
    victim: tuple[Machine, Path], hermetic: Path
) -> None:
    ada, _ = victim
    other = hermetic / "sha256.git"
    git_servers.git("init", "-q", "--bare", "--object-format=sha256", other)
    made = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    tree = git_servers.git("--git-dir", other, "mktree")
    commit = git_servers.git("--git-dir", other, "commit-tree", tree, "-m", "Start", env=made)
    git_servers.git("--git-dir", other, "update-ref", "refs/uwf/workflows/relay", commit)
    ada("remote", "add", "other", str(other))
    for command in ("push", "pull"):
        refused = ada(command, "other", check=8)
        assert len(refused.warnings) == 1
        assert "--object-format=sha1" in refused.error["hint"]


def _measured(command: str, machine: Machine) -> tuple[str, int, int]:
    """What a command says on both streams, its exit status, and the most memory that it or a child of it
    had, in kilobytes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uwf_cli.main", command],
        env={**os.environ, **machine.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert "Traceback" not in said, said
    return said, process.returncode, used.ru_maxrss


def test_a_ref_that_moves_between_being_listed_and_being_locked_is_a_lost_race(
    uwf: Uwf, tmp_path: Path
) -> None:
    ada, remote = Machine(uwf, tmp_path / "ada"), tmp_path / "remote.git"
    git_servers.git("init", "-q", "--bare", remote)
    ada.registers()
    thread = ada.starts()
    ada("remote", "add", "origin", remote)
    ada("push")
    ada.steps(thread)
    hook = remote / "hooks" / "pre-receive"
    # Whoever pushes at the same time moves it while ours is being received.
    moved = f"git update-ref refs/uwf/threads/{thread} refs/uwf/workflows/relay"
    hook.write_text(f"#!/bin/sh\nenv -u GIT_QUARANTINE_PATH {moved}\n")
    hook.chmod(0o755)
    pushed = ada("push", check=4)
    assert pushed.json["refused"][0]["lost"]
    assert pushed.error["code"] == "head_moved"


def test_a_clone_that_fails_leaves_no_store_and_one_that_was_there_stays(uwf: Uwf, tmp_path: Path) -> None:
    new, there = tmp_path / "new", Machine(uwf, tmp_path / "there")
    there.registers()
    nothing = str(tmp_path / "nothing.git")
    failed = uwf("clone", nothing, "--root", new, check=8).error
    assert "nothing.git" in failed["message"] and "git ls-remote" in failed["hint"]
    assert not new.exists()
    assert list(new.glob("*")) == []
    uwf("thread", "list", "--root", new, check=3)
    before = there.refs()
    there("clone", nothing, check=8)
    assert there.refs() == before and there("remote", "list").json == []
    git_servers.bare(tmp_path / "nothing.git")
    uwf("clone", nothing, "--root", new)
    assert uwf("thread", "list", "--root", new).json == []
