"""Indexing: commits with their nodes, archive tags and folds that refs lead to.

Anyone may move a ref, including plain git, so refs are indexed when a node is missing or on request. Commits
are indexed after their parents, each node is verified, and a damaged ref is recorded and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from uwf_git.base import log
from uwf_git.base.errors import HeadMoved, NotFound, StoreDamaged, StoreUnwritable, UwfError
from uwf_git.format.builtin import BUILTIN
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.format.kinds import Start, parse_start, parse_step
from uwf_git.git.objects import Stamp, Tag, parse_tag
from uwf_git.git.repository import COMMIT, TAG, Commit, Oid, Repository
from uwf_git.store import layout, ref_kinds
from uwf_git.store.index import (
    ArchiveRow,
    CommitRow,
    FoldedRow,
    Index,
    Tip,
    bound_row,
    commit_row,
    start_row,
    step_row,
)
from uwf_git.store.new_record import NewRecord
from uwf_git.store.nodes import NodeStore

# Exceptions of readers on content that uwf did not write.
_STUMBLES = (ValueError, LookupError, TypeError, OverflowError, RecursionError)


class Store(NodeStore):
    """The nodes of a repository and its indexed refs. Touches no ref."""

    def __init__(self, repository: Repository, index: Index | None = None) -> None:
        """With the caller's `index`, only what is passed to `index_commit` is known: no ref is followed."""
        super().__init__(repository, index or Index(repository.private))
        self._follows_refs = index is None
        self.before_record: Callable[[NewRecord], None] = lambda record: None
        """Is told of a record that is about to be made; what it raises prevents it. Those who make one ask it before
        any work for it."""
        self.registers: Callable[[str], None] = lambda ref: None
        """Is told of the ref of a definition that somebody registers, also if it has this version already."""
        self._taking_in = False
        self._made_anew = False
        if self._follows_refs:
            repository.before_delete = self._forget

    @classmethod
    def open(cls, git_dir: Path) -> Store:
        """Open an existing store. Raises NotFound, Invalid."""
        return cls(Repository(git_dir))

    # Refs

    def sync(self) -> bool:
        """Index all refs under refs/uwf/ that moved, except tracking refs. Return whether any did. Damaged
        refs are recorded."""
        if self._taking_in or not self._follows_refs:
            return False  # a commit names a node which isn't there: looking again would not help
        refs, unreadable = self.repository.refs_and_broken(without=layout.REMOTES)
        refs = {name: oid for name, oid in refs.items() if layout.is_followed_ref(name)}
        if {name: oid.raw for name, oid in refs.items()} == self.index.sound_tips():
            return False
        seen = self.index.tips()
        moved = {
            name: oid
            for name, oid in refs.items()
            if name not in seen or seen[name].oid != oid.raw or seen[name].problem
        }
        gone = seen.keys() - refs.keys() - unreadable
        lost = {name for name in seen.keys() & unreadable if not seen[name].problem}
        if not moved and not gone and not lost:
            return False
        log.debug(
            "QXP2SSBW",
            "takes {moved} refs into the index",
            moved=len(moved),
            gone=len(gone),
            lost=len(lost),
            first=[*moved][:10],
        )
        with self.index.transaction():
            for name in lost:  # only its last position is known
                self.index.set_tip(Tip(name, seen[name].oid, None, "its ref cannot be read"))
            for name in gone:
                self.index.miss(name)
                if name.startswith(layout.FOLDED):
                    self.index.set_folded(name, ())
            for name, oid in moved.items():
                # A process that deleted it has recorded that by now, or waits to.
                if self.repository.ref(name) is not None:
                    self._take_in_ref(name, oid)
        return bool(moved)

    def moved(self, name: str, oid: Oid, commit: Oid, is_indexed: bool = False) -> None:
        """Record where a ref was just put, in case the ref's file is lost, if its commit is indexed."""
        if self._follows_refs and (is_indexed or self.index.commit(commit.raw) is not None):
            self.index.set_tip(Tip(name, oid.raw, commit.raw, None))

    def _forget(self, names: Sequence[str], deleted: bool) -> None:
        """Forget refs before they are deleted, so that they are not missed. Raises StoreUnwritable if that
        cannot be recorded."""
        self.index.follow()
        self.index.try_again()
        with self.index.transaction():
            for name in names:
                self.index.drop_tip(name)
                if name.startswith(layout.FOLDED):
                    self.index.set_folded(name, ())
        if deleted or self.index.is_kept or not self.index.exists():
            return
        if missed := next((name for name in names if not self._is_stood_for(name)), None):
            raise StoreUnwritable(
                f"{missed} is not deleted: the index cannot be written, which has to record that",
                "check the disk and repeat; uwf doctor says what is wrong",
            )

    def _is_stood_for(self, name: str) -> bool:
        if not layout.is_followed_ref(name):
            return True
        if not layout.is_thread_ref(name):
            return False
        thread = layout.thread_of(name)
        ended = name != layout.ARCHIVE + thread and self.repository.ref(layout.ARCHIVE + thread) is not None
        return (
            ended
            or self.repository.ref(layout.REMOVED + thread) is not None
            or self.folded(thread) is not None
        )

    def miss_no_more(self, names: Sequence[str]) -> None:
        with self.index.transaction():
            for name in names:
                self.index.drop_missed(name)

    def missed(self) -> dict[str, Oid]:
        """Return refs that disappeared although no uwf deleted them, with their last ids; without those
        explained by an end, a fold or a removal, and those whose object is gone too."""
        self.sync()
        missed = self.index.missed()
        if not missed:
            return {}
        here = self.repository.refs(without=layout.REMOTES)
        folded = self.index.folded_threads()

        def is_wanted(name: str) -> bool:
            if name in here or not layout.is_followed_ref(name):
                return False
            if not layout.is_thread_ref(name):
                return True
            thread = layout.thread_of(name)
            if thread in folded or layout.REMOVED + thread in here:
                return False
            active, ended = layout.THREADS + thread, layout.ARCHIVE + thread
            if name in (active, ended):
                return ended not in here
            return any(item in here or item in missed for item in (active, ended))

        oids = {name: Oid(raw=oid) for name, oid in sorted(missed.items()) if is_wanted(name)}
        return {name: oid for name, oid in oids.items() if self.repository.has(oid)}

    def _found_again(self, node: Hash) -> Oid | None:
        """Return a node that other nodes reference but the index lost; rebuilds the index, once."""
        if self._taking_in or not self._follows_refs or self._made_anew or node in BUILTIN:
            return None
        if node in self._asked_for and not self.index.has_gaps():
            return None
        log.warning("FZQJKC2W", "makes the index anew, which doesn't know {node}", node=node)
        self._made_anew = True
        self.reindex()
        return self._blob_id(node)

    def reindex(self) -> int:
        """Rebuild the index, atomically for its readers. Return the number of nodes."""
        self.index.follow()
        with self.index.transaction():
            before = self.index.blobs()
            self.index.clear()
            self.sync()
            self._take_back(before)
        return self.index.node_count()

    def _take_back(self, before: Sequence[tuple[Hash, bytes]]) -> None:
        """Index known nodes again that no ref leads to: those of steps in progress or interrupted."""
        known = {node for node, _ in self.index.blobs()}
        for node, blob in before:
            if node not in known and self.repository.has(oid := Oid(raw=blob)):
                with suppress(UwfError):
                    self.adopt([(node, oid)])

    def _take_in_ref(self, name: str, oid: Oid) -> None:
        tip: Oid | None = oid
        kind = ref_kinds.kind_of(name)
        target = kind.target if kind is not None else "commit"
        if target == "fold":
            problem = self._problem_in(oid, lambda: self._take_in_fold(name, oid))
            if problem:
                self.index.set_folded(name, ())
        elif target == "end":
            problem = self._problem_in(oid, lambda: self._take_in(self._peel(oid)))
            archive = self.index.archive(oid.raw)
            tip = Oid(raw=archive.target) if archive else None
        elif target in ("fork", "pause"):
            problem = self._problem_in(oid, lambda: self._take_in(self._parted(oid)))
            tip = None
        else:
            problem = self._problem_in(oid, lambda: self._take_in(oid))
        self.index.set_tip(Tip(name, oid.raw, tip.raw if tip and not problem else None, problem))

    def _problem_in(self, oid: Oid, index: Callable[[], None]) -> str | None:
        """Return the problem of indexing something, None if none: one damaged ref must never hide the others."""
        try:
            index()
            return None
        except UwfError as error:
            problem = error.message
        except _STUMBLES as error:
            problem = f"commit {oid} is not what uwf writes: {type(error).__name__}: {error}"
        log.warning("A2T8RR0N", "{object} cannot be taken in: {problem}", object=oid, problem=problem)
        return problem

    # Tags

    def index_tag(self, tag: Oid) -> ArchiveRow:
        """Index an archive tag. Raises StoreDamaged."""
        row = self.index.archive(tag.raw)
        if row is None:
            try:
                self._peel(tag)
            except (ValueError, LookupError, OverflowError) as error:
                raise StoreDamaged(f"tag {tag} is not what uwf writes: {error}", "delete the ref") from None
            row = self.index.archive(tag.raw)
            if row is None:
                raise StoreDamaged(f"object {tag} is not an archive tag", "delete the ref that names it")
        return row

    def _peel(self, oid: Oid) -> Oid:
        kind, data = self.repository.read(oid)
        if kind == COMMIT:
            return oid
        if kind != TAG:
            raise StoreDamaged(f"object {oid} is neither a commit nor a tag", "delete the ref that names it")
        try:
            tag = parse_tag(data)
        except ValueError as error:
            raise StoreDamaged(f"tag {oid} is damaged: {error}", "delete the ref that names it") from None
        self.index.add_archive(_archive_row(oid, tag))
        return tag.target

    def _parted(self, tag: Oid) -> Oid:
        kind, data = self.repository.read(tag)
        if kind != TAG:
            raise StoreDamaged(f"object {tag} is not a tag", "delete the ref that names it")
        try:
            return parse_tag(data).target
        except ValueError as error:
            raise StoreDamaged(f"tag {tag} is damaged: {error}", "delete the ref that names it") from None

    # Folds

    def folded(self, thread: ThreadId) -> FoldedRow | None:
        """Return a thread's fold entry, None if it isn't folded or was removed."""
        if not self._sync_folds():
            return None
        row = self.index.folded(thread)
        return row if row is None or self.repository.ref(layout.REMOVED + thread) is None else None

    def folded_among(self, threads: Sequence[ThreadId]) -> dict[ThreadId, FoldedRow]:
        """Return the entries of those of the threads that are folded and were not removed."""
        if not self._sync_folds():
            return {}
        rows = self.index.folded_among(threads)
        removed = self.repository.refs_named([layout.REMOVED + thread for thread in rows])
        return {thread: row for thread, row in rows.items() if layout.REMOVED + thread not in removed}

    def folded_threads(self) -> set[ThreadId]:
        """Return all folded threads that were not removed."""
        if not self._sync_folds():
            return set()
        names = self.repository.ref_names(layout.REMOVED)
        return self.index.folded_threads() - {ThreadId(name.removeprefix(layout.REMOVED)) for name in names}

    def folded_forks(self) -> dict[ThreadId, bytes]:
        return self.index.folded_forks() if self._sync_folds() else {}

    def _sync_folds(self) -> bool:
        """Index folds that are new here; return whether there are any."""
        refs = {name: oid.raw for name, oid in self.repository.refs(layout.FOLDED).items()}
        if refs and refs != {name: tip.oid for name, tip in self.index.tips(layout.FOLDED).items()}:
            self.sync()
        return bool(refs)

    def _take_in_fold(self, name: str, oid: Oid) -> None:
        from uwf_git.store.archives import read

        rows = []
        for entry in read(self.repository, oid, name.removeprefix(layout.FOLDED)).threads.values():
            problem = None
            for commit in entry.commits:
                problem = problem or self._problem_in(commit, partial(self._take_in, commit))
            self.index.add_archive(_archive_row(entry.tag, entry.ended))
            attempts = entry.attempts.raw if entry.attempts else None
            rows.append(FoldedRow(entry.thread, name, entry.tag.raw, attempts, entry.fork, problem))
        self.index.set_folded(name, rows)

    # Commits

    def index_commit(self, commit: Oid) -> CommitRow:
        """Index a commit and its new ancestors; return its row. Raises StoreDamaged."""
        row = self.index.commit(commit.raw)
        if row is None:
            self.list_new()
            try:
                with self.index.transaction():
                    self._take_in(commit)
            except NotFound as error:
                raise StoreDamaged(
                    f"commit {commit} names what is not there: {error.message}", error.hint
                ) from None
            except _STUMBLES as error:
                raise StoreDamaged(
                    f"commit {commit} is not what uwf writes: {type(error).__name__}",
                    "restore the ref that leads to it",
                ) from None
            row = self.index.commit(commit.raw)
            if row is None:
                raise StoreUnwritable(
                    f"the index cannot keep commit {commit}", "check free space and permissions"
                )
        return row

    def record(
        self, oid: Oid, node: Hash, parents: tuple[Oid, ...], when: int, before: CommitRow
    ) -> CommitRow:
        """Index a step's commit just made of known nodes, without reading its tree."""
        if self.index.has_lost:  # of the nodes perhaps, so they are read
            return self.index_commit(oid)
        row = self._step_row(commit_row(oid, "step", node, parents, when), before, parents[1:])
        self.index.add_commit(row)
        return row

    def record_start(
        self, oid: Oid, node: Hash, parents: tuple[Oid, ...], when: int, author: str, project: str = ""
    ) -> CommitRow:
        """Index the commit of a StartNode just made on indexed commits, without reading its tree."""
        if self.index.has_lost:
            return self.index_commit(oid)
        start = parse_start(self.get(node).payload)
        name = self.get(start.workflow).payload["name"]
        row = self._start_row(commit_row(oid, "start", node, parents, when), start, name, author, project)
        self.index.add_commit(row)
        return row

    def _take_in(self, tip: Oid) -> None:
        self._taking_in = True
        try:
            pending = [tip]
            while pending:
                oid = pending[-1]
                if self.index.commit(oid.raw) is not None:
                    pending.pop()
                    continue
                commit = self.repository.commit(oid)
                missing = [parent for parent in _followed(commit) if self.index.commit(parent.raw) is None]
                if missing:
                    pending.extend(missing)
                    continue
                pending.pop()
                self._take_in_nodes(commit)
                self.index.add_commit(
                    self._row(oid, commit.parents, commit.time, commit.message, commit.author)
                )
        finally:
            self._taking_in = False

    def _take_in_nodes(self, commit: Commit) -> None:
        before = self.repository.commit(commit.parents[0]).tree if commit.parents else None
        trailers = layout.parse_message(commit.message)
        foreign = ref_kinds.foreign_folders(trailers.kind if trailers else "")
        self.adopt(list(self._new_nodes(commit.tree, before, foreign)))

    def _new_nodes(
        self, tree: Oid, before: Oid | None, foreign: Sequence[str], folder: str = ""
    ) -> Iterator[tuple[Hash, Oid]]:
        """Yield the node files of a tree that an older tree lacks. Equal subtrees and foreign folders are
        skipped."""
        if folder in foreign:
            return
        old = {entry.name: entry for entry in self.repository.tree(before)} if before else {}
        for entry in self.repository.tree(tree):
            if entry.name in old and old[entry.name].oid == entry.oid:
                continue
            if entry.is_tree:
                was, path = old.get(entry.name), f"{folder}{entry.name}/"
                older = was.oid if was and was.is_tree else None
                yield from self._new_nodes(entry.oid, older, foreign, path)
            elif node := layout.node_in_path(folder + entry.name):
                yield node, entry.oid

    def _row(
        self,
        oid: Oid,
        parents: tuple[Oid, ...],
        when: int,
        message: str,
        author: str,
    ) -> CommitRow:
        trailers = layout.parse_message(message)
        if trailers is None:
            return commit_row(oid, "other", Hash(""), parents, when)
        kind, node = trailers
        payload = self.get(node).payload
        row = commit_row(oid, kind, node, parents, when)
        if kind == "start":
            start = parse_start(payload)
            name = self.get(start.workflow).payload["name"]
            return self._start_row(row, start, name, author, layout.project_named(message))
        if kind == "step":
            before = self.index.commit(row.parent) if row.parent else None
            if before is None:
                raise StoreDamaged(f"commit {oid} of step {node} has no parent")
            return self._step_row(row, before, parents[1:])
        if kind == "part":
            rows = (self.index.commit(parent.raw) for parent in parents)
            return row._replace(rehearsed=sum(item.rehearsed for item in rows if item is not None))
        if kind == "workflow":
            row = row._replace(workflow=node)
        refs = ref_kinds.kind_of_record(kind)
        if refs is not None and refs.of_thread:
            if "start" not in payload:  # it takes back what it refers to
                payload = self.get(self.references(self.get(node))[0]).payload
            rows = (self.index.commit(parent.raw) for parent in parents)
            return bound_row(row, payload["start"], payload.get("role"), rows)
        return row._replace(name=payload[refs.name_field]) if refs is not None and refs.name_field else row

    def _start_row(self, row: CommitRow, start: Start, name: str, author: str, project: str) -> CommitRow:
        return start_row(
            row, start, name, author, project, self.index.commit(row.merged) if row.merged else None
        )

    def _step_row(self, row: CommitRow, before: CommitRow, others: Sequence[Oid]) -> CommitRow:
        step = parse_step(self.get(row.node).payload)
        rows = [self.index.commit(other.raw) for other in others]
        return step_row(row, before, step, self.get(step.output).payload, rows)


