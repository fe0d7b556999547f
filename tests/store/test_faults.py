"""A store that is read-only, full, locked or damaged: one line, the right exit status, nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import ONE
from conftest import Uwf
from faults import obeying_modes

UWF = [sys.executable, "-m", "uwf_cli.main"]


@pytest.fixture
def thread(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return str(uwf("thread", "start", "one", "-p", "Do it").json["thread"])


def git(root: Path, *args: str) -> str:
    command = ["git", "--git-dir", str(root / "store.git"), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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


def small_disk_works() -> bool:
    return (
        subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


@pytest.mark.skipif(
    not shutil.which("unshare") or not small_disk_works(),
    reason="needs user namespaces and unshare (Debian package util-linux)",
)
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
        "commit": git(root, "rev-parse", ref).strip(),
        "tree": git(root, "rev-parse", f"{ref}^{{tree}}").strip(),
    }
    for line in git(root, "ls-tree", "-r", ref).splitlines():
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
    path = root / "store.git/objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:15])
    for file in (root / "store.git/uwf").glob("index.db*"):
        file.unlink()
    damaged = uwf("thread", "step", thread, check=7)
    assert oid in damaged.error["message"] and damaged.error["code"] == "store_damaged"
    listed = {t["thread"]: t["status"] for t in uwf("thread", "list").json}
    assert listed == {thread: "corrupt", other: "idle"}
    assert uwf("thread", "step", other).json["done"]
    assert uwf("doctor", check=7)


def test_a_ref_to_a_missing_commit_is_corrupt_and_stops_nobody(uwf: Uwf, root: Path, thread: str) -> None:
    doomed = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    (root / "store.git/refs/uwf/threads" / doomed).write_text("1" * 40 + "\n")
    listed = {t["thread"]: t["status"] for t in uwf("thread", "list").json}
    assert listed == {thread: "idle", doomed: "corrupt"}
    assert uwf("thread", "show", doomed, check=7)
    uwf("thread", "rm", doomed, "--yes")
    assert [t["thread"] for t in uwf("thread", "list").json] == [thread]


def test_control_characters_and_odd_text_survive_and_never_reach_a_terminal(
    uwf: Uwf, hermetic: Path, thread: str
) -> None:
    prompt = "a\0b \x1b]0;owned\x07 \u202e é e\u0301 🍊 \ud800"
    (hermetic / "p.txt").write_bytes("a\0b \x1b]0;owned\x07 \u202e é e\u0301 🍊".encode())
    odd = uwf("thread", "start", "one", "--prompt-file", hermetic / "p.txt").json["thread"]
    head = uwf("thread", "show", odd).json["head"]
    assert uwf("cas", "get", head).json["payload"]["prompt"] == prompt[:-2]
    text = uwf("--format", "text", "thread", "read", odd).out
    assert "\x1b]" not in text and "\0" not in text and "\u202e" not in text
    refused = uwf("thread", "start", "one", "--prompt-file", "-", input=b"\xed\xa0\x80 lone", check=None)
    assert refused.code in (1, 2) and refused.err.count("\n") == 1


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
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "file").write_text("code")
    subprocess.run(["git", "-C", str(project), "add", "."], check=True)
    subprocess.run(["git", "-C", str(project), "commit", "-qm", "code"], check=True)
    environment = {"UWF_STORAGE_ROOT": ""}
    config = (project / ".git/config").read_bytes()
    made = uwf("init", "--here", cwd=project, env=environment).json
    assert made == {"store": str(project / ".git")}
    inside = project / "src"
    inside.mkdir()
    uwf("workflow", "put", hermetic / "one.yaml", cwd=inside, env=environment)
    thread = uwf("thread", "start", "one", "-p", "x", cwd=inside, env=environment).json["thread"]
    assert uwf("thread", "step", thread, cwd=inside, env=environment).json["done"]
    assert (project / ".git/config").read_bytes() == config
    refs = subprocess.run(
        ["git", "-C", str(project), "for-each-ref", "--format=%(refname)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [ref for ref in refs if not ref.startswith("refs/uwf/")] == [
        "refs/heads/" + refs[0].split("/")[-1]
    ]
    status = subprocess.run(
        ["git", "-C", str(project), "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
    assert not (hermetic / ".uncaged/workflow/store.git").exists()
    assert "uwf init" in uwf("thread", "list", "--all", env=environment, check=3).error["hint"]
    named = uwf(
        "--root", hermetic / "named", "thread", "list", "--all", cwd=inside, env=environment, check=None
    )
    assert thread not in named.out


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


@pytest.mark.parametrize("content", [b"A=a\0b\n", b"A=" + b"x" * 100_000])
def test_an_env_file_that_no_process_could_be_given_is_named(
    uwf: Uwf, root: Path, thread: str, content: bytes
) -> None:
    (root / ".env").write_bytes(content)
    assert ".env" in uwf("thread", "step", thread, check=1).error["message"]
    (root / ".env").write_bytes(b"garbage\n=x\n")
    done = uwf("thread", "step", thread)
    assert done.json["done"] and done.err == ""
