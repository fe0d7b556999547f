"""Damage in a store: missing or corrupt objects, packs and indexes, empty refs; and the affected threads and
steps.

Every reachable object is read and compared with its id. If a commit is unreadable, the index's memory of it
leads to its parents. In a repository shared with code, only what the store's refs reach is checked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import StoreDamaged
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId, is_thread_id
from uwf_git.git.database import files_of_loose_objects
from uwf_git.git.objects import parse_commit, parse_tag, parse_tree
from uwf_git.git.packs import belongs_to, is_whole
from uwf_git.git.repository import COMMIT, TAG, TREE, Oid, Repository
from uwf_git.store import archives, layout, ref_kinds
from uwf_git.store.index import Index
from uwf_git.store.indexing import Store

_NONE: frozenset[bytes] = frozenset()
_DEEPEST = 50  # folders within folders; records have eight
_SUBMODULE = "160000"
_LOOSE = re.compile(r"[0-9a-f]{38}")


class DamagedRef(NamedTuple):
    """A ref that reaches unreadable objects. `thread` is None for others. `step` is the number of the first
    damaged step, 0 for the prompt or workflow, None if unknown; `last` is the StepNode or StartNode before
    it. `head` is the ref's commit, if known."""

    ref: str
    thread: ThreadId | None
    title: str
    step: int | None
    last: Hash | None
    head: bytes | None
    objects: frozenset[bytes]

    @property
    def what(self) -> str:
        """What is damaged, in a few words."""
        name = self.ref.rsplit("/", 1)[1]
        kind = ref_kinds.kind_of(self.ref)
        if self.thread is None:
            phrase = kind.told if kind is not None else ""
            return phrase.format(name) if phrase else f"{layout.word_for(self.ref) or 'ref'} {name}"
        thread = f"thread {self.thread}" + (f" ({one_line(self.title, 60)})" if self.title else "")
        if kind is not None and kind.told:
            return kind.told.format(thread)
        if self.step is None:
            return thread
        return f"{thread} from step {self.step} on" if self.step else f"{thread} from its start on"


class Damage(NamedTuple):
    """All damage. `objects` are reachable, with their problems; `stray` are unreachable loose files; `packs`
    are damaged, `indexes` are packs with damaged indexes, `derived` are files that git can generate: all by
    path, and none in a repository shared with code. `refs` have no object id."""

    objects: Mapping[Oid, str]
    stray: Mapping[Path, str]
    packs: tuple[Path, ...]
    indexes: tuple[Path, ...]
    derived: tuple[Path, ...]
    refs: tuple[str, ...]
    hurt: tuple[DamagedRef, ...]

    @property
    def is_none(self) -> bool:
        return not any(self)


def find_damage(store: Store, shared: bool) -> Damage:
    """Read everything reachable from a store's refs. `shared`: the repository is shared with code. Touches
    nothing."""
    repository = store.repository
    walk = Walk(repository, store.index)
    refs = repository.refs()
    for oid in refs.values():
        walk.tip(oid)
    hurt = tuple(_Hurts(store, walk).of(refs))
    stray: dict[Path, str] = {}
    packs: list[Path] = []
    indexes: list[Path] = []
    remade: list[Path] = []
    if not shared:
        stray = dict(_stray(repository, walk.bad, walk.sound))
        packs, indexes = _packs(repository.path / "objects" / "pack", lost=bool(walk.bad))
        remade = list(derived(repository.path / "objects"))
    return Damage(
        {Oid(raw=raw): reason for raw, reason in walk.bad.items()},
        stray,
        tuple(packs),
        tuple(indexes),
        tuple(remade),
        tuple(repository.broken_refs()),
        hurt,
    )


def lost_objects(store: Store) -> dict[Oid, str]:
    """Return the reachable unreadable objects with their problems."""
    walk = Walk(store.repository, store.index)
    for oid in store.repository.refs().values():
        walk.tip(oid)
    return {Oid(raw=raw): reason for raw, reason in walk.bad.items()}


def problem_with(repository: Repository, oid: Oid) -> str | None:
    """Return an object's problem, None if it is readable and matches its id."""
    try:
        repository.read(oid)
    except StoreDamaged as error:
        return error.message.partition("is damaged: ")[2] or error.message
    return None


def links(kind: int, content: bytes) -> list[Oid]:
    """Return the objects that an object names; none for a blob or a malformed object."""
    try:
        if kind == COMMIT:
            commit = parse_commit(content)
            return [commit.tree, *commit.parents]
        if kind == TREE:
            return [entry.oid for entry in parse_tree(content) if entry.mode != _SUBMODULE]
        return [parse_tag(content).target] if kind == TAG else []
    except (ValueError, LookupError, OverflowError):
        return []


