"""Comparing a store's refs with the heads that this user has written or seen there.

A head that is gone, or out of its ref's history, is lost. A head that nobody is known to have written is unexplained:
the log may have lost its end, or something else than this user's uwf has moved the ref.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RolledBack, UwfError
from uwf_git.base.text import counted
from uwf_git.format.ids import ThreadId
from uwf_git.git.libgit2 import Oid
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import COMMIT, PRIVATE, TAG, RefMove, Repository
from uwf_git.git.sqlite_cache import boot
from uwf_git.store import layout
from uwf_git.store.witness_log import (
    ACCEPTED,
    BORN,
    GONE,
    KEPT,
    LOST,
    SAW,
    UNKNOWN,
    UNSURE,
    WRITER,
    WROTE,
    Moves,
    Witnessed,
    WitnessLog,
    after,
    state_folder,
    text_of,
)

ACCEPT = "uwf doctor --accept-store"
IF_RIGHT = f"restore it, or if it was moved or removed on purpose: {ACCEPT}"
_MOST_AT_WRITE = 16 << 20  # bytes of a log that is read at the first write: of some 20,000 heads, 50 ms
_OF_THREADS = (layout.THREADS, layout.ARCHIVE)
_DOUBTS = (LOST, UNKNOWN, UNSURE)
_PASSING = (layout.PINS, layout.PAUSED)  # they come and go by nature


class Doubt(NamedTuple):
    """A ref that isn't as the log has it. `kind` is LOST, UNKNOWN or UNSURE, `known` and `now` are objects, "" for
    none; `is_new` if no earlier check has found it. With GONE, the store that stood here, by its `threads` in words."""

    kind: str
    ref: str
    known: str
    now: str
    is_new: bool = True
    threads: str = ""

    @property
    def thread(self) -> ThreadId | None:
        return layout.thread_of(self.ref) if layout.is_thread_ref(self.ref) else None

    @property
    def code(self) -> str:
        """The code of its finding."""
        return "rolled-back" if self.kind == LOST else "unwitnessed"

    @property
    def message(self) -> str:
        if self.kind == GONE:
            return f"{_stood_here(self.threads)}: {IF_RIGHT}"
        what = f"thread {self.thread}" if self.thread else self.ref
        if self.kind == LOST:
            where = f"now at {self.now[:10]}" if self.now else "gone"
            return f"{what} was at {self.known[:10]} here, and is {where}: what was recorded since is no longer in it"
        if self.kind == UNSURE:
            return (
                f"{what} is at {self.now[:10]}, which this user's log of heads lacks: its last lines may be lost, or"
                f" another machine or user wrote it; if you know this head: {ACCEPT}"
            )
        return (
            f"{what} is at {self.now[:10]}, which this user's log of heads lacks; if you know where it comes from:"
            f" {ACCEPT}"
        )


class Witness:
    """The heads of a store that this user knows. `failure` says why the log could not be written or read; what can
    still be read is compared all the same. Writes no ref."""

    def __init__(
        self,
        repository: Repository,
        here: bool,
        environ: Mapping[str, str],
        warn: Callable[[str], None] = lambda text: None,
        named: Path | None = None,
    ) -> None:
        """`named` is the path by which the store was opened."""
        folder = state_folder(environ)
        self._here = here
        self._repository = repository
        self._log = WitnessLog(folder, named or repository.path, repository.private) if folder else None
        self._warn = warn
        self._is_open = False
        # Those of the first check, which a command that writes makes.
        self._doubts: Sequence[Doubt] | None = None
        self._is_told = False
        self.failure = "" if self._log else "HOME is not set"

    @property
    def problem(self) -> str:
        """What `failure` means, in a line, "" without one."""
        return f"heads are not recorded outside the store: {self.failure}" if self.failure else ""

    def on_moves(self, moves: Sequence[RefMove], done: bool) -> None:
        """Record moves of refs: announce them before, append them afterwards. The first of a process checks the
        store."""
        ours = [move for move in moves if _is_witnessed(move.name)]
        if not ours or (log_ := self._opened()) is None:
            return
        if not self._is_told:
            self._is_told = True
            for line in self.complaints(self._checked()):
                self._warn(line)
        with self._failing():
            if done:
                log_.append((WROTE, name, text_of(old), text_of(new)) for name, old, new in ours)
            else:
                log_.announce(ours)

    def raise_if_lost(self, *refs: str) -> None:
        """Raise RolledBack if a known head of one of the refs is lost: what is recorded on what stands there now would
        silently leave out what was recorded before."""
        if any(doubt.kind == LOST and doubt.ref in refs for doubt in self._checked()):
            self._doubts = self.check()  # it may have been restored, or accepted, since
            for doubt in self._doubts:
                if doubt.kind == LOST and doubt.ref in refs:
                    raise RolledBack(doubt.message, self.ways_out(doubt))

    @property
    def misses_any(self) -> bool:
        """Whether a check of this process, if there was one, missed a known head."""
        return any(doubt.kind == LOST for doubt in self._doubts or ())

    def raise_if_any_lost(self) -> None:
        """Raise RolledBack if a known head is lost whose objects are still here."""
        for doubt in self.check():
            if doubt.kind == LOST and self._repository.has(Oid(hex=doubt.known)):
                raise RolledBack(doubt.message, self.ways_out(doubt))

    def ways_out(self, doubt: Doubt) -> str:
        """Return the hint for a lost head."""
        where = "from a copy or a remote"
        if self._repository.has(Oid(hex=doubt.known)):
            where = f"with: {self._repository.by_git} update-ref {doubt.ref} {doubt.known}"
        return f"restore it {where}; if it is right so: {ACCEPT}"

    def complaints(self, doubts: Sequence[Doubt]) -> list[str]:
        """Return what a command should say of doubts: all that is lost, and what is unexplained the first time."""
        lines = []
        if lost := [doubt for doubt in doubts if doubt.kind == LOST]:
            more = f", and {counted(len(lost) - 1, 'more head')}" if len(lost) > 1 else ""
            lines.append(
                f"the store is older than it was, or was changed: {lost[0].message}{more}; see: uwf doctor"
            )
        if unsure := [doubt for doubt in doubts if doubt.kind != LOST and doubt.is_new]:
            more = f", and {counted(len(unsure) - 1, 'more head')}" if len(unsure) > 1 else ""
            lines.append(f"{unsure[0].message}{more}")
        return lines

    def _checked(self) -> Sequence[Doubt]:
        """Return the doubts of this process's first check, none if the log is too long for a command that writes."""
        if self._doubts is None:
            log_ = self._opened()
            self._doubts = self.check() if log_ is not None and log_.size <= _MOST_AT_WRITE else ()
        return self._doubts

    def check(self) -> list[Doubt]:
        """Compare all refs with the log, note the differences, and return the doubts; those of the process's first
        check if the log cannot be read any more."""
        doubts = list(self._doubts or ())
        if (log_ := self._opened()) is None:
            return doubts
        with self._failing():
            refs, state, compared = self._compared_now(log_)
            if any(doubt.kind in _DOUBTS for doubt in compared):
                # Others may have moved heads between the readings of refs and log: what is so stays so.
                before = set(compared)
                refs, state, compared = self._compared_now(log_)
                compared = [doubt for doubt in compared if doubt.kind not in _DOUBTS or doubt in before]
            log_.compact(state)
            changes = []
            doubts = []
            for doubt in compared:
                if doubt.kind == LOST and state.lost.get(doubt.ref) == doubt.known:
                    continue  # an earlier check has noted it
                old, new = doubt.known or "-", doubt.now or "-"
                changes.append((doubt.kind, doubt.ref, old, new))
                if doubt.kind in _DOUBTS:
                    doubts.append(doubt)
            if changes:
                with self._failing():  # the doubts are the same
                    log_.append(changes)
                state = after(state, changes)
            fresh = {(doubt.ref, doubt.kind == LOST) for doubt in doubts}
            doubts += [
                Doubt(LOST, ref, oid, refs.get(ref, ""), False)
                for ref, oid in state.lost.items()
                if (ref, True) not in fresh
            ]
            doubts += [
                Doubt(kind, ref, "", oid, False)
                for ref, (kind, oid) in state.unexplained.items()
                if (ref, False) not in fresh
            ]
            if state.gone:
                doubts.append(Doubt(GONE, "", "", "", threads=_threads_in(state.gone)))
        return sorted(doubts, key=lambda doubt: doubt.ref)

    def accept(self) -> int:
        """Take the refs as they stand for the heads of this store; return their number."""
        if (log_ := self._opened()) is None:
            return 0
        refs = _witnessed(_refs(self._repository))
        with self._failing():
            state = log_.read()
            changes = [(ACCEPTED, "-", "-", "-")]
            changes += [(WRITER, path.name, "-", "-") for path in log_.writers()]
            changes += [(SAW, ref, old, "-") for ref, old in state.heads.items() if ref not in refs]
            changes += [(SAW, ref, state.heads.get(ref, "-"), oid) for ref, oid in refs.items()]
            log_.append(changes)
        return len(refs)

    def born(self) -> None:
        """Note that a new store was made here, and which threads are gone with one that stood here before."""
        if (log_ := self._opened()) is not None:
            with self._failing():
                gone = _threads_there(log_.read())
                log_.append([*((GONE, ref, oid, "-") for ref, oid in gone.items()), (BORN, "-", "-", "-")])

    def _opened(self) -> WitnessLog | None:
        """Return the log; a new one gets the heads that stand. None if there is none, and none can be written."""
        if self._log is not None and not self._is_open:
            with self._failing():
                self._log.open(lambda: _witnessed(_refs(self._repository)))
                self._is_open = True
        return self._log if self._is_open else None

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """The witness must never hinder the work: what fails is told by `uwf doctor`."""
        try:
            yield
        except OSError as error:
            if not self.failure:
                self.failure = f"{error.filename or 'its folder'}: {error.strerror or error}"
                log.warning("6MZ8Q3XD", "the witness failed: {why}", why=self.failure)

    # Comparing

    def _compared_now(self, log_: WitnessLog) -> tuple[dict[str, str], Witnessed, list[Doubt]]:
        """Return the refs and the log's state as they are now, and how they differ."""
        refs, state = _refs(self._repository), log_.read()
        # Heads of a kind that an extension added wait until it is installed again.
        changed = {*filter(_is_witnessed, {ref for ref, _ in refs.items() ^ state.heads.items()})}
        if changed or state.lost or state.gone or state.unexplained:
            return refs, state, [*self._compared(log_, state, _witnessed(refs), changed)]
        return refs, state, []

    def _compared(
        self, log_: WitnessLog, state: Witnessed, refs: Mapping[str, str], changed: Collection[str]
    ) -> Iterator[Doubt]:
        announced = log_.announced() if changed else {}
        others: tuple[Moves, Moves] | None = None
        kept = _Reachable(self._repository, refs, anywhere=self._has_other_writers)
        for ref, known in state.lost.items():
            if ref in refs and kept.has_in(refs[ref], known):
                yield Doubt(KEPT, ref, known, refs[ref])
        for ref, oid in state.gone.items():
            if kept.is_kept(ref, oid):
                yield Doubt(KEPT, ref, oid, "")
        for ref, (_, oid) in state.unexplained.items():
            if ref not in refs or not kept.has_in(refs[ref], oid):
                yield Doubt(KEPT, ref, oid, "")
        for ref in sorted(changed):
            known, now = state.heads.get(ref, ""), refs.get(ref, "")
            if now and now == state.unexplained.get(ref, ("", ""))[1]:
                continue
            if log_.is_announced(announced, ref, known or "-", now or "-"):
                yield Doubt(WROTE, ref, known, now)
            elif not now:
                is_explained = (
                    kept.is_kept(ref, known)
                    or log_.is_deleted(announced, ref, known)
                    or self._was_deleted(state, log_, known)
                )
                yield Doubt(SAW if is_explained else LOST, ref, known, now)
            elif known and not kept.has_in(now, known) and not kept.is_kept(ref, known):
                yield Doubt(LOST, ref, known, now)
            elif log_.is_announced(announced, ref, "", now) or log_.knows(now):
                yield Doubt(WROTE, ref, known, now)
            else:
                if others is None:
                    others = log_.announced_by_others(state.writers)
                yield Doubt(self._grade(state, known, now, *others), ref, known, now)

    def _was_deleted(self, state: Witnessed, log_: WitnessLog, known: str) -> bool:
        """Return whether others who may write here announced to move a head on, and then to delete its ref."""
        accepted, others = log_.announced_by_others(state.writers)
        if self.is_shared:
            accepted = {old: accepted.get(old, set()) | others.get(old, set()) for old in accepted | others}
        reached, todo = {known}, [known]
        while todo:
            further = accepted.get(todo.pop(), set()) - reached
            reached |= further
            todo += further - {"-"}
        return "-" in reached

    def _grade(self, state: Witnessed, known: str, now: str, accepted: Moves, others: Moves) -> str:
        """Return how a head counts that isn't this user's: as seen if others may write here. It is uncertain if it may
        be: a ref that git fetched, say, whose history this user never had a part in."""
        if self.is_shared or any(now in moved for moved in accepted.values()):
            return SAW
        if state.is_torn or not boot() or state.boot != str(boot()):
            return UNSURE
        if any(now in moved for moved in others.values()):
            # Another uwf wrote it here: git, which may have fetched it, announces nothing.
            return UNKNOWN if self._is_in_own_name(known, now) and not self._was_fetched(now) else UNSURE
        return UNKNOWN if known else UNSURE

    def _is_in_own_name(self, known: str, now: str) -> bool:
        """Return whether this user is the author or committer of a commit that a ref has gained, the last one of a new
        ref."""
        user = self._repository.config.owner.ident
        at: Oid | None = Oid(hex=now)
        with contextlib.suppress(UwfError, ValueError):
            kind, data = self._repository.read(Oid(hex=now))
            if kind == TAG:
                tag = parse_tag(data)
                at = tag.target
                if tag.tagger == user:
                    return True
            while at is not None and str(at) != known:
                commit = self._repository.commit(at)
                if user in (commit.author, commit.committer):
                    return True
                at = commit.parents[0] if known and commit.parents else None
        return False

    def _was_fetched(self, now: str) -> bool:
        return now in map(str, self._repository.refs(layout.REMOTES).values())

    @property
    def is_shared(self) -> bool:
        """Whether others than this user's uwf move refs here in the course of work: with git, or from elsewhere."""
        return self._here or self._has_other_writers

    @property
    def _has_other_writers(self) -> bool:
        config = self._repository.config
        return bool(config.sharing) or any(key.endswith(".mirror") for key, _ in config.entries("remote."))


