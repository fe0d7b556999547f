"""json-cas (later ocas) folders: a file `<hash>.bin` per node, the deterministic CBOR of `{type, payload,
timestamp}`, at the top or in `nodes/`; and `_index/` with each type's hashes. Hashes are the same as here, so
each node is verified when read."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import xxhash

from uwf_git.base.errors import Invalid, NotFound, UwfError
from uwf_git.ext.importers.folder import Folder
from uwf_git.format import cbor
from uwf_git.format.ids import Hash, crockford13, is_hash
from uwf_git.format.node import Node, hash_of
from uwf_git.git.fsync import sync, sync_folder

LARGEST = 16 << 20  # bytes of a node's file
LATEST = 2**53  # Unix milliseconds
INDEX, META_LIST = "_index", "_meta"
_SUFFIX = ".bin"
# {type, payload, timestamp}: a map of three, with the keys in this order.
_FORM = re.compile(
    rb"\xa3\x64type\x6d([0-9A-Z]{13})\x67payload(.+)\x69timestamp(?:\x1b.{8}|\x1a.{4}|\x19.{2}|\x18.|[\x00-\x17])",
    re.DOTALL,
)
_RECENT = 4 << 20  # bytes of the files of nodes that are asked for again soon


class OldNodes:
    """The nodes of such folders. Invalid files are `problems`."""

    def __init__(self, folders: Iterable[Folder]) -> None:
        self._folders = list(folders)
        self._places: dict[Hash, int] = {}
        self._broken: dict[Hash, str] = {}
        self._recent: OrderedDict[Hash, tuple[Node, int]] = OrderedDict()
        self._size = 0
        self.problems: dict[str, str] = {}
        for place, folder in enumerate(self._folders):
            for name in folder.names():
                if name.endswith(_SUFFIX):
                    stem = name.removesuffix(_SUFFIX)
                    if is_hash(stem):
                        self._places.setdefault(Hash(stem), place)
                    else:
                        self.problems[name] = "its name is not a hash"

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, node: Hash) -> bool:
        return node in self._places

    def __iter__(self) -> Iterator[Hash]:
        return iter(sorted(self._places))

    def verify(self, look_for: Sequence[str], each: Callable[[], object]) -> Iterator[tuple[Hash, Node]]:
        """Check every file and yield nodes with all these keys. `each` is called per file."""
        keys = [cbor.encode(key) for key in look_for]
        for node in self:
            each()
            try:
                data = self._read(node)
                wanted = all(key in data for key in keys)
                if wanted or not _is_hash_of(data, node):
                    yield node, self._node(node, data)
            except UwfError as error:
                self.problems[f"{node}{_SUFFIX}"] = self._broken[node] = error.message
                del self._places[node]

    def get(self, node: Hash) -> Node:
        """Return a node. Raises NotFound, Invalid."""
        if (recent := self._recent.get(node)) is not None:
            return recent[0]
        data = self._read(node)
        content = self._node(node, data)
        self._recent[node] = content, len(data)
        self._size += len(data)
        while self._size > _RECENT:
            _, (_, size) = self._recent.popitem(last=False)
            self._size -= size
        return content

    def _read(self, node: Hash) -> bytes:
        place = self._places.get(node)
        if node in self._broken:
            raise Invalid(self._broken[node])
        if place is None:
            raise NotFound(f"node {node} does not exist")
        return self._folders[place].read(node + _SUFFIX, LARGEST)

    def _node(self, node: Hash, data: bytes) -> Node:
        try:
            content = parse(data)
        except Invalid as error:
            raise Invalid(f"node {node} is damaged: {error.message}") from None
        if not _is_hash_of(data, node):
            actual = hash_of(content.type, content.payload)
            raise Invalid(f"node {node} is damaged: its hash is {actual}")
        return content


def _is_hash_of(data: bytes, node: Hash) -> bool:
    """Return whether a file has a node's beginning, end and hash; `parse` checks the rest."""
    parts = _FORM.fullmatch(data)
    if parts is None:
        return False
    type_, payload = parts.groups()
    if crockford13(xxhash.xxh64_intdigest(type_ + payload)) == node:
        return True
    return type_ == node.encode("ascii") and crockford13(xxhash.xxh64_intdigest(payload)) == node


def parse(data: bytes) -> Node:
    """Parse a node's file. Raises Invalid."""
    value = cbor.decode(data)
    if (
        not isinstance(value, dict)
        or value.keys() != {"type", "payload", "timestamp"}
        or not isinstance(value["type"], str)
        or not is_hash(value["type"])
        or type(value["timestamp"]) is not int
        or not 0 <= value["timestamp"] <= LATEST
    ):
        raise Invalid("it is not {type, payload, timestamp}")
    return Node(Hash(value["type"]), value["payload"], value["timestamp"])


def to_file(node: Node) -> bytes:
    """The inverse of `parse`."""
    value: dict[str, Any] = {"type": node.type, "payload": node.payload, "timestamp": node.timestamp}
    return cbor.encode(value)


class NodeWriter:
    """Writes such a folder; existing nodes stay, leftovers are removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._types: dict[str, list[str]] = {}
        self.written = self.kept = 0
        path.mkdir(parents=True, exist_ok=True)
        for aside in path.glob("*.tmp"):
            if is_hash(aside.stem):
                aside.unlink(missing_ok=True)

    def put(self, node: Hash, content: Node) -> None:
        """Write a node atomically. Raises OSError."""
        file = self._path / f"{node}{_SUFFIX}"
        if os.path.lexists(file):
            self.kept += 1
            return
        aside = self._path / f"{node}.tmp"
        aside.write_bytes(to_file(content))
        aside.rename(file)
        self.written += 1
        self._types.setdefault(content.type, []).append(node)
        if content.type == node:
            self._types.setdefault(META_LIST, []).append(node)

    def close(self) -> None:
        """Write the type lists and sync. Raises OSError."""
        if self._types:
            index = self._path / INDEX
            index.mkdir(exist_ok=True)
            for name, nodes in sorted(self._types.items()):
                with (index / name).open("a", encoding="ascii") as file:
                    file.writelines(f"{node}\n" for node in sorted(nodes))
            sync_folder(self._path)
        sync(self._path.parent)
