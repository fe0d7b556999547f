"""Where a step, an attempt or a version stands, by its hash or the beginning of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from uwf_git.base.errors import NotFound, Usage, UwfError
from uwf_git.base.text import one_line
from uwf_git.format.ids import Hash, ThreadId
from uwf_git.git.repository import Oid

if TYPE_CHECKING:
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

_HASH = re.compile(r"[0-9A-HJKMNP-TV-Z]{4,13}")
_LENGTH = 13
_TITLE = 200  # characters


def places(instance: Instance, text: str) -> list[dict[str, Any]]:
    """Return where the nodes with a hash, or with one that begins so, stand: at most 20. Each has its `node`, its
    `kind` (`start`, `step`, `attempt`, `workflow`), the `title` of the oldest `thread` that has it, its `number` there
    and its `role`; a version the workflow's `name`. Raises NotFound, Usage."""
    prefix = text.strip().upper()
    if not _HASH.fullmatch(prefix):
        raise Usage(f"{one_line(text, 40)!r} is not a hash", "it has 13 digits and letters; 4 of them may do")
    instance.store.sync()
    index = instance.store.index
    nodes = [Hash(prefix)] if len(prefix) == _LENGTH else index.hashes_with_prefix(prefix)
    matches = [place for node in nodes if (place := _place(instance, node)) is not None]
    if matches:
        return matches
    if nodes and index.node(nodes[0]) is not None:
        raise NotFound(f"node {nodes[0]} is not a step", f"uwf cas get {nodes[0]}")
    raise NotFound(f"no step {prefix}", "see the hashes with: uwf thread steps ID")


def _place(instance: Instance, node: Hash) -> dict[str, Any] | None:
    place: dict[str, Any] = {"node": node, "thread": None, "number": None, "role": None}
    for row in instance.store.index.commits_of(node):
        if row.kind == "workflow":
            return {**place, "kind": row.kind, "name": row.name, "title": row.name}
        if row.kind not in ("start", "step", "attempt"):
            continue
        try:
            thread = _thread_of(instance, row)
        except UwfError:  # damage, which doctor reports
            continue
        if thread is not None:
            title = one_line(instance.threads.head(thread).row.title or thread, _TITLE)
            place |= {"thread": thread, "number": row.number, "role": row.role}
            return {**place, "kind": row.kind, "name": None, "title": title}
    return None


def _thread_of(instance: Instance, row: CommitRow) -> ThreadId | None:
    if row.kind != "attempt":
        return instance.threads.oldest_with(Oid(raw=row.oid))
    attempts, index = instance.attempts, instance.store.index
    for thread, tip in sorted(index.attempt_tips().items()):
        newest = index.commit(tip)
        if newest is None or newest.start != row.start:
            continue
        if any(attempt.oid == row.oid for attempt in attempts.rows(Oid(raw=tip))):
            return thread
    return None
