"""The last seen state of a remote: its refs, the tracking refs, and deletions.

A remote's list is requested first, bounded and checked by name, so a million refs or names with control
characters never reach a fetch, and of thousands of known threads only the moved ones are fetched. For a few
threads only refs beginning with their ids are listed.

    refs/uwf/remotes/<remote>/threads/<ULID>           where the remote's ref was last seen
    refs/uwf/remotes/<remote>/branches/workflows/<W>   the same of a workflow's published branch; crews/ likewise
    refs/uwf/remotes/<remote>/deleted/threads/<ULID>   the thread was deleted there and is pushed again only by name;
                                                       likewise other refs. A blob: the commit last seen there,
                                                       `restored`, or empty
    refs/uwf/merged/<remote>/<YYYY-MM>                 the last fold that this store and the remote had in common

A thread was deleted there if it was seen before and is now in none of the remote's refs and folds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base import log
from uwf_git.base.errors import HeadMoved, NotFound, RemoteFailed, UwfError
from uwf_git.format.ids import ALPHABET, ThreadId
from uwf_git.git.lockfiles import is_git_at_work
from uwf_git.git.program import Git, ReceiveLimitExceeded
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout, ref_kinds, removed
from uwf_git.store.history import may_have_parted
from uwf_git.store.instance import Instance
from uwf_git.store.remotes import Remote

if TYPE_CHECKING:
    from uwf_git.store.archives import Fold
    from uwf_git.sync.exchange import Exchange

_RESTORED = b"restored"

# Above this many, wildcards cost git less than looking each name up.
MANY = 300
TRIES = 3
# git's failures beside other processes: a listed ref is gone, another fetch moved a tracked ref, a gc removed the
# folder of an object being written.
_PASSING = ("couldn't find remote ref", "cannot lock ref", "failed to write object")
# Up to this number of threads, all refs fit into one table of git's, of which the last 64 kB are kept. With more,
# everything is listed.
FEW = 40
# A large file goes to the disk as it comes.
STREAMED = ("-c", "core.bigFileThreshold=16m")
# A table with whole object ids.
_TABLE = ("-c", "core.abbrev=40", "-c", "fetch.output=full")
_BY_GIT = re.compile(r"tmp_(?:pack|idx|rev)_[A-Za-z0-9]{6}")  # those of uwf have longer names
_OID = re.compile(r"[0-9a-f]{40}")
_OTHER_OID = re.compile(r"[0-9a-f]{64}")
# A row of fetch's table: a flag, the result, the remote's name of the ref, and ours. For a moved ref it has old and
# new position, for a new one only the name.
_TOLD = re.compile(
    r"^ ([ +*=!t-]) (?:\[[^\]\n]*\]|[0-9a-f]{40}\.{2,3}([0-9a-f]{40})) +(\S+) +-> \S+(?: .*)?$", re.MULTILINE
)
_HEAD = re.compile(r"^From ", re.MULTILINE)


class RemoteListing(NamedTuple):
    """A remote's refs by its names. `refs` are shared refs and published branches; `strange` are unknown
    names under refs/uwf/, possibly with control characters. `branches`: there is a branch, or this wasn't
    checked."""

    refs: Mapping[str, Oid]
    strange: tuple[str, ...]
    branches: bool = True


class Fetched(NamedTuple):
    """A remote's list, and the tracking refs of what it no longer has (`gone`). `tracked` are its tracking
    refs, or those of the requested threads; None if they must be read again after a fetch. `before` are those
    before the fetch."""

    listed: RemoteListing
    gone: Mapping[str, Oid]
    tracked: Mapping[str, Oid] | None = None
    before: Mapping[str, Oid] = {}


# Listing


def list_refs(
    git: Git,
    repository: Repository,
    remote: Remote,
    branches: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> RemoteListing:
    """List a remote's refs under refs/uwf/ and its published branches; with `branches`, check for other
    branches. `meanwhile` is called while waiting. Raises RemoteFailed, also beyond `uwf.maxRefs`."""
    published = [f"{branches}*" for branches in layout.version_branches()]
    patterns = ["refs/uwf/*", *(["HEAD", "refs/heads/*"] if branches else published)]
    ours: set[str] = set()
    at_most = repository.config.max_refs
    too_many = RemoteFailed(
        f"{remote.name} lists more than {at_most:,} refs under refs/uwf/",
        f"fold its archives, or allow more: {repository.config.to_raise('uwf.maxRefs', '1000000')}",
    )
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    # Not with --refs: it leaves out names that are none without a word.
    with git.printing("ls-remote", "--quiet", "--", remote.name, *patterns, bounded=True) as blocks:
        meanwhile()
        for block in blocks:
            text = block.decode("utf-8", "backslashreplace")
            if _rows_of_threads().fullmatch(text):
                rows = [row for row in text.split("\n") if row and row[-1] != "}"]
                refs.update(zip([row[41:] for row in rows], [Oid(hex=row[:40]) for row in rows], strict=True))
            else:
                room = at_most - len(refs) - len(strange)
                more = sort_out(_of_uwf(remote, _rows(text), ours), _is_taken, room, too_many)
                refs.update(more.refs)
                strange.extend(more.strange)
            if len(refs) + len(strange) > at_most:
                raise too_many
    log.debug(
        "W1JTH9PS", "{remote} lists {refs} refs", remote=remote.name, refs=len(refs), strange=strange[:10]
    )
    return RemoteListing(refs, tuple(strange), not branches or bool(ours))


@cache
def _rows_of_threads() -> re.Pattern[str]:
    prefixes = "|".join(layout.of_threads())
    return re.compile(rf"(?:[0-9a-f]{{40}}\t(?:{prefixes})[0-7][{ALPHABET}]{{25}}(?:\^{{}})?\n)++", re.ASCII)


def _is_taken(name: str) -> bool:
    return layout.is_shared_ref(name) or _is_of_versions(name)


def sort_out(
    listed: Iterable[tuple[str, str]], takes: Callable[[str], bool], at_most: int, too_many: UwfError
) -> RemoteListing:
    """Separate accepted names from strange ones. Raises `too_many` beyond `at_most`."""
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    for oid, name in listed:
        if takes(name):
            refs[name] = Oid(hex=oid)
        else:
            strange.append(name)
        if len(refs) + len(strange) > at_most:
            raise too_many
    return RemoteListing(refs, tuple(strange))


def listed_lines(git: Git, *args: str, between: str = "\t") -> Iterator[tuple[str, str]]:
    """Yield object ids and names printed by git, unchecked. Raises RemoteFailed at the end if git failed."""
    for line in git.lines(*args, bounded=True):
        oid, _, name = line.decode("utf-8", "backslashreplace").partition(between)
        yield oid, name


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removesuffix("\n").split("\n"):
        oid, _, name = line.partition("\t")
        yield oid, name


def _of_uwf(
    remote: Remote, listed: Iterable[tuple[str, str]], branches: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield a remote's refs under refs/uwf/, and its definitions' branches unless it is the project's remote.
    The first branch of any kind is added to `branches`."""
    for oid, name in listed:
        if _OTHER_OID.fullmatch(oid):
            raise RemoteFailed(
                f"{remote.name} has object ids of SHA-256, a store has those of SHA-1",
                "make the repository there anew: git init --bare --object-format=sha1",
            )
        if name.endswith("^{}") or not _OID.fullmatch(oid):
            continue
        if not branches and (name == "HEAD" or name.startswith("refs/heads/")):
            branches.add(name)
        if layout.is_local_ref(name):
            continue  # the remote is a store with remotes and proposals of its own
        if name.startswith(layout.NAMESPACE) or (_is_of_versions(name) and not remote.code):
            yield oid, name