class _Reachable:
    """Which objects are still kept by a store's refs, from git's objects alone. With `anywhere`, any ref keeps what it
    leads to, since others may have moved a head and left its steps to a fork; else only refs that take over."""

    def __init__(self, repository: Repository, refs: Mapping[str, str], anywhere: bool) -> None:
        self._repository = repository
        self._refs = refs
        self._is_anywhere = anywhere
        self._all: set[str] | None = None

    def is_kept(self, ref: str, oid: str) -> bool:
        """Return whether a head that its ref lost is in the history of that ref's successor, in a fold, or was removed
        restorably."""
        if ref.startswith(layout.FOLDED):
            return self._is_unfolded(oid)
        if layout.is_thread_ref(ref) and self._is_in_thread(ref, layout.thread_of(ref), oid):
            return True
        if self._is_anywhere and self._all is None:
            self._all = set(self._walk(_refs(self._repository).values()))
        return self._all is not None and oid in self._all

    def _is_in_thread(self, ref: str, thread: ThreadId, oid: str) -> bool:
        from uwf_git.store.removed import kept_refs

        tips = [self._refs[name] for name in (ref, layout.ARCHIVE + thread) if name in self._refs]
        with contextlib.suppress(UwfError):
            tips += map(str, kept_refs(self._repository, thread).values())
        return oid in self._walk(tips) or self._is_folded(ref, oid)

    def _is_unfolded(self, fold: str) -> bool:
        """Return whether the ends in a fold are all kept elsewhere."""
        from uwf_git.store.archives import read

        with contextlib.suppress(UwfError, ValueError):
            ends = read(self._repository, Oid(hex=fold)).threads
            return all(self.is_kept(layout.ARCHIVE + thread, str(end.tag)) for thread, end in ends.items())
        return False

    def _is_folded(self, ref: str, oid: str) -> bool:
        from uwf_git.store.archives import read

        for name, fold in self._refs.items():
            if name.startswith(layout.FOLDED):
                with contextlib.suppress(UwfError):
                    entry = read(self._repository, Oid(hex=fold)).threads.get(layout.thread_of(ref))
                    if entry is not None and (str(entry.tag) == oid or not ref.startswith(layout.ARCHIVE)):
                        return True
        return False

    def has_in(self, tip: str, oid: str) -> bool:
        """Return whether an object, or the commit of a tag, is in the history of a tip."""
        if tip == oid:
            return True
        target = self._target(oid)
        own = self._target(tip)
        return own != target and any(item == target for item in self._walk([tip]))

    def _target(self, oid: str) -> str:
        with contextlib.suppress(UwfError, ValueError):
            kind, data = self._repository.read(Oid(hex=oid))
            if kind == TAG:
                return str(parse_tag(data).target)
        return oid

    def _walk(self, tips: Iterable[str]) -> Iterator[str]:
        seen: set[str] = set()
        todo = [Oid(hex=tip) for tip in tips]
        while todo:
            oid = todo.pop()
            if str(oid) in seen:
                continue
            seen.add(str(oid))
            yield str(oid)
            with contextlib.suppress(UwfError, ValueError):
                kind, data = self._repository.read(oid)
                if kind == TAG:
                    todo.append(parse_tag(data).target)
                elif kind == COMMIT:
                    todo += self._repository.commit(oid).parents


