"""A step is one small pack; small packs are joined; nobody who reads or writes meanwhile notices."""

from __future__ import annotations

import gc
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from commands import begin, git
from conftest import REPOSITORY, Uwf
from test_threads import append, make_step, start

from uwf_git.base.errors import StoreDamaged
from uwf_git.format.types import TEXT
from uwf_git.git import database
from uwf_git.git.libgit2 import OdbBackendPack
from uwf_git.git.packing import MANY, OURS, ours
from uwf_git.git.repository import BLOB, Oid, Repository
from uwf_git.store.instance import Instance

pytestmark = pytest.mark.extended

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
    head = append(instance, instance.threads.head(start(instance)), 0)
    before, another = set(packs(instance)), Instance(instance.location).store.repository
    with another.together():  # who made a pack still knows what was in it
        another.write_blob(b"by somebody else")
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


def test_two_who_each_know_what_they_wrote_join_what_the_other_has_joined_before(instance: Instance) -> None:
    written = []
    for number in range(5 * MANY):
        repository = (instance, Instance(instance.location), instance)[number % 3].store.repository
        with repository.together():
            written.append(repository.write_blob(f"{number}: {'the same page ' * 40}".encode()))
        assert len(packs(instance)) <= MANY
    another = Instance(instance.location).store.repository
    for number in range(2 * MANY):  # by now the first one's packs are in those of this one
        with another.together():
            written.append(another.write_blob(f"{number} more".encode()))
    with instance.store.repository.together():
        written.append(instance.store.repository.write_blob(b"the last"))
    database = Instance(instance.location).store.repository
    assert all(database.has(oid) and database.read(oid) for oid in written)
    fsck(instance)


FOLDERS = [str(Path(__file__).parent), str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "doubles")]
STEPPER = """
import sys
sys.path[:0] = {folders!r}
from test_threads import append
from uwf_git.git.libgit2 import OdbBackendPack
from uwf_git.store.instance import Instance
instance = Instance.open()
head = instance.threads.head(sys.argv[1])
for number in range({steps}):
    head = append(instance, head, number)
"""

