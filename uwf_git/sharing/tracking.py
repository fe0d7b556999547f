"""What a remote has, as far as it was last seen: its list of refs, the tracking refs, and what was deleted there.

A remote is asked for its list first. The list is bounded and checked by name, so a million refs or a name with
control characters never gets as far as a fetch, and of thousands of known threads only those that moved are fetched.

    refs/uwf/remotes/<remote>/threads/<ULID>           where the remote's ref was last seen
    refs/uwf/remotes/<remote>/branches/workflows/<W>   the same of a workflow's published branch
    refs/uwf/remotes/<remote>/deleted/threads/<ULID>   where a ref was last seen that was deleted there and is still
                                                       here; no push brings it back unless it is meant
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from uwf_git import log
from uwf_git.errors import RemoteFailed, UwfError
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.opened import Instance
from uwf_git.store.remotes import Remote
from uwf_git.values.ids import ALPHABET, ThreadId

# Above this many, wildcards cost git less than looking each name up.
MANY = 300
TRIES = 3
_OID = re.compile(r"[0-9a-f]{40}")
_OTHER_OID = re.compile(r"[0-9a-f]{64}")
# Of thousands of refs nearly all are of threads: rows of nothing else need no look at each.
_ROWS_OF_THREADS = re.compile(
    rf"(?:[0-9a-f]{{40}}\t(?:{'|'.join(layout.OF_THREADS)})[0-7][{ALPHABET}]{{25}}(?:\^{{}})?\n)++", re.ASCII
)


class Listed(NamedTuple):
    """What the other side lists, by its names. `refs` are shared refs and branches of workflows with what they point
    at; `strange` are names under refs/uwf/ that uwf gives to no ref, which may hold control characters.
    `branches`: there is a branch, or nobody looked for one."""

    refs: Mapping[str, Oid]
    strange: tuple[str, ...]
    branches: bool = True


class Fetched(NamedTuple):
    """What a remote lists, and the tracking refs of what it no longer has, by the remote's names: where each was last
    seen. `tracked` are all of its tracking refs where nothing had to be fetched; None where something was."""

    listed: Listed
    gone: Mapping[str, Oid]
    tracked: Mapping[str, Oid] | None = None


# Listing


def list_refs(
    git: Git,
    repository: Repository,
    remote: Remote,
    thread: ThreadId | None = None,
    branches: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
) -> Listed:
    """What a remote has under refs/uwf/ and of published workflows; of one thread only, where that is
    given. `branches`: whether it has any is looked for too. `meanwhile` is called while the remote is being asked.
    Raises RemoteFailed, also for more refs than `uwf.maxRefs` allows."""
    patterns = [f"refs/uwf/*/{thread}"] if thread else ["refs/uwf/*", f"{layout.WORKFLOW_BRANCHES}*"]
    if branches:
        patterns[1:] = ["HEAD", "refs/heads/*"]
    found: set[str] = set()
    at_most = repository.config.max_refs
    too_many = RemoteFailed(
        f"{remote.name} lists more than {at_most:,} refs under refs/uwf/",
        f"fold its archives, or allow more: {repository.config.to_raise('uwf.maxRefs', '1000000')}",
    )
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    # Not with --refs: it leaves out names that are none without a word.
    with git.printing("ls-remote", "--quiet", "--", remote.name, *patterns) as blocks:
        meanwhile()
        for block in blocks:
            text = block.decode("utf-8", "backslashreplace")
            if _ROWS_OF_THREADS.fullmatch(text):
                rows = [row for row in text.split("\n") if row and row[-1] != "}"]
                refs.update(zip([row[41:] for row in rows], [Oid(hex=row[:40]) for row in rows], strict=True))
            else:
                left = at_most - len(refs) - len(strange)
                more = sort_out(_of_uwf(remote, _rows(text), found), _is_taken, left, too_many)
                refs.update(more.refs)
                strange.extend(more.strange)
            if len(refs) + len(strange) > at_most:
                raise too_many
    log.debug(
        "W1JTH9PS", "{remote} lists {refs} refs", remote=remote.name, refs=len(refs), strange=strange[:10]
    )
    return Listed(refs, tuple(strange), not branches or bool(found))


def _is_taken(name: str) -> bool:
    return layout.is_shared_ref(name) or _is_workflow_branch(name)


def sort_out(
    listed: Iterable[tuple[str, str]], takes: Callable[[str], bool], at_most: int, too_many: UwfError
) -> Listed:
    """Tells names that are taken from strange ones; `listed` are object ids with names. Raises `too_many` as soon as
    there are more than `at_most`."""
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    for oid, name in listed:
        if takes(name):
            refs[name] = Oid(hex=oid)
        else:
            strange.append(name)
        if len(refs) + len(strange) > at_most:
            raise too_many
    return Listed(refs, tuple(strange))


def listed_lines(git: Git, *args: str, between: str = "\t") -> Iterator[tuple[str, str]]:
    """What git prints as lines of an object id and a name, neither of them checked. Raises RemoteFailed at the end
    where git failed."""
    for line in git.lines(*args):
        oid, _, name = line.decode("utf-8", "backslashreplace").partition(between)
        yield oid, name


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removesuffix("\n").split("\n"):
        oid, _, name = line.partition("\t")
        yield oid, name


def _of_uwf(
    remote: Remote, listed: Iterable[tuple[str, str]], branches: set[str]
) -> Iterator[tuple[str, str]]:
    """Of what a remote lists, what is under refs/uwf/, and its branches of workflows where it isn't the project's. The
    first branch of any kind goes to `branches`."""
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
        if name.startswith(layout.LOCAL):
            continue  # the remote is a store with remotes and proposals of its own
        if name.startswith(layout.NAMESPACE) or (_is_workflow_branch(name) and not remote.code):
            yield oid, name


def _is_workflow_branch(name: str) -> bool:
    rest = name.removeprefix(layout.WORKFLOW_BRANCHES)
    return name.startswith(layout.WORKFLOW_BRANCHES) and layout.is_shared_ref(layout.WORKFLOWS + rest)


# Fetching


def tracked_refs(repository: Repository, remote: str) -> dict[str, Oid]:
    """Where a remote's refs were last seen, by the remote's names for them."""
    prefix = f"{layout.REMOTES}{remote}/"
    found = repository.refs(prefix, without=_deleted(remote))
    branches, size = prefix + "branches/", len(prefix)
    return {
        layout.tracked(remote, name) if name.startswith(branches) else layout.NAMESPACE + name[size:]: oid
        for name, oid in found.items()
    }


def fetch(git: Git, repository: Repository, remote: Remote, thread: ThreadId | None = None) -> Fetched:
    """Moves `refs/uwf/remotes/<remote>/…` to where the remote's refs are; of one thread only, where that
    is given. The tracking refs of what the remote no longer has stay. Raises RemoteFailed."""
    for last_try in [False] * (TRIES - 1) + [True]:
        known: dict[str, Oid] = {}
        listed = list_refs(
            git,
            repository,
            remote,
            thread,
            meanwhile=lambda: known.update(tracked_refs(repository, remote.name)),  # noqa: B023 -- called at once
        )
        wanted = [name for name, oid in listed.refs.items() if known.get(name) != oid]
        log.info(
            "4XSKK6GJ",
            "fetches {wanted} refs of {remote}",
            remote=remote.name,
            wanted=len(wanted),
            first=wanted[:10],
        )
        try:
            if wanted:
                bring_tracked(git, repository, remote, wanted)
            break
        except RemoteFailed as error:
            # A ref that was listed may be gone by now; then there is another list to look at.
            if last_try or "couldn't find remote ref" not in error.message:
                raise
            log.warning(
                "QCTJ481C",
                "a ref of {remote} is gone since it was listed: lists once more",
                remote=remote.name,
            )
    gone = {name: oid for name, oid in known.items() if name not in listed.refs}
    if thread is not None:
        gone = {name: oid for name, oid in gone.items() if name.endswith(f"/{thread}")}
    return Fetched(listed, gone, None if wanted else known)


def bring_tracked(git: Git, repository: Repository, remote: Remote, wanted: list[str]) -> None:
    """Moves the tracking refs of these refs of a remote to where they are there. Raises RemoteFailed."""
    names = wanted
    if len(names) > MANY:
        names = sorted({layout.namespace_of(name) + "*" for name in names})
    specs = [f"+{name}:{layout.tracking(remote.name, name)}" for name in names]
    bring(git, repository, remote.name, specs, meanwhile=_get_ready)
    for name in wanted:
        # git leaves out what a shallow repository can't give whole, and says nothing of it.
        if repository.ref(layout.tracking(remote.name, name)) is None:
            raise RemoteFailed(
                f"{remote.name} lists {name} but did not send it",
                "is it shallow? git fetch --unshallow there",
            )


def _get_ready() -> None:
    """Loads what verifies, while there is nothing to do but wait."""
    import uwf_git.verify.whole  # noqa: F401


def bring(
    git: Git,
    repository: Repository,
    source: str,
    refspecs: Iterable[str],
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Fetches from a remote, or a file, by refspecs; one without a destination brings objects and moves no ref.
    `meanwhile` is called while git does. Raises RemoteFailed, also for more than `uwf.maxFetch` allows."""
    progress = ["--progress"] if git.shows_progress else ["--quiet"]
    at_most = repository.config.max_fetch
    try:
        git.run(
            "fetch",
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
            file_limit=at_most,
            meanwhile=meanwhile,
        )
    except RemoteFailed:
        _remove_partial_packs(repository, at_most)
        raise


