"""The target of an import: a store written in bulk, whose refs move once their objects are stored; and its
report. A dry run keeps nothing."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

from uwf_git.ext.importers.folder import SkippedItem
from uwf_git.ext.importers.originals import Originals
from uwf_git.ext.importers.storage import OldNodes
from uwf_git.plugin import (
    BULK_FULL,
    BulkWriter,
    DefinitionRegistry,
    Git,
    Hash,
    HeadMoved,
    IndexedStore,
    IndexOverlay,
    Instance,
    Invalid,
    Node,
    NotFound,
    Oid,
    Person,
    Stamp,
    ThreadId,
    Threads,
    layout,
)

IMPORTER = Person("uwf", "uwf@localhost")
NEW, GROWN, HERE = "new", "grown", "here"


def stamp(when: int) -> Stamp:
    """Return the stamp of something made at a time in Unix milliseconds, without a person, so that imports
    are reproducible."""
    return Stamp(IMPORTER, when // 1000)


class Intake:
    """An import in progress. `refs` and `moves` are applied at the next flush. `extras` are fields only in
    original nodes."""

    def __init__(self, instance: Instance, nodes: OldNodes, dry: bool) -> None:
        self.instance = instance
        self.nodes = nodes
        self.dry = dry
        self.repository = instance.store.repository
        instance.store.sync()
        self._resources = ExitStack()
        self._batch = ExitStack()
        if dry:
            overlay = IndexOverlay(instance.store.index)
            self._resources.callback(overlay.close)
            self.store = IndexedStore(self.repository, overlay)
        else:
            self.store = instance.store
        _forget_loose(self.store, nodes)
        self.threads = Threads(self.store)
        self.registry = DefinitionRegistry(self.store)
        self.originals = Originals(self.store, nodes, self._secret_in)
        self.refs: dict[str, Oid] = {}
        self.moves: list[tuple[str, Oid, Oid]] = []
        self.extras: set[str] = set()
        self.untaken: list[SkippedItem] = []
        self.warnings: list[tuple[ThreadId, str]] = []
        self._bulk: BulkWriter

    def __enter__(self) -> Intake:
        self._bulk = self._resources.enter_context(self.repository.in_bulk(keep=not self.dry))
        self._resources.push(self._batch)
        self._batch.enter_context(self.store.registering())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._resources:
            if error is not None:
                raise error
            self._flush()

    def refuse(self, kind: str, name: str, reason: str) -> None:
        self.untaken.append(SkippedItem(kind, name, reason))

    def old(self, node: Hash, what: str) -> Node:
        """Return a source's node. Raises Invalid, beginning with `what`."""
        try:
            return self.nodes.get(node)
        except NotFound:
            raise Invalid(f"{what} {node}, which does not exist") from None

    def _secret_in(self, node: Node) -> str | None:
        _, count = self.instance.redactor.value(node.payload)
        return "it holds a secret, and cannot be changed" if count else None

    def rest(self) -> None:
        if len(self._bulk) >= BULK_FULL and not self.dry:
            self._flush()
            self._batch.enter_context(self.store.registering())

    def _flush(self) -> None:
        if not self.dry:
            self._bulk.store()
        self._batch.close()
        if self.dry:
            return
        created = self.repository.create_refs(self.refs)
        for name in sorted(self.refs.keys() - created):
            self.refuse("ref", name, "it was created by another process meanwhile")
        for name, old, new in self.moves:
            try:
                self.repository.move_ref(name, old, new)
            except HeadMoved as error:
                self.refuse("ref", name, error.message)
        for name in created:
            if name.startswith(layout.ARCHIVE):
                self.threads.drop(layout.THREADS + name.removeprefix(layout.ARCHIVE))
        self.refs, self.moves = {}, []
        self.store.sync()


def _forget_loose(store: IndexedStore, nodes: OldNodes) -> None:
    rows = ((node, store.index.node(node)) for node in nodes)
    known = {row[1]: node for node, row in rows if row is not None}
    if not known:
        return
    command = "rev-list", "--objects", "--no-object-names", "--all"
    # Of a damaged store it says as much as can be reached.
    for line in Git(store.repository.path).run(*command, check=False).out.splitlines():
        known.pop(bytes.fromhex(line.decode("ascii")), None)
    store.index.forget(known.values(), ())


class ImportedWorkflow(NamedTuple):
    """An imported workflow: newest hash here, source's hash, number of versions. `state` is new, grown or
    here."""

    name: str
    hash: str
    source: str
    versions: int
    state: str


class ImportedThread(NamedTuple):
    """An imported thread: `steps` in all, `added` now. `status` is completed, killed or active; `state` is
    new, grown or here."""

    thread: ThreadId
    workflow: str
    steps: int
    added: int
    status: str
    state: str


class Imported(NamedTuple):
    """An import's report: nodes read, nodes `taken` unchanged, fields kept only in original nodes."""

    workflows: tuple[ImportedWorkflow, ...]
    threads: tuple[ImportedThread, ...]
    nodes: int
    taken: int
    kept: tuple[str, ...]
    warnings: tuple[tuple[ThreadId, str], ...]
    untaken: tuple[SkippedItem, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "workflows": [item._asdict() for item in self.workflows],
            "threads": [item._asdict() for item in self.threads],
            "nodes": self.nodes,
            "taken": self.taken,
            "kept": list(self.kept),
            "warnings": [{"thread": thread, "message": text} for thread, text in self.warnings],
            "untaken": [item._asdict() for item in self.untaken],
        }
