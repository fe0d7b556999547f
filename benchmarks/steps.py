"""Steps in the library: the time and the disk that they take, and reading them again."""

from __future__ import annotations

import json
import random
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pygit2
from measure import Turn, disk, fastest, timed
from rows import Point, Row, Size, compared
from stores import MEGABYTE, PAYLOAD, Lab, prose

from uwf_git.engine.kit.record import Recorder
from uwf_git.format.ids import ThreadId
from uwf_git.format.kinds import Detail, TurnRecord, Usage
from uwf_git.store.instance import Instance
from uwf_git.store.private import EngineOrder


def appending(folder: Path, size: Size) -> Iterator[Row]:
    """A step in the library against its bare objects. fsync is on for both."""
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


def growing(folder: Path, size: Size) -> Iterator[Row | Point]:
    """The time and the bytes of ten more steps, early and late in a thread."""
    lab = Lab(folder)
    thread = lab.start()
    turns: list[Turn] = []
    for after in size.growth:
        lab.grow(thread, after - lab.instance.threads.head(thread).row.number)
        turns.append(_ten_more(lab, thread))
    seconds = fastest(size.few_turns, *turns)
    lab.grow(thread, 100)  # git packs the newest whole, and older ones by how they differ
    steps = lab.instance.threads.history(lab.instance.threads.head(thread)).steps
    ranges = [
        "..".join(str(lab.instance.threads.commit_of(steps[at].hash)) for at in (after - 1, after + 9))
        for after in size.growth
    ]
    written = [_bytes(lab, each) / 10_000 for each in ranges]
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    packed = [_bytes(lab, each) / 10_000 for each in ranges]
    for place, after in enumerate(size.growth):
        yield Point("growth", "ms", after, seconds[place] * 1000)
        yield Point("growth", "kB written", after, written[place])
        yield Point("growth", "kB packed", after, packed[place])
    for place, after in enumerate(size.growth):
        if place:
            what = f"after {after:,} / after {size.growth[0]}"
            yield compared(f"append a step, {what}", seconds[place], seconds[0], 1.5)
            yield Row(f"bytes that a step writes, {what}", written[place], "kB", written[0], 1.5)
            yield Row(f"bytes of a step once packed, {what}", packed[place], "kB", packed[0], 1.5)


def _ten_more(lab: Lab, thread: ThreadId) -> Turn:
    """Ten steps after where a thread is now, on a fork of it."""
    commit = lab.instance.threads.head(thread).commit
    known = [step.hash for step in lab.instance.threads.history(lab.instance.threads.head(thread)).steps]

    def turn() -> float:
        fork = lab.instance.threads.head(lab.instance.threads.fork(commit))
        lab.prepare(10)
        past = list(known)
        return timed(lambda: list(lab.growing(fork, past, 10)))() / 10

    return turn


def talking_long(folder: Path, size: Size) -> Iterator[Row]:
    """A step of many model calls, each of which is told all that came before: what is recorded of it, packed, against
    what was new in each, compressed."""
    lab = Lab(folder)
    instance, thread = lab.instance, lab.start()
    head = instance.threads.head(thread)
    words = random.Random(2)
    recorder = Recorder(instance, thread, "uwf-builtin")
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    before = disk(lab.git_dir / "objects")[0]
    turns, new = [], bytearray()
    for number in range(size.calls):
        said, found = prose(words)[:800], prose(words) + prose(words)[: 8000 - 800 - PAYLOAD]
        call = TurnRecord("assistant", said, usage=Usage(2000 * (number + 1), 200, 2000 * number))
        result = TurnRecord("tool", "", tool="read_file", arguments={"path": f"{number}"}, result=found)
        for turn in (call, result):
            recorder.record(turn)
            turns.append(turn)
            new += json.dumps(turn.payload()).encode()
    order = EngineOrder(head.node, "worker", "uwf-builtin", None, None)
    detail = recorder.detail(Detail("Done.", extraction="native"), turns, order, head.node, 1.0)
    with instance.store.together():
        instance.store.store_drafts()
        lab.append_with(head, detail)
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    recorded = disk(lab.git_dir / "objects")[0] - before
    what = f"{size.calls} model calls on a context that grows to {size.calls * 2:,},000 tokens, packed / what is new"
    yield Row(what, recorded / 1000, "kB", len(zlib.compress(bytes(new))) / 1000, 1.5)


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


def _bytes(lab: Lab, commits: str) -> int:
    """What the objects that a range of commits brought take in the packs that they are in."""
    listed = subprocess.run(
        ["git", "--git-dir", lab.git_dir, "rev-list", "--objects", "--no-object-names", commits],
        check=True,
        capture_output=True,
        env=lab.environ,
    ).stdout
    checked = subprocess.run(
        ["git", "--git-dir", lab.git_dir, "cat-file", "--batch-check=%(objectsize:disk)"],
        check=True,
        input=listed,
        capture_output=True,
        env=lab.environ,
    ).stdout
    return sum(map(int, checked.split()))


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
