"""Folds: one ref per month instead of one per finished thread.

    refs/uwf/folded/<YYYY-MM>   a commit with every thread archived in that month, in UTC

Its tree holds the contents of the refs that it replaces:

    archive/<ULID>    the archive tag, byte for byte: who ended the thread, when, why, and the signature
    attempts/<ULID>   the id of the newest failed attempt, if any
    forks/<ULID>      the fork tag, byte for byte, if any

Its first parents are the folds that it continues: none, one, or two that were merged. The other parents are
the commits named in the files, at most 500 per commit; more make a chain of folds with the same tree.

Folding writes objects, moves the ref, then deletes the folded refs. It can be interrupted and repeated at any
point.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from uwf_git.base.errors import HeadMoved, StoreDamaged, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.endings import COMPLETED, FAILED, KILLED
from uwf_git.format.ids import ThreadId, is_thread_id
from uwf_git.git.objects import Commit, Entry, Tag, parse_tag
from uwf_git.git.repository import BLOB, BLOB_MODE, TAG, Oid, Repository
from uwf_git.store import layout

PARENTS = 500
CHAIN = 5_000  # folds that one continues
LARGEST = 64 * 1024  # bytes of a tag; those of uwf have some hundred, and a signature some thousand
LARGEST_COMMIT = 64 * 1024  # bytes; 500 parents take 24,000
LARGEST_TREE = 16 << 20  # bytes; a thread takes 53 of them
TRIES = 10
ONE_BY_ONE = 20  # number of blobs written without the git program

_ARCHIVE, _ATTEMPTS, _FORKS = "archive", "attempts", "forks"
_STATUSES = COMPLETED, FAILED, KILLED


class FoldedThread(NamedTuple):
    """A thread in a fold. `tag` is the id of its archive tag, whose object may be gone, and `raw` the tag's
    content; `fork` is the content of its fork tag."""

    thread: ThreadId
    tag: Oid
    raw: bytes
    ended: Tag
    attempts: Oid | None
    fork: bytes | None

    @property
    def commits(self) -> list[Oid]:
        """Return the commits that the thread needs, its head first."""
        oids = [self.ended.target, *([self.attempts] if self.attempts else [])]
        return [*oids, parse_tag(self.fork).target] if self.fork else oids


class Fold(NamedTuple):
    """A parsed fold. `chain` are the folds that it continues, including itself; `held` are their other
    parents, which the fold protects from gc."""

    commit: Oid
    month: str
    threads: Mapping[ThreadId, FoldedThread]
    chain: frozenset[Oid]
    held: frozenset[Oid]


# Reading


def read(repository: Repository, commit: Oid, month: str | None = None) -> Fold:
    """Return a fold after checking its format, but not its threads' commits. If given, it must be a fold of
    `month`. Raises StoreDamaged with the thread at fault."""
    folded = layout.folded_month(_commit(repository, commit).message)
    if folded is None:
        raise _damaged(commit, "it is not a fold")
    if month is not None and folded != month:
        raise _damaged(commit, f"it is a fold of {folded}, not of {month}")
    chain, held = _past(repository, commit, folded)
    threads = {entry.thread: entry for entry in entries(repository, commit)}
    if not threads:
        raise _damaged(commit, "it holds no thread")
    for entry in threads.values():
        if month_of(entry.ended.time) != folded:
            raise _damaged(commit, f"thread {entry.thread} did not end in {folded}")
        for needed in entry.commits:
            if needed not in held:
                raise _damaged(commit, f"it names commit {needed} of {entry.thread}, but doesn't keep it")
    return Fold(commit, folded, threads, chain, held)


def names(repository: Repository, commit: Oid) -> frozenset[ThreadId]:
    """Return the threads named by a fold, unchecked; none if it cannot be read."""
    try:
        folders = _tree(repository, _commit(repository, commit).tree, commit)
        trees = [_tree(repository, folder.oid, commit) for folder in folders if folder.name == _ARCHIVE]
    except StoreDamaged:
        return frozenset()
    return frozenset(ThreadId(entry.name) for tree in trees for entry in tree if is_thread_id(entry.name))


def tag_again(repository: Repository, ref: str, thread: ThreadId) -> Oid | None:
    """Write the archive tag of a folded thread again, since its object may be gone. None if the ref is gone.
    Raises StoreDamaged."""
    tip = repository.ref(ref)
    if tip is None:
        return None
    entry = read(repository, tip, ref.removeprefix(layout.FOLDED)).threads[thread]
    return repository.write_raw_tag(entry.raw)


def month_of(when: int) -> str:
    """Return the UTC month of a Unix time: 2025-01. Raises ValueError if out of range."""
    try:
        at = time.gmtime(when)
    except OverflowError:
        raise ValueError(f"{when} is not a time") from None
    if not 1970 <= at.tm_year <= 9999:
        raise ValueError(f"{when} is not a time")
    return f"{at.tm_year:04d}-{at.tm_mon:02d}"


def message(month: str, threads: int) -> str:
    """Return the message of a fold of N threads."""
    count = f"{threads} thread{'s' * (threads != 1)}"
    return layout.message(f"fold {month}: {count}", {layout.FOLD_TRAILER: month})


def _past(repository: Repository, tip: Oid, month: str) -> tuple[frozenset[Oid], frozenset[Oid]]:
    chain, pending = {tip}, [tip]
    held: set[Oid] = set()
    while pending:
        parents = _commit(repository, pending.pop()).parents
        folds = 0
        while folds < len(parents):
            parent = parents[folds]
            if parent not in chain:
                if _month_of_fold(repository, parent) != month:
                    break
                chain.add(parent)
                if len(chain) > CHAIN:
                    raise _damaged(tip, f"it continues over {CHAIN:,} others")
                pending.append(parent)
            folds += 1
        held.update(parents[folds:])
    return frozenset(chain), frozenset(held)


def _month_of_fold(repository: Repository, commit: Oid) -> str | None:
    """Return the month of a fold, None for other or unreadable commits: one damaged thread must not hide the
    others."""
    try:
        return layout.folded_month(_commit(repository, commit).message)
    except StoreDamaged:
        return None


def _commit(repository: Repository, oid: Oid) -> Commit:
    if repository.size(oid) > LARGEST_COMMIT:
        raise _damaged(oid, f"it has over {LARGEST_COMMIT:,} bytes")
    return repository.commit(oid)


def _tree(repository: Repository, oid: Oid, fold: Oid) -> tuple[Entry, ...]:
    if repository.size(oid) > LARGEST_TREE:
        raise _damaged(fold, f"tree {oid} in it has over {LARGEST_TREE:,} bytes")
    return repository.tree(oid)


def entries(repository: Repository, commit: Oid) -> Iterable[FoldedThread]:
    """Return the threads in a fold's tree. Raises StoreDamaged."""
    files: dict[str, dict[str, Oid]] = {_ARCHIVE: {}, _ATTEMPTS: {}, _FORKS: {}}
    for folder in _tree(repository, _commit(repository, commit).tree, commit):
        if folder.name not in files or not folder.is_tree or files[folder.name]:
            raise _damaged(commit, f"{folder.name!r} does not belong in a fold")
        for entry in _tree(repository, folder.oid, commit):
            if entry.mode != BLOB_MODE or not is_thread_id(entry.name) or entry.name in files[folder.name]:
                raise _damaged(commit, f"{folder.name}/{entry.name!r} does not belong in a fold")
            files[folder.name][entry.name] = entry.oid
        if not files[folder.name]:
            raise _damaged(commit, f"{folder.name!r} in it is empty")
    for folder_name in (_ATTEMPTS, _FORKS):
        for name in files[folder_name].keys() - files[_ARCHIVE].keys():
            raise _damaged(commit, f"{folder_name}/{name} has no archive tag beside it")
    for name, blob in files[_ARCHIVE].items():
        thread = ThreadId(name)
        try:
            attempts, fork = files[_ATTEMPTS].get(name), files[_FORKS].get(name)
            yield _entry(
                thread,
                _blob(repository, blob),
                _attempts_id(_blob(repository, attempts)) if attempts else None,
                _blob(repository, fork) if fork else None,
            )
        except (ValueError, LookupError, OverflowError) as error:
            raise _damaged(commit, f"thread {thread} in it is not what uwf writes: {error}") from None


