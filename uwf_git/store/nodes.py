"""Nodes by their hashes: put, get, and the walk along what they refer to.

A node is a blob, found through the index. Every node that comes from outside is verified when it is taken in:
its content against the hash in its file name. From then on git's own object ids vouch for the blob.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

from uwf_git.base.errors import HashCollision, Invalid, NotFound, StoreDamaged
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.ids import Hash, complete, parse_hash
from uwf_git.format.kinds import (
    Detail,
    TurnRecord,
    parse_detail,
    parse_start,
    parse_step,
    parse_turn,
    parse_workflow,
)
from uwf_git.format.node import Node, from_blob, hash_of, node_hash, now, self_hash, to_blob
from uwf_git.format.schema import Problem, Schema, check_schema
from uwf_git.format.types import (
    ANSWER,
    CREW_WORKFLOW,
    LIMITED_START,
    REMARK,
    ROUNDS_START,
    STARTNODE,
    STEPNODE,
    TEXT,
    is_kind,
)
from uwf_git.git.objects import BLOB, id_of
from uwf_git.git.repository import Oid, Repository, StoreUnwritable
from uwf_git.store import layout
from uwf_git.store.index import Index

# Types whose payloads are checked by parsing: that says the same as the schema without starting a validator.
PARSERS: Mapping[Hash, Callable[[Any], object]] = {
    STEPNODE: parse_step,
    STARTNODE: parse_start,
    LIMITED_START: parse_start,
    ROUNDS_START: parse_start,
}

_NOT_CRYPTOGRAPHIC = "XXH64 is no cryptographic hash; change the refused content"
RECENT_COUNT = 256
RECENT_SIZE = 16 * 1024


Gate = Callable[[Any, str, str], None]
"""Raises Invalid for what must not get into a store: a text, a JSON value or the bytes of a file, what to call it, and
what it would become."""

# What a step and an attempt repeat of their workflow, which has passed the gate.
_REPEATED = ("role",)


class Among:
    """What is in any of several sets. A history is long, and not copied for every step."""

    def __init__(self, *sets: Set[Hash]) -> None:
        self._sets = sets

    def __contains__(self, node: object) -> bool:
        return any(node in each for each in self._sets)


class NodeStore:
    """The nodes of one repository. Touches no ref.

    `gate` is the one place that all passes which gets into the store from outside: the payloads of nodes, the files
    that definitions are kept with, the reasons that tags give; with it goes the name of the user, whom commits name.
    Pages, messages and trees follow from these alone, which `verify` checks. What is taken over from another store
    comes as it is."""

    def __init__(self, repository: Repository, index: Index) -> None:
        self.repository = repository
        self.index = index
        self.gate: Gate = _open_to_all
        self._schemas: dict[Hash, Schema] = {}
        self._recent: dict[Hash, Node] = {}
        self._blobs: dict[Hash, Oid] = {}
        self._asked_for: set[Hash] = set()  # by somebody who may have misspelt it
        self.drafts: dict[Hash, Node] = {}
        """What was drafted and isn't written, each node after those that it refers to."""
        self._drafting = False
        self._unlisted: list[tuple[Hash, Hash, bytes]] | None = (
            None  # rows of nodes whose blobs aren't stored yet
        )

    def sync(self) -> bool:
        """Looks for nodes that the index doesn't know yet. Returns whether anything was taken in; here, where
        no ref is followed, nothing is."""
        return False

    # Reading

    def get(self, node: Hash) -> Node:
        """A node by its hash. Raises NotFound, or StoreDamaged when its blob is gone or altered."""
        if (known := self._recent.get(node) or self.drafts.get(node)) is not None:
            return known
        found = self._blob_id(node) or self._found_again(node)
        if found is None:
            if node in BUILTIN:
                return Node(META, BUILTIN[node], 0)
            raise NotFound(f"no node {node} in the store", "check with: uwf doctor")
        data = self.repository.blob(found)
        return self._keep_recent(node, _trusted(data, node), len(data))

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
        found = self._blob_id(node) or self._found_again(node)
        if found is None:
            if node not in BUILTIN:
                raise NotFound(f"no node {node} in the store")
            return self._write(node, Node(META, BUILTIN[node], 0))
        return found

    def _blob_id(self, node: Hash) -> Oid | None:
        if (known := self._blobs.get(node)) is not None:
            return known
        row = self.index.node(node)
        if row is None and node not in BUILTIN and self.sync():
            row = self.index.node(node)
        return None if row is None else Oid(raw=row[1])

    def _found_again(self, node: Hash) -> Oid | None:
        """Where a node is that the index has lost; here, where no ref is followed, nothing tells."""
        return None

    def complete(self, prefix: str) -> Hash:
        """The one node hash that begins with a prefix, any case. Raises NotFound, Usage."""
        if len(prefix.strip()) == 13:
            self._asked_for.add(node := parse_hash(prefix))
            return node
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
            if not is_schema(node, self.get):
                raise Invalid(f"node {type_hash} is no schema", "a type is the hash of a schema node")
            known = self._schemas[type_hash] = Schema(node.payload)
        return known

    def references(self, node: Node) -> list[Hash]:
        """What a node's payload refers to, its type not included. Raises as `schema` does."""
        known = references_by_kind(node)
        return self.schema(node.type).references(node.payload) if known is None else known

    def detail(self, node: Hash) -> Detail | None:
        """The value of a Detail node; None for a node of another type, which an agent without the kit, or a
        sub-workflow, may leave in its place."""
        content = self.get(node)
        return parse_detail(content.payload) if is_kind(content.type, "detail") else None

    def turns(self, detail: Detail) -> tuple[TurnRecord, ...]:
        """The turns of a Detail. Nodes of another type, which a detail made by hand may name, are left out."""
        nodes = map(self.get, detail.turns)
        return tuple(parse_turn(node.payload) for node in nodes if is_kind(node.type, "turn"))

    def walk(self, root: Hash, stop: Container[Hash] = frozenset()) -> Iterator[tuple[Hash, Node]]:
        """A node and all that it refers to, types included, each once, breadth first. Nodes in `stop`
        are neither visited nor entered. Raises NotFound for a dangling reference."""
        queue = [root]
        seen = {root}
        while queue:
            following: list[Hash] = []
            for current in queue:
                node = self.get(current)
                yield current, node
                for target in (node.type, *self.references(node)):
                    if target not in seen and target not in stop:
                        seen.add(target)
                        following.append(target)
            queue = following

    def files(self, root: Hash, stop: Container[Hash] = frozenset()) -> dict[str, bytes | Oid]:
        """The node files of a record's folder: those that `walk` visits, by their paths. Raises as `walk` does."""
        return {layout.node_file(found): self.blob_of(found) for found, _ in self.walk(root, stop)}

    # Writing

    def put(self, type_hash: Hash, payload: Any, timestamp: int | None = None) -> Hash:
        """Stores a node and returns its hash. Putting it again keeps the first. Raises NotFound for a
        type that isn't here, Invalid for a payload that breaks it or refers to what isn't here,
        HashCollision for different content under the same hash."""
        value = cbor.normalise(payload)
        node = hash_of(type_hash, value)
        self.keep(node, Node(type_hash, value, now() if timestamp is None else timestamp))
        return node

    def draft(self, type_hash: Hash, payload: Any, timestamp: int | None = None) -> Hash:
        """As `put`, but the node isn't written before `store_drafts`: until then this process alone has it."""
        self._drafting = True
        try:
            return self.put(type_hash, payload, timestamp)
        finally:
            self._drafting = False

    def store_drafts(self) -> None:
        """Writes what was drafted; outside of `together` a file each, since a pack that no ref leads to at its end is
        any git's to delete. Raises StoreUnwritable; what isn't written is still a draft then."""
        for node, content in tuple(self.drafts.items()):
            self._file(node, content, to_blob(content))
            if self._unlisted is None:
                del self.drafts[node]

    @contextmanager
    def together(self) -> Iterator[None]:
        """As the repository's own `together`; the index knows a node once its blob is stored, or with `list_new`."""
        if self._unlisted is not None or self.repository.is_gathering:
            yield
            return
        self._unlisted = []
        try:
            with self.repository.together():
                yield
            self.list_new()
        except BaseException as error:
            if not isinstance(error, StoreUnwritable):
                self.list_new()
            raise
        finally:
            self._unlisted = None

    @contextmanager
    def registering(self) -> Iterator[None]:
        """Tells the index of all nodes that are written inside with one write. Whoever deletes what no ref leads to is
        waited for before the index is held, which they need as well. Raises Busy where they take very long."""
        self.repository.writers.begin()
        with self.index.transaction():
            yield

    def list_new(self) -> None:
        """Stores what was written since `together` began, and tells the index of the nodes: it must never know what the
        next power cut takes. Raises StoreUnwritable."""
        if self._unlisted is not None:
            self.repository.store_gathered()
        if self._unlisted:
            with self.index.transaction():
                self.index.set_nodes(self._unlisted)
            for node, *_ in self._unlisted:
                self.drafts.pop(node, None)
            self._unlisted.clear()

    def keep(self, node: Hash, content: Node, references: Sequence[Hash] | None = None) -> None:
        """Stores a node whose hash is known to be that of its content. `references` are those of its payload, if they
        are known to be here and the node is known not to be. Raises as `put` does."""
        draft = self.drafts.get(node)
        if draft is not None and draft[:2] != content[:2]:
            raise HashCollision(f"node {node} would have two contents", _NOT_CRYPTOGRAPHIC)
        if draft is not None and self._drafting:
            return
        self.repository.writers.begin()  # what is here already, and may be without a ref, stays until then too
        known = self.index.node(node) if references is None else None
        if known is not None and self.repository.has(Oid(raw=known[1])):
            self._refuse_collision(node, Oid(raw=known[1]), content.type, content.payload)
            return
        if content.type != node:
            self.check(content.type, content.payload, references)
        elif found := check_schema(content.payload):
            raise Invalid(f"node {node} is its own type and no JSON Schema: {found[0]}")
        self._pass(node, content)
        self._write(node, content)

    def check(self, type_hash: Hash, value: Any, references: Sequence[Hash] | None = None) -> None:
        """Raises as put does for a normalised payload; stores nothing. `references` as for `keep`."""
        try:
            self.schema(type_hash)
        except NotFound:
            raise NotFound(f"no type {type_hash} in the store", "see: uwf cas schema list") from None
        if type_hash in PARSERS:
            PARSERS[type_hash](value)
        elif problems := self.problems(type_hash, value):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise Invalid(
                f"payload breaks its type {type_hash}: {problems[0]}{more}",
                f"see: uwf cas schema get {type_hash}",
            )
        if references is not None:
            return
        for target in self.references(Node(type_hash, value, 0)):
            if not self.has(target):
                raise Invalid(f"payload refers to {target}, which is not in the store", "put that node first")

    def problems(self, type_hash: Hash, value: Any) -> list[Problem]:
        """How a value breaks a type; empty when it obeys."""
        schema = self.schema(type_hash)
        # What describes itself is a meta-schema, and what it describes are schemas: that of json-cas says less.
        is_meta = type_hash == META or self.get(type_hash).type == type_hash
        return check_schema(value) if is_meta else schema.problems(value)

    def _pass(self, node: Hash, content: Node) -> None:
        payload = content.payload
        if is_kind(content.type, "step") or is_kind(content.type, "attempt"):
            payload = {name: value for name, value in payload.items() if name not in _REPEATED}
        self.gate(payload, f"node {node}", "a node")

    def _write(self, node: Hash, content: Node) -> Oid:
        data = to_blob(content)
        if self._drafting:
            self.drafts[node] = content
            oid = id_of(BLOB, data)
            self._blobs[node] = oid
        else:
            oid = self._file(node, content, data)
            self.drafts.pop(node, None)
        self._keep_recent(node, content, len(data))
        return oid

    def _file(self, node: Hash, content: Node, data: bytes) -> Oid:
        oid = self._blobs[node] = self.repository.write_blob(data)
        row = node, content.type, oid.raw
        if self._unlisted is not None:
            self._unlisted.append(row)
        else:
            self.index.set_nodes([row])
        return oid

    def _keep_recent(self, node: Hash, content: Node, size: int) -> Node:
        """Keeps a small node in memory: a node that was just made or read is asked for again when it is
        checked, filed and shown."""
        if size <= RECENT_SIZE:
            if len(self._recent) >= RECENT_COUNT:
                self._recent.clear()
            self._recent[node] = content
        return content

    def _refuse_collision(self, node: Hash, blob: Oid, type_hash: Hash, value: Any) -> None:
        there = _trusted(self.repository.blob(blob), node)
        if there.type != type_hash or cbor.encode(cbor.normalise(there.payload)) != cbor.encode(value):
            self._pass(node, Node(type_hash, value, 0))
            mine = self.repository.write_blob(to_blob(Node(type_hash, value, now())))
            raise HashCollision(
                f"node {node} has two contents: blob {blob} is kept, blob {mine} refused",
                _NOT_CRYPTOGRAPHIC,
            )

    def adopt(self, files: Sequence[tuple[Hash, Oid]]) -> None:
        """Takes in blobs that are said to be nodes, those before the first that isn't where one isn't. Raises
        StoreDamaged then, and HashCollision where a node is known with another content."""
        known = self.index.blobs_of([node for node, _ in files])
        rows: list[tuple[Hash, Hash, bytes]] = []
        try:
            for node, blob in files:
                there = known.get(node)
                if there == blob.raw:
                    continue
                content = from_blob(self.repository.blob(blob), f"{node} (blob {blob})")
                actual = node_hash(content)
                if actual != node:
                    raise StoreDamaged(
                        f"blob {blob} says it is node {node}, but its hash is {actual}", "it was altered"
                    )
                if there is not None and self.repository.has(Oid(raw=there)):
                    self._refuse_collision(node, Oid(raw=there), content.type, content.payload)
                else:
                    rows.append((node, content.type, blob.raw))
                    known[node] = blob.raw
        finally:
            self.index.add_nodes(rows)


