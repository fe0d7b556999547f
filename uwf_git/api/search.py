"""Searching threads' texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from uwf_git.api.listing import ListedThread
from uwf_git.engine.grep import grep
from uwf_git.store.history import Head
from uwf_git.store.instance import Instance


class SearchResult(NamedTuple):
    """Matching lines as JSON; `is_whole`: all threads could be searched."""

    hits: list[dict[str, Any]]
    is_whole: bool


def search(
    instance: Instance, found: Iterable[ListedThread], pattern: str, options: Sequence[str], role: str | None
) -> SearchResult:
    """Search threads with git grep and its `options`, or only a `role`'s outputs. Warns of unreadable
    threads. Raises as `engine.grep.grep`."""
    heads: list[Head] = []
    is_whole = True
    for each in found:
        if isinstance(each.head, Head):
            heads.append(each.head)
        else:
            is_whole = False
            instance.warn(f"thread {each.head.thread} cannot be searched: {each.head.problem}")
    hits, unread = grep(instance, heads, pattern, options, role)
    for thread, error in unread.items():
        instance.warn(f"thread {thread} cannot be searched whole: {error.message} — {error.hint}")
    value = [
        {
            "thread": hit.place.thread,
            "step": hit.place.node,
            "number": hit.place.number,
            "role": hit.place.role,
            "where": hit.where,
            "line": hit.line,
            "column": hit.column,
            "text": hit.text,
        }
        for hit in hits
    ]
    return SearchResult(value, is_whole and not unread)