class Walk:
    """Reads everything reachable once. `bad` are unreadable objects with their problems; `sound` the others."""

    def __init__(self, repository: Repository, index: Index) -> None:
        self._repository = repository
        self._index = index
        self._trees: dict[bytes, frozenset[bytes]] = {}
        self._own: dict[bytes, frozenset[bytes]] = {}
        self._all: dict[bytes, frozenset[bytes]] = {}
        self._parents: dict[bytes, tuple[bytes, ...]] = {}
        self._tags: dict[bytes, bytes | None] = {}
        self.bad: dict[bytes, str] = {}
        self.sound: set[bytes] = set()

    def tip(self, oid: Oid) -> frozenset[bytes]:
        """Return the unreadable objects reachable from an object."""
        target = self.target(oid)
        if target is None:
            return frozenset((oid.raw,)) if oid.raw in self.bad else _NONE
        own = frozenset((oid.raw,)) if oid.raw in self.bad else _NONE
        return self.history(target) | own

    def target(self, oid: Oid) -> bytes | None:
        """Return a ref's commit, peeling tags; None if unknown."""
        raw = oid.raw
        if raw not in self._tags:
            self._tags[raw] = self._target(raw)
        return self._tags[raw]

    def _target(self, raw: bytes) -> bytes | None:
        if raw in self._own:
            return raw
        read = self._read(raw)
        if read is None:
            tag = self._index.archive(raw)
            return tag.target if tag else raw if self._index.commit(raw) else None
        kind, content = read
        if kind == TAG:
            return next((link.raw for link in links(kind, content)), None)
        if kind == TREE:
            self._tree(raw)
        return raw if kind == COMMIT else None

    def history(self, tip: bytes) -> frozenset[bytes]:
        """Return the unreadable objects of a commit, its tree and its ancestors."""
        pending = [tip]
        while pending:
            at = pending[-1]
            if at in self._all:
                pending.pop()
                continue
            own = self.own(at)
            before = [parent for parent in self._parents[at] if parent not in self._all]
            if before:
                pending.extend(before)
                continue
            pending.pop()
            contents = own
            for parent in self._parents[at]:
                of_parent = self._all[parent]
                contents = of_parent if contents <= of_parent else contents | of_parent
            self._all[at] = contents
        return self._all[tip]

    def own(self, commit: bytes) -> frozenset[bytes]:
        """Return the unreadable objects of a commit and its tree."""
        if commit not in self._own:
            read = self._read(commit)
            if read is None:
                row = self._index.commit(commit)
                self._parents[commit] = (row.parent,) if row and row.parent else ()
                self._own[commit] = frozenset((commit,))
            else:
                tree, *parents = links(*read) if read[0] == COMMIT else [None]
                # Cycles are impossible; a damaged commit has no parents.
                self._parents[commit] = tuple(parent.raw for parent in parents if parent)
                self._own[commit] = self._tree(tree.raw) if tree else _NONE
        return self._own[commit]

    def before(self, commit: bytes) -> bytes | None:
        self.own(commit)
        return next(iter(self._parents[commit]), None)

    def _tree(self, raw: bytes, depth: int = 0) -> frozenset[bytes]:
        known = self._trees.get(raw)
        if known is not None:
            return known
        contents: set[bytes] = set()
        read = self._read(raw)
        if read is None:
            contents.add(raw)
        elif read[0] == TREE and depth < _DEEPEST:
            with contextlib.suppress(ValueError):
                for entry in parse_tree(read[1]):
                    if entry.is_tree:
                        contents |= self._tree(entry.oid.raw, depth + 1)
                    elif entry.mode != _SUBMODULE and not self._is_sound(entry.oid.raw):
                        contents.add(entry.oid.raw)
        self._trees[raw] = frozenset(contents) if contents else _NONE
        return self._trees[raw]

    def _is_sound(self, raw: bytes) -> bool:
        return raw in self.sound or self._read(raw) is not None

    def _read(self, raw: bytes) -> tuple[int, bytes] | None:
        if raw in self.bad:
            return None
        try:
            read = self._repository.read(Oid(raw=raw))
        except StoreDamaged as error:
            self.bad[raw] = error.message.partition("is damaged: ")[2] or error.message
            return None
        self.sound.add(raw)
        return read


