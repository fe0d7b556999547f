"""Steps in progress on this machine, as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from uwf_git.api.listing import nested
from uwf_git.base.errors import NotFound
from uwf_git.base.text import iso
from uwf_git.engine.branch_states import awaited_value
from uwf_git.engine.forks import parents_of
from uwf_git.engine.progress import Progress as Progress
from uwf_git.engine.progress import Watch as Watch

if TYPE_CHECKING:
    from uwf_git.format.ids import ThreadId
    from uwf_git.store.history import Head
    from uwf_git.store.instance import Instance


def step_value(step: Progress | None) -> dict[str, Any]:
    """Return a step in progress without its child; nulls if unknown."""
    if step is None:
        return dict.fromkeys(
            ("step", "role", "agent", "since", "seconds", "model", "turns", "tokens", "last")
        )
    return {
        "step": step.number,
        "role": step.role,
        **step.credit.as_json(),
        "since": iso(step.since),
        "seconds": max(0, int(time.time() - step.since)),
        "model": step.model or None,
        "turns": step.turns,
        "tokens": step.tokens,
        "last": step.last,
    }


def step_in_progress(instance: Instance, thread: ThreadId) -> dict[str, Any]:
    """Return a thread's step in progress under `running`, or {}."""
    step = Watch(instance).step(thread)
    value = inner = {"running": step_value(step)} if step else {}
    while step is not None and step.child is not None:
        step, inner = step.child, inner.get("running") or inner["child"]
        inner["child"] = {"thread": step.thread, **step_value(step)}
    return value


def steering_value(instance: Instance, head: Head) -> dict[str, Any]:
    """Return as `remarks` what was said to a thread and no step has yet, and as `permissions` what its running agent
    asks leave for; {} if there is neither."""
    value: dict[str, Any] = {}
    if instance.runs.has_remarks(head.thread):
        from uwf_git.engine.steering import remarks_of

        if remarks := remarks_of(instance, head):
            value["remarks"] = [remark.as_json() for remark in remarks]
    if instance.runs.has_requests(head.thread):
        from uwf_git.engine.permission_requests import permission_requests, request_value

        if requests := permission_requests(instance, head.thread):
            value["permissions"] = [request_value(request) for request in requests]
    return value


def progress(instance: Instance) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that lists steps in progress and runs between two steps, oldest thread first,
    sub-workflows and branches after their parents. It reads only what changed since its last call."""
    seen = Watch(instance)
    return lambda: _steps(instance, seen)


def _steps(instance: Instance, seen: Watch) -> list[dict[str, Any]]:
    held, runs = instance.locks.held(), instance.locks.runs()
    # What a killed engine left between two steps is no step in progress.
    steps = {thread: seen.step(thread) if thread in held else None for thread in sorted(held | runs)}
    inner = {step.child.thread for step in steps.values() if step and step.child}
    values: list[dict[str, Any]] = []
    for thread, step in steps.items():
        parent = None
        while thread not in inner or parent:
            with suppress(NotFound):  # it was removed meanwhile
                head = instance.threads.head(thread)
                row = head.row
                value: dict[str, Any] = {
                    "thread": thread,
                    "workflow": row.workflow,
                    "name": row.name,
                    "parent": parent or min(parents_of(instance, head), default=None),
                }
                values.append(
                    {
                        **value,
                        **awaited_value(instance, head),
                        **step_value(step),
                        **steering_value(instance, head),
                    }
                )
            if step is None or step.child is None:
                break
            parent, step = thread, step.child
            thread = step.thread
    return [item for _, item in nested(values)]
