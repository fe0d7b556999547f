"""History that a remote has rewritten: a ref that no longer continues what this store has seen there.

No command of uwf makes such a ref, since pushes never force; somebody replaced it with plain git, or on the server. A
position counts as seen once it was verified and adopted, or pushed from here (`sync.seen`). Now continues before if

    thread      the head's first parents lead to the head seen, and an archive tag seen is the same, byte for byte; an
                active ref beside it has no copies of the thread's steps in other commits. An end by someone who did not
                know of the head seen may part from it, if that head is still there: in the active ref, or in a fork
    workflow, crew, baseline    its first parents lead to the version seen
    suite, attempts, approvals  its parents lead to the commit seen
    fold        each thread is as one with the archive tag that the fold has
    node, fork  it is the same object
    pause       always: pauses come and go
    policy      `trust.policies` says

If instead before continues now, the remote was rolled back: nothing is replaced, and a push brings it forward again.

Two machines may commit one step independently, such as an imported one. Then the remote's commit is taken, unless ours
is signed and was shared with any remote and theirs is unsigned: that is a copy without the signature.

    refs/uwf/rewritten/<remote>/threads/<ULID>            what a remote has in place of what was seen; likewise others
    refs/uwf/rewritten/<remote>/accepted/threads/<ULID>   what was here before it was accepted
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from uwf_git.base.errors import NotFound, Rewritten, StoreDamaged, UwfError
from uwf_git.base.text import iso, one_line
from uwf_git.format.ids import ThreadId
from uwf_git.git.objects import LATEST, is_signed, parse_commit, parse_tag
from uwf_git.git.repository import COMMIT, TAG, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.history import ancestry, may_have_parted, relate, tagged_commit
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.sync.reconcile import goes_on
from uwf_git.sync.seen import Seen, every

_CONTINUES = ("version", "grow", "attempts")
_FIXED = ("replace", "fork")
"""How refs of a kind are settled, if each position continues the one before, and if there is only one."""


class Author(NamedTuple):
    """Who made a commit or tag, by their own account: `Name <address>`, and when in Unix seconds."""

    name: str
    time: int
    is_signed: bool

    def to_json(self) -> dict[str, Any]:
        return {"by": self.name, "at": self.time, "signed": self.is_signed}

    def __str__(self) -> str:
        return f"{self.name or 'nobody'}, {iso(self.time)}{'' if self.is_signed else ', unsigned'}"


class Rewrite(NamedTuple):
    """A ref of a remote that does not continue what was `seen` there. `step` is the number of the first commit of a
    thread that differs, 0 for its start, None if that is unknown or it is about its end. With `is_rollback`, it is an
    earlier position of the same history."""

    remote: str
    ref: str
    thread: ThreadId | None
    step: int | None
    seen: Oid
    now: Oid
    before: Author | None
    after: Author | None
    is_rollback: bool = False

    @property
    def name(self) -> str:
        """What accepts and rejects it: a thread's id, or the end of the ref's name."""
        return self.thread or self.ref.removeprefix(layout.NAMESPACE)

    @property
    def subject(self) -> str:
        if self.thread:
            return f"thread {self.thread}"
        word = layout.word_for(self.ref)
        return f"{word} {self.ref.rpartition('/')[2]}" if word else self.name

    @property
    def message(self) -> str:
        if self.is_rollback:
            return f"{self.subject} was rolled back on {self.remote}: what was seen there is missing"
        what = "its end" if self.ref.startswith(layout.ARCHIVE) and self.step is None else "it"
        what = f"step {self.step}" if self.step else "its start" if self.step == 0 else what
        text = f"{self.subject} was rewritten on {self.remote}: {what}"
        text += f" is now by {self.after}" if self.after else " is not the one seen there"
        return text + (f"; it was by {self.before}" if self.before else "")

    @property
    def hint(self) -> str:
        if self.is_rollback:
            return f"uwf push {self.remote} brings it there again"
        where = "" if self.remote == "origin" else f" --remote {self.remote}"
        return (
            f"yours is kept; uwf remote reject-rewrite {self.name}{where} pushes it back, "
            f"uwf remote accept-rewrite {self.name}{where} takes theirs"
        )

    def error(self) -> Rewritten:
        return Rewritten(self.message, self.hint)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"ref": self.ref, "remote": self.remote}
        if self.thread:
            value["thread"] = self.thread
        if self.step is not None:
            value["step"] = self.step
        return {
            **value,
            "seen": str(self.seen),
            "now": str(self.now),
            "before": self.before.to_json() if self.before else None,
            "after": self.after.to_json() if self.after else None,
            "message": self.message,
        }


class RemoteHistory:
    """Holds a remote's `refs` against what was seen there. `tracked` are its tracking refs before a fetch, which count
    if they lead to adopted history. All commits to compare must be verified. Moves no ref."""

    def __init__(
        self, store: Store, remote: str, refs: Mapping[str, Oid], tracked: Mapping[str, Oid] | None = None
    ) -> None:
        self._seen = Seen(store.repository.private, remote)
        self._store = store
        self._repository = store.repository
        self._remote = remote
        self._refs = refs
        self._tracked = tracked or {}
        self._positions: dict[str, Oid | None] = {}

    def position(self, ref: str) -> Oid | None:
        """Return where a ref was seen: by the record, else by a fold, else by a tracking ref that leads to adopted
        history."""
        if ref not in self._positions:
            self._positions[ref] = self._position(ref)
        return self._positions[ref]

    @property
    def positions(self) -> dict[str, Oid]:
        """The positions that refs were compared with."""
        return {ref: oid for ref, oid in self._positions.items() if oid is not None}

    def _position(self, ref: str) -> Oid | None:
        if (oid := self._seen.get(ref)) is not None:
            return oid
        if ref.startswith(layout.ARCHIVE):
            row = self._store.folded(layout.thread_of(ref))
            if row is not None and self._seen.get(row.ref) is not None:
                return Oid(raw=row.tag)
        tracked = self._tracked.get(ref)
        return tracked if tracked is not None and self._is_adopted(ref, tracked) else None

    def _is_adopted(self, ref: str, oid: Oid) -> bool:
        kind = ref_kinds.kind_of(ref)
        if ref.startswith(layout.THREADS):
            head = self._head(layout.thread_of(ref))
        else:
            head = self._repository.ref(ref)
        goes_on = kind is not None and kind.settle in ("thread", "version")
        return head is not None and (head == oid or (goes_on and self._leads_to(head, oid)))

    # Kinds of refs

    def of_thread(self, thread: ThreadId, active: Oid | None, tag: Oid | None) -> Rewrite | None:
        """Compare a thread's head and archive tag there; a tag of a fold there is found."""
        folded = self._folded_there.get(thread) if tag is None else None
        if folded is not None:
            return self._of_end(thread, active, folded.tag, folded.ended.target)
        ended = tagged_commit(self._store, tag) if tag is not None else None
        return self._of_end(thread, active, tag, ended)

    @cached_property
    def _folded_there(self) -> Mapping[ThreadId, archives.FoldedThread]:
        threads: dict[ThreadId, archives.FoldedThread] = {}
        for ref, oid in self._refs.items():
            if ref.startswith(layout.FOLDED):
                with suppress(StoreDamaged):  # verification tells of it
                    threads |= archives.read(self._repository, oid).threads
        return threads

    def _of_end(
        self, thread: ThreadId, active: Oid | None, tag: Oid | None, ended: Oid | None
    ) -> Rewrite | None:
        head = ended or active
        if head is None:
            return None
        seen = self.position(layout.ARCHIVE + thread)
        if seen is not None:
            return self._of_seen_end(thread, seen, active, tag, ended)
        seen = self.position(layout.THREADS + thread)
        if seen is not None and not self._leads_to(head, seen):
            is_rollback = self._leads_to(seen, head)
            # Its author may have ended it without knowing of the steps that others had added.
            is_late_end = ended is not None and (is_rollback or self._is_beside(thread, ended, seen))
            if not is_late_end:
                return self._rewrite(layout.THREADS + thread, thread, seen, head, is_rollback=is_rollback)
        return self._copy_without_signature(thread, head, tag)

    def _is_beside(self, thread: ThreadId, end: Oid, seen: Oid) -> bool:
        """Whether the steps seen that an end lacks are still there, and the end has no copies of the others."""
        relation = relate(self._store, end, seen)
        if relation is None or not relation.same_commits:
            return False
        return any(stands_on(self._repository, head, seen) for head in self._heads_beside(thread))

    def _heads_beside(self, thread: ThreadId) -> Iterator[Oid]:
        """Yield the active head there, and the heads of threads that may be its forks. They need not be verified."""
        for ref, oid in self._refs.items():
            if ref.startswith((layout.THREADS, layout.ARCHIVE)) and may_have_parted(
                layout.thread_of(ref), thread
            ):
                head = tagged_commit(self._store, oid) if ref.startswith(layout.ARCHIVE) else oid
                if head is not None:
                    yield head
        for other, entry in self._folded_there.items():
            if may_have_parted(other, thread):
                yield entry.ended.target

    def _of_seen_end(
        self, thread: ThreadId, seen: Oid, active: Oid | None, tag: Oid | None, ended: Oid | None
    ) -> Rewrite | None:
        if tag == seen:
            return self._copies_beside(thread, ended, active) if ended and active else None
        if (folded := self._folded_there.get(thread)) is not None and folded.tag == seen:
            return None  # the end seen is there still, beside another
        if tag is not None or active is None:
            return self._rewrite(layout.ARCHIVE + thread, thread, seen, tag) if tag else None
        end = tagged_commit(self._store, seen)
        is_rollback = end is not None and (self._leads_to(active, end) or self._leads_to(end, active))
        return self._rewrite(layout.THREADS + thread, thread, end or seen, active, is_rollback=is_rollback)

    def _copies_beside(self, thread: ThreadId, end: Oid, active: Oid) -> Rewrite | None:
        """An active ref beside the end may have steps that others made before they knew of it, but no copies of the
        thread's own."""
        relation = relate(self._store, end, active)
        if relation is None or relation.same_commits:
            return None
        return self._rewrite(layout.THREADS + thread, thread, end, active)

    def of_ref(self, ref: str, now: Oid) -> Rewrite | None:
        """Compare a ref that is neither a thread's head nor its end."""
        kind = ref_kinds.kind_of(ref)
        if kind is None or kind.settle not in ("fold", *_CONTINUES, *_FIXED):
            return None
        if kind.settle == "fold":
            return self._of_fold(ref, now)
        seen = self.position(ref)
        if seen is None or seen == now or self._continues(kind.settle, now, seen):
            return None
        thread = layout.thread_of(ref) if kind.of_thread else None
        return self._rewrite(ref, thread, seen, now, is_rollback=self._continues(kind.settle, seen, now))

    def _continues(self, settle: str, commit: Oid, earlier: Oid) -> bool:
        if settle in _FIXED:
            return False
        return self._leads_to(commit, earlier) if settle == "version" else self._contains(commit, earlier)

    def _of_fold(self, ref: str, now: Oid) -> Rewrite | None:
        for thread, entry in archives.read(self._repository, now).threads.items():
            ours = self._store.folded(thread)
            if ours is not None and ours.tag == entry.tag.raw:
                continue
            there = self._refs.get(layout.ARCHIVE + thread)
            if there is not None and there == self.position(layout.ARCHIVE + thread):
                continue  # the end seen is there still
            active = self._refs.get(layout.THREADS + thread)
            rewrite = self._of_end(thread, active, entry.tag, entry.ended.target)
            if rewrite is not None and not rewrite.is_rollback:
                before = self._author(rewrite.seen) or rewrite.before
                return self._rewrite(ref, None, rewrite.seen, now, before, _author(entry.raw))
        return None

    def _copy_without_signature(self, thread: ThreadId, head: Oid, tag: Oid | None) -> Rewrite | None:
        here = self._repository.ref(layout.ARCHIVE + thread)
        if (
            here is not None
            and tag is not None
            and here != tag
            and tagged_commit(self._store, here) == head
            and self._is_signed(here)
            and not self._is_signed(tag)
            and any(seen.get(layout.ARCHIVE + thread) == here for seen in self._everywhere)
        ):
            return self._rewrite(layout.ARCHIVE + thread, thread, here, tag)
        ours = self._head(thread)
        if ours is None or ours == head:
            return None
        relation = relate(self._store, ours, head)
        if relation is None or relation.same_commits:
            return None
        mine, theirs = ancestry(self._store, relation.our_base), ancestry(self._store, relation.base)
        for one, other in zip(mine, theirs, strict=False):
            if one.oid == other.oid or one.node != other.node:
                return None
            old, new = Oid(raw=one.oid), Oid(raw=other.oid)
            if self._is_signed(old) and not self._is_signed(new) and self._was_shared(thread, old):
                return self._rewrite(layout.THREADS + thread, thread, ours, head)
        return None

    @cached_property
    def _everywhere(self) -> list[Seen]:
        return list(every(self._repository.private))

    def _was_shared(self, thread: ThreadId, commit: Oid) -> bool:
        for seen in self._everywhere:
            tag = seen.get(layout.ARCHIVE + thread)
            for head in (tagged_commit(self._store, tag) if tag else None, seen.get(layout.THREADS + thread)):
                if head is not None and self._leads_to(head, commit):
                    return True
        return False

    # Commits

    def _head(self, thread: ThreadId) -> Oid | None:
        tag = self._repository.ref(layout.ARCHIVE + thread)
        return tagged_commit(self._store, tag) if tag else self._repository.ref(layout.THREADS + thread)

    def _leads_to(self, commit: Oid, earlier: Oid) -> bool:
        """Whether the first parents of a commit lead to an earlier one, or it is that."""
        try:
            return any(row.oid == earlier.raw for row in ancestry(self._store, commit))
        except (StoreDamaged, LookupError):
            return False

    def _contains(self, commit: Oid, earlier: Oid) -> bool:
        try:
            return goes_on(self._store, commit, earlier)
        except (StoreDamaged, LookupError):
            return False

    def _rewrite(
        self,
        ref: str,
        thread: ThreadId | None,
        seen: Oid,
        now: Oid,
        before: Author | None = None,
        after: Author | None = None,
        is_rollback: bool = False,
    ) -> Rewrite:
        step = None
        if before is None and after is None:
            old, new = seen, now
            if thread is not None and not ref.startswith(layout.ARCHIVE) and not is_rollback:
                step, old, new = self._first_difference(seen, now)
            before, after = self._author(old), self._author(new)
        return Rewrite(self._remote, ref, thread, step, seen, now, before, after, is_rollback)

    def _first_difference(self, seen: Oid, now: Oid) -> tuple[int | None, Oid, Oid]:
        try:
            before = {row.number: row for row in ancestry(self._store, seen) if row.kind != "workflow"}
            step, old, new = None, seen, now
            for row in ancestry(self._store, now):
                was = before.get(row.number)
                if row.kind == "workflow" or (was is not None and was.oid == row.oid):
                    break
                step, new, old = row.number, Oid(raw=row.oid), Oid(raw=was.oid) if was else seen
        except (StoreDamaged, LookupError):
            return None, seen, now
        return step, old, new

    def _is_signed(self, oid: Oid) -> bool:
        try:
            return is_signed(self._repository.read(oid)[1])
        except (UwfError, LookupError, ValueError):
            return False

    def _author(self, oid: Oid) -> Author | None:
        try:
            kind, data = self._repository.read(oid)
        except (UwfError, LookupError, ValueError):
            return None
        return _author(data) if kind in (COMMIT, TAG) else None


