"""What a pull can find, and how two histories of one thread relate. Nothing here moves a ref.

     1  unknown here                      it is made here
     2  equal                             nothing
     3  behind                            fast-forward
     4  ahead                             nothing; a push takes ours there
     5  diverged                          theirs keeps the id, ours becomes a thread of its own
     6  ended there, same head here       it ends here
     7  ended there, behind here          it ends here, with the steps that were missing
     8  ended there, ahead here           it ends here; our later steps become a thread of their own
     9  ended here, theirs has no more    nothing; a push takes the end there
    10  ended here, ahead there           it stays ended; their later steps become a thread of their own
    11  ended on both sides               theirs counts; steps that only ours has become a thread
    12  deleted there                     it stays here, and is not pushed again unless it is named
    13  workflow with two histories       theirs keeps the name, our version becomes a proposal
    14  node with two timestamps          the same node: the blob that was here first is read
    15  step under two commits            the same step: theirs is kept, our later steps are put on it
    16  invalid                           refused by name; everything else is taken over

A thread's id means the same everywhere after an exchange, so the side that got to the shared place first
keeps it. The new id follows from the thread's and the first step that isn't shared: every store that
sees a divergence gives its other side the same id.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from uwf_git.git.repository import Oid
from uwf_git.store.index import CommitRow
from uwf_git.store.nodes import Store


class Case(enum.Enum):
    """What a pull found, by its number in the documentation."""

    UNKNOWN = 1
    EQUAL = 2
    BEHIND = 3
    AHEAD = 4
    DIVERGED = 5
    ENDED_THERE = 6
    ENDED_THERE_BEHIND = 7
    ENDED_THERE_AHEAD = 8
    ENDED_HERE = 9
    ENDED_HERE_BEHIND = 10
    ENDED_TWICE = 11
    DELETED_THERE = 12
    TWO_HISTORIES = 13
    TWO_TIMESTAMPS = 14
    TWO_COMMITS = 15
    INVALID = 16

    @property
    def label(self) -> str:
        """Its name in JSON: `ended-there`."""
        return self.name.lower().replace("_", "-")


class Relation(NamedTuple):
    """Two histories of one thread. `ours` and `theirs` are the commits that only one of them has,
    oldest first; `base` the last common one, as theirs has it, and `our_base` as ours has it: they
    differ where the same step was committed twice."""

    base: Oid
    our_base: Oid
    ours: tuple[CommitRow, ...]
    theirs: tuple[CommitRow, ...]

    @property
    def same_commits(self) -> bool:
        """Whether what they share is the same down to the commits."""
        return self.base == self.our_base


def relate(store: Store, ours: Oid, theirs: Oid) -> Relation | None:
    """How two heads relate, by their steps' hashes; None where they share not even a beginning. Both
    must be taken in. Raises StoreDamaged."""
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
    """Goes back through a thread, step by step."""

    def __init__(self, store: Store, head: Oid) -> None:
        self._store = store
        self.row = store.take_in(head)
        self.passed: list[CommitRow] = []

    def back(self) -> None:
        self.passed.append(self.row)
        assert self.row.parent is not None
        self.row = self._store.take_in(Oid(raw=self.row.parent))
