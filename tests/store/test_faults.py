"""A store that is read-only, full, locked or damaged: one line, the right exit status, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bundle_files import DEBATE
from cli_samples import ONE
from commands import UWF, git, loose
from conftest import EXAMPLES, Uwf
from faults import obeying_modes, on_a_small_disk

from uwf_git.git.database import unwritable

pytestmark = pytest.mark.extended


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def test_a_read_only_store_is_read_and_a_write_refused(uwf: Uwf, root: Path, thread: str) -> None:
    prefix = obeying_modes()
    subprocess.run(["chmod", "-R", "a-w", str(root)], check=True)
    try:
        shown = subprocess.run([*prefix, *UWF, "thread", "show", thread], capture_output=True, check=False)
        listed = subprocess.run([*prefix, *UWF, "thread", "list"], capture_output=True, check=False)
        step = subprocess.run(
            [*prefix, *UWF, "thread", "step", thread], capture_output=True, text=True, check=False
        )
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
    assert (shown.returncode, listed.returncode) == (0, 0), shown.stderr + listed.stderr
    assert thread.encode() in shown.stdout and thread.encode() in listed.stdout
    assert step.returncode == 1 and "store_unwritable" in step.stderr and "Traceback" not in step.stderr
    assert uwf("thread", "step", thread).json["done"]


@pytest.mark.parametrize("folder", ["objects", "objects/pack", "refs/uwf/threads", "uwf", "uwf/runs"])
def test_doctor_tells_of_a_folder_in_which_a_step_could_not_write(
    uwf: Uwf, root: Path, thread: str, folder: str
) -> None:
    where = root / "store.git" / folder
    where.mkdir(exist_ok=True)
    before = sorted(where.iterdir())
    where.chmod(0o555)
    try:
        done = subprocess.run(
            [*obeying_modes(), *UWF, "doctor", "--quick"], capture_output=True, text=True, check=False
        )
    finally:
        where.chmod(0o755)
    said = [each for each in json.loads(done.stdout) if each["status"] == "error"]
    assert done.returncode == 1 and [each["check"] for each in said] == ["store"], done.stdout
    assert f"written in {where}: Permission denied" in said[0]["message"] and "permissions" in said[0]["hint"]
    assert all(each["status"] == "ok" for each in uwf("doctor", "--quick").json)
    assert sorted(where.iterdir()) == before


class Users(NamedTuple):
    """Two users of one group, and a folder that both may write to."""

    folder: Path
    shared: Path
    owner: int
    guest: int
    group: int

    def run(self, user: int, umask: int, *command: str) -> subprocess.CompletedProcess[str]:
        """A command as a user, in a home of theirs."""
        rights = ["setpriv", f"--reuid={user}", f"--regid={self.group}", "--clear-groups"]
        home = self.folder / str(user)
        env = {**os.environ, "HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig")}
        env["UWF_STORAGE_ROOT"] = str(self.shared)
        return subprocess.run(
            [*rights, *command],
            cwd=self.folder,
            env=env,
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
        )

    def uwf(self, user: int, umask: int, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run(user, umask, *UWF, *args)


@pytest.fixture
def users() -> Iterator[Users]:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root becomes two users, by setpriv (Debian package util-linux)")
    group = 54_321
    with tempfile.TemporaryDirectory(prefix="uwf-users-") as name:
        users = Users(Path(name), Path(name) / "shared", group + 1, group + 2, group)
        users.folder.chmod(0o755)
        (users.folder / "one.yaml").write_text(ONE)
        users.shared.mkdir()
        os.chown(users.shared, 0, group)
        users.shared.chmod(0o2775)
        for each in (users.owner, users.guest):
            (users.folder / str(each)).mkdir()
            os.chown(users.folder / str(each), each, group)
        if users.uwf(users.owner, 0o002, "--version").returncode:
            pytest.skip("another user may not read this project's programs")
        yield users


def test_a_store_of_another_user_is_refused_before_anything_of_it_is_touched(users: Users) -> None:
    owner, shared = users.owner, users.shared
    made = users.uwf(owner, 0o002, "thread", "start", "one.yaml", "-p", "Do it")
    thread = json.loads(made.stdout)["thread"]
    before = sorted(shared.rglob("*"))
    for umask in (0o077, 0o002):
        told = users.uwf(users.guest, umask, "thread", "step", thread)
        assert told.returncode == 1 and "safe.directory" in json.loads(told.stderr)["error"]["hint"]
    assert sorted(shared.rglob("*")) == before
    assert users.uwf(owner, 0o022, "thread", "step", thread).returncode == 0
    assert json.loads(users.uwf(owner, 0o022, "verify").stdout)["findings"] == []


@pytest.mark.parametrize(("sharing", "modes"), [("group", 0o660), ("0640", 0o640)])
def test_what_is_written_follows_what_git_says_of_a_shared_repository(
    users: Users, sharing: str, modes: int
) -> None:
    owner, guest, store = users.owner, users.guest, users.shared / "store.git"
    for each in (owner, guest):
        git_says = users.run(each, 0o077, "git", "config", "--global", "safe.directory", str(store))
        assert git_says.returncode == 0, git_says.stderr
    made = users.run(owner, 0o077, "git", "init", "-q", "--bare", f"--shared={sharing}", str(store))
    assert made.returncode == 0, made.stderr

    def does(user: int, *args: str) -> Any:
        done = users.uwf(user, 0o077, *args)
        assert done.returncode == 0, (user, args, done.stdout, done.stderr)
        return json.loads(done.stdout)

    threads = [does(owner, "thread", "start", "one.yaml", "-p", "Do it")["thread"] for _ in range(4)]
    does(owner, "thread", "step", threads[0])
    if modes & 0o020:
        does(guest, "thread", "step", threads[1], "--agent", "uwf-exec -- echo '{\"n\": 7}'")
        does(guest, "thread", "start", "one.yaml", "-p", "Do it")
        does(guest, "gc")
        does(guest, "thread", "kill", threads[2])
        does(owner, "thread", "step", threads[3])
        does(owner, "gc")
    assert does(guest, "verify")["findings"] == []
    assert {each["thread"] for each in does(guest, "thread", "list", "--all")} >= set(threads)
    for path in [
        each for each in (store / "refs", store / "objects", store / "uwf") for each in each.rglob("*")
    ]:
        mode = path.stat().st_mode
        is_object = path.is_file() and store / "objects" in path.parents
        wanted = modes & 0o440 if is_object else modes
        assert mode & wanted == wanted, (path, oct(mode))
        assert not path.is_dir() or mode & stat.S_ISGID, path
        assert not mode & 0o006, path


@on_a_small_disk
def test_doctor_tells_of_a_disk_on_which_no_answer_could_be_kept(root: Path, thread: str) -> None:
    uwf = " ".join(UWF) + " --root /mnt"
    program = f"""