def _remove_partial_packs(repository: Repository, size: int) -> None:
    """What a fetch that reached the limit had written; git would leave it to the next gc."""
    for path in (repository.path / "objects" / "pack").glob("tmp_*"):
        with contextlib.suppress(OSError):
            if path.stat().st_size >= size:
                path.unlink()


# What was deleted there


def look(instance: Instance, git: Git, remote: Remote) -> list[str]:
    """Asks a remote what it has, and notices what was deleted there. Returns the refs that were, and are
    still here. Touches tracking refs only. Raises RemoteFailed."""
    listed = list_refs(git, instance.store.repository, remote).refs
    known = tracked_refs(instance.store.repository, remote.name)
    note(instance, remote, listed, {name: oid for name, oid in known.items() if name not in listed})
    return sorted(marked(instance, remote))


def note(instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]) -> list[str]:
    """Forgets the tracking refs of what a remote no longer lists. Marks the refs that were deleted there and are
    here, and returns those it marked; a thread that merely ended or was folded wasn't deleted."""
    repository = instance.store.repository
    found = []
    for name, oid in gone.items():
        if name.startswith(layout.PAUSED) and layout.THREADS + layout.thread_of(name) in listed:
            continue  # it was resumed there, which a pull takes over
        deleted = name.startswith(layout.NAMESPACE) and _was_deleted(instance, name, listed)
        if deleted and repository.ref(name) is not None and repository.ref(_marker(remote, name)) is None:
            repository.create_ref(_marker(remote, name), oid)
            found.append(name)
        _drop(repository, layout.tracking(remote.name, name))  # unless a push that deletes has
    return found


