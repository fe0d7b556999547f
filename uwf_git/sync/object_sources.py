"""Sources of lost objects: a remote, a bundle, another local repository, or the rest of the store.

Objects are fetched into a repository of their own in the private folder; only requested objects are taken,
and only if their content matches their id.

The rest of the store determines pages, trees, a workflow's nodes from its definition, and (given the same
user and time zone) commits and archive tags. The code that wrote them runs again on a repository that writes
to memory and moves no ref.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from uwf_git.base.errors import Invalid, NotFound, RemoteFailed, StoreDamaged, UwfError
from uwf_git.engine.forks import tips_gathered
from uwf_git.engine.next_turn import decide_at
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import parse_detail
from uwf_git.format.types import is_kind
from uwf_git.git.bulk import Bulk
from uwf_git.git.fsync import ASIDE
from uwf_git.git.objects import Person, id_of, tag_text
from uwf_git.git.program import Git
from uwf_git.git.repository import TAG, Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.attempts import Attempts
from uwf_git.store.definitions import versions_of
from uwf_git.store.history import Head
from uwf_git.store.index import CommitRow, Overlay
from uwf_git.store.indexing import Store
from uwf_git.store.remotes import Remote, check_url, without_password
from uwf_git.store.threads import Threads
from uwf_git.sync.tracking import bring, list_refs, listed_lines, sort_out
from uwf_git.verify.damage import problem_with
from uwf_git.workflow.turn import gathers_threads

MANY = 100  # ids above which all is fetched at once
_PREFIX = "mending."
_STUMBLES = (ValueError, LookupError, TypeError, OverflowError, RecursionError)
_NOBODY = ThreadId("0" * 26)


class CheckedObject(NamedTuple):
    """An object checked against its id. `kind` as in `Repository.read`."""

    kind: int
    content: bytes


class ObjectSource:
    """A source of objects. `refs` are those seen there."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.refs: Mapping[str, Oid] = {}
        self.failed: UwfError | None = None
        self._limit = limit
        self._repository: Repository | None = None

    def prepare(self, wanted: Collection[Oid]) -> None:
        """Get as many of these objects as possible; errors are kept in `failed`."""

    def read(self, oid: Oid) -> CheckedObject | None:
        """Return an object; None if it isn't whole there or exceeds `uwf.maxBlob`."""
        if self._repository is None or not self._repository.has(oid):
            return None
        try:
            return CheckedObject(*self._repository.read_within(oid, self._limit))
        except StoreDamaged:
            return None


class LocalRepository(ObjectSource):
    """Another repository on this machine, read object by object, since it may be damaged too."""

    def __init__(self, name: str, git_dir: Path, limit: int) -> None:
        """Raises Invalid, NotFound if it cannot be opened."""
        super().__init__(name, limit)
        try:
            self._repository = Repository(git_dir)
        except Invalid as error:
            # A store under repair does not repair another.
            raise Invalid(error.message, "put that right, or name another place with --from") from None
        self.refs = self._repository.refs(without=layout.REMOTES)


class Fetched(ObjectSource):
    """A remote, URL or bundle, fetched into a separate repository."""

    def __init__(self, name: str, remote: Remote, aside: Callable[[], Git], limit: int) -> None:
        """`aside` makes the repository to fetch into."""
        super().__init__(name, limit)
        self._remote = remote
        self._aside = aside
        self._git: Git | None = None
        self._by_id = True
        self._all = False

    def prepare(self, wanted: Collection[Oid]) -> None:
        """Fetch the objects by id, or if that is refused, everything shared."""
        missing = [oid for oid in wanted if self.read(oid) is None]
        if not missing or self._all or self.failed is not None:
            return
        try:
            if self._git is None or self._repository is None:
                self._git = self._aside()
                self._repository = Repository(self._git.git_dir)
            self._fetch(self._git, self._repository, missing)
        except UwfError as error:
            self.failed = error

    def _fetch(self, git: Git, repository: Repository, missing: Collection[Oid]) -> None:
        if self._by_id and len(missing) <= MANY:
            try:
                bring(git, repository, self._remote.name, [str(oid) for oid in missing])
                return
            except RemoteFailed:
                self._by_id = False  # it gives none by id, or hasn't one of them
        self._all = True
        self.refs = self._listed(git, repository)
        if self.refs:
            bring(git, repository, self._remote.name, [f"+{name}:{name}" for name in self.refs])

    def _listed(self, git: Git, repository: Repository) -> Mapping[str, Oid]:
        return list_refs(git, repository, self._remote).refs


class Bundle(Fetched):
    def __init__(self, name: str, path: Path, aside: Callable[[], Git], limit: int) -> None:
        super().__init__(name, Remote(str(path), str(path), ""), aside, limit)
        self._by_id = False  # git doesn't know it of files

    def _listed(self, git: Git, repository: Repository) -> Mapping[str, Oid]:
        most = repository.config.max_refs
        too_many = RemoteFailed(f"{self.name} holds more than {most:,} refs", "see: git config uwf.maxRefs")
        lines = listed_lines(git, "bundle", "list-heads", self._remote.name, between=" ")
        return sort_out(lines, layout.is_shared_ref, most, too_many).refs


