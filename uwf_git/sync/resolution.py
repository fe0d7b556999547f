"""Accepting or rejecting what a remote has in place of what was seen there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from uwf_git.base.errors import HeadMoved, Invalid
from uwf_git.git.repository import Oid
from uwf_git.store import archives, layout
from uwf_git.store.instance import Instance
from uwf_git.store.remotes import Remote
from uwf_git.sync import rewritten, tracking
from uwf_git.sync.push import refusal
from uwf_git.sync.seen import Seen
from uwf_git.sync.transfer import Rejected, remove, replace, send

if TYPE_CHECKING:
    from uwf_git.sync.adopt import Adopted, RefusedRef
    from uwf_git.sync.exchange import Exchange


_OF_STEPS = (layout.THREADS, layout.ARCHIVE)


def accept(
    instance: Instance, remote: Remote, name: str
) -> tuple[tuple[Adopted, ...], tuple[RefusedRef, ...]]:
    """Adopt the rewritten history of a thread or other ref as last seen. Moves refs as `reconcile` says: theirs keeps
    the id, our other steps become a fork; and `refs/uwf/rewritten/<remote>/…`, which then keep what was here. Raises
    NotFound, HeadMoved if the remote's refs have moved since, Busy."""
    from uwf_git.sync.adopt import Adoption

    repository = instance.store.repository
    with instance.locks.exchange(remote.name):
        theirs = rewritten.find(instance, remote.name, name)
        tracked = tracking.tracked_among(repository, remote.name, theirs)
        if moved := [ref for ref, oid in theirs.items() if tracked.get(ref) != oid]:
            raise HeadMoved(
                f"{moved[0]} has moved on {remote.name} since it was found rewritten",
                f"look again: uwf pull {remote.name}",
            )
        before = {ref: oid for ref in theirs if (oid := repository.ref(ref)) is not None}
        replaced = {ref: oid for ref, oid in before.items() if oid != theirs[ref]}
        rewritten.keep_accepted(repository, remote.name, replaced)
        for ref in theirs:
            if ref.startswith(layout.FOLDED) and ref in before:
                _unfold(instance, ref, before[ref], theirs[ref])
        adoption = Adoption(instance, theirs, remote=remote.name, accepts_rewrites=True)
        adopted, refused = adoption.run(whole=False)
        if not refused:
            Seen(repository.private, remote.name).note(theirs)
            rewritten.drop(repository, remote.name, theirs)
    return adopted, refused


def _unfold(instance: Instance, ref: str, ours: Oid, theirs: Oid) -> None:
    """Give threads that the two folds hold differently refs of their own, so that they are settled one by one."""
    repository = instance.store.repository
    one, other = archives.read(repository, ours), archives.read(repository, theirs)
    differing = {
        thread
        for thread, entry in one.threads.items()
        if thread in other.threads and other.threads[thread].raw != entry.raw
    }
    refs = {
        layout.ARCHIVE + thread: repository.write_raw_tag(one.threads[thread].raw) for thread in differing
    }
    repository.create_refs(refs)
    rest = archives.without(repository, one, differing)
    if rest is None:
        repository.delete_ref(ref, ours)
    else:
        repository.move_ref(ref, ours, rest)
    instance.store.sync()


def reject(exchange: Exchange, name: str) -> list[str]:
    """Push our history of a thread or other ref in place of the rewritten one, by lease: only if the remote still has
    what was found. Moves refs of the remote, and `refs/uwf/remotes/<remote>/…`; deletes
    `refs/uwf/rewritten/<remote>/…`. Returns the refs that moved there. Raises NotFound, HeadMoved if the remote has
    moved meanwhile, RemoteFailed, Invalid without a history of ours."""
    (instance, remote, git), repository = exchange, exchange.repository
    with exchange.lock():
        theirs = rewritten.find(instance, remote.name, name)
        if of_steps := {ref: oid for ref, oid in theirs.items() if ref.startswith(_OF_STEPS)}:
            theirs = of_steps  # failed attempts and forks are compared by the next pull
        ours = _ours(instance, theirs)
        if not ours:
            raise Invalid(
                f"{name} is not in this store, so there is nothing to push back",
                f"uwf remote accept-rewrite {name} takes what {remote.name} has",
            )
        listed = tracking.list_refs(git, repository, remote).refs
        moves = {
            ref: (theirs[ref], oid)
            for ref, oid in ours.items()
            if ref in theirs and listed.get(ref) == theirs[ref] and oid != theirs[ref]
        }
        moved = [
            ref for ref, oid in theirs.items() if ref in listed and listed[ref] not in (oid, ours.get(ref))
        ]
        if moved:
            raise HeadMoved(
                f"{moved[0]} has moved on {remote.name} since it was found rewritten",
                f"look again: uwf pull {remote.name}",
            )
        # An end that is not ours, or an active head beside our end.
        doomed = {ref: oid for ref, oid in theirs.items() if ref not in ours and listed.get(ref) == oid}
        new = {ref: oid for ref, oid in ours.items() if ref not in listed}
        results = {
            **(send(git, remote, new, (), None) if new else {}),
            **replace(git, remote, moves),
            **remove(git, remote, doomed),
        }
        if refused := [result for result in results.values() if isinstance(result, Rejected)]:
            raise refusal(remote, refused)
        _remember(instance, remote, ours, doomed)
        rewritten.drop(repository, remote.name, rewritten.find(instance, remote.name, name))
    return sorted(results)


def _ours(instance: Instance, theirs: Mapping[str, Oid]) -> dict[str, Oid]:
    repository = instance.store.repository
    names = set(theirs)
    for ref in theirs:
        if layout.is_thread_ref(ref):
            names |= {prefix + layout.thread_of(ref) for prefix in (layout.THREADS, layout.ARCHIVE)}
    oids = {ref: oid for ref in names if (oid := repository.ref(ref)) is not None}
    for ref in names - oids.keys():
        if (
            ref.startswith(layout.ARCHIVE)
            and (row := instance.store.folded(layout.thread_of(ref))) is not None
        ):
            tag = archives.tag_again(repository, row.ref, layout.thread_of(ref))
            if tag is not None:
                oids[ref] = tag
    return oids


def _remember(instance: Instance, remote: Remote, ours: Mapping[str, Oid], doomed: Mapping[str, Oid]) -> None:
    repository = instance.store.repository
    for ref in {*ours, *doomed}:
        repository.set_ref(layout.tracking(remote.name, ref), ours.get(ref))
    Seen(repository.private, remote.name).note(ours)
