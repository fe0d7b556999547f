"""Nodes in a git repository: put, get, and the taking in of what git brought.

A node is a blob. It is found by its hash through the index; the index is filled by what is put here
and by the commits that refs lead to, whoever moved them. Every node is verified when it is taken in:
its content against the hash in its file name. Afterwards git's own object ids vouch for the blob.

Nodes put by hand: `refs/uwf/nodes/<HASH>` keeps one, with all that it refers to, from being collected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from uwf_git.errors import HashCollision, HeadMoved, Invalid, NotFound, StoreDamaged, UwfError
from uwf_git.git.objects import Tag, parse_tag
from uwf_git.git.repository import COMMIT, TAG, Commit, Oid, Repository, StoreUnwritable
from uwf_git.store import layout
from uwf_git.store.index import ArchiveRow, CommitRow, FoldedRow, Index, Tip
from uwf_git.values import cbor
from uwf_git.values.ids import Hash, ThreadId, complete, parse_hash
from uwf_git.values.kinds import asks_human, parse_start, parse_step
from uwf_git.values.node import Node, from_blob, hash_of, node_hash, now, self_hash, to_blob
from uwf_git.values.schema import Problem, Schema, check_schema
from uwf_git.values.types import BUILTIN, LIMITED_START, META, STARTNODE, STEPNODE, is_kind

__all__ = ["Store"]

_PARSED = {STEPNODE: parse_step, STARTNODE: parse_start, LIMITED_START: parse_start}


RECENT_COUNT = 256
RECENT_SIZE = 16 * 1024


class Store:
    """The nodes of one repository. Touches no ref."""

    def __init__(self, repository: Repository, index: Index | None = None) -> None:
        """With an `index` of the caller's, only what it is told to take in is known: no ref is followed."""
        self.repository = repository
        self.index = index or Index(repository.private)
        self._follows_refs = index is None
        self._schemas: dict[Hash, Schema] = {}
        self._recent: dict[Hash, Node] = {}
        self._blobs: dict[Hash, Oid] = {}
        self._taking_in = False

    @classmethod
    def open(cls, git_dir: Path) -> Store:
        """The store in an existing repository. Raises NotFound, Invalid."""
        return cls(Repository(git_dir))

    # Reading

    def get(self, node: Hash) -> Node:
        """A node by its hash. Raises NotFound, or StoreDamaged when its blob is gone or altered."""
        if (recent := self._recent.get(node)) is not None:
            return recent
        found = self._blob_id(node)
        if found is None:
            if node in BUILTIN:
                return Node(META, BUILTIN[node], 0)
            raise NotFound(f"no node {node} in the store", "check with: uwf doctor")
        data = self.repository.blob(found)
        return self._keep_recent(node, _trusted(data, node), len(data))

    def _keep_recent(self, node: Hash, content: Node, size: int) -> Node:
        """Small nodes that were just made or read are asked for again at once, by who checks, files and
        shows them."""
        if size <= RECENT_SIZE:
            if len(self._recent) >= RECENT_COUNT:
                self._recent.clear()
            self._recent[node] = content
        return content

    def get_many(self, nodes: Iterable[Hash]) -> dict[Hash, Node]:
        """Several nodes. Raises as get does."""
        return {node: self.get(node) for node in nodes}

    def has(self, node: Hash) -> bool:
        """Whether a node is in the store with its blob."""
        if node in self._blobs:
            return True
        found = self._blob_id(node)
        if found is None:
            return node in BUILTIN
        if self.repository.has(found):
            self._blobs[node] = found
            return True
        return False

    def blob_of(self, node: Hash) -> Oid:
        """The id of a node's blob, which a tree then names. A built-in schema's is written if need be."""
        if (known := self._blobs.get(node)) is not None:
            return known
        found = self._blob_id(node)
        if found is None:
            if node not in BUILTIN:
                raise NotFound(f"no node {node} in the store")
            return self._write(node, Node(META, BUILTIN[node], 0))
        return found

    def _blob_id(self, node: Hash) -> Oid | None:
        row = self.index.node(node)
        if row is None and node not in BUILTIN and self.sync():
            row = self.index.node(node)
        return None if row is None else Oid(raw=row[1])

    def complete(self, prefix: str) -> Hash:
        """The one node hash that begins with a prefix, any case. Raises NotFound, Usage."""
        if len(prefix.strip()) == 13:
            return parse_hash(prefix)
        if len(prefix.strip()) < 4:
            raise Invalid(f"{prefix!r} is too short for a node hash", "give at least 4 characters")
        self.sync()
        known = self.index.hashes_with_prefix(prefix.strip().upper())
        return Hash(complete(prefix, [*known, *BUILTIN], "node"))

    def schema(self, type_hash: Hash) -> Schema:
        """The schema that is the node of that hash. Raises NotFound, Invalid."""
        known = self._schemas.get(type_hash)
        if known is None:
            node = self.get(type_hash)
            if node.type != META and node.type != node_hash(Node(node.type, node.payload, 0)):
                owner = self.get(node.type)
                if owner.type != node.type:
                    raise Invalid(f"node {type_hash} is no schema", "a type is the hash of a schema node")
            known = self._schemas[type_hash] = Schema(node.payload)
        return known

    def references(self, node: Node) -> list[Hash]:
        """What a node's payload refers to, its type not included."""
        if node.type == META:
            return []
        if node.type == STEPNODE:
            step = parse_step(node.payload)
            return [h for h in (step.start, step.prev, step.output, step.detail) if h]
        if is_kind(node.type, "detail"):  # as its schema says; every step has one
            return [*node.payload["turns"], *([context] if (context := node.payload["context"]) else [])]
        return self.schema(node.type).references(node.payload)

    def walk(self, root: Hash, stop: frozenset[Hash] = frozenset()) -> Iterator[tuple[Hash, Node]]:
        """A node and all that it refers to, types included, each once, breadth first. Nodes in `stop`
        are neither visited nor entered. Raises NotFound for a dangling reference."""
        queue = [root]
        seen = set(stop) | {root}
        while queue:
            following: list[Hash] = []
            for current in queue:
                node = self.get(current)
                yield current, node
                for target in (node.type, *self.references(node)):
                    if target not in seen:
                        seen.add(target)
                        following.append(target)
            queue = following

    # Writing

    def put(self, type_hash: Hash, payload: Any, timestamp: int | None = None) -> Hash:
        """Stores a node and returns its hash. Putting it again keeps the first. Raises NotFound for a
        type that isn't here, Invalid for a payload that breaks it or refers to what isn't here,
        HashCollision for different content under the same hash."""
        value = cbor.normalise(payload)
        node = hash_of(type_hash, value)
        known = self.index.node(node)
        if known is not None and self.repository.has(Oid(raw=known[1])):
            self._refuse_collision(node, Oid(raw=known[1]), type_hash, value)
            return node
        self.check(type_hash, value)
        self._write(node, Node(type_hash, value, now() if timestamp is None else timestamp))
        return node

    def put_self_described(self, payload: Any) -> Hash:
        """Stores a bootstrap node that is its own type, as a json-cas store brings one along."""
        value = cbor.normalise(payload)
        node = self_hash(value)
        problems = check_schema(value)
        if problems:
            raise Invalid(f"the bootstrap node is no JSON Schema: {problems[0]}")
        if not self.has(node):
            self._write(node, Node(node, value, now()))
        return node

    def check(self, type_hash: Hash, value: Any) -> None:
        """Raises as put does for a normalised payload; stores nothing."""
        try:
            self.schema(type_hash)
        except NotFound:
            raise NotFound(f"no type {type_hash} in the store", "see: uwf cas schema list") from None
        if type_hash in _PARSED:
            _PARSED[type_hash](value)  # the same as the schema says, without starting a validator
        elif problems := self.problems(type_hash, value):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise Invalid(
                f"payload breaks its type {type_hash}: {problems[0]}{more}",
                f"see: uwf cas schema get {type_hash}",
            )
        for target in self.references(Node(type_hash, value, 0)):
            if not self.has(target):
                raise Invalid(f"payload refers to {target}, which is not in the store", "put that node first")

    def problems(self, type_hash: Hash, value: Any) -> list[Problem]:
        """How a value breaks a type; empty when it obeys."""
        return check_schema(value) if type_hash == META else self.schema(type_hash).problems(value)

    def _write(self, node: Hash, content: Node) -> Oid:
        data = to_blob(content)
        oid = self.repository.write_blob(data)
        self.index.set_node(node, content.type, oid.raw)
        self._blobs[node] = oid
        self._keep_recent(node, content, len(data))
        return oid

    def _refuse_collision(self, node: Hash, blob: Oid, type_hash: Hash, value: Any) -> None:
        there = _trusted(self.repository.blob(blob), node)
        if there.type != type_hash or cbor.encode(cbor.normalise(there.payload)) != cbor.encode(value):
            mine = self.repository.write_blob(to_blob(Node(type_hash, value, now())))
            raise HashCollision(
                f"node {node} has two contents: blob {blob} is kept, blob {mine} refused",
                "XXH64 is no cryptographic hash; change the refused content",
            )

    def adopt(self, node: Hash, blob: Oid) -> None:
        """Takes in a blob that is said to be a node. Raises StoreDamaged where it is not."""
        content = _verified(self.repository.blob(blob), node, blob)
        self._keep(node, content, blob)

    def _keep(self, node: Hash, content: Node, blob: Oid) -> None:
        known = self.index.node(node)
        if known is not None and known[1] != blob.raw and self.repository.has(Oid(raw=known[1])):
            self._refuse_collision(node, Oid(raw=known[1]), content.type, content.payload)
            return
        self.index.add_nodes([(node, content.type, blob.raw)])

    # Taking in what refs lead to

    def sync(self) -> bool:
        """Takes in the commits of every ref under refs/uwf/ that moved since it was last seen, but for
        what was only fetched. Returns whether anything did. A damaged ref is remembered as such and stops
        nothing."""
        if self._taking_in or not self._follows_refs:
            return False  # a commit names a node which isn't there: looking again would not help
        refs = self.repository.refs(without=layout.REMOTES)
        seen = self.index.tips()
        moved = {
            name: oid
            for name, oid in refs.items()
            if name not in seen or seen[name].oid != oid.raw or seen[name].problem
        }
        gone = seen.keys() - refs.keys()
        if not moved and not gone:
            return False
        with self.index.transaction():
            for name in gone:
                self.index.drop_tip(name)
                if name.startswith(layout.FOLDED):
                    self.index.set_folded(name, ())
            for name, oid in moved.items():
                self._take_in_ref(name, oid)
        return bool(moved)

    def take_in(self, commit: Oid) -> CommitRow:
        """What a commit records, taken in with its ancestors where that is new. Raises StoreDamaged."""
        row = self.index.commit(commit.raw)
        if row is None:
            with self.index.transaction():
                self._take_in_checked(commit)
            row = self.index.commit(commit.raw)
            if row is None:
                raise StoreUnwritable(
                    f"the index can't keep commit {commit}", "check free space and permissions"
                )
        return row

    def take_in_tag(self, tag: Oid) -> ArchiveRow:
        """What an archive tag says. Raises StoreDamaged."""
        row = self.index.archive(tag.raw)
        if row is None:
            try:
                self._peel(tag)
            except (ValueError, LookupError, OverflowError) as error:
                raise StoreDamaged(f"tag {tag} is not what uwf writes: {error}", "delete the ref") from None
            row = self.index.archive(tag.raw)
            if row is None:
                raise StoreDamaged(f"object {tag} is no archive tag", "delete the ref that names it")
        return row

    def folded(self, thread: ThreadId) -> FoldedRow | None:
        """Where a thread is folded; None for one that isn't."""
        self._sync_folds()
        return self.index.folded(thread)

    def folded_threads(self) -> set[ThreadId]:
        """Every thread that is folded."""
        self._sync_folds()
        return self.index.folded_threads()

    def _sync_folds(self) -> None:
        """What is asked of folds must not depend on who moved one; there is at most one a month."""
        refs = {name: oid.raw for name, oid in self.repository.refs(layout.FOLDED).items()}
        if refs != {name: tip.oid for name, tip in self.index.tips(layout.FOLDED).items()}:
            self.sync()

    def _take_in_ref(self, name: str, oid: Oid) -> None:
        if name.startswith(layout.FOLDED):
            tip, problem = oid, self._problem_in(oid, lambda: self._take_in_fold(name, oid))
            if problem:
                self.index.set_folded(name, ())
        elif name.startswith(layout.ARCHIVE):
            tip, problem = None, self._problem_in(oid, lambda: self._take_in(self._peel(oid)))
            archive = None if problem else self.index.archive(oid.raw)
            tip = Oid(raw=archive.target) if archive else None
        elif name.startswith(layout.FORKS):
            tip, problem = None, self._problem_in(oid, lambda: self._take_in(self._parted(oid)))
        else:
            tip, problem = oid, self._problem_in(oid, lambda: self._take_in(oid))
        self.index.set_tip(Tip(name, oid.raw, tip.raw if tip and not problem else None, problem))

    def _problem_in(self, oid: Oid, take_in: Callable[[], None]) -> str | None:
        """What is wrong with what is taken in. It may be anybody's making, and one must never hide the
        others."""
        try:
            take_in()
        except UwfError as error:
            return error.message
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            return f"commit {oid} is not what uwf writes: {type(error).__name__}: {error}"
        return None

    def _take_in_fold(self, name: str, oid: Oid) -> None:
        from uwf_git.store.archives import read

        rows = []
        for entry in read(self.repository, oid, name.removeprefix(layout.FOLDED)).threads.values():
            problem = None
            for commit in entry.commits:
                problem = problem or self._problem_in(commit, partial(self._take_in, commit))
            self.index.add_archive(_archive_row(entry.tag, entry.ended))
            attempts = entry.attempts.raw if entry.attempts else None
            rows.append(FoldedRow(entry.thread, name, entry.tag.raw, attempts, entry.fork, problem))
        self.index.set_folded(name, rows)

    def reindex(self) -> int:
        """Throws the index away and takes every ref in again. Returns how many nodes it then knows."""
        self.index.reset()
        self.sync()
        return self.index.node_count()

    def _peel(self, oid: Oid) -> Oid:
        kind, data = self.repository.read(oid)
        if kind == COMMIT:
            return oid
        if kind != TAG:
            raise StoreDamaged(f"object {oid} is neither a commit nor a tag", "delete the ref that names it")
        try:
            tag = parse_tag(data)
        except ValueError as error:
            raise StoreDamaged(f"tag {oid} is damaged: {error}", "delete the ref that names it") from None
        self.index.add_archive(_archive_row(oid, tag))
        return tag.target

    def _parted(self, tag: Oid) -> Oid:
        """The commit that a tag under refs/uwf/forks/ is on."""
        kind, data = self.repository.read(tag)
        if kind != TAG:
            raise StoreDamaged(f"object {tag} is no tag", "delete the ref that names it")
        return parse_tag(data).target

    def _take_in_checked(self, commit: Oid) -> None:
        try:
            self._take_in(commit)
        except NotFound as error:
            raise StoreDamaged(
                f"commit {commit} names what is not there: {error.message}", error.hint
            ) from None
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise StoreDamaged(
                f"commit {commit} is not what uwf writes: {type(error).__name__}",
                "restore the ref that leads to it",
            ) from None

    def _take_in(self, tip: Oid) -> None:
        """Takes in a commit and those of its ancestors that are new, oldest first."""
        outermost, self._taking_in = not self._taking_in, True
        try:
            self._take_in_all(tip)
        finally:
            self._taking_in = not outermost

    def _take_in_all(self, tip: Oid) -> None:
        pending = [tip]
        while pending:
            oid = pending[-1]
            if self.index.commit(oid.raw) is not None:
                pending.pop()
                continue
            commit = self.repository.commit(oid)
            missing = [parent for parent in _followed(commit) if self.index.commit(parent.raw) is None]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            before = self.repository.commit(commit.parents[0]).tree if commit.parents else None
            for node, blob in self._new_nodes(commit.tree, before):
                if not self._holds(node, blob):
                    self._keep(node, _verified(self.repository.blob(blob), node, blob), blob)
            self.index.add_commit(self._record(oid, commit.parents, commit.time, commit.message))

    def _holds(self, node: Hash, blob: Oid) -> bool:
        known = self.index.node(node)
        return known is not None and known[1] == blob.raw

    def _new_nodes(self, tree: Oid, before: Oid | None, folder: str = "") -> Iterator[tuple[Hash, Oid]]:
        """The node files of a tree that an older tree hasn't; equal subtrees are not entered."""
        old = {entry.name: entry for entry in self.repository.tree(before)} if before else {}
        for entry in self.repository.tree(tree):
            if entry.name in old and old[entry.name].oid == entry.oid:
                continue
            if entry.is_tree:
                was = old.get(entry.name)
                yield from self._new_nodes(entry.oid, was.oid if was and was.is_tree else None, entry.name)
            elif folder == "nodes" and (node := layout.node_in_path(f"nodes/{entry.name}")):
                yield node, entry.oid

    def _record(self, oid: Oid, parents: tuple[Oid, ...], when: int, message: str) -> CommitRow:
        trailers = layout.parse_message(message)
        parent = parents[0].raw if parents else None
        if trailers is None:
            return CommitRow(oid.raw, "other", Hash(""), parent, None, None, None, None, 0, False, when)
        return self.commit_row(oid, trailers, parents, when)

    def record(self, oid: Oid, message: str, parents: tuple[Oid, ...], when: int) -> CommitRow:
        """Takes in a commit that was just made of nodes that are in: no tree needs reading for that."""
        row = self._record(oid, parents, when, message)
        self.index.add_commit(row)
        return row

    def commit_row(
        self, oid: Oid, trailers: layout.Trailers, parents: tuple[Oid, ...], when: int
    ) -> CommitRow:
        """What the index remembers of a commit whose nodes are in."""
        kind, node = trailers
        payload = self.get(node).payload
        row = CommitRow(
            oid.raw, kind, node, parents[0].raw if parents else None, None, None, None, None, 0, False, when
        )
        if kind == "workflow":
            return row._replace(workflow=node, name=payload["name"])
        if kind == "start":
            workflow = parse_start(payload).workflow
            return row._replace(start=node, workflow=workflow, name=self.get(workflow).payload["name"])
        if kind == "step":
            step = parse_step(payload)
            before = self.index.commit(parents[0].raw) if parents else None
            if before is None:
                raise StoreDamaged(f"commit {oid} of step {node} has no parent")
            return row._replace(
                start=step.start,
                workflow=before.workflow,
                name=before.name,
                role=step.role,
                number=before.number + 1,
                asks=asks_human(self.get(step.output).payload),
            )
        if kind == "attempt":
            return row._replace(start=payload["start"], role=payload["role"])
        return row


