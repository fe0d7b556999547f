"""A git repository as a store uses it: objects, refs under refs/uwf/, and one private folder.

pygit2 does packs, refs and writing. Loose objects are read here: libgit2 1.9 never returns from a
truncated one (its inflate loop waits for more input), and a store must survive that.

Nothing here touches a ref outside refs/uwf/, the index, HEAD or a work tree.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pygit2

from uwf_git.errors import Busy, HeadMoved, Invalid, NotFound, StoreDamaged, UwfError

NAMESPACE = "refs/uwf/"
PRIVATE = "uwf"
TREE_MODE = "40000"
BLOB_MODE = "100644"
LOCK_TRIES = 40
TREES_KEPT = 256
WRITE_TRIES = 10

_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}
COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4

Oid = pygit2.Oid


class StoreUnwritable(UwfError):
    """The repository can't be written: read-only, full, or not ours."""

    code = "store_unwritable"


class Entry(NamedTuple):
    """A tree entry. `mode` as git writes it: 40000 a tree, 100644 a file, others as they are."""

    mode: str
    name: str
    oid: Oid

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE_MODE


class Commit(NamedTuple):
    """A commit's parts. `time` is the committer's, in Unix seconds."""

    tree: Oid
    parents: tuple[Oid, ...]
    author: str
    committer: str
    time: int
    message: str


class Person(NamedTuple):
    """Who did something, as git writes it."""

    name: str
    email: str