def resumed_there(
    instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]
) -> list[str]:
    """Resumes the threads that somebody has resumed on a remote: whose pause is gone there while they go on. One that
    was paused anew here stays paused. Deletes `refs/uwf/paused/<ULID>`; returns those that it deleted."""
    repository = instance.store.repository
    found = []
    for name, oid in gone.items():
        if name.startswith(layout.PAUSED) and layout.THREADS + layout.thread_of(name) in listed:
            if repository.ref(name) == oid:
                repository.delete_ref(name, oid)
                found.append(name)
            _drop(repository, layout.tracking(remote.name, name))
    return found


def marked(instance: Instance, remote: Remote) -> set[str]:
    """The refs that were deleted on a remote and are still here. One that was seen there again since isn't among
    them."""
    prefix = _deleted(remote.name)
    repository = instance.store.repository
    names = {layout.NAMESPACE + name.removeprefix(prefix) for name in repository.ref_names(prefix)}
    return {
        name
        for name in names
        if repository.ref(name) is not None and repository.ref(layout.tracking(remote.name, name)) is None
    }


def mark(instance: Instance, remote: str, name: str, oid: Oid) -> None:
    """Remembers of a ref that is here that it was deleted on a remote, where it was last seen at `oid`."""
    repository = instance.store.repository
    marker = _deleted(remote) + name.removeprefix(layout.NAMESPACE)
    if repository.ref(marker) is None:
        repository.create_ref(marker, oid)


def agree(instance: Instance, remote: str, name: str, oid: Oid | None) -> None:
    """Remembers the fold that a remote and this store have in common: what either holds besides was added later. None
    where there is no such fold any more. Moves `refs/uwf/merged/<remote>/<month>`."""
    repository = instance.store.repository
    ref = f"{layout.MERGED}{remote}/{name.removeprefix(layout.FOLDED)}"
    old = repository.ref(ref)
    if oid is None and old is not None:
        repository.delete_ref(ref, old)
    elif oid is not None and oid != old:
        repository.put_ref(ref, old, oid)


def unmark(instance: Instance, remote: Remote, name: str) -> None:
    """Forgets that a ref was deleted: it is there again."""
    _drop(instance.store.repository, _marker(remote, name))


def _drop(repository: Repository, name: str) -> None:
    if (oid := repository.ref(name)) is not None:
        repository.delete_ref(name, oid)


def _deleted(remote: str) -> str:
    return f"{layout.REMOTES}{remote}/deleted/"


def _marker(remote: Remote, name: str) -> str:
    return _deleted(remote.name) + name.removeprefix(layout.NAMESPACE)


def _was_deleted(instance: Instance, name: str, listed: Mapping[str, Oid]) -> bool:
    """Whether a ref that is gone was not merely put elsewhere: an active one among the archives, an
    archive into a fold."""
    if not name.startswith(layout.OF_THREADS):
        return True
    thread = layout.thread_of(name)
    if name.startswith((layout.THREADS, layout.PAUSED)) and layout.ARCHIVE + thread in listed:
        return False
    folded = instance.store.folded(thread)
    return folded is None or folded.ref not in listed
