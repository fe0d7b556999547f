"""A json-cas folder: a file `<hash>.bin` per node, the deterministic CBOR of `{type, payload, timestamp}`. Hashes
are the same as here, so each node is verified when read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from uwf_git.ext.importers.folder import Folder
from uwf_git.plugin import Hash, Invalid, Node, NotFound, UwfError, cbor, is_hash, node_hash

LATEST = 2**53  # Unix milliseconds
_LARGEST = 16 << 20  # bytes of a node's file
_RECENT = 4 << 20  # bytes of the files of nodes that are asked for again soon
_SUFFIX = ".bin"


class OldNodes:
    """The nodes of such a folder. Invalid files are `problems`."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._nodes: set[Hash] = set()
        self._broken: dict[Hash, str] = {}
        self._recent: OrderedDict[Hash, tuple[Node, int]] = OrderedDict()
        self._size = 0
        self.problems: dict[str, str] = {}
        for name in folder.names() if folder is not None else ():
            if name.endswith(_SUFFIX):
                stem = name.removesuffix(_SUFFIX)
                if is_hash(stem):
                    self._nodes.add(Hash(stem))
                else:
                    self.problems[name] = "its name is not a hash"

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: Hash) -> bool:
        return node in self._nodes

    def __iter__(self) -> Iterator[Hash]:
        return iter(sorted(self._nodes))

    def verify(self, count: Callable[[], object]) -> Iterator[tuple[Hash, Node]]:
        """Check every file and yield the sound nodes. `count` is called per file."""
        for node in self:
            count()
            try:
                yield node, self._read(node)[0]
            except UwfError as error:
                self.problems[f"{node}{_SUFFIX}"] = self._broken[node] = error.message
                self._nodes.remove(node)

    def get(self, node: Hash) -> Node:
        """Return a node. Raises NotFound, Invalid."""
        if (recent := self._recent.get(node)) is not None:
            return recent[0]
        content, size = self._recent[node] = self._read(node)
        self._size += size
        while self._size > _RECENT:
            _, (_, size) = self._recent.popitem(last=False)
            self._size -= size
        return content

    def _read(self, node: Hash) -> tuple[Node, int]:
        """Return a node and the bytes of its file."""
        if node in self._broken:
            raise Invalid(self._broken[node])
        if node not in self._nodes or self._folder is None:
            raise NotFound(f"node {node} does not exist")
        data = self._folder.read(node + _SUFFIX, _LARGEST)
        try:
            content = parse(data)
        except Invalid as error:
            raise Invalid(f"node {node} is damaged: {error.message}") from None
        if (actual := node_hash(content)) != node:
            raise Invalid(f"node {node} is damaged: its hash is {actual}")
        return content, len(data)


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
