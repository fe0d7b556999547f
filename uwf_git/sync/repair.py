"""Repairing a store: restoring lost objects and setting damaged ones aside.

An object comes from a damaged pack of the store, else is generated again from nodes, else from the given
sources and the remotes. Only objects that match their id are used. A damaged file stays until a sound one
replaces it; an interrupted repair leaves the store no worse and can be repeated.

Empty refs are set to their last known position. No other ref moves, and in a repository shared with code only
refs under refs/uwf/ are touched.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import RemoteFailed, UwfError
from uwf_git.base.text import counted, one_line, shortened
from uwf_git.git.file_repair import FileRepair
from uwf_git.git.packs import Pack
from uwf_git.git.program import Git
from uwf_git.git.refs import packed_damage
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import relate
from uwf_git.store.indexing import Store
from uwf_git.store.instance import Instance
from uwf_git.sync.object_sources import CheckedObject, ObjectSource, ObjectSources, RegeneratedObjects
from uwf_git.verify.checks import ERROR, OK, WARNING, Check, hurt_check
from uwf_git.verify.damage import Damage, Walk, derived, find_damage, links, lost_objects, problem_with
from uwf_git.verify.findings import UNCHECKED
from uwf_git.verify.whole import verify_refs

NAME = "repair"
TOLD = 20  # objects that are named one by one


class _KnownPosition(NamedTuple):
    """A ref's last known position, and its source."""

    oid: Oid
    told: str


