"""A join's turn: the engine puts the outputs and the code of branches together, once enough of them have ended."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Part, Room, Stop, Work
from uwf_git.format.fan_out import JOINED_WITHOUT, LEFT
from uwf_git.format.types import JOIN, USER
from uwf_git.store.history import Head, Position, ancestry
from uwf_git.store.instance import Instance


class JoinRoom(Room):
    def complete(self, work: Work) -> NewStep:
        """Raises Waiting while too few branches have ended."""
        from uwf_git.engine.fan_out import join

        return join(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """End the branches that a thread's last step, if it is a join, left out. One that runs on another machine ends
        with its next step."""
        if head.row.role not in (JOIN, USER):
            return
        from uwf_git.engine.forks import join_at

        row = next((row for row in ancestry(instance.store, head.commit) if row.role != USER), None)
        if row is None or row.role != JOIN:
            return
        for branch in join_at(instance, row.node):
            if branch.status == LEFT and not instance.threads.has_ended(branch.thread):
                yield Stop(branch.thread, JOINED_WITHOUT)


class JoinedCode(Part):
    """Lets the thread's worktree follow to the code of the join."""

    def settle(self, work: Work, after: Position) -> None:
        from uwf_git.engine.fan_out_code import advance

        advance(work.instance, after)
