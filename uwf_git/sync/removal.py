"""Removing threads on this machine, restoring them, and deleting them on a remote.

    refs/uwf/removed/<ULID>              a blob: who removed the thread here, and when; no pull brings it back
    <git dir>/uwf/removed/<ULID>.bundle  its refs' objects, until `expiring`; see `uwf_git.store.removed`

A thread that is removed by a rule, since it is old, has no bundle. Its blob says more: the rule, the head, the
workflow, when it began and ended, and its status. No fetch brings its objects.

None of that is shared. If a remote has the thread in a fold, the fold is kept here too, since the two must
agree on it; the first ref hides the thread.

Refs on a remote are deleted by lease. A fold has many threads: it is replaced, by lease, by one that begins
anew without the past. Another store that had agreed on the old fold sees what was deleted; threads it still
wants get refs of their own, which are pushed only by name.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Busy, HeadMoved, NotFound, StoreDamaged, Usage, UwfError
from uwf_git.base.text import counted
from uwf_git.engine.forks import squatted
from uwf_git.format.ids import ThreadId, complete, is_thread_id, time_of
from uwf_git.git.repository import Oid, Repository
from uwf_git.store import archives, layout
from uwf_git.store import removed as kept
from uwf_git.store.instance import Instance
from uwf_git.sync import tracking
from uwf_git.sync.branches import own_branches, with_branches
from uwf_git.sync.tracking import list_refs, tracked_refs
from uwf_git.workspaces.notes import Notes

KEPT_SECONDS = 30 * 24 * 60 * 60
TRIES = 3
_OF_HEADS = (layout.THREADS, layout.ARCHIVE, layout.PAUSED)

if TYPE_CHECKING:
    from uwf_git.sync.exchange import Exchange
    from uwf_git.sync.push import PushReport
    from uwf_git.sync.transfer import Results


class Removal(NamedTuple):
    """A removed thread: by whom (name and address) and when (Unix seconds). `kept`: it can be restored
    without a remote."""

    thread: ThreadId
    by: str
    time: int
    kept: bool


# Removing


def remove(instance: Instance, thread: ThreadId, rule: str = "") -> list[ThreadId]:
    """Remove a thread after its own branches, each as `remove_one`, by hand or by a `rule`; return these. Raises
    Busy if one of them is at work; then nothing is removed."""
    branches: list[ThreadId] = []
    with contextlib.suppress(NotFound, StoreDamaged):  # a damaged thread can be removed too
        branches = own_branches(instance, thread)
    if busy := [item for item in branches if instance.locks.is_at_work(item)]:
        raise Busy(f"branch {busy[0]} of thread {thread} is at work", f"uwf thread kill {thread}, then again")
    if branches:
        with instance.locks.hold(thread):  # else they are gone and it is not
            pass
    for branch in branches:
        remove_one(instance, branch, thread, rule)
    remove_one(instance, thread, "", rule)
    return branches


def remove_one(instance: Instance, thread: ThreadId, along: str = "", rule: str = "") -> None:
    """Remove a thread, `along` with another, and its failed attempts: write a bundle, unless a `rule` removes it, make
    `refs/uwf/removed/<ULID>`, then delete its refs; its fold begins anew unless a remote has it. Raises Busy if it runs
    or its refs are locked, HeadMoved if it moves; then nothing is removed. What it has in its project is removed as
    well, as by `workspaces.discarding.discard`."""
    from uwf_git.engine.budget import forget

    repository = instance.store.repository
    with instance.locks.hold(thread):
        refs = {prefix + thread: repository.ref(prefix + thread) for prefix in layout.of_threads()}
        found = {name: oid for name, oid in refs.items() if oid is not None}
        buried = {} if rule else {**_unfolded(instance, thread), **found}
        record = {"rule": rule, **_what_it_was(instance, thread)} if rule else {}
        if along:
            record["with"] = along
        with contextlib.suppress(UwfError):  # a damaged thread can be removed too
            if squatted(instance.store, thread, instance.threads.head(thread).commit) is not None:
                record["squatter"] = True

        def bury(doomed: Collection[str]) -> None:
            for name in found.keys() - doomed:
                if name.startswith((layout.THREADS, layout.ARCHIVE)):
                    raise HeadMoved(f"{name} was moved by another process", "look at it, then repeat")
            _bury(instance, thread, buried, record)

        if found:
            for name in found.keys() - repository.delete_refs(found, before=bury):
                instance.threads.drop(name)  # it was paused or resumed meanwhile
        else:
            _bury(instance, thread, buried, record)
        if (row := instance.store.index.folded(thread)) and not _is_shared(repository, row.ref, thread):
            archives.remove(repository, thread)
        instance.threads.drop(layout.RESUMED + thread)
        instance.runs.clear(thread)
        instance.sessions.forget(lambda owner: owner != thread)
        forget(instance, thread)
        if Notes(repository.private).has(thread):
            from uwf_git.workspaces.discarding import discard

            discard(instance, thread)
        if rule:
            import shutil

            from uwf_git.workspaces.removal import ignored_of

            kept.forget(repository, thread)
            for name in repository.ref_names(layout.REMOTES) + repository.ref_names(layout.REWRITTEN):
                if name.endswith(f"/{thread}") and "/deleted/" not in name:
                    repository.set_ref(name, None)
            shutil.rmtree(ignored_of(instance, thread), ignore_errors=True)


def _bury(instance: Instance, thread: ThreadId, refs: dict[str, Oid], record: Mapping[str, Any]) -> None:
    repository = instance.store.repository
    kept.keep(repository, thread, refs, instance.warn)
    record = {"by": repository.user.ident, "at": int(time.time()), **record}
    blob = repository.write_blob(json.dumps(record).encode("ascii") + b"\n")
    repository.set_ref(layout.REMOVED + thread, blob)


def _what_it_was(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Return what stays known of a thread that a rule removes: nothing that anybody wrote in it."""
    known: dict[str, Any] = {"began": time_of(thread)}
    with contextlib.suppress(UwfError):  # of a damaged thread there is no more
        head = instance.threads.head(thread)
        known |= {"head": str(head.commit), "workflow": head.row.name, "steps": head.row.number}
        if head.archive:
            known |= {"ended": head.archive.time, "status": head.archive.status}
    return known