mount -t tmpfs -o size=8m none /mnt && cp -a {root}/. /mnt/ || exit 99
dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null
for free in 0 128; do truncate -s -${{free}}k /mnt/ballast; {uwf} doctor --quick | tr -d '\n'; echo; done
truncate -s -1m /mnt/ballast; {uwf} doctor --quick | tr -d '\n'
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    *full, roomy = [
        [each for each in json.loads(line) if each["status"] == "error"] for line in done.stdout.splitlines()
    ]
    for ((said,),) in zip(full, strict=True):
        assert "256 KiB" in said["message"] and "No space left" in said["message"] and "free" in said["hint"]
    assert roomy == []


@on_a_small_disk
@pytest.mark.parametrize("free", [0, 8, 24, 48])
def test_a_full_disk_stops_a_step_and_loses_nothing(
    uwf: Uwf, root: Path, thread: str, hermetic: Path, free: int
) -> None:
    program = f"""
set -e
mount -t tmpfs -o size=8m none /mnt
cp -a {root}/. /mnt/
dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null || true
truncate -s -{free}k /mnt/ballast || true
set +e
{" ".join(UWF)} --root /mnt thread step {thread}
echo "exit $?"
rm /mnt/ballast
{" ".join(UWF)} --root /mnt thread show {thread} >/dev/null && echo readable
git --git-dir /mnt/store.git fsck --connectivity-only >/dev/null 2>&1 && echo sound
{" ".join(UWF)} --root /mnt thread step {thread} >/dev/null; echo "then $?"
{" ".join(UWF)} --root /mnt thread show {thread}
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "readable" in done.stdout and "sound" in done.stdout, done.stdout + done.stderr
    assert '"status": "completed"' in done.stdout, done.stdout + done.stderr
    if free == 0:
        assert "exit 1" in done.stdout and "store_unwritable" in done.stderr


@on_a_small_disk
@pytest.mark.parametrize("free", [0, 32])
def test_a_full_disk_is_named_as_the_cause_and_an_import_leaves_nothing_half_written(
    uwf: Uwf, root: Path, tmp_path: Path, free: int
) -> None:
    uwf("init")
    random = "Array.from({length: 40000}, () => Math.random().toString(36)).join('')"
    (tmp_path / "debate.esm.js").write_text(DEBATE.replace("content: text", f"content: {random}"))
    uwf("workflow", "put", tmp_path / "debate.esm.js")
    thread = uwf("thread", "start", "debate", "-p", "go").json["thread"]
    program = f"""