def _entry(thread: ThreadId, raw: bytes, attempts: Oid | None, fork: bytes | None) -> FoldedThread:
    ended = parse_tag(raw)
    if ended.name != layout.tag_name(thread):
        raise ValueError(f"its archive tag is called {one_line(ended.name, 60)!r}")
    if ended.message.strip().partition(":")[0] not in _STATUSES:
        raise ValueError("its archive tag says neither completed, failed nor killed")
    month_of(ended.time)
    if fork is not None:
        parted = parse_tag(fork)
        if parted.name != layout.tag_name(thread) or layout.fork_origin(parted.message) is None:
            raise ValueError("its fork tag names no thread")
    return FoldedThread(thread, _id(b"tag", raw), raw, ended, attempts, fork)


def _blob(repository: Repository, oid: Oid) -> bytes:
    return _content(repository, oid, BLOB, "file")


def _tag(repository: Repository, oid: Oid) -> bytes:
    return _content(repository, oid, TAG, "tag")


def _content(repository: Repository, oid: Oid, kind: int, called: str) -> bytes:
    actual, data = repository.read_within(oid, LARGEST)
    if actual != kind:
        raise ValueError(f"object {oid} is not a {called}")
    return data


def _attempts_id(data: bytes) -> Oid:
    text = data.decode("ascii", "replace").rstrip("\n")
    if len(text) != 40:
        raise ValueError("it names no attempt")
    return Oid(hex=text)


