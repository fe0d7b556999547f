"""The start and the steps of a thread, as the index has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from uwf_git.base.errors import UwfError
from uwf_git.format.types import USER
from uwf_git.store.history import ancestry

if TYPE_CHECKING:
    from uwf_git.git.repository import Oid
    from uwf_git.store.history import Head
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

_ROWS: WeakKeyDictionary[Instance, dict[Oid, tuple[list[CommitRow], str]]] = WeakKeyDictionary()
"""By the head that was read last: a page asks for the same."""


def rows_of(instance: Instance, head: Head) -> tuple[list[CommitRow], str]:
    """Return the rows of a thread's start and steps, oldest first, and why older ones can't be read, or ""."""
    known = _ROWS.setdefault(instance, {})
    if head.commit not in known:
        rows: list[CommitRow] = []
        problem = ""
        try:
            for row in ancestry(instance.store, head.commit):
                if row.kind not in ("step", "start"):
                    break
                rows.append(row)
        except UwfError as error:
            problem = error.message
        known.clear()
        known[head.commit] = rows[::-1], problem
    return known[head.commit]


def without_remarks(rows: Iterable[CommitRow]) -> Iterator[tuple[str, bool]]:
    """Yield the role of each step, and whether it asks; without those of remarks."""
    has_asked = False
    for row in rows:
        if row.kind == "step":
            if row.role != USER or has_asked or row.resumed == row.parent:
                yield row.role or "", row.asks
            has_asked = row.asks