set -e
mount -t tmpfs -o size=8m none /mnt
cp -a {root}/. /mnt/
dd if=/dev/zero of=/mnt/ballast bs=1k 2>/dev/null || true
truncate -s -{free}k /mnt/ballast || true
set +e
{" ".join(UWF)} --root /mnt import {EXAMPLES / "old-store"}
{" ".join(UWF)} --root /mnt thread step {thread}
ls -A /mnt/store.git/objects/pack
"""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, check=False
    )
    imported, stepped = [json.loads(line)["error"] for line in done.stderr.splitlines()]
    assert imported["code"] == "store_unwritable" and imported["hint"]
    for failed in (imported, stepped):
        assert "No space left on device" in failed["message"] or "Out of diskspace" in failed["message"]
    assert ".tmp-" not in done.stdout


def test_a_lock_file_that_git_left_is_named(uwf: Uwf, root: Path, thread: str) -> None:
    lock = root / "store.git/refs/uwf/threads" / f"{thread}.lock"
    lock.touch()
    busy = uwf("thread", "step", thread, check=4)
    assert str(lock) in busy.error["message"] and busy.error["hint"]
    lock.unlink()
    assert uwf("thread", "step", thread).json["done"]


def test_a_missing_index_is_made_again_without_a_word(uwf: Uwf, root: Path, thread: str) -> None:
    for file in (root / "store.git/uwf").glob("index.db*"):
        file.unlink()
    assert uwf("thread", "list").json[0]["thread"] == thread
    assert uwf("thread", "step", thread).json["done"]


def objects_of(root: Path, thread: str) -> dict[str, str]:
    """Path in the thread's tree -> object id; the commit and its root tree too."""
    ref = f"refs/uwf/threads/{thread}"
    found = {
        "commit": git("--git-dir", root / "store.git", "rev-parse", ref).strip(),
        "tree": git("--git-dir", root / "store.git", "rev-parse", f"{ref}^{{tree}}").strip(),
    }
    for line in git("--git-dir", root / "store.git", "ls-tree", "-r", ref).splitlines():
        head, path = line.split("\t")
        found[path] = head.split()[2]
    return found


@pytest.mark.parametrize("what", ["commit", "tree", "start/nodes/"])
@pytest.mark.parametrize("how", ["truncated", "gone"])
def test_a_damaged_object_is_named_with_exit_7_and_other_threads_go_on(
    uwf: Uwf, root: Path, thread: str, what: str, how: str
) -> None:
    other = uwf("thread", "start", "one", "-p", "Something else").json["thread"]
    objects = objects_of(root, thread)
    oid = next(oid for path, oid in objects.items() if path.startswith(what))
    path = loose(root / "store.git", oid)
    path.chmod(0o644)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:15])
    for file in (root / "store.git/uwf").glob("index.db*"):
        file.unlink()
    damaged = uwf("thread", "step", thread, check=7)
    assert oid in damaged.error["message"] and damaged.error["code"] == "store_damaged"
    listed = {t["thread"]: t["status"] for t in uwf("thread", "list", check=7).json}
    assert listed == {thread: "corrupt", other: "idle"}
    stats = uwf("stats", check=7).json
    assert [each["thread"] for each in stats["damaged"]] == [thread] and stats["total"]["steps"] == 0
    assert uwf("thread", "step", other).json["done"]
    said = " ".join(each["message"] for each in uwf("doctor", check=7).json if each["status"] == "error")
    assert thread in said and other not in said


