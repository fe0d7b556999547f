"""Nodes by hash: put, get, and walking references.

A node is a blob, found through the index. Nodes from outside are verified against the hash in their file name
when they are indexed; from then on git's object ids vouch for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import HashCollision, Invalid, NotFound, StoreDamaged, StoreUnwritable
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META, title_of
from uwf_git.format.ids import Hash, complete, parse_hash
from uwf_git.format.kinds import (
    Attempt,
    Detail,
    Start,
    Step,
    TurnRecord,
    parse_attempt,
    parse_detail,
    parse_session,
    parse_start,
    parse_step,
    parse_turn,
    schema_of_role,
)
from uwf_git.format.node import Node, from_blob, hash_of, node_hash, now, self_hash, to_blob
from uwf_git.format.schema import Problem, Schema, check_schema
from uwf_git.format.types import (
    ANSWER,
    REMARK,
    STEPNODE,
    TEXT,
    Kind,
    is_kind,
    require_known_type,
)
from uwf_git.format.words import require_known_words
from uwf_git.git.objects import BLOB, id_of
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.node_rows import NodeRow, node_row

if TYPE_CHECKING:
    from uwf_git.store.index import Index

_NOT_CRYPTOGRAPHIC = "XXH64 is not a cryptographic hash; change the refused content"
RECENT_COUNT = 256
RECENT_SIZE = 16 * 1024


Gate = Callable[[Any, str, str], None]
"""Raises Invalid for what must not get into a store: a text, a JSON value or the bytes of a file, what to call it, and
what it would become."""

# Parts that steps and attempts repeat from their workflow, which was checked for secrets.
_REPEATED = ("role",)


class UnionSet:
    """The union of several sets, without copying a long history for each step."""

    def __init__(self, *sets: Set[Hash]) -> None:
        self._sets = sets

    def __contains__(self, node: object) -> bool:
        return any(node in item for item in self._sets)


class NodeStore:
    """The nodes of one repository. Touches no ref.

    `gate` checks everything that enters the store from outside: nodes' payloads, definitions' files, reasons
    in tags, and the user's name. Pages, messages and trees follow from these. Data from other stores is taken
    unchanged.
    """

    def __init__(self, repository: Repository, index: Index) -> None:
        self.repository = repository
        self.index = index
        self.gate: Gate = _open_to_all
        self._schemas: dict[Hash, Schema] = {}
        self._recent: dict[Hash, Node] = {}
        self._blobs: dict[Hash, Oid] = {}
        self._asked_for: set[Hash] = set()  # of a possibly misspelt one
        self.drafts: dict[Hash, Node] = {}
        """What was drafted and isn't written, each node after those that it refers to."""
        self._draft_files: dict[Hash, bytes] = {}
        self._drafting = False
        self._unlisted: list[NodeRow] | None = None  # of nodes whose blobs aren't stored yet

    def sync(self) -> bool:
        """Index new nodes. Return whether there were any; here, without refs, never."""
        return False

    # Reading

    def get(self, node: Hash) -> Node:
        """Return a node. Raises NotFound, StoreDamaged if its blob is gone or altered."""
        if (known := self._recent.get(node) or self.drafts.get(node)) is not None:
            return known
        oid = self._blob_id(node) or self._found_again(node)
        if oid is None:
            if node in BUILTIN:
                return Node(META, BUILTIN[node], 0)
            raise NotFound(f"no node {node} in the store", "check with: uwf doctor")
        data = self.repository.blob(oid)
        return self._keep_recent(node, _trusted(data, node), len(data))

    def has(self, node: Hash) -> bool:
        """Return whether a node and its blob exist."""
        if node in self._blobs:
            return True
        oid = self._blob_id(node)
        if oid is None:
            return node in BUILTIN
        if self.repository.has(oid):
            self._blobs[node] = oid
            return True
        return False

    def blob_of(self, node: Hash) -> Oid:
        """Return the id of a node's blob for a tree. A built-in schema is written if needed."""
        if (known := self._blobs.get(node)) is not None:
            return known
        oid = self._blob_id(node) or self._found_again(node)
        if oid is None:
            if node not in BUILTIN:
                raise NotFound(f"no node {node} in the store")
            return self._write(node, Node(META, BUILTIN[node], 0))
        return oid

    def _blob_id(self, node: Hash) -> Oid | None:
        if (known := self._blobs.get(node)) is not None:
            return known
        row = self.index.node(node)
        if row is None and node not in BUILTIN and self.sync():
            row = self.index.node(node)
        return None if row is None else Oid(raw=row[1])

    def _found_again(self, node: Hash) -> Oid | None:
        return None

    def complete(self, prefix: str) -> Hash:
        """Return the node hash with a prefix, ignoring case. Raises NotFound, Usage."""
        if len(prefix.strip()) == 13:
            self._asked_for.add(node := parse_hash(prefix))
            return node
        if len(prefix.strip()) < 4:
            raise Invalid(f"{prefix!r} is too short for a node hash", "give at least 4 characters")
        self.sync()
        known = self.index.hashes_with_prefix(prefix.strip().upper())
        return Hash(complete(prefix, [*known, *BUILTIN], "node"))

    def schema(self, type_hash: Hash) -> Schema:
        """Return the schema of a type. Raises NotFound, Invalid."""
        known = self._schemas.get(type_hash)
        if known is None:
            node = self.get(type_hash)
            if not is_schema(node, self.get):
                raise Invalid(f"node {type_hash} is not a schema", "a type is the hash of a schema node")
            known = self._schemas[type_hash] = Schema(node.payload)
        return known

    def references(self, node: Node) -> list[Hash]:
        """Return the nodes referenced by a payload, without its type. Raises as `schema` does."""
        known = references_by_kind(node)
        return self.schema(node.type).references(node.payload) if known is None else known

    def start(self, node: Hash) -> Start:
        """Return a StartNode's payload."""
        return parse_start(self.get(node).payload)

    def step(self, node: Hash) -> Step:
        """Return a StepNode's payload."""
        return parse_step(self.get(node).payload)

    def attempt(self, node: Hash) -> Attempt:
        """Return an Attempt node's payload."""
        return parse_attempt(self.get(node).payload, node)

    def detail(self, node: Hash) -> Detail | None:
        """Return a Detail, None for a node of another type, which agents without the kit and sub-workflows
        use instead."""
        content = self.get(node)
        if is_kind(content.type, "detail"):
            return parse_detail(content.payload)
        self.require_known_type(node, content, "detail")
        return None

    def require_known_type(self, node: Hash, content: Node, *kinds: Kind) -> None:
        """Raise UnknownWord for a node in the place of one of `kinds` if a newer version gave them its type."""
        with suppress(NotFound):  # without its type it is damaged, which others say
            require_known_type(node, self.get(content.type).payload, *kinds)

    def turns(self, detail: Detail) -> tuple[TurnRecord, ...]:
        """Return the turns of a Detail. Nodes of other types are skipped."""
        nodes = map(self.get, detail.turns)
        return tuple(parse_turn(node.payload) for node in nodes if is_kind(node.type, "turn"))

    def walk(self, root: Hash, stop: Container[Hash] = frozenset()) -> Iterator[tuple[Hash, Node]]:
        """Yield a node and everything reachable, types included, each once, breadth first, without entering
        `stop`. Raises NotFound for a dangling reference."""
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
        """Return the node files of a record's folder by path: the nodes of `walk`. Raises as `walk` does."""
        return {layout.node_file(node): self.blob_of(node) for node, _ in self.walk(root, stop)}

    # Writing

    def put(self, type_hash: Hash, payload: Any, timestamp: int | None = None) -> Hash:
        """Store a node and return its hash. An existing node is kept. Raises NotFound for an unknown type,
        Invalid for an invalid payload or missing references, UnknownWord, Oversized, HashCollision for different
        content with the same hash. The content has its keys in the order in which it is read again, so that a prompt
        or a script says the same in a later run."""
        value = cbor.sort_keys(cbor.normalise(payload))
        node = hash_of(type_hash, value)
        self.keep(node, Node(type_hash, value, now() if timestamp is None else timestamp))
        return node

    def draft(self, type_hash: Hash, payload: Any, timestamp: int | None = None) -> Hash:
        """As `put`, but written by `store_drafts`; until then only this process has it."""
        self._drafting = True
        try:
            return self.put(type_hash, payload, timestamp)
        finally:
            self._drafting = False

    def store_drafts(self) -> None:
        """Write the drafts; outside `together` as loose objects, since any git may delete a pack without
        refs. Raises StoreUnwritable, keeping the rest as drafts."""
        for node, content in tuple(self.drafts.items()):
            self._file(node, content, self.draft_file(node))
            if self._unlisted is None:
                self._drop_draft(node)

    def draft_file(self, node: Hash) -> bytes:
        """Return the file of a draft."""
        if (known := self._draft_files.get(node)) is None:
            known = self._draft_files[node] = to_blob(self.drafts[node])
        return known

    def _drop_draft(self, node: Hash) -> None:
        self.drafts.pop(node, None)
        self._draft_files.pop(node, None)

    @contextmanager
    def together(self) -> Iterator[None]:
        """As the repository's `together`; nodes are indexed once stored, or by `list_new`."""
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
        """Index all nodes written in the block with one transaction. Waits for a running prune before locking
        the index, to avoid a deadlock. Raises Busy after a long wait."""
        self.repository.writers.begin()
        with self.index.transaction():
            yield

    def list_new(self) -> None:
        """Store and index what was written since `together` began, in this order: the index must never know
        nodes that a power cut can remove. Raises StoreUnwritable."""
        if self._unlisted is not None:
            self.repository.store_gathered()
        if self._unlisted:
            with self.index.transaction():
                self.index.set_nodes(self._unlisted)
            for node, *_ in self._unlisted:
                self._drop_draft(node)
            self._unlisted.clear()

    def keep(self, node: Hash, content: Node, references: Sequence[Hash] | None = None) -> None:
        """Store a node with a known hash. `references` are given if known to exist for a new node. Raises as
        `put` does."""
        draft = self.drafts.get(node)
        if draft is not None and draft[:2] != content[:2]:
            raise HashCollision(f"node {node} would have two contents", _NOT_CRYPTOGRAPHIC)
        if draft is not None and self._drafting:
            return
        self.repository.writers.begin()  # existing nodes, possibly without a ref, stay until then too
        known = self.index.node(node) if references is None else None
        if known is not None and self.repository.has(Oid(raw=known[1])):
            self._refuse_collision(node, Oid(raw=known[1]), content.type, content.payload)
            self._blobs[node] = Oid(raw=known[1])
            return
        if content.type != node:
            self.check(content.type, content.payload, references)
        elif problems := check_schema(content.payload):
            raise Invalid(f"node {node} is its own type and no JSON Schema: {problems[0]}")
        self._pass(node, content)
        self._write(node, content)

    def check(self, type_hash: Hash, value: Any, references: Sequence[Hash] | None = None) -> None:
        """Raise as `put` does for a normalised payload; store nothing."""
        try:
            self.schema(type_hash)
        except NotFound:
            raise NotFound(f"no type {type_hash} in the store", "see: uwf cas schema list") from None
        if problems := self.problems(type_hash, value):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise Invalid(
                f"payload breaks its type {type_hash}: {problems[0]}{more}",
                f"see: uwf cas schema get {type_hash}",
            )
        require_known_words(title_of(type_hash), value)
        if references is not None:
            return
        for target in self.references(Node(type_hash, value, 0)):
            if not self.has(target):
                raise Invalid(f"payload refers to {target}, which is not in the store", "put that node first")

    def problems(self, type_hash: Hash, value: Any) -> list[Problem]:
        """Return how a value violates a type; empty if valid."""
        schema = self.schema(type_hash)
        # A type that describes itself is a meta-schema; json-cas's is less precise.
        is_meta = type_hash == META or self.get(type_hash).type == type_hash
        return check_schema(value) if is_meta else schema.problems(value)

    def _pass(self, node: Hash, content: Node) -> None:
        payload = content.payload
        if is_kind(content.type, "step") or is_kind(content.type, "attempt"):
            payload = {name: value for name, value in payload.items() if name not in _REPEATED}
        self.gate(payload, f"node {node}", "a node")

    def _write(self, node: Hash, content: Node) -> Oid:
        data = to_blob(content)
        self.repository.require_size(len(data), f"node {node} ({title_of(content.type) or 'an output'})")
        if self._drafting:
            self.drafts[node], self._draft_files[node] = content, data
            oid = id_of(BLOB, data)
            self._blobs[node] = oid
        else:
            oid = self._file(node, content, data)
            self._drop_draft(node)
        self._keep_recent(node, content, len(data))
        return oid

    def _file(self, node: Hash, content: Node, data: bytes) -> Oid:
        oid = self._blobs[node] = self.repository.write_blob(data)
        row = node_row(node, content, oid.raw)
        if self._unlisted is not None:
            self._unlisted.append(row)
        else:
            self.index.set_nodes([row])
        return oid

    def _keep_recent(self, node: Hash, content: Node, size: int) -> Node:
        """Cache a small node, which is usually read again when it is checked, filed and shown."""
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
        """Index blobs claimed to be nodes, in order, up to the first invalid one. Raises StoreDamaged for
        that, HashCollision for a known node with other content."""
        known = self.index.blobs_of([node for node, _ in files])
        rows: list[NodeRow] = []
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
                    rows.append(node_row(node, content, blob.raw))
                    known[node] = blob.raw
        finally:
            self.index.add_nodes(rows)


