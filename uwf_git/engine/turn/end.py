"""The end's turn: a thread whose workflow has ended is archived. No step is made."""

from __future__ import annotations

from uwf_git.engine.census import census_of
from uwf_git.engine.ending import end
from uwf_git.engine.turn.hooks import Room, Work
from uwf_git.format.fan_out import COMPLETED, FAILED
from uwf_git.store.history import Head


class EndRoom(Room):
    def complete(self, work: Work) -> Head:
        """Makes `refs/uwf/archive/<ULID>` and deletes the active ref."""
        head, ahead = work.at.head, work.turn.ahead
        if ahead.failed:
            return end(work.instance, head, FAILED, ahead.reason or "")
        census = census_of(work.instance, head.commit)
        return end(work.instance, head, COMPLETED, census.ending if census is not None else "")
