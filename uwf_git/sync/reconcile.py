"""Reconciling two sides of a thread: the cases of a pull.

     1  unknown here                      it is made here
     2  equal                             nothing
     3  behind                            fast-forward
     4  ahead                             nothing; a push sends ours
     5  diverged                          theirs keeps the id, ours becomes a fork
     6  ended there, same head here       it ends here
     7  ended there, behind here          it ends here, with the missing steps
     8  ended there, ahead here           it ends here; our later steps become a fork
     9  ended here, theirs has no more    nothing; a push sends the end
    10  ended here, ahead there           it stays ended; their later steps become a fork
    11  ended on both sides               theirs counts; steps that only ours has become a fork
    12  deleted there                     it stays here, and is pushed only by name
    13  workflow with two histories       theirs keeps the name, our version becomes a proposal
    14  node with two timestamps          the same node: the first blob is read
    15  step under two commits            the same step: theirs is kept, our later steps, and the end unless it
                                          was shared, are put on it
    16  invalid                           refused by name; everything else is adopted
    17  paused there                      it is paused here, whatever its steps
    18  resumed there                     it is resumed here, unless paused anew
    19  suite that both added to          it has both additions
    20  fork joined differently           theirs is taken; our join, which no step follows, is dropped

After an exchange an id means the same everywhere, so the side that reached the shared place first keeps it. A
fork's id follows from the thread's id and its first own step, so every store that sees a divergence uses the
same id.

A join is no work: its branches are threads of their own, and keep what their agents did. So case 20 counts where
ours is a join alone, whatever theirs is, also in cases 8 and 11, and in 10 if only the join ended it and no remote
has that. Where theirs is a join alone and becomes a fork, which others may know by then, the fork has ended.

Cases 1 to 11, 15 and 20 are settled here; 12 and 18 by `pull`; 13, 17, 19 and refs of no thread by `adopt`; 14 by
the index; 16 by verification. A fork is made before the old ref moves, so each step of an agent is reachable at any
time.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from uwf_git.base.errors import StoreDamaged
from uwf_git.engine.pause import carry
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.format.ids import ThreadId, fork_id
from uwf_git.git.objects import Person
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import Head, Relation, relate
from uwf_git.store.index import ArchiveRow, CommitRow
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.sync.branches import move_branches
from uwf_git.sync.recommit import put_on
from uwf_git.workflow.turn import is_made_alike


class Case(enum.Enum):
    """A case by its number above and in docs/reference/pull-cases.md."""

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
    PAUSED_THERE = 17
    RESUMED_THERE = 18
    UNITED = 19
    JOINED_TWICE = 20

    @property
    def label(self) -> str:
        """The name in JSON: `ended-there`."""
        return self.name.lower().replace("_", "-")


_BY_HAND = "one of the two was made by hand: delete it there"


class Sides(NamedTuple):
    """The other side's active head and archive tag."""

    active: Oid | None
    tag: Oid | None


class ReconcileResult(NamedTuple):
    """The result for a thread. `fork` is the thread that a side became, `steps` the number of its own steps;
    `ours` whether it is ours."""

    case: Case
    fork: ThreadId | None = None
    steps: int = 0
    ours: bool = False


class ForeignThread(StoreDamaged):
    """Another thread with the same id: it has another start."""

    code = "foreign_thread"