def _id(kind: bytes, content: bytes) -> Oid:
    return Oid(raw=hashlib.sha1(b"%s %d\0%s" % (kind, len(content), content)).digest())


# Folding


def fold_before(repository: Repository, before: int) -> dict[str, int]:
    """Fold the threads that ended before a Unix time. Moves `refs/uwf/folded/<month>`, then deletes the
    folded `refs/uwf/archive/`, `attempts/` and `forks/<ULID>`. Returns the number of threads per month.
    Unreadable threads are left for `uwf doctor`, and so are threads deleted on a remote, since a fold is
    pushed as a whole. Raises HeadMoved if a ref keeps moving."""
    archives = repository.refs(layout.ARCHIVE)
    deleted = {
        name.rpartition("/")[2] for name in repository.ref_names(layout.REMOTES) if "/deleted/" in name
    }
    attempts, forks = repository.refs(layout.ATTEMPTS), repository.refs(layout.FORKS)
    months: dict[str, dict[ThreadId, FoldedThread]] = {}
    for name, oid in archives.items():
        thread = ThreadId(name.removeprefix(layout.ARCHIVE))
        entry = _foldable(
            repository, thread, oid, attempts.get(layout.ATTEMPTS + thread), forks.get(layout.FORKS + thread)
        )
        if entry is not None and entry.ended.time < before and thread not in deleted:
            months.setdefault(month_of(entry.ended.time), {})[thread] = entry
    taken = {}
    for month, threads in sorted(months.items()):
        taken[month] = _add(repository, month, threads)
        tidy(repository, month)
    return taken


def _foldable(
    repository: Repository, thread: ThreadId, tag: Oid, attempts: Oid | None, fork: Oid | None
) -> FoldedThread | None:
    if not is_thread_id(thread):
        return None
    try:
        entry = _entry(thread, _tag(repository, tag), attempts, _tag(repository, fork) if fork else None)
        for commit in entry.commits:
            repository.commit(commit)
    except (UwfError, ValueError, LookupError, OverflowError):
        return None
    return entry


def _add(repository: Repository, month: str, threads: Mapping[ThreadId, FoldedThread]) -> int:
    ref = layout.FOLDED + month
    for _ in range(TRIES):
        tip = repository.ref(ref)
        there = read(repository, tip, month) if tip else None
        known = there.threads if there else {}
        union = _union(repository, known, threads)
        needed = _needed(threads.values(), there.held if there else frozenset())
        if not needed and union == known:
            return 0
        commit = _write(repository, month, union, [tip] if tip else [], needed)
        try:
            repository.put_ref(ref, tip, commit)
        except HeadMoved:
            continue  # another process folded the same month
        return len(threads.keys() - known.keys())
    raise HeadMoved(f"{ref} moves too often to fold into it", "repeat")


def tidy(repository: Repository, month: str) -> int:
    """Delete the archive, attempts and fork refs that equal the month's fold. Return how many."""
    tip = repository.ref(layout.FOLDED + month)
    if tip is None:
        return 0
    fold = read(repository, tip, month)
    doomed: dict[str, Oid] = {}
    for name, oid in repository.refs(layout.ARCHIVE).items():
        entry = fold.threads.get(ThreadId(name.removeprefix(layout.ARCHIVE)))
        if entry is not None and (oid == entry.tag or _holds_tag(repository, fold, oid)):
            doomed[name] = oid
    for name, oid in repository.refs(layout.ATTEMPTS).items():
        if ThreadId(name.removeprefix(layout.ATTEMPTS)) in fold.threads and oid in fold.held:
            doomed[name] = oid
    for name, oid in repository.refs(layout.FORKS).items():
        entry = fold.threads.get(ThreadId(name.removeprefix(layout.FORKS)))
        if entry is not None and entry.fork is not None and _id(b"tag", entry.fork) == oid:
            doomed[name] = oid
    return len(repository.delete_refs(doomed))


def _holds_tag(repository: Repository, fold: Fold, tag: Oid) -> bool:
    try:
        return parse_tag(_tag(repository, tag)).target in fold.held
    except (UwfError, ValueError):
        return False


def remove(repository: Repository, thread: ThreadId) -> bool:
    """Remove a thread from its folds, which begin anew without the past that had it. Return whether it was in
    any."""
    removed = False
    for ref, tip in repository.refs(layout.FOLDED).items():
        month = ref.removeprefix(layout.FOLDED)
        fold = read(repository, tip, month)
        if thread not in fold.threads:
            continue
        removed = True
        rest = without(repository, fold, {thread})
        if rest is None:
            repository.delete_ref(ref, tip)
        else:
            repository.move_ref(ref, tip, rest)
    return removed