class ObjectSources:
    """The sources that the user named, then the store's remotes."""

    def __init__(self, repository: Repository, git: Git, remotes: Collection[Remote]) -> None:
        self._repository = repository
        self._git = git
        self._remotes = remotes
        self._limit = repository.config.max_blob
        self._number = 0

    @contextmanager
    def opened(self, named: Collection[str]) -> Iterator[list[ObjectSource]]:
        """Open the sources for the block. Raises NotFound for a missing file or folder, Invalid for an
        invalid URL."""
        self._sweep()  # leftovers of a killed one
        try:
            yield [
                *(self._named(text) for text in named),
                *(self._remote(remote) for remote in self._remotes),
            ]
        finally:
            self._sweep()

    def _named(self, text: str) -> ObjectSource:
        remote = next((remote for remote in self._remotes if remote.name == text), None)
        if remote is not None:
            return self._remote(remote)
        path = Path(text).expanduser().absolute()
        if path.is_dir():
            return LocalRepository(text, repository_in(path), self._limit)
        if path.is_file():
            return Bundle(text, path, self._new, self._limit)
        if "://" not in text and ":" not in text:
            raise NotFound(
                f"no file, folder or remote {text!r}", "name a bundle, a repository, or the URL of one"
            )
        url = check_url(text)
        return Fetched(without_password(url), Remote(url, url, url), self._new, self._limit)

    def _remote(self, remote: Remote) -> ObjectSource:
        path = Path(remote.url)
        if path.is_dir():
            try:
                return LocalRepository(remote.name, repository_in(path), self._limit)
            except UwfError:
                pass  # git says what is wrong with it
        return Fetched(remote.name, remote, self._new, self._limit)

    def _new(self) -> Git:
        self._number += 1
        path = self._repository.private / f"{_PREFIX}{self._number}{ASIDE}"
        Repository.create(path)
        # Remotes with all that the user set for them: credentials, proxies, other addresses.
        config, theirs = path / "config", str(self._repository.path / "config")
        quoted = theirs.replace("\\", "\\\\").replace('"', '\\"')
        config.write_text(f'{config.read_text()}[include]\n\tpath = "{quoted}"\n')
        return self._git.on(path)

    def _sweep(self) -> None:
        for path in self._repository.private.glob(f"{_PREFIX}*{ASIDE}"):
            shutil.rmtree(path, ignore_errors=True)


def repository_in(folder: Path) -> Path:
    """Return the git directory in a folder: a bare repository, a work tree's, or a storage root's store."""
    for name in ("store.git", ".git"):
        if (folder / name).is_dir():
            return folder / name
    return folder


class RegeneratedObjects(ObjectSource):
    """Objects that can be generated again from the history of some commits."""

    def __init__(self, store: Store, tips: Collection[bytes]) -> None:
        super().__init__("the rest of the store", store.repository.config.max_blob)
        self._store = store
        self._tips = tips
        self._made: Mapping[Oid, CheckedObject] | None = None

    def prepare(self, wanted: Collection[Oid]) -> None:
        if self._made is None:
            repository = ImaginedRepository(self._store.repository.path)
            index = Overlay(self._store.index)
            store = Store(repository, index)
            for row, threads in self._rows():
                try:
                    self._make(repository, store, row, threads)
                except (UwfError, *_STUMBLES):
                    continue  # it needs something that is lost as well
            self._tags(repository)
            index.close()
            self._made = repository.made

    def read(self, oid: Oid) -> CheckedObject | None:
        return self._made.get(oid) if self._made else None

    def _rows(self) -> Iterator[tuple[CommitRow, Sequence[ThreadId]]]:
        """Yield the commits, parents first; a start with the threads that it may name: those that it begins."""
        seen: dict[bytes, CommitRow] = {}
        begins: dict[bytes, bytes] = {}  # the first commit of each chain, by each of its commits
        of_threads: dict[bytes, list[ThreadId]] = {}
        threads = self._threads()
        tips = list(self._tips)
        for tip in tips:  # grows while it is walked
            chain: list[CommitRow] = []
            at: bytes | None = tip
            while at is not None and at not in seen and (row := self._store.index.commit(at)) is not None:
                chain.append(row)
                at = row.parent
            tips += [row.merged for row in chain if row.kind == "start" and row.merged is not None]
            seen.update((row.oid, row) for row in reversed(chain))
            starts = [row.oid for row in chain if row.kind == "start"]
            start = starts[-1] if starts else begins.get(at or b"", b"")
            begins.update((row.oid, start) for row in chain)
            of_threads.setdefault(begins.get(tip, b""), []).extend(threads.get(tip, ()))
        for row in seen.values():
            yield row, of_threads.get(row.oid, ())

    @cached_property
    def _ends(self) -> Mapping[ThreadId, bytes]:
        """The last commits of the threads."""
        return {thread: tip for tip, threads in self._threads().items() for thread in threads}

    def _threads(self) -> Mapping[bytes, Sequence[ThreadId]]:
        """Return the threads by their last commits."""
        threads: dict[bytes, list[ThreadId]] = {}
        for name, ref in self._store.index.tips(layout.THREADS).items():
            if ref.tip is not None:
                threads.setdefault(ref.tip, []).append(layout.thread_of(name))
        names = self._archived()
        for tag in self._store.index.archives().values():
            if thread := names.get(tag.oid):
                threads.setdefault(tag.target, []).append(thread)
        return threads

    def _archived(self) -> Mapping[bytes, ThreadId]:
        """Return the ended threads by their archive tags."""
        archives = self._store.index.tips(layout.ARCHIVE)
        return {ref.oid: layout.thread_of(name) for name, ref in archives.items()}

    def _make(
        self, repository: ImaginedRepository, store: Store, row: CommitRow, threads: Sequence[ThreadId]
    ) -> None:
        repository.now = row.time
        parent = Oid(raw=row.parent) if row.parent else None
        if row.kind in ref_kinds.versioned():
            versions_of(store, row.kind).remake(Oid(raw=row.oid), row.node, [parent] if parent else [])
        elif row.kind == "start" and parent:
            origin = Oid(raw=row.merged) if row.merged else None
            for thread in (None, *threads):  # None if it was imported or is of an evaluation
                Threads(store).begin(parent, row.node, thread, origin=origin, project=row.project or "")
        elif row.kind == "step" and row.parent and (before := store.index.commit(row.parent)):
            _step(store, Head(_NOBODY, Oid(raw=row.parent), before, None), row.node, self._ends)
        elif row.kind == "attempt" and row.parent and (before := store.index.commit(row.parent)):
            _attempt(store, row.node, Oid(raw=row.parent), before.kind == "attempt")

    def _tags(self, repository: ImaginedRepository) -> None:
        names = self._archived()
        for tag in self._store.index.archives().values():
            if thread := names.get(tag.oid):
                text = f"{tag.status}: {tag.reason}" if tag.reason else tag.status
                target = Oid(raw=tag.target)
                repository.keep(
                    TAG, tag_text(layout.tag_name(thread), target, repository.user, tag.time, text + "\n")
                )