def _threads_there(state: Witnessed) -> dict[str, str]:
    heads = {**state.lost, **state.heads}
    return {ref: oid for ref, oid in heads.items() if ref.startswith((*_OF_THREADS, layout.FOLDED))}


def _threads_in(refs: Collection[str]) -> str:
    """Return how many threads refs are of, in words."""
    threads = {layout.thread_of(ref) if ref.startswith(_OF_THREADS) else ref for ref in refs}
    more = "at least " if any(ref.startswith(layout.FOLDED) for ref in refs) else ""
    return more + counted(len(threads), "thread")


def _stood_here(threads: str) -> str:
    return f"a store with {threads} stood here, and is gone"


def removed_store(git_dir: Path, environ: Mapping[str, str], accept: bool = False) -> str:
    """Return that a store with threads stood where there is none, "" if none is known. With `accept`, its log ends."""
    folder = state_folder(environ)
    with contextlib.suppress(OSError):
        log_ = WitnessLog(folder, git_dir, git_dir / PRIVATE) if folder else None
        if log_ is not None and log_.is_there:
            log_.open()
            state = log_.read()
            if accept:
                log_.append([(ACCEPTED, "-", "-", "-"), (BORN, "-", "-", "-")])
            if gone := _threads_there(state) | state.gone:
                return _stood_here(_threads_in(gone))
    return ""


def _is_witnessed(name: str) -> bool:
    return layout.is_shared_ref(name) and not name.startswith(_PASSING)


def _refs(repository: Repository) -> dict[str, str]:
    return repository.ref_ids(without=layout.REMOTES)


def _witnessed(refs: Mapping[str, str]) -> dict[str, str]:
    return {name: oid for name, oid in refs.items() if _is_witnessed(name)}