def _unfolded(instance: Instance, thread: ThreadId) -> dict[str, Oid]:
    repository, row = instance.store.repository, instance.store.folded(thread)
    if row is None:
        return {}
    try:
        tag = archives.tag_again(repository, row.ref, thread)
    except UwfError:  # a damaged fold prevents no removal
        return {}
    refs = {layout.ARCHIVE + thread: tag} if tag else {}
    if row.attempts:
        refs[layout.ATTEMPTS + thread] = Oid(raw=row.attempts)
    if row.fork:
        refs[layout.FORKS + thread] = repository.write_raw_tag(row.fork)
    return refs


def _is_shared(repository: Repository, ref: str, thread: ThreadId) -> bool:
    folds = repository.refs(layout.REMOTES)
    suffix = "/" + ref.removeprefix(layout.NAMESPACE)
    return any(
        thread in archives.names(repository, oid) for name, oid in folds.items() if name.endswith(suffix)
    )


class PruneResult(NamedTuple):
    """The removed threads, those kept because of steps that the remote never had, and the errors of others."""

    threads: list[ThreadId]
    kept: list[ThreadId]
    problems: list[UwfError]


def prune(
    instance: Instance, remote: str, only: Collection[ThreadId] | None = None, confirmed: bool = False
) -> PruneResult:
    """Remove the threads that were deleted on a remote, as last seen; without `only`, those not restored and
    without own steps. Unless `confirmed`, none if they outnumber the remote's threads: it may have been
    replaced."""
    doomed = tracking.deleted_threads(instance, remote) & instance.threads.ids()
    kept: list[ThreadId] = []
    problems: list[UwfError] = []
    if only is not None:
        doomed &= set(only)
    else:
        here = {head.thread for head in instance.threads.meant(archived=True)}
        for thread in sorted(doomed):
            if thread not in here:
                doomed.remove(thread)
                continue
            try:
                is_restored, is_ahead = tracking.wanted_here(instance, remote, thread)
            except UwfError as error:
                problems.append(error)
                doomed.remove(thread)
                continue
            if is_restored or is_ahead:
                doomed.remove(thread)
            if is_ahead and not is_restored:
                kept.append(thread)
        there = len(_threads_on(instance, remote))
        if len(doomed) > there and not confirmed:
            question = Usage(
                f"{counted(len(doomed), 'thread')} would be removed here, since {remote} has them no more;"
                f" it has {there} still",
                f"is it the right repository? uwf pull {remote} --prune-deleted --yes",
            )
            return PruneResult([], kept, [*problems, question])
    pruned: list[ThreadId] = []
    for thread in sorted(doomed):
        try:
            remove(instance, thread)
            pruned.append(thread)
        except UwfError as error:
            problems.append(error)
    return PruneResult(pruned, kept, problems)


