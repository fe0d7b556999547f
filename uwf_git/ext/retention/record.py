"""What stays known of the threads that a rule removed here: a record of each, in a chain of commits that the user signs
as others.

    refs/uwf/local/retention/log    the newest commit; its tree has <ULID>.json for each thread, the blob of its removal
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from uwf_git.ext.retention import LOG
from uwf_git.plugin import BLOB_MODE, Check, Entry, ThreadId, UwfError, counted, expired_threads, layout

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, Oid

_LOG = LOG.prefix + "log"
_SUFFIX = ".json"


class RemovalRecord(NamedTuple):
    """A thread that a rule removed: the blob of its record, what that says, and the commit that it is in, None if it
    is in none."""

    thread: ThreadId
    blob: Oid
    value: dict[str, Any]
    commit: Oid | None


def note(instance: Instance) -> Oid | None:
    """Add the records of threads that were removed by rules, and are in no commit yet, as one commit; return it, None
    if there are none. Moves `refs/uwf/local/retention/log`. Raises SigningFailed, HeadMoved."""
    repository = instance.store.repository
    new = [item for item in records(instance) if item.commit is None]
    if not new:
        return None
    tip = repository.ref(_LOG)
    tree = repository.with_entries(
        None, *(Entry(BLOB_MODE, item.thread + _SUFFIX, item.blob) for item in sorted(new))
    )
    rules = sorted({str(item.value["rule"]) for item in new})
    message = f"remove {counted(len(new), 'thread')}\n\nBy {', '.join(rules)}.\n"
    commit = repository.write_commit(tree, [tip] if tip else [], repository.user, message)
    repository.put_ref(_LOG, tip, commit)
    return commit


def records(instance: Instance) -> list[RemovalRecord]:
    """Return the records of all threads that rules removed here, newest first; those that are in no commit before.
    Raises StoreDamaged for a chain that cannot be read."""
    repository = instance.store.repository
    marks = {thread: repository.ref(layout.REMOVED + thread) for thread in expired_threads(repository)}
    chained: list[RemovalRecord] = []
    commit = repository.ref(_LOG)
    while commit is not None:
        for entry in repository.tree(repository.root(commit)):
            thread = ThreadId(entry.name.removesuffix(_SUFFIX))
            value = json.loads(repository.blob(entry.oid))
            chained.append(RemovalRecord(thread, entry.oid, value, commit))
            if marks.get(thread) == entry.oid:
                del marks[thread]
        parents = repository.commit(commit).parents
        commit = parents[0] if parents else None
    loose = [
        RemovalRecord(thread, blob, json.loads(repository.blob(blob)), None)
        for thread, blob in marks.items()
        if blob is not None
    ]
    return [*loose, *chained]


def checks(instance: Instance) -> Iterator[Check]:
    """Yield the check of `uwf doctor`: whether each thread that a rule removed is in the record."""
    if not instance.store.repository.ref(_LOG):
        return
    with suppress(UwfError):  # a damaged object is another check's
        items = records(instance)
        lost = [item.thread for item in items if item.commit is None]
        if lost:
            threads = counted(len(lost), "thread")
            message = f"{threads} that a rule removed, such as {lost[0]}, are in no record"
            yield Check("retention", "warning", message, "uwf expire --yes records them")
        else:
            yield Check("retention", "ok", f"{counted(len(items), 'removed thread')} in the record")
