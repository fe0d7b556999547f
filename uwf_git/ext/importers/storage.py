"""A storage root of json-cas nodes: registered workflows, and threads.

cas/<hash>.bin    the nodes
registry.yaml     workflow -> hash of its Workflow node
threads.yaml      active thread -> hash of its head
history.jsonl     {thread, workflow, head, completedAt} for each thread that has ended
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from uwf_git.ext.importers.folder import Folder, Source
from uwf_git.ext.importers.json_cas import LATEST
from uwf_git.plugin import (
    MAX_DOCUMENT_BYTES,
    Hash,
    Invalid,
    ThreadId,
    UwfError,
    is_hash,
    is_thread_id,
    name_problem,
    parse_json,
)

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
