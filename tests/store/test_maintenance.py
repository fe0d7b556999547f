"""Loose objects are packed in the background, by git, and nothing notices."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from uwf_git.format.types import TEXT
from uwf_git.git.libgit2 import Oid
from uwf_git.store import maintenance
from uwf_git.store.indexing import pin
from uwf_git.store.instance import Instance
from uwf_git.store.maintenance import leftovers, loose_objects, maintain


def counted(instance: Instance) -> dict[str, int]:
    command = ["git", "--git-dir", str(instance.store.repository.path), "count-objects", "-v"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {key: int(value) for key, value in (line.split(": ") for line in lines)}


def test_a_heap_of_loose_objects_is_packed_and_every_node_still_read(instance: Instance) -> None:
    store = instance.store
    nodes = [store.put(TEXT, f"text {number}") for number in range(2500)]
    for node in nodes[:20]:
        pin(store, node)
    assert loose_objects(store.repository) > 100
    log = store.repository.path / "gc.log"
    log.write_text(
        "error: Could not stat 'objects/pack/tmp_pack_1'\n"
    )  # for which git's own would wait a day
    assert maintain(store.repository, shared=False, limit=100)
    deadline = time.monotonic() + 60
    while counted(instance)["in-pack"] < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    fresh = Instance(instance.location)
    assert [fresh.store.get(node) for node in nodes] == [store.get(node) for node in nodes]
    assert fresh.store.repository.refs() == store.repository.refs()


def test_nothing_is_started_below_the_limit_or_without_git(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not maintain(instance.store.repository, shared=False)
    for number in range(2500):
        instance.store.put(TEXT, f"text {number}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not maintain(instance.store.repository, shared=False, limit=10)


@pytest.fixture
def many_refs(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> dict[str, Oid]:
    """Enough refs that are files of their own."""
    monkeypatch.setattr(maintenance, "LOOSE_REFS", 30)
    pin(instance.store, instance.store.put(TEXT, "text"))
    repository = instance.store.repository
    (commit,) = repository.refs().values()
    refs = {f"refs/uwf/threads/{number:026d}": commit for number in range(31)}
    repository.create_refs(refs)
    return repository.refs()


def test_many_refs_are_packed_and_none_is_lost_meanwhile(
    instance: Instance, many_refs: dict[str, Oid], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = instance.store.repository
    assert maintain(repository, shared=False)
    deadline = time.monotonic() + 60
    while maintenance.has_many_loose_refs(repository):
        assert repository.refs() == many_refs and time.monotonic() < deadline
    assert repository.refs() == many_refs and (repository.path / "packed-refs").exists()
    assert not maintain(repository, shared=False)
    monkeypatch.setattr(maintenance, "LOOSE_REFS", 20)
    repository.create_refs({f"{name}x": oid for name, oid in many_refs.items()})
    assert maintenance.has_many_loose_refs(repository)
    with (repository.path / "packed-refs").open("a") as packed:  # which takes longer to write anew
        packed.write(f"{next(iter(many_refs.values()))} refs/x\n" * 800)
    assert not maintain(repository, shared=False)
    monkeypatch.setattr(maintenance, "LOOSE_REFS", 3)  # so many that listing them takes long too
    assert maintenance.has_many_loose_refs(repository)


def test_few_refs_and_those_of_a_project_or_of_a_user_who_packs_are_left_alone(
    instance: Instance, many_refs: dict[str, Oid], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = instance.store.repository
    assert not maintain(repository, shared=True)
    monkeypatch.setattr(maintenance, "LOOSE_REFS", 31)
    assert not maintain(repository, shared=False)
    monkeypatch.setattr(maintenance, "LOOSE_REFS", 30)
    subprocess.run(["git", "--git-dir", repository.path, "config", "gc.auto", "0"], check=True)
    assert not maintain(Instance(instance.location).store.repository, shared=False)
    assert not (repository.path / "packed-refs").exists()


@contextlib.contextmanager
def endlessly(code: str, *args: Path) -> Iterator[None]:
    """Another process does it again and again, and has begun to: the last of its paths is there."""
    code = f"import os, sys\nwhile True:\n    {code}\n"
    with subprocess.Popen([sys.executable, "-c", code, *args]) as process:
        try:
            while not args[-1].exists():
                time.sleep(0.02)
                assert process.poll() is None
            yield
        finally:
            process.kill()


def test_what_is_being_written_while_leftovers_are_looked_for_is_passed_over(instance: Instance) -> None:
    packs = instance.store.repository.path / "objects" / "pack"
    begun, done = packs / ".tmp-uwf-idx-0", packs / "pack-0.idx"
    with endlessly("open(sys.argv[1], 'w').close(); os.rename(*sys.argv[1:])", begun, done):
        assert [leftovers(instance.store.repository) for _ in range(3000)] == [[]] * 3000


def test_a_folder_that_git_removes_while_leftovers_are_looked_for_holds_none(instance: Instance) -> None:
    folder = instance.store.repository.path / "objects" / "66"
    with endlessly("os.mkdir(sys.argv[1]); os.rmdir(sys.argv[1])", folder):
        assert [leftovers(instance.store.repository) for _ in range(3000)] == [[]] * 3000
