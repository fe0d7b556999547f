"""What a remote lists, and bringing what changed into the tracking refs.

A remote is asked for its list first: it is bounded and checked by name, so a million refs or a name with
control characters never gets as far as a fetch, and of thousands of known threads only those that moved
are asked for.

What was deleted on a remote: marked here, so that no push brings it back by itself.

refs/uwf/remotes/<remote>/deleted/threads/<ULID>   where the ref was last seen there
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from uwf_git.errors import RemoteFailed, UwfError
from uwf_git.git.limits import max_fetch, max_refs, raised_by
from uwf_git.git.program import Git
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import layout
from uwf_git.store.opened import Instance
from uwf_git.store.remotes import Remote
from uwf_git.values.ids import ThreadId

# Above this many, wildcards cost git less than looking each name up.
MANY = 300
TRIES = 3
_OID = re.compile(r"[0-9a-f]{40}")
_OTHER_OID = re.compile(r"[0-9a-f]{64}")


class Listed(NamedTuple):
    """A remote's shared refs and branches of workflows with what they point at; `strange` are the names
    under refs/uwf/ that uwf makes no refs of, as the remote gave them; they may hold control characters."""

    refs: Mapping[str, Oid]
    strange: tuple[str, ...]


class Fetched(NamedTuple):
    """What a fetch changed. `moved` are the remote's names of the refs whose tracking refs moved; `gone`
    are those it no longer has, whose tracking refs are still there, with where these are."""

    listed: Listed
    moved: tuple[str, ...]
    gone: Mapping[str, Oid]


def list_refs(git: Git, repository: Repository, remote: Remote, thread: ThreadId | None = None) -> Listed:
    """What a remote has under refs/uwf/ and of published workflows; of one thread only, where that is
    given. Raises RemoteFailed, also for more refs than `uwf.maxRefs` allows."""
    patterns = [f"refs/uwf/*/{thread}"] if thread else ["refs/uwf/*", f"{layout.WORKFLOW_BRANCHES}*"]
    at_most = max_refs(repository)
    return sort_out(
        _lines(git, remote, patterns),
        lambda name: layout.is_shared_ref(name) or (_is_workflow_branch(name) and not remote.code),
        at_most,
        RemoteFailed(
            f"{remote.name} lists more than {at_most:,} refs under refs/uwf/",
            f"fold its archives, or allow more: {raised_by(repository, 'uwf.maxRefs', '1000000')}",
        ),
    )


def sort_out(
    listed: Iterable[tuple[str, str]], takes: Callable[[str], bool], at_most: int, too_many: UwfError
) -> Listed:
    """What the other side lists, names with object ids, told apart by what is taken and what is strange.
    Raises `too_many` as soon as it is more than `at_most`."""
    refs: dict[str, Oid] = {}
    strange: list[str] = []
    for name, oid in listed:
        if takes(name):
            refs[name] = Oid(hex=oid)
        else:
            strange.append(name)
        if len(refs) + len(strange) > at_most:
            raise too_many
    return Listed(refs, tuple(strange))


def _lines(git: Git, remote: Remote, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What a remote lists under refs/uwf/, and its branches of workflows where it isn't the project's."""
    # Not with --refs: it leaves out names that are none without a word.
    for line in git.lines("ls-remote", "--quiet", "--", remote.name, *patterns):
        oid, _, name = line.decode("utf-8", "backslashreplace").partition("\t")
        if _OTHER_OID.fullmatch(oid):
            raise RemoteFailed(
                f"{remote.name} has object ids of SHA-256, a store has those of SHA-1",
                "make the repository there anew: git init --bare --object-format=sha1",
            )
        if name.endswith("^{}") or not _OID.fullmatch(oid):
            continue
        if name.startswith((layout.REMOTES, layout.PROPOSALS)):
            continue  # the remote is a store with remotes and proposals of its own
        if name.startswith(layout.NAMESPACE) or (_is_workflow_branch(name) and not remote.code):
            yield name, oid


