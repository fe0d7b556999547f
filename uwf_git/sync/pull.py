"""Pulling from a remote: fetch into tracking refs, verify, adopt. If a pull is interrupted, the next one
finishes it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.base.errors import Busy, HeadMoved, RequirementUnmet, StoreDamaged, StoreUnwritable
from uwf_git.format.ids import ThreadId
from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import tagged_commit
from uwf_git.store.instance import Instance
from uwf_git.store.private_files import read_private, write_private
from uwf_git.store.remotes import DEFAULT, Remote
from uwf_git.sync import tracking
from uwf_git.sync.admission import lost_policy
from uwf_git.sync.branches import settle_lost_forks

if TYPE_CHECKING:
    from uwf_git.sync.adopt import Adopted, RefusedRef
    from uwf_git.sync.exchange import Exchange
    from uwf_git.sync.proposals import AdoptionResult
    from uwf_git.sync.rewritten import Rewrite
    from uwf_git.sync.tracking import Fetched, RemoteListing

_PATIENCE = 2.0  # seconds; a remote may take a minute and longer for an exchange
# A thread that has one of these refs is there; without, it is at most in a fold.
_WHOLE = (layout.THREADS, layout.ARCHIVE)


class _AdoptionReport(NamedTuple):
    """The result of an adoption."""

    adopted: tuple[Adopted, ...] = ()
    refused: tuple[RefusedRef, ...] = ()
    steps: int = 0
    rewrites: tuple[Rewrite, ...] = ()
    positions: Mapping[str, Oid] = {}


class Pulled(NamedTuple):
    """The result of a pull. `strange` are unknown ref names on the remote, not fetched. `merged` are changes
    of definitions merged on published branches. `steps` is the number of new steps. `rewrites` are refs that
    don't continue what was seen there: rewritten ones were not adopted."""

    remote: str
    adopted: tuple[Adopted, ...]
    refused: tuple[RefusedRef, ...]
    strange: tuple[str, ...] = ()
    merged: tuple[AdoptionResult, ...] = ()
    steps: int = 0
    rewrites: tuple[Rewrite, ...] = ()

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "remote": self.remote,
            "adopted": [item.to_json() for item in self.adopted],
            "refused": [refused.to_json() for refused in self.refused],
        }
        if self.steps:
            value["steps"] = self.steps
        if self.strange:
            value["strange"] = list(self.strange)
        for key, is_rollback in (("rewritten", False), ("rolledBack", True)):
            if rewrites := [
                rewrite.to_json() for rewrite in self.rewrites if rewrite.is_rollback is is_rollback
            ]:
                value[key] = rewrites
        if self.merged:
            value["merged"] = [result.to_json() for result in self.merged]
        return value


def pull(exchange: Exchange, on_verified: Callable[[int, int], None] | None = None) -> Pulled:
    """Fetch and adopt everything on a remote. Moves `refs/uwf/remotes/<remote>/…`, then refs as `reconcile`
    says. Raises RemoteFailed, Busy during another exchange with this remote."""
    with exchange.lock():
        fetched = tracking.fetch(exchange, meanwhile=_get_ready)
        return _take_over(exchange.instance, exchange.remote, fetched, True, on_verified)


def gather(
    exchange: Exchange,
    threads: Collection[ThreadId],
    on_verified: Callable[[int, int], None] | None = None,
) -> Pulled:
    """Fetch and adopt some threads in one exchange whose cost depends on them alone. If one is neither here
    nor there, or ended there without its head last seen, the remote's list and folds are consulted. Moves and
    raises as `pull` for these threads."""
    instance = exchange.instance
    with exchange.lock():
        fetched = tracking.fetch(exchange, threads, meanwhile=_get_ready)
        there = {layout.thread_of(name) for name in fetched.listed.refs if name.startswith(_WHOLE)}
        gone = {layout.thread_of(name) for name in fetched.gone}
        missing = any(
            thread in gone or not instance.threads.exists(thread) for thread in set(threads) - there
        )
        if missing or _has_late_end(instance, fetched):
            again = tracking.fetch(exchange, threads, folds=True, meanwhile=_get_ready)
            fetched = again._replace(before={**again.before, **fetched.before})
        return _take_over(instance, exchange.remote, fetched, False, on_verified)