READER = """
import sys
from pathlib import Path
from uwf_git.git.libgit2 import OdbBackendPack
from uwf_git.store.instance import Instance
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


# A ref moved while it was packed, and stays loose; a file that was being written got its name; or git ends since a pack
# was joined into another just as a part of its packing began, or an object written just after it had looked for it.
REF_MOVED = re.compile(r"error: cannot lock ref '[^']+': is at [0-9a-f]{40} but expected [0-9a-f]{40}")
FILE_GONE = re.compile(r"error: Could not stat '(?:\S*/)?objects/(?:pack/)?tmp_\w+'")
DISTURBED = re.compile(
    r"fatal: (?:unable to (?:add|mark) recent objects|cannot open pack index|loose object \w+ .* is corrupt)\n"
    r"fatal: failed to run (?:repack|prune)\n"
)


def gc_beside(git_dir: Path) -> None:
    """git's own packing, which may end early for one reason alone."""
    command = ["git", "--git-dir", str(git_dir), "gc", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = "".join(
        line for line in done.stderr.splitlines(True) if not (REF_MOVED.match(line) or FILE_GONE.match(line))
    )
    assert (done.returncode == 0 and not said) or DISTURBED.fullmatch(said), done.stderr


@pytest.mark.parametrize("meanwhile", ["gc", "repack", "clone"])
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
            gc_beside(git_dir)
        elif meanwhile == "repack":
            git("--git-dir", git_dir, "repack", "-adq")
        else:
            copy = hermetic / "copy.git"
            git("clone", "-q", "--mirror", f"file://{git_dir}", copy)
            git("--git-dir", copy, "fsck", "--strict", "--no-dangling")
            shutil.rmtree(copy)
    stop.touch()
    assert [each.returncode for each in steppers] == [0, 0, 0]
    assert reader.wait() == 0, reader.stderr.read().decode() if reader.stderr else ""
    assert rounds > 1
    git("--git-dir", git_dir, "gc", "--quiet")
    assert not (git_dir / "gc.log").exists()
    fsck(instance)
    fresh = Instance(instance.location)
    for thread in threads:
        numbers = [step.output["n"] for step in fresh.threads.history(fresh.threads.head(thread)).steps]
        assert numbers == list(range(STEPS))


class Missed:
    """A look at packs that have been joined with others since they were listed."""

    def read(self, oid: Oid) -> tuple[int, bytes]:
        raise KeyError(oid)


def test_an_object_whose_pack_is_another_each_time_that_packs_are_listed_is_found(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = instance.threads.head(start(instance)).commit
    times = iter(range(3))

    def join() -> None:
        for path in packs(instance):
            joined = path.with_name(f"{OURS}{os.urandom(17).hex()}.pack")
            for suffix in (".pack", ".idx"):
                path.with_suffix(suffix).rename(joined.with_suffix(suffix))

    def listed(objects: str) -> OdbBackendPack:
        found = OdbBackendPack(objects)
        if next(times, None) is not None:
            join()
        return found

    join()  # into one that this process hasn't open
    monkeypatch.setattr(database, "OdbBackendPack", listed)
    monkeypatch.setattr(database, "all_objects", lambda git: Missed())
    repository = Instance(instance.location).store.repository
    assert b"author" in repository.read(commit)[1]
    assert next(times, None) is None
    with pytest.raises(StoreDamaged, match="it is missing"):
        repository.read(Oid(hex="1" * 40))


def test_a_repository_that_is_not_used_any_more_holds_no_pack_open(
    instance: Instance, tmp_path: Path
) -> None:
    commit = instance.threads.head(start(instance)).commit
    copy = shutil.copytree(instance.store.repository.path, tmp_path / "copy.git")

    def held() -> int:
        links = [each for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each)]
        return sum(str(each.readlink()).startswith(str(copy / "objects")) for each in links)

    repository = Repository(copy)
    with pytest.raises(StoreDamaged):
        repository.read(Oid(hex="1" * 40))  # which lists the packs again
    assert b"author" in repository.read(commit)[1] and held() == 1
    del repository
    gc.collect()
    assert held() == 0


def test_no_pack_is_joined_while_a_git_packs_everything(instance: Instance) -> None:
    thread = start(instance)
    head = instance.threads.head(thread)
    at_work = instance.store.repository.path / "gc.pid"
    at_work.write_text(f"{os.getpid()} {socket.gethostname()}")
    for number in range(2 * MANY):
        head = append(instance, head, number)
    assert len(packs(instance)) > 2 * MANY
    over = subprocess.Popen(["true"])
    over.wait()
    at_work.write_text(f"{over.pid} {socket.gethostname()}")
    append(instance, head, 2 * MANY)
    assert len(packs(instance)) == 1


def test_what_is_stored_long_before_a_ref_leads_to_it_is_in_no_pack(instance: Instance) -> None:
    start(instance)
    before = packs(instance)
    nodes = [instance.store.draft(TEXT, text) for text in ("said at once", "said next")]
    instance.store.store_drafts()
    assert packs(instance) == before
    git("--git-dir", instance.store.repository.path, "repack", "-adq")
    assert [Instance(instance.location).store.get(node).payload for node in nodes] == [
        "said at once",
        "said next",
    ]


LOOP = """\
name: loop
description: Works and works.
roles:
  worker:
    description: Works.
    systemPrompt: Work.
    outputSchema: { type: object, properties: { n: { type: integer } }, required: [n] }
graph:
  $START: [{ role: worker }]
  worker: [{ role: $END, condition: done }, { role: worker }]
conditions:
  done: { expression: "steps[-1].output.n = 2" }
"""


def test_a_repack_that_keeps_only_what_refs_lead_to_takes_nothing_of_a_running_step(
    uwf: Uwf, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "loop.yaml").write_text(LOOP)
    uwf("workflow", "put", tmp_path / "loop.yaml")
    agent = tmp_path / "agent.sh"
    agent.write_text("cat > /dev/null; echo '{\"n\": 1}'\n")
    store = root / "store.git"
    threads = [uwf("thread", "start", "loop", "-p", "Go").json["thread"] for _ in "ab"]
    embedded, apart = f"uwf-exec sh {agent}", f"{shutil.which('env')} uwf-exec sh {agent}"
    running = [
        begin("thread", "run", thread, "--max-steps", 8, "--agent", how)
        for thread, how in zip(threads, (embedded, apart), strict=True)
    ]
    rounds = 0
    while any(each.poll() is None for each in running):
        rounds += 1
        git("--git-dir", store, "repack", "-adq")
    for each in running:
        _, said = each.communicate()
        assert each.returncode == 11, said
    assert rounds > 1
    uwf("verify")
    assert [len(uwf("thread", "steps", thread).json) for thread in threads] == [8, 8]
    assert not list((store / "objects" / "pack").glob("*.keep"))


def test_a_pack_is_kept_until_a_ref_leads_to_it_or_its_maker_is_gone(instance: Instance, uwf: Uwf) -> None:
    repository = instance.store.repository
    with pytest.raises(KeyError), repository.together():
        oid = repository.write_blob(b"no ref leads to this")
        repository.store_gathered()
        (kept,) = folder(instance).glob("*.keep")
        assert not packs(instance)
        uwf("doctor", "--fix")
        git("--git-dir", repository.path, "repack", "-adq")
        assert kept.exists() and git("--git-dir", repository.path, "cat-file", "-t", oid) == "blob"
        raise KeyError
    assert not kept.exists() and kept.with_suffix(".pack").exists()
    theirs = kept.with_name("pack-theirs.keep")
    theirs.write_text("fetch-pack 1 on a machine\n")
    for tidy in (("doctor", "--fix"), ("gc",)):
        kept.write_text("uwf 1\n")  # which nobody holds: its maker was killed
        uwf(*tidy)
        assert not kept.exists() and theirs.exists()
    kept.write_text("uwf 1\n")
    assert kept.name in uwf("doctor").out
    thread = start(instance)
    head = instance.threads.head(thread)
    for number in range(MANY + 1):
        head = append(instance, head, number)
    assert not kept.exists() and theirs.exists()
