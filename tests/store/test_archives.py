"""Old archives folded into one ref a month are found as if they stood each in a ref of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import ONE, write
from commands import loose
from conftest import Uwf
from faults import DRIVER_WITH_GIT
from warm import interpreter_for
from workflows import opened as fresh

from uwf_git.base.errors import StoreDamaged
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Start
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import BLOB_MODE, TREE_MODE, Entry, Oid
from uwf_git.store import archives, layout
from uwf_git.store.instance import Instance
from uwf_git.verify.whole import local_refs, verify_refs

FUTURE = 2**40
JANUARY, FEBRUARY = 1736942400, 1739620800  # the 15th of 2025-01 and of 2025-02, at noon


@pytest.fixture
def workflow(uwf: Uwf, hermetic: Path) -> str:
    (hermetic / "one.yaml").write_text(ONE)
    uwf("workflow", "put", hermetic / "one.yaml")
    return "one"


@pytest.fixture
def opened(workflow: str) -> Instance:
    """The store that `uwf` works on."""
    return fresh()


def ended(instance: Instance, when: int, prompt: str = "Do it") -> ThreadId:
    """A thread that was killed at a time, in Unix seconds."""
    version = instance.registry.current("one")
    thread = instance.threads.start(Oid(hex=version.commit), Start(version.hash, prompt))
    end(instance, thread, when)
    return thread


def end(instance: Instance, thread: ThreadId, when: int, reason: str = "old") -> None:
    """Kills a thread at a time."""
    head = instance.threads.head(thread)
    repository = instance.store.repository
    raw = (
        f"object {head.commit}\ntype commit\ntag uwf/{thread}\n"
        f"tagger Ada Example <ada@example.invalid> {when} +0000\n\nkilled: {reason}\n"
    )
    repository.create_ref(layout.ARCHIVE + thread, repository.write_raw_tag(raw.encode()))
    repository.delete_ref(layout.THREADS + thread, head.commit)


def refs(instance: Instance) -> set[str]:
    found = instance.store.repository.ref_names()
    return {name for name in found if not name.startswith(layout.WORKFLOWS)}


def git(instance: Instance, *args: str) -> str:
    command = ["git", "--git-dir", str(instance.store.repository.path), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_archives_of_a_month_become_one_ref_and_younger_ones_stay(opened: Instance) -> None:
    first, second = ended(opened, JANUARY), ended(opened, JANUARY + 60)
    later = ended(opened, FEBRUARY)
    assert archives.fold_before(opened.store.repository, FEBRUARY) == {"2025-01": 2}
    assert refs(opened) == {layout.FOLDED + "2025-01", layout.ARCHIVE + later}
    assert fresh().threads.ids() == {first, second, later}


def test_a_folded_thread_is_shown_listed_read_and_forked_as_any_that_ended(
    uwf: Uwf, opened: Instance, workflow: str
) -> None:
    thread = uwf("thread", "start", workflow, "-p", "Do it").json["thread"]
    uwf("thread", "step", thread)
    other = uwf("thread", "start", workflow, "-p", "Do it").json["thread"]
    commands = (
        ("thread", "show", thread),
        ("thread", "show", thread[:22].lower()),
        ("thread", "list", "--all"),
        ("thread", "list"),
        ("thread", "steps", thread),
        ("thread", "read", thread),
        ("thread", "log", thread),
    )
    before = [uwf(*command).out for command in commands]
    assert archives.fold_before(opened.store.repository, FUTURE)
    assert refs(opened) == {
        layout.THREADS + other,
        f"{layout.FOLDED}{archives.month_of(tag_time(opened, thread))}",
    }
    assert [uwf(*command).out for command in commands] == before
    uwf("cas", "reindex")
    assert [uwf(*command).out for command in commands] == before
    assert "is completed" in uwf("thread", "step", thread, check=1).error["message"]
    made = uwf("thread", "fork", thread, "--at", "0").json["thread"]
    assert uwf("thread", "show", made).json["status"] == "idle"


def tag_time(instance: Instance, thread: str) -> int:
    archive = fresh().threads.head(ThreadId(thread)).archive
    assert archive is not None
    return archive.time


def test_what_a_fold_holds_survives_the_collection_of_everything_unreachable(
    uwf: Uwf, opened: Instance
) -> None:
    threads = [ended(opened, JANUARY + number, f"Task {number}") for number in range(5)]
    before = {thread: opened.threads.head(thread) for thread in threads}
    archives.fold_before(opened.store.repository, FUTURE)
    git(opened, "reflog", "expire", "--expire=now", "--all")
    git(opened, "gc", "--prune=now", "--quiet")
    uwf("cas", "reindex")
    after = fresh()
    for thread in threads:
        assert after.threads.head(thread) == before[thread]
        after.threads.history(after.threads.head(thread))
    assert git(opened, "cat-file", "-p", f"{layout.FOLDED}2025-01:archive/{threads[0]}").endswith(
        "killed: old\n"
    )


def test_the_failed_attempts_of_a_folded_thread_are_read(
    uwf: Uwf, opened: Instance, workflow: str, script: Callable[[str, str], Path]
) -> None:
    broken = script("broken", "import sys; sys.exit('no luck')")
    thread = uwf("thread", "start", workflow, "-p", "Do it").json["thread"]
    uwf("thread", "step", thread, "--agent", broken, check=6)
    uwf("thread", "kill", thread)
    before = uwf("thread", "attempts", thread).out
    assert "no luck" in before
    archives.fold_before(opened.store.repository, FUTURE)
    assert not [name for name in refs(opened) if name.startswith(layout.ATTEMPTS)]
    assert uwf("thread", "attempts", thread).out == before


def test_a_fork_keeps_the_thread_it_comes_from(opened: Instance) -> None:
    repository = opened.store.repository
    origin, thread = ended(opened, FEBRUARY), ended(opened, JANUARY)
    head = opened.threads.head(thread)
    tag = repository.write_tag(f"uwf/{thread}", head.commit, f"fork of {origin}\n")
    repository.create_ref(layout.FORKS + thread, tag)
    archives.fold_before(repository, FEBRUARY)
    assert layout.FORKS + thread not in refs(opened)
    row = fresh().store.folded(thread)
    assert row is not None and row.fork is not None
    assert layout.fork_origin(parse_tag(row.fork).message) == origin


def test_more_threads_than_a_commit_may_have_parents_make_a_chain(
    opened: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "PARENTS", 4)
    threads = {ended(opened, JANUARY + number, f"Task {number}") for number in range(11)}
    archives.fold_before(opened.store.repository, FUTURE)
    parents = [
        row.split()
        for row in git(
            opened, "log", "--format=%P", "--grep", "^Uwf-Fold", layout.FOLDED + "2025-01"
        ).splitlines()
        if row
    ]
    tip = opened.store.repository.ref(layout.FOLDED + "2025-01")
    assert tip is not None
    assert archives.read(opened.store.repository, tip).threads.keys() == threads
    assert len(archives.read(opened.store.repository, tip).chain) == 4
    assert all(len(each) <= 4 for each in parents)


def test_folding_again_adds_what_came_since_and_changes_nothing_else(opened: Instance) -> None:
    repository = opened.store.repository
    first = ended(opened, JANUARY)
    archives.fold_before(repository, FUTURE)
    tip = repository.ref(layout.FOLDED + "2025-01")
    assert archives.fold_before(repository, FUTURE) == {}
    assert repository.ref(layout.FOLDED + "2025-01") == tip
    second = ended(opened, JANUARY + 1)
    assert archives.fold_before(repository, FUTURE) == {"2025-01": 1}
    moved = repository.ref(layout.FOLDED + "2025-01")
    assert moved is not None and repository.commit(moved).parents[0] == tip
    assert fresh().threads.ids() == {first, second}


def test_hundreds_of_packed_archives_are_folded(opened: Instance) -> None:
    threads = {ended(opened, JANUARY + number) for number in range(60)}
    git(opened, "pack-refs", "--all")
    assert archives.fold_before(opened.store.repository, FUTURE) == {"2025-01": 60}
    assert refs(opened) == {layout.FOLDED + "2025-01"}
    assert fresh().threads.ids() == threads


def test_removing_a_folded_thread_leaves_the_others_of_its_month(uwf: Uwf, opened: Instance) -> None:
    first, second = ended(opened, JANUARY, "One"), ended(opened, JANUARY + 1, "Two")
    gone = opened.threads.head(first).commit
    archives.fold_before(opened.store.repository, FUTURE)
    uwf("thread", "rm", first, "--yes")
    assert [each["thread"] for each in uwf("thread", "list", "--all").json] == [second]
    uwf("thread", "show", first, check=3)
    uwf("gc", "--prune")
    assert not fresh().store.repository.has(gone)
    uwf("thread", "rm", second, "--yes")
    assert {layout.namespace_of(name) for name in refs(opened)} == {layout.REMOVED}


def test_an_active_ref_that_comes_back_does_not_bring_a_folded_thread_to_life(
    uwf: Uwf, opened: Instance
) -> None:
    thread = ended(opened, JANUARY)
    commit = opened.threads.head(thread).commit
    archives.fold_before(opened.store.repository, FUTURE)
    opened.store.repository.create_ref(layout.THREADS + thread, commit)
    assert uwf("thread", "list").json == []
    assert uwf("thread", "show", thread).json["status"] == "killed"
    assert [each["status"] for each in uwf("thread", "list", "--all").json] == ["killed"]


def test_a_fold_moved_by_plain_git_is_noticed(uwf: Uwf, opened: Instance) -> None:
    thread = ended(opened, JANUARY)
    archives.fold_before(opened.store.repository, FUTURE)
    tip = git(opened, "rev-parse", layout.FOLDED + "2025-01").strip()
    uwf("thread", "show", thread)
    git(opened, "update-ref", "-d", layout.FOLDED + "2025-01")
    uwf("thread", "show", thread, check=3)
    git(opened, "update-ref", layout.FOLDED + "2025-01", tip)
    uwf("thread", "show", thread)


def test_one_damaged_thread_hides_no_other_of_its_fold(uwf: Uwf, opened: Instance) -> None:
    repository = opened.store.repository
    sound, broken = ended(opened, JANUARY, "One"), ended(opened, JANUARY + 1, "Two")
    commit = str(opened.threads.head(broken).commit)
    archives.fold_before(repository, FUTURE)
    loose(repository.path, commit).unlink()
    uwf("cas", "reindex")
    listed = {each["thread"]: each["status"] for each in uwf("thread", "list", "--all", check=7).json}
    assert listed == {sound: "killed", broken: "corrupt"}
    assert uwf("thread", "show", broken, check=7).error["code"] == "store_damaged"


# Two machines


def test_two_folds_of_a_month_become_one_that_holds_both(opened: Instance) -> None:
    repository = opened.store.repository
    common = ended(opened, JANUARY)
    archives.fold_before(repository, FUTURE)
    base = tip_of(opened)
    one = ended(opened, JANUARY + 1)
    archives.fold_before(repository, FUTURE)
    mine = tip_of(opened)
    repository.move_ref(layout.FOLDED + "2025-01", mine, base)
    other = ended(opened, JANUARY + 2)
    archives.fold_before(repository, FUTURE)
    theirs = tip_of(opened)
    merged = archives.merge(repository, mine, theirs)
    assert repository.commit(merged).parents == (mine, theirs)
    assert archives.read(repository, merged).threads.keys() == {common, one, other}
    assert archives.merge(repository, merged, theirs) == archives.merge(repository, theirs, merged) == merged
    assert archives.merge(repository, base, mine) == archives.merge(repository, mine, base) == mine


def test_the_same_threads_folded_twice_need_no_merge(opened: Instance) -> None:
    repository = opened.store.repository
    threads = [ended(opened, JANUARY), ended(opened, JANUARY + 1)]
    tags = {thread: repository.ref(layout.ARCHIVE + thread) for thread in threads}
    archives.fold_before(repository, FUTURE)
    mine = tip_of(opened)
    repository.delete_ref(layout.FOLDED + "2025-01", mine)
    for thread, when in ((threads[1], JANUARY + 1), (threads[0], FUTURE)):
        tag = tags[thread]
        assert tag is not None
        repository.create_ref(layout.ARCHIVE + thread, tag)
        archives.fold_before(repository, when + 1)
    theirs = tip_of(opened)
    assert mine != theirs
    assert archives.merge(repository, mine, theirs) == theirs


def test_a_thread_ended_on_both_sides_ends_as_the_other_side_says(opened: Instance) -> None:
    repository = opened.store.repository
    version = opened.registry.current("one")
    thread = opened.threads.start(Oid(hex=version.commit), Start(version.hash, "Do it"))
    start = opened.threads.head(thread).commit
    tips = []
    for when in (JANUARY + 5, JANUARY):
        end(opened, thread, when, f"at {when}")
        archives.fold_before(repository, FUTURE)
        tips.append(tip_of(opened))
        repository.delete_ref(layout.FOLDED + "2025-01", tips[-1])
        repository.create_ref(layout.THREADS + thread, start)
    for mine, theirs in (tips, tips[::-1]):
        merged = archives.read(repository, archives.merge(repository, mine, theirs))
        assert merged.threads[thread] == archives.read(repository, theirs).threads[thread]


def tip_of(instance: Instance) -> Oid:
    tip = instance.store.repository.ref(layout.FOLDED + "2025-01")
    assert tip is not None
    return tip


# What is no fold


def broken_fold(instance: Instance, how: str) -> Oid:
    """A fold of one thread that breaks the format in one way."""
    repository = instance.store.repository
    thread, stranger = ended(instance, JANUARY), ended(instance, JANUARY + 1, "Another")
    tag = repository.ref(layout.ARCHIVE + thread)
    assert tag is not None
    raw = repository.read(tag)[1]
    head = instance.threads.head(thread).commit
    parents, month = [head], "2025-01"
    files: dict[str, bytes | Oid] = {f"archive/{thread}": raw}
    more = ""
    match how:
        case "another thread's tag":
            files = {f"archive/{stranger}": raw}
        case "a head it does not keep":
            parents = [instance.threads.head(stranger).commit]
        case "an attempt it does not keep":
            files[f"attempts/{thread}"] = f"{instance.threads.head(stranger).commit}\n".encode()
        case "an attempt without an id":
            files[f"attempts/{thread}"] = b"none\n"
        case "an attempt without an archive":
            files[f"attempts/{stranger}"] = f"{head}\n".encode()
        case "a fork of nothing":
            files[f"forks/{thread}"] = raw
        case "another month":
            month = "2025-02"
        case "a status of its own":
            files = {f"archive/{thread}": raw.replace(b"killed", b"paused")}
        case "a file beside":
            files["README.md"] = b"hello"
        case "a name that is not a thread":
            files["archive/readme"] = raw
        case "no tag":
            files = {f"archive/{thread}": b"killed\n"}
        case "a tag of a megabyte":
            files = {f"archive/{thread}": raw + b"x" * 1_000_000}
        case "no month":
            month = "2025-13"
        case "no threads":
            files = {}
        case "a long message":
            more = "x" * 70_000
    tree = repository.write_folder(files)
    if how == "a symlink":
        inside = repository.write_tree([Entry("120000", thread, repository.write_blob(raw))])
        tree = repository.write_tree([Entry(TREE_MODE, "archive", inside)])
    if how == "an empty folder":
        inside = repository.write_folder(files)
        empty = Entry(TREE_MODE, "forks", repository.write_tree([]))
        tree = repository.write_tree([*repository.tree(inside), empty])
    if how == "a file for a folder":
        tree = repository.write_tree([Entry(BLOB_MODE, "archive", repository.write_blob(raw))])
    text = more + layout.message("fold", {layout.FOLD_TRAILER: month})
    return repository.write_commit(tree, parents, repository.user, text)


BROKEN = (
    "another thread's tag",
    "a head it does not keep",
    "an attempt it does not keep",
    "an attempt without an id",
    "an attempt without an archive",
    "a fork of nothing",
    "another month",
    "a status of its own",
    "a file beside",
    "a name that is not a thread",
    "no tag",
    "a tag of a megabyte",
    "no month",
    "no threads",
    "a long message",
    "an empty folder",
    "a symlink",
    "a file for a folder",
)


@pytest.mark.parametrize("how", BROKEN)
def test_a_fold_is_refused_that_has(how: str, uwf: Uwf, opened: Instance) -> None:
    commit = broken_fold(opened, how)
    repository = opened.store.repository
    with pytest.raises(StoreDamaged):
        archives.read(repository, commit, "2025-01")
    repository.create_ref(layout.FOLDED + "2025-01", commit)
    assert len(uwf("thread", "list", "--all").json) == 2
    uwf("doctor", check=7)


def test_the_fold_that_the_broken_ones_are_made_of_is_sound(opened: Instance) -> None:
    assert len(archives.read(opened.store.repository, broken_fold(opened, "nothing"), "2025-01").threads) == 1


def verified(instance: Instance) -> set[str]:
    repository = fresh().store.repository
    return {finding.code for finding in verify_refs(repository, local_refs(repository)).findings}


def carrying(instance: Instance, *held: Oid) -> None:
    """Makes the fold of a month keep more than its threads name."""
    repository = instance.store.repository
    tip = tip_of(instance)
    was = repository.commit(tip)
    commit = repository.write_commit(was.tree, [*was.parents, *held], repository.user, was.message)
    repository.move_ref(layout.FOLDED + "2025-01", tip, commit)


def test_what_a_fold_keeps_without_naming_it_is_verified_too(opened: Instance) -> None:
    repository = opened.store.repository
    version = opened.registry.current("one")
    other = ended(opened, JANUARY, "Another")
    head = opened.threads.head(other).commit
    repository.delete_ref(
        layout.ARCHIVE + other, Oid(hex=git(opened, "rev-parse", layout.ARCHIVE + other).strip())
    )
    ended(opened, JANUARY)
    archives.fold_before(repository, FUTURE)
    carrying(opened, head)  # as a merge of two folds would
    assert verified(opened) == set()
    link = repository.write_tree([Entry("120000", "link", repository.write_blob(b"/etc/passwd"))])
    tip = tip_of(opened)
    carrying(opened, repository.write_commit(link, [], repository.user, "Code\n"))
    assert verified(opened) == {"no-record"}
    repository.move_ref(layout.FOLDED + "2025-01", tip_of(opened), tip)
    carrying(opened, Oid(hex=version.commit))
    assert verified(opened) == {"wrong-ref"}


def test_a_fold_of_anything_does_not_hide_behind_the_next(opened: Instance) -> None:
    repository = opened.store.repository
    ended(opened, JANUARY)
    archives.fold_before(repository, FUTURE)
    tip = tip_of(opened)
    was = repository.commit(tip)
    link = repository.write_tree([Entry("120000", "link", repository.write_blob(b"/etc/passwd"))])
    for tree, message, code in (
        (link, was.message, "wrong-ref"),
        (was.tree, "Approved by everybody.\n\n" + was.message, "wrong-message"),
    ):
        hidden = repository.write_commit(tree, was.parents, repository.user, message)
        commit = repository.write_commit(was.tree, [hidden], repository.user, was.message)
        repository.move_ref(layout.FOLDED + "2025-01", tip_of(opened), commit)
        assert verified(opened) == {code}


def test_a_fold_that_continues_too_many_is_refused(opened: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "CHAIN", 2)
    for number in range(2):
        ended(opened, JANUARY + number)
        archives.fold_before(opened.store.repository, FUTURE)
    assert len(archives.read(opened.store.repository, tip_of(opened)).chain) == 2
    carrying(opened)
    tip = tip_of(opened)
    was = opened.store.repository.commit(tip)
    more = opened.store.repository.write_commit(was.tree, [tip], opened.store.repository.user, was.message)
    with pytest.raises(StoreDamaged, match="continues over 2"):
        archives.read(opened.store.repository, more)


# kill -9


def test_a_fold_that_is_killed_anywhere_loses_no_thread_and_a_repetition_finishes_it(
    uwf: Uwf, opened: Instance, workflow: str, script: Callable[[str, str], Path]
) -> None:
    threads = {ended(opened, JANUARY + number, f"Task {number}") for number in range(2)}
    threads.add(ended(opened, FEBRUARY))
    broken = script("broken", "import sys; sys.exit('no luck')")
    failed = uwf("thread", "start", workflow, "-p", "Do it").json["thread"]
    uwf("thread", "step", failed, "--agent", broken, check=6)
    end(opened, ThreadId(failed), FEBRUARY)
    threads.add(ThreadId(failed))
    driver = write("driver.py", DRIVER_WITH_GIT)
    kills = 0
    for number in range(1, 200):
        codes = []
        for moment in ("before", "after"):
            argv = [
                *interpreter_for(DRIVER_WITH_GIT),
                Path(driver).absolute(),
                str(number),
                moment,
                "gc",
                "--fold-before",
                "2025-03-01",
            ]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode in (0, -9), done.stderr
            codes.append(done.returncode)
            assert fresh().threads.ids() == threads
            for head in fresh().threads.all(archived=True):
                assert hasattr(head, "row"), head
            assert len(uwf("thread", "attempts", failed).json) == 1
            git(opened, "fsck", "--connectivity-only", "--no-dangling")
        kills += codes.count(-9)
        if codes == [0, 0]:
            break
    assert kills > 10
    assert refs(opened) == {layout.FOLDED + "2025-01", layout.FOLDED + "2025-02"}
