"""The branches `uwf/base/…`, with which a forge compares what uwf published.

A base is a commit before what is published: of a thread its workflow's version, or the commit at which it parted from
another. A merge that a forge makes on it shows what was merged. A base among the branch's own steps hides them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from uwf_git.git.repository import Oid
from uwf_git.store import layout
from uwf_git.store.history import ancestry
from uwf_git.store.indexing import Store

BASES = layout.BRANCHES + "base/"
_HEADS, _CHOSEN = "refs/heads/", "branches/"


def branch_of_base(ref: str) -> str:
    """Return the full name of the branch that a base is of."""
    rest = ref.removeprefix(BASES)
    if rest.startswith(_CHOSEN):
        return _HEADS + rest.removeprefix(_CHOSEN)
    return (layout.BRANCHES if "/" in rest else layout.THREAD_BRANCHES) + rest


def base_problem(store: Store, head: Oid, base: Oid, parted: Oid | None, others: Iterable[Oid]) -> str:
    """Return why a commit can't be the base of a branch at `head`, "" if it can. `parted` is the commit at which the
    thread parted from another, None if it did not; `others` are the heads of other threads, which may share steps."""
    if layout.parse_message(store.repository.commit(base).message) is None:
        return ""  # the merge of a forge
    row = store.index_commit(base)
    if row.kind not in ("start", "step"):
        return "the base is what it is compared with" if base == head else ""
    top = store.index_commit(head)
    if row.start != (top.start or top.node):
        return "the base is of another thread"
    if parted is not None and _has(store, parted, base):
        return ""
    if any(_has(store, other, base) for other in others):
        return ""
    return f"the base is at {row.node}, a step of the thread itself, so that those up to it are not shown"


def _has(store: Store, head: Oid, commit: Oid) -> bool:
    rows = takewhile(lambda row: row.kind in ("start", "step"), ancestry(store, head))
    return any(row.oid == commit.raw for row in rows)
