"""`uwf doctor --fix` on a store that lost something: what a remote, a bundle, a folder or the store itself still has is
brought again, and nothing else is taken; where there is no source it says whom it hurts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git_servers
import pytest
from cli_samples import PAIR, REJECTS_ONCE, scripted, write
from commands import begin, git, loosen
from conftest import Uwf
from two_machines import Machine

from uwf_git.git.packing import OURS
from uwf_git.git.packs import Pack

pytestmark = pytest.mark.extended

STEPS = 4  # of a thread that REJECTS_ONCE plays


class Hurt:
    """A machine with a finished thread and ways to damage its store."""

    def __init__(self, uwf: Uwf, root: Path) -> None:
        self.machine = Machine(uwf, root)
        self.machine.registers(PAIR)
        self.thread = self.machine.starts("Write a poem", "pair")
        self.machine("thread", "run", self.thread, "--agent", scripted(REJECTS_ONCE))
        self.store = self.machine.store
        loosen(self.store)

    def git(self, *args: str) -> str:
        return git("--git-dir", self.store, *args)

    @property
    def ref(self) -> str:
        return f"refs/uwf/archive/{self.thread}"

    def path(self, revision: str) -> Path:
        """The file of a loose object."""
        oid = self.git("rev-parse", revision)
        return self.store / "objects" / oid[:2] / oid[2:]

    def loose(self) -> list[Path]:
        return sorted(path for path in self.store.glob("objects/??/*") if len(path.name) == 38)

    def reachable(self) -> dict[str, bytes]:
        """Every object that the refs lead to, as git has it."""
        ids = [line.split()[0] for line in self.git("rev-list", "--objects", "--all").splitlines()]
        return {oid: git("--git-dir", self.store, "cat-file", "-p", oid).encode() for oid in ids}

    def fixed(self, *args: str | Path, code: int | None = 0) -> list[dict[str, Any]]:
        """What a repair says."""
        checks = self.machine("doctor", "--fix", *args, check=code).json
        return [each for each in checks if each["check"] == "repair"]

    def is_whole(self) -> None:
        self.machine.is_sound()
        assert self.fixed() == []


HOW: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:15]),
    "garbled": lambda path: path.write_bytes(path.read_bytes()[:6] + b"rot" + path.read_bytes()[9:]),
    "other content": lambda path: path.write_bytes(zlib.compress(b"blob 3\0abc")),
    "gone": lambda path: path.unlink(),
}


def damage(path: Path, how: str) -> None:
    path.chmod(0o644)
    HOW[how](path)


@pytest.fixture
def hurt(uwf: Uwf, tmp_path: Path) -> Hurt:
    return Hurt(uwf, tmp_path / "machine")


def shared(hurt: Hurt, server: git_servers.Server) -> None:
    repository = git_servers.bare(server.folder / "shared.git")
    config = Path(os.environ["GIT_CONFIG_GLOBAL"])
    config.write_text(config.read_text() + server.config)
    hurt.machine("remote", "add", "origin", server.url(repository))
    if server.transport == "daemon":
        git_servers.configured(repository, daemon_receivepack="true")
    hurt.machine("push", "origin", "--all")


@pytest.mark.parametrize(
    ("transport", "protocol"), [("path", "2"), ("daemon", "2"), ("daemon", "0"), ("http", "2")]
)
def test_objects_damaged_in_every_way_are_brought_again_from_a_remote(
    hurt: Hurt, transport: str, protocol: str
) -> None:
    with git_servers.serve(transport) as server:
        shared(hurt, server)
        git("config", "--global", "protocol.version", protocol)
        whole = hurt.reachable()
        before = {}
        for number, path in enumerate(hurt.loose()):
            if number % 3 == 0:
                how = list(HOW)[number // 3 % len(HOW)]
                damage(path, how)
                before[path.parent.name + path.name] = path.read_bytes() if path.exists() else None
        found = hurt.machine("doctor", check=7).json
        assert {
            each["hint"] for each in found if each["check"] == "objects" and each["status"] == "error"
        } == {"uwf doctor --fix"}
        said = hurt.fixed()
    assert {each["status"] for each in said} == {"ok"}
    assert any(each.get("source") == "origin" for each in said)
    assert hurt.reachable() == whole
    kept = Path(next(each["folder"] for each in said if "folder" in each))
    for oid, content in before.items():
        path = kept / "objects" / oid[:2] / oid[2:]
        assert (path.read_bytes() if path.exists() else None) == content
    hurt.is_whole()


@pytest.mark.parametrize("source", ["bundle", "root", "repository"])
def test_what_a_bundle_or_another_folder_has_is_taken_from_there(
    hurt: Hurt, tmp_path: Path, source: str
) -> None:
    if source == "bundle":
        place = tmp_path / "old.bundle"
        hurt.machine("bundle", hurt.thread, "-o", place)
    else:
        place = tmp_path / "copy"
        shutil.copytree(hurt.store if source == "repository" else hurt.machine.root, place)
    lost = (f"{hurt.ref}~1", f"{hurt.ref}~2^{{tree}}", nodes_of(hurt, "0001-writer"))
    for path in [hurt.path(revision) for revision in lost]:
        damage(path, "garbled")
    nowhere = hurt.machine("doctor", "--fix", "--from", tmp_path / "nowhere", check=3)
    assert nowhere.error["code"] == "not_found"
    said = hurt.fixed("--from", place)
    assert {each["status"] for each in said} == {"ok"}
    hurt.is_whole()


def nodes_of(hurt: Hurt, step: str) -> str:
    """A node of a step, which nothing else tells the content of."""
    names = hurt.git("ls-tree", "--name-only", f"{hurt.ref}:steps/{step}/nodes").splitlines()
    return f"{hurt.ref}:steps/{step}/nodes/{names[0]}"


def test_without_a_source_it_says_whom_it_hurts_and_touches_nothing(hurt: Hurt) -> None:
    other = hurt.machine.starts("Another", "pair")
    path = hurt.path(nodes_of(hurt, "0003-writer"))
    damage(path, "truncated")
    objects = {each: each.read_bytes() for each in hurt.loose()}
    refs = hurt.machine.refs()
    (said,) = hurt.fixed(code=7)
    assert (said["thread"], said["title"], said["step"]) == (hurt.thread, "Write a poem", 3)
    assert said["objects"] == [path.parent.name + path.name]
    assert hurt.thread in said["message"] and "from step 3 on" in said["message"]
    assert "--from" in said["hint"] and "no remote is configured" in said["hint"]
    assert {each: each.read_bytes() for each in hurt.loose()} == objects
    assert hurt.machine.refs() == refs
    assert other not in str(said)
    # What is whole before it can be gone on with, as the hint says.
    step = re.search(r"uwf thread fork ([0-9A-Z]{13})", said["hint"])
    assert step is not None
    fork = hurt.machine("thread", "fork", step[1]).json["thread"]
    assert hurt.machine("thread", "steps", fork).json[-1]["number"] == 2
    assert not list(hurt.store.glob("uwf/mending*"))


def test_pages_trees_and_a_commit_are_made_again_from_the_rest_of_the_store(hurt: Hurt) -> None:
    hurt.machine.starts("Another", "pair")
    lost = [
        f"{hurt.ref}:steps/0002-critic/README.md",
        f"{hurt.ref}:steps/0002-critic",
        f"{hurt.ref}:start/README.md",
        f"{hurt.ref}~2:README.md",
        f"{hurt.ref}:workflow",
        f"{hurt.ref}:.gitattributes",
        f"{hurt.ref}^{{commit}}",
    ]
    for path in [hurt.path(revision) for revision in lost]:
        damage(path, "gone")
    said = hurt.fixed()
    assert {each.get("source", "the rest of the store") for each in said} == {"the rest of the store"}
    hurt.is_whole()


def test_what_a_crash_left_of_a_step_that_was_never_made_is_set_aside(hurt: Hurt) -> None:
    oid = git("hash-object", "--stdin", data="half")
    path = hurt.store / "objects" / oid[:2] / oid[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    said, kept = hurt.fixed()
    assert "nothing refers to" in said["message"] and "1 damaged file" in kept["message"]
    assert not path.exists() and (Path(kept["folder"]) / "objects" / oid[:2] / oid[2:]).exists()
    hurt.is_whole()


def test_what_is_no_file_in_place_of_an_object_is_neither_waited_for_nor_taken(
    hurt: Hurt, tmp_path: Path
) -> None:
    other, sound = tmp_path / "other", tmp_path / "sound"
    shutil.copytree(hurt.store, other)
    shutil.copytree(hurt.store, sound)
    names = [f"{hurt.ref}~1", nodes_of(hurt, "0001-writer"), nodes_of(hurt, "0003-writer")]
    pipe, folder, link = [hurt.path(name) for name in names]
    gone = hurt.path(nodes_of(hurt, "0002-critic"))
    stray = hurt.store / "objects" / "ab" / ("0" * 38)
    for path in (pipe, folder, link, gone, other / gone.relative_to(hurt.store)):
        path.unlink()
    stray.parent.mkdir(exist_ok=True)
    for path in (pipe, stray, other / gone.relative_to(hurt.store)):
        os.mkfifo(path)
    (folder / "within").mkdir(parents=True)
    link.symlink_to("/dev/zero")
    hurt.machine("doctor", check=7)
    said = hurt.fixed("--from", other, code=7)
    (left,) = [each for each in said if each["status"] != "ok"]
    assert left["objects"] == [gone.parent.name + gone.name]
    hurt.fixed("--from", sound)
    kept = next(Path(each["folder"]) for each in said if "folder" in each)
    for path in (pipe, stray):
        assert (kept / path.relative_to(hurt.store)).is_fifo()
    assert (kept / folder.relative_to(hurt.store) / "within").is_dir()
    assert (kept / link.relative_to(hurt.store)).is_symlink()
    assert pipe.is_file() and folder.is_file() and link.is_file() and not stray.exists()
    hurt.is_whole()


def test_a_place_that_does_not_open_is_told_with_another_hint_than_what_was_just_done(
    hurt: Hurt, tmp_path: Path
) -> None:
    place = tmp_path / "copy"
    shutil.copytree(hurt.store, place)
    (place / "config").write_text("[core")
    damage(hurt.path(nodes_of(hurt, "0001-writer")), "gone")
    error = hurt.machine("doctor", "--fix", "--from", place, check=1).error
    assert str(place / "config") in error["message"] and "doctor --fix" not in error["hint"]


# Packs


def packed(hurt: Hurt) -> Path:
    hurt.machine("gc")
    (pack,) = hurt.store.glob("objects/pack/*.pack")
    for path in pack.parent.iterdir():
        path.chmod(0o644)
    return pack


def unpacked(hurt: Hurt) -> None:
    """Every object in a file of its own again."""
    for pack in hurt.store.glob("objects/pack/*.pack"):
        aside = hurt.store / "aside.pack"
        pack.rename(aside)
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink()
        with aside.open("rb") as file:
            subprocess.run(["git", "--git-dir", hurt.store, "unpack-objects", "-q"], stdin=file, check=True)
        aside.unlink()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("where", ["middle", "end", "index", "index cut", "no index", "index and middle"])
def test_a_damaged_pack_gives_all_that_can_be_read_of_it_and_a_remote_the_rest(
    hurt: Hurt, tmp_path: Path, where: str
) -> None:
    whole = hurt.reachable()
    copy = tmp_path / "copy"
    shutil.copytree(hurt.machine.root, copy)
    pack = packed(hurt)
    index = pack.with_suffix(".idx")
    if "middle" in where:
        flip(pack, pack.stat().st_size // 2)
    if where == "end":
        pack.write_bytes(pack.read_bytes()[:-30])
    if where in ("index", "index and middle"):
        flip(index, 1200)
    if where == "index cut":
        index.write_bytes(index.read_bytes()[:-100])
    if where == "no index":
        index.unlink()
    assert hurt.machine("doctor", check=None).code == 7
    said = hurt.fixed("--from", copy)
    assert {each["status"] for each in said} == {"ok"}, said
    assert hurt.reachable() == whole
    from_copy = [oid for each in said if each.get("source") == str(copy) for oid in each["objects"]]
    assert len(from_copy) < len(whole) / 2
    hurt.is_whole()


def test_what_git_makes_again_from_objects_is_set_aside(hurt: Hurt) -> None:
    pack = packed(hurt)
    hurt.git("commit-graph", "write", "--reachable")
    hurt.git("multi-pack-index", "write")
    for path in (hurt.store / "objects/info/commit-graph", pack.parent / "multi-pack-index"):
        path.chmod(0o644)
        flip(path, path.stat().st_size // 2)
    said = hurt.fixed()
    assert [each["message"].split(",")[0] for each in said[:2]] == [
        "set aside multi-pack-index",
        "set aside commit-graph",
    ]
    hurt.is_whole()


# Refs


def test_a_ref_that_holds_nothing_is_put_where_it_was_last_seen(hurt: Hurt) -> None:
    thread = hurt.machine.starts("Another", "pair")
    hurt.machine("thread", "step", thread, "--agent", scripted(REJECTS_ONCE))
    refs = hurt.machine.refs()
    broken = [f"refs/uwf/threads/{thread}", hurt.ref, "refs/uwf/workflows/pair"]
    for name, content in zip(broken, (b"", b"garbage\n", b"\0" * 41), strict=True):
        (hurt.store / name).write_bytes(content)
    listed = {
        each["thread"]: each["status"] for each in hurt.machine("thread", "list", "--all", check=7).json
    }
    assert listed == {thread: "corrupt", hurt.thread: "corrupt"}
    said = hurt.fixed()
    put = {each["ref"]: each["message"] for each in said if "ref" in each}
    assert put.keys() == set(broken) and "(step 1), where it was last seen here" in put[broken[0]]
    assert hurt.machine.refs() == refs
    hurt.is_whole()


def test_a_ref_that_the_index_does_not_know_is_put_where_it_was_seen_on_a_remote(
    hurt: Hurt, tmp_path: Path
) -> None:
    thread = hurt.machine.starts("Another", "pair")
    hurt.machine("remote", "add", "origin", git_servers.bare(tmp_path / "shared.git"))
    hurt.machine("push", "origin", "--all")
    refs = hurt.machine.refs()
    name = f"refs/uwf/threads/{thread}"
    (hurt.store / name).write_bytes(b"")
    for path in (hurt.store / "uwf").glob("index.db*"):
        path.unlink()
    assert "last seen on origin" in hurt.fixed()[0]["message"]
    # Nothing at all was seen of this one.
    alone = hurt.machine.starts("Alone", "pair")
    lost = f"refs/uwf/threads/{alone}"
    (hurt.store / lost).write_bytes(b"")
    for path in (hurt.store / "uwf").glob("index.db*"):
        path.unlink()
    (said,) = hurt.fixed(code=7)
    assert "nothing tells where it was" in said["message"] and f"rm {hurt.store / lost}" in said["hint"]
    (hurt.store / lost).unlink()
    assert hurt.machine.refs() == refs


def test_a_ref_that_holds_nothing_is_put_back_where_sound_objects_stand_between_lost_ones(
    hurt: Hurt, tmp_path: Path
) -> None:
    name = f"refs/uwf/threads/{hurt.machine.starts('Another', 'pair')}"
    loosen(hurt.store)
    copy = tmp_path / "copy"
    shutil.copytree(hurt.store, copy)
    node = hurt.git("ls-tree", "-r", "--name-only", name, "start/nodes").splitlines()[0]
    # The root tree and start/nodes are whole, so nothing tells of what is below them until these are reached.
    for path in [hurt.path(each) for each in (name, f"{name}:start", f"{name}:{node}")]:
        damage(path, "truncated")
    (hurt.store / name).write_bytes(b"")
    assert name in {each.get("ref") for each in hurt.fixed("--from", copy)}
    hurt.is_whole()


def test_a_line_of_packed_refs_that_is_no_ref_is_taken_out(hurt: Hurt) -> None:
    hurt.git("pack-refs", "--all")
    refs = hurt.machine.refs()
    path = hurt.store / "packed-refs"
    path.write_text(path.read_text() + "\0\0\0\0\n")
    assert subprocess.run(
        ["git", "--git-dir", hurt.store, "for-each-ref"], capture_output=True, check=False
    ).returncode
    said = hurt.fixed()
    assert "took out of packed-refs" in said[0]["message"]
    assert hurt.machine.refs() == refs
    hurt.is_whole()


def test_a_store_whose_head_is_empty_opens_again(hurt: Hurt) -> None:
    (hurt.store / "HEAD").write_bytes(b"")
    assert any("HEAD" in each["message"] for each in hurt.machine("doctor", check=7).json)
    (said,) = hurt.fixed()
    assert "HEAD" in said["message"]
    hurt.is_whole()


@pytest.mark.parametrize("name", ["refs", "objects"])
def test_a_store_without_a_folder_that_git_needs_is_damaged_and_a_copy_restores_it(
    hurt: Hurt, tmp_path: Path, name: str
) -> None:
    shutil.copytree(hurt.store, tmp_path / "copy.git")
    threads = hurt.machine("thread", "list", "--all").json
    shutil.rmtree(hurt.store / name)
    error = hurt.machine("thread", "list", check=7).error
    assert error["message"].endswith(f"lacks its folder {name}") and error["hint"] == "uwf doctor --fix"
    assert any(name in each["message"] for each in hurt.machine("doctor", check=7).json)
    said = hurt.fixed("--from", tmp_path / "copy.git")
    assert said[0]["message"] == f"made the folder {name} of the store again: it was gone"
    hurt.is_whole()
    assert hurt.machine("thread", "list", "--all").json == threads


def test_a_fold_is_brought_again_and_without_a_source_its_threads_are_named(
    hurt: Hurt, tmp_path: Path
) -> None:
    other = hurt.machine.starts("Another", "pair")
    hurt.machine("thread", "kill", other)
    hurt.machine("gc", "--fold-before", "9999-01-01")
    unpacked(hurt)
    copy = tmp_path / "copy"
    shutil.copytree(hurt.machine.root, copy)
    (fold,) = [name for name in hurt.machine.refs() if "/folded/" in name]
    for revision in (fold, f"{fold}^{{tree}}", f"{fold}:archive"):
        path = hurt.path(revision)
        kept = path.read_bytes()
        damage(path, "truncated")
        found = hurt.machine("doctor", check=7).json
        assert any(
            "the threads that ended in" in each["message"] for each in found if each["check"] == "objects"
        )
        hurt.fixed("--from", copy)
        assert zlib.decompress(path.read_bytes()) == zlib.decompress(kept)
    assert hurt.machine.statuses() == {hurt.thread: "completed", other: "killed"}
    (hurt.store / fold).parent.mkdir(parents=True, exist_ok=True)
    (hurt.store / fold).write_bytes(b"")
    assert "last seen here" in hurt.fixed()[0]["message"]
    hurt.is_whole()


# What is offered


def test_an_object_that_is_not_what_its_id_says_or_too_large_is_not_taken(hurt: Hurt, tmp_path: Path) -> None:
    path = hurt.path(nodes_of(hurt, "0001-writer"))
    other = tmp_path / "other"
    shutil.copytree(hurt.store, other)
    theirs = other / path.relative_to(hurt.store)
    damage(theirs, "other content")
    damage(path, "gone")
    (said,) = hurt.fixed("--from", other, code=7)
    assert f"{other} has none of it" in said["hint"] and not path.exists()
    shutil.copytree(hurt.store, tmp_path / "third")
    sound = tmp_path / "sound"
    big = Hurt(hurt.machine._uwf, sound)
    blob = big.path(nodes_of(big, "0001-writer"))
    shutil.copytree(big.store, tmp_path / "large")
    damage(blob, "gone")
    git("config", "--global", "uwf.maxBlob", "20")
    assert [each["status"] for each in big.fixed("--from", tmp_path / "large", code=7)] == ["error"]
    git("config", "--global", "uwf.maxBlob", "1m")
    assert {each["status"] for each in big.fixed("--from", tmp_path / "large")} == {"ok"}


def test_a_place_that_fails_is_told_and_the_next_one_asked(hurt: Hurt, tmp_path: Path) -> None:
    hurt.machine("remote", "add", "origin", tmp_path / "nowhere.git")
    copy = tmp_path / "copy"
    shutil.copytree(hurt.store, copy)
    bad = write("bad.bundle", "no bundle").absolute()
    damage(hurt.path(nodes_of(hurt, "0001-writer")), "empty")
    said = hurt.fixed("--from", bad, "--from", copy)
    assert [each["source"] for each in said if each["status"] == "warning"] == [str(bad)]
    hurt.machine("remote", "rm", "origin")
    hurt.is_whole()
    assert hurt.machine("doctor", "--from", copy, check=2).error["code"] == "usage"


# Beside others


def test_in_a_project_only_what_threads_need_is_repaired(uwf: Uwf, tmp_path: Path) -> None:
    project = tmp_path / "project"
    git("init", "-q", project)
    (project / "file").write_text("code")
    git("-C", project, "add", ".")
    git("-C", project, "commit", "-qm", "code")
    here: dict[str, Any] = {"cwd": project, "env": {"UWF_STORAGE_ROOT": ""}}
    uwf("init", "--here", **here)
    uwf("workflow", "put", write("pair.yaml", PAIR).absolute(), **here)
    thread = uwf("thread", "start", "pair", "-p", "x", **here).json["thread"]
    copy = tmp_path / "copy"
    shutil.copytree(project, copy)
    git("-C", project, "repack", "-adq")
    heads = git("-C", project, "show-ref", "--heads")
    (pack,) = (project / ".git/objects/pack").glob("*.pack")
    pack.chmod(0o644)
    before = pack.read_bytes()
    pack.write_bytes(before[:40] + bytes(byte ^ 0xFF for byte in before[40:-20]) + before[-20:])
    code = git("-C", copy, "rev-parse", "HEAD:file")
    assert uwf("doctor", check=7, **here).json
    said = [each for each in uwf("doctor", "--fix", "--from", copy, **here).json if each["check"] == "repair"]
    assert {each["status"] for each in said} == {"ok"}
    assert uwf("thread", "show", thread, **here).json["status"] == "idle"
    assert pack.read_bytes() != before and pack.exists()
    assert not (project / ".git/objects" / code[:2] / code[2:]).exists()
    assert git("-C", project, "show-ref", "--heads") == heads


def test_of_two_repairs_at_once_each_finds_a_whole_store_in_the_end(hurt: Hurt, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(hurt.store, copy)
    for path in hurt.loose()[::2]:
        damage(path, "empty")
    running = [
        begin("doctor", "--fix", "--from", copy, "--format", "json", env=hurt.machine.environment)
        for _ in range(2)
    ]
    assert [each.wait(120) for each in running] == [0, 0], [each.communicate() for each in running]
    hurt.is_whole()


ALL = os.environ.get("UWF_TEST_FAULTS") == "all"
KILLED = """
import os, signal, sys
from pathlib import Path
stop, count = int(sys.argv[1]), 0

