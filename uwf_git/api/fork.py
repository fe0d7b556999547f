"""Forking a thread."""

from __future__ import annotations

from typing import NamedTuple

from uwf_git.api.start import Version
from uwf_git.base.errors import NotFound, Usage
from uwf_git.base.text import nearest
from uwf_git.format.endings import COMPLETED, KILLED
from uwf_git.format.ids import Hash, ThreadId, new_thread_id
from uwf_git.format.kinds import Start
from uwf_git.format.origins import EDITED, ThreadOrigin
from uwf_git.git.repository import Oid
from uwf_git.store.history import Head, ancestry
from uwf_git.store.index import CommitRow
from uwf_git.store.instance import Instance
from uwf_git.store.new_record import STARTS, THREADS, NewRecord


class Fork(NamedTuple):
    """A fork at a step of the thread `source`, if that is here. `warning` says that nothing comes next, or that
    branches are not tried again, else ""."""

    thread: ThreadId
    step: Hash
    source: ThreadId | None
    warning: str


def fork(instance: Instance, thread: ThreadId, at: int | None = None, before: str | None = None) -> ThreadId:
    """Fork a thread after step `at`, or `before` the last step of a role, or at its head, with the same
    folder. Makes `refs/uwf/threads/<new ULID>` and `refs/uwf/forks/<new ULID>`. Raises NotFound."""
    return fork_thread(instance, thread, at, before).thread


def fork_thread(
    instance: Instance, thread: ThreadId, at: int | None = None, before: str | None = None
) -> Fork:
    """As `fork`, with details."""
    head = instance.threads.head(thread)
    row = _row_at(instance, head, at) if before is None else _row_before(instance, head, before)
    return _fork(instance, row.node, Oid(raw=row.oid), thread, thread)


def fork_with(instance: Instance, thread: ThreadId, version: Version) -> Fork:
    """Begin a run of a code workflow's thread anew with another version of the code: what its agents were asked and
    answered is not asked again where the code asks the same. Makes `refs/uwf/threads/<new ULID>`. Raises Usage for
    anything but code."""
    head = instance.threads.head(thread)
    history = instance.threads.history(head)
    if history.workflow.code is None or version.workflow.code is None:
        raise Usage("only a code workflow's run begins anew with other code", "uwf thread fork ID --at N")
    instance.store.before_record(NewRecord(THREADS, version.workflow.name, (STARTS,), version.commit))
    new_thread = new_thread_id()
    origin = ThreadOrigin(head.node, 0, EDITED, None)
    before = history.start
    node = Start(version.node, before.prompt, before.budget, call=origin, issue=before.issue).typed_payload()
    instance.threads.begin_at(new_thread, version.commit, head.commit, node)
    folder = instance.folders.recall(thread)
    if folder is not None:
        instance.folders.remember(new_thread, folder)
    return Fork(new_thread, head.node, thread, "")


def fork_step(instance: Instance, step: Hash) -> Fork:
    """Fork at a step or start, from the oldest thread that has it. Makes what `fork` does. Raises NotFound."""
    commit = instance.threads.commit_of(step)
    return _fork(instance, step, commit, instance.threads.oldest_with(commit), None)


def _fork(
    instance: Instance, step: Hash, commit: Oid, source: ThreadId | None, folder_of: ThreadId | None
) -> Fork:
    from uwf_git.store.threads import fork_hint

    thread = instance.threads.fork(commit, source)
    folder = instance.folders.recall(folder_of) if folder_of is not None else None
    if folder is not None:
        instance.folders.remember(thread, folder)
    end = instance.threads.head(source) if source is not None else None
    warning = _same_branches(instance, instance.threads.head(thread), source)
    if end is not None and end.commit == commit and end.archive and end.archive.status != KILLED:
        warning = f"nothing comes next in {thread}: {source} is {end.archive.status} — {fork_hint(end)}"
    return Fork(thread, step, source, warning)


def _same_branches(instance: Instance, forked: Head, source: ThreadId | None) -> str:
    """Return a warning if the new thread waits for others that failed or were killed, else ""."""
    from uwf_git.engine.forks import awaited, begun_at

    ends = [head.archive.status for head in awaited(instance, forked) if head.archive is not None]
    bad = sum(status != COMPLETED for status in ends)
    return (
        f"{forked.thread} has the same branches: those that failed or were killed, {bad} of"
        f" {len(begun_at(instance, forked.row))}, are not tried again — to ask all anew:"
        f" uwf thread fork {source or forked.thread} --at {forked.row.number - 1}"
        if bad
        else ""
    )


def _row_at(instance: Instance, head: Head, at: int | None) -> CommitRow:
    """Return the record at step `at`, or at the head. Raises NotFound."""
    number = head.row.number if at is None else at
    if not 0 <= number <= head.row.number:
        raise NotFound(
            f"thread {head.thread} has {head.row.number} steps, not {number}",
            f"see: uwf thread steps {head.thread}",
        )
    return next(row for row in ancestry(instance.store, head.commit) if row.number == number)


def _row_before(instance: Instance, head: Head, role: str) -> CommitRow:
    """Return the record before a role's last step. Raises NotFound."""
    rows = ancestry(instance.store, head.commit)
    roles = []
    for row in rows:
        if row.kind == "step" and row.role == role:
            return next(rows)
        if row.kind == "step":
            roles.append(row.role or "")
    raise NotFound(f"thread {head.thread} has no step of role {role!r}", nearest(role, sorted(set(roles))))
