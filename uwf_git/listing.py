"""What a remote lists, and bringing what changed into the tracking refs.

A remote is asked for its list first: it is bounded and checked by name, so a million refs or a name with
control characters never gets as far as a fetch, and of thousands of known threads only those that moved
are asked for.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from uwf_git import layout
from uwf_git.errors import NotFound, RemoteFailed
from uwf_git.gitcommand import Git
from uwf_git.ids import ThreadId
from uwf_git.remotes import Remote
from uwf_git.repository import Oid, Repository

MAX_REFS = 200_000
MAX_FETCH = 2 << 30
LARGEST = 95_000_000
# Above this many, wildcards cost git less than looking each name up.
MANY = 300
TRIES = 3
_OID = re.compile(r"[0-9a-f]{40}")
_OTHER_OID = re.compile(r"[0-9a-f]{64}")
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


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
    at_most = limit(repository, "uwf.maxRefs", MAX_REFS)
    refs: dict[str, Oid] = {}
    strange: list[str] = []
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
        if name.startswith(layout.REMOTES) or name.startswith(layout.PROPOSALS):
            continue  # the remote is a store with remotes and proposals of its own
        if layout.is_shared_ref(name) or (_is_workflow_branch(name) and not remote.code):
            refs[name] = Oid(hex=oid)
        elif name.startswith(layout.NAMESPACE):
            strange.append(name)
        if len(refs) + len(strange) > at_most:
            raise RemoteFailed(
                f"{remote.name} lists more than {at_most:,} refs under refs/uwf/",
                f"fold its archives, or allow more: {setting(repository, 'uwf.maxRefs', '1000000')}",
            )
    return Listed(refs, tuple(strange))


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


def setting(repository: Repository, key: str, value: str) -> str:
    """The command that changes a limit of a store."""
    import shlex

    return f"git --git-dir {shlex.quote(str(repository.path))} config {key} {value}"


def limit(repository: Repository, key: str, default: int) -> int:
    """A number of git's configuration, with its suffixes k, m and g."""
    text = repository.configured(key).strip().lower()
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    return int(number) * unit if number.isdecimal() else default


def _is_workflow_branch(name: str) -> bool:
    rest = name.removeprefix(layout.WORKFLOW_BRANCHES)
    return name.startswith(layout.WORKFLOW_BRANCHES) and layout.is_shared_ref(layout.WORKFLOWS + rest)


def _bring(git: Git, repository: Repository, remote: Remote, wanted: Iterable[str]) -> None:
    names = list(wanted)
    if len(names) > MANY:
        names = sorted({name[: name.rindex("/") + 1] + "*" for name in names})
    bring(git, repository, remote, [f"+{name}:{layout.tracking(remote.name, name)}" for name in names])


def bring(git: Git, repository: Repository, remote: Remote, refspecs: Iterable[str]) -> None:
    """Fetches by refspecs; one without a destination brings objects and moves no ref. Raises
    RemoteFailed, also for more than `uwf.maxFetch` allows."""
    progress = ["--progress"] if git.shows_progress else ["--quiet"]
    at_most = limit(repository, "uwf.maxFetch", MAX_FETCH)
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
            remote.name,
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


def need(listed: Listed, name: str, remote: Remote) -> Oid:
    """What a remote's ref points at. Raises NotFound."""
    if name not in listed.refs:
        raise NotFound(f"{remote.name} has no {name}", f"see: git ls-remote {remote.name}")
    return listed.refs[name]