def _followed(commit: Commit) -> tuple[Oid, ...]:
    """The parents that are records as well. What a workflow version was taken from is none: it may be a
    merge on a forge, with whatever that stands on."""
    if len(commit.parents) > 1:
        trailers = layout.parse_message(commit.message)
        if trailers is not None and trailers.kind == "workflow":
            return commit.parents[:1]
    return commit.parents


def _archive_row(oid: Oid, tag: Tag) -> ArchiveRow:
    status, _, reason = tag.message.strip().partition(": ")
    return ArchiveRow(oid.raw, tag.target.raw, status, reason, tag.time)


def _trusted(data: bytes, name: str) -> Node:
    """A blob that was verified when it was taken in, read the fast way."""
    try:
        value = json.loads(data)
        return Node(value["type"], value["payload"], value["timestamp"])
    except (ValueError, KeyError, TypeError):
        return from_blob(data, name)


def _verified(data: bytes, node: Hash, blob: Oid) -> Node:
    content = from_blob(data, f"{node} (blob {blob})")
    actual = node_hash(content)
    if actual != node:
        raise StoreDamaged(f"blob {blob} says it is node {node}, but its hash is {actual}", "it was altered")
    return content


def pin(store: Store, node: Hash) -> Oid:
    """Makes `refs/uwf/nodes/<HASH>`: a commit whose tree holds the node and its closure. Pinning a
    pinned node changes nothing. Raises NotFound for what isn't in the store."""
    ref = layout.PINS + node
    known = store.repository.ref(ref)
    if known is not None:
        return known
    files: dict[str, bytes | Oid] = {
        f"nodes/{layout.node_file(found)}": store.blob_of(found) for found, _content in store.walk(node)
    }
    tree = store.repository.write_folder({".gitattributes": layout.GITATTRIBUTES, **files})
    text = layout.pin_message(node)
    commit = store.repository.write_commit(tree, [], store.repository.user, text)
    store.take_in(commit)
    try:
        store.repository.create_ref(ref, commit)
    except HeadMoved:  # somebody pinned it meanwhile
        return store.repository.ref(ref) or commit
    return commit
