"""The turns of a fork and of a join, the two steps of a fan-out that the engine makes itself."""

from __future__ import annotations

from collections.abc import Iterator

from uwf_git.engine.new_step import NewStep
from uwf_git.engine.turn.hooks import Part, Room, Stop, Work
from uwf_git.format.endings import JOINED_WITHOUT, PARENT_KILLED
from uwf_git.format.types import FORK, JOIN, USER
from uwf_git.store.history import Head, Position, ancestry
from uwf_git.store.instance import Instance


class ForkRoom(Room):
    """The engine begins the branches of a fan-out."""

    def complete(self, work: Work) -> NewStep:
        from uwf_git.engine.fan_out import fork

        return fork(work.instance, work.at)

    def settle(self, instance: Instance, head: Head) -> Iterator[Stop]:
        """Begin the branches of a thread at a fork, or end them with a thread that ended there, if no other waits for
        them. Makes `refs/uwf/threads/<branch>`."""
        if head.row.role != FORK:
            return
        from uwf_git.engine.fan_out import begin_branches
        from uwf_git.engine.forks import branches_at, parents_of

        if head.archive is None:
            begin_branches(instance, instance.threads.position(head))
            return
        for branch in branches_at(instance, head).open:
            if branch.head is not None and not parents_of(instance, branch.head):
                yield Stop(branch.thread, PARENT_KILLED)


class JoinRoom(Room):
    """The engine puts the outputs and the code of branches together, once enough of them have ended."""

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
            if branch.is_left and not instance.threads.has_ended(branch.thread):
                yield Stop(branch.thread, JOINED_WITHOUT)


class JoinedCode(Part):
    """Lets the thread's worktree follow to the code of the join."""

    def settle(self, work: Work, after: Position) -> None:
        from uwf_git.engine.fan_out_code import advance

        advance(work.instance, after)
