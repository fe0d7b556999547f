"""What was reported survives a power cut: the bytes that are on the disk the moment after make a whole store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from cli_samples import ONE
from commands import wait_until
from conftest import EXAMPLES, Uwf
from crew_packages import folder, own
from power import FILE_SYSTEMS, Disk, unsynced_installs

from uwf_git.git.packing import OURS
from uwf_git.store.maintenance import LIMIT

pytestmark = pytest.mark.extended


@pytest.fixture(params=FILE_SYSTEMS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path, request.param)
    yield disk
    disk.close()


@pytest.fixture
def remote(uwf: Uwf, hermetic: Path) -> Path:
    """A remote with a workflow and a thread of one step."""
    bare = hermetic / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    thread = uwf("thread", "start", "one", "-p", "Do it").json["thread"]
    uwf("thread", "step", thread)
    uwf("remote", "add", "origin", bare)
    uwf("push", "origin")
    return bare


def survives(uwf: Uwf, disk: Disk) -> None:
    """After a power cut now, the store has the refs that it has now, and everything they lead to."""

    def seen(root: Path) -> object:
        threads = uwf("--root", root, "thread", "list", "--all").json
        workflows = uwf("--root", root, "workflow", "list").json
        return [(each["thread"], each["head"], each["status"]) for each in threads], workflows

    with disk.cut() as after:
        before, now = seen(disk.path / "root"), seen(after / "root")
        assert now == before
        verified = uwf("--root", after / "root", "verify", check=None)
        is_empty = now == ([], [])
        assert verified.code == (13 if is_empty else 0), verified.err
        assert is_empty or verified.json["findings"] == []
        for git_dir in (after / "root").glob("*.git"):
            fsck = ["git", "--git-dir", str(git_dir), "fsck", "--strict", "--no-dangling"]
            done = subprocess.run(fsck, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["init", "thread start"])
def test_the_first_command_leaves_a_store_that_opens(
    uwf: Uwf, hermetic: Path, disk: Disk, command: str
) -> None:
    (hermetic / "one.yaml").write_text(ONE)
    arguments = {"init": [], "thread start": [hermetic / "one.yaml", "-p", "x"]}
    uwf("--root", disk.path / "root", *command.split(), *arguments[command])
    survives(uwf, disk)


def test_packing_loses_no_ref(uwf: Uwf, hermetic: Path, disk: Disk) -> None:
    root = disk.path / "root"
    (hermetic / "one.yaml").write_text(ONE)
    uwf("--root", root, "workflow", "put", hermetic / "one.yaml")
    threads = [uwf("--root", root, "thread", "start", "one", "-p", f"{n}").json["thread"] for n in range(3)]
    os.sync()
    uwf("--root", root, "gc")
    survives(uwf, disk)
    uwf("--root", root, "thread", "step", threads[0])
    survives(uwf, disk)


@pytest.mark.parametrize("bring", ["pull", "clone", "unbundle"])
def test_what_was_brought_and_what_was_done_on_it_is_kept(
    uwf: Uwf, hermetic: Path, remote: Path, disk: Disk, bring: str
) -> None:
    root = disk.path / "root"
    if bring == "clone":
        uwf("--root", root, "clone", remote)
    else:
        uwf("--root", root, "init")
        uwf("--root", root, "remote", "add", "origin", remote)
        thread = uwf("thread", "list", "--all").json[0]["thread"]
        uwf("bundle", thread, "-o", hermetic / "all.bundle")
        os.sync()
        uwf("--root", root, *(["pull"] if bring == "pull" else ["unbundle", hermetic / "all.bundle"]))
    survives(uwf, disk)
    thread = uwf("--root", root, "thread", "start", hermetic / "one.yaml", "-p", "On top").json["thread"]
    uwf("--root", root, "thread", "step", thread)
    survives(uwf, disk)


def test_packing_in_the_background_loses_no_ref(uwf: Uwf, hermetic: Path, disk: Disk) -> None:
    root = disk.path / "root"
    (hermetic / "one.yaml").write_text(ONE)
    uwf("--root", root, "workflow", "put", hermetic / "one.yaml")
    thread = uwf("--root", root, "thread", "start", "one", "-p", "x").json["thread"]
    pygit2.settings.enable_fsync_gitdir(False)  # which takes long, for thousands
    repository = pygit2.Repository(root / "store.git")
    while 256 * len(list((root / "store.git/objects/17").glob("*"))) <= LIMIT + 256:  # git rounds up
        blob = repository.create_blob(os.urandom(8))
    repository.references.create("refs/other/kept", blob)  # the objects of a step are in packs
    repository.free()  # what it has mapped would keep the disk from being unmounted
    pygit2.settings.enable_fsync_gitdir(True)
    os.sync()
    uwf("--root", root, "thread", "step", thread)
    packs, at_work = root / "store.git/objects/pack", root / "store.git/gc.pid"
    wait_until(  # an image that changes can't be copied
        lambda: any(not pack.name.startswith(OURS) for pack in packs.glob("*.pack")) and not at_work.exists(),
        "git has packed the objects",
    )
    survives(uwf, disk)
    uwf("--root", root, "thread", "start", "one", "-p", "y")
    survives(uwf, disk)


def refs(store: Path) -> list[str]:
    done = subprocess.run(
        ["git", "--git-dir", str(store), "for-each-ref"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


DELETIONS: dict[str, tuple[list[str], list[str]]] = {
    # what: (before that, the command)
    "resume": (["thread pause T"], ["thread resume T"]),
    "kill": (["thread step T --agent false"], ["thread kill T"]),
    "rm": ([], ["thread rm T --yes"]),
    "restore": (["thread rm T --yes"], ["thread restore T"]),
    "fold": (["thread kill T"], ["gc --fold-before 2999-01-01"]),
    "accept": (["workflow propose more.yaml --branch more"], ["workflow accept more"]),
    "workflow rm": ([], ["workflow rm one --yes"]),
    "crew rm": ([f"crew import {EXAMPLES}/crew/press"], ["crew rm press --yes"]),
    "suite rm": (["eval add T --to few"], ["eval remove few --yes"]),
    "baseline rm": (
        ["eval add T --to few --judge jsonata:true", "eval run few --max-steps 1", "eval baseline set few"],
        ["eval baseline rm few"],
    ),
    "remote rm": (["remote add other SHARED", "push other"], ["remote rm other"]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("what", DELETIONS)
def test_what_was_deleted_stays_deleted(
    uwf: Uwf, hermetic: Path, disk: Disk, what: str, packed: bool
) -> None:
    root, store = disk.path / "root", disk.path / "root/store.git"
    for name, text in {"one": ONE, "more": ONE.replace("One step", "One step more")}.items():
        (hermetic / f"{name}.yaml").write_text(text)
    subprocess.run(
        ["git", "init", "-q", "--bare", "--object-format=sha1", str(hermetic / "shared.git")], check=True
    )
    uwf("--root", root, "workflow", "put", hermetic / "one.yaml")
    thread = uwf("--root", root, "thread", "start", "one", "-p", "x", cwd=hermetic).json["thread"]

    def run(commands: list[str], check: int | None) -> None:
        for command in commands:
            words = [
                {"T": thread, "SHARED": str(hermetic / "shared.git")}.get(each, each)
                for each in command.split()
            ]
            uwf("--root", root, *words, cwd=hermetic, check=check)

    before, command = DELETIONS[what]
    run(before, None if what == "kill" else 0)
    if packed:
        subprocess.run(["git", "--git-dir", str(store), "pack-refs", "--all"], check=True)
    os.sync()
    there = refs(store)
    run(command, 0)
    now = refs(store)
    assert now != there
    with disk.cut() as after:
        assert refs(after / "root/store.git") == now


def test_a_bundle_that_was_written_is_there(uwf: Uwf, remote: Path, disk: Disk) -> None:
    thread = uwf("thread", "list", "--all").json[0]["thread"]
    uwf("bundle", thread, "-o", disk.path / "thread.bundle")
    with disk.cut() as after:
        uwf("--root", after / "fresh", "unbundle", after / "thread.bundle")


def test_what_a_plain_fetch_brought_and_a_step_went_on_with_is_kept(
    uwf: Uwf, hermetic: Path, remote: Path, disk: Disk
) -> None:
    root = disk.path / "root"
    uwf("--root", root, "clone", remote)
    going_on = uwf("thread", "start", "one", "-p", "More").json["thread"]
    uwf("push", "origin")
    os.sync()
    subprocess.run(["git", "--git-dir", str(root / "store.git"), "fetch", "-q", "origin"], check=True)
    uwf("--root", root, "thread", "step", going_on)
    survives(uwf, disk)


@pytest.mark.parametrize("command", ["workflow put", "crew import", "thread step", "gc", "pull", "unbundle"])
def test_no_ref_is_installed_before_what_it_needs_is_synced(
    uwf: Uwf, hermetic: Path, tmp_path: Path, remote: Path, command: str
) -> None:
    root = hermetic / "other"
    put = ["workflow", "put", str(hermetic / "one.yaml")]
    arguments = {"workflow put": put, "gc": ["gc"], "pull": ["pull"], "unbundle": ["unbundle", "all.bundle"]}
    arguments["crew import"] = ["crew", "import", str(folder(hermetic / "trip", own()))]
    if command != "workflow put":
        uwf("--root", root, *put)
        uwf("--root", root, "remote", "add", "origin", remote)
        started = uwf("--root", root, "thread", "start", "one", "-p", "x").json["thread"]
        arguments["thread step"] = ["thread", "step", started]
    uwf("bundle", uwf("thread", "list", "--all").json[0]["thread"], "-o", "all.bundle")
    called = [sys.executable, "-m", "uwf_cli.main", "--root", str(root), *arguments[command]]
    assert unsynced_installs(called, root / "store.git", tmp_path / "strace.log") == []
