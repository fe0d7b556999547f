"""Relations between threads: a sub-workflow's thread and a branch belong to their parent, a fork to the thread whose
steps it shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uwf_git.base.errors import StoreDamaged
from uwf_git.engine.forks import join_at
from uwf_git.format.ids import Hash, ThreadId, by_age
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.format.types import OF_BRANCH
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, ancestry, parted_from
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance
from uwf_git.workflow.turn import gathers_threads


def parents(instance: Instance, heads: Sequence[Head]) -> dict[ThreadId, ThreadId]:
    """Map each child thread to its parent. Local children are known by their session; others once their last
    step is part of the parent; branches by the fork that they stand on: see `parent_of_branch`."""
    merged = _merged(instance)
    owners = instance.sessions.owners(SUBWORKFLOW, (head.thread for head in heads))
    forks = _Forks(instance)
    threads: dict[ThreadId, ThreadId] = {}
    for head in heads:
        owner = owners.get(head.thread) or forks.parent(head) or merged.get(head.commit.raw, head.thread)
        if owner != head.thread:
            threads[head.thread] = ThreadId(owner)
    return {child: parent for child, parent in threads.items() if not _within(threads, child)}


def parent_of_branch(instance: Instance, branch: Head) -> ThreadId | None:
    """Return the thread that has the commit of a branch's fork, None if none here has it. Of several it is one that
    joined the branch's last step, else one whose id tells its age, else one that is not the other side of a
    divergence, else the oldest."""
    return _Forks(instance).parent(branch)


class _Forks:
    """The threads that have the forks of branches."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._starts: frozenset[str] | None = None
        self._threads: dict[Oid, list[tuple[Head, CommitRow | None]]] = {}
        self._by_start: dict[str, list[Head]] | None = None

    def parent(self, head: Head) -> ThreadId | None:
        if self._starts is None:
            self._starts = frozenset(self._instance.store.index.hashes_with(OF_BRANCH))
        if head.row.start not in self._starts or (place := self._instance.threads.fork_of(head)) is None:
            return None
        fork = place[0]
        if fork not in self._threads:
            self._threads[fork] = sorted(self._with(fork), key=lambda item: self._rank(item[0]))
        having = self._threads[fork]
        if len(having) > 1:
            having = sorted(having, key=lambda entry: not self._has_joined(entry[1], head))
        return having[0][0].thread if having else None

    def _with(self, fork: Oid) -> Iterator[tuple[Head, CommitRow | None]]:
        """Yield the threads with a fork, oldest first, and their step after it."""
        row = self._instance.store.index_commit(fork)
        for head in self._of_start(row.start or row.node):
            after = None
            for commit_row in ancestry(self._instance.store, head.commit):
                if commit_row.oid == fork.raw:
                    yield head, after
                if commit_row.number <= row.number:
                    break
                after = commit_row

    def _rank(self, head: Head) -> tuple[bool, bool]:
        is_timeless, _ = by_age(head.thread)
        return is_timeless, parted_from(self._instance.store, head.thread) is not None

    def _has_joined(self, step: CommitRow | None, branch: Head) -> bool:
        if step is None or not gathers_threads(step.role):
            return False
        try:
            return any(end.step == branch.node for end in join_at(self._instance, step.node))
        except StoreDamaged:
            return False

    def _of_start(self, start: str) -> list[Head]:
        if self._by_start is None:
            self._by_start = {}
            heads = (item for item in self._instance.threads.all(archived=True) if isinstance(item, Head))
            for head in sorted(heads, key=_by_age):
                self._by_start.setdefault(head.row.start or head.row.node, []).append(head)
        return self._by_start.get(start, [])


def _merged(instance: Instance) -> dict[bytes, ThreadId]:
    index = instance.store.index
    threads: dict[bytes, ThreadId] = {}
    seen: set[bytes] = set()
    for thread, nested in sorted(index.nested_tips().items()):
        at: bytes | None = nested
        while at is not None and at not in seen:
            seen.add(at)
            row = index.commit(at)
            if row is None or row.merged is None:
                break
            threads.setdefault(row.merged, thread)
            before = index.commit(row.parent) if row.parent else None
            at = before.nested if before else None
    return threads


def _within(parents: dict[ThreadId, ThreadId], child: ThreadId) -> bool:
    """Return whether a thread would be its own ancestor, which only a forged history has."""
    at, passed = parents.get(child), {child}
    while at is not None and at not in passed:
        passed.add(at)
        at = parents.get(at)
    return at is not None


class RelatedThread(NamedTuple):
    """A thread in the tree of its relatives. `how`: "fork", "other side" of a divergence, "goes on" from an
    end, "child" of a step, "branch" of a fork, or "" for the root. `at` is the number of the last shared step, or of
    the child's step or the fork; None while in progress. `below`: oldest first."""

    head: Head
    how: str
    at: int | None
    below: tuple[RelatedThread, ...]


FAMILY = 40
"""How many threads of one start `kin` looks at; the newest are left out."""


def kin(
    instance: Instance, head: Head, rows: Sequence[CommitRow]
) -> tuple[ThreadId | None, RelatedThread, int]:
    """Return the parent thread, if any, the tree of threads that share this one's start, with its
    sub-workflows and branches, and how many were omitted. `rows` are its own, oldest first. Damaged threads are
    omitted.
    """
    heads = [entry for entry in instance.threads.all(archived=True) if isinstance(entry, Head)]
    above = parents(instance, heads)
    children = sorted(entry for entry in heads if above.get(entry.thread) == head.thread)
    relatives = [
        entry for entry in heads if entry.row.start == head.row.start and entry.thread != head.thread
    ]
    relatives.sort(key=_by_age)
    family = sorted([head, *relatives[: FAMILY - 1]], key=_by_age)
    seen: dict[Hash, tuple[ThreadId, int]] = {}
    origin: dict[ThreadId, tuple[ThreadId, int]] = {}
    for item in family:
        own = []
        past = reversed(rows) if item.thread == head.thread else ancestry(instance.store, item.commit)
        for row in past:
            if row.node in seen:
                origin[item.thread] = seen[row.node]
                break
            if row.kind not in ("step", "start"):
                break
            own.append(row)
        # A step that several have is the oldest one's.
        seen.update({row.node: (item.thread, row.number) for row in own})
    did = {row.merged: row.number for row in rows if row.kind == "step" and row.merged is not None}
    below: dict[ThreadId, list[RelatedThread]] = {}
    for item in reversed(children[:FAMILY]):
        how, at = "child", did.get(item.commit.raw)
        if (branch := instance.threads.fork_of(item)) is not None:
            how, at = "branch", instance.store.index_commit(branch[0]).number
        below.setdefault(head.thread, []).insert(0, RelatedThread(item, how, at, ()))
    for item in reversed(family):
        thread = RelatedThread(item, "", None, tuple(below.get(item.thread, ())))
        if (link := origin.get(item.thread)) is not None:
            how = _came(instance, item, link[1])
            below.setdefault(link[0], []).insert(0, thread._replace(how=how, at=link[1]))
    remaining = len(relatives) + 1 - len(family) + max(0, len(children) - FAMILY)
    return above.get(head.thread), thread, remaining


def _by_age(head: Head) -> tuple[bool, ThreadId]:
    return by_age(head.thread)


def _came(instance: Instance, head: Head, at: int) -> str:
    if parted_from(instance.store, head.thread) is not None:
        return "other side"
    end = instance.store.index.commit(head.row.resumed) if head.row.resumed else None
    return "goes on" if end is not None and end.number == at else "fork"
