"""Walks along commits: what a thread's commits record, and where two histories of one thread part.

A step may have been committed twice, on two machines, so histories are compared by their nodes, not by their commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from uwf_git.git.repository import Oid
from uwf_git.store.index import CommitRow
from uwf_git.store.taking_in import Store
from uwf_git.store.threads import Head, History
from uwf_git.values.ids import Hash


def ancestry(store: Store, commit: Oid) -> Iterator[CommitRow]:
    """What a commit and its first parents record, newest first: for a thread its steps, its start, then the
    versions of its workflow. Raises StoreDamaged."""
    row = store.take_in(commit)
    while True:
        yield row
        if row.parent is None:
            return
        row = store.take_in(Oid(raw=row.parent))


class LogEntry(NamedTuple):
    """A commit for people: `kind` and `node` are of what it records, `author` a name, `time` Unix seconds."""

    commit: str
    kind: str
    node: Hash
    subject: str
    author: str
    time: int


def log(store: Store, head: Head) -> Iterator[LogEntry]:
    """The commits of a thread, newest first; the last is the workflow version that it began on."""
    for row in ancestry(store, head.commit):
        commit = store.repository.commit(Oid(raw=row.oid))
        subject, author = commit.message.split("\n", 1)[0], commit.author.rsplit(" <", 1)[0]
        yield LogEntry(row.oid.hex(), row.kind, row.node, subject, author, commit.time)
        if row.kind not in ("step", "start"):
            return


def shared_steps(one: History, other: History) -> int:
    """How many steps two threads have in common, from the first on."""
    number = 0
    for mine, theirs in zip(one.steps, other.steps, strict=False):
        if mine.hash != theirs.hash:
            break
        number += 1
    return number


class Relation(NamedTuple):
    """Two histories of one thread. `ours` and `theirs` are the commits that only one of them has, oldest first;
    `base` is the last common one as theirs has it, `our_base` as ours has it: they differ where the same step was
    committed twice."""

    base: Oid
    our_base: Oid
    ours: tuple[CommitRow, ...]
    theirs: tuple[CommitRow, ...]

    @property
    def same_commits(self) -> bool:
        """Whether what they share is the same down to the commits."""
        return self.base == self.our_base


def relate(store: Store, ours: Oid, theirs: Oid) -> Relation | None:
    """How the histories of two heads relate; None where they don't even share a beginning. Raises StoreDamaged."""
    mine, other = _Walk(store, ours), _Walk(store, theirs)
    while mine.row.number > other.row.number:
        mine.back()
    while other.row.number > mine.row.number:
        other.back()
    while mine.row.node != other.row.node:
        if mine.row.kind != "step" or other.row.kind != "step":
            return None
        mine.back()
        other.back()
    return Relation(
        Oid(raw=other.row.oid), Oid(raw=mine.row.oid), tuple(mine.passed[::-1]), tuple(other.passed[::-1])
    )


class _Walk:
    """A place in a thread's ancestry, with the rows that were passed on the way to it."""

    def __init__(self, store: Store, head: Oid) -> None:
        self._rows = ancestry(store, head)
        self.row = next(self._rows)
        self.passed: list[CommitRow] = []

    def back(self) -> None:
        self.passed.append(self.row)
        self.row = next(self._rows)
