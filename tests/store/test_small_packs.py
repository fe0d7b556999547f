"""A step is one small pack; small packs are joined; nobody who reads or writes meanwhile notices."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import git
from test_threads import FOLDERS, append, make_step, start

from uwf_git.git.packing import MANY, OURS, ours
from uwf_git.git.repository import BLOB, Oid
from uwf_git.store.opened import Instance
from uwf_git.values.types import TEXT

STEPS = 40


def packs(instance: Instance) -> list[Path]:
    return [path for _, path in ours(folder(instance))]


def folder(instance: Instance) -> Path:
    return instance.store.repository.path / "objects" / "pack"


def fsck(instance: Instance) -> None:
    git("--git-dir", instance.store.repository.path, "fsck", "--strict", "--no-dangling")


def test_a_step_is_one_pack_that_git_makes_the_same_index_of(instance: Instance) -> None:
    thread = start(instance)
    head, before = instance.threads.head(thread), set(packs(instance))
    node = make_step(instance, instance.threads.history(head), 1, "Said é " * 3000)
    instance.threads.append(head, node, set())
    (pack,) = set(packs(instance)) - before
    again = pack.with_name("again.idx")
    git("--git-dir", instance.store.repository.path, "index-pack", "--strict", "-o", again, pack)
    assert again.read_bytes() == pack.with_suffix(".idx").read_bytes()
    assert instance.store.repository.refs() == Instance(instance.location).store.repository.refs()


def test_many_steps_leave_few_packs_in_which_everything_is(instance: Instance) -> None:
    thread = start(instance)
    head = instance.threads.head(thread)
    for number in range(5 * MANY):
        head = append(instance, head, number)
        assert len(packs(instance)) <= MANY
    fsck(instance)
    steps = Instance(instance.location).threads.history(head).steps
    assert [step.output["n"] for step in steps] == list(range(5 * MANY))
    left = {path.suffix for path in folder(instance).iterdir()}
    assert left <= {".pack", ".idx"}


def test_a_pack_that_is_damaged_or_not_ours_is_left_alone(instance: Instance) -> None:
    thread = start(instance)
    before = set(packs(instance))
    head = append(instance, instance.threads.head(thread), 0)
    damaged = (set(packs(instance)) - before).pop()
    damaged.chmod(0o644)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-30] + b"damaged!!!" + whole[-20:])
    git("--git-dir", instance.store.repository.path, "pack-refs", "--all")
    for number in range(1, 2 * MANY):
        head = append(instance, head, number)
    assert damaged.exists() and len(packs(instance)) < MANY
    damaged.write_bytes(whole)
    git("--git-dir", instance.store.repository.path, "repack", "-adq")
    assert not packs(instance)
    (theirs,) = folder(instance).glob("*.pack")
    for number in range(2 * MANY, 4 * MANY):
        head = append(instance, head, number)
    assert theirs.exists()
    git("--git-dir", instance.store.repository.path, "multi-pack-index", "write")
    for number in range(4 * MANY, 6 * MANY):
        head = append(instance, head, number)
    assert len(list(folder(instance).glob(f"{OURS}*.pack"))) >= 2 * MANY
    fsck(instance)
    assert len(Instance(instance.location).threads.history(head).steps) == 6 * MANY


def test_what_is_in_two_packs_is_joined_once(instance: Instance) -> None:
    repository = instance.store.repository
    same = b"the same in all of them"
    for number in range(MANY):
        with repository.together():
            repository.write_blob(same)
            oid = repository.write_blob(f"{number}".encode())
    (pack,) = packs(instance)
    listed = git("verify-pack", "-v", pack).splitlines()
    assert (
        sum(
            line.startswith(str(Oid(hex=git("hash-object", "--stdin", data=same.decode()))))
            for line in listed
        )
        == 1
    )
    assert Instance(instance.location).store.repository.read(oid) == (BLOB, f"{MANY - 1}".encode())


STEPPER = """
import sys
sys.path[:0] = {folders!r}
from test_threads import append
from uwf_git.store.opened import Instance
instance = Instance.open()
head = instance.threads.head(sys.argv[1])
for number in range({steps}):
    head = append(instance, head, number)
"""

READER = """
import sys
from pathlib import Path
from uwf_git.store.opened import Instance
instance = Instance.open()
while not Path(sys.argv[1]).exists():
    for thread in sys.argv[2:]:
        fresh = Instance.open()
        for each in (instance, fresh):
            head = each.threads.head(thread)
            each.store._recent.clear()
            numbers = [step.output["n"] for step in each.threads.history(head).steps]
            assert numbers == list(range(len(numbers))), numbers
            each.store.repository._trees.clear()
            root = each.store.repository.root(head.commit)
            assert each.store.repository.file(root, "README.md") is not None
"""


@pytest.mark.parametrize("meanwhile", ["gc", "clone"])
def test_steps_joins_readers_and_git_side_by_side(instance: Instance, hermetic: Path, meanwhile: str) -> None:
    threads = [start(instance, f"Count {number}") for number in range(3)]
    stop, git_dir = hermetic / "stop", instance.store.repository.path
    stepper = STEPPER.format(folders=FOLDERS, steps=STEPS)
    steppers = [subprocess.Popen([sys.executable, "-c", stepper, thread]) for thread in threads]
    reader = subprocess.Popen([sys.executable, "-c", READER, str(stop), *threads], stderr=subprocess.PIPE)
    rounds = 0
    while any(each.poll() is None for each in steppers):
        rounds += 1
        if meanwhile == "gc":
            git("--git-dir", git_dir, "gc", "--quiet")
        else:
            copy = hermetic / "copy.git"
            git("clone", "-q", "--mirror", f"file://{git_dir}", copy)
            git("--git-dir", copy, "fsck", "--strict", "--no-dangling")
            shutil.rmtree(copy)
    stop.touch()
    assert [each.returncode for each in steppers] == [0, 0, 0]
    assert reader.wait() == 0, reader.stderr.read().decode() if reader.stderr else ""
    assert rounds > 1
    fsck(instance)
    fresh = Instance(instance.location)
    for thread in threads:
        numbers = [step.output["n"] for step in fresh.threads.history(fresh.threads.head(thread)).steps]
        assert numbers == list(range(STEPS))


def test_one_object_alone_stays_a_file(instance: Instance) -> None:
    start(instance)
    before = packs(instance)
    instance.store.draft(TEXT, "said at once")
    instance.store.store_drafts()
    assert packs(instance) == before
