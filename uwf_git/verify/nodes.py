"""Checking nodes and trees: a node matches its file's hash and its type, and its references are present; a
tree has valid names, plain files and folders, and no changes beyond its record.

XXH64 isn't cryptographic, so two contents under one hash are detected here; later checks rely on that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from uwf_git.base.errors import StoreDamaged, UnknownWord, UwfError
from uwf_git.base.timelimit import TimeExceeded, time_limit
from uwf_git.format import cbor
from uwf_git.format.builtin import BUILTIN, META, title_of
from uwf_git.format.ids import Hash
from uwf_git.format.node import Node, from_blob, node_hash
from uwf_git.format.quick_schema import Check, plain_check
from uwf_git.format.schema import SECONDS, Schema, check_schema
from uwf_git.format.words import require_known_words
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.node_rows import NodeRow, node_row
from uwf_git.store.nodes import is_schema, references_by_kind
from uwf_git.verify.findings import Bad, Report
from uwf_git.verify.objects import (
    COUNT_LIMIT,
    DEPTH_LIMIT,
    FOLDER,
    Objects,
    Row,
    mode_problem,
    name_problem,
    order_key,
    shown_name,
)

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store

LATEST = 2**53  # Unix milliseconds

# Exceptions of libraries on untrusted schemas and patterns.
_STUMBLES = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)


def rows_of(nodes: Mapping[Hash, Node], blobs: Mapping[Hash, bytes]) -> tuple[NodeRow, ...]:
    """Return the index's rows for nodes with their bytes."""
    return tuple(node_row(name, node, blobs[name]) for name, node in nodes.items())


