"""Running the branches of a thread."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from uwf_git.base.errors import NotRunning, UwfError
from uwf_git.engine.branch_states import raise_if_at_rest
from uwf_git.engine.forks import Branches as Branches
from uwf_git.engine.forks import branches_at, pending
from uwf_git.engine.pause import raise_if_paused
from uwf_git.format.ids import ThreadId
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange

AT_ONCE = 8
"""How many branches run at the same time if the workflow doesn't say."""

_PAUSE = 0.2  # seconds between two looks at what other processes run
_LOOK_SECONDS = 1.0  # how long a look at a remote counts

RunBranches = Callable[[Instance, ThreadId, Branches, Sequence[ThreadId]], None]
"""Runs some branches of a thread, which have not ended. Errors of single branches are not raised."""


def branches_of(instance: Instance, head: Head) -> Branches | None:
    """Return the branches of a thread that stands between a fork and its join, else None."""
    return branches_at(instance, head) if head.waits_for_join else None


def waits_for_branches(instance: Instance, thread: ThreadId) -> Branches | None:
    """Return the branches that a thread waits for, None if it waits for none. Raises NotFound."""
    branches = branches_of(instance, instance.threads.head(thread))
    return branches if branches is not None and not branches.may_be_joined else None


def at_work(instance: Instance, branches: Branches) -> set[ThreadId]:
    """Return the branches that another process here runs or steps."""
    busy = instance.locks.held() | instance.locks.runs()
    return {state.thread for state in branches.open if state.thread in busy}


def in_own_order(instance: Instance, branches: Collection[ThreadId]) -> list[ThreadId]:
    """Return branches in an order that differs by machine and store, so that two of them rarely ask the same one."""
    here = f"{socket.gethostname()}:{instance.location.git_dir}:"

    def place(branch: ThreadId) -> bytes:
        return hashlib.sha256(f"{here}{branch}".encode("utf-8", "surrogateescape")).digest()

    return sorted(branches, key=place)


class Lookout:
    """Looks at a remote, if there is one, before branches of a thread are begun here, which were just fetched."""

    def __init__(
        self, instance: Instance, exchange: Exchange | None, thread: ThreadId, branches: Sequence[ThreadId]
    ) -> None:
        self._instance = instance
        self._exchange = exchange
        self._thread = thread
        heads = instance.threads.heads(branches) if exchange is not None else {}
        self._heads = {branch: head.commit for branch, head in heads.items()}
        self._looked = time.monotonic()

    def is_taken(self, branch: ThreadId) -> bool:
        """Return whether another machine advanced or ended a branch meanwhile. Asked again of one, return False: it may
        have stopped. Moves what `sync.pull.gather` does."""
        before = self._heads.get(branch)
        if before is None:
            return False
        self._look()
        del self._heads[branch]
        return self._instance.threads.exists(branch) and self._instance.threads.head(branch).commit != before

    def _look(self) -> None:
        if self._exchange is None or time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        from uwf_git.api.exchange import fetch

        with suppress(UwfError):  # the step of the branch says so
            fetch(self._exchange, [self._thread, *self._heads])
        self._looked = time.monotonic()


def wait_for(instance: Instance, branches: Collection[ThreadId]) -> None:
    """Wait until no process here runs or steps any of the branches."""
    while any(map(instance.locks.is_at_work, branches)):
        time.sleep(_PAUSE)


def at_once(branches: Branches) -> int:
    """Return how many branches may run at the same time."""
    return branches.fork.at_once or AT_ONCE


def raise_if_stopped(instance: Instance, thread: ThreadId) -> None:
    """Raise Paused, Waiting, AgentFailed or NotRunning if a thread still waits for branches that have been run."""
    branches = waits_for_branches(instance, thread)
    if branches is not None:
        raise_if_paused(instance, thread)
        raise_if_at_rest(instance, instance.threads.head(thread))
        waiting = pending(thread, branches)
        raise NotRunning(f"{waiting.message}, stopped before their end", f"{waiting.hint} goes on")
