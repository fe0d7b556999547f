"""Many threads at once: begun with one write, their refs in packed-refs, their heads read together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_samples import ONE
from workflows import register

from uwf_git.format.ids import ThreadId, new_thread_id
from uwf_git.format.kinds import Start
from uwf_git.git.repository import MANY_REFS, Oid
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


@pytest.fixture
def threads(instance: Instance) -> list[ThreadId]:
    version = register(instance, ONE)
    starts = [Start(version.hash, f"Do {number}.") for number in range(MANY_REFS + 1)]
    return instance.threads.start_all(Oid(hex=version.commit), starts)


def git(instance: Instance, *args: str) -> str:
    command = ["git", "--git-dir", str(instance.store.repository.path), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def heads(instance: Instance) -> dict[ThreadId, Head]:
    return {each.thread: each for each in instance.threads.all(archived=True) if isinstance(each, Head)}


def test_threads_begun_together_are_indexed_as_reading_them_would(
    instance: Instance, threads: list[ThreadId]
) -> None:
    known = heads(instance)
    assert [*known] == sorted(threads, reverse=True)
    instance.store.reindex()
    assert heads(instance) == known
    git(instance, "fsck", "--strict")


def test_heads_read_together_are_those_read_one_by_one(instance: Instance, threads: list[ThreadId]) -> None:
    active, ended, both, removed, *_ = threads
    instance.threads.archive(instance.threads.head(ended), "killed", "why")
    commit = instance.threads.head(both).commit
    instance.threads.archive(instance.threads.head(both), "completed")
    instance.store.repository.create_ref(f"refs/uwf/threads/{both}", commit)  # the archive wins
    instance.threads.drop(f"refs/uwf/threads/{removed}")
    found = instance.threads.heads([*threads, new_thread_id()])
    assert found == {each: instance.threads.head(each) for each in threads if each != removed}
    assert found[both].archive is not None and found[active].archive is None


def test_refs_that_are_packed_at_once_leave_others_alone(instance: Instance, threads: list[ThreadId]) -> None:
    repository = instance.store.repository
    commit, other = (instance.threads.head(each).commit for each in threads[:2])
    loose = f"refs/uwf/threads/{new_thread_id()}"
    repository.create_ref(loose, other)
    ended = instance.threads.archive(instance.threads.head(threads[2]), "completed")
    git(instance, "pack-refs", "--all")  # with the peeled id of the tag
    repository.create_ref(late := f"refs/uwf/threads/{new_thread_id()}", other)
    before = git(instance, "show-ref", "--dereference")
    new = {f"refs/uwf/threads/{new_thread_id()}": commit for _ in range(MANY_REFS + 1)}
    made = repository.create_refs({**new, loose: commit, late: commit}, packed=True)
    assert made == new.keys() and ended.archive is not None
    assert repository.refs_named([*new]) == new
    after = git(instance, "show-ref", "--dereference").splitlines()
    assert set(after) == {*before.splitlines(), *(f"{oid} {name}" for name, oid in new.items())}
    assert not list(Path(repository.path).glob("**/*.lock"))