def _open_to_all(_content: Any, _where: str, _kept: str) -> None:
    """The gate of a store of which nobody knows the secrets."""


def references_by_kind(node: Node) -> list[Hash] | None:
    """What a valid node of a built-in kind refers to, its type not included; None where its schema has to be
    asked."""
    if node.type in (META, TEXT, ANSWER, REMARK) or is_kind(node.type, "turn"):
        return []
    if node.type == STEPNODE:
        step = parse_step(node.payload)
        return [each for each in (step.start, step.prev, step.output, step.detail) if each]
    if is_kind(node.type, "detail"):
        detail = parse_detail(node.payload)
        return [*detail.turns, *([detail.context] if detail.context else []), *detail.nodes]
    if node.type == CREW_WORKFLOW:  # it has hundreds of roles
        return [*{role.schema: None for role in parse_workflow(node.payload).roles.values()}]
    return None


def is_schema(node: Node, get: Callable[[Hash], Node]) -> bool:
    """Whether a node can be a type: its own type is the meta-schema, the node itself, or a node that is its own
    type. `get` reads a node."""
    return node.type == META or self_hash(node.payload) == node.type or get(node.type).type == node.type


_read_json = json.JSONDecoder().decode  # `loads` asks first what it is given


def _trusted(data: bytes, name: str) -> Node:
    """A blob that was verified when it was taken in, read the fast way."""
    try:
        value = _read_json(data.decode("utf-8"))
        return Node(value["type"], value["payload"], value["timestamp"])
    except (ValueError, KeyError, TypeError):
        return from_blob(data, name)