class _Hurts:
    """Finds the threads and definitions that miss objects."""

    def __init__(self, store: Store, walk: Walk) -> None:
        self._store = store
        self._index = store.index
        self._walk = walk

    def of(self, refs: Mapping[str, Oid]) -> Iterator[DamagedRef]:
        for name, oid in sorted(refs.items()):
            if name.startswith(layout.REMOTES):
                continue
            objects = self._walk.tip(oid)
            if name.startswith(layout.FOLDED):
                yield from self._folded(name, oid, objects)
            elif objects:
                last = name.rsplit("/", 1)[1]
                thread = ThreadId(last) if layout.is_thread_ref(name) and is_thread_id(last) else None
                commit = self._walk.target(oid)
                steps = name.startswith((layout.THREADS, layout.ARCHIVE))
                first = self._first(commit) if steps and commit else None
                yield self._hurt(name, thread, commit, first, objects)

    def _folded(self, name: str, oid: Oid, objects: frozenset[bytes]) -> Iterator[DamagedRef]:
        if not objects:
            return
        is_hurt = False
        with contextlib.suppress(StoreDamaged):
            for entry in archives.entries(self._store.repository, oid):
                lost = frozenset[bytes]().union(*(self._walk.history(item.raw) for item in entry.commits))
                if lost:
                    is_hurt = True
                    commit = entry.ended.target.raw
                    yield self._hurt(name, entry.thread, commit, self._first(commit), lost)
        if not is_hurt:
            yield DamagedRef(name, None, "", None, None, oid.raw, objects)

    def _hurt(
        self,
        name: str,
        thread: ThreadId | None,
        head: bytes | None,
        first: bytes | None,
        objects: frozenset[bytes],
    ) -> DamagedRef:
        before = self._walk.before(first) if first else None
        row = self._index.commit(before) if before else None
        last = row.node if row is not None and row.kind in ("start", "step") else None
        number = self._number(first) if first else None
        return DamagedRef(name, thread, self._title(head), number, last, head, objects)

    def _first(self, head: bytes) -> bytes | None:
        at: bytes | None = head
        first: bytes | None = None
        while at is not None and self._walk.history(at):
            if self._walk.own(at):
                first = at
            at = self._walk.before(at)
        return first

    def _number(self, commit: bytes) -> int | None:
        row = self._index.commit(commit)
        if row is not None:
            return row.number
        with contextlib.suppress(StoreDamaged):
            message = self._store.repository.commit(Oid(raw=commit)).message
            kind = layout.parse_message(message)
            if kind is not None and kind.kind == "step":
                digits = re.match(r"[0-9]{4,9}", message)
                return int(digits.group()) if digits else None
            return 0
        return None

    def _title(self, commit: bytes | None) -> str:
        while commit is not None:
            row = self._index.commit(commit)
            if row is not None:
                return row.title or row.name or ""
            commit = self._walk.before(commit)
        return ""


def _stray(repository: Repository, bad: Mapping[bytes, str], sound: set[bytes]) -> Iterator[tuple[Path, str]]:
    """Yield damaged loose objects that no ref reaches, left by a crash. libgit2 takes such a file for the
    object and doesn't write it again."""
    for path in files_of_loose_objects(repository.path / "objects"):
        if not _LOOSE.fullmatch(path.name):
            continue
        oid = Oid(hex=path.parent.name + path.name)
        if oid.raw not in sound and oid.raw not in bad and (problem := problem_with(repository, oid)):
            yield path, problem


def _packs(folder: Path, lost: bool) -> tuple[list[Path], list[Path]]:
    """Return damaged packs, and packs with damaged indexes; a missing index counts only if something is
    `lost`, since a fetch in progress has none either."""
    packs, indexes = [], []
    for pack in sorted(folder.glob("pack-*.pack")):
        index = pack.with_suffix(".idx")
        with contextlib.suppress(OSError):  # repacked meanwhile
            if not is_whole(pack):
                packs.append(pack)
            elif lost if not index.exists() else not (is_whole(index) and belongs_to(index, pack)):
                indexes.append(pack)
    return packs, indexes


def derived(objects: Path) -> Iterator[Path]:
    """Yield damaged files that git can generate from the objects."""
    patterns: Iterable[str] = (
        "pack/multi-pack-index",
        "pack/*.rev",
        "pack/*.bitmap",
        "info/commit-graph",
        "info/commit-graphs/*.graph",
    )
    for pattern in patterns:
        for path in sorted(objects.glob(pattern)):
            with contextlib.suppress(OSError):
                if not is_whole(path):
                    yield path
    for index in sorted(objects.glob("pack/pack-*.idx")):
        if not index.with_suffix(".pack").exists():
            yield index
