"""An older storage root: registered workflows, and threads with their ends.

    registry.yaml, workflows.yaml   workflow -> hash of its Workflow node
    threads.yaml                    thread -> hash of its head, or {head, status, completedAt, …}
    history.jsonl                   {thread, workflow, head, completedAt, reason} for each that has ended
    _vars.jsonl, _store.db          later variables: @uwf/registry/NAME, @uwf/thread/ID, @uwf/history/ID;
                                    in the root, in vars/, or in the folder of the nodes

Later sources override earlier ones, which migrations left behind as `….migrated`.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base.errors import Invalid, UwfError
from uwf_git.base.text import one_line
from uwf_git.ext.importers.folder import Folder, Source
from uwf_git.ext.importers.json_cas import LATEST
from uwf_git.format.document import MAX_BYTES
from uwf_git.format.ids import Hash, ThreadId, is_hash, is_thread_id, name_problem
from uwf_git.format.node import parse_json

COMPLETED, FAILED, KILLED = "completed", "failed", "killed"
LARGEST_LOG = 64 << 20  # bytes of a file of lines, or of a database
_REGISTRIES = ("registry.yaml", "workflows.yaml")
# A line that begins in the first column, with the indented lines below it.
_BLOCK = re.compile(rb"[^\n]*(?:\n(?:[ \t:#\r-][^\n]*)?(?=\n|\Z))*\n?")
_MOST_BAD = 100
_VARIABLES = "_vars.jsonl"
_DATABASE = "_store.db"
_ENDS = {"end": COMPLETED, "completed": COMPLETED, "failed": FAILED, "cancelled": KILLED, "killed": KILLED}


class OldThread(NamedTuple):
    """A thread and its head. `ended` is None if active, "" if unknown; `when` is its end in Unix
    milliseconds, or 0."""

    id: ThreadId
    head: Hash
    ended: str | None = None
    when: int = 0


class OldStorage(Source):
    """A storage root. `workflows` maps names to Workflow nodes; `folders` have nodes, including the caller's
    `more`."""

    def __init__(self, root: Folder, more: Iterable[Folder] = ()) -> None:
        super().__init__()
        self.workflows: dict[str, Hash] = {}
        self.threads: dict[ThreadId, OldThread] = {}
        self.folders: list[Folder] = []
        bases = [root, *more]
        for base in bases:
            self._find_nodes(base)
        for name in _REGISTRIES:
            self._take_registry(root, f"{name}.migrated")
        self._take_history(root, "history.jsonl.migrated")
        self._take_threads(root, "threads.yaml.migrated")
        for name in _REGISTRIES:
            self._take_registry(root, name)
        self._take_history(root, "history.jsonl")
        self._take_threads(root, "threads.yaml")
        places = {folder.name: folder for folder in [*bases, *self.folders]}
        for base in bases:
            if (variables := self._folder(base, "vars")) is not None:
                places.setdefault(variables.name, variables)
        for folder in places.values():
            self._take_variables(folder)

    @property
    def is_empty(self) -> bool:
        return not (self.folders or self.workflows or self.threads or self.problems)

    def _find_nodes(self, base: Folder) -> None:
        for top in (base, self._folder(base, "cas")):
            for folder in (top, self._folder(top, "nodes") if top is not None else None):
                if folder is not None and any(name.endswith(".bin") for name in folder.names()):
                    self.folders.append(folder)

    # Files

    def _read(self, root: Folder, name: str, at_most: int) -> bytes | None:
        if not root.has(name):
            return None
        try:
            return root.read(name, at_most)
        except UwfError as error:
            self._refuse("file", name, error.message)
            return None

    def _document(self, root: Folder, name: str) -> Mapping[str, Any]:
        data = self._read(root, name, MAX_BYTES)
        if data is None:
            return {}
        try:
            return _mapping(data, name)
        except UwfError as error:
            blocks = _BLOCK.findall(data)
            if len(blocks) < 2:
                self._refuse("file", name, error.message)
                return {}
        found: dict[str, Any] = {}
        line, bad = 1, 0
        for block in blocks:
            try:
                entries = _mapping(block, name)
                if twice := next((key for key in entries if key in found), None):
                    raise Invalid(f"{one_line(twice)} appears twice; the first is used")
                found.update(entries)
            except UwfError as error:
                # The message counts lines from the start of the block.
                self._refuse("file", f"{name}:{line}", error.message.removeprefix(f"{name}:1:1: "))
                bad += 1
                if bad == _MOST_BAD:
                    self._refuse(
                        "file", f"{name}:{line}", "too much of it is not YAML, and what follows is left out"
                    )
                    break
            line += block.count(b"\n")
        return found

    def _take_registry(self, root: Folder, name: str) -> None:
        for workflow, hash_ in self._document(root, name).items():
            self._register(workflow, hash_)

    def _register(self, workflow: str, hash_: object) -> None:
        if problem := name_problem(workflow):
            self._refuse("workflow", workflow, f"its name {problem}")
        elif not isinstance(hash_, str) or not is_hash(hash_):
            self._refuse("workflow", workflow, "what is registered for it is not a hash")
        else:
            self.workflows[workflow] = Hash(hash_)

    def _take_threads(self, root: Folder, name: str) -> None:
        for thread, entry in self._document(root, name).items():
            if not isinstance(entry, dict):
                entry = {"head": entry}
            self._add(thread, entry.get("head"), entry.get("status"), entry.get("completedAt"))

    def _take_history(self, root: Folder, name: str) -> None:
        data = self._read(root, name, LARGEST_LOG)
        for number, value in self._lines(data or b"", name):
            ended = value.get("reason") or ""
            if "thread" not in value:
                self._refuse("file", f"{name}:{number}", "the line names no thread")
            else:
                self._add(value["thread"], value.get("head"), ended, value.get("completedAt"), True)

    def _lines(self, data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, value in lines(data):
            if isinstance(value, str):
                self._refuse("file", f"{name}:{number}", value)
            else:
                yield number, value

    def _add(
        self, thread: object, head: object, status: object, when: object, has_ended: bool = False
    ) -> None:
        name = thread.upper() if isinstance(thread, str) else ""
        if not is_thread_id(name):
            self._refuse("thread", thread, "its id is not a ULID")
            return
        if not isinstance(head, str) or not is_hash(head):
            self._refuse("thread", name, "its head is not a hash")
            return
        ended = _ENDS.get(status) if isinstance(status, str) else None
        if ended is None and has_ended:
            ended = ""
        time = when if type(when) is int and 0 <= when <= LATEST else 0
        self.threads[ThreadId(name)] = OldThread(ThreadId(name), Hash(head), ended, time)

    # Variables

    def _take_variables(self, folder: Folder) -> None:
        data = self._read(folder, _VARIABLES, LARGEST_LOG)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for _, value in self._lines(data or b"", _VARIABLES):
            key = str(value.get("name")), str(value.get("schema"))
            if value.get("__op") == "remove":
                found.pop(key, None)
            else:
                found[key] = value
        for each in [*found.values(), *self._database(folder)]:
            self._take_variable(each)

    def _take_variable(self, variable: Mapping[str, Any]) -> None:
        tags = variable.get("tags")
        tags = tags if isinstance(tags, dict) else {}
        when = tags.get("completedAt")
        when = int(when) if isinstance(when, str) and when.isdigit() and len(when) < 17 else 0
        prefix, _, name = str(variable.get("name")).removeprefix("@uwf/").partition("/")
        if not str(variable.get("name")).startswith("@uwf/"):
            return
        if prefix == "registry":
            self._register(name, variable.get("value"))
        elif prefix == "thread":
            self._add(name, variable.get("value"), tags.get("status"), when)
        elif prefix == "history":
            self._add(name, variable.get("value"), tags.get("reason") or "", when, True)

    def _database(self, folder: Folder) -> list[dict[str, Any]]:
        """Return a database's variables, read from a copy, since opening may write."""
        data = self._read(folder, _DATABASE, LARGEST_LOG)
        if data is None:
            return []
        with tempfile.TemporaryDirectory() as aside:
            copy = Path(aside) / "vars.db"
            copy.write_bytes(data)
            if log := self._read(folder, f"{_DATABASE}-wal", LARGEST_LOG):
                (Path(aside) / "vars.db-wal").write_bytes(log)
            try:
                db = sqlite3.connect(copy)
                try:
                    rows = db.execute("SELECT name, value, tags FROM vars ORDER BY updated, name").fetchall()
                finally:
                    db.close()
            except sqlite3.Error as error:
                self._refuse("file", f"{folder.name}/{_DATABASE}", f"it is not a store of variables: {error}")
                return []
        return [{"name": str(name), "value": value, "tags": _object(tags)} for name, value, tags in rows]


def document(folder: Folder, name: str) -> Mapping[str, Any]:
    """Parse a YAML mapping, empty if missing. Raises Invalid."""
    return _mapping(folder.read(name, MAX_BYTES), name) if folder.has(name) else {}


def _mapping(data: bytes, name: str) -> Mapping[str, Any]:
    from uwf_git.format import yaml12

    # Tolerant: a numeric key belongs to another program and may appear beside ours.
    value = yaml12.load(data, name, tolerant=True).data
    if value is not None and not isinstance(value, dict):
        raise Invalid("it is not a mapping")
    return value or {}


def lines(data: bytes) -> Iterator[tuple[int, dict[str, Any] | str]]:
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


def _object(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}