def _open_to_all(_content: Any, _where: str, _kept: str) -> None: ...


def references_by_kind(node: Node) -> list[Hash] | None:
    """Return the references of a valid built-in node, without its type; None if its schema must be consulted."""
    if node.type in (META, TEXT, ANSWER, REMARK) or is_kind(node.type, "turn"):
        return []
    if node.type == STEPNODE:
        step = parse_step(node.payload)
        return [item for item in (step.start, step.prev, step.output, step.detail) if item]
    if is_kind(node.type, "detail"):
        return parse_detail(node.payload).references
    if is_kind(node.type, "session"):
        return [part for file in parse_session(node.payload).files for part in file.parts]
    if is_kind(node.type, "workflow"):
        return [*dict.fromkeys(map(schema_of_role, node.payload["roles"].values()))]
    if is_kind(node.type, "start"):
        return [parse_start(node.payload).workflow]
    return None


def is_schema(node: Node, get: Callable[[Hash], Node]) -> bool:
    """Return whether a node can be a type: its type is the meta-schema, itself, or a node that is its own
    type. `get` reads a node."""
    return node.type == META or self_hash(node.payload) == node.type or get(node.type).type == node.type


_read_json = json.JSONDecoder().decode  # `loads` asks first what it is given


def _trusted(data: bytes, name: str) -> Node:
    try:
        value = _read_json(data.decode("utf-8"))
        return Node(value["type"], value["payload"], value["timestamp"])
    except (ValueError, KeyError, TypeError):
        return from_blob(data, name)