def stands_on(repository: Repository, commit: Oid, earlier: Oid) -> bool:
    """Whether first parents lead from a commit to an earlier one. Reads no record, so neither must be verified."""
    at: Oid | None = commit
    try:
        while at is not None and at != earlier:
            at = next(iter(repository.commit(at).parents), None)
    except (UwfError, LookupError, ValueError):
        return False
    return at is not None


def _author(data: bytes) -> Author | None:
    with suppress(ValueError, LookupError, OverflowError):
        if data.startswith(b"object "):
            tag = parse_tag(data)
            return Author(one_line(tag.tagger, 120), tag.time, is_signed(data))
        commit = parse_commit(data)
        if not 0 <= commit.time <= LATEST:
            return None
        return Author(one_line(commit.committer, 120), commit.time, is_signed(data))
    return None


# Keeping what a remote has


def _prefix(remote: str) -> str:
    return f"{layout.REWRITTEN}{remote}/"


def keep(repository: Repository, remote: str, refs: Mapping[str, Oid]) -> None:
    """Keep what a remote has in place of what was seen, and forget what it had of these threads before. Moves
    `refs/uwf/rewritten/<remote>/…`."""
    threads = {layout.thread_of(ref) for ref in refs if layout.is_thread_ref(ref)}
    for ref in kept(repository, remote).keys() - refs.keys() if threads else ():
        if layout.is_thread_ref(ref) and layout.thread_of(ref) in threads:
            drop(repository, remote, [ref])
    for ref, oid in refs.items():
        repository.set_ref(layout.rewritten(remote, ref), oid)


