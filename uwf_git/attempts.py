"""Failed attempts: `refs/uwf/attempts/<ULID>`, a chain of commits beside the thread.

Nothing an agent produced is thrown away: what came of a failed step is kept here, and the next step
can carry on from it. A commit's first parent is the attempt before, or the head where there is none;
when the head has moved since, it is the second parent. Its tree is the head's with `attempts/` added.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from uwf_git import layout, views
from uwf_git.errors import HeadMoved
from uwf_git.ids import Hash, ThreadId
from uwf_git.protocol import ATTEMPT
from uwf_git.repository import Oid, Person
from uwf_git.store import Store
from uwf_git.thread import Head


class Attempt(NamedTuple):
    """One failed attempt. `prev` is the head it was made on (None at the start); `time` Unix seconds."""

    hash: Hash
    number: int
    prev: Hash | None
    role: str
    agent: str
    error: str
    detail: Hash | None
    stdout: str
    stderr: str
    time: int


class Attempts:
    """The failed attempts of one store's threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._repository = store.repository

    def record(self, head: Head, payload: dict[str, Any]) -> Attempt:
        """Keeps a failed attempt. Moves `refs/uwf/attempts/<ULID>`."""
        node = self._store.put(ATTEMPT, payload)
        ref = layout.ATTEMPTS + head.thread
        for _ in range(10):
            tip = self._repository.ref(ref)
            number = self._count(tip) + 1
            commit = self._commit(head, node, payload, number, tip)
            try:
                if tip is None:
                    self._repository.create_ref(ref, commit)
                else:
                    self._repository.move_ref(ref, tip, commit)
            except HeadMoved:
                continue
            self._store.take_in(commit)
            return self._attempt(commit, number)
        raise HeadMoved(f"{ref} moves too often to add an attempt", "repeat")

    def all(self, thread: ThreadId) -> list[Attempt]:
        """Every attempt of a thread, oldest first."""
        tip = self._repository.ref(layout.ATTEMPTS + thread)
        commits: list[Oid] = []
        while tip is not None and self._store.take_in(tip).kind == "attempt":
            commits.append(tip)
            parents = self._repository.commit(tip).parents
            tip = parents[0] if parents else None
        return [self._attempt(commit, number) for number, commit in enumerate(reversed(commits), 1)]

    def failed(self, head: Head) -> bool:
        """Whether the last thing that happened on this head was a failed attempt."""
        tip = self._repository.ref(layout.ATTEMPTS + head.thread)
        if tip is None:
            return False
        row = self._store.take_in(tip)
        prev = head.node if head.row.kind == "step" else None
        return row.kind == "attempt" and bool(self._store.get(row.node).payload["prev"] == prev)

    def _count(self, tip: Oid | None) -> int:
        tree = self._repository.file(self._repository.commit(tip).tree, "attempts") if tip else None
        return len(self._repository.tree(tree)) if tree else 0

    def _commit(self, head: Head, node: Hash, payload: dict[str, Any], number: int, tip: Oid | None) -> Oid:
        detail = self._store.get(payload["detail"]) if payload["detail"] else None
        answer = views.answer_of(None, detail.type, detail.payload) if detail else None
        tree = self._repository.commit(head.commit).tree
        if tip is not None:
            before = self._repository.file(self._repository.commit(tip).tree, "attempts")
            if before is not None:
                tree = self._repository.graft(tree, ["attempts"], before)
        stop = frozenset(h for h in (payload["start"], payload["prev"]) if h)
        files: dict[str, bytes | Oid] = {"README.md": views.attempt_readme(payload, answer)}
        for found, _content in self._store.walk(node, stop):
            files[f"nodes/{layout.node_file(found)}"] = self._store.blob_of(found)
        folder = self._repository.write_folder(files)
        tree = self._repository.graft(tree, layout.attempt_folder(number, payload["role"]), folder)
        text = layout.message(
            f"attempt {number:04d} {layout.one_line(payload['role'], 40)}: {payload['error']}",
            {"Uwf-Attempt": node, "Uwf-Role": payload["role"], "Uwf-Agent": payload["agent"]},
        )
        parents = [tip] if tip is not None else []
        if tip is None or self._repository.commit(tip).parents[-1] != head.commit:
            parents.append(head.commit)
        agent = layout.one_line(payload["agent"], 60)
        author = Person(agent, f"{layout.slug(agent)}@agents.invalid")
        return self._repository.write_commit(tree, parents, author, text)

    def _attempt(self, commit: Oid, number: int) -> Attempt:
        row = self._store.take_in(commit)
        payload = self._store.get(row.node).payload
        return Attempt(
            row.node,
            number,
            payload["prev"],
            payload["role"],
            payload["agent"],
            payload["error"],
            payload["detail"],
            payload.get("stdout", ""),
            payload.get("stderr", ""),
            row.time,
        )
