"""A store's git repository: objects, refs under refs/uwf/, and a private folder. No other ref, the index,
HEAD or a work tree is touched."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from uwf_git.base import system
from uwf_git.base.errors import HeadMoved, Invalid, NotFound, Oversized, StoreDamaged, StoreUnwritable
from uwf_git.git.config import GitConfig
from uwf_git.git.database import ObjectDatabase, damaged, unwritable
from uwf_git.git.database import TooLarge as TooLarge
from uwf_git.git.fsync import keep_folder, make_folder, require_folder, share_below, sync_folder
from uwf_git.git.libgit2 import GitError, init_bare, open_repository
from uwf_git.git.lockfiles import lockfiles_of
from uwf_git.git.objects import BLOB as BLOB
from uwf_git.git.objects import BLOB_MODE as BLOB_MODE
from uwf_git.git.objects import COMMIT as COMMIT
from uwf_git.git.objects import (
    NAMES,
    Person,
    commit_text,
    is_signed,
    parse_commit,
    parse_tree,
    rewritten_commit,
    signed_commit,
    signed_tag,
    sort_key,
    tag_text,
    tree_row,
)
from uwf_git.git.objects import TAG as TAG
from uwf_git.git.objects import TREE as TREE
from uwf_git.git.objects import TREE_MODE as TREE_MODE
from uwf_git.git.objects import Commit as Commit
from uwf_git.git.objects import Entry as Entry
from uwf_git.git.objects import Oid as Oid
from uwf_git.git.ref_transactions import RefFiles
from uwf_git.git.refs import (
    FIX,
    is_waited_for,
    may_have_refs,
    read_ref,
    read_ref_ids,
    read_refs,
    read_refs_named,
)
from uwf_git.git.refs import PRIVATE as PRIVATE

NAMESPACE = "refs/uwf/"
TREES_KEPT = 256
MANY_REFS = 20
_SMALL = 1 << 16  # bytes, below any sensible limit: reading it opens the configuration
_NO_OID = Oid(raw=bytes(20))


class RefMove(NamedTuple):
    """A change of a ref: `old` is None for a new one, `new` for a deleted one."""

    name: str
    old: Oid | None
    new: Oid | None


class Repository(ObjectDatabase):
    """An open repository. Raises StoreUnwritable."""

    def __init__(self, git_dir: Path) -> None:
        """Open an existing repository; a worktree opens its main repository. Raises NotFound, Invalid for an
        unsupported format."""
        if not git_dir.exists():
            raise NotFound(f"no store at {git_dir}", "make one with: uwf init")
        if waited := is_waited_for(git_dir):
            hint = FIX if waited.name == "HEAD" else "move it away, and put the file back"
            raise StoreDamaged(f"{waited} is not a regular file", hint)
        try:
            opened = open_repository(str(git_dir))
        except GitError as error:
            if missing := missing_folders(git_dir):
                raise StoreDamaged(f"{git_dir} lacks its folder {' and '.join(missing)}", FIX) from None
            raise Invalid(
                f"{git_dir} does not open as a git repository: {error}", _open_hint(str(error), git_dir)
            ) from None
        super().__init__(opened)
        self.private = self.path / PRIVATE
        self.config = GitConfig(self._git, self.path)
        keep_folder(self.path)
        share_below(self.path, self.config.sharing)
        self.lockfiles = lockfiles_of(self.path)
        self._files = RefFiles(self.path, self.lockfiles)
        self.before_delete: Callable[[Sequence[str], bool], None] = lambda names, deleted: None
        """Is told of refs that are about to be deleted here, and again once they are: who remembers them won't miss
        them."""
        self.on_moves: Callable[[Sequence[RefMove], bool], None] = lambda moves, done: None
        """Is told of refs that are about to move here, and again of those that have moved."""
        self.before_naming: Callable[[Person], None] = lambda user: None
        """Is told of the user before they are named in an object; what it raises is raised by `user`."""
        self._trees: dict[Oid, tuple[tuple[Entry, ...], bytes]] = {}
        self._roots: dict[Oid, Oid] = {}

    @classmethod
    def create(cls, git_dir: Path) -> Repository:
        """Return a new bare repository with file refs and SHA-1 whatever git's defaults, or the existing one."""
        try:
            if not os.path.lexists(git_dir):
                make_folder(git_dir, _init)
            elif not (git_dir / "HEAD").exists():  # a folder of the user's choice, or an incomplete one
                _init(git_dir)
                sync_folder(git_dir)
        except (GitError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise StoreUnwritable(f"cannot make a store at {git_dir}: {reason}", "check the folder") from None
        return cls(git_dir)

    # Objects

    def blob(self, oid: Oid) -> bytes:
        """Return a blob's content. Raises StoreDamaged."""
        return self._of_kind(oid, BLOB)

    def tree(self, oid: Oid) -> tuple[Entry, ...]:
        """Return a tree's entries in git's order. Raises StoreDamaged."""
        return self._tree(oid)[0]

    def _tree(self, oid: Oid) -> tuple[tuple[Entry, ...], bytes]:
        known = self._trees.get(oid)
        if known is None:
            data = self._of_kind(oid, TREE)
            try:
                known = self._remember(oid, parse_tree(data), data)
            except ValueError:
                raise damaged(str(oid), "it is not a well-formed tree") from None
        return known

    def _remember(self, oid: Oid, entries: tuple[Entry, ...], data: bytes) -> tuple[tuple[Entry, ...], bytes]:
        if len(self._trees) >= TREES_KEPT:
            self._trees.clear()
        self._trees[oid] = entries, data
        return entries, data

    def commit(self, oid: Oid) -> Commit:
        """Return a commit. Raises StoreDamaged."""
        try:
            return parse_commit(self._of_kind(oid, COMMIT))
        except ValueError:
            raise damaged(str(oid), "it is not a well-formed commit") from None

    def _of_kind(self, oid: Oid, kind: int) -> bytes:
        actual, data = self.read(oid)
        if actual != kind:
            what = NAMES[actual].decode() if actual in NAMES else actual
            raise damaged(str(oid), f"it is a {what}, not a {NAMES[kind].decode()}")
        return data

    def write_blob(self, data: bytes) -> Oid:
        """Write a blob. Raises Oversized, StoreUnwritable."""
        self.require_size(len(data))
        return self._write(BLOB, data)

    def require_size(self, size: int, what: str = "a file") -> None:
        """Raise Oversized for a blob of more bytes than `verify` accepts."""
        if size > _SMALL and size > (at_most := self.config.max_blob):
            raise Oversized(
                f"{what} has {size:,} bytes, over the limit of {at_most:,}",
                f"put large texts into files, or raise the limit: {self.config.to_raise('uwf.maxBlob', str(size))}",
            )

    def write_tree(self, entries: Iterable[Entry]) -> Oid:
        """Write a tree of unsorted entries."""
        ordered = tuple(sorted(entries, key=sort_key))
        return self._write_ordered(ordered, b"".join(map(tree_row, ordered)))

    def _write_ordered(self, entries: tuple[Entry, ...], data: bytes) -> Oid:
        oid = self._write(TREE, data)
        self._remember(oid, entries, data)
        return oid

    def file(self, root: Oid, path: str) -> Oid | None:
        """Return the id at a path in a tree, or None."""
        oid = root
        for name in path.split("/"):
            entry = next((entry for entry in self.tree(oid) if entry.name == name), None)
            if entry is None:
                return None
            oid = entry.oid
        return oid

    def write_folder(self, files: Mapping[str, bytes | Oid]) -> Oid:
        """Write a tree of paths, from bytes or existing objects."""
        blobs: list[Entry] = []
        folders: dict[str, dict[str, bytes | Oid]] = {}
        for path, content in files.items():
            folder, slash, rest = path.partition("/")
            if slash:
                folders.setdefault(folder, {})[rest] = content
            else:
                oid = self.write_blob(content) if isinstance(content, bytes) else content
                blobs.append(Entry(BLOB_MODE, path, oid))
        trees = [Entry(TREE_MODE, name, self.write_folder(inner)) for name, inner in folders.items()]
        return self.write_tree(blobs + trees)

    def graft(self, root: Oid | None, folders: Sequence[str], tree: Oid) -> Oid:
        """Return a root tree with a tree put at a path; siblings stay."""
        name, *rest = folders
        if rest:
            entries = self._tree(root)[0] if root else ()
            place = _place_of(entries, name)
            old = entries[place].oid if place is not None and entries[place].is_tree else None
            tree = self.graft(old, rest, tree)
        return self.with_entries(root, Entry(TREE_MODE, name, tree))

    def with_entries(self, tree: Oid | None, *new: Entry) -> Oid:
        """Return a tree with entries added or replaced. Efficient at the end, where steps are added."""
        entries, data = self._tree(tree) if tree else ((), b"")
        for entry in new:
            entries, data = _with_entry(entries, data, entry)
        return self._write_ordered(entries, data)

    def grown(self, tree: Oid | None, files: Mapping[str, Entry]) -> Oid:
        """Return a tree with entries put at their paths; entries' names are the last parts."""
        inner: dict[str, dict[str, Entry]] = {}
        entries: list[Entry] = []
        for path, entry in files.items():
            folder, slash, rest = path.partition("/")
            if slash:
                inner.setdefault(folder, {})[rest] = entry
            else:
                entries.append(entry._replace(name=path))
        there = {entry.name: entry.oid for entry in self.tree(tree)} if tree and inner else {}
        entries += [Entry(TREE_MODE, name, self.grown(there.get(name), some)) for name, some in inner.items()]
        return self.with_entries(tree, *entries)

    def united(self, one: Oid, other: Oid) -> Oid:
        """Return the union of two trees; of two files at a path, the one with the smaller id. Commutative.
        Raises StoreDamaged for a folder against a file."""
        if one == other:
            return one
        mine = {entry.name: entry for entry in self.tree(one)}
        more: list[Entry] = []
        for entry in self.tree(other):
            known = mine.get(entry.name)
            if known is None:
                more.append(entry)
            elif known.is_tree is not entry.is_tree:
                raise damaged(str(other), f"its {entry.name} is not of the kind that {one} has")
            elif known.is_tree:
                more.append(entry._replace(oid=self.united(known.oid, entry.oid)))
            elif entry.oid.raw < known.oid.raw:
                more.append(entry)
        return self.with_entries(one, *more)

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
        """Write a commit without moving a ref, signed by `commit.gpgSign`. The committer is the user, or
        another, then unsigned and in UTC; `when` is in Unix seconds. Raises SigningFailed before writing."""
        when = int(time.time()) if when is None else when
        data = commit_text(
            tree, parents, author, committer or self.user, when, message, committer is not None
        )
        if sign and committer is None and self.config.signs_commits:
            data = signed_commit(data, self._signature(data))
        oid = self._write(COMMIT, data)
        self._roots = {oid: tree}  # the next step is built on it
        return oid

    def write_signed_commit(self, tree: Oid, parents: Sequence[Oid], message: str) -> Oid:
        """Write a commit of the user, signed whatever `commit.gpgSign` says. Raises SigningFailed before
        writing."""
        data = commit_text(tree, parents, self.user, self.user, int(time.time()), message)
        return self._write(COMMIT, signed_commit(data, self._signature(data)))

    def rewrite_commit(
        self,
        commit: Oid,
        tree: Oid,
        parents: Sequence[Oid],
        message: str | None = None,
        resigns: bool = False,
    ) -> Oid:
        """Write a commit with another tree and parents; author, committer and time stay. The signature is dropped; if
        it `resigns`, one that the user made is replaced by another of theirs, if they sign."""
        before = self._of_kind(commit, COMMIT)
        data = rewritten_commit(before, tree, parents, message)
        is_own = resigns and self.config.signs_commits and is_signed(before)
        if is_own and parse_commit(before).committer == self.user.ident:
            data = signed_commit(data, self._signature(data))
        return self._write(COMMIT, data)

    def write_raw_commit(self, data: bytes) -> Oid:
        return self._write(COMMIT, data)

    def root(self, commit: Oid) -> Oid:
        """Return a commit's tree. Raises StoreDamaged."""
        return self._roots.get(commit) or self.commit(commit).tree

    def write_tag(self, name: str, target: Oid, message: str) -> Oid:
        """Write an annotated tag without a ref, signed by `tag.gpgSign` or `commit.gpgSign`. Raises
        SigningFailed before writing."""
        data = tag_text(name, target, self.user, int(time.time()), message)
        if self.config.signs_tags:
            data = signed_tag(data, self._signature(data))
        return self.write_raw_tag(data)

    def write_raw_tag(self, data: bytes) -> Oid:
        """Write a tag as given, with its signature."""
        return self._write(TAG, data)

    def _signature(self, data: bytes) -> str:
        from uwf_git.git.signing import sign

        return sign(self.config.signing, self.user, data)

    @property
    def by_git(self) -> str:
        """The beginning of a command of git on this repository, for a hint."""
        return f"git --git-dir {shlex.quote(str(self.path))}"

    @property
    def user(self) -> Person:
        self.before_naming(self.config.user)
        return self.config.user

    # Refs

    def ref(self, name: str) -> Oid | None:
        """Return a ref's object, or None. Raises StoreDamaged."""
        return read_ref(self.path, name)

    def refs_named(self, names: Sequence[str]) -> dict[str, Oid]:
        """Return the objects of those of many refs that are there. Raises StoreDamaged."""
        return read_refs_named(self.path, names)

    def refs(self, prefix: str = NAMESPACE, without: str = "") -> dict[str, Oid]:
        """Return the refs under a prefix of refs/uwf/, except under `without`. Unreadable ones are omitted;
        see `broken_refs`. Raises StoreDamaged for an unreadable folder or packed-refs."""
        return self.refs_and_broken(prefix, without)[0]

    def refs_and_broken(self, prefix: str = NAMESPACE, without: str = "") -> tuple[dict[str, Oid], set[str]]:
        """As `refs`, with the names of unreadable ones."""
        oids = read_refs(self.path, prefix, without=without)
        refs = {name: oid for name, oid in oids.items() if oid is not None}
        return refs, oids.keys() - refs.keys()

    def ref_ids(self, without: str) -> dict[str, str]:
        """Return the ids of all refs except under `without`, as `refs` does: much faster, for thousands. Raises
        StoreDamaged."""
        return read_ref_ids(self.path, NAMESPACE, without)

    def ref_names(self, prefix: str = NAMESPACE) -> list[str]:
        """Return the names under a prefix, including unreadable ones."""
        return list(read_refs(self.path, prefix, read=False))

    def may_have_refs(self, prefix: str) -> bool:
        """Return whether there are or were refs under a prefix (ending in a slash), without reading them."""
        return may_have_refs(self.path, prefix)

    @property
    def has_tracking_refs(self) -> bool:
        """Return whether anything was ever fetched, without reading refs."""
        return self.may_have_refs(f"{NAMESPACE}remotes/")

    def broken_refs(self) -> list[str]:
        """Return the refs without object id."""
        return [name for name, oid in read_refs(self.path, NAMESPACE).items() if oid is None]

    def create_ref(self, name: str, target: Oid) -> None:
        """Create a ref. Raises HeadMoved if it exists, NotFound if its object is missing."""
        self._put(name, None, target)

    def create_refs(self, refs: Mapping[str, Oid], packed: bool = False) -> set[str]:
        """Create many refs, by one call of git if faster. Returns those created; existing ones are skipped. With
        `packed`, for refs at commits that are next to each other, many are put into packed-refs."""
        self.store_gathered()
        if len(refs) > MANY_REFS:
            moves = [RefMove(name, None, oid) for name, oid in refs.items()]
            self.on_moves(moves, False)
            if (created := self._create_many(refs, packed)) is not None:
                self.on_moves([move for move in moves if move.name in created], True)
                return created
        done = set()
        for name, oid in refs.items():
            with contextlib.suppress(HeadMoved):
                self.create_ref(name, oid)
                done.add(name)
        return done

    def _create_many(self, refs: Mapping[str, Oid], packed: bool) -> set[str] | None:
        if packed:
            with self._changing():
                return self._files.create_packed(refs)
        from uwf_git.git.program import Git

        orders = "".join(f"create {name} {oid}\n" for name, oid in refs.items())
        done = Git(self.path).run("update-ref", "--stdin", stdin=orders.encode(), check=False)
        return set(refs) if done.code == 0 else None

    def move_ref(self, name: str, old: Oid, new: Oid) -> None:
        """Compare-and-swap. Raises HeadMoved, Busy for a persistent lock.

        Collected objects are synced together with the ref: a step waits for the disk twice, for its content
        and for the ref's name, instead of eleven times with libgit2.
        """
        self._put(name, old, new)

    def _put(self, name: str, old: Oid | None, new: Oid) -> None:
        def store(descriptor: int, folder: Path) -> None:
            if self._bulk is None:
                system.sync(descriptor)
            else:
                self._bulk.store([descriptor], before=folder)

        if old is None and not self.has(new):
            require_folder(self.path)
            raise NotFound(f"no object {new} for {name}", "repeat: it was removed meanwhile")
        move = [RefMove(name, old, new)]
        self.on_moves(move, False)
        with self._changing():
            self._files.put(name, old, new, store)
        self.on_moves(move, True)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        self.writers.begin()
        try:
            yield
        except OSError as error:
            raise unwritable(self.path, error) from None
        finally:
            self.writers.end()

    def put_ref(self, name: str, old: Oid | None, new: Oid) -> None:
        """Create a ref (`old` is None) or compare-and-swap it. Raises HeadMoved."""
        if old is None:
            self.create_ref(name, new)
        else:
            self.move_ref(name, old, new)

    def delete_ref(self, name: str, old: Oid) -> None:
        """Compare-and-delete. Raises HeadMoved."""
        if not self.delete_refs({name: old}):
            raise HeadMoved(f"{name} is not at {old} any more", "read it again and repeat")

    def set_ref(self, name: str, new: Oid | None) -> None:
        """Let a ref lead to an object, or be gone, wherever it is now. Raises HeadMoved if it moves meanwhile."""
        old = self.ref(name)
        if new is not None and new != old:
            self.put_ref(name, old, new)
        elif new is None and old is not None:
            self.delete_ref(name, old)

    def delete_refs(
        self, refs: Mapping[str, Oid], before: Callable[[Collection[str]], object] | None = None
    ) -> set[str]:
        """Delete many refs. Returns those deleted; moved ones are skipped. `before` gets them once nothing
        can move; its exception cancels."""
        if not refs:
            return set()
        self.before_delete(list(refs), False)
        self.on_moves([RefMove(name, oid, None) for name, oid in refs.items()], False)
        self.store_gathered()
        with self._changing():
            deleted = self._files.delete(refs, before)
        self.on_moves([RefMove(name, refs[name], None) for name in deleted], True)
        self.before_delete(list(deleted), True)  # who looked at them between may have remembered them
        return deleted


def _with_entry(entries: tuple[Entry, ...], data: bytes, new: Entry) -> tuple[tuple[Entry, ...], bytes]:
    place = _place_of(entries, new.name)
    if place is not None and entries[place].is_tree is not new.is_tree:  # its place may be another one
        rest = entries[:place] + entries[place + 1 :]
        return _with_entry(rest, b"".join(map(tree_row, rest)), new)
    if place is None:
        place = after = bisect_left(entries, sort_key(new), key=sort_key)
    else:
        after = place + 1
    end = data.index(tree_row(entries[after])) if after < len(entries) else len(data)
    begin = end if place == after else data.index(tree_row(entries[place]))
    return (*entries[:place], new, *entries[after:]), data[:begin] + tree_row(new) + data[end:]


def _place_of(entries: Sequence[Entry], name: str) -> int | None:
    if not entries or sort_key(entries[-1]) < name.encode("utf-8", "surrogateescape"):
        return None
    for mode in (TREE_MODE, BLOB_MODE):
        wanted = sort_key(Entry(mode, name, _NO_OID))
        place = bisect_left(entries, wanted, key=sort_key)
        if place < len(entries) and entries[place].name == name:
            return place
    return None


def _init(git_dir: Path) -> None:
    init_bare(str(git_dir), {"core.fsync": "all"})  # for a git that the user starts here, like our own calls


def missing_folders(git_dir: Path) -> list[str]:
    """Return the folders that git requires and a repository lacks. A linked worktree has its own elsewhere;
    without HEAD it is not a repository."""
    if not (git_dir / "HEAD").is_file() or (git_dir / "commondir").exists():
        return []
    return [name for name in ("objects", "refs") if not os.path.lexists(git_dir / name)]


def _open_hint(reason: str, git_dir: Path) -> str:
    if any(word in reason for word in ("extension", "version", "object format")):
        return "it needs SHA-1 and the files ref backend: use a store of its own (unset --here)"
    if "owner" in reason or "not owned" in reason:
        trusted = f"git config --global --add safe.directory {shlex.quote(str(git_dir))}"
        return f"it is another user's: share threads by a remote, or, to read here what you trust: {trusted}"
    if "config file" in reason or "/config'" in reason:
        return "put that file right, or restore it"
    return "try: uwf doctor --fix"