def _threads_on(instance: Instance, remote: str) -> set[ThreadId]:
    repository = instance.store.repository
    known = tracked_refs(repository, remote)
    threads = {layout.thread_of(name) for name in known if name.startswith((layout.THREADS, layout.ARCHIVE))}
    folds = (oid for name, oid in known.items() if name.startswith(layout.FOLDED))
    return threads.union(*(archives.names(repository, oid) for oid in folds))


# Removed threads


def removed(instance: Instance) -> list[Removal]:
    """Return the removed threads, newest first."""
    removals = [_removal(instance, thread) for thread in removed_threads(instance)]
    return sorted(removals, key=lambda removal: (removal.time, removal.thread), reverse=True)


def removed_threads(instance: Instance) -> set[ThreadId]:
    names = (
        name.removeprefix(layout.REMOVED) for name in instance.store.repository.ref_names(layout.REMOVED)
    )
    return {ThreadId(name) for name in names if is_thread_id(name)}


def find_removed(instance: Instance, text: str) -> ThreadId:
    """Return the removed thread whose id begins or ends with a text. Raises NotFound, Usage."""
    try:
        return ThreadId(complete(text.strip(), removed_threads(instance), "removed thread", ends=True))
    except NotFound as error:
        hint = error.hint or "see what was removed here: uwf thread restore"
        raise NotFound(f"no thread {text!r} was removed here", hint) from None


def _removal(instance: Instance, thread: ThreadId) -> Removal:
    try:
        record = _said(instance, thread)
        by, at = str(record["by"]), int(record["at"])
    except (ValueError, LookupError, TypeError):
        by, at = "", 0
    is_kept = (
        bool(kept.kept_refs(instance.store.repository, thread))
        or instance.store.index.folded(thread) is not None
    )
    return Removal(thread, by, at, is_kept)


# Bringing back


def restore(instance: Instance, thread: ThreadId) -> bool:
    """Restore a removed thread and the branches that were removed along with it: make its refs, then delete
    `refs/uwf/removed/`. Returns whether it is here; if not, the next pull brings it from a remote that has it. Raises
    Busy while it runs."""
    with instance.locks.hold(thread):
        _put_back(instance, thread)
    instance.store.sync()
    for branch in sorted(with_branches(instance, [thread]) - {thread}):
        if _said(instance, branch).get("with") == thread:
            restore(instance, branch)
    return instance.threads.exists(thread)


