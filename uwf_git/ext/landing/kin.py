"""The threads that have a thread's start: it, its forks, and those that go on with an ended one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from uwf_git.ext.landing.effect_records import Effects, RecordedEffect
from uwf_git.plugin import USER, DamagedThread, Head, ancestry, start_of

if TYPE_CHECKING:
    from uwf_git.plugin import Instance, StepContext, ThreadId


def kin_of(instance: Instance, head: Head, among: Sequence[Head | DamagedThread] = ()) -> list[Head]:
    """Return the heads of all threads here that have a thread's start, its own first. `among` are those of all threads,
    if they are known."""
    begin = start_of(instance.store, head.commit).oid
    others = [
        other
        for other in among or instance.threads.all(archived=True)
        if isinstance(other, Head) and other.row.start == head.row.start and other.thread != head.thread
    ]
    return [head, *(other for other in others if start_of(instance.store, other.commit).oid == begin)]


def effects_of(instance: Instance, kin: list[Head], kind: str) -> list[tuple[ThreadId, RecordedEffect]]:
    """Return the effects of a kind that threads have recorded, each with its thread."""
    recorded = Effects(instance.store)
    effects = ((head.thread, item) for head in kin for item in recorded.of_thread(head.thread))
    return [(thread, item) for thread, item in effects if item.effect.kind == kind]


def effects_in_line(instance: Instance, head: Head, kind: str) -> list[tuple[ThreadId, RecordedEffect]]:
    """Return the effects of a kind that are a thread's own, or that one of its kin sent at a step that it has too."""
    steps = {step.hash for step in instance.threads.history(head).steps}
    return [
        (thread, item)
        for thread, item in effects_of(instance, kin_of(instance, head), kind)
        if thread == head.thread or item.effect.prev in steps
    ]


def goes_on_as(instance: Instance, head: Head, kin: list[Head]) -> Head:
    """Return the thread that a user's words went on with, the one with the newest of them; itself without one."""
    onward = [other for other in kin if _goes_on(instance, head, other)]
    return max(onward, key=lambda other: (other.row.number, other.updated), default=head)


def texts_of_user(instance: Instance, kin: list[Head]) -> Iterator[str]:
    """Yield what users said in threads, each step once."""
    seen = set()
    for head in kin:
        for step in instance.threads.history(head).steps:
            if step.role == USER and step.hash not in seen:
                seen.add(step.hash)
                yield text_of_user(step)


def text_of_user(step: StepContext) -> str:
    """Return what the user said in a step, "" if that isn't a text."""
    output = step.output if isinstance(step.output, dict) else {}
    texts = (output.get(name) for name in ("remark", "answer"))
    return next((text for text in texts if isinstance(text, str)), "")


def _goes_on(instance: Instance, head: Head, other: Head) -> bool:
    after = None
    for row in ancestry(instance.store, other.commit):
        if row.oid == head.commit.raw:
            return after is not None and after.role == USER
        if row.number <= head.row.number:
            return False
        after = row
    return False
