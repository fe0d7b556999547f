"""Which thread is the other side of which: `refs/uwf/forks/<ULID>`, a tag on the commit where they part."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.errors import StoreDamaged
from uwf_git.git.objects import parse_tag
from uwf_git.git.repository import TAG, Oid
from uwf_git.store import archives, layout
from uwf_git.store.nodes import Store
from uwf_git.values.ids import ThreadId, is_thread_id


class Link(NamedTuple):
    """A thread that began as one side of a divergence: of which thread, and the last commit they share."""

    thread: ThreadId
    origin: ThreadId
    base: Oid


def parted_from(store: Store, thread: ThreadId) -> Link | None:
    """The thread that one is the other side of, if it is one's."""
    tag = store.repository.ref(layout.FORKS + thread)
    if tag is not None:
        return _link(store, thread, tag)
    row = store.folded(thread)
    return _parsed(thread, row.fork) if row is not None and row.fork else None


def parted(store: Store, thread: ThreadId) -> list[Link]:
    """The threads that parted from one, by id."""
    links = (
        _link(store, ThreadId(name.removeprefix(layout.FORKS)), oid)
        for name, oid in sorted(store.repository.refs(layout.FORKS).items())
    )
    return [link for link in links if link is not None and link.origin == thread]


def tagged_commit(store: Store, tag: Oid) -> Oid | None:
    """The commit that an archive or fork tag is on; None for what is no tag."""
    try:
        kind, data = store.repository.read(tag)
        return parse_tag(data).target if kind == TAG else None
    except (StoreDamaged, ValueError, LookupError, OverflowError):
        return None


def _link(store: Store, thread: ThreadId, tag: Oid) -> Link | None:
    kind, data = store.repository.read(tag)
    return _parsed(thread, data) if kind == TAG and is_thread_id(thread) else None


def _parsed(thread: ThreadId, raw: bytes) -> Link | None:
    try:
        origin = archives.fork_of(raw)
        return Link(thread, origin, parse_tag(raw).target) if origin else None
    except (ValueError, LookupError, OverflowError):
        return None