def test_two_roots_never_mix(uwf: Uwf, hermetic: Path, thread: str) -> None:
    other = hermetic / "other"
    uwf("--root", other, "workflow", "put", hermetic / "one.yaml")
    elsewhere = uwf("--root", other, "thread", "start", "one", "-p", "x").json["thread"]
    done = uwf(
        "--root", other, "thread", "step", elsewhere, "--agent", Path(sys.executable).parent / "uwf-rehearse"
    )
    assert done.json["done"]
    assert [t["thread"] for t in uwf("thread", "list", "--all").json] == [thread]


def test_a_store_in_a_project_touches_only_its_own_refs_and_folder(uwf: Uwf, hermetic: Path) -> None:
    project = hermetic / "project"
    (hermetic / "one.yaml").write_text(ONE)
    git("init", "-q", project)
    (project / "file").write_text("code")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-qm", "code")
    environment = {"UWF_STORAGE_ROOT": ""}
    assert uwf("init", "--here", check=3).error["code"] == "not_found"
    config = (project / ".git/config").read_bytes()
    made = uwf("init", "--here", cwd=project, env=environment).json
    assert made == {"store": str(project / ".git")}
    inside = project / "src"
    inside.mkdir()
    uwf("workflow", "put", hermetic / "one.yaml", cwd=inside, env=environment)
    thread = uwf("thread", "start", "one", "-p", "x", cwd=inside, env=environment).json["thread"]
    assert uwf("thread", "step", thread, cwd=inside, env=environment).json["done"]
    assert (project / ".git/config").read_bytes() == config
    refs = git("-C", project, "for-each-ref", "--format=%(refname)").split()
    assert f"refs/uwf/archive/{thread}" in refs
    assert [ref for ref in refs if not ref.startswith("refs/uwf/")] == [
        "refs/heads/" + refs[0].split("/")[-1]
    ]
    assert git("-C", project, "status", "--porcelain") == ""
    assert not (hermetic / ".uncaged/workflow/store.git").exists()
    assert "uwf init" in uwf("thread", "list", "--all", env=environment, check=3).error["hint"]
    named = uwf(
        "--root", hermetic / "named", "thread", "list", "--all", cwd=inside, env=environment, check=None
    )
    assert thread not in named.out
    # Where a root is named, the project's store isn't found, and making it is told to be of no use.
    assert uwf("thread", "list", cwd=inside, check=3).error["code"] == "not_found"
    assert "UWF_STORAGE_ROOT" in uwf("init", "--here", cwd=project).err


def test_a_folder_that_is_gone_keeps_nobody_from_reading_and_is_named_for_a_step(
    uwf: Uwf, hermetic: Path, thread: str
) -> None:
    gone = hermetic / "gone"
    command = f"mkdir {gone}; cd {gone}; rmdir {gone}; "
    for arguments, status in (("thread show " + thread, 0), ("thread step " + thread, 1)):
        program = command + " ".join([*UWF, arguments])
        done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
    assert "current folder is gone" in done.stderr
    assert uwf("thread", "step", thread, "--cwd", hermetic).json["done"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--root a thread list", 1),
        ("init --here", 1),
        ("thread list", 0),
        ("doctor", 0),
        ("workflow list", 0),
        ("workflow show nothing", 3),
        ("verify", 0),
        ("config list", 0),
        ("run x.yaml -p x", 3),
    ],
)
def test_in_a_folder_that_is_gone_every_command_works_or_says_so_in_a_line(
    hermetic: Path, thread: str, arguments: str, status: int
) -> None:
    gone = hermetic / "gone"
    command = f"mkdir {gone}; cd {gone}; rmdir {gone}; {' '.join([*UWF, arguments])}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    if status:
        (line,) = done.stderr.splitlines()
        told = json.loads(line)["error"]
        assert told["hint"] and ("current folder is gone" in told["message"] or status == 3)


@pytest.mark.parametrize("content", [b"A=a\0b\n", b"A=" + b"x" * 100_000])
def test_an_env_file_that_no_process_could_be_given_is_named(
    uwf: Uwf, root: Path, thread: str, content: bytes
) -> None:
    (root / ".env").write_bytes(content)
    assert ".env" in uwf("thread", "step", thread, check=1).error["message"]
    (root / ".env").write_bytes(b"garbage\n=x\n")
    done = uwf("thread", "step", thread)
    assert done.json["done"] and done.err == ""


def test_a_write_that_libgit2_gives_no_reason_for_is_told_with_the_systems(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert (
        unwritable(gone, OSError("no error")).message == f"cannot write to {gone}: No such file or directory"
    )
