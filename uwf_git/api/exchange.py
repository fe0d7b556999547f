"""Pushing to and pulling from another store."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.format.ids import ThreadId
from uwf_git.store import layout
from uwf_git.store.opened import Instance

if TYPE_CHECKING:
    from uwf_git.git.program import Git
    from uwf_git.store.remotes import Remote
    from uwf_git.sync.push import Report


class Exchange(NamedTuple):
    """The remote that a thread is pulled from before each step and pushed to after it, and the git program for that."""

    remote: Remote
    git: Git


def pull(instance: Instance, exchange: Exchange) -> list[ThreadId]:
    """Pull all that a remote has; return the threads that are new or have moved here, and those that sides of a
    divergence became. Moves and raises what `sync.pull.pull` does, and what `raise_if_incomplete` does."""
    from uwf_git.sync.pull import pull as do
    from uwf_git.sync.pull import raise_if_incomplete
    from uwf_git.sync.reconcile import Case

    pulled = do(instance, exchange.git, exchange.remote)
    raise_if_incomplete(pulled)
    still = (Case.EQUAL, Case.AHEAD, Case.DELETED_THERE, Case.ENDED_HERE)
    moved = [each for each in pulled.adopted if each.case not in still and each.thread is not None]
    threads = [thread for each in moved for thread in (each.thread, each.fork) if thread is not None]
    return [thread for thread in dict.fromkeys(threads) if instance.threads.exists(thread)]


def push(instance: Instance, exchange: Exchange, threads: Collection[ThreadId] = ()) -> None:
    """Push all that a remote hasn't got, or some threads. Raises HeadMoved where the remote's has moved on, and what
    `sync.push.push` and a refusal of the remote raise."""
    from uwf_git.sync.push import plan_anew, push

    git, remote = exchange.git, exchange.remote
    with instance.locks.exchange(remote.name):
        meant, named = refs_of_threads(instance, threads)
        report = push(instance, git, remote, plan_anew(instance, git, remote, meant, named))
    raise_if_rejected(instance, exchange, report)


def refs_of_threads(instance: Instance, threads: Collection[ThreadId]) -> tuple[set[str] | None, set[str]]:
    """Return the refs that are pushed for some threads, None for all there are; and those that are called by name."""
    from uwf_git.sync.push import refs_of

    named = {prefix + thread for prefix in layout.of_threads() for thread in threads}
    return refs_of(instance, threads) if threads else None, named


def raise_if_rejected(instance: Instance, exchange: Exchange, report: Report) -> None:
    """Raise HeadMoved for a ref that has moved on a remote, and a refusal of the remote for any other."""
    if lost := [each for each in report.rejected if each.lost and not each.deletion]:
        from uwf_git.sync.step import explain_loss

        raise explain_loss(instance, exchange.git, exchange.remote, lost[0])
    if refused := [each for each in report.rejected if not each.deletion]:
        from uwf_git.sync.push import refusal

        raise refusal(exchange.remote, refused)