def _step(store: Store, head: Head, node: Hash, ends: Mapping[ThreadId, bytes]) -> None:
    threads = Threads(store)
    recorded = store.step(node)
    detail = store.get(recorded.detail)
    history = threads.history(head)
    known = {step.hash for step in history.steps}
    merge = threads.commit_of(recorded.detail) if is_kind(detail.type, "step") else None
    extraction = parse_detail(detail.payload).extraction if is_kind(detail.type, "detail") else ""
    then = decide_at(history.after(threads.context(node, history.workflow))).shown
    merged: Sequence[Oid] = (merge,) if merge else ()
    if gathers_threads(recorded.role):
        merged = threads.gathered(head.node, tips_gathered(store, recorded.output, ends))
    threads.append(head, node, known, merged, extraction, then)


def _attempt(store: Store, node: Hash, before: Oid, is_attempt: bool) -> None:
    attempts, attempt = Attempts(store), store.attempt(node)
    head = attempts.head_of(before) if is_attempt else before
    if store.index_commit(head).node != (attempt.prev or attempt.start):
        head = Threads(store).commit_of(attempt.prev or attempt.start)
    tip = before if is_attempt else None
    attempts.write_commit(
        Head(_NOBODY, head, store.index_commit(head), None), node, attempt, attempts.count(tip) + 1, tip
    )


class ImaginedRepository(Repository):
    """The repository with writes to memory only, and no ref moved. `now` is the time of new commits, in Unix
    seconds."""

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir)
        self.made: dict[Oid, CheckedObject] = {}
        self.now = 0
        self.by: Person | None = None

    @property
    def user(self) -> Person:
        return self.by or super().user

    def keep(self, kind: int, data: bytes) -> Oid:
        oid = id_of(kind, data)
        self.made[oid] = CheckedObject(kind, data)
        return oid

    def _write(self, kind: int, data: bytes) -> Oid:
        return self.keep(kind, data)

    @contextmanager
    def in_bulk(self, keep: bool = True) -> Iterator[Bulk]:
        with super().in_bulk(keep=False) as bulk:
            yield bulk

    def read(self, oid: Oid) -> tuple[int, bytes]:
        return self.made.get(oid) or super().read(oid)

    def has(self, oid: Oid) -> bool:
        return oid in self.made or problem_with(self, oid) is None

    def write_commit(
        self,
        tree: Oid,
        parents: Sequence[Oid],
        author: Person,
        message: str,
        when: int | None = None,
        sign: bool = True,
        committer: Person | None = None,
    ) -> Oid:
        now = self.now if committer is None else when  # what follows from commits has their time
        return super().write_commit(tree, parents, author, message, now, False, committer)

    def _put(self, name: str, old: Oid | None, new: Oid) -> None:
        return None

    def delete_refs(
        self, refs: Mapping[str, Oid], before: Callable[[Collection[str]], object] | None = None
    ) -> set[str]:
        return set(refs)
