"""What people recorded doesn't cross the edge of a step's own store: within a step, no answer, approval, kill or trust
policy is taken into the user's store, and none leaves a store that the step made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from uwf_git.base.errors import RequirementUnmet
from uwf_git.format.endings import KILLED
from uwf_git.format.kinds import HUMAN
from uwf_git.format.types import USER
from uwf_git.git.repository import Oid
from uwf_git.sandbox.enclosing_step import enclosing_step, is_younger
from uwf_git.store import layout, ref_kinds
from uwf_git.store.history import ancestry
from uwf_git.store.index import CommitRow

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.instance import Instance

_HINT = "do it yourself, in a terminal outside of the step"


def is_guarded(instance: Instance) -> bool:
    """Return whether this process runs within a step, and the store is not the step's own."""
    return enclosing_step(instance.environ) is not None and not is_younger(instance.location.git_dir)


def persons_part(instance: Instance, name: str, oid: Oid) -> str:
    """Return what a person alone takes over of a verified ref, as a clause; "" if nothing. What this store has of the
    thread already is no news."""
    if name == layout.POLICY:
        return "takes a trust policy over"
    if name.startswith(layout.FOLDED):
        from uwf_git.store import archives

        folded = archives.read(instance.store.repository, oid).threads.values()
        parts = (
            _part_of_thread(
                instance, item.thread, item.ended.target, item.ended.message.strip().partition(":")[0]
            )
            for item in folded
        )
        return next(filter(None, parts), "")
    if not layout.is_thread_ref(name):
        return ""
    thread, kind = layout.thread_of(name), ref_kinds.kind_of(name)
    if kind is not None and kind.of_people:
        return f"takes {kind.word} of thread {thread} over"
    if name.startswith(layout.ARCHIVE):
        row = instance.store.index_tag(oid)
        return _part_of_thread(instance, thread, Oid(raw=row.target), row.status)
    return _part_of_thread(instance, thread, oid) if name.startswith(layout.THREADS) else ""


def require_none_sent(instance: Instance, commits: Iterable[bytes]) -> None:
    """Raise RequirementUnmet if commits that leave a store which a step made, within that step, are a person's."""
    if enclosing_step(instance.environ) is None or not is_younger(instance.location.git_dir):
        return
    rows = filter(None, map(instance.store.index.commit, commits))
    if any(map(_is_persons, rows)):
        raise RequirementUnmet("a step sends no answers that it has given itself", _HINT)


def _part_of_thread(instance: Instance, thread: ThreadId, head: Oid, status: str = "") -> str:
    store, threads = instance.store, instance.threads
    is_here = threads.exists(thread)
    if status == KILLED and is_here and not threads.has_ended(thread):
        return f"kills thread {thread}"
    ours = {row.oid for row in ancestry(store, threads.head(thread).commit)} if is_here else set()
    if any(_is_persons(row) for row in ancestry(store, head) if row.oid not in ours):
        return f"takes answers of thread {thread} over"
    return ""


def _is_persons(row: CommitRow) -> bool:
    if row.kind == "step":
        return row.role == USER or row.agent == HUMAN
    kind = ref_kinds.kind_of_record(row.kind)
    return kind is not None and kind.of_people
