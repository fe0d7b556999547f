"""Which thread was started by which, and which share a past: a sub-workflow's thread belongs to the one that a role of
it does a step for, and a fork to the one whose steps it goes on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import SUBWORKFLOW
from uwf_git.store.history import Head, ancestry, parted_from
from uwf_git.store.index import CommitRow
from uwf_git.store.opened import Instance


def parents(instance: Instance, heads: Sequence[Head]) -> dict[ThreadId, ThreadId]:
    """Of those of the heads' threads that another thread has started, that thread. What this machine has started it
    knows by the session; elsewhere a child is known once its last step is part of the parent. Of forks that share
    that step, the oldest is the parent. Reads no node."""
    merged = _merged(instance)
    owners = instance.sessions.owners(SUBWORKFLOW, (head.thread for head in heads))
    found: dict[ThreadId, ThreadId] = {}
    for head in heads:
        owner = owners.get(head.thread) or merged.get(head.commit.raw, head.thread)
        if owner != head.thread:
            found[head.thread] = ThreadId(owner)
    return {child: parent for child, parent in found.items() if not _within(found, child)}


def _merged(instance: Instance) -> dict[bytes, ThreadId]:
    """The last commits of sub-workflows, and the first of the threads that has them in its history."""
    index = instance.store.index
    found: dict[bytes, ThreadId] = {}
    seen: set[bytes] = set()
    for thread, nested in sorted(index.nested_tips().items()):
        at: bytes | None = nested
        while at is not None and at not in seen:
            seen.add(at)
            row = index.commit(at)
            if row is None or row.merged is None:
                break
            found.setdefault(row.merged, thread)
            before = index.commit(row.parent) if row.parent else None
            at = before.nested if before else None
    return found


def _within(parents: dict[ThreadId, ThreadId], child: ThreadId) -> bool:
    """Whether a thread would be its own ancestor, as only a forged history has it."""
    at, passed = parents.get(child), {child}
    while at is not None and at not in passed:
        passed.add(at)
        at = parents.get(at)
    return at is not None


class Kin(NamedTuple):
    """A thread among those that it belongs to. `how` it does: "fork", "other side" of a divergence, "goes on" from an
    end, or "child" of a step; "" for the one that everything begins with. `at` is the number of the last step that it
    shares with the one above it, or of the step that it did for that; None where it is at work on one. `below` are
    those that came of it, oldest first."""

    head: Head
    how: str
    at: int | None
    below: tuple[Kin, ...]


FAMILY = 40
"""How many threads of one start `kin` looks at; the newest are left out."""


def kin(instance: Instance, head: Head, rows: Sequence[CommitRow]) -> tuple[ThreadId | None, Kin, int]:
    """The thread that has started this one, None where none has; the tree of the threads that share its start, with the
    sub-workflows of this one; and how many threads were left out. `rows` are its own, oldest first. Raises what
    reading the others raises, but for damaged ones, which are left out."""
    heads = [each for each in instance.threads.all(archived=True) if isinstance(each, Head)]
    above = parents(instance, heads)
    children = sorted(each for each in heads if above.get(each.thread) == head.thread)
    found = sorted(each for each in heads if each.row.start == head.row.start and each.thread != head.thread)
    family = sorted([head, *found[: FAMILY - 1]])
    seen: dict[Hash, tuple[ThreadId, int]] = {}
    origin: dict[ThreadId, tuple[ThreadId, int]] = {}
    for each in family:
        own = []
        past = reversed(rows) if each.thread == head.thread else ancestry(instance.store, each.commit)
        for row in past:
            if row.node in seen:
                origin[each.thread] = seen[row.node]
                break
            if row.kind not in ("step", "start"):
                break
            own.append(row)
        # A step that several have is the oldest one's.
        seen.update({row.node: (each.thread, row.number) for row in own})
    did = {row.merged: row.number for row in rows if row.kind == "step" and row.merged is not None}
    below: dict[ThreadId, list[Kin]] = {}
    for each in reversed(children[:FAMILY]):
        below.setdefault(head.thread, []).insert(0, Kin(each, "child", did.get(each.commit.raw), ()))
    for each in reversed(family):
        made = Kin(each, "", None, tuple(below.get(each.thread, ())))
        if (link := origin.get(each.thread)) is not None:
            how = _came(instance, each, link[1])
            below.setdefault(link[0], []).insert(0, made._replace(how=how, at=link[1]))
    left = len(found) + 1 - len(family) + max(0, len(children) - FAMILY)
    return above.get(head.thread), made, left


def _came(instance: Instance, head: Head, at: int) -> str:
    """How a thread came from the one that it shares steps with, the last of which is number `at`."""
    if parted_from(instance.store, head.thread) is not None:
        return "other side"
    end = instance.store.index.commit(head.row.resumed) if head.row.resumed else None
    return "goes on" if end is not None and end.number == at else "fork"