def pin(store: Store, node: Hash) -> Oid:
    """Protect a node and its references from gc with `refs/uwf/nodes/<HASH>`. Return the commit. Raises
    NotFound."""
    ref = layout.PINS + node
    known = store.repository.ref(ref)
    if known is not None:
        return known
    commit = keeping(store, node)
    try:
        store.repository.create_ref(ref, commit)
    except HeadMoved:  # it was pinned meanwhile
        return store.repository.ref(ref) or commit
    return commit


def keeping(store: Store, node: Hash, stamp: Stamp | None = None) -> Oid:
    """Return the commit for a pin. Touches no ref. Raises NotFound."""
    files = {".gitattributes": layout.GITATTRIBUTES, **store.files(node)}
    tree = store.repository.write_folder(files)
    by, when = stamp or (store.repository.user, None)
    text = layout.pin_message(node)
    commit = store.repository.write_commit(tree, [], by, text, when, committer=stamp and by)
    store.index_commit(commit)
    return commit


def pins(store: Store) -> frozenset[str]:
    """Return the names of all pins."""
    return frozenset(store.repository.ref_names(layout.PINS))


def unpin(store: Store, before: frozenset[str], root: Hash, stop: frozenset[Hash]) -> None:
    """Delete the pins made since `before` of nodes reachable from `root`, without passing `stop`: a commit
    protects them now."""
    if not (new := pins(store) - before):
        return
    kept = {layout.PINS + node for node, _ in store.walk(root, stop)} & new
    oids = {name: oid for name in kept if (oid := store.repository.ref(name)) is not None}
    with suppress(StoreUnwritable):  # they keep what is kept anyway, and the step is made
        store.repository.delete_refs(oids)


def _followed(commit: Commit) -> tuple[Oid, ...]:
    """Return the parents that are records. A version's second parent may be any merge on a forge."""
    if len(commit.parents) > 1:
        trailers = layout.parse_message(commit.message)
        kind = ref_kinds.kind_of_record(trailers.kind) if trailers is not None else None
        if kind is not None and kind.record_parents:
            return commit.parents[: kind.record_parents]
    return commit.parents


def _archive_row(oid: Oid, tag: Tag) -> ArchiveRow:
    status, _, reason = tag.message.strip().partition(": ")
    return ArchiveRow(oid.raw, tag.target.raw, status, reason, tag.time)
