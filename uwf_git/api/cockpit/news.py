"""What happened to a thread since somebody looked at it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from uwf_git.api.cockpit.retry import newest_forks, retried_by
from uwf_git.api.cockpit.rows import rows_of
from uwf_git.api.cockpit.run import brief, name_of, run
from uwf_git.base.text import iso
from uwf_git.engine.thread_state import ended_state
from uwf_git.format.types import role_name

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.index import CommitRow
    from uwf_git.store.instance import Instance

_LINE = 200  # characters of a verdict


def news(instance: Instance, head: Head, shown: str, request: str = "") -> dict[str, Any] | None:
    """Return what came first after the head with the node `shown`, or after an agent asked leave by `request`: `text`,
    the time `at` which it did, and the `thread` that was made by it, None if it was none. None if nothing is known to
    have happened."""
    if request and (decision := instance.permission_files.decision(head.thread, request)) is not None:
        word = "allowed" if decision.granted else "denied"
        return _value(f"{name_of(decision.by)} {word} it", decision.at)
    if (row := _next_after(instance, head, shown)) is not None:
        return _value(_words(instance, head, row), row.time)
    forks = newest_forks(instance)
    if (fork := retried_by(head, forks)) is not None:
        return _value(
            f"{name_of(forks[head.thread].by) or 'Somebody'} forked it", forks[head.thread].time, fork
        )
    if head.archive is not None:
        return _value(f"It ended: {ended_state(head.archive).label}", head.archive.time)
    if instance.locks.is_held(head.thread):
        from uwf_git.engine.progress import Watch

        if (step := Watch(instance).step(head.thread)) is not None:
            return _value(f"{role_name(step.role)} began step {step.number}", step.since)
    return None


def _value(text: str, at: float, thread: ThreadId | None = None) -> dict[str, Any]:
    return {"text": text, "at": iso(at), "thread": thread}


def _next_after(instance: Instance, head: Head, shown: str) -> CommitRow | None:
    rows, _ = rows_of(instance, head)
    return next((after for row, after in pairwise(rows) if row.node == shown), None)


def _words(instance: Instance, head: Head, row: CommitRow) -> str:
    bar = next(bar for bar in run(instance, head, row.number + 1)["bars"] if bar["node"] == row.node)
    verdict = brief(bar["verdict"], _LINE)
    if bar["kind"] in ("answer", "remark"):
        return f"{bar['by']} {'answered' if bar['kind'] == 'answer' else 'said'} {verdict}"
    return f"{role_name(bar['role'])} made step {row.number}" + (f": {verdict}" if verdict else "")
