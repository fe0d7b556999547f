"""Failed attempts: `refs/uwf/attempts/<ULID>`, a chain of commits beside the thread.

They keep everything an agent produced, and the next step can resume one. A commit's first parent is the
previous attempt, or the head if there is none; if the head has moved since, it is the second parent. The tree
is the head's with `attempts/` added.
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import HeadMoved, SigningFailed, StoreDamaged
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import ENDED_BY_USER, Attempt, Revision, parse_attempt
from uwf_git.format.types import ATTEMPT
from uwf_git.format.words import FAILED
from uwf_git.git.repository import Entry, Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Histories, ancestry
from uwf_git.store.index import CommitRow

if TYPE_CHECKING:
    from uwf_git.store.indexing import Store


class FailedAttempt(NamedTuple):
    """An Attempt in its chain: `number` counts from 1, `time` is in Unix seconds."""

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
    code: Revision | None = None
    cause: str = FAILED
    resets_at: int | None = None


class Attempts:
    """The failed attempts of a store's threads."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._repository = store.repository

    def record(self, head: Head, attempt: Attempt) -> FailedAttempt:
        """Record a failed attempt. Moves `refs/uwf/attempts/<ULID>`. Raises HeadMoved if it keeps moving."""
        with self._store.together():
            self._store.store_drafts()
            return self._record(head, attempt)

    def _record(self, head: Head, attempt: Attempt) -> FailedAttempt:
        payload = attempt.payload()
        node = self._store.put(ATTEMPT, payload)
        # Its page is generated from the node, which has no blank texts.
        attempt = parse_attempt(payload)
        ref = layout.ATTEMPTS + head.thread
        for _ in range(10):
            tip = self._repository.ref(ref)
            number = self.count(tip) + 1
            commit = self.write_commit(head, node, attempt, number, tip)
            try:
                self._repository.put_ref(ref, tip, commit)
            except HeadMoved:
                continue
            return self._attempt(self._store.index_commit(commit), number)
        raise HeadMoved(f"{ref} moves too often to add an attempt", "repeat")

    def tip(self, thread: ThreadId) -> Oid | None:
        """Return the commit of a thread's newest attempt."""
        tip = self._repository.ref(layout.ATTEMPTS + thread)
        if tip is None and (folded := self._store.folded(thread)) and folded.attempts:
            tip = Oid(raw=folded.attempts)
        return tip

    def tips(self, threads: Sequence[ThreadId]) -> dict[ThreadId, Oid]:
        """Return the commits of the newest attempts at those of many threads that have one."""
        refs = self._repository.refs_named([layout.ATTEMPTS + thread for thread in threads])
        oids = {layout.thread_of(name): oid for name, oid in refs.items()}
        folded = self._store.folded_among([thread for thread in threads if thread not in oids])
        return {**{thread: Oid(raw=row.attempts) for thread, row in folded.items() if row.attempts}, **oids}

    def all(self, thread: ThreadId) -> list[FailedAttempt]:
        """Return a thread's attempts, oldest first."""
        tip = self.tip(thread)
        rows = self.rows(tip) if tip is not None else []
        return [self._attempt(row, number) for number, row in enumerate(rows, 1)]

    def rows(self, tip: Oid) -> list[CommitRow]:
        """Return the attempts up to a commit, oldest first."""
        return list(takewhile(lambda row: row.kind == "attempt", ancestry(self._store, tip)))[::-1]

    def put_on(self, tip: Oid, row: CommitRow) -> Oid:
        """Commit an attempt again on top of another, without a ref."""
        oid = Oid(raw=row.oid)
        old = self._repository.commit(oid)
        added = [
            entry
            for entry in self._folders(old.tree)
            if entry.name.endswith(f"-{layout.slug(row.role or '')}")
        ]
        if not added:
            raise StoreDamaged(f"commit {oid} has no folder for its attempt", "see: uwf verify")
        number = self.count(tip) + 1
        before = self._repository.file(self._repository.commit(tip).tree, "attempts")
        assert before is not None
        tree = self._repository.graft(old.tree, ["attempts"], before)
        folder = layout.attempt_folder(number, row.role or "")
        tree = self._repository.graft(tree, folder, added[-1].oid)
        message = re.sub(r"^attempt \d+", f"attempt {number:04d}", old.message)
        head = self.head_of(oid)
        parents = (tip,) if self.head_of(tip) == head else (tip, head)
        commit = self._repository.rewrite_commit(oid, tree, parents, message, resigns=True)
        self._store.index_commit(commit)
        return commit

    def _folders(self, tree: Oid) -> tuple[Entry, ...]:
        folder = self._repository.file(tree, "attempts")
        return self._repository.tree(folder) if folder else ()

    def head_of(self, attempt: Oid) -> Oid:
        """Return the head that an attempt was made on."""
        while True:
            parents = self._repository.commit(attempt).parents
            if len(parents) > 1 or self._store.index_commit(parents[0]).kind != "attempt":
                return parents[-1]
            attempt = parents[0]

    def last(self, head: Head) -> Attempt | None:
        """Return the newest attempt if it was made on this head."""
        tip = self._repository.ref(layout.ATTEMPTS + head.thread)
        if tip is None:
            return None
        row = self._store.index_commit(tip)
        prev = head.node if head.row.kind == "step" else None
        attempt = self._store.attempt(row.node) if row.kind == "attempt" else None
        return attempt if attempt is not None and attempt.prev == prev else None

    def newest(self, thread: ThreadId) -> tuple[int, int] | None:
        """Return the number of a thread's newest attempt, and its time in Unix seconds."""
        tip = self.tip(thread)
        return None if tip is None else (self.count(tip), self._store.index_commit(tip).time)

    def failed(self, head: Head) -> bool:
        """Return whether the newest event on this head is a failed attempt. One that the user interrupted or
        paused doesn't count."""
        attempt = self.last(head)
        return attempt is not None and attempt.error not in ENDED_BY_USER

    def count(self, tip: Oid | None) -> int:
        """Return the number of attempts up to a commit; None is 0."""
        return len(self._folders(self._repository.commit(tip).tree)) if tip else 0

    def write_commit(self, head: Head, node: Hash, attempt: Attempt, number: int, tip: Oid | None) -> Oid:
        """Commit an attempt on a head, after the attempts up to `tip`. Touches no ref."""
        from uwf_git.store.pages import attempt_page

        detail = self._store.get(attempt.detail) if attempt.detail else None
        tree = self._repository.commit(head.commit).tree
        if tip is not None:
            before = self._repository.file(self._repository.commit(tip).tree, "attempts")
            if before is not None:
                tree = self._repository.graft(tree, ["attempts"], before)
        stop = frozenset(h for h in (attempt.start, attempt.prev) if h)
        files = self._store.files(node, stop)
        credit = Histories(self._store).credit(attempt)
        files["README.md"] = attempt_page(attempt, detail, credit)
        folder = self._repository.write_folder(files)
        tree = self._repository.graft(tree, layout.attempt_folder(number, attempt.role), folder)
        text = layout.attempt_message(number, node, attempt)
        parents = [tip] if tip is not None else []
        if tip is None or self.head_of(tip) != head.commit:
            parents.append(head.commit)
        author = layout.agent_author(credit)
        try:
            return self._repository.write_commit(tree, parents, author, text)
        except SigningFailed:  # failed work is kept anyway, and its commit shows that it is unsigned
            return self._repository.write_commit(tree, parents, author, text, sign=False)

    def _attempt(self, row: CommitRow, number: int) -> FailedAttempt:
        fields = self._store.attempt(row.node)._asdict()
        del fields["start"]
        return FailedAttempt(row.node, number, time=row.time, **fields)