class Repair:
    """The repair of one store. `named` are sources besides the remotes: bundles, folders, URLs."""

    def __init__(self, instance: Instance, git: Git, named: Collection[str] = ()) -> None:
        self._instance = instance
        self._store: Store = instance.store
        self._repository = instance.store.repository
        self._git = git
        self._named = named
        self._shared = instance.location.here
        self._brought: set[Oid] = set()

    def run(self) -> Iterator[Check]:
        """Find damage, repair it, and yield a check for each result; for remaining damage, the threads it
        affects. Nothing without damage. Raises Busy during another repair, and what `Places.opened` raises,
        before touching anything."""
        places = ObjectSources(self._repository, self._git, self._instance.remotes.all())
        with self._instance.locks.repair(), places.opened(self._named) as opened:
            mending = FileRepair(self._repository)
            checks = [*self._packed_refs(mending), *self._derived(mending)]
            yield from checks
            damage = find_damage(self._store, self._shared)
            if damage.is_none and not checks and not self._store.missed():
                return
            yield from self._packs(damage, mending)
            yield from self._objects(damage, mending, opened)
            yield from self._refs(mending, opened)
            yield from self._tracking()
            yield from self._stray(damage, mending)
            if mending.kept:
                kept = counted(len(mending.kept), "damaged file")
                yield _said(OK, f"{kept} kept in {mending.folder}", folder=str(mending.folder))
            self._store.sync()
            remaining = find_damage(self._store, self._shared)
            yield from self._verified(damage, remaining)
            yield from self._lost(remaining, opened)

    def _reopen(self) -> None:
        self._store = Store.open(self._repository.path)
        self._repository = self._store.repository
        self._store.sync()

    # Packs

    def _derived(self, mending: FileRepair) -> Iterator[Check]:
        damaged = [] if self._shared else list(derived(self._repository.path / "objects"))
        for path in damaged:
            mending.remove([path])
            yield _said(
                OK, f"set aside {path.name}, which was damaged and is made again by: uwf gc", file=path.name
            )
        self._reopen()

    def _packs(self, damage: Damage, mending: FileRepair) -> Iterator[Check]:
        for pack in damage.indexes:
            try:
                mending.put_index(pack, lambda new, pack=pack: self._index_pack(pack, new))  # type: ignore[misc]
                yield _said(OK, f"made the index of {pack.name} anew", file=pack.name)
            except RemoteFailed as error:
                yield from self._salvaged(pack, mending, error.message)
        for pack in damage.packs:
            yield from self._salvaged(pack, mending, "it is not what its checksum says")
        if damage.indexes or damage.packs:
            self._reopen()

    def _index_pack(self, pack: Path, new: Path) -> None:
        settings = ("-c", "pack.writeReverseIndex=false")
        self._git.run(*settings, "index-pack", "--no-rev-index", "-o", str(new), str(pack))

    def _salvaged(self, pack: Path, mending: FileRepair, reason: str) -> Iterator[Check]:
        number = 0
        for packed in Pack(pack, self._repository.config.max_blob).objects():
            oid = Oid(raw=packed.oid)
            number += 1
            # A copy elsewhere may be as damaged; a file of its own is read first.
            if not mending.loose_path(oid).exists() or problem_with(self._repository, oid):
                mending.put(oid, packed.kind, packed.content)
        mending.remove_pack(pack)
        what = (
            f"{pack.name} is damaged: {reason}; removed {counted(number, 'object')} from it and set it aside"
        )
        yield _said(OK, what, file=pack.name)

    # Objects

    def _objects(
        self, damage: Damage, mending: FileRepair, opened: Collection[ObjectSource]
    ) -> Iterator[Check]:
        tips = [hurt.head for hurt in damage.hurt if hurt.head]
        every: list[ObjectSource] = [RegeneratedObjects(self._store, tips), *opened]
        wanted, before = lost_objects(self._store), -1
        while wanted and len(self._brought) > before:
            before = len(self._brought)
            oids = set(wanted)
            for place in every:
                if oids:
                    taken = self._taken(place, oids, mending)
                    log.info(
                        "AB6D0CKR",
                        "{place} has {taken} of {wanted} lost objects",
                        place=place.name,
                        taken=len(taken),
                        wanted=len(oids),
                    )
                    oids -= taken.keys()
                    self._brought |= taken.keys()
                    yield from _describe(place, taken, {**damage.objects, **wanted})
            wanted = lost_objects(self._store)
        for place in every:
            if place.failed is not None:
                message = f"{place.name} gave nothing: {place.failed.message}"
                yield _said(WARNING, message, place.failed.hint, source=place.name)

    def _taken(
        self, place: ObjectSource, wanted: Collection[Oid], mending: FileRepair
    ) -> dict[Oid, CheckedObject]:
        taken: dict[Oid, CheckedObject] = {}
        oids: set[Oid] = set()
        level = set(wanted)
        while level:
            place.prepare(level)
            oids |= level
            following: set[Oid] = set()
            for oid in level:
                checked_object = place.read(oid)
                if checked_object is None:
                    continue
                mending.put(oid, checked_object.kind, checked_object.content)
                taken[oid] = checked_object
                following.update(links(checked_object.kind, checked_object.content))
            level = {oid for oid in following - oids if problem_with(self._repository, oid)}
        return taken

    def _stray(self, damage: Damage, mending: FileRepair) -> Iterator[Check]:
        lost = lost_objects(self._store) if damage.stray else {}
        # Apparently unreferenced objects may belong to a lost tree.
        stray = [
            path
            for path in damage.stray
            if (oid := mending.loose_oid(path)) not in lost and problem_with(self._repository, oid)
        ]
        if stray:
            mending.remove(stray)
            yield _said(OK, f"set aside {counted(len(stray), 'damaged object')} that nothing refers to")

    # Refs

    def _packed_refs(self, mending: FileRepair) -> Iterator[Check]:
        damage = packed_damage(self._repository.path)
        if damage is None:
            return
        if self._shared and damage.lines:
            # It holds the refs of the project too, which are not ours to sort.
            path = self._repository.path / "packed-refs"
            hint = f"put it right by hand, or restore it: {path}"
            yield _said(ERROR, "git cannot read packed-refs of this repository", hint, damaged=True)
            return
        mending.mend_packed_refs()
        for line in damage.lines:
            yield _said(OK, f"took out of packed-refs what is not a ref: {shortened(one_line(line), 80)}")
        if not damage.lines:
            yield _said(OK, f"wrote packed-refs anew: {damage.problem}")

    def _refs(self, mending: FileRepair, opened: Collection[ObjectSource]) -> Iterator[Check]:
        broken, missed = self._repository.broken_refs(), self._store.missed()
        for name in [*broken, *missed]:
            if name.startswith(layout.REMOTES):
                mending.remove_ref(name)
                yield _said(OK, f"set aside {name}, which held no object id; the next pull makes it again")
                continue
            known = self._known(name, mending, opened)
            if known is None:
                what = "is gone, and what it led to is lost"
                give_up = ""
                if name not in missed:
                    what = "holds no object id, and nothing tells where it was"
                    give_up = f", or give it up: rm {shlex.quote(str(self._repository.path / name))}"
                hint = f"give a place that has it: uwf doctor --fix --from FILE|DIR|URL{give_up}"
                yield _said(ERROR, f"{name} {what}", hint, damaged=True, ref=name)
            else:
                mending.put_ref(name, known.oid)
                at = f"{str(known.oid)[:10]}{self._step_at(known.oid)}"
                yield _said(
                    OK,
                    f"put {name} back to {at}, {known.told}",
                    ref=name,
                    commit=str(known.oid),
                    known=known.told,
                )

    def _known(
        self, name: str, mending: FileRepair, opened: Collection[ObjectSource]
    ) -> _KnownPosition | None:
        positions: list[_KnownPosition] = []
        tip = self._store.index.tips(name).get(name)
        seen = tip.oid if tip is not None else self._store.index.missed().get(name)
        if seen is not None:
            positions.append(_KnownPosition(Oid(raw=seen), "where it was last seen here"))
        for remote in self._instance.remotes.all():
            oid = self._repository.ref(layout.tracking(remote.name, name))
            if oid is not None:
                positions.append(_KnownPosition(oid, f"where it was last seen on {remote.name}"))
        for place in opened:
            place.prepare([item.oid for item in positions])
            if (there := place.refs.get(name)) is not None:
                positions.append(_KnownPosition(there, f"where it is on {place.name}"))
        chosen: _KnownPosition | None = None
        for position in positions:
            if self._is_whole(position.oid, mending, opened) and (
                chosen is None or self._goes_beyond(position.oid, chosen.oid)
            ):
                chosen = position
        return chosen

    def _is_whole(self, oid: Oid, mending: FileRepair, opened: Collection[ObjectSource]) -> bool:
        lost, before = self._lacks(oid), -1
        while lost and len(self._brought) > before:  # objects reached from sound ones are found later
            before = len(self._brought)
            for place in opened:
                if lost:
                    self._brought |= self._taken(place, lost, mending).keys()
                    lost = self._lacks(oid)
        return not lost

    def _lacks(self, oid: Oid) -> set[Oid]:
        return {Oid(raw=raw) for raw in Walk(self._repository, self._store.index).tip(oid)}

    def _goes_beyond(self, oid: Oid, other: Oid) -> bool:
        try:
            relation = relate(self._store, oid, other)
        except UwfError:
            return False
        return relation is not None and bool(relation.ours) and not relation.theirs

    def _step_at(self, oid: Oid) -> str:
        row = self._store.index.commit(oid.raw)
        return f" (step {row.number})" if row is not None and row.kind == "step" else ""

    def _tracking(self) -> Iterator[Check]:
        walk = Walk(self._repository, self._store.index)
        for name, oid in self._repository.refs(layout.REMOTES).items():
            if walk.tip(oid):
                self._repository.delete_ref(name, oid)
                yield _said(OK, f"forgot {name}, which led to lost objects; the next pull fetches it anew")

    # The outcome

    def _verified(self, damage: Damage, left: Damage) -> Iterator[Check]:
        still = {hurt.ref for hurt in left.hurt}
        refs: dict[str, Oid | None] = {}
        for name in sorted({hurt.ref for hurt in damage.hurt} | set(damage.refs)):
            oid = None if name in left.refs else self._repository.ref(name)
            if oid is not None and name not in still and layout.is_shared_ref(name):
                refs[name] = oid
        if not refs:
            return
        done = verify_refs(self._repository, refs, self._repository.config.max_blob)
        for finding in done.findings[:TOLD]:
            message = f"{finding.ref}: {finding.message}"
            if finding.code == UNCHECKED:
                yield _said(WARNING, message, "see: uwf verify", ref=finding.ref)
            else:
                yield _said(ERROR, message, "see: uwf verify", damaged=True, ref=finding.ref)
        if not done.findings:
            whole = counted(done.threads, "thread") if done.threads else counted(len(refs), "ref")
            yield _said(OK, f"verified {whole} that had been hurt: whole again", refs=sorted(refs))

    def _lost(self, damage: Damage, opened: Collection[ObjectSource]) -> Iterator[Check]:
        silent = [place.name for place in opened if place.failed is not None]
        sources = [place.name for place in opened if place.failed is None]
        parts = (
            [f"{', '.join(sources)} {'has' if len(sources) == 1 else 'have'} none of it"] if sources else []
        )
        parts += [f"{', '.join(silent)} could not be asked"] if silent else []
        where = " and ".join(parts) or "no remote is configured"
        hint = f"{where}; give a place that has it: uwf doctor --fix --from FILE|DIR|URL"
        for hurt in damage.hurt:
            before = f"; what is before it goes on with: uwf thread fork {hurt.last}" if hurt.last else ""
            yield hurt_check(NAME, hurt, damage.objects, hint + before)
        others = damage.objects if not damage.hurt else {}
        for oid, reason in others.items():
            yield _said(ERROR, f"object {oid} is damaged: {reason}", hint, damaged=True, objects=[str(oid)])


def _describe(place: ObjectSource, taken: Collection[Oid], reasons: Mapping[Oid, str]) -> Iterator[Check]:
    ids = sorted(map(str, taken))
    if not ids:
        return
    for oid in ids[:TOLD] if len(ids) <= TOLD else ():
        reason = reasons.get(Oid(hex=oid), "it was missing")
        yield _said(OK, f"object {oid}: {reason}; from {place.name}", objects=[oid], source=place.name)
    if len(ids) > TOLD:
        message = f"brought {counted(len(ids), 'object')} from {place.name}: {ids[0][:10]}, {ids[1][:10]}, …"
        yield _said(OK, message, objects=ids, source=place.name)


def _said(status: str, message: str, hint: str = "", damaged: bool = False, **more: Any) -> Check:
    return Check(NAME, status, message, hint, damaged, more)