def kept(repository: Repository, remote: str) -> dict[str, Oid]:
    """Return what a remote had in place of what was seen, by its names of the refs."""
    prefix = _prefix(remote)
    return {
        layout.NAMESPACE + name.removeprefix(prefix): oid
        for name, oid in repository.refs(prefix).items()
        if not name.startswith(prefix + "accepted/")
    }


def drop(repository: Repository, remote: str, refs: Collection[str]) -> None:
    """Delete what is kept of a remote's refs."""
    for ref in refs:
        repository.set_ref(layout.rewritten(remote, ref), None)


def keep_accepted(repository: Repository, remote: str, before: Mapping[str, Oid]) -> None:
    """Keep what was here before a rewrite was accepted, beside what was kept by earlier ones. Moves
    `refs/uwf/rewritten/<remote>/accepted/…`."""
    for ref, oid in before.items():
        name = f"{_prefix(remote)}accepted/{ref.removeprefix(layout.NAMESPACE)}"
        names = [name, *(f"{name}.{number}" for number in range(2, 100))]
        kept_there = {item: repository.ref(item) for item in names}
        if oid not in kept_there.values():
            free = next(item for item in names if kept_there[item] is None)
            repository.create_ref(free, oid)


def find(instance: Instance, remote: str, name: str) -> dict[str, Oid]:
    """Return what is kept of a rewritten thread, by its id or part, or of another ref by the end of its name. Raises
    NotFound."""
    there = kept(instance.store.repository, remote)
    if layout.NAMESPACE + name in there:
        ref = layout.NAMESPACE + name
        return {ref: there[ref]}
    threads = {layout.thread_of(ref) for ref in there if layout.is_thread_ref(ref)}
    wanted = name.upper()
    matching = [thread for thread in threads if thread.startswith(wanted) or thread.endswith(wanted)]
    if len(matching) == 1 and len(wanted) >= 4:
        return {
            ref: oid for ref, oid in there.items() if layout.is_thread_ref(ref) and ref.endswith(matching[0])
        }
    if not there:
        raise NotFound(f"nothing was rewritten on {remote}", f"uwf pull {remote} looks")
    names = sorted(
        {*threads, *(ref.removeprefix(layout.NAMESPACE) for ref in there if not layout.is_thread_ref(ref))}
    )
    raise NotFound(
        f"no rewritten history {one_line(name, 80)} on {remote}", f"there is: {', '.join(names[:5])}"
    )


def rewrites(instance: Instance, remote: str, refs: Mapping[str, Oid]) -> Iterator[Rewrite]:
    """Yield what is rewritten or rolled back among refs of a remote, which must be verified. Moves no ref."""
    history = RemoteHistory(instance.store, remote, refs)
    threads: dict[ThreadId, None] = {}
    for ref, oid in sorted(refs.items()):
        if ref.startswith((layout.THREADS, layout.ARCHIVE)):
            threads[layout.thread_of(ref)] = None
        elif (rewrite := _or_none(history.of_ref, ref, oid)) is not None:
            yield rewrite
    for thread in threads:
        active, tag = refs.get(layout.THREADS + thread), refs.get(layout.ARCHIVE + thread)
        if (rewrite := _or_none(history.of_thread, thread, active, tag)) is not None:
            yield rewrite


def _or_none(compare: Callable[..., Rewrite | None], *args: Any) -> Rewrite | None:
    try:
        return compare(*args)
    except (StoreDamaged, LookupError, ValueError):
        return None  # verification tells of it