class Nodes:
    """Verified nodes, and those known to `store`. `rows` are those read since the caller cleared it."""

    def __init__(self, objects: Objects, store: Store, fresh: bool = False) -> None:
        self._objects = objects
        self._store = store
        self._fresh = fresh
        self._blobs: dict[Hash, bytes] = {}
        self._valid: set[Hash] = set()
        self._schemas: dict[Hash, Schema | Bad] = {}
        self._plain: dict[Hash, Check | None] = {}
        self._own: dict[Hash, bool] = {}
        self.rows: list[NodeRow] = []

    def __len__(self) -> int:
        return len(self._blobs)

    def read(self, name: Hash, blob: bytes) -> Node:
        """Return the node in a file named by its hash. Raises Bad if invalid, misnamed, or a collision."""
        oid = Oid(raw=blob)
        try:
            node = from_blob(self._objects.blob(blob), f"{name} (blob {oid})")
        except StoreDamaged as error:
            raise Bad("malformed", error.message, oid) from None
        if not 0 <= node.timestamp <= LATEST:
            raise Bad("malformed", f"node {name} (blob {oid}) has a timestamp no clock shows", oid)
        known = self._blobs.get(name)
        if known != blob:
            self._check_hash(name, node, blob, known)
        self.rows.append(node_row(name, node, blob))
        return node

    def _check_hash(self, name: Hash, node: Node, blob: bytes, known: bytes | None) -> None:
        oid = Oid(raw=blob)
        actual = node_hash(node)
        if actual != name:
            raise Bad("wrong-hash", f"blob {oid} says it is node {name}, but its hash is {actual}", oid)
        if known is None and not self._fresh:
            row = self._store.index.node(name)
            known = row[1] if row else None
        self._compare(name, node, blob, known)
        self._blobs.setdefault(name, blob)

    def _compare(self, name: Hash, node: Node, blob: bytes, known: bytes | None) -> None:
        if known == blob:
            return
        if name in BUILTIN:
            first = Node(META, BUILTIN[name], 0)
        elif known is not None:
            first = from_blob(self._objects.blob(known), str(name))
        else:
            return
        if first.type != node.type or cbor.encode(first.payload) != cbor.encode(node.payload):
            other = Oid(raw=known) if known else "this library's"
            raise Bad(
                "collision", f"node {name} has two contents: blobs {other} and {Oid(raw=blob)}", Oid(raw=blob)
            )

    def get(self, name: Hash) -> Node:
        """Return a verified or known node. Raises Bad."""
        blob = self._blobs.get(name)
        if blob is not None:
            return from_blob(self._objects.blob(blob), str(name))
        try:
            return self._store.get(name)
        except UwfError as error:
            raise Bad("missing-node", error.message, name) from None

    def check(self, name: Hash, node: Node, blob: bytes, among: Mapping[Hash, Node], report: Report) -> bool:
        """Check a node against its type, possibly `among` others read with it; report violations. Raises Bad for a word
        that this version doesn't know: nothing that such a node is part of can be judged."""
        if name in self._valid:
            return True
        oid = Oid(raw=blob)
        try:
            problem = self._problem(name, node, among)
        except Bad as bad:
            report(bad.code, f"node {name}: {bad.message}", oid)
            return False
        if problem:
            report("breaks-schema", f"node {name} breaks its type {node.type}: {problem}", oid)
            return False
        try:
            require_known_words(title_of(node.type), node.payload)
        except UnknownWord as error:
            raise Bad("unknown-word", f"node {name}: {error.message}; {error.hint}", oid) from None
        self._valid.add(name)
        return True

    def _problem(self, name: Hash, node: Node, among: Mapping[Hash, Node]) -> str | None:
        try:
            if node.type == META and node.payload == BUILTIN.get(name):
                return None  # ours are schemas; to check them anew takes most of the time of a small history
            if node.type in (META, name) or self._is_its_own(node.type, among):
                problems = check_schema(node.payload, recorded=True)
            else:
                schema = self._schema(node.type, among)
                if node.type not in self._plain:
                    self._plain[node.type] = plain_check(schema.payload)
                plain = self._plain[node.type]
                problems = (
                    [] if plain and plain(node.payload) else schema.problems(node.payload, 3, recorded=True)
                )
        except UwfError as error:
            return error.message
        except _STUMBLES as error:
            raise Bad("bad-type", f"its type {node.type} cannot be applied: {error}", name) from None
        return str(problems[0]) if problems else None

    def _is_its_own(self, type_hash: Hash, among: Mapping[Hash, Node]) -> bool:
        known = self._own.get(type_hash)
        if known is None:
            known = self._own[type_hash] = self._type_node(type_hash, among).type == type_hash
        return known

    def _schema(self, type_hash: Hash, among: Mapping[Hash, Node]) -> Schema:
        known = self._schemas.get(type_hash)
        if known is None:
            try:
                known = self._new_schema(type_hash, among)
            except Bad as bad:
                known = bad
            self._schemas[type_hash] = known
        if isinstance(known, Bad):
            raise known
        return known

    def _new_schema(self, type_hash: Hash, among: Mapping[Hash, Node]) -> Schema:
        node = self._type_node(type_hash, among)
        if not is_schema(node, lambda owner: self._type_node(owner, among)):
            raise Bad("bad-type", f"its type {type_hash} is not a schema", type_hash)
        try:
            problems = [] if type_hash in BUILTIN else check_schema(node.payload, recorded=True)
        except (UwfError, *_STUMBLES) as error:
            raise Bad("bad-type", f"its type {type_hash} cannot be applied: {error}", type_hash) from None
        if problems:
            raise Bad("bad-type", f"its type {type_hash} is not a JSON Schema: {problems[0]}", type_hash)
        return Schema(node.payload)

    def _type_node(self, type_hash: Hash, among: Mapping[Hash, Node]) -> Node:
        if type_hash in BUILTIN:
            return Node(META, BUILTIN[type_hash], 0)
        return among[type_hash] if type_hash in among else self.get(type_hash)

    def references(self, node: Node, among: Mapping[Hash, Node]) -> list[Hash]:
        """Return a valid node's references without its type. Raises Bad."""
        known = references_by_kind(node)
        if known is not None:
            return known
        schema = self._schema(node.type, among)
        if not schema.has_references:
            return []
        try:
            with time_limit(SECONDS):
                return schema.references(node.payload)
        except TimeExceeded:
            raise Bad("bad-type", f"type {node.type} takes over {SECONDS:g} s to apply", node.type) from None
        except (UwfError, *_STUMBLES) as error:
            raise Bad("bad-type", f"type {node.type} cannot be applied: {error}", node.type) from None

    def closure(
        self,
        root: Hash,
        here: Mapping[Hash, Node],
        elsewhere: Callable[[Hash], bool],
        report: Report,
    ) -> set[Hash]:
        """Return the nodes that a record reaches in its folder, reporting missing ones that are not
        `elsewhere` in the tree."""
        reached = {root}
        nodes: set[Hash] = set()
        queue = [root]
        while queue:
            node = here[queue.pop()]
            for target in (node.type, *self.references(node, here)):
                if target in reached or target in nodes:
                    continue
                if target in here:
                    reached.add(target)
                    queue.append(target)
                    continue
                nodes.add(target)
                if not elsewhere(target):
                    report("missing-node", f"node {target}, which {root} reaches, is not in the tree")
        return reached