class Reconciler:
    """Reconciles the threads of one store with another. `yields`: the other side keeps the id, as for a
    remote; with a bundle ours does."""

    def __init__(self, instance: Instance, yields: bool = True) -> None:
        self._instance = instance
        self._store = instance.store
        self._repository = instance.store.repository
        self._threads = instance.threads
        self._yields = yields

    def settle(self, thread: ThreadId, theirs: Sides) -> ReconcileResult:
        """Settle a thread. Moves `refs/uwf/threads/<ULID>`, `refs/uwf/archive/<ULID>`, and makes those of the
        fork. Raises Busy during its step, ForeignThread, HeadMoved."""
        with self._instance.locks.hold(thread):
            archive = self._store.index_tag(theirs.tag) if theirs.tag else None
            head = Oid(raw=archive.target) if archive else theirs.active
            assert head is not None
            settled = self._settle(thread, head, archive)
            if archive and theirs.active and theirs.active.raw != archive.target:
                settled = self._beyond_the_end(thread, head, theirs.active, settled)
            return settled

    def _settle(self, thread: ThreadId, head: Oid, archive: ArchiveRow | None) -> ReconcileResult:
        mine = self._known(thread)
        if mine is None:  # 1
            name, target = (layout.ARCHIVE, Oid(raw=archive.oid)) if archive else (layout.THREADS, head)
            self._repository.create_ref(name + thread, target)
            return ReconcileResult(Case.UNKNOWN)
        relation = relate(self._store, mine.commit, head)
        if relation is None:
            raise ForeignThread(f"thread {thread} has another beginning there than here", _BY_HAND)
        if mine.archive and archive:
            return self._ended_twice(mine, mine.archive, archive, relation)
        if mine.archive:
            return self._ended_here(mine, head, relation)
        if archive:
            return self._ended_there(mine, archive, relation)
        return self._both_active(mine, head, relation)

    def _both_active(self, mine: Head, head: Oid, relation: Relation) -> ReconcileResult:
        if mine.commit == head:  # 2
            return ReconcileResult(Case.EQUAL)
        if not relation.ours:  # 3, or 15 if the same steps were committed again
            if not self._yields and not relation.same_commits:
                return self._keep_copies(mine.thread, relation)
            self._move(mine, head)
            if not relation.same_commits:
                move_branches(self._instance, relation.our_base, relation.base)
            return ReconcileResult(
                Case.BEHIND if relation.same_commits and relation.theirs else Case.TWO_COMMITS
            )
        if not relation.theirs:
            if relation.same_commits or not self._yields:  # 4
                return ReconcileResult(Case.AHEAD)
            moved = put_on(self._store, relation.base, relation.ours)
            self._move(mine, moved)  # 15
            move_branches(self._instance, mine.commit, moved)
            return ReconcileResult(Case.TWO_COMMITS)
        if not self._yields:  # 5, of a bundle
            return self._keep_theirs(Case.DIVERGED, mine.thread, relation)
        if _is_made_alike(relation.ours):  # 20
            self._move(mine, head)
            return ReconcileResult(Case.JOINED_TWICE)
        fork = self._keep_ours(mine, relation)  # 5
        self._move(mine, head)
        return ReconcileResult(Case.DIVERGED, fork, len(relation.ours), ours=True)

    def _ended_there(self, mine: Head, archive: ArchiveRow, relation: Relation) -> ReconcileResult:
        if not relation.ours and not self._yields and not relation.same_commits:
            return self._keep_copies(mine.thread, relation, archive)
        if not relation.ours:  # 6, 7
            self._end(mine, archive)
            return ReconcileResult(Case.ENDED_THERE_BEHIND if relation.theirs else Case.ENDED_THERE)
        if not self._yields:  # 4, 5, of a bundle
            if not relation.theirs:
                return ReconcileResult(Case.AHEAD)
            return self._keep_theirs(Case.DIVERGED, mine.thread, relation, archive)
        if _is_made_alike(relation.ours):  # 20
            self._end(mine, archive)
            return ReconcileResult(Case.ENDED_THERE_BEHIND if relation.theirs else Case.ENDED_THERE)
        fork = self._keep_ours(mine, relation)  # 8
        self._end(mine, archive)
        return ReconcileResult(Case.ENDED_THERE_AHEAD, fork, len(relation.ours), ours=True)

    def _keep_copies(
        self, thread: ThreadId, relation: Relation, archive: ArchiveRow | None = None
    ) -> ReconcileResult:
        """A bundle has our steps in other commits: ours stay, and steps beyond them become a fork."""
        if not relation.theirs:
            return ReconcileResult(Case.AHEAD)
        return self._keep_theirs(Case.DIVERGED, thread, relation, archive)

    def _ended_here(self, mine: Head, head: Oid, relation: Relation) -> ReconcileResult:
        if (
            not relation.theirs
            and not relation.same_commits
            and self._yields
            and not self._is_end_shared(mine)
        ):
            return self._end_anew(mine, relation)  # 15
        if not relation.theirs or self._is_kept(mine.thread, relation):  # 9
            return ReconcileResult(Case.ENDED_HERE)
        if self._is_ended_by_join(mine, relation):  # 20
            self._begin_again(mine, head)
            return ReconcileResult(Case.JOINED_TWICE)
        return self._keep_theirs(Case.ENDED_HERE_BEHIND, mine.thread, relation)  # 10

    def _is_ended_by_join(self, mine: Head, relation: Relation) -> bool:
        """Return whether our end followed from a join that no other store may have seen."""
        assert mine.archive is not None
        return (
            self._yields
            and _is_made_alike(relation.ours)
            and mine.archive.status in (COMPLETED, FAILED)
            and not self._is_end_shared(mine)
        )

    def _begin_again(self, mine: Head, head: Oid) -> None:
        assert mine.archive is not None
        name = layout.THREADS + mine.thread
        self._repository.put_ref(name, self._repository.ref(name), head)
        self._repository.delete_ref(layout.ARCHIVE + mine.thread, Oid(raw=mine.archive.oid))

    def _is_end_shared(self, mine: Head) -> bool:
        """Return whether another store may have seen our end."""
        name = layout.ARCHIVE + mine.thread
        names = (layout.tracking(remote.name, name) for remote in self._instance.remotes.all())
        return self._repository.ref(name) is None or any(self._repository.ref(item) for item in names)

    def _end_anew(self, mine: Head, relation: Relation) -> ReconcileResult:
        assert mine.archive is not None
        name = layout.ARCHIVE + mine.thread
        moved = put_on(self._store, relation.base, relation.ours)
        message = layout.end_message(mine.archive.status, mine.archive.reason)
        tag = self._repository.write_tag(layout.tag_name(mine.thread), moved, message)
        self._store.index_tag(tag)
        self._repository.move_ref(name, Oid(raw=mine.archive.oid), tag)
        return ReconcileResult(Case.TWO_COMMITS)

    def _ended_twice(
        self, mine: Head, ours: ArchiveRow, theirs: ArchiveRow, relation: Relation
    ) -> ReconcileResult:
        if ours.oid == theirs.oid:  # 2
            return ReconcileResult(Case.EQUAL)
        if not self._yields:  # 11, of a bundle
            if not relation.theirs:
                return ReconcileResult(Case.ENDED_TWICE)
            return self._keep_theirs(Case.ENDED_TWICE, mine.thread, relation, theirs)
        name, old = layout.ARCHIVE + mine.thread, Oid(raw=ours.oid)
        if self._repository.ref(name) != old:
            return self._ended_in_a_fold(mine, theirs, relation)
        kept = None
        if relation.ours and not _is_made_alike(relation.ours):  # 11
            kept = self._keep_ours(mine, relation)
        self._repository.move_ref(name, old, Oid(raw=theirs.oid))
        return ReconcileResult(Case.ENDED_TWICE, kept, len(relation.ours), ours=True)

    def _ended_in_a_fold(self, mine: Head, archive: ArchiveRow, relation: Relation) -> ReconcileResult:
        if relation.ours and not _is_made_alike(relation.ours):
            self._keep_ours(mine, relation)
        if not relation.theirs or self._is_kept(mine.thread, relation):
            return ReconcileResult(Case.ENDED_TWICE)
        return self._keep_theirs(Case.ENDED_TWICE, mine.thread, relation, archive)

    def _beyond_the_end(
        self, thread: ThreadId, end: Oid, active: Oid, settled: ReconcileResult
    ) -> ReconcileResult:
        """Their active ref continues after their own archive, pushed without knowing of the end: the end
        counts, and later steps are kept as in case 10."""
        return self.keep_beyond(thread, end, active) or settled

    def keep_beyond(
        self, thread: ThreadId, end: Oid, head: Oid, ended: ArchiveRow | None = None, wanted: bool = False
    ) -> ReconcileResult | None:
        """Keep the steps up to `head` that `end` lacks, with their end, as in case 10. None if there are
        none, they are kept already, or their fork was removed here, unless `wanted`. Raises ForeignThread."""
        relation = relate(self._store, end, head)
        if relation is None:
            raise ForeignThread(f"thread {thread} has another beginning than its end", _BY_HAND)
        if not relation.theirs or self._is_kept(thread, relation, wanted):
            return None
        return self._keep_theirs(Case.ENDED_HERE_BEHIND, thread, relation, ended)

    def end_as(self, thread: ThreadId, tag: Oid) -> ReconcileResult:
        """End a thread that is active here, as in cases 6 to 8. The caller holds its lock. Raises ForeignThread."""
        archive = self._store.index_tag(tag)
        return self._settle(thread, Oid(raw=archive.target), archive)

    def _is_kept(self, thread: ThreadId, relation: Relation, wanted: bool = False) -> bool:
        there = self._keeper(thread, relation.theirs)
        if there is None:
            side = fork_id(thread, relation.theirs[0].node)
            return not wanted and self._repository.ref(layout.REMOVED + side) is not None
        anew = relate(self._store, there.commit, Oid(raw=relation.theirs[-1].oid))
        if anew is None or not anew.theirs:
            return anew is not None
        return bool(anew.ours or there.archive) and self._is_kept(there.thread, anew, wanted)

    def _keeper(self, thread: ThreadId, rows: tuple[CommitRow, ...]) -> Head | None:
        """Return the fork that keeps steps of a thread, by the id that follows from the first; if that was
        removed, a fork of it."""
        fork = fork_id(thread, rows[0].node)
        ids = [fork, *(fork_id(fork, row.node) for row in rows[1:])]
        return next((there for name in ids if (there := self._known(name))), None)

    # Moving refs

    def _known(self, thread: ThreadId) -> Head | None:
        return self._threads.head(thread) if self._threads.exists(thread) else None

    def _move(self, mine: Head, head: Oid) -> None:
        self._repository.move_ref(layout.THREADS + mine.thread, mine.commit, head)

    def _end(self, mine: Head, archive: ArchiveRow) -> None:
        self._repository.create_ref(layout.ARCHIVE + mine.thread, Oid(raw=archive.oid))
        self._repository.delete_ref(layout.THREADS + mine.thread, mine.commit)
        self._threads.drop(layout.PAUSED + mine.thread)
        self._threads.drop(layout.RESUMED + mine.thread)

    def _keep_theirs(
        self, case: Case, thread: ThreadId, relation: Relation, ended: ArchiveRow | None = None
    ) -> ReconcileResult:
        fork = self._keep(thread, relation.base, relation.theirs, ended)
        if ended is None and _is_made_alike(relation.theirs) and not self._threads.has_ended(fork):
            self._threads.archive(
                self._threads.head(fork), KILLED, f"thread {thread} ended without this join"
            )
        return ReconcileResult(case, fork, len(relation.theirs))

    def _keep_ours(self, mine: Head, relation: Relation) -> ThreadId:
        fork = self._keep(mine.thread, relation.our_base, relation.ours, mine.archive)
        tip = self._repository.ref(layout.ATTEMPTS + mine.thread)
        if tip is not None and self._repository.ref(layout.ATTEMPTS + fork) is None:
            self._repository.create_ref(layout.ATTEMPTS + fork, tip)
        if mine.archive is None:
            carry(self._instance, mine.thread, fork)
        folder = self._instance.folders.recall(mine.thread)
        if folder is not None:
            self._instance.folders.remember(fork, folder)
        return fork

    def _keep(
        self, thread: ThreadId, base: Oid, rows: tuple[CommitRow, ...], ended: ArchiveRow | None = None
    ) -> ThreadId:
        """Keep the steps after `base` as a fork, whose id follows from the first. An existing one advances;
        if it has its own steps or has ended, the rest becomes another fork. Returns the thread with the last
        step."""
        fork, head = fork_id(thread, rows[0].node), Oid(raw=rows[-1].oid)
        there = self._keeper(thread, rows)
        if there is None:
            self._threads.part(thread, fork, base, head)
            there = self._threads.head(fork)
        else:
            fork = there.thread
            relation = relate(self._store, there.commit, head)
            if relation is None:
                raise ForeignThread(f"thread {fork} is not the other side of {thread}", "it was made by hand")
            if not relation.theirs:
                return fork
            if relation.ours or there.archive:
                return self._keep(fork, relation.base, relation.theirs, ended)
            with self._instance.locks.hold(fork):
                self._move(there, head)
            there = self._threads.head(fork)
        if ended and not there.archive:
            self._threads.archive(there, ended.status, ended.reason)
        return fork