def without(repository: Repository, fold: Fold, threads: Collection[ThreadId]) -> Oid | None:
    """Return a fold of the same month without some threads and without the past that had them; None if empty.
    Deterministic up to the commit. Moves no ref."""
    rest = {name: entry for name, entry in fold.threads.items() if name not in threads}
    if not rest:
        return None
    kept = {commit for entry in rest.values() for commit in entry.commits}
    gone = {commit for name in threads if name in fold.threads for commit in fold.threads[name].commits}
    heads = _needed(rest.values(), frozenset()) + sorted(fold.held - gone - kept, key=str)
    return _write(repository, fold.month, rest, [], heads)


# Merging


def merge(repository: Repository, mine: Oid, theirs: Oid) -> Oid:
    """Merge two folds of the same month: one of the two if it contains the other, else a new commit with both
    as parents. Theirs counts for a thread in both. Moves no ref. Raises StoreDamaged."""
    one, other = read(repository, mine), read(repository, theirs)
    if one.month != other.month:
        raise _damaged(theirs, f"it is a fold of {other.month}, not of {one.month}")
    if theirs in one.chain:
        return mine
    union = {**one.threads, **other.threads}
    if mine in other.chain or (union == other.threads and one.held <= other.held):
        return theirs
    return _write(repository, one.month, union, [mine, theirs], [])


def _union(
    repository: Repository, one: Mapping[ThreadId, FoldedThread], other: Mapping[ThreadId, FoldedThread]
) -> dict[ThreadId, FoldedThread]:
    union = dict(one)
    for thread, entry in other.items():
        union[thread] = _preferred(repository, union[thread], entry) if thread in union else entry
    return union


def _preferred(repository: Repository, one: FoldedThread, other: FoldedThread) -> FoldedThread:
    """Choose between two entries of a thread: the longer history, then the earlier end. Independent of order."""
    if one == other:
        return one
    first, second = sorted((one, other), key=lambda entry: (entry.ended.time, str(entry.tag)))
    longer = _descends(repository, second.ended.target, first.ended.target)
    chosen = second if longer and second.ended.target != first.ended.target else first
    attempts = sorted({oid for oid in (one.attempts, other.attempts) if oid}, key=str)
    if len(attempts) == 2:
        attempts = attempts[1:] if _descends(repository, attempts[1], attempts[0]) else attempts[:1]
    forks = sorted(content for content in (one.fork, other.fork) if content)
    return chosen._replace(attempts=attempts[0] if attempts else None, fork=forks[0] if forks else None)


def _descends(repository: Repository, commit: Oid, ancestor: Oid) -> bool:
    at: Oid | None = commit
    while at is not None and at != ancestor:
        parents = repository.commit(at).parents
        at = parents[0] if parents else None
    return at is not None


# Writing


def _needed(entries: Iterable[FoldedThread], held: frozenset[Oid]) -> list[Oid]:
    return [oid for oid in dict.fromkeys(c for entry in entries for c in entry.commits) if oid not in held]


def _write(
    repository: Repository,
    month: str,
    threads: Mapping[ThreadId, FoldedThread],
    folds: Sequence[Oid],
    heads: Sequence[Oid],
) -> Oid:
    files: dict[str, bytes | Oid] = {}
    for thread, entry in threads.items():
        files[f"{_ARCHIVE}/{thread}"] = entry.raw
        if entry.attempts:
            files[f"{_ATTEMPTS}/{thread}"] = f"{entry.attempts}\n".encode()
        if entry.fork:
            files[f"{_FORKS}/{thread}"] = entry.fork
    _pack(repository, {content for content in files.values() if isinstance(content, bytes)})
    tree = repository.write_folder(files)
    text = message(month, len(threads))
    parents, waiting = list(folds), list(heads)
    while True:
        room = PARENTS - len(parents)
        commit = repository.write_commit(tree, [*parents, *waiting[:room]], repository.user, text)
        parents, waiting = [commit], waiting[room:]
        if not waiting:
            return commit


def _pack(repository: Repository, contents: Iterable[bytes]) -> None:
    """Write many blobs as one pack, since each loose object is synced separately. If git fails they are left
    to be written one by one."""
    missing = [content for content in contents if not repository.has(_id(b"blob", content))]
    if len(missing) > ONE_BY_ONE:
        from uwf_git.git.program import Git

        stream = b"".join(b"blob\ndata %d\n%s\n" % (len(content), content) for content in missing)
        order = ("-c", "fastimport.unpackLimit=1", "fast-import", "--quiet")
        Git(repository.path).run(*order, stdin=stream, check=False)


def _damaged(commit: Oid, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"fold {commit} is not what uwf writes: {reason}", "fetch the ref that leads to it from a remote"
    )
