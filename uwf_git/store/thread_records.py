"""Records beside a thread that only grow: `refs/uwf/<kind>/<ULID>`, a commit for each. Their kinds settle as `grow`.

    <kind>/<hash>/README.md   the record for people
    <kind>/<hash>/nodes/      its node, and the nodes that it reaches beyond the thread's

A commit's last parent is the head that the record is bound to; the first of two is the record before, on this machine.
Two sides are united by a commit with both as its parents, so that both keep their signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from uwf_git.base.errors import HeadMoved
from uwf_git.base.extensions import RefKind
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.node import Node
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head
from uwf_git.store.index import CommitRow
from uwf_git.store.nodes import UnionSet

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store

_TRIES = 10


class RecordContent(Protocol):
    """A record's node; `at` is in Unix seconds."""

    @property
    def at(self) -> int: ...

    def payload(self) -> dict[str, Any]: ...


_Content = TypeVar("_Content", bound=RecordContent)
_Result = TypeVar("_Result")


class ThreadRecord(NamedTuple, Generic[_Content]):
    """A record: its node, its commit, and the committer and Unix time of that. `head` is the head commit that it is
    bound to, `since` that one's Unix time; `depth` the number of commits on the longest way from it to the first."""

    hash: Hash
    commit: Oid
    committer: str
    time: int
    content: _Content
    head: Oid
    since: int
    depth: int = 0

    @property
    def order(self) -> tuple[int, int, Hash]:
        """Sorts records: one that stands on another is later, else the one with the later time."""
        return self.depth, self.time, self.hash


class LinkedCommit(Protocol):
    """A commit, as far as it is read here."""

    @property
    def parents(self) -> Sequence[Oid]: ...

    @property
    def committer(self) -> str: ...


def records_up_to(
    tip: Oid,
    record: str,
    row_of: Callable[[bytes], CommitRow | None],
    commit_of: Callable[[Oid], LinkedCommit],
    content_of: Callable[[Hash], _Content],
) -> list[ThreadRecord[_Content]]:
    """Return the records of a kind, such as "approval", that a commit leads to, in their order. A commit with two of
    them as its parents unites them, and is none itself."""
    records: list[ThreadRecord[_Content]] = []
    pending, seen = [tip], {tip}
    while pending:
        oid = pending.pop()
        row = row_of(oid.raw)
        if row is None or row.kind != record:
            continue
        commit = commit_of(oid)
        last = row_of(commit.parents[-1].raw)
        if last is None or last.kind != record:
            since = last.time if last is not None else 0
            content, head = content_of(row.node), commit.parents[-1]
            records.append(
                ThreadRecord(row.node, oid, commit.committer, row.time, content, head, since, row.number)
            )
        pending += [parent for parent in commit.parents if parent not in seen]
        seen.update(commit.parents)
    return sorted(records, key=lambda item: item.order)


class ThreadRecords(Generic[_Content]):
    """The records of a kind of a store's threads. `parse` reads their nodes."""

    def __init__(self, store: Store, kind: RefKind, parse: Callable[[Node], _Content]) -> None:
        self._store = store
        self._kind = kind
        self._parse = parse

    def tip(self, thread: ThreadId) -> Oid | None:
        """Return the commit of a thread's newest record."""
        return self._store.repository.ref(self._kind.prefix + thread)

    def all(self, thread: ThreadId) -> list[ThreadRecord[_Content]]:
        """Return a thread's records in their order."""
        tip = self.tip(thread)
        return self.up_to(tip) if tip is not None else []

    def has(self, thread: ThreadId, node: Hash) -> bool:
        """Return whether a thread has a record of a node."""
        tip, repository = self.tip(thread), self._store.repository
        path = "/".join(folder_of(self._kind, node))
        return tip is not None and repository.file(repository.commit(tip).tree, path) is not None

    def up_to(self, tip: Oid) -> list[ThreadRecord[_Content]]:
        """Return the records that a commit leads to. Raises StoreDamaged."""
        store = self._store
        return records_up_to(
            tip,
            self._kind.records[0],
            lambda oid: store.index_commit(Oid(raw=oid)),
            store.repository.commit,
            lambda node: self._parse(store.get(node)),
        )

    def add(
        self,
        head: Head,
        type_hash: Hash,
        content: _Content,
        known: Set[Hash],
        page_and_message: Callable[[Hash], tuple[bytes, str]],
        judge: Callable[[Oid, Hash], _Result],
    ) -> _Result:
        """Commit a record of a head, if `judge` doesn't raise, which gets the commit and the new node, and return its
        result. The folder has the nodes that the new one reaches without those of the workflow and the `known`. Moves
        the thread's ref of the kind once all is synced. Raises HeadMoved if it keeps moving, SigningFailed."""
        store, repository = self._store, self._store.repository
        ref = self._kind.prefix + head.thread
        for _ in range(_TRIES):
            tip = repository.ref(ref)
            with store.together():
                node = store.put(type_hash, content.payload())
                commit = self._commit(head, node, content.at, tip, known, page_and_message)
            store.index_commit(commit)
            result = judge(commit, node)
            try:
                repository.put_ref(ref, tip, commit)
            except HeadMoved:
                continue
            store.moved(ref, commit, commit)
            return result
        raise HeadMoved(f"{ref} moves too often to add to it", "repeat")

    def _commit(
        self,
        head: Head,
        node: Hash,
        when: int,
        tip: Oid | None,
        known: Set[Hash],
        page_and_message: Callable[[Hash], tuple[bytes, str]],
    ) -> Oid:
        from uwf_git.store.threads import Threads

        repository = self._store.repository
        shared = Threads(self._store).workflow_nodes(repository.commit(head.commit).tree)
        files: dict[str, bytes | Oid] = dict(self._store.files(node, UnionSet(shared, known)))
        files["README.md"], text = page_and_message(node)
        before = repository.commit(tip).tree if tip is not None else None
        if before is None:
            before = repository.write_folder({".gitattributes": layout.GITATTRIBUTES})
        tree = repository.graft(before, folder_of(self._kind, node), repository.write_folder(files))
        parents = [head.commit] if tip is None else [tip, head.commit]
        return repository.write_commit(tree, parents, repository.user, text, when)


def folder_of(kind: RefKind, node: Hash) -> tuple[str, str]:
    """Return the folder of a record in its commit's tree."""
    return kind.word, node
