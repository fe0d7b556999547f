"""Stores that grow: threads by tens of thousands, nodes by the million. They are built in packs, and measured is what
`uwf` does with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pygit2
from measure import Turn, fastest, process, run, timed
from rows import Point, Row, Size, compared
from stores import UWF, Lab, prose

from uwf_git.format.ids import Hash, new_thread_id
from uwf_git.format.kinds import Start
from uwf_git.format.types import TEXT
from uwf_git.git.bulk import FULL as FULL_PACK
from uwf_git.git.objects import Stamp
from uwf_git.git.repository import BLOB
from uwf_git.store import layout
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance

BATCH = 200  # nodes that are read or written in a turn
NODES_A_COMMIT = 1000


def on_many_threads(folder: Path, size: Size) -> Iterator[Row | Point]:
    """The everyday commands among few threads and many."""
    labs = {}
    for many in size.crowds:
        labs[many] = lab = Lab(folder / str(many))
        _crowd(lab, many)
    few = size.crowds[0]
    for command, limit in (("list", 0.0), ("show", 1.5), ("start", 1.5), ("step", 1.5)):
        turns = [_command(lab, command) for lab in labs.values()]
        times = fastest(size.few_turns, *turns)
        for many, seconds in zip(size.crowds, times, strict=True):
            yield Point("crowds", f"uwf thread {command}", many, seconds * 1000)
            if many == few:
                continue
            # As many times as there are more threads is linear; what starting a process costs makes it less.
            most = limit or many / few
            what = f"uwf thread {command}, {many:,} threads / {few:,}"
            yield compared(what, seconds, times[0], most)


def on_many_nodes(folder: Path, size: Size) -> Iterator[Row]:
    """Single nodes in a store with a million, beside the blobs that they are; and all of them taken in."""
    lab = Lab(folder)
    some = _many(lab, size.nodes)
    lab.instance = Instance(lab.location, {})  # what the one that built it all remembers is in the way
    with_index = Instance(lab.location, {}).store.index
    blobs = [pygit2.Oid(raw=row[1]) for row in map(with_index.node, some) if row]
    bare = pygit2.init_repository(str(folder / "bare.git"), bare=True)
    texts = (f"a node that is new, {number}" for number in count())

    def read() -> float:
        repository = pygit2.Repository(str(lab.git_dir))
        repository.read(blobs[0])
        return timed(lambda: [repository.read(oid) for oid in blobs])()

    def get() -> float:
        store = _opened(lab)
        store.get(some[0])
        return timed(lambda: [store.get(node) for node in some])()

    def has() -> float:
        store = _opened(lab)
        store.has(some[0])
        return timed(lambda: [store.has(node) for node in some])()

    def put() -> float:
        store, said = _opened(lab), list(islice(texts, BATCH))
        return timed(lambda: [store.put(TEXT, text) for text in said])()

    def write() -> float:
        said = [
            json.dumps({"type": TEXT, "payload": text, "timestamp": 0}).encode()
            for text in islice(texts, BATCH)
        ]
        return timed(lambda: [bare.write(BLOB, text) for text in said])()

    got, there, fetched = fastest(size.turns, get, has, read)
    where = f"{size.nodes:,} nodes"
    yield compared(f"{BATCH} nodes got, {where} / the blobs by pygit2", got, fetched, 3)
    yield compared(f"{BATCH} nodes asked for, {where} / the blobs by pygit2", there, fetched, 3)
    written, bare_written = fastest(size.few_turns, put, write)
    yield compared(f"{BATCH} nodes put, {where} / blobs by pygit2", written, bare_written, 3)
    seconds = run([UWF, "cas", "reindex"], lab.environ)
    yield Row(f"uwf cas reindex, {where}, each", seconds * 1e6 / size.nodes, "µs", None, 30)


def verifying(folder: Path, size: Size) -> Iterator[Row]:
    """`uwf verify` of a long thread, by node, beside the same thread read and hashed. That is all which has to be read
    to know a thread whole: each object once, by pygit2, which checks its id, and each node parsed as strictly as
    a stranger's must be and hashed by XXH64. The nodes alone are a fourth of the objects, so to read no more than
    those would be a yardstick for less than what is verified; to check ids a second time, one for more. A process
    starts in both."""
    lab = Lab(folder)
    thread = lab.threads(1, size.long)[0]
    subprocess.run(["git", "--git-dir", lab.git_dir, "gc", "--quiet"], check=True, env=lab.environ)
    start = process([sys.executable, "-c", "import pygit2, click"], lab.environ)
    whole = process([UWF, "verify", thread], lab.environ)
    ours, bare, begin = fastest(size.few_turns, whole, _hashing(lab), start)
    nodes = lab.instance.store.index.node_count()
    what = f"uwf verify, {nodes:,} nodes / read and hashed + start"
    yield Row(what, ours * 1e6 / nodes, "µs", (bare + begin) * 1e6 / nodes, 3)


def _hashing(lab: Lab) -> Turn:
    from uwf_git.format.node import from_blob, node_hash

    nodes = {blob for _, blob in lab.instance.store.index.blobs()}

    def hashed() -> None:
        repository = pygit2.Repository(str(lab.git_dir))
        for oid in repository:
            _, content = repository.read(oid)
            if oid.raw in nodes:
                node_hash(from_blob(content, ""))

    return timed(hashed)


def _opened(lab: Lab) -> Store:
    return Store.open(lab.git_dir)


def _crowd(lab: Lab, many: int) -> None:
    """So many threads that have begun, their refs packed as `git gc` leaves them."""
    store, threads = lab.instance.store, lab.instance.threads
    version = lab.version
    stamp = Stamp(store.repository.user, 1_760_000_000)
    refs = {}
    with store.repository.in_bulk() as bulk, store.index.transaction():
        for number in range(many):
            node = store.put(*Start(lab.workflow, f"Measure this, {number}.").typed_payload())
            thread = new_thread_id()
            refs[layout.THREADS + thread] = threads.begin(version, node, thread, stamp)
            if len(bulk) > FULL_PACK:
                bulk.store()
    store.repository.create_refs(refs)
    subprocess.run(["git", "--git-dir", lab.git_dir, "pack-refs", "--all"], check=True, env=lab.environ)
    store.sync()


def _command(lab: Lab, command: str) -> Turn:
    thread = sorted(lab.instance.threads.ids())[0]
    if command == "start":
        return process([UWF, "thread", "start", "by-status", "-p", "One more."], lab.environ)
    argv = [UWF, "thread", command, *([] if command == "list" else [thread])]
    return process([*argv, *(["--agent", "uwf-rehearse"] if command == "step" else [])], lab.environ)


def _many(lab: Lab, many: int) -> list[Hash]:
    """So many nodes, each commit with a thousand, as pins keep what was put by hand. Returns a few of them from all
    over."""
    store, repository = lab.instance.store, lab.instance.store.repository
    few: list[Hash] = []
    made, refs = 0, {}
    by, when = Stamp(repository.user, 1_760_000_000)
    with repository.in_bulk() as bulk, store.index.transaction():
        while made < many:
            size = min(NODES_A_COMMIT, many - made)
            some = [store.put(TEXT, f"{prose(lab.words, 60)} {made + n}", 1) for n in range(size)]
            files = {layout.node_file(node): store.blob_of(node) for node in some}
            tree = repository.write_folder({".gitattributes": layout.GITATTRIBUTES, **files})
            text = layout.pin_message(some[0])
            refs[layout.PINS + some[0]] = repository.write_commit(tree, [], by, text, when, committer=by)
            few += [node for number, node in enumerate(some, made) if number % max(many // BATCH, 1) == 0]
            made += size
            if len(bulk) > FULL_PACK:
                bulk.store()
    repository.create_refs(refs)
    return few
