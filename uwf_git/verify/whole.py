"""A whole store verified, a few of its threads, or what was last fetched from a remote: against a fresh
index, so that nothing counts that was believed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from uwf_git import layout
from uwf_git.ids import ThreadId
from uwf_git.overlay import Overlay
from uwf_git.repository import Oid, Repository
from uwf_git.store import Store
from uwf_git.verify.finding import Finding
from uwf_git.verify.objects import BLOB_LIMIT
from uwf_git.verify.refs import Verifier

_OF_THREADS = (layout.THREADS, layout.ARCHIVE, layout.ATTEMPTS, layout.FORKS)


class Verified(NamedTuple):
    """How much was verified, in different threads, steps and nodes, and what was found."""

    threads: int
    steps: int
    nodes: int
    findings: tuple[Finding, ...]


def local_refs(repository: Repository) -> dict[str, Oid | None]:
    """Every ref of the store that is shared or looks so; None where it holds no object id."""
    found: dict[str, Oid | None] = dict.fromkeys(repository.broken_refs())
    found.update(repository.refs(without=layout.REMOTES))
    return {
        name: oid
        for name, oid in found.items()
        if not name.startswith((layout.PROPOSALS, layout.REMOTES)) or oid is None
    }


def thread_refs(repository: Repository, threads: Iterable[ThreadId]) -> dict[str, Oid | None]:
    """The refs of some threads: active, archive, attempts and fork."""
    every = local_refs(repository)
    names = [prefix + thread for thread in threads for prefix in _OF_THREADS]
    return {name: every[name] for name in names if name in every}


def verify_refs(
    repository: Repository,
    refs: Mapping[str, Oid | None],
    blob_limit: int = BLOB_LIMIT,
    on_commit: Callable[[], None] = lambda: None,
) -> Verified:
    """Verifies refs as `local_refs` and `thread_refs` give them, or a remote's. `blob_limit` is in bytes;
    `on_commit` is called for every commit that was checked. Moves no ref, trusts no index."""
    store = Store(repository, Overlay())
    verifier = Verifier(store, blob_limit=blob_limit, on_commit=on_commit, fresh=True)
    findings: list[Finding] = []
    for name, oid in sorted(refs.items(), key=_order):
        if oid is None:
            findings.append(Finding("wrong-ref", None, None, "", f"{name} holds no object id", name))
        else:
            findings.extend(verifier.ref(name, oid))
    store.index.close()
    return Verified(len(verifier.threads), verifier.steps, verifier.nodes, tuple(findings))


def _order(item: tuple[str, Oid | None]) -> tuple[int, str]:
    """Workflows first, as in layout.SHARED: what is wrong with one is then said of it, not of its threads."""
    name = item[0]
    place = next((n for n, prefix in enumerate(layout.SHARED) if name.startswith(prefix)), len(layout.SHARED))
    return place, name
