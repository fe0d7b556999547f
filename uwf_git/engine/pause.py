"""Pausing threads. A paused thread is not stepped; it can be read, forked, answered and ended.

    refs/uwf/paused/<ULID>     an annotated tag on the head at that moment: author, time, reason
    refs/uwf/resumed/<ULID>    the last pause that was lifted here, in a store with remotes; not shared

The tag is created and deleted by compare-and-swap without a lock; a step in progress finds it at its end.
Each pause is its own object, so a remote's pause that was lifted here differs from a new one: a push deletes
the first there and a pull doesn't bring it back, while the second is adopted.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from uwf_git.base.errors import HeadMoved, Paused, StoreDamaged
from uwf_git.base.text import iso, one_line
from uwf_git.format.ids import ThreadId
from uwf_git.git.objects import is_signed, parse_tag
from uwf_git.git.repository import TAG, Oid
from uwf_git.store import layout
from uwf_git.store.new_record import PAUSES, THREADS, NewRecord
from uwf_git.store.private import PAUSE

if TYPE_CHECKING:
    from uwf_git.store.instance import Instance

_INSTANT = 5.0  # seconds

_LONGEST_NAME = 100


class Pause(NamedTuple):
    """`by` is name and address, `time` in Unix seconds. `tag` identifies the pause."""

    tag: Oid
    by: str
    time: int
    reason: str

    @property
    def who(self) -> str:
        return self.by.partition("<")[0].strip() or "somebody"

    def as_json(self) -> dict[str, str]:
        return {"by": self.by, "at": iso(self.time), "reason": self.reason}


def paused_threads(instance: Instance) -> set[str]:
    """Return the ids of all paused threads."""
    names = instance.store.repository.ref_names(layout.PAUSED)
    return {name.removeprefix(layout.PAUSED) for name in names}


def pause_of(instance: Instance, thread: ThreadId) -> Pause | None:
    """Return a thread's pause, if any. Raises StoreDamaged."""
    tag = instance.store.repository.ref(layout.PAUSED + thread)
    if tag is None:
        return None
    try:
        kind, data = instance.store.repository.read(tag)
        if kind != TAG:
            raise ValueError("it is not a tag")
        pause_tag = parse_tag(data)
    except (ValueError, LookupError, OverflowError) as error:
        raise StoreDamaged(
            f"the pause of thread {thread} is not what uwf writes: {error}", f"uwf thread resume {thread}"
        ) from None
    name, bracket, address = pause_tag.tagger.partition("<")
    by = f"{one_line(name, _LONGEST_NAME)} {bracket}{one_line(address, _LONGEST_NAME)}".strip()
    return Pause(
        tag, by, pause_tag.time, one_line(pause_tag.message.partition(": ")[2], layout.LONGEST_REASON)
    )


def pause(instance: Instance, thread: ThreadId, reason: str = "", now: bool = False) -> Pause:
    """Pause a thread. A step in progress finishes; with `now` it is ended and becomes a failed attempt, whose
    session the next step resumes. An existing pause is kept. Makes `refs/uwf/paused/<ULID>`. Raises Invalid
    for a thread that has ended, Busy if its agent does not end."""
    repository = instance.store.repository
    head = instance.threads.active_head(thread)
    if not instance.threads.is_paused(thread):
        instance.store.before_record(NewRecord(THREADS, head.row.name or "", (PAUSES,)))
        instance.store.gate(reason, "the reason", "a tag")
        text = f"paused: {one_line(reason, layout.LONGEST_REASON)}\n" if reason.strip() else "paused\n"
        tag = repository.write_tag(layout.tag_name(thread), head.commit, text)
        with contextlib.suppress(HeadMoved):  # it was paused meanwhile
            repository.create_ref(layout.PAUSED + thread, tag)
        if not instance.threads.exists(thread) or instance.threads.has_ended(thread):
            instance.threads.drop(layout.PAUSED + thread)
            instance.threads.active_head(thread)
    if now:
        end_step(instance, thread, PAUSE)
    pause = pause_of(instance, thread)
    if pause is None:  # it was resumed, or it has ended
        raise HeadMoved(f"thread {thread} was resumed meanwhile", f"see: uwf thread show {thread}")
    return pause


def end_step(instance: Instance, thread: ThreadId, why: str) -> None:
    """End a thread's step in progress, for a PAUSE or a KILL. Waits for other holders of the lock (an answer,
    a pull, a removal), which finish quickly. Raises Busy if the agent does not end."""
    deadline = time.monotonic() + _INSTANT
    while instance.locks.is_held(thread) and instance.runs.read_order(thread) is None:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.01)
    if instance.locks.is_held(thread):
        instance.runs.break_off(thread, why)
        instance.locks.end(thread)


def resume(instance: Instance, thread: ThreadId) -> bool:
    """Lift a pause, without stepping. Return whether the thread was paused. Deletes `refs/uwf/paused/<ULID>`,
    and moves `refs/uwf/resumed/<ULID>` if there are remotes. Raises Invalid for a thread that has ended."""
    repository = instance.store.repository
    instance.threads.active_head(thread)
    tag = repository.ref(layout.PAUSED + thread)
    if tag is None:
        return False
    if repository.has_tracking_refs:
        repository.put_ref(layout.RESUMED + thread, repository.ref(layout.RESUMED + thread), tag)
    repository.delete_ref(layout.PAUSED + thread, tag)
    return True


def was_lifted(instance: Instance, thread: ThreadId, tag: Oid) -> bool:
    """Return whether this is the thread's last pause lifted here."""
    return instance.store.repository.ref(layout.RESUMED + thread) == tag


def carry(instance: Instance, thread: ThreadId, fork: ThreadId) -> None:
    """Pause the other side of a divergence like its original. Makes `refs/uwf/paused/<fork>`: the same on every
    machine, or signed by the user, who says it again, if the original is signed and they sign tags."""
    tag = instance.store.repository.ref(layout.PAUSED + thread)
    if tag is None or instance.threads.is_paused(fork):
        return
    repository = instance.store.repository
    data = repository.read(tag)[1]
    pause = parse_tag(data)
    if is_signed(data) and repository.config.signs_tags:
        carried = repository.write_tag(layout.tag_name(fork), pause.target, pause.message)
    else:
        raw = layout.pause_tag(fork, pause.target, pause.tagger, pause.time, pause.message)
        carried = repository.write_raw_tag(raw)
    with contextlib.suppress(HeadMoved):  # it was paused meanwhile
        repository.create_ref(layout.PAUSED + fork, carried)


def forget_lifted(instance: Instance) -> None:
    """Forget lifted pauses that no remote has any more."""
    repository = instance.store.repository
    seen = {oid for name, oid in repository.refs(layout.REMOTES).items() if "/paused/" in name}
    lifted = repository.refs(layout.RESUMED)
    repository.delete_refs({name: oid for name, oid in lifted.items() if oid not in seen})


def raise_if_paused(instance: Instance, thread: ThreadId) -> None:
    """Raise Paused if a thread is paused. Raises StoreDamaged."""
    pause = pause_of(instance, thread)
    if pause is not None:
        raise refusal(thread, pause)


def refusal(thread: ThreadId, pause: Pause, kept: bool = False) -> Paused:
    """Return the error for stepping a paused thread. `kept`: its step was ended and kept."""
    why = f": {pause.reason}" if pause.reason else ""
    what = "; what its agent did so far is kept" if kept else ""
    return Paused(f"thread {thread} was paused by {pause.who}{why}{what}", f"uwf thread resume {thread}")
