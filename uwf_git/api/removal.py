"""Removing threads, here and on a remote, and restoring them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import HeadMoved, NotFound, UwfError
from uwf_git.base.text import iso
from uwf_git.format.ids import ThreadId
from uwf_git.sync import removal
from uwf_git.sync.removal import find_removed as find_removed
from uwf_git.sync.removal import prune as prune
from uwf_git.sync.removal import remotes_with as remotes_with

if TYPE_CHECKING:
    from uwf_git.api.exchange import Exchange
    from uwf_git.store.instance import Instance


def find_here_or_removed(instance: Instance, text: str) -> ThreadId:
    """Return a thread by prefix, removed ones included. Raises NotFound, Usage."""
    try:
        return instance.threads.find(text)
    except NotFound:
        return find_removed(instance, text)


def waiting_for(instance: Instance, thread: ThreadId) -> str:
    """Return a line on a thread that waits for one that is about to be removed, "" if there is none."""
    from uwf_git.engine.forks import parents_of

    parents = parents_of(instance, instance.threads.head(thread))
    return f"thread {parents[0]} cannot join its branches without {thread}" if parents else ""


def remove(instance: Instance, thread: ThreadId) -> list[ThreadId]:
    """Remove a thread in the user's name, with its own branches; return these. Moves refs and raises as
    `sync.removal.remove`, and RequirementUnmet within a step."""
    instance.require_person(f"removes thread {thread}")
    return removal.remove(instance, thread)


def expire(instance: Instance, thread: ThreadId, rule: str) -> list[ThreadId]:
    """Remove a thread for good because a rule says so. Moves refs and raises as `remove`."""
    instance.require_person(f"removes thread {thread}")
    return removal.remove(instance, thread, rule)


def delete_there(exchange: Exchange, threads: Collection[ThreadId]) -> None:
    """Delete threads on a remote by lease. Moves its refs and tracking refs. Raises HeadMoved, RemoteFailed."""
    from uwf_git.api.exchange import delete
    from uwf_git.sync.push import refusal

    instance, remote, _ = exchange
    branches = {branch for thread in threads for branch in _branches(instance, thread)}
    rejected = delete(exchange, [*threads, *sorted(branches - {*threads})]).rejected
    if lost := [item for item in rejected if item.lost]:
        raise HeadMoved(
            f"{lost[0].ref} has moved on {remote.name} since it was last seen",
            f"uwf pull {remote.name}, then again",
        )
    if rejected:
        raise refusal(remote, rejected)


def _branches(instance: Instance, thread: ThreadId) -> list[ThreadId]:
    from uwf_git.sync.branches import own_branches

    try:
        return own_branches(instance, thread)
    except UwfError:  # a damaged thread, or one that was removed here, has none to go along
        return []


def removed(instance: Instance) -> list[dict[str, Any]]:
    """Return removed threads as JSON, newest first."""
    return [
        {
            "thread": item.thread,
            **_what_it_was(instance, item.thread),
            "by": item.by,
            "at": iso(item.time),
            "kept": item.kept,
        }
        for item in removal.removed(instance)
    ]


def restore(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Restore a thread; return whether it is here and its status as JSON. Makes and raises as
    `sync.removal.restore`."""
    from uwf_git.engine.thread_state import thread_state

    here = removal.restore(instance, thread)
    status = thread_state(instance, instance.threads.head(thread)).word if here else None
    return {"thread": thread, "restored": here, "status": status}


def _what_it_was(instance: Instance, thread: ThreadId) -> dict[str, str | None]:
    from uwf_git.git.repository import Oid
    from uwf_git.store import layout
    from uwf_git.store.removed import kept_refs

    store = instance.store
    try:
        refs = kept_refs(store.repository, thread)
        commit = refs.get(layout.THREADS + thread)
        if commit is None:
            folded = store.index.folded(thread)
            tag = refs.get(layout.ARCHIVE + thread) or (Oid(raw=folded.tag) if folded else None)
            commit = Oid(raw=store.index_tag(tag).target) if tag else None
        row = store.index_commit(commit) if commit else None
    except UwfError:  # of a damaged thread there may be nothing to tell
        row = None
    return {"name": row.name if row else None, "title": row.title if row else None}