def fetch(git: Git, repository: Repository, remote: Remote, thread: ThreadId | None = None) -> Fetched:
    """Moves `refs/uwf/remotes/<remote>/…` to where the remote's refs are; of one thread only, where that
    is given. What the remote no longer has is only told. Raises RemoteFailed."""
    for last_try in [False] * (TRIES - 1) + [True]:
        listed = list_refs(git, repository, remote, thread)
        known = tracked_refs(repository, remote.name)
        wanted = {name: oid for name, oid in listed.refs.items() if known.get(name) != oid}
        try:
            if wanted:
                _bring(git, repository, remote, wanted)
                _check_brought(repository, remote, wanted)
            break
        except RemoteFailed as error:
            # A ref that was listed may be gone by now; then there is another list to look at.
            if last_try or "couldn't find remote ref" not in error.message:
                raise
    gone = {
        name: oid
        for name, oid in known.items()
        if name not in listed.refs and (thread is None or name.endswith(f"/{thread}"))
    }
    return Fetched(listed, tuple(wanted), gone)


def _check_brought(repository: Repository, remote: Remote, wanted: Iterable[str]) -> None:
    """git leaves out what a shallow repository can't give whole, and says nothing of it."""
    for name in wanted:
        if repository.ref(layout.tracking(remote.name, name)) is None:
            raise RemoteFailed(
                f"{remote.name} lists {name} but did not send it",
                "is it shallow? git fetch --unshallow there",
            )


def tracked_refs(repository: Repository, remote: str) -> dict[str, Oid]:
    """Where a remote's refs were last seen, by the remote's names for them."""
    found = repository.refs(f"{layout.REMOTES}{remote}/", without=f"{layout.REMOTES}{remote}/deleted/")
    return {layout.tracked(remote, name): oid for name, oid in found.items()}


def _is_workflow_branch(name: str) -> bool:
    rest = name.removeprefix(layout.WORKFLOW_BRANCHES)
    return name.startswith(layout.WORKFLOW_BRANCHES) and layout.is_shared_ref(layout.WORKFLOWS + rest)


def _bring(git: Git, repository: Repository, remote: Remote, wanted: Iterable[str]) -> None:
    names = list(wanted)
    if len(names) > MANY:
        names = sorted({layout.namespace_of(name) + "*" for name in names})
    bring(git, repository, remote.name, [f"+{name}:{layout.tracking(remote.name, name)}" for name in names])


def bring(git: Git, repository: Repository, source: str, refspecs: Iterable[str]) -> None:
    """Fetches from a remote, or a file, by refspecs; one without a destination brings objects and moves no ref. Raises
    RemoteFailed, also for more than `uwf.maxFetch` allows."""
    progress = ["--progress"] if git.shows_progress else ["--quiet"]
    at_most = max_fetch(repository)
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


def note(instance: Instance, remote: Remote, listed: Mapping[str, Oid], gone: Mapping[str, Oid]) -> list[str]:
    """Forgets the tracking refs of what a remote no longer lists. Returns the refs that were deleted there
    and are here, which it marks; what merely ended or was folded is none of them."""
    repository = instance.store.repository
    found = []
    for name, oid in gone.items():
        deleted = name.startswith(layout.NAMESPACE) and _was_deleted(instance, name, listed)
        if deleted and repository.ref(name) is not None and repository.ref(_marker(remote, name)) is None:
            repository.create_ref(_marker(remote, name), oid)
            found.append(name)
        tracking = layout.tracking(remote.name, name)
        if (known := repository.ref(tracking)) is not None:  # a push that deletes has dropped it already
            repository.delete_ref(tracking, known)
    return found


def marked(instance: Instance, remote: Remote) -> set[str]:
    """The refs that were deleted on a remote and are still here."""
    prefix = f"{layout.REMOTES}{remote.name}/deleted/"
    repository = instance.store.repository
    names = {layout.NAMESPACE + name.removeprefix(prefix) for name in repository.ref_names(prefix)}
    return {name for name in names if repository.ref(name) is not None}


def unmark(instance: Instance, remote: Remote, name: str) -> None:
    """Forgets that a ref was deleted: it is there again."""
    repository = instance.store.repository
    if (marker := repository.ref(_marker(remote, name))) is not None:
        repository.delete_ref(_marker(remote, name), marker)


def _marker(remote: Remote, name: str) -> str:
    return f"{layout.REMOTES}{remote.name}/deleted/{name.removeprefix(layout.NAMESPACE)}"


def _was_deleted(instance: Instance, name: str, listed: Mapping[str, Oid]) -> bool:
    """Whether a ref that is gone was not merely put elsewhere: an active one among the archives, an
    archive into a fold."""
    if not name.startswith(layout.OF_THREADS):
        return True
    thread = layout.thread_of(name)
    if name.startswith(layout.THREADS) and layout.ARCHIVE + thread in listed:
        return False
    folded = instance.store.folded(thread)
    return folded is None or folded.ref not in listed