def _is_of_versions(name: str) -> bool:
    return any(
        name.startswith(kind.branches)
        and layout.is_shared_ref(kind.prefix + name.removeprefix(kind.branches))
        for kind in ref_kinds.versioned().values()
    )


# Fetching


def tracked_refs(repository: Repository, remote: str) -> dict[str, Oid]:
    """Return a remote's refs as last seen, by its names."""
    prefix = f"{layout.REMOTES}{remote}/"
    oids = repository.refs(prefix, without=_deleted(remote))
    branches, size = prefix + "branches/", len(prefix)
    return {
        layout.tracked(remote, name) if name.startswith(branches) else layout.NAMESPACE + name[size:]: oid
        for name, oid in oids.items()
    }


def tracked_among(repository: Repository, remote: str, names: Iterable[str]) -> dict[str, Oid]:
    """As `tracked_refs`, for these refs only."""
    oids = {name: repository.ref(layout.tracking(remote, name)) for name in names}
    return {name: oid for name, oid in oids.items() if oid is not None}


def fetch(
    exchange: Exchange,
    threads: Collection[ThreadId] | None = None,
    folds: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> Fetched:
    """Move `refs/uwf/remotes/<remote>/…` to the remote's refs; only of `threads` if given, then with `folds`
    including folds and threads that may be forks of these. What a rule has removed here is left out. Tracking refs of
    deleted refs stay. `meanwhile` is called while waiting. Raises RemoteFailed."""
    if threads is not None:
        threads = {*threads} - removed.expired(exchange.repository).keys()
    for last_try in [False] * (TRIES - 1) + [True]:
        try:
            if threads is not None and len(threads) <= FEW and not folds:
                few = _fetch_few(exchange, threads, meanwhile)
                if few is not None:
                    return few
            return _fetch_listed(exchange, threads, folds, meanwhile)
        except RemoteFailed as error:
            if last_try or not any(item in error.message for item in _PASSING):
                raise
            log.warning(
                "QCTJ481C",
                "{remote} is asked once more, since others were at work: {error}",
                remote=exchange.remote.name,
                error=error.message,
            )
    raise AssertionError("the last try returns or raises")


def _fetch_listed(
    exchange: Exchange,
    threads: Collection[ThreadId] | None,
    folds: bool,
    meanwhile: Callable[[], object],
) -> Fetched:
    (_, remote, git), repository = exchange, exchange.repository
    known: dict[str, Oid] = {}
    listed = list_refs(
        git,
        repository,
        remote,
        meanwhile=lambda: known.update(tracked_refs(repository, remote.name)),
    )
    if threads is not None:
        meant = {layout.POLICY, *layout.refs_of_threads(threads)}
        if folds:
            meant |= {name for name in (*listed.refs, *known) if name.startswith(layout.FOLDED)}
            meant |= {
                name
                for name in listed.refs
                if layout.is_thread_ref(name)
                and any(may_have_parted(layout.thread_of(name), thread) for thread in threads)
            }
        listed = RemoteListing({name: oid for name, oid in listed.refs.items() if name in meant}, ())
        known = {name: oid for name, oid in known.items() if name in meant}
    if expired := removed.expired(repository):
        refs = {
            name: oid
            for name, oid in listed.refs.items()
            if not (layout.is_thread_ref(name) and layout.thread_of(name) in expired)
        }
        listed = listed._replace(refs=refs)
    wanted = [name for name, oid in listed.refs.items() if known.get(name) != oid]
    log.info(
        "4XSKK6GJ",
        "fetches {wanted} refs of {remote}",
        remote=remote.name,
        wanted=len(wanted),
        first=wanted[:10],
    )
    # Of many names a pattern is made that brings whatever fits it: of some threads they are asked for in parts.
    size = max(len(wanted), 1) if threads is None else MANY
    for start in range(0, len(wanted), size):
        bring_tracked(exchange, wanted[start : start + size], meanwhile)
    gone = {name: oid for name, oid in known.items() if name not in listed.refs}
    return Fetched(listed, gone, None if wanted else known, known)


def _fetch_few(
    exchange: Exchange, threads: Collection[ThreadId], meanwhile: Callable[[], object]
) -> Fetched | None:
    """Fetch a few threads without the remote's whole list, which `ls-remote` always requests: a fetch lists
    only its patterns' prefixes.

    It is a dry run, which brings objects and moves no ref, so strange names with the same prefix get none.
    Then moved refs are moved here, and new refs, of which git prints only the name, are fetched by name. None
    if the list exceeds git's table.
    """
    (_, remote, git), repository = exchange, exchange.repository
    meant = (layout.POLICY, *layout.refs_of_threads(threads))
    known = tracked_among(repository, remote.name, meant)
    specs = [f"+{name}*:{layout.tracking(remote.name, name)}*" for name in meant]
    output = bring(git, repository, remote.name, specs, meanwhile, dry=True)
    rows = rows_of(output)
    if rows is None:
        return None
    refs: dict[str, Oid] = {}
    new: list[str] = []
    for flag, target, name in rows:
        if name not in meant:
            continue
        oid = known.get(name) if flag == "=" else target
        if oid is None or not _is_tracked(repository, remote, name, known.get(name), oid):
            new.append(name)
        else:
            refs[name] = oid
    log.info(
        "SN5AWXC1",
        "{remote} has {refs} refs of {threads} threads",
        remote=remote.name,
        refs=len(rows),
        threads=len(threads),
        new=new[:10],
    )
    if new:
        bring_tracked(exchange, new)
        refs |= tracked_among(repository, remote.name, new)
    gone = {name: oid for name, oid in known.items() if name not in refs}
    strange = tuple(name for _, _, name in rows if name not in meant)
    return Fetched(RemoteListing(refs, strange), gone, refs, known)


def rows_of(output: str) -> list[tuple[str, Oid | None, str]] | None:
    """Parse the table of a fetch: flag, new object (None if not printed), and the remote's name. None if the
    beginning is missing."""
    rows = [(flag, Oid(hex=oid) if oid else None, name) for flag, oid, name in _TOLD.findall(output)]
    return None if rows and not _HEAD.search(output) else rows


def _is_tracked(repository: Repository, remote: Remote, name: str, known: Oid | None, oid: Oid) -> bool:
    if oid == known:
        return True
    try:
        repository.put_ref(layout.tracking(remote.name, name), known, oid)
    except (HeadMoved, NotFound):
        return False
    return True


def bring_tracked(
    exchange: Exchange, wanted: list[str], meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Fetch the tracking refs of these refs. `meanwhile` as in `bring`. Raises RemoteFailed."""
    (_, remote, git), repository = exchange, exchange.repository
    names = wanted
    if len(names) > MANY:
        names = sorted({layout.namespace_of(name) + "*" for name in names})
    specs = [f"+{name}:{layout.tracking(remote.name, name)}" for name in names]
    bring(git, repository, remote.name, specs, meanwhile=meanwhile)
    for name in wanted:
        # git leaves out what a shallow repository can't give whole, and says nothing of it.
        if repository.ref(layout.tracking(remote.name, name)) is None:
            raise RemoteFailed(
                f"{remote.name} lists {name} but did not send it",
                "is it shallow? git fetch --unshallow there",
            )


def bring(
    git: Git,
    repository: Repository,
    source: str,
    refspecs: Iterable[str],
    meanwhile: Callable[[], object] = lambda: None,
    dry: bool = False,
) -> str:
    """Fetch from a remote or file by refspecs; without a destination, or with `dry`, no ref moves.
    `meanwhile` is called while git runs. Returns git's output. Raises RemoteFailed, also beyond
    `uwf.maxFetch`."""
    options = ["--dry-run", "--verbose"] if dry else [] if git.shows_progress else ["--quiet"]
    progress = ["--progress"] if git.shows_progress else []
    with receiving(git, repository):
        done = git.run(
            *STREAMED,
            *(_TABLE if dry else ()),
            "fetch",
            *options,
            *progress,
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
            "--refmap=",
            "--stdin",
            "--",
            source,
            stdin="".join(f"{spec}\n" for spec in refspecs).encode("utf-8", "surrogateescape"),
            bounded=True,
            meanwhile=meanwhile,
        )
    return done.err


@contextlib.contextmanager
def receiving(git: Git, repository: Repository) -> Iterator[None]:
    """Receive objects; remove the files that git leaves of those which were too large."""
    folder = repository.path / "objects" / "pack"
    before = set(folder.glob("tmp_*"))
    try:
        yield
    except RemoteFailed as error:
        written = [
            path for path in folder.glob("tmp_*") if _BY_GIT.fullmatch(path.name) and path not in before
        ]
        for path in written if not is_git_at_work(repository.path) else ():
            with contextlib.suppress(OSError):
                if isinstance(error, ReceiveLimitExceeded) or path.stat().st_size >= git.bounds.file:
                    path.unlink()
        raise


# Deletions on the remote


def look(exchange: Exchange) -> Mapping[str, Oid]:
    """List a remote, note deletions, and return its refs. Touches what `note` does. Raises RemoteFailed."""
    (instance, remote, git), repository = exchange, exchange.repository
    known = tracked_refs(repository, remote.name)
    listed = list_refs(git, repository, remote).refs
    gone = {name: oid for name, oid in known.items() if name not in listed}
    if any(layout.is_thread_ref(name) for name in gone):
        # If one was folded meanwhile, the new fold tells. The next pull adopts it.
        folds = [
            name for name, oid in listed.items() if name.startswith(layout.FOLDED) and not repository.has(oid)
        ]
        if folds:
            bring(git, repository, remote.name, folds)
    note(instance, remote, listed, gone)
    return listed


def note(instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]) -> list[str]:
    """Delete the tracking refs of what a remote no longer lists, and mark what was deleted there, as opposed
    to ended or folded. Restored refs lose their mark. Returns deleted refs that are here. Touches
    `refs/uwf/remotes/<remote>/…` and removes threads deleted there from folds here."""
    repository = instance.store.repository
    there = _There(repository, listed)
    names: list[str] = []
    threads: dict[ThreadId, str] = {}
    noted = [name for name in gone if not _was_resumed(name, listed)]  # pulls adopt those
    for name in noted:
        if name.startswith((layout.THREADS, layout.ARCHIVE)):
            threads[layout.thread_of(name)] = name
        elif name.startswith(layout.FOLDED):
            threads |= {thread: layout.ARCHIVE + thread for thread in _folded_in(repository, gone[name])}
            agree(instance, remote.name, name, None)
        elif name.startswith(layout.NAMESPACE) and not there.accounts_for(name) and repository.ref(name):
            names.append(name)
    _mark(repository, remote.name, names)
    if deleted := {thread: name for thread, name in threads.items() if not there.has(thread)}:
        here = deleted.keys() & instance.threads.ids()
        removed = [thread for thread in deleted.keys() - here if repository.ref(layout.REMOVED + thread)]
        _mark(
            repository,
            remote.name,
            [layout.THREADS + thread for thread in (*here, *removed)],
            {
                name: oid
                for name in deleted.values()
                if name.startswith(layout.THREADS) and (oid := gone[name])
            },
        )
        folded = here & instance.store.folded_threads()
        for ref in sorted({row.ref for thread in folded if (row := instance.store.index.folded(thread))}):
            part_with(instance, remote.name, ref, folded)
        names += sorted(deleted[thread] for thread in here)
    for name in _marks(repository, remote.name):
        of_steps = name.startswith((layout.THREADS, layout.ARCHIVE))
        if name in listed or (of_steps and there.has(layout.thread_of(name))):
            unmark(instance, remote, name)
    # Last, so that a killed process finds them gone again. A push that deletes has dropped them itself.
    for name in noted:
        repository.set_ref(layout.tracking(remote.name, name), None)
    return names


class _There:
    """The threads of a remote with these refs. Unreadable folds count as empty."""

    def __init__(self, repository: Repository, listed: Mapping[str, Oid]) -> None:
        self._repository = repository
        self._listed = listed

    def has(self, thread: ThreadId) -> bool:
        refs = (layout.THREADS + thread, layout.ARCHIVE + thread)
        return any(name in self._listed for name in refs) or thread in self._folded

    def has_ended(self, thread: ThreadId, ours: Oid | None) -> bool:
        """Return whether a thread has ended there, and not with our end."""
        archive = self._listed.get(layout.ARCHIVE + thread)
        return thread in self._folded or (archive is not None and archive != ours)

    def accounts_for(self, name: str) -> bool:
        if not layout.is_thread_ref(name):
            return False
        thread = layout.thread_of(name)
        return name.startswith(layout.PAUSED) or thread in self._folded or not self.has(thread)

    @cached_property
    def _folded(self) -> frozenset[ThreadId]:
        folds = (oid for name, oid in self._listed.items() if name.startswith(layout.FOLDED))
        return frozenset[ThreadId]().union(*(_folded_in(self._repository, oid) for oid in folds))


def ended_there(instance: Instance, listed: Mapping[str, Oid], threads: Iterable[ThreadId]) -> set[ThreadId]:
    """Return which threads that have not ended here, or ended otherwise, have ended on a remote with these refs."""
    repository, there = instance.store.repository, _There(instance.store.repository, listed)
    return {
        thread
        for thread in threads
        if instance.store.folded(thread) is None
        and there.has_ended(thread, repository.ref(layout.ARCHIVE + thread))
    }


def _folded_in(repository: Repository, fold: Oid) -> frozenset[ThreadId]:
    from uwf_git.store.archives import names

    return names(repository, fold)


def resumed_there(
    instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]
) -> list[str]:
    """Resume the threads that were resumed on a remote, unless paused anew here. Deletes
    `refs/uwf/paused/<ULID>`; returns the deleted refs."""
    repository = instance.store.repository
    names = []
    for name, oid in gone.items():
        if _was_resumed(name, listed):
            if repository.ref(name) == oid:
                repository.delete_ref(name, oid)
                names.append(name)
            repository.set_ref(layout.tracking(remote.name, name), None)
    return names


def _was_resumed(name: str, listed: Collection[str]) -> bool:
    return name.startswith(layout.PAUSED) and layout.THREADS + layout.thread_of(name) in listed


def marked(instance: Instance, remote: Remote, refs: Iterable[str]) -> frozenset[str]:
    """Return which refs were deleted on a remote; for a deleted thread, all of them."""
    marks = _marks(instance.store.repository, remote.name)
    if not marks:
        return frozenset()
    threads = {layout.thread_of(name) for name in marks if name.startswith((layout.THREADS, layout.ARCHIVE))}
    return frozenset(
        name
        for name in refs
        if name in marks or (layout.is_thread_ref(name) and layout.thread_of(name) in threads)
    )


def deleted_threads(instance: Instance, remote: str) -> set[ThreadId]:
    """Return the threads deleted on a remote, as last seen."""
    marks = _marks(instance.store.repository, remote)
    return {layout.thread_of(name) for name in marks if name.startswith((layout.THREADS, layout.ARCHIVE))}


def wanted_here(instance: Instance, remote: str, thread: ThreadId) -> tuple[bool, bool]:
    """For a thread deleted on a remote, return whether it was restored here and whether it has steps never
    seen there."""
    repository = instance.store.repository
    marks = [repository.ref(_marker(remote, prefix + thread)) for prefix in (layout.THREADS, layout.ARCHIVE)]
    blobs = [repository.blob(oid).strip() for oid in marks if oid is not None]
    seen = [blob for blob in blobs if blob and blob != _RESTORED]
    head = str(instance.threads.head(thread).commit).encode() if seen else b""
    return _RESTORED in blobs, bool(seen) and head not in seen


def restored(instance: Instance, thread: ThreadId) -> None:
    """Note that a thread deleted on a remote was restored here. Moves its marks."""
    repository = instance.store.repository
    for remote in instance.remotes.all():
        for prefix in (layout.THREADS, layout.ARCHIVE):
            name = _marker(remote.name, prefix + thread)
            if (old := repository.ref(name)) is not None:
                repository.put_ref(name, old, repository.write_blob(_RESTORED + b"\n"))


def unmark(instance: Instance, remote: Remote, name: str) -> None:
    """Remove the mark of a deletion; for a ref with a thread's steps, the thread's."""
    repository, names = instance.store.repository, {name}
    if name.startswith((layout.THREADS, layout.ARCHIVE)):
        names = {prefix + layout.thread_of(name) for prefix in (layout.THREADS, layout.ARCHIVE)}
    for item in names:
        repository.set_ref(_marker(remote.name, item), None)


def deleted_there(instance: Instance, remote: str, name: str, theirs: Fold) -> set[ThreadId]:
    """Return the threads deleted from a remote's fold: those of the last agreed fold, if the new one began
    anew without them."""
    repository = instance.store.repository
    base = repository.ref(layout.MERGED + f"{remote}/{name.removeprefix(layout.FOLDED)}")
    if base is None or base in theirs.chain:
        return set()
    return set(_folded_in(repository, base) - theirs.threads.keys())


def part_with(instance: Instance, remote: str, name: str, threads: Collection[ThreadId]) -> list[ThreadId]:
    """Remove threads deleted on a remote from the fold here and mark them. Those not removed here get refs of
    their own. Returns these. Raises HeadMoved."""
    from uwf_git.store import archives

    repository = instance.store.repository
    tip = repository.ref(name)
    if tip is None:
        return []
    fold = archives.read(repository, tip, name.removeprefix(layout.FOLDED))
    parted = fold.threads.keys() & set(threads)
    kept = sorted(parted & instance.store.folded_threads())  # without those that were removed here
    refs: dict[str, Oid] = {}
    for thread in kept:
        entry = fold.threads[thread]
        refs[layout.ARCHIVE + thread] = repository.write_raw_tag(entry.raw)
        if entry.attempts:
            refs[layout.ATTEMPTS + thread] = entry.attempts
        if entry.fork:
            refs[layout.FORKS + thread] = repository.write_raw_tag(entry.fork)
    repository.create_refs(refs)
    _mark(repository, remote, [layout.THREADS + thread for thread in parted])
    if parted:
        rest = archives.without(repository, fold, parted)
        if rest is None:
            repository.delete_ref(name, tip)
        else:
            repository.move_ref(name, tip, rest)
        instance.store.sync()
    return kept


def agree(instance: Instance, remote: str, name: str, oid: Oid | None) -> None:
    """Record the common fold with a remote, None for none. Moves `refs/uwf/merged/<remote>/<month>`."""
    instance.store.repository.set_ref(f"{layout.MERGED}{remote}/{name.removeprefix(layout.FOLDED)}", oid)


def _mark(
    repository: Repository, remote: str, names: Iterable[str], seen: Mapping[str, Oid] | None = None
) -> None:
    if new := {*names} - _marks(repository, remote):
        last = {name: f"{oid}\n".encode() for name, oid in (seen or {}).items()}
        blobs = {_marker(remote, name): repository.write_blob(last.get(name, b"")) for name in sorted(new)}
        repository.create_refs(blobs)


def _marks(repository: Repository, remote: str) -> set[str]:
    prefix = _deleted(remote)
    return {layout.NAMESPACE + name.removeprefix(prefix) for name in repository.ref_names(prefix)}


def _deleted(remote: str) -> str:
    return f"{layout.REMOTES}{remote}/deleted/"


def _marker(remote: str, name: str) -> str:
    return _deleted(remote) + name.removeprefix(layout.NAMESPACE)