def _has_late_end(instance: Instance, fetched: Fetched) -> bool:
    """Return whether a thread has ended there without its head last seen, which a fork may have now."""
    for name, active in fetched.gone.items():
        tag = fetched.listed.refs.get(layout.ARCHIVE + layout.thread_of(name))
        if name.startswith(layout.THREADS) and tag is not None:
            from uwf_git.sync.rewritten import stands_on

            end = tagged_commit(instance.store, tag)
            if end is not None and not stands_on(instance.store.repository, end, active):
                return True
    return False


def _take_over(
    instance: Instance,
    remote: Remote,
    fetched: Fetched,
    whole: bool,
    on_verified: Callable[[int, int], None] | None,
) -> Pulled:
    repository, listed = instance.store.repository, fetched.listed
    # The fetched refs count: the remote may have changed since the listing.
    tracked = fetched.tracked
    if tracked is None and whole:
        tracked = tracking.tracked_refs(repository, remote.name)
    elif tracked is None:
        tracked = tracking.tracked_among(repository, remote.name, listed.refs)
    report = _adopt(instance, remote.name, tracked, listed.refs, whole, on_verified, fetched.before)
    settle_lost_forks(instance)
    resumed = tracking.resumed_there(instance, remote, listed.refs, fetched.gone)
    changed = [_settled_there(name, resumed=True) for name in resumed]
    gone = tracking.note(instance, remote, listed.refs, fetched.gone)
    changed += [_settled_there(name) for name in gone]
    merged = _merged(instance, remote, listed) if whole else ()
    if whole:
        _remember(instance, remote, None if fetched.gone else tracked, report)
    else:
        _note_seen(
            instance, remote.name, {name: tracked[name] for name in listed.refs if name in tracked}, report
        )
    # Unknown prefixes may belong to a later version; unknown names within shared ones are invalid.
    shared = layout.shared()
    strange = [name for name in listed.strange if not name.startswith(shared)]
    misnamed = [name for name in listed.strange if name.startswith(shared)]
    refused = (*report.refused, *map(_misnamed, misnamed), *_without_policy(instance, remote, listed))
    return Pulled(
        *(
            remote.name,
            (*report.adopted, *changed),
            refused,
            tuple(strange),
            merged,
            report.steps,
            report.rewrites,
        )
    )


def _without_policy(instance: Instance, remote: Remote, listed: RemoteListing) -> Iterator[RefusedRef]:
    """Yield what is refused if the policy that was seen on a remote is gone there."""
    if layout.POLICY in listed.refs:
        return
    if findings := lost_policy(instance, remote.name, listed.refs):
        from uwf_git.sync.adopt import RefusedRef

        yield RefusedRef(layout.POLICY, findings)


def _get_ready() -> None:
    import uwf_git.sync.adopt
    import uwf_git.verify.whole  # noqa: F401


def _merged(instance: Instance, remote: Remote, listed: RemoteListing) -> tuple[AdoptionResult, ...]:
    if not any(layout.is_of_versions(name) for name in listed.refs):
        return ()
    from uwf_git.sync.proposals import take_merged

    return tuple(take_merged(instance, remote.name))


def adopt_fetched(instance: Instance) -> list[Pulled]:
    """Adopt the results of a plain `git fetch`, except from remotes with an exchange in progress."""
    results = []
    for name in _remotes_with_news(instance):
        remote = next((remote for remote in instance.remotes.all() if remote.name == name), None)
        if remote is None:
            continue
        with contextlib.suppress(Busy), instance.locks.exchange(name, _PATIENCE):
            tracked = tracking.tracked_refs(instance.store.repository, name)
            report = _adopt(instance, name, tracked)
            _remember(instance, remote, tracked, report)
            results.append(
                Pulled(name, report.adopted, report.refused, steps=report.steps, rewrites=report.rewrites)
            )
    return results