class Repository:
    """An opened repository. Raises StoreUnwritable where a write is refused by the file system."""

    def __init__(self, git_dir: Path) -> None:
        """Opens an existing repository, bare or not; a worktree opens the repository it belongs to.
        Raises NotFound, or Invalid for a format that libgit2 can't open."""
        if not git_dir.exists():
            raise NotFound(f"no store at {git_dir}", "make one with: uwf init")
        # libgit2 syncs nothing unless told; a step that was reported must survive a power cut.
        pygit2.settings.enable_fsync_gitdir(True)
        try:
            self._git = pygit2.Repository(str(git_dir), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        except pygit2.GitError as error:
            raise Invalid(
                f"{git_dir} does not open as a git repository: {error}", _open_hint(str(error))
            ) from None
        self.path = _common_dir(Path(self._git.path))
        self.private = self.path / PRIVATE
        self._objects = str(self.path / "objects")
        self._trees: dict[Oid, tuple[tuple[Entry, ...], bytes]] = {}
        self._roots: dict[Oid, Oid] = {}

    @classmethod
    def create(cls, git_dir: Path) -> Repository:
        """A new bare repository with the files ref backend and SHA-1, whatever the user's git would
        choose. An existing one is opened."""
        if not (git_dir / "HEAD").exists():
            try:
                git_dir.parent.mkdir(parents=True, exist_ok=True)
                pygit2.init_repository(str(git_dir), bare=True)
            except (pygit2.GitError, OSError) as error:
                raise StoreUnwritable(
                    f"can't make a store at {git_dir}: {error}", "check the folder"
                ) from None
        return cls(git_dir)

    # Objects

    def read(self, oid: Oid) -> tuple[int, bytes]:
        """An object's kind (COMMIT, TREE, BLOB, TAG) and content, checked against its id.
        Raises StoreDamaged, naming the id, when it is missing, truncated or altered."""
        name = str(oid)
        try:
            with open(f"{self._objects}/{name[:2]}/{name[2:]}", "rb") as file:
                packed = file.read()
        except OSError:
            return self._read_packed(oid)
        try:
            data = zlib.decompress(packed)
        except zlib.error as error:
            raise _damaged(name, str(error)) from None
        header, _, content = data.partition(b"\0")
        kind, _, size = header.partition(b" ")
        if hashlib.sha1(data).hexdigest() != name or kind not in _KINDS or size != b"%d" % len(content):
            raise _damaged(name, "its content is not what its id says")
        return _KINDS[kind], content

    def _read_packed(self, oid: Oid) -> tuple[int, bytes]:
        try:
            kind, data = self._git.read(oid)
        except (pygit2.GitError, KeyError, ValueError) as error:
            reason = "it is missing" if isinstance(error, KeyError) else str(error)
            raise _damaged(str(oid), reason) from None
        return int(kind), data

    def has(self, oid: Oid) -> bool:
        """Whether an object is there; its content is not checked."""
        name = str(oid)
        return os.path.exists(f"{self._objects}/{name[:2]}/{name[2:]}") or oid in self._git  # noqa: PTH110

    def blob(self, oid: Oid) -> bytes:
        """A blob's content. Raises StoreDamaged."""
        return self._of_kind(oid, BLOB)

    def tree(self, oid: Oid) -> tuple[Entry, ...]:
        """A tree's entries in git's order. Raises StoreDamaged."""
        return self._tree(oid)[0]

    def _tree(self, oid: Oid) -> tuple[tuple[Entry, ...], bytes]:
        known = self._trees.get(oid)
        if known is None:
            data = self._of_kind(oid, TREE)
            known = self._remember(oid, _parse_tree(data, oid), data)
        return known

    def _remember(self, oid: Oid, entries: tuple[Entry, ...], data: bytes) -> tuple[tuple[Entry, ...], bytes]:
        """Trees are read again and again while a thread grows; the newest are kept parsed."""
        if len(self._trees) >= TREES_KEPT:
            self._trees.clear()
        self._trees[oid] = entries, data
        return entries, data

    def commit(self, oid: Oid) -> Commit:
        """A commit. Raises StoreDamaged, also when the object is something else."""
        text = self._of_kind(oid, COMMIT).decode("utf-8", "replace")
        head, _, message = text.partition("\n\n")
        fields: dict[str, list[str]] = {}
        for line in head.split("\n"):
            key, _, value = line.partition(" ")
            fields.setdefault(key, []).append(value)
        try:
            committer = fields["committer"][0]
            return Commit(
                tree=Oid(hex=fields["tree"][0]),
                parents=tuple(Oid(hex=parent) for parent in fields.get("parent", ())),
                author=_person(fields["author"][0]),
                committer=_person(committer),
                time=int(committer.rsplit(" ", 2)[1]),
                message=message,
            )
        except (KeyError, ValueError, IndexError):
            raise _damaged(str(oid), "it is no well-formed commit") from None

    def _of_kind(self, oid: Oid, kind: int) -> bytes:
        found, data = self.read(oid)
        if found != kind:
            names = {number: name.decode() for name, number in _KINDS.items()}
            raise _damaged(str(oid), f"it is a {names.get(found, found)}, not a {names[kind]}")
        return data

    def write_blob(self, data: bytes) -> Oid:
        """Stores a blob; repeating it changes nothing."""
        return self._write(BLOB, data)

    def write_tree(self, entries: Iterable[Entry]) -> Oid:
        """Stores a tree of entries in any order."""
        ordered = tuple(sorted(entries, key=_sort_key))
        return self._write_ordered(ordered, b"".join(map(_tree_row, ordered)))

    def _write_ordered(self, entries: tuple[Entry, ...], data: bytes) -> Oid:
        oid = self._write(TREE, data)
        self._remember(oid, entries, data)
        return oid

    def file(self, root: Oid, path: str) -> Oid | None:
        """The id of a file or folder in a tree, or None."""
        found = root
        for name in path.split("/"):
            entry = next((entry for entry in self.tree(found) if entry.name == name), None)
            if entry is None:
                return None
            found = entry.oid
        return found

    def write_folder(self, files: Mapping[str, bytes | Oid]) -> Oid:
        """Stores a tree of paths: blobs from bytes, or an object that is there already."""
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
        """A root tree with another tree put at a path of folders; siblings stay."""
        name, *rest = folders
        entries, data = self._tree(root) if root else ((), b"")
        old = next((entry.oid for entry in entries if entry.name == name and entry.is_tree), None)
        new = Entry(TREE_MODE, name, self.graft(old, rest, tree) if rest else tree)
        if old is None and (not entries or _sort_key(entries[-1]) < _sort_key(new)):
            # A new step comes last: nothing before it needs to be written again.
            return self._write_ordered((*entries, new), data + _tree_row(new))
        return self.write_tree([*(entry for entry in entries if entry.name != name), new])

    def write_commit(
        self, tree: Oid, parents: Sequence[Oid], author: Person, message: str, when: int | None = None
    ) -> Oid:
        """Stores a commit without moving a ref. The committer is the user; `when` is in Unix seconds."""
        when = int(time.time()) if when is None else when
        zone = time.strftime("%z", time.localtime(when)) or "+0000"
        stamp = f"{when} {zone}"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines.append(f"author {_clean(author.name)} <{_clean(author.email)}> {stamp}")
        user = self.user
        lines.append(f"committer {user.name} <{user.email}> {stamp}")
        text = "\n".join(lines) + "\n\n" + message
        oid = self._write(COMMIT, text.encode("utf-8", "replace"))
        self._roots = {oid: tree}  # the next step is built on it
        return oid

    def root(self, commit: Oid) -> Oid:
        """A commit's tree. Raises StoreDamaged."""
        return self._roots.get(commit) or self.commit(commit).tree

    def write_tag(self, name: str, target: Oid, message: str) -> Oid:
        """Stores an annotated tag object on a commit without making a ref for it."""
        user = self.user
        when = time.time()
        zone = time.strftime("%z", time.localtime(when)) or "+0000"
        text = (
            f"object {target}\ntype commit\ntag {name}\n"
            f"tagger {user.name} <{user.email}> {int(when)} {zone}\n\n{message}"
        )
        return self._write(TAG, text.encode("utf-8", "replace"))

    def _write(self, kind: int, data: bytes) -> Oid:
        for last_try in (False,) * WRITE_TRIES + (True,):
            try:
                return self._git.write(kind, data)
            except (pygit2.GitError, OSError) as error:
                # git gc removes a folder of objects that it has emptied, at times just before libgit2
                # puts the next one there.
                if last_try or "No such file or directory" not in str(error):
                    raise _unwritable(self.path, error) from None
        raise AssertionError("the last try returns or raises")

    @cached_property
    def user(self) -> Person:
        """The user's git identity: the environment, then git's configuration, then the login name."""
        name = os.environ.get("GIT_COMMITTER_NAME") or self.configured("user.name")
        email = os.environ.get("GIT_COMMITTER_EMAIL") or self.configured("user.email")
        login = os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid{os.getuid()}"
        return Person(_clean(name) or _clean(login), _clean(email) or f"{_clean(login)}@localhost")

    def configured(self, key: str) -> str:
        """A value of git's configuration, or "". GIT_CONFIG_GLOBAL, which libgit2 doesn't know, counts."""
        if instead := os.environ.get("GIT_CONFIG_GLOBAL"):
            paths = [self.path / "config", Path(instead)]
            return next((str(c[key]) for c in map(_config_file, paths) if c and key in c), "")
        config = self._git.config
        return str(config[key]) if key in config else ""

    # Refs

    def ref(self, name: str) -> Oid | None:
        """What a ref points at, or None."""
        try:
            target = self._git.references[name].target
        except KeyError:
            return None
        except (pygit2.GitError, ValueError, OSError) as error:
            raise StoreDamaged(
                f"ref {name} can't be read: {error}", "restore or delete it with git"
            ) from None
        if not isinstance(target, Oid):
            raise StoreDamaged(f"ref {name} points at another ref, {target}", "restore or delete it with git")
        return target

    def refs(self, prefix: str = NAMESPACE) -> dict[str, Oid]:
        """Every ref under a prefix of refs/uwf/ and what it points at. Unreadable ones are left out:
        `broken_refs` names them."""
        return {name: oid for name, oid in self._all_refs(prefix).items() if oid is not None}

    def ref_names(self, prefix: str = NAMESPACE) -> list[str]:
        """The names of the refs under a prefix, unreadable ones included."""
        return list(self._all_refs(prefix, read=False))

    def broken_refs(self) -> list[str]:
        """The refs under refs/uwf/ that hold no object id."""
        return [name for name, oid in self._all_refs(NAMESPACE).items() if oid is None]

    def _all_refs(self, prefix: str, read: bool = True) -> dict[str, Oid | None]:
        """Read from the files, as gitrepository-layout(5) has them: libgit2 skips a broken ref without a
        word, and walks all refs of a shared repository for a few."""
        found: dict[str, Oid | None] = {}
        try:
            packed = (self.path / "packed-refs").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            packed = ""
        for line in packed.splitlines():
            oid, _, name = line.partition(" ")
            if name.startswith(prefix):
                found[name] = _object_id(oid)
        folders = [prefix.rstrip("/")]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(self.path / folder))
            except OSError:
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if not name.isascii() and name != name.encode("utf-8", "replace").decode("utf-8"):
                    found[name.encode("utf-8", "backslashreplace").decode("ascii", "replace")] = None
                    continue  # no text, so none of ours
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif not name.endswith(".lock"):
                    found[name] = _loose_ref(entry.path) if read else None
        return found

    def create_ref(self, name: str, target: Oid) -> None:
        """Makes a ref. Raises HeadMoved where it exists already."""
        self._move(name, lambda: self._git.references.create(name, target))

    def move_ref(self, name: str, old: Oid, new: Oid) -> None:
        """Compare-and-swap. Raises HeadMoved where the ref is not at `old`, Busy where its lock file
        stays."""

        def swap() -> None:
            reference = self._git.references[name]
            if reference.target != old:
                raise HeadMoved(f"{name} is not at {old} any more", "read it again and repeat")
            reference.set_target(new)

        self._move(name, swap)

    def delete_ref(self, name: str, old: Oid) -> None:
        """Compare-and-delete. Raises HeadMoved where the ref is not at `old`."""

        def delete() -> None:
            reference = self._git.references[name]
            if reference.target != old:
                raise HeadMoved(f"{name} is not at {old} any more", "read it again and repeat")
            reference.delete()

        self._move(name, delete)

    def _move(self, name: str, change: Callable[[], object]) -> None:
        """The one place that knows how libgit2 reports a lost race and a lock that is held."""
        for attempt in range(LOCK_TRIES):
            try:
                change()
                return
            except pygit2.InvalidSpecError:
                raise Invalid(
                    f"{name!r} is not a valid ref name", "use letters, digits, dots and dashes"
                ) from None
            except (KeyError, pygit2.AlreadyExistsError):
                raise HeadMoved(f"{name} was changed by somebody else", "read it again and repeat") from None
            except (pygit2.GitError, OSError) as error:
                reason = str(error)
                if "does not match" in reason or "not the first parent" in reason:
                    raise HeadMoved(
                        f"{name} was moved by somebody else", "read it again and repeat"
                    ) from None
                if not _is_lock_failure(reason):
                    raise _unwritable(self.path, error) from None
            time.sleep(random.uniform(0.002, 0.01) * (1 + attempt / 4))
        lock = self.path / f"{name}.lock"
        if not lock.exists():
            lock = self.path / "packed-refs.lock"
        raise Busy(f"{name} is locked by {lock}", "if no git process is running, remove that file")


