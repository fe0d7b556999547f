"""The end of a thread."""

from __future__ import annotations

from uwf_git.store.history import Head
from uwf_git.store.instance import Instance
from uwf_git.workspaces.notes import Notes


def end(instance: Instance, head: Head, status: str, reason: str = "") -> Head:
    """End a thread whose lock the caller holds, and return its head then. What follows for other threads is for
    `settle`. Makes `refs/uwf/archive/<ULID>` and deletes the active ref."""
    ended = instance.threads.archive(head, status, reason)
    instance.runs.clear(head.thread)
    if Notes(instance.store.repository.private).has(head.thread):
        from uwf_git.workspaces.removal import leave

        leave(instance, head.thread)
    return ended