def _adopt(
    instance: Instance,
    remote: str,
    tracked: Mapping[str, Oid],
    listed: Collection[str] | None = None,
    whole: bool = True,
    on_verified: Callable[[int, int], None] | None = None,
    before: Mapping[str, Oid] | None = None,
) -> _AdoptionReport:
    refs = {
        name: oid
        for name, oid in tracked.items()
        if (
            (name in listed and name.startswith(layout.NAMESPACE))
            if listed is not None
            else layout.is_shared_ref(name)
        )
    }
    repository = instance.store.repository
    if whole:
        here = repository.refs(without=layout.REMOTES)
    else:
        here = {name: oid for name in refs if (oid := repository.ref(name)) is not None}
    if refs.items() <= here.items():
        return _AdoptionReport()
    from uwf_git.sync.adopt import Adoption

    adoption = Adoption(instance, refs, on_verified=on_verified, remote=remote, tracked=before)
    adopted, refused = adoption.run(here, whole)
    return _AdoptionReport(adopted, refused, adoption.steps, tuple(adoption.rewrites), adoption.positions)


def _note_seen(instance: Instance, remote: str, tracked: Mapping[str, Oid], report: _AdoptionReport) -> None:
    """Record the positions of verified refs. Those that are rewritten or rolled back stay where they were seen."""
    from uwf_git.sync.seen import Seen

    wrong = {refused.ref for refused in report.refused if not refused.later} | {
        rewrite.ref for rewrite in report.rewrites
    }
    threads = {rewrite.thread for rewrite in report.rewrites if rewrite.thread}
    seen = Seen(instance.store.repository.private, remote)
    new = {
        name: oid
        for name, oid in tracked.items()
        if name.startswith(layout.NAMESPACE)
        and not name.startswith(layout.PAUSED)
        and name not in wrong
        and seen.get(name) != oid
    }
    of_threads = {layout.thread_of(name) for name in new if layout.is_thread_ref(name)}
    if len(of_threads) > tracking.FEW:
        here = of_threads & instance.threads.ids()
    else:
        here = {thread for thread in of_threads if instance.threads.exists(thread)}
    # Refs of removed threads were not verified.
    adopted = here - threads
    new = {
        name: oid
        for name, oid in new.items()
        if not layout.is_thread_ref(name) or layout.thread_of(name) in adopted
    }
    # A rewrite is found again by the next exchange, though tracking refs have moved to it.
    seen.note({**report.positions, **new})


def _settled_there(name: str, resumed: bool = False) -> Adopted:
    """Return what the remote did to a ref: it deleted it, or took a thread up again."""
    from uwf_git.sync.adopt import Adopted
    from uwf_git.sync.reconcile import Case

    case = Case.RESUMED_THERE if resumed else Case.DELETED_THERE
    is_thread = resumed or name.startswith((layout.THREADS, layout.ARCHIVE))
    return Adopted(name, case, layout.thread_of(name) if is_thread else None)


def _misnamed(name: str) -> RefusedRef:
    from uwf_git.sync.adopt import RefusedRef

    return RefusedRef(name, (), "that is not a name of such a ref")


def _remotes_with_news(instance: Instance) -> list[str]:
    tracked = instance.store.repository.ref_names(layout.REMOTES)
    names = {name.removeprefix(layout.REMOTES).split("/")[0] for name in tracked}
    repository = instance.store.repository
    return [
        name
        for name in sorted(names)
        if _read(instance, name) != _state(tracking.tracked_refs(repository, name))
    ]


def _remember(
    instance: Instance, remote: Remote, tracked: Mapping[str, Oid] | None, report: _AdoptionReport
) -> None:
    refs = tracking.tracked_refs(instance.store.repository, remote.name) if tracked is None else tracked
    state = _state(refs)
    if _read(instance, remote.name) == state:
        return
    _note_seen(instance, remote.name, refs, report)
    # If this cannot be written, list the remote again next time.
    with contextlib.suppress(StoreUnwritable):
        write_private(_pulled(instance, remote.name), f"{state}\n".encode("ascii"))