def files_below(objects: Objects, tree: bytes, folder: str, report: Report) -> dict[str, bytes]:
    """Return the files below a tree. Reports invalid names and modes, without entering them. `folder` is for
    messages. Raises Bad."""
    contents: dict[str, bytes] = {}
    entries = 0  # with each name of a folder, since a few trees can be millions of folders
    pending = [("", tree, 1)]
    while pending:
        prefix, raw, depth = pending.pop()
        if depth > DEPTH_LIMIT:
            raise Bad("tree-limit", f"folders in {folder} are nested over {DEPTH_LIMIT} deep", Oid(raw=raw))
        rows = objects.tree(raw)
        entries += len(rows) + 1
        if entries > COUNT_LIMIT:
            raise Bad(
                "tree-limit",
                f"{folder or '/'} holds over {COUNT_LIMIT:,} files and folders",
                Oid(raw=tree),
            )
        if not rows:
            report("extra-file", f"{folder}{prefix} is an empty folder", Oid(raw=raw), f"{folder}{prefix}")
        check_order(rows, raw, f"{folder}{prefix}", report)
        for row in rows:
            if not _is_harmless(row, raw, f"{folder}{prefix}", report):
                continue
            mode, name, oid = row
            path = prefix + name.decode("utf-8")
            if mode == FOLDER:
                pending.append((f"{path}/", oid, depth + 1))
            else:
                contents[path] = oid
    return contents


def check_order(rows: Sequence[Row], raw: bytes, where: str, report: Report) -> None:
    """Report entries out of git's order, and duplicates."""
    keys = [order_key(row) for row in rows]
    if len({name for _, name, _ in rows}) != len(rows):
        report("malformed", f"tree {where or '/'} has a name twice", Oid(raw=raw))
    elif keys != sorted(keys):
        report("malformed", f"tree {where or '/'} is not in git's order", Oid(raw=raw))


def _is_harmless(row: Row, raw: bytes, where: str, report: Report) -> bool:
    mode, name, _ = row
    if problem := name_problem(name):
        shown = f"the name {shown_name(name)!r} in {where or '/'} {problem}"
        report("unsafe-name", shown, Oid(raw=raw), f"{where}{shown_name(name)}")
        return False
    if problem := mode_problem(mode):
        path = f"{where}{shown_name(name)}"
        report("unsafe-mode", f"{path} is {problem}", Oid(raw=raw), path)
        return False
    return True


