"""Steps of shared threads: fetched before, pushed after. The loser of a race keeps its work as a fork.
Several threads' steps are pushed together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from uwf_git.base import log
from uwf_git.base.errors import (
    Busy,
    Declined,
    HeadMoved,
    Invalid,
    RemoteFailed,
    RequirementUnmet,
    Rewritten,
    StoreDamaged,
    UwfError,
)
from uwf_git.base.text import one_line
from uwf_git.engine.outcome import Outcome, outcome_at
from uwf_git.engine.retrying import PATIENCE
from uwf_git.engine.step import step
from uwf_git.format.ids import ThreadId
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import COMMIT, Oid
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import relate
from uwf_git.store.instance import Instance
from uwf_git.store.remotes import Remote
from uwf_git.sync import tracking
from uwf_git.sync.branches import along
from uwf_git.sync.exchange import Exchange
from uwf_git.sync.pull import Pulled, gather, hint_to_replace, raise_if_refused
from uwf_git.sync.push import push, raise_if_broken, refs_of, refusal, replan
from uwf_git.sync.transfer import Rejected
from uwf_git.workflow.turn import is_made_alike
from uwf_git.workspaces.sharing import push_code

if TYPE_CHECKING:
    from uwf_git.config.resolve import AgentOptions
    from uwf_git.engine.kit.agent import Agent


def shared_step(
    exchange: Exchange,
    thread: ThreadId,
    agent: str | Agent | AgentOptions | None = None,
    cwd: Path | None = None,
    on_stderr: Callable[[bytes], None] | None = None,
    files: str = "",
    patience: float = PATIENCE,
) -> Outcome:
    """Run a step between a pull and a push of its thread and its code. Moves what those move. Raises
    HeadMoved, naming the fork, if another step was first, or if the thread was deleted there; else as step,
    pull and push do."""
    instance = exchange.instance
    if problem := gather_all(exchange, [thread], along(instance, thread))[thread]:
        raise problem
    try:
        outcome = step(instance, thread, agent, cwd, on_stderr, files, patience)
    except UwfError:
        # A failed attempt travels too; that it couldn't must not hide why it failed.
        _push(exchange, [thread])
        raise
    push_code(instance, [thread])
    if problem := share_all(exchange, [thread])[thread]:
        raise problem
    if is_made_alike(outcome.role) and instance.threads.head(thread).commit != outcome.position.head.commit:
        return outcome_at(instance, thread)  # another machine joined the branches first
    return outcome


class DeletedThere(HeadMoved):
    """The thread was deleted on the remote."""


def gather_all(
    exchange: Exchange, threads: Collection[ThreadId], also: Collection[ThreadId] = ()
) -> dict[ThreadId, UwfError | None]:
    """Pull threads, `also` others, in one exchange. Return why each thread cannot be stepped: StoreDamaged for invalid
    data there, Rewritten, RequirementUnmet for what the trust policy refuses, DeletedThere; else None. Moves and
    raises as `gather`."""
    instance, remote, _ = exchange
    pulled = gather(exchange, [*threads, *also])
    deleted = tracking.marked(instance, remote, [layout.THREADS + thread for thread in threads])
    problems: dict[ThreadId, UwfError | None] = {}
    for thread in threads:
        if layout.THREADS + thread in deleted:
            again = f"uwf push {remote.name} {thread} brings it back; without --remote it continues here"
            problems[thread] = DeletedThere(f"thread {thread} was deleted on {remote.name}", again)
        else:
            problems[thread] = _refusal(pulled, thread)
    return problems


def _refusal(pulled: Pulled, thread: ThreadId) -> UwfError | None:
    try:
        raise_if_refused(pulled, thread)
    except (StoreDamaged, Rewritten, RequirementUnmet) as error:
        return error
    return None


def share_all(
    exchange: Exchange, threads: Collection[ThreadId], stepped: bool = True
) -> dict[ThreadId, UwfError | None]:
    """Push the refs of threads, attempts included, in one exchange; `stepped`: after a step of each.

    For a lost race, ours becomes a fork, which is pushed too; deleted threads are not pushed. Failures are
    per thread: HeadMoved and DeletedThere for those two, Declined, RemoteFailed, Busy, Invalid for an oversized file,
    StoreDamaged; None for success. Moves what `push` moves, and for lost races what `gather` does.
    """
    instance, remote, _ = exchange
    errors: dict[ThreadId, UwfError | None] = {}
    mine: dict[ThreadId, Oid] = {}
    for thread in threads:
        try:
            mine[thread] = instance.threads.head(thread).commit
        except UwfError as error:
            errors[thread] = error
    lost: list[ThreadId] = []
    pushed = _push(exchange, mine)
    deleted = tracking.marked(instance, remote, [layout.THREADS + thread for thread in mine])
    for thread, came in pushed.items():
        if isinstance(came, UwfError):
            errors[thread] = came
        elif layout.THREADS + thread in deleted:
            errors[thread] = DeletedThere(
                f"thread {thread} was deleted on {remote.name} meanwhile"
                + ("; the step made here is kept" if stepped else ""),
                f"uwf push {remote.name} {thread} brings the thread back there",
            )
        elif any(item.lost for item in came):
            lost.append(thread)
            _tell_of_loss(remote, thread, came)
        elif refused := [item for item in came if not item.deletion]:
            remote_failed = refusal(remote, refused)
            kept = "the step is made and kept here, but " if stepped else ""
            errors[thread] = Declined(kept + remote_failed.message, remote_failed.hint)
        else:
            errors[thread] = None
    if lost:
        errors |= _settle(exchange, {thread: mine[thread] for thread in lost})
    return {thread: errors[thread] for thread in threads}


def _settle(exchange: Exchange, lost: Mapping[ThreadId, Oid]) -> dict[ThreadId, UwfError | None]:
    instance, remote, _ = exchange
    try:
        pulled = gather(exchange, lost)
    except UwfError as error:
        return dict.fromkeys(lost, error)
    refusals = {thread: _refusal(pulled, thread) for thread in lost}
    errors: dict[ThreadId, UwfError | None] = {thread: why for thread, why in refusals.items() if why}
    _push(exchange, lost.keys() - errors.keys())
    for thread in lost.keys() - errors.keys():
        if _is_there(instance, remote, thread, lost[thread]):  # by another push from here
            errors[thread] = None
        elif not instance.threads.exists(thread):
            errors[thread] = HeadMoved(
                f"thread {thread} was removed here meanwhile; the step made here is kept with it",
                f"uwf thread restore {thread} brings it back",
            )
        else:
            errors[thread] = _lost(instance, remote, thread, pulled, lost[thread])
    return errors


def _tell_of_loss(remote: Remote, thread: ThreadId, rejected: Iterable[Rejected]) -> None:
    log.warning(
        "E1CC2C9F",
        "the race for {thread} on {remote} is lost",
        thread=thread,
        remote=remote.name,
        rejected=[f"{item.ref}: {item.reason}" for item in rejected],
    )


def moved_by(instance: Instance, remote: Remote, ref: str) -> str:
    """Return who last moved a remote's ref and how, from its tracking ref: `Ada Example: 0004 reviewer:
    approved, 2025-01-31T12:00:00Z`; "" if unknown."""
    repository = instance.store.repository
    oid = repository.ref(layout.tracking(remote.name, ref))
    if oid is None:
        return ""
    try:
        kind, data = repository.read(oid)
        if kind == COMMIT:
            commit = repository.commit(oid)
            person, seconds, message = commit.committer, commit.time, commit.message
        else:
            tag = parse_tag(data)
            person, seconds, message = tag.tagger, tag.time, tag.message
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (UwfError, ValueError, OverflowError):
        return ""
    who = person.partition(" <")[0]
    if person == repository.user.ident:
        who += " (you, from another store)"
    subject = message.partition("\n")[0]
    return one_line(f"{who}: {subject}, {when}", 200)


def explain_loss(exchange: Exchange, rejected: Rejected) -> HeadMoved:
    """Return the error for a lost race: who won, and what to do."""
    instance, remote, _ = exchange
    thread = layout.thread_of(rejected.ref)
    is_thread = layout.is_thread_ref(rejected.ref)
    # If this is impossible, the author stays unknown.
    with contextlib.suppress(RemoteFailed, Busy), exchange.lock():
        tracking.fetch(exchange, [thread] if is_thread else None)
    name = rejected.ref
    of_steps = rejected.ref.startswith((layout.THREADS, layout.ARCHIVE, layout.PAUSED))
    if of_steps and instance.store.repository.ref(layout.tracking(remote.name, layout.ARCHIVE + thread)):
        name = layout.ARCHIVE + thread
    who = moved_by(instance, remote, name)
    kind = layout.word_for(rejected.ref) or "archives of"
    what = f"thread {thread}" if is_thread else f"{kind} {rejected.ref.rpartition('/')[2]}"
    kind_of = ref_kinds.kind_of(name)
    if kind_of is not None and kind_of.told and kind_of.of_thread:
        what = kind_of.told.format(f"thread {thread}")
    message = f"{what} was moved on {remote.name}" + (f" by {who}" if who else " by another user")
    there = instance.store.repository.ref(layout.tracking(remote.name, name))
    if is_thread and there is not None:
        from uwf_git.verify.whole import verify_refs

        if findings := verify_refs(instance.store.repository, {name: there}).findings:
            return HeadMoved(
                f"{message}, and is invalid there: {findings[0].message}",
                hint_to_replace(remote.name, thread),
            )
    return HeadMoved(message, f"uwf pull {remote.name} keeps both sides, then push again")


def _push(exchange: Exchange, threads: Collection[ThreadId]) -> dict[ThreadId, list[Rejected] | UwfError]:
    """Push threads in one exchange; return rejections or the error per thread. Unreadable or oversized data
    is found by bisection, so that the rest is pushed."""
    if not threads:
        return {}
    instance = exchange.instance
    try:
        with exchange.lock():
            others = {other for thread in threads for other in along(instance, thread)}
            what = replan(exchange, refs_of(instance, {*threads, *others}))
            report = push(exchange, what)
    except (Invalid, StoreDamaged) as error:
        if len(threads) == 1:
            return dict.fromkeys(threads, error)
        every, middle = list(threads), len(threads) // 2
        return {
            **_push(exchange, every[:middle]),
            **_push(exchange, every[middle:]),
        }
    except UwfError as error:
        return dict.fromkeys(threads, error)
    # An earlier pause from elsewhere is not a lost step: both prevent steps.
    rejected = tuple(item for item in report.rejected if not item.ref.startswith(layout.PAUSED))
    results: dict[ThreadId, list[Rejected] | UwfError] = {}
    for thread in threads:
        own = refs_of(instance, [thread], branches=False) if rejected or report.broken else ()
        try:
            raise_if_broken([item for item in report.broken if item.ref in own])
            results[thread] = [item for item in rejected if item.ref in own]
        except StoreDamaged as error:
            results[thread] = error
    return results


def _is_there(instance: Instance, remote: Remote, thread: ThreadId, commit: Oid) -> bool:
    store = instance.store
    tag = store.repository.ref(layout.tracking(remote.name, layout.ARCHIVE + thread))
    head = store.repository.ref(layout.tracking(remote.name, layout.THREADS + thread))
    there = Oid(raw=store.index_tag(tag).target) if tag else head
    relation = relate(store, there, commit) if there else None
    return relation is not None and not relation.theirs


def _lost(
    instance: Instance, remote: Remote, thread: ThreadId, pulled: Pulled, mine: Oid
) -> HeadMoved | None:
    """Return the error for a lost race, None if ours was a join, of which nothing is lost."""
    ended = instance.threads.has_ended(thread)
    who = moved_by(instance, remote, (layout.ARCHIVE if ended else layout.THREADS) + thread)
    fork = next((item.fork for item in pulled.adopted if item.thread == thread and item.fork), None)
    message = f"thread {thread} was moved on {remote.name} meanwhile" + (f" by {who}" if who else "")
    if fork is None:
        is_lost = not is_made_alike(instance.store.index_commit(mine).role)
        return HeadMoved(message, f"look at it: uwf thread show {thread}") if is_lost else None
    error = HeadMoved(f"{message}; the step made here is kept as thread {fork}", f"uwf thread show {fork}")
    error.fork = fork
    return error