def _read(instance: Instance, remote: str) -> str:
    try:
        return read_private(_pulled(instance, remote)).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _pulled(instance: Instance, remote: str) -> Path:
    return instance.store.repository.private / "pulled" / remote


def _state(refs: Mapping[str, Oid]) -> str:
    names = sorted(refs)
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape"))
    digest.update(b"\n" + b"".join([refs[name].raw for name in names]))
    return digest.hexdigest()


def raise_if_refused(pulled: Pulled, thread: ThreadId | None = None) -> None:
    """Raise StoreDamaged if something invalid was left out, Rewritten for rewritten history, RequirementUnmet for
    what wasn't signed as the trust policy requires, or a step may not take over; with `thread`, only in its refs and
    those of no thread."""
    invalid = sorted(
        (refused for refused in pulled.refused if not refused.later),
        key=lambda item: (item.is_untrusted, item.is_unchecked),
    )
    if thread is not None:
        others = {refused.ref for refused in invalid if layout.is_thread_ref(refused.ref)}
        others -= layout.refs_of_threads([thread]).keys()
        invalid = [refused for refused in invalid if refused.ref not in others]
    if of_people := [refused for refused in invalid if refused.is_persons]:
        raise RequirementUnmet(
            of_people[0].reason, "take it over yourself, in a terminal outside of the step"
        )
    untrusted = [refused for refused in invalid if refused.is_untrusted]
    if len(untrusted) < len(invalid):
        first = invalid[0]
        more = f" (and {len(invalid) - 1} more)" if len(invalid) > 1 else ""
        what = "what was not checked and" if first.is_unchecked else "invalid data, which"
        raise StoreDamaged(
            f"{pulled.remote} has {what} was left there: {first.ref}: {first.reason}{more}",
            _push_back(first, pulled.remote) + f"see: uwf verify --remote {pulled.remote}",
        )
    rewritten = [item for item in pulled.rewrites if not item.is_rollback]
    for rewrite in rewritten:
        if thread is None or rewrite.thread in (None, thread):
            raise rewrite.error()
    if untrusted:
        first = untrusted[0]
        more = f" (and {len(untrusted) - 1} more)" if len(untrusted) > 1 else ""
        raise RequirementUnmet(
            f"{pulled.remote} has what the trust policy refuses, which was left there: {first.ref}:"
            f" {first.reason}{more}",
            f"see: uwf verify --remote {pulled.remote}; uwf trust show",
        )


def _push_back(refused: RefusedRef, remote: str) -> str:
    is_thread = layout.is_thread_ref(refused.ref)
    if not refused.replaces:
        is_ours = refused.is_here and is_thread and not refused.is_unchecked
        return f"{hint_to_replace(remote, layout.thread_of(refused.ref))}; " if is_ours else ""
    name = layout.thread_of(refused.ref) if is_thread else refused.ref.removeprefix(layout.NAMESPACE)
    where = "" if remote == DEFAULT else f" --remote {remote}"
    return f"yours is kept; uwf remote reject-rewrite {name}{where} pushes it back; "


def hint_to_replace(remote: str, thread: ThreadId) -> str:
    """Return the hint for a thread that is whole here, and invalid on a remote."""
    return (
        f"yours is kept; uwf push {remote} {thread} --delete, then uwf push {remote} {thread}, puts it there"
    )


def raise_if_incomplete(pulled: Pulled) -> None:
    """Raise StoreDamaged for invalid refs, Rewritten for rewritten or rolled back history, HeadMoved for a conflicting
    merge, Busy for threads with a running step."""
    raise_if_refused(pulled)
    for rollback in pulled.rewrites:
        raise rollback.error()
    for merged in pulled.merged:
        if isinstance(merged.problem, HeadMoved | RequirementUnmet):
            raise merged.problem
        if merged.problem is not None:
            raise StoreDamaged(
                f"{merged.kind} {merged.name} as merged on {pulled.remote}: {merged.problem.message}",
                merged.problem.hint,
            )
    if later := [refused for refused in pulled.refused if refused.later]:
        raise Busy(later[0].problem, f"pull again when it is done: uwf pull {pulled.remote}")
