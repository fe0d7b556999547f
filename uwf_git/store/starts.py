"""Whose thread begins with a StartNode: a branch of a fan-out, a call of code, or one that somebody started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uwf_git.format.types import OF_BRANCH

if TYPE_CHECKING:
    from uwf_git.format.ids import Hash
    from uwf_git.format.origins import ThreadOrigin
    from uwf_git.store.indexing import Store


def branch_of(store: Store, start: Hash | None) -> ThreadOrigin | None:
    """Return the branch that a StartNode begins, None for a thread that is none."""
    return store.start(start).branch if start and is_branch(store, start) else None


def call_of(store: Store, start: Hash | None) -> ThreadOrigin | None:
    """Return the call of code, or run of edited code, that a StartNode begins, None for another thread."""
    return store.start(start).call if start and is_branch(store, start) else None


def is_call(store: Store, start: Hash | None) -> bool:
    """Return whether the thread of a StartNode is that of a call."""
    call = call_of(store, start)
    return call is not None and call.is_call


def is_branch(store: Store, start: Hash) -> bool:
    """Return whether a StartNode is that of a branch or a call."""
    return store.index.has_trait(start, OF_BRANCH)
