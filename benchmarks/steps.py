"""Steps in the library: the time and the disk that they take, and reading them again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pygit2
from measure import Turn, disk, fastest, timed
from rows import Row, Size, compared
from stores import MEGABYTE, PAYLOAD, Lab

from uwf_git.store.opened import Instance


def appending(folder: Path, size: Size) -> Iterator[Row]:
    """A step in the library: against its bare objects, and late against early. fsync is on for both."""
    lab = Lab(folder / "store")
    bare = pygit2.init_repository(str(folder / "bare.git"), bare=True)
    thread = lab.start()
    written: list[tuple[int, bytes]] = []

    def append() -> float:
        before = lab.instance.threads.head(thread)
        known = [step.hash for step in lab.instance.threads.history(before).steps]
        lab.prepare(size.batch)
        seconds = timed(lambda: list(lab.growing(before, known, size.batch)))()
        written[:] = _objects(lab, f"{before.commit}..{lab.instance.threads.head(thread).commit}")
        return seconds / size.batch

    def write() -> float:
        return timed(lambda: [bare.write(kind, data) for kind, data in written])() / size.batch

    ours, theirs = fastest(max(size.turns // 2, 2), append, write)
    objects = len(written) / size.batch
    yield compared(f"append a step, fsync on / its {objects:.1f} objects by pygit2", ours, theirs, 2.5)

    lab.grow(thread, max(0, size.long - lab.instance.threads.head(thread).row.number))
    head = lab.instance.threads.head(thread)
    steps = lab.instance.threads.history(head).steps

    def ten_more(after: int) -> Turn:
        commit = lab.instance.threads.commit_of(steps[after - 1].hash)

        def turn() -> float:
            fork = lab.instance.threads.head(lab.instance.threads.fork(commit))
            known = [step.hash for step in steps[:after]]
            lab.prepare(10)
            return timed(lambda: list(lab.growing(fork, known, 10)))() / 10

        return turn

    late, early = fastest(size.turns, ten_more(size.long), ten_more(10))
    yield compared(f"append a step, after step {size.long:,} / after step 10", late, early, 2)


def walking(folder: Path, size: Size) -> Iterator[Row]:
    """A long chain with its outputs, from a store just opened."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    history = lab.instance.threads.history(lab.instance.threads.head(thread))
    store = lab.instance.store
    blobs = [store.blob_of(history.start_hash), store.blob_of(history.workflow_hash)]
    for step in history.steps:
        blobs += [store.blob_of(step.hash), store.blob_of(store.get(step.hash).payload["output"])]

    def ours() -> float:
        instance = Instance(lab.location, {})
        head = instance.threads.head(thread)
        return timed(lambda: instance.threads.history(head))()

    def bare() -> float:
        repository = pygit2.Repository(str(lab.git_dir))
        return timed(lambda: [json.loads(repository.read(oid)[1]) for oid in blobs])()

    walk, read = fastest(size.turns, ours, bare)
    yield compared(f"walk {size.long:,} steps with outputs / the blobs by pygit2", walk, read, 4)


def sizes(folder: Path, size: Size) -> Iterator[Row]:
    """The disk that steps take: as files, as blocks, packed."""
    lab = Lab(folder)
    before, before_allocated = disk(lab.git_dir / "objects")
    lab.threads(1, size.disk)
    apparent, allocated = disk(lab.git_dir / "objects")
    payload = size.disk * PAYLOAD / MEGABYTE
    what = f"{size.disk} steps of {PAYLOAD / 1000:.1f} KB, loose"
    yield Row(f"{what}, bytes in files", (apparent - before) / MEGABYTE, "MB", None, 20)
    yield Row(f"{what}, blocks on this disk", (allocated - before_allocated) / MEGABYTE, "MB", None, 20)
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    _, packed = disk(lab.git_dir)
    yield Row("the same packed, whole store with its index / payload", packed / MEGABYTE, "MB", payload, 2)


def _objects(lab: Lab, commits: str) -> list[tuple[int, bytes]]:
    """Kind and content of every object that a range of commits brought."""
    listed = subprocess.run(
        ["git", "--git-dir", lab.git_dir, "rev-list", "--objects", "--no-object-names", commits],
        check=True,
        capture_output=True,
        text=True,
        env=lab.environ,
    ).stdout.split()
    return [lab.instance.store.repository.read(pygit2.Oid(hex=oid)) for oid in listed]