def grown(
    objects: Objects,
    new: bytes,
    old: bytes | None,
    folders: Sequence[str],
    report: Report,
    also: Sequence[Collection[str]] = (),
) -> bytes:
    """Return the tree of the only folder that `new` has beyond `old`. `also` names other permitted changes at
    each level. Reports other differences; raises Bad if the folder is missing."""
    where = ""
    for depth, folder in enumerate(folders, 1):
        allowed = {item.encode("utf-8") for item in also[depth - 1]} if depth <= len(also) else set()
        name = folder.encode("utf-8")
        rows, before = objects.tree(new), objects.tree(old) if old is not None else []
        row = _row(rows, name)
        was = _row(before, name)
        if not _only_the_last_grew(rows, before, name):
            same_but = {name, *allowed}
            kept = [item for item in rows if item[1] not in same_but]
            if kept != [item for item in before if item[1] not in same_but]:
                _report_changes(rows, before, same_but, new, where, report)
            check_order(rows, new, where, report)
        if row is None:
            message = f"there is no {where}{folder}, which the record adds"
            raise Bad("missing-file", message, Oid(raw=new), f"{where}{folder}")
        if row[0] != FOLDER:
            raise Bad("unsafe-mode", f"{where}{folder} is not a folder", Oid(raw=new), f"{where}{folder}")
        if was is not None and depth == len(folders):
            report("changed-file", f"{where}{folder} was there before", Oid(raw=new), f"{where}{folder}")
        new, old = row[2], was[2] if was is not None and was[0] == FOLDER else None
        where = f"{where}{folder}/"
    return new


def _only_the_last_grew(rows: Sequence[Row], before: Sequence[Row], name: bytes) -> bool:
    if not before or rows[:-1] != before[: len(rows) - 1] or not rows or rows[-1][1] != name:
        return False
    if len(rows) == len(before):
        return rows[-1][:2] == before[-1][:2]
    return len(rows) == len(before) + 1 and order_key(before[-1]) < order_key(rows[-1])


def _row(rows: Sequence[Row], name: bytes) -> Row | None:
    for row in reversed(rows):
        if row[1] == name:
            return row
    return None


def row_of(objects: Objects, tree: bytes, name: str) -> Row | None:
    return _row(objects.tree(tree), name.encode("utf-8"))


def _report_changes(
    rows: Sequence[Row],
    before: Sequence[Row],
    expected: set[bytes],
    tree: bytes,
    where: str,
    report: Report,
) -> None:
    old = {row[1]: row for row in before if row[1] not in expected}
    new = {row[1]: row for row in rows if row[1] not in expected}
    for name, row in new.items():
        shown = f"{where}{shown_name(name)}"
        if name not in old:
            if _is_harmless(row, tree, where, report):
                report("extra-file", f"{shown} does not belong to the record", Oid(raw=tree), shown)
        elif old[name] != row:
            report("changed-file", f"{shown} was changed", Oid(raw=tree), shown)
    for name in old.keys() - new.keys():
        shown = f"{where}{shown_name(name)}"
        report("changed-file", f"{shown} was removed", Oid(raw=tree), shown)


def node_files(files: Mapping[str, bytes], folder: str) -> dict[Hash, bytes]:
    """Return the files `nodes/<hash>.json`."""
    contents: dict[Hash, bytes] = {}
    for path, blob in files.items():
        node = layout.node_in_path(path)
        if node is not None and path == f"{folder}{layout.node_file(node)}":
            contents[node] = blob
    return contents


def check_page(
    objects: Objects,
    files: Mapping[str, bytes],
    folder: str,
    report: Report,
    *expected: Callable[[], bytes],
    name: str = "README.md",
    source: str = "the nodes say",
) -> None:
    """Report a missing page, or one that matches none of those expected, generated lazily. `source` is for
    messages."""
    blob = files.get(name)
    if blob is None:
        report("missing-file", f"there is no {folder}{name}", path=f"{folder}{name}")
        return
    page = objects.blob(blob)
    objects.pages += 1
    if not any(make() == page for make in expected):
        line = max((first_difference(page, make()) for make in expected), default=0)
        report("wrong-page", f"{folder}{name} is not what {source}", Oid(raw=blob), f"{folder}{name}", line)


def first_difference(page: bytes, expected: bytes) -> int:
    """Return the number of the first line of a page that differs from what is expected, the last one if only
    lines below it are missing."""
    lines, wanted = page.split(b"\n"), expected.split(b"\n")
    same = next(
        (at for at, (one, other) in enumerate(zip(lines, wanted, strict=False)) if one != other), None
    )
    number = min(len(lines), len(wanted)) if same is None else same
    return max(min(number + 1, len(page.splitlines())), 1)