def guard(owner, name):
    original = getattr(owner, name)
    def guarded(*args, **kwargs):
        global count
        count += 1
        if count == stop: os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    setattr(owner, name, guarded)

guard(os, "link")
for name in ("replace", "unlink", "write_bytes"): guard(Path, name)
sys.argv[1:] = sys.argv[2:]
from uwf_cli.main import main
main()
"""


def test_a_repair_that_is_killed_anywhere_leaves_a_store_no_worse_and_the_next_one_ends_it(
    hurt: Hurt, tmp_path: Path
) -> None:
    packed(hurt)
    thread = hurt.machine.starts("Another", "pair")
    loosen(hurt.store, OURS)
    copy = tmp_path / "copy"
    shutil.copytree(hurt.store, copy)
    whole = hurt.reachable()
    for path, how in zip(hurt.loose(), [*HOW, "empty"], strict=False):
        damage(path, how)
    (pack,) = hurt.store.glob("objects/pack/*.pack")
    flip(pack, pack.stat().st_size - 200)
    (hurt.store / f"refs/uwf/threads/{thread}").write_bytes(b"")
    broken = tmp_path / "broken"
    shutil.copytree(hurt.machine.root, broken)
    stop, code = 1, -signal.SIGKILL
    while code == -signal.SIGKILL:
        shutil.rmtree(hurt.machine.root)
        shutil.copytree(broken, hurt.machine.root)
        readable = readable_ids(hurt)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(stop), "doctor", "--fix", "--from", str(copy)],
            env={**os.environ, **hurt.machine.environment},
            capture_output=True,
            check=False,
        )
        code = done.returncode
        assert readable_ids(hurt) >= readable
        stop += 1 if ALL else 23
    assert code == 0, done.stdout + done.stderr
    assert stop > 30
    assert hurt.reachable().items() >= whole.items()


def readable_ids(hurt: Hurt) -> set[str]:
    """The objects that can be read: loose ones that are what their name says, and those of packs."""
    found = set()
    for path in hurt.loose():
        try:
            data = zlib.decompress(path.read_bytes())
        except zlib.error:
            continue
        if hashlib.sha1(data).hexdigest() == path.parent.name + path.name:
            found.add(path.parent.name + path.name)
    for pack in hurt.store.glob("objects/pack/*.pack"):
        found |= {each.oid.hex() for each in Pack(pack, 1 << 20).objects()}
    return found