def _is_made_alike(rows: tuple[CommitRow, ...]) -> bool:
    """Return whether nothing is lost with a side's own steps."""
    return len(rows) == 1 and is_made_alike(rows[0].role)


def settle_attempts(instance: Instance, thread: ThreadId, theirs: Oid) -> bool:
    """Append our failed attempts to theirs. Moves `refs/uwf/attempts/<ULID>`; returns whether it did."""
    repository, attempts = instance.store.repository, instance.attempts
    ref = layout.ATTEMPTS + thread
    ours, folded = repository.ref(ref), instance.store.folded(thread)
    known = ours or (Oid(raw=folded.attempts) if folded and folded.attempts else None)
    mine = attempts.rows(known) if known else []
    if theirs.raw in {row.oid for row in mine}:
        return False
    there = {row.node for row in attempts.rows(theirs)}
    tip = theirs
    for row in mine:
        if row.node not in there:
            tip = attempts.put_on(tip, row)
    repository.put_ref(ref, ours, tip)
    return True


def unite(store: Store, ours: Oid, theirs: Oid) -> Oid:
    """Return a commit with all of two growing histories, such as a suite's: one of them if it contains the
    other, else a new one with both as parents, the same on every machine. Moves no ref."""
    if goes_on(store, ours, theirs):
        return ours
    if goes_on(store, theirs, ours):
        return theirs
    repository = store.repository
    first, second = sorted((ours, theirs), key=str)
    one, other = repository.commit(first), repository.commit(second)
    tree = repository.united(one.tree, other.tree)
    row = store.index_commit(first)
    text = layout.united_message(row.kind, row.node, row.name or "")
    nobody, when = Person("uwf", "uwf@localhost"), max(one.time, other.time)
    oid = repository.write_commit(tree, [first, second], nobody, text, when, committer=nobody)
    store.index_commit(oid)
    return oid


def goes_on(store: Store, commit: Oid, earlier: Oid) -> bool:
    """Return whether records of the same kind lead from a commit to an earlier one, or it is that."""
    kind = store.index_commit(commit).kind
    pending, seen = [commit], {commit}
    while pending:
        at = pending.pop()
        if at == earlier:
            return True
        for parent in store.repository.commit(at).parents[:2]:
            if parent not in seen and store.index_commit(parent).kind == kind:
                seen.add(parent)
                pending.append(parent)
    return False