def _config_file(path: Path) -> pygit2.Config | None:
    return pygit2.Config(str(path)) if path.is_file() else None


def _is_lock_failure(reason: str) -> bool:
    return "failed to lock file" in reason or ("locked file" in reason and "exists" in reason.lower())


def _object_id(text: str) -> Oid | None:
    return Oid(hex=text) if len(text) == 40 and all(c in "0123456789abcdef" for c in text) else None


def _loose_ref(path: str) -> Oid | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return _object_id(file.read(64).strip())
    except OSError:
        return None


def _common_dir(git_dir: Path) -> Path:
    """The repository a worktree's git dir belongs to: refs/uwf and the private folder are shared."""
    pointer = git_dir / "commondir"
    if pointer.is_file():
        return (git_dir / pointer.read_text().strip()).resolve()
    return git_dir.resolve()


def _open_hint(reason: str) -> str:
    if any(word in reason for word in ("extension", "version", "object format")):
        return "it needs SHA-1 and the files ref backend: use a store of its own (unset --here)"
    if "owner" in reason:
        return "it belongs to another user: git config --global --add safe.directory PATH"
    return "check it with: git fsck"


def _damaged(name: str, reason: str) -> StoreDamaged:
    return StoreDamaged(f"object {name} is damaged: {reason}", "fetch it from a remote, or see: uwf doctor")


