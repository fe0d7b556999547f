"""A storage root of json-cas nodes: registered workflows, and threads.

cas/<hash>.bin    a node: the deterministic CBOR of {type, payload, timestamp}; hashes are the same as here
registry.yaml     workflow -> hash of its Workflow node
threads.yaml      active thread -> hash of its head
history.jsonl     {thread, workflow, head, completedAt} for each thread that has ended
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.ext.importers.cbor_decoding import decode
from uwf_git.ext.importers.folder import Folder, Source
from uwf_git.plugin import (
    MAX_DOCUMENT_BYTES,
    Hash,
    Invalid,
    Node,
    NotFound,
    ThreadId,
    UwfError,
    is_hash,
    is_thread_id,
    name_problem,
    node_hash,
    parse_json,
)

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
    value = decode(data)
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


_LARGEST_HISTORY = 64 << 20  # bytes


class OldThread(NamedTuple):
    """A thread and its head. `when` is its end in Unix milliseconds, or 0."""

    id: ThreadId
    head: Hash
    has_ended: bool
    when: int = 0


class OldStorage(Source):
    """A storage root. `workflows` maps names to Workflow nodes."""

    def __init__(self, root: Folder) -> None:
        super().__init__()
        self.workflows: dict[str, Hash] = {}
        self.threads: dict[ThreadId, OldThread] = {}
        self.nodes = self._folder(root, "cas")
        for workflow, node in self._document(root, "registry.yaml").items():
            self._register(workflow, node)
        self._take_history(root, "history.jsonl")
        for thread, head in self._document(root, "threads.yaml").items():
            self._add(thread, head)

    @property
    def is_empty(self) -> bool:
        return self.nodes is None and not (self.workflows or self.threads or self.problems)

    def _document(self, root: Folder, name: str) -> Mapping[str, Any]:
        try:
            return document(root, name)
        except UwfError as error:
            self._refuse("file", name, error.message)
            return {}

    def _register(self, workflow: str, node: object) -> None:
        if problem := name_problem(workflow):
            self._refuse("workflow", workflow, f"its name {problem}")
        elif not isinstance(node, str) or not is_hash(node):
            self._refuse("workflow", workflow, "what is registered for it is not a hash")
        else:
            self.workflows[workflow] = Hash(node)

    def _take_history(self, root: Folder, name: str) -> None:
        if not root.has(name):
            return
        try:
            data = root.read(name, _LARGEST_HISTORY)
        except UwfError as error:
            self._refuse("file", name, error.message)
            return
        for number, line in _lines(data):
            if isinstance(line, str):
                self._refuse("file", f"{name}:{number}", line)
            elif "thread" not in line:
                self._refuse("file", f"{name}:{number}", "the line names no thread")
            else:
                self._add(line["thread"], line.get("head"), True, line.get("completedAt"))

    def _add(self, thread: object, head: object, has_ended: bool = False, when: object = 0) -> None:
        name = thread.upper() if isinstance(thread, str) else ""
        if not is_thread_id(name):
            self._refuse("thread", thread, "its id is not a ULID")
            return
        if not isinstance(head, str) or not is_hash(head):
            self._refuse("thread", name, "its head is not a hash")
            return
        time = when if type(when) is int and 0 <= when <= LATEST else 0
        self.threads[ThreadId(name)] = OldThread(ThreadId(name), Hash(head), has_ended, time)


def document(folder: Folder, name: str) -> Mapping[str, Any]:
    """Parse a YAML mapping, empty if missing. Raises Invalid."""
    from uwf_git.plugin import yaml12

    if not folder.has(name):
        return {}
    # Tolerant: a numeric key belongs to another program and may appear beside ours.
    value = yaml12.load(folder.read(name, MAX_DOCUMENT_BYTES), name, tolerant=True).data
    if value is not None and not isinstance(value, dict):
        raise Invalid("it is not a mapping")
    return value or {}


def _lines(data: bytes) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield JSON lines with numbers; unreadable ones as a reason."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line.decode("utf-8"))
        except UwfError as error:
            yield number, error.message
        except UnicodeDecodeError:
            yield number, "it is not UTF-8"
        else:
            yield number, value if isinstance(value, dict) else "the line is not an object"
