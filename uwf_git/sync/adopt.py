"""Adopting fetched refs: each is verified, then settled as `reconcile` says. An invalid ref is reported and
stays a tracking ref; all others are adopted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import Busy, HeadMoved, RequirementUnmet, StoreDamaged
from uwf_git.engine.pause import was_lifted
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import TAG, Oid, TooLarge
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.history import Link, ancestry, link_of, own_forks, parse_link
from uwf_git.store.instance import Instance
from uwf_git.sync import tracking
from uwf_git.sync.reconcile import (
    Case,
    ForeignThread,
    Reconciler,
    ReconcileResult,
    Sides,
    settle_attempts,
    unite,
)
from uwf_git.sync.removal import forget_removed, removed_threads
from uwf_git.sync.rewritten import RemoteHistory, Rewrite, keep

if TYPE_CHECKING:
    from uwf_git.sync.admission import Admission
    from uwf_git.verify.findings import Finding
    from uwf_git.verify.whole import ReceivedRefsVerifier

_LARGEST_TAG = 1 << 20  # bytes read of one


class Adopted(NamedTuple):
    """The result for a ref of the other side. `fork` is the thread that one side became, `steps` the number
    of its own steps, `ours` whether it is our side; `proposal` the name that our version of a definition
    moved to."""

    ref: str
    case: Case
    thread: ThreadId | None = None
    fork: ThreadId | None = None
    steps: int = 0
    ours: bool = False
    proposal: str | None = None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"ref": self.ref, "case": self.case.label, "number": self.case.value}
        if self.thread:
            value["thread"] = self.thread
        if self.fork:
            side = "ours" if self.ours else "theirs"
            value["fork"] = {"thread": self.fork, "steps": self.steps, "side": side}
        if self.proposal:
            value["proposal"] = self.proposal
        return value


class RefusedRef(NamedTuple):
    """A ref that was not adopted, and why. `later`: it is valid, but a step is running. `replaces`: it stands in place
    of what was seen there. `is_persons`: a step may not take it over. `is_here`: this store has one of its name."""

    ref: str
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    later: bool = False
    replaces: bool = False
    is_persons: bool = False
    is_here: bool = False

    @property
    def is_unchecked(self) -> bool:
        from uwf_git.verify.findings import UNCHECKED

        return bool(self.findings) and all(finding.code == UNCHECKED for finding in self.findings)

    @property
    def is_untrusted(self) -> bool:
        """Whether it is sound, and not signed as it has to be."""
        from uwf_git.verify.findings import UNTRUSTED

        return bool(self.findings) and all(finding.code in UNTRUSTED for finding in self.findings)

    @property
    def reason(self) -> str:
        return self.findings[0].message if self.findings else self.problem

    def to_json(self) -> dict[str, Any]:
        return {
            "ref": self.ref,
            "later": self.later,
            "problem": self.reason,
            "findings": [finding.as_json() for finding in self.findings],
        }


class Adoption:
    """Adopts the refs of a remote or bundle. `refs` are its names and objects, which must be here. `yields`
    as in Reconciler. `on_verified` gets the number of refs done and in all. `tracked` are the remote's tracking
    refs before they were fetched. With `accepts_rewrites`, refs need not continue what was seen there."""

    def __init__(
        self,
        instance: Instance,
        refs: Mapping[str, Oid],
        yields: bool = True,
        on_verified: Callable[[int, int], None] | None = None,
        remote: str | None = None,
        tracked: Mapping[str, Oid] | None = None,
        accepts_rewrites: bool = False,
    ) -> None:
        self.rewrites: list[Rewrite] = []
        self._instance = instance
        self._repository = instance.store.repository
        self._refs = self._wanted(refs, yields)
        self._remote = remote
        self._history = (
            RemoteHistory(instance.store, remote, refs, tracked)
            if remote is not None and not accepts_rewrites
            else None
        )
        self._yields = yields
        self._reconciler = Reconciler(instance, yields)
        self._on_verified = on_verified
        self._waiting: set[str] = set()
        self._of = 0
        self._settlers = {
            "version": self._version,
            "replace": self._replaceable,
            "fold": self._folded,
            "grow": self._growing,
            "attempts": self._attempts,
            "fork": self._fork,
            "pause": self._paused,
            "policy": self._policy,
        }

    def _wanted(self, refs: Mapping[str, Oid], yields: bool) -> Mapping[str, Oid]:
        removed = removed_threads(self._instance)
        if not yields:
            forget_removed(self._instance, removed & {layout.thread_of(name) for name in refs})
            return refs
        return {
            name: oid
            for name, oid in refs.items()
            if not (
                removed
                and layout.is_thread_ref(name)
                and layout.thread_of(name) in removed
                and not self._instance.threads.exists(layout.thread_of(name))
            )
        }

    def run(
        self, here: Mapping[str, Oid] | None = None, whole: bool = True
    ) -> tuple[tuple[Adopted, ...], tuple[RefusedRef, ...]]:
        """Settle every ref that differs from ours. `here` are ours if just read; without `whole`, only those
        that the other side has. Moves refs as `reconcile` says."""
        if here is None:
            here = self._repository.refs(without=layout.REMOTES)
        differing = {name: oid for name, oid in self._refs.items() if here.get(name) != oid}
        if not differing:
            return (), ()
        # Local state is compared by the index.
        if whole:
            self._instance.store.sync()
        else:
            self._know(here)
        self._waiting, self._of = set(differing), len(differing)
        results = list(self._settle(differing, self._threads_of(differing, here)))
        if self._waiting:  # refs that needed no verification
            self._waiting.clear()
            self._notify()
        adopted = tuple(result for result in results if isinstance(result, Adopted))
        for item in adopted:
            log.info(
                "R89TT4TR",
                "takes {ref} over: {case}",
                ref=item.ref,
                case=item.case.label,
                thread=item.thread,
                fork=item.fork,
            )
        refused = tuple(result for result in results if isinstance(result, RefusedRef))
        for no in refused:
            log.warning(
                "3HJ78K8E", "leaves {ref} where it is: {reason}", ref=no.ref, reason=no.reason, later=no.later
            )
        return adopted, refused

    def _know(self, here: Mapping[str, Oid]) -> None:
        for name, oid in here.items():
            if name.startswith(layout.THREADS):
                with contextlib.suppress(StoreDamaged):
                    self._instance.store.index_commit(oid)

    @property
    def positions(self) -> dict[str, Oid]:
        """Where the remote's refs were seen before, of those compared."""
        return self._history.positions if self._history is not None else {}

    @property
    def steps(self) -> int:
        return self._trial.steps if "_trial" in self.__dict__ else 0

    def _settle(
        self, differing: Mapping[str, Oid], threads: Sequence[ThreadId]
    ) -> Iterator[Adopted | RefusedRef]:
        # The policy says what of the others may be taken over.
        ordered = sorted(differing, key=lambda name: (name != layout.POLICY, name))
        kinds = {name: ref_kinds.kind_of(name) for name in ordered}
        for name, kind in kinds.items():
            if kind is not None and not kind.of_thread:
                yield from self._sound(name, differing[name], self._settlers[kind.settle])
        known = self._here(threads)
        yield from self._unknown([thread for thread in threads if thread not in known])
        for thread in threads:
            if thread in known:
                yield from self._thread(thread)
        for name, kind in kinds.items():
            if kind is None or not kind.of_thread or kind.settle == "thread":
                continue
            if layout.thread_of(name) not in self._rewritten:
                yield from self._sound(name, differing[name], self._settlers[kind.settle])

    @property
    def _rewritten(self) -> set[ThreadId]:
        return {rewrite.thread for rewrite in self.rewrites if rewrite.thread and not rewrite.is_rollback}

    def _here(self, threads: Sequence[ThreadId]) -> set[ThreadId]:
        if len(threads) <= tracking.FEW:
            return {thread for thread in threads if self._instance.threads.exists(thread)}
        prefixes = (layout.THREADS, layout.ARCHIVE)
        names = {name for prefix in prefixes for name in self._repository.ref_names(prefix)}
        folded = self._instance.store.folded_threads()
        return {
            thread
            for thread in threads
            if thread in folded or any(prefix + thread in names for prefix in prefixes)
        }

    def _threads_of(self, differing: Mapping[str, Oid], here: Mapping[str, Oid]) -> list[ThreadId]:
        """Return the threads to look at. One that ended equally on both sides is omitted, even if a server
        that refuses deletions still has its active ref."""
        threads = set()
        for name in differing:
            prefix, thread = layout.namespace_of(name), layout.thread_of(name)
            tag = self._refs.get(layout.ARCHIVE + thread)
            if prefix == layout.ARCHIVE or (
                prefix == layout.THREADS
                and not (
                    tag
                    and here.get(layout.ARCHIVE + thread) == tag
                    and self._instance.store.index_tag(tag).target == differing[name].raw
                )
            ):
                threads.add(thread)
        return sorted(threads)

    def _sound(
        self, name: str, oid: Oid, settle: Callable[[str, Oid], Iterator[Adopted | RefusedRef]]
    ) -> Iterator[Adopted | RefusedRef]:
        def settled() -> Iterator[Adopted | RefusedRef]:
            if findings := self._verify(name, oid):
                yield self._refused(name, oid, findings)
            elif self._is_rewritten(name, oid):
                return
            elif refused := self._barred(name, oid):
                yield refused
            else:
                yield from settle(name, oid)

        return self._guarded(name, settled())

    def _refused(self, name: str, oid: Oid, findings: tuple[Finding, ...]) -> RefusedRef:
        seen = self._history.position(name) if self._history is not None else None
        replaces = seen is not None and oid != seen
        if replaces and self._remote is not None:
            keep(self._repository, self._remote, {name: oid})
        is_here = self._repository.ref(name) is not None
        return RefusedRef(name, findings, replaces=replaces, is_here=is_here)

    def _is_rewritten(self, name: str, oid: Oid) -> bool:
        return self._history is not None and self._noted(self._history.of_ref(name, oid), {name: oid})

    def _is_thread_rewritten(self, thread: ThreadId, sides: Sides) -> bool:
        refs = {name: self._refs[name] for name in layout.refs_of_threads([thread]) if name in self._refs}
        return self._history is not None and self._noted(
            self._history.of_thread(thread, sides.active, sides.tag), refs
        )

    def _noted(self, rewrite: Rewrite | None, refs: Mapping[str, Oid]) -> bool:
        """Note a rewrite or rollback; if it is a rewrite, keep `refs` beside and return True."""
        if rewrite is None:
            return False
        self.rewrites.append(rewrite)
        log.warning("5T0WXK8N", "{rewrite}", rewrite=rewrite.message, ref=rewrite.ref, seen=rewrite.seen)
        if rewrite.is_rollback:
            return False
        keep(self._repository, rewrite.remote, refs)
        return True

    def _guarded(self, name: str, settled: Iterator[Adopted | RefusedRef]) -> Iterator[Adopted | RefusedRef]:
        try:
            yield from settled
        except (Busy, HeadMoved) as error:
            yield RefusedRef(name, (), error.message, later=True)
        except StoreDamaged as error:
            yield RefusedRef(name, (), error.message)
        except RequirementUnmet as error:  # settling it takes a record that the user can't sign
            from uwf_git.sync.admission import unmet_finding

            yield RefusedRef(name, (unmet_finding(name, self._refs[name], error.message),))

    def _verify(self, name: str, oid: Oid) -> tuple[Finding, ...]:
        from uwf_git.sync.admission import squatting

        findings = self._trial.findings(name, oid, self._is_fork) or squatting(
            self._instance.store, name, oid
        )
        log.debug(
            "YP7HQ0BE",
            "verifies {ref}: {findings} findings",
            ref=name,
            object=oid,
            findings=len(findings),
            what=[str(finding) for finding in findings[:3]],
        )
        if name in self._waiting:
            self._waiting.remove(name)
            self._notify()
        return findings

    def _is_fork(self, thread: ThreadId) -> bool:
        """Return whether a tag that can be taken over says that a thread is a fork, and so has another id than its
        start names."""
        name = layout.FORKS + thread
        if self._repository.ref(name) is not None:
            return True
        if (link := self._refs.get(name)) is not None:
            return thread not in self._circular and not (
                self._trial.findings(name, link) or self._untrusted(name, link)
            )
        folded = self._instance.store.folded(thread)
        return (folded is not None and folded.fork is not None) or thread in self._folded_forks

    @cached_property
    def _folded_forks(self) -> set[ThreadId]:
        """The forks in the folds there."""
        folds = [oid for name, oid in self._refs.items() if name.startswith(layout.FOLDED)]
        forks: set[ThreadId] = set()
        for fold in folds:
            with contextlib.suppress(StoreDamaged):  # reported
                entries = archives.read(self._repository, fold).threads.values()
                forks |= {entry.thread for entry in entries if entry.fork is not None}
        return forks

    def _untrusted(self, name: str, oid: Oid) -> tuple[Finding, ...]:
        """Return the findings of a verified ref that doesn't meet the trust policy."""
        return self._trust.findings(name, oid) if self._trust is not None else ()

    def _barred(self, name: str, oid: Oid) -> RefusedRef | None:
        """Return the refusal of a verified ref that doesn't meet the trust policy, or that a step may not take over in
        a person's place."""
        from uwf_git.sync.persons_records import persons_part

        if findings := self._untrusted(name, oid):
            return RefusedRef(name, findings)
        if not self._is_guarded or not (part := persons_part(self._instance, name, oid)):
            return None
        return RefusedRef(
            name, (), f"this command runs within a step, and only a person {part}", is_persons=True
        )

    @cached_property
    def _is_guarded(self) -> bool:
        from uwf_git.sync.persons_records import is_guarded

        return is_guarded(self._instance)

    def _notify(self) -> None:
        if self._on_verified:
            self._on_verified(self._of - len(self._waiting), self._of)

    @cached_property
    def _trust(self) -> Admission | None:
        from uwf_git.sync.admission import admission_of

        return admission_of(self._instance, self._refs)

    @cached_property
    def _trial(self) -> ReceivedRefsVerifier:
        from uwf_git.verify.whole import ReceivedRefsVerifier

        return ReceivedRefsVerifier(self._instance.store)

    # Threads

    def _unknown(self, threads: Sequence[ThreadId]) -> Iterator[Adopted | RefusedRef]:
        sound: dict[str, ThreadId] = {}
        for thread in threads:
            name = layout.ARCHIVE + thread
            if name not in self._refs:
                name = layout.THREADS + thread
            elif layout.THREADS + thread in self._refs:
                yield from self._thread(thread)
                continue
            oid = self._refs[name]
            if findings := self._verify(name, oid):
                yield RefusedRef(name, findings)
            elif refused := self._barred(name, oid):
                yield refused
            else:
                sound[name] = thread
        created = self._repository.create_refs({name: self._refs[name] for name in sound})
        for name, thread in sound.items():
            if name in created:
                yield Adopted(name, Case.UNKNOWN, thread)
            else:
                yield from self._thread(thread)

    def _thread(self, thread: ThreadId) -> Iterator[Adopted | RefusedRef]:
        ref = layout.ARCHIVE + thread if layout.ARCHIVE + thread in self._refs else layout.THREADS + thread
        return self._guarded(ref, self._sides(ref, thread))

    def _sides(self, ref: str, thread: ThreadId) -> Iterator[Adopted | RefusedRef]:
        sides = Sides(self._refs.get(layout.THREADS + thread), self._refs.get(layout.ARCHIVE + thread))
        for side, name in ((sides.active, layout.THREADS), (sides.tag, layout.ARCHIVE)):
            if side is not None and (findings := self._verify(name + thread, side)):
                yield self._refused(name + thread, side, findings)
                return
        sides = self._as_folded(thread, sides)
        if self._is_thread_rewritten(thread, sides):
            return
        for side, name in ((sides.active, layout.THREADS), (sides.tag, layout.ARCHIVE)):
            if side is not None and (refused := self._barred(name + thread, side)):
                yield refused
                return
        yield _adopted(ref, thread, self._reconciler.settle(thread, sides))

    def _as_folded(self, thread: ThreadId, sides: Sides) -> Sides:
        row = self._instance.store.folded(thread) if sides.tag is None else None
        tag = archives.tag_again(self._repository, row.ref, thread) if row else None
        return sides._replace(tag=tag) if tag else sides

    def _raise_if_foreign(self, name: str, oid: Oid) -> None:
        from uwf_git.sync.admission import foreign_to

        head = self._instance.threads.head(layout.thread_of(name)).commit
        if problem := foreign_to(self._instance.store, head, name, oid):
            raise ForeignThread(problem, "delete it there")

    def _attempts(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        thread = layout.thread_of(name)
        if not self._instance.threads.exists(thread):
            return  # of a thread that was refused, or deleted there
        self._raise_if_foreign(name, oid)
        with self._instance.locks.hold(thread):
            moved = settle_attempts(self._instance, thread, oid)
        yield Adopted(name, Case.BEHIND if moved else Case.AHEAD, thread)

    def _fork(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        thread = layout.thread_of(name)
        folded = self._instance.store.folded(thread)
        if not self._instance.threads.exists(thread) or (folded is not None and folded.fork):
            return
        self._raise_if_foreign(name, oid)
        self._check_origin(name, thread, self._circular)
        yield from self._replaceable(name, oid)

    @cached_property
    def _circular(self) -> set[ThreadId]:
        ours = self._repository.refs(layout.FORKS)
        theirs: dict[ThreadId, Link] = {}
        for name, oid in self._refs.items():
            if name.startswith(layout.FORKS) and ours.get(name) != oid:
                with contextlib.suppress(TooLarge, StoreDamaged):
                    kind, data = self._repository.read_within(oid, _LARGEST_TAG)
                    thread = layout.thread_of(name)
                    if kind == TAG and (link := parse_link(thread, data)):
                        theirs[thread] = link
        return self._own_forks(theirs)

    def _own_forks(self, theirs: Mapping[ThreadId, Link]) -> set[ThreadId]:
        origins: dict[ThreadId, set[ThreadId]] = {}
        pending = list(theirs)
        while pending:
            thread = pending.pop()
            if thread in origins:
                continue
            ours = None
            with contextlib.suppress(StoreDamaged):
                ours = link_of(self._instance.store, thread)
            origins[thread] = {link.origin for link in (theirs.get(thread), ours) if link}
            pending.extend(origins[thread])
        return own_forks(origins)

    @staticmethod
    def _check_origin(name: str, thread: ThreadId, circular: Set[ThreadId]) -> None:
        if thread in circular:
            raise ForeignThread(f"{name} makes thread {thread} a fork of its own forks", "delete it there")

    def _paused(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        thread, threads = layout.thread_of(name), self._instance.threads
        if not threads.exists(thread) or threads.has_ended(thread) or was_lifted(self._instance, thread, oid):
            return
        self._raise_if_foreign(name, oid)
        old = self._repository.ref(name)
        if old is None or self._yields:
            self._repository.put_ref(name, old, oid)
            yield Adopted(name, Case.PAUSED_THERE, thread)

    # Refs with one side, or the same on every machine

    def _replaceable(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        if layout.is_thread_ref(name) and not self._instance.threads.exists(layout.thread_of(name)):
            return  # of a thread that was refused, or deleted there
        old = self._repository.ref(name)
        if old is None or self._yields:
            self._repository.put_ref(name, old, oid)
            yield Adopted(name, Case.TWO_COMMITS if old else Case.UNKNOWN)

    def _policy(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        from uwf_git.sync.admission import follow

        result = follow(self._instance, self._remote, oid)
        yield Adopted(name, result) if isinstance(result, Case) else RefusedRef(name, (result,))

    def _growing(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        if layout.is_thread_ref(name):
            if not self._instance.threads.exists(layout.thread_of(name)):
                return  # of a thread that was refused, or deleted there
            self._raise_if_foreign(name, oid)
        ours = self._repository.ref(name)
        united = unite(self._instance.store, ours, oid) if ours else oid
        if united == ours:
            yield Adopted(name, Case.AHEAD)
        else:
            self._repository.put_ref(name, ours, united)
            only_theirs = Case.BEHIND if ours else Case.UNKNOWN
            yield Adopted(name, only_theirs if united == oid else Case.UNITED)

    def _folded(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        theirs = archives.read(self._repository, oid)
        forks = {
            thread: link
            for thread, entry in theirs.threads.items()
            if entry.fork and (link := parse_link(thread, entry.fork))
        }
        if forks:
            circular = self._own_forks(forks)
            for thread in sorted(forks):
                self._check_origin(name, thread, circular)
        if self._remote is not None:
            gone = tracking.deleted_there(self._instance, self._remote, name, theirs)
            for thread in tracking.part_with(self._instance, self._remote, name, gone) if gone else ():
                if layout.ARCHIVE + thread not in self._refs:  # otherwise it was restored already
                    yield Adopted(layout.ARCHIVE + thread, Case.DELETED_THERE, thread)
        for thread, entry in theirs.threads.items():
            if self._goes_on(thread, entry.tag):
                tag = self._repository.write_raw_tag(entry.raw)
                self._instance.store.index_tag(tag)
                settled = self._reconciler.settle(thread, Sides(None, tag))
                if settled.case != Case.EQUAL:
                    yield _adopted(layout.ARCHIVE + thread, thread, settled)
        mine = self._repository.ref(name)
        if not self._yields and (known := [item for item in theirs.threads if self._has_other(item, theirs)]):
            rest = archives.without(self._repository, theirs, known)
            if rest is None:
                yield Adopted(name, Case.AHEAD)
                return
            oid = rest
        merged = archives.merge(self._repository, mine, oid) if mine else oid
        if merged == mine:
            yield Adopted(name, Case.AHEAD)
        else:
            self._repository.put_ref(name, mine, merged)
            theirs_only = Case.BEHIND if mine else Case.UNKNOWN
            yield Adopted(name, theirs_only if merged == oid else Case.TWO_HISTORIES)
        if self._remote is not None:
            tracking.agree(self._instance, self._remote, name, oid)
        self._instance.store.sync()
        archives.tidy(self._repository, name.removeprefix(layout.FOLDED))

    def _has_other(self, thread: ThreadId, theirs: archives.Fold) -> bool:
        """Return whether a thread is here, and not as a fold has it."""
        row = self._instance.store.folded(thread)
        if row is not None:
            return row.tag != theirs.threads[thread].tag.raw
        return self._instance.threads.exists(thread)

    def _goes_on(self, thread: ThreadId, tag: Oid) -> bool:
        if self._repository.ref(layout.THREADS + thread) or self._repository.ref(layout.ARCHIVE + thread):
            return True
        row = self._instance.store.folded(thread)
        return row is not None and row.tag != tag.raw

    # Versions of workflows, crews and baselines

    def _version(self, name: str, oid: Oid) -> Iterator[Adopted | RefusedRef]:
        ours = self._repository.ref(name)
        proposal = None
        if ours is None:
            case = Case.UNKNOWN
        else:
            store = self._instance.store
            mine, theirs = list(ancestry(store, ours)), list(ancestry(store, oid))
            if ours.raw in {row.oid for row in theirs}:
                case = Case.BEHIND
            elif oid.raw in {row.oid for row in mine}:
                case = Case.AHEAD
            else:
                case = Case.TWO_HISTORIES
                if self._yields and mine[0].node not in {row.node for row in theirs}:
                    proposal = f"{name.removeprefix(layout.namespace_of(name))}-{mine[0].node}"
                    self._repository.set_ref(layout.PROPOSALS + proposal, ours)
        if case != Case.AHEAD and (case != Case.TWO_HISTORIES or self._yields):
            self._repository.put_ref(name, ours, oid)
        yield Adopted(name, case, proposal=proposal)


def _adopted(ref: str, thread: ThreadId, settled: ReconcileResult) -> Adopted:
    return Adopted(ref, settled.case, thread, settled.fork, settled.steps, settled.ours)