def _unwritable(path: Path, error: Exception) -> StoreUnwritable:
    reason = str(error).strip().rstrip(":")
    return StoreUnwritable(f"can't write to {path}: {reason}", "check permissions and free space")


def _tree_row(entry: Entry) -> bytes:
    return b"%s %s\0%s" % (entry.mode.encode(), entry.name.encode("utf-8", "surrogateescape"), entry.oid.raw)


def _sort_key(entry: Entry) -> bytes:
    """git sorts a folder as if its name ended in a slash."""
    return (entry.name + "/" if entry.mode == TREE_MODE else entry.name).encode("utf-8", "surrogateescape")


def _parse_tree(data: bytes, oid: Oid) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    position = 0
    try:
        while position < len(data):
            end = data.index(b"\0", position)
            mode, _, name = data[position:end].partition(b" ")
            position = end + 21
            raw = data[end + 1 : position]
            entries.append(Entry(mode.decode("ascii"), name.decode("utf-8", "surrogateescape"), Oid(raw=raw)))
    except ValueError:
        raise _damaged(str(oid), "it is no well-formed tree") from None
    return tuple(entries)


def _person(line: str) -> str:
    return line.rsplit(">", 1)[0] + ">"


def _clean(text: str) -> str:
    """Text that can stand in a signature: git forbids angle brackets and control characters there."""
    kept = "".join(c for c in text if c.isprintable() and c not in "<>")
    return kept.strip(" .,:;\"'")


def walk_tree(repository: Repository, oid: Oid, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Every file below a tree with its path, folders themselves left out."""
    for entry in repository.tree(oid):
        path = prefix + entry.name
        if entry.is_tree:
            yield from walk_tree(repository, entry.oid, path + "/")
        else:
            yield path, entry
