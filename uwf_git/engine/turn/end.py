"""The end of a thread, and its turn: one whose workflow has ended is archived. No step is made."""

from __future__ import annotations

from uwf_git.engine.turn.hooks import Room, Work
from uwf_git.format.endings import COMPLETED, FAILED
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


class EndRoom(Room):
    def complete(self, work: Work) -> Head:
        """Makes `refs/uwf/archive/<ULID>` and deletes the active ref."""
        head, ahead = work.at.head, work.turn.ahead
        if ahead.failed:
            return end(work.instance, head, FAILED, ahead.reason or "")
        from uwf_git.engine.census import census_of

        census = census_of(work.instance, head.commit)
        return end(work.instance, head, COMPLETED, census.ending if census is not None else "")


ROOM = EndRoom()