def _said(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Return the record of a removal, {} without one."""
    repository = instance.store.repository
    mark = repository.ref(layout.REMOVED + thread)
    with contextlib.suppress(UwfError, ValueError):
        record = json.loads(repository.blob(mark)) if mark is not None else {}
        return record if isinstance(record, dict) else {}
    return {}


def _put_back(instance: Instance, thread: ThreadId) -> None:
    """Make a removed thread's refs except existing ones, and forget the removal. A thread that continued
    meanwhile keeps its state, unless the removed one had ended; steps of only one become a fork."""
    repository = instance.store.repository
    instance.store.sync()  # a fold deleted since then restores nothing
    was = kept.unpack(repository, thread)
    heads = {name: repository.ref(name) for name in (layout.THREADS + thread, layout.ARCHIVE + thread)}
    has_moved = any(oid is not None and oid != was.get(name) for name, oid in heads.items())
    folded = instance.store.index.folded(thread)
    if folded is not None:
        end = instance.store.index_tag(Oid(raw=folded.tag))
        _keep_own(instance, thread, was, Oid(raw=end.target))
    elif has_moved and layout.ARCHIVE + thread in was and heads[layout.ARCHIVE + thread] is None:
        _end_again(instance, thread, was[layout.ARCHIVE + thread])
    elif has_moved:
        _keep_own(instance, thread, was, instance.threads.head(thread).commit)
    if folded is None:
        for name, oid in was.items():
            if repository.ref(name) is None and not (has_moved and name.startswith(_OF_HEADS)):
                repository.create_ref(name, oid)
    forget_removed(instance, [thread])


def _keep_own(instance: Instance, thread: ThreadId, was: Mapping[str, Oid], now: Oid) -> None:
    from uwf_git.sync.reconcile import Reconciler

    tag = was.get(layout.ARCHIVE + thread)
    ended = instance.store.index_tag(tag) if tag else None
    head = Oid(raw=ended.target) if ended else was.get(layout.THREADS + thread)
    settled = Reconciler(instance).keep_beyond(thread, now, head, ended, wanted=True) if head else None
    if settled is not None:
        steps = counted(settled.steps, "step")
        instance.warn(f"thread {settled.fork} has {steps} that thread {thread} had when it was removed")


def _end_again(instance: Instance, thread: ThreadId, tag: Oid) -> None:
    from uwf_git.sync.reconcile import Reconciler

    settled = Reconciler(instance).end_as(thread, tag)
    if settled.fork is not None:
        steps = counted(settled.steps, "step")
        instance.warn(f"thread {settled.fork} has {steps} that came after thread {thread} had ended")


def forget_removed(instance: Instance, threads: Iterable[ThreadId]) -> None:
    """Forget the removal of threads and their bundles."""
    for thread in threads:
        kept.forget(instance.store.repository, thread)
        # Until now the removal stood for whatever was gone of it.
        instance.store.miss_no_more([prefix + thread for prefix in layout.of_threads()])
        instance.threads.drop(layout.REMOVED + thread)
        tracking.restored(instance, thread)


@contextlib.contextmanager
def expiring(instance: Instance, before: float) -> Iterator[None]:
    """Delete bundles of threads removed before a Unix time, unless the block raises. The removal itself stays
    known."""
    repository = instance.store.repository
    threads = kept.kept_threads(repository)
    yield
    held = instance.locks.held()  # one of them may be being removed
    lasting = {removal.thread for removal in removed(instance) if removal.time >= before}
    for thread in threads - held - lasting:
        kept.forget(repository, thread)


# On a remote


def delete(exchange: Exchange, threads: Iterable[ThreadId]) -> PushReport:
    """Delete threads on a remote by lease; they stay here and are pushed again only by name. A concurrent
    change wins. Moves refs of the remote, tracking refs and folds. Raises RemoteFailed."""
    from uwf_git.sync.push import PushReport, at_most
    from uwf_git.sync.transfer import Pushed, Rejected, remove

    instance, remote, git = exchange
    wanted = set(threads)
    with_all = {prefix + thread for prefix in layout.of_threads() for thread in wanted}
    listed, expired = tracking.look(exchange), kept.expired(instance.store.repository)
    # What a rule removed is not tracked any more.
    known = {
        name: oid for name, oid in listed.items() if name in with_all and layout.thread_of(name) in expired
    } | tracked_refs(instance.store.repository, remote.name)
    doomed = {name: oid for name, oid in known.items() if name in with_all}
    results = remove(git, remote, doomed, at_most(exchange, doomed))
    for name, result in results.items():
        if isinstance(result, Pushed):
            tracking.note(instance, remote, {}, {name: doomed[name]})
    for _ in range(TRIES):
        folded = _refold(exchange, wanted)
        results.update(folded)
        if not any(isinstance(item, Rejected) and item.lost for item in folded.values()):
            break
    return PushReport(
        tuple(item for item in results.values() if isinstance(item, Pushed)),
        tuple(item for item in results.values() if isinstance(item, Rejected)),
    )


def _refold(exchange: Exchange, threads: Collection[ThreadId]) -> Results:
    from uwf_git.sync.transfer import Pushed, remove, replace

    (instance, remote, git), repository = exchange, exchange.repository
    listed = list_refs(git, repository, remote).refs
    folds = {name: oid for name, oid in listed.items() if name.startswith(layout.FOLDED)}
    if new := [name for name, oid in folds.items() if not repository.has(oid)]:
        tracking.bring_tracked(exchange, new)
        folds.update(
            {name: oid for name in new if (oid := repository.ref(layout.tracking(remote.name, name)))}
        )
    results: Results = {}
    for name, oid in folds.items():
        fold = archives.read(repository, oid, name.removeprefix(layout.FOLDED))
        if fold.threads.keys().isdisjoint(threads):
            continue
        rest = archives.without(repository, fold, threads)
        if rest is None:
            done = remove(git, remote, {name: oid})
        else:
            done = replace(git, remote, {name: (oid, rest)})
        results.update(done)
        if not isinstance(done.get(name), Pushed):
            continue
        repository.set_ref(layout.tracking(remote.name, name), rest)
        tracking.part_with(instance, remote.name, name, threads)
        merge(instance, name, rest)
        tracking.agree(instance, remote.name, name, rest)
    return results


def remotes_with(instance: Instance, thread: ThreadId) -> list[str]:
    """Return the remotes that have a thread, as last seen."""
    if not instance.store.repository.has_tracking_refs:
        return []
    return [remote.name for remote in instance.remotes.all() if thread in _threads_on(instance, remote.name)]


def merge(instance: Instance, name: str, theirs: Oid | None) -> None:
    """Merge a fold with the remote's."""
    repository = instance.store.repository
    mine = repository.ref(name)
    if theirs is None or mine is None or mine == theirs:
        return
    merged = archives.merge(repository, mine, theirs)
    if merged != mine:
        repository.put_ref(name, mine, merged)
        instance.store.sync()
